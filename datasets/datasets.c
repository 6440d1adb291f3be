/* datasets.c: what is the same for every kind of data set. */
#include "config.h"

#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SGRAD_READER(name) extern const struct sgrad_reader sgrad_##name##_reader;
#include "datasets/datasets.def"
#undef SGRAD_READER
const struct sgrad_reader *const sgrad_readers[] = {
#define SGRAD_READER(name) &sgrad_##name##_reader,
#include "datasets/datasets.def"
#undef SGRAD_READER
    NULL,
};

const struct sgrad_reader *sgrad_reader_find(const char *name) {
    for (int i = 0; sgrad_readers[i]; i++)
        if (!strcmp(sgrad_readers[i]->name, name)) return sgrad_readers[i];
    return NULL;
}

static int unknown_kind(const char *kind) {
    const char *names[sizeof sgrad_readers / sizeof *sgrad_readers] = { NULL };
    for (int i = 0; sgrad_readers[i]; i++) names[i] = sgrad_readers[i]->name;
    const char *nearest = sgrad_nearest(kind, names);
    if (nearest) return sgrad_fail(SGRAD_ENAME, "no kind of data set is called %s: did you mean %s?", kind, nearest);
    return sgrad_fail(SGRAD_ENAME, "no kind of data set is called %s: `stargrad list datasets` names them", kind);
}

static int find_reader(const char *kind, const char *argument, const struct sgrad_reader **reader) {
    const struct sgrad_reader *found = sgrad_reader_find(kind);
    if (!found) return unknown_kind(kind);
    if (found->argument && !argument)
        return sgrad_fail(SGRAD_EINVAL, "data set %s: its argument is missing: %s:%s", kind, kind, found->argument);
    if (!found->argument && argument) return sgrad_fail(SGRAD_EINVAL, "data set %s: takes no argument", kind);
    *reader = found;
    return 0;
}

int sgrad_dataset_open(const char *text, enum sgrad_split split, const struct sgrad_dataset_options *options,
                       struct sgrad_dataset **dataset) {
    const struct sgrad_reader *reader = NULL;
    const char *colon = strchr(text, ':');
    char *kind = sgrad_format("%.*s", (int)(colon ? colon - text : (ptrdiff_t)strlen(text)), text);
    const char *argument = colon && colon[1] ? colon + 1 : NULL;
    int error = find_reader(kind, argument, &reader);
    free(kind);
    SGRAD_TRY(error);

    struct sgrad_dataset *opened = sgrad_alloc(1, sizeof *opened);
    opened->reader = reader;
    opened->split = split;
    error = reader->open(opened, argument, options ? options : &(struct sgrad_dataset_options){ 0 });
    if (error) {
        sgrad_dataset_close(opened);
        return error;
    }
    assert(opened->count > 0 && opened->classes > 0 && opened->channels <= SGRAD_DATASET_CHANNELS && opened->label);
    assert(opened->pixels || reader->read);
    *dataset = opened;
    return 0;
}

void sgrad_dataset_close(struct sgrad_dataset *dataset) {
    if (!dataset) return;
    if (dataset->reader->close && dataset->state) dataset->reader->close(dataset);
    sgrad_dataset_release(dataset);
    free(dataset);
}

void sgrad_dataset_release(struct sgrad_dataset *dataset) {
    free((void *)dataset->label);
    free((void *)dataset->pixels);
    dataset->label = NULL;
    dataset->pixels = NULL;
}

static size_t sample_bytes(const struct sgrad_dataset *dataset) {
    return (size_t)dataset->height * (size_t)dataset->width * (size_t)dataset->channels;
}

int sgrad_dataset_read(const struct sgrad_dataset *dataset, const int64_t *index, int n, uint8_t *pixels, int32_t *labels) {
    const size_t size = sample_bytes(dataset);
    for (int i = 0; i < n; i++, pixels += size) {
        assert(index[i] >= 0 && index[i] < dataset->count);
        labels[i] = dataset->label[index[i]];
        if (dataset->pixels)
            memcpy(pixels, dataset->pixels + (size_t)index[i] * size, size);
        else
            SGRAD_TRY(dataset->reader->read(dataset, index[i], pixels));
    }
    return 0;
}

/* ---- statistics ------------------------------------------------------------------------------------------------ */

#define STRETCH 64 /* samples that a thread takes at a time */

struct tally {
    const struct sgrad_dataset *dataset;
    _Atomic int64_t next; /* sample that no thread has taken */
    int64_t end;
    _Atomic int error;
    _Atomic uint64_t sum[SGRAD_DATASET_CHANNELS], squares[SGRAD_DATASET_CHANNELS];
};

static void add_sample(const uint8_t *x, size_t size, int channels, uint64_t *sum, uint64_t *squares) {
    for (size_t i = 0; i < size; i += (size_t)channels)
        for (int c = 0; c < channels; c++) {
            sum[c] += x[i + (size_t)c];
            squares[c] += (uint32_t)x[i + (size_t)c] * x[i + (size_t)c];
        }
}

/* Whole numbers: their sum does not depend on which thread took what. */
static void *tally_samples(void *argument) {
    struct tally *tally = argument;
    const struct sgrad_dataset *dataset = tally->dataset;
    const size_t size = sample_bytes(dataset);
    uint8_t *decoded = dataset->pixels ? NULL : sgrad_alloc(1, size);
    uint64_t sum[SGRAD_DATASET_CHANNELS] = { 0 }, squares[SGRAD_DATASET_CHANNELS] = { 0 };
    for (int64_t from; !tally->error && (from = atomic_fetch_add(&tally->next, STRETCH)) < tally->end;)
        for (int64_t i = from; i < from + STRETCH && i < tally->end && !tally->error; i++) {
            int error = decoded ? dataset->reader->read(dataset, i, decoded) : 0;
            if (error)
                tally->error = error;
            else
                add_sample(decoded ? decoded : dataset->pixels + (size_t)i * size, size, dataset->channels, sum, squares);
        }
    for (int c = 0; c < dataset->channels; c++) {
        tally->sum[c] += sum[c];
        tally->squares[c] += squares[c];
    }
    free(decoded);
    return NULL;
}

int sgrad_dataset_sums(const struct sgrad_dataset *dataset, int64_t from, int64_t count, struct sgrad_dataset_sums *sums) {
    struct tally tally = { .dataset = dataset, .next = from, .end = from + count };
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t helper[64];
    int helpers = 0;
    assert(from >= 0 && count >= 0 && from + count <= dataset->count);
    while (helpers < 64 && helpers < cores - 1 && (int64_t)helpers * STRETCH < count - STRETCH) {
        if (pthread_create(&helper[helpers], NULL, tally_samples, &tally)) break;
        helpers++;
    }
    tally_samples(&tally);
    for (int i = 0; i < helpers; i++) pthread_join(helper[i], NULL);
    if (tally.error) return tally.error;
    for (int c = 0; c < SGRAD_DATASET_CHANNELS; c++) {
        sums->sum[c] = tally.sum[c];
        sums->squares[c] = tally.squares[c];
    }
    return 0;
}

void sgrad_dataset_moments(const struct sgrad_dataset *dataset, const struct sgrad_dataset_sums *sums, double *mean, double *deviation) {
    const uint64_t n = (uint64_t)dataset->count * (uint64_t)dataset->height * (uint64_t)dataset->width;
    for (int c = 0; c < dataset->channels; c++) {
        /* n² variance = n Σx² − (Σx)², in whole numbers that need more than 64 bits. */
        const unsigned __int128 sum = sums->sum[c], variance = (unsigned __int128)n * sums->squares[c] - sum * sum;
        mean[c] = (double)sums->sum[c] / (double)n / dataset->full_scale;
        deviation[c] = variance ? sqrt((double)variance) / (double)n / dataset->full_scale : 1;
    }
}

int sgrad_dataset_statistics(const struct sgrad_dataset *dataset, double *mean, double *deviation) {
    struct sgrad_dataset_sums sums;
    SGRAD_TRY(sgrad_dataset_sums(dataset, 0, dataset->count, &sums));
    sgrad_dataset_moments(dataset, &sums, mean, deviation);
    return 0;
}

/* ---- fingerprint ----------------------------------------------------------------------------------------------- */

/* Eight bytes at a time: xor, multiply by an odd number (2^64 over the golden ratio), fold the high half down. */
static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

uint64_t sgrad__hash(uint64_t hash, const void *data, size_t size) {
    const unsigned char *byte = data;
    uint64_t word;
    size_t i = 0;
    for (; i + sizeof word <= size; i += sizeof word) {
        memcpy(&word, byte + i, sizeof word);
        hash = mix(hash, word);
    }
    word = 0;
    if (i < size) memcpy(&word, byte + i, size - i);
    return mix(mix(hash, word), size);
}

uint64_t sgrad_dataset_fingerprint(const struct sgrad_dataset *dataset) {
    const int64_t shape[] = { dataset->count, dataset->height, dataset->width, dataset->channels, dataset->classes };
    uint64_t hash = sgrad__hash(1, shape, sizeof shape);
    hash = sgrad__hash(hash, dataset->label, (size_t)dataset->count * sizeof *dataset->label);
    if (!dataset->pixels) return sgrad__hash(hash, &dataset->identity, sizeof dataset->identity);
    return sgrad__hash(hash, dataset->pixels, (size_t)dataset->count * sample_bytes(dataset));
}
