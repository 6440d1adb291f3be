/* queue.c: stargrad queue: prints the progress of the tasks in a queue. */
#include "cli/cli.h"
#include "runtime/files/queue.h"

#include <string.h>
#include <time.h>

static const struct sgrad__option options[] = {
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

/* Returns the tasks per minute of a process; 0: unknown. */
static double speed_of(const struct sgrad_queue_worker *worker) {
    return worker->done > 1 && worker->last > worker->first ? 60 * (double)worker->done / (worker->last - worker->first) : 0;
}

static void print_workers(const struct sgrad_queue_state *state) {
    const double now = (double)time(NULL);
    if (state->workers)
        printf("\n%-32s  %8s  %8s  %16s  %s\n", "host,process", "done", "leased", "tasks per minute", "last seen");
    for (int i = 0; i < state->workers && i < 1000; i++) {
        const struct sgrad_queue_worker *w = &state->worker[i];
        printf("%-32.*s  %8lld  %8lld  %16.3g  %.0f s ago\n", (int)(strrchr(w->name, ',') ? strrchr(w->name, ',') - w->name : 32),
               w->name, (long long)w->done, (long long)w->leased, speed_of(w), now > w->last ? now - w->last : 0);
    }
}

static void print(const char *folder, const struct sgrad_queue_state *state) {
    const int64_t all = state->todo + state->leased + state->done + state->failed;
    printf("%lld of %lld tasks done, %lld leased, %lld to do, %lld failed\n", (long long)state->done, (long long)all,
           (long long)state->leased, (long long)state->todo, (long long)state->failed);
    if (state->todo && !state->leased)
        printf("no process is working on this queue\n");
    else if (state->per_second > 0 && state->leased)
        printf("%.3g tasks per minute, %.0f s left\n", 60 * state->per_second,
               (double)(state->todo + state->leased) / state->per_second);
    for (int64_t i = 0; i < state->failed && i < 1000; i++)
        printf("task %lld has failed: see %s/logs/%lld\n", (long long)state->failures[i], folder, (long long)state->failures[i]);
    print_workers(state);
}

static json_t *as_json(const struct sgrad_queue_state *state) {
    json_t *workers = json_array();
    for (int i = 0; i < state->workers; i++) {
        const struct sgrad_queue_worker *w = &state->worker[i];
        json_array_append_new(workers,
                              json_pack("{s:s, s:I, s:I, s:f}", "process", w->name, "done", (json_int_t)w->done, "leased",
                                        (json_int_t)w->leased, "tasks_per_second", speed_of(w) / 60));
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:o}", "done", (json_int_t)state->done, "leased", (json_int_t)state->leased,
                     "todo", (json_int_t)state->todo, "failed", (json_int_t)state->failed, "tasks_per_second", state->per_second,
                     "workers", workers);
}

static int run(const struct sgrad__request *request) {
    struct sgrad_queue_state state;
    int error = sgrad_queue_look(request->argument, &state);
    if (error) return sgrad__status(error);
    if (request->train.output.json) sgrad__print_json(as_json(&state));
    else print(request->argument, &state);
    sgrad_queue_forget(&state);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__queue_command = {
    .name = "queue",
    .summary = "show the progress of a work queue",
    .argument = "DIR",
    .options = options,
    .run = run,
    .notes = "Prints the numbers of tasks that are done, leased, to do and failed, the speed, and the remaining time.",
};
