/* asserts.h: cmocka, and what it lacks. */
#ifndef SGRAD_TESTS_GRAPHS_ASSERTS_H
#define SGRAD_TESTS_GRAPHS_ASSERTS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* CALL returns ERROR and says TEXT, among other words. */
#define assert_fails(call, error, text)                                                        \
    do {                                                                                       \
        char *said = NULL;                                                                     \
        size_t size = 0;                                                                       \
        FILE *console = stderr;                                                                \
        stderr = open_memstream(&said, &size);                                                 \
        int got = (call);                                                                      \
        fclose(stderr);                                                                        \
        stderr = console;                                                                      \
        if (!strstr(said, text)) print_message("said '%s', expected '%s'\n", said, text);      \
        assert_int_equal(got, error);                                                          \
        assert_non_null(strstr(said, text));                                                   \
        free(said);                                                                            \
    } while (0)

/* X is Y, give or take TOLERANCE. */
#define assert_near(x, y, tolerance)                                                           \
    do {                                                                                       \
        double got = x, expected = y;                                                          \
        if (!(fabs(got - expected) <= tolerance)) fail_msg("%.17g is not %.17g", got, expected); \
    } while (0)

#endif
