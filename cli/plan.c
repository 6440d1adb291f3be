/* plan.c: stargrad plan: estimates training on machines that are described in files. */
#include "cli/memory.h"
#include "cli/meshes.h"
#include "graphs/api/costs.h"
#include "cli/simulate.h"
#include "planner/planner.h"
#include "report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 8192 };

/* Parses "8" or "1-64". */
static bool parse_range(const char *text, long most, int *from, int *to) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    const long first = strtol(text, &end, 10);
    const long last = *end == '-' && end[1] >= '0' && end[1] <= '9' ? strtol(end + 1, &end, 10) : first;
    if (*end || first < 1 || last < first || last > most) return false;
    *from = (int)first;
    *to = (int)last;
    return true;
}

/* ---- output of a forecast ---- */

/* Returns "12.3 min", "2.2 h" or "4.2 days" in TEXT, which has 32 bytes. */
static const char *time_text(double hours, char *text) {
    if (hours >= 48) snprintf(text, 32, "%.1f days", hours / 24);
    else if (hours >= 1) snprintf(text, 32, "%.1f h", hours);
    else snprintf(text, 32, "%.1f min", 60 * hours);
    return text;
}

static void print_points(const struct sgrad_plan_query *query, const struct sgrad_forecast *forecast) {
    const struct sgrad_machine *m = query->machine;
    const bool priced = m->price > 0, simulated = forecast->row->formula > 0;
    printf("%6s %6s %8s %10s %12s %9s %6s %10s %6s %8s %-4s %10s", "nodes", m->device.is_gpu ? "GPUs" : "CPUs", "batch",
           "step ms", "samples/s", "speed-up", "eff.", "exposed ms", "idle", "GB each", "fits", "training");
    if (priced) printf(" %11s", "cost");
    if (simulated) printf(" %10s %6s", "formula ms", "diff.");
    printf(" %-13s %9s %7s  %s\n", "collective", "bucket MB", "servers", "limit");
    for (const struct sgrad_plan_row *p = forecast->row; p < forecast->row + forecast->rows; p++) {
        char hours[32];
        printf("%6d %6d %8.0f %10.2f %12.1f %9.2f %5.1f%% %10.2f %5.1f%% %8.2f %-4s %10s", p->nodes, p->devices, p->batch,
               1e3 * p->step, p->samples_per_second, p->speedup, 100 * p->efficiency, 1e3 * p->exposed,
               100 * p->exposed / p->step, 1e-9 * p->memory, p->memory <= p->available ? "yes" : "no",
               time_text(p->hours, hours));
        if (priced) printf(" %9.2f %s", p->cost, m->currency);
        if (simulated) printf(" %10.2f %+5.1f%%", 1e3 * p->formula, 100 * (p->formula / p->step - 1));
        printf(" %-13s %9.2f %7d  %s\n", *p->collective ? p->collective : "-", p->devices > 1 ? 1e-6 * p->bucket : 0,
               p->servers, sgrad_limit_name[p->limit]);
    }
}

/* Prints the limit of each rank, and the moves of each row within it. */
static void print_limit(const struct sgrad_plan_query *query, const struct sgrad_forecast *forecast) {
    const double limit = (double)query->train->parallel.memory;
    if (limit <= 0) return;
    printf("\nlimit: %.2f MB on each rank\n", 1e-6 * limit);
    for (const struct sgrad_plan_row *p = forecast->row; p < forecast->row + forecast->rows; p++) {
        printf("%d %s: ", p->nodes, sgrad_plural(p->nodes, "node", "nodes"));
        if (p->read > 0)
            printf("a step writes %.2f MB of a rank to its disk and reads %.2f (%.2f and %.2f GB/s); it waits %.3g of %.3g s for "
                   "moves\n",
                   1e-6 * p->written, 1e-6 * p->read, 1e-9 * query->machine->disk.write, 1e-9 * query->machine->disk.read,
                   p->waiting, p->step);
        else
            puts("all buffers stay in memory");
    }
}

/* Prints the largest local batch that fits, if the last row does not fit into memory. */
static void print_advice(const struct sgrad_plan_query *query, const struct sgrad_forecast *forecast) {
    const struct sgrad_plan_row *p = &forecast->row[forecast->rows - 1];
    if (p->memory <= p->available) return;
    if (p->most >= 1)
        printf("\n%.2f GB per device are required, but %.2f GB are available, enough for %.0f samples", 1e-9 * p->memory,
               1e-9 * p->available, p->most);
    else
        printf("\n%.2f GB per device are required, but %.2f GB are available, not enough for one sample", 1e-9 * p->memory,
               1e-9 * p->available);
    printf("%s\n", query->train->model.recompute ? "" : "; --recompute saves memory");
}

static void print(const struct sgrad_plan_query *query, const struct sgrad_forecast *forecast) {
    const struct sgrad_machine *m = query->machine;
    char text[SGRAD_AMOUNT_TEXT];
    printf("%s: %s\n", m->name, m->summary);
    printf("%s: %s, %.2f million parameters, batch %ld %s, %s, %s\n", query->work->model, query->train->data.name,
           1e-6 * query->work->parameters,
           query->strong || !query->train->training.micro_batch ? query->train->training.batch
                                                                : query->train->training.micro_batch,
           query->strong ? "in total" : "per device", sgrad_precision_name(query->train->model.precision),
           query->no_overlap ? "messages after computation" : "messages overlap computation");
    if (forecast->scale > 0)
        printf("calibrated: estimated task times are multiplied by %.2f, to match the throughput measured on one device\n\n",
               forecast->scale);
    else
        printf("not calibrated: no throughput of %s was measured on this device, so task times are estimated from its rates\n\n",
               query->work->model);
    print_points(query, forecast);
    print_limit(query, forecast);
    print_advice(query, forecast);
    if (query->efficiency <= 0) return;
    printf("\nefficiency %g: ", query->efficiency);
    if (isfinite(forecast->lemma_devices))
        printf("%.0f devices by the lemma of Zou et al. (overhead %.4f)", floor(forecast->lemma_devices), forecast->overhead);
    else if (isnan(forecast->lemma_devices))
        printf("none by the lemma of Zou et al., because more nodes are not faster");
    else printf("any number by the lemma of Zou et al. (no overhead)");
    printf(", %s by the formulas of the table\n",
           isfinite(forecast->devices) ? sgrad_amount_text(forecast->devices, text) : "more than 4096 nodes");
}

static json_t *point_json(const struct sgrad_plan_query *query, const struct sgrad_plan_row *row) {
    json_t *json =
        json_pack("{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:s}", "nodes", row->nodes, "gpus", row->devices,
                  "batch", row->batch, "step_seconds", row->step, "samples_per_second", row->samples_per_second, "speedup",
                  row->speedup, "efficiency", row->efficiency, "exposed_seconds", row->exposed, "idle", row->exposed / row->step,
                  "communication_seconds", row->communication, "memory_bytes", row->memory, "fits", row->memory <= row->available,
                  "method", row->formula > 0 ? "simulated" : "formula");
    json_object_update_new(json, json_pack("{s:f, s:f, s:f, s:s, s:f, s:i, s:s}", "compute_seconds", row->compute,
                                           "batch_that_fits", fmax(0, row->most), "training_hours", row->hours, "collective",
                                           row->collective, "bucket_bytes", row->bucket, "servers", row->servers, "limit",
                                           sgrad_limit_name[row->limit]));
    if (row->formula > 0) json_object_set_new(json, "formula_step_seconds", json_real(row->formula));
    if (query->train->parallel.memory)
        json_object_update_new(json, json_pack("{s:f, s:f, s:f, s:f}", "limit_bytes", (double)query->train->parallel.memory,
                                               "written_bytes", row->written, "read_bytes", row->read, "waiting_seconds",
                                               row->waiting));
    if (query->machine->price > 0) json_object_set_new(json, "cost", json_real(row->cost));
    return json;
}

static void print_json(const struct sgrad_plan_query *query, const struct sgrad_forecast *forecast) {
    json_t *points = json_array();
    for (int i = 0; i < forecast->rows; i++) json_array_append_new(points, point_json(query, &forecast->row[i]));
    json_t *json = json_pack("{s:s, s:s, s:s, s:f, s:o, s:o, s:o}", "machine", query->machine->name, "model", query->work->model,
                             "overlap", query->no_overlap ? "none" : "full", "parameters", query->work->parameters, "scale",
                             forecast->scale > 0 ? json_real(forecast->scale) : json_null(), "overhead",
                             sgrad_json_real(forecast->overhead), "points", points);
    if (query->efficiency > 0) {
        json_object_set_new(json, "lemma_gpus", sgrad_json_real(forecast->lemma_devices));
        json_object_set_new(json, "gpus", sgrad_json_real(forecast->devices));
    }
    sgrad__print_json(json);
}

/* Draws the speed-ups of all rows, with and without overlap. */
static int draw(const struct sgrad_plan_query *question, const char *folder) {
    struct sgrad_forecast f[2];
    struct sgrad_scaling_series series[2] = { { .title = "messages overlap computation" },
                                              { .title = "messages after computation" } };
    double *devices[2], *speedup[2];
    struct sgrad_plan_query q = *question;
    for (int i = 0; i < 2; i++) {
        q.no_overlap = i, q.efficiency = 0;
        SGRAD_TRY(sgrad_forecast_make(&q, &f[i]));
        series[i].count = f[i].rows;
        series[i].devices = devices[i] = sgrad_xcalloc((size_t)f[i].rows, sizeof **devices);
        series[i].speedup = speedup[i] = sgrad_xcalloc((size_t)f[i].rows, sizeof **speedup);
        for (int j = 0; j < f[i].rows; j++) {
            devices[i][j] = f[i].row[j].devices;
            speedup[i][j] = f[i].row[j].speedup;
        }
        sgrad_forecast_free(&f[i]);
    }
    char *title = sgrad_format("%s on %s", q.work->model, q.machine->name);
    sgrad_report_scaling(folder, "plan", &(struct sgrad_scaling){ title, 2, series });
    free(title);
    for (int i = 0; i < 2; i++) free(devices[i]), free(speedup[i]);
    return 0;
}

/* ---- algorithms of layers, by mini-batch ---- */

/* Chooses algorithms for the layers, measured in a step of SAMPLES. JSON NULL: prints a line. */
static int choose_ways(const struct sgrad__request *request, const struct sgrad_plan_query *query, int samples, json_t *json) {
    const struct sgrad_step_cost *w = query->work;
    const bool own = request->plan.own_workspaces;
    struct sgrad_layer_algorithms ways;
    struct sgrad_algorithm_plan choice;
    int used[SGRAD_MAX_ALGORITHMS] = { 0 };
    const double else_there = w->kept_bytes + w->peak_bytes.fixed + w->peak_bytes.each * samples;
    const double room = request->plan.room > 0 ? 1e6 * request->plan.room : query->machine->device.memory - else_there;
    if (room <= 0)
        return sgrad_log_error(SGRAD_ENOMEM, "plan: --mini-batch %d leaves no memory for workspaces; reduce it", samples);
    SGRAD_TRY(sgrad_layer_algorithms_measure(&request->train, samples, &ways));
    struct sgrad_algorithm *all = sgrad_xcalloc((size_t)(ways.layers * ways.algorithms), sizeof *all);
    for (int k = 0; k < ways.layers; k++)
        memcpy(all + k * ways.algorithms, ways.layer[k].algorithm, (size_t)ways.algorithms * sizeof *all);
    const int error = sgrad_algorithm_plan_make(all, ways.layers, ways.algorithms, room, !own, &choice);
    if (!error) {
        const double epoch = choice.seconds * (double)w->samples / samples;
        json_t *layers = json_array();
        for (int k = 0; k < ways.layers; k++) {
            used[choice.algorithm[k]]++;
            json_array_append_new(layers, json_pack("{s:s, s:s}", "layer", ways.layer[k].name, "way",
                                                    all[k * ways.algorithms + choice.algorithm[k]].name));
        }
        if (json)
            json_array_append_new(json, json_pack("{s:i, s:f, s:f, s:f, s:f, s:O}", "mini_batch", samples, "seconds",
                                                  choice.seconds, "epoch_seconds", epoch, "workspace_bytes", choice.bytes,
                                                  "bound_bytes", room, "layers", layers));
        else {
            printf("%10d %12.2f %14.1f %12.2f %12.2f ", samples, 1e3 * choice.seconds, epoch, 1e-6 * choice.bytes, 1e-6 * room);
            for (int l = 0; l < ways.algorithms; l++)
                if (used[l]) printf(" %d %s", used[l], all[l].name);
            putchar('\n');
        }
        json_decref(layers);
        free(choice.algorithm);
    }
    free(all);
    sgrad_layer_algorithms_free(&ways);
    return error;
}

static int choose_mini_batch(const struct sgrad__request *request, const struct sgrad_plan_query *query) {
    int from = 1, to = 1;
    if (!parse_range(request->plan.mini_batch, 1 << 20, &from, &to))
        return sgrad__wrong("plan: --mini-batch %s must be one size or a range, such as 32 or 8-64", request->plan.mini_batch),
               SGRAD_EINVAL;
    SGRAD_TRY(sgrad_algorithm_plan_check());
    json_t *json = request->train.output.json ? json_array() : NULL;
    int error = 0;
    if (!json)
        printf("%10s %12s %14s %12s %12s  %s\n", "mini-batch", "layers ms", "s per epoch", "workspace MB", "bound MB",
               "algorithms, measured on one core of this machine");
    for (int samples = from; samples <= to && !error; samples = samples * 2 > to && samples < to ? to : samples * 2)
        error = choose_ways(request, query, samples, json);
    if (json && !error) sgrad__print_json(json_pack("{s:s, s:O}", "model", query->work->model, "mini_batches", json));
    json_decref(json);
    return error;
}

/* ---- the command ---- */

static int plan(const struct sgrad__request *request, struct sgrad_plan_query *query) {
    struct sgrad_forecast f;
    if (request->plan.mini_batch) return choose_mini_batch(request, query);
    if (request->train.output.folder) SGRAD_TRY(sgrad_folder_make(request->train.output.folder));
    if (request->train.parallel.memory) SGRAD_TRY(sgrad__memory_check(request, query->machine));
    if (request->train.parallel.memory && !request->plan.simulate)
        return sgrad__plan_memory(request, query, sgrad__is_asked(request, "nodes") ? query->to : 1);
    SGRAD_TRY(sgrad_forecast_make(query, &f));
    if (request->plan.simulate) SGRAD_TRY(sgrad__simulate(request, query, &f));
    if (request->train.output.json) print_json(query, &f);
    else print(query, &f);
    sgrad_forecast_free(&f);
    return request->train.output.folder ? draw(query, request->train.output.folder) : 0;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_machine *machine;
    struct sgrad_step_cost work;
    int status = SGRAD__DONE;
    if (request->plan.simulate && (status = sgrad__simulate_check(request))) return status;
    struct sgrad_plan_query q = { .train = &request->train, .work = &work, .strong = sgrad__is_asked(request, "batch"),
                                .no_overlap = request->plan.no_overlap, .efficiency = request->plan.efficiency };
    if (request->train.parallel.mesh && (request->train.output.folder || request->plan.mini_batch))
        return sgrad__wrong("plan: --mesh cannot be combined with --%s", request->train.output.folder ? "out" : "mini-batch");
    if (!parse_range(request->plan.nodes, MOST_NODES, &q.from, &q.to))
        return sgrad__wrong("plan: --nodes %s must be N or A-B, with 1 <= A <= B <= %d", request->plan.nodes, MOST_NODES);
    if (request->train.parallel.memory && (request->train.parallel.mesh || request->plan.mini_batch))
        return sgrad__wrong("plan: --memory cannot be combined with --%s", request->train.parallel.mesh ? "mesh" : "mini-batch");
    if (request->train.parallel.spill && !request->train.parallel.memory)
        return sgrad__wrong("plan: --spill %s requires --memory SIZE", request->train.parallel.spill);
    int error = sgrad_machine_read(request->plan.machine, &machine);
    if (error) return sgrad__status(error);
    q.machine = machine;
    if (!sgrad__is_asked(request, "nodes") && machine->network.most > 0 && q.to > machine->network.most)
        q.to = (int)machine->network.most;
    if (request->train.parallel.mesh) {
        error = sgrad__plan_meshes(request, machine, q.from, q.to);
        sgrad_machine_free(machine);
        return sgrad__status(error);
    }
    error = sgrad_step_cost_find(&request->train, &work);
    if (!error) {
        error = plan(request, &q);
        sgrad_step_cost_free(&work);
    }
    sgrad_machine_free(machine);
    return sgrad__status(error);
}

/* Returns TEXT in lines of at most 78 columns, each with INDENT blanks before it and a newline after it. The caller must free
 * it. */
static char *wrap(const char *text, int indent) {
    char *all = sgrad_format("%s", "");
    while (*text) {
        int length = (int)strlen(text), most = 78 - indent;
        for (int i = most; length > most && i > 0; i--)
            if (text[i] == ' ') length = i;
        char *longer = sgrad_format("%s%*s%.*s\n", all, indent, "", length, text);
        free(all);
        all = longer;
        text += length + (text[length] == ' ');
    }
    return all;
}

/* The format of machine files, for the help. */
static char *describe_keys(void) {
    char *all = sgrad_format(
        "\n\nA machine file is a JSON object with the keys below; [] stands for an element of a list. A figure is an object "
        "with a value and its source, which must not be empty: {\"value\": 3.9e12, \"source\": \"data sheet\"}. "
        "stargrad doctor --machine FILE writes such a file.\n\n");
    struct sgrad_machine_key key;
    for (int i = 0; sgrad_machine_key(i, &key); i++) {
        char *meaning = wrap(key.meaning, 6);
        char *longer = sgrad_format("%s  %s\n      %s; %s\n%s", all, key.path, key.type, key.required, meaning);
        free(all), free(meaning), free(key.type), free(key.required);
        all = longer;
    }
    return all;
}

static void defaults(struct sgrad__request *request) { request->plan.nodes = "1-64"; }

static const struct sgrad__option options[] = {
    { .help = "Machines" },
    { "machine", "NAME|FILE", "name of a machine (see stargrad list machines), or a JSON file with the keys below", &sgrad__text,
      SGRAD__PLACE(plan.machine), .required = true },
    { "nodes", "A-B", "numbers of nodes to predict: A, 2A, 4A, ..., and always B", &sgrad__text, SGRAD__PLACE(plan.nodes) },
    { "overlap", "full|none", "full: messages overlap computation, as in Stargrad; none: messages follow computation",
      &sgrad__choice, SGRAD__PLACE(plan.no_overlap) },
    { "simulate", NULL, "also run the trainer on simulated machines; build this trainer with ./quickstart simulate first",
      &sgrad__flag, SGRAD__PLACE(plan.simulate) },
    { "every-node", NULL, "simulate every node, even when two representative nodes give the same result", &sgrad__flag,
      SGRAD__PLACE(plan.every_node) },
    { "efficiency", "X", "print the largest number of devices that reaches this efficiency", &sgrad__real,
      SGRAD__PLACE(plan.efficiency), 1e-3, 1 },
    { "mini-batch", "A-B",
      "print only the fastest algorithm of each layer that fits into the free memory, for batches of A, 2A, 4A, ..., and "
      "always B",
      &sgrad__text, SGRAD__PLACE(plan.mini_batch) },
    { "workspace", "MB", "memory for the workspaces of --mini-batch [the free memory of the device]", &sgrad__real,
      SGRAD__PLACE(plan.room), 1e-3, 1e9 },
    { "own-workspaces", NULL,
      "with --mini-batch: give each layer its own workspace; by default, all layers share one, as in training", &sgrad__flag,
      SGRAD__PLACE(plan.own_workspaces) },
    { 0 },
};

const struct sgrad__command sgrad__plan_command = {
    .name = "plan",
    .summary = "predict the training time on other machines",
    .options = options,
    .also = &sgrad__train_command,
    .defaults = defaults,
    .run = run,
    .notes = "With --batch, the global batch is fixed (strong scaling). Without it, each device has --micro-batch samples, by "
             "default 128 (weak scaling). Speed-up is relative to the throughput of one device.\n\n"
             "--out DIR writes a plot, plan.svg. With --simulate, --trace also writes a run folder for each number of nodes, "
             "with a simulated trace. With --memory, plan prints instead how a step fits into this memory of a rank, with "
             "smaller micro-batches, --recompute, --shard and --spill DIR (a folder on this machine; without it, the disk in the "
             "machine's file), and --out draws memory.svg; with --memory and --simulate, the simulated trainer runs within this "
             "memory, and --spill uses the disk in the machine's file. With --mesh, plan prints the estimated cost of that mesh "
             "instead of predicting the training time; --mesh auto compares all kinds of meshes. For example:\n\n"
             "  stargrad plan --model resnet50 --data synthetic:224x224x3,1000,1281167 \\\n"
             "      --machine iris-v100",
    .more = describe_keys,
};
