/* recomputation.c: --memory: chooses layers whose results are recomputed in the backward pass instead of being moved to a file.
 *
 * Candidates are the layers inside blocks (as with --recompute) whose results leave memory. A candidate is recomputed together
 * with those layers before it whose outputs are not stored, which it needs again:
 *
 *     layer          norm ──> up ──> gelu ──> down ──> drop ──> add
 *     stored           •       •       •                         •     gelu: alone, from the output of up
 *     recomputed                                                       drop, of which a mask is stored: with down, from gelu
 *
 * The candidates are in the order of bytes that do not leave memory any more, per second of computation (M. Kirisame et al.,
 * Dynamic Tensor Rematerialization, arXiv:2006.09616). The first ones are taken, as many as give the shortest predicted step: a
 * search by halving, with a program for each number that is tried. More of them are not tried where nothing waits for moves.
 *
 * Limits: if the outputs between two candidates are recomputed, the second one's cost increases, which the order ignores. */
#include "graphs/compiler/builder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double GAIN = 0.02;        /* of a step: the least that is worth a choice that depends on estimates */
enum { FINEST = 16 };                   /* the search ends at this fraction of the candidates */

/* A candidate: the layers that are recomputed; the bytes that are not stored; the seconds of a sample. */
struct candidate {
    int count, *node;
    double bytes, seconds;
};

struct search {
    struct sgrad_graph *graph;
    const struct sgrad_program_options *o;
    bool *inside, *stored, *before;     /* by node: inside a block; its output is stored for backward; marked before */
    double *leaving;                    /* by node: bytes of its results that leave memory */
    int count;
    struct candidate *candidate;
    double *seconds, *waited;           /* by number of candidates: predicted; seconds INFINITY: it does not fit; 0: unknown */
};

/* Returns NULL if the limit is too low. */
static struct sgrad__program *build(struct sgrad_graph *graph, const struct sgrad_program_options *options) {
    struct sgrad__program *p;
    return sgrad__program_build(graph, options, &p) ? NULL : p;
}

/* ---- candidates ---- */

/* Finds the results of PROGRAM that are stored, and those that leave memory or, without a file, might have to. */
static void find_results(struct search *s, const struct sgrad__program *program, bool all) {
    for (const struct sgrad__buffer *b = program->buffer; b < program->buffer + program->buffer_count; b++) {
        if (b->result_of < 0) continue;
        s->stored[b->result_of] |= b->output;
        if (all || b->leaves) s->leaving[b->result_of] += (double)sgrad_view_bytes(&b->view);
    }
}

static bool contains(const struct candidate *c, int node) {
    for (int i = 0; i < c->count; i++)
        if (c->node[i] == node) return true;
    return false;
}

/* Adds node N, and the nodes that it needs. */
static void add_node(const struct search *s, struct candidate *c, int n) {
    const struct sgrad__node *node = &s->graph->node[n];
    const struct sgrad__work work = sgrad__node_work(node);
    if (contains(c, n)) return;
    c->node = sgrad_array_grow(c->node, c->count, sizeof *c->node);
    c->node[c->count++] = n;
    c->bytes += s->leaving[n];
    c->seconds += fmax(work.flops / s->o->limit.flops, work.bytes / s->o->limit.bandwidth);
    for (int i = 0; i < node->is.inputs; i++) {
        const int maker = s->graph->value[s->graph->value[node->input[i]].root].maker;
        if (maker >= 0 && s->inside[maker] && !s->stored[maker]) add_node(s, c, maker);
    }
}

static int by_worth(const void *one, const void *other) {
    const struct candidate *a = one, *b = other;
    const double x = a->bytes * b->seconds, y = b->bytes * a->seconds;
    return x != y ? (x < y) - (x > y) : a->node[0] - b->node[0];
}

static void find_candidates(struct search *s) {
    for (int n = 0; n < s->graph->node_count; n++) {
        if (!s->inside[n] || !(s->leaving[n] > 0)) continue;
        s->candidate = sgrad_array_grow(s->candidate, s->count, sizeof *s->candidate);
        s->candidate[s->count] = (struct candidate){ 0 };
        add_node(s, &s->candidate[s->count++], n);
    }
    if (s->count) qsort(s->candidate, (size_t)s->count, sizeof *s->candidate, by_worth);
    s->seconds = sgrad_xcalloc((size_t)s->count + 1, sizeof *s->seconds);
    s->waited = sgrad_xcalloc((size_t)s->count + 1, sizeof *s->waited);
}

/* ---- search ---- */

/* Marks the layers of the first COUNT candidates. Returns the number of marked layers. */
static int mark(const struct search *s, int count) {
    int marked = 0;
    for (int n = 0; n < s->graph->node_count; n++) s->graph->node[n].again = s->before[n];
    for (const struct candidate *c = s->candidate; c < s->candidate + count; c++)
        for (int i = 0; i < c->count; i++) s->graph->node[c->node[i]].again = true;
    for (int n = 0; n < s->graph->node_count; n++) marked += s->graph->node[n].again && !s->before[n];
    return marked;
}

/* Returns the predicted seconds of a step with the first COUNT candidates. */
static double seconds_of(struct search *s, int count) {
    if (s->seconds[count] > 0) return s->seconds[count];
    mark(s, count);
    s->seconds[count] = s->waited[count] = INFINITY;
    struct sgrad__program *p = build(s->graph, s->o);
    if (p) s->seconds[count] = p->spilling.seconds, s->waited[count] = p->spilling.waited;
    sgrad__program_destroy(p);
    return s->seconds[count];
}

/* Returns the best number of candidates. */
static int best_of(struct search *s) {
    const int least = s->count / FINEST;
    int best = seconds_of(s, s->count) < s->seconds[0] ? s->count : 0;
    for (int step = s->count / 2; step > least; step /= 2) {
        const int fewer = best - step, more = best + step;
        if (fewer >= 0 && seconds_of(s, fewer) < s->seconds[best]) best = fewer;
        else if (more <= s->count && s->waited[best] > 0 && seconds_of(s, more) < s->seconds[best]) best = more;
    }
    return s->seconds[best] < (1 - GAIN) * s->seconds[0] ? best : 0;
}

static struct search open_search(struct sgrad_graph *graph, const struct sgrad_program_options *options) {
    const size_t nodes = (size_t)graph->node_count + 1;
    struct search s = { .graph = graph,
                        .o = options,
                        .inside = sgrad__graph_inside_blocks(graph),
                        .stored = sgrad_xcalloc(nodes, sizeof *s.stored),
                        .before = sgrad_xcalloc(nodes, sizeof *s.before),
                        .leaving = sgrad_xcalloc(nodes, sizeof *s.leaving) };
    for (int n = 0; n < graph->node_count; n++) s.before[n] = graph->node[n].again, s.inside[n] &= !s.before[n];
    return s;
}

static void close_search(struct search *s) {
    for (int i = 0; i < s->count; i++) free(s->candidate[i].node);
    free(s->candidate);
    free(s->seconds);
    free(s->waited);
    free(s->inside);
    free(s->stored);
    free(s->before);
    free(s->leaving);
}

struct sgrad__recomputation sgrad__program_choose_recomputed(struct sgrad_graph *graph,
                                                             const struct sgrad_program_options *options) {
    struct sgrad_program_options without = *options;
    struct search s = open_search(graph, options);
    struct sgrad__program *base = build(graph, options);
    const bool fits = base != NULL;
    without.limit.bytes = 0;
    if (!fits) base = build(graph, &without);
    find_results(&s, base, !fits);
    find_candidates(&s);
    s.seconds[0] = fits ? base->spilling.seconds : INFINITY, s.waited[0] = fits ? base->spilling.waited : INFINITY;
    sgrad__program_destroy(base);
    const int best = s.count && (!fits || s.waited[0] > GAIN * s.seconds[0]) ? best_of(&s) : 0;
    const struct sgrad__recomputation result = { mark(&s, best), s.seconds[0], s.seconds[best] };
    close_search(&s);
    return result;
}
