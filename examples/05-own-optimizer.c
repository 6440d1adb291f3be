/* 05-own-optimizer.c: your own optimizer, outside the library, with a state of a different shape than the parameter.
 *
 * NovoGrad (Ginsburg et al., Stochastic gradient methods with layer-wise adaptive moments, 2019, algorithm 1) has a moving
 * average of the squared norm of the gradient, one number for each parameter tensor. Adam has one number for each element.
 *
 *     v = beta2·v + (1-beta2)·‖g‖²     m = beta1·m + (g / (√v + eps) + decay·w)     w = w - rate·m        (v = ‖g‖² at first)
 *
 * An optimizer is a kernel and a record. The kernel updates one parameter with its gradient. The record lists the states that
 * are retained from step to step. Checkpoints, --resume and parameter servers handle these states for any optimizer.
 *
 * Next: 06-regression.c. codelets/updates.h describes the kernel's arguments. docs/develop/add-an-optimizer.md adds an optimizer
 * to the library. */
#include "codelets/updates.h"
#include "graphs/graphs.h"

#include <math.h>
#include <stdlib.h>

/* w, dw, Σ g² over all parameters (1) or absent, m, v (1) */
static void novograd(const struct sgrad_args *args) {
    const struct sgrad_hyper *h = args->attrs;
    const int64_t n = sgrad_shape_count(&args->view[0].shape);
    const float *dw = args->data[1], clip = sgrad_clip_factor(h, args->data[2]);
    float *w = args->data[0], *m = args->data[3], *v = args->data[4];
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += (double)dw[i] * dw[i];
    squares *= (double)clip * clip;
    *v = (float)(args->step->number == 1 ? squares : h->beta2 * *v + (1 - h->beta2) * squares);
    const float scale = clip / (sqrtf(*v) + h->eps);
    for (int64_t i = 0; i < n; i++) {
        m[i] = h->beta1 * m[i] + scale * dw[i] + h->weight_decay * w[i];
        w[i] -= sgrad_lr(args) * m[i];
    }
}
static const struct sgrad_kernel kernel = { .name = "novograd", .kind = &sgrad_update_kind, .cpu = novograd };

static struct sgrad_shape one_number(const struct sgrad_shape *parameter) {
    (void)parameter;
    return sgrad_shape(1, 1);
}

static const struct sgrad_optimizer optimizer = {
    .name = "novograd",
    .summary = "layer-wise adaptive moments",
    .source = "Ginsburg et al., Stochastic gradient methods with layer-wise adaptive moments, 2019",
    .default_lr = 0.01,
    .options = (const char *const[]){ "beta1", "beta2", "eps", NULL },
    .update = &kernel,
    .states = (const struct sgrad_state[]){ { .name = "exp_avg" }, { .name = "norm_avg", .shape = one_number }, { 0 } },
};

int main(void) {
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.name = "convnet";
    options.data.name = "digits";
    options.optimizer.custom = &optimizer;
    options.training.epochs = 5;
    options.training.batch = 64;
    options.optimizer.schedule = "cosine";

    struct sgrad_train_result result;
    if (sgrad_train(&options, &result)) return 1;
    if (result.rank == 0) printf("%s: test accuracy %.2f %%\n", result.folder, 100 * result.test_top1);
    free(result.folder);
    return 0;
}
