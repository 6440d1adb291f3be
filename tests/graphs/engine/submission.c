/* submission.c: the time that the submitting thread needs for one step of many small tasks: ResNet-20, batch 128, divided for
 * 64 workers, with kernels that do nothing.
 *
 *     submission                   one step, which must end
 *     submission STEPS             prints tasks a step, and ms of CPU time of the submitting thread a step (the median)
 *
 *     micro-batches   of 2 samples, one for each of 64 workers, and of the default size (--micro-batch)
 *     lanes           a gradient for each micro-batch, and eight in all */
#include "config.h"
#include "graphs/graphs.h"
#include "graphs/engine/runner.h"
#include "tests/asserts.h"

enum { BATCH = 128, WORKERS = 64, SIDE = 32, CLASSES = 10, WARM_UP = 3 };

static void nothing(const struct sgrad_args *args) { (void)args; }

static void empty(struct sgrad__program *program) {
    for (int i = 0; i < program->call_count; i++) {
        struct sgrad_kernel *kernel = sgrad_xcalloc(1, sizeof *kernel);
        *kernel = *program->call[i]->kernel;
        kernel->cpu = nothing;
        program->call[i]->kernel = kernel;
    }
}

static int by_size(const void *one, const void *other) {
    const double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static int turn(struct sgrad__program *program, int steps) {
    static const struct sgrad_sample sample[BATCH];
    const struct sgrad__slot *slot;
    double *ms = sgrad_xcalloc((size_t)(WARM_UP + steps), sizeof *ms);
    struct sgrad__runner *runner = sgrad__runner_create(program, NULL);
    int error = sgrad__program_allocate(program);
    for (int i = 0; i < WARM_UP + steps && !error; i++) {
        const double start = 1e3 * sgrad_time_thread_cpu();
        error = sgrad__runner_submit(runner, &(struct sgrad_step){ .number = i + 1, .training = true }, sample);
        ms[i] = 1e3 * sgrad_time_thread_cpu() - start;
        if (!error) error = sgrad__runner_wait(runner, &slot);
    }
    qsort(ms + WARM_UP, (size_t)steps, sizeof *ms, by_size);
    if (!error) printf("   %5d tasks   %6.2f ms", program->instruction_count, ms[WARM_UP + steps / 2]);
    sgrad__runner_destroy(runner);
    free(ms);
    return error;
}

static const struct sgrad_model *model(void) {
    const struct sgrad_model *const *m = sgrad_models;
    while (strcmp((*m)->name, "resnet20")) m++;
    return *m;
}

static int measure(const struct sgrad_context *ctx, int micro, int lanes, int steps) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const int pixels = sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, SIDE, SIDE, 3));
    const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    const int x = sgrad_layer(g, image, "augment", (pixels), 0);
    SGRAD_TRY(sgrad_graph_loss(g, model()->build(g, x, CLASSES), label, 0));
    struct sgrad__training *training = sgrad__training_create(g, sgrad_optimizers[0]);
    SGRAD_TRY(sgrad__parameters_allocate(g, 1));
    SGRAD_TRY(sgrad__training_allocate(training));
    const struct sgrad_program_options o = {
        .batch = BATCH, .micro = micro, .group = BATCH, .lanes = lanes, .training = training, .fuse = true, .cpus = WORKERS,
        .window = 1, .network = ctx->network,
        .source = sgrad__source_of(NULL),
    };
    struct sgrad__program *p;
    SGRAD_TRY(sgrad__program_build(g, &o, &p));
    empty(p);
    printf("%3d micro-batches of %2d   %2d lanes", BATCH / micro, micro, lanes ? lanes : BATCH / micro);
    int error = turn(p, steps);
    puts("");
    sgrad__program_destroy(p);
    sgrad__training_destroy(training);
    sgrad_graph_destroy(g);
    return error;
}

static int measure_all(int steps) {
    static const struct { int micro, lanes; } rows[] = { { 2, 0 }, { 2, 8 }, { 4, 0 }, { 4, 8 } };
    struct sgrad_context *ctx;
    int error = 0;
    SGRAD_TRY(sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1 }, &ctx));
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !error; i++) error = measure(ctx, rows[i].micro, rows[i].lanes, steps);
    sgrad_context_close(ctx);
    return error;
}

static void one_step(void **state) {
    (void)state;
    assert_done(measure_all(1));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = { sentence("a step of many small tasks ends", one_step) };
    const int steps = argc > 1 ? atoi(argv[1]) : 0;
    if (steps > 0) return measure_all(steps) ? 1 : 0;
    return run_sentences(argc, argv, tests, NULL, NULL);
}
