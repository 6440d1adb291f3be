/* train.c: the training loop.
 *
 *     turn: submit steps until the window is full; wait for the oldest; write down its loss
 *     at the end of an epoch: evaluate, write a checkpoint
 *     at the end: the final weights */
#include "graphs/runs/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUGH  4    /* times the loss of a constant guess: more is no rough beginning (measured: vgg16 has up to 3.7) */
#define ENOUGH 100  /* steps in which a network that learns is better than the guess */
#define CHANCE 1.5  /* times the guess's accuracy: less is chance */

/* ---- training ---- */

#define SAY(r, error, ...) ((r)->together = true, (r)->context->rank ? (error) : sgrad_fail(error, __VA_ARGS__))

static struct sgrad__position position_of(const struct sgrad__run *r, long done) {
    return (struct sgrad__position){ .step = done,
                                     .epoch = (int)(done / r->steps_per_epoch),
                                     .step_in_epoch = done % r->steps_per_epoch,
                                     .seed = r->options.seed };
}

/* A rank whose kernel has failed has sent what it had all the same: nothing is written before all have come so far without. */
static int save_checkpoint(struct sgrad__run *r, long done) {
    if (r->last_checkpoint == done) return 0;
    const struct sgrad__position position = position_of(r, done);
    SGRAD_TRY(sgrad__run_agree(r, sgrad_task_error()));
    int error = 0;
    if (r->context->rank == 0) error = sgrad__checkpoint_save(r->graph, r->folder, &position, r->identity, r->options.keep);
    SGRAD_TRY(sgrad__run_await(r, error, "for rank 0, which writes a checkpoint"));
    r->last_checkpoint = done;
    if (r->options.keep == 1) r->good_checkpoint = 0;   /* it is gone */
    return 0;
}

static int stop_for_nan(struct sgrad__run *r, long step, double loss) {
    const char *is = isnan(loss) ? "not a number" : "infinite";
    const char *help = "a lower --lr, --clip-norm or --warmup may help; --nan-ok goes on";
    if (r->good_checkpoint > 0)
        return SAY(r, SGRAD_ENAN, "step %ld: the loss is %s; the last good checkpoint is %s/checkpoint-%ld.safetensors (%s)",
                   step, is, r->folder, r->good_checkpoint, help);
    return SAY(r, SGRAD_ENAN, "step %ld: the loss is %s, before the first good checkpoint (%s)", step, is, help);
}

/* Rank 0 knows more than the others of why: they are told that it was so. */
static int stop_early(struct sgrad__run *r, long done) {
    const int signal = sgrad__signal_caught(), error = r->unwritten ? r->unwritten : SGRAD_EINTR;
    const char *why = r->unwritten ? "its metrics cannot be written"
                      : signal     ? strsignal(signal)
                                   : "another rank was asked to end";
    if (done == 0) return SAY(r, error, "%s: stopped before the first step", why);
    SGRAD_TRY(save_checkpoint(r, done));
    return SAY(r, error, "%s: stopped after step %ld; checkpoint written; continue with --out %s --resume", why, done, r->folder);
}

/* Where a run was asked to end, the evaluation is left to its continuation. */
static int end_epoch(struct sgrad__run *r, long done) {
    struct sgrad__epoch e = { .step = done, .epoch = (double)done / (double)r->steps_per_epoch, .test = r->result.test };
    SGRAD_TRY(sgrad__run_evaluate(r));
    if (r->stopping) return 0;
    const int error = r->unwritten ? 0 : sgrad__metrics_epoch(r->metrics, &e);
    if (error) r->unwritten = error;
    double unwritten = r->unwritten != 0;
    sgrad_ranks_sum(&unwritten, 1);
    if (unwritten > 0) r->stopping = true;
    r->result.train_loss = e.train_loss;
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
    long stops[] = { (done / r->steps_per_epoch + 1) * r->steps_per_epoch, every ? (done / every + 1) * every : 0,
                     r->trace_first - 1, r->trace_last };
    long next = r->steps;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] > done && stops[i] < next) next = stops[i];
    return next;
}

/* Writes down a step that is done. Where that cannot be, the run ends as if it were asked to, with a checkpoint. */
static void tell_step(struct sgrad__run *r, const struct sgrad__slot *slot, long done, double loss) {
    const struct sgrad__program *p = r->program;
    const double *votes = sgrad__slot_doubles(slot, p->votes);
    for (int i = 0; i < p->histograms; i++) {
        const struct sgrad__output *output = &p->output[p->histogram[i]];
        if (sgrad__takes_part(output->every, done))
            sgrad__metrics_histogram(r->metrics, p->buffer[output->buffer].name, done, slot->output[p->histogram[i]]);
    }
    const struct sgrad__step_event event = { done, (int)slot->step.epoch, loss, sgrad__run_rate(r, done - 1), slot->time,
                                             votes ? votes + 1 : NULL };
    const int error = r->unwritten ? 0 : sgrad__metrics_step(r->metrics, &event);
    if (error) r->unwritten = error;
}

/* Turns steps until the next stop. *DONE counts the steps that have ended. All ranks end after the same one: they see that one
 * was asked to end, or a loss that is no number, after the same step, and turn those that are promised by then.
 *
 * A rank may push the gradients of a step when all others have begun the one WINDOW before, whose own WINDOW before has ended:
 * twice as many are promised to servers. */
static int turn(struct sgrad__run *r, long *done) {
    const long window = r->options.window, ahead = r->server ? 2 * window + 1 : window;
    long stop = next_stop(r, *done), next = *done, promised = next;
    int error = 0;
    while (*done < stop) {
        if (r->context->ranks == 1 && sgrad__run_is_asked(r)) r->stopping = true;
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
        const double *statistics = sgrad__slot_doubles(slot, r->program->statistics);
        const double *votes = sgrad__slot_doubles(slot, r->program->votes);
        const double loss = statistics[0] / statistics[r->result.metrics];
        ++*done;
        if (error) continue;
        tell_step(r, slot, *done, loss);
        if (votes && *votes > 0) r->stopping = true;
        if (isfinite(loss)) r->good_checkpoint = r->last_checkpoint;
        else if (!r->options.nan_ok) r->stopping = true, error = stop_for_nan(r, *done, loss);
    }
    return error;
}

static int train(struct sgrad__run *r, long done) {
    int error = 0;
    bool owed = sgrad__metrics_owes_epoch(r->metrics);
    sgrad_ranks_broadcast(&owed, sizeof owed, 0);
    if (owed) {                         /* the run was ended between an epoch and its evaluation */
        error = end_epoch(r, done);
    } else if (done >= r->steps) {      /* a finished run, resumed: no step of this process has a loss */
        r->result.train_loss = NAN;
        error = sgrad__run_evaluate(r);
    }
    if (!error && r->stopping) return stop_early(r, done);
    while (done < r->steps && !error) {
        long before = done;
        if (done == r->trace_first - 1) sgrad_trace_begin();
        error = turn(r, &done);
        int failed = sgrad_wait_all();
        if (done == r->trace_last) sgrad_trace_end();
        if (!failed && (!error || r->together)) failed = sgrad__server_settle(r);
        if (!error) error = failed;
        if (error) break;
        if (r->stopping && done < r->steps) return stop_early(r, done);
        if (checkpoint_is_due(r, done)) error = save_checkpoint(r, done);
        if (!error && done > before && (done % r->steps_per_epoch == 0 || done == r->steps)) error = end_epoch(r, done);
        if (!error && r->stopping) return stop_early(r, done);
    }
    r->result.steps = done;
    r->result.epochs = (double)done / (double)r->steps_per_epoch;
    return error;
}

static int open_metrics(struct sgrad__run *r, long done, FILE *terminal) {
    const struct sgrad__position position = position_of(r, done);
    return sgrad__metrics_open(&(struct sgrad__metrics_options){ .folder = r->folder,
                                                                 .terminal = terminal,
                                                                 .tensorboard = r->options.tensorboard,
                                                                 .prometheus = r->options.prometheus,
                                                                 .workers = r->workers,
                                                                 .metric = r->metric,
                                                                 .metrics = r->result.metrics,
                                                                 .samples = sgrad_dataset_image(r->train) ? "images" : "samples",
                                                                 .batch = r->options.batch,
                                                                 .steps = r->steps,
                                                                 .epochs = (double)r->steps / (double)r->steps_per_epoch,
                                                                 .resumed = r->options.resume ? &position : NULL },
                               &r->metrics);
}

/* A loss can be a number, and the run lost all the same. In its last epoch a network should do better than a guess that gives all
 * classes the same chance, on the training set or on the test set. Far worse, it has diverged; a little worse, it may just have
 * begun, but not after many steps, by which it still guesses. Only rank 0 knows. */
static void warn_of_loss(const struct sgrad__run *r) {
    const struct sgrad_train_result end = sgrad__run_result(r), *result = &end;
    const double guess = log(r->train->classes), far = ROUGH * guess;
    const bool guesses = result->steps >= ENOUGH && result->test_top1 * r->train->classes <= CHANCE;
    const double limit = guesses ? guess : far;
    char train[SGRAD_NUMBER_TEXT], test[SGRAD_NUMBER_TEXT], guessed[SGRAD_NUMBER_TEXT];
    if (r->context->rank || r->peak == 0 || r->train->classes < 2 || isnan(result->test_top1)) return;
    if (!(result->train_loss > limit && result->test_loss > limit)) return;
    sgrad_warn("the loss ends at %s, and at %s on the test set; a constant guess has %s: the run has %s",
               sgrad_number_text(result->train_loss, train), sgrad_number_text(result->test_loss, test),
               sgrad_number_text(guess, guessed),
               result->train_loss > far && result->test_loss > far ? "diverged; a lower --lr, --clip-norm or --warmup may help"
                                                                   : "learned nothing; another --lr may help");
}

static int save_weights(struct sgrad__run *r) {
    char *path = sgrad_format("%s/model.safetensors", r->folder);
    int error = sgrad__weights_save(r->graph, path, false, NULL, 0);
    free(path);
    return error;
}

static int train_run(struct sgrad__run *r) {
    FILE *terminal = r->options.json ? stderr : stdout;
    long done = 0;
    SGRAD_TRY(sgrad__run_open_training(r));
    if (!r->options.print) SGRAD_TRY(sgrad__run_open_folder(r, &done));
    sgrad__run_tell_idle(r);
    if (r->context->rank == 0) sgrad__run_print(r, terminal);
    if (r->options.print && r->context->rank == 0) {
        sgrad__graph_print(r->graph, stdout);
        sgrad__program_print(r->program, stdout);
    }
    if (r->options.print) return 0;
    if (done >= r->steps && r->context->rank == 0)
        fprintf(terminal, "%ld %s of this run are done already, and %ld asked for\n", done, sgrad_plural(done, "step", "steps"),
                r->steps);
    SGRAD_TRY(sgrad__run_open_runner(r, done));
    SGRAD_TRY(
        sgrad__run_await(r, r->context->rank ? 0 : open_metrics(r, done, terminal), "for rank 0, which reads metrics.jsonl"));
    SGRAD_TRY(train(r, done));
    warn_of_loss(r);
    if (r->strategy->served) sgrad__run_print_staleness(r, terminal);
    if (r->options.trace) SGRAD_TRY(sgrad__roof_write(r));
    SGRAD_TRY(sgrad__run_agree(r, 0));
    int error = r->context->rank ? 0 : save_weights(r);
    SGRAD_TRY(sgrad__run_await(r, error ? error : r->unwritten, "for rank 0, which writes the weights"));
    sgrad_ranks_broadcast(&r->result, sizeof r->result, 0);
    return 0;
}

int sgrad_train(const struct sgrad_train_options *options, struct sgrad_train_result *result) {
    struct sgrad__run *r = sgrad_alloc(1, sizeof *r);
    r->options = *options;
    sgrad__signals_watch();
    int error = train_run(r);
    sgrad__signals_unwatch();
    if (error && !r->together) sgrad_ranks_abort(1);
    if (!error) {
        *result = sgrad__run_result(r);
        result->folder = r->folder;
        r->folder = NULL;
    }
    sgrad__run_close(r);
    free(r);
    return error;
}

