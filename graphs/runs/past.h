/* past.h: runs in their folders: their options, the data that they were trained on, and how they are continued. A part of
 * graphs/runs/runs.h, which includes it. */
#ifndef SGRAD_RUNS_PAST_H
#define SGRAD_RUNS_PAST_H

#include "graphs/networks/networks.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_train_options;
struct sgrad_dataset;

/* The options of the run in FOLDER as its config.json has them, with the changes of its continuations, but without out, resume
 * and trace. Plug-ins that it had are not opened; a warning names them. Texts live as long as the program. SGRAD_EIO,
 * SGRAD_EFORMAT; *OPTIONS then stays as it is. */
int sgrad_run_options(const char *folder, struct sgrad_train_options *options);

/* Continues a run. SGRAD_CONTINUE: FOLDER must hold one. SGRAD_CONTINUE_OR_BEGIN: a run is begun if FOLDER holds none, in a
 * folder that may hold only the files that batch systems write there (slurm-*.out). If the run is continued, *OPTIONS become its
 * options, as above, and *GOES_ON true; otherwise *OPTIONS stay as they are. Options that depend on the number of ranks and do
 * not suit the present number are chosen again. Each rank reads config.json, so all ranks must see FOLDER. SGRAD_EINVAL: there
 * is no run to continue. */
enum sgrad_continuation { SGRAD_BEGIN, SGRAD_CONTINUE, SGRAD_CONTINUE_OR_BEGIN };
int sgrad_run_continue(const char *folder, enum sgrad_continuation how, struct sgrad_train_options *options, bool *goes_on);

/* INHERITED, of another run, are about to be overridden by the options of GIVEN that ASKED names (as options.asked). Dependent
 * options are reset: another optimizer uses its default learning rate, and --epochs replaces --steps. */
void sgrad_run_options_yield(struct sgrad_train_options *inherited, const struct sgrad_train_options *given,
                             const char *const *asked);

/* What it was trained on: images, and the names of their classes. */
struct sgrad_run_input {
    struct sgrad_shape image;       /* (H,W,C); rank 0: they are none */
    float full_scale;
    int classes;                    /* 0: it has none */
    char **class_name;              /* of each class */
};
int sgrad_run_input(const char *folder, struct sgrad_run_input *input);
void sgrad_run_input_free(struct sgrad_run_input *input);

/* A data set without samples, of such as the run in FOLDER, whose options are OPTIONS, takes: images, which the run knows; of
 * others, or where FOLDER is NULL, the data set that they name, which then has to be there. */
int sgrad_run_samples(const char *folder, const struct sgrad_train_options *options, struct sgrad_dataset **dataset);

/* The test part of OPTIONS.data for the weights OPTIONS.init. Columns and classes are matched with those that the config.json
 * beside the weights names, and features are normalised as it says (datasets.h, origin). EVERY: all samples of a file that is not
 * divided into parts, whose target may be missing. SGRAD_EFORMAT: they do not match, or the file is malformed. */
int sgrad_run_open_samples(const struct sgrad_train_options *options, bool every, struct sgrad_dataset **dataset);

/* The seed becomes that of the run in whose folder the weights of OPTIONS lie, if it is a run's: drawn data are its own. */
void sgrad_run_take_seed(struct sgrad_train_options *options);

char *sgrad_run_weights(const char *folder);    /* the file of its final weights; free it */

#ifdef __cplusplus
}
#endif
#endif
