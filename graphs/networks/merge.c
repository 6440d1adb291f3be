/* merge.c: adds low-rank adapters to the weights that they adapt: weight + alpha / rank · B·A. In files and in copies of weights
 * the three matrices have the names
 *
 *     NAME.weight (K,C)     NAME.lora_A.weight (rank,C)     NAME.lora_B.weight (K,rank)
 *
 * A and B have this layout in files, too, even if the weight is transposed there. */
#include "graphs/networks/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT ".weight"
static const char *const suffix[] = { ".lora_A" WEIGHT, ".lora_B" WEIGHT };

bool sgrad__is_adapter(const char *name) { return sgrad_ends_with(name, suffix[0]) || sgrad_ends_with(name, suffix[1]); }

/* weight (K,C) += scale · b (K,rank) · a (rank,C) */
static void add_product(float *weight, const float *a, const float *b, int64_t K, int64_t C, int64_t rank, double scale) {
    for (int64_t k = 0; k < K; k++)
        for (int64_t r = 0; r < rank; r++) {
            const float factor = (float)scale * b[k * rank + r];
            for (int64_t c = 0; c < C; c++) weight[k * C + c] += factor * a[r * C + c];
        }
}

void sgrad__items_select(struct sgrad__items *list, bool adapters) {
    int count = 0;
    for (int i = 0; i < list->count; i++) {
        if (sgrad__is_adapter(list->item[i].name) == adapters) list->item[count++] = list->item[i];
        else free(list->item[i].name);
    }
    list->count = count;
    if (!adapters) list->lora_scale = 0;
}

/* ---- copies of weights ------------------------------------------------------------------------------------------- */

/* Returns the index of the item with the first LENGTH characters of NAME and then END as its name; -1: no such item. */
static int find(const struct sgrad__items *list, const char *name, size_t length, const char *end) {
    for (int i = 0; i < list->count; i++)
        if (!strncmp(list->item[i].name, name, length) && !strcmp(list->item[i].name + length, end)) return i;
    return -1;
}

void sgrad__weights_merge(struct sgrad__weights *copy) {
    struct sgrad__items *list = &copy->items;
    if (list->lora_scale == 0) return;
    for (int i = 0; i < list->count; i++) {
        const struct sgrad__item *a = &list->item[i];
        if (!sgrad_ends_with(a->name, suffix[0])) continue;
        const size_t length = strlen(a->name) - strlen(suffix[0]);
        const int b = find(list, a->name, length, suffix[1]), weight = find(list, a->name, length, WEIGHT);
        const int64_t *dim = list->item[weight].view.shape.dim;
        add_product(copy->value[weight], copy->value[i], copy->value[b], dim[0], dim[1], a->view.shape.dim[0], list->lora_scale);
    }
    for (int i = 0, count = 0; i < list->count; i++) {
        if (!sgrad__is_adapter(list->item[i].name)) copy->value[count++] = copy->value[i];
        else if (!copy->mapped) free(copy->value[i]);
    }
    sgrad__items_select(list, false);
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

/* Reads an F32 matrix. The caller must free it. NULL: the file cannot be read. */
static float *read_matrix(const struct sgrad_safetensors *file, const struct sgrad_entry *entry) {
    float *value = sgrad_xcalloc(1, sgrad_view_bytes(&entry->view));
    if (!sgrad_safetensors_read(file, entry, value)) return value;
    free(value);
    return NULL;
}

/* Returns matrix WHICH of the adapter of the weight NAME; NULL: the file has no such matrix. */
static const struct sgrad_entry *find_matrix(const struct sgrad_safetensors *file, const char *name, int which) {
    char *matrix = sgrad_format("%.*s%s", (int)(strlen(name) - strlen(WEIGHT)), name, suffix[which]);
    const struct sgrad_entry *entry = sgrad_safetensors_find(file, matrix);
    free(matrix);
    return entry;
}

int sgrad__adapter_merge(const struct sgrad_safetensors *file, const char *name, const struct sgrad_shape *shape, float *value) {
    const char *text = sgrad_safetensors_metadata(file, SGRAD__LORA_SCALE);
    if (!text || shape->rank != 2 || !sgrad_ends_with(name, WEIGHT)) return 0;
    const struct sgrad_entry *a = find_matrix(file, name, 0), *b = find_matrix(file, name, 1);
    if (!a && !b) return 0;
    const struct sgrad_shape *of_a = a ? &a->view.shape : NULL, *of_b = b ? &b->view.shape : NULL;
    const double scale = strtod(text, NULL);
    if (!(scale > 0 && scale < INFINITY))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: " SGRAD__LORA_SCALE " in its metadata is invalid: '%s'", file->path, text);
    if (!a || !b || a->view.dtype != SGRAD_F32 || b->view.dtype != SGRAD_F32 || of_a->rank != 2 || of_b->rank != 2 ||
        of_a->dim[1] != shape->dim[1] || of_b->dim[0] != shape->dim[0] || of_a->dim[0] != of_b->dim[1])
        return sgrad_log_error(SGRAD_EFORMAT, "%s: the adapter of %s is incomplete, or does not fit it", file->path, name);
    float *left = read_matrix(file, b), *right = left ? read_matrix(file, a) : NULL;
    if (right) add_product(value, right, left, shape->dim[0], shape->dim[1], of_a->dim[0], scale);
    free(left);
    free(right);
    return right ? 0 : SGRAD_EIO;
}
