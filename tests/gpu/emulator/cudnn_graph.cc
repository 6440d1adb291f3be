/* cudnn_graph.cc: the part of cuDNN's backend API that codelets/cuda/cudnn_draw_cuda.cu and cudnn_graph_cuda.cu call, on the
 * CPU. A descriptor stores its attributes. A graph is a list of operations, executed one after another on whole tensors of
 * floats. Virtual tensors are rounded to their type and never written to memory. Graphs of attention: cudnn_attention.cc.
 *
 *     heuristics return these engines    7   tensor cores: F32 is rounded; compiled at run time
 *                                        9   not deterministic
 *                                        5   exact; supports no sums, and nothing before the convolution
 *                                       13   as 5; as slow as six others
 *                                       11   as 5; fails at execution if there is a dilation; only the heuristics for engines
 *                                            with the widest support return it
 *                                       21   attention; compiled at run time
 *                                       22   attention; not deterministic
 *
 * There is no engine for graphs of volumes and of one channel a group. There is also none for graphs that real cuDNN does not
 * support: operations before a backward pass or after backward-weight; factors of different types; the value of a channel as
 * the first of two operands; groups together with operations before them that depend on channels; tensors within a graph that
 * are not virtual, except the inputs of sums.
 *
 * Unknown types, unfinished descriptors, tensors whose sizes do not match, missing addresses and too many addresses are
 * errors, as in cuDNN. */
#include "tests/gpu/emulator/cudnn_graph.h"

#include <algorithm>

using namespace emulator;

namespace {

const struct {
    cudnnBackendAttributeType_t type;
    size_t size;
} sizes[] = {
    { CUDNN_TYPE_HANDLE, sizeof(cudnnHandle_t) },
    { CUDNN_TYPE_DATA_TYPE, sizeof(cudnnDataType_t) },
    { CUDNN_TYPE_BOOLEAN, sizeof(bool) },
    { CUDNN_TYPE_INT64, sizeof(int64_t) },
    { CUDNN_TYPE_FLOAT, sizeof(float) },
    { CUDNN_TYPE_VOID_PTR, sizeof(void *) },
    { CUDNN_TYPE_CONVOLUTION_MODE, sizeof(cudnnConvolutionMode_t) },
    { CUDNN_TYPE_HEUR_MODE, sizeof(cudnnBackendHeurMode_t) },
    { CUDNN_TYPE_POINTWISE_MODE, sizeof(cudnnPointwiseMode_t) },
    { CUDNN_TYPE_GENSTATS_MODE, sizeof(cudnnGenStatsMode_t) },
    { CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, sizeof(cudnnReduceTensorOp_t) },
    { CUDNN_TYPE_BACKEND_DESCRIPTOR, sizeof(cudnnBackendDescriptor_t) },
};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

struct tensor {
    int64_t dim[4], uid; /* N, C, H, W */
    bool half, is_virtual;
    int64_t count() const { return dim[0] * dim[1] * dim[2] * dim[3]; }
};

/* False: it is no channels-last tensor of four dimensions, aligned as memory is. */
bool read_tensor(const struct descriptor *d, struct tensor *t) {
    int64_t dims, strides;
    const int64_t *dim = d->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, &dims);
    const int64_t *stride = d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, &strides);
    const cudnnDataType_t type = d->one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    if (dims != 4 || strides != 4 || (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16)) return false;
    *t = { { dim[0], dim[1], dim[2], dim[3] },
           d->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
           type == CUDNN_DATA_BFLOAT16,
           d->one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) };
    return stride[1] == 1 && stride[3] == dim[1] && stride[2] == dim[1] * dim[3] && stride[0] == dim[1] * dim[2] * dim[3] &&
           d->one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) <= 256;
}

/* ---- what a graph is, and what it computes ------------------------------------------------------------------------ */

const struct {
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
enum pass { FORWARD, DATA, WEIGHT, NONE };
enum pass pass_of(cudnnBackendDescriptorType_t type) {
    int pass = FORWARD;
    while (pass < NONE && passes[pass].type != type) pass++;
    return (enum pass)pass;
}

struct convolution {
    enum pass pass;
    struct tensor x, w, y;
    int64_t padding[2], stride[2], dilation[2];
    const struct tensor &made() const { return pass == FORWARD ? y : pass == DATA ? x : w; }
    const struct tensor &first() const { return pass == DATA ? w : x; }
    const struct tensor &second() const { return pass == FORWARD ? w : y; }
};
bool read_convolution(const struct descriptor *op, enum pass pass, struct convolution *v) {
    const auto &names = passes[pass];
    const struct descriptor *how = op->part(names.how);
    v->pass = pass;
    if (!read_tensor(op->part(names.x), &v->x) || !read_tensor(op->part(names.w), &v->w) ||
        !read_tensor(op->part(names.y), &v->y) ||
        how->one<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) != 2 ||
        how->one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION ||
        how->one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) != CUDNN_DATA_FLOAT || op->one<float>(names.alpha) != 1 ||
        op->one<float>(names.beta) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        v->padding[i] = how->all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[i];
        v->stride[i] = how->all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[i];
        v->dilation[i] = how->all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS)[i];
        const int64_t reach = (v->w.dim[2 + i] - 1) * v->dilation[i] + 1;
        if (how->all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)[i] != v->padding[i] ||
            v->y.dim[2 + i] != (v->x.dim[2 + i] + 2 * v->padding[i] - reach) / v->stride[i] + 1)
            return false;
    }
    return v->x.dim[1] % v->w.dim[1] == 0 && v->y.dim[1] == v->w.dim[0] && v->y.dim[0] == v->x.dim[0] &&
           v->first().half == v->second().half && (v->pass != WEIGHT || v->w.half == v->x.half);
}

typedef std::map<int64_t, std::vector<float>> values; /* of tensors, by their uid */

void convolve(const struct convolution &v, bool round, values &all) {
    std::vector<float> factor[2] = { all[v.first().uid], all[v.second().uid] }, made((size_t)v.made().count());
    for (std::vector<float> &list : factor)
        for (float &value : list)
            if (round) value = to_tf32(value);
    const auto side = [](const struct tensor &t, int i) { return (int)t.dim[i]; };
    const auto both = [](const int64_t *of) { return std::pair<int, int>((int)of[0], (int)of[1]); };
    const auto [sh, sw] = both(v.stride);
    const auto [ph, pw] = both(v.padding);
    const auto [dh, dw] = both(v.dilation);
    const struct convolution_of_floats floats = { side(v.x, 0), side(v.x, 2), side(v.x, 3), side(v.x, 1), side(v.y, 1),
                                                  side(v.w, 2), side(v.w, 3), side(v.y, 2), side(v.y, 3),
                                                  side(v.x, 1) / side(v.w, 1), { sh, sw }, { ph, pw }, { dh, dw } };
    if (v.pass == FORWARD) floats.forward(factor[0].data(), factor[1].data(), made.data());
    else if (v.pass == DATA) floats.backward_data(factor[1].data(), factor[0].data(), made.data());
    else floats.backward_filter(factor[0].data(), factor[1].data(), 0, made.data());
    all[v.made().uid] = made;
}

struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnPointwiseMode_t mode;
    struct convolution convolution;
    std::vector<struct tensor> from, to;
    bool is_convolution() const { return pass_of(type) != NONE; }
    bool has_sums() const {
        return type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR || type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
    }
};

/* Reads tensors into a LIST, those that are there; false: one is none. */
bool read_all(const struct descriptor *d, std::vector<cudnnBackendAttributeName_t> names, std::vector<struct tensor> *list) {
    for (cudnnBackendAttributeName_t name : names) {
        struct tensor t;
        if (!d->part(name) || !read_tensor(d->part(name), &t)) return false;
        list->push_back(t);
    }
    return true;
}

bool read_pointwise(const struct descriptor *d, struct operation *op) {
    op->mode = d->part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)->one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    if (op->mode == CUDNN_POINTWISE_RELU_BWD)
        return read_all(d, { CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, CUDNN_ATTR_OPERATION_POINTWISE_XDESC }, &op->from) &&
               read_all(d, { CUDNN_ATTR_OPERATION_POINTWISE_DXDESC }, &op->to) && op->from[0].count() == op->to[0].count() &&
               op->from[1].count() == op->to[0].count();
    const bool two =
        op->mode == CUDNN_POINTWISE_ADD || op->mode == CUDNN_POINTWISE_SUB || op->mode == CUDNN_POINTWISE_MUL;
    std::vector<cudnnBackendAttributeName_t> from = { CUDNN_ATTR_OPERATION_POINTWISE_XDESC };
    if (two) from.push_back(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    return (two || op->mode == CUDNN_POINTWISE_RELU_FWD) && read_all(d, from, &op->from) &&
           read_all(d, { CUDNN_ATTR_OPERATION_POINTWISE_YDESC }, &op->to) && op->from[0].count() == op->to[0].count() &&
           (!two || op->from[1].count() == op->to[0].count() || op->from[1].count() == op->to[0].dim[1]);
}

bool read_sums(const struct descriptor *d, struct operation *op) {
    const bool both = d->type == CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR;
    const struct descriptor *how = d->part(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    if (!both && how->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) != CUDNN_REDUCE_TENSOR_ADD) return false;
    if (!(both ? read_all(d, { CUDNN_ATTR_OPERATION_GENSTATS_XDESC }, &op->from) &&
                     read_all(d, { CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC }, &op->to)
               : read_all(d, { CUDNN_ATTR_OPERATION_REDUCTION_XDESC }, &op->from) &&
                     read_all(d, { CUDNN_ATTR_OPERATION_REDUCTION_YDESC }, &op->to)))
        return false;
    for (const struct tensor &sum : op->to)
        if (sum.half || sum.is_virtual || sum.count() != op->from[0].dim[1]) return false;
    return true;
}

bool read_operation(const struct descriptor *d, struct operation *op) {
    *op = {};
    op->type = d->type;
    if (op->is_convolution()) {
        struct convolution *v = &op->convolution;
        if (!read_convolution(d, pass_of(d->type), v)) return false;
        op->from = { v->first(), v->second() }, op->to = { v->made() };
        return true;
    }
    return d->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ? read_pointwise(d, op) : op->has_sums() && read_sums(d, op);
}

std::vector<struct operation> read_graph(const struct descriptor *graph) {
    int64_t count;
    const descriptor *const *ops = graph->all<const struct descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS, &count);
    std::vector<struct operation> list((size_t)count);
    for (int64_t i = 0; i < count; i++)
        if (!ops[i]->finished || !read_operation(ops[i], &list[i])) return {};
    return list;
}

void compute(const struct operation &op, bool round, values &all) {
    if (op.is_convolution()) {
        convolve(op.convolution, round, all);
    } else if (op.has_sums()) {
        const std::vector<float> &x = all[op.from[0].uid];
        const size_t channels = (size_t)op.from[0].dim[1];
        std::vector<float> sum(channels), square(channels);
        for (size_t i = 0; i < x.size(); i++) sum[i % channels] += x[i], square[i % channels] += x[i] * x[i];
        all[op.to[0].uid] = sum;
        if (op.to.size() > 1) all[op.to[1].uid] = square;
    } else {
        const std::vector<float> &x = all[op.from[0].uid], &b = op.from.size() > 1 ? all[op.from[1].uid] : x;
        std::vector<float> y = x;
        for (size_t i = 0; i < y.size(); i++) {
            const float other = b[i % b.size()];
            y[i] = op.mode == CUDNN_POINTWISE_ADD        ? x[i] + other
                   : op.mode == CUDNN_POINTWISE_SUB      ? x[i] - other
                   : op.mode == CUDNN_POINTWISE_MUL      ? x[i] * other
                   : op.mode == CUDNN_POINTWISE_RELU_BWD ? (other > 0 ? x[i] : 0)
                                                         : (x[i] < 0 ? 0 : x[i]);
        }
        all[op.to[0].uid] = y;
    }
    for (const struct tensor &t : op.to)
        if (t.half)
            for (float &value : all[t.uid]) value = (float)__nv_bfloat16(value);
}

/* ---- engines ------------------------------------------------------------------------------------------------------ */

struct engine {
    int64_t number, room;
    bool tensor_cores, changing, compiled;
};
const struct engine engines[] = {
    { 7, 4096, true, false, true },   { 9, 0, false, true, false },  { 5, 512, false, false, false },
    { 13, 0, false, false, false },   { 11, 0, false, false, false }, { 21, 512, true, false, true },
    { 22, 0, true, true, false }
};
bool is_of_attention(const struct engine &e) { return e.number > 20; }

/* Does cuDNN know such a graph, whose convolution is number AT? */
bool is_known(const std::vector<struct operation> &graph, size_t at) {
    const struct convolution &v = graph[at].convolution;
    if ((v.w.dim[1] == 1 && v.x.dim[1] > 1) || (at > 0 && (v.pass != FORWARD || v.x.dim[1] != v.w.dim[1]))) return false;
    if (v.pass == WEIGHT && graph.size() > 1) return false;
    std::map<int64_t, bool> summed, taken;
    for (const struct operation &op : graph)
        for (const struct tensor &t : op.from) taken[t.uid] = true, summed[t.uid] |= op.has_sums();
    for (size_t i = 0; i < graph.size(); i++) {
        const struct tensor &to = graph[i].to[0];
        if (i != at && graph[i].is_convolution()) return false;
        if (i < at && !to.is_virtual) return false;
        if (to.is_virtual ? !taken[to.uid] : taken[to.uid] && !summed[to.uid]) return false;
    }
    return true;
}

std::vector<struct engine> engines_of(const struct descriptor *drawn) {
    std::vector<struct engine> list;
    if (is_attention(drawn)) {
        if (computes_attention(drawn))
            std::copy_if(std::begin(engines), std::end(engines), std::back_inserter(list), is_of_attention);
        return list;
    }
    const std::vector<struct operation> graph = read_graph(drawn);
    size_t at = 0;
    while (at < graph.size() && !graph[at].is_convolution()) at++;
    if (at == graph.size() || !is_known(graph, at)) return list;
    bool hard = at > 0;
    for (const struct operation &op : graph) hard |= op.has_sums();
    for (const struct engine &e : engines)
        if (!is_of_attention(e) && (!hard || e.tensor_cores || e.changing)) list.push_back(e);
    return list;
}

const struct engine *engine_of(const struct descriptor *d) {
    const int64_t number = d->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
    for (const struct engine &e : engines)
        if (e.number == number) return &e;
    return NULL;
}

template <typename T> void give(int64_t wanted, int64_t *count, void *to, const std::vector<T> &what) {
    *count = (int64_t)what.size();
    if (to) std::copy_n(what.begin(), std::min(wanted, *count), static_cast<T *>(to));
}

/* Gives a descriptor that the caller has made the attribute NAME, and finishes it. */
template <typename T> void fill(void *d, int name, const T &value) {
    struct descriptor *own = (struct descriptor *)d;
    own->attribute[name].assign((const char *)&value, (const char *)&value + sizeof value);
    own->finished = true;
}

} // namespace

extern "C" {
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d) {
    return *d = new descriptor{ type, false, {}, {} }, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    return delete (struct descriptor *)d, CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    struct descriptor *d = (struct descriptor *)to;
    if (d->finished) return CUDNN_STATUS_BAD_PARAM;
    for (const auto &known : sizes) {
        if (known.type != type) continue;
        if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
            for (int64_t i = 0; i < count; i++)
                if (!((struct descriptor *const *)value)[i]->finished) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
        d->attribute[name].assign((const char *)value, (const char *)value + (size_t)count * known.size);
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t what) {
    struct descriptor *d = (struct descriptor *)what;
    struct tensor t;
    struct operation op;
    if (d->finished) return CUDNN_STATUS_BAD_PARAM;
    if (d->type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && !read_tensor(d, &t) && !is_attention_tensor(d))
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (pass_of(d->type) != NONE && !read_operation(d, &op)) return CUDNN_STATUS_BAD_PARAM;
    if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !is_attention_operation(d)) return CUDNN_STATUS_BAD_PARAM;
    if (d->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR && (is_attention(d) ? !is_attention_graph(d) : read_graph(d).empty()))
        return CUDNN_STATUS_NOT_SUPPORTED;
    d->finished = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const of, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t wanted, int64_t *count, void *to) {
    const struct descriptor *d = (const struct descriptor *)of;
    if (!d->finished) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        emulator::count(HEURISTICS);
        if (heuristics_fail()) return CUDNN_STATUS_INTERNAL_ERROR;
        const struct descriptor *graph = d->part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        const bool likely = d->one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
        *count = 0;
        for (const struct engine &e : engines_of(graph)) {
            if (likely == (e.number == 11)) continue; /* that one is a fallback */
            if (*count < wanted) {
                struct descriptor *own = ((struct descriptor **)to)[*count];
                own->attribute[CUDNN_ATTR_ENGINE_OPERATION_GRAPH].assign((const char *)&graph, (const char *)(&graph + 1));
                fill(own, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, e.number);
            }
            ++*count;
        }
        return CUDNN_STATUS_SUCCESS;
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        fill(*(void **)to, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, d->one<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
        return *count = 1, CUDNN_STATUS_SUCCESS;
    }
    const struct descriptor *configuration = d->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const struct engine *engine = engine_of(configuration ? configuration : d);
    if (!engine) return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX || name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        give<int64_t>(wanted, count, to, { name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX ? engine->number : engine->room });
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        std::vector<cudnnBackendNumericalNote_t> notes;
        if (engine->tensor_cores) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
        if (engine->changing) notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
        give(wanted, count, to, notes);
    } else if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) {
        std::vector<cudnnBackendBehaviorNote_t> notes;
        if (engine->compiled) notes.push_back(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
        give(wanted, count, to, notes);
    } else {
        return CUDNN_STATUS_NOT_SUPPORTED;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t what, cudnnBackendDescriptor_t with) {
    const struct descriptor *plan = (const struct descriptor *)what, *pack = (const struct descriptor *)with;
    h->check();
    if (!plan->finished || !pack->finished) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    const struct descriptor *configuration = plan->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const struct engine *engine = engine_of(configuration);
    const struct descriptor *drawn = configuration->part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    if (refuses_graph()) return CUDNN_STATUS_EXECUTION_FAILED;
    int64_t ids, pointers;
    const int64_t *id = pack->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &ids);
    void *const *pointer = pack->all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers);
    std::map<int64_t, void *> given;
    if (ids != pointers) return CUDNN_STATUS_BAD_PARAM;
    for (int64_t i = 0; i < ids; i++) given[id[i]] = pointer[i];
    void *given_room = pack->one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (is_attention(drawn)) return execute_attention(h, drawn, given, given_room, (size_t)engine->room);
    const std::vector<struct operation> graph = read_graph(drawn);
    const struct convolution *convolution = NULL;
    for (const struct operation &op : graph)
        if (op.is_convolution()) convolution = &op.convolution;
    if (engine->number == 11 && convolution->dilation[0] > 1) return CUDNN_STATUS_NOT_SUPPORTED;
    const bool round = engine->tensor_cores && !convolution->first().half;

    std::map<int64_t, struct array> input, output;
    for (const struct operation &op : graph) {
        for (const bool out : { false, true })
            for (const struct tensor &t : out ? op.to : op.from) {
                if (t.is_virtual || (!out && output.count(t.uid))) continue;
                if (!given.count(t.uid) || !given[t.uid] || (uintptr_t)given[t.uid] % 16) return CUDNN_STATUS_BAD_PARAM;
                (out ? output : input)[t.uid] = { given[t.uid], t.half, (size_t)t.count() };
            }
    }
    if (given.size() != input.size() + output.size()) return CUDNN_STATUS_BAD_PARAM;
    const auto submit = [=, runs = *engine, stream = h->stream] {
        const auto found = [=](const std::map<int64_t, struct array> &operands) {
            std::map<int64_t, struct array> list = operands;
            for (auto &[uid, array] : list) array.data = memory_of(stream, array.data, array.bytes(), "cuDNN");
            return list;
        };
        void *room = runs.room ? memory_of(stream, given_room, (size_t)runs.room, "cuDNN") : NULL;
        count_work(LIBRARY_CALLS);
        if (runs.number == 13) count(SLOW_PLANS);
        for (int i = 0; i < 5 && runs.number == 13; i++) enqueue(stream, [] {});
        enqueue(stream, [=, from = found(input), to = found(output)] {
            values all;
            if (room) memset(room, 0xff, (size_t)runs.room);
            for (const auto &[uid, array] : from) {
                all[uid].resize(array.count);
                for (size_t i = 0; i < array.count; i++) all[uid][i] = array.at(i);
            }
            for (const struct operation &op : graph) compute(op, round, all);
            for (const auto &[uid, array] : to)
                for (size_t i = 0; i < array.count; i++) array.set(i, all.at(uid)[i]);
        });
    };
    if (!captures(h->stream, submit)) submit();
    return CUDNN_STATUS_SUCCESS;
}
} // extern "C"
