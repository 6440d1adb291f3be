/* segment.c: stargrad segment: applies a network to a volume of any size. */
#include "cli/cli.h"
#include "graphs/api/segment.h"
#include "runtime/terminal.h"

#include <string.h>
#include <unistd.h>

/* Parses "ZxYxX", three integers. */
static bool read_sizes(const struct sgrad__option *o, const char *text, struct sgrad__request *r) {
    int64_t *size = (int64_t *)((char *)r + o->field);
    long long z, y, x;
    int used = 0;
    if (sscanf(text, "%lldx%lldx%lld%n", &z, &y, &x, &used) != 3 || text[used]) return false;
    size[0] = z, size[1] = y, size[2] = x;
    return z >= o->low && y >= o->low && x >= o->low && z <= o->high && y <= o->high && x <= o->high;
}
static char *takes_sizes(const struct sgrad__option *o) {
    return sgrad_format("three whole numbers from %.0f to %.0f, as 20x256x256", o->low, o->high);
}
static char *show_sizes(const struct sgrad__option *o, const struct sgrad__request *r) {
    const int64_t *size = (const int64_t *)((const char *)r + o->field);
    return sgrad_format("%lldx%lldx%lld", (long long)size[0], (long long)size[1], (long long)size[2]);
}
static const struct sgrad__type sizes = { read_sizes, takes_sizes, show_sizes };

static const struct sgrad__option options[] = {
    { "weights", "FILE", "the weights (safetensors), beside the config.json of their training", &sgrad__text,
      SGRAD__PLACE(segment.weights), .required = true },
    { "model", "NAME", "their network: unet2d or unet3d", &sgrad__text, SGRAD__PLACE(segment.model), .required = true },
    { "in", "VOLUME", "(Z,Y,X): NAME.tif, NAME.h5[:DATASET], NAME.raw:ZxYxX[:TYPE], a folder of Zarr or of PNG files",
      &sgrad__text, SGRAD__PLACE(segment.in), .required = true },
    { "out", "VOLUME", "probabilities (C,Z,Y,X): NAME.zarr, NAME.h5[:DATASET] or NAME.raw", &sgrad__text,
      SGRAD__PLACE(segment.out), .required = true },
    { "patch", "ZxYxX", "what the network is shown at once", &sizes, SGRAD__PLACE(segment.patch), 1, 4096 },
    { "overlap", "ZxYxX", "of neighbouring patches, which are blended there", &sizes, SGRAD__PLACE(segment.overlap), 0, 4095 },
    { "dtype", "f32|u8", "u8: 0 to 255 for 0 to 1", &sgrad__choice, SGRAD__PLACE(segment.bytes) },
    { "mask", "VOLUME", "where it has 0, zeros are written; as large as --in, or whole times smaller", &sgrad__text,
      SGRAD__PLACE(segment.mask) },
    { "tta", "none|flips", "flips: the mean over mirror images along z, y and x", &sgrad__choice, SGRAD__PLACE(segment.flips) },
    { "memory", "GB", "memory for chunks and patches", &sgrad__real, SGRAD__PLACE(segment.memory), 0.05, 1e6 },
    { "batch", "N", "patches per task", &sgrad__whole, SGRAD__PLACE(segment.batch), 1, 4096 },
    { "queue", "DIR", "share the work with all processes that name this folder, wherever they run", &sgrad__text,
      SGRAD__PLACE(segment.queue) },
    { "lease", "S", "seconds without a sign of life after which another process takes over", &sgrad__real,
      SGRAD__PLACE(segment.lease), 0.1, 1e6 },
    { "redo", NULL, "chunks that are there already, too", &sgrad__flag, SGRAD__PLACE(segment.redo) },
    { "precision", "f32|tf32|bf16", "as of stargrad train", &sgrad__choice, SGRAD__PLACE(segment.precision) },
    { "cpus", "N", "CPU workers", &sgrad__workers, SGRAD__PLACE(segment.cpus), 0, 4096 },
    { "gpus", "N", "CUDA devices", &sgrad__workers, SGRAD__PLACE(segment.gpus), 0, 4096 },
    { "scheduler", "NAME", "StarPU's scheduler; chosen if not given", &sgrad__text, SGRAD__PLACE(segment.scheduler) },
    { "json", NULL, "print the result as one JSON object", &sgrad__flag, SGRAD__FIELD(json) },
    { 0 },
};

static void set_defaults(struct sgrad__request *r) {
    r->segment = (struct sgrad_segment_options){
        .patch = { 16, 128, 128 }, .overlap = { 4, 32, 32 }, .memory = 1, .batch = 1, .lease = 30
    };
}

/* The first call prints the work to be done; later ones show the progress, on a terminal. */
static void tell(const struct sgrad_segment_options *o, const struct sgrad_segment_result *r) {
    static double began;
    if (!r->chunks && !r->skipped) {
        began = sgrad_time_monotonic();
        printf("%lld %s of %lldx%lldx%lld, in blocks of %lldx%lldx%lld; each voxel is shown %.2f times, by patches of "
               "%lldx%lldx%lld; %.3g GB\n", (long long)r->all_chunks, sgrad_plural(r->all_chunks, "chunk", "chunks"),
               (long long)r->chunk[0], (long long)r->chunk[1], (long long)r->chunk[2], (long long)r->block[0],
               (long long)r->block[1], (long long)r->block[2], r->shown,
               (long long)o->patch[0], (long long)o->patch[1], (long long)o->patch[2], r->memory / 1e9);
        fflush(stdout);
    } else if (sgrad_terminal(STDERR_FILENO)) {
        const double seconds = sgrad_time_monotonic() - began, each = r->chunks > 1 ? seconds / (double)(r->chunks - 1) : 0;
        char *text = sgrad_format("chunk %lld of %lld, %lld there already; %.0f s left", (long long)(r->chunks + r->skipped),
                                  (long long)r->all_chunks, (long long)r->skipped,
                                  each * (double)(r->all_chunks - r->chunks - r->skipped + 1));
        sgrad_log_progress(text);
        free(text);
    }
}

/* Returns 1e6 voxels of the output per second, of all workers, if they only executed this stage. */
static double speed(const struct sgrad_segment_result *r, double seconds) {
    return seconds > 0 ? (double)r->voxels / 1e6 / seconds * r->workers : 0;
}

static void print_stages(const struct sgrad_segment_result *r) {
    const double all = r->seconds * r->workers;
    const struct {
        const char *name;
        double seconds;
    } stage[] = { { "load", r->sum.load }, { "compute", r->sum.compute }, { "blend", r->sum.blend }, { "save", r->sum.save },
                  { "wait", r->sum.wait } };
    printf("\n%-8s  %10s  %6s  %s\n", "stage", "seconds", "share", "Mvoxel/s, were it alone");
    for (int i = 0; i < 5; i++) {
        printf("%-8s  %10.2f  %5.1f%%", stage[i].name, stage[i].seconds, all > 0 ? 100 * stage[i].seconds / all : 0);
        if (i < 4) printf("  %.3g", speed(r, stage[i].seconds));
        printf("\n");
    }
    printf("\n%-8s  %10s  %10s  %10s  %10s  %10s\n", "worker", "load", "compute", "blend", "save", "wait, s");
    for (int i = 0; i <= r->workers; i++) {
        const struct sgrad_segment_worker *w = &r->worker[i];
        printf("%-8s  %10.2f  %10.2f  %10.2f  %10.2f  %10.2f\n", w->name, w->load, w->compute, w->blend, w->save, w->wait);
    }
}

static void print(const struct sgrad__request *request, const struct sgrad_segment_result *r) {
    printf("%lld %s done here (%lld there already), %lld %s\n", (long long)r->chunks,
           sgrad_plural(r->chunks, "chunk", "chunks"), (long long)r->skipped, (long long)r->patches,
           sgrad_plural(r->patches, "patch", "patches"));
    if (r->blank)
        printf("%lld %s of %lldx%lldx%lld %s blank, zeros or masked: zeros are written there\n", (long long)r->blank,
               sgrad_plural(r->blank, "block", "blocks"),
               (long long)r->block[0], (long long)r->block[1], (long long)r->block[2], sgrad_plural(r->blank, "is", "are"));
    if (!r->chunks) return;
    print_stages(r);
    printf("\n%s: %.2f Mvoxel in %.1f s on %d %s: %.3g Mvoxel/s\n", request->segment.out, (double)r->voxels / 1e6, r->seconds,
           r->workers, sgrad_plural(r->workers, "worker", "workers"), r->seconds > 0 ? (double)r->voxels / 1e6 / r->seconds : 0);
}

static json_t *seconds_of(const struct sgrad_segment_worker *w) {
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "name", w->name, "load_seconds", w->load, "compute_seconds", w->compute,
                     "blend_seconds", w->blend, "save_seconds", w->save, "wait_seconds", w->wait);
}

static json_t *as_json(const struct sgrad_segment_result *r) {
    json_t *each = json_array();
    for (int i = 0; i <= r->workers && r->workers; i++) json_array_append_new(each, seconds_of(&r->worker[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:o}", "chunks", (json_int_t)r->chunks,
                     "skipped", (json_int_t)r->skipped, "blank", (json_int_t)r->blank, "patches", (json_int_t)r->patches,
                     "voxels", (json_int_t)r->voxels, "shown", r->shown, "memory_bytes", r->memory, "seconds", r->seconds,
                     "load_seconds", r->sum.load, "compute_seconds", r->sum.compute, "blend_seconds", r->sum.blend,
                     "save_seconds", r->sum.save, "workers", r->workers, "each", each);
}

static int run(const struct sgrad__request *request) {
    struct sgrad_segment_options o = request->segment;
    struct sgrad_segment_result result;
    if (!request->train.json) o.tell = tell;
    int error = sgrad_segment(&o, &result);
    sgrad_log_progress(NULL);
    if (error) return sgrad__status(error);
    if (request->train.json) sgrad__print_json(as_json(&result));
    else print(request, &result);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__segment_command = {
    .name = "segment",
    .summary = "run a network over a volume of any size",
    .options = options,
    .defaults = set_defaults,
    .run = run,
    .notes =
        "What is written depends on the volume, the weights, --patch, --overlap, --mask and --tta alone, however many processes "
        "share a queue.",
};
