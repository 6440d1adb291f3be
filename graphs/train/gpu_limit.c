/* gpu_limit.c: --gpu-memory, --spill ram: how much of a GPU's memory a program may use.
 *
 *     ├── libraries ──┼── weights, states ──┼── evaluation ──┼──────── program ────────┤  --gpu-memory
 *         constant         computed              computed         limit of passes/spill.c
 *
 * StarPU manages the weights and optimizer states on the GPU, the activations of an evaluation, inputs and messages. If a step
 * needs less with moves, its other data are in one block, at fixed addresses, so that CUDA graphs can be replayed. States that do
 * not fit as well live in main memory, and steps move parts of them to the block.
 *
 * StarPU also has this limit (sgrad_gpu_memory_limit): if the prediction is slightly too low, StarPU evicts weights, which takes
 * time but changes no result; if it is far too low, StarPU waits forever.
 *
 * Limits: one GPU per rank, which computes all samples of the rank. All weights stay on the GPU. CUDA's own memory is not
 * included, nor is that of the measurement of convolution algorithms. */
#include "graphs/train/setup.h"
#include "runtime/gpu_memory.h"
#include "runtime/spill.h"

#include <stdlib.h>
#include <string.h>

/* Assumed throughput of a GPU: operations and bytes per second. It only affects when moves start, and only tasks that have never
 * been measured on this machine. */
static const double FLOPS = 20e12, BANDWIDTH = 1e12;
static const double MIB = 1 << 20;  /* the M of options */

static bool spills(const struct sgrad__run *run) {
    const char *spill = run->options.parallel.spill;
    return spill && strcmp(spill, "none") != 0;
}

static int check_gpu(const struct sgrad__run *run) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    if (!run->context->gpus)
        return sgrad_log_error(SGRAD_EINVAL, "--gpu-memory limits a GPU, but this rank uses none; use --memory, or --gpus 1");
    if (run->context->gpus > 1)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--gpu-memory is for one GPU per rank, and this rank has %d; add --gpus 1, and start a rank for "
                               "each GPU: mpirun -n %d",
                               run->context->gpus, run->context->gpus);
    if ((double)o->gpu_memory > sgrad_gpu_memory())
        return sgrad_log_error(SGRAD_EINVAL, "--gpu-memory %.0fM: the GPU has %.0fM; give less", (double)o->gpu_memory / MIB,
                               sgrad_gpu_memory() / MIB);
    return 0;
}

int sgrad__run_check_gpu_limit(const struct sgrad__run *run) {
    const struct sgrad_parallel_options *o = &run->options.parallel;
    if (o->memory)
        return sgrad_log_error(SGRAD_EINVAL, "--memory limits a rank without GPUs; omit it, or replace --gpu-memory by --gpus 0");
    SGRAD_TRY(check_gpu(run));
    if (spills(run) && strcmp(o->spill, "ram"))
        return sgrad_log_error(SGRAD_EINVAL, "--spill %s: data of a GPU move to main memory; with --gpu-memory, give --spill ram",
                               o->spill);
    if (!o->gpus_only && !run->options.training.deterministic && run->context->cpus)
        return sgrad_log_error(SGRAD_EINVAL, "--gpu-memory requires that the GPU computes all samples; add --cpus-share none");
    if (o->no_fuse) return sgrad_log_error(SGRAD_EINVAL, "--gpu-memory requires fused tasks; omit --no-fuse");
    return 0;
}

struct sgrad__memory_limit sgrad__run_gpu_limit(void) {
    return (struct sgrad__memory_limit){ .waves = true, .gpu = true, .flops = FLOPS, .bandwidth = BANDWIDTH };
}

int sgrad__run_open_gpu_limit(struct sgrad__run *run) {
    struct sgrad__memory_limit *limit = &run->batch.limit;
    if (!spills(run)) return 0;
    limit->spills = true;
    sgrad_gpu_bandwidths(&limit->speed.write, &limit->speed.read);
    return sgrad_spill_open_ram(&limit->file);
}

struct sgrad__memory_use sgrad__run_gpu_memory_use(void *arg, int moved) {
    const struct sgrad__run *run = arg;
    double bytes = SGRAD_GPU_LIBRARIES + sgrad_gpu_memory_chunks() + sgrad__training_memory(run->training);
    struct sgrad__homes homes = sgrad__homes_find(run->training);
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad_tensor *average = run->training->update[i].average;
        if (average) bytes += (double)sgrad_view_bytes(&average->view);
    }
    bytes -= sgrad__homes_bytes(&homes, 0, moved);
    sgrad__homes_free(&homes);
    return (struct sgrad__memory_use){ bytes + run->batch.evaluation_memory, 0 };
}

int sgrad__run_refuse_gpu(const struct sgrad__limit_search *search) {
    const bool moves = search->options.limit.spills;
    double other;
    const double least = sgrad__limit_least(search, &other);
    return sgrad_log_error(SGRAD_ENOMEM,
                           "--gpu-memory %.0fM is too little: the GPU requires %.0fM%s, of which %.0fM are not used by steps; "
                           "give --gpu-memory %.0fM, %sor a smaller --micro-batch",
                           search->bytes / MIB, least / MIB, moves ? " with --spill ram" : "", other / MIB, 1.02 * least / MIB,
                           moves ? "" : "--spill ram, ");
}
