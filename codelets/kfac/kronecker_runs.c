/* kronecker_runs.c: determines which pixels are covered by which taps of a filter (kronecker_runs.h). */
#include "config.h"
#include "codelets/kfac/kronecker_runs.h"

#include <assert.h>

static int64_t positions(int64_t extent, const struct geometry *geometry) {
    return (extent + 2 * geometry->padding - (geometry->taps - 1) * geometry->dilation - 1) / geometry->stride + 1;
}

struct geometry sgrad__factor_geometry(const struct sgrad_args *args) {
    const struct sgrad_kronecker_factor *f = args->attrs;
    const struct sgrad_patches *p = &f->patches;
    const struct sgrad_shape *x = &args->view[0].shape;
    const int64_t channels = x->dim[x->rank - 1], pixels = sgrad_shape_count(x) / channels;
    struct geometry g = { .taps = p->kernel ? p->kernel : 1, .stride = p->kernel ? p->stride : 1, .padding = p->padding,
                          .dilation = p->kernel ? p->dilation : 1, .groups = p->groups, .channels = channels / p->groups,
                          .bias = f->bias };
    g.rows = g.taps == 1 && g.stride == 1 && g.padding == 0;
    g.length = sgrad__patch_length(p, channels, f->bias);
    g.all = (struct images){ 1, 1, pixels, 1, pixels };
    if (g.rows) return g;
    const int64_t height = x->dim[x->rank - 3], width = x->dim[x->rank - 2];    /* of images, or of slices of volumes */
    g.all = (struct images){ pixels / (height * width), height, width, positions(height, &g), positions(width, &g) };
    return g;
}

/* Returns the taps, as bits, that cover line H of EXTENT lines while the tap BY further covers the other line of the pair. */
static uint32_t taps_at(const struct geometry *geometry, int64_t h, int64_t extent, int64_t outs, int64_t by) {
    uint32_t taps = 0;
    if (h + by * geometry->dilation < 0 || h + by * geometry->dilation >= extent) return 0;
    for (int64_t r = 0; r < geometry->taps; r++) {
        const int64_t p = h + geometry->padding - r * geometry->dilation;
        if (r + by >= 0 && r + by < geometry->taps && p >= 0 && p % geometry->stride == 0 && p / geometry->stride < outs)
            taps |= 1u << r;
    }
    return taps;
}

int sgrad__factor_runs(const struct geometry *geometry, int64_t extent, int64_t outs, int64_t by, struct run run[RUNS]) {
    int count = 0;
    for (int64_t start = 0; start < geometry->stride && start < extent; start++) {
        uint32_t last = 0;
        for (int64_t h = start; h < extent; h += geometry->stride) {
            const uint32_t taps = taps_at(geometry, h, extent, outs, by);
            if (taps && taps != last) {
                assert(count < RUNS);
                run[count++] = (struct run){ h, 0, geometry->stride, taps };
            }
            if (taps) run[count - 1].count++;
            last = taps;
        }
    }
    return count;
}
