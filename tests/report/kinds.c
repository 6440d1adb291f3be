/* Kinds of tasks come from the trace, in its order; older traces have five fixed kinds. */
#include "config.h"
#include "report/kinds.h"
#include "runtime/runtime.h"
#include "tests/scratch.h"

static const char *with(const char *text) {
    scratch_write("run/trace/kernels.json", text, strlen(text));
    return scratch_path("run");
}

static void of_the_trace(void **state) {
    (void)state;
    struct sgrad__kinds kinds;
    const char *folder =
        with("{\"kernels\": {\"stargrad_a\": \"input\", \"stargrad_b\": \"walk\"},"
             " \"kinds\": [{\"name\": \"walk\", \"color\": \"#3b82C4\"}, {\"name\": \"input\", \"color\": \"#000001\"},"
             "             {\"name\": \"rest\", \"color\": \"#ffffff\"}]}");
    assert_done(sgrad__kinds_read(folder, &kinds));
    assert_int_equal(kinds.count, 3);
    assert_string_equal(kinds.kind[0].name, "walk");
    assert_int_equal(kinds.kind[0].color, 0x3b82c4);
    assert_int_equal(sgrad__kinds_find(&kinds, "rest"), 2);
    assert_int_equal(sgrad__kinds_find(&kinds, "forward"), -1);
    assert_done(sgrad__kinds_of(&kinds, "stargrad_b"));
    assert_int_equal(sgrad__kinds_of(&kinds, "stargrad_a"), 1);
    assert_int_equal(sgrad__kinds_of(&kinds, "another"), 1);
    assert_int_equal(sgrad__kinds_of(&kinds, NULL), 1);
    sgrad__kinds_free(&kinds);
}

static void of_before(void **state) {
    (void)state;
    static const char *const names[] = { "forward", "backward", "reduction", "update", "input" };
    static const unsigned colors[] = { 0x3b82c4, 0xe08a2e, 0x8e5bb5, 0x3fa34d, 0x9a9a9a };
    struct sgrad__kinds kinds;
    assert_done(sgrad__kinds_read(with("{\"stargrad_sgd\": \"update\"}"), &kinds));
    assert_int_equal(kinds.count, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(kinds.kind[i].name, names[i]);
        assert_int_equal(kinds.kind[i].color, colors[i]);
    }
    assert_int_equal(sgrad__kinds_of(&kinds, "stargrad_sgd"), 3);
    assert_int_equal(sgrad__kinds_of(&kinds, "another"), 4);
    sgrad__kinds_free(&kinds);
}

static void none_of_them(void **state) {
    (void)state;
    struct sgrad__kinds kinds;
    char many[1024] = "{\"kernels\": {}, \"kinds\": [";
    for (int i = 0; i < 17; i++)
        snprintf(many + strlen(many), 64, "%s{\"name\": \"k%d\", \"color\": \"#000000\"}", i ? ", " : "", i);
    strcat(many, "]}");
    assert_fails(sgrad__kinds_read(with(many), &kinds), SGRAD_EFORMAT,
                 "kernels.json: contains 17 kinds of tasks, but a report can have 16 at most");
    static const struct {
        const char *text, *says;
    } wrong[] = {
        { "", "was not written by Stargrad, or is incomplete" },
        { "[]", "was not written by Stargrad, or is incomplete" },
        { "{\"kinds\": [], \"kernels\": {}}", "contains no kinds of tasks" },
        { "{\"kinds\": 1, \"kernels\": {}}", "contains no kinds of tasks" },
        { "{\"kinds\": [{\"color\": \"#000000\"}], \"kernels\": {}}", "a kind of task has no name" },
        { "{\"kinds\": [{\"name\": \"a\", \"color\": \"#000000\"}, {\"name\": \"a\", \"color\": \"#000000\"}], \"kernels\": {}}",
          "a kind of task has no name or the name of another kind" },
        { "{\"kinds\": [{\"name\": \"a\"}], \"kernels\": {}}", "the color of a kind of task is not like" },
        { "{\"kinds\": [{\"name\": \"a\", \"color\": \"red\"}], \"kernels\": {}}", "the color of a kind of task is not like" },
        { "{\"kinds\": [{\"name\": \"a\", \"color\": \"#12345g\"}], \"kernels\": {}}",
          "the color of a kind of task is not like" },
        { "{\"kinds\": [{\"name\": \"a\", \"color\": \"#000000\"}]}", "contains no kernels" },
        { "{\"kinds\": [{\"name\": \"a\", \"color\": \"#000000\"}], \"kernels\": {\"k\": \"b\"}}",
          "the kind of kernel k is unknown" },
        { "{\"k\": \"b\"}", "the kind of kernel k is unknown" },
        { "{\"k\": 1}", "the kind of kernel k is unknown" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(sgrad__kinds_read(with(wrong[i].text), &kinds), SGRAD_EFORMAT, wrong[i].says);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("kinds of task come from the trace, in its order", of_the_trace),
        sentence("a trace of an earlier version has five fixed kinds", of_before),
        sentence("a malformed list of kinds is refused", none_of_them),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
