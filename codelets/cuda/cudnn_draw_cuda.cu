/* cudnn_draw_cuda.cu: builds cuDNN graphs of convolutions with the operations before and after them.
 *
 *     forward          x ─ sub mean ─ mul scale ─ add shift ─ relu ─┐
 *                                                                  conv ─ add bias ─ relu ─> y ─ genstats ─> Σy, Σy²
 *                                                              w ──┘
 *     backward-data    dy, w ─ conv ─┐
 *                      mask ──────── drelu ─> dx ─┬──────────── add up ─> Σdx
 *                                     source - mean ─ mul ─ add up ─> Σdx · (source - mean)
 *     backward-weight  x, dy ─ conv ─> dw
 *
 * All operations except the convolution are optional. Intermediate tensors are *virtual*: they are never written to memory. They
 * are F32, except the inputs of the convolution, which are rounded to the type of the activations, as batch norm's own kernel
 * rounds them.
 *
 * cuDNN 9.19's heuristics answer as follows for an A100 (sm_80), an H100 (sm_90) and a B200 (sm_100), which were described to it
 * without a GPU. The answers are the same for all three, and for filters of 1x1, of 3x3, and of 3x3 with stride 2:
 *
 *                                                           bf16       F32 as TF32   F32 exact
 *     only one of the three passes                          prebuilt   prebuilt      prebuilt
 *     forward, bias, with or without ReLU                   prebuilt   prebuilt      prebuilt
 *     forward, ReLU                                         compiled   compiled      compiled
 *     forward, Σy and Σy²                                   compiled   compiled      none
 *     batch norm, [ReLU], forward, [Σy and Σy²]             compiled   compiled      none
 *     backward-data, a ReLU's mask                          compiled   compiled      compiled
 *     backward-data, [mask], Σdz and Σdz·x                  compiled   compiled      none
 *     batch norm, ReLU, backward-weight                     none       none          none
 *     backward-data as DgradDreluBNBwdWeight                none       none          none
 *
 * Brackets: with or without. Prebuilt: the kernel is in cuDNN. Compiled: it is compiled when the plan is created. None: there is
 * no kernel. Only for F16, these are prebuilt, too: batch norm before a convolution, sums after it, and the last two rows. Both
 * inputs of a convolution must have the same type; the gradient of its weight has that type, too.
 *
 * Source: cuDNN's backend API reference, and its developer guide on graphs, version 9. */
#include "codelets/cuda/cudnn_descriptors.h"

namespace {

typedef sgrad__descriptors descriptors;
typedef cudnnBackendDescriptor_t descriptor;

cudnnDataType_t type_of(const struct sgrad__graph_key &key) {
    return key.dtype == SGRAD_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* ---- operations ---------------------------------------------------------------------------------------------------- */

/* A graph under construction: its operations, and the operands that they use. Tensors are identified by numbers; those of
 * intermediate tensors start at SGRAD__GRAPH_OPERANDS. */
struct drawing {
    descriptors &all;
    const struct sgrad__graph_key &key;
    std::vector<descriptor> op;
    std::vector<int64_t> used;
    int64_t next = SGRAD__GRAPH_OPERANDS;

    /* Creates a tensor. Its memory layout is channels-last, although the order of its dimensions is (N,C,[D,]H,W). */
    descriptor tensor(int64_t number, cudnnDataType_t type, const int32_t *dim) {
        const bool is_virtual = number >= SGRAD__GRAPH_OPERANDS;
        int64_t size[5], stride[5], step = dim[1];
        stride[1] = 1;
        for (int i = key.dims - 1; i > 1; i--) stride[i] = step, step *= dim[i];
        stride[0] = step;
        for (int i = 0; i < key.dims; i++) size[i] = dim[i];
        if (!is_virtual) used.push_back(number);
        const descriptor d = all.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        all.set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, sgrad__graph_uid(number));
        all.set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
        all.set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, key.dims, size);
        all.set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, key.dims, stride);
        all.set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, (int64_t)16);
        all.set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
        return all.finish(d);
    }
    /* Tensors. whole: an operand with the shape of x. vector: one with an element per channel. between: an intermediate
     * tensor. */
    descriptor whole(int64_t number) { return tensor(number, type_of(key), key.x); }
    descriptor vector(int64_t number, int32_t channels, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
        const int32_t dim[5] = { 1, channels, 1, 1, 1 };
        return tensor(number, type, dim);
    }
    descriptor between(const int32_t *dim, cudnnDataType_t type = CUDNN_DATA_FLOAT) { return tensor(next++, type, dim); }

    void convolution(descriptor x, descriptor w, descriptor y);
    descriptor pointwise(cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor to);
    void masked(descriptor dy, descriptor y, descriptor dx);
    void sums(descriptor y, descriptor sum, descriptor square);
    void add_up(descriptor x, descriptor sum);
    descriptor scaled(descriptor centered, descriptor to);
    descriptor finish();
};

void drawing::convolution(descriptor x, descriptor w, descriptor y) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t how, x, w, y, alpha, beta;
    } passes[] = {
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
        { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA },
    };
    const auto &names = passes[key.pass];
    const int64_t spatial = key.dims - 2;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const float one = 1, zero = 0;
    int64_t padding[3], stride[3], dilation[3];
    for (int i = 0; i < spatial; i++) padding[i] = key.padding[i], stride[i] = key.stride[i], dilation[i] = key.dilation[i];
    const descriptor how = all.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    all.set(how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    all.set(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    all.set(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, spatial);
    all.set(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, spatial, padding);
    all.set(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, spatial, padding);
    all.set(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, spatial, stride);
    all.set(how, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, spatial, dilation);
    all.finish(how);
    const descriptor d = all.make(names.type);
    all.set(d, names.how, how);
    all.set(d, names.x, x);
    all.set(d, names.w, w);
    all.set(d, names.y, y);
    all.set(d, names.alpha, CUDNN_TYPE_FLOAT, 1, &one);
    all.set(d, names.beta, CUDNN_TYPE_FLOAT, 1, &zero);
    op.push_back(all.finish(d));
}

/* Returns a pointwise operation whose operands are not set yet. */
descriptor pointwise_of(descriptors &all, cudnnPointwiseMode_t mode) {
    const descriptor how = all.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    all.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    all.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    all.finish(how);
    const descriptor d = all.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    return d;
}

/* TO = MODE(x, b), or MODE(x) if B is NULL. */
descriptor drawing::pointwise(cudnnPointwiseMode_t mode, descriptor x, descriptor b, descriptor to) {
    const descriptor d = pointwise_of(all, mode);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
    op.push_back(all.finish(d));
    return to;
}

/* dx = dy where y > 0 */
void drawing::masked(descriptor dy, descriptor y, descriptor dx) {
    const descriptor d = pointwise_of(all, CUDNN_POINTWISE_RELU_BWD);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, y);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx);
    op.push_back(all.finish(d));
}

/* TO = centered · scale + shift, where scale and shift are per channel of x. */
descriptor drawing::scaled(descriptor centered, descriptor to) {
    const descriptor product =
        pointwise(CUDNN_POINTWISE_MUL, centered, vector(SGRAD__AT_SCALE, key.x[1]), between(key.x));
    return pointwise(CUDNN_POINTWISE_ADD, product, vector(SGRAD__AT_SHIFT, key.x[1]), to);
}

void drawing::sums(descriptor y, descriptor sum, descriptor square) {
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const descriptor d = all.make(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    all.set(d, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    all.set(d, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
    all.set(d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y);
    all.set(d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    all.set(d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, square);
    op.push_back(all.finish(d));
}

void drawing::add_up(descriptor x, descriptor sum) {
    const cudnnReduceTensorOp_t add = CUDNN_REDUCE_TENSOR_ADD;
    const descriptor how = all.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    all.set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &add);
    all.set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    all.finish(how);
    const descriptor d = all.make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    all.set(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    all.set(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    all.set(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, sum);
    op.push_back(all.finish(d));
}

descriptor drawing::finish() {
    const descriptor graph = all.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const cudnnHandle_t handle = sgrad_cudnn();
    all.set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    all.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, (int64_t)op.size(), op.data());
    return all.finish(graph);
}

/* ---- the three passes as graphs ------------------------------------------------------------------------------------- */

void draw_forward(drawing &g) {
    const int32_t steps = g.key.steps, C = g.key.x[1], K = g.key.y[1];
    const cudnnDataType_t type = type_of(g.key);
    descriptor x = g.whole(SGRAD__AT_X);
    if (steps & SGRAD__SCALE) {
        const bool relu = steps & SGRAD__SCALE_RELU;
        x = g.pointwise(CUDNN_POINTWISE_SUB, x, g.vector(SGRAD__AT_MEAN, C), g.between(g.key.x));
        x = g.scaled(x, g.between(g.key.x, relu ? CUDNN_DATA_FLOAT : type));
        if (relu) x = g.pointwise(CUDNN_POINTWISE_RELU_FWD, x, NULL, g.between(g.key.x, type));
    }
    const descriptor y = g.tensor(SGRAD__AT_Y, type, g.key.y);
    const bool bias = steps & SGRAD__BIAS, relu = steps & SGRAD__RELU;
    descriptor last = bias || relu ? g.between(g.key.y) : y;
    g.convolution(x, g.tensor(SGRAD__AT_W, type, g.key.w), last);
    if (bias) last = g.pointwise(CUDNN_POINTWISE_ADD, last, g.vector(SGRAD__AT_BIAS, K, type), relu ? g.between(g.key.y) : y);
    if (relu) g.pointwise(CUDNN_POINTWISE_RELU_FWD, last, NULL, y);
    if (steps & SGRAD__STATS) g.sums(y, g.vector(SGRAD__AT_SUM, K), g.vector(SGRAD__AT_PRODUCT, K));
}

void draw_backward_data(drawing &g) {
    const int32_t steps = g.key.steps, C = g.key.x[1];
    const bool is_masked = steps & (SGRAD__MASK | SGRAD__MASK_SCALED);
    const descriptor dx = g.whole(SGRAD__AT_X), made = is_masked ? g.between(g.key.x) : dx;
    descriptor centered = NULL;
    g.convolution(made, g.tensor(SGRAD__AT_W, type_of(g.key), g.key.w), g.tensor(SGRAD__AT_Y, type_of(g.key), g.key.y));
    if (steps & (SGRAD__MASK_SCALED | SGRAD__SUMS))
        centered = g.pointwise(CUDNN_POINTWISE_SUB, g.whole(SGRAD__AT_SOURCE), g.vector(SGRAD__AT_MEAN, C), g.between(g.key.x));
    if (steps & SGRAD__MASK) g.masked(made, g.whole(SGRAD__AT_MASK), dx);
    if (steps & SGRAD__MASK_SCALED) g.masked(made, g.scaled(centered, g.between(g.key.x)), dx);
    if (!(steps & SGRAD__SUMS)) return;
    const descriptor product = g.pointwise(CUDNN_POINTWISE_MUL, dx, centered, g.between(g.key.x));
    g.add_up(dx, g.vector(SGRAD__AT_SUM, C));
    g.add_up(product, g.vector(SGRAD__AT_PRODUCT, C));
}

void draw_backward_weight(drawing &g) {
    g.convolution(g.whole(SGRAD__AT_X), g.tensor(SGRAD__AT_W, type_of(g.key), g.key.w),
                  g.tensor(SGRAD__AT_Y, type_of(g.key), g.key.y));
}

/* Creates the graph of KEY and sets *USED to its operands. ALL owns its descriptors, and has the error if this fails. */
descriptor draw_graph(descriptors &all, const struct sgrad__graph_key &key, std::vector<int64_t> *used) {
    static void (*const draw[])(drawing &) = { draw_forward, draw_backward_data, draw_backward_weight };
    drawing g = { all, key, {}, {} };
    draw[key.pass](g);
    *used = g.used;
    return g.finish();
}

/* "convolution: cuDNN's graph of (8,64,56,56) to 64 channels" */
std::string text_of(const struct sgrad__graph_key &key) {
    char text[128];
    snprintf(text, sizeof text, "convolution: cuDNN's graph of (%d,%d,%d,%d) to %d channels", key.x[0], key.x[1],
             key.x[key.dims - 2], key.x[key.dims - 1], key.y[1]);
    return text;
}

} // namespace

void sgrad__graph_do(const struct sgrad__graph_key *key, const struct sgrad__graph_data *data, struct sgrad__graph_task ways) {
    static struct sgrad_cache cache =
        sgrad__cuda_cache(sizeof *key, sizeof(struct sgrad__graph_choice), sgrad__graph_choice_free);
    bool created;
    struct sgrad__graph_choice *choice = (struct sgrad__graph_choice *)sgrad_cache_get(&cache, key, &created);
    ways.room = key->room;
    ways.exact = key->dtype == SGRAD_F32 && !key->tf32;
    ways.draw = [=](descriptors &all, std::vector<int64_t> *used) { return draw_graph(all, *key, used); };
    ways.text = [=] { return text_of(*key); };
    sgrad__graph_run(choice, created, ways, *data);
}
