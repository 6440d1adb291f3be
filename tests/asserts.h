/* asserts.h: additions to cmocka: checks that print the expected value, the actual value and the last message; tests that are
 * named by sentences; and the command that repeats a failed test.
 *
 *     static void flipped(void **state) {
 *         assert_fails(sgrad_safetensors_open(path, &file), SGRAD_EFORMAT, "byte 8");     (tests/scratch.h)
 *     }
 *     int main(int argc, char **argv) {
 *         const struct CMUnitTest tests[] = { sentence("a file with a flipped bit is refused", flipped) };
 *         return run_sentences(argc, argv, tests, NULL, NULL);
 *     }
 *
 * `PROGRAM flipped` runs the tests whose sentences contain the word. */
#ifndef SGRAD_TESTS_ASSERTS_H
#define SGRAD_TESTS_ASSERTS_H

#include "runtime/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks ------------------------------------------------------------------------------------------------------- */

/* Ends what a failure would leave undone; NULL: nothing. */
static void (*asserts_recover)(void);

/* A sanitizer ends the program with its report, which may be in a file that stands in for stderr. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));
static inline void asserts_dies(void) {
    if (asserts_recover) asserts_recover();
}

static inline void asserts_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
static inline void asserts_fail(const char *file, int line, const char *format, ...) {
    va_list list;
    if (asserts_recover) asserts_recover();
    va_start(list, format);
    vprint_error(format, list);
    va_end(list);
    _fail(file, line);
}

/* The last message, of any thread, and how many there have been. */
static char asserts_message[2048];
static _Atomic int asserts_messages;

static inline void asserts_hear(const char *line) {
    snprintf(asserts_message, sizeof asserts_message, "%s", line);
    asserts_messages++;
    fputs(line, stderr);
}

/* Skips the rest of the test, or in the setup of a group all tests: they need a library that this build lacks. */
static inline void asserts_lacks(const char *message, const char *file, int line);

static inline void asserts_done(const char *call, int is, int messages, const char *file, int line) {
    if (!is) return;
    if (is == SGRAD_ELIBRARY) asserts_lacks(asserts_message, file, line);
    const int length = messages == asserts_messages ? 0 : (int)strcspn(asserts_message, "\n");
    asserts_fail(file, line, "%s\n    expected: 0\n    returned: %d (%s)\n    message:  %.*s\n", call, is, sgrad_strerror(is),
                 length ? length : 4, length ? asserts_message : "none");
}

/* The call returns 0. */
#define assert_done(call)                                                      \
    do {                                                                       \
        const int asserts_before = asserts_messages;                           \
        asserts_done(#call, (call), asserts_before, __FILE__, __LINE__);       \
    } while (0)

/* What is behind a number: " = COUNT", but of a number in the source nothing. */
#define ASSERTS_NAME(text) asserts_literal(text) ? "" : " = ", asserts_literal(text) ? "" : text
static inline bool asserts_literal(const char *text) { return strspn(text, "+-.0123456789eExXuUlLfF") == strlen(text); }

static inline void asserts_numbers(const char *what, long double is, const char *wanted, long double expected, const char *file,
                                   int line) {
    if (is == expected) return;
    asserts_fail(file, line, "%s\n    expected: %.20Lg%s%s\n    is:       %.20Lg\n", what, expected, ASSERTS_NAME(wanted), is);
}

/* Numbers of any type are equal; a NaN is not. */
#define assert_equal(x, expected) asserts_numbers(#x, x, #expected, expected, __FILE__, __LINE__)

static inline void asserts_integers(const char *what, uintmax_t is, const char *wanted, uintmax_t expected, const char *file,
                                    int line) {
    if (is == expected) return;
    asserts_fail(file, line, "%s\n    expected: %jd%s%s\n    is:       %jd\n", what, (intmax_t)expected, ASSERTS_NAME(wanted),
                 (intmax_t)is);
}

/* cmocka's prints neither what was compared nor decimal numbers. */
#undef assert_int_equal
#define assert_int_equal(x, expected) \
    asserts_integers(#x, (uintmax_t)(x), #expected, (uintmax_t)(expected), __FILE__, __LINE__)

static inline void asserts_near(const char *what, double is, const char *wanted, double expected, double tolerance,
                                const char *file, int line) {
    if (fabs(is - expected) <= tolerance) return;
    asserts_fail(file, line, "%s\n    expected: %.17g%s%s, within %.3g\n    is:       %.17g\n", what, expected,
                 ASSERTS_NAME(wanted), tolerance, is);
}

/* X is EXPECTED, give or take TOLERANCE. */
#define assert_near(x, expected, tolerance) asserts_near(#x, x, #expected, expected, tolerance, __FILE__, __LINE__)

static inline void asserts_contains(const char *what, const char *text, const char *part, const char *file, int line) {
    if (strstr(text, part)) return;
    asserts_fail(file, line, "%s\n    expected: a text with \"%s\"\n    is:       \"%s\"\n", what, part, text);
}

/* TEXT has PART in it. */
#define assert_contains(text, part) asserts_contains(#text, text, part, __FILE__, __LINE__)

/* ---- tests -------------------------------------------------------------------------------------------------------- */

/* A test whose name says what a user may rely on. */
#define sentence(name, test) { name, test, NULL, NULL, NULL }
#define sentence_with(name, test, setup, teardown) { name, test, setup, teardown, NULL }

enum { ASSERTS_MOST = 100 };
static const struct CMUnitTest *asserts_test[ASSERTS_MOST];     /* that run now, in this order */
static bool asserts_passed[ASSERTS_MOST];
static int asserts_now;

static inline int asserts_begin(void **state) {
    const struct CMUnitTest *test = asserts_test[++asserts_now];
    return test->setup_func ? test->setup_func(state) : 0;
}

static inline void asserts_run(void **state) {
    asserts_test[asserts_now]->test_func(state);
    asserts_passed[asserts_now] = true;
}

static inline int asserts_end(void **state) {
    const struct CMUnitTest *test = asserts_test[asserts_now];
    if (asserts_recover) asserts_recover();
    const int error = test->teardown_func ? test->teardown_func(state) : 0;
    if (error) asserts_passed[asserts_now] = false;
    return error;
}

/* A test that is skipped has not failed. */
#undef skip
#define skip() (asserts_passed[asserts_now] = true, _skip(__FILE__, __LINE__))

static inline void asserts_lacks(const char *message, const char *file, int line) {
    print_message("skipped: %.*s\n", (int)strcspn(message, "\n"), message);
    if (asserts_now < 0) exit(77);
    asserts_passed[asserts_now] = true;
    _skip(file, line);
}

/* The program of a build without the library with this NAME, for a file of which no test can be compiled. */
#define SKIPPED_WITHOUT(name)                                  \
    int main(void) {                                           \
        print_message("skipped: this build has no " name "\n"); \
        return 77;                                             \
    }

/* Defines TEST for a build without the library that has this OPTION of configure: it is skipped. */
#define TEST_WITHOUT(option, test)                                                       \
    static void test(void **state) {                                                     \
        (void)state;                                                                     \
        asserts_lacks("this build has no library for --with-" option, __FILE__, __LINE__); \
    }

/* The command, by the program's own name, not by that of the folder in which libtool hides it. */
static inline void asserts_repeat(const char *program, const char *name) {
    const char *source = getenv("srcdir");
    char path[4096];
    if (!realpath(program, path)) snprintf(path, sizeof path, "%s", program);
    char *hidden = strstr(path, "/.libs/");
    if (hidden) {
        const char *base = hidden + strlen("/.libs/");
        if (!strncmp(base, "lt-", 3)) base += 3;
        memmove(hidden + 1, base, strlen(base) + 1);
    }
    print_error("repeat: %s%s%s%s '%s'\n", source ? "srcdir=" : "", source ? source : "", source ? " " : "", path, name);
}

static inline bool asserts_chosen(const struct CMUnitTest *test, const char *word) { return !word || strstr(test->name, word); }

static inline int asserts_count(const struct CMUnitTest *test, int count, const char *word) {
    int chosen = 0;
    for (int i = 0; i < count; i++) chosen += asserts_chosen(&test[i], word);
    return chosen;
}

static inline int asserts_run_those(const char *group, const char *program, const char *word, const struct CMUnitTest *test,
                                  int count, CMFixtureFunction setup, CMFixtureFunction teardown) {
    struct CMUnitTest run[ASSERTS_MOST];
    int chosen = 0;
    if (count > ASSERTS_MOST) return print_error("%s: more than %d tests in one list\n", group, ASSERTS_MOST), 1;
    for (int i = 0; i < count; i++) {
        if (!asserts_chosen(&test[i], word)) continue;
        asserts_test[chosen] = &test[i];
        asserts_passed[chosen] = false;
        run[chosen] = test[i];
        run[chosen].setup_func = asserts_begin, run[chosen].test_func = asserts_run, run[chosen].teardown_func = asserts_end;
        chosen++;
    }
    if (!chosen) {
        print_error("no sentence contains '%s'; they are:\n", word ? word : "");
        for (int i = 0; i < count; i++) print_error("    %s\n", test[i].name);
        return 1;
    }
    asserts_now = -1;
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(asserts_dies);
    sgrad_log_set_callback(asserts_hear);
    const int failed = _cmocka_run_group_tests(group, run, (size_t)chosen, setup, teardown);
    sgrad_log_set_callback(NULL);
    for (int i = 0; i < chosen && failed; i++)
        if (!asserts_passed[i]) asserts_repeat(program, asserts_test[i]->name);
    return failed;
}

/* Runs the TESTS, an array, or those whose sentences contain the first argument; returns how many failed. */
#define run_sentences(argc, argv, tests, setup, teardown) run_sentences_named("tests", argc, argv, tests, setup, teardown)
#define run_sentences_named(name, argc, argv, tests, setup, teardown)                                                    \
    asserts_run_those(name, (argv)[0], asserts_word(argc, argv), tests, (int)(sizeof tests / sizeof *tests), setup, teardown)
/* How many of them would run. */
#define count_sentences(argc, argv, tests) asserts_count(tests, (int)(sizeof tests / sizeof *tests), asserts_word(argc, argv))
#define asserts_word(argc, argv) ((argc) > 1 ? (argv)[1] : NULL)

#endif
