/* whitening.c: properties of whitening filters. The second moments of their outputs on patches are diagonal, and equal d/(d +
 * 5e-4) for the eigenvalues d of the moments of the patches, the largest first. The second half of the filters are the
 * negatives of the first. */
#include "codelets/ops/whitening.h"
#include "tests/codelets/check.h"

#include <math.h>

enum { KERNEL = 2, CHANNELS = 3, PATCH = KERNEL * KERNEL * CHANNELS, HEIGHT = 9, WIDTH = 7, IMAGES = 40 };

/* Neighbours are alike, and so are channels. */
static void draw(int image, float *pixels) {
    for (int i = 0; i < HEIGHT * WIDTH * CHANNELS; i++) pixels[i] = (float)instance_normal((uint32_t)image, i);
    for (int i = CHANNELS; i < HEIGHT * WIDTH * CHANNELS; i++) pixels[i] += 0.5f * pixels[i - CHANNELS] + 0.3f * pixels[i - 1];
}

static double moment(double (*sums)[PATCH], const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < PATCH; i++)
        for (int j = 0; j < PATCH; j++) sum += (double)a[i] * sums[i][j] * (double)b[j];
    return sum;
}

static void whitens(void **state) {
    (void)state;
    static float pixels[HEIGHT * WIDTH * CHANNELS], weight[2 * PATCH][PATCH], fewer[8][PATCH];
    static double sums[PATCH][PATCH];
    struct sgrad_whitening w = sgrad_whitening_create(KERNEL, CHANNELS);
    int patches = 0;
    for (int n = 0; n < IMAGES; n++) {
        draw(n, pixels);
        sgrad_whitening_add(&w, pixels, HEIGHT, WIDTH);
        for (int y = 0; y + KERNEL <= HEIGHT; y++)
            for (int x = 0; x + KERNEL <= WIDTH; x++, patches++)
                for (int i = 0; i < PATCH; i++)
                    for (int j = 0; j < PATCH; j++) {
                        const int row = KERNEL * CHANNELS;
                        sums[i][j] += (double)pixels[((y + i / row) * WIDTH + x) * CHANNELS + i % row] *
                                      (double)pixels[((y + j / row) * WIDTH + x) * CHANNELS + j % row];
                    }
    }
    for (int i = 0; i < PATCH; i++)
        for (int j = 0; j < PATCH; j++) sums[i][j] /= patches;
    assert_done(sgrad_whitening_filters(&w, PATCH, weight[0]));
    assert_done(sgrad_whitening_filters(&w, 4, fewer[0]));
    double before = INFINITY;
    for (int i = 0; i < PATCH; i++) {
        double length = 0, largest = 0;
        for (int j = 0; j < PATCH; j++) {
            assert_equal(weight[PATCH + i][j], -weight[i][j]);
            assert_true(i >= 4 || (fewer[i][j] == weight[i][j] && fewer[4 + i][j] == -weight[i][j]));
            length += (double)weight[i][j] * (double)weight[i][j];
            if (fabs(largest) < fabs((double)weight[i][j])) largest = (double)weight[i][j];
            if (i != j) assert_true(fabs(moment(sums, weight[i], weight[j])) < 1e-4);
        }
        const double value = 1 / length - 5e-4;
        assert_true(largest > 0 && value <= before * (1 + 1e-6));
        assert_near(moment(sums, weight[i], weight[i]), value / (value + 5e-4), 1e-4);
        before = value;
    }
    pixels[4] = NAN;
    sgrad_whitening_add(&w, pixels, HEIGHT, WIDTH);
    assert_int_not_equal(sgrad_whitening_filters(&w, PATCH, weight[0]), 0);
    sgrad_whitening_destroy(&w);
    w = sgrad_whitening_create(KERNEL, CHANNELS);
    assert_int_not_equal(sgrad_whitening_filters(&w, PATCH, weight[0]), 0);
    sgrad_whitening_destroy(&w);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("whitening filters make patches uncorrelated", whitens),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
