/* ways.c: a layer goes the way that is fastest on this processor, measured once for each shape and remembered from run to run.
 *
 * No rule holds for long: how much Winograd's method gains depends on a processor's registers and caches; small images want the
 * filters transformed for many of them; where a layout costs a copy depends on what the copy meets in the caches. Bits must not
 * depend on a measurement, though: with --deterministic a rule decides, as it does where GPUs do the work. */
#include "config.h"
#include "codelets/onednn.h"
#include "codelets/pixels.h"
#include "codelets/product.h"
#include "codelets/tiles.h"
#include "codelets/ways.h"
#include "codelets/winograd.h"

#if defined __x86_64__ || defined __i386__
#include <cpuid.h>
#endif
#include <assert.h>
#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { EDITION = 9 };       /* of what the ways are: to be raised when a way changes */
const char *const sgrad__way_name[SGRAD__WAYS] = { "plain", "blocked", "winograd", "product", "pixels", "tiles" };

/* The ways that are ours. */
static const struct own {
    bool (*open)(const struct sgrad__layer *l);
    size_t (*workspace)(const struct sgrad__layer *l);      /* bytes */
    void (*run)(const struct sgrad__layer *l, void *const data[], float *room);
    size_t (*packed)(const struct sgrad__layer *l);         /* bytes of the weight packed; 0: nothing is gained. NULL: never */
    void (*pack)(const struct sgrad__layer *l, const float *weight, void *to);
} own[SGRAD__WAYS] = {
    [SGRAD__WINOGRAD] = { sgrad__winograd_open, sgrad__winograd_workspace, sgrad__winograd_run },
    [SGRAD__PRODUCT] = { sgrad__product_open, sgrad__product_workspace, sgrad__product_run },
    [SGRAD__PIXELS] = { sgrad__pixels_open, sgrad__pixels_workspace, sgrad__pixels_run },
    [SGRAD__TILES] = { sgrad__tiles_open, sgrad__tiles_workspace, sgrad__tiles_run, sgrad__tiles_packed, sgrad__tiles_pack },
};

static bool is_open(const struct sgrad__layer *l, enum sgrad__way way) {
    if (own[way].open) return own[way].open(l);
    if (way == SGRAD__PLAIN || l->rank == 2) return true;
    const bool widened = l->dtype == SGRAD_BF16 && sgrad_isa() < SGRAD_AVX512_BF16;
    const int c = l->rank - 1;
    return l->groups == 1 && l->x[c] % 16 == 0 && l->y[c] % 16 == 0 && !widened;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

struct plan {
    enum sgrad__way way;
    struct sgrad__onednn_plan onednn;   /* of the plain and the blocked way */
    size_t workspace;                   /* bytes; SGRAD_LINE of them because a workspace may begin anywhere */
};

/* False: oneDNN has no such way. */
static bool plan_create(const struct sgrad__layer *l, enum sgrad__way way, struct plan *plan) {
    if (!own[way].run && !sgrad__onednn_create(l, way == SGRAD__BLOCKED, &plan->onednn)) return false;
    plan->way = way;
    plan->workspace = SGRAD_LINE + (own[way].run ? own[way].workspace(l) : plan->onednn.workspace);
    return true;
}

static void plan_destroy(void *plan) { sgrad__onednn_destroy(&((struct plan *)plan)->onednn); }

static void plan_run(const struct sgrad__layer *l, const struct plan *plan, void *const data[], void *workspace) {
    void *room = (void *)sgrad_aligned((size_t)workspace);
    if (own[plan->way].run) own[plan->way].run(l, data, room);
    else sgrad__onednn_run(l, &plan->onednn, data, room);
}

/* ---- measured ---------------------------------------------------------------------------------------------------- */

/* Numbers of ordinary size, which all look alike to a processor: as two bf16 or as an f32. */
static void *ordinary(size_t bytes) {
    uint32_t *words = sgrad_alloc(bytes / sizeof *words + 1, sizeof *words);
    for (size_t i = 0; i < bytes / sizeof *words + 1; i++) words[i] = 0x3e803e80u | (uint32_t)(i * 2654435761u & 0x00700070u);
    return words;
}

/* Seconds of a core that each of the plans takes, at best. Of a way that takes far more than another, the figure is rough. They
 * go in turns, so that what else the machine does hurts all; the first turn finds memory and code new. */
static void take_turns(const struct sgrad__layer *l, const struct plan plan[SGRAD__WAYS], void *const data[], void *workspace,
                       double seconds[SGRAD__WAYS]) {
    enum { LEAST_TURNS = 4, MOST_TURNS = 20 };
    static const double enough = 10e-3;     /* seconds in all */
    double all = 0, least = INFINITY;
    for (int turn = 0; turn < MOST_TURNS && (turn < LEAST_TURNS || all < enough); turn++)
        for (enum sgrad__way way = 0; way < SGRAD__WAYS; way++) {
            if (!plan[way].workspace || (turn > 2 && seconds[way] > 1.5 * least)) continue;
            const double start = sgrad_thread_now();
            plan_run(l, &plan[way], data, workspace);
            const double took = sgrad_thread_now() - start;
            if (turn == 0) continue;
            seconds[way] = fmin(seconds[way], took);
            least = fmin(least, took);
            all += took;
        }
}

/* The layer, on fewer samples where they are many. */
static struct sgrad__layer lessened(const struct sgrad__layer *layer) {
    static const double most_flops = 2e9;
    struct sgrad__layer l = *layer;
    if (sgrad__layer_flops(&l) > most_flops) l.x[0] = l.y[0] = (int32_t)fmax(1, l.x[0] * most_flops / sgrad__layer_flops(&l));
    return l;
}

/* Seconds that the layer takes each way, lessened. INFINITY: there is no such way. */
static void measure(const struct sgrad__layer *layer, double seconds[SGRAD__WAYS]) {
    const struct sgrad__layer l = lessened(layer);
    struct plan plan[SGRAD__WAYS] = { 0 };
    void *data[SGRAD__PARTS] = { NULL };
    size_t most = 0;
    for (enum sgrad__way way = 0; way < SGRAD__WAYS; way++) {
        seconds[way] = INFINITY;
        if (is_open(layer, way) && plan_create(&l, way, &plan[way]) && plan[way].workspace > most) most = plan[way].workspace;
    }
    for (enum sgrad__side part = 0; part < SGRAD__PARTS; part++) {
        const size_t bytes = sgrad__layer_bytes(&l, part);
        if (bytes && sgrad__operand_of[l.pass][part] >= 0) data[sgrad__operand_of[l.pass][part]] = ordinary(bytes);
    }
    void *workspace = ordinary(most);
    take_turns(&l, plan, data, workspace, seconds);
    for (enum sgrad__way way = 0; way < SGRAD__WAYS; way++)
        if (plan[way].workspace) plan_destroy(&plan[way]);
    for (int j = 0; j < SGRAD__PARTS; j++) free(data[j]);
    free(workspace);
}

/* ---- chosen ------------------------------------------------------------------------------------------------------ */

/* AMX does bf16 far faster than anything else. Winograd over direct: 1.3 to 2.5 times the speed (one core, Zen 5 and Xeon).
 * Filters of 5x5 gain where vectors are short and arithmetic dear, with AVX2. The rule knows no number of samples: a sample's
 * bits are the same alone and among others. */
static enum sgrad__way by_rule(const struct sgrad__layer *l) {
    static const double worth = 2.5;
    const bool gains = l->w[1] == 3 || sgrad_isa() < SGRAD_AVX512;
    const bool fills = l->pass != SGRAD__BACKWARD_WEIGHT || l->x[0] > 8;      /* tiles of samples */
    if (fills && is_open(l, SGRAD__TILES)) return SGRAD__TILES;
    if (SGRAD_LEVELS && gains && is_open(l, SGRAD__WINOGRAD) && sgrad__winograd_saving(l) >= worth) return SGRAD__WINOGRAD;
    return SGRAD__PLAIN;
}

/* Every way does the plain one's arithmetic or, Winograd's, rounds more, by half or, training in bf16, to six times as much:
 * what a user of bf16 has asked for is speed. So it has to be worth it, but no more. */
static enum sgrad__way by_measurement(const struct sgrad__layer *l) {
    static const double worth = 0.95;
    enum sgrad__way best = SGRAD__PLAIN;
    double seconds[SGRAD__WAYS];
    measure(l, seconds);
    for (enum sgrad__way way = SGRAD__PLAIN + 1; way < SGRAD__WAYS; way++)
        if (seconds[way] < seconds[best] * (best == SGRAD__PLAIN ? worth : 1)) best = way;
    return best;
}

static enum sgrad__way asked;       /* for by STARGRAD_WAYS; SGRAD__WAYS: each the fastest; more than that: by the rule */
static void ask(void) {
    static const char variable[] = "STARGRAD_WAYS";
    const char *name = getenv(variable);
    for (asked = 0; name && asked < SGRAD__WAYS && strcmp(name, sgrad__way_name[asked]) != 0;) asked++;
    if (!name || strcmp(name, "measured") == 0) asked = SGRAD__WAYS;
    else if (strcmp(name, "rule") == 0) asked = SGRAD__WAYS + 1;
    else if (asked == SGRAD__WAYS)
        sgrad_warn("%s=%s is none of measured, rule, plain, blocked, winograd, product, pixels, tiles: the fastest are taken",
                   variable, name);
}

/* What a measurement holds for: how this was compiled, this processor, this oneDNN, this layer. Free it. */
static char *memo_key(const struct sgrad__layer *l) {
    const dnnl_version_t *v = dnnl_version();
    unsigned processor = 0;
#if defined __x86_64__ || defined __i386__
    unsigned b, c, d;
    __get_cpuid(1, &processor, &b, &c, &d);
#endif
    const int32_t *x = l->x, *w = l->w, *y = l->y;
    return sgrad_format(
        "%d%s, processor %x %x, oneDNN %d.%d.%d, %s%s: %d %d, %d %d %d %d, %d %d %d %d %d x %d %d %d %d %d = %d %d %d %d %d",
        EDITION, SGRAD_LEVELS ? "" : " baseline", processor, (unsigned)dnnl_get_effective_cpu_isa(), v->major, v->minor, v->patch,
        sgrad_dtype_name((enum sgrad_dtype)l->dtype), l->exact ? " exact" : "", l->pass, l->bias, l->stride, l->dilation,
        l->padding, l->groups, x[0], x[1], x[2], x[3], x[4], w[0], w[1], w[2], w[3], w[4], y[0], y[1], y[2], y[3], y[4]);
}

static enum sgrad__way remembered(const struct sgrad__layer *l) {
    static const char topic[] = "onednn";
    char *key = memo_key(l), value[16];
    enum sgrad__way way = SGRAD__WAYS;
    if (sgrad_memo_find(topic, key, value, sizeof value))
        for (way = 0; way < SGRAD__WAYS && strcmp(value, sgrad__way_name[way]) != 0; way++) continue;
    if (way == SGRAD__WAYS || !is_open(l, way)) {
        static int measured;
        char *doing = sgrad_format("stargrad: measuring which kernel is fastest for layer %d (STARGRAD_WAYS=rule skips this)",
                                   ++measured);
        sgrad_status(doing);
        free(doing);
        way = by_measurement(l);
        sgrad_status(NULL);
        sgrad_memo_add(topic, key, sgrad__way_name[way]);
    }
    free(key);
    return way;
}

/* Decided once for the process: a task's workspace is that of the way it goes. */
struct decision {
    struct sgrad__layer layer;
    enum sgrad__way way;
    struct decision *next;
};
static struct decision *decisions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static enum sgrad__way way_of(const struct sgrad__layer *layer) {
    struct sgrad__layer key = *layer;
    key.accumulate = 0;     /* one more pass over the result, whichever way that came */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool open = false;
    if (layer->packed) return sgrad__packed_way(layer);
    pthread_once(&once, ask);
    if (asked < SGRAD__WAYS) return is_open(layer, asked) ? asked : SGRAD__PLAIN;
    for (enum sgrad__way way = SGRAD__PLAIN + 1; way < SGRAD__WAYS; way++) open |= is_open(layer, way);
    if (layer->deterministic || asked > SGRAD__WAYS || sgrad_cuda_workers() > 0 || !open) return by_rule(layer);
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

/* Measured with one thread, as workers have it. */
void sgrad__ways_measure(const struct sgrad__layer *layer, struct sgrad_way way[SGRAD__WAYS]) {
    const struct sgrad__layer l = lessened(layer);
    const int threads = omp_get_max_threads();
    double seconds[SGRAD__WAYS];
    omp_set_num_threads(1);
    measure(layer, seconds);
    for (enum sgrad__way i = 0; i < SGRAD__WAYS; i++) {
        struct plan plan = { 0 };
        way[i] = (struct sgrad_way){ sgrad__way_name[i], seconds[i] * layer->x[0] / l.x[0], 0 };
        if (!isfinite(seconds[i]) || !plan_create(layer, i, &plan)) continue;
        way[i].bytes = (double)plan.workspace;
        plan_destroy(&plan);
    }
    omp_set_num_threads(threads);
}

/* ---- what passes.c calls ----------------------------------------------------------------------------------------- */

/* Where a rule wants a way that oneDNN does not have, the plain one. */
static void plan_best(const struct sgrad__layer *l, struct plan *plan) {
    if (!plan_create(l, way_of(l), plan)) plan_create(l, SGRAD__PLAIN, plan);
}

/* Asked with one thread, as workers have it: oneDNN's choices depend on the number of threads. */
static void plan_alone(const struct sgrad__layer *layer, struct plan *plan) {
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    plan_best(layer, plan);
    omp_set_num_threads(threads);
}

size_t sgrad__ways_workspace(const struct sgrad__layer *layer) {
    struct plan plan = { 0 };
    plan_alone(layer, &plan);
    plan_destroy(&plan);
    return plan.workspace;
}

/* This worker's. */
static const struct plan *plan_of(const struct sgrad__layer *layer) {
    static struct sgrad_cache cache = { .key_size = sizeof(struct sgrad__layer),
                                        .value_size = sizeof(struct plan),
                                        .destroy = plan_destroy };
    bool fresh;
    struct plan *plan = sgrad_cache_get(&cache, layer, &fresh);
    if (fresh) plan_best(layer, plan);
    return plan;
}

void sgrad__ways_run(const struct sgrad__layer *layer, const struct sgrad_args *args) {
    const struct plan *plan = plan_of(layer);
    assert(args->workspace_size >= plan->workspace);
    plan_run(layer, plan, args->data, args->workspace);
}

/* Of F32 layers what is gained is little. */
int sgrad__ways_packing(const struct sgrad__layer *layer, size_t *bytes) {
    struct sgrad__layer l = *layer;
    struct plan plan = { 0 };
    *bytes = 0;
    if (l.dtype == SGRAD_F32) return 0;
    l.packed = 0;
    plan_alone(&l, &plan);
    *bytes = own[plan.way].packed ? own[plan.way].packed(&l) : plan.onednn.packed;
    plan_destroy(&plan);
    return *bytes ? sgrad__packed_for(plan.way, l.x[0]) : 0;
}

void sgrad__ways_pack(const struct sgrad__layer *layer, const float *weight, void *to) {
    const enum sgrad__way way = sgrad__packed_way(layer);
    struct sgrad__layer l = *layer;
    l.packed = 0;
    if (own[way].pack) own[way].pack(&l, weight, to);
    else sgrad__onednn_pack(&plan_of(&l)->onednn, weight, to);
}
