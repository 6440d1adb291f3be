/* shards.h: weights in several safetensors files, which an index names. Private to runtime/. */
#ifndef SGRAD_RUNTIME_SHARDS_H
#define SGRAD_RUNTIME_SHARDS_H

#include "runtime/runtime.h"

/* Opens all files that the index PATH names, each by OPEN, as one FILE, which must be closed, also after an error.
 * SGRAD_EFORMAT: it is no index, or a tensor is in several files, or not in the one that it names. SGRAD_EIO: no such file. */
int sgrad__shards_open(const char *path, int (*open)(const char *path, struct sgrad_safetensors *file),
                       struct sgrad_safetensors *file);

#endif
