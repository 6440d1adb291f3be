/* Orders of the sub-epochs of a search, and when candidates are stopped. */
#include "config.h"
#include "graphs/api/search.h"
#include "graphs/search/search.h"
#include "tests/asserts.h"

#include <math.h>
#include <stdlib.h>

static int width_of(const struct sgrad__sub_epochs_options *options, int model) {
    const int width = options->width ? options->width[model] : 1;
    return width < options->ranks ? width : options->ranks;
}

/* Does a sub-epoch take RANK? */
static bool takes(const struct sgrad__sub_epochs_options *options, const struct sgrad__sub_epoch *epoch, int rank) {
    const int width = width_of(options, epoch->model), first = sgrad__sub_epochs_rank(epoch->partition, options->ranks, width);
    assert_true(first % width == 0 && first + width <= options->ranks);
    return rank >= first && rank < first + width;
}

/* Hops between ranks that the sub-epochs ask for. */
static int hops(const struct sgrad__sub_epochs *epochs, int ranks) {
    int at[64], count = 0;
    for (int i = 0; i < 64; i++) at[i] = -1;
    for (int i = 0; i < epochs->count; i++) {
        const int rank = sgrad__sub_epochs_rank(epochs->sub_epoch[i].partition, ranks, 1);
        count += at[epochs->sub_epoch[i].model] >= 0 && at[epochs->sub_epoch[i].model] != rank;
        at[epochs->sub_epoch[i].model] = rank;
    }
    return count;
}

/* No rank has more models at once than slots, no model two ranks; every model sees every partition once in each epoch, and epochs
 * follow each other. */
static void check(const struct sgrad__sub_epochs *epochs, const struct sgrad__sub_epochs_options *options) {
    int seen[64][64] = { { 0 } }, sub_epochs[64] = { 0 };
    assert_int_equal(epochs->count, options->models * options->partitions * options->epochs);
    for (int i = 0; i < epochs->count; i++) {
        const struct sgrad__sub_epoch *a = &epochs->sub_epoch[i];
        assert_true(i == 0 || a->begin >= epochs->sub_epoch[i - 1].begin);
        assert_near(a->end - a->begin, options->cost ? options->cost[a->model] : 1, 1e-9);
        assert_int_equal(a->number, options->first_epoch * options->partitions + sub_epochs[a->model]);
        assert_int_equal(a->epoch, options->first_epoch + sub_epochs[a->model]++ / options->partitions);
        assert_int_equal(seen[a->model][a->partition]++, a->epoch - options->first_epoch);
        int before[64] = { 0 };             /* by rank: that it still has when A begins */
        for (int j = 0; j < i; j++) {
            const struct sgrad__sub_epoch *b = &epochs->sub_epoch[j];
            const bool together = a->begin < b->end - 1e-9;
            assert_false(together && a->model == b->model);
            for (int r = 0; r < options->ranks; r++) before[r] += together && takes(options, a, r) && takes(options, b, r);
        }
        for (int r = 0; r < options->ranks; r++) assert_true(before[r] < (options->slots ? options->slots : 1));
    }
}

static struct sgrad__sub_epochs plan(const char *name, const struct sgrad__sub_epochs_options *options) {
    struct sgrad__sub_epochs v = { 0 };
    assert_done(sgrad__sub_epochs_plan(name, options, &v));
    check(&v, options);
    return v;
}

static void ring(void **state) {
    (void)state;
    for (int k = 1; k <= 5; k++)
        for (int m = 1; m <= 11; m++)
            for (int e = 1; e <= 3; e++) {
                struct sgrad__sub_epochs v = plan("ring", &(struct sgrad__sub_epochs_options){ m, k, 0, e, k, NULL, 1, 1, NULL });
                assert_near(v.makespan, m >= k ? m * e + k - 1 : k * e + m - 1, 0);
                assert_int_equal(hops(&v, k), k > 1 ? m * (e * k - 1) : 0);
                sgrad__sub_epochs_free(&v);
            }
}

static void staggered(void **state) {
    (void)state;
    for (int k = 1; k <= 5; k++)
        for (int m = 1; m <= 11; m++)
            for (int e = 1; e <= 3; e++) {
                struct sgrad__sub_epochs v =
                    plan("staggered", &(struct sgrad__sub_epochs_options){ m, k, 4, e, k, NULL, 7, 1, NULL });
                if (m % k == 0) assert_near(v.makespan, m * e, 0);
                assert_true(v.makespan <= (m + k - 1) / k * k * e);
                assert_true(hops(&v, k) <= m * (e * k - 1));
                sgrad__sub_epochs_free(&v);
            }
}

/* The orders in which models meet partitions are many. */
static void staggered_starts_differ(void **state) {
    (void)state;
    struct sgrad__sub_epochs v = plan("staggered", &(struct sgrad__sub_epochs_options){ 4, 4, 0, 12, 4, NULL, 1, 1, NULL });
    int first[4] = { 0 };
    for (int i = 0; i < v.count; i++)
        if (v.sub_epoch[i].model == 0 && v.sub_epoch[i].number % 4 == 0) first[v.sub_epoch[i].partition]++;
    for (int p = 0; p < 4; p++) assert_in_range(first[p], 1, 8);
    sgrad__sub_epochs_free(&v);
}

/* No order is shorter than a rank's work, nor than a model's. */
static void open_shop(void **state) {
    (void)state;
    static const double cost[] = { 1, 0.5, 0.25, 0.25, 0.1, 0.1, 0.1, 0.7 };
    for (int k = 1; k <= 4; k++) {
        const struct sgrad__sub_epochs_options o = { 8, k, 0, 3, k, cost, 1, 1, NULL };
        struct sgrad__sub_epochs shop = plan("open-shop", &o), best = plan(NULL, &o);
        const double least = k > 3 ? 3.0 * k : 3 * 3.0;     /* the longest model's sub-epochs, a rank's sub-epochs */
        assert_true(shop.makespan >= least - 1e-9 && shop.makespan <= least + 2);
        assert_true(best.makespan <= shop.makespan + 1e-9);
        sgrad__sub_epochs_free(&shop);
        sgrad__sub_epochs_free(&best);
    }
}

/* Four partitions on two ranks, and on one. */
static void fewer_ranks(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int t = 0; sgrad__sub_epoch_orders[t].name; t++) {
            const struct sgrad__sub_epochs_options o = { 5, 4, 0, 2, ranks, NULL, 3, 1, NULL };
            struct sgrad__sub_epochs v = plan(sgrad__sub_epoch_orders[t].name, &o);
            assert_true(v.makespan >= 40.0 / ranks);
            sgrad__sub_epochs_free(&v);
        }
}

/* Three models side by side on each rank: a third of the slots, or little more. */
static void side_by_side(void **state) {
    (void)state;
    for (int t = 0; sgrad__sub_epoch_orders[t].name; t++) {
        struct sgrad__sub_epochs_options o = { 6, 2, 0, 2, 2, NULL, 3, 3, NULL };
        struct sgrad__sub_epochs v = plan(sgrad__sub_epoch_orders[t].name, &o);
        assert_true(v.makespan >= 6 * 2 * 2 / (2 * 3.0) && v.makespan <= 6);
        sgrad__sub_epochs_free(&v);
    }
}

/* Models that take two ranks at once, or four, beside others that take one: no rank is in two places. */
static void several_ranks_at_once(void **state) {
    (void)state;
    static const int width[] = { 2, 1, 1, 4, 2, 1 };
    static const double cost[] = { 1, 0.5, 0.5, 0.75, 1, 0.25 };
    for (int ranks = 1; ranks <= 9; ranks++)
        for (int slots = 1; slots <= 2; slots++)
            for (int t = 0; sgrad__sub_epoch_orders[t].name; t++) {
                struct sgrad__sub_epochs_options o = { 6, ranks, 0, 2, ranks, cost, 3, slots, width };
                struct sgrad__sub_epochs v = plan(sgrad__sub_epoch_orders[t].name, &o);
                double work = 0;
                for (int i = 0; i < v.count; i++) work += cost[v.sub_epoch[i].model] * width_of(&o, v.sub_epoch[i].model);
                assert_true(v.makespan >= work / (ranks * slots) - 1e-9);
                sgrad__sub_epochs_free(&v);
            }
    const struct sgrad__sub_epochs_options o = { 2, 4, 0, 3, 4, NULL, 1, 1, (int[]){ 2, 2 } };
    struct sgrad__sub_epochs v = plan("staggered", &o);
    assert_true(v.makespan <= 2 * 4 * 3);
    sgrad__sub_epochs_free(&v);
}

static void same_seed_same_order(void **state) {
    (void)state;
    for (int t = 0; sgrad__sub_epoch_orders[t].name; t++) {
        const struct sgrad__sub_epochs_options o = { 6, 3, 0, 3, 3, NULL, 3, 1, NULL };
        struct sgrad__sub_epochs a = plan(sgrad__sub_epoch_orders[t].name, &o), b = plan(sgrad__sub_epoch_orders[t].name, &o);
        for (int i = 0; i < a.count; i++)
            assert_true(a.sub_epoch[i].model == b.sub_epoch[i].model && a.sub_epoch[i].partition == b.sub_epoch[i].partition);
        sgrad__sub_epochs_free(&a);
        sgrad__sub_epochs_free(&b);
    }
    struct sgrad__sub_epochs none;
    const struct sgrad__sub_epochs_options one = { 1, 1, 0, 1, 1, NULL, 1, 1, NULL };
    assert_int_equal(sgrad__sub_epochs_plan("rign", &one, &none), SGRAD_ENAME);
}

/* ---- stopping ---- */

static void halving(void **state) {
    (void)state;
    const struct sgrad_stop stop = { .rule = "halving", .first = 1, .factor = 3 };
    assert_int_equal(sgrad__stop_next(&stop, 0, 20), 1);
    assert_int_equal(sgrad__stop_next(&stop, 1, 20), 3);
    assert_int_equal(sgrad__stop_next(&stop, 3, 20), 9);
    assert_int_equal(sgrad__stop_next(&stop, 9, 20), 20);
    const double value[] = { 0.5, 0.9, -INFINITY, 0.9, 0.1, 0.3, 0.2 };
    const bool stops[] = { false, false, true, false, true, true, true };       /* 3 of 7 stay, and of equal ones the first */
    struct sgrad__score score[7];
    for (int i = 0; i < 7; i++) score[i].value = &value[i];
    sgrad__stop_decide(&stop, 1, score, 7);
    for (int i = 0; i < 7; i++) assert_int_equal(score[i].stops, stops[i]);
}

static void median(void **state) {
    (void)state;
    const struct sgrad_stop stop = { .rule = "median", .first = 2 };
    assert_int_equal(sgrad__stop_next(&stop, 0, 4), 2);
    assert_int_equal(sgrad__stop_next(&stop, 2, 4), 3);
    assert_int_equal(sgrad__stop_next(&stop, 3, 4), 4);
    const double value[4][2] = { { 0.1, 0.9 }, { 0.6, 0.4 }, { 0.4, 0.4 }, { -INFINITY, 0.2 } };    /* means 0.5 0.5 0.4 */
    const bool stops[] = { false, false, true, true };
    struct sgrad__score score[4];
    for (int i = 0; i < 4; i++) score[i].value = value[i];
    sgrad__stop_decide(&stop, 2, score, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(score[i].stops, stops[i]);
}

static void none(void **state) {
    (void)state;
    const struct sgrad_stop stop = { 0 };
    const double value = 1;
    struct sgrad__score score = { .value = &value };
    assert_int_equal(sgrad__stop_next(&stop, 0, 7), 7);
    sgrad__stop_decide(&stop, 1, &score, 1);
    assert_false(score.stops);
    assert_int_equal(sgrad__stop_check(&(struct sgrad_stop){ .rule = "havling" }), SGRAD_ENAME);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a ring of visits takes the least time, and moves each model once a visit", ring),
        sentence("staggered visits keep every rank busy", staggered),
        sentence("staggered visits begin at every partition", staggered_starts_differ),
        sentence("an open-shop order is nearly as short as it can be", open_shop),
        sentence("fewer ranks than partitions visit all of them", fewer_ranks),
        sentence("several models train side by side on one rank", side_by_side),
        sentence("models that need several ranks at once share no rank", several_ranks_at_once),
        sentence("the same seed gives the same order of visits", same_seed_same_order),
        sentence("halving keeps the best third of the candidates", halving),
        sentence("the median rule stops candidates below the median", median),
        sentence("no rule stops no candidate, and an unknown rule is refused", none),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
