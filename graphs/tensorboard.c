/* tensorboard.c: the run's values as an event file that TensorBoard reads.
 *
 * A file is a row of records (TensorFlow's TFRecord: length, its checksum, data, its checksum; CRC-32C, masked), each an Event of
 * tensorflow/core/util/event.proto in protobuf's wire format:
 *
 *     Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
 *     Summary { repeated Value value = 1; }     Value { string tag = 1; float simple_value = 2; }           */
#include "graphs/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct sgrad__tensorboard {
    char *path;
    FILE *file;
};

/* ---- protobuf ---- */

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };   /* wire types */
enum { LARGEST = 512 };                         /* bytes of a message, here */

struct message {
    int size;
    unsigned char byte[LARGEST];
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

/* CRC-32C (Castagnoli), rotated and shifted as TensorFlow does. */
static uint32_t checksum(const void *data, size_t size) {
    const unsigned char *byte = data;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= byte[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

static void write_event(struct sgrad__tensorboard *t, const struct message *event) {
    const uint64_t size = (uint64_t)event->size;
    const uint32_t of_size = checksum(&size, sizeof size), of_event = checksum(event->byte, size);
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

int sgrad__tensorboard_open(const char *folder, struct sgrad__tensorboard **tensorboard) {
    static const char version[] = "brain.Event:2";
    struct message first = { 0 };
    char host[64] = "localhost", *inside = sgrad_format("%s/tensorboard", folder);
    struct sgrad__tensorboard *t = sgrad_alloc(1, sizeof *t);
    gethostname(host, sizeof host - 1);
    t->path = sgrad_format("%s/events.out.tfevents.%010ld.%s.%ld", inside, (long)time(NULL), host, (long)getpid());
    const bool made = mkdir(inside, 0777) == 0 || errno == EEXIST;
    free(inside);
    if (!made || !(t->file = fopen(t->path, "wbe"))) {
        int error = sgrad_fail(SGRAD_EIO, "%s: %s", t->path, strerror(errno));
        sgrad__tensorboard_close(t);
        return error;
    }
    put_double(&first, 1, wall_time());
    put_bytes(&first, 3, version, (int)strlen(version));
    write_event(t, &first);
    *tensorboard = t;
    return 0;
}

void sgrad__tensorboard_tell(struct sgrad__tensorboard *t, const char *name, long step, double x) {
    struct message value = { 0 }, summary = { 0 }, event = { 0 };
    if (!t) return;
    put_bytes(&value, 1, name, (int)strlen(name));
    put_float(&value, 2, (float)x);
    put_bytes(&summary, 1, value.byte, value.size);
    put_double(&event, 1, wall_time());
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, 5, summary.byte, summary.size);
    write_event(t, &event);
}

int sgrad__tensorboard_flush(struct sgrad__tensorboard *t) {
    if (!t || (fflush(t->file) == 0 && !ferror(t->file))) return 0;
    return sgrad_fail(SGRAD_EIO, "%s: cannot be written: %s", t->path, strerror(errno));
}

void sgrad__tensorboard_close(struct sgrad__tensorboard *t) {
    if (!t) return;
    if (t->file) fclose(t->file);
    free(t->path);
    free(t);
}
