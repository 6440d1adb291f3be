/* streams.h: what has become of what was written to a stream. */
#ifndef SGRAD_RUNTIME_STREAMS_H
#define SGRAD_RUNTIME_STREAMS_H

#include <stdio.h>

/* Writes what STREAM still holds. Returns 0, or the errno by which something that was written to it is lost, now or earlier:
 * ENOSPC where its disk is full; EIO where the reason is not known. */
int sgrad_stream_error(FILE *stream);

#endif
