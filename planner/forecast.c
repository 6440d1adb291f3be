/* forecast.c: what each number of nodes makes of a training: step, speed-up, memory, time, cost.
 *
 * Strategies of ranks: sync sums by a collective; ps reduces to servers and broadcasts from them; what servers answer to whoever
 * comes first (async, mixed, backup) is each node's push and pull, of which a server takes one after another.
 *
 * Second order: what ranks deal out among them is done when the one that has most of it is done; how often each part comes, and
 * how many ranks precondition a layer, is as in training (graphs/programs/curvature.h), the cheapest being so by these rates. */
#include "config.h"
#include "graphs/programs/programs.h"
#include "planner/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const sgrad_limit_name[] = { "compute", "network", "bus", "input", "memory" };

/* What is asked, and what holds for every point. */
struct study {
    const struct sgrad_question *q;
    const struct sgrad_strategy *strategy;
    const struct sgrad_collective *allreduce;   /* NULL: the cheapest */
    double scale;
    double *end;                                /* of each task, seconds from the step's begin; room for them */
    double bytes;                               /* of all gradients */
    double *dealt;                              /* room for seconds by task, and by rank; */
    int *rank;                                  /* and for a rank by task */
};

static double at(struct sgrad_growth g, double samples) { return g.fixed + g.each * samples; }

/* The share of the peak that a kernel's operation reaches, its name's first word; else "other"'s, or all. */
static double share_of(const struct sgrad_machine *m, const char *kernel) {
    const size_t length = strcspn(kernel, " ");
    double other = 1;
    for (int i = 0; i < m->device.efficiencies; i++) {
        const struct sgrad_efficiency *e = &m->device.efficiency[i];
        if (strlen(e->operation) == length && !strncmp(e->operation, kernel, length)) return e->share;
        if (!strcmp(e->operation, "other")) other = e->share;
    }
    return other;
}

double sgrad_machine_seconds(const struct sgrad_machine *m, enum sgrad_precision precision, const char *kernel,
                             double flops, double bytes) {
    const double arithmetic = flops / (m->device.flops[precision] * share_of(m, kernel));
    const double traffic = bytes / (m->device.bandwidth * m->device.traffic_share);
    return fmax(arithmetic, traffic) + m->device.launch;
}

static double task_seconds(const struct study *s, const struct sgrad_work_task *t, double samples) {
    return (t->curvature ? 1 : s->scale) * t->often *
           sgrad_machine_seconds(s->q->machine, s->q->train->precision, t->kernel, at(t->flops, samples), at(t->bytes, samples));
}

/* Of the rank that has most, where tasks of a PART are dealt out to RANKS. */
static double deal_out(const struct study *s, enum sgrad_work_part part, double samples, int ranks) {
    double *seconds = s->dealt, *load = s->dealt + s->q->work->tasks, most = 0;
    int count = 0;
    for (int i = 0; i < s->q->work->tasks; i++)
        if (s->q->work->task[i].part == part) seconds[count++] = task_seconds(s, &s->q->work->task[i], samples);
    const int used = ranks < count ? ranks : count;
    memset(load, 0, (size_t)used * sizeof *load);
    memset(s->rank, 0, (size_t)count * sizeof *s->rank);
    sgrad_deal_out(seconds, count, s->rank, 1, used, load);
    for (int r = 0; r < used; r++) most = fmax(most, load[r]);
    return most;
}

/* Of one device's tasks in a step: all; what comes behind the last gradient, but for what may be late. */
struct computed {
    double all, behind;
};

/* Of SAMPLES, of one of so many ranks, of which ROWS precondition a layer; and when each task ends. */
static struct computed compute(const struct study *s, double samples, int ranks, int rows) {
    const struct sgrad_work *w = s->q->work;
    const int last = w->gradients ? w->gradient[w->gradients - 1].made : w->tasks;
    struct computed is = { 0, 0 };
    for (int i = 0; i < w->tasks; i++) {
        const struct sgrad_work_task *t = &w->task[i];
        const double seconds = t->part < SGRAD_WORK_DEALT ? task_seconds(s, t, samples) : 0;
        is.all += seconds;
        is.behind += i > last ? seconds : 0;
        s->end[i] = is.all;
    }
    const double conditioned = deal_out(s, SGRAD_WORK_DEALT_BY_LAYER, samples, ranks / rows);
    is.all += deal_out(s, SGRAD_WORK_DEALT, samples, ranks) + conditioned;
    is.behind += conditioned;
    return is;
}

/* ---- messages ---- */

/* Of BYTES at once over all ranks of NET. */
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

static struct exchange exchange(const struct study *s, double bytes, int nodes, const struct sgrad_network *net) {
    if (!s->strategy->sharded) return by_kind(SGRAD_ALLREDUCE, s->allreduce, bytes, net);
    if (!s->strategy->served) {
        const struct exchange up = by_kind(SGRAD_REDUCE, NULL, bytes, net), down = by_kind(SGRAD_BROADCAST, NULL, bytes, net);
        return (struct exchange){ up.name, up.seconds + down.seconds };
    }
    const struct sgrad_train_options *o = s->q->train;
    const int workers = nodes / (o->group && o->group < nodes ? o->group : 1);
    const int servers = o->servers && o->servers < nodes ? o->servers : nodes;
    struct sgrad_network node = *net;
    node.ranks = s->q->machine->device.count;
    const double inside = by_kind(SGRAD_ALLREDUCE, NULL, bytes, &node).seconds;
    const double between = nodes == 1 ? 0 : 2 * (net->latency + bytes * workers / servers / net->bandwidth);
    return (struct exchange){ "servers", inside + between };
}

/* Of second order, a step on average: factors that are summed, what others get of decompositions, and of gradients. */
struct curvature {
    double late, now;           /* seconds: beside other steps; between a gradient and its update */
};

static struct curvature send_curvature(const struct study *s, int rows, const struct sgrad_network *net) {
    struct sgrad_network column = *net, row = *net;
    struct curvature is = { 0, 0 };
    column.ranks = rows, row.ranks = net->ranks / rows;
    for (const struct sgrad_work_task *t = s->q->work->task; t < s->q->work->task + s->q->work->tasks; t++) {
        if (t->sent <= 0) continue;
        if (t->part == SGRAD_WORK_SUMMED) is.late += t->often * by_kind(SGRAD_ALLREDUCE, s->allreduce, t->sent, net).seconds;
        if (t->part == SGRAD_WORK_DEALT) is.late += t->often * by_kind(SGRAD_BROADCAST, NULL, t->sent, &column).seconds;
        if (t->part == SGRAD_WORK_DEALT_BY_LAYER)
            is.now += t->often * by_kind(SGRAD_BROADCAST, NULL, t->sent, &row).seconds;
    }
    return is;
}

/* The ranks that precondition a layer, of all: as asked for, as near as can be, or the cheapest. */
static int find_rows(const struct study *s, double samples, const struct sgrad_network *net) {
    const double wanted = s->q->work->rows * net->ranks;
    const bool cheapest = s->q->work->rows < 0;
    double least = INFINITY;
    int best = net->ranks;
    for (int rows = net->ranks; rows > 0 && s->q->work->rows != 1; rows--) {
        if (net->ranks % rows) continue;
        const struct curvature sent = cheapest ? send_curvature(s, rows, net) : (struct curvature){ 0 };
        const double cost = cheapest ? compute(s, samples, net->ranks, rows).all + sent.late + sent.now : fabs(rows - wanted);
        if (cost < least) least = cost, best = rows;
    }
    return best;
}

/* Gradients fill buckets in the order in which they are made; one that is larger than a bucket goes in several. */
struct messages {
    double seconds, way;        /* of all; the longest from where a weight is needed to its next value */
    double last;                /* when the last of them is through */
};

static struct messages send_all(const struct study *s, double bucket, int nodes, const struct sgrad_network *net) {
    const struct sgrad_work *w = s->q->work;
    struct messages all = { 0, 0, 0 };
    double filled = 0, known = 0, cost = 0, wire = 0;
    for (int i = 0, first = 0; i < w->gradients; i++) {
        filled += w->gradient[i].bytes;
        if (filled < bucket && i + 1 < w->gradients) continue;
        const double cuts = bucket > 0 ? ceil(filled / bucket) : 1;
        if (filled / cuts != known) cost = exchange(s, known = filled / cuts, nodes, net).seconds;
        wire = fmax(wire, s->end[w->gradient[i].made]) + cuts * cost;
        all.seconds += cuts * cost;
        for (; first <= i; first++) {
            const int needed = w->gradient[first].needed;
            all.way = fmax(all.way, wire - (needed > 0 ? s->end[needed - 1] : 0));
        }
        filled = 0;
    }
    all.last = wire;
    return all;
}

/* ---- a point ---- */

static double memory(const struct sgrad_work *w, double samples, int devices) {
    const double summed = devices > 1 ? 2 * w->parameters * sizeof(float) : 0;      /* a bucket's copy, and its sum */
    return w->kept_bytes + at(w->peak_bytes, samples) + summed;
}

static void find_limit(struct sgrad_point *p, double bus, double input) {
    p->limit = p->step > 1.02 * p->compute ? SGRAD_BY_NETWORK : SGRAD_BY_COMPUTE;
    if (p->step <= bus) p->limit = SGRAD_BY_BUS;
    if (p->step <= input) p->limit = SGRAD_BY_INPUT;
    if (p->memory > p->room) p->limit = SGRAD_BY_MEMORY;
}

static void find_money(const struct study *s, struct sgrad_point *p) {
    const struct sgrad_work *w = s->q->work;
    p->hours = w->epochs * (double)w->samples / p->samples_per_second / 3600;
    p->cost = p->hours * p->nodes * s->q->machine->price;
}

/* One device with SAMPLES, of which it reads the bytes over the bus, or from wherever a node reads. */
static double alone(const struct study *s, double samples) {
    const struct sgrad_machine *m = s->q->machine;
    const double input = m->input > 0 ? samples / m->input : 0;
    return fmax(compute(s, samples, 1, 1).all, fmax(input, at(s->q->work->input_bytes, samples) / m->bus_bandwidth));
}

/* A device's batch, where it is kept: its micro-batch, as a device takes its samples at once. */
static long own_batch(const struct sgrad_train_options *o) { return o->micro_batch ? o->micro_batch : o->batch; }

static void find_point(const struct study *s, int nodes, struct sgrad_point *p) {
    const struct sgrad_question *q = s->q;
    const struct sgrad_machine *m = q->machine;
    const int devices = nodes * m->device.count;
    const double share = q->strong ? ceil((double)q->train->batch / devices) : (double)own_batch(q->train);
    *p = (struct sgrad_point){ .nodes = nodes, .devices = devices };
    p->batch = q->strong ? (double)q->train->batch : share * devices;
    const double one = alone(s, q->strong ? p->batch : share);
    const struct sgrad_network net = sgrad_machine_network(m, nodes);
    const int rows = find_rows(s, share, &net);
    const struct computed own = compute(s, share, devices, rows);
    const struct curvature curved = send_curvature(s, rows, &net);
    p->compute = own.all;
    p->bucket = q->train->bucket > 0 ? fmin(q->train->bucket * 1e6, s->bytes)
                : q->no_overlap || devices == 1 ? s->bytes : sgrad_work_bucket(s->bytes, &net, s->allreduce);
    const struct messages sent = send_all(s, p->bucket, nodes, &net);
    const double input = m->input > 0 ? share * m->device.count / m->input : 0;
    const double bus = at(q->work->input_bytes, share) / m->bus_bandwidth;
    p->communication = sent.seconds + curved.late + curved.now;
    p->collective = exchange(s, p->bucket, nodes, &net).name;
    const double way = !q->work->joint ? sent.way : sent.last + own.behind + curved.now;
    p->step = q->no_overlap ? p->compute + p->communication : fmax(p->compute, p->communication);
    if (!q->no_overlap && !s->strategy->served) p->step = fmax(p->step, devices > 1 ? way : 0);
    p->step = fmax(p->step, fmax(input, bus));
    p->exposed = p->step - p->compute;
    p->samples_per_second = p->batch / p->step;
    p->speedup = p->samples_per_second * one / (q->strong ? p->batch : share);
    p->efficiency = p->speedup / devices;
    p->memory = memory(q->work, share, devices);
    p->room = m->device.memory;
    p->most = floor((p->room - memory(q->work, 0, devices)) / q->work->peak_bytes.each);
    p->servers = nodes > 1 ? (int)sgrad_lemma_servers(s->bytes, nodes, net.bandwidth, p->compute) : 0;
    find_limit(p, bus, input);
    find_money(s, p);
    free((int *)net.host);
}

/* ---- all of them ---- */

/* What the tasks are multiplied by so that one device is as fast as was measured. */
static double find_scale(struct study *s) {
    const struct sgrad_machine *m = s->q->machine;
    s->scale = 1;
    for (int i = 0; i < m->measurements; i++) {
        const struct sgrad_measured *is = &m->measured[i];
        if (!sgrad_model_same(is->model, s->q->work->model) || is->precision != s->q->train->precision) continue;
        double plain = 0;
        for (int j = 0; j < s->q->work->tasks; j++)
            if (!s->q->work->task[j].curvature) plain += task_seconds(s, &s->q->work->task[j], is->batch);
        return s->scale = is->batch / is->samples_per_second / plain;
    }
    return 0;
}

static int open_study(const struct sgrad_question *q, struct study *s) {
    const struct sgrad_train_options *o = q->train;
    const char *strategy = o->strategy ? o->strategy : "sync";
    *s = (struct study){ .q = q };
    if (q->machine->device.flops[o->precision] <= 0)
        return sgrad_fail(SGRAD_EINVAL, "%s: device.flops has no %s, which --precision asks for", q->machine->path,
                          sgrad_precision_name(o->precision));
    if (!(s->strategy = sgrad_record_find("strategy", strategy, sgrad_strategies))) return SGRAD_ENAME;
    if (o->allreduce && !(s->allreduce = sgrad_collective_find(SGRAD_ALLREDUCE, o->allreduce))) return SGRAD_ENAME;
    if (o->allreduce && s->strategy->sharded)
        return sgrad_fail(SGRAD_EINVAL, "--allreduce goes with --strategy sync, not with %s", strategy);
    for (int i = 0; i < q->work->gradients; i++) s->bytes += q->work->gradient[i].bytes;
    s->end = sgrad_alloc((size_t)q->work->tasks, sizeof *s->end);
    s->dealt = sgrad_alloc(2 * (size_t)q->work->tasks, sizeof *s->dealt);
    s->rank = sgrad_alloc((size_t)q->work->tasks, sizeof *s->rank);
    return 0;
}

/* The most devices that reach the efficiency: doubling, then halving what is between. */
static double find_devices(const struct study *s, double efficiency) {
    enum { MOST = 4096 };
    struct sgrad_point p;
    int good = 0, bad = 1;
    for (; bad <= MOST; bad *= 2) {
        find_point(s, bad, &p);
        if (p.efficiency < efficiency) break;
        good = bad;
    }
    if (bad > MOST) return INFINITY;
    while (bad - good > 1) {
        const int middle = (good + bad) / 2;
        find_point(s, middle, &p);
        if (p.efficiency < efficiency) bad = middle;
        else good = middle;
    }
    return good ? (double)good * s->q->machine->device.count : 1;
}

/* The overhead that makes the last point what it is; of one device alone, two nodes. */
static void find_lemma(const struct study *s, struct sgrad_forecast *f) {
    struct sgrad_point p = f->point[f->points - 1];
    f->overhead = NAN;
    if (p.devices == 1) find_point(s, 2, &p);
    if (p.speedup > 1) f->overhead = sgrad_lemma_overhead(p.devices, p.speedup);
    if (s->q->efficiency <= 0) return;
    f->lemma_devices = sgrad_lemma_devices(f->overhead, s->q->efficiency);
    f->devices = find_devices(s, s->q->efficiency);
}

int sgrad_forecast_nodes(const struct sgrad_machine *m, int nodes) {
    if (!m->network.most || nodes <= m->network.most) return 0;
    return sgrad_fail(SGRAD_EINVAL,
                      "%s: its highest switch has room for %.0f nodes, and there are to be %d: --nodes up to %.0f, or another "
                      "switch above", m->path, m->network.most, nodes, m->network.most);
}

/* A batch that the nodes cannot share equally is none that train takes. */
static int make_points(const struct study *s, struct sgrad_forecast *f) {
    const struct sgrad_question *q = s->q;
    char *out = NULL;
    for (int nodes = q->from; nodes <= q->to; nodes = nodes * 2 > q->to && nodes < q->to ? q->to : nodes * 2) {
        if (q->strong && q->train->batch % nodes) {
            char *before = out;
            out = sgrad_format("%s%s%d", before ? before : "", before ? ", " : "", nodes);
            free(before);
            continue;
        }
        f->point = sgrad_grow(f->point, f->points, sizeof *f->point);
        find_point(s, nodes, &f->point[f->points++]);
    }
    int error = 0;
    if (!f->points)
        error = sgrad_fail(SGRAD_EINVAL, "--batch %ld: %s nodes cannot share it equally, so train refuses it; a multiple of the "
                                         "nodes can be shared", q->train->batch, out);
    else if (out) sgrad_warn("--batch %ld: is left out with %s nodes, which cannot share it equally", q->train->batch, out);
    free(out);
    return error;
}

int sgrad_forecast_make(const struct sgrad_question *q, struct sgrad_forecast *f) {
    struct study s;
    SGRAD_TRY(sgrad_forecast_nodes(q->machine, q->to));
    SGRAD_TRY(open_study(q, &s));
    *f = (struct sgrad_forecast){ .scale = find_scale(&s) };
    const int error = make_points(&s, f);
    if (!error) find_lemma(&s, f);
    free(s.end);
    free(s.dealt);
    free(s.rank);
    return error;
}

void sgrad_point_simulated(struct sgrad_point *p, double seconds) {
    const double slower = seconds / p->step;
    p->formula = p->step;
    p->step = seconds;
    p->exposed = fmax(0, seconds - p->compute);
    p->samples_per_second /= slower, p->speedup /= slower, p->efficiency /= slower;
    p->hours *= slower, p->cost *= slower;
}

void sgrad_forecast_free(struct sgrad_forecast *f) {
    free(f->point);
    *f = (struct sgrad_forecast){ 0 };
}
