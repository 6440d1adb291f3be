/* options: defaults of the options of a program that trains, errors for missing and invalid options, and a model whose last
 * layer is wrong. */
#include "config.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, flatten, "flat", (x));
    return sgrad_layer(graph, linear, "fc", (x), .features = classes, .bias = true);
}
static int forgets_classes(struct sgrad_graph *graph, int x, int classes) { return build(graph, x, classes + 1); }

static const struct sgrad_model model = { .name = "one", .summary = "one layer", .build = build };
static const struct sgrad_model wrong = { .name = "wrong", .summary = "ends with a class too many", .build = forgets_classes };
static const struct sgrad_model nameless = { .build = build };

static struct sgrad_train_options complete(void) {
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.custom = &model;
    options.data.name = "synthetic:4x4x1,10,64";
    options.training.batch = 16;
    options.training.steps = 2;
    options.parallel.cpus = 1;
    options.output.folder = scratch_path("run");
    return options;
}

static int train(struct sgrad_train_options options) {
    struct sgrad_train_result result = { 0 };
    int error = sgrad_train(&options, &result);
    free(result.folder);
    return error;
}

static void what_has_no_default_is_named(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    options.data.name = NULL;
    assert_fails(train(options), SGRAD_EINVAL, "no data set is named; give --data (in C: options.data.name");
    options = complete();
    options.model.custom = NULL;
    assert_fails(train(options), SGRAD_EINVAL, "no model is named; give --model (in C: options.model.name");
    options.model.custom = &nameless;
    assert_fails(train(options), SGRAD_EINVAL, "options.model.custom has no name");
    options = complete();
    options.training.batch = 0;
    assert_fails(train(options), SGRAD_EINVAL, "batch 0: must be 1 sample or more");
    options = complete();
    options.training.micro_batch = -1;
    assert_fails(train(options), SGRAD_EINVAL, "micro-batch -1: must be 1 sample or more");
}

static void values_out_of_range_are_refused(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    options.training.lookahead = (struct sgrad_lookahead){ .every = 5, .decay = 1 };
    assert_fails(train(options), SGRAD_EINVAL, "lookahead every 5 steps with decay 1 and power 0 is out of range");
    options = complete();
    options.output.trace = (struct sgrad_step_range){ 5, 3 };
    assert_fails(train(options), SGRAD_EINVAL, "steps 5 to 3 cannot be traced");
    options = complete();
    options.data.mean = (struct sgrad_numbers){ .count = 1000 };
    assert_fails(train(options), SGRAD_EINVAL, "--mean has 1000 numbers; give 8 or fewer");
}

/* The text of a value is the shortest that has the same meaning. */
static void values_and_their_text(void **state) {
    (void)state;
    static const char *const lookahead[][2] = { { "5", "5" }, { "5:.5", "5" }, { "5:.8", "5:0.8" }, { "4:.77:3", "4:0.77:3" } };
    static const char *const range[][2] = { { "", "10-12" }, { "7", "7" }, { "7-7", "7" }, { "5-10", "5-10" } };
    static const char *const numbers[][2] = { { "1,.5", "1,0.5" }, { "-1e-3", "-0.001" }, { "0.1", "0.1" } };
    struct sgrad_lookahead l;
    struct sgrad_step_range r;
    struct sgrad_numbers n;
    for (int i = 0; i < 4; i++) {
        char *text[3] = { 0 };
        assert_true(sgrad_lookahead_parse(lookahead[i][0], &l) && sgrad_step_range_parse(range[i][0], &r));
        assert_string_equal(text[0] = sgrad_lookahead_text(&l), lookahead[i][1]);
        assert_string_equal(text[1] = sgrad_step_range_text(&r), range[i][1]);
        if (i < 3) {
            assert_true(sgrad_numbers_parse(numbers[i][0], &n));
            assert_string_equal(text[2] = sgrad_numbers_text(&n), numbers[i][1]);
        }
        for (int t = 0; t < 3; t++) free(text[t]);
    }
    static const char *const bad[] = { "x",   "5-",    "-5",  "0",     "1,", ",1",
                                       "nan", "5:.5:", "5-4", "5:nan", "5:1", "1,2,3,4,5,6,7,8,9" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(sgrad_numbers_parse(bad[i], &n), !strcmp(bad[i], "-5") || !strcmp(bad[i], "0"));
        assert_false(sgrad_step_range_parse(bad[i], &r) || sgrad_lookahead_parse(bad[i], &l));
    }
}

static void a_model_ends_with_a_column_for_each_class(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    options.model.custom = &wrong;
    assert_fails(train(options), SGRAD_ESHAPE, "model wrong returns (1,11), but synthetic:4x4x1,10,64 has 10 classes");
}

static void names_have_defaults(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    options.optimizer.name = options.optimizer.schedule = options.parallel.strategy = NULL;
    options.parallel.steps_in_flight = 0;
    assert_done(train(options));
}

/* No folder is named: two runs of one second have one each. */
static void two_runs_begun_at_once(void **state) {
    (void)state;
    struct sgrad_train_options options = complete();
    struct sgrad_train_result result[2] = { { 0 } };
    options.output.folder = NULL;
    assert_int_equal(chdir(scratch_path("")), 0);
    for (int i = 0; i < 2; i++) assert_done(sgrad_train(&options, &result[i]));
    assert_string_not_equal(result[0].folder, result[1].folder);
    for (int i = 0; i < 2; i++) free(result[i].folder);
}

/* Seconds from now to the time that TEXT means. */
static double from_now(const char *text) {
    double stop;
    const double now = (double)time(NULL);
    assert_done(sgrad_deadline_parse(text, &stop));
    return stop - now;
}

static void times(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double seconds;
    } durations[] = { { "90", 90 }, { "90s", 90 }, { "10min", 600 }, { "1.5h", 5400 }, { "2d", 172800 } };
    static const char *const wrong[] = { "", "s", "-3", "1e99", "3 s", "3 min", "3m", "min", "0", "inf", "nan" };
    double seconds, stop;
    char text[64];
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
        assert_true(sgrad_duration_parse(durations[i].text, &seconds));
        assert_near(seconds, durations[i].seconds, 0);
        assert_near(from_now(durations[i].text), durations[i].seconds, 60);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_false(sgrad_duration_parse(wrong[i], &seconds));

    const time_t later = time(NULL) + 7200;
    strftime(text, sizeof text, "%H:%M:%S", localtime(&later));
    assert_near(from_now(text), 7200, 60);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", localtime(&later));
    assert_near(from_now(text), 7200, 60);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%MZ", gmtime(&later));
    assert_near(from_now(text), 7200, 120);
    const time_t east = later + 5400;
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S+01:30", gmtime(&east));
    assert_near(from_now(text), 7200, 60);
    const time_t now = time(NULL);
    strftime(text, sizeof text, "%H:%M", localtime(&now));      /* that minute has begun: tomorrow's */
    assert_near(from_now(text), 86400, 7200);

    snprintf(text, sizeof text, "%ld", (long)later);
    setenv("SLURM_JOB_END_TIME", text, 1);
    assert_near(from_now("slurm-5min"), 7200 - 300, 60);
    assert_fails(sgrad_deadline_parse("slurm-3h", &stop), SGRAD_EINVAL, "is in the past");
    static const char *const ends[] = { "abc", "2026-11-27T07:00:00", "-1", "inf", " 4000000000", "4000000000s" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        setenv("SLURM_JOB_END_TIME", ends[i], 1);
        assert_fails(sgrad_deadline_parse("slurm-5min", &stop), SGRAD_EINVAL, "must be a number of seconds since 1970");
    }
    unsetenv("SLURM_JOB_END_TIME");
    assert_fails(sgrad_deadline_parse("slurm-5min", &stop), SGRAD_EINVAL, "SLURM_JOB_END_TIME is not set");
    assert_fails(sgrad_deadline_parse("2020-01-01T00:00", &stop), SGRAD_EINVAL, "is in the past");
    static const char *const none[] = { "25:00",      "12:61",             "12:",   "noon", "2030-13-01T00:00",
                                        "2030-01-01", "2030-01-01T00:00+", "slurm-" };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_fails(sgrad_deadline_parse(none[i], &stop), SGRAD_EINVAL, "must be a duration from now");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("options without a default are named when they are missing", what_has_no_default_is_named),
        sentence("a model that does not end with a column for each class is refused",
                 a_model_ends_with_a_column_for_each_class),
        sentence("values out of range are refused", values_out_of_range_are_refused),
        sentence("values become text and back, and invalid texts are refused", values_and_their_text),
        sentence("optimizer, schedule and strategy have defaults", names_have_defaults),
        sentence("two runs that begin in the same second have different folders", two_runs_begun_at_once),
        sentence("durations and times of day are read, and malformed or past ones are refused", times),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
