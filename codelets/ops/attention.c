/* attention.c: multi-head attention between the rows of a sample:
 *
 *     y_i = Σ_j p_ij v_j,    p_i = softmax over j of q_i·k_j / √D         CAUSAL: over j ≤ i
 *
 * With one input, x is (N,T,C+2·K): a row is the concatenation of q, of C = heads·D numbers, head by head, and of k and v, of
 * K = kv_heads·D numbers each. With three inputs, they are q (N,T,C), k and v (N,T,K). y is (N,T,C). Adjacent heads of q, as many
 * as heads/kv_heads, use the same head of k and v (grouped queries).
 *
 * The matrix p is never stored. Scores are computed block by block, with a running maximum and a running sum per row. Sums that
 * were accumulated with a smaller maximum are scaled down. log Σ exp of each row is saved for backward, which recomputes the
 * blocks from it:
 *
 *              keys →                    forward, row of blocks by row: s = q kᵀ, p = exp(s - max), y = y·shrink + p v
 *     queries  ■                         backward, column by column: recompute p, dv += pᵀ dy, dp = dy vᵀ,
 *        ↓     ■ ■                                  ds = p (dp - y·dy), dq += ds k, dk += dsᵀ q
 *              ■ ■ ■     causal: blocks above the diagonal are left out
 *
 * Operation document_attention has a further input after the first, start (N,T): the index of the first row of the document
 * that a row belongs to. Row i then attends only to rows start_i ≤ j ≤ i. Blocks between two documents are left out.
 *
 * A network with a key-value cache (attribute .cache, its length in rows) processes one row of each sequence per step. Step
 * number 1 writes its k and v to row 0 of the cache, step 2 to row 1, and so on. The query of a step attends to all rows written
 * so far.
 *
 * The rows of a head are first copied to contiguous matrices (attention_head.h). Computation is in F32 for all types of
 * activations, with one exception: if activations are bf16 and the processor has AVX512_BF16, the factors of products are pairs
 * of bf16, adjacent in the dimension that is summed over, and p and ds are rounded to bf16.
 *
 * Sources: J. Ainslie et al., GQA: training generalized multi-query transformer models from multi-head checkpoints, 2023; T. Dao
 * et al., FlashAttention: fast and memory-efficient exact attention, 2022; A. Vaswani et al., Attention is all you need, 2017. */
#include "config.h"
#include "codelets/ops/attention_blocks.h"
#include "codelets/ops/attention_tasks.h"

#include <math.h>

/* Operand k of each task, if it is not in x; operand v is the next. Operand start of each task of document_attention. */
enum { FORWARD_K = 3, INFERENCE_K = 4, BACKWARD_K = 5 };
enum { FORWARD_START = 5, INFERENCE_START = 6, BACKWARD_START = 9 };

/* Check the shape of one input, of queries, keys and values, and the shapes of three, the second of which is input OF_K. */
static int check_one(const struct sgrad_signature *signature, const struct sgrad_attention *attrs) {
    const struct sgrad_shape *x = &signature->x[0].shape;
    char text[SGRAD_SHAPE_TEXT];
    if (x->rank == 3 && x->dim[2] % (attrs->heads + 2 * (int64_t)attrs->kv_heads) == 0) return 0;
    return sgrad_log_error(SGRAD_ESHAPE,
                           "%s: attention requires rows (N,T,C) of %d heads of queries and %d of keys and of values, not %s",
                           signature->layer, attrs->heads, attrs->kv_heads, sgrad_shape_text(x, text));
}
static int check_three(const struct sgrad_signature *signature, const struct sgrad_attention *attrs, int of_k) {
    const struct sgrad_shape *q = &signature->x[0].shape, *k = &signature->x[of_k].shape, *v = &signature->x[of_k + 1].shape;
    char text[3][SGRAD_SHAPE_TEXT];
    if (signature->inputs == of_k + 2 && q->rank == 3 && k->rank == 3 && q->dim[0] == k->dim[0] && q->dim[1] == k->dim[1] &&
        q->dim[2] % attrs->heads == 0 && k->dim[2] == q->dim[2] / attrs->heads * attrs->kv_heads && sgrad_shape_equal(k, v))
        return 0;
    return sgrad_log_error(
        SGRAD_ESHAPE,
        "%s: attention requires queries, keys and values (N,T,C) of %d, %d and %d heads of the same size, not %s, %s "
        "and %s",
        signature->layer, attrs->heads, attrs->kv_heads, attrs->kv_heads, sgrad_shape_text(q, text[0]),
        sgrad_shape_text(k, text[1]), signature->inputs == of_k + 2 ? sgrad_shape_text(v, text[2]) : "nothing");
}

int sgrad__attention_infer(struct sgrad_signature *signature, struct sgrad_attention *attrs, int of_k) {
    const struct sgrad_shape *x = &signature->x[0].shape;
    const bool one = signature->inputs <= of_k;
    if (attrs->kv_heads == 0) attrs->kv_heads = attrs->heads;
    if (attrs->heads < 1 || attrs->kv_heads < 1 || attrs->heads % attrs->kv_heads)
        return sgrad_log_error(SGRAD_EINVAL, "%s: attention: %d heads of queries cannot share %d heads of keys and values evenly",
                               signature->layer, attrs->heads, attrs->kv_heads);
    SGRAD_TRY(one ? check_one(signature, attrs) : check_three(signature, attrs, of_k));
    const int64_t size = x->dim[2] / (one ? attrs->heads + 2 * attrs->kv_heads : attrs->heads);
    const int64_t width = attrs->heads * size;
    if (size > SGRAD_ROW)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: attention: heads have %lld features, more than %d", signature->layer,
                               (long long)size, SGRAD_ROW);
    if (attrs->sequences == 0) attrs->sequences = 1;
    if (attrs->cache && x->dim[1] != 1)
        return sgrad_log_error(SGRAD_ESHAPE, "%s: attention with a cache requires one row per step, not %lld", signature->layer,
                               (long long)x->dim[1]);
    signature->y.shape = (struct sgrad_shape){ 3, { x->dim[0], x->dim[1], width } };
    signature->saved[0] = (struct sgrad_view){ SGRAD_F32, { 3, { x->dim[0], attrs->heads, x->dim[1] } } };
    if (attrs->cache)
        signature->s[0] = (struct sgrad_parameter){ .name = "cache",
                                                    .unsaved = true,
                                                    .shape = { 4, { attrs->sequences, 2, attrs->cache,
                                                                    attrs->kv_heads * size } } };
    return 0;
}

static int infer(struct sgrad_signature *signature, void *attrs) {
    ((struct sgrad_attention *)attrs)->documents = false;
    return sgrad__attention_infer(signature, attrs, 1);
}

static struct head head_of_all(const struct sgrad_args *args, bool backward) {
    const struct sgrad_attention *attrs = args->attrs;
    return head_of(args, attrs->heads, attrs->kv_heads, backward);
}

size_t sgrad__attention_forward_workspace(const struct sgrad_args *args) {
    return SGRAD_LINE + (size_t)head_of_all(args, false).all * sizeof(float);
}
size_t sgrad__attention_inference_workspace(const struct sgrad_args *args) {
    return SGRAD_LINE + (size_t)head_of_all(args, false).all * sizeof(float);
}
size_t sgrad__attention_backward_workspace(const struct sgrad_args *args) {
    return SGRAD_LINE + (size_t)head_of_all(args, true).all * sizeof(float);
}

/* Workspaces on a GPU (attention_cuda.cu). */
static size_t gpu_workspace(const struct sgrad_args *args, bool backward) {
#ifdef SGRAD_HAVE_CUDA
    return sgrad__attention_workspace_cuda(args, backward);
#else
    return (void)args, (void)backward, 0;
#endif
}
size_t sgrad__attention_forward_gpu_workspace(const struct sgrad_args *args) { return gpu_workspace(args, false); }
size_t sgrad__attention_backward_gpu_workspace(const struct sgrad_args *args) { return gpu_workspace(args, true); }

/* ---- training and evaluation ------------------------------------------------------------------------------------- */

/* Returns operand OF_START, or NULL if there are no documents. */
static const int32_t *start_of(const struct sgrad_args *args, int of_start) {
    return ((const struct sgrad_attention *)args->attrs)->documents ? args->data[of_start] : NULL;
}

/* Finds the rows of q, k and v: operands 0, OF_K and OF_K + 1, or all in operand 0. Their gradients are those from SLOPE on; with
 * three inputs the last two are operands OF_K + 2 and OF_K + 3. SLOPE 0: none. */
static void find_rows(const struct sgrad_args *args, const struct head *h, int of_k, int slope, struct rows of[3]) {
    const bool one = args->view[of_k].shape.rank < 0;
    const int64_t kv = h->kv * h->size;
    for (int i = 0; i < 3; i++) {
        const int x = one || i == 0 ? 0 : of_k + i - 1, dx = one || i == 0 ? slope : of_k + 1 + i;
        of[i] = (struct rows){ .data = args->data[x], .stride = args->view[x].shape.dim[2], .type = h->type };
        if (slope) of[i].slope = args->data[dx], of[i].add = sgrad_adds(args, dx);
        if (one && i > 0) of[i].first = h->width + (i - 1) * kv;
    }
}

SGRAD_ALWAYS_INLINE void attend_to_all(const struct sgrad_args *args, int of_k, int of_start) {
    struct seen seen = { .causal = ((const struct sgrad_attention *)args->attrs)->causal };
    const int32_t *start = start_of(args, of_start);
    const struct head h = head_of_all(args, false);
    float *room = (float *)sgrad_aligned((size_t)args->workspace), *keep = args->data[2];
    struct rows of[3];
    find_rows(args, &h, of_k, 0, of);
    for (int64_t i = 0; i < args->view[0].shape.dim[0] * h.heads; i++, keep += h.count) {
        const int64_t n = i / h.heads, k = i % h.heads, shared = k / h.group;
        if (k % h.group == 0) take_keys(&h, of, n, shared, room);
        if (start) seen.start = start + n * h.count;
        gather_left(&h, &of[0], begin(&h, &of[0], n, k), room + h.q);
        for (int64_t first = 0; first < h.count; first += BLOCK) {
            const int64_t rows = least(BLOCK, h.count - first);
            attend(&h, &seen, first, rows, room, keep);
            scatter(room + h.sum, h.row, rows, h.size, 1, h.type, args->data[1], (n * h.count + first) * h.width + k * h.size,
                    h.width, false);
        }
    }
}

/* x (N,T,C+2K) or q (N,T,C), y (N,T,C), saved (N,heads,T): log Σ exp of each row of scores, k and v (N,T,K) or absent, start
 * (N,T) of document_attention */
SGRAD_VECTOR(forward)(const struct sgrad_args *args) { attend_to_all(args, FORWARD_K, FORWARD_START); }

/* Computes the gradient of query head K of sample N, and adds its terms to dk and dv. */
SGRAD_ALWAYS_INLINE void slope_head(const struct sgrad_args *args, const struct head *head, const struct rows *of_q, int64_t n,
                                    int64_t k, float *room) {
    const int32_t *start = start_of(args, BACKWARD_START);
    const struct seen seen = { .causal = ((const struct sgrad_attention *)args->attrs)->causal,
                               .start = start ? start + n * head->count : NULL };
    take_slopes(head, of_q, args->data[1], args->data[2], n, k, room);
    slope_all(head, &seen, room, (const float *)args->data[3] + (n * head->heads + k) * head->count);
    put(head, room + head->dq, scale_of(head), of_q, begin(head, of_q, n, k));
}

/* x (N,T,C+2K) or q (N,T,C), y, dy (N,T,C), saved (N,heads,T), dx or dq, k, v (N,T,K) or absent, dk, dv (N,T,K) or absent, start
 * (N,T) of document_attention */
SGRAD_VECTOR(backward)(const struct sgrad_args *args) {
    const struct head h = head_of_all(args, true);
    float *room = (float *)sgrad_aligned((size_t)args->workspace);
    struct rows of[3];
    find_rows(args, &h, BACKWARD_K, 4, of);
    for (int64_t n = 0; n < args->view[0].shape.dim[0]; n++)
        for (int64_t shared = 0; shared < h.kv; shared++) {
            take_keys_back(&h, of, n, shared, room);
            for (int64_t k = shared * h.group; k < (shared + 1) * h.group; k++) slope_head(args, &h, &of[0], n, k, room);
            put(&h, room + h.dk, scale_of(&h), &of[1], begin(&h, &of[1], n, shared));
            put(&h, room + h.dv, 1, &of[2], begin(&h, &of[2], n, shared));
        }
}

/* ---- one row per step, with a cache ------------------------------------------------------------------------------ */

/* Processes the row of sequence N; its keys and values are those of L rows, (2,L,K), at CACHE. */
SGRAD_ALWAYS_INLINE void attend_to_cache(const struct sgrad_args *args, const struct head h, const struct rows *of, int64_t n,
                                         float *cache) {
    const int64_t place = (int64_t)args->step->number - 1, width = h.kv * h.size;
    float *keys = cache, *values = keys + args->view[3].shape.dim[2] * width;
    float *q = (float *)sgrad_aligned((size_t)args->workspace);
    gather(h.type, of[1].data, begin(&h, &of[1], n, 0), h.size, h.kv, h.size, 1, keys + place * width, h.size);
    gather(h.type, of[2].data, begin(&h, &of[2], n, 0), h.size, h.kv, h.size, 1, values + place * width, h.size);
    for (int64_t k = 0; k < h.heads; k++) {
        float room[SGRAD_ROW] = { 0 }, max = -INFINITY, total = 0;
        gather(h.type, of[0].data, begin(&h, &of[0], n, k), h.size, 1, h.size, 1 / sqrtf((float)h.size), q, h.row);
        for (int64_t t = 0; t <= place; t++) {
            const int64_t at = t * width + k / h.group * h.size;
            const float *key = keys + at, *value = values + at;
            const float score = sum_of_products(q, key, h.size), before = max;
            max = score > max || score != score ? score : max;
            const float shrink = before == max ? 1 : expf(before - max), p = expf(score - max);
            total = total * shrink + p;
            for (int64_t c = 0; c < h.size; c++) room[c] = room[c] * shrink + p * value[c];
        }
        scatter(room, h.size, 1, h.size, 1 / total, h.type, args->data[1], n * h.width + k * h.size, h.size, false);
    }
}

/* x (N,T,C+2K) or q (N,T,C), y (N,T,C), saved (N,heads,T), cache (N,2,L,K) or absent, k and v (N,T,K) or absent, start (N,T) of
 * document_attention */
SGRAD_VECTOR(inference)(const struct sgrad_args *args) {
    if (!args->data[3]) return attend_to_all(args, INFERENCE_K, INFERENCE_START);
    const struct head h = head_of_all(args, false);
    struct rows of[3];
    find_rows(args, &h, INFERENCE_K, 0, of);
    for (int64_t n = 0; n < args->view[0].shape.dim[0]; n++)
        attend_to_cache(args, h, of, n, (float *)args->data[3] + n * 2 * args->view[3].shape.dim[2] * h.kv * h.size);
}

void sgrad__attention_forward(const struct sgrad_args *args) { forward(args); }
void sgrad__attention_inference(const struct sgrad_args *args) { inference(args); }
void sgrad__attention_backward(const struct sgrad_args *args) { backward(args); }

/* ---- the record -------------------------------------------------------------------------------------------------- */

/* Forward has two products with the size of the scores, backward five. Causal attention computes half of the scores; with a
 * cache this is the mean over the steps that fill it. */
static double flops(const struct sgrad_args *args, int products) {
    const struct sgrad_attention *attrs = args->attrs;
    const struct sgrad_shape *y = &args->view[1].shape;
    const int64_t keys = attrs->cache ? attrs->cache : y->dim[1];
    return 2.0 * products * (double)(y->dim[0] * y->dim[1] * keys * y->dim[2]) / (attrs->causal ? 2 : 1);
}
double sgrad__attention_forward_flops(const struct sgrad_args *args) { return flops(args, 2); }
double sgrad__attention_backward_flops(const struct sgrad_args *args) { return flops(args, 5); }

void sgrad__attention_describe(const void *attributes, char *text, size_t size) {
    const struct sgrad_attention *attrs = attributes;
    char shared[32] = "";
    if (attrs->kv_heads != attrs->heads) snprintf(shared, sizeof shared, ", %d of keys", attrs->kv_heads);
    snprintf(text, size, "%d %s%s%s", attrs->heads, attrs->heads == 1 ? "head" : "heads", shared,
             attrs->causal ? ", causal" : "");
}

static const char *const onnx_part[] = { "query", "key", "worth" };

/* Writes q, k and v, (N,heads,T,D), of one input with as many heads of each. */
static void onnx_thirds(long long rows, int heads, long long size, FILE *to) {
    fprintf(to, "heads = Constant <value = int64[5] {0, %lld, 3, %d, %lld}> ()\nparts = Reshape (x, heads)\n", rows, heads, size);
    fputs("turned = Transpose <perm = [2, 0, 3, 1, 4]> (parts)\n", to);
    for (int i = 0; i < 3; i++)
        fprintf(to, "number%d = Constant <value = int64 {%d}> ()\n%s = Gather <axis = 0> (turned, number%d)\n", i, i,
                onnx_part[i], i);
}

/* Writes grouped queries, or three inputs, as the operator of opset 23. */
static void onnx_operator(const struct sgrad_signature *signature, const struct sgrad_attention *a, FILE *to) {
    const char *in[] = { "x", "x1", "x2" };
    const long long size = signature->y.shape.dim[2] / a->heads;
    if (signature->inputs == 1) {
        long long from = 0;
        fputs("last = Constant <value = int64[1] {-1}> ()\nbound0 = Constant <value = int64[1] {0}> ()\n", to);
        for (int i = 0; i < 3; i++) {
            from += (i ? a->kv_heads : a->heads) * size;
            fprintf(to, "bound%d = Constant <value = int64[1] {%lld}> ()\n%s = Slice (x, bound%d, bound%d, last)\n", i + 1, from,
                    onnx_part[i], i, i + 1);
            in[i] = onnx_part[i];
        }
    }
    fprintf(to, "y = Attention <is_causal = %d, q_num_heads = %d, kv_num_heads = %d> (%s, %s, %s)", a->causal, a->heads,
            a->kv_heads, in[0], in[1], in[2]);
}

/* Queries, keys and values of one input, with as many heads of each, are written with operators of earlier opsets, which more
 * programs read. In causal attention -∞ is added to the scores above the diagonal. */
static void onnx(const struct sgrad_signature *signature, const void *attrs, FILE *to) {
    const struct sgrad_attention *a = attrs;
    const long long rows = signature->y.shape.dim[1], width = signature->y.shape.dim[2], size = width / a->heads;
    if (a->cache) return;
    if (signature->inputs > 1 || a->kv_heads != a->heads) return onnx_operator(signature, a, to);
    onnx_thirds(rows, a->heads, size, to);
    fprintf(to, "column = Transpose <perm = [0, 1, 3, 2]> (key)\nproduct = MatMul (query, column)\n"
                "scale = Constant <value = float {%.9g}> ()\n", 1 / sqrt((double)size));
    fprintf(to, "%s = Mul (product, scale)\n", a->causal ? "all" : "score");
    if (a->causal)
        fprintf(to, "square = Constant <value = int64[2] {%lld, %lld}> ()\n"
                    "never = ConstantOfShape <value = float[1] {-inf}> (square)\none = Constant <value = int64 {1}> ()\n"
                    "later = Trilu <upper = 1> (never, one)\nscore = Add (all, later)\n",
                rows, rows);
    fprintf(to, "share = Softmax <axis = -1> (score)\nmean = MatMul (share, worth)\n"
                "rows = Transpose <perm = [0, 2, 1, 3]> (mean)\n"
                "width = Constant <value = int64[3] {0, %lld, %lld}> ()\ny = Reshape (rows, width)", rows, width);
}

const struct sgrad_op sgrad_attention_op = {
    .name = "attention",
    .summary = "multi-head or grouped-query self-attention over a sample's rows, optionally causal, computed in blocks",
    .source = "T. Dao et al., FlashAttention: fast and memory-efficient exact attention with IO-awareness, 2022",
    .inputs = 1,
    .optional_inputs = 2,
    .attrs_size = sizeof(struct sgrad_attention),
    .infer = infer,
    .describe = sgrad__attention_describe,
    .onnx = onnx,
    SGRAD__ATTENTION_TASKS("attention", 1, { 0 }),
    .tests = {
        { "one row, one head", { { 3, { 1, 1, 12 } } }, &(struct sgrad_attention){ .heads = 1, .causal = true } },
        { "2 heads of 5, causal", { { 3, { 2, 7, 30 } } }, &(struct sgrad_attention){ .heads = 2, .causal = true } },
        { "3 heads of 16", { { 3, { 2, 9, 144 } } }, &(struct sgrad_attention){ .heads = 3 } },
        { "two blocks, causal", { { 3, { 1, 67, 48 } } }, &(struct sgrad_attention){ .heads = 1, .causal = true } },
        { "three blocks", { { 3, { 1, 130, 24 } } }, &(struct sgrad_attention){ .heads = 2 } },
        { "2 heads of 64, causal", { { 3, { 1, 75, 384 } } }, &(struct sgrad_attention){ .heads = 2, .causal = true } },
        { "a head of 100", { { 3, { 1, 40, 300 } } }, &(struct sgrad_attention){ .heads = 1 } },
        { "a head of 80, causal", { { 3, { 1, 20, 240 } } }, &(struct sgrad_attention){ .heads = 1, .causal = true } },
        { "a head of 96 of keys", { { 3, { 1, 34, 384 } } }, &(struct sgrad_attention){ .heads = 2, .kv_heads = 1 } },
        { "2 heads of 32", { { 3, { 2, 129, 192 } } }, &(struct sgrad_attention){ .heads = 2 } },
        { "a head of 128", { { 3, { 1, 33, 384 } } }, &(struct sgrad_attention){ .heads = 1 } },
        { "4 heads of 16, 2 of keys, causal", { { 3, { 2, 18, 128 } } },
          &(struct sgrad_attention){ .heads = 4, .kv_heads = 2, .causal = true } },
        { "4 heads, 2 of keys, causal", { { 3, { 2, 7, 40 } } },
          &(struct sgrad_attention){ .heads = 4, .kv_heads = 2, .causal = true } },
        { "three inputs", { { 3, { 2, 7, 12 } }, { 3, { 2, 7, 12 } }, { 3, { 2, 7, 12 } } },
          &(struct sgrad_attention){ .heads = 2, .causal = true } },
        { "three inputs, 6 heads, 2 of keys, causal", { { 3, { 2, 70, 96 } }, { 3, { 2, 70, 32 } }, { 3, { 2, 70, 32 } } },
          &(struct sgrad_attention){ .heads = 6, .kv_heads = 2, .causal = true } },
        { "three inputs, a head of 136 of keys", { { 3, { 1, 5, 272 } }, { 3, { 1, 5, 136 } }, { 3, { 1, 5, 136 } } },
          &(struct sgrad_attention){ .heads = 2, .kv_heads = 1 } },
        { "a head of 136, causal", { { 3, { 1, 5, 408 } } }, &(struct sgrad_attention){ .heads = 1, .causal = true } },
    },
};
