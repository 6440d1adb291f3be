/* rules.c: functions that the records of several operations use: the shape rule for equal shapes, and test values that are not
 * close to 0. */
#include "config.h"
#include "codelets/kernels.h"

int sgrad_infer_same(struct sgrad_signature *signature, void *attrs) {
    (void)attrs;
    for (int i = 1; i < signature->inputs; i++) {
        if (sgrad_shape_equal(&signature->x[i].shape, &signature->x[0].shape)) continue;
        char first[SGRAD_SHAPE_TEXT], other[SGRAD_SHAPE_TEXT];
        return sgrad_log_error(SGRAD_ESHAPE, "%s: its inputs have shapes %s and %s, which must be equal", signature->layer,
                               sgrad_shape_text(&signature->x[0].shape, first), sgrad_shape_text(&signature->x[i].shape, other));
    }
    signature->y.shape = signature->x[0].shape;
    return 0;
}

void sgrad_fill_nonzero(const struct sgrad_test *test, int input, void *data) {
    float *x = data;
    for (int64_t i = 0, n = sgrad_shape_count(&test->x[input]); i < n; i++) {
        struct sgrad_random r = sgrad_philox(1, SGRAD_STREAM_DATA, (uint32_t)input, (uint64_t)i, 0);
        float size = 0.1f + 1.8f * sgrad_uniform(r.word[0]);
        x[i] = r.word[1] >> 31 ? size : -size;
    }
}
