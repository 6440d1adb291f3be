/* walk.h: the files of images below a folder. */
#ifndef SGRAD_DATASETS_WALK_H
#define SGRAD_DATASETS_WALK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A version of a file or a folder; zeros: it does not exist. */
struct sgrad_file_version {
    int64_t bytes;
    int64_t written, changed;           /* time of the last change of the content, of the inode: nanoseconds */
    int64_t inode;
};

/* The files below a folder. */
struct sgrad_walk {
    int64_t count;                      /* images: files with the extension of a known format */
    struct sgrad_walk_image {
        char *name;                     /* relative to the folder: "cat/1.jpg" */
        int64_t size;                   /* bytes; -1: the file does not exist (a link without a target) */
    } *image;
    int64_t others;                     /* number of files that are not images */
    int kinds;                          /* Length of other. */
    struct sgrad_walk_other {
        char *kind;                     /* ".txt", "hidden" */
        int64_t files;
    } *other;
    int folders;                        /* Length of folder. */
    struct sgrad_walk_folder {          /* the folders that were listed, and links without a target, which may become folders */
        char *name;                     /* relative to the folder; "" for itself */
        struct sgrad_file_version version;      /* before it was listed */
    } *folder;
    int64_t capacity;                   /* private */
};
/* Lists the images in FOLDER and all its subfolders, ordered by the bytes of the path of their folder, then of their name. Links
 * are followed, except to a folder that contains the link. Files and folders whose names begin with a dot are hidden: their files
 * are only counted. WALK must be zero. The caller frees it with sgrad_walk_free, also after an error. SGRAD_EIO: a folder cannot
 * be read. */
int sgrad_walk(const char *folder, struct sgrad_walk *walk);
/* Counts one file that is not an image; KIND is copied. */
void sgrad_walk_note(struct sgrad_walk *walk, const char *kind);
/* Adds the counts of files that are not images of MORE to WALK. */
void sgrad_walk_add(struct sgrad_walk *walk, const struct sgrad_walk *more);
/* Returns "3 other files: 2 .txt, 1 hidden", and sorts walk->other by count; NULL: there are none. The caller frees it. */
char *sgrad_walk_others(struct sgrad_walk *walk);
void sgrad_walk_free(struct sgrad_walk *walk);          /* frees the members of WALK, and zeroes it */
/* Returns the extensions of image files: ".jpg, .jpeg, .png, …". The caller frees it. */
char *sgrad_image_endings(void);

#ifdef __cplusplus
}
#endif
#endif
