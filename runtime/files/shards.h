/* shards.h: weights in several safetensors files, which an index file lists. Private to runtime/. */
#ifndef SGRAD_RUNTIME_FILES_SHARDS_H
#define SGRAD_RUNTIME_FILES_SHARDS_H

#include "runtime/runtime.h"

/* Opens all files that the index PATH lists, each with OPEN, and combines them in *FILE. The caller must close FILE
 * (sgrad_safetensors_close), also after an error. SGRAD_EFORMAT: PATH is not an index, a file is malformed or not below the
 * folder of the index, or a tensor is in several files or not in the listed one. SGRAD_EIO: a file cannot be read. */
int sgrad__shards_open(const char *path, int (*open)(const char *path, struct sgrad_safetensors *file),
                       struct sgrad_safetensors *file);

#endif
