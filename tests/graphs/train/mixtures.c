/* The order of the samples of a mixture of sources. */
#include "config.h"
#include "datasets/sampler.h"
#include "tests/asserts.h"

/* A mixture of 10, 3 and 7 samples, whose shares of an epoch of 20 positions are 4, 10 and 6. */
static void mixtures(void **state) {
    (void)state;
    enum { ALL = 20, SOURCES = 3, EPOCHS = 10 };
    const struct sgrad_source source[SOURCES] = { { .first = 0, .count = 10, .quota = 4 },
                                                  { .first = 10, .count = 3, .quota = 10 },
                                                  { .first = 13, .count = 7, .quota = 6 } };
    struct sgrad__sampler o = { .seed = 5, .count = ALL, .shuffle = true, .sources = SOURCES, .source = source }, again = o;
    int times[ALL] = { 0 }, seen[SOURCES] = { 0 };
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        int in[SOURCES] = { 0 };
        for (int i = 0; i < ALL; i++) {
            const int64_t sample = sgrad__sampler_index(&o, epoch, i);
            assert_in_range(sample, 0, ALL - 1);
            in[sample < 10 ? 0 : sample < 13 ? 1 : 2]++;
            times[sample]++;
        }
        for (int s = 0; s < SOURCES; s++) {     /* each pass over a source has all its samples before the next one begins */
            assert_int_equal(in[s], source[s].quota);
            seen[s] += in[s];
            for (int64_t i = source[s].first; i < source[s].first + source[s].count; i++)
                assert_in_range(times[i], seen[s] / source[s].count, (seen[s] + source[s].count - 1) / source[s].count);
        }
    }
    for (int i = 0; i < ALL; i++)               /* whatever was asked before */
        assert_int_equal(sgrad__sampler_index(&again, EPOCHS - 1, i), sgrad__sampler_index(&o, EPOCHS - 1, i));
    sgrad__sampler_close(&o);
    sgrad__sampler_close(&again);
}

/* In the order of the files, the sources alternate, and each continues where it stopped. */
static void mixtures_in_order(void **state) {
    (void)state;
    const struct sgrad_source source[] = { { .first = 0, .count = 4, .quota = 4 }, { .first = 4, .count = 4, .quota = 2 },
                                           { .first = 8, .count = 1, .quota = 3 } };
    struct sgrad__sampler o = { .count = 9, .sources = 3, .source = source };
    const int wanted[2][9] = { { 0, 8, 4, 1, 8, 2, 5, 8, 3 }, { 0, 8, 6, 1, 8, 2, 7, 8, 3 } };
    for (int i = 0; i < 18; i++) assert_int_equal(sgrad__sampler_index(&o, (uint32_t)i / 9, i % 9), wanted[i / 9][i % 9]);
    assert_int_equal(sgrad__sampler_index(&o, 2, 2), 4);
    sgrad__sampler_close(&o);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("each source has its share of every epoch, and all its samples in turn", mixtures),
        sentence("without a random order, the sources alternate", mixtures_in_order),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
