/* limits.c: lower bounds of the duration of a step, each on its own. The largest one shows where to improve:
 *
 *     arithmetic   the operations of a step, at the rate of a matrix product that stays in caches
 *     kernels      the best time of each operation on its own; the excess over arithmetic is the loss of the kernels
 *     memory       the data that tasks pass to each other in memory, at the bandwidth of all workers together
 *     submission   one thread submits all tasks to StarPU, for any number of workers
 *     tasks        the same tasks without computation: submission, dependencies, and the scheduler with these workers */
#include "cli/limits.h"
#include "graphs/api/bench.h"

__attribute__((format(printf, 5, 6))) static void add(struct sgrad__limit *limit, const char *name, double ms, const char *advice,
                                                      const char *format, ...) {
    va_list list;
    *limit = (struct sgrad__limit){ .name = name, .ms = ms, .advice = advice };
    va_start(list, format);
    vsnprintf(limit->text, sizeof limit->text, format, list);
    va_end(list);
}

int sgrad__limits_of(const struct sgrad_bench_result *result, struct sgrad__limit limit[SGRAD__LIMITS]) {
    static const char larger[] = "a larger --micro-batch makes fewer tasks";
    const char *workers = sgrad_plural(result->workers, "worker", "workers");
    add(&limit[SGRAD__ARITHMETIC], "arithmetic", result->arithmetic_ms, NULL,
        "%.2f GFlop a step, %.1f ms at the %.0f GFlop/s of matrix products on %d %s", result->gflop, result->arithmetic_ms,
        result->gflops, result->workers, workers);
    add(&limit[SGRAD__KERNELS], "kernels", result->limit_ms, NULL, "%.1f ms a step, the sum of the best times, on %d %s",
        result->limit_ms, result->workers, workers);
    add(&limit[SGRAD__MEMORY], "memory", result->memory_ms, "--precision bf16 moves half as many bytes",
        "%.2f GB a step, %.1f ms at the %.1f GB/s of the memory for all workers together", result->memory_gbyte,
        result->memory_ms, result->gbytes);
    add(&limit[SGRAD__SUBMISSION], "submission", result->submission_ms, larger,
        "%d tasks a step, which one thread submits in %.2f ms: enough for %.0f such workers", result->tasks,
        result->submission_ms, result->limit_ms * result->workers / result->submission_ms);
    if (result->tasks_ms <= 0) return SGRAD__TASKS;
    add(&limit[SGRAD__TASKS], "tasks", result->tasks_ms, larger, "%.2f ms a step if no task computes, on %d %s with scheduler %s",
        result->tasks_ms, result->workers, workers, result->scheduler);
    return SGRAD__LIMITS;
}

const struct sgrad__limit *sgrad__limits_longest(const struct sgrad__limit *limit, int limits) {
    const struct sgrad__limit *longest = limit;
    for (int i = 1; i < limits; i++)
        if (limit[i].ms > longest->ms) longest = &limit[i];
    return longest;
}
