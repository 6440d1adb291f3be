/* tiles_registers.h: AMX's registers, and what else tiles.c, tiles_sums.c and tiles_weight.c share. Private to these. */
#ifndef SGRAD_CODELETS_TILES_REGISTERS_H
#define SGRAD_CODELETS_TILES_REGISTERS_H

#include "codelets/tiles.h"

/* tiles_sums.c: forward and backward-data; tiles_weight.c: backward-weight. Of what tiles.c says is open, rank 4. */
size_t sgrad__tiles_sums_workspace(const struct sgrad__layer *l);
void sgrad__tiles_sums(const struct sgrad__layer *l, void *const data[], char *room);
size_t sgrad__tiles_sums_packed(const struct sgrad__layer *l);
void sgrad__tiles_sums_pack(const struct sgrad__layer *l, const float *weight, char *to);
size_t sgrad__tiles_weight_workspace(const struct sgrad__layer *l);
void sgrad__tiles_weight(const struct sgrad__layer *l, void *const data[], char *room);

#if SGRAD_LEVELS
enum { LANES = 16 };
#include "codelets/vectors.h"

#include <immintrin.h>

#define ON_AMX __attribute__((target("arch=x86-64-v4,avx512bf16")))
#define FOR_AMX ON_AMX static
#define INLINE_FOR_AMX __attribute__((always_inline)) FOR_AMX inline

enum {
    SIDE = 16,                  /* rows of a tile; its columns of words */
    TERMS = 2 * SIDE,
    TILE = SIDE * SIDE * 4,     /* bytes */
    AT_ONCE = 6,                /* tiles of sums */
};

static inline int64_t tiles_for(int64_t count, int64_t side) { return (count + side - 1) / side; }
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* The registers: 0 to 5 are sums, 6 is A, 7 is B. */

#define TILE_ZERO(c) __asm__ volatile("tilezero %%tmm" #c ::)
#define TILE_LOAD(t, from, stride)                                                                                               \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, to, stride)                                                                                                \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((int64_t)(stride)) : "memory")
#define TILE_PRODUCT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define EACH(what) what(0) what(1) what(2) what(3) what(4) what(5)

/* ROWS: of A and of the sums. */
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

static inline __mmask16 first_lanes(int64_t count) {
    return count >= LANES ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

/* tiles_weight.c: COUNT columns of a row, of SAMPLES samples each, at most 32, but LAST of the last, as B tiles: WIDTH of each 16
 * channels, of which the first is FIRST; zeros where there is nothing, or no X. SAMPLE, COLUMN: elements from one to the next. */
void sgrad__tiles_pack_row(const uint16_t *x, int64_t sample, int64_t column, int64_t count, int64_t samples, int64_t last,
                           int64_t channels, int64_t first, int64_t width, char *to);
/* B tiles turned into A tiles: row k has channel k of 32 samples. */
void sgrad__tiles_turn(char *tile, int64_t count);

/* Terms 2j of LOW and 2j+1 of HIGH, of 16 columns. */
INLINE_FOR_AMX __m512i interleaved(__m256i low, __m256i high) {
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

#endif
#endif
