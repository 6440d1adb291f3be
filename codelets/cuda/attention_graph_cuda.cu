/* attention_graph_cuda.cu: attention as a cuDNN graph, for bf16.
 *
 *     forward     q ─┐                                       ┌─ max ─┐
 *                   matmul ─ mul scale ─ [causal mask] ─> s ─┤       sub ─ exp ─> e ─┬─ add up ─> Σe
 *                kᵀ ─┘                                       └───────┘               └──────────── div ─> p ─ matmul v ─> y
 *                stats = max + log Σe
 *     backward    sums = Σ y·dy of a row
 *                 q, kᵀ ─ matmul ─ mul scale ─ sub stats ─ [causal mask] ─ exp ─> p
 *                 dv = pᵀ dy,   ds = (dy vᵀ - sums) · p · scale,   dk = dsᵀ q,   dq = ds k
 *
 * Intermediate tensors are virtual and F32, except the left factors pᵀ, p and dsᵀ of products, which are bf16. Grouped queries:
 * products with k and v repeat each of their heads; dk and dv of all heads of queries are then added up by groups.
 *
 * cuDNN recognises these graphs by their form. cuDNN 9.19 makes plans of all of them for an A100 (sm_80), an H100 (sm_90) and a
 * B200 (sm_100), which were described to it without a GPU, also for grouped queries, and heads of 16, 40, 96 and 128 numbers. All
 * plans are compiled when they are created. None is said to be not reproducible. Their workspace is at most 256 bytes, and in
 * backward a copy of dq in F32 more, or two with grouped queries.
 *
 * Sources: cuDNN's backend API reference, and its developer guide on graphs, version 9; the form of the graphs:
 * https://github.com/NVIDIA/cudnn-frontend, scaled_dot_product_flash_attention.h. */
#include "codelets/cuda/attention_graph.h"
#include "codelets/cuda/cudnn_descriptors.h"

#include <cfloat>
#include <cmath>

namespace {

typedef sgrad__descriptors descriptors;
typedef cudnnBackendDescriptor_t descriptor;

/* Sizes and strides of a tensor (N,heads,rows,columns). */
struct form {
    int64_t size[4], stride[4];
    struct form turned() const {
        return { { size[0], size[1], size[3], size[2] }, { stride[0], stride[1], stride[3], stride[2] } };
    }
};
struct form dense(int64_t n, int64_t heads, int64_t rows, int64_t columns) {
    return { { n, heads, rows, columns }, { heads * rows * columns, rows * columns, columns, 1 } };
}

/* A tensor of the graph. */
struct value {
    descriptor is;
    struct form form;
};

/* A graph under construction. Tensors are identified by numbers; those of intermediate tensors start at
 * SGRAD__ATTENTION_OPERANDS. */
struct drawing {
    descriptors &all;
    const struct sgrad__attention_key &key;
    std::vector<descriptor> op;
    std::vector<int64_t> used;
    int64_t next = SGRAD__ATTENTION_OPERANDS;

    struct value tensor(int64_t number, cudnnDataType_t type, const struct form &form);
    struct value between(const struct form &form, cudnnDataType_t type = CUDNN_DATA_FLOAT) { return tensor(next++, type, form); }
    /* Operands: rows of HEADS heads that are STRIDE numbers apart; F32 numbers of each row; a single number. */
    struct value rows(int64_t number, int64_t heads, int64_t stride) {
        return tensor(number, CUDNN_DATA_BFLOAT16,
                      { { key.N, heads, key.T, key.size }, { key.T * stride, key.size, stride, 1 } });
    }
    struct value of_rows(int64_t number) { return tensor(number, CUDNN_DATA_FLOAT, dense(key.N, key.heads, key.T, 1)); }
    struct value scalar(int64_t number) { return tensor(number, CUDNN_DATA_FLOAT, dense(1, 1, 1, 1)); }
    struct form scores() const { return dense(key.N, key.heads, key.T, key.T); }

    void matmul(const struct value &a, const struct value &b, const struct value &to);
    descriptor begin_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, int64_t axis);
    struct value pointwise(cudnnPointwiseMode_t mode, const struct value &x, const struct value *b, const struct value &to,
                           const struct value *choice = NULL);
    struct value pointwise(cudnnPointwiseMode_t mode, const struct value &x, const struct value &b) {
        return pointwise(mode, x, &b, between(x.form));
    }
    struct value pointwise(cudnnPointwiseMode_t mode, const struct value &x) { return pointwise(mode, x, NULL, between(x.form)); }
    struct value index(const struct value &x, int64_t axis);
    struct value reduce(cudnnReduceTensorOp_t how, const struct value &x, const struct value &to);
    struct value turn(const struct value &x, const struct form &form);
    struct value mask(const struct value &scores);
    void add_groups(const struct value &left, const struct value &right, const struct value &to);
    descriptor finish();
};

struct value drawing::tensor(int64_t number, cudnnDataType_t type, const struct form &form) {
    const bool is_virtual = number >= SGRAD__ATTENTION_OPERANDS;
    const bool by_value = number >= SGRAD__AT_FACTOR && !is_virtual;
    const descriptor d = all.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (!is_virtual) used.push_back(number);
    all.set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, sgrad__graph_uid(number));
    all.set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    all.set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, form.size);
    all.set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, form.stride);
    all.set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, (int64_t)16);
    all.set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    all.set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    return { all.finish(d), form };
}

/* ---- operations ---------------------------------------------------------------------------------------------------- */

void drawing::matmul(const struct value &a, const struct value &b, const struct value &to) {
    const descriptor how = all.make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    all.set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    all.finish(how);
    const descriptor d = all.make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    all.set(d, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    all.set(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.is);
    all.set(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.is);
    all.set(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, to.is);
    op.push_back(all.finish(d));
}

/* Returns a pointwise operation without operands. AXIS: that of an index, or -1. */
descriptor drawing::begin_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, int64_t axis) {
    const descriptor how = all.make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    all.set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    all.set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
    if (axis >= 0) all.set(how, CUDNN_ATTR_POINTWISE_AXIS, axis);
    all.finish(how);
    const descriptor d = all.make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    return d;
}

/* TO = MODE(x, b), or MODE(x) if B is NULL; with CHOICE, x where it is true and b elsewhere. */
struct value drawing::pointwise(cudnnPointwiseMode_t mode, const struct value &x, const struct value *b, const struct value &to,
                                const struct value *choice) {
    const descriptor d = begin_pointwise(mode, mode == CUDNN_POINTWISE_CMP_GE ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT, -1);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.is);
    if (b) all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->is);
    if (choice) all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, choice->is);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.is);
    op.push_back(all.finish(d));
    return to;
}

/* Returns the index of each element of X along AXIS. */
struct value drawing::index(const struct value &x, int64_t axis) {
    const struct value to = between(x.form, CUDNN_DATA_INT32);
    const descriptor d = begin_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x.is);
    all.set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.is);
    op.push_back(all.finish(d));
    return to;
}

/* Reduces X along the dimensions in which TO has size 1, or groups of heads to one head. */
struct value drawing::reduce(cudnnReduceTensorOp_t how, const struct value &x, const struct value &to) {
    const descriptor what = all.make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    all.set(what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    all.set(what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    all.finish(what);
    const descriptor d = all.make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    all.set(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    all.set(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.is);
    all.set(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to.is);
    op.push_back(all.finish(d));
    return to;
}

/* Returns X in bf16 with the sizes and strides of FORM. */
struct value drawing::turn(const struct value &x, const struct form &form) {
    const struct value to = between(form, CUDNN_DATA_BFLOAT16);
    const descriptor d = all.make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    all.set(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.is);
    all.set(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to.is);
    op.push_back(all.finish(d));
    return to;
}

/* Returns SCORES, with the lowest number in columns after the row's. Without a causal mask: SCORES. */
struct value drawing::mask(const struct value &scores) {
    if (!key.causal) return scores;
    const struct value row = index(scores, 2), column = index(scores, 3), lowest = scalar(SGRAD__AT_LOWEST);
    const struct value seen =
        pointwise(CUDNN_POINTWISE_CMP_GE, row, &column, between(scores.form, CUDNN_DATA_BOOLEAN));
    return pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, &lowest, between(scores.form), &seen);
}

/* TO = left · right, summed over the heads of queries that use a head of keys. */
void drawing::add_groups(const struct value &left, const struct value &right, const struct value &to) {
    if (key.heads == key.kv) return matmul(left, right, to);
    const struct value full = between(dense(key.N, key.heads, key.T, key.size), CUDNN_DATA_BFLOAT16);
    matmul(left, right, full);
    reduce(CUDNN_REDUCE_TENSOR_ADD, full, to);
}

descriptor drawing::finish() {
    const descriptor graph = all.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const cudnnHandle_t handle = sgrad_cudnn();
    all.set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    all.set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, (int64_t)op.size(), op.data());
    return all.finish(graph);
}

/* ---- the graphs ------------------------------------------------------------------------------------------------------ */

void draw_forward(drawing &g) {
    const int64_t width = (int64_t)g.key.heads * g.key.size;
    const struct form per_row = dense(g.key.N, g.key.heads, g.key.T, 1);
    const struct value q = g.rows(SGRAD__AT_QUERY, g.key.heads, g.key.stride[0]);
    const struct value v = g.rows(SGRAD__AT_VALUE, g.key.kv, g.key.stride[2]);
    const struct form k = { { g.key.N, g.key.kv, g.key.T, g.key.size },
                            { (int64_t)g.key.T * g.key.stride[1], g.key.size, g.key.stride[1], 1 } };
    const struct value product = g.between(g.scores());
    g.matmul(q, g.tensor(SGRAD__AT_KEY, CUDNN_DATA_BFLOAT16, k.turned()), product);
    const struct value s = g.mask(g.pointwise(CUDNN_POINTWISE_MUL, product, g.scalar(SGRAD__AT_FACTOR)));
    const struct value most = g.reduce(CUDNN_REDUCE_TENSOR_MAX, s, g.between(per_row));
    const struct value e = g.pointwise(CUDNN_POINTWISE_EXP, g.pointwise(CUDNN_POINTWISE_SUB, s, most));
    const struct value sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, e, g.between(per_row));
    const struct value log_sum = g.pointwise(CUDNN_POINTWISE_LOG, sum);
    g.pointwise(CUDNN_POINTWISE_ADD, most, &log_sum, g.of_rows(SGRAD__AT_STATS));
    const struct value p = g.pointwise(CUDNN_POINTWISE_DIV, e, &sum, g.between(g.scores(), CUDNN_DATA_BFLOAT16));
    g.matmul(p, v, g.rows(SGRAD__AT_OUT, g.key.heads, width));
}

void draw_backward(drawing &g) {
    const struct sgrad__attention_key &key = g.key;
    const int64_t width = (int64_t)key.heads * key.size;
    const struct form wide = dense(key.N, key.heads, key.T, key.size), per_row = dense(key.N, key.heads, key.T, 1);
    const auto rows_of = [&](int i) {
        return form{ { key.N, key.kv, key.T, key.size }, { (int64_t)key.T * key.stride[i], key.size, key.stride[i], 1 } };
    };
    const struct value y = g.rows(SGRAD__AT_OUT, key.heads, width), dy = g.rows(SGRAD__AT_DOUT, key.heads, width);
    const struct value own = g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.pointwise(CUDNN_POINTWISE_MUL, dy, &y, g.between(wide)),
                                      g.between(per_row));
    const struct value one = g.scalar(SGRAD__AT_ONE);
    const struct value sums = g.pointwise(CUDNN_POINTWISE_MUL, own, &one, g.of_rows(SGRAD__AT_SUMS));

    const struct value q = g.rows(SGRAD__AT_QUERY, key.heads, key.stride[0]), factor = g.scalar(SGRAD__AT_FACTOR);
    const struct value kt = g.tensor(SGRAD__AT_KEY, CUDNN_DATA_BFLOAT16, rows_of(1).turned());
    const struct value vt = g.tensor(SGRAD__AT_VALUE, CUDNN_DATA_BFLOAT16, rows_of(2).turned());
    const struct value product = g.between(g.scores()), slope = g.between(g.scores());
    g.matmul(q, kt, product);
    const struct value s = g.pointwise(CUDNN_POINTWISE_MUL, product, factor);
    const struct value p =
        g.pointwise(CUDNN_POINTWISE_EXP, g.mask(g.pointwise(CUDNN_POINTWISE_SUB, s, g.of_rows(SGRAD__AT_STATS))));
    g.add_groups(g.turn(p, g.scores().turned()), dy, g.rows(SGRAD__AT_DVALUE, key.kv, key.stride[2]));

    g.matmul(dy, vt, slope);
    const struct value ds = g.pointwise(
        CUDNN_POINTWISE_MUL, g.pointwise(CUDNN_POINTWISE_MUL, g.pointwise(CUDNN_POINTWISE_SUB, slope, sums), p), factor);
    g.add_groups(g.turn(ds, g.scores().turned()), q, g.rows(SGRAD__AT_DKEY, key.kv, key.stride[1]));
    const struct value dq = g.tensor(SGRAD__AT_DQUERY_SUM, CUDNN_DATA_FLOAT, wide);
    g.matmul(ds, g.turn(kt, rows_of(1)), dq);
    g.pointwise(CUDNN_POINTWISE_IDENTITY, dq, NULL, g.rows(SGRAD__AT_DQUERY, key.heads, key.stride[0]));
}

descriptor draw_graph(descriptors &all, const struct sgrad__attention_key &key, std::vector<int64_t> *used) {
    drawing g = { all, key, {}, {} };
    key.backward ? draw_backward(g) : draw_forward(g);
    *used = g.used;
    return g.finish();
}

/* "attention: cuDNN's graph of forward, q (16,12,512,64), k (16,4,512,64), causal": (N,heads,T,D) */
std::string text_of(const struct sgrad__attention_key &key) {
    char text[160];
    snprintf(text, sizeof text, "attention: cuDNN's graph of %s, q (%d,%d,%d,%d), k (%d,%d,%d,%d)%s",
             key.backward ? "backward" : "forward", key.N, key.heads, key.T, key.size, key.N, key.kv, key.T, key.size,
             key.causal ? ", causal" : "");
    return text;
}

/* Returns the key of the measurement in the tuning cache. */
std::string memo_of(const struct sgrad__attention_key &key) {
    int device;
    struct cudaDeviceProp properties;
    SGRAD_CUDA(cudaGetDevice(&device));
    SGRAD_CUDA(cudaGetDeviceProperties(&properties, device));
    std::string memo = "1, " + std::string(properties.name) + ", cuDNN " + std::to_string(cudnnGetVersion()) + ", ";
    memo += text_of(key) + ", " + std::to_string(key.room) + ":";
    for (int stride : key.stride) memo += " " + std::to_string(stride);
    return memo;
}

/* Versions of cuDNN: from 9.6 on, backward need not be given zeros to add dq to; from 9.10 on, -∞ is the score of a key that is
 * not seen; in 9.10.0 and 9.10.1, attention has known errors. */
enum { ZEROES_ITSELF = 90600, TAKES_INFINITY = 91000, CORRECT_AGAIN = 91002 };

} // namespace

bool sgrad__attention_graph_exists(void) {
    const size_t version = cudnnGetVersion();
    return version >= ZEROES_ITSELF && (version < TAKES_INFINITY || version >= CORRECT_AGAIN);
}

void sgrad__attention_graph_do(const struct sgrad__attention_key *key, struct sgrad__graph_data data,
                               const std::function<void()> &unfused) {
    static struct sgrad_cache cache =
        sgrad__cuda_cache(sizeof *key, sizeof(struct sgrad__graph_choice), sgrad__graph_choice_free);
    const float factor = 1 / sqrtf((float)key->size), one = 1;
    const float lowest = cudnnGetVersion() < TAKES_INFINITY ? -FLT_MAX : -INFINITY;
    struct sgrad__graph_task task = {};
    bool created;
    struct sgrad__graph_choice *choice = (struct sgrad__graph_choice *)sgrad_cache_get(&cache, key, &created);
    data.at[SGRAD__AT_FACTOR] = &factor, data.at[SGRAD__AT_LOWEST] = &lowest, data.at[SGRAD__AT_ONE] = &one;
    task.room = key->room;
    task.compiled = true; /* a network has few shapes of attention */
    task.unfused = unfused;
    task.draw = [=](descriptors &all, std::vector<int64_t> *used) { return draw_graph(all, *key, used); };
    task.memo = [=] { return memo_of(*key); };
    task.text = [=] { return text_of(*key); };
    sgrad__graph_run(choice, created, task, data);
}
