/* weights.c: loads parameters and states from files, and saves them.
 *
 * In files, tensors have the names and layouts of PyTorch. A state of the optimizer is named optimizer.STATE.PARAMETER, and has
 * the layout of its parameter or, if it has another shape, its layout in memory. A filter (K,R,S,C) of 1 map, 2x2 pixels and 3
 * channels:
 *
 *     memory, OHWI    a0 a1 a2  b0 b1 b2  c0 c1 c2  d0 d1 d2      pixels a b / c d, channels 0 1 2
 *     file, OIHW      a0 b0 c0 d0  a1 b1 c1 d1  a2 b2 c2 d2
 *
 * A stacked parameter (E,K,C), "experts.*.weight", is E tensors (K,C): "experts.0.weight", "experts.1.weight" and so on.
 *
 * Parameters that are split over ranks are whole in files, which also contain values that only some ranks store (shards.c).
 *
 * Limits: all values to save are copied first, at once: to main memory, or to the file of --spill. */
#include "graphs/networks/graph.h"
#include "runtime/spill.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- layouts and types ---------------------------------------------------------------------------------------- */

/* Returns the number of tensors in files. */
static int pieces_of(const struct sgrad__item *item) {
    return item->layout == SGRAD_STACKED ? (int)item->view.shape.dim[0] : 1;
}

/* Returns true if the numbers of a tensor have another order in files. */
static bool is_permuted(const struct sgrad__item *item) {
    return item->layout == SGRAD_OIHW || item->layout == SGRAD_TRANSPOSED;
}

/* Returns the name of tensor PIECE in files. The caller must free it. */
static char *piece_name(const struct sgrad__item *item, int piece) {
    if (item->layout != SGRAD_STACKED) return sgrad_format("%s", item->name);
    const char *star = strrchr(item->name, '*');
    assert(star);
    return sgrad_format("%.*s%d%s", (int)(star - item->name), item->name, piece, star + 1);
}

/* Returns the shape in files, of one tensor. */
static struct sgrad_shape file_shape(const struct sgrad__item *item) {
    const struct sgrad_shape *memory = &item->view.shape;
    struct sgrad_shape file = *memory;
    if (item->layout == SGRAD_STACKED) {
        file.rank--;
        memmove(file.dim, file.dim + 1, (size_t)file.rank * sizeof *file.dim);
    }
    if (item->layout == SGRAD_TRANSPOSED) return (struct sgrad_shape){ 2, { memory->dim[1], memory->dim[0] } };
    if (item->layout != SGRAD_OIHW) return file;
    file.dim[1] = memory->dim[memory->rank - 1];
    for (int i = 2; i < memory->rank; i++) file.dim[i] = memory->dim[i - 1];
    return file;
}

/* Transposes FROM (n,rows,columns) to TO (n,columns,rows). OIHW to OHWI has I rows of H·W columns (D·H·W for filters of volumes);
 * the inverse has rows and columns exchanged. */
static void transpose(int64_t n, int64_t rows, int64_t columns, const float *from, float *to) {
    for (; n > 0; n--, from += rows * columns, to += rows * columns)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
}

static void to_file_layout(const struct sgrad__item *item, const float *memory, float *file) {
    const struct sgrad_shape *s = &item->view.shape;
    const int64_t inputs = s->dim[s->rank - 1], outputs = s->dim[0];
    if (item->layout == SGRAD_TRANSPOSED) transpose(1, outputs, inputs, memory, file);
    else transpose(outputs, sgrad_shape_count(s) / outputs / inputs, inputs, memory, file);
}

static void to_memory_layout(const struct sgrad__item *item, const float *file, float *memory) {
    const struct sgrad_shape *s = &item->view.shape;
    const int64_t inputs = s->dim[s->rank - 1], outputs = s->dim[0];
    if (item->layout == SGRAD_TRANSPOSED) transpose(1, inputs, outputs, file, memory);
    else transpose(outputs, inputs, sgrad_shape_count(s) / outputs / inputs, file, memory);
}

/* Half precision (IEEE 754 binary16): sign, 5 bits of exponent, 10 of fraction. */
static float f16_to_f32(uint16_t x) {
    const int exponent = x >> 10 & 31, fraction = x & 1023;
    float size = ldexpf((float)fraction, -24);      /* exponent 0 */
    if (exponent == 31) size = fraction ? NAN : INFINITY;
    else if (exponent) size = ldexpf((float)(1024 + fraction), exponent - 25);
    return x >> 15 ? -size : size;
}

void sgrad__to_floats(enum sgrad_dtype dtype, const void *from, int64_t count, float *to) {
    if (dtype == SGRAD_F32) memcpy(to, from, (size_t)count * sizeof *to);
    const char *at = from;
    for (int64_t i = 0; i < count && dtype == SGRAD_F64; i++, at += sizeof(double)) {
        double x;
        memcpy(&x, at, sizeof x);
        to[i] = (float)x;
    }
    for (int64_t i = 0; i < count && (dtype == SGRAD_BF16 || dtype == SGRAD_F16); i++, at += sizeof(uint16_t)) {
        uint16_t x;
        memcpy(&x, at, sizeof x);
        to[i] = dtype == SGRAD_F16 ? f16_to_f32(x) : sgrad_bf16_to_f32(x);
    }
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

/* PyTorch added step counters (num_batches_tracked) late: weights without them are complete. */
static bool may_be_absent(const struct sgrad__item *item) { return item->view.dtype == SGRAD_I64; }

/* Names in files may omit the prefix of the model. */
static const struct sgrad_entry *find_entry(const struct sgrad_graph *graph, const struct sgrad_safetensors *file,
                                            const char *name) {
    const char *prefix = graph->model ? graph->model->prefix : NULL;
    const struct sgrad_entry *entry = sgrad_safetensors_find(file, name);
    if (entry || !prefix || strncmp(name, prefix, strlen(prefix))) return entry;
    return sgrad_safetensors_find(file, name + strlen(prefix));
}

/* Returns the type of the tensor NAME, if this type cannot be loaded; NULL: there is no such tensor. */
static const char *find_other(const struct sgrad_graph *graph, const struct sgrad_safetensors *file, const char *name) {
    const char *prefix = graph->model ? graph->model->prefix : NULL, *type = sgrad_safetensors_other(file, name);
    if (type || !prefix || strncmp(name, prefix, strlen(prefix))) return type;
    return sgrad_safetensors_other(file, name + strlen(prefix));
}

/* Returns the remedy for an item whose shape is not that in the file. */
static const char *advice_on_shape(const struct sgrad_graph *graph, const struct sgrad__item *item, bool with_states) {
    if (with_states) return "";
    if (!graph->lora.rank) return "; train with --init-skip to initialise it randomly instead";
    if (sgrad__is_adapter(item->name)) return "; check --model, and r in adapter_config.json";
    return "; check --model and --data, or first train with --init-skip and without --lora, and adapt the resulting weights";
}

/* Checks the tensor NAME of an item. A checkpoint (WITH_STATES) must contain all of its network. */
static int check_tensor(const struct sgrad_graph *graph, const struct sgrad__item *item, const char *name,
                        const struct sgrad_safetensors *file, bool with_states) {
    const struct sgrad_entry *entry = find_entry(graph, file, name);
    const char *path = file->path, *other = entry ? NULL : find_other(graph, file, name);
    const bool of_adapter = sgrad__is_adapter(name);
    if (other)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s has type %s, but must be F32, BF16, F16 or F64", path, name, other);
    if (!entry)
        return may_be_absent(item)
                   ? 0
                   : sgrad_log_error(SGRAD_EFORMAT, "%s: has no tensor %s, which the network requires%s", path, name,
                                     of_adapter && !with_states ? "; check --lora-on, or save the adapter again" : "");
    const enum sgrad_dtype has = entry->view.dtype, wants = item->view.dtype;
    const bool real = has == SGRAD_F32 || has == SGRAD_BF16 || has == SGRAD_F16 || has == SGRAD_F64;
    if (wants == SGRAD_F32 ? !real : has != wants)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s has type %s, but must be %s", path, name,
                               sgrad_dtype_name(has), wants == SGRAD_F32 ? "F32, BF16, F16 or F64" : sgrad_dtype_name(wants));
    const struct sgrad_shape shape = file_shape(item);
    char there[SGRAD_SHAPE_TEXT], here[SGRAD_SHAPE_TEXT];
    if (!sgrad_shape_equal(&entry->view.shape, &shape))
        return sgrad_log_error(SGRAD_ESHAPE, "%s: %s has shape %s, but the network requires %s%s", path, name,
                               sgrad_shape_text(&entry->view.shape, there), sgrad_shape_text(&shape, here),
                               advice_on_shape(graph, item, with_states));
    return 0;
}

static int check_item(const struct sgrad_graph *graph, const struct sgrad__item *item, const struct sgrad_safetensors *file,
                      bool with_states) {
    int error = 0;
    for (int i = 0; i < pieces_of(item) && !error; i++) {
        char *name = piece_name(item, i);
        error = check_tensor(graph, item, name, file, with_states);
        free(name);
    }
    return error;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct sgrad__item *)a)->name, ((const struct sgrad__item *)b)->name);
}

/* Returns true if the sorted LIST has the tensor NAME: an item, or a piece of one, "experts.12.weight" of "experts.*.weight". */
static bool is_known(const struct sgrad__items *list, const char *name) {
    struct sgrad__item key = { .name = (char *)name };
    const struct sgrad__item *item = bsearch(&key, list->item, (size_t)list->count, sizeof *list->item, by_name);
    for (const char *digits = strpbrk(name, "0123456789"); digits && !item; digits = strpbrk(digits, "0123456789")) {
        const size_t length = strspn(digits, "0123456789");
        key.name = sgrad_format("%.*s*%s", (int)(digits - name), name, digits + length);
        item = bsearch(&key, list->item, (size_t)list->count, sizeof *list->item, by_name);
        free(key.name);
        const long number = strtol(digits, NULL, 10);
        char *own = item && number < pieces_of(item) ? piece_name(item, (int)number) : NULL;
        if (!own || strcmp(own, name)) item = NULL;
        free(own);
        digits += length;
    }
    return item;
}

/* Returns 0 if they are equal. */
static int check_equal(const struct sgrad_safetensors *file, const struct sgrad_entry *entry, const struct sgrad_entry *b) {
    if (!sgrad_shape_equal(&entry->view.shape, &b->view.shape) || entry->view.dtype != b->view.dtype) return SGRAD_EFORMAT;
    const size_t bytes = sgrad_view_bytes(&entry->view);
    void *one = sgrad_xcalloc(1, bytes), *other = sgrad_xcalloc(1, bytes);
    int error = sgrad_safetensors_read(file, entry, one);
    if (!error) error = sgrad_safetensors_read(file, b, other);
    if (!error && memcmp(one, other, bytes)) error = SGRAD_EFORMAT;
    free(one);
    free(other);
    return error;
}

/* Checks a tensor that the network has by another name, or does not have. ENTRY NULL: its type cannot be loaded. */
static int check_stranger(const struct sgrad_graph *graph, const struct sgrad__items *list, const struct sgrad_safetensors *file,
                          const char *tensor, const struct sgrad_entry *entry) {
    const struct sgrad_model *model = graph->model;
    for (const char *const *end = model ? model->ignored : NULL; end && *end; end++)
        if (sgrad_ends_with(tensor, *end)) return 0;
    for (int i = 0; i < graph->tie_count; i++) {
        if (strcmp(graph->tie[i].name, tensor)) continue;
        if (entry && !check_equal(file, entry, find_entry(graph, file, graph->tie[i].as))) return 0;
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s and %s must be equal, because the network uses one parameter for both",
                               file->path, tensor, graph->tie[i].as);
    }
    char *name = sgrad_format("%s%s", model && model->prefix ? model->prefix : "", tensor);
    const bool known = is_known(list, name);
    free(name);
    if (known) return 0;
    return sgrad_log_error(SGRAD_EFORMAT, "%s: has a tensor %s, which the network does not have; check %s", file->path, tensor,
                           graph->lora.rank && sgrad__is_adapter(tensor)
                               ? "--lora-on, and that the file has both matrices of each adapter"
                               : "--model");
}

/* Checks a file; sorts the list by name. */
static int check_file(const struct sgrad_graph *graph, struct sgrad__items *list, const struct sgrad_safetensors *file,
                      const char *skip) {
    for (int i = 0; i < list->count; i++)
        SGRAD_TRY(check_item(graph, &list->item[i], file, list->states));
    qsort(list->item, (size_t)list->count, sizeof *list->item, by_name);
    const bool merges = !list->states && sgrad_safetensors_metadata(file, SGRAD__LORA_SCALE);
    for (int i = 0; i < file->count + file->others; i++) {
        const struct sgrad_entry *entry = i < file->count ? &file->entry[i] : NULL;
        char *name = entry ? entry->name : file->other[i - file->count].name;
        if (!list->states && strncmp(name, SGRAD__STATES, strlen(SGRAD__STATES)) == 0) continue;
        if (sgrad__is_listed(skip, name)) continue;
        if (merges && sgrad__is_adapter(name)) continue;
        if (!is_known(list, name)) SGRAD_TRY(check_stranger(graph, list, file, name, entry));
    }
    return 0;
}

/* Reads the tensors of an item to TO, in the layout of files, one after another. */
static int read_tensors(const struct sgrad_graph *graph, const struct sgrad__item *item, const struct sgrad_safetensors *from,
                        char *to) {
    const int pieces = pieces_of(item);
    const size_t bytes = sgrad_view_bytes(&item->view) / (size_t)pieces;
    int error = 0;
    for (int i = 0; i < pieces && !error; i++, to += bytes) {
        char *name = piece_name(item, i);
        const struct sgrad_entry *entry = find_entry(graph, from, name);
        void *data = sgrad_xcalloc(1, sgrad_view_bytes(&entry->view));
        error = sgrad_safetensors_read(from, entry, data);
        if (item->view.dtype != SGRAD_F32) memcpy(to, data, bytes);
        else sgrad__to_floats(entry->view.dtype, data, sgrad_shape_count(&entry->view.shape), (float *)(void *)to);
        free(data);
        free(name);
    }
    return error;
}

/* Returns true if FILE, which was checked, has the item. */
static bool has_item(const struct sgrad_graph *graph, const struct sgrad__item *item, const struct sgrad_safetensors *file) {
    char *name = piece_name(item, 0);
    const bool has = find_entry(graph, file, name);
    free(name);
    return has;
}

/* MERGES: the adapters in the file are merged into the weights. */
static int load_item(const struct sgrad_graph *graph, const struct sgrad__item *item, const struct sgrad_safetensors *from,
                     bool merges) {
    if (!has_item(graph, item, from)) return 0;
    const size_t bytes = sgrad_view_bytes(&item->view);
    void *file = sgrad_xcalloc(1, bytes), *memory = sgrad_xcalloc(1, bytes);
    int error = read_tensors(graph, item, from, file);
    const bool moves = is_permuted(item);
    if (moves) to_memory_layout(item, file, memory);
    if (!error && merges) error = sgrad__adapter_merge(from, item->name, &item->view.shape, moves ? memory : file);
    if (!error && item->whole) {
        free(*item->whole);
        *item->whole = memcpy(sgrad_xcalloc(1, bytes), moves ? memory : file, bytes);
        error = sgrad__item_take(graph, item);
        if (item->share.ranks && graph->rank) {     /* rank 0 scatters whole values; others do not need them */
            free(*item->whole);
            *item->whole = NULL;
        }
    } else if (!error) {
        error = sgrad_tensor_write(item->tensor, moves ? memory : file);
    }
    free(file);
    free(memory);
    return error;
}

/* Moves items in SKIP to the end, beyond the count. Returns their number. */
static int leave_out(struct sgrad__items *list, const char *skip) {
    int count = 0;
    for (int i = 0; i < list->count; i++) {
        const struct sgrad__item item = list->item[i];
        if (sgrad__is_listed(skip, item.name)) continue;
        list->item[i] = list->item[count];
        list->item[count++] = item;
    }
    const int left = list->count - count;
    list->count = count;
    return left;
}

int sgrad__weights_load(struct sgrad_graph *graph, struct sgrad__items items, const struct sgrad_safetensors *file,
                        const char *skip) {
    const int left = leave_out(&items, skip);
    int error = check_file(graph, &items, file, skip);
    for (int i = 0; i < items.count && !error; i++)
        error = load_item(graph, &items.item[i], file, !items.states);
    items.count += left;
    sgrad__items_free(&items);
    return error;
}

void sgrad__imported_free(struct sgrad_graph *graph) {
    if (!graph->imported) return;
    for (int i = 0; i < graph->imported->weights.count; i++) free((void *)graph->imported->weights.entry[i].data);
    sgrad_safetensors_close(&graph->imported->weights);
    free(graph->imported);
    graph->imported = NULL;
}

/* ---- saving --------------------------------------------------------------------------------------------------- */

/* Allocates the values: in the file of --spill, if there is one. */
static int allocate_values(struct sgrad__weights *w) {
    size_t at = 0;
    for (int i = 0; i < w->items.count; i++) w->bytes += sgrad_spill_blocks(sgrad_view_bytes(&w->items.item[i].view));
    if (w->items.file && w->bytes) SGRAD_TRY(sgrad_spill_map(w->items.file, w->bytes, &w->mapped));
    for (int i = 0; i < w->items.count; i++) {
        const size_t bytes = sgrad_view_bytes(&w->items.item[i].view);
        w->value[i] = w->mapped ? (char *)w->mapped + at : sgrad_xcalloc(1, bytes);
        at += sgrad_spill_blocks(bytes);
    }
    return 0;
}

int sgrad__weights_reserve(const struct sgrad__items *items, int count) {
    struct sgrad__weights *w = sgrad_xcalloc((size_t)count, sizeof *w);
    int error = 0;
    for (int i = 0; i < count; i++) {
        w[i] = (struct sgrad__weights){ .items = items[i], .value = sgrad_xcalloc((size_t)items[i].count, sizeof *w[i].value) };
        if (!error && items[i].file) error = allocate_values(&w[i]);
    }
    for (int i = 0; i < count; i++) sgrad__weights_free(&w[i]);
    free(w);
    return error;
}

int sgrad__weights_copy(struct sgrad__items items, struct sgrad_tensor *const *value, struct sgrad__weights *copy) {
    struct sgrad__weights w = { .items = items };
    w.value = sgrad_xcalloc((size_t)w.items.count, sizeof *w.value);
    int error = allocate_values(&w);
    for (int i = 0; i < w.items.count && !error; i++) {
        const struct sgrad__item *item = &w.items.item[i];
        const size_t bytes = sgrad_view_bytes(&item->view);
        if (item->whole) memcpy(w.value[i], *item->whole, bytes);
        else error = sgrad_tensor_read(value && value[i] ? value[i] : item->tensor, w.value[i]);
        sgrad_mapped_drop_pages(w.value[i], bytes);
    }
    if (error) sgrad__weights_free(&w);
    else *copy = w;
    return error;
}

void sgrad__weights_free(struct sgrad__weights *weights) {
    for (int i = 0; i < weights->items.count && !weights->mapped; i++) free(weights->value[i]);
    if (weights->mapped) sgrad_spill_unmap(weights->items.file, weights->mapped);
    for (char **name = weights->name; name && *name; name++) free(*name);
    free(weights->name);
    free(weights->value);
    sgrad__items_free(&weights->items);
}

/* Converts VALUE to the layout in files. */
static void lay_out(const struct sgrad__item *item, void *value) {
    const size_t bytes = sgrad_view_bytes(&item->view);
    if (!is_permuted(item)) return;
    void *memory = sgrad_xcalloc(1, bytes);
    memcpy(memory, value, bytes);
    to_file_layout(item, memory, value);
    sgrad_mapped_drop_pages(value, bytes);
    free(memory);
}

int sgrad__weights_checksum(const struct sgrad_safetensors *file, char checksum[SGRAD_CHECKSUM]) {
    const char *written = sgrad_safetensors_metadata(file, "checksum");
    SGRAD_TRY(sgrad_safetensors_file_checksum(file, checksum));
    if (written && strcmp(written, checksum))
        sgrad_log_warning("%s: its data have checksum %s, but had %s when written: the file was changed or is damaged",
                          file->path, checksum, written);
    return 0;
}

/* Writes the entries. Adds their checksum to the metadata, and the format, without which transformers refuses the file. */
static int write_entries(const struct sgrad_entry *entry, int count, const char *path, const char *const *metadata,
                         int metadata_count) {
    char checksum[SGRAD_CHECKSUM];
    sgrad_safetensors_checksum(entry, count, checksum);
    const char *const own[] = { "format", SGRAD__WEIGHTS_FORMAT, "checksum", checksum };
    const char **all = sgrad_xcalloc(2 * (size_t)metadata_count + 4, sizeof *all);
    for (int i = 0; i < 2 * metadata_count; i++) all[i] = metadata[i];
    memcpy(all + 2 * metadata_count, own, sizeof own);
    int error = sgrad_safetensors_write(path, entry, count, all, metadata_count + 2);
    free(all);
    return error;
}

struct sgrad_entry *sgrad__weights_entries(struct sgrad__weights *weights, int *count) {
    int most = 0;
    *count = 0;
    for (int i = 0; i < weights->items.count; i++) most += pieces_of(&weights->items.item[i]);
    struct sgrad_entry *entry = sgrad_xcalloc((size_t)most + 1, sizeof *entry);
    weights->name = sgrad_xcalloc((size_t)most + 1, sizeof *weights->name);
    for (int i = 0; i < weights->items.count; i++) {
        const struct sgrad__item *item = &weights->items.item[i];
        const int pieces = pieces_of(item);
        lay_out(item, weights->value[i]);
        for (int k = 0; k < pieces; k++, ++*count) {
            char *data = (char *)weights->value[i] + sgrad_view_bytes(&item->view) / (size_t)pieces * (size_t)k;
            weights->name[*count] = piece_name(item, k);
            entry[*count] = (struct sgrad_entry){ weights->name[*count], { item->view.dtype, file_shape(item) }, data };
        }
    }
    return entry;
}

int sgrad__weights_write(struct sgrad__weights *weights, const char *path, const char *const *metadata, int metadata_count) {
    int count;
    struct sgrad_entry *entry = sgrad__weights_entries(weights, &count);
    int error = weights->mapped ? sgrad_spill_flush(weights->items.file) : 0;
    if (!error) error = write_entries(entry, count, path, metadata, metadata_count);
    free(entry);
    return error;
}

int sgrad__weights_save(struct sgrad__items items, const char *path, const char *const *metadata, int metadata_count) {
    struct sgrad__weights copy;
    SGRAD_TRY(sgrad__weights_copy(items, NULL, &copy));
    int error = sgrad__weights_write(&copy, path, metadata, metadata_count);
    sgrad__weights_free(&copy);
    return error;
}
