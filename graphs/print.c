/* print.c: a network and a program as text, before anything runs. The tests keep golden copies. */
#include "graphs/train.h"

#include <stdlib.h>
#include <string.h>

static const char *human(double x, char text[16]) {
    static const char *const units[] = { "", "k", "M", "G", "T" };
    int unit = 0;
    while (x >= 999.95 && unit < 4) {
        x /= 1000;
        unit++;
    }
    snprintf(text, 16, unit ? "%.1f%s" : "%.0f%s", x, units[unit]);
    return text;
}

void sgrad__graph_print(const struct sgrad_graph *g, FILE *to) {
    char text[SGRAD_SHAPE_TEXT], about[96], label[128];
    fprintf(to, "%-24s %-46s %-16s %s\n", "layer", "operation", "output", "parameters");
    for (int n = 0; n < g->node_count; n++) {
        const struct sgrad__node *node = &g->node[n];
        int64_t parameters = 0;
        about[0] = 0;
        if (node->op->describe) node->op->describe(node->attrs, about, sizeof about);
        snprintf(label, sizeof label, "%s%s%s", node->op->name, *about ? " " : "", about);
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++)
            if (node->p[i] >= 0) parameters += sgrad_shape_count(&node->is.p[i].shape);
        fprintf(to, "%-24s %-46s %-16s %lld\n", node->name, label,
                node->output < 0 ? "-" : sgrad_shape_text(&node->is.y.shape, text), (long long)parameters);
    }
    fprintf(to, "%lld parameters\n", (long long)sgrad__parameters_count(g));
}

/* Memory of the program, by lifetime, in bytes: what is alive at once is less, since activations are given back. */
static double bytes_of(const struct sgrad__program *p, enum sgrad_lifetime lifetime) {
    double bytes = 0;
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffer[i].lifetime == lifetime && i != p->records) bytes += (double)sgrad_view_bytes(&p->buffer[i].view) * p->buffer[i].copies;
    return bytes;
}

int sgrad__by_address(const void *a, const void *b) {
    const struct sgrad_call *x = *(const struct sgrad_call *const *)a, *y = *(const struct sgrad_call *const *)b;
    return (x > y) - (x < y);
}

/* How often each call is made: counts, in the order of the sorted calls. */
static int *count_calls(const struct sgrad__program *p, struct sgrad_call **sorted) {
    int *times = sgrad_alloc((size_t)p->call_count, sizeof *times);
    memcpy(sorted, p->call, (size_t)p->call_count * sizeof *sorted);
    qsort(sorted, (size_t)p->call_count, sizeof *sorted, sgrad__by_address);
    for (int i = 0; i < p->instruction_count; i++) {
        struct sgrad_call **at = bsearch(&p->instruction[i].call, sorted, (size_t)p->call_count, sizeof *sorted, sgrad__by_address);
        times[at - sorted]++;
    }
    return times;
}

/* What a fused task does, with each slice of its samples. */
static void print_parts(const struct sgrad_call *call, FILE *to) {
    const int64_t samples = sgrad__call_slice(call);
    if (sgrad__call_parts(call) == 1) return;
    fprintf(to, "%-10s   ", "");
    if (samples) fprintf(to, "%lld samples at a time: ", (long long)samples);
    else fprintf(to, "together: ");
    for (int i = 0; i < sgrad__call_parts(call); i++) fprintf(to, "%s%s", i ? ", " : "", sgrad__call_part(call, i)->kernel->name);
    fputc('\n', to);
}

/* One line for each call, where it is first made, with how often: tasks that differ in the micro-batch only are one line.
 * Sums share their calls, so each is a line of its own. */
void sgrad__program_print(const struct sgrad__program *p, FILE *to) {
    char flops[16], bytes[16], text[SGRAD_SHAPE_TEXT];
    struct sgrad_call **sorted = sgrad_alloc((size_t)p->call_count, sizeof *sorted);
    int *times = count_calls(p, sorted);
    double total = 0;
    fprintf(to, "%s of %lld samples: %lld micro-batches of %lld, groups of %lld\n", p->training ? "training step" : "evaluation",
            (long long)p->share, (long long)(p->share / p->micro), (long long)p->micro, (long long)p->group);
    fprintf(to, "%-10s %-44s %6s  %-8s %-8s %s\n", "kind", "task", "times", "flops", "bytes", "first operand");
    for (int i = 0; i < p->instruction_count; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        struct sgrad_call **at = bsearch(&in->call, sorted, (size_t)p->call_count, sizeof *sorted, sgrad__by_address);
        int *left = &times[at - sorted], count = in->call->kernel == &sgrad_sum_kernel ? 1 : *left;
        total += in->call->flops;
        if (*left == 0) continue;
        if (in->call->kernel != &sgrad_sum_kernel) *left = 0;
        fprintf(to, "%-10s %-44.*s %6d  %-8s %-8s %s\n", sgrad_kind_name(in->call->kernel->kind), (int)strcspn(in->name, "#"), in->name,
                count, human(in->call->flops, flops), human(in->call->bytes, bytes), sgrad_shape_text(&in->call->view[0].shape, text));
        print_parts(in->call, to);
    }
    free(times);
    free(sorted);
    fprintf(to, "%d tasks, %s flops; ", p->instruction_count, human(total, flops));
    fprintf(to, "%s bytes of parameters and states, ", human(bytes_of(p, SGRAD_PERSISTENT), bytes));
    fprintf(to, "%s of activations and gradients\n", human(bytes_of(p, SGRAD_TRANSIENT), bytes));
}

static void print_network(const struct sgrad__run *r, FILE *to) {
    const struct sgrad_network *net = r->context->network;
    const double bytes = (double)r->program->bucket_bytes;
    const struct sgrad_allreduce *method = r->allreduce;
    int hosts = 0;
    for (int i = 0; i < net->ranks; i++) hosts += net->host[i] == i;
    if (!method) method = sgrad_allreduce_cheapest(bytes, net, r->options.deterministic);
    fprintf(to, "network    %d ranks on %d host%s; a message takes %.0f us and its bytes at %.3g GB/s\n", net->ranks, hosts, hosts > 1 ? "s" : "",
            1e6 * net->latency, net->bandwidth / 1e9);
    if (r->strategy->sharded) {
        fprintf(to, "servers    %d, of %d bucket%s of about %.0f kB; %s\n", r->servers, r->program->buckets, r->program->buckets > 1 ? "s" : "", bytes / 1e3, r->strategy->summary);
        return;
    }
    fprintf(to, "allreduce  %s, %s; gradients in %d bucket%s of about %.0f kB, each %.2f ms by its cost\n", method->name,
            r->allreduce ? "as asked" : "the cheapest", r->program->buckets, r->program->buckets > 1 ? "s" : "", bytes / 1e3, 1e3 * method->cost(bytes, net));
}

/* The two shares of a placement are this epoch's and the next one's. */
static void print_placement(const struct sgrad__run *r, FILE *to) {
    const double sample = (double)r->train->height * r->train->width * r->train->channels;
    if (!r->placement) {
        fprintf(to, "placement  replicate: every rank has all %lld records, %.2f MB\n", (long long)r->train->count, sample * (double)r->train->count / 1e6);
        return;
    }
    const struct sgrad_view view = sgrad__placement_view(r->placement);
    fprintf(to, "placement  partition: rank 0 holds %lld of %lld records, %.2f MB%s\n", (long long)view.shape.dim[0], (long long)r->train->count,
            (double)sgrad_view_bytes(&view) / 1e6, r->options.no_shuffle ? "" : ", and as much again for the next epoch");
}

/* What this run really is, before it begins. */
void sgrad__run_print(const struct sgrad__run *r, FILE *to) {
    const struct sgrad_train_options *o = &r->options;
    char devices[256];
    fprintf(to, "model      %s, %lld parameters\n", r->model->name, (long long)sgrad__parameters_count(r->graph));
    fprintf(to, "data       %s: %dx%dx%d, %d classes, %lld training and %lld test samples%s\n", o->data, r->train->height, r->train->width,
            r->train->channels, r->train->classes, (long long)r->train->count, (long long)r->test->count,
            r->image.flip ? ", padded, cropped and flipped" : "");
    if (r->placement || r->context->ranks > 1) print_placement(r, to);
    fprintf(to, "batch      %ld = %d rank%s x %lld micro-batches x %lld, %s; batch norm over %lld samples\n", o->batch,
            r->context->ranks, r->context->ranks > 1 ? "s" : "", (long long)(r->program->share / r->micro), (long long)r->micro,
            r->program->averaged == o->batch ? "synchronous" : r->strategy->fresh ? "synchronous but for the slowest" : "asynchronous", (long long)r->group);
    if (r->program->averaged != o->batch)
        fprintf(to, "updates    by the %sgradients of %lld samples%s; at most %d steps in flight\n", r->strategy->fresh ? "first " : "",
                (long long)r->program->averaged, r->strategy->fresh ? "; later ones are dropped" : ", as they come", o->window);
    fprintf(to, "optimizer  %s, learning rate %g", o->optimizer, r->peak);
    if (o->lr_scale_base) fprintf(to, " = %g x %ld/%ld", o->lr, o->batch, o->lr_scale_base);
    fprintf(to, ", %s%s; %ld steps, %ld an epoch\n", o->schedule, o->warmup > 0 ? " after a warm-up" : "", r->steps, r->steps_per_epoch);
    if (r->context->ranks > 1) print_network(r, to);
    fprintf(to, "devices    %s; scheduler %s; %s%s; seed %llu%s\n", sgrad_devices_text(r->context, devices, sizeof devices),
            r->context->scheduler, sgrad_precision_name(o->precision), o->precision == SGRAD_PRECISION_BF16 ? " with f32 master weights" : "",
            (unsigned long long)o->seed, o->deterministic ? ", deterministic" : "");
    fflush(to);
}
