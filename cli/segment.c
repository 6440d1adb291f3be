/* segment.c: stargrad segment: applies a network to a volume of any size. */
#include "cli/cli.h"
#include "graphs/api/segment.h"
#include "runtime/terminal.h"

#include <string.h>
#include <unistd.h>

/* Parses "ZxYxX", three integers. */
static bool read_sizes(const struct sgrad__option *option, const char *text, struct sgrad__request *request) {
    int64_t *size = (int64_t *)((char *)request + option->field);
    long long z, y, x;
    int used = 0;
    if (sscanf(text, "%lldx%lldx%lld%n", &z, &y, &x, &used) != 3 || text[used]) return false;
    size[0] = z, size[1] = y, size[2] = x;
    return z >= option->low && y >= option->low && x >= option->low && z <= option->high && y <= option->high &&
           x <= option->high;
}
static char *takes_sizes(const struct sgrad__option *option) {
    return sgrad_format("three whole numbers from %.0f to %.0f, like 20x256x256", option->low, option->high);
}
static char *show_sizes(const struct sgrad__option *option, const struct sgrad__request *request) {
    const int64_t *size = (const int64_t *)((const char *)request + option->field);
    return sgrad_format("%lldx%lldx%lld", (long long)size[0], (long long)size[1], (long long)size[2]);
}
static const struct sgrad__type sizes = { read_sizes, takes_sizes, show_sizes };

static const struct sgrad__option options[] = {
    { "weights", "FILE", "weights (safetensors) with the config.json of their training in the same folder", &sgrad__text,
      SGRAD__PLACE(segment.weights), .required = true },
    { "model", "NAME", "network that the weights belong to: unet2d or unet3d", &sgrad__text, SGRAD__PLACE(segment.model),
      .required = true },
    { "in", "VOLUME", "input (Z,Y,X): NAME.tif, NAME.h5[:DATASET], NAME.raw:ZxYxX[:TYPE], or a folder of Zarr or PNG files",
      &sgrad__text, SGRAD__PLACE(segment.in), .required = true },
    { "out", "VOLUME", "output, probabilities (C,Z,Y,X): NAME.zarr, NAME.h5[:DATASET] or NAME.raw", &sgrad__text,
      SGRAD__PLACE(segment.out), .required = true },
    { "patch", "ZxYxX", "size of the patches that the network processes", &sizes, SGRAD__PLACE(segment.patch), 1, 4096 },
    { "overlap", "ZxYxX", "overlap of neighbouring patches, in which they are blended", &sizes, SGRAD__PLACE(segment.overlap), 0,
      4095 },
    { "dtype", "f32|u8", "type of the probabilities; u8: 0 to 255 stand for 0 to 1", &sgrad__choice,
      SGRAD__PLACE(segment.bytes) },
    { "mask", "VOLUME", "write zeros where this volume is 0; each of its sides must equal or divide that of --in", &sgrad__text,
      SGRAD__PLACE(segment.mask) },
    { "tta", "none|flips", "test-time augmentation; flips: average over mirror images along z, y and x", &sgrad__choice,
      SGRAD__PLACE(segment.flips) },
    { "memory", "GB", "maximum memory for chunks and patches", &sgrad__real, SGRAD__PLACE(segment.memory), 0.05, 1e6 },
    { "batch", "N", "patches per task", &sgrad__whole, SGRAD__PLACE(segment.batch), 1, 4096 },
    { "queue", "DIR", "share the work with all processes that use this folder, on any machine", &sgrad__text,
      SGRAD__PLACE(segment.queue) },
    { "lease", "S", "with --queue: seconds after which another process takes over the task of a process that no longer responds",
      &sgrad__real, SGRAD__PLACE(segment.lease), 0.1, 1e6 },
    { "redo", NULL, "recompute chunks that already exist in the output", &sgrad__flag, SGRAD__PLACE(segment.redo) },
    { "precision", "f32|tf32|bf16",
      "tf32: GPU tensor cores may round the inputs of matrix products to TF32; bf16: bfloat16 activations",
      &sgrad__choice, SGRAD__PLACE(segment.precision) },
    { "cpus", "N", "number of CPU workers", &sgrad__workers, SGRAD__PLACE(segment.cpus), 0, 4096 },
    { "gpus", "N", "number of CUDA devices; 0: none", &sgrad__workers, SGRAD__PLACE(segment.gpus), 0, 4096 },
    { "scheduler", "NAME", "StarPU scheduler [lws; with GPUs dmdas]", &sgrad__text, SGRAD__PLACE(segment.scheduler) },
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

static void set_defaults(struct sgrad__request *request) {
    request->segment = (struct sgrad_segment_options){
        .patch = { 16, 128, 128 }, .overlap = { 4, 32, 32 }, .memory = 1, .batch = 1, .lease = 30
    };
}

/* The first call prints the work to be done; later ones show the progress, on a terminal. */
static void print_progress(const struct sgrad_segment_options *options, const struct sgrad_segment_result *result) {
    static double began;
    if (!result->chunks && !result->skipped) {
        began = sgrad_time_monotonic();
        printf("%lld %s of %lldx%lldx%lld, in blocks of %lldx%lldx%lld; each voxel is computed %.2f times, in patches of "
               "%lldx%lldx%lld; %.3g GB of memory\n",
               (long long)result->all_chunks, sgrad_plural(result->all_chunks, "chunk", "chunks"), (long long)result->chunk[0],
               (long long)result->chunk[1], (long long)result->chunk[2], (long long)result->block[0], (long long)result->block[1],
               (long long)result->block[2], result->shown, (long long)options->patch[0], (long long)options->patch[1],
               (long long)options->patch[2], result->memory / 1e9);
        fflush(stdout);
    } else if (sgrad_terminal(STDERR_FILENO)) {
        const double seconds = sgrad_time_monotonic() - began,
                     each = result->chunks > 1 ? seconds / (double)(result->chunks - 1) : 0;
        char *text =
            sgrad_format("chunk %lld of %lld, %lld done before; %.0f s left", (long long)(result->chunks + result->skipped),
                         (long long)result->all_chunks, (long long)result->skipped,
                         each * (double)(result->all_chunks - result->chunks - result->skipped + 1));
        sgrad_log_progress(text);
        free(text);
    }
}

/* Returns 1e6 voxels of the output per second, of all workers, if they only executed this stage. */
static double speed(const struct sgrad_segment_result *result, double seconds) {
    return seconds > 0 ? (double)result->voxels / 1e6 / seconds * result->workers : 0;
}

static void print_stages(const struct sgrad_segment_result *result) {
    const double all = result->seconds * result->workers;
    const struct {
        const char *name;
        double seconds;
    } stage[] = { { "load", result->sum.load },
                  { "compute", result->sum.compute },
                  { "blend", result->sum.blend },
                  { "save", result->sum.save },
                  { "wait", result->sum.wait } };
    printf("\n%-8s  %10s  %6s  %s\n", "stage", "seconds", "share", "Mvoxel/s if it ran alone");
    for (int i = 0; i < 5; i++) {
        printf("%-8s  %10.2f  %5.1f%%", stage[i].name, stage[i].seconds, all > 0 ? 100 * stage[i].seconds / all : 0);
        if (i < 4) printf("  %.3g", speed(result, stage[i].seconds));
        printf("\n");
    }
    printf("\n%-8s  %10s  %10s  %10s  %10s  %10s\n", "worker", "load, s", "compute, s", "blend, s", "save, s", "wait, s");
    for (int i = 0; i <= result->workers; i++) {
        const struct sgrad_segment_worker *w = &result->worker[i];
        printf("%-8s  %10.2f  %10.2f  %10.2f  %10.2f  %10.2f\n", w->name, w->load, w->compute, w->blend, w->save, w->wait);
    }
}

static void print(const struct sgrad__request *request, const struct sgrad_segment_result *result) {
    printf("%lld %s done here (%lld done before), %lld %s\n", (long long)result->chunks,
           sgrad_plural(result->chunks, "chunk", "chunks"), (long long)result->skipped, (long long)result->patches,
           sgrad_plural(result->patches, "patch", "patches"));
    if (result->blank)
        printf("%lld %s of %lldx%lldx%lld %s blank (only zeros, or masked): zeros are written there\n", (long long)result->blank,
               sgrad_plural(result->blank, "block", "blocks"), (long long)result->block[0], (long long)result->block[1],
               (long long)result->block[2], sgrad_plural(result->blank, "is", "are"));
    if (!result->chunks) return;
    print_stages(result);
    printf("\n%s: %.2f Mvoxel in %.1f s on %d %s: %.3g Mvoxel/s\n", request->segment.out, (double)result->voxels / 1e6,
           result->seconds, result->workers, sgrad_plural(result->workers, "worker", "workers"),
           result->seconds > 0 ? (double)result->voxels / 1e6 / result->seconds : 0);
}

static json_t *seconds_of(const struct sgrad_segment_worker *worker) {
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", worker->name, "load_seconds", worker->load, "compute_seconds",
                     worker->compute, "blend_seconds", worker->blend, "save_seconds", worker->save, "wait_seconds", worker->wait);
}

static json_t *as_json(const struct sgrad_segment_result *result) {
    json_t *each = json_array();
    for (int i = 0; i <= result->workers && result->workers; i++) json_array_append_new(each, seconds_of(&result->worker[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:o}", "chunks",
                     (json_int_t)result->chunks, "skipped", (json_int_t)result->skipped, "blank", (json_int_t)result->blank,
                     "patches", (json_int_t)result->patches, "voxels", (json_int_t)result->voxels, "shown", result->shown,
                     "memory_bytes", result->memory, "seconds", result->seconds, "load_seconds", result->sum.load,
                     "compute_seconds", result->sum.compute, "blend_seconds", result->sum.blend, "save_seconds", result->sum.save,
                     "workers", result->workers, "each", each);
}

static int run(const struct sgrad__request *request) {
    struct sgrad_segment_options o = request->segment;
    struct sgrad_segment_result result;
    if (!request->train.output.json) o.progress = print_progress;
    int error = sgrad_segment(&o, &result);
    sgrad_log_progress(NULL);
    if (error) return sgrad__status(error);
    if (request->train.output.json) sgrad__print_json(as_json(&result));
    else print(request, &result);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__segment_command = {
    .name = "segment",
    .summary = "apply a network to a volume of any size",
    .options = options,
    .defaults = set_defaults,
    .run = run,
    .notes = "The output depends only on the volume, the weights, --patch, --overlap, --mask and --tta. It does not depend "
             "on the number of processes that share a queue.",
};
