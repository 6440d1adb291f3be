/* bench.c: stargrad bench: compares training with the limit of its kernels on this machine. */
#include "cli/limits.h"
#include "graphs/api/bench.h"

#include <stdlib.h>

static const struct sgrad__option options[] = {
    { "model", "NAME", "network; see stargrad list models", &sgrad__text, SGRAD__FIELD(model.name), .required = true },
    { "data", "KIND[:PATH]", "data set; see stargrad list datasets; synthetic:HxWxC,CLASSES,COUNT needs no files", &sgrad__text,
      SGRAD__FIELD(data.name), .required = true },
    { "image-size", "N", "resize the images of a folder to NxN [original size]", &sgrad__whole, SGRAD__FIELD(data.image_size), 1,
      4096 },
    { "damaged", "stop|skip", "on a sample that cannot be read: stop with an error, or log and skip it", &sgrad__choice,
      SGRAD__FIELD(data.skip_damaged) },
    { "batch", "N", "global batch size, over all ranks", &sgrad__whole, SGRAD__FIELD(training.batch), 1, 2147483647 },
    { "micro-batch", "N", "samples per task; must divide the batch of each rank [automatic]", &sgrad__whole,
      SGRAD__FIELD(training.micro_batch), 1, 2147483647 },
    { "recompute", NULL, "activation checkpointing: recompute activations in the backward pass to save memory", &sgrad__flag,
      SGRAD__FIELD(model.recompute) },
    { "no-fuse", NULL, "run each operation as a separate task", &sgrad__flag, SGRAD__FIELD(parallel.no_fuse) },
    { "no-cuda-graphs", NULL,
      "launch GPU kernels individually instead of through CUDA graphs, and allocate activations every step", &sgrad__flag,
      SGRAD__FIELD(parallel.no_cuda_graphs) },
    { "bn-group", "gpu|rank|micro|global|N", "samples over which batch norm computes its statistics", &sgrad__group,
      SGRAD__FIELD(training.bn_group), 1, 2147483647 },
    { "optimizer", "NAME", "optimizer; see stargrad list optimizers", &sgrad__text, SGRAD__FIELD(optimizer.name) },
    { "precision", "f32|tf32|bf16",
      "tf32: GPU tensor cores may round the inputs of matrix products to TF32; bf16: bfloat16 activations, f32 weights",
      &sgrad__choice, SGRAD__FIELD(model.precision) },
    { "cpus", "N", "number of CPU workers", &sgrad__workers, SGRAD__FIELD(parallel.cpus), 0, 4096 },
    { "gpus", "N", "number of CUDA devices; 0: none", &sgrad__workers, SGRAD__FIELD(parallel.gpus), 0, 4096 },
    { "scheduler", "NAME", "StarPU scheduler [lws; with GPUs dmdas]", &sgrad__text, SGRAD__FIELD(parallel.scheduler) },
    { "window", "N", "maximum number of steps in progress at the same time", &sgrad__whole,
      SGRAD__FIELD(parallel.steps_in_flight), 1, 8 },
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

static double share(const struct sgrad_bench_result *result) {
    return result->step_ms > 0 ? result->limit_ms / result->step_ms : 0;
}

static json_t *as_json(const struct sgrad_bench_result *result) {
    json_t *kernels = json_array();
    for (int i = 0; i < result->kernels; i++) {
        const struct sgrad_bench_kernel *k = &result->kernel[i];
        json_array_append_new(kernels, json_pack("{s:s, s:I, s:f, s:f, s:f}", "kernel", k->name, "calls", (json_int_t)k->calls,
                                                 "ms", k->ms, "gflop", k->gflop, "gbyte", k->gbyte));
    }
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:o, s:i, s:f, s:f, s:f, s:f}", "batch", (int)result->batch, "workers",
                     result->workers, "limit_ms", result->limit_ms, "memory_ms", result->memory_ms, "memory_gbyte",
                     result->memory_gbyte, "step_ms", result->step_ms, "share", share(result), "kernels", kernels, "tasks",
                     result->tasks, "gflop", result->gflop, "arithmetic_ms", result->arithmetic_ms, "submission_ms",
                     result->submission_ms, "tasks_ms", result->tasks_ms);
}

static void print(const struct sgrad_bench_result *result) {
    printf("\n%-28s %7s %10s %10s %10s\n", "kernel (best time)", "calls", "ms", "GFlop/s", "GB/s");
    for (int i = 0; i < result->kernels; i++) {
        const struct sgrad_bench_kernel *k = &result->kernel[i];
        printf("%-28s %7lld %10.2f %10.1f %10.1f\n", k->name, (long long)k->calls, k->ms, k->ms > 0 ? 1e3 * k->gflop / k->ms : 0,
               k->ms > 0 ? 1e3 * k->gbyte / k->ms : 0);
    }
    const double samples = 1e3 * (double)result->batch;
    struct sgrad__limit limit[SGRAD__LIMITS];
    printf("\nlimit %.1f ms a step on %d %s, %.0f samples/s\n", result->limit_ms, result->workers,
           sgrad_plural(result->workers, "worker", "workers"), samples / result->limit_ms);
    const int limits = sgrad__limits_of(result, limit);
    for (int i = 0; i < limits; i++)
        if (i != SGRAD__KERNELS) printf("%s %s\n", limit[i].name, limit[i].text);
    printf("steps %.1f ms, %.0f samples/s: %.0f %% of the limit\n", result->step_ms, samples / result->step_ms,
           100 * share(result));
    printf("largest limit: %s\n", sgrad__limits_longest(limit, limits)->name);
}

static int run(const struct sgrad__request *request) {
    struct sgrad_bench_result result;
    int error = sgrad_bench(&request->train, &result);
    if (error) return sgrad__status(error);
    if (sgrad_launched_rank() == 0) {
        if (request->train.output.json) sgrad__print_json(as_json(&result));
        else print(&result);
    }
    free(result.kernel);
    free(result.call);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__bench_command = {
    .name = "bench",
    .summary = "compare the training speed with the limit of this machine",
    .options = options,
    .run = run,
    .notes = "Each kernel of a step is timed on all workers at once, without other tasks, with its data in cache. The limit is "
             "the sum of the best times, divided by the number of workers. It excludes the transfer of data between tasks; "
             "the line 'memory' shows the time of this transfer. Then bench trains some steps. It writes no files. For "
             "example:\n\n"
             "  stargrad bench --model resnet20 --data synthetic:32x32x3,10,9600 --batch 128",
};
