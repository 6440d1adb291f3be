/* bytes.c: prints the bytes that a rank of a mesh stores, uses, computes and sends per step, for each layer. The numbers are
 * exact, because they are computed from the program.
 *
 *     layer     kept          weights and biases that this rank stores; each state of the optimizer has the same size again
 *               in use        the same as the layer uses them: larger, if shards are gathered
 *               made          results of forward for this rank's samples, for backward or for the next layer
 *               sent          messages: values, weights, and gradients on their path to the rank that stores them
 *
 * Buckets, with the gradients of parameters that several ranks store, and statistics have separate rows. */
#include "graphs/compiler/program.h"

#include <stdlib.h>
#include <string.h>

struct row {
    const char *name;
    size_t length;
    int64_t kept, used, made, sent;
};
struct table {
    int count;
    struct row *row;
};

/* Returns true if NAME is the name of ROW's layer, or of a message for it: "fc/sum send to 1", "fc.weight send to 1". */
static bool stands_for(const struct row *row, const char *name) {
    return !strncmp(row->name, name, row->length) && (!name[row->length] || strchr("/. ", name[row->length]));
}

/* Returns the row of NAME, of which the first LENGTH characters count; it is added if it does not exist. */
static struct row *row_of(struct table *t, const char *name, size_t length) {
    for (struct row *r = t->row; r < t->row + t->count; r++)
        if (r->length == length && !strncmp(r->name, name, length)) return r;
    t->row = sgrad_array_grow(t->row, t->count, sizeof *t->row);
    t->row[t->count] = (struct row){ .name = name, .length = length };
    return &t->row[t->count++];
}

/* Layers with equal names up to a slash are one layer for the user. */
static struct row *layer_of(struct table *t, const struct sgrad__node *n) { return row_of(t, n->name, strcspn(n->name, "/")); }

static void add_made(struct table *t, const struct sgrad__program *p) {
    for (const struct sgrad__node *n = p->graph->node; n < p->graph->node + p->graph->node_count; n++) {
        struct row *row = layer_of(t, n);
        if (n->stage != p->graph->stage) continue;
        if (n->output >= 0 && !n->is.view_of_input) row->made += (int64_t)sgrad_view_bytes(&n->is.y) * p->share;
        for (int i = 0; i < SGRAD_MAX_PARAMETERS && n->is.keep[i].shape.rank; i++)
            row->made += (int64_t)sgrad_view_bytes(&n->is.keep[i]) * p->share;
    }
}

/* A parameter that several layers use is counted for the first one. */
static void add_parameters(struct table *t, const struct sgrad_graph *g) {
    bool *seen = sgrad_xcalloc((size_t)g->parameter_count, sizeof *seen);
    for (const struct sgrad__node *n = g->node; n < g->node + g->node_count; n++)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
            if (n->p[i] < 0 || seen[n->p[i]] || !sgrad__parameter_on(g, &g->parameter[n->p[i]], g->rank)) continue;
            const struct sgrad__parameter *p = &g->parameter[n->p[i]];
            struct row *row = layer_of(t, n);
            seen[n->p[i]] = true;
            row->kept += sgrad_shape_count(&p->kept_shape) * (int64_t)sizeof(float);
            row->used += sgrad_shape_count(&p->is.shape) * (int64_t)sizeof(float);
        }
    free(seen);
}

/* A message that belongs to no layer is counted for its bucket. */
static void add_sent(struct table *t, const struct sgrad__program *p) {
    for (const struct sgrad__instruction *i = p->instruction; i < p->instruction + p->instruction_count; i++) {
        if (i->call->kernel != &sgrad__send_kernel || i->when.every) continue;
        struct row *most = NULL;
        for (struct row *r = t->row; r < t->row + t->count; r++)
            if (stands_for(r, i->name) && (!most || r->length > most->length)) most = r;
        if (!most) most = row_of(t, i->name, (size_t)(strstr(i->name, " send to ") - i->name));
        most->sent += (int64_t)sgrad_view_bytes(&i->call->view[0]);
    }
}

static void print_row(const struct row *r, FILE *to) {
    fprintf(to, "%-36.*s %14lld %14lld %14lld %14lld\n", (int)r->length, r->name, (long long)r->kept, (long long)r->used,
            (long long)r->made, (long long)r->sent);
}

void sgrad__program_print_bytes(const struct sgrad__program *p, FILE *to) {
    struct table t = { 0 };
    struct row all = { .name = "in all", .length = 6 };
    add_made(&t, p);
    add_parameters(&t, p->graph);
    add_sent(&t, p);
    fprintf(to, "%-36s %14s %14s %14s %14s\n", "bytes of this rank", "kept", "in use", "made", "sent");
    for (const struct row *r = t.row; r < t.row + t.count; r++) {
        if (r->used || r->made || r->sent) print_row(r, to);
        all.kept += r->kept;
        all.used += r->used;
        all.made += r->made;
        all.sent += r->sent;
    }
    print_row(&all, to);
    free(t.row);
}
