/* forecast.c: estimates a training run on each number of nodes: step, speed-up, memory, time, cost.
 *
 * Strategies: sync sums the gradients with a collective; ps reduces them to servers, which broadcast the result. In the
 * asynchronous strategies (async, mixed, backup) each node pushes to the servers and pulls from them, and a server handles these
 * requests one after another.
 *
 * Second order: work that is distributed over the ranks takes as long as the busiest rank. The intervals of its tasks, and the
 * number of ranks that precondition a layer, are as in training (graphs/compiler/curvature.h). If training chooses the cheapest
 * number of ranks, it is computed here with the rates of the machine's file. */
#include "config.h"
#include "graphs/api/costs.h"
#include "graphs/compiler/compiler.h"
#include "planner/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const sgrad_limit_name[] = { "compute", "network", "bus", "input", "memory" };

/* The query, and values that are common to all rows. */
struct study {
    const struct sgrad_plan_query *q;
    const struct sgrad_strategy *strategy;
    const struct sgrad_collective *allreduce;   /* NULL: the cheapest */
    double scale;
    double *end;                                /* scratch: end of each task, in seconds from the start of the step */
    double bytes;                               /* of all gradients */
    double *seconds;                            /* scratch: seconds by task, then by rank */
    int *rank;                                  /* scratch: rank by task */
};

static double at(struct sgrad_linear_cost g, double samples) { return g.fixed + g.each * samples; }

/* Returns the fraction of the peak that a kernel reaches. The first word of its name is the operation. An operation that the
 * machine's file does not list has the fraction of "other"; default: 1. */
static double share_of(const struct sgrad_machine *machine, const char *kernel) {
    const size_t length = strcspn(kernel, " ");
    double other = 1;
    for (int i = 0; i < machine->device.efficiencies; i++) {
        const struct sgrad_efficiency *e = &machine->device.efficiency[i];
        if (strlen(e->operation) == length && !strncmp(e->operation, kernel, length)) return e->fraction;
        if (!strcmp(e->operation, "other")) other = e->fraction;
    }
    return other;
}

double sgrad_machine_seconds(const struct sgrad_machine *machine, enum sgrad_precision precision, const char *kernel,
                             double flops, double bytes) {
    const double arithmetic = flops / (machine->device.flops[precision] * share_of(machine, kernel));
    const double traffic = bytes / (machine->device.bandwidth * machine->device.traffic_fraction);
    return fmax(arithmetic, traffic) + machine->device.launch;
}

static double task_seconds(const struct study *study, const struct sgrad_step_cost_task *task, double samples) {
    return (task->curvature ? 1 : study->scale) * task->often *
           sgrad_machine_seconds(study->q->machine, study->q->train->model.precision, task->kernel, at(task->flops, samples),
                                 at(task->bytes, samples));
}

/* Returns the seconds of the busiest rank, if the tasks of PART are distributed over RANKS. */
static double busiest_rank(const struct study *study, enum sgrad_cost_distribution part, double samples, int ranks) {
    double *seconds = study->seconds, *load = study->seconds + study->q->work->tasks, most = 0;
    int count = 0;
    for (int i = 0; i < study->q->work->tasks; i++)
        if (study->q->work->task[i].distribution == part)
            seconds[count++] = task_seconds(study, &study->q->work->task[i], samples);
    const int used = ranks < count ? ranks : count;
    memset(load, 0, (size_t)used * sizeof *load);
    memset(study->rank, 0, (size_t)count * sizeof *study->rank);
    sgrad_lpt_assign(seconds, count, study->rank, 1, used, load);
    for (int r = 0; r < used; r++) most = fmax(most, load[r]);
    return most;
}

/* Seconds of one device's tasks in a step: all of them; those after the last gradient, except decompositions, which later steps
 * may use. */
struct computed {
    double all, behind;
};

/* Computes the times of one of RANKS ranks with SAMPLES samples, if ROWS ranks precondition each layer. Sets the end of each
 * task. */
static struct computed compute(const struct study *study, double samples, int ranks, int rows) {
    const struct sgrad_step_cost *w = study->q->work;
    const int last = w->gradients ? w->gradient[w->gradients - 1].made : w->tasks;
    struct computed is = { 0, 0 };
    for (int i = 0; i < w->tasks; i++) {
        const struct sgrad_step_cost_task *t = &w->task[i];
        const double seconds = t->distribution < SGRAD_COST_ASSIGNED ? task_seconds(study, t, samples) : 0;
        is.all += seconds;
        is.behind += i > last ? seconds : 0;
        study->end[i] = is.all;
    }
    const double conditioned = busiest_rank(study, SGRAD_COST_ASSIGNED_BY_LAYER, samples, ranks / rows);
    is.all += busiest_rank(study, SGRAD_COST_ASSIGNED, samples, ranks) + conditioned;
    is.behind += conditioned;
    return is;
}

/* ---- messages ---- */

/* The algorithm and the seconds of an exchange of BYTES bytes between all ranks of NET. */
struct exchange {
    const char *name;
    double seconds;
};

static struct exchange by_kind(enum sgrad_collective_kind kind, const struct sgrad_collective *method, double bytes,
                               const struct sgrad_network *net) {
    const struct sgrad_exchange what = { .bytes = bytes };
    if (net->ranks == 1) return (struct exchange){ "", 0 };
    if (!method) method = sgrad_collective_cheapest(kind, &what, net);
    return (struct exchange){ method->name, sgrad_collective_cost(method, &what, net) };
}

static struct exchange exchange(const struct study *study, double bytes, int nodes, const struct sgrad_network *net) {
    if (!study->strategy->uses_servers) return by_kind(SGRAD_ALLREDUCE, study->allreduce, bytes, net);
    if (!study->strategy->asynchronous) {
        const struct exchange up = by_kind(SGRAD_REDUCE, NULL, bytes, net), down = by_kind(SGRAD_BROADCAST, NULL, bytes, net);
        return (struct exchange){ up.name, up.seconds + down.seconds };
    }
    const struct sgrad_train_options *o = study->q->train;
    const int workers = nodes / (o->parallel.group_ranks && o->parallel.group_ranks < nodes ? o->parallel.group_ranks : 1);
    const int servers = o->parallel.servers && o->parallel.servers < nodes ? o->parallel.servers : nodes;
    struct sgrad_network node = *net;
    node.ranks = study->q->machine->device.count;
    const double inside = by_kind(SGRAD_ALLREDUCE, NULL, bytes, &node).seconds;
    const double between = nodes == 1 ? 0 : 2 * (net->latency + bytes * workers / servers / net->bandwidth);
    return (struct exchange){ "servers", inside + between };
}

/* Messages of second-order training, per step on average: factors to be summed, results of decompositions, preconditioned
 * gradients. */
struct curvature {
    double late, now;           /* seconds: concurrent with later steps; between a gradient and its update */
};

static struct curvature send_curvature(const struct study *study, int rows, const struct sgrad_network *net) {
    struct sgrad_network column = *net, row = *net;
    struct curvature is = { 0, 0 };
    column.ranks = rows, row.ranks = net->ranks / rows;
    for (const struct sgrad_step_cost_task *t = study->q->work->task; t < study->q->work->task + study->q->work->tasks; t++) {
        if (t->sent <= 0) continue;
        if (t->distribution == SGRAD_COST_SUMMED)
            is.late += t->often * by_kind(SGRAD_ALLREDUCE, study->allreduce, t->sent, net).seconds;
        if (t->distribution == SGRAD_COST_ASSIGNED)
            is.late += t->often * by_kind(SGRAD_BROADCAST, NULL, t->sent, &column).seconds;
        if (t->distribution == SGRAD_COST_ASSIGNED_BY_LAYER)
            is.now += t->often * by_kind(SGRAD_BROADCAST, NULL, t->sent, &row).seconds;
    }
    return is;
}

/* Returns the number of ranks that precondition a layer, a divisor of all ranks: the nearest one to the setting, or the
 * cheapest. */
static int find_rows(const struct study *study, double samples, const struct sgrad_network *net) {
    const double wanted = study->q->work->rows * net->ranks;
    const bool cheapest = study->q->work->rows < 0;
    double least = INFINITY;
    int best = net->ranks;
    for (int rows = net->ranks; rows > 0 && study->q->work->rows != 1; rows--) {
        if (net->ranks % rows) continue;
        const struct curvature sent = cheapest ? send_curvature(study, rows, net) : (struct curvature){ 0 };
        const double cost = cheapest ? compute(study, samples, net->ranks, rows).all + sent.late + sent.now : fabs(rows - wanted);
        if (cost < least) least = cost, best = rows;
    }
    return best;
}

/* Gradients fill buckets in the order in which they are computed. A gradient larger than a bucket is sent in several messages. */
struct messages {
    double seconds, way;        /* total; longest time from the first use of a weight to its next value */
    double last;                /* when the last message has arrived */
};

static struct messages send_all(const struct study *study, double bucket, int nodes, const struct sgrad_network *net) {
    const struct sgrad_step_cost *w = study->q->work;
    struct messages all = { 0, 0, 0 };
    double filled = 0, known = 0, cost = 0, wire = 0;
    for (int i = 0, first = 0; i < w->gradients; i++) {
        filled += w->gradient[i].bytes;
        if (filled < bucket && i + 1 < w->gradients) continue;
        const double cuts = bucket > 0 ? ceil(filled / bucket) : 1;
        if (filled / cuts != known) cost = exchange(study, known = filled / cuts, nodes, net).seconds;
        wire = fmax(wire, study->end[w->gradient[i].made]) + cuts * cost;
        all.seconds += cuts * cost;
        for (; first <= i; first++) {
            const int needed = w->gradient[first].needed;
            all.way = fmax(all.way, wire - (needed > 0 ? study->end[needed - 1] : 0));
        }
        filled = 0;
    }
    all.last = wire;
    return all;
}

/* ---- a row ---- */

static double memory(const struct sgrad_step_cost *cost, double samples, int devices) {
    const double summed = devices > 1 ? 2 * cost->parameters * sizeof(float) : 0;   /* a copy of a bucket, and its sum */
    return cost->kept_bytes + at(cost->peak_bytes, samples) + summed;
}

static void find_limit(struct sgrad_plan_row *row, double bus, double input) {
    row->limit = row->step > 1.02 * row->compute ? SGRAD_BY_NETWORK : SGRAD_BY_COMPUTE;
    if (row->step <= bus) row->limit = SGRAD_BY_BUS;
    if (row->step <= input) row->limit = SGRAD_BY_INPUT;
    if (row->memory > row->available) row->limit = SGRAD_BY_MEMORY;
}

static void find_money(const struct study *study, struct sgrad_plan_row *row) {
    const struct sgrad_step_cost *w = study->q->work;
    row->hours = w->epochs * (double)w->samples / row->samples_per_second / 3600;
    row->cost = row->hours * row->nodes * study->q->machine->price;
}

/* Returns the step of a single device with SAMPLES samples, which it reads over the bus, at the node's input rate at most. */
static double alone(const struct study *study, double samples) {
    const struct sgrad_machine *m = study->q->machine;
    const double input = m->input > 0 ? samples / m->input : 0;
    return fmax(compute(study, samples, 1, 1).all, fmax(input, at(study->q->work->input_bytes, samples) / m->bus_bandwidth));
}

/* The local batch of a device, if it is constant: the micro-batch, which is the number of samples that it processes at once. */
static long own_batch(const struct sgrad_train_options *options) {
    return options->training.micro_batch ? options->training.micro_batch : options->training.batch;
}

/* Returns the bytes of a bucket: those of the options; all gradients, if nothing is sent during the step; or the cheapest. */
static double find_bucket(const struct study *study, int devices, const struct sgrad_network *net) {
    const struct sgrad_plan_query *q = study->q;
    if (q->train->parallel.bucket > 0) return fmin(q->train->parallel.bucket * 1e6, study->bytes);
    return q->no_overlap || devices == 1 ? study->bytes : sgrad_step_cost_bucket(study->bytes, net, study->allreduce);
}

static void find_point(const struct study *study, int nodes, struct sgrad_plan_row *row) {
    const struct sgrad_plan_query *q = study->q;
    const struct sgrad_machine *m = q->machine;
    const int devices = nodes * m->device.count;
    const double share = q->strong ? ceil((double)q->train->training.batch / devices) : (double)own_batch(q->train);
    *row = (struct sgrad_plan_row){ .nodes = nodes, .devices = devices };
    row->batch = q->strong ? (double)q->train->training.batch : share * devices;
    const double one = alone(study, q->strong ? row->batch : share);
    const struct sgrad_network net = sgrad_machine_network(m, nodes);
    const int rows = find_rows(study, share, &net);
    const struct computed own = compute(study, share, devices, rows);
    const struct curvature curved = send_curvature(study, rows, &net);
    row->compute = own.all;
    row->bucket = find_bucket(study, devices, &net);
    const struct messages sent = send_all(study, row->bucket, nodes, &net);
    const double input = m->input > 0 ? share * m->device.count / m->input : 0;
    const double bus = at(q->work->input_bytes, share) / m->bus_bandwidth;
    row->communication = sent.seconds + curved.late + curved.now;
    row->collective = exchange(study, row->bucket, nodes, &net).name;
    const double way = !q->work->joint ? sent.way : sent.last + own.behind + curved.now;
    row->step = q->no_overlap ? row->compute + row->communication : fmax(row->compute, row->communication);
    if (!q->no_overlap && !study->strategy->asynchronous) row->step = fmax(row->step, devices > 1 ? way : 0);
    row->step = fmax(row->step, fmax(input, bus));
    row->exposed = row->step - row->compute;
    row->samples_per_second = row->batch / row->step;
    row->speedup = row->samples_per_second * one / (q->strong ? row->batch : share);
    row->efficiency = row->speedup / devices;
    row->memory = memory(q->work, share, devices);
    row->available = m->device.memory;
    row->most = floor((row->available - memory(q->work, 0, devices)) / q->work->peak_bytes.each);
    row->servers = nodes > 1 ? (int)sgrad_lemma_servers(study->bytes, nodes, net.bandwidth, row->compute) : 0;
    find_limit(row, bus, input);
    find_money(study, row);
    free((int *)net.host);
}

/* ---- all rows ---- */

/* Finds the factor of all tasks except those of K-FAC, with which one device is as fast as it was measured. Returns 0 if the
 * machine's file has no measurement of this network at this precision; the factor is then 1. */
static double find_scale(struct study *study) {
    const struct sgrad_machine *m = study->q->machine;
    study->scale = 1;
    for (int i = 0; i < m->measurements; i++) {
        const struct sgrad_measured *is = &m->measured[i];
        if (!sgrad_model_equal(is->model, study->q->work->model) || is->precision != study->q->train->model.precision) continue;
        double plain = 0;
        for (int j = 0; j < study->q->work->tasks; j++)
            if (!study->q->work->task[j].curvature) plain += task_seconds(study, &study->q->work->task[j], is->batch);
        return study->scale = is->batch / is->samples_per_second / plain;
    }
    return 0;
}

static int open_study(const struct sgrad_plan_query *query, struct study *study) {
    const struct sgrad_train_options *o = query->train;
    const char *strategy = o->parallel.strategy ? o->parallel.strategy : "sync";
    *study = (struct study){ .q = query };
    if (query->machine->device.flops[o->model.precision] <= 0)
        return sgrad_log_error(SGRAD_EINVAL, "%s: device.flops has no %s, which --precision requires; add it, or choose another "
                               "precision", query->machine->path, sgrad_precision_name(o->model.precision));
    if (!(study->strategy = sgrad_registry_find("strategy", strategy, sgrad_strategies))) return SGRAD_ENAME;
    if (o->parallel.allreduce && !(study->allreduce = sgrad_collective_find(SGRAD_ALLREDUCE, o->parallel.allreduce)))
        return SGRAD_ENAME;
    if (o->parallel.allreduce && study->strategy->uses_servers)
        return sgrad_log_error(SGRAD_EINVAL, "--allreduce requires --strategy sync, not %s", strategy);
    for (int i = 0; i < query->work->gradients; i++) study->bytes += query->work->gradient[i].bytes;
    study->end = sgrad_xcalloc((size_t)query->work->tasks, sizeof *study->end);
    study->seconds = sgrad_xcalloc(2 * (size_t)query->work->tasks, sizeof *study->seconds);
    study->rank = sgrad_xcalloc((size_t)query->work->tasks, sizeof *study->rank);
    return 0;
}

/* Returns the largest number of devices that reach the efficiency, by doubling and then bisection of the number of nodes.
 * INFINITY: more than MOST nodes reach it. */
static double find_devices(const struct study *study, double efficiency) {
    enum { MOST = 4096 };
    struct sgrad_plan_row p;
    int good = 0, bad = 1;
    for (; bad <= MOST; bad *= 2) {
        find_point(study, bad, &p);
        if (p.efficiency < efficiency) break;
        good = bad;
    }
    if (bad > MOST) return INFINITY;
    while (bad - good > 1) {
        const int middle = (good + bad) / 2;
        find_point(study, middle, &p);
        if (p.efficiency < efficiency) bad = middle;
        else good = middle;
    }
    return good ? (double)good * study->q->machine->device.count : 1;
}

/* Finds the overhead that explains the speed-up of the last row; if that row has a single device, of two nodes. */
static void find_lemma(const struct study *study, struct sgrad_forecast *forecast) {
    struct sgrad_plan_row p = forecast->row[forecast->rows - 1];
    forecast->overhead = NAN;
    if (p.devices == 1) find_point(study, 2, &p);
    if (p.speedup > 1) forecast->overhead = sgrad_lemma_overhead(p.devices, p.speedup);
    if (study->q->efficiency <= 0) return;
    forecast->lemma_devices = sgrad_lemma_devices(forecast->overhead, study->q->efficiency);
    forecast->devices = find_devices(study, study->q->efficiency);
}

int sgrad_forecast_nodes(const struct sgrad_machine *machine, int nodes) {
    if (!machine->network.most || nodes <= machine->network.most) return 0;
    return sgrad_log_error(
        SGRAD_EINVAL, "%s: the highest switch supports %.0f nodes, not %d; give --nodes up to %.0f, or add a switch above it",
        machine->path, machine->network.most, nodes, machine->network.most);
}

/* Omits numbers of nodes that do not divide the batch: training refuses them. */
static int make_points(const struct study *study, struct sgrad_forecast *forecast) {
    const struct sgrad_plan_query *q = study->q;
    char *out = NULL;
    for (int nodes = q->from; nodes <= q->to; nodes = nodes * 2 > q->to && nodes < q->to ? q->to : nodes * 2) {
        if (q->strong && q->train->training.batch % nodes) {
            char *before = out;
            out = sgrad_format("%s%s%d", before ? before : "", before ? ", " : "", nodes);
            free(before);
            continue;
        }
        forecast->row = sgrad_array_grow(forecast->row, forecast->rows, sizeof *forecast->row);
        find_point(study, nodes, &forecast->row[forecast->rows++]);
    }
    int error = 0;
    if (!forecast->rows)
        error =
            sgrad_log_error(SGRAD_EINVAL, "--batch %ld cannot be divided among %s nodes; give a multiple of the number of nodes",
                            q->train->training.batch, out);
    else if (out)
        sgrad_log_warning("--batch %ld cannot be divided among %s nodes, so these are left out", q->train->training.batch, out);
    free(out);
    return error;
}

int sgrad_forecast_make(const struct sgrad_plan_query *query, struct sgrad_forecast *forecast) {
    struct study s;
    SGRAD_TRY(sgrad_forecast_nodes(query->machine, query->to));
    SGRAD_TRY(open_study(query, &s));
    *forecast = (struct sgrad_forecast){ .scale = find_scale(&s) };
    const int error = make_points(&s, forecast);
    if (!error) find_lemma(&s, forecast);
    free(s.end);
    free(s.seconds);
    free(s.rank);
    return error;
}

void sgrad_plan_row_simulated(struct sgrad_plan_row *row, double seconds) {
    const double slower = seconds / row->step;
    row->formula = row->step;
    row->step = seconds;
    row->exposed = fmax(0, seconds - row->compute);
    row->samples_per_second /= slower, row->speedup /= slower, row->efficiency /= slower;
    row->hours *= slower, row->cost *= slower;
}

void sgrad_forecast_free(struct sgrad_forecast *forecast) {
    free(forecast->row);
    *forecast = (struct sgrad_forecast){ 0 };
}
