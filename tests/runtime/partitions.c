/* partitions.c: the parts of a tensor share its memory, and each element is in one part; tasks of the whole and of the parts
 * keep their order. */
#include "runtime/partitions.h"
#include "tests/asserts.h"
#include "tests/runtime/context.h"

enum { COUNT = 1003, PARTS = 4, TURNS = 4 };

static void no_gaps(void **state) {
    (void)state;
    for (int64_t count = 64; count < 1100; count += 13)
        for (int parts = 1; parts <= 4; parts++) {
            assert_int_equal(sgrad_part_first(count, parts, 0), 0);
            assert_int_equal(sgrad_part_first(count, parts, parts), count);
            for (int i = 0; i < parts; i++) {
                assert_int_equal(sgrad_part_first(count, parts, i) % 16, 0);
                assert_true(sgrad_part_first(count, parts, i) < sgrad_part_first(count, parts, i + 1));
            }
        }
}

/* x = 2 x + 1, as many turns as there are calls: a lost or doubled one, or one before another's, leaves another number. */
static void turn(const struct sgrad_args *args) {
    float *x = args->data[0];
    for (int64_t i = 0; i < sgrad_shape_count(&args->view[0].shape); i++) x[i] = 2 * x[i] + 1;
}
static void sum(const struct sgrad_args *args) {
    const float *x = args->data[0];
    double *sum = args->data[1];
    for (int64_t i = 0; i < sgrad_shape_count(&args->view[0].shape); i++) *sum += x[i];
}
static const struct sgrad_kernel turning = { .name = "turning", .cpu = turn }, summing = { .name = "summing", .cpu = sum };

static void submit(struct sgrad_bound_kernel *call, const struct sgrad_kernel *kernel, struct sgrad_tensor *tensor,
                   struct sgrad_tensor *to) {
    struct sgrad_tensor *operand[] = { tensor, to };
    *call = (struct sgrad_bound_kernel){ .kernel = kernel, .operands = to ? 2 : 1, .view = { tensor->view },
                                 .access = { to ? SGRAD_R : SGRAD_RW, SGRAD_RW } };
    if (to) call->view[1] = to->view;
    sgrad_bound_kernel_prepare(call);
    assert_done(sgrad_task_submit(&(struct sgrad_submission){ .call = call, .operand = operand }));
}

static void check(struct sgrad_tensor *whole, const float *begin, int turns) {
    float x[COUNT];
    assert_done(sgrad_tensor_read(whole, x));
    for (int i = 0; i < COUNT; i++) assert_float_equal(x[i], (float)(1 << turns) * begin[i] + (float)((1 << turns) - 1), 0);
}

static void keep_their_order(void **state) {
    (void)state;
    static struct sgrad_bound_kernel call[TURNS * (2 * PARTS + 4) + 1];
    struct sgrad_tensor *whole, *total, *part[PARTS], *other[2];
    float begin[COUNT];
    double all = 0, found;
    int calls = 0;
    assert_done(sgrad_tensor_create("x", SGRAD_F32, sgrad_shape(2, 17, 59), SGRAD_PERSISTENT, &whole));
    assert_done(sgrad_tensor_create("total", SGRAD_F64, sgrad_shape(1, 1), SGRAD_PERSISTENT, &total));
    sgrad_tensor_partition(whole, PARTS, part);
    sgrad_tensor_partition(whole, 2, other);
    for (int i = 0; i < COUNT; i++) begin[i] = (float)(i % 7);
    assert_done(sgrad_tensor_write(whole, begin));
    for (int t = 0; t < TURNS; t++) {             /* by parts, the whole, other parts, the whole */
        for (int p = 0; p < PARTS; p++) submit(&call[calls++], &turning, part[p], NULL);
        submit(&call[calls++], &summing, whole, total);
        submit(&call[calls++], &turning, whole, NULL);
        for (int p = 0; p < 2; p++) submit(&call[calls++], &turning, other[p], NULL);
        for (int p = 0; p < PARTS; p++) submit(&call[calls++], &summing, part[p], total);
        for (int i = 0; i < COUNT; i++) {
            const double x = (double)(1 << 3 * t) * begin[i] + (1 << 3 * t) - 1;
            all += (2 * x + 1) + (8 * x + 7);
        }
    }
    check(whole, begin, 3 * TURNS);
    assert_done(sgrad_tensor_read(total, &found));
    assert_float_equal(found, all, 0);
    assert_done(sgrad_tensor_write(whole, begin));
    submit(&call[calls++], &turning, part[1], NULL);
    sgrad_tensor_unpartition(whole, 2, other);
    sgrad_tensor_unpartition(whole, PARTS, part);
    float x[COUNT];
    assert_done(sgrad_tensor_read(whole, x));
    for (int i = 0; i < COUNT; i++)
        assert_float_equal(x[i], i / 16 * 16 >= sgrad_part_first(COUNT, PARTS, 1) && i < sgrad_part_first(COUNT, PARTS, 2)
                                     ? 2 * begin[i] + 1 : begin[i], 0);
    sgrad_tensor_destroy(whole);
    sgrad_tensor_destroy(total);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("parts of a tensor have all of its elements, each once", no_gaps),
        sentence("tasks of a tensor and of its parts keep their order", keep_their_order),
    };
    return run_sentences(argc, argv, tests, context_open, context_close);
}
