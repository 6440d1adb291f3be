/* meshes.c: stargrad plan --mesh: estimates the cost of the cheapest mesh of each kind, or of one mesh, by number of nodes. */
#include "cli/meshes.h"
#include "graphs/api/costs.h"

#include <stdlib.h>
#include <string.h>

/* Kinds of meshes. The cheapest mesh of each is printed; it may also have the axis data, if that is cheaper. */
static const struct way { const char *name, *has, *lacks; } ways[] = {
    { "data", "data", "pipe" }, { "pipe", "pipe", "tensor" },      { "1d", "tensor=1d", "pipe" }, { "2d", "tensor=2d", "pipe" },
    { "3d", "tensor=3d", "pipe" }, { "pipe and tensor", "pipe", NULL }, { "context", "context", "?" },
};
enum { WAYS = sizeof ways / sizeof *ways };
static const struct way asked = { "given", "", "?" };      /* every mesh */

static bool is_of(const char *mesh, const struct way *way) {
    if (!strcmp(way->name, "data") && strstr(mesh, "tensor")) return false;
    if (strcmp(way->name, "context") && way != &asked && strstr(mesh, "context")) return false;
    if (!way->lacks && !strstr(mesh, "tensor")) return false;
    return strstr(mesh, way->has) && !(way->lacks && strstr(mesh, way->lacks));
}

static const struct sgrad_mesh_cost *best_of(const struct sgrad_mesh_result *result, const struct way *way) {
    const struct sgrad_mesh_cost *best = NULL;
    for (const struct sgrad_mesh_cost *p = result->cost; p < result->cost + result->costs; p++)
        if (!p->error && is_of(p->mesh, way) && (!best || p->step < best->step)) best = p;
    return best;
}

/* Returns the reason why no mesh of the kind can be used, from the first such mesh. */
static const char *why_not(const struct sgrad_mesh_result *result, const struct way *way) {
    for (const struct sgrad_mesh_cost *p = result->cost; p < result->cost + result->costs; p++)
        if (p->error && is_of(p->mesh, way)) return p->error;
    return "no mesh of this kind has this number of ranks";
}

static json_t *point(const struct sgrad_mesh_result *result, const struct way *way, int count, int ranks, double alone,
                     bool json) {
    json_t *list = json_array();
    for (const struct way *end = way + count; way < end; way++) {
        const struct sgrad_mesh_cost *p = best_of(result, way);
        if (p)
            json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "kind", way->name, "mesh",
                                                  p->mesh, "step_seconds", p->step, "computing_seconds", p->computing,
                                                  "sending_seconds", p->sending, "waiting_seconds", p->waiting, "memory_bytes",
                                                  p->memory, "speedup", alone / p->step, "best",
                                                  result->best >= 0 && p == &result->cost[result->best]));
        if (json) continue;
        if (p)
            printf("%6d %-15s %-28s %10.2f %10.2f %10.2f %10.2f %8.2f %9.2f%s\n", ranks, way->name, p->mesh, 1e3 * p->step,
                   1e3 * p->computing, 1e3 * p->sending, 1e3 * p->waiting, 1e-9 * p->memory, alone / p->step,
                   result->best >= 0 && p == &result->cost[result->best] ? "  best" : "");
        else
            printf("%6d %-15s not possible: %s\n", ranks, way->name, why_not(result, way));
    }
    return list;
}

static double rate(const struct sgrad_machine *machine, enum sgrad_precision precision) {
    double share = 1;
    for (int i = 0; i < machine->device.efficiencies; i++)
        if (!strcmp(machine->device.efficiency[i].operation, "linear")) share = machine->device.efficiency[i].fraction;
    return machine->device.flops[precision] * share;
}

int sgrad__plan_meshes(const struct sgrad__request *request, const struct sgrad_machine *machine, int from, int to) {
    const bool json = request->train.output.json;
    json_t *points = json_array();
    double alone = 0;
    int error = 0;
    const char *only = strcmp(request->train.parallel.mesh, "auto") ? request->train.parallel.mesh : NULL;
    if ((error = sgrad_forecast_nodes(machine, to))) {
        json_decref(points);
        return error;
    }
    if (!json)
        printf(
            "%s on %s, batch %ld: %s, by estimated cost; times in ms per step\n\n%6s %-15s %-28s %10s %10s %10s %10s %8s %9s\n",
            request->train.model.name, machine->name, request->train.training.batch,
            only ? "this mesh" : "the cheapest mesh of each kind", "ranks", "kind", "mesh", "step", "computing", "sending",
            "waiting", "GB each", "speed-up");
    for (int nodes = from; !error; nodes = nodes * 2 > to && nodes < to ? to : nodes * 2) {
        for (int first = alone > 0; first < 2 && !error; first++) {        /* one rank, for comparison, then all */
            struct sgrad_network net = sgrad_machine_network(machine, nodes);
            struct sgrad_mesh_result c;
            const struct sgrad_mesh_query q = { .ranks = first ? net.ranks : 1,
                                                .workers = 1,
                                                .mesh = first ? only : NULL,
                                                .network = &net,
                                                .batch = request->train.training.batch,
                                                .flops = rate(machine, request->train.model.precision),
                                                .bandwidth = machine->device.bandwidth * machine->device.traffic_fraction,
                                                .memory = first ? machine->device.memory : 0 };
            error = sgrad_mesh_choose(&request->train, &q, &c);
            if (!error && !first) alone = c.best < 0 ? 1 : c.cost[c.best].step;
            json_t *kinds = NULL;
            if (!error && first) kinds = point(&c, only ? &asked : ways, only ? 1 : WAYS, net.ranks, alone, json);
            if (kinds)
                json_array_append_new(points, json_pack("{s:i, s:i, s:o}", "nodes", nodes, "ranks", net.ranks, "kinds", kinds));
            sgrad_mesh_result_free(&c);
            free((void *)net.host);
        }
        if (nodes >= to) break;
    }
    if (json && !error)
        sgrad__print_json(
            json_pack("{s:s, s:s, s:O}", "machine", machine->name, "model", request->train.model.name, "points", points));
    json_decref(points);
    return error;
}
