/* stack.c: a kernel has a stack of megabytes, even if that of the main program is small (tests/cli/environment.sh). */
#include "runtime/runtime.h"
#include "tests/asserts.h"

#include <string.h>

enum { ROOM = 4 << 20 };

static void use(const struct sgrad_args *args) {
    volatile char room[ROOM];
    for (int i = 0; i < ROOM; i += 1024) room[i] = (char)i;
    *(float *)args->data[0] = room[1024];
}
static const struct sgrad_kernel kernel = { .name = "use", .cpu = use };

static void has_room(void **state) {
    (void)state;
    struct sgrad_context *context;
    struct sgrad_tensor *tensor;
    float value = 1;
    assert_done(sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1 }, &context));
    assert_done(sgrad_tensor_create("t", SGRAD_F32, sgrad_shape(1, 1), SGRAD_PERSISTENT, &tensor));
    assert_done(sgrad_task_run(&kernel, &tensor, (enum sgrad_access[]){ SGRAD_W }, 1));
    assert_done(sgrad_tensor_read(tensor, &value));
    assert_equal(value, 0);
    sgrad_tensor_destroy(tensor);
    sgrad_context_close(context);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a kernel has a stack of megabytes", has_room),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
