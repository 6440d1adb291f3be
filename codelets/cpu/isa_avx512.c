/* isa_avx512.c: vector functions (isa.h) for AVX-512. Of 32 registers of sixteen floats, 24 contain sums; the others are for two
 * vectors of one factor and a word of the other factor. Words may be pairs of bf16 if the processor has instructions for them. */
#include "config.h"
#include "codelets/kernels.h"

#if SGRAD_LEVELS
enum { LANES = 16, ROWS = 12 };
#define STAGE SGRAD_FOR_AVX512 static void
#include "codelets/cpu/winograd_vectors.h"
#include "codelets/cpu/product_stages.h"
#include "codelets/cpu/pixels_stages.h"

#define NAME(stage) stage##_of_3_on_floats
#define SIDE 3
#define FACTORS FLOATS
#include "codelets/cpu/winograd_stages.h"

#define NAME(stage) stage##_of_5_on_floats
#define SIDE 5
#define FACTORS FLOATS
#include "codelets/cpu/winograd_stages.h"

#define NAME(stage) stage##_of_3_on_channel_pairs
#define SIDE 3
#define FACTORS CHANNEL_PAIRS
#include "codelets/cpu/winograd_stages.h"

#define NAME(stage) stage##_of_5_on_channel_pairs
#define SIDE 5
#define FACTORS CHANNEL_PAIRS
#include "codelets/cpu/winograd_stages.h"

#define NAME(stage) stage##_of_3_on_tile_pairs
#define SIDE 3
#define FACTORS TILE_PAIRS
#include "codelets/cpu/winograd_stages.h"

#define NAME(stage) stage##_of_5_on_tile_pairs
#define SIDE 5
#define FACTORS TILE_PAIRS
#include "codelets/cpu/winograd_stages.h"

STAGE multiply_pairs(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, int64_t e_step, const float *v,
                     int64_t v_row, float *z, int64_t z_row, bool add) {
    const struct right right = { v, v_row, terms, 0 };
    if (e_step == 1) panels(CHANNEL_PAIRS, m, n, terms, e, ROWS * e_row, e_row, 1, right, z, z_row, add);
    else panels(CHANNEL_PAIRS, m, n, terms, e, ROWS, 1, e_step, right, z, z_row, add);
}

/* COUNT must be a multiple of two vectors. */
STAGE make_pairs(const float *x, int64_t rows, int64_t count, float *along, float *across) {
    for (int64_t i = 0; i < rows; i++, x += count) {
        for (int64_t j = 0; j < count && along; j += LANES, along += LANES / 2)
            *(packed_halves *)along = narrow(true, *(const packed *)(x + j));
        if (i % 2 || !across) continue;
        for (int64_t j = 0; j < count; j += LANES, across += LANES) {
            vec next = { 0 };
            if (i + 1 < rows) next = *(const packed *)(x + count + j);
            *(packed *)across = paired(*(const packed *)(x + j), next);
        }
    }
}

const struct sgrad__level sgrad__level_avx512 = {
    .lanes = LANES,
    .rows = ROWS,
    .winograd = { { run_of_3_on_floats, run_of_3_on_channel_pairs, run_of_3_on_tile_pairs },
                  { run_of_5_on_floats, run_of_5_on_channel_pairs, run_of_5_on_tile_pairs } },
    .product = { forward, backward_data, backward_weight },
    .pixels = { pixels_forward, pixels_backward_data, pixels_backward_weight },
    .multiply_rows = multiply_rows,
    .multiply_columns = multiply_columns,
    .multiply_pairs = multiply_pairs,
    .make_pairs = make_pairs,
    .widen = widen,
    .narrow = narrow_row,
};
#endif
