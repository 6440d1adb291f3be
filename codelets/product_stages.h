/* product_stages.h: the three passes of product.c, which says what they do. */

/* M rows of sums, one panel wide: Z (M,N) = E (M,T) V (T,N), or added to it; strides between rows, and between terms. */
SGRAD_ALWAYS_INLINE void panel(int vectors, int64_t m, int64_t terms, const float *e, int64_t e_row, int64_t e_step,
                               const float *v, int64_t v_step, float *z, int64_t z_row, bool add) {
    int64_t i = 0;
    for (; i + ROWS <= m; i += ROWS)
        outer_sums(FLOATS, ROWS, vectors, terms, e + i * e_row, e_row, e_step, v, v_step, z + i * z_row, z_row, add);
#define REST(rows)                                                                                                               \
    if (m - i >= (rows)) {                                                                                                       \
        outer_sums(FLOATS, rows, vectors, terms, e + i * e_row, e_row, e_step, v, v_step, z + i * z_row, z_row, add);            \
        i += (rows);                                                                                                             \
    }
    if (ROWS > 8) REST(8)
    REST(4)
    REST(2)
    REST(1)
#undef REST
}

/* Z (M,N) = E (M,T) V (T,N), or added to it. V's rows are V_ROW apart, or, 0, V lies in panels. */
SGRAD_ALWAYS_INLINE void multiply(int64_t m, int64_t n, int64_t terms, int64_t piece, const float *e, int64_t e_row,
                                  int64_t e_step, const float *v, int64_t v_row, float *z, int64_t z_row, bool add) {
    for (int64_t from = 0, count; from < terms; from += count) {
        count = terms - from < piece ? terms - from : piece;
        for (int64_t column = 0, width; column < n; column += width) {
            width = n - column < 2 * LANES ? LANES : 2 * LANES;
            const int64_t step = v_row ? v_row : width;
            const float *left = e + from * e_step, *right = v + (v_row ? column : column * terms) + from * step;
            if (width == LANES) panel(1, m, count, left, e_row, e_step, right, step, z + column, z_row, add || from > 0);
            else panel(2, m, count, left, e_row, e_step, right, step, z + column, z_row, add || from > 0);
        }
    }
}

STAGE multiply_rows(int64_t m, int64_t n, int64_t terms, int64_t piece, const float *e, int64_t e_row, const float *v,
                    int64_t v_row, float *z, int64_t z_row, bool add) {
    multiply(m, n, terms, piece, e, e_row, 1, v, v_row, z, z_row, add);
}
STAGE multiply_columns(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_step, const float *v, int64_t v_row,
                       float *z, int64_t z_row, bool add) {
    multiply(m, n, terms, terms, e, 1, e_step, v, v_row, z, z_row, add);
}

STAGE widen(const uint16_t *x, int64_t count, float *to) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) *(packed *)(to + i) = load(SGRAD_BF16, x, i);
    for (; i < count; i++) to[i] = sgrad_get(SGRAD_BF16, x, i);
}

/* COUNT elements as floats: where they lie, or widened into ROOM. */
static const float *widened(enum sgrad_dtype dtype, const void *data, int64_t from, int64_t count, float *room) {
    if (dtype == SGRAD_F32) return (const float *)data + from;
    widen((const uint16_t *)data + from, count, room);
    return room;
}

/* COUNT sums, and the bias if there is one, to where they belong, or added to what is there. */
STAGE put_row(enum sgrad_dtype dtype, const float *sum, const float *bias, int64_t count, void *data, int64_t to, bool add) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec x = *(const packed *)(sum + i);
        if (bias) x += *(const packed *)(bias + i);
        if (add) x += load(dtype, data, to + i);
        store(false, dtype, data, to + i, x);
    }
    for (; i < count; i++)
        sgrad_put(dtype, data, to + i, sum[i] + (bias ? bias[i] : 0) + (add ? sgrad_get(dtype, data, to + i) : 0));
}

STAGE narrow_all(const float *x, int64_t count, uint16_t *to, bool add) { put_row(SGRAD_BF16, x, NULL, count, to, 0, add); }

/* The transpose of X (ROWS,COLUMNS) in panels; beyond its ROWS, which are less than PADDED, zeros. */
SGRAD_ALWAYS_INLINE void pack(enum sgrad_dtype dtype, const void *x, int64_t rows, int64_t columns, int64_t padded, float *to) {
    for (int64_t first = 0, width; first < padded; first += width) {
        width = padded - first < 2 * LANES ? LANES : 2 * LANES;
        const int64_t some = rows - first < width ? rows - first : width;
        for (int64_t c = 0; c < columns; c++, to += width) {
            for (int64_t r = 0; r < some; r++) to[r] = sgrad_get(dtype, x, (first + r) * columns + c);
            for (int64_t r = some; r < width; r++) to[r] = 0;
        }
    }
}
STAGE pack_either(enum sgrad_dtype dtype, const void *x, int64_t rows, int64_t columns, int64_t padded, float *to) {
    if (dtype == SGRAD_F32) pack(SGRAD_F32, x, rows, columns, padded, to);
    else pack(SGRAD_BF16, x, rows, columns, padded, to);
}

/* yᵀ = w xᵀ */
STAGE few_rows(const struct sgrad__layer *l, struct product p, void *const data[], float *room) {
    enum { K_AT_ONCE = 8 * ROWS };
    const enum sgrad_dtype dtype = (enum sgrad_dtype)l->dtype;
    const float *w = data[1], *bias = l->bias ? data[2] : NULL;
    float *right = room + p.right, *sums = room + p.sums, row[LANES];
    pack_either(dtype, data[0], p.rows, p.in, p.padded, right);
    for (int64_t k = 0, count; k < p.out; k += count) {
        count = p.out - k < K_AT_ONCE ? p.out - k : K_AT_ONCE;
        multiply_rows(count, p.padded, p.in, p.piece, w + k * p.in, p.in, right, 0, sums, p.padded, false);
        for (int64_t r = 0; r < p.rows; r++)
            for (int64_t i = 0, some; i < count; i += some) {
                some = count - i < LANES ? count - i : LANES;
                for (int64_t j = 0; j < some; j++) row[j] = sums[(i + j) * p.padded + r];
                put_row(dtype, row, bias ? bias + k + i : NULL, some, data[3], r * p.out + k + i, l->accumulate);
            }
    }
}

/* y = x wᵀ */
STAGE forward(const struct sgrad__layer *l, struct product p, void *const data[], float *room) {
    const enum sgrad_dtype dtype = (enum sgrad_dtype)l->dtype;
    const float *bias = l->bias ? data[2] : NULL;
    float *right = room + p.right, *sums = room + p.sums;
    if (p.few) {
        few_rows(l, p, data, room);
        return;
    }
    pack_either(SGRAD_F32, data[1], p.out, p.in, p.padded, right);
    for (int64_t i = 0, count; i < p.rows; i += count) {
        count = p.rows - i < p.block ? p.rows - i : p.block;
        const float *left = widened(dtype, data[0], i * p.in, count * p.in, room);
        float *z = p.aside ? sums : (float *)data[3] + i * p.out;
        multiply_rows(count, p.padded, p.in, p.piece, left, p.in, right, 0, z, p.padded, !p.aside && l->accumulate);
        for (int64_t r = 0; r < count && (p.aside || bias); r++)
            put_row(dtype, z + r * p.padded, bias, p.out, data[3], (i + r) * p.out, p.aside && l->accumulate);
    }
}

/* dx = dy w */
STAGE backward_data(const struct sgrad__layer *l, struct product p, void *const data[], float *room) {
    const enum sgrad_dtype dtype = (enum sgrad_dtype)l->dtype;
    for (int64_t i = 0, count; i < p.rows; i += count) {
        count = p.rows - i < p.block ? p.rows - i : p.block;
        const float *left = widened(dtype, data[0], i * p.out, count * p.out, room);
        float *z = p.aside ? room + p.sums : (float *)data[2] + i * p.in;
        multiply_rows(count, p.in, p.out, p.piece, left, p.out, data[1], p.in, z, p.in, !p.aside && l->accumulate);
        if (p.aside) put_row(dtype, z, NULL, count * p.in, data[2], i * p.in, l->accumulate);
    }
}

/* dw = dyᵀ x */
STAGE backward_weight(const struct sgrad__layer *l, struct product p, void *const data[], float *room) {
    const enum sgrad_dtype dtype = (enum sgrad_dtype)l->dtype;
    float *dbias = l->bias ? data[3] : NULL;
    if (dbias && !l->accumulate) memset(dbias, 0, (size_t)p.out * sizeof *dbias);
    for (int64_t i = 0, count; i < p.rows; i += count) {
        count = p.rows - i < p.piece ? p.rows - i : p.piece;
        const float *right = widened(dtype, data[0], i * p.in, count * p.in, room + p.right),
                    *left = widened(dtype, data[1], i * p.out, count * p.out, room);
        multiply_columns(p.out, p.in, count, left, p.out, right, p.in, data[2], p.in, l->accumulate || i > 0);
        for (int64_t r = 0; r < count && dbias; r++)
            for (int64_t k = 0; k < p.out; k++) dbias[k] += left[r * p.out + k];
    }
}
