/* attention_cuda.cu: attention.c and document_attention.c on CUDA devices: by the kernels of attention_tiles.h, or by cuDNN in
 * bf16, whichever is faster (attention_graph.h). Both save the same numbers for backward.
 *
 * Limits: heads of more than 128 numbers, which are rare, and one row per step with a cache use the simpler kernels of
 * attention_rows.h. cuDNN computes no documents, and nothing in deterministic runs. */
#include <cstring>

#include "codelets/cuda/attention_graph.h"
#include "codelets/ops/attention.h"
#include "codelets/ops/attention_tiles.h"

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

/* OF_K is the index of operand k, if k and v are inputs of their own; operand v is the next. OF_START is that of operand start of
 * document_attention. */
static struct sizes sizes_of(const struct sgrad_args *args, int of_k, int of_start) {
    const struct sgrad_attention *attrs = (const struct sgrad_attention *)args->attrs;
    const int64_t *x = args->view[0].shape.dim;
    const int size = (int)x[2] / (args->data[of_k] ? attrs->heads : attrs->heads + 2 * attrs->kv_heads);
    return { (int)x[1], attrs->heads * size, attrs->heads, attrs->kv_heads, size, attrs->causal,
             attrs->documents ? (const int32_t *)args->data[of_start] : nullptr };
}

/* Returns the rows of q, k and v. Their gradients are those from SLOPE on; with three inputs the last two are operands OF_K + 2
 * and OF_K + 3. SLOPE 0: none. */
template <typename T>
static struct operands<T> operands_of(const struct sgrad_args *args, const struct sizes &s, int of_k, int slope) {
    const bool one = !args->data[of_k];
    struct operand<T> of[3];
    for (int i = 0; i < 3; i++) {
        const int x = one || i == 0 ? 0 : of_k + i - 1, dx = one || i == 0 ? slope : of_k + 1 + i;
        const int64_t first = one && i > 0 ? s.width + (i - 1) * s.kv * s.size : 0;
        T *to = slope ? (T *)args->data[dx] : nullptr;
        of[i] = { (const T *)args->data[x] + first, to ? to + first : to, args->view[x].shape.dim[2],
                  slope && sgrad_adds(args, dx) };
    }
    return { of[0], of[1], of[2] };
}

/* Calls blocks(arithmetic, dim, blocks per head), or rows(element) if heads are too large for blocks. */
template <typename Blocks, typename Rows>
static void with_shape(const struct sgrad_args *args, const struct sizes &sizes, Blocks blocks, Rows rows) {
    const int64_t high = sgrad__ceil(sizes.T, ROWS), grid = args->view[0].shape.dim[0] * sizes.heads * high;
    if (sizes.size > 128) return sgrad__with_type(args->view[0].dtype, rows);
    if (grid > INT32_MAX) sgrad_cuda_fail("operand too large", "a launch");
    sgrad__with_arithmetic(args->view[0].dtype, args->tf32, [=](auto arithmetic) {
        if (sizes.size <= 32)
            blocks(arithmetic, std::integral_constant<int, 32>(), (unsigned)high);
        else if (sizes.size <= 64)
            blocks(arithmetic, std::integral_constant<int, 64>(), (unsigned)high);
        else if (sizes.size <= 96)
            blocks(arithmetic, std::integral_constant<int, 96>(), (unsigned)high);
        else
            blocks(arithmetic, std::integral_constant<int, 128>(), (unsigned)high);
    });
}

/* ---- cuDNN's graphs ---------------------------------------------------------------------------------------------- */

/* Returns the bytes of cuDNN's workspace, for N samples of T rows of WIDTH numbers. In backward it may need a copy of dq in F32
 * and, if queries are GROUPED, dk and dv of each head of queries in bf16, with rows padded to a multiple of 8. */
static size_t room_for(bool backward, int64_t N, int64_t T, int64_t width, bool grouped) {
    const size_t copy = (size_t)(N * sgrad__ceil(T, 8) * 8 * width) * sizeof(float);
    return (64 << 10) + (backward ? copy * (grouped ? 2 : 1) : 0);
}

/* Returns whether graphs take heads of SIZE numbers of type DTYPE. */
static bool takes(enum sgrad_dtype dtype, int64_t size) { return dtype == SGRAD_BF16 && size % 8 == 0 && size <= 128; }

/* Returns whether cuDNN may compute a task. Deterministic runs use our own kernels, whose result does not depend on a
 * measurement or on the order of additions. */
static bool may_be_graph(const struct sgrad_args *args, const struct sizes &s) {
    return takes(args->view[0].dtype, s.size) && !args->deterministic && !s.start && s.T > 1 && sgrad__graph_wanted() &&
           sgrad__attention_graph_exists();
}

static struct sgrad__attention_key key_of(const struct sgrad_args *args, const struct sizes &s,
                                          const struct operands<__nv_bfloat16> &in, bool backward) {
    struct sgrad__attention_key key;
    memset(&key, 0, sizeof key);
    key.backward = backward, key.causal = s.causal;
    key.N = (int32_t)args->view[0].shape.dim[0], key.T = s.T, key.heads = s.heads, key.kv = s.kv, key.size = s.size;
    key.stride[0] = (int32_t)in.q.stride, key.stride[1] = (int32_t)in.k.stride, key.stride[2] = (int32_t)in.v.stride;
    key.room = room_for(backward, key.N, s.T, s.width, s.kv < s.heads);
    return key;
}

static struct sgrad__graph_data data_of(const struct operands<__nv_bfloat16> &in, const void *y, const void *stats) {
    struct sgrad__graph_data data = {};
    data.at[SGRAD__AT_QUERY] = in.q.at, data.at[SGRAD__AT_KEY] = in.k.at, data.at[SGRAD__AT_VALUE] = in.v.at;
    data.at[SGRAD__AT_OUT] = y, data.at[SGRAD__AT_STATS] = stats;
    return data;
}

/* ---- forward, inference, backward -------------------------------------------------------------------------------- */

static void forward_by_kernels(const struct sgrad_args *args, const struct sizes &s, int of_k) {
    const unsigned heads = (unsigned)(args->view[0].shape.dim[0] * s.heads);
    with_shape(
        args, s,
        [=](auto arithmetic, auto dim, unsigned high) {
            using T = typename decltype(arithmetic)::type;
            sgrad__launch_grid(forward<decltype(arithmetic), dim.value>, dim3(heads * high), dim3(32, WARPS), s,
                               operands_of<T>(args, s, of_k, 0), args->data[1], args->data[2]);
        },
        [=](auto type) {
            using T = decltype(type);
            sgrad__launch_warps(forward_rows<T>, (int64_t)heads * s.T, s, operands_of<T>(args, s, of_k, 0), args->data[1],
                                args->data[2]);
        });
}

static void forward_from(const struct sgrad_args *args, int of_k, int of_start) {
    const struct sizes s = sizes_of(args, of_k, of_start);
    const auto by_kernels = [=] { forward_by_kernels(args, s, of_k); };
    const auto in = operands_of<__nv_bfloat16>(args, s, of_k, 0);
    if (!may_be_graph(args, s)) return by_kernels();
    const struct sgrad__attention_key key = key_of(args, s, in, false);
    struct sgrad__graph_data data = data_of(in, args->data[1], args->data[2]);
    data.room = (void *)sgrad_aligned((size_t)args->workspace);
    sgrad__attention_graph_do(&key, data, by_kernels);
}

/* Forward: x (N,T,C+2K) or q (N,T,C), y (N,T,C), saved (N,heads,T), k and v (N,T,K) or absent, start (N,T) of
 * document_attention */
extern "C" void sgrad__attention_forward_cuda(const struct sgrad_args *args) { forward_from(args, 3, 5); }

/* Inference: x (N,T,C+2K) or q (N,T,C), y (N,T,C), saved (N,heads,T), cache (N,2,L,K) or absent, k and v (N,T,K) or absent,
 * start (N,T) of document_attention */
extern "C" void sgrad__attention_inference_cuda(const struct sgrad_args *args) {
    if (!args->data[3]) return forward_from(args, 4, 6);
    const struct sizes s = sizes_of(args, 4, 6);
    const int places = (int)args->view[3].shape.dim[2];
    sgrad__with_type(args->view[0].dtype, [=](auto type) {
        using T = decltype(type);
        struct operands<T> in = operands_of<T>(args, s, 4, 0);
        float *cache = (float *)args->data[3];
        T *y = (T *)args->data[1];
        for (int64_t n = 0; n < args->view[0].shape.dim[0]; n++) {
            sgrad__launch(remember<T>, s.kv * s.size, args->step, places, in, cache);
            sgrad__launch_warps(attend_to_cache<T>, s.heads, s, args->step, places, in, cache, y);
            in.q.at += in.q.stride, in.k.at += in.k.stride, in.v.at += in.v.stride;
            cache += (int64_t)2 * places * s.kv * s.size, y += s.width;
        }
    });
}

static void backward_by_kernels(const struct sgrad_args *args, const struct sizes &s, float *own) {
    const unsigned samples = (unsigned)args->view[0].shape.dim[0];
    with_shape(
        args, s,
        [=](auto arithmetic, auto dim, unsigned high) {
            using A = decltype(arithmetic);
            const auto in = operands_of<typename A::type>(args, s, 5, 4);
            sgrad__launch_grid(backward_queries<A, dim.value>, dim3(samples * s.heads * high), dim3(32, WARPS), s, in,
                               args->data[1], args->data[2], args->data[3], own);
            const auto keys = [=](auto kernel) {
                sgrad__launch_grid(kernel, dim3(samples * s.kv * high), dim3(32, WARPS), s, in, args->data[2], args->data[3],
                                   own);
            };
            if constexpr (A::depth == 16 || dim.value <= 64)
                keys(backward_keys<A, dim.value, true, true>);
            else /* the registers suffice for one of the sums */
                keys(backward_keys<A, dim.value, true, false>), keys(backward_keys<A, dim.value, false, true>);
        },
        [=](auto type) {
            using T = decltype(type);
            const struct operands<T> in = operands_of<T>(args, s, 5, 4);
            sgrad__launch_warps(backward_query_rows<T>, (int64_t)samples * s.heads * s.T, s, in, args->data[1], args->data[2],
                                args->data[3]);
            sgrad__launch_warps(backward_key_rows<T>, (int64_t)samples * s.kv * s.T, s, in, args->data[1], args->data[2],
                                args->data[3]);
        });
}

/* Backward: x (N,T,C+2K) or q (N,T,C), y, dy (N,T,C), saved (N,heads,T), dx or dq, k and v (N,T,K) or absent, dk and dv (N,T,K)
 * or absent, start (N,T) of document_attention; workspace: own (N,heads,T); of a graph, also dq (N,heads,T,D) and cuDNN's */
extern "C" void sgrad__attention_backward_cuda(const struct sgrad_args *args) {
    const struct sizes s = sizes_of(args, 5, 9);
    float *own = (float *)sgrad_aligned((size_t)args->workspace);
    const auto by_kernels = [=] { backward_by_kernels(args, s, own); };
    const auto in = operands_of<__nv_bfloat16>(args, s, 5, 4);
    const bool whole = in.q.slope && in.k.slope && in.v.slope && !in.q.add && !in.k.add && !in.v.add;
    if (!whole || !may_be_graph(args, s)) return by_kernels();
    const struct sgrad__attention_key key = key_of(args, s, in, true);
    const int64_t rows = (int64_t)key.N * s.heads * s.T;
    struct sgrad__graph_data data = data_of(in, args->data[1], args->data[3]);
    data.at[SGRAD__AT_DOUT] = args->data[2], data.at[SGRAD__AT_SUMS] = own;
    data.at[SGRAD__AT_DQUERY] = in.q.slope, data.at[SGRAD__AT_DKEY] = in.k.slope, data.at[SGRAD__AT_DVALUE] = in.v.slope;
    float *sum = (float *)sgrad_aligned((size_t)(own + rows));
    data.at[SGRAD__AT_DQUERY_SUM] = sum;
    data.room = (void *)sgrad_aligned((size_t)(sum + rows * s.size));
    sgrad__attention_graph_do(&key, data, by_kernels);
}

/* Workspace of forward: cuDNN's; of backward: as above. */
extern "C" size_t sgrad__attention_workspace_cuda(const struct sgrad_args *args, bool backward) {
    const struct sgrad_attention *attrs = (const struct sgrad_attention *)args->attrs;
    const int64_t *y = args->view[1].shape.dim;
    const size_t rows = (size_t)(y[0] * y[1]) * attrs->heads, numbers = backward ? (size_t)(y[0] * y[1] * y[2]) : 0;
    const size_t own = backward ? SGRAD_LINE + sgrad_aligned(rows * sizeof(float)) : 0;
    if (attrs->documents || !takes(args->view[1].dtype, y[2] / attrs->heads)) return own;
    return own + SGRAD_LINE + sgrad_aligned(numbers * sizeof(float)) +
           room_for(backward, y[0], y[1], y[2], attrs->kv_heads < attrs->heads);
}
