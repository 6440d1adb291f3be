/* step.c: submits the next step of a run: its samples, its learning rate, the exchange of records for the next epoch. */
#include "datasets/datasets.h"
#include "graphs/engine/run.h"

#include <stdlib.h>

struct sgrad__sampler sgrad__run_sampler(const struct sgrad__run *r) {
    return (struct sgrad__sampler){ .seed = r->options.seed, .count = r->train->count, .shuffle = !r->options.no_shuffle,
                                    .shifts = r->placement ? 0 : r->train->shifts };
}

/* Compares the programs of all ranks, including those of the parameter servers. Trials of a search are not compared: they are
 * built while other ranks train other trials. */
static int compare_program(struct sgrad__run *r) {
    if (r->beside) return 0;
    int count = 1;
    while (sgrad__server_program(r->server, count - 1)) count++;
    const struct sgrad__program **program = sgrad_xcalloc((size_t)count, sizeof *program);
    program[0] = r->program;
    for (int i = 1; i < count; i++) program[i] = sgrad__server_program(r->server, i - 1);
    const int error = sgrad__programs_compare(r->context, program, count);
    free(program);
    r->together |= error != 0;
    return error;
}

static bool is_asked(const void *run) { return sgrad__run_is_asked(run); }

/* Creates the runner. In a run with its own directory, steps in flight are cancelled when its end is requested; not in trials. */
static void create_runner(struct sgrad__run *r) {
    r->runner = sgrad__runner_create(r->program, r->listener);
    if (r->folder && !r->listener) r->runner->asked = is_asked, r->runner->asked_arg = r;
}

int sgrad__run_open_runner(struct sgrad__run *r, long done) {
    SGRAD_TRY(sgrad__program_allocate(r->program));
    create_runner(r);
    SGRAD_TRY(sgrad__server_open(r, done));
    SGRAD_TRY(compare_program(r));
    r->order = sgrad__run_sampler(r);
    return r->placement && done < r->steps ? sgrad__placement_load(r->placement, (uint32_t)(done / r->steps_per_epoch)) : 0;
}

int sgrad__run_reopen_program(struct sgrad__run *r, long done) {
    const struct sgrad_program_options how = sgrad__run_program_options(r, true, r->options.batch, r->micro);
    sgrad__runner_destroy(r->runner);
    sgrad__program_destroy(r->program);
    r->runner = NULL;
    r->program = NULL;
    sgrad__training_freeze(r->training, r->options.freeze, done);
    SGRAD_TRY(sgrad__program_build(r->graph, &how, &r->program));
    SGRAD_TRY(sgrad__program_allocate(r->program));
    create_runner(r);
    return compare_program(r);
}

/* Returns the vote of this rank: 1 to end the run; 0.25, only on rank 0, to write a checkpoint. */
static float vote_of(const struct sgrad__run *r, long step) {
    if (sgrad__run_is_asked(r) || r->enough) return 1;
    return sgrad__deadline_wants_checkpoint(r, step) ? 0.25f : 0;
}

int sgrad__run_submit_samples(struct sgrad__run *r, long step, const struct sgrad_sample *sample) {
    const struct sgrad_step s = {
        .seed = r->options.seed, .number = (uint32_t)step + 1, .epoch = (uint32_t)(step / r->steps_per_epoch), .training = true,
        .lr = (float)sgrad__run_lr(r, step), .damping = (float)sgrad__run_damping(r, step),
        .first = r->part * r->program->share, .stop = vote_of(r, step),
    };
    return sgrad__runner_submit(r->runner, &s, sample);
}

int sgrad__run_submit(struct sgrad__run *r, long step) {
    const uint32_t epoch = (uint32_t)(step / r->steps_per_epoch);
    const int64_t share = r->program->share, first = step % r->steps_per_epoch * r->options.batch + r->part * share;
    struct sgrad_sample *sample = sgrad_xcalloc((size_t)share, sizeof *sample);
    for (int64_t i = 0; i < share; i++) sample[i] = sgrad__sampler_sample(&r->order, epoch, first + i);
    int error = r->placement ? sgrad__placement_step(r->placement, step, &r->program->buffer[r->program->records].tensor[0]) : 0;
    if (!error) error = sgrad__run_submit_samples(r, step, sample);
    free(sample);
    return error;
}
