/* machine.c: measures this machine and writes its description for stargrad plan: the rates of its kernels, its memory, the rate
 * of one network and the time of each of its tasks, and, with several ranks, the communication network. The source of each figure
 * states how it was measured; figures that could not be measured are marked as assumed. Limit: CPUs only. */
#include "cli/machine.h"
#include "graphs/api/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *figure(double value, const char *source) { return json_pack("{s:f, s:s}", "value", value, "source", source); }

/* Returns the fraction of the workers' peak that the kernels of operation NAME reach; 0: the step has no such kernel. */
static double share_of(const struct sgrad_bench_result *result, const char *name) {
    double gflop = 0, ms = 0;
    for (int i = 0; i < result->kernels; i++)
        if (strncmp(result->kernel[i].name, name, strlen(name)) == 0)
            gflop += result->kernel[i].gflop, ms += result->kernel[i].ms;
    return ms > 0 ? fmin(1, 1e3 * gflop / ms * result->workers / result->gflops) : 0;
}

static json_t *device(const struct sgrad_bench_result *result, const char *how) {
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    json_t *shares = json_object();
    static const char *const operations[] = { "conv2d", "linear" };
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (share_of(result, operations[i]) > 0)
            json_object_set_new(shares, operations[i], figure(share_of(result, operations[i]), how));
    char *name = sgrad_format("%d %s", result->workers, sgrad_plural(result->workers, "CPU worker", "CPU workers"));
    json_t *json = json_pack("{s:s, s:s, s:{s:i, s:s}}", "kind", "cpu", "name", name, "count", "value", 1, "source",
                             "all cores of a node together");
    json_object_set_new(json, "memory", figure(memory, "the system"));
    json_object_set_new(json, "bandwidth",
                        figure(1e9 * result->gbytes, "measured: sums of arrays larger than the caches, on all cores"));
    json_object_set_new(json, "launch",
                        figure(result->task_overhead / result->workers, "measured: StarPU's time for a task, on all cores"));
    json_t *gflops = figure(1e9 * result->gflops, "measured: matrix products, on all cores");
    json_object_set_new(json, "flops", json_pack("{s:o}", "f32", gflops));
    json_object_set_new(json, "workers", figure(result->workers, "StarPU's workers of this rank"));
    json_object_set_new(json, "share", shares);
    free(name);
    return json;
}

static json_t *network(double latency, double bandwidth, const char *source) {
    return json_pack("{s:o, s:o}", "latency", figure(latency, source), "bandwidth", figure(bandwidth, source));
}

/* The network, as measured between the ranks. */
static json_t *links(const struct sgrad_bench_result *result, const char *how) {
    json_t *json = network(result->latency, result->bandwidth, "measured: messages between ranks");
    json_object_set_new(json, "cpu_seconds_per_byte", figure(result->seconds_per_byte, how));
    return json;
}

/* The tasks by kernel and hash, by which the simulated trainer finds them. */
static json_t *calls(const struct sgrad_bench_result *result, const char *how) {
    json_t *list = json_array();
    for (const struct sgrad_bench_call *c = result->call; c < result->call + result->calls; c++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:o}", "kernel", c->kernel, "hash", (json_int_t)c->hash, "seconds",
                                              figure(c->seconds, how)));
    return list;
}

static json_t *machine(const struct sgrad__request *request, const struct sgrad_bench_result *result) {
    const struct sgrad_train_options *o = &request->train;
    static const char alone[] = "assumed: gigabit Ethernet; to measure it, run under mpirun on two nodes";
    const bool joined = result->bandwidth > 0;
    char host[256] = "this machine";
    gethostname(host, sizeof host - 1);
    const double batch = (double)result->batch / result->ranks;       /* of a rank */
    char *how = joined ? sgrad_format("measured: %s on %s, batch %g, on each of %d ranks with --strategy %s", o->model.name,
                                      o->data.name, batch, result->ranks, o->parallel.strategy)
                       : sgrad_format("measured: %s on %s, batch %g", o->model.name, o->data.name, batch);
    json_t *json = json_pack("{s:s, s:s, s:o, s:o, s:o, s:[{s:s, s:f, s:s, s:o}]}", "name", host, "summary",
                             "measured by stargrad doctor --machine", "device", device(result, how), "bus",
                             joined ? network(result->host_latency, result->host_bandwidth,
                                              "measured: messages between ranks, of one host if possible")
                                    : network(0, 1e9 * result->gbytes, "main memory, as measured"),
                             "network", joined ? links(result, how) : network(5e-5, 1.18e8, alone), "measured", "model",
                             o->model.name, "batch", batch, "precision", sgrad_precision_name(o->model.precision),
                             "samples_per_second", figure(1e3 * batch / result->step_ms, how));
    json_object_set_new(json, "calls", calls(result, how));
    free(how);
    return json;
}

int sgrad__machine_measure(const struct sgrad__request *request) {
    struct sgrad_train_options options = request->train;
    struct sgrad_bench_result result;
    options.output.json = true;        /* disables the output of the run */
    options.parallel.gpus = -1;
    int error = sgrad_bench(&options, &result);
    if (error) return sgrad__status(error);
    if (sgrad_launched_rank() == 0) {
        error = sgrad_json_write(request->plan.machine, machine(request, &result), 4);
        if (!error && !request->train.output.json)
            printf("%s: a description of this machine for stargrad plan\n", request->plan.machine);
    }
    free(result.kernel);
    free(result.call);
    return sgrad__status(error);
}
