/* Names that differ in one byte get different numbers, in the order of their first occurrence. */
#include "config.h"
#include "report/numbers.h"
#include "tests/scratch.h"

enum { MANY = 100000 };

static void in_order(void **state) {
    (void)state;
    struct sgrad__numbers numbers = { 0 };
    assert_int_equal(sgrad__number_find(&numbers, "a", 1), -1);
    for (int again = 0; again < 2; again++)
        for (int i = 0; i < MANY; i++) assert_int_equal(sgrad__number(&numbers, (int[]){ i % 100, i }, sizeof(int[2])), i);
    assert_int_equal(numbers.count, MANY);
    assert_int_equal(sgrad__number_find(&numbers, (int[]){ 7, 100007 }, sizeof(int[2])), -1);
    sgrad__numbers_free(&numbers);
}

static void of_any_length(void **state) {
    (void)state;
    struct sgrad__numbers numbers = { 0 };
    assert_int_equal(sgrad__number(&numbers, "bucket 1", 8), 0);
    assert_int_equal(sgrad__number(&numbers, "bucket 12", 9), 1);
    assert_int_equal(sgrad__number(&numbers, "", 0), 2);
    assert_int_equal(sgrad__number(&numbers, "bucket 12", 8), 0);
    assert_int_equal(sgrad__number(&numbers, "", 0), 2);
    assert_int_equal(sgrad__number_find(&numbers, "bucket 12", 9), 1);
    sgrad__numbers_free(&numbers);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("numbers are given in the order of first occurrence", in_order),
        sentence("names that differ in length or in one byte have different numbers", of_any_length),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
