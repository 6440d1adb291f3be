/* asserts.h: what cmocka lacks. */
#ifndef SGRAD_TESTS_GRAPHS_ASSERTS_H
#define SGRAD_TESTS_GRAPHS_ASSERTS_H

#include "tests/scratch.h"

#endif
