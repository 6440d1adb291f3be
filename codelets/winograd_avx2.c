/* winograd_avx2.c: the stages of winograd.c in sixteen registers of eight floats: twelve sums, two vectors of a panel, and a word of a tile. */
#include "config.h"

enum { LANES = 8, TILES_AT_ONCE = 6 };
#include "codelets/winograd_vectors.h"

#define NAME(stage) stage##_on_floats
#define FACTORS FLOATS
#define STAGE SGRAD_FOR_AVX2 static void
#include "codelets/winograd_stages.h"

const struct sgrad__winograd_level sgrad__winograd_avx2 = {
    .lanes = LANES,
    .tiles = TILES_AT_ONCE,
    .run = { run_on_floats },
};
