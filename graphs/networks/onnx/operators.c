/* operators.c: list of the operators of ONNX that are supported, from operators.def. */
#include "graphs/networks/onnx/reader.h"

const struct sgrad__operator sgrad__operators[] = {
#define ONNX_OPERATOR(name, reader, least, most, outputs, attributes) \
    { #name, attributes, least, most, outputs, sgrad__onnx_read_##reader },
#include "graphs/networks/onnx/operators.def"
#undef ONNX_OPERATOR
    { 0 },
};
