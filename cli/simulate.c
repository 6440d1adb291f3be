/* simulate.c: stargrad plan --simulate: runs some training steps of this command, built with SimGrid (configure
 * --enable-simulation), on machines that are described in files. simulated.c is the simulated program.
 *
 *     stargrad plan ── FOLDER/request.json, platform.xml, hosts, bus/ ──> smpirun ──> the simulated stargrad, once for each rank
 *                   <── FOLDER/answer.json: times and moves of each step ──────────── rank 0 of them
 *
 * The request contains the words of the command line, so that both programs parse the same options, and values that the simulated
 * ranks cannot compute: the fields of samples (they have no data set), the batch, the factor of the machine's rates, and the
 * memory of a process, because all ranks are in one. */
#include "cli/simulate.h"
#include "cli/memory.h"
#include "graphs/api/costs.h"
#include "graphs/compiler/training.h"
#include "runtime/environment.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRAINER "STARGRAD_SIMULATED"    /* variable: path of the simulated trainer */

int sgrad__simulate_check(const struct sgrad__request *request) {
    static const char *const unknown[] = { "mesh", "plugin", "data-placement", "mini-batch", NULL };
    for (const char *const *name = unknown; *name; name++)
        if (sgrad__is_asked(request, *name)) return sgrad__wrong("plan: --simulate does not support --%s", *name);
    if (request->plan.no_overlap)
        return sgrad__wrong(
            "plan: --simulate cannot be combined with --overlap none: Stargrad overlaps messages and computation");
    const struct sgrad_collective *method =
        request->train.parallel.allreduce ? sgrad_collective_find(SGRAD_ALLREDUCE, request->train.parallel.allreduce) : NULL;
    if (method && method->library)
        return sgrad__wrong("plan: --simulate does not support --allreduce %s, which is not an algorithm of Stargrad",
                            method->name);
    return SGRAD__DONE;
}

static json_t *words_json(char *const *word) {
    json_t *list = json_array();
    for (; *word; word++) json_array_append_new(list, json_string(*word));
    return list;
}

static json_t *fields_json(const struct sgrad_step_cost *cost) {
    json_t *list = json_array();
    for (int f = 0; f < cost->fields; f++) {
        const struct sgrad_view *v = &cost->field[f].view;
        json_t *shape = json_array();
        for (int d = 0; d < v->shape.rank; d++) json_array_append_new(shape, json_integer(v->shape.dim[d]));
        json_array_append_new(list, json_pack("{s:s, s:i, s:o}", "name", cost->field[f].name, "dtype", (int)v->dtype, "shape",
                                              shape));
    }
    return list;
}

/* Returns the number of nodes to simulate. If 2^k nodes all send and receive the same messages, two represent all of them. */
static int simulated(const struct sgrad__request *request, int nodes) {
    const struct sgrad_train_options *t = &request->train;
    const bool power = !(nodes & (nodes - 1)), sums = !strcmp(t->parallel.strategy, "sync") && !sgrad__is_asked(request, "shard");
    const bool alike = !t->parallel.allreduce || sgrad_collective_find(SGRAD_ALLREDUCE, t->parallel.allreduce)->symmetric;
    const struct sgrad_optimizer *optimizer = sgrad_registry_find("optimizer", t->optimizer.name, sgrad_optimizers);
    return nodes > 2 && power && sums && alike && !sgrad__layer_hooks_of(optimizer) && !request->plan.every_node ? 2 : nodes;
}

static int write_request(const struct sgrad__request *request, const struct sgrad_plan_query *query,
                         const struct sgrad_forecast *forecast, const struct sgrad_plan_row *row, double memory,
                         const char *folder, const char *traced) {
    char *path = sgrad_format("%s/request.json", folder);
    json_t *json = json_pack("{s:o, s:o, s:o, s:i, s:f, s:i, s:i, s:b, s:f, s:f}", "words", words_json(request->given), "machine",
                             sgrad_json_text(query->machine->path), "fields", fields_json(query->work), "classes",
                             query->work->classes, "batch", row->batch, "nodes", row->nodes, "devices", row->devices, "alike",
                             simulated(request, row->nodes) < row->nodes, "scale", forecast->scale > 0 ? forecast->scale : 1,
                             "memory", memory);
    if (traced) json_object_set_new(json, "trace", json_string(traced));
    const int error = sgrad_json_write(path, json, 17);
    free(path);
    return error;
}

/* Finds the simulated trainer: by the variable, or in the folder of this command. */
static int find_trainer(char **trainer) {
    char self[4096] = { 0 };
    const char *path = sgrad_variable(TRAINER);
    if (!path && readlink("/proc/self/exe", self, sizeof self - 1) <= 0) *self = 0;
    *trainer = path ? sgrad_format("%s", path) : sgrad_format("%s/simulate/stargrad", dirname(self));
    if (access(*trainer, R_OK) == 0) return 0;
    sgrad_log_error(SGRAD_EIO,
                    "%s: the simulated trainer cannot be read (%s); build it with ./quickstart simulate, or set " TRAINER
                    " to its path",
                    *trainer, strerror(errno));
    free(*trainer);
    return SGRAD_EIO;
}

/* Sets the environment of the child, for Stargrad, SimGrid and StarPU. */
static void set_environment(const char *folder) {
    char *request = sgrad_format("%s/request.json", folder);
    setenv(SGRAD__SIMULATION, request, 1);
    setenv("STARPU_PERF_MODEL_DIR", folder, 1);
    setenv("STARPU_HOSTNAME", SGRAD_PLATFORM_HOST, 1);
    setenv("STARPU_SILENT", "1", 0);
    setenv("STARPU_MPI_COOP_SENDS", "0", 1);
    setenv("STARPU_MPI_NDETACHED_SEND", "2", 0);
    setenv("STARPU_SIMGRID_CUDA_QUEUE_COST", "0", 1);       /* the machine's file has the minimum time of a task */
    setenv("STARPU_SIMGRID_TASK_SUBMIT_COST", "0", 1);
    setenv("STARPU_SIMGRID_TASK_PUSH_COST", "0", 1);
    setenv("STARPU_SIMGRID_FETCHING_INPUT_COST", "0", 1);
    setenv("STARGRAD_CPU_ALGORITHM", "rule", 1);     /* no measurements */
    unsetenv("STARPU_NCPU"), unsetenv("STARPU_NCUDA"), unsetenv("STARPU_SCHED"), unsetenv("STARPU_FXT_TRACE");
    free(request);
}

/* Executes smpirun. Links have exactly the parameters of the platform: by default, SimGrid corrects them by factors measured on
 * one cluster. Contents of messages longer than StarPU-MPI's own messages are not copied (runtime/simulation.c). */
static void start(const char *folder, const char *trainer, int nodes) {
    char *platform = sgrad_format("%s/platform.xml", folder), *hosts = sgrad_format("%s/hosts", folder);
    char *count = sgrad_format("%d", nodes);
    const char *const word[] = {
        "smpirun", "-np", count, "-platform", platform, "-hostfile", hosts, "--cfg=smpi/privatization:dlopen",
        "--cfg=smpi/simulate-computation:no", "--cfg=smpi/bw-factor:0:1", "--cfg=smpi/lat-factor:0:1",
        "--cfg=network/TCP-gamma:0", "--cfg=network/weight-S:0", "--cfg=network/crosstraffic:0",
        "--cfg=smpi/send-is-detached-thresh:512", "--cfg=contexts/stack-size:256", "--log=root.threshold:error", trainer, NULL };
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    set_environment(folder);
    execvp(*word, (char *const *)word);
    sgrad_log_error(SGRAD_EIO, "%s of SimGrid (libsimgrid-dev) cannot be started: %s", *word, strerror(errno));
    _exit(SGRAD__FAILED);
}

/* Runs the child, a group of processes, which is killed if a signal to end arrives. */
static int run_child(const char *folder, const char *trainer, int nodes) {
    sigset_t watched, before;
    int signal, ends = 0, status = 0;
    sigemptyset(&watched);
    sigaddset(&watched, SIGINT), sigaddset(&watched, SIGTERM), sigaddset(&watched, SIGHUP), sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, &before);
    const pid_t child = fork();
    if (!child) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        start(folder, trainer, nodes);
    }
    if (child < 0)
        return sgrad_log_error(SGRAD_EIO, "the process of the simulated trainer cannot be started: %s", strerror(errno));
    while (!waitpid(child, &status, WNOHANG)) {
        sigwait(&watched, &signal);
        if (signal == SIGCHLD) continue;
        ends = signal;
        kill(-child, SIGKILL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (ends) return sgrad_log_error(SGRAD_EINTR, "the simulation was ended by signal %d", ends);
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return sgrad_log_error(SGRAD_EDEVICE, "the simulation of %d %s failed", nodes, sgrad_plural(nodes, "node", "nodes"));
    return 0;
}

static double value(const json_t *step, const char *key) { return json_number_value(json_object_get(step, key)); }

/* Writes the files that stargrad report requires in addition to the trace; the run has no losses. */
static int write_run(const char *folder, const struct sgrad_plan_query *query, const struct sgrad_plan_row *row,
                     const json_t *steps) {
    char *config = sgrad_format("%s/config.json", folder), *metrics = sgrad_format("%s/metrics.jsonl", folder);
    char *begun = sgrad_format("stargrad plan --simulate: %s on %d of %s", query->work->model, row->nodes, query->machine->name);
    struct sgrad_file file;
    json_t *is = json_pack("{s:s, s:b, s:s, s:{s:s}, s:{s:s, s:f, s:b}}", "begun", begun, "simulated", 1, "samples", "samples",
                           "identity", "model", query->work->model, "options", "data", query->train->data.name, "batch",
                           row->batch, "recompute", query->train->model.recompute);
    int error = sgrad_json_write(config, is, 17);
    if (!error) error = sgrad_file_begin(metrics, &file);
    for (size_t i = 0; i < json_array_size(steps) && !error; i++) {
        const json_t *step = json_array_get(steps, i);
        fprintf(file.stream, "{\"event\":\"step\",\"step\":%zu,\"epoch\":0,\"loss\":null,\"samples_per_second\":%.9g", i + 1,
                row->batch / value(step, "seconds"));
        if (row->read > 0)
            fprintf(file.stream, ",\"written_mbyte\":%.9g,\"read_mbyte\":%.9g,\"moving_seconds\":%.9g,\"waiting_seconds\":%.9g",
                    1e-6 * value(step, "written"), 1e-6 * value(step, "read"), value(step, "moving"), value(step, "waiting"));
        fputs("}\n", file.stream);
    }
    if (!error) error = sgrad_file_commit(&file);
    free(begun);
    free(metrics);
    free(config);
    return error;
}

/* Sets ROW to the means of the simulated steps. If the ranks have failed, returns their error, which they have logged. */
static int read_answer(const char *folder, struct sgrad_plan_row *row, json_t **answer) {
    char *path = sgrad_format("%s/answer.json", folder);
    json_t *json = NULL;
    int error = access(path, R_OK)
                    ? sgrad_log_error(SGRAD_EDEVICE, "the simulation of %d %s ended without a result", row->nodes,
                                      sgrad_plural(row->nodes, "node", "nodes"))
                    : sgrad_json_read(path, SGRAD__SIMULATION_LIMIT, &json);
    if (!error) error = (int)json_integer_value(json_object_get(json, "error"));
    const json_t *list = json_object_get(json, "steps");
    const double count = (double)json_array_size(list);
    double seconds = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *step = json_array_get(list, i);
        seconds += value(step, "seconds") / count;
        row->written += value(step, "written") / count, row->read += value(step, "read") / count;
        row->waiting += value(step, "waiting") / count;
    }
    if (!error && !(seconds > 0)) error = sgrad_log_error(SGRAD_EFORMAT, "%s: contains no step times", path);
    if (!error) sgrad_plan_row_simulated(row, seconds);
    if (error) json_decref(json);
    else *answer = json;
    free(path);
    return error;
}

static void remove_files(const char *folder) {
    static const char *const name[] = { "request.json", "answer.json", "platform.xml", "hosts",
                                        "bus/" SGRAD_PLATFORM_HOST ".latency", "bus/" SGRAD_PLATFORM_HOST ".bandwidth",
                                        "bus/" SGRAD_PLATFORM_HOST ".affinity", "bus/" SGRAD_PLATFORM_HOST ".config", "bus", "" };
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char *path = sgrad_format("%s/%s", folder, name[i]);
        remove(path);
        free(path);
    }
}

/* Creates DIR/nodes-N/trace, if --trace and --out DIR are set; else sets *RUN to NULL. */
static int make_run(const struct sgrad__request *request, int nodes, char **run) {
    *run = NULL;
    if (!request->train.output.trace.first || !request->train.output.folder) return 0;
    char *folder = sgrad_format("%s/nodes-%d", request->train.output.folder, nodes), *trace = sgrad_format("%s/trace", folder);
    const int error = sgrad_folder_make(trace);
    free(trace);
    *run = realpath(folder, NULL);
    free(folder);
    return error;
}

/* With --memory: adds to the formula of ROW what the limit adds to the step of a rank, and sets *MEMORY to the bytes of its
 * process. */
static int limit_row(const struct sgrad__request *request, const struct sgrad_plan_query *query, struct sgrad_plan_row *row,
                     double *memory) {
    struct sgrad_memory_choice limited;
    *memory = 0;
    if (!request->train.parallel.memory) return 0;
    SGRAD_TRY(sgrad__memory_predict(request, query, row, &limited));
    if (limited.fits) row->step += fmax(0, limited.step - row->compute);
    row->memory = fmin(row->memory, (double)request->train.parallel.memory);
    *memory = limited.process;
    return 0;
}

/* Simulates one row in its own folder. */
static int simulate(const struct sgrad__request *request, const struct sgrad_plan_query *query,
                    const struct sgrad_forecast *forecast, struct sgrad_plan_row *row, const char *trainer, const char *folder) {
    const int ranks = simulated(request, row->nodes);
    json_t *answer = NULL;
    char *run;
    double memory;
    SGRAD_TRY(limit_row(request, query, row, &memory));
    SGRAD_TRY(make_run(request, row->nodes, &run));
    char *trace = run ? sgrad_format("%s/trace", run) : NULL;
    int error = sgrad_platform_write(query->machine, row->nodes, ranks, folder);
    if (!error) error = write_request(request, query, forecast, row, memory, folder, trace);
    if (!error) error = run_child(folder, trainer, ranks);
    if (!error) error = read_answer(folder, row, &answer);
    if (!error && run) error = sgrad_trace_convert(trace, ranks);
    if (!error && run) error = write_run(run, query, row, json_object_get(answer, "steps"));
    json_decref(answer);
    free(trace);
    free(run);
    return error;
}

int sgrad__simulate(const struct sgrad__request *request, const struct sgrad_plan_query *query, struct sgrad_forecast *forecast) {
    char *trainer;
    int error = 0;
    SGRAD_TRY(find_trainer(&trainer));
    const char *place = getenv("TMPDIR");
    for (struct sgrad_plan_row *p = forecast->row; p < forecast->row + forecast->rows && !error; p++) {
        char *folder = sgrad_format("%s/stargrad-simulation-XXXXXX", place ? place : "/tmp");
        if (!mkdtemp(folder)) error = sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", folder, strerror(errno));
        if (!error) error = simulate(request, query, forecast, p, trainer, folder);
        remove_files(folder);
        free(folder);
    }
    free(trainer);
    return error;
}
