/* export.c: exports trained weights to a file: with their network in ONNX, or only the weights in safetensors. */
#include "config.h"
#include "graphs/networks/onnx/onnx.h"
#include "graphs/api/inference.h"
#include "graphs/train/setup.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITER "stargrad"       /* in the metadata of an index: the version that wrote it */

/* Writes ENTRY, consecutive tensors, to files of at most LIMIT bytes of tensors, or one tensor, and their index:
 *
 *     model-00001-of-00002.safetensors   model-00002-of-00002.safetensors   model.safetensors.index.json */
static int write_shards(const struct sgrad_entry *entry, int count, const char *path, int64_t limit) {
    int *first = sgrad_xcalloc((size_t)count + 1, sizeof *first), files = 0, error = 0;
    int64_t bytes = 0, total = 0;
    for (int i = 0; i < count; i++) {
        const int64_t own = (int64_t)sgrad_view_bytes(&entry[i].view);
        if (!files || bytes + own > limit) first[files++] = i, bytes = 0;
        bytes += own, total += own;
    }
    first[files] = count;
    const int stem = (int)(strrchr(path, '.') - path);
    const char *const metadata[] = { "format", SGRAD__WEIGHTS_FORMAT };
    if (files > 1 && unlink(path) && errno != ENOENT)
        error = sgrad_log_error(SGRAD_EIO, "%s: cannot be replaced by several files: %s", path, strerror(errno));
    json_t *map = json_object();
    for (int f = 0; f < files && !error; f++) {
        char *name = files == 1 ? sgrad_format("%s", path)
                                : sgrad_format("%.*s-%05d-of-%05d.safetensors", stem, path, f + 1, files);
        const char *slash = strrchr(name, '/');
        for (int i = first[f]; i < first[f + 1]; i++)
            json_object_set_new(map, entry[i].name, json_string(slash ? slash + 1 : name));
        error = sgrad_safetensors_write(name, entry + first[f], first[f + 1] - first[f], metadata, 1);
        free(name);
    }
    char *index = sgrad_format("%s.index.json", path);
    json_t *json = json_pack("{s:{s:I, s:s}, s:o}", "metadata", "total_size", (json_int_t)total, WRITER, PACKAGE_VERSION,
                             "weight_map", map);
    if (error || files == 1) json_decref(json);
    else error = sgrad_json_write(index, json, 17);
    free(index);
    free(first);
    return error;
}

static int write_files(const struct sgrad_graph *graph, const char *path, int64_t limit) {
    struct sgrad__weights copy;
    if (!limit) return sgrad__weights_save(sgrad__parameters_list(graph), path, NULL, 0);
    SGRAD_TRY(sgrad__weights_copy(sgrad__parameters_list(graph), NULL, &copy));
    int count;
    struct sgrad_entry *entry = sgrad__weights_entries(&copy, &count);
    int error = write_shards(entry, count, path, limit);
    free(entry);
    sgrad__weights_free(&copy);
    return error;
}

/* Sets *FILES, an object, to the files that INDEX lists, as keys: none if it does not exist. SGRAD_EINVAL: INDEX is not of an
 * export. */
static int list_shards(const char *index, json_t **files) {
    json_t *json = json_load_file(index, 0, NULL), *file;
    const char *tensor;
    const bool own = json_object_get(json_object_get(json, "metadata"), WRITER);
    *files = json_object();
    json_object_foreach(json_object_get(json, "weight_map"), tensor, file)
        if (json_is_string(file)) json_object_set_new(*files, json_string_value(file), json_true());
    json_decref(json);
    if (own || access(index, F_OK)) return 0;
    return sgrad_log_error(SGRAD_EINVAL,
                           "%s: Stargrad did not write this index, and its weights would no longer be found; export to "
                           "another folder",
                           index);
}

/* Returns true if NAME, after its first STEM bytes, ends as the name of a shard does: -00001-of-00002.safetensors. */
static bool is_shard(const char *name, size_t stem) {
    static const char form[] = "-00000-of-00000.safetensors";
    const char *at = name + stem;
    if (strlen(at) != strlen(form)) return false;
    for (size_t i = 0; form[i]; i++)
        if (form[i] == '0' ? at[i] < '0' || at[i] > '9' : at[i] != form[i]) return false;
    return true;
}

/* Removes the shards BEFORE of PATH that are not in NOW. Other files, which an index may also list, are not removed. */
static void remove_shards(const char *path, json_t *before, const json_t *now) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *name;
    const size_t stem = (size_t)(strrchr(base, '.') - base);
    json_t *value;
    json_object_foreach(before, name, value) {
        if (strncmp(name, base, stem) || !is_shard(name, stem) || strchr(name, '/') || json_object_get(now, name)) continue;
        char *old = sgrad_format("%.*s%s", (int)(base - path), path, name);
        if (unlink(old) && errno != ENOENT) sgrad_log_warning("%s: cannot be removed: %s", old, strerror(errno));
        free(old);
    }
}

/* The index of an earlier export is removed first, because it would list files that are replaced; its other files, last. */
static int write_weights(const struct sgrad_graph *graph, const char *path, int64_t limit) {
    char *index = sgrad_format("%s.index.json", path);
    json_t *before, *now = NULL;
    int error = list_shards(index, &before);
    if (!error) {
        unlink(index);
        error = write_files(graph, path, limit);
    }
    if (!error) error = list_shards(index, &now);
    if (!error) remove_shards(path, before, now);
    json_decref(before);
    json_decref(now);
    free(index);
    return error;
}

static int write_file(const struct sgrad_graph *graph, const char *path, int64_t limit) {
    const char *end = strrchr(path, '.');
    return end && !strcmp(end, ".safetensors") ? write_weights(graph, path, limit) : sgrad__onnx_write(graph, path);
}

int sgrad_export(const struct sgrad_train_options *options, const char *path, int64_t limit) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    r->options = *options;
    r->options.model.precision = SGRAD_PRECISION_F32;
    int error = sgrad__run_open_evaluation(r);
    if (!error && r->context->rank == 0) error = write_file(r->graph, path, limit);
    if (error && !r->control.together) sgrad_ranks_abort(1);
    sgrad__run_close(r);
    free(r);
    return error;
}
