/* The list schedule of a program: known times of tasks and moves. */
#include "config.h"
#include "graphs/costs/schedule.h"
#include "tests/scratch.h"

/* Two tasks write a and b; a is moved to the file, and back as c; a task reads b and c. */
enum { A, B, C, BUFFERS, FIRST = 0, SECOND, STORE, FETCH, LAST, INSTRUCTIONS };
static const struct sgrad_kernel task = { .name = "task" };
static const struct sgrad_view view = { SGRAD_U8, { 1, { 100 } } };

/* A worker executes 10 operations per second. */
static struct sgrad_bound_kernel call[INSTRUCTIONS] = {
    { .kernel = &task, .operands = 1, .access = { SGRAD_W }, .flops = 20 },
    { .kernel = &task, .operands = 1, .access = { SGRAD_W }, .flops = 50 },
    { .kernel = &sgrad__store_kernel, .operands = 1, .access = { SGRAD_R } },
    { .kernel = &sgrad__fetch_kernel, .operands = 1, .access = { SGRAD_W } },
    { .kernel = &task, .operands = 2, .access = { SGRAD_R, SGRAD_R }, .flops = 10 },
};
static struct sgrad__instruction instruction[INSTRUCTIONS] = {
    { .operand = { A } }, { .operand = { B } }, { .operand = { A } }, { .operand = { C } }, { .operand = { B, C } },
};
static struct sgrad__buffer buffer[BUFFERS];

static struct sgrad__schedule schedule_of(int workers, double write, double read) {
    for (int i = 0; i < INSTRUCTIONS; i++) {
        instruction[i].call = &call[i];
        for (int j = 0; j < call[i].operands; j++) call[i].view[j] = view;
    }
    const struct sgrad__program p = { .instruction_count = INSTRUCTIONS, .buffer_count = BUFFERS, .instruction = instruction,
                                      .buffer = buffer, .spilling.slots = 1 };
    const struct sgrad__pace pace = { workers, 10, 1e9, { write, read } };
    struct sgrad__schedule schedule;
    sgrad__schedule_make(&p, &pace, &schedule);
    return schedule;
}

/* The tasks take 2, 5 and 1 seconds. */
static void tasks(void **state) {
    (void)state;
    struct sgrad__schedule s = schedule_of(1, 0, 0);
    assert_near(s.seconds, 8, 1e-9);
    sgrad__schedule_free(&s);
    s = schedule_of(2, 0, 0);
    assert_near(s.begin[SECOND], 0, 1e-9);
    assert_near(s.begin[LAST], 5, 1e-9);
    assert_near(s.seconds, 6, 1e-9);
    sgrad__schedule_free(&s);
}

/* The store takes 1 second, the fetch 4. */
static void moves(void **state) {
    (void)state;
    struct sgrad__schedule s = schedule_of(2, 100, 25);
    assert_near(s.begin[STORE], 2, 1e-9);
    assert_near(s.begin[FETCH], 3, 1e-9);
    assert_near(s.begin[LAST], 7, 1e-9);
    assert_near(s.seconds, 8, 1e-9);
    sgrad__schedule_free(&s);
}

int main(int argc, char **argv) {
    const struct CMUnitTest all[] = {
        sentence("workers execute independent tasks at the same time", tasks),
        sentence("a task waits for its fetch, and the fetch for the store", moves),
    };
    return run_sentences(argc, argv, all, NULL, NULL);
}
