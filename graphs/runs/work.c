/* work.c: what a step is made of, for whoever asks what it would cost elsewhere.
 *
 * The program of one rank, built for one sample and for two, tells all: tasks, operands and their lives are the same in both, and
 * numbers of each grow in a straight line.
 *
 *     task        conv1 forward   …   fc backward-weight   fc update   …   conv1 backward-weight   conv1 update
 *     gradient                        fc is made here ─┘                    conv1 is made here ─┘
 *                 └─ conv1 is needed here, in the step after                                                       */
#include "codelets/kronecker.h"
#include "graphs/runs/run.h"

#include <stdlib.h>
#include <string.h>

/* As on a GPU: whole operations, each by itself. A rule decides how layers go: nothing is measured here. */
static int build(const struct sgrad__run *r, int64_t samples, struct sgrad__program **program) {
    struct sgrad__program_options o = sgrad__run_program_options(r, true, samples, samples);
    o.group = samples, o.unit = 0, o.lanes = 1, o.gpu_samples = 0, o.histograms = 0, o.workers = NULL;
    o.cpus = 0, o.cudas = 1, o.fuse = false, o.deterministic = true;
    return sgrad__program_build(r->graph, &o, program);
}

/* Second order: kernels that nothing else uses, what ranks do of them, and which operands go to the others. */
static const struct curved {
    const struct sgrad_kernel *kernel;
    enum sgrad_work_part part;
    int first, last;
} curved[] = {
    { &sgrad_kronecker_factor_kernel, SGRAD_WORK_SUMMED, 1, 1 },
    { &sgrad_running_average_kernel, SGRAD_WORK_OWN, 0, -1 },
    { &sgrad_eigendecomposition_kernel, SGRAD_WORK_DEALT, 1, 1 },
    { &sgrad_damped_inverse_kernel, SGRAD_WORK_DEALT, 1, 1 },
    { &sgrad_precondition_kernel, SGRAD_WORK_DEALT_BY_LAYER, 4, 5 },
    { &sgrad_precondition_by_inverse_kernel, SGRAD_WORK_DEALT_BY_LAYER, 4, 5 },
    { &sgrad_inner_product_kernel, SGRAD_WORK_OWN, 0, -1 },
};

static void find_part(const struct sgrad_call *call, struct sgrad_work_task *t) {
    for (const struct curved *c = curved; c < curved + sizeof curved / sizeof *curved; c++) {
        if (c->kernel != call->kernel) continue;
        t->curvature = true;
        t->part = c->part;
        for (int i = c->first; i <= c->last; i++)
            if (call->view[i].shape.rank >= 0) t->sent += (double)sgrad_view_bytes(&call->view[i]);
    }
}

static void find_tasks(const struct sgrad__program *p, int samples, struct sgrad_work *w) {
    if (!w->task) w->task = sgrad_alloc((size_t)p->instruction_count, sizeof *w->task);
    w->tasks = p->instruction_count;
    for (int i = 0; i < p->instruction_count; i++) {
        const struct sgrad_call *call = p->instruction[i].call;
        struct sgrad_work_task *t = &w->task[i];
        if (samples == 1) {
            *t = (struct sgrad_work_task){ .kernel = call->kernel->name, .flops.fixed = call->flops, .bytes.fixed = call->bytes,
                                           .often = sgrad__share_of_steps(p->instruction[i].when) };
            find_part(call, t);
            continue;
        }
        t->flops = (struct sgrad_growth){ 2 * t->flops.fixed - call->flops, call->flops - t->flops.fixed };
        t->bytes = (struct sgrad_growth){ 2 * t->bytes.fixed - call->bytes, call->bytes - t->bytes.fixed };
    }
}

static double input_bytes(const struct sgrad_graph *g) {
    double bytes = 0;
    for (int i = 0; i < g->inputs; i++) bytes += (double)sgrad_view_bytes(&g->value[g->input[i]].view);
    return bytes;
}

static bool uses(const struct sgrad__instruction *in, int operand, const struct sgrad__program *p,
                 const struct sgrad_tensor *tensor) {
    const int b = in->operand[operand];
    return b >= 0 && p->buffer[b].lent && p->buffer[b].tensor[0] == tensor;
}

/* Of the parameter in TENSOR: the task that needs it first; its update, of which *GRADIENT is an operand; -1: there is none. */
static void find_uses(const struct sgrad__program *p, const struct sgrad_tensor *tensor, int *needed, int *update,
                      int *gradient) {
    *needed = *update = *gradient = -1;
    for (int i = 0; i < p->instruction_count; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        for (int j = 0; j < in->call->operands; j++) {
            if (!uses(in, j, p, tensor)) continue;
            if (*needed < 0) *needed = i;
            if (in->call->access[j] == SGRAD_R || in->call->kernel->kind != &sgrad_update_kind) continue;
            *update = i;
            *gradient = j + 1 < in->call->operands ? in->operand[j + 1] : -1;
        }
    }
}

static int by_made(const void *one, const void *other) {
    const struct sgrad_work_gradient *a = one, *b = other;
    return a->made - b->made;
}

/* An update takes its parameter, then the gradient (codelets/updates.h), which is whole behind the last task that writes it. */
static void find_gradients(const struct sgrad__program *p, struct sgrad_work *w) {
    const struct sgrad_graph *g = p->graph;
    w->gradient = sgrad_alloc((size_t)g->parameter_count, sizeof *w->gradient);
    for (int i = 0; i < g->parameter_count; i++) {
        int needed, update, gradient;
        if (g->parameter[i].state) continue;
        find_uses(p, g->parameter[i].tensor, &needed, &update, &gradient);
        if (update < 0) continue;
        int made = update;
        for (int k = 0; k < update; k++)
            for (int j = 0; j < p->instruction[k].call->operands; j++)
                if (p->instruction[k].operand[j] == gradient && p->instruction[k].call->access[j] != SGRAD_R) made = k;
        const double bytes = (double)sgrad_shape_count(&g->parameter[i].kept_shape) * sizeof(float);
        w->gradient[w->gradients++] = (struct sgrad_work_gradient){ bytes, made, needed };
    }
    qsort(w->gradient, (size_t)w->gradients, sizeof *w->gradient, by_made);
}

static void find_fields(const struct sgrad_dataset *d, struct sgrad_work *w) {
    _Static_assert(SGRAD_WORK_FIELDS == SGRAD_MAX_FIELDS, "a sample's fields, by runs.h and by datasets.h");
    w->classes = d->classes;
    w->fields = sgrad_dataset_own_fields(d);
    for (int f = 0; f < w->fields; f++)
        w->field[f] = (struct sgrad_work_field){ sgrad_format("%s", d->field[f].name), { d->field[f].dtype, d->field[f].shape } };
}

static int find(struct sgrad__run *r, const struct sgrad_train_options *asked, struct sgrad_work *w) {
    double most[2];
    SGRAD_TRY(sgrad__run_open_training(r));
    w->model = sgrad_format("%s", r->model_text);
    w->samples = r->train->count;
    find_fields(r->train, w);
    w->epochs = asked->steps ? (double)asked->steps * (double)asked->batch / (double)w->samples : asked->epochs;
    w->batch = asked->batch;
    w->parameters = (double)sgrad__parameters_count(r->graph);
    w->rows = r->optimizer->update_all ? r->share : 1;
    w->joint = r->optimizer->update_all || asked->clip_norm > 0;
    w->kept_bytes = sgrad__graph_memory(r->graph);
    w->input_bytes.each = input_bytes(r->graph);
    for (int samples = 1; samples <= 2; samples++) {
        struct sgrad__program *p;
        SGRAD_TRY(build(r, samples, &p));
        find_tasks(p, samples, w);
        if (samples == 1) find_gradients(p, w);
        const struct sgrad__memory memory = sgrad__program_memory(p, 0, NULL);
        most[samples - 1] = sgrad__memory_all(&memory);
        sgrad__program_destroy(p);
    }
    w->peak_bytes = (struct sgrad_growth){ 2 * most[0] - most[1], most[1] - most[0] };
    return 0;
}

/* A run of OPTIONS that is not to be, with what only ranks and batches have left out. */
static struct sgrad__run *open_run(const struct sgrad_train_options *options) {
    struct sgrad__run *r = sgrad_alloc(1, sizeof *r);
    r->options = *options;
    r->options.print = true;        /* no folder, no data */
    r->options.batch = 1;
    r->options.micro_batch = 0, r->options.bn_group = SGRAD_GROUP_RANK;
    r->options.strategy = "sync";   /* of one rank */
    r->options.allreduce = NULL;
    r->options.backup = -1;
    r->options.servers = r->options.group = r->options.staleness = 0;
    r->options.cpus = 1, r->options.gpus = -1;
    r->options.deterministic = true;        /* no way of a layer is measured */
    r->options.asked = NULL;
    return r;
}

int sgrad_work_find(const struct sgrad_train_options *options, struct sgrad_work *work) {
    struct sgrad__run *r = open_run(options);
    *work = (struct sgrad_work){ 0 };
    int error = find(r, options, work);
    sgrad__run_close(r);
    free(r);
    if (error) sgrad_work_free(work);
    return error;
}

void sgrad_work_free(struct sgrad_work *work) {
    free(work->model);
    for (int f = 0; f < work->fields; f++) free(work->field[f].name);
    free(work->task);
    free(work->gradient);
    *work = (struct sgrad_work){ 0 };
}

double sgrad_work_bucket(double bytes, const struct sgrad_network *network, const struct sgrad_collective *method) {
    const struct sgrad__program_options o = { .network = network, .allreduce = method };
    return (double)sgrad__bucket_size((int64_t)bytes, &o);
}

/* ---- the ways of its layers ---- */

static int measure(struct sgrad__run *r, int64_t samples, struct sgrad_ways *w) {
    struct sgrad__program *p;
    SGRAD_TRY(sgrad__run_open_training(r));
    SGRAD_TRY(build(r, samples, &p));
    w->layer = sgrad_alloc((size_t)p->instruction_count, sizeof *w->layer);
    for (int i = 0; i < p->instruction_count; i++) {
        struct sgrad_layer_ways *layer = &w->layer[w->layers];
        const int ways = sgrad_call_ways(p->instruction[i].call, layer->way);
        if (!ways) continue;
        w->ways = ways;
        layer->name = sgrad_format("%.*s", (int)strcspn(p->instruction[i].name, "#"), p->instruction[i].name);
        w->layers++;
    }
    sgrad__program_destroy(p);
    return 0;
}

int sgrad_ways_measure(const struct sgrad_train_options *options, int64_t samples, struct sgrad_ways *ways) {
    struct sgrad__run *r = open_run(options);
    *ways = (struct sgrad_ways){ 0 };
    int error = measure(r, samples, ways);
    sgrad__run_close(r);
    free(r);
    if (error) sgrad_ways_free(ways);
    return error;
}

void sgrad_ways_free(struct sgrad_ways *ways) {
    for (int i = 0; i < ways->layers; i++) free(ways->layer[i].name);
    free(ways->layer);
    *ways = (struct sgrad_ways){ 0 };
}

/* ---- the meshes of its ranks ---- */

int sgrad_mesh_choose(const struct sgrad_train_options *options, const struct sgrad_mesh_question *question,
                      struct sgrad_mesh_choice *choice) {
    struct sgrad__run *r = open_run(options);
    r->options.mesh = NULL;
    *choice = (struct sgrad_mesh_choice){ .best = -1 };
    int error = sgrad__run_open_graph(r);
    r->options.micro_batch = options->micro_batch, r->options.bn_group = options->bn_group;
    if (!error) sgrad__run_price_meshes(r, sgrad__run_build_graph, question, false, choice);
    sgrad__run_close(r);
    free(r);
    return error;
}
