/* pixels_stages.h: the three passes of pixels.c, which describes them. Included by isa_avx2.c and isa_avx512.c. */

/* An output pixel P and an input pixel Q that are connected by a tap of the filter. */
struct pair {
    int64_t p, q;
};
enum { MOST_PAIRS = 64 };       /* of a tap: at most one per pixel of y */

/* Writes the pairs of TAP to PAIR. Returns their number. */
static int pairs_of(const struct sgrad__layer *layer, int64_t tap, struct pair pair[MOST_PAIRS]) {
    const int64_t down = tap / layer->w[2] * layer->dilation - layer->padding,
                  right = tap % layer->w[2] * layer->dilation - layer->padding;
    int count = 0;
    for (int64_t p = 0; p < (int64_t)layer->y[1] * layer->y[2]; p++) {
        const int64_t row = p / layer->y[2] * layer->stride + down, column = p % layer->y[2] * layer->stride + right;
        const bool inside = row >= 0 && row < layer->x[1] && column >= 0 && column < layer->x[2];
        if (inside) pair[count++] = (struct pair){ p, row * layer->x[2] + column };
    }
    return count;
}

/* Transposes x (SAMPLES,PIXELS,CHANNELS) to (PIXELS,CHANNELS,PADDED), where the matrix of each pixel is packed in panels
 * (product_stages.h). Samples after the last one are zeros. */
STAGE turn_samples(const struct pixels *s, enum sgrad_dtype dtype, const void *x, int64_t pixels, int64_t channels, float *to) {
    for (int64_t q = 0; q < pixels; q++)
        for (int64_t first = 0, width; first < s->padded; first += width, to += width * channels) {
            width = s->padded - first < 2 * LANES ? LANES : 2 * LANES;
            for (int64_t c = 0; c < channels; c += LANES)
                for (int64_t n = 0; n < width; n++) {
                    vec some = { 0 };
                    if (first + n < s->samples) some = load(dtype, x, ((first + n) * pixels + q) * channels + c);
                    for (int64_t i = 0; i < LANES; i++) to[(c + i) * width + n] = some[i];
                }
        }
}

/* Forward: y_pᵀ += w_t x_qᵀ in Z (PIXELS,K,PADDED), over all taps and their pairs; then y from Z. */
STAGE pixels_forward(const struct sgrad__layer *layer, struct pixels s, void *const data[], float *room) {
    enum { AT_ONCE = 16 * ROWS };
    const enum sgrad_dtype dtype = (enum sgrad_dtype)layer->dtype;
    const float *w = data[1], *bias = layer->bias ? data[2] : NULL;
    float *z = room + s.left, row[LANES];
    struct pair pair[MOST_PAIRS];
    turn_samples(&s, dtype, data[0], s.ins, s.in, room);
    memset(z, 0, sizeof *z * (size_t)(s.outs * s.out * s.padded));
    for (int64_t tap = 0; tap < s.taps; tap++) {
        const int pairs = pairs_of(layer, tap, pair);
        for (int64_t k = 0, count; k < s.out; k += count) {
            count = s.out - k < AT_ONCE ? s.out - k : AT_ONCE;
            for (int i = 0; i < pairs; i++)
                multiply_rows(count, s.padded, s.in, w + (k * s.taps + tap) * s.in, s.taps * s.in,
                              room + pair[i].q * s.in * s.padded, 0, z + (pair[i].p * s.out + k) * s.padded, s.padded, true);
        }
    }
    for (int64_t p = 0; p < s.outs; p++)
        for (int64_t k = 0, some; k < s.out; k += some) {
            some = s.out - k < LANES ? s.out - k : LANES;
            for (int64_t n = 0; n < s.samples; n++) {
                for (int64_t i = 0; i < some; i++) row[i] = z[(p * s.out + k + i) * s.padded + n];
                put_row(dtype, row, bias ? bias + k : NULL, some, data[3], (n * s.outs + p) * s.out + k, layer->accumulate);
            }
        }
}

/* Packs COUNT rows of the matrix of a tap, w_t, in panels. W is the first row. */
STAGE copy_tap(const struct pixels *pixels, const float *w, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++, w += pixels->taps * pixels->in)
        for (int64_t c = 0, width; c < pixels->in; c += width) {
            width = pixels->in - c < 2 * LANES ? LANES : 2 * LANES;
            copy(w + c, width, to + c * count + i * width);
        }
}

/* Backward-data: dx_q += dy_p w_t over all taps and their pairs. */
STAGE pixels_backward_data(const struct sgrad__layer *layer, struct pixels s, void *const data[], float *room) {
    const enum sgrad_dtype dtype = (enum sgrad_dtype)layer->dtype;
    const int64_t all = s.samples * s.ins * s.in;
    const float *dy = widened(dtype, data[0], 0, s.samples * s.outs * s.out, room), *w = data[1];
    float *panels = room + s.left, *dx = dtype == SGRAD_F32 ? data[2] : room + s.sums;
    struct pair pair[MOST_PAIRS];
    if (dtype != SGRAD_F32 || !layer->accumulate) memset(dx, 0, sizeof *dx * (size_t)all);
    for (int64_t tap = 0; tap < s.taps; tap++) {
        const int pairs = pairs_of(layer, tap, pair);
        for (int64_t k = 0, count; k < s.out && pairs; k += count) {
            count = s.out - k < PIECE ? s.out - k : PIECE;
            copy_tap(&s, w + (k * s.taps + tap) * s.in, count, panels);
            for (int i = 0; i < pairs; i++)
                multiply_rows(s.samples, s.in, count, dy + pair[i].p * s.out + k, s.outs * s.out, panels, 0,
                              dx + pair[i].q * s.in, s.ins * s.in, true);
        }
    }
    if (dtype != SGRAD_F32) put_row(dtype, dx, NULL, all, data[2], 0, layer->accumulate);
}

/* Copies COUNT elements, from element FROM on, to TO as floats. */
SGRAD_ALWAYS_INLINE void gather(enum sgrad_dtype dtype, const void *data, int64_t from, int64_t count, float *to) {
    if (dtype == SGRAD_F32) copy((const float *)data + from, count, to);
    else widen((const uint16_t *)data + from, count, to);
}

/* Backward-weight: dw_t = Σ dy_pᵀ x_q over the pairs of the tap and all samples; dbias = Σ dy. */
STAGE pixels_backward_weight(const struct sgrad__layer *layer, struct pixels s, void *const data[], float *room) {
    const enum sgrad_dtype dtype = (enum sgrad_dtype)layer->dtype;
    float *right = room + s.left, *dw = data[2], *dbias = layer->bias ? data[3] : NULL;
    struct pair pair[MOST_PAIRS];
    for (int64_t tap = 0; tap < s.taps; tap++) {
        const int pairs = pairs_of(layer, tap, pair);
        int64_t row = 0;
        for (int i = 0; i < pairs; i++)
            for (int64_t n = 0; n < s.samples; n++, row++) {
                gather(dtype, data[1], (n * s.outs + pair[i].p) * s.out, s.out, room + row * s.out);
                gather(dtype, data[0], (n * s.ins + pair[i].q) * s.in, s.in, right + row * s.in);
            }
        float *z = dw + tap * s.in;
        if (pairs) multiply_columns(s.out, s.in, row, room, s.out, right, s.in, z, s.taps * s.in, layer->accumulate);
        else if (!layer->accumulate)
            for (int64_t k = 0; k < s.out; k++) memset(z + k * s.taps * s.in, 0, sizeof *z * (size_t)s.in);
    }
    if (!dbias) return;
    if (!layer->accumulate) memset(dbias, 0, sizeof *dbias * (size_t)s.out);
    for (int64_t i = 0; i < s.samples * s.outs; i++)
        for (int64_t k = 0; k < s.out; k++) dbias[k] += sgrad_get(dtype, data[1], i * s.out + k);
}
