/* ways.h: a layer computed the way that is fastest on this processor. Private to codelets/.
 *
 * plain      onednn.c: a convolution of images as they lie, channels-last, the weight as oneDNN likes it best; an inner
 *            product all as it lies
 * blocked    onednn.c: a convolution of images in blocks of 16 channels, which of 16 channels is the same but another kernel; an
 *            inner product with the weight as oneDNN likes it best
 * winograd   winograd.c: a quarter of the multiplications, rounding errors of 1e-6 of the largest output against 7e-7; in
 *            training on bf16 images, where the processor has instructions for them, noise of 1.2 % of the root mean square
 * product    product.c: a matrix product of our own, in f32
 * pixels     pixels.c: of small images a matrix product for each tap and pixel of a filter that has one, in f32
 * tiles      tiles.c: bf16 by AMX */
#ifndef SGRAD_CODELETS_WAYS_H
#define SGRAD_CODELETS_WAYS_H

#include "codelets/layer.h"

enum sgrad__way { SGRAD__PLAIN, SGRAD__BLOCKED, SGRAD__WINOGRAD, SGRAD__PRODUCT, SGRAD__PIXELS, SGRAD__TILES, SGRAD__WAYS };

/* As the variable STARGRAD_WAYS takes them: a way of all layers that can go it, the others go the plain one; "rule": by a rule,
 * as with --deterministic; "measured", as without it. */
extern const char *const sgrad__way_name[SGRAD__WAYS];

/* The workspace in bytes, which may begin anywhere; and the layer on a task's operands. What it takes is made once per layer and
 * worker. */
size_t sgrad__ways_workspace(const struct sgrad__layer *layer);
void sgrad__ways_run(const struct sgrad__layer *layer, const struct sgrad_args *args);

/* A weight is packed, in bf16 runs, for a layer of so many samples, and the way it goes; those of fewer samples go that, too. */
static inline int sgrad__packed_for(enum sgrad__way way, int samples) { return 1 + (int)way + SGRAD__WAYS * samples; }
static inline enum sgrad__way sgrad__packed_way(const struct sgrad__layer *l) {
    return (enum sgrad__way)((l->packed - 1) % SGRAD__WAYS);
}
static inline int sgrad__packed_samples(const struct sgrad__layer *l) { return (l->packed - 1) / SGRAD__WAYS; }
/* As a kernel's .packing and .pack (runtime.h). */
int sgrad__ways_packing(const struct sgrad__layer *layer, size_t *bytes);
void sgrad__ways_pack(const struct sgrad__layer *layer, const float *weight, void *to);

/* What each way takes, as sgrad_call_ways tells it (codelets.h). */
void sgrad__ways_measure(const struct sgrad__layer *layer, struct sgrad_way way[SGRAD__WAYS]);

#endif
