/* zigzag.h: the rows of ranks along an axis over which samples are split (struct sgrad_zigzag). With 2 ranks, 8 rows:
 *
 *     positions   0 1   2 3   4 5   6 7            rank 0 has 0 1 and 6 7, rank 1 has 2 3 and 4 5
 *
 * so that both have as many pairs of a row and an earlier one. Private to codelets/. */
#ifndef SGRAD_CODELETS_OPS_ZIGZAG_H
#define SGRAD_CODELETS_OPS_ZIGZAG_H

#include "codelets/codelets.h"

/* Returns the rows of the rank with index PLACE of RANKS, which has ROWS rows. */
static inline struct sgrad_zigzag sgrad__zigzag_at(int ranks, int place, int64_t rows) {
    const int half = (int)(rows / 2);
    if (ranks == 1) return (struct sgrad_zigzag){ 0 };
    return (struct sgrad_zigzag){ half, place * half, (2 * ranks - 2 - place) * half };
}

/* Returns the index of RANK on axis NAME of the mesh, which has *RANKS ranks; 0 of 1: there is no such axis. */
static inline int sgrad__place_on(const struct sgrad_mesh *mesh, const char *name, int rank, int *ranks) {
    const struct sgrad_axis *axis = *name ? sgrad_mesh_axis(mesh, name) : NULL;
    *ranks = axis && axis->ranks ? axis->ranks : 1;
    return *ranks > 1 ? sgrad_mesh_index(mesh, sgrad_mesh_bit(mesh, axis), rank) : 0;
}

static inline struct sgrad_zigzag sgrad__zigzag_of(const struct sgrad_mesh *mesh, const char *name, int rank, int64_t rows) {
    int ranks;
    const int place = sgrad__place_on(mesh, name, rank, &ranks);
    return sgrad__zigzag_at(ranks, place, rows);
}

#endif
