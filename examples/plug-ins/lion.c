/* lion.c: a plug-in with an optimizer.
 *
 * Lion (Chen et al., Symbolic discovery of optimization algorithms, 2023):
 *
 *     w = w - rate·(sign(beta1·m + (1-beta1)·g) + decay·w)        m = beta2·m + (1-beta2)·g
 *
 *     cc -O2 -shared -fPIC lion.c -o liblion.so $(stargrad config --cflags)
 *     stargrad train --plugin ./liblion.so --optimizer lion --model convnet --data digits */
#include "codelets/updates.h"
#include "graphs/graphs.h"

/* w, dw, Σ g² (1) or absent, m */
static void lion(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    const float *dw = args->data[1], clip = sgrad_clip_factor(h, args->data[2]), rate = sgrad_lr(args);
    float *w = args->data[0], *m = args->data[3];
    for (int64_t i = 0, n = sgrad_shape_count(&args->view[0].shape); i < n; i++) {
        const float g = clip * dw[i], c = h->beta1 * m[i] + (1 - h->beta1) * g;
        w[i] -= rate * ((float)((c > 0) - (c < 0)) + h->weight_decay * w[i]);
        m[i] = h->beta2 * m[i] + (1 - h->beta2) * g;
    }
}
static const struct sgrad_kernel kernel = { .name = "lion", .kind = &sgrad_update_kind, .cpu = lion };

static const struct sgrad_optimizer optimizer = {
    .name = "lion",
    .summary = "steps along the sign of a moving average of the gradients",
    .source = "Chen et al., Symbolic discovery of optimization algorithms, 2023",
    .default_lr = 0.0003,
    .options = (const char *const[]){ "beta1", "beta2", NULL },
    .update = &kernel,
    .states = (const struct sgrad_state[]){ { .name = "exp_avg" }, { 0 } },
};

SGRAD_PLUGIN(.optimizers = (const struct sgrad_optimizer *const[]){ &optimizer, NULL });
