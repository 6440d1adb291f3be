/* winograd.c: 3x3 and 5x5 convolution of stride 1 by Winograd's minimal filtering F(4x4,3x3) and F(2x2,5x5). Images are
 * channels-last.
 *
 * An output is divided into tiles of 4x4 pixels, or of 2x2. A tile depends on a window of 6x6 inputs. With the matrices A, B and
 * G of winograd_transforms.h, where · is the elementwise product:
 *
 *     forward           y  = Aᵀ [ Σ_c (G w Gᵀ) · (Bᵀ x B) ] A           window x, filter w, tile y
 *     backward-data     the same, of dy, with the filters rotated by 180° and their channels exchanged
 *     backward-weight   dw = Gᵀ [ Σ_tiles (Bᵀ x B) · (A dy Aᵀ) ] G
 *
 * A small matrix product remains at each of 36 points, with a quarter of the multiplications of direct convolution (3x3), or 0.36
 * of them (5x5). A block of tiles passes through all three stages before the next one, so that V and M stay in a cache:
 *
 *     x ── windows ─> V (36, tiles, C) ──┬─> products ─> M (36, tiles, K) ── tiles_out ─> y
 *     w ── filters ─> U (36, C, K) ──────┘
 *
 * The y and dx of a sample have the same bits for any other samples in the call. All computation is in F32, with one exception:
 * training on bf16 images on processors with AVX512_BF16. There U, V and A dy Aᵀ are rounded to bf16 before the products, which
 * are twice as fast then. After the transforms, the errors are 1.2 % of the root mean square; bf16's own rounding is 0.2 %. This
 * is noise of mean zero, and small compared with the noise that the choice of a batch adds to a step. Inference uses F32 there,
 * too, because the outputs of a network must not depend on it.
 *
 * Sources: S. Winograd, Arithmetic complexity of computations, 1980; A. Lavin and S. Gray, Fast algorithms for convolutional
 * neural networks, 2016. The error depends on the points at which polynomials are evaluated (B. Barabasz et al., Error analysis
 * and improving the accuracy of Winograd convolution for deep neural networks, 2020): it is 1e-6 of the largest output with 0,
 * ±√½, ±√2 and infinity, and 4.5e-6 with the usual 0, ±1, ±2 (measured, 16 to 256 channels; direct convolution: 0.7e-6). */
#include "config.h"
#include "codelets/cpu/winograd.h"
#include "codelets/cpu/isa.h"

static enum factors factors_of(const struct sgrad__layer *layer) {
    const bool has_bf16 = SGRAD_LEVELS && sgrad_isa() >= SGRAD_AVX512_BF16;
    if (!has_bf16 || layer->dtype == SGRAD_F32 || layer->exact) return FLOATS;
    return layer->pass == SGRAD__BACKWARD_WEIGHT ? TILE_PAIRS : CHANNEL_PAIRS;
}

/* Computes the plan. U stays in the second-level cache while small blocks of tiles are processed. If U is too large for that, the
 * V of a large block stays in the third-level cache, and U is processed in chunks, which are recomputed for each block. */
static struct tiling tiling_of(const struct sgrad__layer *layer) {
    enum { U_MOST = 2 << 20, U_CHUNK = 1 << 20, V_LARGE = 8 << 20, V_AND_M = 384 << 10 };    /* bytes */
    const enum factors factors = factors_of(layer);
    const int32_t *out = out_of(layer);
    const int64_t lanes = sgrad__level()->lanes, from = whole(in_of(layer)[3], lanes), to = whole(out[3], lanes);
    const int64_t panel = 2 * lanes, at_once = sgrad__level()->rows, channels = channel_words(factors, from);
    const int64_t bytes = POINTS * (int64_t)sizeof(float), u_row = bytes * channels, panels = U_CHUNK / (u_row * panel);
    const int64_t v_tile = factors == FLOATS ? bytes * from : bytes * from / 2,
                  m_tile = factors == TILE_PAIRS ? bytes * to / 2 : bytes * to;
    const bool chunks = u_row * to > U_MOST;
    struct tiling t = { .side = WINDOW + 1 - layer->w[1] };
    t.rows = (out[1] + t.side - 1) / t.side;
    t.columns = (out[2] + t.side - 1) / t.side;
    t.padding = layer->pass == SGRAD__BACKWARD_DATA ? layer->w[1] - 1 - layer->padding : layer->padding;
    t.count = out[0] * t.rows * t.columns;
    t.chunk = to;
    if (chunks) t.chunk = (panels ? panels : 1) * panel;
    int64_t most = chunks ? V_LARGE / v_tile : V_AND_M / (v_tile + m_tile);
    if (most > t.count) most = t.count;
    if (most < 1) most = 1;
    t.block = (most + at_once - 1) / at_once * at_once;
    const int64_t words = tile_words(factors, t.block);
    t.v = POINTS * point_stride(channels, t.chunk);
    t.m = t.v + POINTS * point_stride(words, channels);
    t.size = t.m + POINTS * point_stride(words, t.chunk);
    return t;
}

bool sgrad__winograd_open(const struct sgrad__layer *layer) {
    const struct sgrad__level *level = sgrad__level();
    return level && layer->rank == 4 && layer->groups == 1 && (layer->w[1] == 3 || layer->w[1] == 5) &&
           layer->w[1] == layer->w[2] && layer->stride == 1 && layer->dilation == 1 && layer->padding < layer->w[1] &&
           layer->x[3] >= level->lanes && layer->y[3] >= level->lanes;
}

/* This algorithm: 36 multiplications for a window and a filter, with channels rounded up to whole vectors. Direct convolution:
 * one for each weight of a filter and each pixel. */
double sgrad__winograd_saving(const struct sgrad__layer *layer) {
    const struct tiling t = tiling_of(layer);
    const int64_t lanes = sgrad__level()->lanes;
    const double filled = (double)layer->x[3] * layer->y[3] / (double)(whole(layer->x[3], lanes) * whole(layer->y[3], lanes));
    return filled * layer->w[1] * layer->w[2] * out_of(layer)[1] * out_of(layer)[2] / (double)(POINTS * t.rows * t.columns);
}

size_t sgrad__winograd_workspace(const struct sgrad__layer *layer) { return (size_t)tiling_of(layer).size * sizeof(float); }

void sgrad__winograd_run(const struct sgrad__layer *layer, void *const data[], float *room) {
    sgrad__level()->winograd[layer->w[1] == 5][factors_of(layer)](layer, tiling_of(layer), data, room);
}
