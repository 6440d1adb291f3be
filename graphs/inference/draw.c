/* draw.c: chooses the next token of a text: draw.h. */
#include "graphs/inference/draw.h"
#include "runtime/philox.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

static void penalize(double penalty, float *logit, int64_t classes, const int32_t *text, int64_t count) {
    bool *seen = sgrad_xcalloc((size_t)classes, sizeof *seen);
    for (int64_t i = 0; i < count; i++) {
        float *x = &logit[text[i]];
        if (!seen[text[i]]) *x = (float)(*x > 0 ? *x / penalty : *x * penalty);
        seen[text[i]] = true;
    }
    free(seen);
}

static int descending(const void *one, const void *other) {
    const float a = *(const float *)one, b = *(const float *)other;
    return (a < b) - (a > b);
}

/* Returns the K-th largest of COUNT numbers, which are permuted. C. A. R. Hoare, Algorithm 65: Find, 1961. */
static float find_largest(float *x, int64_t count, int64_t k) {
    for (int64_t first = 0, last = count - 1;;) {
        const float pivot = x[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (x[i] > pivot) i++;
            while (x[j] < pivot) j--;
            if (i > j) break;
            const float t = x[i];
            x[i++] = x[j];
            x[j--] = t;
        }
        if (k - 1 <= j)
            last = j;
        else if (k - 1 >= i)
            first = i;
        else
            return x[k - 1];
    }
}

/* Returns the smallest logit of the most probable tokens that together have at least P of the probability of all tokens from
 * LEAST on. ROOM: of CLASSES numbers. */
static float find_nucleus(const float *logit, int64_t classes, float least, float max, double temperature, double p,
                          float *room) {
    double total = 0, sum = 0;
    int64_t count = 0, last = 0;
    for (int64_t i = 0; i < classes; i++)
        if (logit[i] >= least) total += exp((logit[i] - max) / temperature);
    /* tokens that are so improbable that all of them together are not needed */
    for (int64_t i = 0; i < classes; i++)
        if (logit[i] >= least && exp((logit[i] - max) / temperature) * (double)classes >= (1 - p) * total)
            room[count++] = logit[i];
    qsort(room, (size_t)count, sizeof *room, descending);
    while (last < count && sum < p * total) sum += exp((room[last++] - max) / temperature);
    return room[last > 0 ? last - 1 : 0];
}

int sgrad__draw_token(const struct sgrad_sample_options *how, float *logit, int64_t classes, const int32_t *text, int64_t count,
                      uint64_t seed, int number) {
    if (how->repetition_penalty > 0 && how->repetition_penalty != 1)
        penalize(how->repetition_penalty, logit, classes, text, count);
    float max = -INFINITY, least = -INFINITY;
    int most = -1;
    for (int64_t i = 0; i < classes; i++) {
        if (logit[i] != logit[i]) return -1;
        if (logit[i] > max) max = logit[i], most = (int)i;
    }
    if (how->temperature == 0 || most < 0 || max == INFINITY) return max == INFINITY ? -1 : most;
    float *room = sgrad_xcalloc((size_t)classes, sizeof *room);
    if (how->top_k && how->top_k < classes) {
        for (int64_t i = 0; i < classes; i++) room[i] = logit[i];
        least = find_largest(room, classes, how->top_k);
    }
    if (how->top_p > 0 && how->top_p < 1) least = find_nucleus(logit, classes, least, max, how->temperature, how->top_p, room);
    free(room);
    double total = 0;
    for (int64_t i = 0; i < classes; i++)
        if (logit[i] >= least) total += exp((logit[i] - max) / how->temperature);
    const struct sgrad_random r = sgrad_philox(seed, SGRAD_STREAM_TOKEN, 0, (uint64_t)(count - 1), (uint32_t)number);
    double left = total * ((double)r.word[0] + 0.5) * 0x1p-32;
    int drawn = most;
    for (int64_t i = 0; i < classes && left >= 0; i++) {
        if (logit[i] < least) continue;
        drawn = (int)i;
        left -= exp((logit[i] - max) / how->temperature);
    }
    return drawn;
}
