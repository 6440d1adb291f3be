/* tiles_registers.h: AMX registers, and the internal interface of tiles.c, tiles_sums.c and tiles_weight.c. Private to these
 * files and codelets/kfac/kronecker_tiles.c. */
#ifndef SGRAD_CODELETS_CPU_TILES_REGISTERS_H
#define SGRAD_CODELETS_CPU_TILES_REGISTERS_H

#include "codelets/cpu/tiles.h"

/* Forward and backward-data (tiles_sums.c), and backward-weight (tiles_weight.c). The layer must be supported
 * (sgrad__tiles_open) and have rank 4. Sizes are in bytes. The last argument, a workspace or the packed weight, must be
 * aligned to SGRAD_LINE. */
size_t sgrad__tiles_sums_workspace(const struct sgrad__layer *layer);
void sgrad__tiles_sums(const struct sgrad__layer *layer, void *const data[], char *room);
size_t sgrad__tiles_sums_packed(const struct sgrad__layer *layer);
void sgrad__tiles_sums_pack(const struct sgrad__layer *layer, const float *weight, char *to);
size_t sgrad__tiles_weight_workspace(const struct sgrad__layer *layer);
void sgrad__tiles_weight(const struct sgrad__layer *layer, void *const data[], char *room);

#if SGRAD_LEVELS
enum { LANES = 16 };
#include "codelets/cpu/vectors.h"

#include <immintrin.h>

#define ON_AMX __attribute__((target("arch=x86-64-v4,avx512bf16")))
#define FOR_AMX ON_AMX static
#define INLINE_FOR_AMX __attribute__((always_inline)) FOR_AMX inline

enum {
    SIDE = 16,                  /* rows of a tile; its columns, of 32-bit words */
    TERMS = 2 * SIDE,           /* bf16 values in a row of a tile */
    TILE = SIDE * SIDE * 4,     /* bytes */
    AT_ONCE = 6,                /* tile registers that contain sums */
};

/* Returns COUNT / SIDE, rounded up. */
static inline int64_t tiles_for(int64_t count, int64_t side) { return (count + side - 1) / side; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Tile registers 0 to 5 contain sums, 6 contains factor A, 7 contains factor B. */

#define TILE_ZERO(c) __asm__ volatile("tilezero %%tmm" #c ::)
#define TILE_LOAD(t, from, stride)                                                                                               \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, to, stride)                                                                                                \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((int64_t)(stride)) : "memory")
#define TILE_PRODUCT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define EACH(what) what(0) what(1) what(2) what(3) what(4) what(5)

/* Configures the tile registers: A and the sums have ROWS rows, B has 16. Call release after the last product. */
static inline void configure(int64_t rows) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    for (int t = 0; t < 8; t++) config.bytes[t] = 4 * SIDE, config.rows[t] = t < 7 ? (uint8_t)rows : SIDE;
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}
static inline void release(void) { __asm__ volatile("tilerelease" ::); }

/* Returns the mask of the first COUNT lanes. */
static inline __mmask16 first_lanes(int64_t count) {
    return (__mmask16)((1u << most(0, least(count, LANES))) - 1);
}

/* Packs COUNT columns of an image row as B tiles (tiles_weight.c). A tile has 16 channels of one column: its row j has the
 * values of samples 2j and 2j+1. A column has SAMPLES samples, at most 32; the last column has LAST. Each block of 16 channels
 * gets WIDTH tiles, of which COUNT, from tile FIRST on, contain the columns. Missing values and the other tiles are zeros; X
 * NULL: all are zeros. SAMPLE and COLUMN: elements from one sample, or column, to the next. */
void sgrad__tiles_pack_row(const uint16_t *x, int64_t sample, int64_t column, int64_t count, int64_t samples, int64_t last,
                           int64_t channels, int64_t first, int64_t width, char *to);
/* Replaces COUNT B tiles by their transposes, which are A tiles: row k has channel k of 32 samples. */
void sgrad__tiles_turn(char *tile, int64_t count);

/* Returns row j of a B tile: the pairs of terms 2j, from LOW, and 2j+1, from HIGH, for 16 columns. */
INLINE_FOR_AMX __m512i interleaved(__m256i low, __m256i high) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

#endif
#endif
