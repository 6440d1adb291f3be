/* cli.h: declarations that the files of the command stargrad use. A subcommand is a record at the end of its source file, and a
 * line in cli.def. An option is a row of the table in that record, from which parsing, messages, help and completion are
 * derived. */
#ifndef SGRAD_CLI_CLI_H
#define SGRAD_CLI_CLI_H

#include "config.h"
#include "graphs/api/inference.h"
#include "graphs/api/segment.h"
#include "graphs/api/train.h"

#include <jansson.h>

enum { SGRAD__DONE = 0, SGRAD__FAILED = 1, SGRAD__USAGE = 2 };     /* exit status: success, failure, wrong command line */

/* A parsed command line. */
struct sgrad__request {
    const struct sgrad__command *command;
    const char *argument;                   /* the first word that is not an option; NULL: none */
    char **words;                           /* all arguments, or with .takes_words all words from the first; NULL-terminated */
    char **files;                           /* with .takes_files the arguments that are files; NULL-terminated; NULL: none */
    struct sgrad_train_options train;
    char **given;                           /* the unparsed words after the command's name; NULL-terminated */
    const char *asked[160]; /* long names of the options that are set, NULL-terminated; as train.explicit_options */
    const char *config;                     /* a file of options, which the command line overrides; NULL: none */
    const char *like;                       /* a run's folder, whose options are the defaults; NULL: none */
    enum sgrad_continuation resume;         /* --resume of train */
    bool begins;                            /* --resume auto has found no run to continue */
    struct {
        int top;                            /* number of predicted classes per sample */
    } predict;
    struct {
        bool compiler, linker;
    } config_flags;
    struct {
        bool details;
    } eval;
    struct {
        long shard_size;
    } export;
    struct {
        const char *prompt, *prompts, *template, *system, *stop, *tokenizer;
        long tokens;
        double temperature, top_p, repetition_penalty;
        int top_k;
    } sample;
    struct {
        const char *tokenizer, *field, *template, *begin, *end, *val;
        int threads;
    } tokenize;
    struct {
        int ranks, retries;
        const char *host, *hostfile;
        bool resize;                        /* the ranks follow changes of hostfile */
    } launch;
    struct {
        const char *hash, *threshold, *sweep;
        int bits, odd;                      /* 0: 64 bits, 1: 256 bits; enum sgrad_treatment */
        int seeds;                          /* number of runs of a sweep at each threshold */
        int memory;                         /* of the search, in MiB; 0: half of the machine's */
        double epsilon;                     /* maximum loss of accuracy of the best point of a sweep */
        bool across, refuse_damaged, no_test;
    } dedup;
    struct {
        double from, to;                    /* the learning rate of the first step; the limit of the last */
    } find_lr;
    struct {
        const char *replay;
        int together;
    } search;
    struct sgrad_segment_options segment;
    struct {
        const char *machine, *nodes, *mini_batch;
        bool no_overlap, own_workspaces, simulate, every_node, limits;
        double efficiency, room;            /* target, 0: none; MB for workspaces, 0: the remaining memory of the device */
    } plan;
};

struct sgrad__command {
    const char *name, *summary;
    const char *argument;                   /* the word that is not an option: "RUN-DIR", or "[RUN-DIR]" if it is optional;
                                               NULL: none */
    bool of_run;                            /* the argument is a run's folder: request.like */
    bool repeats;                           /* the argument may occur several times: request.words */
    bool takes_files;                       /* of_run and repeats: files follow the run, or replace it: request.files */
    bool takes_words;                       /* the argument ends the options; it and all later words belong to another command */
    const char *notes;                      /* end of the help; NULL: none */
    char *(*more)(void);                    /* returns text after the notes, which the caller must free; NULL: none */
    const struct sgrad__option *options;    /* ends with a row of zeros */
    const struct sgrad__command *also;      /* a command whose options are accepted as well; the help refers to it; NULL: none */
    void (*defaults)(struct sgrad__request *request);   /* sets the defaults of the options outside request.train; NULL: zeros */
    int (*run)(const struct sgrad__request *request);   /* returns the exit status */
};
extern const struct sgrad__command sgrad__train_command;    /* declared here because launch starts it */

/* ---- options.c, types.c ---- */

/* An option. A row without a name is a heading in the help. */
struct sgrad__option {
    const char *name;                   /* without the dashes */
    const char *value;                  /* its value in the help: "N"; optional: "[STEPS]"; NULL: a flag */
    const char *help;
    const struct sgrad__type *type;
    size_t field, size;                 /* offset and size of the value in struct sgrad__request */
    double low, high;                   /* range of a number */
    bool required;
    char letter;                        /* -n; 0: no short form */
};
#define SGRAD__PLACE(member) \
    .field = offsetof(struct sgrad__request, member), .size = sizeof(((struct sgrad__request *)0)->member)
#define SGRAD__FIELD(name) SGRAD__PLACE(train.name)

/* The type of an option's value. read converts TEXT and stores the value in REQUEST; false: invalid. takes returns a description
 * of the valid values, "a whole number from 1 to 8"; without takes, read logs the error. show returns the value in REQUEST as
 * text, for the help; NULL: none. The caller must free both texts. */
struct sgrad__type {
    bool (*read)(const struct sgrad__option *option, const char *text, struct sgrad__request *request);
    char *(*takes)(const struct sgrad__option *option);
    char *(*show)(const struct sgrad__option *option, const struct sgrad__request *request);
};
extern const struct sgrad__type sgrad__flag, sgrad__whole, sgrad__real, sgrad__text, sgrad__file, sgrad__folder, sgrad__choice,
    sgrad__schedule, sgrad__views, sgrad__augmentation, sgrad__none, sgrad__group, sgrad__period, sgrad__bytes, sgrad__memory,
    sgrad__workers, sgrad__range, sgrad__plugin, sgrad__resume, sgrad__best, sgrad__time, sgrad__numbers, sgrad__lookahead,
    sgrad__interval;

/* Options about the samples, which train, eval and predict have. */
#define SGRAD__SAMPLE_OPTIONS \
    { "image-size", "N", "resize images of folder and tar to NxN [original size]", &sgrad__whole, SGRAD__FIELD(data.image_size), \
      1, 4096 }, \
    { "eval-resize", "N", "resize the shorter side of test images to N, then crop the centre of --image-size [--image-size]", \
      &sgrad__whole, SGRAD__FIELD(data.eval_resize), 1, 8192 }, \
    { "exif", "ignore|apply", "EXIF orientation of images of folder and tar; a TIFF's is always applied", &sgrad__choice, \
      SGRAD__FIELD(data.exif) }, \
    { "decode", "full|reduced", \
      "reduced: decode JPEG images at 1/2, 1/4 or 1/8 of their size if --image-size needs no more; faster, not the same pixels", \
      &sgrad__choice, SGRAD__FIELD(data.reduced) }, \
    { "split", "FRACTION", \
      "hold out this fraction of the training samples as the test set, by class, if the data have no test set; 0: none", \
      &sgrad__real, SGRAD__FIELD(data.split), 0, 0.99 }, \
    { "class-names", "FILE", "names of the classes in results: FILE has a line for each class [the data set's]", &sgrad__file, \
      SGRAD__FIELD(data.class_names) }
/* The options of eval and predict about samples and devices. */
#define SGRAD__EVALUATION_OPTIONS \
    { "attend", "sample|document[:TOKEN]", "as of train [as of the run]", &sgrad__text, SGRAD__FIELD(data.attend) }, \
    { "damaged", "stop|skip", "on a sample that cannot be read: stop with an error, or log and skip it", &sgrad__choice, \
      SGRAD__FIELD(data.skip_damaged) }, \
    { "on", "val|test", "split of a folder that has train, val and test [val]", &sgrad__text, SGRAD__FIELD(data.on) }, \
    SGRAD__SAMPLE_OPTIONS, \
    { "micro-batch", "N", "samples per task [automatic]", &sgrad__whole, SGRAD__FIELD(training.micro_batch), 1, 2147483647 }, \
    { "precision", "f32|tf32|bf16", \
      "tf32: GPU tensor cores may round the inputs of matrix products to TF32; bf16: bfloat16 activations", \
      &sgrad__choice, SGRAD__FIELD(model.precision) }, \
    { "cpus", "N", "number of CPU workers", &sgrad__workers, SGRAD__FIELD(parallel.cpus), 0, 4096 }, \
    { "gpus", "N", "number of CUDA devices; 0: none", &sgrad__workers, SGRAD__FIELD(parallel.gpus), 0, 4096 }, \
    { "scheduler", "NAME", "StarPU scheduler [lws; with GPUs dmdas]", &sgrad__text, SGRAD__FIELD(parallel.scheduler) }
/* The option of all commands that search for records, such as models and data sets. */
#define SGRAD__PLUGIN_OPTION \
    { "plugin", "FILE", "load a plug-in, a shared object with custom operations, models and so on; may be repeated", \
      &sgrad__plugin, SGRAD__PLACE(train) }

bool sgrad__option_is_flag(const struct sgrad__option *option);   /* true: false and --no-NAME disable it */
bool *sgrad__option_flag(const struct sgrad__option *option, struct sgrad__request *request);   /* address of a flag's value */
bool sgrad__is_file(const char *path);      /* returns true if PATH exists and is not a folder */

/* Returns the name of the option that disables the flag NAME: "no-best" for "best", "shuffle" for "no-shuffle". The caller must
 * free it. */
char *sgrad__option_opposite(const char *name);

/* Returns the option NAME, without dashes, in command->options; NULL: not found. */
const struct sgrad__option *sgrad__option_find(const struct sgrad__command *command, const char *name);

/* Sets REQUEST, which has the defaults, from the command line. ARGV[0] is the name of COMMAND. Returns true if the command must
 * run. Else *STATUS is the exit status, and the help was printed, or an error was logged as one line on standard error. */
bool sgrad__options_parse(const struct sgrad__command *command, int argc, char **argv, struct sgrad__request *request,
                          int *status);

/* ---- option_file.c ---- */

/* Sets *ALL to the words of ARGV with the options of the JSON file PATH inserted after the first word, and *COUNT to their
 * number. They are never freed. Returns the exit status; errors are logged as one line on standard error. */
int sgrad__config_words(const struct sgrad__command *command, const char *path, int argc, char **argv, char ***all, int *count);

/* Returns true if OPTION was set on the command line or in a file of options. */
bool sgrad__is_asked(const struct sgrad__request *request, const char *option);

/* ---- history.c: data of the run that is the command's argument, if there is one ---- */

/* Sets options->model.init to the final weights of the run, unless --weights or --model is set: another model may contain
 * weights. Clears options->evaluation.tta, unless --tta is set. */
void sgrad__weights_of_run(const struct sgrad__request *request, struct sgrad_train_options *options);

/* Sets CLASSES to the names of COUNT classes: those of the run; without one, if files are predicted, those of the run in whose
 * folder the weights are; otherwise those of the data set. A class without a name gets its number. The caller must free CLASSES,
 * also after an error. Returns 0 or a negative SGRAD_E… code. */
struct sgrad__classes {
    int count;
    char **name;
};
int sgrad__classes_find(const struct sgrad__request *request, const struct sgrad_train_options *options, int count,
                        struct sgrad__classes *classes);
void sgrad__classes_free(struct sgrad__classes *classes);

/* ---- answer.c ---- */

/* Logs an error in the command line as one line on standard error. Returns SGRAD__USAGE. */
int sgrad__wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Logs "COMMAND: no WHAT 'WORD'" with the most similar of NAMES, after DASHES, or with a reference to --help. COMMAND "":
 * stargrad without a command. Returns SGRAD__USAGE. */
int sgrad__no_such(const char *command, const char *what, const char *word, const char *const *names, const char *dashes);

/* Returns the exit status for ERROR, the result of a library function: SGRAD__USAGE for SGRAD_ENAME and SGRAD_EINVAL. */
int sgrad__status(int error);

/* Prints RESULT as one line on standard output and releases it (json_decref). */
void sgrad__print_json(json_t *result);

#endif
