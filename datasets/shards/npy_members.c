/* npy_members.c: samples in tar archives that are NumPy arrays (NAME.npy), as WebDataset writes them. All have one type and
 * shape.
 *
 *     uint8 (H,W) or (H,W,C)     images
 *     any other                  features, F32, normalised by the training samples, as those of the reader npy (features.c)
 *
 * Mean and deviation are those of at most MOST samples and MOST_NUMBERS numbers, at equal distances in the training shards. Each
 * rank and both splits use the same ones. They are read once to be checked, and then once for each of the two; those of
 * compressed shards are kept in memory meanwhile, in at most 512 MiB. If no mean is needed, only the first sample is read. */
#include "config.h"
#include "datasets/shards/shards.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 10000 };
#define MOST_NUMBERS ((int64_t)1 << 26)

/* ---- one sample ---------------------------------------------------------------------------------------------------- */

static bool is_images(const struct sgrad__npy *npy) {
    return npy->kind == 'u' && npy->bytes == 1 && (npy->shape.rank == 2 || npy->shape.rank == 3);
}

/* Returns "uint8 (32,32,3)". The caller must free it. */
static char *text_of(const struct sgrad__npy *npy) {
    const char *kind = npy->kind == 'u' ? "uint" : npy->kind == 'i' ? "int" : npy->kind == 'b' ? "bool" : "float";
    char text[SGRAD_SHAPE_TEXT];
    return sgrad_format("%s%d %s", kind, 8 * npy->bytes, npy->shape.rank ? sgrad_shape_text(&npy->shape, text) : "()");
}

/* Checks an array of the file NAME. */
static int check_array(const char *name, const struct sgrad__npy *npy) {
    if (!npy->count) return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: the array has no numbers", name);
    if (npy->shape.rank == SGRAD_MAX_RANK)
        return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: the array has %d dimensions, but may have at most %d", name,
                               npy->shape.rank, SGRAD_MAX_RANK - 1);
    for (int d = 0; d < npy->shape.rank; d++)
        if (npy->shape.dim[d] > INT32_MAX)
            return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: dimension %d is %lld, but may be at most %d", name, d,
                                   (long long)npy->shape.dim[d], INT32_MAX);
    for (int64_t i = 0; i < npy->count && npy->kind == 'f'; i++)
        if (!isfinite((float)sgrad__npy_number(npy, i)))
            return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: number %lld (counted from 0) is %g, but must be finite", name,
                                   (long long)i, sgrad__npy_number(npy, i));
    return 0;
}

/* Checks that NPY, of the file NAME, has the type and shape of the others. */
static int check_kind(const struct sgrad__npy_members *members, const char *name, const struct sgrad__npy *npy) {
    const struct sgrad__npy *like = &members->like;
    if (npy->kind == like->kind && npy->bytes == like->bytes && sgrad_shape_equal(&npy->shape, &like->shape)) return 0;
    char *own = text_of(npy), *other = text_of(like);
    const int error = sgrad_log_error(SGRAD_ESHAPE,
                                      "tar: %s: the array is %s, but that of %s is %s; all samples of a data set must have the "
                                      "same type and shape",
                                      name, own, members->where, other);
    free(own);
    free(other);
    return error;
}

/* Fetches sample I of SOURCE, and parses it. The caller must release BYTES. */
static int fetch(const struct sgrad__source *source, int64_t i, struct sgrad__bytes *bytes, struct sgrad__npy *npy) {
    SGRAD_TRY(source->fetch(source->of, i, bytes));
    int error = sgrad__npy_parse(bytes->name, bytes->data, bytes->size, npy);
    if (!error) error = check_array(bytes->name, npy);
    if (error) source->release(source->of, i, bytes);
    return error;
}

int sgrad__npy_members_read(const struct sgrad__npy_members *members, const struct sgrad__source *source,
                            const struct sgrad_dataset *dataset, int64_t i, void *to) {
    struct sgrad__bytes bytes;
    struct sgrad__npy npy;
    SGRAD_TRY(fetch(source, i, &bytes, &npy));
    const int error = check_kind(members, bytes.name, &npy);
    const bool images = dataset->field[0].dtype == SGRAD_U8, copied = images && !npy.fortran;
    if (!error && copied) memcpy(to, npy.data, (size_t)npy.count);
    for (int64_t k = 0; k < npy.count && !error && !copied; k++)
        if (images) ((uint8_t *)to)[k] = (uint8_t)sgrad__npy_number(&npy, k);
        else ((float *)to)[k] = (float)sgrad__feature(dataset->origin, k, sgrad__npy_number(&npy, k));
    source->release(source->of, i, &bytes);
    return error;
}

/* ---- all samples --------------------------------------------------------------------------------------------------- */

/* The samples that are measured, of which all or one are in memory. */
struct measured {
    const struct sgrad__source *source;
    int64_t *row, rows;      /* their indexes */
    struct sgrad__npy *kept; /* (rows), with copies of the data; NULL: they are read again */
    int64_t each, held;      /* numbers of a sample; held: the one in NUMBER, of rows; -1: none */
    double *number;          /* (each) */
    int error;
};

static double number_at(const void *of, int64_t i) {
    struct measured *m = (struct measured *)of;
    struct sgrad__bytes bytes;
    struct sgrad__npy npy;
    if (m->kept) return sgrad__npy_number(&m->kept[i / m->each], i % m->each);
    if (m->held != i / m->each && !m->error) {
        m->held = i / m->each;
        m->error = fetch(m->source, m->row[m->held], &bytes, &npy);
        for (int64_t k = 0; k < m->each && !m->error; k++) m->number[k] = sgrad__npy_number(&npy, k);
        if (!m->error) m->source->release(m->source->of, m->row[m->held], &bytes);
    }
    return m->number[i % m->each];
}

/* Copies an array to KEPT. */
static void keep(const struct sgrad__npy *npy, struct sgrad__npy *kept) {
    const size_t bytes = (size_t)npy->count * (size_t)npy->bytes;
    *kept = *npy;
    kept->data = memcpy(sgrad_xcalloc(bytes, 1), npy->data, bytes);
}

/* Adds sample I to those that are measured, unless it is damaged and SKIPS. The first one determines the type and shape of
 * all. */
static int look(struct sgrad__npy_members *members, struct measured *m, int64_t i, bool skips) {
    char reason[1024];
    struct sgrad__bytes bytes;
    struct sgrad__npy npy;
    if (skips) sgrad_log_capture(reason, sizeof reason);
    int error = fetch(m->source, i, &bytes, &npy);
    if (skips) sgrad_log_capture(NULL, 0);
    if (error) return skips && (error == SGRAD_EFORMAT || error == SGRAD_EIO) ? 0 : error;
    if (!members->where) {
        members->like = npy;
        members->like.data = NULL;
        members->where = sgrad_format("%s", bytes.name);
    }
    error = check_kind(members, bytes.name, &npy);
    if (!error && m->kept) keep(&npy, &m->kept[m->rows]);
    m->source->release(m->source->of, i, &bytes);
    if (!error) m->row[m->rows++] = i;
    return error;
}

/* Chooses the samples that are measured, and sets type and shape of all. KNOWN: mean and deviation are known. */
static int choose(struct sgrad__npy_members *members, struct measured *m, bool skips, bool known) {
    const int64_t count = m->source->count;
    int64_t most = count < MOST ? count : MOST, first = 0;
    m->row = sgrad_xcalloc((size_t)most, sizeof *m->row);
    if (members->slow) m->kept = sgrad_xcalloc((size_t)most, sizeof *m->kept);
    while (!m->rows && first < count) SGRAD_TRY(look(members, m, first++, skips));
    if (!m->rows) return look(members, m, 0, false);
    m->each = members->like.count;
    if (known || is_images(&members->like)) return 0;
    if (most > MOST_NUMBERS / m->each) most = MOST_NUMBERS / m->each;
    for (int64_t i = 1; i < most; i++)
        if (count * i / most >= first) SGRAD_TRY(look(members, m, count * i / most, skips));
    return 0;
}

/* Sets the origin, from TRAINED if it has features. */
static int set_origin(struct sgrad_dataset *dataset, struct measured *m, const char *where, const struct sgrad_origin *trained) {
    const struct sgrad_shape *one = &dataset->field[0].shape;
    char text[2][SGRAD_SHAPE_TEXT];
    if (trained && trained->features && !sgrad_shape_equal(&trained->shape, one))
        return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: the array is %s, but the run's data have samples of %s", where,
                               sgrad_shape_text(one, text[0]), sgrad_shape_text(&trained->shape, text[1]));
    if (trained && trained->features) return dataset->origin = sgrad__origin_copy(trained), 0;
    struct sgrad_origin *origin = dataset->origin = sgrad_xcalloc(1, sizeof *origin);
    origin->features = m->each;
    origin->shape = *one;
    origin->groups = sgrad__feature_groups(one);
    m->number = sgrad_xcalloc((size_t)m->each, sizeof *m->number);
    m->held = -1;
    sgrad__features_measure(origin, m->rows, number_at, m);
    free(m->number);
    return m->error;
}

/* Sets field 0. */
static int set_field(struct sgrad_dataset *dataset, const struct sgrad__npy_members *members, bool trained) {
    struct sgrad_shape one = members->like.shape;
    const bool images = is_images(&members->like);
    if (!one.rank) one = sgrad_shape(1, 1);
    if (images && one.rank == 2) one.dim[one.rank++] = 1;
    if (images && one.dim[2] > SGRAD_MAX_CHANNELS)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "tar: %s: images must be (H,W,C), channels last, with at most %d channels, not %lld",
                               members->where, SGRAD_MAX_CHANNELS, (long long)one.dim[2]);
    dataset->field[0] = (struct sgrad_field){ images ? "pixels" : "features", images ? SGRAD_U8 : SGRAD_F32, one, NULL };
    char *where = sgrad_format("tar: %s", members->where);
    if (dataset->split == SGRAD_TRAIN && !trained) sgrad__warn_of_channels(where, &one);
    free(where);
    return 0;
}

int sgrad__npy_members_measure(struct sgrad__npy_members *members, const struct sgrad__source *training, bool skips,
                               const struct sgrad_origin *trained, struct sgrad_dataset *dataset) {
    struct measured m = { .source = training };
    dataset->augment = NULL;
    dataset->plain = "samples are arrays";
    int error = choose(members, &m, skips, trained && trained->features);
    if (!error) error = set_field(dataset, members, trained != NULL);
    if (!error && dataset->field[0].dtype == SGRAD_F32) error = set_origin(dataset, &m, members->where, trained);
    char *kind = error ? NULL : text_of(&members->like);
    if (kind && dataset->origin && !trained)
        dataset->note = sgrad_format("samples are arrays of %s, normalised by %lld of them", kind, (long long)m.rows);
    else if (kind)
        dataset->note = sgrad_format("samples are arrays of %s", kind);
    for (int64_t r = 0; r < m.rows && m.kept; r++) free((void *)m.kept[r].data);
    free(m.kept);
    free(kind);
    free(m.row);
    return error;
}
