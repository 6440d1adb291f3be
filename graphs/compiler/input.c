/* input.c: kernels that create tensors from other data: samples, requests to end the run, and the load of workers. */
#include "datasets/datasets.h"
#include "graphs/compiler/program.h"

/* A data set does not depend on tasks, so this kernel calls it. Operands: its fields (N,…), in their order. */
static void read_samples(const struct sgrad_args *args) {
    const struct sgrad_dataset *dataset = args->attrs;
    const struct sgrad_drawing how = { args->step->seed, args->step->epoch, dataset->drawn };
    const int count = (int)args->view[0].shape.dim[0];
    const struct sgrad_sample *sample = args->step->sample + args->first;
    int error = sgrad_dataset_load(dataset, sample, count, args->step->training ? &how : NULL, args->data);
    if (error) sgrad_task_fail(error);
}

struct sgrad__source sgrad__source_of(struct sgrad_dataset *dataset) {
    static const struct sgrad_kernel kernel = { .name = "read", .kind = &sgrad_input_kind, .cpu = read_samples };
    return (struct sgrad__source){ .kernel = &kernel, .attrs = dataset };
}

static void read_views(const struct sgrad_args *args) {
    const struct sgrad__seen *seen = args->attrs;
    const struct sgrad_sample *sample = args->step->sample + args->first;
    int error = sgrad_views_read(seen->dataset, seen->views, sample, (int)args->view[0].shape.dim[0], args->data);
    if (error) sgrad_task_fail(error);
}

struct sgrad__source sgrad__source_of_views(const struct sgrad__seen *seen) {
    static const struct sgrad_kernel kernel = { .name = "read", .kind = &sgrad_input_kind, .cpu = read_views };
    return (struct sgrad__source){ .kernel = &kernel, .attrs = seen };
}

/* out (1 + workers of all ranks). Attributes: struct sgrad__workers; NULL: out has one element. */
static void vote(const struct sgrad_args *args) {
    double *out = args->data[0];
    float stop;
    __atomic_load(&args->step->stop, &stop, __ATOMIC_RELAXED);
    *out = stop;
    if (args->attrs) sgrad__workers_busy(args->attrs, out + 1);
}

const struct sgrad_kernel sgrad__vote_kernel = { .name = "vote", .kind = &sgrad_input_kind, .cpu = vote };
