/* folder_images.c: lists the classes and the images in the folder of one split, for folder.c. */
#include "config.h"
#include "datasets/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

bool sgrad__is_folder(const char *path) {
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

/* Lists the names in folder PATH for which WANTED returns true, sorted. The caller must free each of them, and the list. Returns
 * their number or SGRAD_EIO. */
static int list(const char *path, int (*wanted)(const struct dirent *), struct dirent ***entry) {
    int count = scandir(path, entry, wanted, by_name);
    return count >= 0 ? count : sgrad_log_error(SGRAD_EIO, "folder: %s: %s", path, strerror(errno));
}

int sgrad__folder_classes(const char *path, char ***name, int *classes) {
    struct dirent **entry;
    int entries = list(path, is_visible, &entry), found = 0;
    if (entries < 0) return entries;
    *name = sgrad_xcalloc((size_t)entries + 1, sizeof **name);
    for (int i = 0; i < entries; i++) {
        char *folder = sgrad_format("%s/%s", path, entry[i]->d_name);
        if (sgrad__is_folder(folder)) (*name)[found++] = sgrad_format("%s", entry[i]->d_name);
        free(folder);
        free(entry[i]);
    }
    free(entry);
    *classes = found;
    return found ? 0 : sgrad_log_error(SGRAD_EFORMAT, "folder: %s: has no class folders; " SGRAD__FOLDER_WANTED, path);
}

void sgrad__free_names(char **name, int64_t count) {
    for (int64_t i = 0; name && i < count; i++) free(name[i]);
    free(name);
}

int sgrad__folder_no_images(const char *path, const char *where) {
    char *endings = sgrad_image_endings();
    int error = sgrad_log_error(SGRAD_EFORMAT, "folder: %s: has no image (%s)%s", path, endings, where);
    free(endings);
    return error;
}

static int append(struct sgrad__images *images, const char *class_name, int class, const struct sgrad_walk *walk) {
    const size_t count = (size_t)(images->count + walk->count) + 1;
    char **name = realloc(images->name, count * sizeof *name);
    if (name) images->name = name;
    int64_t *size = realloc(images->size, count * sizeof *size);
    if (size) images->size = size;
    int32_t *label = realloc(images->label, count * sizeof *label);
    if (label) images->label = label;
    if (!name || !size || !label) return sgrad_log_error(SGRAD_ENOMEM, "folder: no memory for the names of its files");
    for (int64_t i = 0; i < walk->count; i++) {
        const int64_t to = images->count++;
        name[to] = sgrad_format("%s/%s", class_name, walk->image[i].name);
        size[to] = walk->image[i].size;
        label[to] = class;
    }
    return 0;
}

int sgrad__folder_images(const char *path, char *const *class_name, int classes, bool all, struct sgrad__images *images,
                         struct sgrad_walk *beside) {
    int error = 0;
    for (int k = 0; k < classes && !error; k++) {
        char *class = sgrad_format("%s/%s", path, class_name[k]);
        struct sgrad_walk walk = { 0 };
        error = sgrad__is_folder(class) || all ? sgrad_walk(class, &walk) : 0;
        if (!error && !walk.count && all) error = sgrad__folder_no_images(class, "");
        if (!error) error = append(images, class_name[k], k, &walk);
        sgrad_walk_add(beside, &walk);
        sgrad_walk_free(&walk);
        free(class);
    }
    return error;
}

void sgrad__images_free(struct sgrad__images *images) {
    sgrad__free_names(images->name, images->count);
    free(images->size);
    free(images->label);
}

int sgrad__folder_others(const char *folder, struct sgrad_walk *beside) {
    struct dirent **entry;
    const int entries = list(folder, NULL, &entry);
    if (entries < 0) return entries;
    for (int i = 0; i < entries; i++) {
        const char *name = entry[i]->d_name;
        char *path = sgrad_format("%s/%s", folder, name);
        struct sgrad_walk walk = { 0 };
        if (!sgrad__is_folder(path)) sgrad_walk_note(beside, *name == '.' ? "hidden" : "outside the class folders");
        else if (*name == '.' && strcmp(name, ".") && strcmp(name, "..") && !sgrad_walk(path, &walk))
            for (int64_t n = walk.count + walk.others; n > 0; n--) sgrad_walk_note(beside, "hidden");
        sgrad_walk_free(&walk);
        free(path);
        free(entry[i]);
    }
    free(entry);
    return 0;
}
