/* ring_document_attention.c: causal attention within documents, of which a sample may have several, whose rows are split over the
 * ranks of an axis. start (N,T), the second input, is the position in the sample of the first row of the document that a row
 * belongs to. The other inputs and the kernels are those of ring_attention.c. */
#include "config.h"
#include "codelets/kernels.h"
#include "codelets/ops/ring_document_attention.h"
#include "codelets/ops/ring_tasks.h"

#include <assert.h>

static int infer(struct sgrad_signature *signature, void *attributes) {
    struct sgrad_ring_attention *attrs = attributes;
    static_assert(sizeof *attrs == sizeof(struct sgrad_ring_document_attention), "the attributes are the same");
    const struct sgrad_shape *start = &signature->x[1].shape;
    char text[SGRAD_SHAPE_TEXT];
    SGRAD_TRY(sgrad__ring_infer(signature, attrs, 2));
    if (!attrs->causal)
        return sgrad_log_error(SGRAD_EINVAL, "%s: ring_document_attention must be causal", signature->layer);
    if (start->rank != 2 || start->dim[0] != signature->y.shape.dim[0] || start->dim[1] != signature->y.shape.dim[1])
        return sgrad_log_error(SGRAD_ESHAPE,
                               "%s: ring_document_attention requires the first row of each row's document (N,T), not %s",
                               signature->layer, sgrad_shape_text(start, text));
    attrs->documents = true;
    return 0;
}

/* Documents of 5 rows. */
static void fill(const struct sgrad_test *test, int input, void *data) {
    if (input != 1) sgrad_fill_nonzero(test, input, data);
    for (int64_t i = 0; input == 1 && i < sgrad_shape_count(&test->x[1]); i++)
        ((int32_t *)data)[i] = (int32_t)(i % test->x[1].dim[1] / 5 * 5);
}

const struct sgrad_op sgrad_ring_document_attention_op = {
    .name = "ring_document_attention",
    .summary = "ring_attention between the rows of a document: samples may have several documents",
    .source = "H. Liu, M. Zaharia, P. Abbeel, Ring attention with blockwise transformers for near-infinite context, 2023",
    .inputs = 2,
    .optional_inputs = 2,
    .no_gradient = 1u << 1,
    .input_dtype = { [1] = SGRAD_I32 },
    .attrs_size = sizeof(struct sgrad_ring_document_attention),
    .infer = infer,
    .set_rank = sgrad__ring_set_rank,
    .set_shard = sgrad__ring_set_shard,
    .describe = sgrad__ring_describe,
    SGRAD__RING_TASKS("ring_document_attention", 2, SGRAD_IN(X, 1)),
    .fill = fill,
    .tests = {
        { "2 heads of 5", { { 3, { 2, 7, 30 } }, { 2, { 2, 7 } } },
          &(struct sgrad_ring_document_attention){ .axis = "context", .heads = 2, .causal = true } },
        { "four inputs, 6 heads, 2 of keys",
          { { 3, { 2, 70, 96 } }, { 2, { 2, 70 } }, { 3, { 2, 70, 32 } }, { 3, { 2, 70, 32 } } },
          &(struct sgrad_ring_document_attention){ .axis = "context", .heads = 6, .kv_heads = 2, .causal = true } },
    },
};
