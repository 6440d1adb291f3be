/* file.c: an ONNX file's bytes, and what protobuf makes of them. Files are untrusted: what is taken apart may not take more
 * memory than a file of its size could mean, and every tensor is checked to have as many numbers as its dimensions say.
 *
 * Limits: files below 2 GiB, as protobuf has them; weights in the file itself, not in others beside it. */
#include "graphs/networks/onnx/reader.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* The dearest bytes are two that make an empty message, and one that makes a number of eight. */
enum { COST = 16, AT_LEAST = 1 << 20 };
/* Layers are looked for by name, one after the other. */
enum { MOST_NODES = 20000 };

struct budget {
    size_t left;
};

static void *take(void *arg, size_t size) {
    struct budget *budget = arg;
    if (size > budget->left) return NULL;
    budget->left -= size;
    return malloc(size + !size);
}

static void give(void *arg, void *data) {
    (void)arg;
    free(data);
}

/* ---- tensors --------------------------------------------------------------------------------------------------- */

/* Bytes of a number; 0: none that is known. */
static size_t size_of(int32_t type) {
    switch (type) {
    case ONNX_FLOAT: case ONNX_INT32: return 4;
    case ONNX_UINT8: case ONNX_INT8: case ONNX_BOOL: return 1;
    case ONNX_FLOAT16: case ONNX_BFLOAT16: return 2;
    case ONNX_INT64: case ONNX_DOUBLE: return 8;
    default: return 0;
    }
}

/* How many numbers there are in fields of their own. */
static size_t count_typed(const Onnx__Tensor *t) {
    switch (t->data_type) {
    case ONNX_FLOAT: return t->n_float_data;
    case ONNX_DOUBLE: return t->n_double_data;
    case ONNX_INT64: return t->n_int64_data;
    case ONNX_INT32: return t->n_int32_data;
    default: return 0;
    }
}

int64_t sgrad__onnx_count(const Onnx__Tensor *t) {
    int64_t count = 1;
    for (size_t i = 0; i < t->n_dims; i++) count *= t->dims[i];
    return count;
}

int sgrad__onnx_check_tensor(const char *path, const char *name, const Onnx__Tensor *t) {
    if (t->data_location || t->n_external_data)
        return sgrad_fail(SGRAD_EFORMAT, "%s: tensor '%s' is in another file: torch.onnx.export(…, external_data=False) keeps "
                          "all in one", path, name);
    if (t->has_segment) return sgrad_fail(SGRAD_EFORMAT, "%s: tensor '%s' is in segments", path, name);
    const size_t size = size_of(t->data_type);
    if (!size) return sgrad_fail(SGRAD_EFORMAT, "%s: tensor '%s' is of type %d, which is not known", path, name, t->data_type);
    if (t->n_dims > SGRAD_MAX_RANK)
        return sgrad_fail(SGRAD_EFORMAT, "%s: tensor '%s' has %zu dimensions: more than %d", path, name, t->n_dims,
                          SGRAD_MAX_RANK);
    uint64_t count = 1;
    for (size_t i = 0; i < t->n_dims; i++) {
        if (t->dims[i] < 0 || t->dims[i] > INT_MAX || (count *= (uint64_t)t->dims[i]) > INT_MAX)
            return sgrad_fail(SGRAD_EFORMAT, "%s: tensor '%s': dimension %zu is %lld: out of range", path, name, i,
                              (long long)t->dims[i]);
    }
    const size_t has = t->has_raw_data ? t->raw_data.len : count_typed(t) * size;
    if (has == count * size) return 0;
    return sgrad_fail(SGRAD_EFORMAT, "%s: tensor '%s' has %zu bytes, where its dimensions say %zu", path, name, has,
                      (size_t)count * size);
}

/* Numbers beside one another, as the file has them. */
static const void *data_of(const Onnx__Tensor *t) {
    if (t->has_raw_data) return t->raw_data.data;
    switch (t->data_type) {
    case ONNX_FLOAT: return t->float_data;
    case ONNX_DOUBLE: return t->double_data;
    case ONNX_INT64: return t->int64_data;
    default: return t->int32_data;
    }
}

bool sgrad__onnx_ints(const Onnx__Tensor *t, int64_t *number, int most, int *count) {
    const int64_t all = sgrad__onnx_count(t);
    if ((t->data_type != ONNX_INT64 && t->data_type != ONNX_INT32) || t->n_dims > 1 || all > most) return false;
    for (int64_t i = 0; i < all; i++) {
        int32_t small;
        if (t->data_type == ONNX_INT64) memcpy(&number[i], (const char *)data_of(t) + 8 * i, sizeof *number);
        else number[i] = (memcpy(&small, (const char *)data_of(t) + 4 * i, sizeof small), small);
    }
    *count = (int)all;
    return true;
}

bool sgrad__onnx_floats(const Onnx__Tensor *t, float *number, int most, int *count) {
    const int64_t all = sgrad__onnx_count(t);
    if (t->data_type != ONNX_FLOAT || all > most) return false;
    if (all) memcpy(number, data_of(t), (size_t)all * sizeof *number);
    *count = (int)all;
    return true;
}

bool sgrad__onnx_entry(const Onnx__Tensor *t, const char *name, struct sgrad_entry *entry) {
    static const struct {
        int32_t type;
        enum sgrad_dtype is;
    } known[] = {
        { ONNX_FLOAT, SGRAD_F32 }, { ONNX_DOUBLE, SGRAD_F64 }, { ONNX_FLOAT16, SGRAD_F16 }, { ONNX_BFLOAT16, SGRAD_BF16 }
    };
    struct sgrad_view view = { .shape.rank = (int)t->n_dims };
    const size_t bytes = (size_t)sgrad__onnx_count(t) * size_of(t->data_type);
    size_t i = 0;
    while (i < sizeof known / sizeof *known && known[i].type != t->data_type) i++;
    if (i == sizeof known / sizeof *known) return false;
    view.dtype = known[i].is;
    for (size_t d = 0; d < t->n_dims; d++) view.shape.dim[d] = t->dims[d];
    void *data = sgrad_alloc(1, bytes + !bytes);
    if (bytes) memcpy(data, data_of(t), bytes);
    *entry = (struct sgrad_entry){ sgrad_format("%s", name), view, data };
    return true;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

static int check(const char *name, const Onnx__Model *model) {
    if (!model->graph || !model->graph->n_node)
        return sgrad_fail(SGRAD_EFORMAT, "%s: has no graph: it is no ONNX file, or an empty one", name);
    if (model->graph->n_node > MOST_NODES)
        return sgrad_fail(SGRAD_EFORMAT, "%s: has %zu nodes: more than %d", name, model->graph->n_node, MOST_NODES);
    if (model->graph->n_sparse_initializer) return sgrad_fail(SGRAD_EFORMAT, "%s: has sparse tensors, which are not known", name);
    for (size_t i = 0; i < model->graph->n_initializer; i++) {
        const Onnx__Tensor *t = model->graph->initializer[i];
        SGRAD_TRY(sgrad__onnx_check_tensor(name, t->name, t));
    }
    return 0;
}

int sgrad__onnx_parse(const char *name, const void *data, size_t size, struct sgrad__onnx **file) {
    struct budget budget = { COST * size + AT_LEAST };
    ProtobufCAllocator memory = { take, give, &budget };
    struct sgrad__onnx *f = sgrad_alloc(1, sizeof *f);
    f->path = sgrad_format("%s", name);
    f->model = onnx__model__unpack(&memory, size, data);
    int error = f->model ? check(name, f->model)
                         : sgrad_fail(SGRAD_EFORMAT, "%s: is no ONNX file, or a damaged one: protobuf cannot read it", name);
    if (error) sgrad__onnx_close(f);
    else *file = f;
    return error;
}

/* All of a file, to be freed. */
static int read_all(const char *path, unsigned char **data, size_t *size) {
    FILE *file = fopen(path, "rb");
    long long end = -1;
    if (!file) return sgrad_fail(SGRAD_EIO, "%s: %s", path, strerror(errno));
    if (!fseeko(file, 0, SEEK_END)) end = ftello(file);
    int error = 0;
    if (end < 0 || end > INT_MAX || fseeko(file, 0, SEEK_SET))
        error = sgrad_fail(SGRAD_EFORMAT, "%s: is no file below 2 GiB, as those of ONNX are", path);
    *data = error ? NULL : sgrad_alloc(1, (size_t)end + 1);
    if (!error && fread(*data, 1, (size_t)end, file) != (size_t)end)
        error = sgrad_fail(SGRAD_EIO, "%s: cannot be read: %s", path, ferror(file) ? strerror(errno) : "it has become shorter");
    fclose(file);
    *size = (size_t)end;
    return error;
}

int sgrad__onnx_open(const char *path, struct sgrad__onnx **file) {
    unsigned char *data = NULL;
    size_t size = 0;
    int error = read_all(path, &data, &size);
    if (!error) error = sgrad__onnx_parse(path, data, size, file);
    free(data);
    return error;
}

void sgrad__onnx_close(struct sgrad__onnx *file) {
    if (!file) return;
    if (file->model) onnx__model__free_unpacked(file->model, NULL);
    free(file->path);
    free(file);
}
