/* cudnn_attention.cc: graphs of attention of cuDNN's backend API, on the CPU. A tensor has four dimensions (N,heads,rows,columns)
 * and any strides. Operations are executed one after another on whole tensors of floats. Factors of products are rounded to
 * bf16, as on tensor cores; e^s is rounded before it is divided by its sum, as in flash attention, where the product with v comes
 * before the division.
 *
 * The emulator knows only the graphs whose operations have the order of forms[], with heads of at most 128 numbers, a multiple
 * of 8, in bf16. Real cuDNN also accepts other orders of the same operations. */
#include "tests/gpu/emulator/cudnn_graph.h"

#include <algorithm>
#include <string>

namespace emulator {

namespace {

/* ---- tensors ------------------------------------------------------------------------------------------------------- */

struct tensor {
    int64_t size[4], stride[4], uid;
    cudnnDataType_t type;
    bool is_virtual, by_value;
    int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
    /* Elements of memory from the first to the last. */
    int64_t extent() const {
        int64_t last = 0;
        for (int i = 0; i < 4; i++) last += (size[i] - 1) * stride[i];
        return last + 1;
    }
    /* Calls f(number, place) for each element: its number in order, and its place in memory. */
    template <typename F> void each(F f) const {
        for (int64_t i = 0; i < count(); i++) {
            int64_t place = 0, rest = i;
            for (int axis = 3; axis >= 0; axis--) place += rest % size[axis] * stride[axis], rest /= size[axis];
            f(i, place);
        }
    }
};

bool read(const struct descriptor *d, struct tensor *t) {
    int64_t dims = 0, strides = 0;
    const int64_t *dim = d ? d->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, &dims) : NULL;
    const int64_t *stride = d ? d->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, &strides) : NULL;
    if (dims != 4 || strides != 4 || *std::min_element(dim, dim + 4) < 1 || *std::min_element(stride, stride + 4) < 1)
        return false;
    std::copy_n(dim, 4, t->size);
    std::copy_n(stride, 4, t->stride);
    t->uid = d->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t->type = d->one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t->is_virtual = d->one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL), t->by_value = d->one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    const bool number = t->type == CUDNN_DATA_FLOAT || t->type == CUDNN_DATA_BFLOAT16;
    const bool index = t->type == CUDNN_DATA_INT32 || t->type == CUDNN_DATA_BOOLEAN;
    return (number || (index && t->is_virtual)) && !(t->is_virtual && t->by_value) && (!t->by_value || t->count() == 1);
}

/* Does each dimension of B have the size of X, or 1? GROUPS: the heads of X may be groups for one of B. */
bool fits(const struct tensor &b, const struct tensor &x, bool groups) {
    for (int i = 0; i < 4; i++)
        if (b.size[i] != x.size[i] && b.size[i] != 1 && !(groups && i == 1 && x.size[i] % b.size[i] == 0)) return false;
    return true;
}
bool equal(const struct tensor &a, const struct tensor &b) { return std::equal(a.size, a.size + 4, b.size); }

/* ---- operations ---------------------------------------------------------------------------------------------------- */

/* NAME also has the axis of an index. */
struct operation {
    std::string name;
    std::vector<struct tensor> from;
    struct tensor to;
};

bool read_all(const struct descriptor *d, const std::vector<cudnnBackendAttributeName_t> &from, cudnnBackendAttributeName_t to,
              struct operation *op) {
    for (cudnnBackendAttributeName_t name : from) {
        struct tensor t;
        if (!read(d->part(name), &t)) return false;
        op->from.push_back(t);
    }
    return read(d->part(to), &op->to);
}

bool read_matmul(const struct descriptor *d, struct operation *op) {
    const struct descriptor *how = d->part(CUDNN_ATTR_OPERATION_MATMUL_DESC);
    op->name = "matmul";
    if (!how || how->one<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_BOOLEAN) != CUDNN_DATA_FLOAT ||
        !read_all(d, { CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC },
                  CUDNN_ATTR_OPERATION_MATMUL_CDESC, op))
        return false;
    const int64_t *a = op->from[0].size, *b = op->from[1].size, *c = op->to.size;
    return a[3] == b[2] && c[2] == a[2] && c[3] == b[3] && a[0] == b[0] && a[0] == c[0] && a[1] == c[1] && a[1] % b[1] == 0;
}

const struct mode {
    cudnnPointwiseMode_t mode;
    const char *name;
    int inputs;
} modes[] = {
    { CUDNN_POINTWISE_MUL, "mul", 2 },       { CUDNN_POINTWISE_SUB, "sub", 2 },
    { CUDNN_POINTWISE_ADD, "add", 2 },       { CUDNN_POINTWISE_DIV, "div", 2 },
    { CUDNN_POINTWISE_EXP, "exp", 1 },       { CUDNN_POINTWISE_LOG, "log", 1 },
    { CUDNN_POINTWISE_CMP_GE, "ge", 2 },     { CUDNN_POINTWISE_IDENTITY, "copy", 1 },
    { CUDNN_POINTWISE_GEN_INDEX, "index", 1 }, { CUDNN_POINTWISE_BINARY_SELECT, "select", 3 },
};

bool read_pointwise(const struct descriptor *d, struct operation *op) {
    const struct descriptor *how = d->part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = how->one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    const auto *found = std::find_if(std::begin(modes), std::end(modes), [=](const auto &m) { return m.mode == mode; });
    if (found == std::end(modes)) return false;
    std::vector<cudnnBackendAttributeName_t> from = { CUDNN_ATTR_OPERATION_POINTWISE_XDESC };
    if (found->inputs > 1) from.push_back(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (found->inputs > 2) from.push_back(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    op->name = found->name;
    if (op->name == "index") op->name += std::to_string(how->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1));
    if (!read_all(d, from, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op) || !equal(op->from[0], op->to)) return false;
    const bool is_mask = op->name == "ge", is_index = op->name == "index2" || op->name == "index3";
    return (found->inputs < 2 || fits(op->from[1], op->to, false)) &&
           (found->inputs < 3 || (equal(op->from[2], op->to) && op->from[2].type == CUDNN_DATA_BOOLEAN)) &&
           is_mask == (op->to.type == CUDNN_DATA_BOOLEAN) && is_index == (op->to.type == CUDNN_DATA_INT32);
}

bool read_reduction(const struct descriptor *d, struct operation *op) {
    const auto kind =
        d->part(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
    op->name = kind == CUDNN_REDUCE_TENSOR_ADD ? "sum" : "max";
    return (kind == CUDNN_REDUCE_TENSOR_ADD || kind == CUDNN_REDUCE_TENSOR_MAX) &&
           read_all(d, { CUDNN_ATTR_OPERATION_REDUCTION_XDESC }, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, op) &&
           fits(op->to, op->from[0], true);
}

/* The elements stay where they are in memory, and get other numbers. */
bool read_turn(const struct descriptor *d, struct operation *op) {
    op->name = "turn";
    return read_all(d, { CUDNN_ATTR_OPERATION_RESHAPE_XDESC }, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, op) &&
           op->from[0].count() == op->to.count() && op->from[0].extent() == op->to.extent();
}

bool read(const struct descriptor *d, struct operation *op) {
    *op = {};
    if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) return read_matmul(d, op);
    if (d->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) return read_pointwise(d, op);
    if (d->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) return read_reduction(d, op);
    return d->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR && read_turn(d, op);
}

/* Empty: it is no graph of attention, or one whose virtual tensors are not computed before their use, or not used. */
std::vector<struct operation> read_graph(const struct descriptor *graph) {
    int64_t count;
    const descriptor *const *ops = graph->all<const struct descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS, &count);
    std::vector<struct operation> list((size_t)count);
    std::map<int64_t, bool> made, taken;
    for (int64_t i = 0; i < count; i++) {
        if (!ops[i]->finished || !read(ops[i], &list[i])) return {};
        for (const struct tensor &t : list[i].from) {
            if (t.is_virtual && !made[t.uid]) return {};
            taken[t.uid] = true;
        }
        if (made[list[i].to.uid] || list[i].to.by_value) return {};
        made[list[i].to.uid] = true;
    }
    for (const struct operation &op : list)
        if (op.to.is_virtual && !taken[op.to.uid]) return {};
    return list;
}

#define MASK "index2 index3 ge select "
const char *const forms[] = {
    "matmul mul max sub exp sum log add div matmul ",
    "matmul mul " MASK "max sub exp sum log add div matmul ",
    "mul sum mul matmul mul sub exp turn matmul matmul sub mul mul turn matmul turn matmul copy ",
    "mul sum mul matmul mul sub " MASK "exp turn matmul matmul sub mul mul turn matmul turn matmul copy ",
    "mul sum mul matmul mul sub exp turn matmul sum matmul sub mul mul turn matmul sum turn matmul copy ",
    "mul sum mul matmul mul sub " MASK "exp turn matmul sum matmul sub mul mul turn matmul sum turn matmul copy ",
};

/* ---- computation --------------------------------------------------------------------------------------------------- */

typedef std::vector<float> floats;
typedef std::map<int64_t, floats> values; /* of tensors in order, by their uid */

void round(floats &list) {
    for (float &x : list) x = (float)__nv_bfloat16(x);
}

floats multiply(const struct operation &op, floats a, floats b) {
    const int64_t heads = op.to.size[1], group = heads / op.from[1].size[1];
    const int64_t M = op.to.size[2], P = op.to.size[3], K = op.from[0].size[3];
    floats c((size_t)op.to.count());
    if (op.from[0].type == CUDNN_DATA_FLOAT) round(a); /* others are rounded */
    if (op.from[1].type == CUDNN_DATA_FLOAT) round(b);
    for (int64_t h = 0; h < op.to.size[0] * heads; h++) /* of a and c; h / group is that of b */
        for (int64_t i = 0; i < M; i++)
            for (int64_t k = 0; k < K; k++)
                for (int64_t j = 0; j < P; j++) c[(h * M + i) * P + j] += a[(h * M + i) * K + k] * b[(h / group * K + k) * P + j];
    return c;
}

/* The number of the element of T that element I of X is combined with, or added to. */
int64_t partner(const struct tensor &t, const struct tensor &x, int64_t i) {
    int64_t number = 0, step = 1;
    for (int axis = 3; axis >= 0; axis--) {
        number += i % x.size[axis] / (x.size[axis] / t.size[axis]) * step;
        i /= x.size[axis], step *= t.size[axis];
    }
    return number;
}

floats reduce(const struct operation &op, const floats &x) {
    const bool add = op.name == "sum";
    floats y((size_t)op.to.count(), add ? 0 : -INFINITY);
    for (int64_t i = 0; i < (int64_t)x.size(); i++) {
        float &to = y[partner(op.to, op.from[0], i)];
        to = add ? to + x[i] : fmaxf(to, x[i]);
    }
    return y;
}

floats turn(const struct operation &op, const floats &x) {
    floats memory((size_t)op.to.extent()), y(x.size());
    op.from[0].each([&](int64_t i, int64_t place) { memory[place] = x[i]; });
    op.to.each([&](int64_t i, int64_t place) { y[i] = memory[place]; });
    return y;
}

/* Element I of a pointwise result. X and B: the elements of the operands; SEEN: that of the third, of a choice. */
float combine(const struct operation &op, int64_t i, float x, float b, bool seen) {
    const std::string &name = op.name;
    if (name == "index2") return (float)(i / op.to.size[3] % op.to.size[2]);
    if (name == "index3") return (float)(i % op.to.size[3]);
    if (name == "mul") return x * b;
    if (name == "sub") return x - b;
    if (name == "add") return x + b;
    if (name == "div") return (float)__nv_bfloat16(x) / b;
    if (name == "exp") return expf(x);
    if (name == "log") return logf(x);
    if (name == "ge") return x >= b;
    return name == "select" && !seen ? b : x;
}

floats pointwise(const struct operation &op, const values &all) {
    const struct tensor &other = op.from[op.from.size() > 1];
    const floats &x = all.at(op.from[0].uid), &b = all.at(other.uid), &choice = all.at(op.from.back().uid);
    floats y(x.size());
    for (int64_t i = 0; i < (int64_t)y.size(); i++)
        y[i] = combine(op, i, x[i], b[partner(other, op.to, i)], op.from.size() > 2 && choice[i] != 0);
    return y;
}

void compute(const struct operation &op, values &all) {
    const floats &x = all[op.from[0].uid];
    floats &y = all[op.to.uid];
    if (op.name == "matmul") y = multiply(op, x, all[op.from[1].uid]);
    else if (op.name == "sum" || op.name == "max") y = reduce(op, x);
    else if (op.name == "turn") y = turn(op, x);
    else y = pointwise(op, all);
    if (op.to.type == CUDNN_DATA_BFLOAT16 && op.name != "div") round(y);
}

/* ---- execution ----------------------------------------------------------------------------------------------------- */

struct operand {
    struct tensor tensor;
    struct array array;
};
typedef std::map<int64_t, struct operand> operands; /* by uid */

/* The operands of a graph in memory, and single numbers. False: an address is missing, wrong, or given for no operand. */
bool find_operands(const std::vector<struct operation> &graph, const std::map<int64_t, void *> &given, operands *input,
                   operands *output, values *scalars) {
    for (const struct operation &op : graph)
        for (size_t i = 0; i <= op.from.size(); i++) {
            const bool out = i == op.from.size();
            const struct tensor &t = out ? op.to : op.from[i];
            if (t.is_virtual || (!out && output->count(t.uid))) continue;
            void *data = given.count(t.uid) ? given.at(t.uid) : NULL;
            if (!data || (!t.by_value && (uintptr_t)data % 16)) return false;
            if (t.by_value) (*scalars)[t.uid] = { *(const float *)data };
            else (out ? *output : *input)[t.uid] = { t, { data, t.type == CUDNN_DATA_BFLOAT16, (size_t)t.extent() } };
        }
    return given.size() == input->size() + output->size() + scalars->size();
}

void run(const std::vector<struct operation> &graph, const operands &from, const operands &to, values all) {
    for (const auto &[uid, operand] : from) {
        floats &list = all[uid];
        const struct array &array = operand.array;
        list.resize((size_t)operand.tensor.count());
        operand.tensor.each([&](int64_t i, int64_t place) { list[i] = array.at(place); });
    }
    for (const struct operation &op : graph) compute(op, all);
    for (const auto &[uid, operand] : to) {
        const floats &list = all.at(uid);
        const struct array &array = operand.array;
        operand.tensor.each([&](int64_t i, int64_t place) { array.set(place, list[i]); });
    }
}

} // namespace

bool is_attention(const struct descriptor *graph) {
    int64_t count;
    const descriptor *const *ops = graph->all<const struct descriptor *>(CUDNN_ATTR_OPERATIONGRAPH_OPS, &count);
    return std::any_of(ops, ops + count, [](auto *op) { return op->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR; });
}

bool is_attention_tensor(const struct descriptor *d) {
    struct tensor t;
    return read(d, &t);
}
bool is_attention_operation(const struct descriptor *d) {
    struct operation op;
    return read(d, &op);
}
bool is_attention_graph(const struct descriptor *graph) { return !read_graph(graph).empty(); }

bool computes_attention(const struct descriptor *graph) {
    const std::vector<struct operation> list = read_graph(graph);
    std::string form;
    for (const struct operation &op : list) form += op.name + " ";
    const auto first = std::find_if(list.begin(), list.end(), [](const auto &op) { return op.name == "matmul"; });
    const struct tensor &q = first->from[0];
    return q.type == CUDNN_DATA_BFLOAT16 && q.size[3] % 8 == 0 && q.size[3] <= 128 &&
           std::find(std::begin(forms), std::end(forms), form) != std::end(forms);
}

cudnnStatus_t execute_attention(cudnnHandle_t h, const struct descriptor *drawn, const std::map<int64_t, void *> &given,
                                void *given_room, size_t bytes) {
    const std::vector<struct operation> graph = read_graph(drawn);
    operands input, output;
    values scalars;
    if (!find_operands(graph, given, &input, &output, &scalars)) return CUDNN_STATUS_BAD_PARAM;
    const auto submit = [=, stream = h->stream] {
        const auto found = [=](operands list) {
            for (auto &[uid, operand] : list)
                operand.array.data = memory_of(stream, operand.array.data, operand.array.bytes(), "cuDNN");
            return list;
        };
        void *room = bytes ? memory_of(stream, given_room, bytes, "cuDNN") : NULL;
        count_work(LIBRARY_CALLS);
        enqueue(stream, [=, from = found(input), to = found(output)] {
            if (room) memset(room, 0xff, bytes);
            run(graph, from, to, scalars);
        });
    };
    if (!captures(h->stream, submit)) submit();
    return CUDNN_STATUS_SUCCESS;
}
} // namespace emulator
