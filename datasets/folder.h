/* folder.h: the classes and the images in the folder of one split: declarations of folder_images.c. Private to datasets/. */
#ifndef SGRAD_DATASETS_FOLDER_H
#define SGRAD_DATASETS_FOLDER_H

#include "datasets/datasets.h"
#include "datasets/formats.h"

#define SGRAD__FOLDER_WANTED "give folder:DIR, where DIR contains images in train/CLASS/ and val/CLASS/"

/* The images of all classes in one split, ordered by class. */
struct sgrad__images {
    char **name;        /* "cat/1.jpg" */
    int64_t *size;      /* bytes, as in sgrad_walk_image */
    int32_t *label;
    int64_t count;
};
void sgrad__images_free(struct sgrad__images *images);  /* frees its members */

bool sgrad__is_folder(const char *path);
void sgrad__free_names(char **name, int64_t count);     /* frees COUNT strings, and the list; NULL is a no-op */
/* Lists the folders in PATH, which are the classes. The caller must free the names, also after an error. SGRAD_EFORMAT: there is
 * none. */
int sgrad__folder_classes(const char *path, char ***name, int *classes);
/* Lists the images of CLASSES classes in PATH, the folder of one split. Other files are counted in BESIDE. With ALL, a class
 * without images is an error. The caller must free IMAGES, also after an error. */
int sgrad__folder_images(const char *path, char *const *class_name, int classes, bool all, struct sgrad__images *images,
                         struct sgrad_walk *beside);
/* Counts the files outside the folders of the classes, and those in hidden folders, in BESIDE. */
int sgrad__folder_others(const char *folder, struct sgrad_walk *beside);
/* Logs that PATH has no image, WHERE. Returns SGRAD_EFORMAT. */
int sgrad__folder_no_images(const char *path, const char *where);

#endif
