/* split.c: draws a test split from the training samples of a data set without one. Each class is divided by the same fraction:
 *
 *     class      samples    share of 7    held out
 *     cat             50           3.5           4     the shares are rounded down;
 *     dog             30           2.1           2     those with the largest remainders are rounded up
 *     owl             20           1.4           1
 *
 * These are the numbers of scikit-learn's train_test_split(stratify=…). Which samples of a class are held out depends on the seed
 * and on their index. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "runtime/philox.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

struct ranked {
    double remainder;
    uint64_t chance;
    int64_t index;      /* of a class, or of a sample */
};

/* Sorts by remainder, largest first, then by chance and index. */
static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->remainder != y->remainder) return x->remainder < y->remainder ? 1 : -1;
    if (x->chance != y->chance) return x->chance < y->chance ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Divides TOTAL samples among the classes, of which class c has SIZE[c] samples. Sets SHARE[c]. */
static void divide(const int64_t *size, int classes, int64_t count, int64_t total, int64_t *share) {
    struct ranked *rank = sgrad_xcalloc((size_t)classes, sizeof *rank);
    int64_t left = total;
    for (int c = 0; c < classes; c++) {
        const double exact = (double)size[c] * (double)total / (double)count;
        share[c] = sgrad_clamp((int64_t)exact, 0, size[c] > 0 ? size[c] - 1 : 0);
        rank[c] = (struct ranked){ .remainder = exact - (double)share[c], .index = c };
        left -= share[c];
    }
    qsort(rank, (size_t)classes, sizeof *rank, by_rank);
    for (bool more = true; left > 0 && more;) {
        more = false;
        for (int i = 0; i < classes && left > 0; i++)
            if (share[rank[i].index] + 1 < size[rank[i].index]) share[rank[i].index]++, left--, more = true;
    }
    free(rank);
}

int64_t sgrad__split_draw(const int32_t *label, int classes, int64_t count, double fraction, uint64_t seed, bool *held_out) {
    const int groups = label ? classes : 1;
    int64_t *size = sgrad_xcalloc((size_t)groups, sizeof *size), *share = sgrad_xcalloc((size_t)groups, sizeof *share), all = 0;
    struct ranked *rank = sgrad_xcalloc((size_t)count, sizeof *rank);
    for (int64_t i = 0; i < count; i++) {
        const struct sgrad_random random = sgrad_philox(seed, SGRAD_STREAM_SPLIT, 0, (uint64_t)i, 0);
        rank[i] = (struct ranked){ .chance = (uint64_t)random.word[0] << 32 | random.word[1], .index = i };
        size[label ? label[i] : 0]++;
        held_out[i] = false;
    }
    divide(size, groups, count, (int64_t)ceil(fraction * (double)count - 1e-9), share);
    qsort(rank, (size_t)count, sizeof *rank, by_rank);
    for (int64_t i = 0; i < count; i++) {
        int64_t *left = &share[label ? label[rank[i].index] : 0];
        if (*left > 0) --*left, all++, held_out[rank[i].index] = true;
    }
    free(size);
    free(share);
    free(rank);
    return all;
}

int sgrad__split_refuse(const char *where, int64_t count) {
    return sgrad_log_error(SGRAD_EINVAL, "%s: --split requires a class with two training samples, but there %s %lld %s", where,
                           sgrad_plural(count, "is", "are"), (long long)count, sgrad_plural(count, "sample", "samples"));
}

int sgrad__split_hold_out(struct sgrad_dataset *dataset, const char *path, const struct sgrad_dataset_options *options) {
    bool *out = sgrad_xcalloc((size_t)dataset->count, sizeof *out);
    dataset->held_out = sgrad__split_draw(dataset->field[1].data, dataset->classes, dataset->count, options->split, options->seed,
                                          out);
    for (int64_t i = 0; i < dataset->count && dataset->split == SGRAD_TEST; i++) out[i] = !out[i];
    char *where = sgrad_format("%s: %s", dataset->reader->name, path);
    const int error = dataset->held_out ? 0 : sgrad__split_refuse(where, dataset->count);
    if (!error) sgrad__dataset_leave_out(dataset, out);
    free(where);
    free(out);
    return error;
}

struct sgrad__part sgrad__part_choose(bool test, const struct sgrad_dataset_options *options,
                                      bool (*has)(const void *of, const char *part), const void *of) {
    const bool has_train = has(of, "train"), has_val = has(of, "val");
    const bool divides = options->whole ? !has(of, "test") : options->split > 0;
    struct sgrad__part part = { "train", has_train, divides && !has_val && has_train && !(test && options->third) };
    if (test && !part.holds_out) part.name = options->third || (!has_val && has(of, "test")) ? "test" : "val";
    return part;
}
