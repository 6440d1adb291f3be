/* folder_images.c: the index of the images in the folder of one split, for folder.c. Its files are listed once, and the index is
 * stored (shards/stored.c) until a folder changes:
 *
 *     train/             version 17     a class was added: changes
 *     train/cat/         version 21     an image was added, removed or renamed: changes
 *     train/cat/1.jpg    no version     its content changes: noticed only when it is decoded */
#include "config.h"
#include "datasets/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

int sgrad__folder_no_images(const char *path, const char *where) {
    char *endings = sgrad_image_endings();
    int error = sgrad_log_error(SGRAD_EFORMAT, "folder: %s: has no image (%s)%s", path, endings, where);
    free(endings);
    return error;
}

const char *sgrad__folder_class(const struct sgrad__shard *index, int class) { return index->text + index->class_name[class]; }

/* ---- listing ------------------------------------------------------------------------------------------------------- */

/* Adds "FOLDER/NAME" to the texts; FOLDER alone if NAME is empty. */
static uint32_t add_path(struct sgrad__draft *draft, const char *folder, const char *name) {
    char *path = sgrad_format("%s%s%s", folder, *name ? "/" : "", name);
    const uint32_t at = sgrad__draft_text(draft, path, strlen(path));
    free(path);
    return at;
}

static void add_folder(struct sgrad__draft *draft, const char *folder, const char *name, struct sgrad_file_version version) {
    draft->folder = sgrad_array_grow(draft->folder, draft->folders, sizeof *draft->folder);
    draft->folder[draft->folders++] = (struct sgrad__index_folder){ version, add_path(draft, folder, name), 0 };
}

/* Adds the folders of WALK, which has listed FOLDER. */
static void add_folders(struct sgrad__draft *draft, const char *folder, const struct sgrad_walk *walk) {
    for (int i = 0; i < walk->folders; i++) add_folder(draft, folder, walk->folder[i].name, walk->folder[i].version);
}

/* Returns the bytes of a file as an index has them. */
static uint32_t size_of(int64_t size) { return size < 0 ? UINT32_MAX : size < UINT32_MAX ? (uint32_t)size : UINT32_MAX - 1; }

/* Adds the images of a class, unless the names have 4 GiB, which the store refuses. The name of an image has at least 8 bytes,
 * so there are less than 2^31 images. */
static void add_images(struct sgrad__draft *draft, const char *class_name, const struct sgrad_walk *walk) {
    for (int64_t i = 0; i < walk->count && draft->text_bytes <= UINT32_MAX; i++) {
        const struct sgrad_walk_image *image = &walk->image[i];
        draft->sample = sgrad_array_grow(draft->sample, draft->samples, sizeof *draft->sample);
        draft->sample[draft->samples++] = (struct sgrad__shard_sample){ .size = size_of(image->size),
                                                                        .label = draft->classes - 1,
                                                                        .name = add_path(draft, class_name, image->name) };
    }
}

static int add_class(struct sgrad__draft *draft, const char *path, const char *name) {
    struct sgrad_walk walk = { 0 };
    if (draft->classes == SGRAD__LABELS_LIMIT)
        return sgrad_log_error(SGRAD_EFORMAT, "folder: %s: has more than %d classes", path, SGRAD__LABELS_LIMIT);
    draft->class_name = sgrad_array_grow(draft->class_name, draft->classes, sizeof *draft->class_name);
    draft->class_name[draft->classes++] = sgrad_format("%s", name);
    char *class = sgrad_format("%s/%s", path, name);
    int error = sgrad_walk(class, &walk);
    if (!error) add_images(draft, name, &walk);
    add_folders(draft, name, &walk);
    sgrad_walk_add(&draft->others, &walk);
    sgrad_walk_free(&walk);
    free(class);
    return error;
}

/* Adds the files of a hidden folder to the others. Its errors are ignored. */
static void add_hidden(struct sgrad__draft *draft, const char *path, const char *name) {
    struct sgrad_walk walk = { 0 };
    if (!sgrad_walk(path, &walk))
        for (int64_t n = walk.count + walk.others; n > 0; n--) sgrad_walk_note(&draft->others, "hidden");
    add_folders(draft, name, &walk);
    sgrad_walk_free(&walk);
}

static int add_entry(struct sgrad__draft *draft, const char *path, const char *name) {
    char *entry = sgrad_format("%s/%s", path, name);
    const struct sgrad_file_version version = sgrad__version_at(entry);
    int error = 0;
    if (!version.inode) add_folder(draft, name, "", version);
    if (!sgrad__is_folder(entry)) sgrad_walk_note(&draft->others, *name == '.' ? "hidden" : "outside the class folders");
    else if (*name != '.') error = add_class(draft, path, name);
    else if (strcmp(name, ".") && strcmp(name, "..")) add_hidden(draft, entry, name);
    free(entry);
    return error;
}

/* Lists the folder of a split. The function scan of the store. */
static int list_folder(void *of, const char *path, int file, const struct sgrad_file_version *version,
                       struct sgrad__draft *draft) {
    struct dirent **entry;
    (void)of, (void)file;
    char *doing = sgrad_format("listing the images in %s", path);
    if (sgrad_launched_rank() == 0) sgrad_log_progress(doing);
    free(doing);
    const int entries = scandir(path, &entry, NULL, by_name);
    int error = entries < 0 ? sgrad_log_error(SGRAD_EIO, "folder: %s: %s", path, strerror(errno)) : 0;
    draft->bytes = UINT32_MAX;
    add_folder(draft, ".", "", *version);
    for (int i = 0; i < entries; i++) {
        if (!error) error = add_entry(draft, path, entry[i]->d_name);
        free(entry[i]);
    }
    if (entries >= 0) free(entry);
    if (sgrad_launched_rank() == 0) sgrad_log_progress(NULL);
    if (error || draft->classes) return error;
    return sgrad_log_error(SGRAD_EFORMAT, "folder: %s: has no class folders; " SGRAD__FOLDER_WANTED, path);
}

int sgrad__folder_open(const char *path, struct sgrad__shard *index) {
    struct sgrad__index_store store = {
        .reader = "folder",
        .smaller = "write the images to tar archives: python3 -m stargrad.convert tar",
        .scan = list_folder,
    };
    char reason[1024];
    sgrad__index_store_open(&store);
    sgrad_log_capture(reason, sizeof reason);   /* an index that cannot be stored is a warning */
    const int error = sgrad__index_open(&store, path, index);
    sgrad_log_capture(NULL, 0);
    sgrad__index_store_close(&store, path, "each start lists all files");
    return error ? sgrad_log_error(error, "%s", reason) : 0;
}
