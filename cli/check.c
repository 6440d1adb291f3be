/* check.c: stargrad check: tests whether operations, collectives and optimizers are correct, mainly custom ones of plug-ins. */
#include "cli/cli.h"
#include "graphs/api/check.h"

#include <stdlib.h>
#include <string.h>

static const struct sgrad__option options[] = {
    SGRAD__PLUGIN_OPTION,
    { "cpus", "N", "number of CPU workers", &sgrad__workers, SGRAD__FIELD(parallel.cpus), 0, 4096 },
    { "json", NULL, "print the result as a JSON array", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

static int shapes(const struct sgrad_op *op) {
    int count = 0;
    while (count < SGRAD_MAX_TESTS && op->tests[count].name) count++;
    return count;
}

static const struct sgrad_optimizer *optimizer(const char *name) {
    for (int i = 0; sgrad_optimizers[i]; i++)
        if (!strcmp(sgrad_optimizers[i]->name, name)) return sgrad_optimizers[i];
    return NULL;
}

/* Returns the I-th collective with this name, at most one of each kind; NULL: not found. */
static const struct sgrad_collective *collective(const char *name, int i) {
    for (int k = 0; sgrad_collectives[k]; k++)
        if (!strcmp(sgrad_collectives[k]->name, name) && !i--) return sgrad_collectives[k];
    return NULL;
}

static bool is_operation(const char *name) {
    for (int i = 0; sgrad_ops[i]; i++)
        if (!strcmp(sgrad_ops[i]->name, name)) return true;
    return false;
}

/* Tests NAME and sets *COUNT to the number of shapes. Returns "right on 3 shapes, …", which the caller must free; NULL: a test
 * failed. */
static char *check_name(const char *name, int *count) {
    char *is = NULL;
    *count = 0;
    if (is_operation(name)) {
        const struct sgrad_op *op = sgrad_op_find(name);
        if (sgrad_op_check(op)) return NULL;
        *count = shapes(op);
        is = sgrad_format("passed for %d %s", *count, sgrad_plural(*count, "shape", "shapes"));
    } else if (optimizer(name)) {
        if (sgrad_optimizer_check(optimizer(name))) return NULL;
        is = sgrad_format("passed as an optimizer");
    }
    for (int i = 0; collective(name, i); i++) {
        if (sgrad_collective_check(collective(name, i))) return free(is), NULL;
        char *before = is;
        is = sgrad_format("%s%spassed as %s of 1 to 33 ranks", before ? before : "", before ? "; " : "",
                          sgrad_collective_kind_name(collective(name, i)->kind));
        free(before);
    }
    return is;
}

static int check(const struct sgrad__request *request) {
    json_t *list = json_array();
    int failed = 0, count;
    for (char **word = request->words; *word; word++) {
        char *right = check_name(*word, &count);
        failed += !right;
        json_array_append_new(list, json_pack("{s:s, s:i, s:b}", "name", *word, "shapes", count, "good", right != NULL));
        if (right && !request->train.output.json) printf("%s: %s\n", *word, right);
        free(right);
    }
    if (request->train.output.json) sgrad__print_json(list);
    else json_decref(list);
    return failed ? SGRAD__FAILED : SGRAD__DONE;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_context *context;
    const struct sgrad_context_options how = { .cpus = request->train.parallel.cpus, .gpus = -1, .scheduler = "eager" };
    for (char **word = request->words; *word; word++)
        if (!optimizer(*word) && !collective(*word, 0) && !sgrad_registry_find("operation", *word, sgrad_ops))
            return SGRAD__USAGE;
    if (sgrad_context_open(&how, &context)) return SGRAD__FAILED;
    const int status = check(request);
    sgrad_context_close(context);
    return status;
}

const struct sgrad__command sgrad__check_command = {
    .name = "check",
    .summary = "test operations, collectives and optimizers",
    .argument = "NAME...",
    .repeats = true,
    .options = options,
    .run = run,
    .notes = "For each test shape of an operation, check compares derivatives with finite differences and bf16 with f32. It also "
             "tests whether gradients are added to existing ones, and whether the backward pass can omit gradients that are not "
             "needed. For a collective, it executes the messages and sums of 1 to 33 ranks in one process. For an optimizer, it "
             "tests the states, the direction of a step, the learning rate, clipping and the updates of shards. For example:\n\n"
             "  stargrad check --plugin ./libswish.so swish",
};
