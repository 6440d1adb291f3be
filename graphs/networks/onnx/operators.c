/* operators.c: every operator of ONNX that is known, as operators.def lists them. */
#include "graphs/networks/onnx/reader.h"

const struct sgrad__operator sgrad__operators[] = {
#define ONNX_OPERATOR(name, reader, least, most, outputs, attributes) \
    { #name, attributes, least, most, outputs, sgrad__onnx_read_##reader },
#include "graphs/networks/onnx/operators.def"
#undef ONNX_OPERATOR
    { 0 },
};
