/* failure.c: an error stops the tasks of its owner, and no others. */
#include "runtime/runtime.h"
#include "tests/asserts.h"

static void add_one(const struct sgrad_args *args) { ++*(int32_t *)args->data[0]; }
static void give_up(const struct sgrad_args *args) {
    ++*(int32_t *)args->data[0];
    sgrad_task_fail(SGRAD_EIO);
}
static const struct sgrad_kernel adding = { .name = "adding", .cpu = add_one }, failing = { .name = "failing", .cpu = give_up };

/* One after another, since each changes the same tensor. */
static void submit(const struct sgrad_kernel *kernel, struct sgrad_tensor *tensor, struct sgrad_failure *failure) {
    static struct sgrad_bound_kernel call[2];
    struct sgrad_bound_kernel *c = &call[kernel == &failing];
    *c = (struct sgrad_bound_kernel){ .kernel = kernel, .operands = 1, .view = { tensor->view }, .access = { SGRAD_RW } };
    sgrad_bound_kernel_prepare(c);
    const struct sgrad_submission s = { .call = c, .operand = &tensor, .failure = failure };
    assert_done(sgrad_task_submit(&s));
}

static int32_t value(struct sgrad_tensor *tensor) {
    int32_t x = -1;
    assert_done(sgrad_tensor_read(tensor, &x));
    return x;
}

static void each_its_own(void **state) {
    (void)state;
    struct sgrad_failure *one = sgrad_failure_create(), *other = sgrad_failure_create();
    struct sgrad_tensor *tensor[3];
    for (int i = 0; i < 3; i++)
        assert_done(sgrad_tensor_create("number", SGRAD_I32, sgrad_shape(1, 1), SGRAD_PERSISTENT, &tensor[i]));
    submit(&failing, tensor[0], one);
    submit(&adding, tensor[0], one);
    assert_done(sgrad_wait_all());      /* it is not of those that belong to nobody */
    submit(&adding, tensor[0], one);
    submit(&adding, tensor[1], other);
    submit(&adding, tensor[2], NULL);
    assert_done(sgrad_wait_all());
    assert_int_equal(value(tensor[0]), 1);
    assert_int_equal(value(tensor[1]), 1);
    assert_int_equal(value(tensor[2]), 1);
    assert_int_equal(sgrad_failure_error(one), SGRAD_EIO);
    assert_done(sgrad_failure_error(other));
    for (int i = 0; i < 3; i++) sgrad_tensor_destroy(tensor[i]);
    sgrad_failure_destroy(one);
    sgrad_failure_destroy(other);
}

static void until_a_wait(void **state) {
    (void)state;
    struct sgrad_failure *own = sgrad_failure_create();
    struct sgrad_tensor *tensor[2];
    for (int i = 0; i < 2; i++)
        assert_done(sgrad_tensor_create("number", SGRAD_I32, sgrad_shape(1, 1), SGRAD_PERSISTENT, &tensor[i]));
    submit(&failing, tensor[0], NULL);
    submit(&adding, tensor[0], NULL);
    submit(&adding, tensor[1], own);
    assert_int_equal(sgrad_wait_all(), SGRAD_EIO);
    assert_int_equal(value(tensor[0]), 1);
    assert_int_equal(value(tensor[1]), 1);
    submit(&adding, tensor[0], NULL);
    assert_done(sgrad_wait_all());
    assert_int_equal(value(tensor[0]), 2);
    for (int i = 0; i < 2; i++) sgrad_tensor_destroy(tensor[i]);
    sgrad_failure_destroy(own);
}

static struct sgrad_context *context;
static int begin(void **state) {
    (void)state;
    return sgrad_context_open(&(struct sgrad_context_options){ .cpus = 2, .gpus = -1 }, &context) ? -1 : 0;
}
static int end(void **state) {
    (void)state;
    sgrad_context_close(context);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("an error stops only the tasks of its owner", each_its_own),
        sentence("tasks without an owner stop after an error, until the next wait", until_a_wait),
    };
    return run_sentences(argc, argv, tests, begin, end);
}
