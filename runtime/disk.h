/* disk.h: a file for data that leave memory, and asynchronous transfers between it and memory. Private to runtime/.
 *
 *     moves       ├──────── x ────────┤├──── y ────┤     of the user (spill.c), in the order in which they are needed
 *     pieces      ├ x0 ┤├ x1 ┤├ x2 ┤├ ┤├ y0 ┤├ y1 ┤      the user cuts moves
 *     in flight         [ x1 ] [ x2 ]   [ y0 ]           an engine asks for the next piece whenever another one has ended
 *
 * An engine executes the pieces: four threads that read and write, or one thread with io_uring, which the Linux kernel may
 * refuse. Pieces end in any order. Threads also execute copies between a GPU and main memory, and the moves of a simulation. */
#ifndef SGRAD_RUNTIME_DISK_H
#define SGRAD_RUNTIME_DISK_H

#include "runtime/spill.h"

#include <string.h>
#include <sys/types.h>

/* SGRAD__PIECE: most bytes of a piece of a file. SGRAD__PIECES: pieces in flight. */
enum { SGRAD__PIECE = 4 << 20, SGRAD__PIECES = 4 };

struct sgrad__piece {
    bool writes; /* from MEMORY */
    char *memory;
    size_t bytes; /* above 0 */
    off_t at;     /* in the file */
    void *other;  /* main memory, instead of the file, if MEMORY is on a GPU */
    void *of;     /* for the user */
};
/* The functions of a user are called on any thread of the engine. */
struct sgrad__disk_user {
    bool (*next)(void *arg, struct sgrad__piece *piece);                         /* sets *PIECE; false: none can begin now */
    void (*ended)(void *arg, const struct sgrad__piece *piece, const char *why); /* WHY: the error; NULL: none */
    void *arg;
};
/* The record of an engine. */
struct sgrad__disk_engine {
    const char *name;
    /* Transfers pieces to and from FILE, below 0: none, until close. DIRECT: transfers bypass the page cache. Returns NULL, and
     * sets errno, if the system refuses. */
    void *(*open)(int file, bool direct, const struct sgrad__disk_user *user);
    void (*wake)(void *engine);  /* next may have a piece. On any thread */
    void (*close)(void *engine); /* all pieces must have ended */
};
extern const struct sgrad__disk_engine sgrad__disk_threads, sgrad__disk_uring;

/* Returns the memory of a transfer of PIECE: its own, or BUFFER of SGRAD__PIECE bytes, if its address or size is not one of whole
 * blocks. fetched copies what has been read from there. */
static inline char *sgrad__piece_memory(const struct sgrad__piece *piece, char *buffer) {
    if ((uintptr_t)piece->memory % SGRAD_SPILL_BLOCK == 0 && piece->bytes % SGRAD_SPILL_BLOCK == 0) return piece->memory;
    if (piece->writes) memcpy(buffer, piece->memory, piece->bytes);
    return buffer;
}
static inline void sgrad__piece_fetched(const struct sgrad__piece *piece, const char *memory) {
    if (!piece->writes && memory != piece->memory) memcpy(piece->memory, memory, piece->bytes);
}

/* Creates a file without a name in FOLDER; *FILE is -1 in a simulation. SGRAD_EIO. */
int sgrad__disk_create(const char *folder, int *file);
/* Reserves BYTES bytes from AT on. SGRAD_EIO. */
int sgrad__disk_reserve(const char *folder, int file, off_t at, off_t bytes);
/* Logs errno as the reason WHAT of an error in FOLDER. Returns SGRAD_EIO. */
int sgrad__disk_refuse(const char *folder, const char *what);
/* Waits, so that BYTES more bytes of all transfers do not exceed the bandwidth of STARGRAD_SPILL_LIMIT. */
void sgrad__disk_slow_down(size_t bytes);

/* Opens an engine for FILE, below 0: none: io_uring if it can be used, unless STARGRAD_SPILL_IO is "threads". The functions have
 * the meaning of those in the record. SGRAD_EINVAL: the variable has another value; SGRAD_ENOMEM: no thread can be started. */
struct sgrad__disk;
int sgrad__disk_open(int file, const struct sgrad__disk_user *user, struct sgrad__disk **disk);
void sgrad__disk_wake(struct sgrad__disk *disk);
void sgrad__disk_close(struct sgrad__disk *disk); /* NULL is allowed */
const char *sgrad__disk_engine_name(const struct sgrad__disk *disk);

#endif
