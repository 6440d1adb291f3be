/* isa_avx2.c: vector functions (isa.h) for AVX2. Of 16 registers of eight floats, 12 contain sums; the others are for two vectors
 * of one factor and a word of the other factor. */
#include "config.h"

enum { LANES = 8, ROWS = 6 };
#define STAGE SGRAD_FOR_AVX2 static void
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

const struct sgrad__level sgrad__level_avx2 = {
    .lanes = LANES,
    .rows = ROWS,
    .winograd = { { run_of_3_on_floats }, { run_of_5_on_floats } },
    .product = { forward, backward_data, backward_weight },
    .pixels = { pixels_forward, pixels_backward_data, pixels_backward_weight },
    .multiply_rows = multiply_rows,
    .multiply_columns = multiply_columns,
    .widen = widen,
    .narrow = narrow_row,
};
