/* 00-task.c: a kernel, two tensors, three tasks.
 *
 * A kernel is a plain C function on blocks of memory. A call is a kernel with the shapes of its operands. sgrad_task_submit
 * creates a task from a call and returns at once. A task runs on any free worker as soon as the tasks that write its operands
 * are done. Here the two squares may run at the same time. The sum waits for both:
 *
 *     x ── square ──> y0 ──┐
 *                          ├── add ──> y0
 *     x ── square ──> y1 ──┘
 *
 * Next: 01-network.c. For the functions used here, see runtime/runtime.h. */
#include "runtime/runtime.h"

enum { N = 1000 };

/* x (N), y (N): y = x² */
static void square(const struct sgrad_args *args) {
    const float *x = args->data[0];
    float *y = args->data[1];
    for (int64_t i = 0; i < sgrad_shape_count(&args->view[0].shape); i++) y[i] = x[i] * x[i];
}

/* x (N), y (N): y = y + x */
static void add(const struct sgrad_args *args) {
    const float *x = args->data[0];
    float *y = args->data[1];
    for (int64_t i = 0; i < sgrad_shape_count(&args->view[0].shape); i++) y[i] += x[i];
}

static const struct sgrad_kernel square_kernel = { .name = "square", .cpu = square };
static const struct sgrad_kernel add_kernel = { .name = "add", .cpu = add };

static int run(void) {
    struct sgrad_tensor *x, *y[2];
    float values[N];
    SGRAD_TRY(sgrad_tensor_create("x", SGRAD_F32, sgrad_shape(1, N), SGRAD_PERSISTENT, &x));
    SGRAD_TRY(sgrad_tensor_create("y0", SGRAD_F32, sgrad_shape(1, N), SGRAD_PERSISTENT, &y[0]));
    SGRAD_TRY(sgrad_tensor_create("y1", SGRAD_F32, sgrad_shape(1, N), SGRAD_PERSISTENT, &y[1]));

    for (int i = 0; i < N; i++) values[i] = (float)i;
    SGRAD_TRY(sgrad_tensor_write(x, values));

    /* StarPU derives the order of tasks from the access modes of their operands. A call must exist until its tasks are done. */
    struct sgrad_bound_kernel square_call = { .kernel = &square_kernel, .operands = 2, .view = { x->view, y[0]->view },
                                      .access = { SGRAD_R, SGRAD_W } };
    struct sgrad_bound_kernel add_call = { .kernel = &add_kernel, .operands = 2, .view = { y[1]->view, y[0]->view },
                                   .access = { SGRAD_R, SGRAD_RW } };
    sgrad_bound_kernel_prepare(&square_call);
    sgrad_bound_kernel_prepare(&add_call);
    for (int i = 0; i < 2; i++)
        SGRAD_TRY(sgrad_task_submit(&(struct sgrad_submission){ .call = &square_call,
                                                                .operand = (struct sgrad_tensor *[]){ x, y[i] } }));
    SGRAD_TRY(sgrad_task_submit(&(struct sgrad_submission){ .call = &add_call,
                                                            .operand = (struct sgrad_tensor *[]){ y[1], y[0] } }));

    SGRAD_TRY(sgrad_wait_all());                    /* returns the error of a task that failed */
    SGRAD_TRY(sgrad_tensor_read(y[0], values));
    printf("3² + 3² = %g\n", values[3]);

    sgrad_tensor_destroy(x);
    for (int i = 0; i < 2; i++) sgrad_tensor_destroy(y[i]);
    return 0;
}

int main(void) {
    struct sgrad_context *context;
    if (sgrad_context_open(&(struct sgrad_context_options){ .gpus = -1 }, &context)) return 1;
    char devices[256];
    printf("on %s\n", sgrad_devices_text(context, devices, sizeof devices));
    int error = run();
    sgrad_context_close(context);
    return error != 0;
}
