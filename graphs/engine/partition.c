/* partition.c: assigns records to ranks if each rank stores a partition of the training set.
 *
 * The order of an epoch is divided into batches, and each batch into equal local batches. Positions in this order therefore
 * belong to ranks, whichever samples are at these positions. The remaining samples, which no step uses, are divided as evenly as
 * possible. Example with ten positions, batches of four, two ranks:
 *
 *     position     0 1 2 3   4 5 6 7   8 9
 *     rank         0 0 1 1   0 0 1 1   0 1
 *     slot         0 1 0 1   2 3 2 3   4 4
 *
 * From epoch to epoch samples change their positions, and positions stay on their ranks. Every rank computes from two
 * permutations the records that it sends, receives and retains, without communication. In the order of the next epoch's
 * positions:
 *
 *     epoch 0      a b c d   e f g h   i j
 *     epoch 1      c a j e   b g i d   h f         rank 0 receives c g h from rank 1, retains a b; rank 1: e i f, retains j d */
#include "graphs/engine/placement.h"

#include <assert.h>
#include <stdlib.h>

static int64_t whole(const struct sgrad__partition *partition) { return partition->count / partition->batch * partition->batch; }

/* Returns the first of the remaining samples that belong to RANK. */
static int64_t rest_first(const struct sgrad__partition *partition, int rank) {
    return (partition->count - whole(partition)) * rank / partition->ranks;
}

static int64_t slots_in_batches(const struct sgrad__partition *partition) { return whole(partition) / partition->ranks; }

struct sgrad__place sgrad__partition_place(const struct sgrad__partition *partition, int64_t position) {
    const int64_t share = partition->batch / partition->ranks, rest = position - whole(partition);
    assert(position >= 0 && position < partition->count && partition->batch % partition->ranks == 0);
    if (rest < 0)
        return (struct sgrad__place){ (int)(position % partition->batch / share),
                                      position / partition->batch * share + position % share };
    int rank = (int)(((rest + 1) * partition->ranks - 1) / (partition->count - whole(partition)));
    return (struct sgrad__place){ rank, slots_in_batches(partition) + rest - rest_first(partition, rank) };
}

int64_t sgrad__partition_position(const struct sgrad__partition *partition, struct sgrad__place at) {
    const int64_t share = partition->batch / partition->ranks, rest = at.slot - slots_in_batches(partition);
    if (rest < 0) return at.slot / share * partition->batch + at.rank * share + at.slot % share;
    return whole(partition) + rest_first(partition, at.rank) + rest;
}

int64_t sgrad__partition_slots(const struct sgrad__partition *partition, int rank) {
    return slots_in_batches(partition) + rest_first(partition, rank + 1) - rest_first(partition, rank);
}

/* ---- from one epoch to the next ---------------------------------------------------------------------------------- */

static struct sgrad__exchange open_exchange(int ranks) {
    return (struct sgrad__exchange){ .ranks = ranks, .out = sgrad_xcalloc((size_t)ranks, sizeof(struct sgrad__slots)),
                                     .in = sgrad_xcalloc((size_t)ranks, sizeof(struct sgrad__slots)) };
}

/* Counts SLOT and, if the list is allocated, appends it. */
static void note(struct sgrad__slots *list, int64_t slot) {
    if (list->slot) list->slot[list->count] = slot;
    list->count++;
}

static void make_room(struct sgrad__slots *list, int lists) {
    for (int i = 0; i < lists; i++) {
        list[i].slot = sgrad_xcalloc((size_t)list[i].count + 1, sizeof *list[i].slot);
        list[i].count = 0;
    }
}

/* Returns the position of each sample in EPOCH. The caller must free the array. */
static int64_t *positions(struct sgrad__sampler *order, uint32_t epoch) {
    int64_t *position = sgrad_xcalloc((size_t)order->count, sizeof *position);
    for (int64_t i = 0; i < order->count; i++) position[sgrad__sampler_index(order, epoch, i)] = i;
    return position;
}

static int64_t largest(const int64_t *value, int64_t count) {
    int64_t most = 0;
    for (int64_t i = 0; i < count; i++)
        if (value[i] > most) most = value[i];
    return most;
}

struct sgrad__exchange sgrad__exchange_plan(const struct sgrad__partition *partition, struct sgrad__sampler *order,
                                            uint32_t epoch, int rank) {
    struct sgrad__exchange x = open_exchange(partition->ranks);
    struct sgrad__sampler next = *order;
    next.index = NULL;          /* that of the next epoch; ORDER has that of this one */
    int64_t *before = positions(order, epoch),
            *moving = sgrad_xcalloc((size_t)partition->ranks * (size_t)partition->ranks, sizeof *moving);
    for (int pass = 0; pass < 2; pass++) {
        if (pass) make_room(x.out, partition->ranks), make_room(x.in, partition->ranks);
        for (int64_t i = 0; i < partition->count; i++) {
            const struct sgrad__place from = sgrad__partition_place(partition, before[sgrad__sampler_index(&next, epoch + 1, i)]);
            const struct sgrad__place to = sgrad__partition_place(partition, i);
            if (from.rank == rank) note(&x.out[to.rank], from.slot);
            if (to.rank == rank) note(&x.in[from.rank], to.slot);
            if (pass) moving[from.rank * partition->ranks + to.rank]++;
        }
    }
    x.longest = largest(moving, (int64_t)partition->ranks * partition->ranks);
    sgrad__sampler_close(&next);
    free(moving);
    free(before);
    return x;
}

struct sgrad__exchange sgrad__exchange_of_files(const struct sgrad__partition *partition, int rank) {
    struct sgrad__exchange x = open_exchange(partition->ranks);
    x.longest = x.in[rank].count = sgrad__partition_slots(partition, rank);
    x.in[rank].slot = sgrad_xcalloc((size_t)x.longest, sizeof *x.in[rank].slot);
    for (int64_t i = 0; i < x.longest; i++) x.in[rank].slot[i] = i;
    return x;
}

void sgrad__exchange_free(struct sgrad__exchange *exchange) {
    for (int i = 0; i < exchange->ranks; i++) {
        free(exchange->out[i].slot);
        free(exchange->in[i].slot);
    }
    free(exchange->out);
    free(exchange->in);
    *exchange = (struct sgrad__exchange){ 0 };
}
