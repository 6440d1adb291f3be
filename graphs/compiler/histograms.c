/* histograms.c: adds tasks that compute histograms of weights and gradients, in some steps. */
#include "graphs/compiler/builder.h"

void sgrad__add_histogram(struct sgrad_builder *builder, const char *kind, int parameter, int buffer) {
    struct sgrad__program *p = builder->p;
    struct sgrad_bound_kernel call = { .kernel = &sgrad_histogram_kernel, .operands = 2, .access = { SGRAD_R, SGRAD_W },
                               .view = { p->buffer[buffer].view, { SGRAD_F64, sgrad_shape(1, SGRAD_HISTOGRAM) } } };
    if (!builder->o->histograms) return;
    const char *name = builder->g->parameter[parameter].name;
    const int counts = sgrad__add_buffer(builder, sgrad_format("%s/%s", kind, name), call.view[1]);
    builder->when = (struct sgrad__when){ builder->o->histograms, builder->o->histograms };
    sgrad__add_instruction(builder, sgrad__add_call(builder, call), (int[]){ buffer, counts }, 0, SGRAD__PRIORITY_INPUT,
                           sgrad_format("%s %s histogram", name, kind));
    p->histogram = sgrad_array_grow(p->histogram, p->histograms, sizeof *p->histogram);
    p->histogram[p->histograms++] = sgrad__add_output(builder, counts);
    builder->when = (struct sgrad__when){ 0 };
}
