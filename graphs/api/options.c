/* options.c: defaults of the training options; their values as text. */
#include "graphs/api/train.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sgrad_train_options sgrad_train_defaults(void) {
    return (struct sgrad_train_options){
        .training.epochs = 10,
        .training.batch = 128,
        .optimizer.name = "sgd",
        .optimizer.lr = -1,
        .optimizer.momentum = -1,
        .optimizer.weight_decay = 1e-4,
        .optimizer.beta1 = -1,
        .optimizer.beta2 = -1,
        .optimizer.soap_every = 10,
        .optimizer.eps = 1e-8,
        .optimizer.trust = 0.001,
        .optimizer.kfac.damping = 0.003,
        .optimizer.kfac.decay = 0.95,
        .optimizer.kfac.clip = 0.001,
        .optimizer.kfac.damping_schedule = "constant",
        .optimizer.kfac.factor_every = 10,
        .optimizer.kfac.eigen_every = 100,
        .optimizer.kfac.lag = -1,
        .optimizer.kfac.variant = "auto",
        .optimizer.schedule = "constant",
        .parallel.strategy = "sync",
        .training.bn_group = SGRAD_GROUP_GPU,
        .parallel.backup_workers = -1,
        .data.shuffle_window = 16384,
        .training.seed = 1,
        .checkpoint.every = 1,
        .checkpoint.keep = 3,
        .parallel.steps_in_flight = 2,
        .parallel.stall_timeout = 300,
    };
}

const char *sgrad_precision_name(enum sgrad_precision precision) {
    static const char *const names[] = { "f32", "tf32", "bf16" };
    return names[precision];
}

static const struct {
    const char *name;
    long group;
} groups[] = {
    { "gpu", SGRAD_GROUP_GPU },
    { "rank", SGRAD_GROUP_RANK },
    { "micro", SGRAD_GROUP_MICRO },
    { "global", SGRAD_GROUP_GLOBAL },
};
enum { GROUPS = sizeof groups / sizeof *groups };

const char *sgrad_group_name(long group) {
    for (int i = 0; i < GROUPS; i++)
        if (groups[i].group == group) return groups[i].name;
    return NULL;
}

bool sgrad_group_named(const char *name, long *group) {
    for (int i = 0; i < GROUPS; i++)
        if (!strcmp(groups[i].name, name)) return *group = groups[i].group, true;
    return false;
}

/* ---- values as text ------------------------------------------------------------------------------------------------- */

/* Returns X with as few digits as identify it. The caller must free the text. */
static char *number_text(double x) {
    char *text = sgrad_format("%.15g", x);
    if (strtod(text, NULL) == x) return text;
    free(text);
    return sgrad_format("%.17g", x);
}

bool sgrad_numbers_parse(const char *text, struct sgrad_numbers *numbers) {
    struct sgrad_numbers n = { 0 };
    for (bool more = true; more;) {
        char *end;
        const double x = strtod(text, &end);
        if (end == text || (*end && *end != ',') || !isfinite(x) || n.count == SGRAD_MAX_NUMBERS) return false;
        n.number[n.count++] = x;
        more = *end == ',';
        text = end + more;
    }
    *numbers = n;
    return true;
}

char *sgrad_numbers_text(const struct sgrad_numbers *numbers) {
    char *text = sgrad_format("%s", "");
    for (int i = 0; i < numbers->count; i++) {
        char *before = text, *number = number_text(numbers->number[i]);
        text = sgrad_format("%s%s%s", before, i ? "," : "", number);
        free(before);
        free(number);
    }
    return text;
}

bool sgrad_step_range_parse(const char *text, struct sgrad_step_range *range) {
    struct sgrad_step_range steps = { 10, 12 };
    char *end = (char *)text;
    if (isdigit((unsigned char)*text)) steps.first = steps.last = strtol(text, &end, 10);
    if (end != text && *end == '-' && isdigit((unsigned char)end[1])) steps.last = strtol(end + 1, &end, 10);
    if (*end || steps.first < 1 || steps.last < steps.first || steps.last > UINT32_MAX) return false;
    *range = steps;
    return true;
}

char *sgrad_step_range_text(const struct sgrad_step_range *range) {
    if (!range->first) return sgrad_format("%s", "");
    return range->first == range->last ? sgrad_format("%ld", range->first) : sgrad_format("%ld-%ld", range->first, range->last);
}

static bool is_number(const char *text) { return isdigit((unsigned char)*text) || *text == '.'; }

bool sgrad_lookahead_is_valid(const struct sgrad_lookahead *lookahead) {
    return lookahead->every >= 0 && lookahead->every <= 1000000 && lookahead->decay >= 0 && lookahead->decay < 1 &&
           lookahead->power >= 0 && lookahead->power <= 100;
}

bool sgrad_lookahead_parse(const char *text, struct sgrad_lookahead *lookahead) {
    struct sgrad_lookahead l = { .decay = 0.5 };
    char *end = (char *)text;
    if (*text >= '1' && *text <= '9') l.every = strtol(text, &end, 10);
    if (l.every && *end == ':' && is_number(end + 1)) l.decay = strtod(end + 1, &end);
    if (l.every && *end == ':' && is_number(end + 1)) l.power = strtod(end + 1, &end);
    if (!l.every || *end || !sgrad_lookahead_is_valid(&l)) return false;
    *lookahead = l;
    return true;
}

char *sgrad_lookahead_text(const struct sgrad_lookahead *lookahead) {
    if (!lookahead->every) return sgrad_format("%s", "");
    char *decay = number_text(lookahead->decay), *power = number_text(lookahead->power), *text;
    if (lookahead->power > 0) text = sgrad_format("%ld:%s:%s", lookahead->every, decay, power);
    else if (lookahead->decay != 0.5) text = sgrad_format("%ld:%s", lookahead->every, decay);
    else text = sgrad_format("%ld", lookahead->every);
    free(decay);
    free(power);
    return text;
}
