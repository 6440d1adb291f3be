/* kronecker_tiles.c: K-FAC's factors of bf16 tensors, with the method of kronecker_factor.c, by AMX (tiles.c). The terms of a
 * product of tiles are the values of 32 samples at one pixel, so that any pixel can be multiplied by any other. If each pixel is
 * a patch, 32 pixels are used as the samples of one pixel.
 *
 *     A (16 channels, 32 samples) of (h,w)   ×   B (32 samples, 16 channels) of (h+down, w+along)   summed over a run's (h,w)
 *
 * A band of rows is packed at a time, as A and as B, so that it stays in the second-level cache. For small images, a band
 * contains several groups of 32 samples. Products are exact, and sums are F32. With fewer than 8 samples this implementation is
 * not used, because tiles would be nearly empty. */
#include "config.h"
#include "codelets/kfac/kronecker_runs.h"
#include "codelets/kfac/kronecker_tiles.h"
#include "codelets/cpu/tiles_registers.h"

#include <string.h>

#if SGRAD_LEVELS

/* The dimensions of packed data. Of GROUPS groups of 32 samples, AT_ONCE are packed at a time; of their HEIGHT rows of WIDTH
 * pixels, a BAND of rows of A, and REACH more of B. */
struct packing {
    int64_t groups, height, width, at_once, band, reach;
    int64_t blocks, row;        /* blocks of 16 channels; bytes of a row of all blocks */
};

static struct packing packing_of(const struct geometry *geometry) {
    enum { ROOM = 2 << 20, WIDTH = 16 };
    struct packing p = { .groups = tiles_for(geometry->all.count, TERMS),
                         .height = geometry->all.height,
                         .width = geometry->all.width };
    if (geometry->rows) {
        const int64_t columns = tiles_for(geometry->all.width, TERMS);
        p.width = least(columns, WIDTH), p.height = tiles_for(columns, p.width);
    }
    p.blocks = tiles_for(geometry->channels, SIDE), p.row = p.blocks * p.width * TILE;
    p.reach = least(p.height, (geometry->taps - 1) * geometry->dilation);
    p.at_once = least(p.groups, most(1, ROOM / (2 * p.height * p.row)));
    p.band = 2 * p.height * p.row <= ROOM ? p.height : least(p.height, most(1, (ROOM / p.row - p.reach) / 2));
    return p;
}

static int64_t rows_of_b(const struct packing *packing) { return least(packing->height, packing->band + packing->reach); }

size_t sgrad__factor_tiles_workspace(const struct sgrad_args *args) {
    const struct geometry g = sgrad__factor_geometry(args);
    const struct packing p = packing_of(&g);
    const bool filled = (g.rows ? g.all.width : g.all.count) >= 8;
    if (sgrad_isa() < SGRAD_AMX || args->view[0].dtype != SGRAD_BF16 || !filled) return 0;
    return SGRAD_LINE + (size_t)(p.at_once * (p.band + rows_of_b(&p)) * p.row);
}

/* Packs row H of 32 samples, those of a group, as B: the channels from CHANNEL on. */
static void pack_pixels(const struct geometry *geometry, const struct packing *packing, const uint16_t *x, int64_t group,
                        int64_t h, int64_t channel, char *to) {
    const int64_t all = geometry->channels * geometry->groups, first = group * TERMS;
    if (geometry->rows) {
        const int64_t column = h * packing->width, count = least(packing->width, tiles_for(geometry->all.width, TERMS) - column);
        const int64_t last = least(TERMS, geometry->all.width - (column + count - 1) * TERMS);
        sgrad__tiles_pack_row(x + column * TERMS * all + channel, all, TERMS * all, count, TERMS, last, geometry->channels, 0,
                              packing->width, to);
        return;
    }
    const int64_t line = geometry->all.width * all, image = geometry->all.height * line,
                  samples = least(TERMS, geometry->all.count - first);
    sgrad__tiles_pack_row(x + first * image + h * line + channel, image, all, packing->width, samples, samples,
                          geometry->channels, 0, packing->width, to);
}

/* The first tile, and the distances in bytes to the tile of the next group, row and column. */
struct walk {
    const char *from;
    int64_t step[3];
};

/* Sums the products of tiles of ONE and OTHER over COUNT groups, rows and columns. Four sums are used alternately, so that
 * consecutive products do not depend on each other. */
FOR_AMX void sum_products(const struct walk *one, const struct walk *other, const int64_t count[3], float to[SIDE][SIDE]) {
    enum { SUMS = 4 };
    _Alignas(64) float sum[SUMS][SIDE][SIDE];
#define ADD(i)                                                                                                                   \
    TILE_LOAD(6, left + (i)*one->step[2], 4 * SIDE);                                                                             \
    TILE_LOAD(7, right + (i)*other->step[2], 4 * SIDE);                                                                          \
    TILE_PRODUCT(i, 6, 7);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int64_t i = 0; i < count[0]; i++)
        for (int64_t j = 0; j < count[1]; j++) {
            const char *left = one->from + i * one->step[0] + j * one->step[1],
                       *right = other->from + i * other->step[0] + j * other->step[1];
            int64_t k = count[2];
            for (; k >= SUMS; k -= SUMS, left += SUMS * one->step[2], right += SUMS * other->step[2]) {
                ADD(0)
                ADD(1)
                ADD(2)
                ADD(3)
            }
            if (k > 0) { ADD(0) }
            if (k > 1) { ADD(1) }
            if (k > 2) { ADD(2) }
        }
#undef ADD
    TILE_STORE(0, sum[0], 4 * SIDE);
    TILE_STORE(1, sum[1], 4 * SIDE);
    TILE_STORE(2, sum[2], 4 * SIDE);
    TILE_STORE(3, sum[3], 4 * SIDE);
    for (int i = 0; i < SIDE; i++)
        *(packed *)to[i] = (*(vec *)sum[0][i] + *(vec *)sum[1][i]) + (*(vec *)sum[2][i] + *(vec *)sum[3][i]);
}

/* The same for a run. The longer dimension is the inner loop, which computes four products per iteration. */
static void sum_run(struct walk a, struct walk b, int64_t groups, int64_t rows, int64_t columns, float to[SIDE][SIDE]) {
    const bool turned = rows > columns;
    if (turned) {
        const int64_t x = a.step[1], y = b.step[1];
        a.step[1] = a.step[2], a.step[2] = x;
        b.step[1] = b.step[2], b.step[2] = y;
    }
    sum_products(&a, &b, (const int64_t[]){ groups, turned ? columns : rows, turned ? rows : columns }, to);
}

/* A band: its packed rows, as A and as B; the first row; the number of rows of A, and of groups. */
struct band {
    char *a, *b;
    int64_t first, rows, groups;
};

/* Returns the lines of a run of rows that are in the band. */
static struct run within(const struct band *band, struct run run) {
    const int64_t before = band->first > run.first ? tiles_for(band->first - run.first, run.step) : 0;
    const int64_t up_to = most(0, tiles_for(band->first + band->rows - run.first, run.step));
    run.first += before * run.step;
    run.count = most(0, least(run.count, up_to) - before);
    return run;
}

/* Adds the last column, Σ ã, by a B of ones. */
FOR_AMX void add_ones(const struct geometry *geometry, struct walk a, int64_t groups, const struct run *row,
                      const struct run *column, int64_t i, float *sum) {
    _Alignas(64) uint32_t ones[SIDE][SIDE];
    float tile[SIDE][SIDE];
    for (int k = 0; k < SIDE * SIDE; k++) ones[k / SIDE][k % SIDE] = 0x3f803f80;
    sum_run(a, (struct walk){ (const char *)ones, { 0 } }, groups, row->count, column->count, tile);
    for (int64_t block = 0; block < geometry->taps * geometry->taps; block++)
        for (int64_t c = 0; c < least(SIDE, geometry->channels - i); c++)
            if (row->taps >> block / geometry->taps & 1 && column->taps >> block % geometry->taps & 1)
                sum[sgrad__triangle_at(geometry->length, block * geometry->channels + i + c, geometry->length - 1)] += tile[c][0];
}

/* Adds all tiles of the blocks whose taps are (DOWN,ALONG) apart, for the pixels of one run. */
FOR_AMX void add_run(const struct geometry *geometry, const struct packing *packing, const struct band *band, int64_t down,
                     int64_t along, struct run row, const struct run *column, float *sum) {
    float tile[SIDE][SIDE];
    const bool diagonal = !down && !along;
    row = within(band, row);
    for (int64_t i = 0; i < packing->blocks && row.count > 0; i++) {
        const struct walk a = { band->a + (row.first - band->first) * packing->row + (i * packing->width + column->first) * TILE,
                                { packing->band * packing->row, row.step * packing->row, column->step * TILE } };
        if (diagonal && geometry->bias) add_ones(geometry, a, band->groups, &row, column, i * SIDE, sum);
        for (int64_t j = diagonal ? i : 0; j < packing->blocks; j++) {
            const struct walk b = { band->b + (row.first - band->first + down * geometry->dilation) * packing->row +
                                        (j * packing->width + column->first + along * geometry->dilation) * TILE,
                                    { rows_of_b(packing) * packing->row, row.step * packing->row, column->step * TILE } };
            sum_run(a, b, band->groups, row.count, column->count, tile);
            add_tile(geometry, &(struct place){ down, along, i * SIDE, j * SIDE, SIDE }, row.taps, column->taps, tile, sum);
        }
    }
}

static void add_band(const struct geometry *geometry, const struct packing *packing, const struct band *band, float *sum) {
    struct run row[RUNS], column[RUNS];
    for (int64_t down = 0; down < geometry->taps; down++)
        for (int64_t along = down ? 1 - geometry->taps : 0; along < geometry->taps; along++) {
            int rows = 1, columns = 1;
            row[0] = (struct run){ 0, packing->height, 1, 1 }, column[0] = (struct run){ 0, packing->width, 1, 1 };
            if (!geometry->rows) rows = sgrad__factor_runs(geometry, geometry->all.height, geometry->all.outs, down, row);
            if (!geometry->rows) columns = sgrad__factor_runs(geometry, geometry->all.width, geometry->all.across, along, column);
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < columns; c++) add_run(geometry, packing, band, down, along, row[r], &column[c], sum);
        }
}

void sgrad__factor_tiles(const struct sgrad_args *args) {
    const struct geometry g = sgrad__factor_geometry(args);
    const struct packing p = packing_of(&g);
    struct band band = { .a = (char *)sgrad_aligned((size_t)args->workspace) };
    float *sum = args->data[1];
    band.b = band.a + p.at_once * p.band * p.row;
    if (!sgrad_adds(args, 1)) memset(sum, 0, sgrad_view_bytes(&args->view[1]));
    configure(SIDE);
    for (int64_t part = 0; part < g.groups; part++, sum += sgrad__triangle(g.length)) {
        for (int64_t group = 0; group < p.groups; group += p.at_once)
            for (band.first = 0; band.first < p.height; band.first += p.band) {
                band.rows = least(p.band, p.height - band.first), band.groups = least(p.at_once, p.groups - group);
                for (int64_t k = 0; k < band.groups; k++)
                    for (int64_t h = 0; h < least(rows_of_b(&p), p.height - band.first); h++) {
                        char *to = band.b + (k * rows_of_b(&p) + h) * p.row, *turned = band.a + (k * p.band + h) * p.row;
                        pack_pixels(&g, &p, args->data[0], group + k, band.first + h, part * g.channels, to);
                        if (h >= band.rows) continue;
                        memcpy(turned, to, (size_t)p.row);
                        sgrad__tiles_turn(turned, p.blocks * p.width);
                    }
                add_band(&g, &p, &band, sum);
            }
        if (g.bias) sum[sgrad__triangle(g.length) - 1] += (float)(g.all.count * g.all.outs * g.all.across);
    }
    release();
}

#else

size_t sgrad__factor_tiles_workspace(const struct sgrad_args *args) { return (void)args, 0; }
void sgrad__factor_tiles(const struct sgrad_args *args) { (void)args; }

#endif
