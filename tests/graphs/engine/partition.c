/* Which rank has which record if the training set is distributed over ranks: the plans of all ranks, executed in one process. */
#include "config.h"
#include "graphs/engine/placement.h"
#include "tests/asserts.h"

#include <stdlib.h>

enum { EPOCHS = 3, MOST = 16 };

static const struct sgrad__partition cases[] = {
    { 1, 1, 1 },      { 10, 4, 2 },   { 12, 4, 4 },    { 97, 12, 3 },  { 64, 64, 8 },
    { 1437, 128, 4 }, { 1000, 7, 7 }, { 130, 16, 16 }, { 31, 16, 16 },
};
enum { CASES = sizeof cases / sizeof *cases };

/* Places are the positions, each once, and as many on one rank as on another, give or take one. */
static void places(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        const struct sgrad__partition *p = &cases[c];
        int64_t held[MOST] = { 0 }, all = 0;
        for (int64_t i = 0; i < p->count; i++) {
            struct sgrad__place at = sgrad__partition_place(p, i);
            assert_in_range(at.rank, 0, p->ranks - 1);
            assert_int_equal(at.slot, held[at.rank]++);     /* in the order of positions, none left out */
            assert_int_equal(sgrad__partition_position(p, at), i);
        }
        for (int r = 0; r < p->ranks; r++) {
            assert_int_equal(held[r], sgrad__partition_slots(p, r));
            assert_in_range(held[r], p->count / p->ranks, p->count / p->ranks + 1);
            all += held[r];
        }
        assert_int_equal(all, p->count);
    }
}

/* A step's batch is cut into shares in the order of ranks, as the training loop does it. */
static void shares(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        const struct sgrad__partition *p = &cases[c];
        const int64_t share = p->batch / p->ranks;
        for (int64_t step = 0; step < p->count / p->batch; step++)
            for (int r = 0; r < p->ranks; r++)
                for (int64_t i = 0; i < share; i++) {
                    struct sgrad__place at = sgrad__partition_place(p, step * p->batch + r * share + i);
                    assert_int_equal(at.rank, r);
                    assert_int_equal(at.slot, step * share + i);
                }
    }
}

/* What each rank holds, as the number of the sample in each slot. */
static void deal(const struct sgrad__partition *partition, struct sgrad__sampler *order, uint32_t epoch, int64_t *held[MOST]) {
    for (int r = 0; r < partition->ranks; r++) held[r] = sgrad_xcalloc((size_t)partition->count, sizeof *held[r]);
    for (int64_t i = 0; order && i < partition->count; i++) {
        struct sgrad__place at = sgrad__partition_place(partition, i);
        held[at.rank][at.slot] = sgrad__sampler_index(order, epoch, i);
    }
    for (int r = 0; r < partition->ranks && !order; r++)
        for (int64_t i = 0; i < partition->count; i++) held[r][i] = -1;
}

static void carry_out(const struct sgrad__exchange *exchange, int ranks, int64_t *before[MOST], int64_t *after[MOST]) {
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++) {
            const struct sgrad__slots *out = &exchange[from].out[to], *in = &exchange[to].in[from];
            assert_int_equal(out->count, in->count);
            assert_int_equal(exchange[from].longest, exchange[to].longest);
            assert_in_range(out->count, 0, exchange[from].longest);
            for (int64_t i = 0; i < out->count; i++) {
                assert_int_equal(after[to][in->slot[i]], -1);       /* no slot is written twice */
                after[to][in->slot[i]] = before[from][out->slot[i]];
            }
        }
}

/* Epoch after epoch of messages leaves every rank with what the permutation says: nothing is lost, nothing is there twice. */
static void exchanges(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++) {
        const struct sgrad__partition *p = &cases[c];
        struct sgrad__sampler order = { .seed = 1, .count = p->count, .shuffle = true };
        struct sgrad__exchange x[MOST];
        int64_t *held[MOST], *after[MOST], *expected[MOST];
        deal(p, &order, 0, held);
        for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
            for (int r = 0; r < p->ranks; r++) x[r] = sgrad__exchange_plan(p, &order, epoch, r);
            deal(p, NULL, 0, after);
            carry_out(x, p->ranks, held, after);
            deal(p, &order, epoch + 1, expected);
            for (int r = 0; r < p->ranks; r++) {
                assert_memory_equal(after[r], expected[r], (size_t)sgrad__partition_slots(p, r) * sizeof **after);
                free(held[r]);
                free(expected[r]);
                held[r] = after[r];
                sgrad__exchange_free(&x[r]);
            }
        }
        for (int r = 0; r < p->ranks; r++) free(held[r]);
        sgrad__sampler_close(&order);
    }
}

static void files(void **state) {
    (void)state;
    for (int c = 0; c < CASES; c++)
        for (int r = 0; r < cases[c].ranks; r++) {
            struct sgrad__exchange x = sgrad__exchange_of_files(&cases[c], r);
            assert_int_equal(x.in[r].count, sgrad__partition_slots(&cases[c], r));
            for (int64_t i = 0; i < x.in[r].count; i++) assert_int_equal(x.in[r].slot[i], i);
            sgrad__exchange_free(&x);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("every sample of a partition is on one rank", places),
        sentence("a rank has the samples of its part of each batch", shares),
        sentence("exchanges between epochs give every rank the samples of the next epoch", exchanges),
        sentence("ranks that read files exchange nothing but their own samples", files),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
