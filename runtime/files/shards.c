/* shards.c: weights in several safetensors files, as the tools of Hugging Face write large models, with an index file:
 *
 *     model.safetensors.index.json    {"weight_map": {"fc.weight": "model-00001-of-00002.safetensors", …}, …}
 *
 * Each tensor must be in exactly one file, the one that the index names. The files must be in the folder of the index, or below
 * it. */
#include "config.h"
#include "runtime/files/contents.h"
#include "runtime/files/shards.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { INDEX_LIMIT = 100000000, MOST = 4096 };      /* maximum bytes of the index; maximum number of files */

/* Opens the file NAME, in which the index locates TENSOR, as a shard of FILE, unless it is open. FOLDER ends with '/' or is
 * empty. */
static int add_shard(struct sgrad_safetensors *file, const char *folder, const char *tensor, const char *name,
                     int (*open)(const char *path, struct sgrad_safetensors *file)) {
    if (!name || sgrad_path_leads_out(name))
        return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: weight_map: %s: '%s' is not a file in the index's folder",
                               file->path, tensor, name ? name : "(not a string)");
    char *path = sgrad_format("%s%s", folder, name);
    int i = 0, error = 0;
    while (i < file->shards && strcmp(file->shard[i].path, path)) i++;
    if (i == file->shards && i == MOST)
        error = sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: names more than %d files", file->path, MOST);
    else if (i == file->shards) {
        file->shard = sgrad_array_grow(file->shard, file->shards, sizeof *file->shard);
        error = open(path, &file->shard[i]);
        if (!error) file->shards++;
    }
    free(path);
    return error;
}

struct place {
    const char *name;
    int shard, entry;           /* entry -1: a tensor of an unsupported type */
    const char *type;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct place *)a)->name, ((const struct place *)b)->name);
}

/* Returns all tensors of all shards, sorted by name; the caller must free the array. */
static struct place *list_places(const struct sgrad_safetensors *file, int *count) {
    *count = 0;
    for (int s = 0; s < file->shards; s++) *count += file->shard[s].count + file->shard[s].others;
    struct place *all = sgrad_xcalloc((size_t)*count + 1, sizeof *all), *p = all;
    for (int s = 0; s < file->shards; s++) {
        const struct sgrad_safetensors *shard = &file->shard[s];
        for (int i = 0; i < shard->count; i++) *p++ = (struct place){ shard->entry[i].name, s, i, NULL };
        for (int i = 0; i < shard->others; i++) *p++ = (struct place){ shard->other[i].name, s, -1, shard->other[i].type };
    }
    qsort(all, (size_t)*count, sizeof *all, by_name);
    return all;
}

/* SGRAD_EFORMAT: a tensor is in several files, or a tensor of MAP is not in the file that MAP names. */
static int check_places(const struct sgrad_safetensors *file, const json_t *map, const char *folder, const struct place *all,
                        int count) {
    const char *tensor;
    json_t *value;
    for (int i = 1; i < count; i++)
        if (!strcmp(all[i - 1].name, all[i].name))
            return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: %s is in two files, %s and %s", file->path, all[i].name,
                                   file->shard[all[i - 1].shard].path, file->shard[all[i].shard].path);
    json_object_foreach((json_t *)map, tensor, value) {
        const struct place key = { .name = tensor }, *at = count ? bsearch(&key, all, (size_t)count, sizeof key, by_name) : NULL;
        const char *path = at ? file->shard[at->shard].path : "";
        if (!at || strcmp(path + strlen(folder), json_string_value(value)))
            return sgrad_log_error(SGRAD_EFORMAT, "safetensors: %s: lists tensor %s in %s%s, but that file does not have it",
                                   file->path, tensor, folder, json_string_value(value));
    }
    return 0;
}

static void take_places(struct sgrad_safetensors *file, const struct place *all, int count) {
    file->entry = sgrad_xcalloc((size_t)count + 1, sizeof *file->entry);
    file->at = sgrad_xcalloc((size_t)count + 1, sizeof *file->at);
    file->shard_of = sgrad_xcalloc((size_t)count + 1, sizeof *file->shard_of);
    file->other = sgrad_xcalloc((size_t)count + 1, sizeof *file->other);
    for (const struct place *p = all; p < all + count; p++) {
        const struct sgrad_safetensors *shard = &file->shard[p->shard];
        char *name = sgrad_format("%s", p->name);
        if (p->type) {
            file->other[file->others++] = (struct sgrad_other){ name, sgrad_format("%s", p->type) };
            continue;
        }
        file->entry[file->count] = (struct sgrad_entry){ name, shard->entry[p->entry].view, NULL };
        file->at[file->count] = shard->at[p->entry];
        file->shard_of[file->count++] = p->shard;
    }
}

static int read_map(struct sgrad_safetensors *file, const json_t *map, int (*open)(const char *, struct sgrad_safetensors *)) {
    const char *slash = strrchr(file->path, '/'), *tensor;
    char *folder = sgrad_format("%.*s", slash ? (int)(slash + 1 - file->path) : 0, file->path);
    json_t *value;
    int error = 0, count = 0;
    json_object_foreach((json_t *)map, tensor, value)
        if (!error) error = add_shard(file, folder, tensor, json_string_value(value), open);
    struct place *all = list_places(file, &count);
    if (!error) error = check_places(file, map, folder, all, count);
    if (!error) take_places(file, all, count);
    free(all);
    free(folder);
    return error;
}

int sgrad__shards_open(const char *path, int (*open)(const char *path, struct sgrad_safetensors *file),
                       struct sgrad_safetensors *file) {
    json_t *json = NULL;
    *file = (struct sgrad_safetensors){ .path = sgrad_format("%s", path), .descriptor = -1 };
    int error = sgrad_json_read(path, INDEX_LIMIT, &json);
    const json_t *map = json_object_get(json, "weight_map");
    if (!error && (!json_is_object(map) || !json_object_size(map)))
        error = sgrad_log_error(SGRAD_EFORMAT,
                                "safetensors: %s: is JSON text, neither safetensors nor an index of several files (it has no "
                                "weight_map); give model.safetensors, or model.safetensors.index.json",
                                path);
    if (!error) error = read_map(file, map, open);
    json_decref(json);
    return error;
}
