/* input.c: kernels that create tensors from other data: samples, requests to end the run, and the load of workers. */
#include "datasets/datasets.h"
#include "graphs/compiler/program.h"

/* A data set does not depend on tasks, so this kernel calls it. Operands: its fields (N,…), in their order. */
static void read_samples(const struct sgrad_args *a) {
    const struct sgrad_dataset *dataset = a->attrs;
    const struct sgrad_drawing how = { a->step->seed, a->step->epoch, dataset->drawn };
    const int count = (int)a->view[0].shape.dim[0];
    int error = a->step->training
                    ? sgrad_dataset_draw(dataset, a->step->sample + a->first, count, &how, a->data)
                    : sgrad_dataset_read(dataset, a->step->sample + a->first, count, a->data);
    if (error) sgrad_task_fail(error);
}

struct sgrad__source sgrad__source_of(struct sgrad_dataset *dataset) {
    static const struct sgrad_kernel kernel = { .name = "read", .kind = &sgrad_input_kind, .cpu = read_samples };
    return (struct sgrad__source){ .kernel = &kernel, .attrs = dataset };
}

static void read_views(const struct sgrad_args *a) {
    const struct sgrad__seen *seen = a->attrs;
    const struct sgrad_sample *sample = a->step->sample + a->first;
    int error = sgrad_views_read(seen->dataset, seen->views, sample, (int)a->view[0].shape.dim[0], a->data);
    if (error) sgrad_task_fail(error);
}

struct sgrad__source sgrad__source_of_views(const struct sgrad__seen *seen) {
    static const struct sgrad_kernel kernel = { .name = "read", .kind = &sgrad_input_kind, .cpu = read_views };
    return (struct sgrad__source){ .kernel = &kernel, .attrs = seen };
}

/* out (1 + workers of all ranks). Attributes: struct sgrad__workers; NULL: out has one element. */
static void vote(const struct sgrad_args *a) {
    double *out = a->data[0];
    float stop;
    __atomic_load(&a->step->stop, &stop, __ATOMIC_RELAXED);
    *out = stop;
    if (a->attrs) sgrad__workers_busy(a->attrs, out + 1);
}

const struct sgrad_kernel sgrad__vote_kernel = { .name = "vote", .kind = &sgrad_input_kind, .cpu = vote };
