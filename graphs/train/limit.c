/* limit.c: --memory, --spill: how much of a rank's memory a program may use.
 *
 *     ├── process ──┼── checkpoint ──┼──────────────── program ────────────────┤  --memory
 *         measured       computed        the rest: limit of passes/spill.c; or of an evaluation, when no steps run
 *
 * process: code, libraries, data set, and those parameters and optimizer states that are not in the file. checkpoint: a copy of
 * parameters and states while they are written to a file.
 *
 * Limits: decoded images that are cached later (--data-memory) are not included, nor is the page cache. */
#include "graphs/train/setup.h"
#include "runtime/spill.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Assumed throughput of a worker: operations and bytes per second. It only affects when moves start, and only tasks that have
 * never been measured on this machine. */
static const double FLOPS = 60e9, BANDWIDTH = 8e9;
/* Bytes for tasks, primitives and codelets, which are created during training. Measured on networks of 400 to 1,500
 * instructions. */
static const double REST = 36e6;
static const double MIB = 1 << 20;  /* the M of options */
/* Parameters and states of at least this fraction of the limit are in the file from the start, before they are read. */
static const double LARGE = 0.4;

/* Returns the bytes of this process in memory, without those that have been freed; 0: unknown. */
static double resident(void) {
    long pages = 0;
    malloc_trim(0);
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* Returns the bytes of all parameters and states of all ranks. */
static double whole_bytes(const struct sgrad__run *run) {
    double bytes = 0;
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad_shape *shape = &run->graph->parameter[i].is.shape;
        const double each = (double)sgrad_shape_count(shape), averages = run->training->update[i].average != NULL;
        bytes += (each * (1 + averages) + sgrad__state_elements(run->training, i, shape)) * sizeof(float);
    }
    return bytes;
}

/* Returns the bytes of copies of parameters and states that are written to files: checkpoints by rank 0, snapshots by the first
 * rank of each host. Copies are in the folder of --spill, if there is one. If ranks store parts of these, the whole values are
 * collected before they are copied. */
static double copied_bytes(const struct sgrad__run *run) {
    const struct sgrad_checkpoint_options *o = &run->options.checkpoint;
    const bool writes = run->files.folder || run->options.output.print,
               checkpoints = run->context->rank == 0 && writes && (o->every || o->seconds > 0);
    const bool parts = run->training->sharers || run->parallel.copies > 1;
    return checkpoints || o->snapshot_every ? (parts + !run->graph->copies) * whole_bytes(run) : 0;
}

/* Returns the number of instructions of a step without a limit. */
static int count_instructions(const struct sgrad__run *run) {
    struct sgrad_program_options o = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro);
    struct sgrad__program *program;
    o.limit = (struct sgrad__memory_limit){ .waves = o.limit.waves };
    if (sgrad__program_build(run->graph, &o, &program)) return 0;
    const int count = program->instruction_count;
    sgrad__program_destroy(program);
    return count;
}

/* Returns the bytes of parameters and states that are not in memory, because they have never been written. */
static double absent_bytes(const struct sgrad__run *run) {
    double bytes = 0;
    int count;
    struct sgrad_tensor **home = sgrad__homes(run->training, SGRAD__MOVES_WEIGHTS, &count);
    for (int i = 0; i < count; i++) bytes += (double)sgrad_view_bytes(&home[i]->view) - (double)sgrad_spill_resident(home[i]);
    free(home);
    return bytes;
}

void sgrad__run_measure_memory(struct sgrad__run *run) {
    run->batch.other_memory =
        resident() + absent_bytes(run) + copied_bytes(run) + REST + SGRAD__INSTRUCTION_BYTES * count_instructions(run);
    run->batch.evaluation_memory = sgrad__evaluation_memory(run);
}

/* Returns the bytes of the contents MOVED. */
static double moved_bytes(const struct sgrad__run *run, enum sgrad__moved moved) {
    double bytes = 0;
    int count;
    struct sgrad_tensor **home = sgrad__homes(run->training, moved, &count);
    for (int i = 0; i < count; i++) bytes += (double)sgrad_view_bytes(&home[i]->view);
    free(home);
    return bytes;
}

struct sgrad__memory_use sgrad__run_memory_use(const struct sgrad__run *run, enum sgrad__moved moved) {
    struct sgrad__memory_use use = { run->batch.other_memory - moved_bytes(run, moved), run->batch.evaluation_memory };
    if (moved == SGRAD__MOVES_WEIGHTS) use.evaluation += sgrad__graph_memory(run->graph);
    return use;
}

/* Returns an error if the options do not fit together. */
static int check(const struct sgrad__run *run) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    if (o->spill && strcmp(o->spill, "none") && !o->memory)
        return sgrad_log_error(SGRAD_EINVAL, "--spill %s requires --memory SIZE", o->spill);
    if (!o->memory) return 0;
    if (run->context->gpus)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--memory limits a rank without GPUs; add --gpus 0, or use less memory by --micro-batch or "
                               "--recompute");
    if (o->no_fuse) return sgrad_log_error(SGRAD_EINVAL, "--memory requires fused tasks; omit --no-fuse");
    return 0;
}

/* Sets the limit of steps, if the contents MOVED are in the file. Returns false if that is too little. */
static bool try_moved(struct sgrad__run *run, enum sgrad__moved moved) {
    struct sgrad__memory_limit *limit = &run->batch.limit;
    const struct sgrad__memory_use use = sgrad__run_memory_use(run, moved);
    limit->moved = moved;
    limit->bytes = (double)run->options.parallel.memory - use.other;
    if (limit->bytes < use.evaluation || limit->bytes < 1) return false;
    const struct sgrad_program_options o = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro);
    struct sgrad__program *program;
    if (sgrad__program_build(run->graph, &o, &program)) return false;
    sgrad__program_destroy(program);
    return true;
}

/* Returns the lowest limit, if the contents MOVED are in the file. */
static double least_of(struct sgrad__run *run, enum sgrad__moved moved, struct sgrad__memory_use *use) {
    run->batch.limit.moved = moved;
    *use = sgrad__run_memory_use(run, moved);
    const struct sgrad_program_options o = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro);
    const double steps = sgrad__program_least_memory(run->graph, &o);
    return use->other + (steps > use->evaluation ? steps : use->evaluation);
}

/* Returns an error that names the lowest possible limit, if at least the contents FIRST are in the file. */
static int refuse(struct sgrad__run *run, enum sgrad__moved first) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    const bool spills = run->batch.limit.spills;
    struct sgrad__memory_use use, best;
    double least = least_of(run, first, &best);
    for (enum sgrad__moved moved = first + 1; spills && moved <= SGRAD__MOVES_WEIGHTS; moved++) {
        const double other = least_of(run, moved, &use);
        if (other < least) least = other, best = use;
    }
    return sgrad_log_error(SGRAD_ENOMEM,
                           "--memory %.0fM is too little: a rank requires %.0fM%s, of which %.0fM are not used by steps; give "
                           "--memory %.0fM, %sa smaller --micro-batch, or --recompute",
                           (double)o->memory / MIB, least / MIB, spills ? " with --spill" : "", best.other / MIB,
                           1.02 * least / MIB, spills ? "" : "--spill DIR, ");
}

/* Moves the contents MOVED to the file. */
static int settle(struct sgrad__run *run, enum sgrad__moved moved) {
    int count, error = 0;
    struct sgrad_tensor **home = sgrad__homes(run->training, moved, &count);
    run->batch.limit.moved = moved;
    for (int i = 0; i < count && !error; i++) error = sgrad_spill_settle(run->batch.limit.file, home[i]);
    free(home);
    malloc_trim(0);     /* gives back the memory of programs that were tried, and of these tensors */
    return error;
}

/* Moves as little as possible: only activations and gradients if this suffices, then optimizer states, then weights. */
static int choose_moved(struct sgrad__run *run) {
    const struct sgrad__memory_limit *limit = &run->batch.limit;
    const enum sgrad__moved first = limit->moved, most = limit->spills ? SGRAD__MOVES_WEIGHTS : SGRAD__MOVES_NONE;
    for (enum sgrad__moved moved = first; moved <= most; moved++)
        if (try_moved(run, moved)) return moved > first ? settle(run, moved) : 0;
    return refuse(run, first);
}

int sgrad__run_open_limit(struct sgrad__run *run) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    struct sgrad__memory_limit *limit = &run->batch.limit;
    if (!limit->waves || !o->memory || !o->spill || !strcmp(o->spill, "none")) return 0;
    run->graph->copies = o->spill;
    limit->spills = true;
    SGRAD_TRY(sgrad_spill_open(o->spill, &limit->file));
    SGRAD_TRY(sgrad_spill_measure(o->spill, &limit->speed));
    return moved_bytes(run, SGRAD__MOVES_WEIGHTS) > LARGE * (double)o->memory ? settle(run, SGRAD__MOVES_WEIGHTS) : 0;
}

int sgrad__run_agree_limit(struct sgrad__run *run) {
    double limited = run->options.parallel.memory > 0;
    SGRAD_TRY(sgrad__run_agree(run, check(run)));
    sgrad_ranks_sum(&limited, 1);
    run->evaluation.alone = limited > 0;
    run->batch.limit = (struct sgrad__memory_limit){ .waves = limited > 0, .flops = FLOPS, .bandwidth = BANDWIDTH,
                                                     .instruction = SGRAD__INSTRUCTION_BYTES };
    return 0;
}

int sgrad__run_limit_memory(struct sgrad__run *run) {
    if (!run->batch.limit.waves) return 0;
    if (!run->options.parallel.memory) return sgrad__run_agree(run, 0);
    sgrad__run_measure_memory(run);
    return sgrad__run_agree(run, choose_moved(run));
}
