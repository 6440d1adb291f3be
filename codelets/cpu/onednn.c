/* onednn.c: computes layers with primitives of oneDNN, version 2.6 or 3.x. */
#include "config.h"
#include "codelets/cpu/isa.h"
#include "codelets/cpu/onednn.h"
#include "codelets/cpu/algorithms.h"
#include "runtime/handles.h"

#include <stdlib.h>
#include <string.h>

enum { X = SGRAD__OF_X, W = SGRAD__OF_WEIGHT, B = SGRAD__OF_BIAS, Y = SGRAD__OF_Y, PARTS = SGRAD__PARTS };

/* Sets a parameter of each spatial dimension: PLANE for H and W and, for volumes, DEPTH for D, which is the first. */
static void spread(const struct sgrad__layer *l, dnnl_dims_t to, int32_t plane, int32_t depth) {
    const bool volume = l->rank == 5;
    to[0] = volume ? depth : plane;
    to[1] = to[2] = plane;
}

/* ---- differences between oneDNN 2.6 and 3.x: memory descriptors and operation descriptors ------------------------ */

#if DNNL_VERSION_MAJOR < 3

typedef const dnnl_memory_desc_t *layout;

static dnnl_status_t layout_create(layout *made, int rank, const dnnl_dims_t dims, dnnl_data_type_t type, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t *md = sgrad_xcalloc(1, sizeof *md);
    *made = md;
    return dnnl_memory_desc_init_by_tag(md, rank, dims, type, tag);
}

static void layout_destroy(layout made) { free((void *)made); }

static dnnl_status_t layout_clone(layout *made, layout from) {
    dnnl_memory_desc_t *md = sgrad_xcalloc(1, sizeof *md);
    *md = *from;
    *made = md;
    return dnnl_success;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1); }

static dnnl_status_t describe(const struct sgrad__layer *l, const layout md[PARTS],
                              dnnl_engine_t engine, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd) {
    dnnl_dims_t stride, dilation, pad;
    spread(l, stride, l->stride, 1);
    spread(l, dilation, l->dilation - 1, 0);
    spread(l, pad, l->padding, sgrad__layer_depth_padding(l));
    const dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    union {
        dnnl_convolution_desc_t convolution;
        dnnl_inner_product_desc_t product;
    } op;
    dnnl_status_t status = dnnl_invalid_arguments;
    if (l->rank >= 4 && l->pass == SGRAD__FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(&op.convolution, dnnl_forward_training, algorithm, md[X], md[W],
                                                            md[B], md[Y], stride, dilation, pad, pad);
    else if (l->rank >= 4 && l->pass == SGRAD__BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(&op.convolution, algorithm, md[X], md[W], md[Y], stride,
                                                                  dilation, pad, pad);
    else if (l->rank >= 4)
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

static dnnl_status_t layout_clone(layout *made, layout from) {
    dnnl_memory_desc_t md = NULL;
    dnnl_status_t status = dnnl_memory_desc_clone(&md, from);
    *made = md;
    return status;
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef); }

static dnnl_status_t describe(const struct sgrad__layer *l, const layout md[PARTS],
                              dnnl_engine_t engine, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd) {
    dnnl_dims_t stride, dilation, pad;
    spread(l, stride, l->stride, 1);
    spread(l, dilation, l->dilation - 1, 0);
    spread(l, pad, l->padding, sgrad__layer_depth_padding(l));
    const dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    if (l->rank >= 4 && l->pass == SGRAD__FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, algorithm, md[X], md[W], md[B],
                                                              md[Y], stride, dilation, pad, pad, attr);
    if (l->rank >= 4 && l->pass == SGRAD__BACKWARD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, algorithm, md[X], md[W], md[Y], stride, dilation,
                                                                    pad, pad, NULL, attr);
    if (l->rank >= 4)
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

/* ---- plans --------------------------------------------------------------------------------------------------- */

/* oneDNN's name of each operand of a layer in each pass, and whether the operand is an output. */
static const struct operand {
    int name;
    bool output;
} operands[SGRAD__PASSES][PARTS] = {
    [SGRAD__FORWARD] = { [X] = { DNNL_ARG_SRC, false },
                         [W] = { DNNL_ARG_WEIGHTS, false },
                         [B] = { DNNL_ARG_BIAS, false },
                         [Y] = { DNNL_ARG_DST, true } },
    [SGRAD__BACKWARD_DATA] = { [X] = { DNNL_ARG_DIFF_SRC, true },
                               [W] = { DNNL_ARG_WEIGHTS, false },
                               [Y] = { DNNL_ARG_DIFF_DST, false } },
    [SGRAD__BACKWARD_WEIGHT] = { [X] = { DNNL_ARG_SRC, false },
                                 [W] = { DNNL_ARG_DIFF_WEIGHTS, true },
                                 [B] = { DNNL_ARG_DIFF_BIAS, true },
                                 [Y] = { DNNL_ARG_DIFF_DST, false } },
};

/* Aborts if a function of oneDNN failed. Every layer that an operation's infer function accepts is supported at least by oneDNN's
 * reference kernel, so a failure means that memory ran out or that the library is broken. */
static void check(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return;
    sgrad_log_error(SGRAD_EDEVICE, "oneDNN %s: status %d", what, (int)status);
    abort();
}

void sgrad__onednn_destroy(struct sgrad__onednn_plan *plan) {
    dnnl_primitive_destroy(plan->primitive);
    dnnl_memory_destroy(plan->scratchpad);
    for (int part = 0; part < PARTS; part++) {
        dnnl_primitive_destroy(plan->argument[part].reorder);
        dnnl_memory_destroy(plan->argument[part].theirs);
        dnnl_memory_destroy(plan->argument[part].ours);
    }
}

/* Without bf16 instructions of the processor, oneDNN emulates bf16 at a third of the speed of f32, or rejects it. Such layers are
 * computed in f32. */
static dnnl_data_type_t compute_type(const struct sgrad__layer *l) {
    return l->dtype == SGRAD_BF16 && sgrad_isa() >= SGRAD_AVX512_BF16 ? dnnl_bf16 : dnnl_f32;
}

struct layouts {
    layout ours[PARTS];   /* layouts of the tensors */
    layout wanted[PARTS]; /* layouts requested from the primitive */
};

static void add_layout(struct layouts *t, int part, int rank, const dnnl_dims_t dims, dnnl_data_type_t own_type,
                       dnnl_data_type_t type, dnnl_format_tag_t own_tag, dnnl_format_tag_t tag) {
    check(layout_create(&t->ours[part], rank, dims, own_type, own_tag), "layout");
    check(layout_create(&t->wanted[part], rank, dims, type, tag), "layout");
}

/* Converts the dimensions of a tensor from this library's order, (N,…,C), to oneDNN's, (N,C,…). */
static void channels_first(const int32_t *from, int rank, dnnl_dim_t *to) {
    to[0] = from[0];
    to[1] = from[rank - 1];
    for (int i = 2; i < rank; i++) to[i] = from[i - 1];
}

/* Returns the layouts of all operands. Images of 16 channels already have the blocked layout; others must be copied into blocks.
 * Weight gradients are F32. */
static struct layouts layouts_create(const struct sgrad__layer *l, bool blocked) {
    const dnnl_data_type_t f32 = dnnl_f32, own = l->dtype == SGRAD_BF16 ? dnnl_bf16 : f32, type = compute_type(l);
    const dnnl_data_type_t weight = l->pass == SGRAD__BACKWARD_WEIGHT ? f32 : type;
    const int32_t *x = l->x, *w = l->w, *y = l->y, g = l->groups;
    struct layouts t = { 0 };
    if (l->rank == 2) {
        add_layout(&t, X, 2, (dnnl_dims_t){ x[0], x[1] }, own, type, dnnl_ab, dnnl_ab);
        add_layout(&t, W, 2, (dnnl_dims_t){ w[0], w[1] }, f32, weight, dnnl_ab, blocked ? dnnl_format_tag_any : dnnl_ab);
        add_layout(&t, Y, 2, (dnnl_dims_t){ y[0], y[1] }, own, type, dnnl_ab, dnnl_ab);
    } else {
        const bool volume = l->rank == 5;
        const int c = l->rank - 1;
        const dnnl_format_tag_t last = volume ? dnnl_ndhwc : dnnl_nhwc, blocks = volume ? dnnl_nCdhw16c : dnnl_nChw16c;
        const dnnl_format_tag_t tag = blocked ? blocks : last;
        dnnl_dims_t dims;
        channels_first(x, l->rank, dims);
        add_layout(&t, X, l->rank, dims, own, type, x[c] == 16 ? tag : last, tag);
        channels_first(y, l->rank, dims);
        add_layout(&t, Y, l->rank, dims, own, type, y[c] == 16 ? tag : last, tag);
        if (g == 1) {
            channels_first(w, l->rank, dims);
            add_layout(&t, W, l->rank, dims, f32, weight, volume ? dnnl_odhwi : dnnl_ohwi, dnnl_format_tag_any);
        } else {
            dims[0] = g;
            channels_first(w, l->rank, dims + 1);
            dims[1] /= g;
            add_layout(&t, W, l->rank + 1, dims, f32, weight, volume ? dnnl_godhwi : dnnl_gohwi, dnnl_format_tag_any);
        }
    }
    if (l->bias) add_layout(&t, B, 1, (dnnl_dims_t){ w[0] }, f32, f32, dnnl_a, dnnl_a);
    return t;
}

static void layouts_destroy(const struct layouts *t) {
    for (int part = 0; part < PARTS; part++) {
        layout_destroy(t->ours[part]);
        layout_destroy(t->wanted[part]);
    }
}

/* Sets up argument A of the plan. THEIRS is the primitive's layout. If it differs from OURS, the workspace grows by a converted
 * copy. ADDED: the result is added to the tensor. WIDENED: if not 0, the number of elements, which are bf16 in ours and float in
 * theirs, in the same order. */
static void add_argument(struct sgrad__onednn_plan *plan, struct sgrad__argument *a, layout ours, layout theirs, bool output,
                         bool added, int64_t widened) {
    dnnl_engine_t engine = sgrad_dnnl_engine();
    check(dnnl_memory_create(&a->ours, ours, engine, DNNL_MEMORY_NONE), "memory");
    if (dnnl_memory_desc_equal(ours, theirs) && !added) return;

    check(dnnl_memory_create(&a->theirs, theirs, engine, DNNL_MEMORY_NONE), "memory");
    a->offset = plan->workspace;
    plan->workspace += sgrad_aligned(dnnl_memory_desc_get_size(theirs));
    a->count = widened;
    a->added = added;
    if (widened) return;

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

/* Returns true if this is oneDNN's reference kernel, which is used if no fast kernel supports the layouts. It is hundreds of
 * times as slow. */
static bool is_reference(const_dnnl_primitive_desc_t pd) {
    const char *name = "";
    dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return strncmp(name, "ref", 3) == 0;
}

/* Sets the layouts of a layer and the primitive for them. Returns false if BLOCKED is set and oneDNN has no fast kernel. */
static bool choose(const struct sgrad__layer *l, bool blocked, dnnl_primitive_attr_t attr, struct layouts *layouts,
                   dnnl_primitive_desc_t *pd) {
    *layouts = layouts_create(l, blocked);
    const dnnl_status_t status = describe(l, layouts->wanted, sgrad_dnnl_engine(), attr, pd);
    const bool refused = status == dnnl_unimplemented || (status == dnnl_success && is_reference(*pd));
    if (refused && blocked) {
        if (status == dnnl_success) dnnl_primitive_desc_destroy(*pd);
        layouts_destroy(layouts);
        return false;
    }
    check(status, "primitive");
    return true;
}

static layout layout_of(dnnl_primitive_desc_t pd, const struct operand *o) {
    return dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, o->name);
}

/* Returns the layout of the packed weight of L: the one that is best for the layer for which it was packed, which may have more
 * samples. */
static layout packed_layout(const struct sgrad__layer *l, dnnl_primitive_attr_t attr) {
    struct sgrad__layer of = *l;
    struct layouts layouts;
    dnnl_primitive_desc_t pd;
    of.packed = 0;
    of.x[0] = of.y[0] = sgrad__packed_samples(l);
    if (!choose(&of, sgrad__packed_way(l) == SGRAD__BLOCKED, attr, &layouts, &pd)) check(dnnl_unimplemented, "primitive");
    layout packed;
    check(layout_clone(&packed, layout_of(pd, &operands[l->pass][W])), "layout");
    layouts_destroy(&layouts);
    dnnl_primitive_desc_destroy(pd);
    return packed;
}

bool sgrad__onednn_create(const struct sgrad__layer *l, bool blocked, struct sgrad__onednn_plan *plan) {
    dnnl_engine_t engine = sgrad_dnnl_engine();
    dnnl_primitive_attr_t attr;
    check(dnnl_primitive_attr_create(&attr), "attributes");
    check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "attributes");

    dnnl_primitive_desc_t pd;
    struct layouts layouts;
    if (!choose(l, blocked, attr, &layouts, &pd)) {
        dnnl_primitive_attr_destroy(attr);
        return false;
    }
    if (l->packed) {
        layout_destroy(layouts.ours[W]);
        layouts.ours[W] = packed_layout(l, attr);
    }
    check(dnnl_primitive_create(&plan->primitive, pd), "primitive");

    layout scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    check(dnnl_memory_create(&plan->scratchpad, scratchpad, engine, DNNL_MEMORY_NONE), "memory");
    plan->workspace = sgrad_aligned(dnnl_memory_desc_get_size(scratchpad));
    for (int part = 0; part < PARTS; part++) {
        const struct operand *o = &operands[l->pass][part];
        if (!o->name || !layouts.ours[part]) continue;
        const bool widened = l->dtype == SGRAD_BF16 && compute_type(l) == dnnl_f32 && (part == X || part == Y);
        add_argument(plan, &plan->argument[part], layouts.ours[part], layout_of(pd, o), o->output, o->output && l->accumulate,
                     widened ? (int64_t)(sgrad__layer_bytes(l, (enum sgrad__side)part) / sizeof(uint16_t)) : 0);
    }
    if (l->pass != SGRAD__BACKWARD_WEIGHT && plan->argument[W].reorder)
        plan->packed = dnnl_memory_desc_get_size(layout_of(pd, &operands[l->pass][W]));
    layouts_destroy(&layouts);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return true;
}

/* Converts an argument from the tensor's layout to the primitive's or, for an output, back. OURS and THEIRS are the data pointers
 * of the argument's two memory objects. */
static void convert(const struct sgrad__argument *a, bool output, void *ours, void *theirs, dnnl_stream_t stream) {
    if (a->count && output) sgrad_row_narrow(theirs, a->count, ours, a->added);
    else if (a->count) sgrad__row_widen(ours, a->count, theirs);
    if (a->count) return;
    const dnnl_exec_arg_t fromto[] = { { DNNL_ARG_FROM, output ? a->theirs : a->ours },
                                       { DNNL_ARG_TO, output ? a->ours : a->theirs } };
    check(dnnl_primitive_execute(a->reorder, stream, 2, fromto), "reorder");
}

void sgrad__onednn_run(const struct sgrad__layer *l, const struct sgrad__onednn_plan *plan, void *const data[], void *room) {
    dnnl_stream_t stream = sgrad_dnnl_stream();
    const struct operand *operand = operands[l->pass];
    dnnl_exec_arg_t bound[1 + PARTS] = { { DNNL_ARG_SCRATCHPAD, plan->scratchpad } };
    int count = 1;
    dnnl_memory_set_data_handle(plan->scratchpad, room);
    for (int part = 0; part < PARTS; part++) {
        const struct sgrad__argument *a = &plan->argument[part];
        if (!a->ours) continue;
        void *ours = data[sgrad__operand_of[l->pass][part]], *theirs = (char *)room + a->offset;
        dnnl_memory_set_data_handle(a->ours, ours);
        if (a->theirs) dnnl_memory_set_data_handle(a->theirs, theirs);
        if (a->theirs && !operand[part].output) convert(a, false, ours, theirs, stream);
        bound[count++] = (dnnl_exec_arg_t){ operand[part].name, a->theirs ? a->theirs : a->ours };
    }
    check(dnnl_primitive_execute(plan->primitive, stream, count, bound), "primitive");
    for (int part = 0; part < PARTS; part++) {
        const struct sgrad__argument *a = &plan->argument[part];
        if (a->theirs && operand[part].output)
            convert(a, true, data[sgrad__operand_of[l->pass][part]], (char *)room + a->offset, stream);
    }
}

void sgrad__onednn_pack(const struct sgrad__onednn_plan *plan, const float *weight, void *to) {
    const struct sgrad__argument *a = &plan->argument[W];
    dnnl_memory_set_data_handle(a->ours, (void *)weight);
    dnnl_memory_set_data_handle(a->theirs, to);
    convert(a, false, (void *)weight, to, sgrad_dnnl_stream());
}

void sgrad__onednn_multiply(bool a_turned, bool b_turned, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                            const float *b, float beta, float *c) {
    check(dnnl_sgemm(a_turned ? 'T' : 'N', b_turned ? 'T' : 'N', m, n, k, alpha, a, a_turned ? m : k, b, b_turned ? k : n, beta,
                     c, n), "matrix product");
}
