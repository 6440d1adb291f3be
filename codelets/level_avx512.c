/* level_avx512.c: 32 registers of sixteen floats: 24 sums, and two vectors and a word that they are made of; words that are
 * pairs of bf16 where the processor has instructions for them. */
#include "config.h"

enum { LANES = 16, ROWS = 12 };
#define STAGE SGRAD_FOR_AVX512 static void
#include "codelets/winograd_vectors.h"
#include "codelets/product_stages.h"
#include "codelets/pixels_stages.h"

#define NAME(stage) stage##_of_3_on_floats
#define SIDE 3
#define FACTORS FLOATS
#include "codelets/winograd_stages.h"

#define NAME(stage) stage##_of_5_on_floats
#define SIDE 5
#define FACTORS FLOATS
#include "codelets/winograd_stages.h"

#define NAME(stage) stage##_of_3_on_channel_pairs
#define SIDE 3
#define FACTORS CHANNEL_PAIRS
#include "codelets/winograd_stages.h"

#define NAME(stage) stage##_of_5_on_channel_pairs
#define SIDE 5
#define FACTORS CHANNEL_PAIRS
#include "codelets/winograd_stages.h"

#define NAME(stage) stage##_of_3_on_tile_pairs
#define SIDE 3
#define FACTORS TILE_PAIRS
#include "codelets/winograd_stages.h"

#define NAME(stage) stage##_of_5_on_tile_pairs
#define SIDE 5
#define FACTORS TILE_PAIRS
#include "codelets/winograd_stages.h"

const struct sgrad__level sgrad__level_avx512 = {
    .lanes = LANES,
    .rows = ROWS,
    .winograd = { { run_of_3_on_floats, run_of_3_on_channel_pairs, run_of_3_on_tile_pairs },
                  { run_of_5_on_floats, run_of_5_on_channel_pairs, run_of_5_on_tile_pairs } },
    .product = { forward, backward_data, backward_weight },
    .pixels = { pixels_forward, pixels_backward_data, pixels_backward_weight },
    .multiply_rows = multiply_rows,
    .multiply_columns = multiply_columns,
    .widen = widen,
    .narrow = narrow_all,
};
