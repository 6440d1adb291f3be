/* rematerialization.c: if tasks of the backward pass recompute an operation's output inline, the operation's own backward task
 * gives the same bits without this output. */
#include "tests/codelets/check.h"

static void open_and_run(struct instance *instance, const struct sgrad_op *op, const struct sgrad_test *test,
                         enum sgrad_dtype dtype, bool passing) {
    assert_done(instance_open(instance, op, test, dtype));
    instance->passing = passing;
    instance_fill(instance);
    assert_done(instance_run(instance, op->forward, 0));
    assert_done(instance_run(instance, op->backward, 0));
}

/* How many shapes are made in passing. */
static int check(const struct sgrad_op *op, enum sgrad_dtype dtype) {
    static const enum sgrad_role roles[] = { SGRAD_DX, SGRAD_DP };
    int count = 0;
    for (const struct sgrad_test *test = op->tests; test < op->tests + SGRAD_MAX_TESTS && test->name; test++) {
        struct instance with, without;
        assert_done(instance_open(&with, op, test, dtype));
        const bool passing = with.is.cheap_to_recompute;
        instance_close(&with);
        if (!passing) continue;
        open_and_run(&with, op, test, dtype, false);
        open_and_run(&without, op, test, dtype, true);
        for (size_t r = 0; r < sizeof roles / sizeof *roles; r++)
            for (int i = 0; i < SGRAD_MAX_INPUTS && with.tensor[roles[r]][i]; i++) {
                double *a = instance_read(without.tensor[roles[r]][i]), *b = instance_read(with.tensor[roles[r]][i]);
                if (!near(test->name, a, b, instance_count(with.tensor[roles[r]][i]), 0)) fail();
                free(a);
                free(b);
            }
        instance_close(&with);
        instance_close(&without);
        count++;
    }
    return count;
}

static void without_output(void **state) {
    int count = 0;
    (void)state;
    for (int k = 0; sgrad_ops[k]; k++) count += check(sgrad_ops[k], SGRAD_F32) + check(sgrad_ops[k], SGRAD_BF16);
    assert_in_range(count, 8, 1000);
}

int main(int argc, char **argv) {
    struct sgrad_context *context;
    const struct CMUnitTest tests[] = {
        sentence("backward does not read an output that is recomputed inline", without_output),
    };
    if (sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1 }, &context)) return 99;
    const int failed = run_sentences(argc, argv, tests, NULL, NULL);
    sgrad_context_close(context);
    return failed;
}
