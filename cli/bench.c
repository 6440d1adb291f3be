/* bench.c: stargrad bench: compares training with the limit of its kernels on this machine. */
#include "cli/limits.h"
#include "graphs/api/bench.h"

#include <stdlib.h>

static const struct sgrad__option options[] = {
    { "model", "NAME", "network: one of stargrad list models", &sgrad__text, SGRAD__FIELD(model), .required = true },
    { "data", "KIND[:PATH]", "data set: one of stargrad list datasets; synthetic:HxWxC,CLASSES,COUNT needs no files",
      &sgrad__text, SGRAD__FIELD(data), .required = true },
    { "image-size", "N", "scale images of a folder to NxN", &sgrad__whole, SGRAD__FIELD(image_size), 1, 4096 },
    { "batch", "N", "global batch, whatever the number of ranks", &sgrad__whole, SGRAD__FIELD(batch), 1, 2147483647 },
    { "micro-batch", "N", "samples per task; divides the rank's share; chosen if not given", &sgrad__whole,
      SGRAD__FIELD(micro_batch), 1, 2147483647 },
    { "recompute", NULL, "blocks compute what they made again in backward: less memory, more work", &sgrad__flag,
      SGRAD__FIELD(recompute) },
    { "no-fuse", NULL, "every operation is a task of its own", &sgrad__flag, SGRAD__FIELD(no_fuse) },
    { "no-cuda-graphs", NULL, "what a task does on a GPU is launched one by one, and memory found anew each step",
      &sgrad__flag, SGRAD__FIELD(no_cuda_graphs) },
    { "bn-group", "gpu|rank|micro|global|N", "samples over which batch norm takes its statistics", &sgrad__group,
      SGRAD__FIELD(bn_group), 1, 2147483647 },
    { "optimizer", "NAME", "one of stargrad list optimizers", &sgrad__text, SGRAD__FIELD(optimizer) },
    { "precision", "f32|tf32|bf16", "tf32: tensor cores of GPUs may round products; bf16: bfloat16 compute, f32 weights",
      &sgrad__choice, SGRAD__FIELD(precision) },
    { "cpus", "N", "CPU workers", &sgrad__workers, SGRAD__FIELD(cpus), 0, 4096 },
    { "gpus", "N", "CUDA devices", &sgrad__workers, SGRAD__FIELD(gpus), 0, 4096 },
    { "scheduler", "NAME", "StarPU's scheduler; chosen if not given", &sgrad__text, SGRAD__FIELD(scheduler) },
    { "window", "N", "steps in flight", &sgrad__whole, SGRAD__FIELD(steps_in_flight), 1, 8 },
    { "json", NULL, "print the result as one JSON object", &sgrad__flag, SGRAD__FIELD(json) },
    { 0 },
};

static double share(const struct sgrad_bench_result *r) { return r->step_ms > 0 ? r->limit_ms / r->step_ms : 0; }

static json_t *as_json(const struct sgrad_bench_result *r) {
    json_t *kernels = json_array();
    for (int i = 0; i < r->kernels; i++) {
        const struct sgrad_bench_kernel *k = &r->kernel[i];
        json_array_append_new(kernels, json_pack("{s:s, s:I, s:f, s:f, s:f}", "kernel", k->name, "calls", (json_int_t)k->calls,
                                                 "ms", k->ms, "gflop", k->gflop, "gbyte", k->gbyte));
    }
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:o, s:i, s:f, s:f, s:f, s:f}", "batch", (int)r->batch, "workers",
                     r->workers, "limit_ms", r->limit_ms, "memory_ms", r->memory_ms, "memory_gbyte", r->memory_gbyte, "step_ms",
                     r->step_ms, "share", share(r), "kernels", kernels, "tasks", r->tasks, "gflop", r->gflop, "arithmetic_ms",
                     r->arithmetic_ms, "submission_ms", r->submission_ms, "tasks_ms", r->tasks_ms);
}

static void print(const struct sgrad_bench_result *r) {
    printf("\n%-28s %7s %10s %10s %10s\n", "kernel, in its best time", "calls", "ms", "GFlop/s", "GB/s");
    for (int i = 0; i < r->kernels; i++) {
        const struct sgrad_bench_kernel *k = &r->kernel[i];
        printf("%-28s %7lld %10.2f %10.1f %10.1f\n", k->name, (long long)k->calls, k->ms, k->ms > 0 ? 1e3 * k->gflop / k->ms : 0,
               k->ms > 0 ? 1e3 * k->gbyte / k->ms : 0);
    }
    const double samples = 1e3 * (double)r->batch;
    struct sgrad__limit limit[SGRAD__LIMITS];
    printf("\nlimit %.1f ms a step on %d %s, %.0f samples/s\n", r->limit_ms, r->workers,
           sgrad_plural(r->workers, "worker", "workers"), samples / r->limit_ms);
    const int limits = sgrad__limits_of(r, limit);
    for (int i = 0; i < limits; i++)
        if (i != SGRAD__KERNELS) printf("%s %s\n", limit[i].name, limit[i].text);
    printf("steps %.1f ms, %.0f samples/s: %.0f %% of the limit\n", r->step_ms, samples / r->step_ms, 100 * share(r));
    printf("what takes longest of these: %s\n", sgrad__limits_longest(limit, limits)->name);
}

static int run(const struct sgrad__request *request) {
    struct sgrad_bench_result result;
    int error = sgrad_bench(&request->train, &result);
    if (error) return sgrad__status(error);
    if (sgrad_launched_rank() == 0) {
        if (request->train.json) sgrad__print_json(as_json(&result));
        else print(&result);
    }
    free(result.kernel);
    free(result.call);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__bench_command = {
    .name = "bench",
    .summary = "how near a network's training comes to this machine's limit",
    .options = options,
    .run = run,
    .notes = "Each kernel of a step runs alone, on every worker at once, with its memory warm: the sum of the best times, "
             "shared by the\nworkers, is the limit. Memory: what tasks read and write that others wrote or will read; as far as "
             "it is not in a cache\nstill, it comes on top. Then some steps are trained, and nothing is written.\n\n"
             "For example:\n\n"
             "  stargrad bench --model resnet20 --data synthetic:32x32x3,10,12800 --batch 128",
};
