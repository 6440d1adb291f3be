/* limit.c: --memory, --spill: how much of a rank's memory a program may use.
 *
 *     ├── process ──┼── checkpoint ──┼──────────────── program ────────────────┤  --memory
 *         measured       computed        the rest: limit of passes/spill.c; or of an evaluation, when no steps run
 *
 * process: code, libraries, data set, and those parameters and optimizer states that are not in the file. checkpoint: a copy of
 * parameters and states while they are written to a file.
 *
 * Limits: decoded images that are cached later (--data-memory) are not included, nor is the page cache. */
#include "config.h"
#include "graphs/train/setup.h"
#include "runtime/simulation.h"
#include "runtime/spill.h"

#include <malloc.h>
#include <math.h>
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
/* Parameters and states of at least this fraction of the limit are in the file until the step has been planned. */
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
    const bool parts = run->training->sharers || run->parallel.joint;
    return checkpoints || o->snapshot_every ? (parts + !run->batch.limit.spills) * whole_bytes(run) : 0;
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
    struct sgrad__homes homes = sgrad__homes_find(run->training);
    double bytes = sgrad__homes_bytes(&homes, 0, homes.count);
    for (int i = 0; i < homes.count; i++) bytes -= (double)sgrad_spill_resident(homes.tensor[i]);
    sgrad__homes_free(&homes);
    return bytes;
}

double sgrad__run_process_memory(const struct sgrad__run *run) {
    if (SGRAD_SIMULATED) return sgrad_simulation_memory();
    return resident() + absent_bytes(run) - sgrad__training_memory(run->training);
}

void sgrad__run_measure_memory(struct sgrad__run *run) {
    run->batch.limit.instructions = count_instructions(run);
    run->batch.other_memory = sgrad__run_process_memory(run) + sgrad__training_memory(run->training) + copied_bytes(run) + REST +
                              SGRAD__INSTRUCTION_BYTES * run->batch.limit.instructions;
    run->batch.evaluation_memory = sgrad__evaluation_memory(run);
}

struct sgrad__memory_use sgrad__run_memory_use(const struct sgrad__run *run, int moved) {
    struct sgrad__homes homes = sgrad__homes_find(run->training);
    const struct sgrad__memory_use use = {
        .other = run->batch.other_memory - sgrad__homes_bytes(&homes, 0, moved),
        .evaluation = run->batch.evaluation_memory + sgrad__homes_bytes(&homes, homes.states, moved),
    };
    sgrad__homes_free(&homes);
    return use;
}

/* Returns an error if the options do not fit together. */
static int check(const struct sgrad__run *run) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    if (o->gpu_memory) return sgrad__run_check_gpu_limit(run);
    if (o->spill && !strcmp(o->spill, "ram"))
        return sgrad_log_error(SGRAD_EINVAL,
                               "--spill ram moves data of a GPU, and requires --gpu-memory SIZE; with --memory, give a folder");
    if (o->spill && strcmp(o->spill, "none") && !o->memory)
        return sgrad_log_error(SGRAD_EINVAL, "--spill %s requires --memory SIZE", o->spill);
    if (!o->memory) return 0;
    if (run->context->gpus)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--memory limits a rank without GPUs; give --gpu-memory to limit a GPU, or add --gpus 0");
    if (o->no_fuse) return sgrad_log_error(SGRAD_EINVAL, "--memory requires fused tasks; omit --no-fuse");
    return 0;
}

/* ---- the choice of moves and recomputed layers ---- */

static struct sgrad__memory_use use_with(void *run, int moved) { return sgrad__run_memory_use(run, moved); }

/* Returns the search for a step within the limit of this rank's memory, or of its GPU's. */
static struct sgrad__limit_search search_for(struct sgrad__run *run) {
    const struct sgrad__memory_limit *limit = &run->batch.limit;
    const long bytes = limit->gpu ? run->options.parallel.gpu_memory : run->options.parallel.memory;
    struct sgrad__homes homes = sgrad__homes_find(run->training);
    const struct sgrad__limit_search search = {
        .graph = run->graph,
        .options = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro),
        .bytes = (double)bytes,
        .most = !limit->spills ? 0 : limit->gpu ? homes.states : homes.count,
        .recomputes = !run->options.model.recompute,
        .layers_may_be_dropped = sgrad__run_shares_parameters(run),
        .use = limit->gpu ? sgrad__run_gpu_memory_use : use_with,
        .arg = run,
    };
    sgrad__homes_free(&homes);
    return search;
}

/* Returns an error that names the lowest possible limit, with layers that are recomputed if this helps. */
static int refuse(const struct sgrad__limit_search *search) {
    if (search->options.limit.gpu) return sgrad__run_refuse_gpu(search);
    const bool spills = search->options.limit.spills;
    double other;
    const double least = sgrad__limit_least(search, &other);
    return sgrad_log_error(SGRAD_ENOMEM,
                           "--memory %.0fM is too little: a rank requires %.0fM%s, of which %.0fM are not used by steps; give "
                           "--memory %.0fM, %sor a smaller --micro-batch",
                           search->bytes / MIB, least / MIB, spills ? " with --spill" : "", other / MIB, 1.02 * least / MIB,
                           spills ? "" : "--spill DIR, ");
}

/* Moves the first MOVED homes to the file, and the others to memory, where they are not there yet. */
static int place_homes(struct sgrad__run *run, int moved) {
    struct sgrad__homes homes = sgrad__homes_find(run->training);
    int error = 0;
    run->batch.limit.moved = moved;
    for (int i = 0; i < homes.count && !error; i++)
        if (homes.tensor[i]->mapped != (i < moved))
            error = i < moved ? sgrad_spill_to_file(run->batch.limit.file, homes.tensor[i])
                              : sgrad_spill_to_memory(run->batch.limit.file, homes.tensor[i]);
    sgrad__homes_free(&homes);
    malloc_trim(0);     /* gives back the memory of programs that were tried, and of these tensors */
    return error;
}

/* Chooses homes in the file, or in main memory, and layers that are recomputed. Moves homes to the file. */
static int choose(struct sgrad__run *run) {
    const struct sgrad__limit_search search = search_for(run);
    const struct sgrad__limit_choice choice = sgrad__limit_choose(&search);
    if (choice.moved < 0) return refuse(&search);
    run->batch.recomputation = choice.recomputation;
    run->batch.limit.moved = choice.moved;
    run->batch.limit.bytes = search.bytes - search.use(run, choice.moved).other;
    return run->batch.limit.spills && !run->batch.limit.gpu ? place_homes(run, choice.moved) : 0;
}

/* Returns true if a step, with the layers that are marked as recomputed now, fits within the limit of this rank. */
static bool fits(struct sgrad__run *run) {
    const struct sgrad__limit_search search = search_for(run);
    return !run->batch.limit.bytes || sgrad__limit_predict(&search, run->batch.limit.moved) < INFINITY;
}

/* Weights of which ranks store shares are gathered for recomputations: then each rank recomputes the layers that any rank has
 * chosen, or none if this does not fit on a rank. BEFORE: the marks without this choice. */
static int share_recomputed(struct sgrad__run *run, const double *before) {
    struct sgrad__recomputation is = run->batch.recomputation;
    double *marks = sgrad__limit_marks(run->graph), failed;
    sgrad_ranks_sum(marks, run->graph->node_count);
    sgrad__limit_set_marks(run->graph, marks);
    is.layers = 0;
    for (int n = 0; n < run->graph->node_count; n++) is.layers += marks[n] > 0 && before[n] <= 0;
    free(marks);
    failed = !fits(run);
    sgrad_ranks_sum(&failed, 1);
    if (failed > 0) {
        is = (struct sgrad__recomputation){ 0 };
        sgrad__limit_set_marks(run->graph, before);
    }
    run->batch.recomputation = is;
    if (!failed || fits(run)) return 0;
    const struct sgrad__limit_search search = search_for(run);
    return refuse(&search);
}

/* Reserves space for the copies of parameters and states that this rank writes to files: a checkpoint, a snapshot, and the
 * weights of the best evaluation or of the end of the run may be written at the same time. */
static int reserve_copies(const struct sgrad__run *run) {
    enum { MOST = 3 };
    struct sgrad__items items[MOST];
    int count = 0;
    if (SGRAD_SIMULATED || run->options.output.print || !run->batch.limit.spills) return 0;
    if (run->context->rank == 0) {
        items[count++] = sgrad__training_list(run->training, true);
        items[count++] = sgrad__parameters_list(run->graph);
    }
    if (sgrad__snapshots_here(run)) items[count++] = sgrad__training_list(run->training, true);
    return sgrad__weights_reserve(items, count);
}

int sgrad__run_open_limit(struct sgrad__run *run) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    struct sgrad__memory_limit *limit = &run->batch.limit;
    if (limit->gpu) return sgrad__run_open_gpu_limit(run);
    if (!limit->waves || !o->memory || !o->spill || !strcmp(o->spill, "none")) return 0;
    limit->spills = true;
    SGRAD_TRY(sgrad_spill_open(o->spill, &limit->file));
    run->graph->copies = limit->file;
    SGRAD_TRY(sgrad_spill_measure(o->spill, &limit->speed));
    struct sgrad__homes homes = sgrad__homes_find(run->training);
    const int count = homes.count;
    const bool large = sgrad__homes_bytes(&homes, 0, count) > LARGE * (double)o->memory;
    sgrad__homes_free(&homes);
    return large ? place_homes(run, count) : 0;
}

int sgrad__run_agree_limit(struct sgrad__run *run) {
    const bool gpu = run->options.parallel.gpu_memory > 0;
    double limited = gpu || run->options.parallel.memory > 0;
    SGRAD_TRY(sgrad__run_agree(run, check(run)));
    sgrad_ranks_sum(&limited, 1);
    run->evaluation.alone = limited > 0;
    run->batch.limit = (struct sgrad__memory_limit){ .waves = limited > 0, .flops = FLOPS, .bandwidth = BANDWIDTH,
                                                     .instruction = SGRAD__INSTRUCTION_BYTES };
    if (gpu) run->batch.limit = sgrad__run_gpu_limit();
    return 0;
}

int sgrad__run_limit_memory(struct sgrad__run *run) {
    if (!run->batch.limit.waves) return 0;
    double *before = sgrad__limit_marks(run->graph);
    int error = 0;
    if (run->batch.limit.gpu) {
        run->batch.evaluation_memory = sgrad__evaluation_memory(run);
        error = choose(run);
    } else if (run->options.parallel.memory) {
        sgrad__run_measure_memory(run);
        error = choose(run);
        if (!error) error = reserve_copies(run);
    }
    error = sgrad__run_agree(run, error);
    if (!error && sgrad__run_shares_parameters(run)) error = sgrad__run_agree(run, share_recomputed(run, before));
    free(before);
    return error;
}
