/* traffic.c: what messages are of. comms.rec knows a message's handles, data.rec their names, tasks.rec what was gathered in them:
 *
 *     layer3.0.conv2.weight sum ──┐
 *     layer3.0.bn1.weight gradient#0 ──┴─ task "bucket 3" ──> bucket 3 ══message══> bucket 3 from 1 ── sum ──> bucket 3 reduced ══> …
 *
 * Both ends bear the name of what is sent, but a server calls all that it receives "push" and all that it sends "weights". */
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

/* Names without what tells the copies of one thing apart: "bucket 3 from 1" and "bucket 3 reduced" are of bucket 3. */
static void shorten(char *name) {
    static const char *const ends[] = { " from ", " reduced", " sum" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *end = strstr(name, ends[i]);
        if (end) *end = 0;
    }
}

enum { HANDLE, NAME, RANK };
static const char *const handle_keys[] = { "Handle", "Name", "MPIRank", NULL };

static int read_handles(const char *folder, struct handles *h) {
    struct sgrad__records r;
    int error = 0;
    SGRAD_TRY(sgrad__records_open(folder, "data.rec", handle_keys, &r));
    while (!error && sgrad__records_next(&r, &error)) {
        if (!r.value[HANDLE] || !r.value[NAME]) continue;
        h->handle = sgrad_grow(h->handle, h->count, sizeof *h->handle);
        h->handle[h->count++] = (struct handle){ r.value[RANK] ? atoi(r.value[RANK]) : 0, strtoull(r.value[HANDLE], NULL, 16), r.value[NAME] };
        shorten(r.value[NAME]);
        r.value[NAME] = NULL;
    }
    sgrad__records_close(&r);
    if (h->count) qsort(h->handle, (size_t)h->count, sizeof *h->handle, by_handle);
    return error;
}

static const char *name_of(const struct handles *h, int rank, uint64_t is) {
    const struct handle *found = h->count ? bsearch(&(struct handle){ rank, is, NULL }, h->handle, (size_t)h->count, sizeof *found, by_handle) : NULL;
    return found ? found->name : "?";
}

static void forget_handles(struct handles *h) {
    for (int i = 0; i < h->count; i++) free(h->handle[i].name);
    free(h->handle);
}

/* ---- parcels ---- */

static int find_parcel(const struct sgrad__timeline *t, const char *name) {
    int i = 0;
    while (i < t->parcels && strcmp(t->parcel[i].name, name) != 0) i++;
    return i;
}

static int parcel_of(struct sgrad__timeline *t, const char *name) {
    const int i = find_parcel(t, name);
    if (i < t->parcels) return i;
    t->parcel = sgrad_grow(t->parcel, i, sizeof *t->parcel);
    t->parcel[i] = (struct sgrad__timeline_parcel){ .name = sgrad_format("%s", name) };
    return t->parcels++;
}

/* A part's name is a word: "layer3.0.conv2.weight gradient#0" is of layer3.0.conv2.weight. Chunks of a parcel have the same parts. */
static void add_part(struct sgrad__timeline_parcel *p, const char *name, double bytes) {
    const int length = (int)strcspn(name, " ");
    for (int i = 0; i < p->parts; i++)
        if (strncmp(p->part[i].name, name, (size_t)length) == 0 && !p->part[i].name[length]) return;
    p->part = sgrad_grow(p->part, p->parts, sizeof *p->part);
    p->part[p->parts++] = (struct sgrad__timeline_part){ sgrad_format("%.*s", length, name), bytes };
}

enum { TASK, HANDLES, MODES, SIZES, TASK_RANK };
static const char *const part_keys[] = { "Name", "Handles", "Modes", "Sizes", "MPIRank", NULL };

/* A task with the parcel's name puts it together from what it reads. */
static void add_parts(struct sgrad__timeline_parcel *p, const struct handles *h, const struct sgrad__records *r) {
    const int rank = r->value[TASK_RANK] ? atoi(r->value[TASK_RANK]) : 0;
    char *handle, *mode, *size, *rest[3] = { 0 };
    for (int i = 0;; i++) {
        handle = strtok_r(i ? NULL : r->value[HANDLES], " ", &rest[0]);
        mode = strtok_r(i ? NULL : r->value[MODES], " ", &rest[1]);
        size = strtok_r(i ? NULL : r->value[SIZES], " ", &rest[2]);
        if (!handle || !mode || !size) return;
        if (strcmp(mode, "R") == 0) add_part(p, name_of(h, rank, strtoull(handle, NULL, 16)), atof(size));
    }
}

static int read_parts(const char *folder, const struct handles *h, struct sgrad__timeline *t) {
    struct sgrad__records r;
    int error = 0;
    SGRAD_TRY(sgrad__records_open(folder, "tasks.rec", part_keys, &r));
    while (!error && sgrad__records_next(&r, &error)) {
        const int i = r.value[TASK] && r.value[HANDLES] && r.value[MODES] && r.value[SIZES] ? find_parcel(t, r.value[TASK]) : t->parcels;
        if (i < t->parcels) add_parts(&t->parcel[i], h, &r);
    }
    sgrad__records_close(&r);
    return error;
}

static int by_size(const void *one, const void *other) {
    const struct sgrad__timeline_part *a = one, *b = other;
    return a->bytes != b->bytes ? (a->bytes < b->bytes) - (a->bytes > b->bytes) : strcmp(a->name, b->name);
}

/* Of a message's two names the one of which more is known, and less is meant. */
static bool better(const struct sgrad__timeline_parcel *p, const struct sgrad__timeline_parcel *than) {
    return p->parts && (!than->parts || p->parts < than->parts);
}

int sgrad__timeline_read_parcels(const char *folder, struct sgrad__timeline *t) {
    struct handles h = { 0 };
    int error = read_handles(folder, &h);
    for (int i = 0; i < t->messages && !error; i++) {
        parcel_of(t, name_of(&h, t->message[i].to, t->message[i].received));
        t->message[i].parcel = parcel_of(t, name_of(&h, t->message[i].from, t->message[i].sent));
    }
    if (!error) error = read_parts(folder, &h, t);
    for (int i = 0; i < t->messages && !error; i++) {
        const int other = find_parcel(t, name_of(&h, t->message[i].to, t->message[i].received));
        if (better(&t->parcel[other], &t->parcel[t->message[i].parcel])) t->message[i].parcel = other;
    }
    for (int i = 0; i < t->parcels; i++)
        if (t->parcel[i].parts) qsort(t->parcel[i].part, (size_t)t->parcel[i].parts, sizeof *t->parcel[i].part, by_size);
    forget_handles(&h);
    return error;
}

char *sgrad__timeline_parcel_text(const struct sgrad__timeline_parcel *p) {
    const struct sgrad__timeline_part *part = p->part;
    if (!p->parts) return sgrad_format("%s", p->name);
    if (p->parts == 1) return sgrad_format("%s (%s)", p->name, part[0].name);
    if (p->parts == 2) return sgrad_format("%s (%s, %s)", p->name, part[0].name, part[1].name);
    return sgrad_format("%s (%s, %s and %d more)", p->name, part[0].name, part[1].name, p->parts - 2);
}
