/* limit.c: --memory, --spill: how much of a rank's memory a program may use.
 *
 *     ├── process ──┼── evaluation ──┼── checkpoint ──┼──────────── program ────────────┤  --memory
 *         measured       computed         computed        the rest: limit of passes/spill.c
 *
 * process: code, libraries, data set, parameters and optimizer states, which exist when the program is built. evaluation: copies
 * of the weights, and activations. checkpoint: a copy of parameters and states while they are written to a file.
 *
 * Limits: decoded images that are cached later (--data-memory) are not included, nor is the page cache. */
#include "graphs/train/setup.h"
#include "runtime/spill.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Assumed throughput of a worker: operations and bytes per second. It only affects when moves start, and only tasks that have
 * never been measured on this machine. */
static const double FLOPS = 60e9, BANDWIDTH = 8e9;
/* Bytes for tasks, primitives and codelets, which are created during training: fixed, and per instruction of the program without
 * moves. Measured on networks of 400 to 1,500 instructions. */
static const double REST = 36e6, PER_INSTRUCTION = 40e3;
static const double MIB = 1 << 20;  /* the M of options */

/* Returns the bytes of this process in memory; 0: unknown. */
static double resident(void) {
    long pages = 0;
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
        const struct sgrad__update *update = &run->training->update[i];
        const double each = (double)sgrad_shape_count(&run->graph->parameter[i].is.shape) * sizeof(float);
        bytes += each * (1 + (update->optimizer ? sgrad__state_count(update) : 0) + (update->average != NULL));
    }
    return bytes;
}

/* Returns the bytes of copies of parameters and states that are written to files: checkpoints by rank 0, snapshots by the first
 * rank of each host. If ranks store parts of these, the whole values are collected before they are copied. */
static double copied_bytes(const struct sgrad__run *run) {
    const struct sgrad_checkpoint_options *o = &run->options.checkpoint;
    const bool checkpoints = run->context->rank == 0 && run->files.folder && (o->every || o->seconds > 0);
    const bool parts = run->training->sharers || run->parallel.copies > 1;
    return checkpoints || o->snapshot_every ? (parts ? 2 : 1) * whole_bytes(run) : 0;
}

/* Returns the number of instructions of a step without a limit. */
static int count_instructions(const struct sgrad__run *run) {
    struct sgrad_program_options o = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro);
    struct sgrad__program *program;
    o.limit = (struct sgrad__memory_limit){ 0 };
    if (sgrad__program_build(run->graph, &o, &program)) return 0;
    const int count = program->instruction_count;
    sgrad__program_destroy(program);
    return count;
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

int sgrad__run_limit_memory(struct sgrad__run *run) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    struct sgrad__memory_limit *limit = &run->batch.limit;
    SGRAD_TRY(check(run));
    if (!o->memory) return 0;
    *limit = (struct sgrad__memory_limit){ .flops = FLOPS, .bandwidth = BANDWIDTH };
    if (o->spill && strcmp(o->spill, "none")) {
        limit->folder = o->spill;
        SGRAD_TRY(sgrad_spill_measure(o->spill, &limit->speed));
    }
    run->batch.other_memory = resident() + sgrad__evaluation_memory(run) + REST + PER_INSTRUCTION * count_instructions(run);
    run->batch.other_memory += copied_bytes(run);
    limit->bytes = (double)o->memory - run->batch.other_memory;
    if (limit->bytes < 1) limit->bytes = 1;
    return 0;
}

int sgrad__run_explain_limit(const struct sgrad__run *run, const struct sgrad_program_options *options) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    const double least = run->batch.other_memory + sgrad__program_least_memory(run->graph, options);
    const bool spills = options->limit.folder;
    return sgrad_log_error(SGRAD_ENOMEM,
                           "--memory %.0fM is too little: a rank requires %.0fM%s, of which %.0fM are not used by steps; give "
                           "--memory %.0fM, %sa smaller --micro-batch, or --recompute",
                           (double)o->memory / MIB, least / MIB, spills ? " with --spill" : "", run->batch.other_memory / MIB,
                           1.02 * least / MIB, spills ? "" : "--spill DIR, ");
}
