/* work.c: determines the cost of a training step (operations, memory traffic, gradients), from which the planner estimates its
 * time on other machines.
 *
 * The program of one rank is built for one sample and for two. Tasks, operands and their lifetimes are the same in both, and
 * their sizes are linear functions of the number of samples, so that the two programs determine both coefficients.
 *
 *     task        conv1 forward   …   fc backward-weight   fc update   …   conv1 backward-weight   conv1 update
 *     gradient                        fc is complete ──────┘                conv1 is complete ─────┘
 *                 └─ conv1 is needed here, in the next step                                                        */
#include "codelets/kfac/kronecker.h"
#include "graphs/api/costs.h"
#include "graphs/train/setup.h"

#include <stdlib.h>
#include <string.h>

/* Builds the program as for a GPU: every operation is one task, without fusion. Algorithms are chosen by a rule, not by
 * measurements. */
static int build(const struct sgrad__run *run, int64_t samples, struct sgrad__program **program) {
    struct sgrad_program_options o = sgrad__run_program_options(run, true, samples, samples);
    o.group = samples, o.unit = 0, o.lanes = 1, o.gpu_samples = 0, o.histograms = 0, o.workers = NULL;
    o.cpus = 0, o.gpus = 1, o.fuse = false, o.deterministic = true;
    return sgrad__program_build(run->graph, &o, program);
}

/* Tasks of second-order training (K-FAC), identified by kernels that are used only there: which ranks execute them, and the
 * first and last operand that is sent to other ranks (0, -1: none). */
static const struct curved {
    const struct sgrad_kernel *kernel;
    enum sgrad_cost_distribution part;
    int first, last;
} curved[] = {
    { &sgrad_kronecker_factor_kernel, SGRAD_COST_SUMMED, 1, 1 },
    { &sgrad_running_average_kernel, SGRAD_COST_OWN, 0, -1 },
    { &sgrad_eigendecomposition_kernel, SGRAD_COST_ASSIGNED, 1, 1 },
    { &sgrad_damped_inverse_kernel, SGRAD_COST_ASSIGNED, 1, 1 },
    { &sgrad_precondition_kernel, SGRAD_COST_ASSIGNED_BY_LAYER, 4, 5 },
    { &sgrad_precondition_by_inverse_kernel, SGRAD_COST_ASSIGNED_BY_LAYER, 4, 5 },
    { &sgrad_inner_product_kernel, SGRAD_COST_OWN, 0, -1 },
};

static void find_part(const struct sgrad_bound_kernel *call, struct sgrad_step_cost_task *task) {
    for (const struct curved *c = curved; c < curved + sizeof curved / sizeof *curved; c++) {
        if (c->kernel != call->kernel) continue;
        task->curvature = true;
        task->distribution = c->part;
        for (int i = c->first; i <= c->last; i++)
            if (call->view[i].shape.rank >= 0) task->sent += (double)sgrad_view_bytes(&call->view[i]);
    }
}

static void find_tasks(const struct sgrad__program *program, int samples, struct sgrad_step_cost *cost) {
    if (!cost->task) cost->task = sgrad_xcalloc((size_t)program->instruction_count, sizeof *cost->task);
    cost->tasks = program->instruction_count;
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad_bound_kernel *call = program->instruction[i].call;
        struct sgrad_step_cost_task *t = &cost->task[i];
        if (samples == 1) {
            *t = (struct sgrad_step_cost_task){ .kernel = call->kernel->name,
                                                .flops.fixed = call->flops,
                                                .bytes.fixed = call->bytes,
                                                .often = sgrad__share_of_steps(program->instruction[i].when) };
            find_part(call, t);
            continue;
        }
        t->flops = (struct sgrad_linear_cost){ 2 * t->flops.fixed - call->flops, call->flops - t->flops.fixed };
        t->bytes = (struct sgrad_linear_cost){ 2 * t->bytes.fixed - call->bytes, call->bytes - t->bytes.fixed };
    }
}

static double input_bytes(const struct sgrad_graph *graph) {
    double bytes = 0;
    for (int i = 0; i < graph->inputs; i++) bytes += (double)sgrad_view_bytes(&graph->value[graph->input[i]].view);
    return bytes;
}

static bool uses(const struct sgrad__instruction *in, int operand, const struct sgrad__program *program,
                 const struct sgrad_tensor *tensor) {
    const int b = in->operand[operand];
    return b >= 0 && program->buffer[b].lent && program->buffer[b].tensor[0] == tensor;
}

/* For the parameter in TENSOR. *NEEDED: the first task that uses it. *UPDATE: its update. *GRADIENT: the operand of the update
 * with the gradient. -1: not found. */
static void find_uses(const struct sgrad__program *program, const struct sgrad_tensor *tensor, int *needed, int *update,
                      int *gradient) {
    *needed = *update = *gradient = -1;
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad__instruction *in = &program->instruction[i];
        for (int j = 0; j < in->call->operands; j++) {
            if (!uses(in, j, program, tensor)) continue;
            if (*needed < 0) *needed = i;
            if (in->call->access[j] == SGRAD_R || in->call->kernel->kind != &sgrad_update_kind) continue;
            *update = i;
            *gradient = j + 1 < in->call->operands ? in->operand[j + 1] : -1;
        }
    }
}

static int by_made(const void *one, const void *other) {
    const struct sgrad_step_cost_gradient *a = one, *b = other;
    return a->made - b->made;
}

/* An update takes its parameter, then the gradient (codelets/updates.h). A gradient is complete after the last task that
 * writes it. */
static void find_gradients(const struct sgrad__program *program, struct sgrad_step_cost *cost) {
    const struct sgrad_graph *g = program->graph;
    cost->gradient = sgrad_xcalloc((size_t)g->parameter_count, sizeof *cost->gradient);
    for (int i = 0; i < g->parameter_count; i++) {
        int needed, update, gradient;
        if (g->parameter[i].state) continue;
        find_uses(program, g->parameter[i].tensor, &needed, &update, &gradient);
        if (update < 0) continue;
        int made = update;
        for (int k = 0; k < update; k++)
            for (int j = 0; j < program->instruction[k].call->operands; j++)
                if (program->instruction[k].operand[j] == gradient && program->instruction[k].call->access[j] != SGRAD_R)
                    made = k;
        const double bytes = (double)sgrad_shape_count(&g->parameter[i].kept_shape) * sizeof(float);
        cost->gradient[cost->gradients++] = (struct sgrad_step_cost_gradient){ bytes, made, needed };
    }
    qsort(cost->gradient, (size_t)cost->gradients, sizeof *cost->gradient, by_made);
}

static void find_fields(const struct sgrad_dataset *dataset, struct sgrad_step_cost *cost) {
    _Static_assert(SGRAD_COST_FIELDS == SGRAD_MAX_FIELDS, "a sample's fields, by costs.h and by datasets.h");
    cost->classes = dataset->classes;
    cost->fields = sgrad_dataset_own_fields(dataset);
    for (int f = 0; f < cost->fields; f++)
        cost->field[f] = (struct sgrad_step_cost_field){ sgrad_format("%s", dataset->field[f].name),
                                                         { dataset->field[f].dtype, dataset->field[f].shape } };
}

static int find(struct sgrad__run *run, const struct sgrad_train_options *asked, struct sgrad_step_cost *cost) {
    double most[2];
    SGRAD_TRY(sgrad__run_open_training(run));
    cost->model = sgrad_format("%s", run->model_text);
    cost->samples = run->data.train->count;
    find_fields(run->data.train, cost);
    cost->epochs = asked->training.steps ? (double)asked->training.steps * (double)asked->training.batch / (double)cost->samples
                                         : asked->training.epochs;
    cost->batch = asked->training.batch;
    cost->parameters = (double)sgrad__parameters_count(run->graph);
    cost->rows = run->training->hooks ? run->update.kfac_share : 1;
    cost->joint = run->training->hooks || asked->training.clip_norm > 0;
    cost->kept_bytes = sgrad__training_memory(run->training);
    cost->input_bytes.each = input_bytes(run->graph);
    for (int samples = 1; samples <= 2; samples++) {
        struct sgrad__program *p;
        SGRAD_TRY(build(run, samples, &p));
        find_tasks(p, samples, cost);
        if (samples == 1) find_gradients(p, cost);
        const struct sgrad__memory memory = sgrad__program_memory(p, 0, NULL);
        most[samples - 1] = sgrad__memory_all(&memory);
        sgrad__program_destroy(p);
    }
    cost->peak_bytes = (struct sgrad_linear_cost){ 2 * most[0] - most[1], most[1] - most[0] };
    return 0;
}

/* Creates a run with OPTIONS that is never executed. Options that depend on ranks and on the batch are replaced by those of
 * one rank. The caller must close and free it. */
static struct sgrad__run *open_run(const struct sgrad_train_options *options) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    r->options = *options;
    r->options.output.print = true;        /* creates no directory and reads no data */
    r->options.training.batch = 1;
    r->options.training.micro_batch = 0, r->options.training.bn_group = SGRAD_GROUP_RANK;
    r->options.parallel.strategy = "sync";   /* of one rank */
    r->options.parallel.allreduce = r->options.parallel.spill = NULL;
    r->options.parallel.memory = 0;
    r->options.parallel.backup_workers = -1;
    r->options.parallel.servers = r->options.parallel.group_ranks = r->options.parallel.staleness = 0;
    r->options.parallel.cpus = 1, r->options.parallel.gpus = -1;
    r->options.training.deterministic = true;        /* no algorithm is measured */
    r->options.output.explicit_options = NULL;
    return r;
}

int sgrad_step_cost_find(const struct sgrad_train_options *options, struct sgrad_step_cost *work) {
    struct sgrad__run *r = open_run(options);
    *work = (struct sgrad_step_cost){ 0 };
    int error = find(r, options, work);
    sgrad__run_close(r);
    free(r);
    if (error) sgrad_step_cost_free(work);
    return error;
}

void sgrad_step_cost_free(struct sgrad_step_cost *work) {
    free(work->model);
    for (int f = 0; f < work->fields; f++) free(work->field[f].name);
    free(work->task);
    free(work->gradient);
    *work = (struct sgrad_step_cost){ 0 };
}

double sgrad_step_cost_bucket(double bytes, const struct sgrad_network *network, const struct sgrad_collective *method) {
    const struct sgrad_program_options o = { .network = network, .allreduce = method };
    return (double)sgrad__bucket_size((int64_t)bytes, &o);
}

/* ---- the algorithms of its layers ---- */

static int measure(struct sgrad__run *run, int64_t samples, struct sgrad_layer_algorithms *algorithms) {
    struct sgrad__program *p;
    SGRAD_TRY(sgrad__run_open_training(run));
    SGRAD_TRY(build(run, samples, &p));
    algorithms->layer = sgrad_xcalloc((size_t)p->instruction_count, sizeof *algorithms->layer);
    for (int i = 0; i < p->instruction_count; i++) {
        struct sgrad_measured_layer *layer = &algorithms->layer[algorithms->layers];
        const int ways = sgrad_kernel_algorithms(p->instruction[i].call, layer->algorithm);
        if (!ways) continue;
        algorithms->algorithms = ways;
        layer->name = sgrad_format("%.*s", (int)strcspn(p->instruction[i].name, "#"), p->instruction[i].name);
        algorithms->layers++;
    }
    sgrad__program_destroy(p);
    return 0;
}

int sgrad_layer_algorithms_measure(const struct sgrad_train_options *options, int64_t samples,
                                   struct sgrad_layer_algorithms *ways) {
    struct sgrad__run *r = open_run(options);
    *ways = (struct sgrad_layer_algorithms){ 0 };
    int error = measure(r, samples, ways);
    sgrad__run_close(r);
    free(r);
    if (error) sgrad_layer_algorithms_free(ways);
    return error;
}

void sgrad_layer_algorithms_free(struct sgrad_layer_algorithms *ways) {
    for (int i = 0; i < ways->layers; i++) free(ways->layer[i].name);
    free(ways->layer);
    *ways = (struct sgrad_layer_algorithms){ 0 };
}

/* ---- the meshes of its ranks ---- */

int sgrad_mesh_choose(const struct sgrad_train_options *options, const struct sgrad_mesh_query *question,
                      struct sgrad_mesh_result *choice) {
    struct sgrad__run *r = open_run(options);
    r->options.parallel.mesh = NULL;
    *choice = (struct sgrad_mesh_result){ .best = -1 };
    int error = sgrad__run_open_graph(r);
    r->options.training.micro_batch = options->training.micro_batch, r->options.training.bn_group = options->training.bn_group;
    if (!error) sgrad__run_price_meshes(r, sgrad__run_build_graph, question, false, choice);
    sgrad__run_close(r);
    free(r);
    return error;
}
