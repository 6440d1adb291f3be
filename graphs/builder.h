/* builder.h: what the files that build a program share: program.c (tasks of nodes), reduce.c (sums, over micro-batches and over
 * ranks). Private to graphs/. */
#ifndef SGRAD_GRAPHS_BUILDER_H
#define SGRAD_GRAPHS_BUILDER_H

#include "graphs/internal.h"

struct sgrad__builder {
    struct sgrad__program *p;
    struct sgrad_graph *g;
    const struct sgrad__program_options *o;
    int micros, group_micros;                   /* of this rank's share; of the part of a group that lies in it */
    int span;                                   /* ranks that share a group; 1: groups end within a rank */
    /* Buffers by (thing, micro-batch); a group's are at its first micro-batch, a step's at 0. -1: not made yet. */
    int *activation, *gradient;                 /* by value */
    int *keep, *part, *sum, *leaf, *total;      /* by node and index; leaf and total are statistics' */
    int *parameter, *dparameter;                /* by parameter; dparameter has leaves by micro-batch */
    bool *elsewhere;                            /* by parameter: the group's first rank has leaves of its gradient */
    const struct sgrad_call **call;             /* by node, phase and task: the last one made */
    int norm;                                   /* Σ g² over all parameters; -1: no clipping */
    int collectives;                            /* sums over ranks so far; the same on every rank */
    struct sgrad__bucket *bucket;               /* of gradients, being filled; NULL: none is */
    int waiting, *waits;                        /* the parameters in it */
};

/* What is submitted first when several tasks could run: what the most others wait for. */
enum { SGRAD__PRIORITY_INPUT, SGRAD__PRIORITY_WEIGHT, SGRAD__PRIORITY_CHAIN, SGRAD__PRIORITY_UPDATE };

/* program.c. NAMEs are given away. */
int sgrad__add_buffer(struct sgrad__builder *b, char *name, struct sgrad_view view);
const struct sgrad_call *sgrad__add_call(struct sgrad__builder *b, struct sgrad_call call);
struct sgrad__instruction *sgrad__add_instruction(struct sgrad__builder *b, const struct sgrad_call *call, const int *operand,
                                                  int64_t first, int priority, char *name);
void *sgrad__own(struct sgrad__program *p, void *memory);     /* freed with the program */

/* reduce.c */

/* The sum of those of BUFFER[0…count-1] that were made (are not -1), in the tree made by halving: sum(n) = sum(first ⌈n/2⌉) +
 * sum(rest). -1: none was. */
int sgrad__add_sum(struct sgrad__builder *b, const int *buffer, int count, const char *name);

/* The sum of BUFFER over the RANKS ranks from FIRST on, this one among them. */
int sgrad__add_rank_sum(struct sgrad__builder *b, int buffer, int first, int ranks, const char *name);

/* A bucket gathers what is to be summed over all ranks, so that few messages are sent. Every rank puts the same things in, in
 * the same order: a BUFFER of -1 is one that this rank has no part in. */
struct sgrad__bucket *sgrad__bucket_open(enum sgrad_dtype dtype);
void sgrad__bucket_put(struct sgrad__bucket *bucket, int buffer, struct sgrad_view view, int *done, const char *name);
int64_t sgrad__bucket_bytes(const struct sgrad__bucket *bucket);
/* Sums it by METHOD (NULL: the cheapest); the buffers with the sums go where DONE pointed to. Frees the bucket. */
void sgrad__bucket_close(struct sgrad__builder *b, struct sgrad__bucket *bucket, const struct sgrad_allreduce *method, int priority, const char *name);
/* Bytes of a bucket when there are BYTES in all. */
int64_t sgrad__bucket_size(int64_t bytes, const struct sgrad_allreduce *method, const struct sgrad_network *net, bool halving);

#endif
