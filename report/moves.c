/* moves.c: moves of tensors between memory and a file (--memory, --spill) in the steps of a run: bytes, bandwidth, and the time
 * that workers waited for them; advice, if that time is long. */
#include "report/history.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>

static const double part = 0.05;    /* of a step: a wait from which advice is given */

/* Means of a step: megabytes, seconds. */
struct means {
    double written, read, moving, waiting, step;
};

static struct means means_of(const struct sgrad__history *history) {
    const struct sgrad__history_moves *m = &history->moves;
    const double n = m->steps;
    return (struct means){ m->written / n, m->read / n, m->moving / n, m->waiting / n, m->seconds / n };
}

/* Returns advice as a sentence, which the caller must free; NULL: the wait is short. Without waits a step would take the rest of
 * its time, in which a disk must move all bytes. All bytes that are written, and no more, are missing in memory. */
static char *advice(const struct sgrad__history *history, const struct means *m) {
    if (m->waiting <= part * m->step || m->moving <= 0) return NULL;
    const double all = m->written + m->read;
    const bool recomputes = json_is_true(json_object_get(history->options, "recompute")),
               gpu = json_integer_value(json_object_get(history->options, "gpu_memory")) > 0;
    return sgrad_format("steps wait %.3g of %.3g s for moves to and from --spill, at %.2f GB/s: the %s would have to move %.2f "
                        "GB/s; or use a --%smemory that is up to %.0fM higher, %sa smaller --micro-batch",
                        m->waiting, m->step, 1e-3 * all / m->moving, gpu ? "bus" : "disk", 1e-3 * all / (m->step - m->waiting),
                        gpu ? "gpu-" : "", 1e6 * m->written / (1 << 20), recomputes ? "or " : "--recompute, or ");
}

json_t *sgrad__moves_as_json(const struct sgrad__history *history) {
    if (!history->moves.steps) return NULL;
    const struct means m = means_of(history);
    char *text = advice(history, &m);
    json_t *json = json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:s*}", "steps", history->moves.steps, "written_mb", m.written,
                             "read_mb", m.read, "moving_seconds", m.moving, "waiting_seconds", m.waiting, "step_seconds", m.step,
                             "finding", text);
    free(text);
    return json;
}

void sgrad__moves_print(const struct sgrad__history *history) {
    if (!history->moves.steps) return;
    const struct means m = means_of(history);
    char *text = advice(history, &m);
    printf("moves      a step writes %.2f MB to --spill and reads %.2f, at %.2f GB/s; it waits %.3g of %.3g s (%.1f %%) for "
           "moves\n",
           m.written, m.read, m.moving > 0 ? 1e-3 * (m.written + m.read) / m.moving : 0, m.waiting, m.step,
           m.step > 0 ? 100 * m.waiting / m.step : 0);
    const json_int_t layers = json_integer_value(json_object_get(history->config, "recomputed_layers"));
    if (layers) printf("           %lld layers are recomputed instead of moved\n", (long long)layers);
    if (text) printf("           %s\n", text);
    free(text);
}
