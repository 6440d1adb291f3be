/* product_stages.h: the three passes of product.c, which describes them. Included by isa_avx2.c and isa_avx512.c.
 *
 * A matrix packed in *panels* is divided into blocks of columns, two vectors wide, or one if only one is left. The rows of a
 * panel are stored one after another, then those of the next panel. In all products, …_row and …_step are distances in
 * elements: from one row to the next, and from one term of the sums to the next. */

/* z (M,N) = e (M,T) v (T,N), or z += e v (ADD), where N is one or two vectors: one panel. Groups of ROWS rows of e are E_GROUP
 * elements apart. z is prefetched while the sums are computed. */
SGRAD_ALWAYS_INLINE void panel(enum factors factors, int vectors, int64_t m, int64_t terms, const float *e, int64_t e_group,
                               int64_t e_row, int64_t e_step, const float *v, int64_t v_step, float *z, int64_t z_row, bool add) {
    int64_t i = 0;
    for (; i + ROWS <= m; i += ROWS, e += e_group) {
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 2
            for (int j = 0; j < vectors * LANES; j += 16) __builtin_prefetch(z + (i + r) * z_row + j, 1);
        outer_sums(factors, ROWS, vectors, terms, e, e_row, e_step, v, v_step, z + i * z_row, z_row, add);
    }
#define REST(rows)                                                                                                               \
    if (m - i >= (rows)) {                                                                                                       \
        outer_sums(factors, rows, vectors, terms, e, e_row, e_step, v, v_step, z + i * z_row, z_row, add);                       \
        i += (rows);                                                                                                             \
        e += (rows) * e_row;                                                                                                     \
    }
    if (ROWS > 8) REST(8)
    REST(4)
    REST(2)
    REST(1)
#undef REST
}

/* The right factor of a product: a matrix whose rows are ROW elements apart or, if row is 0, panels of TERMS rows. FROM is the
 * first row that is used. */
struct right {
    const float *at;
    int64_t row, terms, from;
};

/* The same product for any number N of columns that is a multiple of LANES. */
SGRAD_ALWAYS_INLINE void panels(enum factors factors, int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_group,
                                int64_t e_row, int64_t e_step, struct right v, float *z, int64_t z_row, bool add) {
    for (int64_t column = 0; column < n; column += 2 * LANES) {
        const int64_t width = n - column < 2 * LANES ? LANES : 2 * LANES, step = v.row ? v.row : width;
        const float *right = v.at + (v.row ? column : column * v.terms) + v.from * step;
        if (width == LANES) panel(factors, 1, m, terms, e, e_group, e_row, e_step, right, step, z + column, z_row, add);
        else panel(factors, 2, m, terms, e, e_group, e_row, e_step, right, step, z + column, z_row, add);
    }
}

/* Copies COUNT floats, two vectors per iteration. The code that compilers generate for simpler loops starts slowly. */
SGRAD_ALWAYS_INLINE void copy(const float *x, int64_t count, float *to) {
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        const packed *from = (const packed *)(x + i);
        packed *y = (packed *)(to + i);
        y[0] = from[0];
        y[1] = from[1];
    }
    for (; i < count; i++) to[i] = x[i];
}

/* Packs v (T,N), whose rows are V_ROW elements apart, in panels. */
SGRAD_ALWAYS_INLINE void copy_panels(int64_t terms, int64_t n, const float *v, int64_t v_row, float *to) {
    for (int64_t column = 0; column < n; column += 2 * LANES, to += 2 * LANES * terms)
        if (n - column >= 2 * LANES)
            for (int64_t t = 0; t < terms; t++) copy(v + t * v_row + column, 2 * LANES, to + t * 2 * LANES);
        else
            for (int64_t t = 0; t < terms; t++) *(packed *)(to + t * LANES) = *(const packed *)(v + t * v_row + column);
}

/* Copies e (M,T), whose terms are E_STEP elements apart and whose rows are adjacent, in groups of ROWS rows. A group is stored
 * term by term. */
SGRAD_ALWAYS_INLINE void copy_groups(int64_t m, int64_t terms, const float *e, int64_t e_step, float *to) {
    for (int64_t r = 0; r < m; r += ROWS, to += ROWS * terms)
        for (int64_t t = 0; t < terms; t++)
            memcpy(to + t * ROWS, e + t * e_step + r, sizeof(float) * (m - r < ROWS ? (size_t)(m - r) : ROWS));
}

/* z (M,N) = e (M,T) v (T,N), or z += e v (ADD). V_ROW 0: v is packed in panels. E_ROW or E_STEP must be 1. In wide products,
 * blocks of e and v that are used repeatedly are first copied to contiguous buffers. */
SGRAD_ALWAYS_INLINE void multiply(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, int64_t e_step,
                                  const float *v, int64_t v_row, float *z, int64_t z_row, bool add) {
    enum { MOST_ROWS = 16 * ROWS, MOST_COLUMNS = 32 * LANES, WIDE = 8 * LANES, MANY_ROWS = 4 * ROWS, ROW_STEP = PIECE + 16 };
    _Alignas(64) float left[MOST_ROWS * ROW_STEP], panel_room[PIECE * MOST_COLUMNS];
    for (int64_t from = 0, count; from < terms; from += count, add = true) {
        count = terms - from < PIECE ? terms - from : PIECE;
        for (int64_t column = 0, columns; column < n; column += columns) {
            columns = n - column < MOST_COLUMNS ? n - column : MOST_COLUMNS;
            struct right right = { v + (v_row ? column : column * terms), v_row, terms, from };
            if (v_row && n > WIDE && m > MANY_ROWS) {
                copy_panels(count, columns, right.at + from * v_row, v_row, panel_room);
                right = (struct right){ panel_room, 0, count, 0 };
            }
            for (int64_t row = 0, rows; row < m; row += rows) {
                rows = m - row < MOST_ROWS ? m - row : MOST_ROWS;
                const float *block = e + row * e_row + from * e_step;
                float *to = z + row * z_row + column;
                if (n <= WIDE) panels(FLOATS, rows, columns, count, block, ROWS * e_row, e_row, e_step, right, to, z_row, add);
                else if (e_row == 1) {
                    copy_groups(rows, count, block, e_step, left);
                    panels(FLOATS, rows, columns, count, left, ROWS * count, 1, ROWS, right, to, z_row, add);
                } else {
                    for (int64_t r = 0; r < rows; r++) copy(block + r * e_row, count, left + r * ROW_STEP);
                    panels(FLOATS, rows, columns, count, left, ROWS * ROW_STEP, ROW_STEP, 1, right, to, z_row, add);
                }
            }
        }
    }
}

/* Implement the functions of these names in struct sgrad__level (isa.h). */
STAGE multiply_rows(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_row, const float *v, int64_t v_row, float *z,
                    int64_t z_row, bool add) {
    multiply(m, n, terms, e, e_row, 1, v, v_row, z, z_row, add);
}
STAGE multiply_columns(int64_t m, int64_t n, int64_t terms, const float *e, int64_t e_step, const float *v, int64_t v_row,
                       float *z, int64_t z_row, bool add) {
    multiply(m, n, terms, e, 1, e_step, v, v_row, z, z_row, add);
}

/* Converts COUNT bf16 values to floats. */
STAGE widen(const uint16_t *x, int64_t count, float *to) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) *(packed *)(to + i) = load(SGRAD_BF16, x, i);
    for (; i < count; i++) to[i] = sgrad_get(SGRAD_BF16, x, i);
}

/* Returns COUNT elements, from element FROM on, as floats: a pointer into DATA for F32, else the buffer that is the last
 * argument, after conversion. */
static const float *widened(enum sgrad_dtype dtype, const void *data, int64_t from, int64_t count, float *room) {
    if (dtype == SGRAD_F32) return (const float *)data + from;
    widen((const uint16_t *)data + from, count, room);
    return room;
}

/* Writes COUNT sums, plus the bias if it is not NULL, to the elements of DATA from TO on, or adds them there (ADD). */
SGRAD_ALWAYS_INLINE void put_row_by(bool has_bf16, enum sgrad_dtype dtype, const float *sum, const float *bias, int64_t count,
                                    void *data, int64_t to, bool add) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vec x = *(const packed *)(sum + i);
        if (bias) x += *(const packed *)(bias + i);
        if (add) x += load(dtype, data, to + i);
        store(has_bf16, dtype, data, to + i, x);
    }
    for (vec last = { 0 }; i < count; i++) {
        last[0] = sum[i];
        if (bias) last[0] += bias[i];
        if (add) last[0] += sgrad_get(dtype, data, to + i);
        if (dtype == SGRAD_F32) ((float *)data)[to + i] = last[0];
        else ((uint16_t *)data)[to + i] = narrow(has_bf16, last)[0];
    }
}

/* The same, with the fastest conversion to bf16 that the processor supports. */
STAGE put_row(enum sgrad_dtype dtype, const float *sum, const float *bias, int64_t count, void *data, int64_t to, bool add) {
    const bool has_bf16 = LANES == 16 && dtype != SGRAD_F32 && sgrad_isa() >= SGRAD_AVX512_BF16;
    if (has_bf16) put_row_by(true, dtype, sum, bias, count, data, to, add);
    else put_row_by(false, dtype, sum, bias, count, data, to, add);
}

STAGE narrow_row(const float *x, int64_t count, uint16_t *to, bool add) { put_row(SGRAD_BF16, x, NULL, count, to, 0, add); }

/* Packs the transpose of x (ROWS,COLUMNS) in panels, as (COLUMNS,PADDED); columns from ROWS on are zeros. */
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

/* Forward of few rows: yᵀ = w xᵀ. */
STAGE few_rows(const struct sgrad__layer *layer, struct product p, void *const data[], float *room) {
    enum { K_AT_ONCE = 8 * ROWS };
    const enum sgrad_dtype dtype = (enum sgrad_dtype)layer->dtype;
    const float *w = data[1], *bias = layer->bias ? data[2] : NULL;
    float *right = room + p.right, *sums = room + p.sums, row[LANES];
    pack_either(dtype, data[0], p.rows, p.in, p.padded, right);
    for (int64_t k = 0, count; k < p.out; k += count) {
        count = p.out - k < K_AT_ONCE ? p.out - k : K_AT_ONCE;
        multiply_rows(count, p.padded, p.in, w + k * p.in, p.in, right, 0, sums, p.padded, false);
        for (int64_t r = 0; r < p.rows; r++)
            for (int64_t i = 0, some; i < count; i += some) {
                some = count - i < LANES ? count - i : LANES;
                for (int64_t j = 0; j < some; j++) row[j] = sums[(i + j) * p.padded + r];
                put_row(dtype, row, bias ? bias + k + i : NULL, some, data[3], r * p.out + k + i, layer->accumulate);
            }
    }
}

/* Forward: y = x wᵀ. */
STAGE forward(const struct sgrad__layer *layer, struct product p, void *const data[], float *room) {
    const enum sgrad_dtype dtype = (enum sgrad_dtype)layer->dtype;
    const float *bias = layer->bias ? data[2] : NULL;
    float *right = room + p.right, *sums = room + p.sums;
    if (p.few) {
        few_rows(layer, p, data, room);
        return;
    }
    pack_either(SGRAD_F32, data[1], p.out, p.in, p.padded, right);
    for (int64_t i = 0, count; i < p.rows; i += count) {
        count = p.rows - i < p.block ? p.rows - i : p.block;
        const float *left = widened(dtype, data[0], i * p.in, count * p.in, room);
        float *z = p.aside ? sums : (float *)data[3] + i * p.out;
        multiply_rows(count, p.padded, p.in, left, p.in, right, 0, z, p.padded, !p.aside && layer->accumulate);
        for (int64_t r = 0; r < count && (p.aside || bias); r++)
            put_row(dtype, z + r * p.padded, bias, p.out, data[3], (i + r) * p.out, p.aside && layer->accumulate);
    }
}

/* Backward-data: dx = dy w. */
STAGE backward_data(const struct sgrad__layer *layer, struct product p, void *const data[], float *room) {
    const enum sgrad_dtype dtype = (enum sgrad_dtype)layer->dtype;
    for (int64_t i = 0, count; i < p.rows; i += count) {
        count = p.rows - i < p.block ? p.rows - i : p.block;
        const float *left = widened(dtype, data[0], i * p.out, count * p.out, room);
        float *z = p.aside ? room + p.sums : (float *)data[2] + i * p.in;
        multiply_rows(count, p.in, p.out, left, p.out, data[1], p.in, z, p.in, !p.aside && layer->accumulate);
        if (p.aside) put_row(dtype, z, NULL, count * p.in, data[2], i * p.in, layer->accumulate);
    }
}

/* Backward-weight: dw = dyᵀ x; dbias = Σ dy. */
STAGE backward_weight(const struct sgrad__layer *layer, struct product p, void *const data[], float *room) {
    const enum sgrad_dtype dtype = (enum sgrad_dtype)layer->dtype;
    float *dbias = layer->bias ? data[3] : NULL;
    if (dbias && !layer->accumulate) memset(dbias, 0, (size_t)p.out * sizeof *dbias);
    for (int64_t i = 0, count; i < p.rows; i += count) {
        count = p.rows - i < p.block ? p.rows - i : p.block;
        const float *right = widened(dtype, data[0], i * p.in, count * p.in, room + p.right),
                    *left = widened(dtype, data[1], i * p.out, count * p.out, room);
        multiply_columns(p.out, p.in, count, left, p.out, right, p.in, data[2], p.in, layer->accumulate || i > 0);
        for (int64_t r = 0; r < count && dbias; r++)
            for (int64_t k = 0; k < p.out; k++) dbias[k] += left[r * p.out + k];
    }
}
