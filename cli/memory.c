/* memory.c: stargrad plan --memory: predicts the memory and the time of a step by micro-batch, --recompute, --shard and --spill.
 */
#include "cli/memory.h"
#include "graphs/api/costs.h"
#include "report/report.h"
#include "runtime/spill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double MIB = 1 << 20; /* the M of options */

static double rate(const struct sgrad_machine *machine, enum sgrad_precision precision) {
    double share = 1;
    for (int i = 0; i < machine->device.efficiencies; i++)
        if (!strcmp(machine->device.efficiency[i].operation, "conv2d")) share = machine->device.efficiency[i].fraction;
    return machine->device.flops[precision] * share;
}

/* Sets the bandwidths: those of the folder --spill, which is on this machine, else those of the machine's file. */
static int find_disk(const struct sgrad__request *request, const struct sgrad_machine *machine,
                     struct sgrad_memory_query *query) {
    const char *folder = request->train.parallel.spill;
    struct sgrad_spill_speed speed = { machine->disk.write, machine->disk.read };
    if (folder && !strcmp(folder, "none")) return 0;
    if (folder) SGRAD_TRY(sgrad_spill_measure(folder, &speed));
    query->write = speed.write, query->read = speed.read;
    return 0;
}

/* ---- output ---- */

static const char *fits_text(const struct sgrad_memory_choice *choice) {
    if (!choice->fits) return "no";
    return choice->moves ? "with --spill" : "yes";
}

static void print(const struct sgrad__request *request, const struct sgrad_plan_query *query, const struct sgrad_memory_query *q,
                  const struct sgrad_memory_result *result, bool calibrated) {
    const struct sgrad_train_options *o = &request->train;
    printf("%s on %s, batch %ld on %d %s, %s; at most %.0f MiB on each\n", query->work->model, query->machine->name,
           o->training.batch, q->ranks, sgrad_plural(q->ranks, "rank", "ranks"), sgrad_precision_name(o->model.precision),
           q->bytes / MIB);
    if (q->write > 0 && q->read > 0)
        printf("disk: writes %.2f and reads %.2f GB/s\n", 1e-9 * q->write, 1e-9 * q->read);
    else
        puts("disk: none; give --spill DIR, or disk in the machine's file");
    printf("%s\n\n%11s %9s %10s %9s  %-12s %8s %9s %10s\n",
           calibrated ? "calibrated: task times match the throughput measured on one device"
                      : "not calibrated: task times are estimated",
           "micro-batch", "recompute", "shard", "needs MiB", "fits", "moved MB", "step s", "waiting s");
    for (const struct sgrad_memory_choice *c = result->choice; c < result->choice + result->choices; c++) {
        char layers[32];
        snprintf(layers, sizeof layers, "%d layers", c->recomputed);
        const char *recomputes = c->recomputed ? layers : c->recomputes ? "yes" : "no";
        printf("%11ld %9s %10s %9.0f  %-12s", c->micro, recomputes, c->shard ? c->shard : "none",
               c->memory / MIB, fits_text(c));
        if (c->fits) printf(" %8.0f %9.3f %10.3f", 1e-6 * (c->written + c->read), c->step, c->waiting);
        puts(result->best >= 0 && c == &result->choice[result->best] ? "  fastest" : "");
    }
    if (result->best < 0) puts("\nnone fits: give more memory, more nodes, a smaller --batch, or a disk for --spill");
}

static void print_json(const struct sgrad_plan_query *query, const struct sgrad_memory_query *q,
                       const struct sgrad_memory_result *result) {
    json_t *list = json_array();
    for (const struct sgrad_memory_choice *c = result->choice; c < result->choice + result->choices; c++) {
        json_t *is = json_pack("{s:I, s:b, s:i, s:s?, s:f, s:b, s:b}", "micro_batch", (json_int_t)c->micro, "recompute",
                               c->recomputes, "recomputed_layers", c->recomputed, "shard", c->shard, "memory_bytes", c->memory,
                               "fits", c->fits, "spills", c->moves);
        if (c->fits)
            json_object_update_new(is, json_pack("{s:f, s:f, s:f, s:f}", "step_seconds", c->step, "waiting_seconds", c->waiting,
                                                 "written_bytes", c->written, "read_bytes", c->read));
        json_array_append_new(list, is);
    }
    sgrad__print_json(json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:i, s:o}", "machine", query->machine->name, "model",
                                query->work->model, "ranks", q->ranks, "limit_bytes", q->bytes, "disk_write", q->write,
                                "disk_read", q->read, "best", result->best, "choices", list));
}

static struct sgrad_step_memory_series series_of(const char *title, const struct sgrad_memory_curve *curve) {
    return (struct sgrad_step_memory_series){ title, curve->points, curve->seconds, curve->bytes, curve->end };
}

static void draw(const struct sgrad__request *request, const struct sgrad_plan_query *query, const struct sgrad_memory_query *q,
                 const struct sgrad_memory_result *result) {
    const struct sgrad_memory_curve *limited = &result->limited;
    double *move = sgrad_xcalloc(3 * (size_t)limited->count + 1, sizeof *move);
    for (int i = 0; i < limited->count; i++) {
        move[3 * i] = limited->move[i].begin, move[3 * i + 1] = limited->move[i].end, move[3 * i + 2] = limited->move[i].reads;
    }
    char *title =
        sgrad_format("%s, batch %ld, on %s", query->work->model, request->train.training.batch / q->ranks, query->machine->name);
    const struct sgrad_step_memory memory = { title,
                                              q->bytes,
                                              { series_of("without a limit", &result->whole),
                                                series_of("with --memory", limited) },
                                              limited->count,
                                              move };
    sgrad_report_step_memory(request->train.output.folder, "memory", &memory);
    free(title);
    free(move);
}

/* ---- the command ---- */

/* Sets the seconds of the tasks of a step of one rank, as the forecast predicts them. */
static int find_seconds(const struct sgrad_plan_query *query, int nodes, double *seconds, bool *calibrated) {
    struct sgrad_plan_query q = *query;
    struct sgrad_forecast f;
    q.from = q.to = nodes, q.strong = true, q.efficiency = 0;
    SGRAD_TRY(sgrad_forecast_make(&q, &f));
    *seconds = f.row[0].compute;
    *calibrated = f.scale > 0;
    sgrad_forecast_free(&f);
    return 0;
}

/* Returns true if the trainer would move data to a disk. */
static bool spills(const struct sgrad__request *request) {
    const char *folder = request->train.parallel.spill;
    return folder && strcmp(folder, "none");
}

int sgrad__memory_check(const struct sgrad__request *request, const struct sgrad_machine *machine) {
    if (machine->device.is_gpu)
        return sgrad_log_error(SGRAD_EINVAL,
                               "plan: --memory limits ranks without GPUs, but %s has GPUs; omit it, or give another --machine",
                               machine->name);
    if (request->plan.simulate && spills(request) && !(machine->disk.write > 0 && machine->disk.read > 0))
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s: has no disk.write and disk.read, which --simulate requires for --spill %s; add them (see "
                               "stargrad plan --help), or omit --spill",
                               machine->path, request->train.parallel.spill);
    return 0;
}

/* Returns the query for NODES nodes, without seconds and disk. */
static struct sgrad_memory_query query_of(const struct sgrad__request *request, const struct sgrad_machine *m, int nodes) {
    return (struct sgrad_memory_query){ .bytes = (double)request->train.parallel.memory,
                                        .ranks = nodes,
                                        .workers = m->device.workers,
                                        .flops = rate(m, request->train.model.precision),
                                        .bandwidth = m->device.bandwidth * m->device.traffic_fraction };
}

int sgrad__memory_predict(const struct sgrad__request *request, const struct sgrad_plan_query *query,
                          const struct sgrad_plan_row *row, struct sgrad_memory_choice *choice) {
    const struct sgrad_machine *m = query->machine;
    struct sgrad_memory_query q = query_of(request, m, row->nodes);
    struct sgrad_train_options options = request->train;
    struct sgrad_memory_result result;
    q.only = true, q.seconds = row->compute;
    if (spills(request)) q.write = m->disk.write, q.read = m->disk.read;
    options.training.batch = (long)row->batch;
    if (!query->strong) options.training.micro_batch = 0; /* as in simulated.c */
    SGRAD_TRY(sgrad_memory_choose(&options, &q, &result));
    *choice = result.choice[0];
    sgrad_memory_result_free(&result);
    return 0;
}

int sgrad__plan_memory(const struct sgrad__request *request, const struct sgrad_plan_query *query, int nodes) {
    const struct sgrad_machine *m = query->machine;
    struct sgrad_memory_result result;
    struct sgrad_memory_query q = query_of(request, m, nodes);
    bool calibrated;
    SGRAD_TRY(find_seconds(query, nodes, &q.seconds, &calibrated));
    SGRAD_TRY(find_disk(request, m, &q));
    SGRAD_TRY(sgrad_memory_choose(&request->train, &q, &result));
    if (request->train.output.json)
        print_json(query, &q, &result);
    else
        print(request, query, &q, &result, calibrated);
    if (request->train.output.folder) draw(request, query, &q, &result);
    sgrad_memory_result_free(&result);
    return 0;
}
