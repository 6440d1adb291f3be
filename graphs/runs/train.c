/* train.c: the training loop.
 *
 *     turn: submit steps until the window is full; wait for the oldest; write down its loss
 *     at the end of an epoch: evaluate, write a checkpoint
 *     at the end: the final weights */
#include "graphs/runs/train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- signals: finish the step, write a checkpoint, say so ---- */

static volatile sig_atomic_t caught;
static void catch_signal(int number) { caught = number; }

/* SIGUSR1 is what mpirun hands on to its ranks, and batch systems send before time is over. */
static const int watched[] = { SIGINT, SIGTERM, SIGUSR1 };
enum { WATCHED = sizeof watched / sizeof *watched };

static void watch_signals(struct sigaction before[WATCHED]) {
    struct sigaction action = { .sa_handler = catch_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND };
    caught = 0;
    for (int i = 0; i < WATCHED; i++) sigaction(watched[i], &action, &before[i]);
}

static void unwatch_signals(const struct sigaction before[WATCHED]) {
    for (int i = 0; i < WATCHED; i++) sigaction(watched[i], &before[i], NULL);
}

/* ---- training ---- */

/* What all ranks know, rank 0 says, and all end in good order; whoever fails alone ends the others (sgrad_train). */
int sgrad__run_agree(struct sgrad__run *r, int error) {
    error = sgrad_ranks_agree(error);
    r->together |= error != 0;
    return error;
}
#define SAY(r, error, ...) ((r)->together = true, (r)->context->rank ? (error) : sgrad_fail(error, __VA_ARGS__))

double sgrad__run_rate(const struct sgrad__run *r, long step) {
    double epoch = (double)r->steps_per_epoch;
    return sgrad_schedule_rate(&r->schedule, r->peak, (double)step / epoch, (double)r->steps / epoch);
}

int sgrad__run_submit(struct sgrad__run *r, long step) {
    const struct sgrad_train_options *o = &r->options;
    const int64_t share = r->program->share;
    struct sgrad_step s = {
        .seed = o->seed, .number = (uint32_t)step + 1, .epoch = (uint32_t)(step / r->steps_per_epoch), .training = true,
        .rate = (float)sgrad__run_rate(r, step), .first = r->context->rank * share, .stop = caught != 0,
        .histograms = o->histograms && (step + 1) % o->histograms == 0,
    };
    int64_t *sample = sgrad_alloc((size_t)share, sizeof *sample);
    for (int64_t i = 0; i < share; i++)
        sample[i] = sgrad__order_sample(&r->order, s.epoch, step % r->steps_per_epoch * o->batch + s.first + i);
    int error = r->placement ? sgrad__placement_step(r->placement, step, &r->program->buffer[r->program->records].tensor[0]) : 0;
    if (!error) error = sgrad__runner_submit(r->runner, &s, sample);
    free(sample);
    return error;
}

static int save_checkpoint(struct sgrad__run *r, long done) {
    if (r->last_checkpoint == done) return 0;
    struct sgrad__position position = { .step = done, .epoch = (int)(done / r->steps_per_epoch),
                                        .step_in_epoch = done % r->steps_per_epoch, .seed = r->options.seed };
    int error = 0;
    if (r->context->rank == 0)
        error = sgrad__checkpoint_save(r->graph, r->optimizer, r->folder, &position, r->identity, r->options.keep);
    SGRAD_TRY(sgrad__run_agree(r, error));
    r->last_checkpoint = done;
    if (r->options.keep == 1) r->good_checkpoint = 0;   /* it is gone */
    return 0;
}

static int stop_for_nan(struct sgrad__run *r, long step, double loss) {
    const char *is = isnan(loss) ? "not a number" : "infinite", *help = "a lower --lr, --clip-norm or --warmup may help; --nan-ok goes on";
    if (r->good_checkpoint > 0)
        return SAY(r, SGRAD_ENAN, "step %ld: the loss is %s; the last good checkpoint is %s/checkpoint-%ld.safetensors (%s)", step,
                          is, r->folder, r->good_checkpoint, help);
    return SAY(r, SGRAD_ENAN, "step %ld: the loss is %s, before the first good checkpoint (%s)", step, is, help);
}

static int stop_for_signal(struct sgrad__run *r, long done) {
    const char *why = caught ? strsignal(caught) : "another rank was asked to end";
    if (done == 0) return SAY(r, SGRAD_EINTR, "%s: stopped before the first step", why);
    SGRAD_TRY(save_checkpoint(r, done));
    return SAY(r, SGRAD_EINTR, "%s: stopped after step %ld; checkpoint written; continue with --out %s --resume", why, done, r->folder);
}

static int end_epoch(struct sgrad__run *r, long done) {
    struct sgrad__epoch e = { .step = done, .epoch = (double)done / (double)r->steps_per_epoch };
    SGRAD_TRY(sgrad__run_evaluate(r, &e.test_loss, &e.test_top1));
    SGRAD_TRY(sgrad__metrics_epoch(r->metrics, &e));
    r->result.train_loss = e.train_loss;
    r->result.test_loss = e.test_loss;
    r->result.test_top1 = e.test_top1;
    r->result.seconds += e.seconds;
    r->result.samples_per_second = e.samples_per_second;
    return 0;
}

static bool checkpoint_is_due(const struct sgrad__run *r, long done) {
    long every = r->options.checkpoint_every * (r->options.checkpoint_in_steps ? 1 : r->steps_per_epoch);
    return every > 0 && (done % every == 0 || done == r->steps);
}

/* Up to where steps may be in flight together: evaluations and checkpoints look at whole steps, and StarPU's traces may not
 * begin while tasks run. */
static long next_stop(const struct sgrad__run *r, long done) {
    long every = r->options.checkpoint_in_steps ? r->options.checkpoint_every : 0;
    long stops[] = { (done / r->steps_per_epoch + 1) * r->steps_per_epoch, every ? (done / every + 1) * every : 0, r->trace_first - 1, r->trace_last };
    long next = r->steps;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] > done && stops[i] < next) next = stops[i];
    return next;
}

/* Turns steps until the next stop. *DONE counts the steps that have ended. All ranks end after the same one: they see that one was
 * asked to end, or a loss that is no number, after the same step, and turn those that are promised by then.
 *
 * A rank may push the gradients of a step when all others have begun the one WINDOW before, whose own WINDOW before has ended: twice
 * as many are promised to servers. */
static int turn(struct sgrad__run *r, long *done) {
    const long window = r->options.window, ahead = r->server ? 2 * window + 1 : window;
    long stop = next_stop(r, *done), next = *done, promised = next;
    int error = 0;
    while (*done < stop) {
        if (r->context->ranks == 1 && caught) r->stopping = true;
        if (r->stopping) stop = promised;
        else promised = *done + ahead < stop ? *done + ahead : stop;
        sgrad__server_expect(r->server, promised, stop);
        while (next < promised && next - *done < window) {
            sgrad__metrics_submitted(r->metrics);
            SGRAD_TRY(sgrad__run_submit(r, next++));
        }
        if (next == *done) break;       /* asked to end, and all that was begun has ended */
        const struct sgrad__slot *slot;
        SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
        double loss = slot->statistics[0] / slot->statistics[2];
        ++*done;
        if (error) continue;
        for (int i = 0; i < r->program->histograms && slot->step.histograms; i++)
            sgrad__metrics_histogram(r->metrics, r->program->buffer[r->program->histogram[i]].name, *done, &slot->histogram[i]);
        SGRAD_TRY(sgrad__metrics_step(r->metrics, &(struct sgrad__step_event){
            *done, (int)slot->step.epoch, loss, sgrad__run_rate(r, *done - 1), slot->time, r->context->ranks > 1 ? slot->votes + 1 : NULL }));
        if (*slot->votes > 0) r->stopping = true;
        if (isfinite(loss)) r->good_checkpoint = r->last_checkpoint;
        else if (!r->options.nan_ok) r->stopping = true, error = stop_for_nan(r, *done, loss);
    }
    return error;
}

static int train(struct sgrad__run *r, long done) {
    int error = 0;
    if (done >= r->steps) {     /* a finished run, resumed: no step of this process has a loss */
        r->result.train_loss = NAN;
        error = sgrad__run_evaluate(r, &r->result.test_loss, &r->result.test_top1);
    }
    while (done < r->steps && !error) {
        long before = done;
        if (done == r->trace_first - 1) sgrad_trace_begin();
        error = turn(r, &done);
        int failed = sgrad_wait_all();
        if (done == r->trace_last) sgrad_trace_end();
        if (!failed && (!error || r->together)) failed = sgrad__server_settle(r);
        if (!error) error = failed;
        if (error) break;
        if (done > before && (done % r->steps_per_epoch == 0 || done == r->steps)) error = end_epoch(r, done);
        if (!error && r->stopping && done < r->steps) return stop_for_signal(r, done);
        if (!error && checkpoint_is_due(r, done)) error = save_checkpoint(r, done);
    }
    r->result.steps = done;
    r->result.epochs = (double)done / (double)r->steps_per_epoch;
    return error;
}

static int open_metrics(struct sgrad__run *r, long done, FILE *terminal) {
    struct sgrad__position position = { .step = done, .epoch = (int)(done / r->steps_per_epoch), .step_in_epoch = done % r->steps_per_epoch };
    return sgrad__metrics_open(&(struct sgrad__metrics_options){
        .folder = r->folder, .terminal = terminal, .tensorboard = r->options.tensorboard, .prometheus = r->options.prometheus, .workers = r->workers, .batch = r->options.batch, .steps = r->steps,
        .epochs = (double)r->steps / (double)r->steps_per_epoch, .resumed = r->options.resume ? &position : NULL }, &r->metrics);
}

/* One line: how many gradients came too late, of PUSHES of each rank, and the rank whose did most often. */
static void print_dropped(struct sgrad__run *r, double pushes, FILE *to) {
    const int ranks = r->context->ranks;
    double *dropped = sgrad_alloc((size_t)ranks, sizeof *dropped), all = 0;
    int worst = 0;
    sgrad__server_dropped(r->server, dropped, ranks);
    for (int i = 0; i < ranks; i++) {
        all += dropped[i];
        if (dropped[i] > dropped[worst]) worst = i;
    }
    if (r->context->rank == 0 && all > 0)
        fprintf(to, "dropped    %.0f of %.0f pushes (%.1f %%); of rank %d's, the most, %.1f %%\n", all, pushes * ranks, 100 * all / (pushes * ranks),
                worst, 100 * dropped[worst] / pushes);
    free(dropped);
}

/* One line: how many of the gradients were computed with weights that were so many updates old. */
static void print_staleness(struct sgrad__run *r, FILE *to) {
    double histogram[SGRAD__STALENESS], all = 0;
    sgrad__server_staleness(r->server, histogram);
    for (int i = 0; i < SGRAD__STALENESS; i++) all += histogram[i];
    if (all == 0) return;
    if (r->strategy->fresh) print_dropped(r, all / r->context->ranks, to);
    if (r->context->rank) return;
    fprintf(to, "staleness ");
    for (int i = 0; i < SGRAD__STALENESS; i++)
        if (histogram[i] > 0) fprintf(to, " %d%s: %.1f %%", i, i == SGRAD__STALENESS - 1 ? " or more" : "", 100 * histogram[i] / all);
    fputc('\n', to);
}

int sgrad__run_open_runner(struct sgrad__run *r, long done) {
    SGRAD_TRY(sgrad__program_allocate(r->program));
    r->runner = sgrad__runner_create(r->program);
    SGRAD_TRY(sgrad__server_open(r, done));
    r->order = (struct sgrad__order){ .seed = r->options.seed, .count = r->train->count, .shuffle = !r->options.no_shuffle };
    return r->placement && done < r->steps ? sgrad__placement_load(r->placement, (uint32_t)(done / r->steps_per_epoch)) : 0;
}

static int train_run(struct sgrad__run *r) {
    FILE *terminal = r->options.json ? stderr : stdout;
    long done = 0;
    SGRAD_TRY(sgrad__run_open_training(r));
    if (!r->options.print) SGRAD_TRY(sgrad__run_open_folder(r, &done));
    if (r->context->rank == 0) sgrad__run_print(r, terminal);
    if (r->options.print && r->context->rank == 0) {
        sgrad__graph_print(r->graph, stdout);
        sgrad__program_print(r->program, stdout);
    }
    if (r->options.print) return 0;
    if (done >= r->steps && r->context->rank == 0) fprintf(terminal, "all %ld steps of this run are done already\n", r->steps);
    SGRAD_TRY(sgrad__run_open_runner(r, done));
    SGRAD_TRY(sgrad__run_agree(r, r->context->rank ? 0 : open_metrics(r, done, terminal)));
    SGRAD_TRY(train(r, done));
    if (r->strategy->served) print_staleness(r, terminal);
    if (r->options.trace) SGRAD_TRY(sgrad__roof_write(r));
    if (r->context->rank) return sgrad__run_agree(r, 0);
    char *path = sgrad_format("%s/model.safetensors", r->folder);
    int error = sgrad__parameters_save(r->graph, NULL, path, false, NULL, 0);
    free(path);
    return sgrad__run_agree(r, error);
}

int sgrad_train(const struct sgrad_train_options *options, struct sgrad_train_result *result) {
    struct sgrad__run *r = sgrad_alloc(1, sizeof *r);
    struct sigaction before[WATCHED];
    r->options = *options;
    watch_signals(before);
    int error = train_run(r);
    unwatch_signals(before);
    if (error && !r->together) sgrad_ranks_abort(1);
    if (!error) {
        *result = r->result;
        result->folder = r->folder;
        r->folder = NULL;
    }
    sgrad__run_close(r);
    free(r);
    return error;
}

