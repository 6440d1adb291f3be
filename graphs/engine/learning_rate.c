/* learning_rate.c: learning-rate schedules. t is 0 at the end of the warm-up, and 1 at the end of the run (the step after the
 * last one):
 *
 *     warm-up    before t = 0: linear, from start to the first value of the schedule; start is 0, or, if the peak is scaled
 *                to a large batch, the rate of the small one (Goyal et al., 2017, gradual warm-up)
 *     constant   peak
 *     step       peak · factor^(milestones passed); milestones are epochs of the run, warm-up included
 *     cosine     peak · (1 + cos πt)/2 (Loshchilov, Hutter, 2017)
 *     poly       peak · (1 - t)^power
 *     triangle   from start·peak up to peak at t = top, down to end·peak, linear in both directions
 *     onecycle   from peak/25 up to peak in the first 0.3, down to peak/250000 at the last step, each half a cosine wave
 *                (Smith, Topin, 2019). As torch.optim.lr_scheduler.OneCycleLR with its defaults: with N steps the peak
 *                is at step 0.3 N - 1, and the end at step N - 1 */
#include "graphs/api/train.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MILESTONES ((int)(sizeof ((struct sgrad_schedule *)0)->milestone / sizeof(double)))

/* Parses a positive number at *TEXT, which must be followed by END, and advances *TEXT after both. */
static bool parse_number(const char **text, char end, double *number) {
    if (!isdigit((unsigned char)**text) && **text != '.') return false;     /* strtod accepts blanks, signs, inf and nan */
    char *rest;
    *number = strtod(*text, &rest);
    if (rest == *text || *rest != end || !isfinite(*number) || *number <= 0) return false;
    *text = rest + (end != 0);
    return true;
}

/* Parses E1,E2:F. */
static bool parse_steps(const char *text, struct sgrad_schedule *schedule) {
    const char *colon = strchr(text, ':');
    if (!colon) return false;
    do {
        char end = memchr(text, ',', (size_t)(colon - text)) ? ',' : ':';
        if (schedule->milestones == MILESTONES || !parse_number(&text, end, &schedule->milestone[schedule->milestones]))
            return false;
        if (schedule->milestones && schedule->milestone[schedule->milestones] <= schedule->milestone[schedule->milestones - 1])
            return false;
        schedule->milestones++;
    } while (text <= colon);
    return parse_number(&text, 0, &schedule->factor);
}

/* Parses START,TOP,END: fractions of the peak, of the run, of the peak. */
static bool parse_triangle(const char *text, struct sgrad_schedule *schedule) {
    double *const number[] = { &schedule->first, &schedule->top, &schedule->last };
    for (int i = 0; i < 3; i++) {
        char *end;
        if (!isdigit((unsigned char)*text) && *text != '.') return false;
        *number[i] = strtod(text, &end);
        if (end == text || *end != (i < 2 ? ',' : 0) || !(*number[i] <= 1)) return false;
        text = end + 1;
    }
    return schedule->top > 0 && schedule->top < 1;
}

static bool parse(const char *text, struct sgrad_schedule *schedule) {
    static const struct {
        const char *name;
        enum sgrad_schedule_kind kind;
    } plain[] = { { "constant", SGRAD_CONSTANT }, { "cosine", SGRAD_COSINE }, { "onecycle", SGRAD_ONECYCLE } };
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        schedule->kind = plain[i].kind;
        if (strcmp(text, plain[i].name) == 0) return true;
    }
    schedule->kind = SGRAD_STEPS;
    if (strncmp(text, "step:", 5) == 0) return parse_steps(text + 5, schedule);
    schedule->kind = SGRAD_TRIANGLE;
    if (strncmp(text, "triangle:", 9) == 0) return parse_triangle(text + 9, schedule);
    schedule->kind = SGRAD_POLY;
    return strncmp(text, "poly:", 5) == 0 && (text += 5, parse_number(&text, 0, &schedule->power));
}

int sgrad_schedule_parse(const char *text, struct sgrad_schedule *schedule) {
    struct sgrad_schedule s = { 0 };
    if (!parse(text, &s))
        return sgrad_log_error(SGRAD_EINVAL,
                               "schedule '%s' is invalid; give constant, step:E1,E2:F (up to %d epochs in ascending order, and a "
                               "factor, all above 0), cosine, poly:P (a power above 0), triangle:START,TOP,END (START and END: "
                               "fractions of the learning rate, from 0 to 1; TOP: fraction of the run, between 0 and 1) or "
                               "onecycle",
                               text, MILESTONES);
    *schedule = s;
    return 0;
}

/* Returns half a cosine wave from A at t = 0 to B at t = 1. */
static double wave(double a, double b, double t) {
    return b + (a - b) * (1 + cos(M_PI * t)) / 2;
}

/* Returns the factor of the step after STEP steps of STEPS; these may be fractional, because a warm-up may end within a step. */
static double one_cycle(double step, double steps) {
    const double start = 1 / 25.0, end = start / 1e4, top = 0.3 * steps - 1, last = steps - 1;
    if (step <= top) return wave(start, 1, step / top);
    return last > top ? wave(1, end, fmin((step - top) / (last - top), 1)) : end;
}

/* Returns the factor of the peak. EPOCH: of the run. STEP of STEPS: after the warm-up. */
static double shape(const struct sgrad_schedule *schedule, double epoch, double step, double steps) {
    const double t = steps > 0 ? fmin(step / steps, 1) : 1;
    int passed = 0;
    switch (schedule->kind) {
    case SGRAD_CONSTANT: return 1;
    case SGRAD_STEPS:
        while (passed < schedule->milestones && schedule->milestone[passed] <= epoch) passed++;
        return pow(schedule->factor, passed);
    case SGRAD_COSINE: return wave(1, 0, t);
    case SGRAD_POLY: return pow(1 - t, schedule->power);
    case SGRAD_TRIANGLE:
        return t < schedule->top ? schedule->first + (1 - schedule->first) * t / schedule->top
                                 : 1 + (schedule->last - 1) * (t - schedule->top) / (1 - schedule->top);
    case SGRAD_ONECYCLE: return one_cycle(step, steps);
    }
    return 1;
}

double sgrad_schedule_lr(const struct sgrad_schedule *schedule, double peak, double step, double steps, double steps_per_epoch) {
    const double epoch = step / steps_per_epoch, before = schedule->warmup * steps_per_epoch, rest = steps - before;
    if (epoch < schedule->warmup) {
        const double goal = peak * shape(schedule, epoch, 0, rest > 0 ? rest : steps), start = fmin(schedule->start, goal);
        return start + (goal - start) * epoch / schedule->warmup;
    }
    return peak * shape(schedule, epoch, step - before, rest);
}
