/* simulated.c: a rank of the simulated trainer, started by stargrad plan --simulate (simulate.c). The duration of a task is the
 * measured one, or the estimate of the planner's formulas. StarPU and the simulated network determine when and on which worker
 * tasks run, and the time of messages. */
#include "cli/simulate.h"
#include "datasets/datasets.h"
#include "graphs/api/bench.h"
#include "graphs/compiler/program.h"
#include "runtime/environment.h"
#include "runtime/simulation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 2, STEPS = 2 };

struct rates {
    const struct sgrad_machine *machine;
    enum sgrad_precision precision;
    double scale;
};

/* Returns the duration of the operations of CALL by the formulas, for all workers of a CPU machine together. */
static double formula_of(const struct sgrad_bound_kernel *call, const struct rates *r) {
    double seconds = 0;
    for (int i = 0; i < sgrad__call_links(call); i++) {
        const struct sgrad_bound_kernel *link = sgrad__call_link(call, i);
        seconds += sgrad_machine_seconds(r->machine, r->precision, link->kernel->name, link->flops, link->bytes);
    }
    return sgrad_platform_workers(r->machine) * r->scale * seconds;
}

/* Returns the duration of a task: as measured, or by the formulas. Reading tasks are
 * limited to the input rate in the machine's file. */
static double seconds_of(const struct sgrad_bound_kernel *call, const void *arg) {
    const struct rates *r = arg;
    const double timed = sgrad_machine_timed(r->machine, call->kernel->name, call->hash);
    const double computes =
        isfinite(timed) ? timed + r->machine->device.workers * r->machine->device.launch : formula_of(call, r);
    if (strcmp(call->kernel->name, "read") || r->machine->input <= 0) return computes;
    return fmax(computes, (double)call->view[0].shape.dim[0] / r->machine->input);
}

static int read_nothing(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    (void)dataset, (void)sample, (void)data;
    return 0;
}

/* Returns a data set with the shapes of the requested samples, but without data, which is never read. */
static struct sgrad_dataset *make_samples(const json_t *request, enum sgrad_split split, int64_t count) {
    static const struct sgrad_reader reader = { .name = "nothing", .read = read_nothing, .computes = true };
    struct sgrad_dataset *d = sgrad_xcalloc(1, sizeof *d);
    const json_t *list = json_object_get(request, "fields");
    *d = (struct sgrad_dataset){ .reader = &reader, .split = split, .count = count, .full_scale = 255,
                                 .classes = (int)json_integer_value(json_object_get(request, "classes")) };
    for (size_t f = 0; f < json_array_size(list) && f < SGRAD_MAX_FIELDS; f++) {
        const json_t *is = json_array_get(list, f), *shape = json_object_get(is, "shape");
        d->field[f] = (struct sgrad_field){ .name = json_string_value(json_object_get(is, "name")),
                                            .dtype = (enum sgrad_dtype)json_integer_value(json_object_get(is, "dtype")),
                                            .shape.rank = (int)json_array_size(shape) };
        for (int i = 0; i < d->field[f].shape.rank; i++)
            d->field[f].shape.dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    }
    return d;
}

/* Sets the options from the request, without weights, samples and output. A GPU processes its local batch at once. */
static void set_options(struct sgrad_train_options *options, const json_t *request, const struct sgrad_machine *machine) {
    const long nodes = (long)json_integer_value(json_object_get(request, "nodes"));
    const long devices = (long)json_integer_value(json_object_get(request, "devices"));
    const bool weak =
        !options->training.batch || options->training.batch != (long)json_number_value(json_object_get(request, "batch"));
    options->training.batch = (long)json_number_value(json_object_get(request, "batch"));
    if (!machine->device.is_gpu && weak) options->training.micro_batch = 0;
    if (machine->device.is_gpu && (weak || !options->training.micro_batch))
        options->training.micro_batch = options->training.batch % devices ? 0 : options->training.batch / devices;
    options->data.dataset[SGRAD_TRAIN] = make_samples(request, SGRAD_TRAIN, options->training.batch * (WARM + STEPS));
    options->data.dataset[SGRAD_TEST] = make_samples(request, SGRAD_TEST, options->training.batch * nodes);
    options->parallel.cpus = sgrad_platform_workers(machine),
    options->parallel.gpus = machine->device.is_gpu ? machine->device.count : -1;
    options->parallel.no_fuse |= !machine->timings && !options->parallel.memory; /* tasks must match the measured ones */
    options->data.no_shuffle = true;
    options->checkpoint.resume = options->evaluation.best = options->output.tensorboard = false;
    options->output.histograms = options->output.prometheus = 0;
    options->output.trace = (struct sgrad_step_range){ 0 };
    options->model.init = options->model.init_skip = options->model.adapter = options->data.exclude = options->parallel.network =
        options->data.class_names = options->output.show_batch = options->output.folder = NULL;
    if (!options->data.augment) options->data.augment = "none";
    options->output.explicit_options = NULL;
}

/* Writes answer.json, which then owns JSON. */
static int write_answer(json_t *json) {
    const char *asked = getenv(SGRAD__SIMULATION);
    char *path = sgrad_format("%.*sanswer.json", (int)(strlen(asked) - strlen("request.json")), asked);
    const int error = sgrad_json_write(path, json, 17);
    free(path);
    return error;
}

static int answer(const struct sgrad_timed_step *step) {
    json_t *list = json_array();
    for (const struct sgrad_timed_step *s = step; s < step + STEPS; s++)
        json_array_append_new(list, json_pack("{s:f, s:f, s:f, s:f, s:f}", "seconds", s->seconds, "written", s->written, "read",
                                              s->read, "moving", s->moving, "waiting", s->waiting));
    return write_answer(json_pack("{s:o}", "steps", list));
}

static int take_steps(struct sgrad__request *r, const json_t *request) {
    struct sgrad_machine *machine;
    struct sgrad_timed_step step[STEPS];
    int rank;
    SGRAD_TRY(sgrad_machine_read(json_string_value(json_object_get(request, "machine")), &machine));
    const int nodes = (int)json_integer_value(json_object_get(request, "nodes"));
    const struct sgrad_network net = sgrad_machine_network(machine, nodes);
    const struct rates rates = { machine, r->train.model.precision, json_number_value(json_object_get(request, "scale")) };
    const struct sgrad_simulation simulation = { .seconds = seconds_of,
                                                 .arg = &rates,
                                                 .gpus = machine->device.is_gpu ? machine->device.count : 0,
                                                 .latency = net.latency,
                                                 .bandwidth = net.bandwidth,
                                                 .carrying = machine->network.cpu_seconds_per_byte,
                                                 .disk = { machine->disk.write, machine->disk.read },
                                                 .memory = json_number_value(json_object_get(request, "memory")),
                                                 .ranks = json_is_true(json_object_get(request, "alike")) ? nodes : 0 };
    sgrad_simulation_set(&simulation);
    set_options(&r->train, request, machine);
    const char *trace = json_string_value(json_object_get(request, "trace"));
    SGRAD_TRY(sgrad_steps_time(&r->train, trace, WARM, STEPS, step, &rank));
    return rank ? 0 : answer(step);
}

extern const struct sgrad__command sgrad__plan_command;

static void ignore(const char *line) { (void)line; }

int sgrad__simulated_rank(void) {
    const char *path = sgrad_variable(SGRAD__SIMULATION);
    struct sgrad__request r = { .command = &sgrad__plan_command, .train = sgrad_train_defaults() };
    char *word[1024] = { (char *)sgrad__plan_command.name };
    int count = 1, status;
    json_t *request;
    if (!path)
        return sgrad_log_error(SGRAD_EINVAL, "this is the simulated trainer; start it with stargrad plan --simulate"),
               SGRAD__FAILED;
    if (sgrad_launched_rank() > 0) sgrad_log_set_callback(ignore);      /* all ranks have the same messages */
    if (sgrad_json_read(path, SGRAD__SIMULATION_LIMIT, &request)) return SGRAD__FAILED;
    const json_t *words = json_object_get(request, "words");
    for (size_t i = 0; i < json_array_size(words) && count < 1023; i++)
        word[count++] = (char *)json_string_value(json_array_get(words, i));
    if (sgrad__plan_command.defaults) sgrad__plan_command.defaults(&r);
    if (!sgrad__options_parse(&sgrad__plan_command, count, word, &r, &status)) return status;
    const int error = take_steps(&r, request);
    if (error) write_answer(json_pack("{s:i}", "error", error));
    return sgrad__status(error);
}
