/* tiles.c: each pass of the AMX kernels equals, to the bit, a plain sum over all taps, for layers that cover every branch,
 * both when the result is written and when it is added. The numbers have so few bits that F32 represents all sums of their
 * products exactly, in any order. A sample also has the same bits if it is computed without the others. */
#include "codelets/cpu/tiles.h"
#include "tests/codelets/check.h"

static const struct sgrad__layer layers[] = {
#define SIDE_OF(in, taps, step, apart, pad) (((in) + 2 * (pad) - (apart) * ((taps)-1) - 1) / (step) + 1)
#define LAYER(samples, height, width, in, out, rows, columns, step, apart, pad)                                                  \
    {                                                                                                                            \
        .rank = 4, .dtype = SGRAD_BF16, .stride = step, .dilation = apart, .padding = pad, .groups = 1,                          \
        .x = { samples, height, width, in }, .w = { out, rows, columns, in }, .y = {                                             \
            samples,                                                                                                             \
            SIDE_OF(height, rows, step, apart, pad),                                                                             \
            SIDE_OF(width, columns, step, apart, pad),                                                                           \
            out                                                                                                                  \
        }                                                                                                                        \
    }
    LAYER(5, 18, 17, 16, 16, 3, 3, 1, 1, 1),        /* two taps a tile; two tiles across a row, which overlap */
    LAYER(3, 9, 31, 24, 40, 3, 3, 1, 1, 1),         /* channels that fill no tile, filters that fill no panel */
    LAYER(2, 12, 40, 3, 20, 5, 5, 1, 1, 2),         /* five taps a tile */
    LAYER(33, 7, 7, 64, 64, 3, 3, 1, 1, 1),         /* tiles of samples; a group of one sample */
    LAYER(20, 6, 5, 36, 32, 3, 3, 1, 1, 1),         /* the same, of which channels fill no tile */
    LAYER(17, 4, 4, 32, 20, 3, 3, 1, 2, 2),         /* taps apart */
    LAYER(40, 3, 3, 32, 96, 5, 5, 1, 1, 2),         /* filters larger than images */
    LAYER(20, 4, 4, 32, 32, 1, 1, 1, 1, 1),         /* tiles of samples that no tap reaches */
    LAYER(3, 15, 16, 32, 48, 3, 3, 2, 1, 1),        /* strides: pixels with a like remainder */
    LAYER(20, 9, 9, 32, 32, 3, 3, 2, 1, 1),         /* the same by samples */
    LAYER(2, 9, 35, 16, 16, 3, 3, 2, 1, 1),         /* backward one tap and two, two a tile */
    LAYER(7, 33, 33, 16, 32, 3, 3, 2, 1, 1),        /* images copied anew for each */
    LAYER(2, 10, 30, 16, 32, 1, 1, 2, 1, 0),        /* pixels that no tap reaches */
    LAYER(20, 8, 8, 32, 32, 1, 1, 2, 1, 0),         /* such of many narrow images, two columns of tiles at once */
    LAYER(64, 1, 1, 16, 16, 1, 1, 2, 1, 0),         /* one pixel, and a stride */
    LAYER(5, 1, 1, 16, 16, 1, 1, 1, 1, 1),          /* one pixel, and padding */
    LAYER(1, 60, 1, 16, 16, 1, 1, 50, 1, 20),       /* padding wider than what is read */
    LAYER(4, 8, 22, 32, 16, 2, 3, 3, 1, 0),         /* a stride as wide as the filter */
    LAYER(2, 6, 35, 20, 16, 3, 3, 1, 3, 3),         /* taps apart, and channels that fill no tile */
    LAYER(6, 40, 40, 64, 16, 3, 3, 1, 1, 1),        /* several bands, and copies of fewer images than there are */
    LAYER(2, 9, 19, 32, 48, 1, 1, 1, 1, 0),         /* a matrix product */
    LAYER(1, 1, 100, 33, 18, 1, 1, 1, 1, 0),        /* an odd one */
    LAYER(1, 1, 12300, 32, 16, 1, 1, 1, 1, 0),      /* one of many rows, in several bands and blocks */
    LAYER(2, 5, 6, 32, 16, 1, 7, 1, 1, 3),          /* more taps than tiles of sums */
    LAYER(1, 3, 4, 4, 6, 2, 2, 1, 1, 1),            /* a small one */
    LAYER(2, 3, 3, 4, 5, 5, 5, 1, 1, 1),            /* a filter as large as the padded image, to an odd number */
};

static size_t count_of(const int32_t dim[4]) { return (size_t)dim[0] * (size_t)dim[1] * (size_t)dim[2] * (size_t)dim[3]; }

/* Numbers from -1 to 1, of eight bits. */
static void *numbers(enum sgrad_dtype dtype, size_t count) {
    void *all = sgrad_xcalloc(count, sgrad_dtype_size(dtype));
    for (size_t i = 0; i < count; i++) sgrad_put(dtype, all, (int64_t)i, (float)((i * 2654435761u >> 8) % 129) / 64 - 1);
    return all;
}

/* For each output, weight and input that meet. */
struct sums {
    double *x, *w, *y;
    const uint16_t *is_x, *is_y;
    const float *is_w;
};
static void sum(const struct sgrad__layer *layer, const struct sums *sums) {
    const int32_t *x = layer->x, *w = layer->w, *y = layer->y;
    for (int n = 0; n < y[0]; n++)
        for (int p = 0; p < y[1]; p++)
            for (int q = 0; q < y[2]; q++)
                for (int r = 0; r < w[1]; r++)
                    for (int t = 0; t < w[2]; t++) {
                        const int i = p * layer->stride + r * layer->dilation - layer->padding,
                                  j = q * layer->stride + t * layer->dilation - layer->padding;
                        if (i < 0 || i >= x[1] || j < 0 || j >= x[2]) continue;
                        for (int k = 0; k < w[0]; k++)
                            for (int c = 0; c < w[3]; c++) {
                                const int at_x = ((n * x[1] + i) * x[2] + j) * x[3] + c,
                                          at_y = ((n * y[1] + p) * y[2] + q) * y[3] + k,
                                          at_w = ((k * w[1] + r) * w[2] + t) * w[3] + c;
                                if (sums->x) sums->x[at_x] += sgrad_bf16_to_f32(sums->is_y[at_y]) * sums->is_w[at_w];
                                else if (sums->w)
                                    sums->w[at_w] += sgrad_bf16_to_f32(sums->is_x[at_x]) * sgrad_bf16_to_f32(sums->is_y[at_y]);
                                else sums->y[at_y] += sgrad_bf16_to_f32(sums->is_x[at_x]) * sums->is_w[at_w];
                            }
                    }
}

/* BYTES that begin at a cache line, full of NaNs, and more behind them: sanitizers do not see what tiles are written to. */
enum { BEHIND = 4096 };
struct room {
    char *all, *at;
    size_t bytes;
};
static struct room room_of(size_t bytes) {
    char *all = sgrad_xcalloc(bytes + SGRAD_LINE + BEHIND, 1);
    memset(all, 0xff, bytes + SGRAD_LINE + BEHIND);
    return (struct room){ all, (char *)sgrad_aligned((size_t)all), bytes };
}
static void leave(struct room room) {
    for (size_t i = 0; i < BEHIND; i++) assert_int_equal((uint8_t)room.at[room.bytes + i], 0xff);
    free(room.all);
}

/* With the weight packed before, if the layer says so, as one sample's layer packs it. */
static void run(const struct sgrad__layer *layer, void *const given[4]) {
    void *data[] = { given[0], given[1], given[2], given[3] };
    struct sgrad__layer one = *layer;
    one.x[0] = one.y[0] = 1;
    struct room packed = room_of(layer->packed ? sgrad__tiles_packed(layer) : 0), room = room_of(sgrad__tiles_workspace(layer));
    if (layer->packed) {
        assert_int_equal(sgrad__tiles_packed(&one), packed.bytes);
        sgrad__tiles_pack(&one, data[1], packed.at);
        data[1] = packed.at;
    }
    sgrad__tiles_run(layer, data, (float *)room.at);
    leave(packed);
    leave(room);
}

static void same(const struct sgrad__layer *layer, int which, enum sgrad_dtype dtype, const void *got, const double *wanted,
                 const void *before, const float *bias, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const float there = before ? sgrad_get(dtype, before, (int64_t)i) : 0;
        const float sum = (float)wanted[i] + (bias ? bias[i % (size_t)layer->w[0]] : 0) + there;
        const float is = sgrad_get(dtype, got, (int64_t)i),
                    want = dtype == SGRAD_F32 ? sum : sgrad_bf16_to_f32(sgrad_f32_to_bf16(sum));
        if (is != want)
            fail_msg("layer %d, pass %d%s, element %zu: %g instead of %g", which, layer->pass, before ? ", added" : "", i,
                     (double)is, (double)want);
    }
}

/* One pass of layer WHICH: X, Y and W are its operands, of which one is the result. */
static void check(int which, enum sgrad__pass pass, bool add, bool packed) {
    struct sgrad__layer l = layers[which];
    const size_t x = count_of(l.x), y = count_of(l.y), w = count_of(l.w), k = (size_t)l.w[0];
    l.pass = pass, l.accumulate = add, l.packed = packed, l.bias = pass != SGRAD__BACKWARD_DATA;
    void *at_x = numbers(SGRAD_BF16, x), *at_y = numbers(SGRAD_BF16, y), *at_w = numbers(SGRAD_F32, w),
         *bias = numbers(SGRAD_F32, k);
    const struct out {
        int of;
        size_t count;
        enum sgrad_dtype dtype;
        void *at;
    } out = pass == SGRAD__FORWARD         ? (struct out){ 3, y, SGRAD_BF16, at_y }
            : pass == SGRAD__BACKWARD_DATA ? (struct out){ 2, x, SGRAD_BF16, at_x }
                                           : (struct out){ 2, w, SGRAD_F32, at_w };
    void *before = numbers(out.dtype, out.count);
    double *wanted = sgrad_xcalloc(out.count, sizeof *wanted);
    memset(wanted, 0, out.count * sizeof *wanted);
    sum(&l, &(struct sums){ pass == SGRAD__BACKWARD_DATA ? wanted : NULL, pass == SGRAD__BACKWARD_WEIGHT ? wanted : NULL, wanted,
                            at_x, at_y, at_w });
    void *data[4] = { pass == SGRAD__BACKWARD_DATA ? at_y : at_x, pass == SGRAD__BACKWARD_WEIGHT ? at_y : at_w, NULL, NULL };
    data[pass == SGRAD__FORWARD ? 2 : 3] = bias;
    data[out.of] = out.at;
    run(&l, data);
    same(&l, which, out.dtype, out.at, wanted, add ? before : NULL, pass == SGRAD__FORWARD ? bias : NULL, out.count);
    if (pass == SGRAD__BACKWARD_WEIGHT)
        for (size_t i = 0; i < k; i++) {
            double all = add ? (double)((i * 2654435761u >> 8) % 129) / 64 - 1 : 0;
            for (size_t j = i; j < y; j += k) all += sgrad_bf16_to_f32(((uint16_t *)at_y)[j]);
            if (((float *)bias)[i] != (float)all)
                fail_msg("layer %d, bias %zu: %g instead of %g", which, i, (double)((float *)bias)[i], all);
        }
    else if (!add) {
        const size_t samples = (size_t)l.x[0], in = (pass == SGRAD__FORWARD ? x : y) / samples, of = out.count / samples;
        uint16_t *one = sgrad_xcalloc(of, sizeof *one);
        l.x[0] = l.y[0] = 1;
        for (size_t n = 0; n < samples; n += samples / 2 + 1) {
            data[0] = (uint16_t *)(pass == SGRAD__FORWARD ? at_x : at_y) + n * in;
            data[out.of] = one;
            run(&l, data);
            assert_memory_equal(one, (uint16_t *)out.at + n * of, of * sizeof *one);
        }
        free(one);
    }
    void *all[] = { at_x, at_y, at_w, bias, before, wanted };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void are_sums(void **state) {
    (void)state;
    for (int i = 0; i < (int)(sizeof layers / sizeof *layers); i++)
        for (enum sgrad__pass pass = 0; pass < SGRAD__PASSES; pass++) {
            struct sgrad__layer l = layers[i];
            l.pass = pass;
            for (int how = 0; how < 4 && sgrad__tiles_open(&l); how++)
                if (how < 2 || pass != SGRAD__BACKWARD_WEIGHT) check(i, pass, how % 2, how / 2);
        }
}

int main(int argc, char **argv) {
    struct sgrad__layer l = layers[0];
    if (!sgrad__tiles_open(&l)) {
        puts("skipped: this processor has no AMX");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        sentence("convolutions by AMX tiles equal plain sums to the bit", are_sums),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
