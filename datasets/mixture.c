/* mixture.c: the sources of a mixture, such as tokens:A*0.7,B*0.3. An epoch has as many positions as there are samples in all
 * sources together. Each source gets its share of them, its quota, whatever the number of its samples:
 *
 *     source   weight   samples   quota    epoch 0          epoch 1            epoch 2
 *     A        0.7      4         7        A0…A3 A0…A2      A3 A0…A3 A0 A1     …         a source with too few repeats
 *     B        0.3      6         3        B0 B1 B2         B3 B4 B5           B0 …      one with too many continues
 *
 * Here without a random order; otherwise every pass over a source has another one (sampler.c). */
#include "config.h"
#include "datasets/mixture.h"

#include <stdlib.h>
#include <string.h>

/* The method of largest remainders: TOTAL times the weight, rounded down; the rest goes to the largest fractions, the first ones
 * if they are equal. */
static void set_quotas(struct sgrad_dataset *dataset) {
    const int64_t total = dataset->count;
    int64_t rest = total;
    double weights = 0;
    for (int s = 0; s < dataset->sources; s++)
        if (dataset->source[s].count) weights += dataset->source[s].weight;
    double *fraction = sgrad_xcalloc((size_t)dataset->sources, sizeof *fraction);
    for (int s = 0; s < dataset->sources; s++) {
        struct sgrad_source *source = &dataset->source[s];
        const double exact = source->count ? (double)total * (source->weight / weights) : 0;
        source->quota = (int64_t)exact < rest ? (int64_t)exact : rest;
        fraction[s] = source->count ? exact - (double)source->quota : -1;
        rest -= source->quota;
    }
    for (; rest > 0; rest--) {
        int most = 0;
        for (int s = 1; s < dataset->sources; s++)
            if (fraction[s] > fraction[most]) most = s;
        dataset->source[most].quota++;
        fraction[most] -= 1;
    }
    free(fraction);
}

void sgrad__mixture_create(struct sgrad_dataset *dataset, int sources, const char *const *name, const double *weight,
                           const int64_t *samples) {
    double sum = 0;
    int64_t first = 0;
    dataset->sources = sources;
    dataset->source = sgrad_xcalloc((size_t)sources, sizeof *dataset->source);
    for (int s = 0; s < sources; s++) sum += weight[s];
    for (int s = 0; s < sources; first += samples[s++])
        dataset->source[s] = (struct sgrad_source){ sgrad_format("%s", name[s]), weight[s] / sum, first, samples[s], 0 };
    set_quotas(dataset);
}

void sgrad__mixture_leave_out(struct sgrad_dataset *dataset, const int64_t *which, int64_t kept) {
    int64_t i = 0;
    if (!dataset->sources) return;
    for (int s = 0; s < dataset->sources; s++) {
        struct sgrad_source *source = &dataset->source[s];
        const int64_t first = i, end = source->first + source->count;
        while (i < kept && which[i] < end) i++;
        source->first = first;
        source->count = i - first;
    }
    dataset->count = kept;
    set_quotas(dataset);
}

void sgrad__mixture_free(struct sgrad_dataset *dataset) {
    for (int s = 0; s < dataset->sources; s++) free(dataset->source[s].name);
    free(dataset->source);
    dataset->source = NULL;
    dataset->sources = 0;
}
