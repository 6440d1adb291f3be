/* onednn.c: plans, and what differs between oneDNN 2.6 and 3.x. */
#include "codelets/onednn.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>

enum { X, W, B, Y, ROLES };

/* ---- what oneDNN 2.6 and 3.x say differently: memory descriptors and operation descriptors ----------------------- */

#if DNNL_VERSION_MAJOR < 3

typedef const dnnl_memory_desc_t *layout;

static dnnl_status_t layout_create(layout *made, int rank, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t *md = sgrad_alloc(1, sizeof *md);
    *made = md;
    return dnnl_memory_desc_init_by_tag(md, rank, dims, type, tag);
}

static void layout_destroy(layout made) { free((void *)made); }

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1); }

static dnnl_status_t describe(const struct sgrad__layer *l, const layout md[ROLES],
                              dnnl_engine_t engine, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd) {
    const dnnl_dims_t stride = { l->stride, l->stride }, dilation = { l->dilation - 1, l->dilation - 1 },
                      pad = { l->padding, l->padding };
    const dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    union {
        dnnl_convolution_desc_t convolution;
        dnnl_inner_product_desc_t product;
    } op;
    dnnl_status_t status = dnnl_invalid_arguments;
    if (l->rank == 4 && l->pass == SGRAD__FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(&op.convolution, dnnl_forward_training, algorithm, md[X], md[W],
                                                            md[B], md[Y], stride, dilation, pad, pad);
    else if (l->rank == 4 && l->pass == SGRAD__BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(&op.convolution, algorithm, md[X], md[W], md[Y], stride,
                                                                  dilation, pad, pad);
    else if (l->rank == 4)
        status = dnnl_dilated_convolution_backward_weights_desc_init(&op.convolution, algorithm, md[X], md[W], md[B], md[Y],
                                                                     stride, dilation, pad, pad);
    else if (l->pass == SGRAD__FORWARD)
        status = dnnl_inner_product_forward_desc_init(&op.product, dnnl_forward_training, md[X], md[W], md[B], md[Y]);
    else if (l->pass == SGRAD__BACKWARD_DATA)
        status = dnnl_inner_product_backward_data_desc_init(&op.product, md[X], md[W], md[Y]);
    else
        status = dnnl_inner_product_backward_weights_desc_init(&op.product, md[X], md[W], md[B], md[Y]);
    return status ? status : dnnl_primitive_desc_create(pd, &op, attr, engine, NULL);
}

#else

typedef const_dnnl_memory_desc_t layout;

static dnnl_status_t layout_create(layout *made, int rank, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t md = NULL;
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(&md, rank, dims, type, tag);
    *made = md;
    return status;
}

static void layout_destroy(layout made) { dnnl_memory_desc_destroy((dnnl_memory_desc_t)made); }

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef); }

static dnnl_status_t describe(const struct sgrad__layer *l, const layout md[ROLES],
                              dnnl_engine_t engine, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd) {
    const dnnl_dims_t stride = { l->stride, l->stride }, dilation = { l->dilation - 1, l->dilation - 1 },
                      pad = { l->padding, l->padding };
    const dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    if (l->rank == 4 && l->pass == SGRAD__FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, algorithm, md[X], md[W], md[B],
                                                              md[Y], stride, dilation, pad, pad, attr);
    if (l->rank == 4 && l->pass == SGRAD__BACKWARD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, algorithm, md[X], md[W], md[Y], stride, dilation,
                                                                    pad, pad, NULL, attr);
    if (l->rank == 4)
        return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, algorithm, md[X], md[W], md[B], md[Y], stride,
                                                                       dilation, pad, pad, NULL, attr);
    if (l->pass == SGRAD__FORWARD)
        return dnnl_inner_product_forward_primitive_desc_create(pd, engine, dnnl_forward_training, md[X], md[W], md[B], md[Y],
                                                                attr);
    if (l->pass == SGRAD__BACKWARD_DATA)
        return dnnl_inner_product_backward_data_primitive_desc_create(pd, engine, md[X], md[W], md[Y], NULL, attr);
    return dnnl_inner_product_backward_weights_primitive_desc_create(pd, engine, md[X], md[W], md[B], md[Y], NULL, attr);
}

#endif

/* ---- plans ----------------------------------------------------------------------------------------------------- */

/* What each operand of each pass is: its role, oneDNN's name for it, and whether it is written. */
static const struct operand {
    int role, name;
    bool output;
} operands[3][4] = {
    [SGRAD__FORWARD] = { { X, DNNL_ARG_SRC, false },
                         { W, DNNL_ARG_WEIGHTS, false },
                         { B, DNNL_ARG_BIAS, false },
                         { Y, DNNL_ARG_DST, true } },
    [SGRAD__BACKWARD_DATA] = { { Y, DNNL_ARG_DIFF_DST, false }, { W, DNNL_ARG_WEIGHTS, false }, { X, DNNL_ARG_DIFF_SRC, true } },
    [SGRAD__BACKWARD_WEIGHT] = { { X, DNNL_ARG_SRC, false },
                                 { Y, DNNL_ARG_DIFF_DST, false },
                                 { W, DNNL_ARG_DIFF_WEIGHTS, true },
                                 { B, DNNL_ARG_DIFF_BIAS, true } },
};

struct plan {
    dnnl_primitive_t primitive; /* NULL: winograd.c does it */
    dnnl_memory_t scratchpad; /* at the start of the workspace */
    struct argument {
        dnnl_memory_t ours;       /* as the tensor lies; NULL: no such operand */
        dnnl_memory_t theirs;     /* as the primitive wants it, in the workspace; NULL: the same */
        dnnl_primitive_t reorder; /* ours to theirs, or theirs to ours for an output */
        size_t offset;            /* of theirs in the workspace */
    } argument[4];
    size_t workspace; /* bytes; SGRAD_LINE of them because a workspace may begin anywhere */
};

/* Every layer that infer accepts has at least oneDNN's reference kernel: a refusal means memory ran out or a broken library. */
static void check(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return;
    sgrad_fail(SGRAD_EDEVICE, "oneDNN %s: status %d", what, (int)status);
    abort();
}

static void plan_destroy(void *value) {
    struct plan *plan = value;
    dnnl_primitive_destroy(plan->primitive);
    dnnl_memory_destroy(plan->scratchpad);
    for (int j = 0; j < 4; j++) {
        dnnl_primitive_destroy(plan->argument[j].reorder);
        dnnl_memory_destroy(plan->argument[j].theirs);
        dnnl_memory_destroy(plan->argument[j].ours);
    }
}

bool sgrad__has_isa(unsigned isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

/* Without the processor's own instructions bf16 is emulated at a third of the speed of f32, or refused: compute in f32 then. */
static dnnl_data_type_t compute_type(const struct sgrad__layer *l) {
    return l->dtype == SGRAD_BF16 && sgrad__has_isa(dnnl_cpu_isa_avx512_core_bf16) ? dnnl_bf16 : dnnl_f32;
}

struct layouts {
    layout ours[ROLES];   /* as the tensors lie */
    layout wanted[ROLES]; /* as the primitive is asked to take them */
};

static void add_layout(struct layouts *t, int role, int rank, const dnnl_dims_t dims, dnnl_data_type_t own_type,
                       dnnl_data_type_t type, dnnl_format_tag_t own_tag, dnnl_format_tag_t tag) {
    check(layout_create(&t->ours[role], rank, dims, own_type, own_tag), "layout");
    check(layout_create(&t->wanted[role], rank, dims, type, tag), "layout");
}

/* Images of 16 channels lie as blocks of 16 do; others are copied into blocks. Weight gradients are F32. */
static struct layouts layouts_create(const struct sgrad__layer *l, enum sgrad__way way) {
    const dnnl_data_type_t f32 = dnnl_f32, own = l->dtype == SGRAD_BF16 ? dnnl_bf16 : f32, type = compute_type(l);
    const dnnl_data_type_t weight = l->pass == SGRAD__BACKWARD_WEIGHT ? f32 : type;
    const int32_t *x = l->x, *w = l->w, *y = l->y, g = l->groups;
    struct layouts t = { 0 };
    if (l->rank == 2) {
        add_layout(&t, X, 2, (dnnl_dims_t){ x[0], x[1] }, own, type, dnnl_ab, dnnl_ab);
        add_layout(&t, W, 2, (dnnl_dims_t){ w[0], w[1] }, f32, weight, dnnl_ab, way == SGRAD__PLAIN ? dnnl_ab : dnnl_format_tag_any);
        add_layout(&t, Y, 2, (dnnl_dims_t){ y[0], y[1] }, own, type, dnnl_ab, dnnl_ab);
    } else {
        const dnnl_format_tag_t tag = way == SGRAD__PLAIN ? dnnl_nhwc : dnnl_nChw16c;
        add_layout(&t, X, 4, (dnnl_dims_t){ x[0], x[3], x[1], x[2] }, own, type, x[3] == 16 ? tag : dnnl_nhwc, tag);
        add_layout(&t, Y, 4, (dnnl_dims_t){ y[0], y[3], y[1], y[2] }, own, type, y[3] == 16 ? tag : dnnl_nhwc, tag);
        if (g == 1)
            add_layout(&t, W, 4, (dnnl_dims_t){ w[0], w[3], w[1], w[2] }, f32, weight, dnnl_ohwi, dnnl_format_tag_any);
        else
            add_layout(&t, W, 5, (dnnl_dims_t){ g, w[0] / g, w[3], w[1], w[2] }, f32, weight, dnnl_gohwi, dnnl_format_tag_any);
    }
    if (l->bias) add_layout(&t, B, 1, (dnnl_dims_t){ w[0] }, f32, f32, dnnl_a, dnnl_a);
    return t;
}

static void layouts_destroy(const struct layouts *t) {
    for (int role = 0; role < ROLES; role++) {
        layout_destroy(t->ours[role]);
        layout_destroy(t->wanted[role]);
    }
}

/* Appends an operand to the plan. THEIRS is the primitive's layout; ADDED: the result is added to what is there. */
static void add_argument(struct plan *plan, struct argument *a, layout ours, layout theirs, bool output, bool added) {
    dnnl_engine_t engine = sgrad_dnnl_engine();
    check(dnnl_memory_create(&a->ours, ours, engine, DNNL_MEMORY_NONE), "memory");
    if (dnnl_memory_desc_equal(ours, theirs) && !added) return;

    check(dnnl_memory_create(&a->theirs, theirs, engine, DNNL_MEMORY_NONE), "memory");
    a->offset = plan->workspace;
    plan->workspace += sgrad_aligned(dnnl_memory_desc_get_size(theirs));

    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    dnnl_primitive_desc_t pd;
    check(dnnl_post_ops_create(&ops), "attributes");
    if (added) check(append_sum(ops), "attributes");
    check(dnnl_primitive_attr_create(&attr), "attributes");
    check(dnnl_primitive_attr_set_post_ops(attr, ops), "attributes");
    check(dnnl_reorder_primitive_desc_create(&pd, output ? theirs : ours, engine, output ? ours : theirs, engine, attr),
          "reorder");
    check(dnnl_primitive_create(&a->reorder, pd), "reorder");
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    dnnl_post_ops_destroy(ops);
}

/* What oneDNN has for layouts that none of its fast kernels takes: hundreds of times as slow. */
static bool is_reference(const_dnnl_primitive_desc_t pd) {
    const char *name = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return strncmp(name, "ref", 3) == 0;
}

/* False: oneDNN has no such way. */
static bool plan_create(const struct sgrad__layer *l, enum sgrad__way way, struct plan *plan) {
    if (way == SGRAD__WINOGRAD) {
        plan->workspace = sgrad__winograd_workspace(l) + SGRAD_LINE;
        return true;
    }
    dnnl_engine_t engine = sgrad_dnnl_engine();
    dnnl_primitive_attr_t attr;
    check(dnnl_primitive_attr_create(&attr), "attributes");
    check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "attributes");

    dnnl_primitive_desc_t pd;
    struct layouts layouts = layouts_create(l, way);
    dnnl_status_t status = describe(l, layouts.wanted, engine, attr, &pd);
    const bool refused = status == dnnl_unimplemented || (status == dnnl_success && is_reference(pd));
    if (refused && way != SGRAD__PLAIN) {
        if (status == dnnl_success) dnnl_primitive_desc_destroy(pd);
        layouts_destroy(&layouts);
        dnnl_primitive_attr_destroy(attr);
        return false;
    }
    check(status, "primitive");
    check(dnnl_primitive_create(&plan->primitive, pd), "primitive");

    layout scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    check(dnnl_memory_create(&plan->scratchpad, scratchpad, engine, DNNL_MEMORY_NONE), "memory");
    plan->workspace = sgrad_aligned(dnnl_memory_desc_get_size(scratchpad));
    for (int j = 0; j < 4; j++) {
        const struct operand *o = &operands[l->pass][j];
        if (!o->name || !layouts.ours[o->role]) continue;
        layout theirs = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, o->name);
        add_argument(plan, &plan->argument[j], layouts.ours[o->role], theirs, o->output,
                     o->output && l->accumulate);
    }
    plan->workspace += SGRAD_LINE;
    layouts_destroy(&layouts);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return true;
}

/* ---- what the operations call ------------------------------------------------------------------------------------ */

static void copy_dims(int32_t to[4], const struct sgrad_view *from) {
    for (int i = 0; i < from->shape.rank; i++) to[i] = (int32_t)from->shape.dim[i];
}

struct sgrad__layer sgrad__layer_of(enum sgrad__pass pass, const struct sgrad_args *args) {
    struct sgrad__layer l = {
        .pass = pass, .rank = args->view[0].shape.rank, .dtype = args->view[0].dtype, .stride = 1, .dilation = 1, .groups = 1
    };
    for (int j = 0; j < 4; j++) {
        const struct operand *o = &operands[pass][j];
        if (!o->name) continue;
        if (o->role == B)
            l.bias = args->view[j].shape.rank >= 0;
        else
            copy_dims(o->role == X ? l.x : o->role == W ? l.w : l.y, &args->view[j]);
    }
    l.accumulate = args->accumulate != 0;
    l.deterministic = args->deterministic;
    return l;
}

/* A multiplication and an addition for each output and each weight that reaches it, whichever of the three is wanted. */
double sgrad__layer_flops(const struct sgrad__layer *l) {
    if (l->rank == 2) return 2.0 * l->y[0] * l->w[0] * l->w[1];
    return 2.0 * l->y[0] * l->y[1] * l->y[2] * l->w[0] * l->w[1] * l->w[2] * l->w[3];
}

/* Where a rule wants a way that oneDNN does not have, the plain one. */
static void plan_open(const struct sgrad__layer *l, struct plan *plan) {
    if (!plan_create(l, sgrad__way_of(l), plan)) plan_create(l, SGRAD__PLAIN, plan);
}

/* Asked with one thread, as workers have it: oneDNN's choices depend on the number of threads. */
size_t sgrad__layer_workspace(const struct sgrad__layer *layer) {
    struct plan plan = { 0 };
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    plan_open(layer, &plan);
    omp_set_num_threads(threads);
    plan_destroy(&plan);
    return plan.workspace;
}

static void execute_reorder(const struct argument *a, bool output, dnnl_stream_t stream) {
    const dnnl_exec_arg_t fromto[] = { { DNNL_ARG_FROM, output ? a->theirs : a->ours },
                                       { DNNL_ARG_TO, output ? a->ours : a->theirs } };
    check(dnnl_primitive_execute(a->reorder, stream, 2, fromto), "reorder");
}

static void execute(const struct sgrad__layer *layer, struct plan *plan, void *const data[], void *workspace) {
    char *room = (char *)sgrad_aligned((size_t)workspace);
    if (!plan->primitive) {
        sgrad__winograd_run(layer, data, (float *)room);
        return;
    }
    dnnl_stream_t stream = sgrad_dnnl_stream();
    const struct operand *operand = operands[layer->pass];
    dnnl_exec_arg_t bound[5] = { { DNNL_ARG_SCRATCHPAD, plan->scratchpad } };
    int count = 1;
    dnnl_memory_set_data_handle(plan->scratchpad, room);
    for (int j = 0; j < 4; j++) {
        struct argument *a = &plan->argument[j];
        if (!a->ours) continue;
        dnnl_memory_set_data_handle(a->ours, data[j]);
        if (a->theirs) dnnl_memory_set_data_handle(a->theirs, room + a->offset);
        if (a->theirs && !operand[j].output) execute_reorder(a, false, stream);
        bound[count++] = (dnnl_exec_arg_t){ operand[j].name, a->theirs ? a->theirs : a->ours };
    }
    check(dnnl_primitive_execute(plan->primitive, stream, count, bound), "primitive");
    for (int j = 0; j < 4; j++)
        if (plan->argument[j].theirs && operand[j].output) execute_reorder(&plan->argument[j], true, stream);
}

void sgrad__layer_run(const struct sgrad__layer *layer, const struct sgrad_args *args) {
    static struct sgrad_cache cache = { .key_size = sizeof(struct sgrad__layer),
                                        .value_size = sizeof(struct plan),
                                        .destroy = plan_destroy };
    bool fresh;
    struct plan *plan = sgrad_cache_get(&cache, layer, &fresh);
    if (fresh) plan_open(layer, plan);
    assert(args->workspace_size >= plan->workspace);
    execute(layer, plan, args->data, args->workspace);
}

/* ---- measured ---------------------------------------------------------------------------------------------------- */

static size_t bytes_of(dnnl_memory_t memory) {
    layout md;
    check(dnnl_memory_get_memory_desc(memory, &md), "memory");
    return dnnl_memory_desc_get_size(md);
}

/* Numbers of ordinary size, which all look alike to a processor: as two bf16 or as an f32. */
static void *ordinary(size_t bytes) {
    uint32_t *words = sgrad_alloc(bytes / sizeof *words + 1, sizeof *words);
    for (size_t i = 0; i < bytes / sizeof *words + 1; i++) words[i] = 0x3e803e80u | (uint32_t)(i * 2654435761u & 0x00700070u);
    return words;
}

void sgrad__ways_time(const struct sgrad__layer *layer, double seconds[SGRAD__WAYS]) {
    enum { LEAST_TURNS = 4, MOST_TURNS = 20 };
    static const double enough = 10e-3, most_flops = 2e9;    /* seconds in all; of one time, which may be on fewer samples */
    struct sgrad__layer l = *layer;
    struct plan plan[SGRAD__WAYS] = { 0 };
    void *data[4] = { NULL };
    size_t most = 0;
    double all = 0, least = INFINITY;
    if (sgrad__layer_flops(&l) > most_flops) l.x[0] = l.y[0] = (int32_t)fmax(1, l.x[0] * most_flops / sgrad__layer_flops(&l));
    for (enum sgrad__way way = 0; way < SGRAD__WAYS; way++) {
        seconds[way] = INFINITY;
        if (sgrad__way_open(layer, way) && plan_create(&l, way, &plan[way]) && plan[way].workspace > most) most = plan[way].workspace;
    }
    for (int j = 0; j < 4; j++)
        if (plan[SGRAD__PLAIN].argument[j].ours) data[j] = ordinary(bytes_of(plan[SGRAD__PLAIN].argument[j].ours));
    void *workspace = ordinary(most);
    /* In turns, so that what else the machine does hurts all; the first turn finds memory and code new. */
    for (int turn = 0; turn < MOST_TURNS && (turn < LEAST_TURNS || all < enough); turn++)
        for (enum sgrad__way way = 0; way < SGRAD__WAYS; way++) {
            if (!plan[way].workspace || (turn > 1 && seconds[way] > 1.5 * least)) continue;
            const double start = omp_get_wtime();
            execute(&l, &plan[way], data, workspace);
            const double took = omp_get_wtime() - start;
            if (turn == 0) continue;
            seconds[way] = fmin(seconds[way], took);
            least = fmin(least, took);
            all += took;
        }
    for (enum sgrad__way way = 0; way < SGRAD__WAYS; way++)
        if (plan[way].workspace) plan_destroy(&plan[way]);
    for (int j = 0; j < 4; j++) free(data[j]);
    free(workspace);
}
