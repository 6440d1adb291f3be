/* compiler.h: compiles a graph to the tasks of one step, with their order, memory and ranks. Describes tasks; submits none.
 *
 * A *program* is a list of instructions in the order of submission, each a kernel on buffers: all tasks of all micro-batches,
 * forward and backward, sums over micro-batches and over ranks, and updates. It is data, and can be printed before it runs
 * (stargrad train … --print). Two inputs of the compiler are public: optimizers, which define how a parameter is updated, and
 * strategies, which define how several ranks train one network. If its kernel exists (codelets/updates.h), an optimizer is only
 * a record:
 *
 *     const struct sgrad_optimizer sgrad_sgd_optimizer = {
 *         .name = "sgd", .summary = "stochastic gradient descent with momentum",
 *         .default_lr = 0.1, .options = (const char *const[]){ "momentum", "nesterov", NULL },
 *         .update = &sgrad_sgd_kernel, .states = (const struct sgrad_state[]){ { .name = "momentum" }, { 0 } },
 *     };
 *
 * The micro-batches are a table of their first samples and sample counts. Results depend on this table only by rounding.
 * Gradients of consecutive micro-batches are added in gradient-accumulation buffers (lanes), and these in a fixed order. With
 * --deterministic, runs that divide the batch into the same lanes therefore give the same bits on any number of ranks. An
 * instruction specifies the steps that it belongs to (histograms), and whether it recomputes a result of forward. Each program
 * has its message tags, inputs, priority and failure state, so that several programs can run concurrently, as an evaluation and
 * the training steps do.
 *
 * graphs/api/train.h runs a program, one step after another. */
#ifndef SGRAD_GRAPHS_COMPILER_COMPILER_H
#define SGRAD_GRAPHS_COMPILER_COMPILER_H

#include "codelets/codelets.h"
#include "graphs/networks/networks.h"
#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_builder;
struct sgrad_program_options;

/* An optimizer: how a parameter is updated from its gradient. */
struct sgrad_optimizer {
    const char *name, *summary, *source;        /* source: paper of the method, or NULL */
    double default_lr;                        /* default learning rate */
    double momentum, beta1, beta2;      /* default hyperparameters; 0: 0.9, 0.9 and 0.999 */
    const char *const *options;         /* training options that it uses and some optimizers ignore: "momentum"; ends with NULL */
    const struct sgrad_kernel *update;  /* updates one parameter: codelets/updates.h */
    /* Updates an average of the weights, which is evaluated and saved instead of them, after the update. Attributes: those of the
     * update. Operands: weights (R), average (RW), which starts as zeros. NULL: --ema may average them. */
    const struct sgrad_kernel *average;
    bool needs_full_tensor;             /* needs whole parameters: a mesh that splits one over ranks is SGRAD_EINVAL */
    bool expensive;                          /* updates are expensive: of ranks with the same parameter, one updates it for all */
    const struct sgrad_state *states;   /* its states of each parameter; ends at a NULL name; NULL: none */
};
extern const struct sgrad_optimizer *const *sgrad_optimizers;      /* all of optimizers.def and of plug-ins; ends with NULL */

/* A strategy: how several ranks train one network. Its functions are private. */
struct sgrad_bucket;
struct sgrad_strategy {
    const char *name, *summary, *source;        /* source: paper of the method, or NULL */
    const char *const *options;         /* training options that it uses and some strategies ignore: "servers"; ends with NULL */
    bool uses_servers;                       /* each parameter has a parameter server: --servers */
    bool shards_optimizer; /* of the ranks with the same parameter, each stores states of a shard and updates it */
    bool shards_parameters; /* each also stores only this shard of the parameter, which is gathered for each use */
    bool balances_updates;                         /* if updates are expensive, each rank does some of them for all ranks */
    bool asynchronous;                        /* asynchronous: servers process pushes in the order of arrival */
    bool drops_stale; /* an update uses pushes of one rank each, all computed with the newest weights; others are dropped */
    /* Returns the number of ranks whose gradients are combined in one update. */
    int (*ranks)(const struct sgrad_program_options *options);
    /* Adds the instructions that exchange the gradients in BUCKET between the ranks. NUMBER is the index of the bucket. The names
     * of the instructions contain NAME. */
    void (*exchange)(struct sgrad_builder *builder, struct sgrad_bucket *bucket, int number, const char *name);
};
extern const struct sgrad_strategy *const sgrad_strategies[];      /* all of strategies.def; ends with NULL */

/* Assigns COUNT items to bins by longest processing time first: each item, in the order of decreasing size, goes to the least
 * loaded of its allowed bins (R. L. Graham: Bounds on Multiprocessing Timing Anomalies, 1969). On entry, bin[i] is the first
 * allowed bin of item i; the others are bin[i] + STEP, bin[i] + 2·STEP, …, below BINS. On return, bin[i] is the assigned bin.
 * LOAD, one number per bin, is the initial load; the sizes are added to it. */
void sgrad_lpt_assign(const double *size, int count, int *bin, int step, int bins, double *load);

#ifdef __cplusplus
}
#endif
#endif
