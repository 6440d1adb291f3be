/* find_lr.c: the learning-rate range test (Smith, Cyclical learning rates for training neural networks, 2015, arXiv 1506.01186):
 * a short training whose learning rate is multiplied by a constant factor in each step, as in fastai's lr_find.
 *
 *     rate        1e-6      1e-4      1e-2     0.1      1
 *     smoothed    2.3 ───────────────╮                  ╭──  4 times the minimum: the test ends
 *     loss                  steepest ╰────╮        ╭────╯
 *                                         ╰────────╯ minimum
 *
 * Losses are smoothed symmetrically, over as many later steps as earlier ones. A mean of earlier ones only would delay the curve,
 * and assign losses to learning rates that are too high. */
#include "graphs/train/setup.h"

#include <math.h>
#include <stdlib.h>

/* default number of steps; losses are smoothed over 1/SHARE of the steps on each side, at least REACH */
enum { STEPS = 100, SHARE = 50, REACH = 2 };
#define DIVERGED  4     /* times the minimum of the loss; the test ends there (as in fastai) */
#define SUGGESTED 0.1   /* times the rate of the minimum: at the minimum itself the loss is about to rise (fastai's "minimum") */

/* ---- the curve ---- */

/* Returns the mean of the losses around POINT. */
static double smooth(const struct sgrad_lr_test *t, int point, int reach) {
    const int from = point < reach ? 0 : point - reach, to = point + reach < t->count ? point + reach + 1 : t->count;
    double sum = 0;
    for (int i = from; i < to; i++) sum += t->loss[i];
    return sum / (to - from);
}

/* Adds the loss of the next step. Returns false if training has diverged; a loss that is NaN or infinite is not added. */
static bool add_point(struct sgrad_lr_test *t, double rate, double loss, int reach, double *least) {
    const int settled = t->count - reach;       /* the newest point whose neighbors are all known */
    if (!isfinite(loss)) return false;
    t->rate[t->count] = rate;
    t->loss[t->count++] = loss;
    if (settled < reach) return true;
    const double here = smooth(t, settled, reach);
    *least = fmin(*least, here);
    return here <= DIVERGED * *least;
}

static void read_curve(struct sgrad_lr_test *t, int reach) {
    double fall = 0;
    t->suggested = NAN;
    t->least = t->steepest = 0;
    for (int i = 0; i < t->count; i++) {
        t->smoothed[i] = smooth(t, i, reach);
        if (t->smoothed[i] < t->smoothed[t->least]) t->least = i;
    }
    /* slope over as many points as are smoothed; rates are equidistant on a logarithmic scale */
    for (int i = reach; i < t->least; i++) {
        const double down = t->smoothed[i - reach] - t->smoothed[i + reach < t->count ? i + reach : t->count - 1];
        if (down > fall) fall = down, t->steepest = i;
    }
    if (fall > 0) t->suggested = SUGGESTED * t->rate[t->least];
}

/* ---- the test ---- */

/* Runs the test. All ranks end after the same step: each step carries a vote to end, which all ranks receive when it ends; the
 * steps in flight at that time are completed. */
static int turn(struct sgrad__run *r, double from, double to, struct sgrad_lr_test *t) {
    const int reach = r->steps / SHARE > REACH ? (int)(r->steps / SHARE) : REACH;
    double least = INFINITY;
    bool over = false;
    for (long done = 0, next = 0; done < next || (next < r->steps && !over); done++) {
        while (next < r->steps && next - done < sgrad__run_steps_in_flight(r) && !over) {
            r->peak = from * pow(to / from, (double)next / (double)r->steps);
            SGRAD_TRY(sgrad__run_submit(r, next++));
        }
        const struct sgrad__slot *slot;
        SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
        const double *statistics = sgrad__slot_doubles(slot, r->program->statistics);
        const double *votes = sgrad__slot_doubles(slot, r->program->votes);
        const double loss = statistics[0] / statistics[r->result.metrics];
        if (!r->enough) r->enough = !add_point(t, slot->step.lr, loss, reach, &least);
        over = votes ? *votes > 0 : r->enough;
    }
    t->diverged = r->enough;
    read_curve(t, reach);
    return sgrad_wait_all();
}

static int find(struct sgrad__run *r, double from, double to, struct sgrad_lr_test *t) {
    SGRAD_TRY(sgrad__run_open_training(r));
    if (r->strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL, "find-lr: --strategy %s has no steps that all ranks take together",
                               r->strategy->name);
    sgrad__run_warn_unused(r);
    char *grows = sgrad_format("growing to %g by the same factor each step", to);
    r->peak = from;
    r->options.schedule = grows;
    if (r->context->rank == 0 && !r->options.json) sgrad__run_print(r, stdout);
    free(grows);
    SGRAD_TRY(sgrad__run_open_runner(r, 0));
    t->rank = r->context->rank;
    t->rate = sgrad_xcalloc((size_t)r->steps, sizeof *t->rate);
    t->loss = sgrad_xcalloc((size_t)r->steps, sizeof *t->loss);
    t->smoothed = sgrad_xcalloc((size_t)r->steps, sizeof *t->smoothed);
    SGRAD_TRY(turn(r, from, to, t));
    return sgrad__run_agree(r, 0);
}

int sgrad_find_lr(const struct sgrad_train_options *options, double from, double to, struct sgrad_lr_test *test) {
    if (!(from > 0 && to > from))
        return sgrad_log_error(SGRAD_EINVAL, "find-lr: from %g to %g: takes two rates, the lower first", from, to);
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    struct sgrad_train_options *o = &r->options;
    *o = *options;
    if (!o->steps) o->steps = STEPS;
    o->schedule = NULL, o->warmup = 0, o->lr_scale_base = 0;     /* options of the schedule and of the run directory */
    o->ema = 0;
    o->lookahead.every = 0;
    o->freeze_after = o->tta = NULL;
    o->resume = o->print = o->tensorboard = false;
    o->histograms = o->prometheus = 0;
    o->trace.first = 0;
    o->show_batch = NULL;
    r->unkept = true;
    *test = (struct sgrad_lr_test){ 0 };
    int error = find(r, from, to, test);
    if (error && !r->together) sgrad_ranks_abort(1);
    if (error) sgrad_lr_test_free(test);
    sgrad__run_close(r);
    free(r);
    return error;
}

void sgrad_lr_test_free(struct sgrad_lr_test *t) {
    free(t->rate);
    free(t->loss);
    free(t->smoothed);
    *t = (struct sgrad_lr_test){ 0 };
}
