/* types.c: the types of options: convert words of the command line to values of a request, and values to text. */
#include "cli/cli.h"
#include "graphs/api/inference.h"
#include "datasets/datasets.h"
#include "graphs/api/plugin.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void *field(const struct sgrad__option *option, struct sgrad__request *request) { return (char *)request + option->field; }
static const void *field_of(const struct sgrad__option *option, const struct sgrad__request *request) {
    return (const char *)request + option->field;
}

static bool parse_whole(const char *text, double low, double high, long *value) {
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || end == text || *end || isspace((unsigned char)*text) || (double)n < low || (double)n > high) return false;
    *value = n;
    return true;
}

bool sgrad__option_is_flag(const struct sgrad__option *option) {
    return option->type == &sgrad__flag || option->type == &sgrad__best;
}

bool *sgrad__option_flag(const struct sgrad__option *option, struct sgrad__request *request) { return field(option, request); }

char *sgrad__option_opposite(const char *name) {
    return strncmp(name, "no-", 3) ? sgrad_format("no-%s", name) : sgrad_format("%s", name + 3);
}

static bool read_flag(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    (void)text;
    *(bool *)field(option, request) = true;
    return true;
}
const struct sgrad__type sgrad__flag = { .read = read_flag };

static bool read_whole(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    long n;
    if (!parse_whole(text, option->low, option->high, &n)) return false;
    if (option->size == sizeof(int))
        *(int *)field(option, request) = (int)n;
    else
        *(long *)field(option, request) = n;
    return true;
}
static char *takes_whole(const struct sgrad__option *option) {
    return sgrad_format("a whole number from %.0f to %.0f", option->low, option->high);
}
static char *show_whole(const struct sgrad__option *option, const struct sgrad__request *request) {
    long n = option->size == sizeof(int) ? *(const int *)field_of(option, request) : *(const long *)field_of(option, request);
    return (double)n < option->low ? NULL : sgrad_format("%ld", n);
}
const struct sgrad__type sgrad__whole = { read_whole, takes_whole, show_whole };

static bool read_real(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !(x >= option->low && x <= option->high)) return false;
    *(double *)field(option, request) = x;
    return true;
}
/* Uses enough digits for a limit such as 0.9999999. */
static char *takes_real(const struct sgrad__option *option) {
    return sgrad_format("a number from %.10g to %.10g", option->low, option->high);
}
static char *show_real(const struct sgrad__option *option, const struct sgrad__request *request) {
    const double x = *(const double *)field_of(option, request);
    return x < option->low ? NULL : sgrad_format("%g", x);
}
const struct sgrad__type sgrad__real = { read_real, takes_real, show_real };

/* "5G": bytes, with a unit of 1024, 1024² or 1024³. */
static bool read_bytes(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    static const char units[] = "KMG";
    char *end;
    double x = strtod(text, &end);
    if (end == text || isspace((unsigned char)*text)) return false;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        for (const char *u = units; u <= unit; u++) x *= 1024;
        end++;
        if (!strcmp(end, "B") || !strcmp(end, "iB")) end += strlen(end);
    }
    if (*end || !(x >= option->low && x <= option->high)) return false;
    *(long *)field(option, request) = (long)x;
    return true;
}
static char *takes_bytes(const struct sgrad__option *option) {
    return sgrad_format("a number of bytes, such as 500M or 5G, of at least %.0f", option->low);
}
const struct sgrad__type sgrad__bytes = { .read = read_bytes, .takes = takes_bytes };

/* "8G", or "50%" of this machine's memory. */
static bool read_memory(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    char *end;
    const double percent = strtod(text, &end);
    if (strcmp(end, "%") || isspace((unsigned char)*text)) return read_bytes(option, text, request);
    if (!(percent > 0 && percent <= 100)) return false;
    *(long *)field(option, request) = (long)(percent / 100 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE));
    return true;
}
static char *takes_memory(const struct sgrad__option *option) {
    (void)option;
    return sgrad_format("a number of bytes, such as 500M or 8G, or a part of the machine's memory, such as 50%%");
}
const struct sgrad__type sgrad__memory = { .read = read_memory, .takes = takes_memory };

/* An empty value clears a list or an adapter that --like or --resume inherits, or makes a choice automatic again. */
static bool may_be_empty(const struct sgrad__option *option) {
    static const char *const lists[] = { "LIST", "AXIS=N,..." };
    static const char *const chosen[] = { "adapter", "allreduce", "lora", "network", "scheduler" };
    bool may = false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) may |= !strcmp(option->value, lists[i]);
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) may |= !strcmp(option->name, chosen[i]);
    return may;
}

static bool read_text(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    *(const char **)field(option, request) = *text ? text : NULL;
    return *text || may_be_empty(option);
}
static char *takes_text(const struct sgrad__option *option) { return sgrad_format("a valid %s", option->value); }
static char *show_text(const struct sgrad__option *option, const struct sgrad__request *request) {
    const char *text = *(const char *const *)field_of(option, request);
    return text ? sgrad_format("%s", text) : NULL;
}
const struct sgrad__type sgrad__text = { read_text, takes_text, show_text };

/* A file that must exist. If it cannot be read, errno has the reason. */
static bool read_file(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    if (!*text && !strcmp(option->name, "exclude"))
        return *(const char **)field(option, request) = NULL, true; /* it lists samples */
    return access(text, R_OK) == 0 && read_text(option, text, request);
}
static char *takes_file(const struct sgrad__option *option) { return (void)option, sgrad_format("a file that can be read"); }
const struct sgrad__type sgrad__file = { read_file, takes_file, show_text };

bool sgrad__is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && !S_ISDIR(status.st_mode);
}

/* A folder that exists or can be created. */
static bool read_folder(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    return !sgrad__is_file(text) && read_text(option, text, request);
}
static char *takes_folder(const struct sgrad__option *option) { return (void)option, sgrad_format("a folder"); }
const struct sgrad__type sgrad__folder = { read_folder, takes_folder, show_text };

static bool read_schedule(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    struct sgrad_schedule schedule;
    return sgrad_schedule_parse(text, &schedule) == 0 && read_text(option, text, request);
}
/* takes is NULL: the parser of schedules logs the error. */
const struct sgrad__type sgrad__schedule = { .read = read_schedule, .show = show_text };

static bool read_augmentation(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    struct sgrad_augmentations augmentations;
    if (!*text) text = "none";
    return sgrad_augmentations_parse(text, 0, 0, &augmentations) == 0 && read_text(option, text, request);
}
const struct sgrad__type sgrad__augmentation = { .read = read_augmentation, .show = show_text }; /* as the schedule */

static bool read_views(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    struct sgrad_views views;
    if (!*text) return *(const char **)field(option, request) = NULL, true;
    return sgrad_views_parse(text, &views) == 0 && read_text(option, text, request);
}
const struct sgrad__type sgrad__views = { .read = read_views, .show = show_text };      /* likewise */

/* A flag that sets a text to "none". */
static bool read_none(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    return (void)text, read_text(option, "none", request);
}
const struct sgrad__type sgrad__none = { .read = read_none };

/* Loads the plug-in at once; the request is unchanged. */
static bool read_plugin(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    return (void)option, (void)request, sgrad_plugin_open(text) == 0;
}
const struct sgrad__type sgrad__plugin = { .read = read_plugin };

/* Stores the index of the word in "A|B|C", from 0; for a boolean, of two words, true for B. */
static bool read_choice(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    const char *word = option->value;
    for (int number = 0; *word; number++) {
        const size_t length = strcspn(word, "|");
        if (strlen(text) == length && !strncmp(text, word, length)) {
            if (option->size == sizeof(bool)) *(bool *)field(option, request) = number;
            else *(int *)field(option, request) = number;
            return true;
        }
        word += length + (word[length] == '|');
    }
    return false;
}
static char *takes_choice(const struct sgrad__option *option) {
    const char *last = strrchr(option->value, '|');
    char *takes = sgrad_xcalloc(4 * strlen(option->value) + 1, 1), *to = takes;
    for (const char *c = option->value; *c; c++)
        if (*c == '|') to = stpcpy(to, c == last ? " or " : ", ");
        else *to++ = *c;
    return takes;
}
static char *show_choice(const struct sgrad__option *option, const struct sgrad__request *request) {
    int number =
        option->size == sizeof(bool) ? *(const bool *)field_of(option, request) : *(const int *)field_of(option, request);
    const char *word = option->value;
    while (number-- > 0) word = strchr(word, '|') + 1;
    return sgrad_format("%.*s", (int)strcspn(word, "|"), word);
}
const struct sgrad__type sgrad__choice = { read_choice, takes_choice, show_choice };

static bool read_group(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    return sgrad_group_named(text, field(option, request)) ||
           parse_whole(text, option->low, option->high, field(option, request));
}
static char *takes_group(const struct sgrad__option *option) {
    return sgrad_format("gpu, rank, micro, global or a whole number from %.0f to %.0f", option->low, option->high);
}
static char *show_group(const struct sgrad__option *option, const struct sgrad__request *request) {
    long group = *(const long *)field_of(option, request);
    const char *name = sgrad_group_name(group);
    return name ? sgrad_format("%s", name) : sgrad_format("%ld", group);
}
const struct sgrad__type sgrad__group = { read_group, takes_group, show_group };

/* "3" epochs, "300s" steps, "10min", "2h". */
static bool read_period(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    char number[32];
    const size_t length = strlen(text);
    const char unit = length ? text[length - 1] : 0;
    const bool steps = unit == 's';
    double *seconds = &request->train.checkpoint.seconds;
    if (length >= sizeof number) return false;
    snprintf(number, sizeof number, "%.*s", (int)(length - steps), text);
    *seconds = 0;
    request->train.checkpoint.in_steps = steps;
    if (unit == 'n' || unit == 'h') return *(long *)field(option, request) = 0, sgrad_duration_parse(text, seconds);
    return parse_whole(number, option->low, option->high, field(option, request));
}
static char *takes_period(const struct sgrad__option *option) {
    return sgrad_format("a number of epochs from %.0f to %.0f, a number of steps like 500s, or a time like 10min or 2h",
                        option->low, option->high);
}
const struct sgrad__type sgrad__period = { read_period, takes_period, show_whole };

/* In the library, -1 is automatic. */
static bool read_interval(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    if (strcmp(text, "auto")) return read_whole(option, text, request);
    return *(long *)field(option, request) = -1, true;
}
static char *takes_interval(const struct sgrad__option *option) {
    return sgrad_format("auto or a whole number of steps from %.0f to %.0f", option->low, option->high);
}
const struct sgrad__type sgrad__interval = { .read = read_interval, .takes = takes_interval };

/* In the library, 0 is all workers and -1 none; on the command line, the default is all and 0 means no workers. */
static bool read_workers(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    if (!read_whole(option, text, request)) return false;
    int *workers = field(option, request);
    if (*workers == 0) *workers = -1;
    return true;
}
static char *show_workers(const struct sgrad__option *option, const struct sgrad__request *request) {
    return (void)option, (void)request, sgrad_format("all");
}
const struct sgrad__type sgrad__workers = { read_workers, takes_whole, show_workers };

static bool read_range(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    return sgrad_step_range_parse(text, field(option, request));
}
static char *takes_range(const struct sgrad__option *option) {
    return (void)option, sgrad_format("a step or a range of steps, like 5-10");
}
const struct sgrad__type sgrad__range = { .read = read_range, .takes = takes_range };

/* An empty value clears numbers that --like or --resume inherits. */
static bool read_numbers(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    struct sgrad_numbers *numbers = field(option, request);
    if (!*text) return *numbers = (struct sgrad_numbers){ 0 }, true;
    return sgrad_numbers_parse(text, numbers);
}
static char *takes_numbers(const struct sgrad__option *option) {
    return (void)option, sgrad_format("up to %d numbers separated by commas", SGRAD_MAX_NUMBERS);
}
const struct sgrad__type sgrad__numbers = { .read = read_numbers, .takes = takes_numbers };

/* An empty value clears the option that --like or --resume inherits. */
static bool read_lookahead(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    struct sgrad_lookahead *lookahead = field(option, request);
    if (!*text) return *lookahead = (struct sgrad_lookahead){ 0 }, true;
    return sgrad_lookahead_parse(text, lookahead);
}
static char *takes_lookahead(const struct sgrad__option *option) {
    return (void)option, sgrad_format("N[:D[:P]]: steps, the fraction of the slow weights that is retained (below 1), and the "
                                      "power of the run's progress by which it grows, like 5:.5 or 5:.77:3");
}
const struct sgrad__type sgrad__lookahead = { .read = read_lookahead, .takes = takes_lookahead };

/* A time in the future. Only rank 0 parses it, for all ranks; the parser logs the error. */
static bool read_time(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    double stop;
    *(const char **)field(option, request) = text;
    return sgrad_launched_rank() || sgrad_deadline_parse(text, &stop) == 0;
}
const struct sgrad__type sgrad__time = { .read = read_time, .show = show_text };

/* "" or "auto". */
static bool read_resume(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    request->resume = *text ? SGRAD_CONTINUE_OR_BEGIN : SGRAD_CONTINUE;
    *(bool *)field(option, request) = !request->begins;
    return !*text || !strcmp(text, "auto");
}
static char *takes_resume(const struct sgrad__option *option) { return (void)option, sgrad_format("auto or empty"); }
const struct sgrad__type sgrad__resume = { .read = read_resume, .takes = takes_resume };

/* A flag with an optional metric. */
static bool read_best(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    if (*text) request->train.evaluation.metric = text;
    return read_flag(option, text, request);
}
const struct sgrad__type sgrad__best = { .read = read_best };
