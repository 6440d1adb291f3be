/* options.c: from the words of the command line to the fields of a request. */
#include "cli/cli.h"
#include "datasets/datasets.h"
#include "graphs/runs/plugin.h"

#include <argp.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- types of values ---- */

static void *field(const struct sgrad__option *o, struct sgrad__request *r) { return (char *)r + o->field; }
static const void *field_of(const struct sgrad__option *o, const struct sgrad__request *r) { return (const char *)r + o->field; }

static bool parse_whole(const char *text, double low, double high, long *value) {
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || isspace((unsigned char)*text) || (double)n < low || (double)n > high) return false;
    *value = n;
    return true;
}

static bool read_flag(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    (void)text;
    *(bool *)field(o, r) = true;
    return true;
}
const struct sgrad__type sgrad__flag = { .read = read_flag };

static bool read_whole(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    long n;
    if (!parse_whole(text, o->low, o->high, &n)) return false;
    if (o->size == sizeof(int))
        *(int *)field(o, r) = (int)n;
    else
        *(long *)field(o, r) = n;
    return true;
}
static char *takes_whole(const struct sgrad__option *o) {
    return sgrad_format("a whole number from %.0f to %.0f", o->low, o->high);
}
static char *show_whole(const struct sgrad__option *o, const struct sgrad__request *r) {
    long n = o->size == sizeof(int) ? *(const int *)field_of(o, r) : *(const long *)field_of(o, r);
    return (double)n < o->low ? NULL : sgrad_format("%ld", n);
}
const struct sgrad__type sgrad__whole = { read_whole, takes_whole, show_whole };

static bool read_real(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !(x >= o->low && x <= o->high)) return false;
    *(double *)field(o, r) = x;
    return true;
}
/* With as many digits as a limit like 0.9999999 has. */
static char *takes_real(const struct sgrad__option *o) { return sgrad_format("a number from %.10g to %.10g", o->low, o->high); }
static char *show_real(const struct sgrad__option *o, const struct sgrad__request *r) {
    const double x = *(const double *)field_of(o, r);
    return x < o->low ? NULL : sgrad_format("%g", x);
}
const struct sgrad__type sgrad__real = { read_real, takes_real, show_real };

static bool read_text(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    *(const char **)field(o, r) = text;
    return *text;
}
static char *takes_text(const struct sgrad__option *o) { return sgrad_format("a value for %s", o->value); }
static char *show_text(const struct sgrad__option *o, const struct sgrad__request *r) {
    const char *text = *(const char *const *)field_of(o, r);
    return text ? sgrad_format("%s", text) : NULL;
}
const struct sgrad__type sgrad__text = { read_text, takes_text, show_text };

/* A file that has to be there; why it cannot be read is in errno. */
static bool read_file(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    return access(text, R_OK) == 0 && read_text(o, text, r);
}
static char *takes_file(const struct sgrad__option *o) { return (void)o, sgrad_format("a file that can be read"); }
const struct sgrad__type sgrad__file = { read_file, takes_file, show_text };

static bool is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

/* A folder that is there, or is yet to be made. */
static bool read_folder(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    return !is_file(text) && read_text(o, text, r);
}
static char *takes_folder(const struct sgrad__option *o) { return (void)o, sgrad_format("a folder"); }
const struct sgrad__type sgrad__folder = { read_folder, takes_folder, show_text };

static bool read_schedule(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    struct sgrad_schedule schedule;
    return sgrad_schedule_parse(text, &schedule) == 0 && read_text(o, text, r);
}
/* Takes NULL: whoever parses a schedule says what is wrong with it. */
const struct sgrad__type sgrad__schedule = { .read = read_schedule, .show = show_text };

static bool read_augmentation(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    struct sgrad_augmentations augmentations;
    return sgrad_augmentations_parse(text, 0, 0, &augmentations) == 0 && read_text(o, text, r);
}
const struct sgrad__type sgrad__augmentation = { .read = read_augmentation, .show = show_text }; /* as the schedule */

static bool read_views(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    struct sgrad_views views;
    return sgrad_views_parse(text, &views) == 0 && read_text(o, text, r);
}
const struct sgrad__type sgrad__views = { .read = read_views, .show = show_text };      /* likewise */

/* A flag that says of a text that it is "none". */
static bool read_none(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    return (void)text, read_text(o, "none", r);
}
const struct sgrad__type sgrad__none = { .read = read_none };

/* Its records are there from here on: nothing is kept in the request. */
static bool read_plugin(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    return (void)o, (void)r, sgrad_plugin_open(text) == 0;
}
const struct sgrad__type sgrad__plugin = { .read = read_plugin };

/* "A|B|C": their numbers, from 0, or, of two, whether it is B. */
static bool read_choice(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    const char *word = o->value;
    for (int number = 0; *word; number++) {
        const size_t length = strcspn(word, "|");
        if (strlen(text) == length && !strncmp(text, word, length)) {
            if (o->size == sizeof(bool)) *(bool *)field(o, r) = number;
            else *(int *)field(o, r) = number;
            return true;
        }
        word += length + (word[length] == '|');
    }
    return false;
}
static char *takes_choice(const struct sgrad__option *o) {
    const char *last = strrchr(o->value, '|');
    char *takes = sgrad_alloc(4 * strlen(o->value) + 1, 1), *to = takes;
    for (const char *c = o->value; *c; c++)
        if (*c == '|') to = stpcpy(to, c == last ? " or " : ", ");
        else *to++ = *c;
    return takes;
}
static char *show_choice(const struct sgrad__option *o, const struct sgrad__request *r) {
    int number = o->size == sizeof(bool) ? *(const bool *)field_of(o, r) : *(const int *)field_of(o, r);
    const char *word = o->value;
    while (number-- > 0) word = strchr(word, '|') + 1;
    return sgrad_format("%.*s", (int)strcspn(word, "|"), word);
}
const struct sgrad__type sgrad__choice = { read_choice, takes_choice, show_choice };

static bool read_group(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    return sgrad_group_named(text, field(o, r)) || parse_whole(text, o->low, o->high, field(o, r));
}
static char *takes_group(const struct sgrad__option *o) {
    return sgrad_format("gpu, rank, micro, global or a whole number from %.0f to %.0f", o->low, o->high);
}
static char *show_group(const struct sgrad__option *o, const struct sgrad__request *r) {
    long group = *(const long *)field_of(o, r);
    const char *name = sgrad_group_name(group);
    return name ? sgrad_format("%s", name) : sgrad_format("%ld", group);
}
const struct sgrad__type sgrad__group = { read_group, takes_group, show_group };

/* "3" epochs, "300s" steps. */
static bool read_period(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    char number[32];
    size_t length = strlen(text);
    bool steps = length && text[length - 1] == 's';
    if (length >= sizeof number) return false;
    snprintf(number, sizeof number, "%.*s", (int)(length - steps), text);
    r->train.checkpoint_in_steps = steps;
    return parse_whole(number, o->low, o->high, field(o, r));
}
static char *takes_period(const struct sgrad__option *o) {
    return sgrad_format("a whole number from %.0f to %.0f, of epochs, or of steps with an s", o->low, o->high);
}
const struct sgrad__type sgrad__period = { read_period, takes_period, show_whole };

/* The library says 0 for all and -1 for none; the command line says nothing for all and 0 for none. */
static bool read_workers(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    if (!read_whole(o, text, r)) return false;
    int *workers = field(o, r);
    if (*workers == 0) *workers = -1;
    return true;
}
static char *show_workers(const struct sgrad__option *o, const struct sgrad__request *r) {
    return (void)o, (void)r, sgrad_format("all");
}
const struct sgrad__type sgrad__workers = { read_workers, takes_whole, show_workers };

/* "", "7", or "5-10": steps. */
static bool read_range(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    char from[32];
    const char *dash = strchr(text, '-');
    long first, last;
    *(const char **)field(o, r) = text;
    if (!*text) return true;
    if (!dash) return parse_whole(text, o->low, o->high, &first);
    if (dash - text >= (long)sizeof from) return false;
    snprintf(from, sizeof from, "%.*s", (int)(dash - text), text);
    return parse_whole(from, o->low, o->high, &first) && parse_whole(dash + 1, (double)first, o->high, &last);
}
static char *takes_range(const struct sgrad__option *o) { return (void)o, sgrad_format("a step or a range of steps, like 5-10"); }
const struct sgrad__type sgrad__range = { .read = read_range, .takes = takes_range };

/* ---- the command line ---- */

enum { HELP = 'h', FIRST_KEY = 0x100 }; /* keys that are no character have no short form */

static int key_of(const struct sgrad__option *o, int row) { return o->letter ? o->letter : FIRST_KEY + row; }

struct parsing {
    const struct sgrad__command *command;
    struct sgrad__request *request;
    struct argp argp;
    int rows, status;
    int words, asked;           /* of the request, so far */
    bool *given;                /* by row */
    const char *file;           /* whose options are the first words; NULL: there are none of a file */
    int file_words;             /* so many */
};

/* FILE: of the option; NULL: it was typed. */
static int wrong_value(const struct parsing *p, const struct sgrad__option *o, const char *text, const char *file) {
    const char *command = p->command->name, *in = file ? file : "", *colon = file ? ": " : "";
    if (!o->type->takes) return SGRAD__USAGE;
    if (o->type == &sgrad__file)
        return sgrad__status(sgrad_fail(SGRAD_EIO, "%s: %s%s--%s %s: %s", command, in, colon, o->name, text, strerror(errno)));
    char *takes = o->type->takes(o);
    sgrad__wrong("%s: %s%s--%s: '%s' is not %s", command, in, colon, o->name, text, takes);
    free(takes);
    return SGRAD__USAGE;
}

static int no_such_option(const struct parsing *p, const char *word, size_t length) {
    const char **names = sgrad_alloc((size_t)p->rows + 2, sizeof *names);
    char *name = sgrad_format("%.*s", (int)length, word);
    int count = 0;
    names[count++] = "help";
    for (int i = 0; i < p->rows; i++)
        if (p->command->options[i].name) names[count++] = p->command->options[i].name;
    int status = sgrad__no_such(p->command->name, "option", name, names, "--");
    free(name);
    free(names);
    return status;
}

/* getopt refused WORD: why? */
static int wrong_option(const struct parsing *p, const char *word) {
    const char *command = p->command->name, *match = NULL;
    size_t length = strcspn(word, "=");
    int matches = 0;
    for (const struct sgrad__option *o = p->command->options; o->help; o++) {
        if (!o->name) continue;
        if (o->letter && word[1] == o->letter) return sgrad__wrong("%s: -%c takes a value: %s", command, o->letter, o->value);
        if (length > 2 && !strncmp(word + 2, o->name, length - 2)) {
            matches++;
            match = o->name;
            if (strlen(o->name) != length - 2) continue;
            if (word[length]) return sgrad__wrong("%s: --%s takes no value", command, o->name);
            return sgrad__wrong("%s: --%s takes a value: %s", command, o->name, o->value);
        }
    }
    if (matches > 1)
        return sgrad__wrong("%s: %.*s is short for several options, --%s among them", command, (int)length, word, match);
    return no_such_option(p, word, length);
}

/* A value that may be left out is the next word when that begins with a digit: --trace 5-10, --trace --json. */
static const char *optional_value(struct argp_state *state) {
    const char *next = state->next < state->argc ? state->argv[state->next] : "";
    if (!isdigit((unsigned char)*next)) return "";
    state->next++;
    return next;
}

static int wrong_end(const struct parsing *p) {
    const struct sgrad__command *c = p->command;
    if (c->of_run) p->request->like = p->request->argument;
    if (c->of_run && p->request->like && is_file(p->request->like))
        return sgrad__wrong("%s: %s is a file, not a run's folder; --weights FILE takes weights", c->name, p->request->like);
    if (p->request->like || (p->request->config && !p->file)) return SGRAD__DONE;
    for (int i = 0; i < p->rows; i++)
        if (c->options[i].required && !p->given[i])
            return sgrad__wrong("%s: %s--%s %s is missing; see stargrad %s --help", c->name, c->of_run ? "RUN-DIR or " : "",
                                c->options[i].name, c->options[i].value, c->name);
    if (c->argument && *c->argument != '[' && !p->request->argument)
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
            if (!p->words) p->request->words = sgrad_alloc((size_t)state->argc + 1, sizeof *p->request->words);
            p->request->words[p->words++] = text;
            p->request->argument = p->request->words[0];
            return 0;
        }
        const char *before = state->next > 2 ? state->argv[state->next - 2] : "";
        const bool after_option = !p->command->argument && !strncmp(before, "--", 2);
        const struct sgrad__option *its = after_option ? sgrad__option_find(p->command, before + 2) : NULL;
        if (its && its->value)
            p->status = sgrad__wrong("%s: '%s' is no option: a value of %s that begins so is written %s=%s", name, text, before,
                                     before, text);
        else if (after_option)
            p->status = sgrad__wrong("%s: %s takes no value like '%s', which is no option: options begin with --", name, before,
                                     text);
        else if (!p->command->argument)
            p->status = sgrad__wrong("%s: '%s' is no option: options begin with --", name, text);
        else if (p->request->argument)
            p->status = sgrad__wrong("%s: one %s only: '%s' is too much", name, p->command->argument, text);
        else
            return p->request->argument = text, 0;
        return ECANCELED;
    case ARGP_KEY_END: p->status = wrong_end(p); return p->status ? ECANCELED : 0;
    case ARGP_KEY_ERROR:
        if (p->status < 0) p->status = wrong_option(p, state->argv[state->next - 1]);
        return 0;
    }
    int row = 0;
    while (row < p->rows && (!p->command->options[row].name || key_of(&p->command->options[row], row) != key)) row++;
    if (row == p->rows) return ARGP_ERR_UNKNOWN;
    const struct sgrad__option *o = &p->command->options[row];
    if (!p->given[row]) p->request->asked[p->asked++] = o->name;
    p->given[row] = true;
    if (!text && o->value) text = (char *)optional_value(state);
    if (o->type->read(o, text, p->request)) return 0;
    p->status = wrong_value(p, o, text, state->next - 1 <= p->file_words ? p->file : NULL);
    return ECANCELED;
}

static int count_rows(const struct sgrad__option *options) {
    int count = 0;
    while (options[count].help) count++;
    return count;
}

/* The rows as argp wants them, with their defaults; free each doc, then the table. */
static struct argp_option *table(const struct sgrad__command *command, const struct sgrad__request *defaults, int *rows) {
    const int count = count_rows(command->options);
    int group = 0;
    struct argp_option *table = sgrad_alloc((size_t)count + 2, sizeof *table);
    for (int i = 0; i < count; i++) {
        const struct sgrad__option *o = &command->options[i];
        group += !o->name;
        char *shown = o->name && o->type->show ? o->type->show(o, defaults) : NULL;
        table[i] = (struct argp_option){ .name = o->name,
                                         .key = o->name ? key_of(o, i) : 0,
                                         .group = group,
                                         .doc = shown ? sgrad_format("%s [%s]", o->help, shown) : sgrad_format("%s", o->help) };
        free(shown);
        if (!o->value) continue;
        table[i].arg = o->value;
        if (o->value[0] == '[') table[i].flags = OPTION_ARG_OPTIONAL;
    }
    table[count] = (struct argp_option){ .name = "help", .key = HELP, .doc = sgrad_format("print this help"), .group = -1 };
    *rows = count;
    return table;
}

/* A command's own rows, then those of the one whose options it takes as well; free it. */
static struct sgrad__option *join_rows(const struct sgrad__command *command) {
    const int own = count_rows(command->options), others = command->also ? count_rows(command->also->options) : 0;
    struct sgrad__option *rows = sgrad_alloc((size_t)(own + others) + 1, sizeof *rows);
    memcpy(rows, command->options, (size_t)own * sizeof *rows);
    if (others) memcpy(rows + own, command->also->options, (size_t)others * sizeof *rows);
    return rows;
}

bool sgrad__is_asked(const struct sgrad__request *request, const char *option) {
    for (const char *const *asked = request->asked; *asked; asked++)
        if (!strcmp(*asked, option)) return true;
    return false;
}

/* Reads the words into the request, whose options are what holds where none is given. The first FILE_WORDS are of FILE, if that
 * is not NULL. */
static bool parse_words(const struct sgrad__command *command, const char *file, int file_words, int argc, char **argv,
                        struct sgrad__request *request, int *status) {
    struct parsing p = { .command = command, .request = request, .status = -1, .file = file, .file_words = file_words };
    struct argp_option *options = table(command, request, &p.rows);
    assert(p.rows < (int)(sizeof request->asked / sizeof *request->asked));
    request->train.asked = request->asked;
    p.given = sgrad_alloc((size_t)p.rows + 1, sizeof *p.given);
    char *doc = sgrad_format("%s\v%s", command->summary, command->notes ? command->notes : "");
    p.argp = (struct argp){ .options = options, .parser = parse, .args_doc = command->argument, .doc = doc };
    error_t error = argp_parse(&p.argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT | ARGP_IN_ORDER, NULL, &p);
    for (int i = 0; i <= p.rows; i++) free((char *)options[i].doc);
    free(options);
    free(doc);
    free(p.given);
    *status = p.status;
    return !error;
}

/* Where another run's options hold, or a file's, the words are read once more, over these. */
static bool read_words(const struct sgrad__command *command, int argc, char **argv, struct sgrad__request *request, int *status) {
    struct sgrad__request before = *request;
    const int given = argc;
    if (!parse_words(command, NULL, 0, argc, argv, request, status)) return false;
    const char *file = request->config;
    if (!request->like && !file) return true;
    if (file && (*status = sgrad__config_words(command, file, argc, argv, &argv, &argc))) return false;
    if (request->like && (*status = sgrad__status(sgrad_run_options(request->like, &before.train)))) return false;
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
