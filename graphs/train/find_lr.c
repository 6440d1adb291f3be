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
static double smooth(const struct sgrad_lr_test *test, int point, int reach) {
    const int from = point < reach ? 0 : point - reach, to = point + reach < test->count ? point + reach + 1 : test->count;
    double sum = 0;
    for (int i = from; i < to; i++) sum += test->loss[i];
    return sum / (to - from);
}

/* Adds the loss of the next step. Returns false if training has diverged; a loss that is NaN or infinite is not added. */
static bool add_point(struct sgrad_lr_test *test, double rate, double loss, int reach, double *least) {
    const int settled = test->count - reach;    /* the newest point whose neighbors are all known */
    if (!isfinite(loss)) return false;
    test->rate[test->count] = rate;
    test->loss[test->count++] = loss;
    if (settled < reach) return true;
    const double here = smooth(test, settled, reach);
    *least = fmin(*least, here);
    return here <= DIVERGED * *least;
}

static void read_curve(struct sgrad_lr_test *test, int reach) {
    double fall = 0;
    test->suggested = NAN;
    test->least = test->steepest = 0;
    for (int i = 0; i < test->count; i++) {
        test->smoothed[i] = smooth(test, i, reach);
        if (test->smoothed[i] < test->smoothed[test->least]) test->least = i;
    }
    /* slope over as many points as are smoothed; rates are equidistant on a logarithmic scale */
    for (int i = reach; i < test->least; i++) {
        const double down = test->smoothed[i - reach] - test->smoothed[i + reach < test->count ? i + reach : test->count - 1];
        if (down > fall) fall = down, test->steepest = i;
    }
    if (fall > 0) test->suggested = SUGGESTED * test->rate[test->least];
}

/* ---- the test ---- */

/* Runs the test. All ranks end after the same step: each step carries a vote to end, which all ranks receive when it ends; the
 * steps in flight at that time are completed. */
static int turn(struct sgrad__run *run, double from, double to, struct sgrad_lr_test *test) {
    const int reach = run->steps / SHARE > REACH ? (int)(run->steps / SHARE) : REACH;
    double least = INFINITY;
    bool over = false;
    for (long done = 0, next = 0; done < next || (next < run->steps && !over); done++) {
        while (next < run->steps && next - done < sgrad__run_steps_in_flight(run) && !over) {
            run->update.peak_lr = from * pow(to / from, (double)next / (double)run->steps);
            SGRAD_TRY(sgrad__run_submit(run, next++));
        }
        const struct sgrad__slot *slot;
        SGRAD_TRY(sgrad__runner_wait(run->runner, &slot));
        const double *statistics = sgrad__slot_doubles(slot, run->program->statistics);
        const double *votes = sgrad__slot_doubles(slot, run->program->votes);
        const double loss = statistics[0] / statistics[run->loss_metrics];
        if (!run->best.stop) run->best.stop = !add_point(test, slot->step.lr, loss, reach, &least);
        over = votes ? *votes > 0 : run->best.stop;
    }
    test->diverged = run->best.stop;
    read_curve(test, reach);
    return sgrad_wait_all();
}

static int find(struct sgrad__run *run, double from, double to, struct sgrad_lr_test *test) {
    SGRAD_TRY(sgrad__run_open_training(run));
    if (run->parallel.strategy->asynchronous)
        return sgrad_log_error(SGRAD_EINVAL,
                               "find-lr cannot be combined with --strategy %s: ranks must take their steps together",
                               run->parallel.strategy->name);
    sgrad__run_warn_unused(run);
    char *grows = sgrad_format("growing to %g by the same factor each step", to);
    run->update.peak_lr = from;
    run->options.optimizer.schedule = grows;
    if (run->context->rank == 0 && !run->options.output.json) sgrad__run_print(run, stdout);
    free(grows);
    SGRAD_TRY(sgrad__run_open_runner(run, 0));
    test->rank = run->context->rank;
    test->rate = sgrad_xcalloc((size_t)run->steps, sizeof *test->rate);
    test->loss = sgrad_xcalloc((size_t)run->steps, sizeof *test->loss);
    test->smoothed = sgrad_xcalloc((size_t)run->steps, sizeof *test->smoothed);
    SGRAD_TRY(turn(run, from, to, test));
    return sgrad__run_agree(run, 0);
}

int sgrad_find_lr(const struct sgrad_train_options *options, double from, double to, struct sgrad_lr_test *test) {
    if (!(from > 0 && to > from))
        return sgrad_log_error(SGRAD_EINVAL,
                               "find-lr: %g to %g is not a range of learning rates; give two numbers above 0, the lower first",
                               from, to);
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    struct sgrad_train_options *o = &r->options;
    *o = *options;
    if (!o->training.steps) o->training.steps = STEPS;
    /* options of the schedule and of the run directory have no effect */
    o->optimizer.schedule = NULL;
    o->optimizer.warmup = 0;
    o->optimizer.lr_scale_base = 0;
    o->training.ema = 0;
    o->training.lookahead = (struct sgrad_lookahead){ 0 };
    o->training.freeze_after = o->evaluation.tta = NULL;
    o->checkpoint.resume = o->output.print = o->output.tensorboard = false;
    o->output.histograms = o->output.prometheus = 0;
    o->output.trace = (struct sgrad_step_range){ 0 };
    o->output.show_batch = NULL;
    r->files.none = true;
    *test = (struct sgrad_lr_test){ 0 };
    int error = find(r, from, to, test);
    if (error && !r->control.together) sgrad_ranks_abort(1);
    if (error) sgrad_lr_test_free(test);
    sgrad__run_close(r);
    free(r);
    return error;
}

void sgrad_lr_test_free(struct sgrad_lr_test *test) {
    free(test->rate);
    free(test->loss);
    free(test->smoothed);
    *test = (struct sgrad_lr_test){ 0 };
}
