/* evaluate.c: the loss's metrics on the test part of a data set. */
#include "graphs/runs/run.h"

#include <math.h>
#include <stdlib.h>

/* Runs this rank's batches of the COUNT samples from FROM on through the program: every so many ranks one. VALUE takes the loss's
 * sums of each. When this rank is asked to end, what is in flight ends, and nothing more begins. */
static int run_batches(struct sgrad__run *r, struct sgrad__runner *runner, int64_t from, int64_t count, double *value) {
    const int64_t size = runner->program->share, ranks = r->context->ranks, window = runner->program->window;
    int64_t *sample = sgrad_alloc((size_t)size, sizeof *sample), next = r->context->rank, end = count / size;
    struct sgrad_step step = { .seed = r->options.seed, .number = 1 };
    const struct sgrad__slot *slot;
    int error = 0;
    for (int64_t done = next; done < end && !error; done += ranks) {
        if (sgrad__run_is_asked(r) && next < end) end = next;
        for (; next < end && next - done < window * ranks && !error; next += ranks) {
            for (int64_t i = 0; i < size; i++) sample[i] = from + next * size + i;
            error = sgrad__runner_submit(runner, &step, sample);
        }
        if (done >= end) break;
        if (!error) error = sgrad__runner_wait(runner, &slot);
        const double *sums = error ? NULL : sgrad__slot_doubles(slot, runner->program->statistics);
        for (int i = 0; i <= r->result.metrics && !error; i++) value[done * (r->result.metrics + 1) + i] = sums[i];
    }
    free(sample);
    return error;
}

/* Adds the sums of all batches to TOTAL, in their order, whichever rank had them. */
static int evaluate_range(struct sgrad__run *r, struct sgrad__runner *runner, int64_t from, int64_t count, double *total) {
    const int64_t batches = count / runner->program->share, values = batches * (r->result.metrics + 1);
    double *value = sgrad_alloc((size_t)values + 1, sizeof *value);
    int error = run_batches(r, runner, from, count, value);
    value[values] = sgrad__run_is_asked(r);
    if (!error) sgrad_ranks_sum(value, (int)values + 1);
    r->stopping |= value[values] > 0;
    for (int64_t i = 0; i < values; i++) total[i % (r->result.metrics + 1)] += value[i];
    free(value);
    return error;
}

static int open_evaluation(struct sgrad__run *r, int64_t batch, int64_t micro, struct sgrad__evaluation *e) {
    if (e->runner || batch == 0) return 0;
    struct sgrad__program_options p = sgrad__run_program_options(r, false, batch, micro);
    SGRAD_TRY(sgrad__program_build(r->graph, &p, &e->program));
    SGRAD_TRY(sgrad__program_allocate(e->program));
    e->runner = sgrad__runner_create(e->program);
    return 0;
}

/* Every sample once: some micro-batches at a time, then one, then what is left. */
int sgrad__run_evaluate(struct sgrad__run *r) {
    enum { AT_ONCE = 8 };
    int64_t count = r->test->count, micro = r->evaluated < count ? r->evaluated : count, from = 0;
    int64_t batch[3] = { AT_ONCE * micro, micro, count % micro };
    double total[SGRAD_MAX_METRICS + 1] = { 0 };
    for (int i = 0; i < 3 && !r->stopping; i++) {
        int64_t here = batch[i] ? (count - from) / batch[i] * batch[i] : 0;
        if (!here) continue;
        SGRAD_TRY(open_evaluation(r, batch[i], i < 2 ? micro : batch[i], &r->evaluation[i]));
        SGRAD_TRY(evaluate_range(r, r->evaluation[i].runner, from, here, total));
        from += here;
    }
    for (int i = 0; i < r->result.metrics; i++) r->result.test[i] = r->stopping ? NAN : total[i] / total[r->result.metrics];
    return 0;
}

int sgrad_evaluate(const struct sgrad_train_options *options, struct sgrad_train_result *result) {
    struct sgrad__run *r = sgrad_alloc(1, sizeof *r);
    r->options = *options;
    int error = sgrad__run_open_evaluation(r);
    if (!error) sgrad__run_tell_idle(r);
    if (!error) error = sgrad__run_evaluate(r);
    if (!error) *result = sgrad__run_result(r);
    if (error && !r->together) sgrad_ranks_abort(1);
    sgrad__run_close(r);
    free(r);
    return error;
}
