/* The planner: lemmas against their formulas, invalid machines, predictions for work that can be computed by hand. */
#include "config.h"
#include "graphs/api/costs.h"
#include "planner/planner.h"
#include "tests/scratch.h"

#include <jansson.h>
#include <math.h>

/* ---- lemmas ---- */

static void near(double is, double wanted, double tolerance) {
    if (!(fabs(is - wanted) <= tolerance * fabs(wanted))) fail_msg("%g is not %g", is, wanted);
}

static void lemmas(void **state) {
    (void)state;
    near(sgrad_lemma_efficiency(0.1, 4), 0.7857, 1e-3);
    near(sgrad_lemma_devices(0.1, sgrad_lemma_efficiency(0.1, 4)), 4, 1e-9);
    assert_true(isinf(sgrad_lemma_devices(0, 0.9)));
    /* what published speed-ups come to */
    static const struct { double devices, speedup, overhead; } known[] = {
        { 128, 47, .0138 }, { 128, 39, .0183 }, { 32, 20, .0197 }, { 32, 13, .0495 }, { 16, 10.3, .0383 }, { 12, 10.11, .0173 },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const double overhead = sgrad_lemma_overhead(known[i].devices, known[i].speedup);
        near(overhead, known[i].overhead, 5e-3);
        near(known[i].devices * sgrad_lemma_efficiency(overhead, known[i].devices), known[i].speedup, 1e-9);
    }
    assert_equal(sgrad_lemma_servers(100e6, 16, 1e9, 1), 4);
    assert_equal(sgrad_lemma_servers(100e6, 16, 1e9, 3.2), 1);
}

/* ---- machines ---- */

#define F(value) "{\"value\": " value ", \"source\": \"x\"}"
static const char good[] =
    "{\"name\": \"m\", \"summary\": \"s\", \"device\": {\"kind\": \"gpu\", \"name\": \"d\", \"count\": " F("2") ","
    "\"memory\": " F("1e9") ", \"bandwidth\": " F("1e11") ","
    "\"launch\": " F("0") ", \"flops\": {\"f32\": " F("1e12") "}},"
    "\"bus\": {\"latency\": " F("0") ", \"bandwidth\": " F("1e10") "},"
    "\"network\": {\"latency\": " F("1e-6") ", \"bandwidth\": " F("1e9") "}}";

/* The good machine with the value at PATH ("device.count") being VALUE, JSON; NULL: it is gone. Returns the file's path. */
static const char *altered(const char *path, const char *value) {
    json_t *machine = json_loads(good, 0, NULL), *at = machine;
    char word[64];
    for (; strchr(path, '.'); path = strchr(path, '.') + 1) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(path, "."), path);
        at = json_object_get(at, word);
    }
    if (value) json_object_set_new(at, path, json_loads(value, JSON_DECODE_ANY, NULL));
    else json_object_del(at, path);
    char *text = json_dumps(machine, 0);
    const char *file = scratch_write("machine.json", text, strlen(text));
    free(text);
    json_decref(machine);
    return file;
}

static void refusals(void **state) {
    (void)state;
    static const struct { const char *path, *value, *says; } is[] = {
        { "device.flops.f32", NULL, "machine.json: missing: device.flops.f32; 'stargrad plan --help' describes" },
        { "device.flops.f32", F("-1"), "device.flops.f32: is -1, but must be above 0" },
        { "device.count", F("1.5"), "device.count: is 1.5, but must be a whole number, 1 to 64" },
        { "device.count", "4", "device.count: is not a figure" },
        { "device.memory", "{\"value\": 1}", "device.memory: has no source" },
        { "device.kind", "\"tpu\"", "device.kind: must be cpu or gpu" },
        { "device.share", "{\"conv2d\": " F("1.2") "}", "device.share.conv2d: is 1.2" },
        { "network", NULL, "missing: network.latency, network.bandwidth;" },
        { "network", "7", "network: is not an object" },
        { "network.bandwidht", "1", "network.bandwidht: is an unknown key; did you mean bandwidth?" },
        { "network.latency", F("-1e-6"), "network.latency: is -1e-06, but must be 0 to 1" },
        { "price", F("3"), "missing: currency" },
        { "calls", "[{\"kernel\": \"a\", \"hash\": 1.5, \"seconds\": " F("1") "}]", "calls[0].hash: is not a whole number" },
        { "calls", "[{\"kernel\": \"a\", \"hash\": 1, \"seconds\": " F("-1") "}]",
          "calls[0].seconds: is -1, but must be above 0" },
        { "device.workers", F("2"), "device.workers: is only for CPUs" },
        { "measured", "[{\"model\": \"a\", \"batch\": 0, \"samples_per_second\": " F("1") "}]",
          "measured[0].batch: is 0, but must be 1 or more" },
        { "network.switches",
          "[{\"name\": \"a\", \"above\": \"b\", \"nodes\": " F("4") ", \"uplink\": " F("1e9") "},"
          " {\"name\": \"b\", \"above\": \"a\", \"nodes\": " F("8") ", \"uplink\": " F("1e9") "}]",
          "network.switches[0].above: forms a cycle" },
        { "network.switches", "[{\"name\": \"a\", \"above\": \"c\"}]", "network.switches[0].above: is not the name of a switch" },
        { "network.switches", "[{\"above\": \"c\"}]",
          "missing: network.switches[0].name, network.switches[0].nodes, network.switches[0].uplink;" },
        { "device.kind", "\"cpu\"", "device.count: is 2, but must be 1 for cpu" },
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct sgrad_machine *machine;
        assert_fails(sgrad_machine_read(altered(is[i].path, is[i].value), &machine), SGRAD_EFORMAT, is[i].says);
    }
    struct sgrad_machine *machine;
    assert_fails(sgrad_machine_read(scratch_path("none.json"), &machine), SGRAD_EIO, "none.json");
    assert_fails(sgrad_machine_read(scratch_write("bad.json", "{\n\"a\":", 6), &machine), SGRAD_EFORMAT, "bad.json: line 2");
}

static void all_problems(void **state) {
    (void)state;
    struct sgrad_machine *machine;
    assert_fails(sgrad_machine_read(scratch_write("machine.json", "{}", 2), &machine), SGRAD_EFORMAT,
                 "machine.json: missing: name, summary, device.kind, device.name, device.count, device.memory, device.bandwidth, "
                 "device.launch, device.flops.f32, bus.latency, bus.bandwidth, network.latency, network.bandwidth; 'stargrad");
    static const char bad[] = "{\"nmae\": 1, \"bus\": [], \"network\": {\"latency\": 1}, \"device\": {\"count\": " F("0") "}}";
    assert_fails(sgrad_machine_read(scratch_write("machine.json", bad, strlen(bad)), &machine), SGRAD_EFORMAT,
                 "network.bandwidth; nmae: is an unknown key; did you mean name?; device.count: is 0, but must be a whole "
                 "number, 1 to 64; bus: is not an object; network.latency: is not a figure");
    assert_fails(sgrad_machine_read(scratch_write("machine.json", "[]", 2), &machine), SGRAD_EFORMAT,
                 "the file: is not an object");
}

static void many_problems(void **state) {
    (void)state;
    struct sgrad_machine *machine;
    char *text = sgrad_format("%s", "{\"calls\": [0");
    for (int i = 0; i < 1000; i++) {
        char *longer = sgrad_format("%s, {}", text);
        free(text);
        text = longer;
    }
    char *whole = sgrad_format("%s]}", text);
    assert_fails(sgrad_machine_read(scratch_write("machine.json", whole, strlen(whole)), &machine), SGRAD_EFORMAT,
                 "more; 'stargrad plan --help' describes the format");
    free(whole);
    free(text);
}

/* The program of this test is in the build, whose folder machines/ is found from there. */
static void names(void **state) {
    (void)state;
    struct sgrad_machine_file *files = sgrad_machine_files();
    char *path;
    assert_done(sgrad_machine_find("./titan", &path));
    assert_string_equal(path, "./titan");
    free(path);
    assert_done(sgrad_machine_find("none.json", &path));
    free(path);
    assert_fails(sgrad_machine_find("no-machine", &path), SGRAD_ENAME, "unknown machine 'no-machine'");
    sgrad_machine_files_free(files);
}

/* Two nodes below a switch whose uplink is half as wide as their links together. */
static void topologies(void **state) {
    (void)state;
    struct sgrad_machine *m;
    assert_done(sgrad_machine_read(altered("network.switches",
        "[{\"name\": \"a\", \"above\": \"b\", \"nodes\": " F("2") ", \"uplink\": " F("1e9") "},"
        " {\"name\": \"b\"}]"), &m));
    for (int nodes = 1; nodes <= 4; nodes *= 2) {
        struct sgrad_network net = sgrad_machine_network(m, nodes);
        assert_int_equal(net.ranks, 2 * nodes);
        assert_int_equal(net.host[net.ranks - 1], nodes - 1);
        near(net.bandwidth, nodes > 2 ? 0.5e9 : 1e9, 1e-12);
        free((int *)net.host);
    }
    sgrad_machine_free(m);
}

/* ---- forecasts ---- */

/* Forward and backward of a device take half a millisecond each for a sample; one weight of 4 MB. */
static struct sgrad_step_cost_task tasks[] = { { "conv2d forward", { 0, 5e8 }, { 0, 0 }, .often = 1 },
                                          { "conv2d backward-weight", { 0, 5e8 }, { 0, 0 }, .often = 1 },
                                          { "sgd", { 0, 0 }, { 0, 0 }, .often = 1 } };
static struct sgrad_step_cost_gradient gradient[] = { { 4e6, 1, 0 } };
static struct sgrad_step_cost work = { .model = (char *)"mine",
                                       .samples = 1000,
                                       .epochs = 2,
                                       .batch = 8,
                                       .tasks = 3,
                                       .gradients = 1,
                                       .task = tasks,
                                       .gradient = gradient,
                                       .parameters = 1e6,
                                       .kept_bytes = 8e6,
                                       .peak_bytes = { 1e6, 1e7 } };

static struct sgrad_forecast forecast(struct sgrad_plan_query q) {
    struct sgrad_forecast f;
    assert_done(sgrad_forecast_make(&q, &f));
    return f;
}

/* Computing takes B/p milliseconds; the one weight is summed behind all of it, and is the first that is needed: nothing hides. */
static void sums_up(void **state) {
    (void)state;
    struct sgrad_train_options o = sgrad_train_defaults();
    struct sgrad_machine *m;
    assert_done(sgrad_machine_read(altered("device.count", F("1")), &m));
    o.training.batch = 96;
    o.parallel.allreduce = "ring";
    struct sgrad_forecast f = forecast((struct sgrad_plan_query){ &o, m, &work, 1, 6, true, true, 0.5 });
    assert_int_equal(f.rows, 4);
    const int nodes[] = { 1, 2, 4, 6 };
    for (int i = 0; i < 4; i++) {
        const double p = nodes[i], share = 96 / p, ring = p > 1 ? 2 * (p - 1) * (1e-6 + 4e6 / p / 1e9) : 0;
        assert_int_equal(f.row[i].nodes, nodes[i]);
        near(f.row[i].step, 1e-3 * share + ring, 1e-6);
        near(f.row[i].speedup, 96e-3 / f.row[i].step, 1e-6);
        near(f.row[i].exposed + 1e-12, ring + 1e-12, 1e-6);
        near(f.row[i].memory, 8e6 + 1e6 + 1e7 * share + (p > 1 ? 8e6 : 0), 1e-9);
        near(f.row[i].hours, 2000 / f.row[i].samples_per_second / 3600, 1e-9);
    }
    assert_true(f.lemma_devices > 1 && f.devices > 1);
    sgrad_forecast_free(&f);

    o.training.batch = 8;
    f = forecast((struct sgrad_plan_query){ &o, m, &work, 4, 4, false, false, 0 });
    near(f.row[0].batch, 32, 1e-12);
    near(f.row[0].step, 8e-3 + 6 * (1e-6 + 1e-3), 1e-6);        /* behind backward, before forward */
    sgrad_forecast_free(&f);

    tasks[2] = (struct sgrad_step_cost_task){ "conv2d backward-data", { 0, 1e9 }, { 0, 0 }, .often = 1 }; /* hides the message */
    gradient[0].needed = 2;
    f = forecast((struct sgrad_plan_query){ &o, m, &work, 4, 4, false, false, 0 });
    near(f.row[0].step, 16e-3, 1e-6);
    near(f.row[0].communication, 6 * (1e-6 + 1e-3), 1e-6);
    assert_int_equal(f.row[0].limit, SGRAD_BY_COMPUTE);
    sgrad_forecast_free(&f);

    o.model.precision = SGRAD_PRECISION_BF16;
    assert_fails(sgrad_forecast_make(&(struct sgrad_plan_query){ &o, m, &work, 4, 4, false, false, 0 }, &f), SGRAD_EINVAL,
                 "device.flops has no bf16");
    sgrad_machine_free(m);
}

/* On two devices one does the long decomposition, the other the short one, and one what comes of the layer; all weights wait for
 * the message, and for that. */
static void second_order(void **state) {
    (void)state;
    struct sgrad_step_cost_task all[] = {
        { "conv2d forward", { 0, 5e8 }, { 0, 0 }, .often = 1 },
        { "conv2d backward-weight", { 0, 5e8 }, { 0, 0 }, .often = 1 },
        { "long", { 6e9, 0 }, { 0, 0 }, .often = .5, .curvature = true, .distribution = SGRAD_COST_ASSIGNED },
        { "short", { 1e9, 0 }, { 0, 0 }, .often = 1, .curvature = true, .distribution = SGRAD_COST_ASSIGNED },
        { "precondition", { 5e8, 0 }, { 0, 0 }, .often = 1, .curvature = true, .distribution = SGRAD_COST_ASSIGNED_BY_LAYER },
    };
    struct sgrad_step_cost second = work;
    struct sgrad_step_cost_gradient of[] = { { 1e6, 1, 0 } };
    second.task = all, second.tasks = 5, second.gradient = of, second.joint = true;
    struct sgrad_train_options o = sgrad_train_defaults();
    struct sgrad_machine *m;
    assert_done(sgrad_machine_read(altered("device.count", F("1")), &m));
    o.training.batch = 8;
    o.parallel.allreduce = "ring";
    for (int overlap = 0; overlap < 2; overlap++) {
        struct sgrad_forecast f = forecast((struct sgrad_plan_query){ &o, m, &second, 1, 2, false, !overlap, 0 });
        near(f.row[0].compute, 8e-3 + 3e-3 + 1e-3 + .5e-3, 1e-6);
        near(f.row[1].compute, 8e-3 + 3e-3 + .5e-3, 1e-6);
        const double sum = 2 * (1e-6 + .5e-3);
        near(f.row[1].step, overlap ? 8e-3 + 3e-3 + .5e-3 : 8e-3 + 3e-3 + .5e-3 + sum, 1e-6);
        sgrad_forecast_free(&f);
    }
    second.rows = 1;        /* both do what comes of the layer */
    of[0].bytes = 4e6;
    struct sgrad_forecast f = forecast((struct sgrad_plan_query){ &o, m, &second, 2, 2, false, false, 0 });
    near(f.row[0].step, 8e-3 + 2 * (1e-6 + 2e-3) + .5e-3, 1e-6);
    sgrad_forecast_free(&f);
    sgrad_machine_free(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("the lemmas equal their formulas and published speed-ups", lemmas),
        sentence("a malformed machine file is refused with its field", refusals),
        sentence("all missing and wrong keys of a machine file are in one message", all_problems),
        sentence("a message of a thousand problems ends with the number of those that are left out", many_problems),
        sentence("a machine is named by a path, or by a name that must be known", names),
        sentence("a switch with a narrow uplink limits the bandwidth", topologies),
        sentence("a forecast sums up computation, messages and memory", sums_up),
        sentence("a forecast of second-order training distributes its tasks over devices", second_order),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
