/* algorithms.c: selects the fastest algorithm for a layer on this processor. Each shape is measured once; the result is cached on
 * disk for later runs.
 *
 * A fixed rule would often be wrong. The gain of Winograd's method depends on the processor's registers and caches. With small
 * images, one transform of the filters must serve many images. The cost of copying to another layout depends on the contents of
 * the caches. Results must not depend on a measurement, though: a rule selects the algorithm with --deterministic, and also if
 * the process has CUDA workers. */
#include "config.h"
#include "codelets/cpu/onednn.h"
#include "codelets/cpu/pixels.h"
#include "codelets/cpu/product.h"
#include "codelets/cpu/tiles.h"
#include "codelets/cpu/algorithms.h"
#include "codelets/cpu/winograd.h"
#include "runtime/environment.h"

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

enum { EDITION = 9 };       /* version of the algorithms; must be incremented when one changes */
const char *const sgrad__algorithm_name[SGRAD__ALGORITHMS] = { "plain", "blocked", "winograd", "product", "pixels", "tiles" };

/* The library's own algorithms. The others are oneDNN's, and have no functions here. */
static const struct own {
    bool (*open)(const struct sgrad__layer *l);
    size_t (*workspace)(const struct sgrad__layer *l);      /* bytes */
    void (*run)(const struct sgrad__layer *l, void *const data[], float *room);
    size_t (*packed)(const struct sgrad__layer *l);         /* bytes of the packed weight; 0: no gain. NULL: never packs */
    void (*pack)(const struct sgrad__layer *l, const float *weight, void *to);
} own[SGRAD__ALGORITHMS] = {
    [SGRAD__WINOGRAD] = { sgrad__winograd_open, sgrad__winograd_workspace, sgrad__winograd_run },
    [SGRAD__PRODUCT] = { sgrad__product_open, sgrad__product_workspace, sgrad__product_run },
    [SGRAD__PIXELS] = { sgrad__pixels_open, sgrad__pixels_workspace, sgrad__pixels_run },
    [SGRAD__TILES] = { sgrad__tiles_open, sgrad__tiles_workspace, sgrad__tiles_run, sgrad__tiles_packed, sgrad__tiles_pack },
};

static bool is_open(const struct sgrad__layer *layer, enum sgrad__algorithm way) {
    if (own[way].open) return own[way].open(layer);
    if (way == SGRAD__PLAIN || layer->rank == 2) return true;
    const bool widened = layer->dtype == SGRAD_BF16 && sgrad_isa() < SGRAD_AVX512_BF16;
    const int c = layer->rank - 1;
    return layer->groups == 1 && layer->x[c] % 16 == 0 && layer->y[c] % 16 == 0 && !widened;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

struct plan {
    enum sgrad__algorithm way;
    struct sgrad__onednn_plan onednn;   /* for plain and blocked */
    size_t workspace;                   /* bytes, including SGRAD_LINE for alignment */
};

/* Returns false if oneDNN has no fast kernel for algorithm blocked. */
static bool plan_create(const struct sgrad__layer *layer, enum sgrad__algorithm way, struct plan *plan) {
    if (!own[way].run && !sgrad__onednn_create(layer, way == SGRAD__BLOCKED, &plan->onednn)) return false;
    plan->way = way;
    plan->workspace = SGRAD_LINE + (own[way].run ? own[way].workspace(layer) : plan->onednn.workspace);
    return true;
}

static void plan_destroy(void *plan) { sgrad__onednn_destroy(&((struct plan *)plan)->onednn); }

static void plan_run(const struct sgrad__layer *layer, const struct plan *plan, void *const data[], void *workspace) {
    void *room = (void *)sgrad_aligned((size_t)workspace);
    if (own[plan->way].run) own[plan->way].run(layer, data, room);
    else sgrad__onednn_run(layer, &plan->onednn, data, room);
}

/* ---- measurement ------------------------------------------------------------------------------------------------- */

/* Returns at least BYTES bytes of numbers of ordinary magnitude, which all take a processor the same time. They can be read as
 * pairs of bf16 or as f32. The caller must free it. */
static void *ordinary(size_t bytes) {
    uint32_t *words = sgrad_xcalloc(bytes / sizeof *words + 1, sizeof *words);
    for (size_t i = 0; i < bytes / sizeof *words + 1; i++) words[i] = 0x3e803e80u | (uint32_t)(i * 2654435761u & 0x00700070u);
    return words;
}

/* Sets the best time of each plan, in seconds of one core. The plans run alternately, so that other load on the machine affects
 * all of them. The first round is not counted, because memory and code are not in the caches yet. After two counted rounds, an
 * algorithm that takes more than 1.5 times as long as the best one is skipped, so its time is imprecise. */
static void take_turns(const struct sgrad__layer *layer, const struct plan plan[SGRAD__ALGORITHMS], void *const data[],
                       void *workspace, double seconds[SGRAD__ALGORITHMS]) {
    enum { LEAST_TURNS = 4, MOST_TURNS = 20 };
    static const double enough = 10e-3;     /* total, in seconds */
    double all = 0, least = INFINITY;
    for (int turn = 0; turn < MOST_TURNS && (turn < LEAST_TURNS || all < enough); turn++)
        for (enum sgrad__algorithm way = 0; way < SGRAD__ALGORITHMS; way++) {
            if (!plan[way].workspace || (turn > 2 && seconds[way] > 1.5 * least)) continue;
            const double start = sgrad_time_thread_cpu();
            plan_run(layer, &plan[way], data, workspace);
            const double took = sgrad_time_thread_cpu() - start;
            if (turn == 0) continue;
            seconds[way] = fmin(seconds[way], took);
            least = fmin(least, took);
            all += took;
        }
}

/* Returns the layer, with fewer samples if it takes more than 2e9 operations. */
static struct sgrad__layer lessened(const struct sgrad__layer *layer) {
    static const double most_flops = 2e9;
    struct sgrad__layer l = *layer;
    if (sgrad__layer_flops(&l) > most_flops) l.x[0] = l.y[0] = (int32_t)fmax(1, l.x[0] * most_flops / sgrad__layer_flops(&l));
    return l;
}

/* Sets the time of each algorithm for the layer of lessened(), in seconds; INFINITY if the layer is not supported. */
static void measure(const struct sgrad__layer *layer, double seconds[SGRAD__ALGORITHMS]) {
    const struct sgrad__layer l = lessened(layer);
    struct plan plan[SGRAD__ALGORITHMS] = { 0 };
    void *data[SGRAD__PARTS] = { NULL };
    size_t most = 0;
    for (enum sgrad__algorithm way = 0; way < SGRAD__ALGORITHMS; way++) {
        seconds[way] = INFINITY;
        if (is_open(layer, way) && plan_create(&l, way, &plan[way]) && plan[way].workspace > most) most = plan[way].workspace;
    }
    for (enum sgrad__side part = 0; part < SGRAD__PARTS; part++) {
        const size_t bytes = sgrad__layer_bytes(&l, part);
        if (bytes && sgrad__operand_of[l.pass][part] >= 0) data[sgrad__operand_of[l.pass][part]] = ordinary(bytes);
    }
    void *workspace = ordinary(most);
    take_turns(&l, plan, data, workspace, seconds);
    for (enum sgrad__algorithm way = 0; way < SGRAD__ALGORITHMS; way++)
        if (plan[way].workspace) plan_destroy(&plan[way]);
    for (int j = 0; j < SGRAD__PARTS; j++) free(data[j]);
    free(workspace);
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

/* Selects an algorithm without measuring. AMX is by far the fastest for bf16. Winograd's method is 1.3 to 2.5 times as fast as
 * direct convolution (one core, Zen 5 and Xeon). Filters of 5x5 gain only where vectors are short and arithmetic is expensive,
 * with AVX2. For forward and backward-data, the rule does not depend on the number of samples: the result of a sample has the
 * same bits in every batch. */
static enum sgrad__algorithm by_rule(const struct sgrad__layer *layer) {
    static const double worth = 2.5;
    const bool gains = layer->w[1] == 3 || sgrad_isa() < SGRAD_AVX512;
    const bool fills = layer->pass != SGRAD__BACKWARD_WEIGHT || layer->x[0] > 8;      /* a tile has 32 samples */
    if (fills && is_open(layer, SGRAD__TILES)) return SGRAD__TILES;
    if (SGRAD_LEVELS && gains && is_open(layer, SGRAD__WINOGRAD) && sgrad__winograd_saving(layer) >= worth)
        return SGRAD__WINOGRAD;
    return SGRAD__PLAIN;
}

/* Selects the fastest algorithm by measurement. All of them compute the same arithmetic as plain, except that the rounding errors
 * of Winograd's method are 1.5 times as large, or six times as large when training in bf16, where users have chosen speed over
 * precision. So an algorithm must take less than 95 % of plain's time; more is not required. */
static enum sgrad__algorithm by_measurement(const struct sgrad__layer *layer) {
    static const double worth = 0.95;
    enum sgrad__algorithm best = SGRAD__PLAIN;
    double seconds[SGRAD__ALGORITHMS];
    measure(layer, seconds);
    for (enum sgrad__algorithm way = SGRAD__PLAIN + 1; way < SGRAD__ALGORITHMS; way++)
        if (seconds[way] < seconds[best] * (best == SGRAD__PLAIN ? worth : 1)) best = way;
    return best;
}

static enum sgrad__algorithm
    asked; /* STARGRAD_CPU_ALGORITHM; SGRAD__ALGORITHMS: by measurement; larger: by rule */
static void ask(void) {
    static const char present[] = "STARGRAD_CPU_ALGORITHM", former[] = "STARGRAD_WAYS";     /* former: name in 0.1.0 */
    const char *choices[SGRAD__ALGORITHMS + 3] = { "measured", "rule" };
    for (int i = 0; i < SGRAD__ALGORITHMS; i++) choices[i + 2] = sgrad__algorithm_name[i];
    const int choice = sgrad_variable_choice(sgrad_variable(present) ? present : former, choices, "the fastest kernels are used");
    asked = choice < 2 ? SGRAD__ALGORITHMS + (choice == 1) : choice - 2;
}

/* Returns the key of a measurement: the build, the processor, oneDNN's version and the layer. The caller must free it. */
static char *memo_key(const struct sgrad__layer *layer) {
    const dnnl_version_t *v = dnnl_version();
    unsigned processor = 0;
#if defined __x86_64__ || defined __i386__
    unsigned b, c, d;
    __get_cpuid(1, &processor, &b, &c, &d);
#endif
    const int32_t *x = layer->x, *w = layer->w, *y = layer->y;
    return sgrad_format(
        "%d%s, processor %x %x, oneDNN %d.%d.%d, %s%s: %d %d, %d %d %d %d, %d %d %d %d %d x %d %d %d %d %d = %d %d %d %d %d",
        EDITION, SGRAD_LEVELS ? "" : " baseline", processor, (unsigned)dnnl_get_effective_cpu_isa(), v->major, v->minor, v->patch,
        sgrad_dtype_name((enum sgrad_dtype)layer->dtype), layer->exact ? " exact" : "", layer->pass, layer->bias, layer->stride,
        layer->dilation, layer->padding, layer->groups, x[0], x[1], x[2], x[3], x[4], w[0], w[1], w[2], w[3], w[4], y[0], y[1],
        y[2], y[3], y[4]);
}

static enum sgrad__algorithm remembered(const struct sgrad__layer *layer) {
    static const char topic[] = "onednn";
    char *key = memo_key(layer), value[16];
    enum sgrad__algorithm way = SGRAD__ALGORITHMS;
    if (sgrad_tuning_cache_get(topic, key, value, sizeof value))
        for (way = 0; way < SGRAD__ALGORITHMS && strcmp(value, sgrad__algorithm_name[way]) != 0; way++) continue;
    if (way == SGRAD__ALGORITHMS || !is_open(layer, way)) {
        static int measured;
        char *doing = sgrad_format(
            "stargrad: measuring which kernel is fastest for layer %d (STARGRAD_CPU_ALGORITHM=rule skips this)", ++measured);
        sgrad_log_progress(doing);
        free(doing);
        way = by_measurement(layer);
        sgrad_log_progress(NULL);
        sgrad_tuning_cache_put(topic, key, sgrad__algorithm_name[way]);
    }
    free(key);
    return way;
}

/* The algorithm of a layer, decided once per process: the size of a task's workspace depends on it. */
struct decision {
    struct sgrad__layer layer;
    enum sgrad__algorithm way;
    struct decision *next;
};
static struct decision *decisions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static enum sgrad__algorithm way_of(const struct sgrad__layer *layer) {
    struct sgrad__layer key = *layer;
    key.accumulate = 0;     /* one more pass over the result with every algorithm */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool open = false;
    if (layer->packed) return sgrad__packed_way(layer);
    pthread_once(&once, ask);
    if (asked < SGRAD__ALGORITHMS) return is_open(layer, asked) ? asked : SGRAD__PLAIN;
    for (enum sgrad__algorithm way = SGRAD__PLAIN + 1; way < SGRAD__ALGORITHMS; way++) open |= is_open(layer, way);
    if (layer->deterministic || asked > SGRAD__ALGORITHMS || sgrad_cuda_workers() > 0 || !open) return by_rule(layer);
    pthread_mutex_lock(&lock);
    struct decision *d = decisions;
    while (d && memcmp(&d->layer, &key, sizeof key) != 0) d = d->next;
    if (!d) {
        d = sgrad_xcalloc(1, sizeof *d);
        *d = (struct decision){ key, remembered(&key), decisions };
        decisions = d;
    }
    pthread_mutex_unlock(&lock);
    return d->way;
}

/* Measures with one thread, like a worker. */
void sgrad__algorithms_measure(const struct sgrad__layer *layer, struct sgrad_algorithm way[SGRAD__ALGORITHMS]) {
    const struct sgrad__layer l = lessened(layer);
    const int threads = omp_get_max_threads();
    double seconds[SGRAD__ALGORITHMS];
    omp_set_num_threads(1);
    measure(layer, seconds);
    for (enum sgrad__algorithm i = 0; i < SGRAD__ALGORITHMS; i++) {
        struct plan plan = { 0 };
        way[i] = (struct sgrad_algorithm){ sgrad__algorithm_name[i], seconds[i] * layer->x[0] / l.x[0], 0 };
        if (!isfinite(seconds[i]) || !plan_create(layer, i, &plan)) continue;
        way[i].bytes = (double)plan.workspace;
        plan_destroy(&plan);
    }
    omp_set_num_threads(threads);
}

/* ---- functions called by passes.c -------------------------------------------------------------------------------- */

/* Creates the plan of the selected algorithm, or of plain if oneDNN has no fast kernel for it. */
static void plan_best(const struct sgrad__layer *layer, struct plan *plan) {
    if (!plan_create(layer, way_of(layer), plan)) plan_create(layer, SGRAD__PLAIN, plan);
}

/* Creates the plan with one thread, like a worker: oneDNN's choices depend on the number of threads. */
static void plan_alone(const struct sgrad__layer *layer, struct plan *plan) {
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    plan_best(layer, plan);
    omp_set_num_threads(threads);
}

size_t sgrad__algorithms_workspace(const struct sgrad__layer *layer) {
    struct plan plan = { 0 };
    plan_alone(layer, &plan);
    plan_destroy(&plan);
    return plan.workspace;
}

/* Returns the calling worker's plan of the layer, which is created at the first call. */
static const struct plan *plan_of(const struct sgrad__layer *layer) {
    static struct sgrad_cache cache = { .key_size = sizeof(struct sgrad__layer),
                                        .value_size = sizeof(struct plan),
                                        .destroy = plan_destroy };
    bool created;
    struct plan *plan = sgrad_cache_get(&cache, layer, &created);
    if (created) plan_best(layer, plan);
    return plan;
}

void sgrad__algorithms_run(const struct sgrad__layer *layer, const struct sgrad_args *args) {
    const struct plan *plan = plan_of(layer);
    assert(args->workspace_size >= plan->workspace);
    plan_run(layer, plan, args->data, args->workspace);
}

/* F32 layers gain little from packing, so they are not packed. */
int sgrad__algorithms_packing(const struct sgrad__layer *layer, size_t *bytes) {
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

void sgrad__algorithms_pack(const struct sgrad__layer *layer, const float *weight, void *to) {
    const enum sgrad__algorithm way = sgrad__packed_way(layer);
    struct sgrad__layer l = *layer;
    l.packed = 0;
    if (own[way].pack) own[way].pack(&l, weight, to);
    else sgrad__onednn_pack(&plan_of(&l)->onednn, weight, to);
}
