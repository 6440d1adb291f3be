/* order.h: which sample comes when; for graphs/ alone. */
#ifndef SGRAD_GRAPHS_ORDER_H
#define SGRAD_GRAPHS_ORDER_H

#include "runtime/philox.h"
#include "runtime/runtime.h"

/* Which sample comes when. Set seed, count and shuffle, leave the rest zero. */
struct sgrad__order {
    uint64_t seed;
    int64_t count;              /* samples of the training set */
    bool shuffle;               /* else every epoch is in the order of the files */
    uint32_t epoch;             /* of the permutation that sample holds */
    int64_t *sample;
};
/* The sample at POSITION (0 to count - 1) of EPOCH. Makes an epoch's permutation when it is first asked for. */
int64_t sgrad__order_sample(struct sgrad__order *order, uint32_t epoch, int64_t position);
/* How far, below LIMIT, the windows of a shuffled EPOCH are shifted; 0 where nothing is shuffled, or LIMIT is 0. */
int64_t sgrad__order_shift(const struct sgrad__order *order, uint32_t epoch, int64_t limit);
void sgrad__order_close(struct sgrad__order *order);

#endif
