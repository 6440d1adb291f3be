/* bytes.c: reads the nodes of ONNX that convert bytes to activations. */
#include "codelets/ops/image.h"
#include "graphs/networks/onnx/reader.h"

#include <math.h>

/* As in image.c: a byte is divided by the largest possible value, the mean is subtracted, and the result is divided by the
 * standard deviation. A file with another divisor has another mean and standard deviation. The stages are named after the current
 * numbers. */
enum { BYTES = 1, NUMBERS, SHARES, DISTANCES };

static int make_stage(struct sgrad__reader *reader, const Onnx__Node *n, int stage) {
    if (reader->stages >= (stage ? stage : DISTANCES + 1))
        return sgrad__onnx_refuse(reader, n, "normalises pixels a second time, which is not supported");
    reader->stages = stage ? stage : DISTANCES + 1;
    SGRAD_TRY(sgrad__onnx_pass(reader, n, 0));
    sgrad__onnx_thing(reader, n->output[0])->stage = stage;
    return 0;
}

/* Copies the tensor of the file with one number per channel, (1,C,1,1), to NUMBER. */
static bool take_channels(const struct sgrad__reader *reader, const Onnx__Node *n, float *number) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 1);
    const struct sgrad_shape x = sgrad_graph_shape(reader->graph, reader->x);
    int count;
    return t && t->tensor && sgrad__onnx_floats(t->tensor, number, SGRAD_MAX_CHANNELS, &count) &&
           count == x.dim[x.rank - 1] && t->tensor->n_dims == (size_t)x.rank && t->tensor->dims[1] == count;
}

static int stage_of(const struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    return t ? t->stage : 0;
}

int sgrad__onnx_read_cast(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *t = sgrad__onnx_input(reader, n, 0);
    const int32_t to = (int32_t)sgrad__onnx_int(n, "to", 0);
    if (t && t->tensor) return sgrad__onnx_pass(reader, n, 0); /* constants.c does not read a Cast to the same type */
    if (sgrad__onnx_is_view(t)) {
        const enum sgrad_dtype is = reader->graph->value[t->view.value].view.dtype;
        if (is == SGRAD_I32 ? to == ONNX_INT32 || to == ONNX_INT64 : to == ONNX_FLOAT) return sgrad__onnx_pass(reader, n, 0);
    }
    if (stage_of(reader, n) != BYTES || sgrad__onnx_int(n, "to", 0) != ONNX_FLOAT)
        return sgrad__onnx_refuse(
            reader, n, "converts to type %d, but only constants and pixels can be converted, and pixels only to FLOAT (1)", to);
    return make_stage(reader, n, NUMBERS);
}

int sgrad__onnx_read_sub(struct sgrad__reader *reader, const Onnx__Node *n) {
    if (stage_of(reader, n) == SHARES && take_channels(reader, n, reader->imported->mean))
        return make_stage(reader, n, DISTANCES);
    return sgrad__onnx_refuse(reader, n, "must subtract the mean of each channel of the pixels, after Cast and Div");
}

int sgrad__onnx_read_div(struct sgrad__reader *reader, const Onnx__Node *n) {
    const struct sgrad__thing *by = sgrad__onnx_input(reader, n, 1);
    const struct sgrad_shape x = sgrad_graph_shape(reader->graph, reader->x);
    const struct sgrad_image *image = sgrad__graph_image(reader->graph);
    float full;
    int count;
    if (stage_of(reader, n) == NUMBERS && by && by->tensor && sgrad__onnx_floats(by->tensor, &full, 1, &count) && count == 1) {
        if (!(full > 0) || isinf(full))
            return sgrad__onnx_refuse(reader, n, "divides pixels by %g; the divisor must be positive and finite", (double)full);
        reader->scale = image ? full / image->full_scale : 1;
        return make_stage(reader, n, SHARES);
    }
    if (stage_of(reader, n) != DISTANCES || !take_channels(reader, n, reader->imported->deviation))
        return sgrad__onnx_refuse(reader, n,
                                  "must divide pixels by the full scale or by standard deviations, or be a step of GELU");
    for (int c = 0; c < x.dim[x.rank - 1]; c++)
        if (!(reader->imported->deviation[c] > 0))
            return sgrad__onnx_refuse(reader, n, "the standard deviation of channel %d is %g, but must be positive", c,
                                      reader->imported->deviation[c]);
    for (int c = 0; c < x.dim[x.rank - 1]; c++)
        reader->imported->mean[c] *= reader->scale, reader->imported->deviation[c] *= reader->scale;
    reader->imported->channels = (int)x.dim[x.rank - 1];
    return make_stage(reader, n, 0);
}
