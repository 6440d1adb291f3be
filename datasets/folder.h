/* folder.h: the index of the images in the folder of one split (folder_images.c). Private to datasets/. */
#ifndef SGRAD_DATASETS_FOLDER_H
#define SGRAD_DATASETS_FOLDER_H

#include "datasets/shards/shards.h"

#define SGRAD__FOLDER_WANTED "give folder:DIR, where DIR contains images in train/CLASS/ and val/CLASS/"

/* Opens the index of PATH, the folder of one split: from the cache folder if it is valid there, else from a list of all files.
 * The caller closes INDEX with sgrad__index_close, also after an error.
 *
 *     class_name     all folders in PATH without the hidden ones, sorted by their bytes
 *     sample         the images, ordered by class; name is "cat/1.jpg"; label is the number of the class in this folder
 *     other          files that are not images
 *
 * SGRAD_EFORMAT: there is no class. */
int sgrad__folder_open(const char *path, struct sgrad__shard *index);
const char *sgrad__folder_class(const struct sgrad__shard *index, int class);   /* returns its name */
/* Logs that PATH has no image, WHERE. Returns SGRAD_EFORMAT. */
int sgrad__folder_no_images(const char *path, const char *where);

#endif
