/* stream.h: the decompressed bytes of a file, from its beginning to its end. Private to datasets/. */
#ifndef SGRAD_DATASETS_STREAM_H
#define SGRAD_DATASETS_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sgrad__stream;
/* Opens FILE, an open file, or, if FILE is negative, the SIZE bytes at DATA. NAME: its path, for messages. *STREAM: NULL if it is
 * compressed neither by gzip nor by Zstandard, or a pipe; the caller must close it, also after an error, and FILE after it.
 * SGRAD_EIO, SGRAD_ENOMEM. SGRAD_ELIBRARY: this build has no Zstandard. */
int sgrad__stream_open(const char *name, int file, const void *data, size_t size, struct sgrad__stream **stream);
/* Copies the next decompressed bytes, at most ROOM > 0, to TO. Returns their number; 0: the end; -1: the data are damaged, or
 * cannot be read. */
ssize_t sgrad__stream_read(struct sgrad__stream *stream, void *to, size_t room);
const char *sgrad__stream_damage(const struct sgrad__stream *stream);   /* the reason for -1; the stream owns it */
int64_t sgrad__stream_at(const struct sgrad__stream *stream);           /* number of compressed bytes that were decompressed */
void sgrad__stream_close(struct sgrad__stream *stream);                 /* NULL is a no-op */

#endif
