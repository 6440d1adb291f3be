/* winograd_stages.h: the stages of winograd.c, which describes them. Included once for each variant, with these macros defined:
 *
 *     NAME(stage)   name of the variant's function
 *     SIDE          side of the filters, 3 or 5
 *     FACTORS       words of the products' factors, enum factors
 *
 * U, V and M contain a matrix for each point; these are point_stride words apart. U is packed in panels (winograd_vectors.h). */
#define TILE (WINDOW + 1 - SIDE)
#define FILTER (SIDE * SIDE)

/* Computes Bᵀ x B of the windows of COUNT tiles, from tile FIRST on: V[point][tile][channel]. */
STAGE NAME(windows)(struct tiling t, struct images x, int64_t first, int64_t count, float *v) {
    const int64_t words = channel_words(FACTORS, whole(x.channels, LANES)), end = first + count,
                  stride = point_stride(tile_words(FACTORS, t.block), words);
    for (int64_t i = first; i < end; i += FACTORS == TILE_PAIRS ? 2 : 1) {
        vec even[POINTS];
        const struct spot at = window_at(t, i), next = i + 1 < end ? window_at(t, i + 1) : nowhere;
        const bool inside = is_inside(x, WINDOW, at), next_inside = is_inside(x, WINDOW, next);
        for (int64_t c = 0; c < x.channels; c += LANES, v += channel_words(FACTORS, LANES))
            if (FACTORS == TILE_PAIRS) {
                SPECIALISED(window, inside, x, at, c, FLOATS, (float *)even, LANES, NULL);
                SPECIALISED(window, next_inside, x, next, c, FACTORS, v, stride, even);
            } else SPECIALISED(window, inside, x, at, c, FACTORS, v, stride, NULL);
    }
}

/* Computes A dy Aᵀ of COUNT tiles, from tile FIRST on, in the layout of V, for CHANNELS channels from channel FROM on. Adds
 * the pixels of each channel to SUM if it is not NULL. */
STAGE NAME(tiles_in)(struct tiling t, struct images y, int64_t from, int64_t channels, int64_t first, int64_t count,
                      float *v, float *sum) {
    const int64_t stride = point_stride(tile_words(FACTORS, t.block), channels), end = first + count;
    for (int64_t i = first; i < end; i += FACTORS == TILE_PAIRS ? 2 : 1) {
        vec even[POINTS];
        const struct spot at = tile_at(t, i), next = i + 1 < end ? tile_at(t, i + 1) : nowhere;
        const bool inside = is_inside(y, TILE, at), next_inside = is_inside(y, TILE, next);
        for (int64_t c = from; c < from + channels; c += LANES, v += LANES) {
            float *to = sum ? sum + c : NULL;
            if (FACTORS == TILE_PAIRS) {
                SPECIALISED(tile_in, inside, y, TILE, at, c, FLOATS, (float *)even, LANES, NULL, to);
                SPECIALISED(tile_in, next_inside, y, TILE, next, c, FACTORS, v, stride, even, to);
            } else SPECIALISED(tile_in, inside, y, TILE, at, c, FACTORS, v, stride, NULL, to);
        }
    }
}

/* Computes the COUNT tiles of y from tile FIRST on, for CHANNELS channels from channel FROM on, from M and the bias, which may
 * be NULL. Writes them, or adds them to y (ADD). */
STAGE NAME(tiles_out)(struct tiling t, struct images y, int64_t from, int64_t channels, int64_t first, int64_t count,
                       const float *m, const float *bias, bool add) {
    const int64_t stride = point_stride(t.block, channels);
    for (int64_t i = first; i < first + count; i++) {
        const struct spot at = tile_at(t, i);
        const bool inside = is_inside(y, TILE, at);
        for (int64_t c = from; c < from + channels; c += LANES, m += LANES)
            SPECIALISED(tile_out, inside, y, TILE, at, c, FACTORS != FLOATS, m, stride, bias ? bias + c : NULL, add);
    }
}

/* Transforms COUNT filters of w (K,side,side,C), from filter FROM on, to U (36, C, COUNT). Filters after the last one, and
 * channels after the last one, are zeros. */
STAGE NAME(filters)(const float *w, int64_t filters, int64_t channels, int64_t from, int64_t count, float *u) {
    const int64_t rows = channel_words(FACTORS, whole(channels, LANES));
    const int of_word = FACTORS == FLOATS ? 1 : 2;
    for (int64_t k = 0; k < count; k += LANES)
        for (int64_t first = 0; first < channels; first += LANES) {
            vec g[LANES][FILTER];
            for (int i = 0; i < FILTER; i++) {
                vec t[LANES] = { 0 };
                for (int j = 0; j < LANES && from + k + j < filters; j++) {
                    const int64_t at = ((from + k + j) * FILTER + i) * channels + first;
                    __builtin_prefetch(w + at + FLOATS_ON);
                    t[j] = load_some(SGRAD_F32, w, at, channels - first);
                }
                transpose(t);
                for (int c = 0; c < LANES; c++) g[c][i] = t[c];
            }
            for (int c = 0; c < LANES; c += of_word) {
                const vec *word[2] = { g[c], g[c + of_word - 1] };
                put_filters(FACTORS, SIDE, word, rows, count, (first + c) / of_word, k, u);
            }
        }
}

/* The same for backward-data: transforms the filters, rotated by 180°, to U (36, K, COUNT), for COUNT channels from channel
 * FROM on. */
STAGE NAME(filters_turned)(const float *w, int64_t filters, int64_t channels, int64_t from, int64_t count, float *u) {
    const int64_t rows = channel_words(FACTORS, whole(filters, LANES));
    const int of_word = FACTORS == FLOATS ? 1 : 2;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < count; c += LANES) {
            vec g[2][FILTER] = { 0 };
            for (int k = 0; k < of_word && row * of_word + k < filters; k++)
                for (int i = 0; i < FILTER; i++) {
                    const int64_t at = ((row * of_word + k) * FILTER + FILTER - 1 - i) * channels + from + c;
                    __builtin_prefetch(w + at + FILTERS_ON * FILTER * channels);
                    g[k][i] = load_some(SGRAD_F32, w, at, channels - from - c);
                }
            put_filters(FACTORS, SIDE, (const vec *[2]){ g[0], g[1] }, rows, count, row, c, u);
        }
}

/* Transforms U (36, COUNT, C), which is row-major here, to COUNT filters of dw (K,side,side,C), from filter FROM on; filters
 * after the last one are left out. Writes them, or adds them to dw (ADD). */
STAGE NAME(filters_back)(const float *u, int64_t filters, int64_t channels, int64_t from, int64_t count, float *dw, bool add) {
    const int64_t row = whole(channels, LANES), stride = point_stride(count, row);
    for (int64_t k = 0; k < count && from + k < filters; k++)
        for (int64_t c = 0; c < channels; c += LANES) {
            vec columns[SIDE * WINDOW], column[WINDOW], out[SIDE];
            for (int s = 0; s < WINDOW; s++) {
                for (int r = 0; r < WINDOW; r++)
                    column[r] = *(const packed *)(u + (r * WINDOW + s) * stride + k * row + c);
                filter_row_back(SIDE, column, out);
                for (int r = 0; r < SIDE; r++) columns[r * WINDOW + s] = out[r];
            }
            for (int r = 0; r < SIDE; r++) {
                filter_row_back(SIDE, columns + r * WINDOW, out);
                for (int s = 0; s < SIDE; s++) {
                    const int64_t to = ((from + k) * FILTER + SIDE * r + s) * channels + c;
                    if (add) out[s] += load_some(SGRAD_F32, dw, to, channels - c);
                    store_some(false, SGRAD_F32, dw, to, out[s], channels - c);
                }
            }
        }
}

/* M (36, tiles, K) = V (36, tiles, C) U (36, C, K), for COUNT tiles. Tiles after these, up to a multiple of ROWS, are
 * undefined. The tiles of SOON are prefetched meanwhile. */
STAGE NAME(products)(struct tiling t, int64_t count, int64_t channels, int64_t k, const float *v, const float *u, float *m,
                      const struct soon soon[2]) {
    const int64_t width = panel_width(k), c = channel_words(FACTORS, channels);
    for (int point = 0; point < POINTS; point++) {
        for (int64_t column = 0; column < k; column += width)
            for (int64_t i = 0; i < count; i += ROWS) {
                const float *rows = v + point * point_stride(t.block, c) + i * c,
                            *panel = u + point * point_stride(c, k) + column * c;
                float *to = m + point * point_stride(t.block, k) + i * k + column;
                if (width == LANES) outer_sums(FACTORS, ROWS, 1, c, rows, c, 1, panel, LANES, to, k, false);
                else outer_sums(FACTORS, ROWS, 2, c, rows, c, 1, panel, 2 * LANES, to, k, false);
            }
        prefetch(t, soon[0], point);
        prefetch(t, soon[1], point);
    }
}

/* U (36, K, C) = Mᵀ (36, K, tiles) V (36, tiles, C), or U += Mᵀ V (ADD). U is row-major here. */
STAGE NAME(transposed_products)(struct tiling t, int64_t count, int64_t c, int64_t k, const float *m, const float *v,
                                 float *u, bool add, const struct soon soon[2]) {
    const int64_t width = panel_width(c), rows = width == LANES ? LANES : LANES / 2, tiles = tile_words(FACTORS, count),
                  block = tile_words(FACTORS, t.block);
    for (int point = 0; point < POINTS; point++) {
        for (int64_t column = 0; column < c; column += width)
            for (int64_t row = 0; row < k; row += rows) {
                const float *left = m + point * point_stride(block, k) + row,
                            *right = v + point * point_stride(block, c) + column;
                float *to = u + point * point_stride(k, c) + row * c + column;
                if (width == LANES) outer_sums(FACTORS, LANES, 1, tiles, left, 1, k, right, c, to, c, add);
                else outer_sums(FACTORS, LANES / 2, 2, tiles, left, 1, k, right, c, to, c, add);
            }
        prefetch(t, soon[0], point);
        prefetch(t, soon[1], point);
    }
}

/* Computes the layer. DATA: its operands; the last argument: the workspace. */
STAGE NAME(run)(const struct sgrad__layer *layer, struct tiling t, void *const data[], float *room) {
    const bool forward = FACTORS != TILE_PAIRS && layer->pass == SGRAD__FORWARD;
    const bool weight = FACTORS == TILE_PAIRS || (FACTORS == FLOATS && layer->pass == SGRAD__BACKWARD_WEIGHT);
    const int32_t *i = in_of(layer), *o = out_of(layer);
    const struct images in = { data[0], (enum sgrad_dtype)layer->dtype, i[1], i[2], i[3] };
    int y = 2;      /* operand: the output, or its gradient */
    if (forward) y = 3;
    else if (weight) y = 1;
    const struct images out = { data[y], (enum sgrad_dtype)layer->dtype, o[1], o[2], o[3] };
    const int64_t in_channels = whole(in.channels, LANES), out_channels = whole(out.channels, LANES);
    const bool chunks = t.chunk < out_channels;
    const float *bias = forward && layer->bias ? data[2] : NULL;
    float *u = room, *v = room + t.v, *m = room + t.m, *dbias = weight && layer->bias ? data[3] : NULL;
    if (dbias && !layer->accumulate) memset(dbias, 0, (size_t)out.channels * sizeof *dbias);
    for (int64_t first = 0, count; first < t.count; first += count) {
        count = t.count - first < t.block ? t.count - first : t.block;
        const int64_t next = first + count, more = t.count - next < t.block ? t.count - next : t.block;
        const struct soon next_in = { in, 0, in.channels, next, more };
        NAME(windows)(t, in, first, count, v);
        for (int64_t from = 0, c; from < out_channels; from += c) {
            c = out_channels - from < t.chunk ? out_channels - from : t.chunk;
            if (weight) {
                NAME(tiles_in)(t, out, from, c, first, count, m, dbias);
                NAME(transposed_products)
                (t, count, in_channels, c, m, v, u, !chunks && first > 0,
                 (struct soon[]){ next_in, { out, from, c, next, more } });
                if (chunks || next == t.count)
                    NAME(filters_back)
                    (u, out.channels, in.channels, from, c, data[2], layer->accumulate || (chunks && first > 0));
            } else {
                const bool transforms = chunks || first == 0;
                if (transforms && forward) NAME(filters)(data[1], out.channels, in.channels, from, c, u);
                else if (transforms) NAME(filters_turned)(data[1], in.channels, out.channels, from, c, u);
                NAME(products)(t, count, in_channels, c, v, u, m, (struct soon[]){ next_in, { out, from, c, first, count } });
                NAME(tiles_out)(t, out, from, c, first, count, m, bias, layer->accumulate);
            }
        }
    }
}

#undef NAME
#undef SIDE
#undef TILE
#undef FILTER
#undef FACTORS
