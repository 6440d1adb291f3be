/* parts.h: reading parts of a file, for files that are larger than memory. */
#ifndef SGRAD_RUNTIME_FILES_PARTS_H
#define SGRAD_RUNTIME_FILES_PARTS_H

#include <stddef.h>

/* open opens a regular file of 1 to LIMIT bytes for reading. The caller must close the descriptor *FILE; *SIZE is the file's
 * size. SGRAD_EIO: cannot be opened, or is not a regular file. SGRAD_EFORMAT: empty or longer. read copies BYTES bytes from
 * offset AT to TO; PATH is for messages. SGRAD_EIO: reading fails, or the file has become shorter. */
int sgrad__file_open(const char *path, size_t limit, int *file, size_t *size);
int sgrad__file_read(int file, const char *path, size_t at, size_t bytes, void *to);

#endif
