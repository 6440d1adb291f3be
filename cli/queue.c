/* queue.c: stargrad queue: how far the work in a queue is. */
#include "cli/cli.h"
#include "runtime/queue.h"

#include <stdlib.h>

static const struct sgrad__option options[] = {
    { "json", NULL, "print the result as one JSON object", &sgrad__flag, SGRAD__FIELD(json) },
    { 0 },
};

static void print(const char *folder, const struct sgrad_queue_state *s) {
    const int64_t all = s->todo + s->leased + s->done + s->failed;
    printf("%lld of %lld tasks done, %lld leased, %lld to do, %lld failed\n", (long long)s->done, (long long)all,
           (long long)s->leased, (long long)s->todo, (long long)s->failed);
    if (s->per_second > 0 && s->todo + s->leased > 0)
        printf("%.3g tasks a minute, %.0f s left\n", 60 * s->per_second, (double)(s->todo + s->leased) / s->per_second);
    for (int64_t i = 0; i < s->failed && i < 1000; i++)
        printf("task %lld is put aside: %s/logs/%lld says why\n", (long long)s->failures[i], folder, (long long)s->failures[i]);
}

static int run(const struct sgrad__request *request) {
    struct sgrad_queue_state state;
    int error = sgrad_queue_look(request->argument, &state);
    if (error) return sgrad__status(error);
    if (request->train.json)
        sgrad__print_json(json_pack("{s:I, s:I, s:I, s:I, s:f}", "done", (json_int_t)state.done, "leased",
                                    (json_int_t)state.leased, "todo", (json_int_t)state.todo, "failed", (json_int_t)state.failed,
                                    "tasks_per_second", state.per_second));
    else print(request->argument, &state);
    free(state.failures);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__queue_command = {
    .name = "queue",
    .summary = "how far the work in a queue is",
    .argument = "DIR",
    .options = options,
    .run = run,
};
