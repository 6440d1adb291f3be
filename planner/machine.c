/* machine.c: reads the description of a machine from its file, and checks it: every figure must have a source and a possible
 * value.
 *
 *     { "name": "titan", "summary": "…",
 *       "device": { "kind": "gpu", "name": "K20x", "count": F, "memory": F, "bandwidth": F, "launch": F,
 *                   "flops": { "f32": F, "tf32": F, "bf16": F }, "share": { "conv2d": F, "linear": F, "traffic": F } },
 *       "bus": { "latency": F, "bandwidth": F },
 *       "network": { "latency": F, "bandwidth": F, "cpu_seconds_per_byte": F, "hop": F, "torus": 3,
 *                    "switches": [ { "name": "leaf", "nodes": F, "uplink": F, "above": "spine" }, { "name": "spine" } ] },
 *       "input": F, "price": F, "currency": "$",
 *       "measured": [ { "model": "nin", "batch": 32, "precision": "f32", "samples_per_second": F } ],
 *       "calls": [ { "kernel": "conv2d forward", "hash": 3735928559, "seconds": F } ] }
 *
 * F is a figure: { "value": 3.9e12, "source": "…" }. Units: seconds, bytes, operations; bytes and operations per second. */
#include "config.h"
#include "planner/planner.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An object of the file, and its path in the file: "device.flops". */
struct place {
    const char *path, *name;
    const json_t *object;
};

static int wrong(const struct place *at, const char *key, const char *what) {
    const char *dot = *at->name && *key ? "." : "";
    return sgrad_log_error(SGRAD_EFORMAT, "%s: %s%s%s: %s", at->path, at->name, dot, key, what);
}

/* Refuses keys that are not in KNOWN, which ends with NULL. Otherwise a misspelt key would be ignored silently. */
static int check_keys(const struct place *at, const char *const *known) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)at->object, key, value) {
        int i = 0;
        while (known[i] && strcmp(known[i], key)) i++;
        const char *nearest = known[i] ? NULL : sgrad_suggest(key, known);
        char *what = nearest ? sgrad_format("is an unknown key; did you mean %s?", nearest) : sgrad_format("is an unknown key");
        const int error = known[i] ? 0 : wrong(at, key, what);
        free(what);
        SGRAD_TRY(error);
    }
    return 0;
}

static int read_text(const struct place *at, const char *key, char **text) {
    const json_t *value = json_object_get(at->object, key);
    if (!json_is_string(value) || !*json_string_value(value)) return wrong(at, key, value ? "is not a string" : "is missing");
    *text = sgrad_format("%s", json_string_value(value));
    return 0;
}

enum { NEEDED = 1, ZERO = 2, WHOLE = 4 };   /* must be present; may be 0; must be an integer */

static int read_figure(const struct place *at, const char *key, int rules, double most, double *figure) {
    const json_t *object = json_object_get(at->object, key), *value = json_object_get(object, "value");
    const char *source = json_string_value(json_object_get(object, "source"));
    const double x = json_number_value(value);
    if (!object) return rules & NEEDED ? wrong(at, key, "is missing") : 0;
    if (!json_is_number(value)) return wrong(at, key, "is not a figure; write {\"value\": NUMBER, \"source\": \"ORIGIN\"}");
    if (!source || !*source) return wrong(at, key, "has no source");
    if (!isfinite(x) || x < 0 || (x == 0 && !(rules & ZERO)))
        return wrong(at, key, rules & ZERO ? "is below 0" : "is not above 0");
    if (x > most || (rules & WHOLE && x != floor(x))) {
        char *what = sgrad_format("is %g, but must be %s up to %g", x, rules & WHOLE ? "a whole number" : "a number", most);
        const int error = wrong(at, key, what);
        free(what);
        return error;
    }
    *figure = x;
    return 0;
}

static int enter(const struct place *from, const char *key, bool needed, const char *const *known, struct place *to) {
    const json_t *object = json_object_get(from->object, key);
    *to = (struct place){ from->path, key, object };
    if (!object && !needed) return 0;
    if (!json_is_object(object)) return wrong(from, key, object ? "is not an object" : "is missing");
    return check_keys(to, known);
}

static const double ANY = 1e30;

static int read_device(const struct place *from, struct sgrad_machine *machine) {
    static const char *const keys[] = { "kind", "name", "count", "workers", "memory", "bandwidth", "launch", "flops",
                                        "share", NULL };
    static const char *const precisions[] = { "f32", "tf32", "bf16", NULL };
    struct place at, flops;
    char *kind = NULL;
    double count = 0, workers = 1;
    SGRAD_TRY(enter(from, "device", true, keys, &at));
    SGRAD_TRY(read_text(&at, "kind", &kind));
    machine->device.is_gpu = !strcmp(kind, "gpu");
    const bool known = machine->device.is_gpu || !strcmp(kind, "cpu");
    free(kind);
    if (!known) return wrong(&at, "kind", "must be gpu or cpu");
    SGRAD_TRY(read_text(&at, "name", &machine->device.name));
    SGRAD_TRY(read_figure(&at, "count", NEEDED | WHOLE, machine->device.is_gpu ? 64 : 1, &count));
    machine->device.count = (int)count;
    if (machine->device.is_gpu && json_object_get(at.object, "workers")) return wrong(&at, "workers", "is only for CPUs");
    SGRAD_TRY(read_figure(&at, "workers", WHOLE, 4096, &workers));
    machine->device.workers = (int)workers;
    SGRAD_TRY(read_figure(&at, "memory", NEEDED, ANY, &machine->device.memory));
    SGRAD_TRY(read_figure(&at, "bandwidth", NEEDED, ANY, &machine->device.bandwidth));
    SGRAD_TRY(read_figure(&at, "launch", NEEDED | ZERO, 1, &machine->device.launch));
    SGRAD_TRY(enter(&at, "flops", true, precisions, &flops));
    flops.name = "device.flops";
    for (int p = 0; precisions[p]; p++)
        SGRAD_TRY(read_figure(&flops, precisions[p], p ? 0 : NEEDED, ANY, &machine->device.flops[p]));
    return 0;
}

/* Reads the fractions of the peak that operations reach ("traffic": of the memory bandwidth). Operations that are not listed
 * have the fraction of "other"; default: 1. */
static int read_shares(const struct place *from, struct sgrad_machine *machine) {
    struct place at = { from->path, "device.share", json_object_get(json_object_get(from->object, "device"), "share") };
    const char *key;
    json_t *value;
    machine->device.traffic_fraction = 1;
    if (at.object && !json_is_object(at.object)) return wrong(&at, "", "is not an object");
    json_object_foreach((json_t *)at.object, key, value) {
        double share;
        SGRAD_TRY(read_figure(&at, key, NEEDED, 1, &share));
        if (!strcmp(key, "traffic")) {
            machine->device.traffic_fraction = share;
            continue;
        }
        machine->device.efficiency =
            sgrad_array_grow(machine->device.efficiency, machine->device.efficiencies, sizeof *machine->device.efficiency);
        machine->device.efficiency[machine->device.efficiencies++] = (struct sgrad_efficiency){ sgrad_format("%s", key), share };
    }
    return 0;
}

/* Returns the index of the switch NAME; -1: no such switch. */
static int find_switch(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *is = json_string_value(json_object_get(json_array_get(list, i), "name"));
        if (is && !strcmp(is, name)) return (int)i;
    }
    return -1;
}

/* The switch at HERE must have more nodes, NODES, than the switch below it. 0: the topmost switch states no number. */
static int check_size(const struct place *here, const struct sgrad_machine *machine, double nodes) {
    const double below = machine->network.levels ? machine->network.level[machine->network.levels - 1].nodes : 0;
    return below > 0 && nodes > 0 && nodes <= below ? wrong(here, "nodes", "must be larger than that of the switch below") : 0;
}

/* The nodes are connected to the first switch of the list. Each switch names the one above it; the topmost names none. */
static int read_switches(const struct place *from, struct sgrad_machine *machine) {
    static const char *const keys[] = { "name", "nodes", "uplink", "above", NULL };
    const json_t *list = json_object_get(from->object, "switches");
    if (!list) return 0;
    if (!json_is_array(list) || !json_array_size(list)) return wrong(from, "switches", "is not a list of switches");
    machine->network.level = sgrad_xcalloc(json_array_size(list), sizeof *machine->network.level);
    for (int at = 0; at >= 0;) {
        char *called = sgrad_format("network.switches[%d]", at);
        const struct place here = { from->path, called, json_array_get(list, (size_t)at) };
        const char *above = json_string_value(json_object_get(here.object, "above"));
        struct sgrad_switch_level *level = &machine->network.level[machine->network.levels];
        int error = json_is_object(here.object) ? check_keys(&here, keys) : wrong(&here, "", "is not an object");
        if (!error && above && machine->network.levels == (int)json_array_size(list))
            error = wrong(&here, "above", "forms a cycle");
        at = above ? find_switch(list, above) : -1;
        if (!error && above && at < 0) error = wrong(&here, "above", "is not the name of a switch in the list");
        if (!error && above) error = read_figure(&here, "nodes", NEEDED | WHOLE, 1e9, &level->nodes);
        if (!error && above) error = read_figure(&here, "uplink", NEEDED, ANY, &level->uplink);
        if (!error && !above) error = read_figure(&here, "nodes", WHOLE, 1e9, &machine->network.most);
        if (!error) error = check_size(&here, machine, above ? level->nodes : machine->network.most);
        machine->network.levels += above != NULL;
        free(called);
        SGRAD_TRY(error);
    }
    return 0;
}

static int read_network(const struct place *from, struct sgrad_machine *machine) {
    static const char *const bus[] = { "latency", "bandwidth", NULL };
    static const char *const network[] = { "latency", "bandwidth", "cpu_seconds_per_byte", "carrying", "hop", "torus", "switches",
                                          NULL };
    struct place at;
    double dimensions = 0;
    SGRAD_TRY(enter(from, "bus", true, bus, &at));
    SGRAD_TRY(read_figure(&at, "latency", NEEDED | ZERO, 1, &machine->bus_latency));
    SGRAD_TRY(read_figure(&at, "bandwidth", NEEDED, ANY, &machine->bus_bandwidth));
    SGRAD_TRY(enter(from, "network", true, network, &at));
    SGRAD_TRY(read_figure(&at, "latency", NEEDED | ZERO, 1, &machine->network.latency));
    SGRAD_TRY(read_figure(&at, "bandwidth", NEEDED, ANY, &machine->network.bandwidth));
    SGRAD_TRY(read_figure(&at, "cpu_seconds_per_byte", ZERO, 1, &machine->network.cpu_seconds_per_byte));
    if (machine->network.cpu_seconds_per_byte == 0) /* key of version 0.1.0 */
        SGRAD_TRY(read_figure(&at, "carrying", ZERO, 1, &machine->network.cpu_seconds_per_byte));
    SGRAD_TRY(read_figure(&at, "hop", ZERO, 1, &machine->network.hop));
    SGRAD_TRY(read_figure(&at, "torus", WHOLE, 6, &dimensions));
    machine->network.dimensions = (int)dimensions;
    SGRAD_TRY(read_switches(&at, machine));
    return dimensions && machine->network.levels ? wrong(&at, "torus", "cannot be combined with switches") : 0;
}

/* The model may be unknown to this program. The options of a known model must exist. */
static int check_model(const struct place *at, const char *model) {
    char why[256];
    sgrad_log_capture(why, sizeof why);
    const bool good = sgrad_model_equal(model, model);
    sgrad_log_capture(NULL, 0);
    return good ? 0 : wrong(at, "model", why);
}

static int read_measured(const struct place *from, struct sgrad_machine *machine) {
    static const char *const keys[] = { "model", "batch", "precision", "samples_per_second", NULL };
    const json_t *list = json_object_get(from->object, "measured");
    if (list && !json_is_array(list)) return wrong(from, "measured", "is not a list");
    for (size_t i = 0; i < json_array_size(list); i++) {
        char *called = sgrad_format("measured[%zu]", i);
        const struct place at = { from->path, called, json_array_get(list, i) };
        struct sgrad_measured is = { 0 };
        int error = json_is_object(at.object) ? check_keys(&at, keys) : wrong(&at, "", "is not an object");
        if (!error) error = read_text(&at, "model", &is.model);
        if (!error) error = check_model(&at, is.model);
        if (!error) error = read_figure(&at, "samples_per_second", NEEDED, ANY, &is.samples_per_second);
        is.batch = json_number_value(json_object_get(at.object, "batch"));
        if (!error && !(is.batch >= 1)) error = wrong(&at, "batch", "must be a number of 1 or more");
        const char *precision = json_string_value(json_object_get(at.object, "precision"));
        while (precision && is.precision < SGRAD_PRECISION_BF16 && strcmp(precision, sgrad_precision_name(is.precision)))
            is.precision++;
        if (!error && precision && strcmp(precision, sgrad_precision_name(is.precision)))
            error = wrong(&at, "precision", "must be f32, tf32 or bf16");
        free(called);
        machine->measured = sgrad_array_grow(machine->measured, machine->measurements, sizeof *machine->measured);
        machine->measured[machine->measurements++] = is;
        SGRAD_TRY(error);
    }
    return 0;
}

static int by_hash(const void *one, const void *other) {
    const struct sgrad_task_timing *a = one, *b = other;
    return a->hash != b->hash ? (a->hash > b->hash) - (a->hash < b->hash) : strcmp(a->kernel, b->kernel);
}

static int read_timed(const struct place *from, struct sgrad_machine *machine) {
    static const char *const keys[] = { "kernel", "hash", "seconds", NULL };
    const json_t *list = json_object_get(from->object, "calls");
    if (list && !json_is_array(list)) return wrong(from, "calls", "is not a list");
    machine->timed = sgrad_xcalloc(json_array_size(list) + 1, sizeof *machine->timed);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char *called = sgrad_format("calls[%zu]", i);
        const struct place at = { from->path, called, json_array_get(list, i) };
        const json_t *hash = json_object_get(at.object, "hash");
        struct sgrad_task_timing *is = &machine->timed[machine->timings++];
        int error = json_is_object(at.object) ? check_keys(&at, keys) : wrong(&at, "", "is not an object");
        if (!error) error = read_text(&at, "kernel", &is->kernel);
        if (!error) error = read_figure(&at, "seconds", NEEDED, 1e6, &is->seconds);
        if (!error && !json_is_integer(hash)) error = wrong(&at, "hash", "is not a whole number");
        is->hash = (uint32_t)json_integer_value(hash);
        free(called);
        SGRAD_TRY(error);
    }
    qsort(machine->timed, (size_t)machine->timings, sizeof *machine->timed, by_hash);
    return 0;
}

double sgrad_machine_timed(const struct sgrad_machine *machine, const char *kernel, uint32_t hash) {
    const struct sgrad_task_timing wanted = { .kernel = (char *)kernel, .hash = hash };
    const struct sgrad_task_timing *found = bsearch(&wanted, machine->timed, (size_t)machine->timings, sizeof wanted, by_hash);
    return found ? found->seconds : NAN;
}

static int read_all(const struct place *at, struct sgrad_machine *machine) {
    static const char *const keys[] = { "name", "summary", "device", "bus", "network", "input", "price", "currency", "measured",
                                        "calls", NULL };
    if (!json_is_object(at->object)) return wrong(at, "", "is not an object");
    SGRAD_TRY(check_keys(at, keys));
    SGRAD_TRY(read_text(at, "name", &machine->name));
    SGRAD_TRY(read_text(at, "summary", &machine->summary));
    SGRAD_TRY(read_device(at, machine));
    SGRAD_TRY(read_shares(at, machine));
    SGRAD_TRY(read_network(at, machine));
    SGRAD_TRY(read_figure(at, "input", 0, ANY, &machine->input));
    SGRAD_TRY(read_figure(at, "price", ZERO, ANY, &machine->price));
    if (machine->price > 0) SGRAD_TRY(read_text(at, "currency", &machine->currency));
    SGRAD_TRY(read_measured(at, machine));
    return read_timed(at, machine);
}

int sgrad_machine_read(const char *path, struct sgrad_machine **machine) {
    json_error_t problem;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (!file && problem.line < 0) return sgrad_log_error(SGRAD_EIO, "%s: %s", path, problem.text);
    if (!file) return sgrad_log_error(SGRAD_EFORMAT, "%s: line %d: %s", path, problem.line, problem.text);
    struct sgrad_machine *m = sgrad_xcalloc(1, sizeof *m);
    m->path = sgrad_format("%s", path);
    const struct place at = { m->path, "", file };
    const int error = read_all(&at, m);
    json_decref(file);
    if (error) sgrad_machine_free(m);
    else *machine = m;
    return error;
}

void sgrad_machine_free(struct sgrad_machine *machine) {
    if (!machine) return;
    for (int i = 0; i < machine->device.efficiencies; i++) free(machine->device.efficiency[i].operation);
    for (int i = 0; i < machine->measurements; i++) free(machine->measured[i].model);
    for (int i = 0; i < machine->timings; i++) free(machine->timed[i].kernel);
    free(machine->timed);
    free(machine->device.efficiency);
    free(machine->device.name);
    free(machine->network.level);
    free(machine->measured);
    free(machine->currency);
    free(machine->summary);
    free(machine->name);
    free(machine->path);
    free(machine);
}

/* The bandwidth of a node is limited by each level of switches that its messages pass: the uplinks of a switch are divided
 * equally among the nodes below it. The latency includes the further hops between two nodes: up and down through the levels, or
 * the mean distance in a torus, a quarter of the length of each dimension. */
struct sgrad_network sgrad_machine_network(const struct sgrad_machine *machine, int nodes) {
    struct sgrad_network net = { .ranks = nodes * machine->device.count, .latency = machine->network.latency,
                                 .bandwidth = machine->network.bandwidth, .host_latency = machine->bus_latency,
                                 .host_bandwidth = machine->bus_bandwidth };
    for (int i = 0; i < machine->network.levels && nodes > machine->network.level[i].nodes; i++) {
        net.bandwidth = fmin(net.bandwidth, machine->network.level[i].uplink / machine->network.level[i].nodes);
        net.latency += 2 * machine->network.hop;
    }
    if (machine->network.dimensions)
        net.latency += machine->network.hop * machine->network.dimensions * pow(nodes, 1.0 / machine->network.dimensions) / 4;
    int *host = sgrad_xcalloc((size_t)net.ranks, sizeof *host);
    for (int r = 0; r < net.ranks; r++) host[r] = r / machine->device.count;
    net.host = host;
    return net;
}
