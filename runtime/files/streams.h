/* streams.h: errors of output streams. */
#ifndef SGRAD_RUNTIME_FILES_STREAMS_H
#define SGRAD_RUNTIME_FILES_STREAMS_H

#include <stdio.h>

/* Flushes STREAM. Returns 0, or the errno of a write that failed, now or earlier: ENOSPC if the disk is full, EIO if the reason
 * is unknown. */
int sgrad_stream_error(FILE *stream);

#endif
