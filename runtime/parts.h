/* parts.h: parts of a tensor as tensors of their own, so that tasks of different parts go at once.
 *
 *     whole     written ──────────────────────────────────┐      ┌── read
 *     part 0                                              ├ task ┤
 *     part 1                                              └ task ┘
 *
 * Tasks of the whole and of its parts wait for each other in the order in which they were submitted, as if all were of the whole;
 * reading and writing it from outside do, too (StarPU's asynchronous partitioning). Of float tensors in main memory. */
#ifndef SGRAD_RUNTIME_PARTS_H
#define SGRAD_RUNTIME_PARTS_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a message between ranks at most: what MPI counts in an int, or, for tests, what STARGRAD_MESSAGE_LIMIT says. */
int64_t sgrad_message_most(void);

/* The element at which PART of PARTS begins, of COUNT: parts are as nearly equal as whole cache lines are, PARTS is the end. */
int64_t sgrad_part_first(int64_t count, int parts, int part);
struct sgrad_view sgrad_part_view(int64_t count, int parts, int part);

/* PART[0 … parts) become tensors of one dimension, which are WHOLE's memory. None of them may be empty. */
void sgrad_tensor_cut(struct sgrad_tensor *whole, int parts, struct sgrad_tensor **part);
/* They are no more; before WHOLE is destroyed. */
void sgrad_tensor_join(struct sgrad_tensor *whole, int parts, struct sgrad_tensor **part);

#ifdef __cplusplus
}
#endif
#endif
