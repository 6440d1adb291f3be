/* winograd.c: properties of the Winograd kernels that fused tasks rely on. A sample has the same bits alone and among others,
 * in blocks of tiles and in chunks of channels. Results can be added to an output. The gradient of a weight is the sum of
 * those of single samples. tests/codelets/operations.c checks the values. */
#include "codelets/cpu/winograd.h"
#include "tests/codelets/check.h"

static const struct layer {
    int side, height, width, channels, filters, padding;
} layers[] = { { 3, 18, 17, 16, 16, 1 }, { 3, 26, 24, 16, 48, 0 }, { 3, 5, 6, 176, 192, 1 }, { 3, 3, 3, 32, 32, 2 },
               { 5, 18, 17, 16, 48, 2 }, { 5, 5, 6, 176, 192, 2 }, { 5, 9, 8, 32, 16, 0 } };
enum { SAMPLES = 5 };

/* Elements of a sample's x and y. */
static size_t x_of(const struct layer *is) { return (size_t)(is->height * is->width * is->channels); }
static size_t y_of(const struct layer *is) {
    return (size_t)((is->height + 2 * is->padding + 1 - is->side) * (is->width + 2 * is->padding + 1 - is->side) * is->filters);
}

/* COUNT numbers from -1 to 1, of few bits, so that some sums are exact. */
static void *numbers(enum sgrad_dtype dtype, size_t count) {
    void *all = sgrad_xcalloc(count, sgrad_dtype_size(dtype));
    for (size_t i = 0; i < count; i++) sgrad_put(dtype, all, (int64_t)i, (float)((i * 2654435761u >> 8) % 129) / 64 - 1);
    return all;
}

static void run(const struct layer *is, enum sgrad_dtype dtype, enum sgrad__pass pass, int samples, bool add, const void *in,
                const void *second, void *out) {
    const int32_t h = is->height + 2 * is->padding + 1 - is->side, w = is->width + 2 * is->padding + 1 - is->side;
    struct sgrad__layer l = { .pass = pass,
                              .rank = 4,
                              .dtype = dtype,
                              .accumulate = add,
                              .stride = 1,
                              .dilation = 1,
                              .padding = is->padding,
                              .groups = 1,
                              .x = { samples, is->height, is->width, is->channels },
                              .w = { is->filters, is->side, is->side, is->channels },
                              .y = { samples, h, w, is->filters } };
    void *data[4] = { (void *)in, (void *)second, NULL, NULL };
    void *room = sgrad_xcalloc(sgrad__winograd_workspace(&l) + SGRAD_LINE, 1);
    data[pass == SGRAD__FORWARD ? 3 : 2] = out;
    assert_true(sgrad__winograd_open(&l));
    sgrad__winograd_run(&l, data, (float *)sgrad_aligned((size_t)room));
    free(room);
}

static void check(const struct layer *is, enum sgrad_dtype dtype, enum sgrad__pass pass) {
    const size_t x = x_of(is), y = y_of(is), inputs = pass == SGRAD__FORWARD ? x : y, outputs = x + y - inputs,
                 bytes = sgrad_dtype_size(dtype);
    char *in = numbers(dtype, SAMPLES * inputs), *all = numbers(dtype, SAMPLES * outputs), *one = numbers(dtype, outputs),
         *sum = numbers(dtype, outputs);
    float *weight = numbers(SGRAD_F32, (size_t)(is->side * is->side * is->filters * is->channels));
    run(is, dtype, pass, SAMPLES, false, in, weight, all);
    for (size_t n = 0; n < SAMPLES; n++) {
        run(is, dtype, pass, 1, false, in + n * inputs * bytes, weight, one);
        assert_memory_equal(one, all + n * outputs * bytes, outputs * bytes);
    }
    memcpy(sum, one, outputs * bytes);
    run(is, dtype, pass, 1, true, in + (SAMPLES - 1) * inputs * bytes, weight, sum);
    for (size_t i = 0; i < outputs; i++) {
        const float once = sgrad_get(dtype, one, (int64_t)i), twice = sgrad_get(dtype, sum, (int64_t)i);
        if (fabsf(twice - 2 * once) > 0.01f * (1 + fabsf(once)))
            fail_msg("element %zu: %g added to itself is %g", i, (double)once, (double)twice);
    }
    free(in);
    free(all);
    free(one);
    free(sum);
    free(weight);
}

static void samples_are_alone(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (int dtype = 0; dtype < 2; dtype++) {
            check(&layers[i], dtype ? SGRAD_BF16 : SGRAD_F32, SGRAD__FORWARD);
            check(&layers[i], dtype ? SGRAD_BF16 : SGRAD_F32, SGRAD__BACKWARD_DATA);
        }
}

/* Rounding to bf16, where it happens, comes before anything is added. */
static void check_weight(const struct layer *is, enum sgrad_dtype dtype) {
    const size_t x = x_of(is), y = y_of(is), bytes = sgrad_dtype_size(dtype);
    const size_t weight = (size_t)(is->side * is->side * is->filters * is->channels);
    char *in = numbers(dtype, SAMPLES * x), *dy = numbers(dtype, SAMPLES * y);
    float *all = numbers(SGRAD_F32, weight), *sum = numbers(SGRAD_F32, weight), largest = 0;
    run(is, dtype, SGRAD__BACKWARD_WEIGHT, SAMPLES, false, in, dy, all);
    for (size_t n = 0; n < SAMPLES; n++)
        run(is, dtype, SGRAD__BACKWARD_WEIGHT, 1, n > 0, in + n * x * bytes, dy + n * y * bytes, sum);
    for (size_t i = 0; i < weight; i++) largest = fmaxf(largest, fabsf(all[i]));
    for (size_t i = 0; i < weight; i++)
        if (fabsf(sum[i] - all[i]) > 1e-5f * largest)
            fail_msg("element %zu: %g of all samples, %g in turns; largest %g", i, (double)all[i], (double)sum[i],
                     (double)largest);
    free(in);
    free(dy);
    free(all);
    free(sum);
}

static void weights_are_sums(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        check_weight(&layers[i], SGRAD_F32);
        check_weight(&layers[i], SGRAD_BF16);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("the results of a sample by Winograd do not depend on the other samples", samples_are_alone),
        sentence("the gradient of a weight by Winograd is the sum over samples", weights_are_sums),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
