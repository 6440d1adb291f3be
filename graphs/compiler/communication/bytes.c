/* bytes.c: prints the bytes that a rank of a mesh, or with --shard parameters, stores, uses, computes and sends per step, for
 * each layer. The numbers are exact, because they are computed from the program.
 *
 *     layer     stored        weights and biases that this rank stores; each state of the optimizer has the same size again
 *               in use        the same as the layer uses them: larger, if shards are gathered
 *               activations   results of forward for this rank's samples, for backward or for the next layer
 *               sent          messages: values, weights, and gradients on their path to the rank that stores them
 *
 * Buckets, with the gradients of parameters that several ranks store, buckets of weights that are gathered for each use, and
 * statistics have separate rows. */
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
static struct row *row_of(struct table *table, const char *name, size_t length) {
    for (struct row *r = table->row; r < table->row + table->count; r++)
        if (r->length == length && !strncmp(r->name, name, length)) return r;
    table->row = sgrad_array_grow(table->row, table->count, sizeof *table->row);
    table->row[table->count] = (struct row){ .name = name, .length = length };
    return &table->row[table->count++];
}

/* Layers with equal names up to a slash are one layer for the user. */
static struct row *layer_of(struct table *table, const struct sgrad__node *node) {
    return row_of(table, node->name, strcspn(node->name, "/"));
}

static void add_made(struct table *table, const struct sgrad__program *program) {
    for (const struct sgrad__node *n = program->graph->node; n < program->graph->node + program->graph->node_count; n++) {
        struct row *row = layer_of(table, n);
        if (n->stage != program->graph->stage) continue;
        if (n->output >= 0 && !n->is.view_of_input) row->made += (int64_t)sgrad_view_bytes(&n->is.y) * program->share;
        for (int i = 0; i < SGRAD_MAX_PARAMETERS && n->is.saved[i].shape.rank; i++)
            row->made += (int64_t)sgrad_view_bytes(&n->is.saved[i]) * program->share;
    }
}

/* A parameter that several layers use is counted for the first one. */
static void add_parameters(struct table *table, const struct sgrad_graph *graph) {
    bool *seen = sgrad_xcalloc((size_t)graph->parameter_count, sizeof *seen);
    for (const struct sgrad__node *n = graph->node; n < graph->node + graph->node_count; n++)
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
            if (n->p[i] < 0 || seen[n->p[i]] || !sgrad__parameter_on(graph, &graph->parameter[n->p[i]], graph->rank)) continue;
            const struct sgrad__parameter *p = &graph->parameter[n->p[i]];
            struct row *row = layer_of(table, n);
            seen[n->p[i]] = true;
            row->kept += (p->share.ranks ? p->share.count : sgrad_shape_count(&p->kept_shape)) * (int64_t)sizeof(float);
            row->used += sgrad_shape_count(&p->is.shape) * (int64_t)sizeof(float);
        }
    free(seen);
}

/* A message that belongs to no layer is counted for its bucket. */
static void add_sent(struct table *table, const struct sgrad__program *program) {
    for (const struct sgrad__instruction *i = program->instruction; i < program->instruction + program->instruction_count; i++) {
        if (i->call->kernel != &sgrad__send_kernel || i->when.every) continue;
        struct row *most = NULL;
        for (struct row *r = table->row; r < table->row + table->count; r++)
            if (stands_for(r, i->name) && (!most || r->length > most->length)) most = r;
        if (!most) most = row_of(table, i->name, (size_t)(strstr(i->name, " send to ") - i->name));
        most->sent += (int64_t)sgrad_view_bytes(&i->call->view[0]);
    }
}

static void print_row(const struct row *row, FILE *to) {
    fprintf(to, "%-36.*s %14lld %14lld %14lld %14lld\n", (int)row->length, row->name, (long long)row->kept, (long long)row->used,
            (long long)row->made, (long long)row->sent);
}

void sgrad__program_print_bytes(const struct sgrad__program *program, FILE *to) {
    struct table t = { 0 };
    struct row all = { .name = "total", .length = 5 };
    add_made(&t, program);
    add_parameters(&t, program->graph);
    add_sent(&t, program);
    fprintf(to, "%-36s %14s %14s %14s %14s\n", "bytes of this rank", "stored", "in use", "activations", "sent");
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
