/* spill.h: a file that holds the contents of tensors while these are not in memory. Private to Stargrad.
 *
 * The file consists of slots. A move copies a tensor to a slot, or a slot to a tensor:
 *
 *     submitted   write x → slot 0    write y → slot 1    read slot 0 → x'    …
 *     task graph  after x is written                      after the last use of the memory of x'
 *     file        ├── x ──┤├── y ──┤              ├── x' ──┤                       in pieces (disk.h)
 *
 * A move is asynchronous, like a message to another rank: it starts when the tasks submitted before it have finished with its
 * tensor, and tasks submitted after it wait for its end. Moves of one slot are executed in the order of submission. Of all moves
 * that can begin, those that were submitted first go first: their data are needed next.
 *
 * A tensor can also live in the file: its memory is then a mapping of a part of the file, which the operating system reads when
 * a task uses it, and drops when other memory is needed. Moves copy such a tensor, or a shard of it, to another one and back
 * without the page cache. They are ordered with tasks on either of the two.
 *
 * The file has no name, so nothing remains when the process ends in any way, and the folder may be removed once the file is open.
 * All space is reserved before it is used, so that a full disk is an error before training and not during it. If the system
 * cannot read a mapped page, the process ends with a message (mapped.c). The page cache is bypassed (O_DIRECT) where the file
 * system allows it; elsewhere written pages are dropped from it.
 *
 * Data of a GPU move to main memory instead of a file (sgrad_spill_open_ram): slots are then pinned memory, and persistent
 * tensors live there in any case. Each thread copies on a CUDA stream of its own.
 *
 * Source: M. Rhu et al., vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design, MICRO 2016,
 * for the idea. */
#ifndef SGRAD_RUNTIME_SPILL_H
#define SGRAD_RUNTIME_SPILL_H

#include "runtime/runtime.h"

struct sgrad_spill;
/* Returns BYTES, rounded up to whole blocks: the alignment of addresses, sizes and offsets that direct transfers require on all
 * common disks. Tensors with other addresses are copied. */
enum { SGRAD_SPILL_BLOCK = 4096 };
static inline size_t sgrad_spill_blocks(size_t bytes) {
    return (bytes + SGRAD_SPILL_BLOCK - 1) / SGRAD_SPILL_BLOCK * SGRAD_SPILL_BLOCK;
}
/* Creates a file in FOLDER, without slots. SGRAD_EIO: the folder does not exist, or is not writable; SGRAD_ENOMEM: a thread
 * cannot be started; SGRAD_EINVAL: STARGRAD_SPILL_IO is unknown. */
int sgrad_spill_open(const char *folder, struct sgrad_spill **spill);
/* The same with slots in main memory, for tensors in a block of the first GPU (gpu_memory.h). SGRAD_ENOMEM; SGRAD_EDEVICE: CUDA
 * fails. */
int sgrad_spill_open_ram(struct sgrad_spill **spill);
/* Adds SLOTS slots of BYTES[i] bytes each, in space that was freed, and else at the end of the file. Sets *FIRST to the number of
 * the first one. SGRAD_EIO, SGRAD_ENOMEM: too little space. free gives back the space of all of them, 1 or more, when their moves
 * have ended. */
int sgrad_spill_reserve(struct sgrad_spill *spill, const size_t *bytes, int slots, int *first);
void sgrad_spill_free(struct sgrad_spill *spill, int first, int slots);
/* Moves the content of TENSOR to the file, where it stays; it must be persistent, and no program may use it yet. It may outlive
 * SPILL. SGRAD_EIO: too little space, or the file cannot be mapped. */
int sgrad_spill_to_file(struct sgrad_spill *spill, struct sgrad_tensor *tensor);
/* Moves the content of a TENSOR in the file back to memory, and gives back its space. No program may use it yet. SGRAD_ENOMEM. */
int sgrad_spill_to_memory(struct sgrad_spill *spill, struct sgrad_tensor *tensor);
/* Returns the bytes of a persistent tensor that are in memory. Parts that have never been written are not. */
size_t sgrad_spill_resident(const struct sgrad_tensor *tensor);
/* Gives back whole pages of MEMORY until they are used again. Their content is lost, unless it is in a file. */
void sgrad_spill_drop_pages(void *memory, size_t bytes);
/* Gives back the pages of MEMORY that are mapped from a file, until they are used again. No effect on other memory. */
void sgrad_mapped_drop_pages(const void *memory, size_t bytes);
/* Maps a part of the file as *MEMORY, BYTES bytes of any content, for data that need not be in memory. The caller must free it
 * with sgrad_spill_unmap before SPILL is closed. Parts that were freed are used first: they need no more space on the disk.
 * SGRAD_EIO: as above. Call these two functions on one thread. */
int sgrad_spill_map(struct sgrad_spill *spill, size_t bytes, void **memory);
void sgrad_spill_unmap(struct sgrad_spill *spill, void *memory);
/* Writes the changed pages of all such parts to the disk. After that, an error cannot change their content. SGRAD_EIO: an error
 * may have done so before. */
int sgrad_spill_flush(struct sgrad_spill *spill);
/* Waits for all moves. NULL is allowed. */
void sgrad_spill_close(struct sgrad_spill *spill);
const char *sgrad_spill_folder(const struct sgrad_spill *spill);       /* "main memory" without a folder */
const char *sgrad_spill_engine(const struct sgrad_spill *spill);       /* that moves data: "io_uring", "threads" */

struct sgrad_spill_move {
    struct sgrad_tensor *tensor;    /* at least as large as the slot or home */
    struct sgrad_tensor *home;      /* a tensor in the file, or in main memory, or a shard of one; NULL: the slot is used */
    int slot;
    struct sgrad_failure *failure;  /* set if the file cannot be read or written; NULL: sgrad_wait_all returns the error */
    void (*done)(void *arg);        /* called on any thread when the move has ended; NULL is allowed */
    void *arg;
};
/* Submit a move from the tensor to the slot or home, or back. They do not wait. SGRAD_EDEVICE: StarPU fails. */
int sgrad_spill_write(struct sgrad_spill *spill, const struct sgrad_spill_move *move);
int sgrad_spill_read(struct sgrad_spill *spill, const struct sgrad_spill_move *move);

/* Totals since the file was opened. */
struct sgrad_spill_totals {
    double written, read;           /* bytes */
    double seconds;                 /* during which at least one move was in progress */
};
struct sgrad_spill_totals sgrad_spill_totals(const struct sgrad_spill *spill);

/* Measures the bandwidths of FOLDER in bytes per second, with a temporary file of 128 MiB. The errors are those
 * of sgrad_spill_open. */
struct sgrad_spill_speed {
    double write, read;
};
int sgrad_spill_measure(const char *folder, struct sgrad_spill_speed *speed);

#endif
