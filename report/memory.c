/* memory.c: the use of each memory node during a trace: the bytes that StarPU has allocated for tensors. The trace is divided
 * into equal slots of time, and the maximum of each is reported: a trace has thousands of changes, a plot some hundred points. */
#include "report/trace.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

enum { SLOTS = 400 };

static int slot_of(const struct sgrad__timeline *timeline, double ms) {
    if (ms <= 0) return 0;
    return ms >= timeline->length ? SLOTS - 1 : (int)(SLOTS * ms / timeline->length);
}

/* COUNT: the changes of one node. Returns NULL if the trace has no memory use of the node. */
static json_t *node_as_json(const struct sgrad__timeline *timeline, const struct sgrad__timeline_memory *const *change,
                            int count) {
    double most[SLOTS] = { 0 }, now = 0, max = 0;
    int slot = 0;
    bool known = false;
    for (int i = 0; i < count; i++) {
        const struct sgrad__timeline_memory *m = change[i];
        if (m->ms > timeline->length) continue;
        if (!known && m->megabytes <= 0) continue;     /* initial entries of the trace: not known yet */
        if (!known) most[0] = now = m->megabytes;      /* a rank may start later than the others */
        known = true;
        for (const int at = slot_of(timeline, m->ms); slot < at;) most[++slot] = now;
        now = m->megabytes;
        most[slot] = m->ms > 0 ? fmax(most[slot], now) : now;
    }
    if (!known) return NULL;
    while (slot + 1 < SLOTS) most[++slot] = now;
    json_t *curve = json_array();
    for (int i = 0; i < SLOTS; i++) {
        if (!i || most[i] != most[i - 1])
            json_array_append_new(curve, json_pack("[f, f]", i * timeline->length / SLOTS, most[i]));
        max = fmax(max, most[i]);
    }
    return json_pack("{s:i, s:i, s:f, s:o}", "rank", change[0]->rank, "node", change[0]->node, "max_mb", max, "curve", curve);
}

/* The file is sorted by time. */
static int by_node(const void *one, const void *other) {
    const struct sgrad__timeline_memory *a = *(const struct sgrad__timeline_memory *const *)one,
                                        *b = *(const struct sgrad__timeline_memory *const *)other;
    if (a->rank != b->rank) return a->rank - b->rank;
    return a->node != b->node ? a->node - b->node : (a > b) - (a < b);
}

json_t *sgrad__memory_as_json(const struct sgrad__timeline *timeline) {
    const struct sgrad__timeline_memory **change = sgrad_xcalloc((size_t)timeline->memories + 1, sizeof *change);
    json_t *memory = json_array();
    for (int i = 0; i < timeline->memories; i++) change[i] = &timeline->memory[i];
    if (timeline->memories) qsort(change, (size_t)timeline->memories, sizeof *change, by_node);
    for (int i = 0, next; i < timeline->memories; i = next) {
        for (next = i + 1;
             next < timeline->memories && change[next]->rank == change[i]->rank && change[next]->node == change[i]->node;)
            next++;
        json_t *node = change[i]->rank < timeline->ranks ? node_as_json(timeline, change + i, next - i) : NULL;
        if (node) json_array_append_new(memory, node);
    }
    free(change);
    return memory;
}

void sgrad__memory_print(const json_t *memory) {
    json_t *node;
    size_t i;
    json_array_foreach(memory, i, node) {
        if (i == SGRAD__LISTED) break;
        const int number = (int)json_integer_value(json_object_get(node, "node"));
        char *name = number ? sgrad_format("memory node %d", number) : sgrad_format("main memory");
        printf("%srank %d %s: at most %.1f MB\n", i ? "" : "\n", (int)json_integer_value(json_object_get(node, "rank")), name,
               json_real_value(json_object_get(node, "max_mb")));
        free(name);
    }
    if (json_array_size(memory) > SGRAD__LISTED)
        printf("and %zu more (--json has all)\n", json_array_size(memory) - SGRAD__LISTED);
}
