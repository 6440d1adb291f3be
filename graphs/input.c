/* input.c: the task that reads samples. A data set knows no tasks, so it is handed to this one. */
#include "graphs/internal.h"

/* pixels U8 (N,H,W,C), labels I32 (N) */
static void read_samples(const struct sgrad_args *a) {
    int64_t from = a->first - a->step->first;
    int error = sgrad_dataset_read(a->attrs, a->step->sample + from, (int)a->view[0].shape.dim[0], a->data[0], a->data[1]);
    if (error) sgrad_task_fail(error);
}

const struct sgrad_kernel sgrad__read_kernel = { .name = "read", .kind = SGRAD_INPUT, .cpu = read_samples };
