/* train.c: the training loop.
 *
 *     step                submit steps until the maximum number is in flight; wait for the oldest one; record its loss
 *     end of an epoch     start a checkpoint and an evaluation, which run concurrently with the steps that follow
 *     end of the run      save the final weights
 *
 * A checkpoint of a later step is not started before the evaluation has ended and its results are recorded. A run that is resumed
 * from that checkpoint therefore does not have to repeat the evaluation. */
#include "datasets/datasets.h"
#include "graphs/train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* times the loss of a constant guess; a larger loss means divergence (measured: vgg16 starts with up to 3.7) */
#define ROUGH  4
#define ENOUGH 100  /* steps after which a network that learns is better than the guess */
#define SETTLED 16  /* steps after which the durations of tasks are known: StarPU needs ten measurements of each */
#define CHANCE 1.5  /* times the accuracy of the guess; less counts as chance */

/* ---- training ---- */

#define SAY(r, error, ...) ((r)->together = true, (r)->context->rank ? (error) : sgrad_log_error(error, __VA_ARGS__))

static struct sgrad__position position_of(const struct sgrad__run *r, long done) {
    return (struct sgrad__position){ .step = done,
                                     .epoch = (int)(done / r->steps_per_epoch),
                                     .step_in_epoch = done % r->steps_per_epoch,
                                     .seed = r->options.seed };
}

/* Waits for the newest checkpoint. If it could not be written, all ranks get the error. */
static int end_checkpoint(struct sgrad__run *r) {
    const int error = sgrad__checkpoint_end(r->checkpoint);
    r->checkpoint = NULL;
    return sgrad__run_await(r, error, "for rank 0, which writes a checkpoint");
}

/* Starts a checkpoint after the previous one has been written. A rank whose kernel has failed has still sent its messages,
 * with invalid data; therefore nothing is written before all ranks have reached this step without errors. */
static int begin_checkpoint(struct sgrad__run *r, long done) {
    if (r->last_checkpoint == done) return 0;
    const struct sgrad__position position = position_of(r, done);
    SGRAD_TRY(end_checkpoint(r));
    const int failed = sgrad_failure_error(r->program->failure);
    SGRAD_TRY(sgrad__run_agree(r, failed ? failed : sgrad_task_error()));
    int error = sgrad__run_gather(r, true);
    if (!error && r->context->rank == 0)
        error = sgrad__checkpoint_begin(r->training, r->folder, &position, r->identity, r->options.keep_checkpoints,
                                        &r->checkpoint);
    sgrad__training_free_wholes(r->training);
    SGRAD_TRY(error);
    r->last_checkpoint = done;
    sgrad__deadline_checkpoint(r);
    if (r->options.keep_checkpoints == 1) r->good_checkpoint = 0;   /* the new checkpoint replaces the good one */
    return 0;
}

static int end_evaluation(struct sgrad__run *r, long done);

/* Starts the evaluation of an epoch whose steps have ended; later steps run concurrently. If the evaluation may end the run,
 * no step follows before it has ended. */
static int begin_evaluation(struct sgrad__run *r, long done) {
    r->epoch = (struct sgrad__epoch){ .step = done, .epoch = (double)done / (double)r->steps_per_epoch };
    r->epoch.memory = 1e-6 * (double)sgrad_tensors_peak_bytes();
    sgrad__metrics_steps(r->metrics, &r->epoch);
    if (done >= r->steps) SGRAD_TRY(sgrad__run_see_views(r));
    if (r->views.count) r->epoch.views = r->options.tta;
    SGRAD_TRY(sgrad__evaluation_begin(r));
    return sgrad__best_may_end(r) ? end_evaluation(r, done) : 0;
}

/* Records the metrics of an epoch. No effect if the evaluation was cancelled because the run must end: the resumed run repeats
 * it. */
static void tell_epoch(struct sgrad__run *r) {
    const struct sgrad__epoch *e = &r->epoch;
    if (!e->evaluated) return;
    /* on all ranks, and before the line in metrics.jsonl, from which a resumed run reads the best evaluation */
    const int kept = sgrad__best_tell(r);
    if (!r->unwritten) r->unwritten = kept ? kept : sgrad__metrics_epoch(r->metrics, e);
    r->result.train_loss = e->train_loss;
    r->result.seconds += e->seconds;
    r->result.samples_per_second = e->samples_per_second;
}

static int turn_evaluation(struct sgrad__run *r) {
    if (!r->evaluates) return 0;
    SGRAD_TRY(sgrad__evaluation_turn(r));
    if (!r->evaluates) tell_epoch(r);
    return 0;
}

/* Waits for the evaluation. It can be cancelled only if no step has followed, so that the checkpoint of the end of the run
 * belongs to its step. */
static int end_evaluation(struct sgrad__run *r, long done) {
    if (r->evaluates) {
        SGRAD_TRY(sgrad__evaluation_end(r, r->epoch.step == done));
        tell_epoch(r);
    }
    double unwritten = r->unwritten != 0;
    sgrad_ranks_sum(&unwritten, 1);
    if (unwritten > 0 || r->enough) r->stopping = true;
    return 0;
}

static int stop_for_nan(struct sgrad__run *r, long step, double loss) {
    const char *is = isnan(loss) ? "not a number" : "infinite";
    const char *help = "a lower --lr, --clip-norm or --warmup may help; --nan-ok goes on";
    if (sgrad__checkpoint_end(r->checkpoint)) r->good_checkpoint = 0;
    r->checkpoint = NULL;
    if (r->good_checkpoint > 0)
        return SAY(r, SGRAD_ENAN, "step %ld: the loss is %s; the last good checkpoint is %s/checkpoint-%ld.safetensors (%s)",
                   step, is, r->folder, r->good_checkpoint, help);
    return SAY(r, SGRAD_ENAN, "step %ld: the loss is %s, before the first good checkpoint (%s)", step, is, help);
}

static const char *reason_to_stop(const struct sgrad__run *r) {
    const int signal = sgrad__signal_caught();
    if (r->unwritten) return "its metrics cannot be written";
    if (signal) return strsignal(signal);
    return sgrad__deadline_stops(r) ? sgrad__deadline_text(r) : "another rank was asked to end";
}

/* Ends the run with a checkpoint. Only rank 0 logs the reason; other ranks may not know it. */
static int stop_early(struct sgrad__run *r, long done) {
    const int error = r->unwritten ? r->unwritten : SGRAD_EINTR;
    const char *why = reason_to_stop(r);
    if (done == 0) return SAY(r, error, "%s: stopped before the first step", why);
    const int failed = begin_checkpoint(r, done);
    if (failed && !r->together) return failed;
    SGRAD_TRY(end_evaluation(r, done));
    SGRAD_TRY(failed);
    SGRAD_TRY(end_checkpoint(r));
    char *again = sgrad__run_again_text(r);
    const int status = SAY(r, error, "%s: stopped after step %ld; checkpoint written; continue with %s", why, done, again);
    free(again);
    return status;
}

static bool evaluation_is_due(const struct sgrad__run *r, long done) {
    const long every = r->options.evaluate_every;
    if (r->options.evaluate_last) return done >= r->steps;
    return done % r->steps_per_epoch == 0 || done >= r->steps || (every && done % every == 0);
}

static bool checkpoint_is_due(const struct sgrad__run *r, long done) {
    const long every = r->options.checkpoint_every * (r->options.checkpoint_in_steps ? 1 : r->steps_per_epoch);
    if (r->pausing || (r->options.checkpoint_seconds > 0 && done == r->steps)) return true;
    return every > 0 && (done % every == 0 || done == r->steps);
}

/* Returns the step at which the steps in flight must end: evaluations and checkpoints need consistent weights, and StarPU's
 * traces must not start while tasks run. */
static long next_stop(const struct sgrad__run *r, long done) {
    const long every = r->options.checkpoint_in_steps ? r->options.checkpoint_every : 0, evaluate = r->options.evaluate_every;
    long stops[] = { sgrad__run_next_freeze(r, done), (done / r->steps_per_epoch + 1) * r->steps_per_epoch,
                     every ? (done / every + 1) * every : 0, evaluate ? (done / evaluate + 1) * evaluate : 0,
                     r->options.trace.first - 1, r->options.trace.last, r->settled };
    long next = r->steps;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] > done && stops[i] < next) next = stops[i];
    return next;
}

/* Returns the mean of each metric over the samples of the step. */
static const double *slot_means(const struct sgrad__run *r, const struct sgrad__slot *slot, double mean[SGRAD_MAX_METRICS]) {
    const double *sum = sgrad__slot_doubles(slot, r->program->statistics);
    for (int i = 0; i < r->result.metrics; i++) mean[i] = sum[i] / sum[r->result.metrics];
    return mean;
}

/* Records a completed step. If that fails, the run ends with a checkpoint, as if its end had been requested. */
static void tell_step(struct sgrad__run *r, const struct sgrad__slot *slot, long done, double loss) {
    const struct sgrad__program *p = r->program;
    const double *votes = sgrad__slot_doubles(slot, p->votes);
    double mean[SGRAD_MAX_METRICS];
    for (int i = 0; i < p->histograms; i++) {
        const struct sgrad__output *output = &p->output[p->histogram[i]];
        if (sgrad__takes_part(output->when, done))
            sgrad__metrics_histogram(r->metrics, p->buffer[output->buffer].name, done, slot->output[p->histogram[i]]);
    }
    const struct sgrad__step_event event = { done, (int)slot->step.epoch, loss, sgrad__run_lr(r, done - 1), slot->time,
                                             slot_means(r, slot, mean), votes ? votes + 1 : NULL };
    const int error = r->unwritten ? 0 : sgrad__metrics_step(r->metrics, &event);
    if (error) r->unwritten = error;
}

/* Ends the run on all ranks after the same step. Steps in flight that have changed weights or states on one of the ranks are
 * completed on all; the others are cancelled. */
static void end_together(struct sgrad__run *r) {
    if (!r->stopping && !r->server) {
        const int here = sgrad__runner_hold(r->runner);
        sgrad__runner_release(r->runner, -sgrad_ranks_least(-here));
    }
    r->stopping = true;
}

/* Runs steps until the next stop; *DONE counts the completed ones. All ranks end after the same step. Each step carries a vote,
 * which all ranks receive when it ends: to end the run, or, from rank 0, to write a checkpoint that is due by the clock. After
 * such a vote, or a loss that is NaN or infinite, a rank still runs the steps that are promised at that time, and no others. If
 * the end is requested, steps in flight that have changed nothing are cancelled.
 *
 * The promised steps of servers: a rank can push the gradients of a step when all others have started the step WINDOW before it,
 * which they do when the step WINDOW before that one has ended. Therefore servers are promised twice as many steps. */
static int turn(struct sgrad__run *r, long *done) {
    const long window = sgrad__run_steps_in_flight(r), ahead = r->server ? 2 * window + 1 : window;
    long stop = next_stop(r, *done), next = *done, promised = next;
    int error = 0;
    while (*done < stop) {
        if (r->context->ranks == 1 && sgrad__run_is_asked(r)) r->stopping = true;
        if (r->context->ranks == 1 && sgrad__deadline_wants_checkpoint(r, *done)) r->pausing = true;
        if (r->stopping || r->pausing) stop = promised;
        else promised = *done + ahead < stop ? *done + ahead : stop;
        sgrad__server_expect(r->server, promised, stop);
        while (next < promised && next - *done < window) {
            sgrad__metrics_submitted(r->metrics);
            SGRAD_TRY(sgrad__run_submit(r, next++));
        }
        SGRAD_TRY(turn_evaluation(r));
        if (next == *done) break;       /* the run must end, and all steps have ended */
        const struct sgrad__slot *slot;
        SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
        if (slot->cancelled) {      /* so are all later steps */
            r->stopping = true;
            for (long behind = *done + 1; behind < next; behind++) SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
            break;
        }
        sgrad__deadline_step(r, slot->time);
        const double *statistics = sgrad__slot_doubles(slot, r->program->statistics);
        const double *votes = sgrad__slot_doubles(slot, r->program->votes);
        const double loss = statistics[0] / statistics[r->result.metrics];
        ++*done;
        if (error) continue;
        tell_step(r, slot, *done, loss);
        if (votes && *votes >= 1) end_together(r);
        else if (votes && *votes > 0) r->pausing = true;
        if (isfinite(loss)) r->good_checkpoint = r->last_checkpoint;
        else if (!r->options.nan_ok) r->stopping = true, error = stop_for_nan(r, *done, loss);
    }
    return error;
}

/* Evaluates a finished run that is resumed. The training loss is NaN, because this process runs no steps. */
static int evaluate_again(struct sgrad__run *r) {
    r->result.train_loss = NAN;
    SGRAD_TRY(sgrad__run_see_views(r));
    SGRAD_TRY(sgrad__evaluation_begin(r));
    return sgrad__evaluation_end(r, true);
}

/* Waits until no task is running, because StarPU's traces must start and end then. */
static int come_to_rest(struct sgrad__run *r, long done) {
    SGRAD_TRY(end_evaluation(r, done));
    return sgrad_wait_all();
}

/* Builds another program for the steps that follow. */
static int begin_anew(struct sgrad__run *r, long done) {
    SGRAD_TRY(come_to_rest(r, done));
    SGRAD_TRY(sgrad__run_agree(r, sgrad_task_error()));
    return sgrad__run_reopen_program(r, done);
}

/* Fixes the division of the batch between CPUs and GPUs for STEPS steps, if any rank has one; the stops must be the same on
 * all ranks. It is never corrected if the optimizer stores data of layers, or if gradients are not applied by the ranks that
 * compute them (strategies other than sync). */
static void settle(struct sgrad__run *r, long done, long steps) {
    double shared = sgrad__run_is_shared(r) && !strcmp(r->strategy->name, "sync") && !r->training->hooks;
    sgrad_ranks_sum(&shared, 1);
    r->settles = steps;
    r->settled = shared > 0 ? done + steps : 0;
}

/* Corrects the division of the batch between CPUs and GPUs. Collective: if one rank corrects its division, all of them rebuild
 * their programs. The next division is fixed for twice as many steps, so that the divisions converge. */
static int correct_shares(struct sgrad__run *r, long done) {
    if (!r->settled || done < r->settled) return 0;
    const bool mine = sgrad__run_correct_shares(r);
    double corrected = mine;
    sgrad_ranks_sum(&corrected, 1);
    if (corrected == 0) return 0;
    settle(r, done, 2 * r->settles);
    SGRAD_TRY(begin_anew(r, done));
    if (!mine) return 0;
    char *samples = sgrad__micros_text(r->program);
    char *line = sgrad_format("shares     from step %ld on, by what tasks have taken: micro-batches of %s", done + 1, samples);
    sgrad__metrics_say(r->metrics, line);
    free(samples);
    free(line);
    return 0;
}

/* Runs the steps until the next stop, and then starts the checkpoint or the evaluation that is due there. (A rank must not
 * wait for all of its tasks here: they include those of the evaluation, for which other ranks may wait.) */
static int stretch(struct sgrad__run *r, long *done) {
    const long before = *done;
    SGRAD_TRY(correct_shares(r, before));
    if (sgrad__run_freezes(r, before)) SGRAD_TRY(begin_anew(r, before));
    if (before == r->options.trace.first - 1) {
        SGRAD_TRY(come_to_rest(r, before));
        sgrad_trace_begin();
    }
    const int error = turn(r, done);
    if (error && !r->together) return error;
    if (*done == r->options.trace.last) {
        SGRAD_TRY(come_to_rest(r, *done));
        sgrad_trace_end();
    }
    SGRAD_TRY(sgrad__server_settle(r));
    if (!error && r->stopping && *done < r->steps) return 0;
    SGRAD_TRY(end_evaluation(r, *done));
    if (error) return error;
    if (checkpoint_is_due(r, *done)) SGRAD_TRY(begin_checkpoint(r, *done));
    r->pausing = false;
    if (*done == before || !evaluation_is_due(r, *done)) return 0;
    return begin_evaluation(r, *done);
}

/* Returns true if early stopping has ended the run. All ranks know this after the same evaluation; only rank 0 knows if it
 * could not record the metrics, so that this is summed over all ranks. */
static bool has_enough(struct sgrad__run *r) {
    double unwritten = r->unwritten != 0;
    sgrad_ranks_sum(&unwritten, 1);
    return r->enough && unwritten == 0;
}

static int train(struct sgrad__run *r, long done) {
    SGRAD_TRY(sgrad__best_open(r, done));
    settle(r, done, SETTLED);
    bool owed = sgrad__metrics_owes_epoch(r->metrics);
    sgrad_ranks_broadcast(&owed, sizeof owed, 0);
    /* the run was interrupted between the end of an epoch and its evaluation */
    if (owed) SGRAD_TRY(begin_evaluation(r, done));
    else if ((done >= r->steps || r->enough) && r->kept_step) r->result.train_loss = NAN;
    else if (done >= r->steps || r->enough) SGRAD_TRY(evaluate_again(r));
    while (done < r->steps && !r->stopping) SGRAD_TRY(stretch(r, &done));
    if (!r->stopping) SGRAD_TRY(end_evaluation(r, done));
    if (r->stopping && !has_enough(r)) return stop_early(r, done);
    const bool keeps = r->options.checkpoint_every > 0 || r->options.checkpoint_seconds > 0;
    if (r->stopping && done > 0 && keeps) SGRAD_TRY(begin_checkpoint(r, done));
    SGRAD_TRY(end_evaluation(r, done));     /* some ranks may not have recorded it yet */
    SGRAD_TRY(end_checkpoint(r));
    r->result.steps = done;
    r->result.epochs = (double)done / (double)r->steps_per_epoch;
    sgrad__best_take(r);
    return 0;
}

static int open_metrics(struct sgrad__run *r, long done, FILE *terminal) {
    const struct sgrad__position position = position_of(r, done);
    return sgrad__metrics_open(&(struct sgrad__metrics_options){ .folder = r->folder,
                                                                 .terminal = r->options.quiet ? NULL : terminal,
                                                                 .tensorboard = r->options.tensorboard,
                                                                 .prometheus = r->options.prometheus,
                                                                 .workers = r->workers,
                                                                 .metric = r->metric,
                                                                 .metrics = r->result.metrics,
                                                                 .samples = sgrad__run_samples(r),
                                                                 .batch = r->options.batch,
                                                                 .steps = r->steps,
                                                                 .evaluate_every = r->options.evaluate_every,
                                                                 .evaluate_last = r->options.evaluate_last,
                                                                 .epochs = (double)r->steps / (double)r->steps_per_epoch,
                                                                 .resumed = r->options.resume ? &position : NULL },
                               &r->metrics);
}

/* Warns if the loss is finite but the run has failed. In the last epoch a network should be better than a guess with equal
 * probabilities for all classes, on the training or on the test set. If its loss is far larger, training has diverged. If it
 * is slightly larger, training may have just started, but not if many steps have been run and the accuracy is still that of a
 * guess. Only rank 0 has the metrics. */
static void warn_of_loss(const struct sgrad__run *r) {
    const struct sgrad_train_result end = sgrad__run_result(r), *result = &end;
    const double guess = log(r->train->classes), far = ROUGH * guess;
    const bool guesses = result->steps >= ENOUGH && result->test_top1 * r->train->classes <= CHANCE;
    const double limit = guesses ? guess : far;
    char train[SGRAD_NUMBER_TEXT], test[SGRAD_NUMBER_TEXT], guessed[SGRAD_NUMBER_TEXT];
    if (r->context->rank || r->peak == 0 || r->train->classes < 2 || isnan(result->test_top1)) return;
    if (!(result->train_loss > limit && result->test_loss > limit)) return;
    sgrad_log_warning("the loss ends at %s, and at %s on the test set; a constant guess has %s: the run has %s",
                      sgrad_number_text(result->train_loss, train), sgrad_number_text(result->test_loss, test),
                      sgrad_number_text(guess, guessed),
                      result->train_loss > far && result->test_loss > far
                          ? "diverged; a lower --lr, --clip-norm or --warmup may help"
                          : "learned nothing; another --lr may help");
}

/* Saves the weights of the best evaluation if they are available, else those of the last step. */
static int save_weights(struct sgrad__run *r) {
    char *path = sgrad_format("%s/model.safetensors", r->folder);
    int error = r->kept_step ? sgrad__best_copy(r, path)
                             : sgrad__weights_save(sgrad__training_list(r->training, false), path, NULL, 0);
    free(path);
    return error;
}

/* Writes a picture of the first batch of all ranks, or of its first 256 samples. */
static int show_batch(struct sgrad__run *r, FILE *terminal) {
    enum { MOST = 256 };
    const int count = r->options.batch < MOST ? (int)r->options.batch : MOST;
    const struct sgrad_drawing how = { .seed = r->options.seed, .augmentations = r->train->drawn };
    struct sgrad_sample sample[MOST];
    struct sgrad__sampler order = sgrad__run_sampler(r);
    for (int i = 0; i < count; i++) sample[i] = sgrad__sampler_sample(&order, 0, i);
    sgrad__sampler_close(&order);
    SGRAD_TRY(sgrad_dataset_show(r->train, sample, count, &how, r->options.show_batch, terminal));
    fprintf(terminal, "the first %d of a batch as they go into training: %s\n", count, r->options.show_batch);
    return 0;
}

static int train_run(struct sgrad__run *r) {
    FILE *terminal = r->options.json ? stderr : stdout;
    long done = 0;
    SGRAD_TRY(sgrad__run_open_training(r));
    if (!r->options.print) SGRAD_TRY(sgrad__run_open_folder(r, &done));
    sgrad__run_warn_unused(r);
    const bool tells = r->context->rank == 0 && (!r->options.quiet || r->options.print);
    if (tells) sgrad__run_print(r, terminal);
    if (r->options.show_batch) return sgrad__run_agree(r, r->context->rank ? 0 : show_batch(r, terminal));
    if (r->options.print && r->context->rank == 0) {
        sgrad__graph_print(r->graph, stdout);
        sgrad__program_print(r->program, stdout);
    }
    if (r->options.print) return 0;
    if (done >= r->steps && tells)
        fprintf(terminal, "%ld %s of this run are done already, and %ld asked for\n", done, sgrad_plural(done, "step", "steps"),
                r->steps);
    SGRAD_TRY(sgrad__run_agree(r, sgrad__deadline_open(r)));
    SGRAD_TRY(sgrad__run_open_runner(r, done));
    SGRAD_TRY(
        sgrad__run_await(r, r->context->rank ? 0 : open_metrics(r, done, terminal), "for rank 0, which reads metrics.jsonl"));
    SGRAD_TRY(train(r, done));
    sgrad__throughput_keep(r);
    if (tells) sgrad__best_print(r, r->result.steps, terminal);
    warn_of_loss(r);
    if (r->strategy->asynchronous) sgrad__run_print_staleness(r, terminal);
    if (r->options.trace.first) SGRAD_TRY(sgrad__roof_write(r));
    SGRAD_TRY(sgrad__run_agree(r, 0));
    int error = sgrad__run_gather(r, false);
    if (!error && r->context->rank == 0) error = save_weights(r);
    sgrad__training_free_wholes(r->training);
    SGRAD_TRY(sgrad__run_await(r, error ? error : r->unwritten, "for rank 0, which writes the weights"));
    sgrad_ranks_broadcast(&r->result, sizeof r->result, 0);
    return 0;
}

int sgrad_train(const struct sgrad_train_options *options, struct sgrad_train_result *result) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
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

