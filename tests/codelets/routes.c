/* routes.c: rows that are sent to the ranks of their experts and back. The kernels of dispatch and combine are called for each
 * rank, with the shards of the others. Each row and its weights arrive once at each rank that has one of its experts, in order,
 * and nothing else arrives; the sum of the returned rows is the row times the number of these ranks. F32, BF16; 1 to 8 ranks. */
#include "codelets/ops/combine.h"
#include "codelets/ops/dispatch.h"
#include "codelets/ops/routes.h"
#include "runtime/partitions.h"
#include "tests/codelets/check.h"

enum { N = 2, T = 5, C = 7, OWN = 3, MOST = SGRAD_MAX_INPUTS, VALUES = N * MOST * T * MOST * OWN * 4 };

struct rank {
    char x[VALUES], routes[VALUES], value[VALUES], weights[VALUES], y[VALUES], dweights[VALUES];
    int32_t numbers[N * MOST], others[N * MOST];
    char shard[MOST][N * (SGRAD_LINE + T * MOST * OWN * 4)];
};
static struct rank rank[MOST];
static int ranks;
static enum sgrad_dtype type;

static struct sgrad_view view(int64_t rows, int64_t width) {
    return (struct sgrad_view){ type, { 3, { N, rows, width } } };
}

/* Calls the CPU kernel of TASK. FIRST: the index of the first shard, of rows of WIDTH elements; OWN: those of RANK, or of all. */
static void call(const struct sgrad_task *task, const void *attrs, int of, bool received, int64_t width, int first,
                 const struct sgrad_view *before, void *const *data, int count, uint64_t adds) {
    struct sgrad_view views[SGRAD_MAX_OPERANDS];
    void *all[SGRAD_MAX_OPERANDS] = { 0 };
    const int64_t bytes = SGRAD_LINE + T * width * (int64_t)sgrad_dtype_size(type);
    for (int i = 0, j = 0; i < count + MOST; i++) {
        const bool shard = i >= first && i < first + MOST, is = shard && i - first < ranks;
        views[i] = shard ? (struct sgrad_view){ SGRAD_U8, { is ? 2 : -1, { N, bytes } } } : before[j];
        all[i] = is ? received ? rank[i - first].shard[of] : rank[of].shard[i - first] : shard ? NULL : data[j];
        j += !shard;
    }
    task->kernel.cpu(&(struct sgrad_args){ .view = views, .data = all, .attrs = attrs, .accumulate = adds });
}

static float number(int i, int64_t at) { return (float)((i * 37 + at * 11) % 29) - 14; }

/* Row R of rank I has one of four patterns of experts; the last of them has no expert. */
static bool has(int i, int64_t r, int64_t e) {
    const int64_t experts = ranks * OWN;
    return r % 4 == 3 ? false : r % 4 == 2 ? true : e == (r * 5 + i * 3) % experts || e == (r * 7 + i) % experts;
}

static bool goes(int i, int64_t r, int to) {
    for (int64_t e = 0; e < OWN; e++)
        if (has(i, r, to * OWN + e)) return true;
    return false;
}

static void check_arrived(int to) {
    for (int64_t n = 0; n < N; n++)
        for (int i = 0; i < ranks; i++) {
            int count = 0;
            for (int64_t t = 0; t < T; t++) {
                const int64_t r = n * T + t, at = (n * ranks + i) * T + count;
                if (!goes(i, r, to)) continue;
                for (int64_t c = 0; c < C; c++)
                    assert_true(sgrad_get(type, rank[to].value, at * C + c) == number(i, r * C + c));
                for (int64_t e = 0; e < OWN; e++)
                    assert_true(sgrad_get(type, rank[to].weights, at * OWN + e) == (has(i, r, to * OWN + e) ? 0.5f : 0));
                count++;
            }
            assert_int_equal(rank[to].numbers[n * ranks + i], count);
            for (int64_t at = ((n * ranks + i) * T + count) * OWN; at < ((n * ranks + i) * T + T) * OWN; at++)
                assert_true(sgrad_get(type, rank[to].weights, at) == 0);
        }
}

/* Each row of Y was ADDED before. */
static void check_returned(int i, bool add) {
    for (int64_t r = 0; r < N * T; r++) {
        int count = add;
        for (int to = 0; to < ranks; to++) count += goes(i, r, to);
        for (int64_t c = 0; c < C; c++)
            assert_true(sgrad_get(type, rank[i].y, r * C + c) == (float)count * number(i, r * C + c));
        for (int64_t e = 0; e < ranks * OWN; e++)
            assert_true(sgrad_get(type, rank[i].dweights, r * ranks * OWN + e) == (has(i, r, e) ? 0.5f : 0));
    }
}

static void send_and_return(bool add) {
    const struct sgrad_dispatch rows = { .axis = "expert" }, columns = { .axis = "expert", .columns = true };
    const struct sgrad_op *out = &sgrad_dispatch_op, *back = &sgrad_combine_op;
    const struct sgrad_view x = view(T, C), routes = view(T, ranks * OWN), value = view(ranks * T, C), own = view(ranks * T, OWN);
    const struct sgrad_view numbers = { SGRAD_I32, { 2, { N, ranks } } };
    memset(rank, 0x5a, sizeof rank);
    for (int i = 0; i < ranks; i++) {
        for (int64_t at = 0; at < N * T * C; at++) {
            sgrad_put(type, rank[i].x, at, number(i, at));
            sgrad_put(type, rank[i].y, at, number(i, at));
        }
        for (int64_t at = 0; at < N * T * ranks * OWN; at++)
            sgrad_put(type, rank[i].routes, at, has(i, at / (ranks * OWN), at % (ranks * OWN)) ? 0.5f : 0);
    }
#define VIEWS(...) (const struct sgrad_view[]){ __VA_ARGS__ }
#define DATA(...) (void *const[]){ __VA_ARGS__ }
    for (int i = 0; i < ranks; i++)
        call(&out->forward[0], &columns, i, false, OWN, 2, VIEWS(routes, routes), DATA(rank[i].routes, rank[i].routes), 2, 0);
    for (int i = 0; i < ranks; i++)
        call(&out->forward[2], &columns, i, true, OWN, 0, VIEWS(own, numbers), DATA(rank[i].weights, rank[i].numbers), 2, 0);
    for (int i = 0; i < ranks; i++)
        call(&out->forward[0], &rows, i, false, C, 2, VIEWS(x, routes), DATA(rank[i].x, rank[i].routes), 2, 0);
    for (int i = 0; i < ranks; i++)
        call(&out->forward[2], &rows, i, true, C, 0, VIEWS(value, numbers), DATA(rank[i].value, rank[i].others), 2, 0);
    for (int i = 0; i < ranks; i++) check_arrived(i);
    for (int i = 0; i < ranks; i++)
        call(&back->forward[0], &rows, i, false, C, 2, VIEWS(value, own), DATA(rank[i].value, rank[i].weights), 2, 0);
    for (int i = 0; i < ranks; i++)
        call(&back->forward[2], &rows, i, true, C, 0, VIEWS(routes, x), DATA(rank[i].routes, rank[i].y), 2,
             add ? 1 << (MOST + 1) : 0);
    for (int i = 0; i < ranks; i++)
        call(&out->backward[0], &columns, i, false, OWN, 2, VIEWS(own, numbers), DATA(rank[i].weights, rank[i].numbers), 2, 0);
    for (int i = 0; i < ranks; i++)
        call(&out->backward[2], &columns, i, true, OWN, 0, VIEWS(routes, routes), DATA(rank[i].routes, rank[i].dweights), 2, 0);
    for (int i = 0; i < ranks; i++) check_returned(i, add);
}

static void all_rows(void **state) {
    (void)state;
    for (ranks = 1; ranks <= MOST; ranks++)
        for (int add = 0; add < 2; add++) {
            type = SGRAD_F32;
            send_and_return(add);
            type = SGRAD_BF16;
            send_and_return(add);
        }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = { sentence("rows reach the ranks of their experts and return", all_rows) };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
