/* options: what a program that trains may leave out of its options, what it is told when it may not, and a model that does not
 * end as it has to. */
#include "config.h"
#include "graphs/graphs.h"
#include "tests/graphs/asserts.h"

#include <stdlib.h>

static int build(struct sgrad_graph *g, int x, int classes) {
    x = sgrad_layer(g, flatten, "flat", (x));
    return sgrad_layer(g, linear, "fc", (x), .features = classes, .bias = true);
}
static int forgets_classes(struct sgrad_graph *g, int x, int classes) { return build(g, x, classes + 1); }

static const struct sgrad_model model = { .name = "one", .summary = "one layer", .build = build };
static const struct sgrad_model wrong = { .name = "wrong", .summary = "ends with a class too many", .build = forgets_classes };
static const struct sgrad_model nameless = { .build = build };

static struct sgrad_train_options complete(void) {
    struct sgrad_train_options options = sgrad_train_defaults();
    options.custom_model = &model;
    options.data = "synthetic:4x4x1,10,64";
    options.batch = 16;
    options.steps = 2;
    options.cpus = 1;
    options.out = scratch_path("run");
    return options;
}

static int train(struct sgrad_train_options options) {
    struct sgrad_train_result result = { 0 };
    int error = sgrad_train(&options, &result);
    free(result.folder);
    return error;
}

static void test_what_has_no_default_is_named(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    options.data = NULL;
    assert_fails(train(options), SGRAD_EINVAL, "no data set is named (options.data");
    options = complete();
    options.custom_model = NULL;
    assert_fails(train(options), SGRAD_EINVAL, "no model is named (options.model");
    options.custom_model = &nameless;
    assert_fails(train(options), SGRAD_EINVAL, "options.custom_model has no name");
    options = complete();
    options.batch = 0;
    assert_fails(train(options), SGRAD_EINVAL, "a batch of 0 samples");
}

static void test_a_model_ends_with_a_column_for_each_class(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    options.custom_model = &wrong;
    assert_fails(train(options), SGRAD_ESHAPE, "model wrong: ends with (1,11), where synthetic:4x4x1,10,64 has 10 classes");
}

static void test_names_have_defaults(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    options.optimizer = options.schedule = options.strategy = NULL;
    options.window = 0;
    assert_int_equal(train(options), 0);
}

/* No folder is named: two runs of one second have one each. */
static void test_two_runs_begun_at_once(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    struct sgrad_train_result result[2] = { { 0 } };
    options.out = NULL;
    assert_int_equal(chdir(scratch_path("")), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(sgrad_train(&options, &result[i]), 0);
    assert_string_not_equal(result[0].folder, result[1].folder);
    for (int i = 0; i < 2; i++) free(result[i].folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_has_no_default_is_named),
        cmocka_unit_test(test_a_model_ends_with_a_column_for_each_class),
        cmocka_unit_test(test_names_have_defaults),
        cmocka_unit_test(test_two_runs_begun_at_once),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
