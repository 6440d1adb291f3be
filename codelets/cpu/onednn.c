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
static void spread(const struct sgrad__layer *layer, dnnl_dims_t to, int32_t plane, int32_t depth) {
    const bool volume = layer->rank == 5;
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

static dnnl_status_t describe(const struct sgrad__layer *layer, const layout md[PARTS],
                              dnnl_engine_t engine, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd) {
    dnnl_dims_t stride, dilation, pad;
    spread(layer, stride, layer->stride, 1);
    spread(layer, dilation, layer->dilation - 1, 0);
    spread(layer, pad, layer->padding, sgrad__layer_depth_padding(layer));
    const dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    union {
        dnnl_convolution_desc_t convolution;
        dnnl_inner_product_desc_t product;
    } op;
    dnnl_status_t status = dnnl_invalid_arguments;
    if (layer->rank >= 4 && layer->pass == SGRAD__FORWARD)
        status = dnnl_dilated_convolution_forward_desc_init(&op.convolution, dnnl_forward_training, algorithm, md[X], md[W],
                                                            md[B], md[Y], stride, dilation, pad, pad);
    else if (layer->rank >= 4 && layer->pass == SGRAD__BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(&op.convolution, algorithm, md[X], md[W], md[Y], stride,
                                                                  dilation, pad, pad);
    else if (layer->rank >= 4)
        status = dnnl_dilated_convolution_backward_weights_desc_init(&op.convolution, algorithm, md[X], md[W], md[B], md[Y],
                                                                     stride, dilation, pad, pad);
    else if (layer->pass == SGRAD__FORWARD)
        status = dnnl_inner_product_forward_desc_init(&op.product, dnnl_forward_training, md[X], md[W], md[B], md[Y]);
    else if (layer->pass == SGRAD__BACKWARD_DATA)
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

static dnnl_status_t describe(const struct sgrad__layer *layer, const layout md[PARTS],
                              dnnl_engine_t engine, dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd) {
    dnnl_dims_t stride, dilation, pad;
    spread(layer, stride, layer->stride, 1);
    spread(layer, dilation, layer->dilation - 1, 0);
    spread(layer, pad, layer->padding, sgrad__layer_depth_padding(layer));
    const dnnl_alg_kind_t algorithm = dnnl_convolution_direct;
    if (layer->rank >= 4 && layer->pass == SGRAD__FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_training, algorithm, md[X], md[W], md[B],
                                                              md[Y], stride, dilation, pad, pad, attr);
    if (layer->rank >= 4 && layer->pass == SGRAD__BACKWARD_DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(pd, engine, algorithm, md[X], md[W], md[Y], stride, dilation,
                                                                    pad, pad, NULL, attr);
    if (layer->rank >= 4)
        return dnnl_convolution_backward_weights_primitive_desc_create(pd, engine, algorithm, md[X], md[W], md[B], md[Y], stride,
                                                                       dilation, pad, pad, NULL, attr);
    if (layer->pass == SGRAD__FORWARD)
        return dnnl_inner_product_forward_primitive_desc_create(pd, engine, dnnl_forward_training, md[X], md[W], md[B], md[Y],
                                                                attr);
    if (layer->pass == SGRAD__BACKWARD_DATA)
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
    sgrad_log_error(SGRAD_EDEVICE, "oneDNN failed (%s, status %d): memory is exhausted, or the library is damaged", what,
                    (int)status);
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
static dnnl_data_type_t compute_type(const struct sgrad__layer *layer) {
    return layer->dtype == SGRAD_BF16 && sgrad_isa() >= SGRAD_AVX512_BF16 ? dnnl_bf16 : dnnl_f32;
}

struct layouts {
    layout ours[PARTS];   /* layouts of the tensors */
    layout wanted[PARTS]; /* layouts requested from the primitive */
};

static void add_layout(struct layouts *layouts, int part, int rank, const dnnl_dims_t dims, dnnl_data_type_t own_type,
                       dnnl_data_type_t type, dnnl_format_tag_t own_tag, dnnl_format_tag_t tag) {
    check(layout_create(&layouts->ours[part], rank, dims, own_type, own_tag), "layout");
    check(layout_create(&layouts->wanted[part], rank, dims, type, tag), "layout");
}

/* Converts the dimensions of a tensor from this library's order, (N,…,C), to oneDNN's, (N,C,…). */
static void channels_first(const int32_t *from, int rank, dnnl_dim_t *to) {
    to[0] = from[0];
    to[1] = from[rank - 1];
    for (int i = 2; i < rank; i++) to[i] = from[i - 1];
}

/* Returns the layouts of all operands. Images of 16 channels already have the blocked layout; others must be copied into blocks.
 * Weight gradients are F32. */
static struct layouts layouts_create(const struct sgrad__layer *layer, bool blocked) {
    const dnnl_data_type_t f32 = dnnl_f32, own = layer->dtype == SGRAD_BF16 ? dnnl_bf16 : f32, type = compute_type(layer);
    const dnnl_data_type_t weight = layer->pass == SGRAD__BACKWARD_WEIGHT ? f32 : type;
    const int32_t *x = layer->x, *w = layer->w, *y = layer->y, g = layer->groups;
    struct layouts t = { 0 };
    if (layer->rank == 2) {
        add_layout(&t, X, 2, (dnnl_dims_t){ x[0], x[1] }, own, type, dnnl_ab, dnnl_ab);
        add_layout(&t, W, 2, (dnnl_dims_t){ w[0], w[1] }, f32, weight, dnnl_ab, blocked ? dnnl_format_tag_any : dnnl_ab);
        add_layout(&t, Y, 2, (dnnl_dims_t){ y[0], y[1] }, own, type, dnnl_ab, dnnl_ab);
    } else {
        const bool volume = layer->rank == 5;
        const int c = layer->rank - 1;
        const dnnl_format_tag_t last = volume ? dnnl_ndhwc : dnnl_nhwc, blocks = volume ? dnnl_nCdhw16c : dnnl_nChw16c;
        const dnnl_format_tag_t tag = blocked ? blocks : last;
        dnnl_dims_t dims;
        channels_first(x, layer->rank, dims);
        add_layout(&t, X, layer->rank, dims, own, type, x[c] == 16 ? tag : last, tag);
        channels_first(y, layer->rank, dims);
        add_layout(&t, Y, layer->rank, dims, own, type, y[c] == 16 ? tag : last, tag);
        if (g == 1) {
            channels_first(w, layer->rank, dims);
            add_layout(&t, W, layer->rank, dims, f32, weight, volume ? dnnl_odhwi : dnnl_ohwi, dnnl_format_tag_any);
        } else {
            dims[0] = g;
            channels_first(w, layer->rank, dims + 1);
            dims[1] /= g;
            add_layout(&t, W, layer->rank + 1, dims, f32, weight, volume ? dnnl_godhwi : dnnl_gohwi, dnnl_format_tag_any);
        }
    }
    if (layer->bias) add_layout(&t, B, 1, (dnnl_dims_t){ w[0] }, f32, f32, dnnl_a, dnnl_a);
    return t;
}

static void layouts_destroy(const struct layouts *layouts) {
    for (int part = 0; part < PARTS; part++) {
        layout_destroy(layouts->ours[part]);
        layout_destroy(layouts->wanted[part]);
    }
}

/* Sets up argument ARGUMENT of the plan. THEIRS is the primitive's layout. If it differs from OURS, the workspace grows by a
 * converted copy. ADDED: the result is added to the tensor. WIDENED: if not 0, the number of elements, which are bf16 in ours
 * and float in theirs, in the same order. */
static void add_argument(struct sgrad__onednn_plan *plan, struct sgrad__argument *argument, layout ours, layout theirs,
                         bool output, bool added, int64_t widened) {
    dnnl_engine_t engine = sgrad_dnnl_engine();
    check(dnnl_memory_create(&argument->ours, ours, engine, DNNL_MEMORY_NONE), "memory");
    if (dnnl_memory_desc_equal(ours, theirs) && !added) return;

    check(dnnl_memory_create(&argument->theirs, theirs, engine, DNNL_MEMORY_NONE), "memory");
    argument->offset = plan->workspace;
    plan->workspace += sgrad_aligned(dnnl_memory_desc_get_size(theirs));
    argument->count = widened;
    argument->added = added;
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
    check(dnnl_primitive_create(&argument->reorder, pd), "reorder");
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
static bool choose(const struct sgrad__layer *layer, bool blocked, dnnl_primitive_attr_t attr, struct layouts *layouts,
                   dnnl_primitive_desc_t *pd) {
    *layouts = layouts_create(layer, blocked);
    const dnnl_status_t status = describe(layer, layouts->wanted, sgrad_dnnl_engine(), attr, pd);
    const bool refused = status == dnnl_unimplemented || (status == dnnl_success && is_reference(*pd));
    if (refused && blocked) {
        if (status == dnnl_success) dnnl_primitive_desc_destroy(*pd);
        layouts_destroy(layouts);
        return false;
    }
    check(status, "primitive");
    return true;
}

static layout layout_of(dnnl_primitive_desc_t pd, const struct operand *operand) {
    return dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, operand->name);
}

/* Returns the layout of the packed weight of LAYER: the one that is best for the layer for which it was packed, which may have
 * more samples. */
static layout packed_layout(const struct sgrad__layer *layer, dnnl_primitive_attr_t attr) {
    struct sgrad__layer of = *layer;
    struct layouts layouts;
    dnnl_primitive_desc_t pd;
    of.packed = 0;
    of.x[0] = of.y[0] = sgrad__packed_samples(layer);
    if (!choose(&of, sgrad__packed_way(layer) == SGRAD__BLOCKED, attr, &layouts, &pd)) check(dnnl_unimplemented, "primitive");
    layout packed;
    check(layout_clone(&packed, layout_of(pd, &operands[layer->pass][W])), "layout");
    layouts_destroy(&layouts);
    dnnl_primitive_desc_destroy(pd);
    return packed;
}

bool sgrad__onednn_create(const struct sgrad__layer *layer, bool blocked, struct sgrad__onednn_plan *plan) {
    dnnl_engine_t engine = sgrad_dnnl_engine();
    dnnl_primitive_attr_t attr;
    check(dnnl_primitive_attr_create(&attr), "attributes");
    check(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user), "attributes");

    dnnl_primitive_desc_t pd;
    struct layouts layouts;
    if (!choose(layer, blocked, attr, &layouts, &pd)) {
        dnnl_primitive_attr_destroy(attr);
        return false;
    }
    if (layer->packed) {
        layout_destroy(layouts.ours[W]);
        layouts.ours[W] = packed_layout(layer, attr);
    }
    check(dnnl_primitive_create(&plan->primitive, pd), "primitive");

    layout scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    check(dnnl_memory_create(&plan->scratchpad, scratchpad, engine, DNNL_MEMORY_NONE), "memory");
    plan->workspace = sgrad_aligned(dnnl_memory_desc_get_size(scratchpad));
    for (int part = 0; part < PARTS; part++) {
        const struct operand *o = &operands[layer->pass][part];
        if (!o->name || !layouts.ours[part]) continue;
        const bool widened = layer->dtype == SGRAD_BF16 && compute_type(layer) == dnnl_f32 && (part == X || part == Y);
        add_argument(plan, &plan->argument[part], layouts.ours[part], layout_of(pd, o), o->output, o->output && layer->accumulate,
                     widened ? (int64_t)(sgrad__layer_bytes(layer, (enum sgrad__side)part) / sizeof(uint16_t)) : 0);
    }
    if (layer->pass != SGRAD__BACKWARD_WEIGHT && plan->argument[W].reorder)
        plan->packed = dnnl_memory_desc_get_size(layout_of(pd, &operands[layer->pass][W]));
    layouts_destroy(&layouts);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return true;
}

/* Converts an argument from the tensor's layout to the primitive's or, for an output, back. OURS and THEIRS are the data pointers
 * of the argument's two memory objects. */
static void convert(const struct sgrad__argument *argument, bool output, void *ours, void *theirs, dnnl_stream_t stream) {
    if (argument->count && output) sgrad_row_narrow(theirs, argument->count, ours, argument->added);
    else if (argument->count) sgrad__row_widen(ours, argument->count, theirs);
    if (argument->count) return;
    const dnnl_exec_arg_t fromto[] = { { DNNL_ARG_FROM, output ? argument->theirs : argument->ours },
                                       { DNNL_ARG_TO, output ? argument->ours : argument->theirs } };
    check(dnnl_primitive_execute(argument->reorder, stream, 2, fromto), "reorder");
}

void sgrad__onednn_run(const struct sgrad__layer *layer, const struct sgrad__onednn_plan *plan, void *const data[], void *room) {
    dnnl_stream_t stream = sgrad_dnnl_stream();
    const struct operand *operand = operands[layer->pass];
    dnnl_exec_arg_t bound[1 + PARTS] = { { DNNL_ARG_SCRATCHPAD, plan->scratchpad } };
    int count = 1;
    dnnl_memory_set_data_handle(plan->scratchpad, room);
    for (int part = 0; part < PARTS; part++) {
        const struct sgrad__argument *a = &plan->argument[part];
        if (!a->ours) continue;
        void *ours = data[sgrad__operand_of[layer->pass][part]], *theirs = (char *)room + a->offset;
        dnnl_memory_set_data_handle(a->ours, ours);
        if (a->theirs) dnnl_memory_set_data_handle(a->theirs, theirs);
        if (a->theirs && !operand[part].output) convert(a, false, ours, theirs, stream);
        bound[count++] = (dnnl_exec_arg_t){ operand[part].name, a->theirs ? a->theirs : a->ours };
    }
    check(dnnl_primitive_execute(plan->primitive, stream, count, bound), "primitive");
    for (int part = 0; part < PARTS; part++) {
        const struct sgrad__argument *a = &plan->argument[part];
        if (a->theirs && operand[part].output)
            convert(a, true, data[sgrad__operand_of[layer->pass][part]], (char *)room + a->offset, stream);
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
