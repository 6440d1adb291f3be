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

static void put(struct message *m, const void *data, int size) {
    if (m->size + size > LARGEST) return;
    memcpy(m->byte + m->size, data, (size_t)size);
    m->size += size;
}

static void put_varint(struct message *m, uint64_t x) {
    for (; x >= 128; x >>= 7) put(m, &(unsigned char){ (unsigned char)(x | 128) }, 1);
    put(m, &(unsigned char){ (unsigned char)x }, 1);
}

static void put_key(struct message *m, int field, int type) { put_varint(m, (uint64_t)(field << 3 | type)); }

static void put_double(struct message *m, int field, double x) { put_key(m, field, FIXED64), put(m, &x, sizeof x); }
static void put_float(struct message *m, int field, float x) { put_key(m, field, FIXED32), put(m, &x, sizeof x); }
static void put_bytes(struct message *m, int field, const void *data, int size) {
    put_key(m, field, BYTES);
    put_varint(m, (uint64_t)size);
    put(m, data, size);
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

static void write_event(struct sgrad__tensorboard *t, const struct message *event) {
    const uint64_t size = (uint64_t)event->size;
    const uint32_t of_size = checksum(t->crc, &size, sizeof size), of_event = checksum(t->crc, event->byte, size);
    fwrite(&size, sizeof size, 1, t->file);
    fwrite(&of_size, sizeof of_size, 1, t->file);
    fwrite(event->byte, 1, size, t->file);
    fwrite(&of_event, sizeof of_event, 1, t->file);
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
static void write_start(struct sgrad__tensorboard *t, long first) {
    static const unsigned char start[] = { 1 << 3 | VARINT, 1 };
    t->event.size = 0;
    put_double(&t->event, 1, wall_time());
    put_key(&t->event, 2, VARINT);
    put_varint(&t->event, (uint64_t)first);
    put_bytes(&t->event, 7, start, sizeof start);
    write_event(t, &t->event);
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
        int error = sgrad_log_error(SGRAD_EIO, "%s: %s", t->path, strerror(errno));
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

static void begin_value(struct sgrad__tensorboard *t, const char *name) {
    t->histogram.size = t->value.size = t->summary.size = t->event.size = 0;
    put_bytes(&t->value, 1, name, (int)strlen(name));
}

static void end_value(struct sgrad__tensorboard *t, long step) {
    put_bytes(&t->summary, 1, t->value.byte, t->value.size);
    put_double(&t->event, 1, wall_time());
    put_key(&t->event, 2, VARINT);
    put_varint(&t->event, (uint64_t)step);
    put_bytes(&t->event, 5, t->summary.byte, t->summary.size);
    write_event(t, &t->event);
}

void sgrad__tensorboard_tell(struct sgrad__tensorboard *t, const char *name, long step, double x) {
    if (!t) return;
    begin_value(t, name);
    put_float(&t->value, 2, (float)x);
    end_value(t, step);
}

void sgrad__tensorboard_histogram(struct sgrad__tensorboard *t, const char *name, long step, const struct sgrad_histogram *h) {
    const double *limit = sgrad_histogram_limits();
    double limits[SGRAD_HISTOGRAM_BUCKETS], counts[SGRAD_HISTOGRAM_BUCKETS];
    int buckets = 0;
    if (!t) return;
    for (int i = 0; i < SGRAD_HISTOGRAM_BUCKETS; i++) {     /* consecutive empty buckets are merged, as in TensorFlow */
        if (i == 0 || h->bucket[i] > 0 || h->bucket[i - 1] > 0) counts[buckets++] = h->bucket[i];
        limits[buckets - 1] = limit[i];
    }
    begin_value(t, name);
    put_double(&t->histogram, 1, h->min);
    put_double(&t->histogram, 2, h->max);
    put_double(&t->histogram, 3, h->count);
    put_double(&t->histogram, 4, h->sum);
    put_double(&t->histogram, 5, h->sum_squares);
    put_bytes(&t->histogram, 6, limits, buckets * (int)sizeof *limits);
    put_bytes(&t->histogram, 7, counts, buckets * (int)sizeof *counts);
    put_bytes(&t->value, 5, t->histogram.byte, t->histogram.size);
    end_value(t, step);
}

int sgrad__tensorboard_flush(struct sgrad__tensorboard *t) {
    const int lost = t ? sgrad_stream_error(t->file) : 0;
    return lost ? sgrad_log_error(SGRAD_EIO, "%s: cannot be written: %s", t->path, strerror(lost)) : 0;
}

void sgrad__tensorboard_close(struct sgrad__tensorboard *t) {
    if (!t) return;
    if (t->file) fclose(t->file);
    free(t->path);
    free(t);
}
