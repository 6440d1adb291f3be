/* profile.c: the time of tasks, the overhead of workers between tasks, and idle time are measured separately. */
#include "runtime/profile.h"
#include "tests/asserts.h"

#include <time.h>

enum { TASKS = 12, BUSY_MS = 4, IDLE_MS = 20 };

static void pass(double seconds) {
    for (const double end = sgrad_time_monotonic() + seconds; sgrad_time_monotonic() < end;) continue;
}
static void work(const struct sgrad_args *args) { (void)args, pass(1e-3 * BUSY_MS); }
static const struct sgrad_kernel working = { .name = "working", .cpu = work };

static struct sgrad_tensor *tensor;
static struct sgrad_bound_kernel call;

static void submit(void) {
    const struct sgrad_submission task = { .call = &call, .operand = &tensor };
    assert_done(sgrad_task_submit(&task));
}

/* One after another, and between any two nothing to do, which costs tasks nothing. */
static void idle(void **state) {
    (void)state;
    int64_t tasks;
    sgrad_bound_kernel_profile(&call);
    sgrad_workers_profile();
    for (int i = 0; i < TASKS; i++) {
        submit();
        assert_done(sgrad_wait_all());
        nanosleep(&(struct timespec){ .tv_nsec = IDLE_MS * 1000000 }, NULL);
    }
    const double took = sgrad_bound_kernel_took(&call, &tasks);
    const struct sgrad_overhead is = sgrad_workers_overhead();
    assert_int_equal(tasks, TASKS);
    if (took < 1e-3 * TASKS * BUSY_MS) fail_msg("%d tasks of %d ms took %g s", TASKS, BUSY_MS, took);
    assert_int_equal(is.tasks, TASKS);
    if (is.all > 0.25e-3 * TASKS * IDLE_MS) fail_msg("%g s beside tasks, where %g were idle", is.all, 1e-3 * TASKS * IDLE_MS);
    if (is.usual > is.all / TASKS * 1.0001) fail_msg("a usual gap has %g s, all of a task %g", is.usual, is.all / TASKS);
}

/* One right behind the other: gaps are what is between, not what tasks take. */
static void busy(void **state) {
    (void)state;
    sgrad_workers_profile();
    for (int i = 0; i < TASKS; i++) submit();
    assert_done(sgrad_wait_all());
    const struct sgrad_overhead is = sgrad_workers_overhead();
    assert_int_equal(is.tasks, TASKS);
    if (!(is.usual > 0 && is.usual < 0.5e-3 * BUSY_MS)) fail_msg("a usual gap has %g s", is.usual);
    assert_int_equal(sgrad_workers_overhead().tasks, 0);    /* since the last call */
    assert_equal(sgrad_workers_overhead().usual, 0);
}

static struct sgrad_context *context;
static int begin(void **state) {
    (void)state;
    if (sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1 }, &context)) return -1;
    if (sgrad_tensor_create("number", SGRAD_I32, sgrad_shape(1, 1), SGRAD_PERSISTENT, &tensor)) return -1;
    call = (struct sgrad_bound_kernel){ .kernel = &working, .operands = 1, .view = { tensor->view }, .access = { SGRAD_RW } };
    sgrad_bound_kernel_prepare(&call);
    return 0;
}
static int end(void **state) {
    (void)state;
    sgrad_tensor_destroy(tensor);
    sgrad_bound_kernel_release(&call);
    sgrad_context_close(context);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("time without work is not counted as the time of tasks", idle),
        sentence("the gaps between tasks are not counted as the time of tasks", busy),
    };
    return run_sentences(argc, argv, tests, begin, end);
}
