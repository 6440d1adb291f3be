/* inverted_residual.c: the block of MobileNet and EfficientNet (M. Sandler et al., MobileNetV2, 2018): a 1×1 convolution widens
 * the image, each channel is convolved with its own filter, and a 1×1 convolution without activation narrows the image:
 *
 *     x ── widen ── depthwise ── squeeze and excitation ── narrow ── drop path ── +
 *     └───────────────────────────────────────────────────────────────────────────┘
 *
 * The first convolution is left out if it would not change the number of channels. Squeeze and excitation, and drop path, are
 * optional. x is added if it has the shape of the result. */
#include "codelets/ops/add.h"
#include "codelets/ops/drop_path.h"
#include "graphs/networks/layers/layers.h"

int sgrad__multiple_of_8(double channels) {
    int multiple = (int)(channels + 4) / 8 * 8;
    if (multiple < 8) multiple = 8;
    return multiple < 0.9 * channels ? multiple + 8 : multiple;
}

int sgrad__inverted_residual(struct sgrad_graph *graph, const char *name, int x, const struct sgrad__inverted_residual *is,
                             const struct sgrad__style *style) {
    const struct sgrad_shape shape = sgrad_graph_shape(graph, x);
    const int channels = shape.rank ? (int)shape.dim[3] : 0;
    const struct sgrad_conv2d widen = { is->expanded, .kernel = 1 }, narrow = { is->channels, .kernel = 1 };
    const struct sgrad_conv2d depthwise = { is->expanded, is->kernel, is->stride, .groups = is->expanded };
    const bool adds = is->stride == 1 && is->channels == channels, drops = adds && is->drop > 0;
    int part = 0, y = x;
    if (is->expanded != channels)
        y = sgrad__conv_norm_activation(graph, SGRAD__NAME("%s.%s.%d", name, style->parts, part++), y, widen, style);
    y = sgrad__conv_norm_activation(graph, SGRAD__NAME("%s.%s.%d", name, style->parts, part++), y, depthwise, style);
    if (is->squeezed)
        y = sgrad__squeeze_excitation(graph, SGRAD__NAME("%s.%s.%d", name, style->parts, part++), y, is->squeezed, style);
    const char *conv = SGRAD__NAME(style->flat ? "%s.%s.%d" : "%s.%s.%d.0", name, style->parts, part);
    const char *norm = SGRAD__NAME(style->flat ? "%s.%s.%d" : "%s.%s.%d.1", name, style->parts, part + style->flat);
    y = sgrad__conv_norm(graph, conv, norm, y, adds && !drops ? x : -1, narrow, style, false);
    if (drops) {
        y = sgrad_layer(graph, drop_path, SGRAD__NAME("%s.stochastic_depth", name), (y), .p = is->drop);
        y = sgrad_layer(graph, add, SGRAD__NAME("%s.add", name), (y, x));
    }
    return sgrad_graph_block(graph, y);
}

const struct sgrad_composite sgrad_inverted_residual_composite = {
    .name = "inverted_residual",
    .summary = "block of MobileNet and EfficientNet: 1x1, depthwise and 1x1 convolutions",
};
