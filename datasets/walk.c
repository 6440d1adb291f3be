/* walk.c: lists the images in a folder and its subfolders, and counts the other files.
 *
 *     cat/1.jpg              images of a folder are sorted by their bytes, and precede those of its subfolders:
 *     cat/9.png              the order of torchvision's ImageFolder
 *     cat/notes.txt          counted: 1 .txt
 *     cat/old/2.jpg
 *     cat/old/.cache/3.jpg   counted: 1 hidden
 *     cat/old/up -> ..       a link to a folder that contains it is not followed; counted: 1 circular link */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"
#include "datasets/version.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A folder on the path from the root to the current one. */
struct level {
    dev_t device;
    ino_t inode;
    const struct level *above;
};

static bool is_above(const struct level *level, const struct stat *status) {
    for (; level; level = level->above)
        if (level->device == status->st_dev && level->inode == status->st_ino) return true;
    return false;
}

static void add(struct sgrad_walk *walk, const char *kind, int64_t files) {
    int i = 0;
    while (i < walk->kinds && strcmp(walk->other[i].kind, kind)) i++;
    if (i == walk->kinds) {
        walk->other = sgrad_array_grow(walk->other, walk->kinds, sizeof *walk->other);
        walk->other[walk->kinds++] = (struct sgrad_walk_other){ sgrad_format("%s", kind), 0 };
    }
    walk->other[i].files += files;
    walk->others += files;
}

void sgrad_walk_note(struct sgrad_walk *walk, const char *kind) { add(walk, kind, 1); }

void sgrad_walk_add(struct sgrad_walk *walk, const struct sgrad_walk *more) {
    for (int i = 0; i < more->kinds; i++) add(walk, more->other[i].kind, more->other[i].files);
}

void sgrad__walk_note_name(struct sgrad_walk *walk, const char *name) {
    const char *dot = strrchr(name, '.');
    char *ending = sgrad_format("%s", dot && dot[1] ? dot : "without extension");
    for (char *c = ending; dot && *c; c++) *c = (char)tolower((unsigned char)*c);
    sgrad_walk_note(walk, ending);
    free(ending);
}

static void add_image(struct sgrad_walk *walk, const char *path, int64_t size) {
    if (walk->count == walk->capacity) {
        walk->capacity = walk->capacity ? 2 * walk->capacity : 64;
        struct sgrad_walk_image *image = realloc(walk->image, (size_t)walk->capacity * sizeof *image);
        if (!image) abort();
        walk->image = image;
    }
    walk->image[walk->count++] = (struct sgrad_walk_image){ sgrad_format("%s", path), size };
}

static void add_folder(struct sgrad_walk *walk, const char *path, struct sgrad_file_version version) {
    walk->folder = sgrad_array_grow(walk->folder, walk->folders, sizeof *walk->folder);
    walk->folder[walk->folders++] = (struct sgrad_walk_folder){ sgrad_format("%s", path), version };
}

static int walk_folder(struct sgrad_walk *walk, const char *root, const char *below, bool hidden, const struct level *above);

/* Adds ENTRY of the folder BELOW, a path relative to ROOT. */
static int add_entry(struct sgrad_walk *walk, const char *root, const char *below, const char *entry, bool hidden,
                     const struct level *level) {
    struct stat status = { 0 };
    char *path = sgrad_format("%s%s%s", below, *below ? "/" : "", entry), *whole = sgrad_format("%s/%s", root, path);
    const bool there = stat(whole, &status) == 0, is_hidden = hidden || *entry == '.';
    int error = 0;
    if (!there) add_folder(walk, path, (struct sgrad_file_version){ 0 });
    if (there && S_ISDIR(status.st_mode)) {
        if (is_above(level, &status)) sgrad_walk_note(walk, "circular link");
        else error = walk_folder(walk, root, path, is_hidden, level);
    } else if (is_hidden) sgrad_walk_note(walk, "hidden");
    else if (there && !S_ISREG(status.st_mode)) sgrad_walk_note(walk, "neither file nor folder");
    else if (!sgrad__image_is_named(entry)) sgrad__walk_note_name(walk, entry);
    else add_image(walk, path, there ? (int64_t)status.st_size : -1);
    free(path);
    free(whole);
    return error;
}

static int walk_folder(struct sgrad_walk *walk, const char *root, const char *below, bool hidden, const struct level *above) {
    struct stat status = { 0 };
    char *path = sgrad_format("%s%s%s", root, *below ? "/" : "", below);
    DIR *folder = stat(path, &status) ? NULL : opendir(path);
    const bool skips = !folder && hidden;       /* a hidden folder, such as a desktop's .Trash, may be private */
    int error = folder || skips ? 0 : sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    const struct level level = { status.st_dev, status.st_ino, above };
    const struct dirent *entry;
    add_folder(walk, below, sgrad__version_of(&status));
    if (skips) sgrad_walk_note(walk, "hidden");
    while (folder && (errno = 0, entry = readdir(folder)) && !error)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            error = add_entry(walk, root, below, entry->d_name, hidden, &level);
    if (folder && !error && errno) error = sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    if (folder) closedir(folder);
    free(path);
    return error;
}

static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

/* Compares by the bytes of the folder's path, then of the file's name. */
static int by_place(const void *a, const void *b) {
    const char *one = ((const struct sgrad_walk_image *)a)->name, *other = ((const struct sgrad_walk_image *)b)->name;
    const size_t first = folder_length(one), second = folder_length(other);
    const int order = memcmp(one, other, first < second ? first : second);
    if (order) return order;
    if (first != second) return first < second ? -1 : 1;
    return strcmp(one + first, other + second);
}

int sgrad_walk(const char *folder, struct sgrad_walk *walk) {
    SGRAD_TRY(walk_folder(walk, folder, "", false, NULL));
    if (walk->count) qsort(walk->image, (size_t)walk->count, sizeof *walk->image, by_place);
    return 0;
}

static int by_files(const void *a, const void *b) {
    const struct sgrad_walk_other *one = a, *other = b;
    if (one->files != other->files) return one->files < other->files ? 1 : -1;
    return strcmp(one->kind, other->kind);
}

char *sgrad_walk_others(struct sgrad_walk *walk) {
    enum { MOST = 8 };
    if (!walk->others) return NULL;
    qsort(walk->other, (size_t)walk->kinds, sizeof *walk->other, by_files);
    char *text = sgrad_format("%lld other %s", (long long)walk->others, sgrad_plural(walk->others, "file", "files"));
    int64_t listed = 0;
    for (int i = 0; i < walk->kinds && i < MOST; i++) {
        char *more = sgrad_format("%s%s%lld %s", text, i ? ", " : ": ", (long long)walk->other[i].files, walk->other[i].kind);
        free(text);
        text = more;
        listed += walk->other[i].files;
    }
    if (listed == walk->others) return text;
    char *more = sgrad_format("%s, %lld with other extensions", text, (long long)(walk->others - listed));
    free(text);
    return more;
}

void sgrad_walk_free(struct sgrad_walk *walk) {
    for (int64_t i = 0; i < walk->count; i++) free(walk->image[i].name);
    for (int i = 0; i < walk->kinds; i++) free(walk->other[i].kind);
    for (int i = 0; i < walk->folders; i++) free(walk->folder[i].name);
    free(walk->folder);
    free(walk->image);
    free(walk->other);
    *walk = (struct sgrad_walk){ 0 };
}

char *sgrad_image_endings(void) { return sgrad__image_endings(); }
