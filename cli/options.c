/* options.c: parses the command line into a request. */
#include "cli/cli.h"
#include "graphs/api/inference.h"
#include "graphs/api/train.h"

#include <argp.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command line ---- */

enum { HELP = 'h', FIRST_KEY = 0x100, OPPOSITES = 0x1000 }; /* a key outside the characters: no short form */

static int key_of(const struct sgrad__option *option, int row) { return option->letter ? option->letter : FIRST_KEY + row; }

struct parsing {
    const struct sgrad__command *command;
    struct sgrad__request *request;
    struct argp argp;
    int rows, status;
    int words, asked;           /* numbers so far, in the request */
    bool *given;                /* by row: the option is set */
    const char *file;           /* file of the first words; NULL: none */
    int file_words;             /* number of words of FILE */
};

/* Logs an invalid value. FILE: contains the option; NULL: the command line does. */
static int wrong_value(const struct parsing *parsing, const struct sgrad__option *option, const char *text, const char *file) {
    const char *command = parsing->command->name, *in = file ? file : "", *colon = file ? ": " : "";
    if (!option->type->takes) return SGRAD__USAGE;
    if (option->type == &sgrad__file)
        return sgrad__status(
            sgrad_log_error(SGRAD_EIO, "%s: %s%s--%s %s: %s", command, in, colon, option->name, text, strerror(errno)));
    char *takes = option->type->takes(option);
    sgrad__wrong("%s: %s%s--%s: '%s' is not %s", command, in, colon, option->name, text, takes);
    free(takes);
    return SGRAD__USAGE;
}

static int no_such_option(const struct parsing *parsing, const char *word, size_t length) {
    const char **names = sgrad_xcalloc((size_t)parsing->rows + 2, sizeof *names);
    char *name = sgrad_format("%.*s", (int)length, word);
    int count = 0;
    names[count++] = "help";
    for (int i = 0; i < parsing->rows; i++)
        if (parsing->command->options[i].name) names[count++] = parsing->command->options[i].name;
    int status = sgrad__no_such(parsing->command->name, "option", name, names, "--");
    free(name);
    free(names);
    return status;
}

/* Finds and logs the reason why getopt has refused WORD. */
static int wrong_option(const struct parsing *parsing, const char *word) {
    const char *command = parsing->command->name, *match = NULL;
    size_t length = strcspn(word, "=");
    int matches = 0;
    for (const struct sgrad__option *o = parsing->command->options; o->help; o++) {
        if (!o->name) continue;
        if (o->letter && word[1] == o->letter) return sgrad__wrong("%s: -%c requires a value: %s", command, o->letter, o->value);
        if (length > 2 && !strncmp(word + 2, o->name, length - 2)) {
            matches++;
            match = o->name;
            if (strlen(o->name) != length - 2) continue;
            if (word[length]) return sgrad__wrong("%s: --%s accepts no value", command, o->name);
            return sgrad__wrong("%s: --%s requires a value: %s", command, o->name, o->value);
        }
    }
    if (matches > 1)
        return sgrad__wrong("%s: %.*s is ambiguous: several options begin with it, such as --%s", command, (int)length, word,
                            match);
    return no_such_option(parsing, word, length);
}

/* Returns the optional value of an option. It is the next word if that begins with a digit (--trace 5-10, but not --trace
 * --json), or with a letter (--best loss), or is "auto" (--resume auto). */
static const char *optional_value(const struct sgrad__option *option, struct argp_state *state) {
    const char *next = state->next < state->argc ? state->argv[state->next] : "";
    bool is_value = isdigit((unsigned char)*next);
    if (option->type == &sgrad__resume) is_value = !strcmp(next, "auto");
    if (option->type == &sgrad__best) is_value = isalpha((unsigned char)*next);
    if (!is_value) return "";
    state->next++;
    return next;
}

/* Sets files: the arguments after the run. With --model, there may be no run: then all arguments are files. */
static void find_files(struct sgrad__request *request) {
    const char *first = request->argument;
    const bool no_run = first && sgrad__is_asked(request, "model") && (sgrad__is_file(first) || !sgrad_run_exists(first));
    if (request->words && request->words[!no_run]) request->files = request->words + !no_run;
    if (no_run) request->argument = NULL;
}

static int wrong_end(const struct parsing *parsing) {
    const struct sgrad__command *c = parsing->command;
    if (c->takes_files) find_files(parsing->request);
    if (c->of_run) parsing->request->like = parsing->request->argument;
    if (c->of_run && parsing->request->like && sgrad__is_file(parsing->request->like))
        return sgrad__wrong("%s: %s is a file, not the folder of a run; %s", c->name, parsing->request->like,
                            c->takes_files ? "without a run, give --weights FILE and --model NAME"
                                           : "to give weights, use --weights FILE");
    const bool goes_on = parsing->request->resume && !parsing->request->begins;
    if (parsing->request->like || goes_on || (parsing->request->config && !parsing->file)) return SGRAD__DONE;
    const char *folder = parsing->request->train.output.folder;
    for (int i = 0; i < parsing->rows; i++) {
        const struct sgrad__option *o = &c->options[i];
        if (!o->required || parsing->given[i]) continue;
        if (!strcmp(c->name, "train") && folder && sgrad_run_exists(folder))
            return sgrad__wrong("%s: --%s %s is missing; to continue the run in %s, give --resume", c->name, o->name, o->value,
                                folder);
        return sgrad__wrong("%s: %s--%s %s is missing; see stargrad %s --help", c->name, c->of_run ? "RUN-DIR or " : "", o->name,
                            o->value, c->name);
    }
    if (c->argument && *c->argument != '[' && !parsing->request->argument)
        return sgrad__wrong("%s: %s is missing; see stargrad %s --help", c->name, c->argument, c->name);
    return SGRAD__DONE;
}

static error_t parse(int key, char *text, struct argp_state *state) {
    struct parsing *p = state->input;
    const char *name = p->command->name;
    switch (key) {
    case HELP:
        p->status = SGRAD__DONE;
        char *title = sgrad_format("stargrad %s", name);
        argp_help(&p->argp, stdout, ARGP_HELP_STD_HELP, title);
        free(title);
        return ECANCELED;
    case ARGP_KEY_ARG:
        if (p->command->takes_words)
            return p->request->argument = text, p->request->words = &state->argv[state->next - 1], state->next = state->argc, 0;
        if (p->command->repeats) {
            if (!p->words) p->request->words = sgrad_xcalloc((size_t)state->argc + 1, sizeof *p->request->words);
            p->request->words[p->words++] = text;
            p->request->argument = p->request->words[0];
            return 0;
        }
        const char *before = state->next > 2 ? state->argv[state->next - 2] : "";
        const bool after_option = !p->command->argument && !strncmp(before, "--", 2);
        const struct sgrad__option *its = after_option ? sgrad__option_find(p->command, before + 2) : NULL;
        if (its && its->value && its->type != &sgrad__resume)
            p->status =
                sgrad__wrong("%s: '%s' is not an option; to give %s this value, write %s=%s", name, text, before, before, text);
        else if (after_option)
            p->status = sgrad__wrong("%s: %s does not accept the value '%s'; options begin with --", name, before, text);
        else if (!p->command->argument)
            p->status = sgrad__wrong("%s: '%s' is not an option; options begin with --", name, text);
        else if (p->request->argument)
            p->status = sgrad__wrong("%s: only one %s is allowed; remove '%s'", name, p->command->argument, text);
        else
            return p->request->argument = text, 0;
        return ECANCELED;
    case ARGP_KEY_END: p->status = wrong_end(p); return p->status ? ECANCELED : 0;
    case ARGP_KEY_ERROR:
        if (p->status < 0) p->status = wrong_option(p, state->argv[state->next - 1]);
        return 0;
    }
    if (key >= OPPOSITES && key < OPPOSITES + p->rows)
        return *sgrad__option_flag(&p->command->options[key - OPPOSITES], p->request) = false, 0;
    int row = 0;
    while (row < p->rows && (!p->command->options[row].name || key_of(&p->command->options[row], row) != key)) row++;
    if (row == p->rows) return ARGP_ERR_UNKNOWN;
    const struct sgrad__option *o = &p->command->options[row];
    if (!p->given[row]) p->request->asked[p->asked++] = o->name;
    p->given[row] = true;
    if (!text && o->value) text = (char *)optional_value(o, state);
    if (o->type->read(o, text, p->request)) return 0;
    p->status = wrong_value(p, o, text, state->next - 1 <= p->file_words ? p->file : NULL);
    return ECANCELED;
}

static int count_rows(const struct sgrad__option *options) {
    int count = 0;
    while (options[count].help) count++;
    return count;
}

/* Adds options that disable flags, for flags that are set by the options of a run or by a file. The help does not list them. */
static void add_opposites(const struct sgrad__command *command, int rows, struct argp_option *to) {
    for (int i = 0; i < rows; i++) {
        const struct sgrad__option *o = &command->options[i];
        if (!o->name || !sgrad__option_is_flag(o)) continue;
        char *name = sgrad__option_opposite(o->name);
        if (sgrad__option_find(command, name)) free(name);
        else *to++ = (struct argp_option){ .name = name, .key = OPPOSITES + i, .flags = OPTION_HIDDEN };
    }
}

/* Converts the rows for argp, with the defaults in the help. The help does not list the rows of COMMAND's .also. */
static struct argp_option *table(const struct sgrad__command *command, const struct sgrad__request *defaults, int *rows) {
    const int count = count_rows(command->options), own = count - (command->also ? count_rows(command->also->options) : 0);
    int group = 0;
    struct argp_option *table = sgrad_xcalloc(2 * (size_t)count + 2, sizeof *table), *to = table;
    for (int i = 0; i < count; i++) {
        const struct sgrad__option *o = &command->options[i];
        group += !o->name;
        if (!o->name && i >= own) continue;
        char *shown = o->name && o->type->show ? o->type->show(o, defaults) : NULL;
        *to = (struct argp_option){ .name = o->name,
                                    .key = o->name ? key_of(o, i) : 0,
                                    .flags = i < own ? 0 : OPTION_HIDDEN,
                                    .group = group,
                                    .doc = shown ? sgrad_format("%s [%s]", o->help, shown) : sgrad_format("%s", o->help) };
        free(shown);
        if (o->value && o->value[0] == '[') {
            to->flags |= OPTION_ARG_OPTIONAL;
            to->arg = sgrad_format("%.*s", (int)strlen(o->value) - 2, o->value + 1);    /* argp adds the brackets */
        } else to->arg = o->value;
        to++;
    }
    *to++ = (struct argp_option){ .name = "help", .key = HELP, .doc = sgrad_format("print this help"), .group = -1 };
    add_opposites(command, count, to);
    *rows = count;
    return table;
}

static void free_table(struct argp_option *table) {
    for (struct argp_option *row = table; row->name || row->doc; row++) {
        if (!row->doc) free((char *)row->name);     /* an opposite */
        if (row->flags & OPTION_ARG_OPTIONAL) free((char *)row->arg);
        free((char *)row->doc);
    }
    free(table);
}

/* Returns the rows of a command, then those of the command whose options it accepts as well; the caller must free the array. */
static struct sgrad__option *join_rows(const struct sgrad__command *command) {
    const int own = count_rows(command->options), others = command->also ? count_rows(command->also->options) : 0;
    struct sgrad__option *rows = sgrad_xcalloc((size_t)(own + others) + 1, sizeof *rows);
    memcpy(rows, command->options, (size_t)own * sizeof *rows);
    if (others) memcpy(rows + own, command->also->options, (size_t)others * sizeof *rows);
    return rows;
}

bool sgrad__is_asked(const struct sgrad__request *request, const char *option) {
    for (const char *const *asked = request->asked; *asked; asked++)
        if (!strcmp(*asked, option)) return true;
    return false;
}

/* Parses the words into the request, which contains the defaults. The first FILE_WORDS words are from FILE, if that is not
 * NULL. */
static bool parse_words(const struct sgrad__command *command, const char *file, int file_words, int argc, char **argv,
                        struct sgrad__request *request, int *status) {
    struct parsing p = { .command = command, .request = request, .status = -1, .file = file, .file_words = file_words };
    struct argp_option *options = table(command, request, &p.rows);
    assert(p.rows < (int)(sizeof request->asked / sizeof *request->asked));
    request->train.output.explicit_options = request->asked;
    p.given = sgrad_xcalloc((size_t)p.rows + 1, sizeof *p.given);
    const char *also = command->also ? command->also->name : NULL;
    char *refer = also ? sgrad_format("The options of %s are accepted as well; see 'stargrad %s --help'.\n\n", also, also) : NULL;
    char *more = command->more ? command->more() : NULL;
    char *doc = sgrad_format("%s\v%s%s%s", command->summary, refer ? refer : "", command->notes ? command->notes : "",
                             more ? more : "");
    free(more);
    p.argp = (struct argp){ .options = options, .parser = parse, .args_doc = command->argument, .doc = doc };
    error_t error = argp_parse(&p.argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT | ARGP_IN_ORDER, NULL, &p);
    free_table(options);
    free(refer);
    free(doc);
    free(p.given);
    *status = p.status;
    return !error;
}

/* Sets BEFORE, the values of options that REQUEST does not set, from the run to be continued, or from another run. */
static int inherit(const struct sgrad__command *command, const struct sgrad__request *request, struct sgrad__request *before) {
    const bool trains = !strcmp(command->name, "train");
    bool goes_on = false;
    if (trains && request->resume && !request->train.output.folder)
        return sgrad__wrong("%s: --resume requires --out, the folder of the run to continue", command->name);
    if (trains) {
        const int error = sgrad_run_continue(request->train.output.folder, request->resume, &before->train, &goes_on);
        if (error) return sgrad__status(error);
    }
    before->begins = request->resume && !goes_on;
    if (request->like && goes_on && sgrad_launched_rank() == 0)
        sgrad_log_warning("--like has no effect: the run in %s continues with its own options", request->train.output.folder);
    if (request->like && !goes_on) {
        const int error = sgrad_run_options(request->like, &before->train);
        if (error) return sgrad__status(error);
    }
    if (goes_on || request->like) sgrad_run_options_yield(&before->train, &request->train, request->asked);
    return SGRAD__DONE;
}

/* Parses the words. If the defaults are from a run or from a file, the words are parsed again, to override them. */
static bool read_words(const struct sgrad__command *command, int argc, char **argv, struct sgrad__request *request, int *status) {
    struct sgrad__request before = *request;
    const int given = argc;
    if (!parse_words(command, NULL, 0, argc, argv, request, status)) return false;
    const char *file = request->config;
    if (file && (*status = sgrad__config_words(command, file, argc, argv, &argv, &argc))) return false;
    if (file) *request = before;
    if (file && !parse_words(command, file, argc - given, argc, argv, request, status)) return false;
    if ((*status = inherit(command, request, &before))) return false;
    if (!request->like && !request->resume) return true;
    *request = before;
    return parse_words(command, file, argc - given, argc, argv, request, status);
}

bool sgrad__options_parse(const struct sgrad__command *command, int argc, char **argv, struct sgrad__request *request,
                          int *status) {
    struct sgrad__command whole = *command;
    struct sgrad__option *rows = join_rows(command);
    whole.options = rows;
    request->given = argv + 1;
    const bool goes_on = read_words(&whole, argc, argv, request, status);
    free(rows);
    return goes_on;
}
