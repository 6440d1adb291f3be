/* file.c: reads an ONNX file, and decodes it with protobuf. Files are untrusted: decoding must not allocate more memory than a
 * valid file of this size may need, and every tensor must have as many numbers as its dimensions require.
 *
 * Limits: files below 2 GiB, as in protobuf; weights may be in other files next to this one. */
#include "graphs/networks/onnx/reader.h"
#include "runtime/files/contents.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------------------------- */

/* Maximum bytes of memory per byte of the file: an empty message is encoded in two bytes, a number of eight bytes in one. */
enum { COST = 16, AT_LEAST = 1 << 20 };
/* Maximum number of nodes, and of their inputs by groups of SGRAD_MAX_INPUTS, because a Concat may become several layers: layers
 * are searched linearly by name. */
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

/* ---- the file -------------------------------------------------------------------------------------------------- */

/* Reads data that are in other files, for initializers and for the tensors of Constant and similar nodes. Checks initializers;
 * other tensors are checked when their nodes are read. */
static int check_tensors(const char *name, const char *folder, const Onnx__Graph *graph) {
    for (size_t i = 0; i < graph->n_initializer; i++) {
        SGRAD_TRY(sgrad__onnx_fetch(name, folder, graph->initializer[i]));
        SGRAD_TRY(sgrad__onnx_check_tensor(name, graph->initializer[i]->name, graph->initializer[i]));
    }
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t j = 0; j < graph->node[i]->n_attribute; j++)
            if (graph->node[i]->attribute[j]->t) SGRAD_TRY(sgrad__onnx_fetch(name, folder, graph->node[i]->attribute[j]->t));
    return 0;
}

static int check(const char *name, const char *folder, const Onnx__Model *model) {
    if (!model->graph || !model->graph->n_node)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has no graph: it is not an ONNX file, or is empty", name);
    size_t layers = 0;
    for (size_t i = 0; i < model->graph->n_node; i++) layers += 1 + model->graph->node[i]->n_input / SGRAD_MAX_INPUTS;
    if (layers > MOST_NODES)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has %zu nodes, or inputs of as many, but at most %d are supported", name,
                               layers, MOST_NODES);
    if (model->graph->n_sparse_initializer)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: has sparse tensors, which are not supported", name);
    return check_tensors(name, folder, model->graph);
}

static int refuse(const char *name, const void *data, size_t size) {
    const struct sgrad_contents *is = sgrad_contents(data, size < 512 ? size : 512);
    if (is)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: is not an ONNX file, but %s%s%s", name, is->name, is->way_out ? ": " : "",
                               is->way_out ? is->way_out : "");
    return sgrad_log_error(SGRAD_EFORMAT, "%s: is not an ONNX file, or is damaged: protobuf cannot read it", name);
}

static int parse(const char *name, const char *folder, const void *data, size_t size, struct sgrad__onnx **file) {
    struct budget budget = { COST * size + AT_LEAST };
    ProtobufCAllocator memory = { take, give, &budget };
    struct sgrad__onnx *f = sgrad_xcalloc(1, sizeof *f);
    f->path = sgrad_format("%s", name);
    f->model = onnx__model__unpack(&memory, size, data);
    int error = f->model ? check(name, folder, f->model) : refuse(name, data, size);
    if (error) sgrad__onnx_close(f);
    else *file = f;
    return error;
}

int sgrad__onnx_parse(const char *name, const void *data, size_t size, struct sgrad__onnx **file) {
    return parse(name, NULL, data, size, file);
}

/* Reads the whole file to *DATA, which the caller must free. */
static int read_all(const char *path, unsigned char **data, size_t *size) {
    FILE *file = fopen(path, "rb");
    long long end = -1;
    if (!file) return sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    if (!fseeko(file, 0, SEEK_END)) end = ftello(file);
    int error = 0;
    if (end < 0 || end > INT_MAX || fseeko(file, 0, SEEK_SET))
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: must be a regular file smaller than 2 GiB", path);
    *data = error ? NULL : sgrad_xcalloc(1, (size_t)end + 1);
    if (!error && fread(*data, 1, (size_t)end, file) != (size_t)end)
        error =
            sgrad_log_error(SGRAD_EIO, "%s: cannot be read: %s", path, ferror(file) ? strerror(errno) : "it has become shorter");
    fclose(file);
    *size = (size_t)end;
    return error;
}

int sgrad__onnx_open(const char *path, struct sgrad__onnx **file) {
    unsigned char *data = NULL;
    size_t size = 0;
    int error = read_all(path, &data, &size);
    const char *slash = strrchr(path, '/');
    char *folder = sgrad_format("%.*s", slash ? (int)(slash + 1 - path) : 0, path);
    if (!error) error = parse(path, folder, data, size, file);
    free(folder);
    free(data);
    return error;
}

void sgrad__onnx_close(struct sgrad__onnx *file) {
    if (!file) return;
    if (file->model) onnx__model__free_unpacked(file->model, NULL);
    free(file->path);
    free(file);
}
