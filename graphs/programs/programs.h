/* programs.h: in which order, on which memory, on which rank: a graph as the tasks of one step. Describes tasks; submits none.
 *
 * A *program* is a list of instructions, each a kernel on buffers: every task of every micro-batch, forward, backward, sums over
 * micro-batches and over ranks, updates, in the order of submission. It is data, and can be printed before anything runs
 * (stargrad train … --print). What it is made by is public: optimizers, which say how a parameter is updated, and strategies,
 * which say how several ranks train one network. An optimizer whose kernel is there (codelets/updates.h) is a record:
 *
 *     const struct sgrad_optimizer sgrad_sgd_optimizer = {
 *         .name = "sgd", .summary = "stochastic gradient descent with momentum",
 *         .rate = 0.1, .options = (const char *const[]){ "momentum", "nesterov", NULL },
 *         .update = &sgrad_sgd_kernel, .states = (const struct sgrad_state[]){ { .name = "momentum" }, { 0 } },
 *     };
 *
 * Micro-batches are a table, each with its first sample and how many it has; results do not depend on it but by rounding, and
 * gradients are added in lanes, so that with --deterministic ranks cut alike have the same bits. An instruction says in which
 * steps it takes part (histograms), and whether it computes again what forward has made. Tags of messages, inputs, priority and
 * failure are a program's own: several are turned side by side, an evaluation beside the steps.
 *
 * Turning a program, step after step, is for graphs/runs/runs.h. */
#ifndef SGRAD_PROGRAMS_H
#define SGRAD_PROGRAMS_H

#include "codelets/codelets.h"
#include "graphs/networks/networks.h"
#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad__builder;
struct sgrad__program_options;

struct sgrad_optimizer {
    const char *name, *summary, *source;
    double rate;                        /* learning rate, where none is asked for */
    const char *const *options;         /* of train, those that not every optimizer heeds: "momentum"; ends with NULL */
    const struct sgrad_kernel *update;
    bool whole;                         /* it looks at all of a parameter at once, which may not be split over ranks */
    bool dear;                          /* its updates are much work: of ranks that have the same, one does it for all */
    const struct sgrad_state *states;   /* what it keeps of each parameter; ends without a name */
    /* Of one that looks at layers, too; the functions are the library's own. What it keeps of them gets memory; what it takes of
     * node N and micro-batch MICRO is added behind their backward pass; and, once all gradients are there (-1: of none), what
     * becomes of them, and the updates. NULL: parameters are updated each by itself. */
    int (*keep)(struct sgrad_graph *graph, const struct sgrad__program_options *options);
    void (*watch)(struct sgrad__builder *builder, int n, int micro);
    void (*update_all)(struct sgrad__builder *builder, const int *gradient);
};
extern const struct sgrad_optimizer *const *sgrad_optimizers;      /* all of optimizers.def, and of plug-ins; ends with NULL */

/* How several ranks train one network. The functions are the library's own. */
struct sgrad__bucket;
struct sgrad_strategy {
    const char *name, *summary, *source;
    const char *const *options;         /* of train, those that not every strategy heeds: "servers"; ends with NULL */
    bool sharded;                       /* each parameter has a server: --servers */
    bool shares;                        /* of what several ranks have, each keeps, and updates, a share */
    bool deals;                         /* where updates are much work, each does some for all */
    bool served;                        /* servers answer whoever comes first */
    bool fresh; /* an update is by pushes of one rank each, all of the newest weights; others are dropped */
    int (*ranks)(const struct sgrad__program_options *options);     /* whose gradients go into one update */
    void (*exchange)(struct sgrad__builder *builder, struct sgrad__bucket *bucket, int number, const char *name);
};
extern const struct sgrad_strategy *const sgrad_strategies[];      /* all of strategies.def; ends with NULL */

/* Things to bins: the largest that is left to the bin, of its own, that has least (R. L. Graham: Bounds on Multiprocessing Timing
 * Anomalies, 1969). Its own are bin[i], bin[i] + STEP, …, below BINS; it becomes the one. LOAD is added to. */
void sgrad_deal_out(const double *size, int count, int *bin, int step, int bins, double *load);

#ifdef __cplusplus
}
#endif
#endif
