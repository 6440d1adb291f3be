/* conv2d_graph_cuda.cu: runs the tasks of conv2d.c, conv3d.c and conv_transpose.c on CUDA devices, each by a cuDNN algorithm or
 * as a cuDNN graph, whichever is faster (cudnn_graph_cuda.cu). A graph may include neighbouring kernels of the same GPU task:
 *
 *     batchnorm apply, forward, batchnorm stats        x, if apply's output has no other consumer ──> y, Σy, Σy²
 *     forward, relu                                    if relu's input has no other consumer
 *     backward-data, relu backward                     likewise
 *     backward-data, batchnorm sums                    dy, w ──> dx masked by the ReLU, Σdz, Σdz·x̂
 *
 * In training without recomputation, backward-weight reads the output of batch norm's apply, and there is no graph in which
 * backward-weight computes it (cudnn_draw_cuda.cu). Therefore apply's own kernel computes it, once. Sums are F32 in a graph,
 * double in the kernels. With sums, the buffer of dx contains dz; batch norm's last pass masks it a second time, which has no
 * effect. */
#include <cstring>
#include <vector>

#include "codelets/cuda/convolution.h"
#include "codelets/cuda/cudnn_graph.h"
#include "codelets/ops/normal.h"

/* Kernels that a graph may replace: relu_cuda.cu, batchnorm_cuda.cu. */
extern "C" void sgrad__relu_forward_cuda(const struct sgrad_args *a);
extern "C" void sgrad__relu_backward_cuda(const struct sgrad_args *a);
extern "C" void sgrad__batchnorm_stats_cuda(const struct sgrad_args *a);
extern "C" void sgrad__batchnorm_sums_cuda(const struct sgrad_args *a);
extern "C" void sgrad__batchnorm_apply_cuda(const struct sgrad_args *a);
extern "C" void sgrad__conv2d_forward_cuda(const struct sgrad_args *a);
extern "C" void sgrad__conv2d_backward_data_cuda(const struct sgrad_args *a);

namespace {

typedef std::function<void()> work;

/* A convolution's graph under construction, and the work to do before and after it. */
struct whole {
    struct sgrad__convolution c;
    int32_t steps;
    struct sgrad__graph_data data;
    std::vector<work> before, after;
    bool may_be; /* whether a graph is possible */

    whole(enum sgrad__pass pass, const struct sgrad_args *a);
    whole(const whole &) = delete; /* before and after refer to this object */
    /* Returns one of the SGRAD__VECTORS vectors in the workspace. */
    float *vector(int number) const { return c.vectors + number * c.vector; }
    float *take(enum sgrad__graph_operand at, int number) {
        data.at[at] = vector(number);
        return vector(number);
    }
    void scale(const struct sgrad_args *norm, int weight, int sum);
    void go(const work &unfused) const;
};

whole::whole(enum sgrad__pass pass, const struct sgrad_args *args) : c(sgrad__convolution_of(pass, args)), steps(0), data() {
    may_be = sgrad__graph_wanted() && !args->deterministic && !sgrad_adds(args, sgrad__convolution_output(&c)) && !c.direct;
    data.room = c.room;
    data.at[SGRAD__AT_X] = args->data[c.x], data.at[SGRAD__AT_Y] = args->data[c.y];
    data.at[SGRAD__AT_W] = sgrad__convolution_weight(&c);
    if (pass == SGRAD__BACKWARD_WEIGHT) {
        const int64_t n = sgrad_shape_count(&args->view[2].shape);
        const __nv_bfloat16 *rounded = (const __nv_bfloat16 *)c.weight;
        if (rounded) after.push_back([=] { sgrad__convert(n, rounded, (float *)args->data[2]); });
        return;
    }
    before.push_back([this] { sgrad__convolution_round(&c); });
    if (pass != SGRAD__FORWARD || !args->data[2]) return;
    steps |= SGRAD__BIAS;
    data.at[SGRAD__AT_BIAS] = args->data[2];
    if (c.key.dtype != SGRAD_BF16) return;
    __nv_bfloat16 *rounded = (__nv_bfloat16 *)take(SGRAD__AT_BIAS, 0);
    const int K = c.key.shape.K;
    before.push_back([=] { sgrad__convert(K, (const float *)args->data[2], rounded); });
}

/* Adds the per-channel mean, scale and shift of batch norm task NORM to the graph's operands; they are computed before the graph.
 * WEIGHT and SUM are the indices of NORM's weight and sums. */
void whole::scale(const struct sgrad_args *norm, int weight, int sum) {
    float *mean = take(SGRAD__AT_MEAN, 3), *scale = take(SGRAD__AT_SCALE, 4), *shift = take(SGRAD__AT_SHIFT, 5);
    before.push_back([=] { sgrad__batchnorm_channels(norm, weight, sum, mean, scale, shift); });
}

void run(const std::vector<work> &list) {
    for (const work &w : list) w();
}

void whole::go(const work &unfused) const {
    const struct shape *s = &c.key.shape;
    const bool volumes = s->T > 1;
    struct sgrad__graph_key key;
    memset(&key, 0, sizeof key);
    key.room = c.key.room, key.pass = c.key.pass, key.steps = steps;
    key.dtype = c.key.dtype, key.tf32 = c.key.tf32, key.dims = volumes ? 5 : 4;
    int32_t *x = key.x, *w = key.w, *y = key.y, *padding = key.padding, *stride = key.stride, *dilation = key.dilation;
    *x++ = s->N, *x++ = s->C, *w++ = s->K, *w++ = s->C / s->groups, *y++ = s->N, *y++ = s->K;
    if (volumes) *x++ = s->D, *w++ = s->T, *y++ = s->O, *padding++ = s->depth_padding, *stride++ = 1, *dilation++ = 1;
    *x++ = s->H, *x = s->W, *w++ = s->R, *w = s->S, *y++ = s->P, *y = s->Q;
    padding[0] = padding[1] = s->padding, stride[0] = stride[1] = s->stride, dilation[0] = dilation[1] = s->dilation;
    struct sgrad__graph_task ways = {};
    ways.unfused = unfused;
    ways.before = [this] { run(before); }, ways.after = [this] { run(after); };
    ways.memo = [this] { return sgrad__convolution_memo(&c.key) + " graph of " + std::to_string(steps); };
    sgrad__graph_do(&key, &data, ways);
}

/* Runs one pass, without neighbours. */
void one_pass(enum sgrad__pass pass, const struct sgrad_args *args) {
    const struct whole g(pass, args);
    const auto unfused = [&] { sgrad__convolution_unfused(&g.c); };
    g.may_be ? g.go(unfused) : unfused();
}

/* Runs COUNT kernels in order; some of them may run as a separate graph. */
void each(const struct sgrad_next *next, int count) {
    for (int i = 0, with; i < count; i += 1 + with) {
        with = next[i].kernel->cuda_fused ? next[i].kernel->cuda_fused(next[i].args, next + i + 1, count - i - 1) : 0;
        if (!with) next[i].kernel->cuda(next[i].args);
    }
}

bool has_channels(const struct sgrad_view *view, int channels) { return view->shape.dim[view->shape.rank - 1] == channels; }

/* Adds the kernels NEXT, COUNT of which follow forward pass A, to graph G where possible. Returns the number of kernels added. */
int add_forward(struct whole *whole, const struct sgrad_args *args, const struct sgrad_next *next, int count) {
    if (!count || next->args->data[0] != args->data[3]) return 0;
    const struct sgrad_args *b = next->args;
    if (next->kernel->cuda == sgrad__relu_forward_cuda && next->sole_consumer) {
        whole->steps |= SGRAD__RELU;
        whole->data.at[SGRAD__AT_Y] = b->data[1];
        return 1;
    }
    const int K = whole->c.key.shape.K;
    if (next->kernel->cuda != sgrad__batchnorm_stats_cuda || !has_channels(&b->view[0], K)) return 0;
    const float *sum = whole->take(SGRAD__AT_SUM, 1), *square = whole->take(SGRAD__AT_PRODUCT, 2);
    double *part = (double *)b->data[1];
    whole->steps |= SGRAD__STATS;
    whole->after.push_back([=] { sgrad__convert(K, sum, part), sgrad__convert(K, square, part + K); });
    return 1;
}

/* The same for the kernels that follow backward-data pass A. */
int add_backward(struct whole *whole, const struct sgrad_args *args, const struct sgrad_next *next, int count) {
    if (!count || next->args->data[1] != args->data[2]) return 0;
    const struct sgrad_args *b = next->args;
    if (next->kernel->cuda == sgrad__relu_backward_cuda && next->sole_consumer && !sgrad_adds(b, 2)) {
        whole->steps |= SGRAD__MASK;
        whole->data.at[SGRAD__AT_MASK] = b->data[0], whole->data.at[SGRAD__AT_X] = b->data[2];
        return 1;
    }
    if (next->kernel->cuda != sgrad__batchnorm_sums_cuda || !has_channels(&b->view[0], whole->c.key.shape.C)) return 0;
    const float *sum = whole->take(SGRAD__AT_SUM, 1), *product = whole->take(SGRAD__AT_PRODUCT, 2);
    whole->steps |= SGRAD__SUMS;
    if (sgrad__batchnorm_has_relu(b)) whole->steps |= b->data[2] ? SGRAD__MASK : SGRAD__MASK_SCALED;
    whole->data.at[SGRAD__AT_SOURCE] = b->data[0], whole->data.at[SGRAD__AT_MASK] = b->data[2];
    whole->scale(b, 5, 3);
    whole->after.push_back([=] { sgrad__batchnorm_sums_of(b, sum, product); });
    return 1;
}

} /* namespace */

extern "C" void sgrad__conv2d_forward_cuda(const struct sgrad_args *args) { one_pass(SGRAD__FORWARD, args); }
extern "C" void sgrad__conv2d_backward_data_cuda(const struct sgrad_args *args) { one_pass(SGRAD__BACKWARD_DATA, args); }

/* Operand 3 is dbias (K), or absent. */
extern "C" void sgrad__conv2d_backward_weight_cuda(const struct sgrad_args *args) {
    one_pass(SGRAD__BACKWARD_WEIGHT, args);
    if (args->data[3]) sgrad__sum_bias(&args->view[1], args->data[1], (float *)args->data[3]);
}

extern "C" int sgrad__conv2d_forward_with_cuda(const struct sgrad_args *args, const struct sgrad_next *next, int count) {
    struct whole g(SGRAD__FORWARD, args);
    const int more = g.may_be ? add_forward(&g, args, next, count) : 0;
    if (more) g.go([&] { sgrad__conv2d_forward_cuda(args), each(next, more); });
    return more;
}

extern "C" int sgrad__conv2d_backward_data_with_cuda(const struct sgrad_args *args, const struct sgrad_next *next, int count) {
    struct whole g(SGRAD__BACKWARD_DATA, args);
    const int more = g.may_be ? add_backward(&g, args, next, count) : 0;
    if (more) g.go([&] { sgrad__conv2d_backward_data_cuda(args), each(next, more); });
    return more;
}

/* Batch norm without a second input, fused with the convolution that reads its output. Returns the number of kernels of NEXT that
 * were run; 0: nothing was run. */
extern "C" int sgrad__batchnorm_apply_with_cuda(const struct sgrad_args *args, const struct sgrad_next *next, int count) {
    const struct sgrad_args *b = next->args;
    if (next->kernel->cuda != sgrad__conv2d_forward_cuda || !next->sole_consumer) return 0;
    if (args->data[1] || b->data[0] != args->data[5]) return 0;
    struct whole g(SGRAD__FORWARD, b);
    if (!g.may_be || !has_channels(&args->view[0], g.c.key.shape.C)) return 0;
    g.steps |= SGRAD__SCALE | (sgrad__batchnorm_has_relu(args) ? SGRAD__SCALE_RELU : 0);
    g.data.at[SGRAD__AT_X] = args->data[0];
    g.scale(args, 2, 4);
    const int more = 1 + add_forward(&g, b, next + 1, count - 1);
    g.go([&] { sgrad__batchnorm_apply_cuda(args), each(next, more); });
    return more;
}
