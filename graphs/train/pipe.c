/* pipe.c: prints the pipeline stages (graphs/networks/stages.c): the layers of each stage, the time that stages wait for each
 * other, the memory that they use.
 *
 * With M micro-batches, a stage of t seconds each computes for M·t seconds. The step takes the sum of t over all stages, and, for
 * each further micro-batch, the t of the slowest stage. The rest of a stage's time is the bubble. */
#include "graphs/train/setup.h"

#include <stdlib.h>

/* Returns the number of units that pass through the stages one after another: micro-batches, or batch-normalization groups if
 * these are larger, because a group must leave a stage completely before the next stage can start it. */
static int64_t turns(const struct sgrad__program *program) {
    if (!program->grouped || program->batch.group <= program->micro[0].samples) return program->micros;
    return program->batch.group < program->share ? program->share / program->batch.group : 1;
}

/* Returns the bubble as a fraction of the time of all ranks. */
static double bubble(const struct sgrad_graph *graph, int64_t turns) {
    double all = 0, slowest = 0;
    for (int s = 0; s < graph->stages; s++) {
        const double seconds = sgrad__stage(graph, s).seconds;
        all += seconds;
        if (seconds > slowest) slowest = seconds;
    }
    const double step = all + (double)(turns - 1) * slowest;
    return 1 - (double)turns * all / (graph->stages * step);
}

/* Returns the bytes that the forward pass of STAGE produces per sample: outputs, and data saved for backward. */
static int64_t made_bytes(const struct sgrad_graph *graph, int stage) {
    int64_t bytes = 0;
    for (const struct sgrad__node *n = graph->node; n < graph->node + graph->node_count; n++) {
        if (n->stage != stage || n->again) continue;
        if (n->output >= 0 && !n->is.view_of_input) bytes += (int64_t)sgrad_view_bytes(&n->is.y);
        for (int i = 0; i < SGRAD_MAX_PARAMETERS && n->is.saved[i].shape.rank; i++)
            bytes += (int64_t)sgrad_view_bytes(&n->is.saved[i]);
    }
    return bytes;
}

static int64_t parameters(const struct sgrad_graph *graph, int stage) {
    int64_t count = 0;
    for (const struct sgrad__parameter *p = graph->parameter; p < graph->parameter + graph->parameter_count; p++)
        if (!p->state && p->stages >> stage & 1) count += sgrad_shape_count(&p->kept_shape);
    return count;
}

static void print_table(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_graph *g = run->graph;
    const struct sgrad__program *p = run->program;
    double all = 0;
    for (int s = 0; s < g->stages; s++) all += sgrad__stage(g, s).seconds;
    fprintf(to, "%-5s %-28s %-28s %5s %11s %15s %10s\n", "stage", "from", "to", "work", "parameters", "bytes a sample",
            "in flight");
    for (int s = 0; s < g->stages; s++) {
        const struct sgrad__stage is = sgrad__stage(g, s);
        const int most = sgrad__micros_in_flight(g, s, run->context->cpus), groups = (int)(p->micros / turns(p));
        const int64_t at_once = (most + groups - 1) / groups * groups;
        fprintf(to, "%-5d %-28.28s %-28.28s %3.0f %% %11lld %15lld %10lld\n", s, g->node[is.first].name, g->node[is.last].name,
                100 * is.seconds / all, (long long)parameters(g, s), (long long)made_bytes(g, s),
                (long long)((at_once < p->micros ? at_once : p->micros) * p->micro[0].samples));
    }
}

void sgrad__run_print_pipe(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_graph *g = run->graph;
    const struct sgrad__program *p = run->program;
    if (g->stages == 1) return;
    const int64_t count = turns(p);
    const char *what = count < p->micros ? sgrad_plural(count, "group of batch norm", "groups of batch norm")
                                         : sgrad_plural(count, "micro-batch", "micro-batches");
    fprintf(
        to,
        "stages     %d, each with some of the layers; in a step of %lld %s, ranks wait for each other %.0f %% of the time%s\n",
        g->stages, (long long)count, what, 100 * bubble(g, count), count < p->micros ? "; --bn-group micro reduces it" : "");
    if (run->options.output.print) print_table(run, to);
}
