/* traffic.c: finds the content of messages. comms.rec contains a message's handles, data.rec their names, and tasks.rec the
 * tensors from which they were assembled:
 *
 *     layer3.0.conv2.weight sum ───────┐
 *     layer3.0.bn1.weight gradient#0 ──┴─ task "bucket 3" ─> bucket 3 ══message══> bucket 3 from 1 ─ sum ─> bucket 3 reduced ═> …
 *
 * Sender and receiver use the name of the content, except a server, which uses "push" for all that it receives and "weights" for
 * all that it sends. */
#include "report/records.h"
#include "report/timeline.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* ---- handles ---- */

struct handle {
    int rank;
    uint64_t is;
    char *name;
};
struct handles {
    int count;
    struct handle *handle;
};

static int by_handle(const void *one, const void *other) {
    const struct handle *a = one, *b = other;
    return a->rank != b->rank ? a->rank - b->rank : (a->is > b->is) - (a->is < b->is);
}

/* Removes suffixes that distinguish copies of the same data: "bucket 3 from 1" and "bucket 3 reduced" become "bucket 3". */
static void shorten(char *name) {
    static const char *const ends[] = { " from ", " reduced", " sum" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *end = strstr(name, ends[i]);
        if (end) *end = 0;
    }
}

enum { HANDLE, NAME, RANK };
static const char *const handle_keys[] = { "Handle", "Name", "MPIRank", NULL };

static int read_handles(const char *folder, struct handles *handles) {
    struct sgrad__records r;
    int error = 0;
    SGRAD_TRY(sgrad__records_open(folder, "data.rec", handle_keys, &r));
    while (!error && sgrad__records_next(&r, &error)) {
        if (!r.value[HANDLE] || !r.value[NAME]) continue;
        handles->handle = sgrad_array_grow(handles->handle, handles->count, sizeof *handles->handle);
        handles->handle[handles->count++] =
            (struct handle){ r.value[RANK] ? atoi(r.value[RANK]) : 0, strtoull(r.value[HANDLE], NULL, 16), r.value[NAME] };
        shorten(r.value[NAME]);
        r.value[NAME] = NULL;
    }
    sgrad__records_close(&r);
    if (handles->count) qsort(handles->handle, (size_t)handles->count, sizeof *handles->handle, by_handle);
    return error;
}

static const char *name_of(const struct handles *handles, int rank, uint64_t is) {
    const struct handle *found = handles->count ? bsearch(&(struct handle){ rank, is, NULL }, handles->handle,
                                                          (size_t)handles->count, sizeof *found, by_handle)
                                                : NULL;
    return found ? found->name : "?";
}

static void forget_handles(struct handles *handles) {
    for (int i = 0; i < handles->count; i++) free(handles->handle[i].name);
    free(handles->handle);
}

/* ---- parcels ---- */

struct search {
    struct sgrad__timeline *t;
    struct handles handles;
    struct sgrad__numbers parcels;      /* by name: index in timeline.parcel */
    struct sgrad__numbers parts;        /* keys: index of a parcel in four bytes, then a tensor's name */
};

static int parcel_of(struct search *search, const char *name) {
    struct sgrad__timeline *t = search->t;
    const int i = sgrad__number(&search->parcels, name, strlen(name));
    if (i < t->parcels) return i;
    t->parcel = sgrad_array_grow(t->parcel, i, sizeof *t->parcel);
    t->parcel[i] = (struct sgrad__timeline_parcel){ .name = sgrad_format("%s", name) };
    return t->parcels++;
}

/* Adds a tensor to a parcel. The first word of NAME is the tensor: "layer3.0.conv2.weight" of "layer3.0.conv2.weight gradient#0".
 * The chunks of a parcel consist of the same tensors. */
static void add_part(struct search *search, int parcel, const char *name, double bytes) {
    struct sgrad__timeline_parcel *p = &search->t->parcel[parcel];
    const size_t length = strcspn(name, " ");
    char *key = sgrad_xcalloc(sizeof parcel + length, 1);
    memcpy(key, &parcel, sizeof parcel);
    memcpy(key + sizeof parcel, name, length);
    const int known = search->parts.count;
    if (sgrad__number(&search->parts, key, sizeof parcel + length) == known) {
        p->part = sgrad_array_grow(p->part, p->parts, sizeof *p->part);
        p->part[p->parts++] = (struct sgrad__timeline_part){ sgrad_format("%.*s", (int)length, name), bytes };
    }
    free(key);
}

/* Fields of tasks.rec. */
enum { TASK, HANDLES, MODES, SIZES, TASK_RANK };
static const char *const part_keys[] = { "Name", "Handles", "Modes", "Sizes", "MPIRank", NULL };

/* Adds the operands that the task with the parcel's name reads, from which it assembles the parcel. */
static void add_parts(struct search *search, int parcel, const struct sgrad__records *records) {
    const int rank = records->value[TASK_RANK] ? atoi(records->value[TASK_RANK]) : 0;
    char *handle, *mode, *size, *rest[3] = { 0 };
    for (int i = 0;; i++) {
        handle = strtok_r(i ? NULL : records->value[HANDLES], " ", &rest[0]);
        mode = strtok_r(i ? NULL : records->value[MODES], " ", &rest[1]);
        size = strtok_r(i ? NULL : records->value[SIZES], " ", &rest[2]);
        if (!handle || !mode || !size) return;
        if (strcmp(mode, "R") == 0)
            add_part(search, parcel, name_of(&search->handles, rank, strtoull(handle, NULL, 16)), atof(size));
    }
}

static int read_parts(const char *folder, struct search *search) {
    struct sgrad__records r;
    int error = 0;
    SGRAD_TRY(sgrad__records_open(folder, "tasks.rec", part_keys, &r));
    while (!error && sgrad__records_next(&r, &error)) {
        if (!r.value[TASK] || !r.value[HANDLES] || !r.value[MODES] || !r.value[SIZES]) continue;
        const int parcel = sgrad__number_find(&search->parcels, r.value[TASK], strlen(r.value[TASK]));
        if (parcel >= 0) add_parts(search, parcel, &r);
    }
    sgrad__records_close(&r);
    return error;
}

static int by_size(const void *one, const void *other) {
    const struct sgrad__timeline_part *a = one, *b = other;
    return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes) : strcmp(a->name, b->name);
}

/* Chooses between the names of a message's two ends: the one with known tensors; if both have, the one with fewer tensors. */
static bool better(const struct sgrad__timeline_parcel *parcel, const struct sgrad__timeline_parcel *than) {
    return parcel->parts && (!than->parts || parcel->parts < than->parts);
}

static const char *received(const struct search *search, const struct sgrad__timeline_message *message) {
    return name_of(&search->handles, message->to, message->received);
}

static int find_parcels(const char *folder, struct search *search) {
    struct sgrad__timeline *t = search->t;
    SGRAD_TRY(read_handles(folder, &search->handles));
    for (int i = 0; i < t->messages; i++) {
        parcel_of(search, received(search, &t->message[i]));
        t->message[i].parcel = parcel_of(search, name_of(&search->handles, t->message[i].from, t->message[i].sent));
    }
    SGRAD_TRY(read_parts(folder, search));
    for (int i = 0; i < t->messages; i++) {
        struct sgrad__timeline_message *m = &t->message[i];
        const int other = parcel_of(search, received(search, m));
        if (better(&t->parcel[other], &t->parcel[m->parcel])) m->parcel = other;
        t->parcel[m->parcel].messages++;
        t->parcel[m->parcel].bytes += m->bytes;
    }
    for (int i = 0; i < t->parcels; i++)
        if (t->parcel[i].parts) qsort(t->parcel[i].part, (size_t)t->parcel[i].parts, sizeof *t->parcel[i].part, by_size);
    return 0;
}

int sgrad__timeline_read_parcels(const char *folder, struct sgrad__timeline *timeline) {
    struct search s = { .t = timeline };
    const int error = find_parcels(folder, &s);
    forget_handles(&s.handles);
    sgrad__numbers_free(&s.parcels);
    sgrad__numbers_free(&s.parts);
    return error;
}

char *sgrad__timeline_parcel_text(const struct sgrad__timeline_parcel *parcel) {
    const struct sgrad__timeline_part *part = parcel->part;
    if (!parcel->parts) return sgrad_format("%s", parcel->name);
    if (parcel->parts == 1) return sgrad_format("%s (%s)", parcel->name, part[0].name);
    if (parcel->parts == 2) return sgrad_format("%s (%s, %s)", parcel->name, part[0].name, part[1].name);
    return sgrad_format("%s (%s, %s and %d more)", parcel->name, part[0].name, part[1].name, parcel->parts - 2);
}
