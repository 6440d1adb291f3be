/* check.c: stargrad check: whether operations are right, one's own in a plug-in above all. */
#include "cli/cli.h"

static const struct sgrad__option options[] = {
    SGRAD__PLUGIN_OPTION,
    { "cpus", "N", "CPU workers", &sgrad__workers, SGRAD__FIELD(cpus), 0, 4096 },
    { "json", NULL, "print the result as one JSON array", &sgrad__flag, SGRAD__FIELD(json) },
    { 0 },
};

static int shapes(const struct sgrad_op *op) {
    int count = 0;
    while (count < SGRAD_MAX_TESTS && op->tests[count].name) count++;
    return count;
}

static int check(const struct sgrad__request *request) {
    json_t *list = json_array();
    int failed = 0;
    for (char **word = request->words; *word; word++) {
        const struct sgrad_op *op = sgrad_op_find(*word);
        const bool good = sgrad_op_check(op) == 0;
        failed += !good;
        json_array_append_new(list, json_pack("{s:s, s:i, s:b}", "name", op->name, "shapes", shapes(op), "good", good));
        if (good && !request->train.json)
            printf("%s: right on %d %s\n", op->name, shapes(op), sgrad_plural(shapes(op), "shape", "shapes"));
    }
    if (request->train.json) sgrad__print_json(list);
    else json_decref(list);
    return failed ? SGRAD__FAILED : SGRAD__DONE;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_context *context;
    const struct sgrad_context_options how = { .cpus = request->train.cpus, .cudas = -1, .scheduler = "eager" };
    for (char **word = request->words; *word; word++)
        if (!sgrad_record_find("operation", *word, sgrad_ops)) return SGRAD__USAGE;
    if (sgrad_context_open(&how, &context)) return SGRAD__FAILED;
    const int status = check(request);
    sgrad_context_close(context);
    return status;
}

const struct sgrad__command sgrad__check_command = {
    .name = "check",
    .summary = "whether operations are right: derivatives against differences",
    .argument = "OPERATION...",
    .repeats = true,
    .options = options,
    .run = run,
    .notes = "On every test shape of the operation's record: derivatives against finite differences, bf16\n"
             "against f32, and gradients that are added to. For example:\n\n"
             "  stargrad check --plugin ./libswish.so swish",
};
