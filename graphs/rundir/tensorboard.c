/* tensorboard.c: writes the values of a run to an event file for TensorBoard.
 *
 * A file is a sequence of records (TensorFlow's TFRecord: length, its checksum, data, its checksum; CRC-32C, masked). The data
 * are an Event of tensorflow/core/util/event.proto in protobuf's wire format:
 *
 *     Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; SessionLog session_log = 7; }
 *     SessionLog { SessionStatus status = 1; }     START = 1: readers discard earlier values of this step and of later ones
 *     Summary { repeated Value value = 1; }     Value { string tag = 1; float simple_value = 2; HistogramProto histo = 5; }
 *     HistogramProto { double min = 1, max = 2, num = 3, sum = 4, sum_squares = 5;
 *                      repeated double bucket_limit = 6, bucket = 7; }
 *
 * (Summary: tensorflow/core/framework/summary.proto; its repeated doubles are packed) */
#include "graphs/rundir/rundir.h"
#include "runtime/files/streams.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- protobuf ---- */

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };   /* wire types */
#define PREFIX "events.out.tfevents."
enum { LARGEST = 32 << 10 };                    /* bytes of the largest message: a histogram without empty buckets */

struct message {
    int size;
    unsigned char byte[LARGEST];
};

struct sgrad__tensorboard {
    char *path;
    FILE *file;
    uint32_t crc[256];          /* table of the checksum, by byte */
    /* nested messages, each contained in the next; rebuilt for each event */
    struct message histogram, value, summary, event;
};

static void put(struct message *message, const void *data, int size) {
    if (message->size + size > LARGEST) return;
    memcpy(message->byte + message->size, data, (size_t)size);
    message->size += size;
}

static void put_varint(struct message *message, uint64_t x) {
    for (; x >= 128; x >>= 7) put(message, &(unsigned char){ (unsigned char)(x | 128) }, 1);
    put(message, &(unsigned char){ (unsigned char)x }, 1);
}

static void put_key(struct message *message, int field, int type) { put_varint(message, (uint64_t)(field << 3 | type)); }

static void put_double(struct message *message, int field, double x) {
    put_key(message, field, FIXED64), put(message, &x, sizeof x);
}
static void put_float(struct message *message, int field, float x) {
    put_key(message, field, FIXED32), put(message, &x, sizeof x);
}
static void put_bytes(struct message *message, int field, const void *data, int size) {
    put_key(message, field, BYTES);
    put_varint(message, (uint64_t)size);
    put(message, data, size);
}

/* ---- records ---- */

static void make_table(uint32_t table[256]) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        table[byte] = byte;
        for (int bit = 0; bit < 8; bit++) table[byte] = table[byte] >> 1 ^ (table[byte] & 1 ? 0x82f63b78 : 0);
    }
}

/* CRC-32C (Castagnoli), then masked (rotated, and a constant added) as in TensorFlow. */
static uint32_t checksum(const uint32_t table[256], const void *data, size_t size) {
    const unsigned char *byte = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ byte[i]) & 255];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void write_event(struct sgrad__tensorboard *tensorboard, const struct message *event) {
    const uint64_t size = (uint64_t)event->size;
    const uint32_t of_size = checksum(tensorboard->crc, &size, sizeof size),
                   of_event = checksum(tensorboard->crc, event->byte, size);
    fwrite(&size, sizeof size, 1, tensorboard->file);
    fwrite(&of_size, sizeof of_size, 1, tensorboard->file);
    fwrite(event->byte, 1, size, tensorboard->file);
    fwrite(&of_event, sizeof of_event, 1, tensorboard->file);
}

static double wall_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the file ---- */

/* Returns the time for the name of a new file. Readers process files in the order of their names, so that it is later than
 * those of all files in FOLDER. */
static long time_of_file(const char *folder) {
    long latest = (long)time(NULL), is;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (sscanf(e->d_name, PREFIX "%ld", &is) == 1 && is >= latest && is < LONG_MAX) latest = is + 1;
    if (d) closedir(d);
    return latest;
}

/* Writes a SessionLog record: readers discard the values of earlier files from step FIRST on. */
static void write_start(struct sgrad__tensorboard *tensorboard, long first) {
    static const unsigned char start[] = { 1 << 3 | VARINT, 1 };
    tensorboard->event.size = 0;
    put_double(&tensorboard->event, 1, wall_time());
    put_key(&tensorboard->event, 2, VARINT);
    put_varint(&tensorboard->event, (uint64_t)first);
    put_bytes(&tensorboard->event, 7, start, sizeof start);
    write_event(tensorboard, &tensorboard->event);
}

int sgrad__tensorboard_open(const char *folder, long first, struct sgrad__tensorboard **tensorboard) {
    static const char version[] = "brain.Event:2";
    char host[64] = "localhost", *inside = sgrad_format("%s/tensorboard", folder);
    struct sgrad__tensorboard *t = sgrad_xcalloc(1, sizeof *t);
    gethostname(host, sizeof host - 1);
    t->path = sgrad_format("%s/" PREFIX "%010ld.%s.%ld", inside, time_of_file(inside), host, (long)getpid());
    const bool made = mkdir(inside, 0777) == 0 || errno == EEXIST;
    free(inside);
    if (!made || !(t->file = fopen(t->path, "wbe"))) {
        int error = sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", t->path, strerror(errno));
        sgrad__tensorboard_close(t);
        return error;
    }
    make_table(t->crc);
    put_double(&t->event, 1, wall_time());
    put_bytes(&t->event, 3, version, (int)strlen(version));
    write_event(t, &t->event);
    if (first) write_start(t, first);
    *tensorboard = t;
    return 0;
}

static void begin_value(struct sgrad__tensorboard *tensorboard, const char *name) {
    tensorboard->histogram.size = tensorboard->value.size = tensorboard->summary.size = tensorboard->event.size = 0;
    put_bytes(&tensorboard->value, 1, name, (int)strlen(name));
}

static void end_value(struct sgrad__tensorboard *tensorboard, long step) {
    put_bytes(&tensorboard->summary, 1, tensorboard->value.byte, tensorboard->value.size);
    put_double(&tensorboard->event, 1, wall_time());
    put_key(&tensorboard->event, 2, VARINT);
    put_varint(&tensorboard->event, (uint64_t)step);
    put_bytes(&tensorboard->event, 5, tensorboard->summary.byte, tensorboard->summary.size);
    write_event(tensorboard, &tensorboard->event);
}

void sgrad__tensorboard_tell(struct sgrad__tensorboard *tensorboard, const char *name, long step, double x) {
    if (!tensorboard) return;
    begin_value(tensorboard, name);
    put_float(&tensorboard->value, 2, (float)x);
    end_value(tensorboard, step);
}

void sgrad__tensorboard_histogram(struct sgrad__tensorboard *tensorboard, const char *name, long step,
                                  const struct sgrad_histogram *histogram) {
    const double *limit = sgrad_histogram_limits();
    double limits[SGRAD_HISTOGRAM_BUCKETS], counts[SGRAD_HISTOGRAM_BUCKETS];
    int buckets = 0;
    if (!tensorboard) return;
    for (int i = 0; i < SGRAD_HISTOGRAM_BUCKETS; i++) {     /* consecutive empty buckets are merged, as in TensorFlow */
        if (i == 0 || histogram->bucket[i] > 0 || histogram->bucket[i - 1] > 0) counts[buckets++] = histogram->bucket[i];
        limits[buckets - 1] = limit[i];
    }
    begin_value(tensorboard, name);
    put_double(&tensorboard->histogram, 1, histogram->min);
    put_double(&tensorboard->histogram, 2, histogram->max);
    put_double(&tensorboard->histogram, 3, histogram->count);
    put_double(&tensorboard->histogram, 4, histogram->sum);
    put_double(&tensorboard->histogram, 5, histogram->sum_squares);
    put_bytes(&tensorboard->histogram, 6, limits, buckets * (int)sizeof *limits);
    put_bytes(&tensorboard->histogram, 7, counts, buckets * (int)sizeof *counts);
    put_bytes(&tensorboard->value, 5, tensorboard->histogram.byte, tensorboard->histogram.size);
    end_value(tensorboard, step);
}

int sgrad__tensorboard_flush(struct sgrad__tensorboard *tensorboard) {
    const int lost = tensorboard ? sgrad_stream_error(tensorboard->file) : 0;
    return lost ? sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", tensorboard->path, strerror(lost)) : 0;
}

void sgrad__tensorboard_close(struct sgrad__tensorboard *tensorboard) {
    if (!tensorboard) return;
    if (tensorboard->file) fclose(tensorboard->file);
    free(tensorboard->path);
    free(tensorboard);
}
