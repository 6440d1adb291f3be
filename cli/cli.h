/* cli.h: what the files of the command share. A subcommand is a record at the end of its own file and a line of cli.def; an
 * option is a row of the record's table, from which parsing, messages, help and completion grow. */
#ifndef SGRAD_CLI_CLI_H
#define SGRAD_CLI_CLI_H

#include "config.h"
#include "graphs/runs/runs.h"

#include <jansson.h>

enum { SGRAD__DONE = 0, SGRAD__FAILED = 1, SGRAD__USAGE = 2 };     /* exit status */

/* A command line, understood. */
struct sgrad__request {
    const struct sgrad__command *command;
    const char *argument;                   /* the word that is no option, or NULL */
    char **words;                           /* that word and all after it, where a command takes them; NULL ends */
    struct sgrad_train_options train;
    char **given;                           /* the words that this is, after the command's name; NULL ends */
    const char *asked[128];                 /* the long names of the options that were given; NULL ends: train.asked */
    const char *config;                     /* a file of options, which come first; NULL: none */
    const char *like;                       /* a run's folder, whose options hold where none is given; NULL: none */
    enum sgrad_continuation resume;         /* of train */
    bool begins;                            /* --resume auto has found no run */
    struct {
        int top;                            /* classes of each sample */
    } predict;
    struct {
        bool details;
    } eval;
    struct {
        const char *prompt, *tokenizer;
        long tokens;
        double temperature;
        int top_k;
    } sample;
    struct {
        int ranks, retries;
        const char *host, *hostfile;
    } launch;
    struct {
        const char *hash, *threshold, *sweep;
        int bits, odd;                      /* 0: 64, 1: 256; enum sgrad_treatment */
        int seeds;                          /* of a sweep's runs, at each threshold */
        int memory;                         /* of the search, MiB; 0: by the machine's */
        double epsilon;                     /* accuracy that a sweep may lose */
        bool across, refuse_damaged, no_test;
    } dedup;
    struct {
        double from, to;                    /* learning rates */
    } find_lr;
    struct {
        const char *replay;
        int together;
    } search;
    struct sgrad_segment_options segment;
    struct {
        const char *machine, *nodes, *mini_batch;
        bool no_overlap, own_workspaces, simulate, every_node, limits;
        double efficiency, room;            /* that is sought, 0: none; bytes of workspaces, in MB */
    } plan;
};

struct sgrad__command {
    const char *name, *summary;
    const char *argument;                   /* the one word it takes besides options: "RUN-DIR", or "[RUN-DIR]" where it may be
                                               left out; NULL: none */
    bool of_run;                            /* that word is a run's folder: request.like */
    bool repeats;                           /* it may come several times: words has all */
    bool takes_words;                       /* that word ends its options, and all after it are another command's */
    const char *notes;                      /* end of the help, or NULL */
    const struct sgrad__option *options;    /* ends with a row of zeros */
    const struct sgrad__command *also;      /* whose options it takes, too, after its own; NULL: nobody's */
    void (*defaults)(struct sgrad__request *request);   /* of its own options, besides those of a training; NULL: zeros */
    int (*run)(const struct sgrad__request *request);   /* returns the exit status */
};
extern const struct sgrad__command sgrad__train_command;    /* of cli.def's, the one that another starts: launch */

/* ---- options.c, types.c ---- */

/* A row without name is a heading. */
struct sgrad__option {
    const char *name;                   /* without the dashes */
    const char *value;                  /* what it takes, for the help: "N"; "[STEPS]" may be left out; NULL: a flag */
    const char *help;
    const struct sgrad__type *type;
    size_t field, size;                 /* in struct sgrad__request: where the value goes */
    double low, high;                   /* of numbers */
    bool required;
    char letter;                        /* -n; 0: no short form */
};
#define SGRAD__PLACE(member) \
    .field = offsetof(struct sgrad__request, member), .size = sizeof(((struct sgrad__request *)0)->member)
#define SGRAD__FIELD(name) SGRAD__PLACE(train.name)

/* How a word becomes a value. */
struct sgrad__type {
    bool (*read)(const struct sgrad__option *option, const char *text, struct sgrad__request *request);   /* false: refused */
    char *(*takes)(const struct sgrad__option *option);         /* "a whole number from 1 to 8"; free it */
    char *(*show)(const struct sgrad__option *option, const struct sgrad__request *request);    /* a default; NULL: none */
};
extern const struct sgrad__type sgrad__flag, sgrad__whole, sgrad__real, sgrad__text, sgrad__file, sgrad__folder, sgrad__choice,
    sgrad__schedule, sgrad__views, sgrad__augmentation, sgrad__none, sgrad__group, sgrad__period, sgrad__workers, sgrad__range,
    sgrad__plugin, sgrad__resume, sgrad__time;

/* Of every command that looks for records. */
#define SGRAD__PLUGIN_OPTION \
    { "plugin", "FILE", "a shared object with records of one's own; may come several times", &sgrad__plugin, SGRAD__PLACE(train) }

bool *sgrad__option_flag(const struct sgrad__option *option, struct sgrad__request *request);      /* where a flag's value is */
bool sgrad__is_file(const char *path);      /* and no folder */

/* What switches flag NAME off: "no-best" of "best", "shuffle" of "no-shuffle"; free it. */
char *sgrad__option_opposite(const char *name);

/* The option NAME, without its dashes, of COMMAND's own; NULL: it has none such. */
const struct sgrad__option *sgrad__option_find(const struct sgrad__command *command, const char *name);

/* Fills REQUEST from the words after the command's name. Returns true to go on; else *STATUS is the exit status: help was
 * printed, or one line on standard error says what is wrong. */
bool sgrad__options_parse(const struct sgrad__command *command, int argc, char **argv, struct sgrad__request *request,
                          int *status);

/* ---- config.c ---- */

/* The words of the options in the file PATH, between ARGV's first word and the others: *COUNT of them, that live as long as the
 * program. Returns the exit status: 0, or one line on standard error says what is wrong. */
int sgrad__config_words(const struct sgrad__command *command, const char *path, int argc, char **argv, char ***all, int *count);

bool sgrad__is_asked(const struct sgrad__request *request, const char *option);     /* was it given? */

/* ---- past.c: of the run that is the command's argument, where one is named ---- */

/* Its final weights, where neither others nor another network, which may bring its own, is asked for. */
void sgrad__weights_of_run(const struct sgrad__request *request, struct sgrad_train_options *options);

/* What COUNT classes are called, by the run or by the data set; free it, whether they were found or not. */
struct sgrad__classes {
    int count;
    char **name;
};
int sgrad__classes_find(const struct sgrad__request *request, const struct sgrad_train_options *options, int count,
                        struct sgrad__classes *classes);
void sgrad__classes_free(struct sgrad__classes *classes);

/* ---- answer.c ---- */

/* One line on standard error: what is wrong with the command line. Returns SGRAD__USAGE. */
int sgrad__wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "COMMAND: no WHAT 'WORD'", and the nearest of NAMES, after DASHES, or where to look. COMMAND "": stargrad itself. */
int sgrad__no_such(const char *command, const char *what, const char *word, const char *const *names, const char *dashes);

/* The exit status of a library function that returned ERROR. */
int sgrad__status(int error);

/* A string; null for NULL. JSON is UTF-8: where TEXT is not (a file's name), each byte above 127 becomes U+FFFD. */
json_t *sgrad__json_text(const char *text);

/* Prints and frees RESULT, as one line on standard output. */
void sgrad__print_json(json_t *result);

#endif
