/* statistics.c: passes over many samples: sums, mean and standard deviation, and a check that all of them can be read. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define STRETCH 64 /* number of samples that a thread takes at a time */

struct tally {
    const struct sgrad_dataset *dataset;
    bool adds;            /* sum up pixels; false: samples are only read */
    char **damaged;       /* (count): message if a sample is damaged; NULL: it is an error */
    _Atomic int64_t next; /* first sample that no thread has taken */
    int64_t end;          /* end of the range of samples */
    int64_t spread;       /* number of samples that are taken at equal distances of all; 0: consecutive samples are taken */
    _Atomic int error;
    _Atomic uint64_t sum[SGRAD_MAX_CHANNELS], squares[SGRAD_MAX_CHANNELS], more[SGRAD_MAX_CHANNELS];
};

static void add_bytes(const uint8_t *x, int64_t count, int channels, struct sgrad_dataset_sums *to) {
    for (int64_t i = 0; i < count; i += channels)
        for (int c = 0; c < channels; c++) {
            to->sum[c] += x[i + c];
            to->squares[c] += (uint32_t)x[i + c] * x[i + c];
        }
}

static void add_deep(const uint16_t *x, int64_t count, int channels, struct sgrad_dataset_sums *to) {
    for (int64_t i = 0; i < count; i += channels)
        for (int c = 0; c < channels; c++) {
            const uint32_t square = (uint32_t)x[i + c] * x[i + c];
            to->sum[c] += x[i + c];
            to->squares[c] += square & 65535;
            to->more[c] += square >> 16;
        }
}

static void add_sample(const struct sgrad_field *image, const void *data, int channels, struct sgrad_dataset_sums *to) {
    const int64_t count = sgrad_shape_count(&image->shape);
    if (image->dtype == SGRAD_U16) add_deep(data, count, channels, to);
    else add_bytes(data, count, channels, to);
}

static bool in_memory(const struct sgrad_dataset *dataset) {
    bool all = true;
    for (int f = 0; f < sgrad_dataset_own_fields(dataset); f++) all &= dataset->field[f].data != NULL;
    return all;
}

/* Reads sample I. If it cannot be read and tally->damaged is not NULL, stores the message there and returns 0. */
static int read_one(struct tally *tally, int64_t i, void *const *room) {
    const struct sgrad_sample sample = { .index = i };
    char reason[1024];
    if (!tally->damaged) return sgrad_dataset_load(tally->dataset, &sample, 1, NULL, room);
    sgrad_log_capture(reason, sizeof reason);
    const int error = sgrad_dataset_read(tally->dataset, &sample, 1, room);
    sgrad_log_capture(NULL, 0);
    if (!error && *reason) sgrad_log_warning("%s", reason);
    if (error == SGRAD_EIO || error == SGRAD_EFORMAT) return tally->damaged[i] = sgrad_format("%s", reason), 0;
    return error ? sgrad_log_error(error, "%s", reason) : 0;
}

/* The function of a thread. Sums are integers, so they do not depend on the distribution of samples over threads. */
static void *tally_samples(void *argument) {
    struct tally *tally = argument;
    const struct sgrad_dataset *dataset = tally->dataset;
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    const size_t size = image ? sgrad_field_bytes(image) : 0;
    const int channels = sgrad_dataset_channels(dataset);
    const bool reads = !in_memory(dataset);
    void *room[SGRAD_MAX_FIELDS] = { NULL };
    for (int f = 0; dataset->field[f].name; f++) room[f] = sgrad_xcalloc(1, sgrad_field_bytes(&dataset->field[f]));
    struct sgrad_dataset_sums sums = { { 0 }, { 0 }, { 0 } };
    for (int64_t from; !tally->error && (from = atomic_fetch_add(&tally->next, STRETCH)) < tally->end;)
        for (int64_t n = from; n < from + STRETCH && n < tally->end && !tally->error; n++) {
            const int64_t i = tally->spread ? n * dataset->count / tally->spread : n;
            int error = reads ? read_one(tally, i, room) : 0;
            if (error)
                tally->error = error;
            else if (tally->adds && image)
                add_sample(image, reads ? room[0] : (const char *)image->data + (size_t)i * size, channels, &sums);
        }
    for (int c = 0; c < channels; c++) {
        tally->sum[c] += sums.sum[c];
        tally->squares[c] += sums.squares[c];
        tally->more[c] += sums.more[c];
    }
    for (int f = 0; dataset->field[f].name; f++) free(room[f]);
    return NULL;
}

/* Processes COUNT samples from FROM on, with one thread per core. */
static int run(struct tally *tally, int64_t from, int64_t count) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t helper[64];
    int helpers = 0;
    assert(from >= 0 && count >= 0 && from + count <= tally->dataset->count);
    tally->next = from;
    tally->end = from + count;
    while (helpers < 64 && helpers < cores - 1 && (int64_t)helpers * STRETCH < count - STRETCH) {
        if (pthread_create(&helper[helpers], NULL, tally_samples, tally)) break;
        helpers++;
    }
    tally_samples(tally);
    for (int i = 0; i < helpers; i++) pthread_join(helper[i], NULL);
    return tally->error;
}

int sgrad_dataset_check(const struct sgrad_dataset *dataset, int64_t from, int64_t count) {
    struct tally tally = { .dataset = dataset };
    return in_memory(dataset) || dataset->reader->computes ? 0 : run(&tally, from, count);
}

int sgrad__dataset_find_damaged(const struct sgrad_dataset *dataset, char **reason) {
    struct tally tally = { .dataset = dataset, .damaged = reason };
    return in_memory(dataset) || dataset->reader->computes ? 0 : run(&tally, 0, dataset->count);
}

int64_t sgrad_dataset_measured(const struct sgrad_dataset *dataset) {
    const int64_t most = dataset->reader->computes ? SGRAD_MEASURED : dataset->reader->measures;
    return !most || in_memory(dataset) || dataset->count < most ? dataset->count : most;
}

int sgrad_dataset_sums(const struct sgrad_dataset *dataset, int64_t from, int64_t count, struct sgrad_dataset_sums *sums) {
    struct tally tally = { .dataset = dataset, .adds = true };
    if (dataset->reader->measures) tally.spread = sgrad_dataset_measured(dataset);
    if (!sgrad_dataset_image(dataset)) {
        *sums = (struct sgrad_dataset_sums){ { 0 }, { 0 }, { 0 } };
        return sgrad_dataset_check(dataset, from, count);
    }
    SGRAD_TRY(run(&tally, from, count));
    for (int c = 0; c < SGRAD_MAX_CHANNELS; c++) {
        sums->sum[c] = tally.sum[c];
        sums->squares[c] = tally.squares[c];
        sums->more[c] = tally.more[c];
    }
    return 0;
}

void sgrad_dataset_moments(const struct sgrad_dataset *dataset, const struct sgrad_dataset_sums *sums, double *mean,
                           double *deviation) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    const int64_t pixels = image ? sgrad_shape_count(&image->shape) / sgrad_field_plane(image)[2] : 0;
    const uint64_t n = (uint64_t)(sgrad_dataset_measured(dataset) * pixels);
    for (int c = 0; c < sgrad_dataset_channels(dataset); c++) {
        /* n² variance = n Σx² − (Σx)², in integers of more than 64 bits. */
        const unsigned __int128 sum = sums->sum[c], squares = ((unsigned __int128)sums->more[c] << 16) + sums->squares[c];
        const unsigned __int128 variance = n * squares - sum * sum;
        mean[c] = (double)sums->sum[c] / (double)n / dataset->full_scale;
        deviation[c] = variance ? sqrt((double)variance) / (double)n / dataset->full_scale : 1;
    }
}

int sgrad_dataset_statistics(const struct sgrad_dataset *dataset, double *mean, double *deviation) {
    struct sgrad_dataset_sums sums;
    SGRAD_TRY(sgrad_dataset_sums(dataset, 0, sgrad_dataset_measured(dataset), &sums));
    sgrad_dataset_moments(dataset, &sums, mean, deviation);
    return 0;
}
