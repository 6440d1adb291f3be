/* The tasks that only wait for moves to or from a file. */
#include "config.h"
#include "graphs/engine/waits.h"
#include "tests/scratch.h"

/* A program of which tasks 4 and 7 depend on moves:
 *
 *     0  task     writes a                     5  fetch    a' (slot 0)
 *     1  store    a (slot 0)                   6  task     writes c
 *     2  task     reads a                      7  task     reads a' and c
 *     3  claim    b, for which a must be free
 *     4  task     writes b                                                                                          */
enum { A, B, AGAIN, C, BUFFERS, INSTRUCTIONS = 8 };
static const struct sgrad_kernel task = { .name = "task" };

static struct sgrad_bound_kernel call[INSTRUCTIONS] = {
    { .kernel = &task, .operands = 1, .access = { SGRAD_W } },
    { .kernel = &sgrad__store_kernel, .operands = 1, .access = { SGRAD_R } },
    { .kernel = &task, .operands = 1, .access = { SGRAD_R } },
    { .kernel = &sgrad__claim_kernel, .operands = 2, .access = { SGRAD_W, SGRAD_W } },
    { .kernel = &task, .operands = 1, .access = { SGRAD_W } },
    { .kernel = &sgrad__fetch_kernel, .operands = 1, .access = { SGRAD_W } },
    { .kernel = &task, .operands = 1, .access = { SGRAD_W } },
    { .kernel = &task, .operands = 2, .access = { SGRAD_R, SGRAD_R } },
};
static struct sgrad__instruction instruction[INSTRUCTIONS] = {
    { .operand = { A } }, { .operand = { A } },     { .operand = { A } }, { .operand = { B, A } },
    { .operand = { B } }, { .operand = { AGAIN } }, { .operand = { C } }, { .operand = { AGAIN, C } },
};
static struct sgrad__buffer buffer[BUFFERS];

static struct sgrad__program program_with(int slots) {
    for (int i = 0; i < INSTRUCTIONS; i++) instruction[i].call = &call[i];
    return (struct sgrad__program){ .instruction_count = INSTRUCTIONS, .buffer_count = BUFFERS, .instruction = instruction,
                                    .buffer = buffer, .spilling.slots = slots };
}

static bool overdue(const int *state, int number) { return !state[2 * number] && state[2 * number + 1]; }

/* Ends the COUNT instructions. After each of them, the bits of TASKS are those of the overdue tasks. */
static void run(const int *end, const int *tasks, int count) {
    const struct sgrad__program p = program_with(1);
    struct sgrad__waits *waits = sgrad__waits_create(&p);
    int state[2 * INSTRUCTIONS];
    assert_int_equal(sgrad__waits_size(waits), 2 * 2);      /* tasks 4 and 7 */
    sgrad__waits_begin(waits, state);
    for (int i = 0; i < count; i++) {
        sgrad__waits_end(waits, state, end[i]);
        assert_int_equal(overdue(state, 0) | overdue(state, 1) << 1, tasks[i]);
    }
    sgrad__waits_destroy(waits);
}

/* Task 4 needs memory that is free once task 2 has ended, and the store. */
static void slow_store(void **state) {
    (void)state;
    run((int[]){ 0, 2, 1, 3, 4 }, (int[]){ 0, 1, 1, 0, 0 }, 5);
    run((int[]){ 0, 1, 2, 3 }, (int[]){ 0, 0, 1, 0 }, 4);
}

/* Task 7 is overdue between the end of task 6 and that of the fetch. */
static void slow_fetch(void **state) {
    (void)state;
    run((int[]){ 0, 1, 2, 3, 4, 6, 5, 7 }, (int[]){ 0, 0, 1, 0, 0, 2, 0, 0 }, 8);
    run((int[]){ 0, 1, 2, 3, 4, 5, 6, 7 }, (int[]){ 0, 0, 1, 0, 0, 0, 0, 0 }, 8);
}

static void nothing_moved(void **state) {
    (void)state;
    const struct sgrad__program p = program_with(0);
    assert_null(sgrad__waits_create(&p));
    sgrad__waits_end(NULL, NULL, 0);
    assert_int_equal(sgrad__waits_size(NULL), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a task whose memory is being written to a file is overdue", slow_store),
        sentence("a task is overdue from the end of the tasks before it to that of its fetch", slow_fetch),
        sentence("a program without moves has no overdue tasks", nothing_moved),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
