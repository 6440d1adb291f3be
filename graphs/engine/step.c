/* step.c: submits the next step of a run: its samples, its learning rate, the exchange of records for the next epoch. */
#include "datasets/datasets.h"
#include "graphs/engine/run.h"

#include <stdlib.h>
#include <string.h>

bool sgrad__run_is_balanced(const struct sgrad__run *run) {
    return run->options.data.sampler && !strcmp(run->options.data.sampler, "balanced");
}

struct sgrad__sampler sgrad__run_sampler(const struct sgrad__run *run) {
    return (struct sgrad__sampler){ .seed = run->options.training.seed,
                                    .count = run->data.train->count,
                                    .shuffle = !run->options.data.no_shuffle,
                                    .label = sgrad__run_is_balanced(run) ? run->data.label : NULL,
                                    .classes = run->data.train->classes,
                                    .shards = run->options.data.shuffle_window ? run->data.train->shards : 0,
                                    .shard = run->data.train->first,
                                    .window = run->options.data.shuffle_window,
                                    .sources = run->data.train->sources,
                                    .source = run->data.train->source,
                                    .shifts = run->data.placement ? 0 : run->data.train->shifts };
}

/* Compares the programs of all ranks, including those of the parameter servers. Trials of a search are not compared: they are
 * built while other ranks train other trials. */
static int compare_program(struct sgrad__run *run) {
    if (run->beside) return 0;
    int count = 1;
    while (sgrad__server_program(run->parallel.server, count - 1)) count++;
    const struct sgrad__program **program = sgrad_xcalloc((size_t)count, sizeof *program);
    program[0] = run->program;
    for (int i = 1; i < count; i++) program[i] = sgrad__server_program(run->parallel.server, i - 1);
    const int error = sgrad__programs_compare(run->context, program, count);
    free(program);
    run->control.together |= error != 0;
    return error;
}

static bool is_asked(const void *run) { return sgrad__run_is_asked(run); }

/* Creates the runner. In a run with its own directory, steps in flight are cancelled when its end is requested; not in trials. */
static void create_runner(struct sgrad__run *run) {
    run->runner = sgrad__runner_create(run->program, run->control.listener);
    if (run->files.folder && !run->control.listener) run->runner->asked = is_asked, run->runner->asked_arg = run;
}

int sgrad__run_open_runner(struct sgrad__run *run, long done) {
    SGRAD_TRY(sgrad__program_allocate(run->program));
    create_runner(run);
    SGRAD_TRY(sgrad__server_open(run, done));
    SGRAD_TRY(compare_program(run));
    run->data.sampler = sgrad__run_sampler(run);
    return run->data.placement && done < run->steps
               ? sgrad__placement_load(run->data.placement, (uint32_t)(done / run->steps_per_epoch))
               : 0;
}

int sgrad__run_reopen_program(struct sgrad__run *run, long done) {
    const struct sgrad_program_options how = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro);
    sgrad__runner_destroy(run->runner);
    sgrad__program_destroy(run->program);
    run->runner = NULL;
    run->program = NULL;
    sgrad__training_freeze(run->training, run->options.training.freeze, done);
    int error = sgrad__program_build(run->graph, &how, &run->program)
                    ? sgrad_log_error(SGRAD_ENOMEM, "a step without the frozen parameters does not fit into %s; give more memory",
                                      run->batch.limit.gpu ? "--gpu-memory" : "--memory")
                    : sgrad__program_allocate(run->program);
    if (!run->beside) error = sgrad__run_agree(run, error);     /* trials are built while other ranks train other trials */
    if (error) return error;
    create_runner(run);
    return compare_program(run);
}

/* Returns the vote of this rank: 1 to end the run; 0.25, only on rank 0, to write a checkpoint. */
static float vote_of(const struct sgrad__run *run, long step) {
    if (sgrad__run_is_asked(run) || run->best.stop) return 1;
    return sgrad__deadline_wants_checkpoint(run, step) ? 0.25f : 0;
}

/* Returns the factor that makes the mean class weight of a batch 1. SAMPLE: the samples of the batch, of all ranks. */
static float weight_scale(const struct sgrad__run *run, const struct sgrad_sample *sample) {
    const long batch = run->options.training.batch;
    double sum = 0;
    if (!run->data.class_weight || run->data.train->mixed) return 1;
    for (long i = 0; i < batch; i++) sum += run->data.class_weight[run->data.label[sample[i].index]];
    return (float)((double)batch / sum);
}

int sgrad__run_submit_samples(struct sgrad__run *run, long step, const struct sgrad_sample *sample) {
    const struct sgrad_step s = {
        .seed = run->options.training.seed,
        .number = (uint32_t)step + 1,
        .epoch = (uint32_t)(step / run->steps_per_epoch),
        .training = true,
        .lr = (float)sgrad__run_lr(run, step),
        .lr_share = sgrad__run_lr_share(run, &run->update.lr_sum, step),
        .damping = (float)sgrad__run_damping(run, step),
        .first = run->parallel.local_batch * run->program->share,
        .stop = vote_of(run, step),
        .weight_scale = weight_scale(run, sample),
    };
    return sgrad__runner_submit(run->runner, &s, sample + s.first);
}

int sgrad__run_submit(struct sgrad__run *run, long step) {
    const uint32_t epoch = (uint32_t)(step / run->steps_per_epoch);
    const int64_t batch = run->options.training.batch, first = step % run->steps_per_epoch * batch;
    const int64_t share = run->program->share, own = run->parallel.local_batch * share;
    const int64_t from = run->data.class_weight ? 0 : own, to = run->data.class_weight ? batch : own + share;
    struct sgrad_sample *sample = sgrad_xcalloc((size_t)batch, sizeof *sample);
    for (int64_t i = from; i < to; i++) sample[i] = sgrad__sampler_sample(&run->data.sampler, epoch, first + i);
    int error = run->data.placement
                    ? sgrad__placement_step(run->data.placement, step, &run->program->buffer[run->program->records].tensor[0])
                    : 0;
    if (!error) error = sgrad__run_submit_samples(run, step, sample);
    free(sample);
    return error;
}
