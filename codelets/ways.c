/* ways.c: which way to compute a layer is fastest on this processor: measured once for each shape, and remembered from run to run.
 *
 * No rule holds for long: how much Winograd's method gains depends on a processor's registers and caches; small images want
 * the filters transformed for many of them; where a layout costs a copy depends on what the copy meets in the caches. Bits must not
 * depend on a measurement, though: with --deterministic a rule decides, as it does where GPUs do the work. */
#include "codelets/onednn.h"

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>
#endif
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { EDITION = 4 };       /* of what the ways are: to be raised when a way changes */
static const char *const names[SGRAD__WAYS] = { "plain", "blocked", "winograd" };
enum sgrad__way sgrad__way_forced = SGRAD__WAYS;

bool sgrad__way_open(const struct sgrad__layer *l, enum sgrad__way way) {
    if (way == SGRAD__PLAIN || l->rank == 2) return way < SGRAD__WINOGRAD;
    if (way == SGRAD__WINOGRAD) return sgrad__winograd_open(l);
    return l->groups == 1 && l->x[3] % 16 == 0 && l->y[3] % 16 == 0;
}

/* Winograd over direct, one Zen 5 core: 1.3 to 2.5 times the speed. It wants the 32 registers of AVX-512, and makes nothing of AMX, which
 * does bf16 far faster. The rule knows no number of samples: a sample's bits are the same alone and among others. */
static enum sgrad__way by_rule(const struct sgrad__layer *l) {
    static const double worth = 2.5;
    const bool registers = SGRAD_CLONES && sgrad__has_isa(dnnl_cpu_isa_avx512_core), amx = l->dtype == SGRAD_BF16 && sgrad__has_isa(dnnl_cpu_isa_avx512_core_amx);
    return registers && !amx && sgrad__way_open(l, SGRAD__WINOGRAD) && sgrad__winograd_saving(l) >= worth ? SGRAD__WINOGRAD : SGRAD__PLAIN;
}

/* Every way does the plain one's arithmetic or, Winograd's, rounds more, by half or, gradients in bf16, to six times as much: what a user
 * of bf16 has asked for is speed. So it has to be worth it, but no more. */
static enum sgrad__way by_measurement(const struct sgrad__layer *l) {
    static const double worth = 0.95;
    enum sgrad__way best = SGRAD__PLAIN;
    double seconds[SGRAD__WAYS];
    sgrad__ways_time(l, seconds);
    for (enum sgrad__way way = SGRAD__PLAIN + 1; way < SGRAD__WAYS; way++)
        if (seconds[way] < seconds[best] * (best == SGRAD__PLAIN ? worth : 1)) best = way;
    return best;
}

/* What a measurement holds for: how this was compiled, this processor, this oneDNN, this layer. Free it. */
static char *memo_key(const struct sgrad__layer *l) {
    const dnnl_version_t *v = dnnl_version();
    unsigned processor = 0;
#if defined __x86_64__ || defined __i386__
    unsigned b, c, d;
    __get_cpuid(1, &processor, &b, &c, &d);
#endif
    return sgrad_format("%d%s, processor %x %x, oneDNN %d.%d.%d, %s: %d %d, %d %d %d %d, %d %d %d %d x %d %d %d %d = %d %d %d %d", EDITION, SGRAD_CLONES ? "" : " baseline", processor,
                        (unsigned)dnnl_get_effective_cpu_isa(), v->major, v->minor, v->patch, sgrad_dtype_name((enum sgrad_dtype)l->dtype),
                        l->pass, l->bias, l->stride, l->dilation, l->padding, l->groups, l->x[0], l->x[1], l->x[2], l->x[3], l->w[0],
                        l->w[1], l->w[2], l->w[3], l->y[0], l->y[1], l->y[2], l->y[3]);
}

static enum sgrad__way remembered(const struct sgrad__layer *l) {
    static const char topic[] = "onednn";
    char *key = memo_key(l), value[16];
    enum sgrad__way way = SGRAD__WAYS;
    if (sgrad_memo_find(topic, key, value, sizeof value))
        for (way = 0; way < SGRAD__WAYS && strcmp(value, names[way]) != 0; way++) continue;
    if (way == SGRAD__WAYS || !sgrad__way_open(l, way)) {
        way = by_measurement(l);
        sgrad_memo_add(topic, key, names[way]);
    }
    free(key);
    return way;
}

/* ---- decided once for the process: a task's workspace is that of the way it goes ---- */

struct decision {
    struct sgrad__layer layer;
    enum sgrad__way way;
    struct decision *next;
};
static struct decision *decisions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum sgrad__way sgrad__way_of(const struct sgrad__layer *layer) {
    struct sgrad__layer key = *layer;
    key.accumulate = 0;     /* one more pass over the result, whichever way that came */
    if (sgrad__way_forced < SGRAD__WAYS) return sgrad__way_open(layer, sgrad__way_forced) ? sgrad__way_forced : SGRAD__PLAIN;
    if (layer->deterministic || sgrad_cuda_workers() > 0 || !sgrad__way_open(layer, SGRAD__BLOCKED)) return by_rule(layer);
    pthread_mutex_lock(&lock);
    struct decision *d = decisions;
    while (d && memcmp(&d->layer, &key, sizeof key) != 0) d = d->next;
    if (!d) {
        d = sgrad_alloc(1, sizeof *d);
        *d = (struct decision){ key, remembered(&key), decisions };
        decisions = d;
    }
    pthread_mutex_unlock(&lock);
    return d->way;
}
