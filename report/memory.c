/* memory.c: how much of each memory node was in use through a traced stretch: what StarPU has allocated for tensors. Its course is
 * cut in equal slots of time, of each of which the most is told: a trace has thousands of changes, a curve a few hundred. */
#include "report/trace.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

enum { SLOTS = 400 };

static int slot_of(const struct sgrad__timeline *t, double ms) {
    return ms <= 0 ? 0 : ms >= t->length ? SLOTS - 1 : (int)(SLOTS * ms / t->length);
}

/* NULL: nothing is known of it. */
static json_t *node_as_json(const struct sgrad__timeline *t, int rank, int node) {
    double most[SLOTS] = { 0 }, now = 0, max = 0;
    int slot = 0;
    bool known = false;
    for (int i = 0; i < t->memories; i++) {
        const struct sgrad__timeline_memory *m = &t->memory[i];
        if (m->rank != rank || m->node != node || m->ms > t->length) continue;
        if (!known && m->megabytes <= 0) continue;     /* what the trace begins with: nothing has changed yet, and nothing is known */
        if (!known) most[0] = now = m->megabytes;      /* a rank may begin later than the others */
        known = true;
        for (const int at = slot_of(t, m->ms); slot < at;) most[++slot] = now;
        now = m->megabytes;
        most[slot] = m->ms > 0 ? fmax(most[slot], now) : now;
    }
    if (!known) return NULL;
    while (slot + 1 < SLOTS) most[++slot] = now;
    json_t *curve = json_array();
    for (int i = 0; i < SLOTS; i++) {
        if (!i || most[i] != most[i - 1]) json_array_append_new(curve, json_pack("[f, f]", i * t->length / SLOTS, most[i]));
        max = fmax(max, most[i]);
    }
    return json_pack("{s:i, s:i, s:f, s:o}", "rank", rank, "node", node, "max_mb", max, "curve", curve);
}

json_t *sgrad__memory_as_json(const struct sgrad__timeline *t) {
    json_t *memory = json_array();
    int nodes = 0;
    for (int i = 0; i < t->memories; i++) nodes = t->memory[i].node >= nodes ? t->memory[i].node + 1 : nodes;
    for (int r = 0; r < t->ranks; r++) {
        for (int n = 0; n < nodes; n++) {
            json_t *node = node_as_json(t, r, n);
            if (node) json_array_append_new(memory, node);
        }
    }
    return memory;
}

void sgrad__memory_print(const json_t *memory) {
    json_t *node;
    size_t i;
    json_array_foreach(memory, i, node) {
        const int number = (int)json_integer_value(json_object_get(node, "node"));
        char *name = number ? sgrad_format("memory node %d", number) : sgrad_format("main memory");
        printf("%srank %d %s: at most %.1f MB\n", i ? "" : "\n", (int)json_integer_value(json_object_get(node, "rank")), name,
               json_real_value(json_object_get(node, "max_mb")));
        free(name);
    }
}
