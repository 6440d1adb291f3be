/* step.c: the next step of a run, submitted: its samples, its rate, what has to move meanwhile. */
#include "graphs/runs/run.h"

#include <stdlib.h>

int sgrad__run_open_runner(struct sgrad__run *r, long done) {
    SGRAD_TRY(sgrad__program_allocate(r->program));
    r->runner = sgrad__runner_create(r->program);
    SGRAD_TRY(sgrad__server_open(r, done));
    r->order = (struct sgrad__order){ .seed = r->options.seed, .count = r->train->count, .shuffle = !r->options.no_shuffle };
    return r->placement && done < r->steps ? sgrad__placement_load(r->placement, (uint32_t)(done / r->steps_per_epoch)) : 0;
}

int sgrad__run_submit(struct sgrad__run *r, long step) {
    const struct sgrad_train_options *o = &r->options;
    const int64_t share = r->program->share;
    struct sgrad_step s = {
        .seed = o->seed, .number = (uint32_t)step + 1, .epoch = (uint32_t)(step / r->steps_per_epoch), .training = true,
        .rate = (float)sgrad__run_rate(r, step), .damping = (float)sgrad__run_damping(r, step), .first = r->part * share,
        .stop = sgrad__run_is_asked(r),
    };
    int64_t *sample = sgrad_alloc((size_t)share, sizeof *sample);
    for (int64_t i = 0; i < share; i++)
        sample[i] = sgrad__order_sample(&r->order, s.epoch, step % r->steps_per_epoch * o->batch + s.first + i);
    int error = r->placement ? sgrad__placement_step(r->placement, step, &r->program->buffer[r->program->records].tensor[0]) : 0;
    if (!error) error = sgrad__runner_submit(r->runner, &s, sample);
    free(sample);
    return error;
}
