/* parameters.c: the memory of parameters, operation states and optimizer states; their first values; their way to and from
 * files.
 *
 * In files tensors are named and laid out as PyTorch does; an optimizer's state is called optimizer.STATE.PARAMETER and lies
 * as its parameter does. A filter (K,R,S,C) of 1 map, 2x2 pixels and 3 channels:
 *
 *     memory, OHWI    a0 a1 a2  b0 b1 b2  c0 c1 c2  d0 d1 d2      pixels a b / c d, channels 0 1 2
 *     file, OIHW      a0 b0 c0 d0  a1 b1 c1 d1  a2 b2 c2 d2
 *
 * Limits: everything that is saved is copied to main memory first, all at once. */
#include "graphs/runs/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMIZER "optimizer."
#define STATES 2

/* ---- first values --------------------------------------------------------------------------------------------- */

/* Uniform in (0,1). */
static double uniform(uint32_t word) { return ((double)word + 0.5) * 0x1p-32; }

/* Two numbers from N(0,1) for two from U(0,1) (Box, Muller, 1958). */
static void normal(const uint32_t word[2], double x[2]) {
    double radius = sqrt(-2 * log(uniform(word[0]))), angle = 2 * M_PI * uniform(word[1]);
    x[0] = radius * cos(angle);
    x[1] = radius * sin(angle);
}

/* Values 4·block to 4·block + 3 of a parameter. */
static void draw(enum sgrad_init init, double fan, struct sgrad_random r, double x[4]) {
    for (int i = 0; i < 4; i++) x[i] = init == SGRAD_ONES;
    if (init == SGRAD_UNIFORM)
        for (int i = 0; i < 4; i++) x[i] = (2 * uniform(r.word[i]) - 1) / sqrt(fan);
    if (init == SGRAD_HE) {
        normal(r.word, x);
        normal(r.word + 2, x + 2);
        for (int i = 0; i < 4; i++) x[i] *= sqrt(2 / fan);
    }
}

/* Numbers are drawn in the order of memory. */
static int initialize(const struct sgrad__parameter *p, uint64_t seed) {
    if (p->is.init == SGRAD_ZEROS) return 0;    /* as tensors begin */
    const int64_t count = sgrad_shape_count(&p->is.shape);
    const uint64_t index = sgrad_hash(p->name, strlen(p->name));     /* each has a place of its own in the random stream */
    float *value = sgrad_alloc((size_t)count, sizeof *value);
    for (int64_t i = 0; i < count; i += 4) {
        double x[4];
        draw(p->is.init, p->is.fan, sgrad_philox(seed, SGRAD_STREAM_INIT, 0, index, (uint32_t)(i / 4)), x);
        for (int64_t j = i; j < i + 4 && j < count; j++) value[j] = (float)x[j - i];
    }
    int error = sgrad_tensor_write(p->tensor, value);
    free(value);
    return error;
}

static char *state_name(const struct sgrad__parameter *p, const char *state) {
    return sgrad_format(OPTIMIZER "%s.%s", state, p->name);
}

/* How many states the optimizer keeps of this parameter. */
static int states(const struct sgrad__parameter *p, const struct sgrad_optimizer *optimizer) {
    int count = 0;
    while (optimizer && !p->state && count < STATES && optimizer->states[count]) count++;
    return count;
}

static int allocate(struct sgrad__parameter *p, const struct sgrad_optimizer *optimizer, uint64_t seed) {
    SGRAD_TRY(sgrad_tensor_create(p->name, p->is.dtype, p->is.shape, SGRAD_PERSISTENT, &p->tensor));
    for (int i = 0; i < states(p, optimizer); i++) {
        char *name = state_name(p, optimizer->states[i]);
        int error = sgrad_tensor_create(name, p->is.dtype, p->is.shape, SGRAD_PERSISTENT, &p->moment[i]);
        free(name);
        if (error) return error;
    }
    return initialize(p, seed);
}

int sgrad__parameters_allocate(struct sgrad_graph *g, const struct sgrad_optimizer *optimizer, uint64_t seed) {
    int error = 0;
    for (int i = 0; i < g->parameter_count && !error; i++) error = allocate(&g->parameter[i], optimizer, seed);
    if (error) sgrad__parameters_free(g);
    return error;
}

void sgrad__parameters_free(struct sgrad_graph *g) {
    for (int i = 0; i < g->parameter_count; i++) {
        struct sgrad__parameter *p = &g->parameter[i];
        sgrad_tensor_destroy(p->tensor);
        for (int j = 0; j < STATES; j++) sgrad_tensor_destroy(p->moment[j]);
        p->tensor = p->moment[0] = p->moment[1] = NULL;
    }
}

int64_t sgrad__parameters_count(const struct sgrad_graph *g) {
    int64_t count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (!g->parameter[i].state) count += sgrad_shape_count(&g->parameter[i].is.shape);
    return count;
}

/* ---- layouts and types ---------------------------------------------------------------------------------------- */

/* The shape that the parameter has in files. */
static struct sgrad_shape file_shape(const struct sgrad_parameter *p) {
    const int64_t *d = p->shape.dim;
    if (p->layout == SGRAD_OIHW) return (struct sgrad_shape){ 4, { d[0], d[3], d[1], d[2] } };
    return p->shape;
}

/* FROM (n,rows,columns) to TO (n,columns,rows): OIHW to OHWI has I rows of H·W columns, the way back has them exchanged. */
static void transpose(int64_t n, int64_t rows, int64_t columns, const float *from, float *to) {
    for (; n > 0; n--, from += rows * columns, to += rows * columns)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) to[j * rows + i] = from[i * columns + j];
}

static void to_file_layout(const struct sgrad_parameter *p, const float *memory, float *file) {
    const int64_t *d = p->shape.dim;
    transpose(d[0], d[1] * d[2], d[3], memory, file);
}

static void to_memory_layout(const struct sgrad_parameter *p, const float *file, float *memory) {
    const int64_t *d = p->shape.dim;
    transpose(d[0], d[3], d[1] * d[2], file, memory);
}

/* COUNT numbers of type DTYPE, at any address, as floats. */
static void to_floats(enum sgrad_dtype dtype, const void *from, int64_t count, float *to) {
    if (dtype == SGRAD_F32) memcpy(to, from, (size_t)count * sizeof *to);
    const char *at = from;
    for (int64_t i = 0; i < count && dtype == SGRAD_F64; i++, at += sizeof(double)) {
        double x;
        memcpy(&x, at, sizeof x);
        to[i] = (float)x;
    }
    for (int64_t i = 0; i < count && dtype == SGRAD_BF16; i++, at += sizeof(uint16_t)) {
        uint16_t x;
        memcpy(&x, at, sizeof x);
        to[i] = sgrad_bf16_to_f32(x);
    }
}

/* ---- files: what is a tensor's name, where is its memory ------------------------------------------------------- */

/* A tensor of the network and what it is called in files. */
struct item {
    char *name;
    const struct sgrad_parameter *is;
    struct sgrad_tensor *tensor;
};
struct items {
    int count;
    struct item *item;
};

static struct items list_items(const struct sgrad_graph *g, const struct sgrad_optimizer *optimizer) {
    struct items list = { .item = sgrad_alloc((size_t)g->parameter_count * (1 + STATES), sizeof *list.item) };
    for (int i = 0; i < g->parameter_count; i++) {
        const struct sgrad__parameter *p = &g->parameter[i];
        list.item[list.count++] = (struct item){ sgrad_format("%s", p->name), &p->is, p->tensor };
        for (int j = 0; j < states(p, optimizer); j++)
            list.item[list.count++] = (struct item){ state_name(p, optimizer->states[j]), &p->is, p->moment[j] };
    }
    return list;
}

static void free_items(struct items *list) {
    for (int i = 0; i < list->count; i++) free(list->item[i].name);
    free(list->item);
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

/* Counters of steps (num_batches_tracked) came to PyTorch late: weights without them are whole. */
static bool may_be_absent(const struct item *item) { return item->is->dtype == SGRAD_I64; }

static int check_item(const struct item *item, const struct sgrad_entry *entry, const char *path) {
    if (!entry)
        return may_be_absent(item) ? 0 : sgrad_fail(SGRAD_EFORMAT, "%s: has no tensor %s, which the network has", path, item->name);
    const enum sgrad_dtype has = entry->view.dtype, wants = item->is->dtype;
    if (wants == SGRAD_F32 ? has != SGRAD_F32 && has != SGRAD_BF16 && has != SGRAD_F64 : has != wants)
        return sgrad_fail(SGRAD_EFORMAT, "%s: %s is of type %s, the network takes %s", path, item->name, sgrad_dtype_name(has),
                          wants == SGRAD_F32 ? "F32, BF16 or F64" : sgrad_dtype_name(wants));
    const struct sgrad_shape shape = file_shape(item->is);
    char there[SGRAD_SHAPE_TEXT], here[SGRAD_SHAPE_TEXT];
    if (!sgrad_shape_equal(&entry->view.shape, &shape))
        return sgrad_fail(SGRAD_ESHAPE, "%s: %s has shape %s, the network's has %s", path, item->name,
                          sgrad_shape_text(&entry->view.shape, there), sgrad_shape_text(&shape, here));
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

/* Sorts the list by name. */
static int check_file(struct items *list, const struct sgrad_safetensors *file, bool with_optimizer) {
    for (int i = 0; i < list->count; i++)
        SGRAD_TRY(check_item(&list->item[i], sgrad_safetensors_find(file, list->item[i].name), file->path));
    qsort(list->item, (size_t)list->count, sizeof *list->item, by_name);
    for (int i = 0; i < file->count; i++) {
        char *name = file->entry[i].name;
        if (!with_optimizer && strncmp(name, OPTIMIZER, strlen(OPTIMIZER)) == 0) continue;
        if (!bsearch(&(struct item){ .name = name }, list->item, (size_t)list->count, sizeof *list->item, by_name))
            return sgrad_fail(SGRAD_EFORMAT, "%s: has a tensor %s, which the network has not", file->path, name);
    }
    return 0;
}

static int load_item(const struct item *item, const struct sgrad_safetensors *from, const struct sgrad_entry *entry) {
    if (!entry) return 0;
    const int64_t count = sgrad_shape_count(&item->is->shape);
    const size_t bytes = sgrad_view_bytes(&item->tensor->view);
    void *data = sgrad_alloc(1, sgrad_view_bytes(&entry->view)), *file = sgrad_alloc(1, bytes), *memory = sgrad_alloc(1, bytes);
    int error = sgrad_safetensors_read(from, entry, data);
    if (item->is->dtype == SGRAD_F32) to_floats(entry->view.dtype, data, count, file);
    else memcpy(file, data, bytes);
    bool moves = item->is->layout == SGRAD_OIHW;
    if (moves) to_memory_layout(item->is, file, memory);
    if (!error) error = sgrad_tensor_write(item->tensor, moves ? memory : file);
    free(data);
    free(file);
    free(memory);
    return error;
}

int sgrad__parameters_load(struct sgrad_graph *g, const struct sgrad_optimizer *optimizer, const struct sgrad_safetensors *file,
                           bool with_optimizer) {
    struct items list = list_items(g, with_optimizer ? optimizer : NULL);
    int error = check_file(&list, file, with_optimizer);
    for (int i = 0; i < list.count && !error; i++)
        error = load_item(&list.item[i], file, sgrad_safetensors_find(file, list.item[i].name));
    free_items(&list);
    return error;
}

/* ---- saving --------------------------------------------------------------------------------------------------- */

/* The entry's data is the caller's to free. */
static int save_item(const struct item *item, struct sgrad_entry *entry) {
    const size_t bytes = sgrad_view_bytes(&item->tensor->view);
    void *memory = sgrad_alloc(1, bytes), *file = sgrad_alloc(1, bytes);
    int error = sgrad_tensor_read(item->tensor, memory);
    if (item->is->layout == SGRAD_OIHW) to_file_layout(item->is, memory, file);
    else memcpy(file, memory, bytes);
    *entry = (struct sgrad_entry){ item->name, { item->is->dtype, file_shape(item->is) }, file };
    free(memory);
    return error;
}

/* Writes what is in ENTRY, with its checksum added to the metadata. */
static int write_entries(const struct sgrad_entry *entry, int count, const char *path, const char *const *metadata, int metadata_count) {
    char checksum[SGRAD_CHECKSUM];
    sgrad_safetensors_checksum(entry, count, checksum);
    const char **more = sgrad_alloc(2 * (size_t)(metadata_count + 1), sizeof *more);
    for (int i = 0; i < 2 * metadata_count; i++) more[i] = metadata[i];
    more[2 * metadata_count] = "checksum";
    more[2 * metadata_count + 1] = checksum;
    int error = sgrad_safetensors_write(path, entry, count, more, metadata_count + 1);
    free(more);
    return error;
}

int sgrad__parameters_save(struct sgrad_graph *g, const struct sgrad_optimizer *optimizer, const char *path, bool with_optimizer,
                           const char *const *metadata, int metadata_count) {
    struct items list = list_items(g, with_optimizer ? optimizer : NULL);
    struct sgrad_entry *entry = sgrad_alloc((size_t)list.count, sizeof *entry);
    int error = 0;
    for (int i = 0; i < list.count && !error; i++) error = save_item(&list.item[i], &entry[i]);
    if (!error) error = write_entries(entry, list.count, path, metadata, metadata_count);
    for (int i = 0; i < list.count; i++) free((void *)entry[i].data);
    free(entry);
    free_items(&list);
    return error;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------ */

int sgrad__parameters_broadcast(struct sgrad_graph *g, const struct sgrad_optimizer *optimizer) {
    struct items list = list_items(g, optimizer);
    int error = 0;
    for (int i = 0; i < list.count && !error; i++) {
        const size_t bytes = sgrad_view_bytes(&list.item[i].tensor->view);
        void *memory = sgrad_alloc(1, bytes);
        error = sgrad_tensor_read(list.item[i].tensor, memory);
        sgrad_ranks_broadcast(memory, bytes, 0);
        if (!error) error = sgrad_tensor_write(list.item[i].tensor, memory);
        free(memory);
    }
    free_items(&list);
    return error;
}
