/* asserts.h: what cmocka lacks. */
#ifndef SGRAD_TESTS_GRAPHS_ASSERTS_H
#define SGRAD_TESTS_GRAPHS_ASSERTS_H

#include "tests/scratch.h"

#include <math.h>

/* X is Y, give or take TOLERANCE. */
#define assert_near(x, y, tolerance)                                                           \
    do {                                                                                       \
        double got = x, expected = y;                                                          \
        if (!(fabs(got - expected) <= tolerance)) fail_msg("%.17g is not %.17g", got, expected); \
    } while (0)

#endif
