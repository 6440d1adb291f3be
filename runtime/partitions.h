/* partitions.h: divides a tensor into shards, which are tensors as well, so that tasks on different shards can run concurrently.
 *
 *     tensor    written ──────────────────────────────────┐      ┌── read
 *     shard 0                                             ├ task ┤
 *     shard 1                                             └ task ┘
 *
 * A task on the tensor waits for earlier submitted tasks on its shards if their accesses conflict, and vice versa. The same
 * applies to sgrad_tensor_read and sgrad_tensor_write (StarPU's asynchronous partitioning). The tensor must be persistent and of
 * type F32. */
#ifndef SGRAD_RUNTIME_PARTITIONS_H
#define SGRAD_RUNTIME_PARTITIONS_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the maximum number of bytes of a message between ranks: INT_MAX, the limit of MPI, or, for tests, the smaller value of
 * the variable STARGRAD_MESSAGE_LIMIT. */
int64_t sgrad_message_most(void);

/* The division of COUNT elements into PARTS shards: each has nearly the same number of whole cache lines, or pages if they are
 * large, and the last also has the remaining elements. first returns the index of the first element of shard PART, from 0; COUNT
 * if PART is PARTS. view returns the type and shape of shard PART: F32, one dimension. */
int64_t sgrad_part_first(int64_t count, int parts, int part);
struct sgrad_view sgrad_part_view(int64_t count, int parts, int part);

/* Creates the PARTS shards of WHOLE in PART, which must have PARTS elements. They are one-dimensional tensors in the memory of
 * WHOLE, and none may be empty. The caller must free them with sgrad_tensor_unpartition. */
void sgrad_tensor_partition(struct sgrad_tensor *whole, int parts, struct sgrad_tensor **part);
/* Frees the shards. Must be called before WHOLE is destroyed. */
void sgrad_tensor_unpartition(struct sgrad_tensor *whole, int parts, struct sgrad_tensor **part);

/* Creates a tensor in the memory of BLOCK, a persistent tensor or a block of a GPU (gpu_memory.h), which must outlive it. No
 * kernel may use BLOCK itself. Accesses to several tensors in the same bytes are not ordered, unless tasks that use both of them
 * order them. */
int sgrad_tensor_create_in(const char *name, enum sgrad_dtype dtype, struct sgrad_shape shape, const struct sgrad_tensor *block,
                           size_t offset, struct sgrad_tensor **tensor);

/* Messages of a counted tensor have only its bytes in use. Its bytes are equal rows, each of which starts with this header.
 * Kernels write it before a message is sent. */
struct sgrad_counted {
    int64_t used;       /* bytes of the row in use, from its beginning on, this header included */
    int64_t row;        /* bytes of the row */
};
/* Makes TENSOR, which no task has used and which other tensors do not share, counted. All ranks of a message must do so. */
void sgrad_tensor_set_counted(struct sgrad_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
