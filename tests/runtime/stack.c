/* stack.c: a kernel has a stack of megabytes, however small that of the main program is (tests/cli/environment.sh). */
#include "runtime/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 4 << 20 };

static void use(const struct sgrad_args *a) {
    volatile char room[ROOM];
    for (int i = 0; i < ROOM; i += 1024) room[i] = (char)i;
    *(float *)a->data[0] = room[1024];
}
static const struct sgrad_kernel kernel = { .name = "use", .cpu = use };

static void has_room(void **state) {
    (void)state;
    struct sgrad_context *context;
    struct sgrad_tensor *tensor;
    float value = 1;
    assert_int_equal(sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .cudas = -1 }, &context), 0);
    assert_int_equal(sgrad_tensor_create("t", SGRAD_F32, sgrad_shape(1, 1), SGRAD_PERSISTENT, &tensor), 0);
    assert_int_equal(sgrad_task_submit_simple(&kernel, &tensor, (enum sgrad_access[]){ SGRAD_W }, 1), 0);
    assert_int_equal(sgrad_tensor_read(tensor, &value), 0);
    assert_true(value == 0);
    sgrad_tensor_destroy(tensor);
    sgrad_context_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(has_room) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
