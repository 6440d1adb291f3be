/* document_attention.c: causal attention within documents, of which a sample may have several:
 *
 *     y_i = Σ_j p_ij v_j,    p_i = softmax over start_i ≤ j ≤ i of q_i·k_j / √D
 *
 * start (N,T), the second input, is the index of the first row of the document that a row belongs to. The other inputs and the
 * kernels are those of attention.c. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/attention_tasks.h"
#include "codelets/ops/document_attention.h"

#include <assert.h>

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_attention *attrs = attributes;
    static_assert(sizeof *attrs == sizeof(struct sgrad_document_attention), "the attributes are the same");
    const struct sgrad_shape *start = &signature->x[1].shape;
    char text[SGRAD_SHAPE_TEXT];
    SGRAD_TRY(sgrad__attention_infer(signature, attrs, 2));
    if (!attrs->causal || attrs->cache)
        return sgrad_log_error(SGRAD_EINVAL, "%s: document_attention must be causal, and has no cache", signature->layer);
    if (start->rank != 2 || start->dim[0] != signature->y.shape.dim[0] || start->dim[1] != signature->y.shape.dim[1])
        return sgrad_log_error(SGRAD_ESHAPE, "%s: document_attention requires the first row of each row's document (N,T), not %s",
                               signature->layer, sgrad_shape_text(start, text));
    attrs->documents = true;
    return 0;
}

/* Documents of 1, 6, 33 and 1 rows, repeatedly. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    const int64_t rows = test->x[1].dim[1];
    int32_t *start = data;
    if (input != 1) sgrad_fill_nonzero(test, input, data);
    for (int64_t i = 0; input == 1 && i < test->x[1].dim[0] * rows; i++) {
        const int64_t row = i % rows, at = row % 41;
        start[i] = at == 0 || at == 1 || at == 7 || at == 40 ? (int32_t)row : start[i - 1];
    }
}

const struct sgrad_op sgrad_document_attention_op = {
    .name = "document_attention",
    .summary = "causal self-attention between the rows of a document: samples may have several documents",
    .source = "M. M. Krell et al., Efficient sequence packing without cross-contamination, 2021",
    .inputs = 2,
    .optional_inputs = 2,
    .no_gradient = 1u << 1,
    .input_dtype = { [1] = SGRAD_I32 },
    .attrs_size = sizeof(struct sgrad_document_attention),
    .infer = infer,
    .describe = sgrad__attention_describe,
    SGRAD__ATTENTION_TASKS("document_attention", 2, SGRAD_IN(X, 1)),
    .fill = fill,
    .tests = {
        { "2 heads of 5", { { 3, { 2, 7, 30 } }, { 2, { 2, 7 } } },
          &(struct sgrad_document_attention){ .heads = 2, .causal = true } },
        { "three blocks", { { 3, { 2, 130, 48 } }, { 2, { 2, 130 } } },
          &(struct sgrad_document_attention){ .heads = 1, .causal = true } },
        { "four inputs, 6 heads, 2 of keys",
          { { 3, { 2, 70, 96 } }, { 2, { 2, 70 } }, { 3, { 2, 70, 32 } }, { 3, { 2, 70, 32 } } },
          &(struct sgrad_document_attention){ .heads = 6, .kv_heads = 2, .causal = true } },
        { "a head of 136", { { 3, { 1, 12, 408 } }, { 2, { 1, 12 } } },
          &(struct sgrad_document_attention){ .heads = 1, .causal = true } },
    },
};
