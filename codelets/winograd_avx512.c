/* winograd_avx512.c: the stages of winograd.c in 32 registers of sixteen floats: 24 sums, two vectors of a panel; words that are pairs of bf16 where the
 * processor has instructions for them. */
#include "config.h"

enum { LANES = 16, TILES_AT_ONCE = 12 };
#include "codelets/winograd_vectors.h"

#define NAME(stage) stage##_on_floats
#define FACTORS FLOATS
#define STAGE SGRAD_FOR_AVX512 static void
#include "codelets/winograd_stages.h"

#define NAME(stage) stage##_on_channel_pairs
#define FACTORS CHANNEL_PAIRS
#define STAGE SGRAD_FOR_AVX512 static void
#include "codelets/winograd_stages.h"

#define NAME(stage) stage##_on_tile_pairs
#define FACTORS TILE_PAIRS
#define STAGE SGRAD_FOR_AVX512 static void
#include "codelets/winograd_stages.h"

const struct sgrad__winograd_level sgrad__winograd_avx512 = {
    .lanes = LANES,
    .tiles = TILES_AT_ONCE,
    .run = { run_on_floats, run_on_channel_pairs, run_on_tile_pairs },
};
