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
#define MEASURED 16 /* steps after which the durations of tasks are known: StarPU needs ten measurements of each */
#define CHANCE 1.5  /* times the accuracy of the guess; less counts as chance */

/* ---- training ---- */

/* An error that all ranks return, and that rank 0 logs. */
#define COMMON_ERROR(r, error, ...) \
    ((r)->control.together = true, (r)->context->rank ? (error) : sgrad_log_error(error, __VA_ARGS__))

/* Waits for the newest checkpoint. If it could not be written, all ranks get the error. */
static int end_checkpoint(struct sgrad__run *run) {
    const int error = sgrad__checkpoint_end(run->files.checkpoint);
    run->files.checkpoint = NULL;
    return sgrad__run_await(run, error, "for rank 0, which writes a checkpoint");
}

/* Starts a checkpoint after the previous one has been written. A rank whose kernel has failed has still sent its messages,
 * with invalid data; therefore nothing is written before all ranks have reached this step without errors. */
static int begin_checkpoint(struct sgrad__run *run, long done) {
    if (run->files.last_checkpoint == done) return 0;
    const struct sgrad__position position = sgrad__run_position(run, done);
    SGRAD_TRY(end_checkpoint(run));
    const int failed = sgrad_failure_error(run->program->failure);
    SGRAD_TRY(sgrad__run_agree(run, failed ? failed : sgrad_task_error()));
    int error = sgrad__run_gather(run, true, run->context->rank == 0);
    if (!error && run->context->rank == 0)
        error = sgrad__checkpoint_begin(run->training, run->files.folder, &position, run->files.identity,
                                        run->options.checkpoint.keep, &run->files.checkpoint);
    sgrad__training_free_wholes(run->training);
    SGRAD_TRY(error);
    run->files.last_checkpoint = done;
    sgrad__deadline_checkpoint(run);
    if (run->options.checkpoint.keep == 1) run->files.good_checkpoint = 0;   /* the new checkpoint replaces the good one */
    return 0;
}

static int end_evaluation(struct sgrad__run *r, long done);

/* Starts the evaluation of an epoch whose steps have ended; later steps run concurrently. If the evaluation may end the run, or
 * memory is limited, no step follows before it has ended. */
static int begin_evaluation(struct sgrad__run *run, long done) {
    run->evaluation.epoch = (struct sgrad__epoch){ .step = done, .epoch = (double)done / (double)run->steps_per_epoch };
    run->evaluation.epoch.memory = 1e-6 * (double)sgrad_tensors_peak_bytes();
    sgrad__metrics_steps(run->files.metrics, &run->evaluation.epoch);
    if (done >= run->steps) SGRAD_TRY(sgrad__run_see_views(run));
    if (run->evaluation.views.count) run->evaluation.epoch.views = run->options.evaluation.tta;
    SGRAD_TRY(sgrad__evaluation_begin(run));
    const bool waits = sgrad__best_may_end(run) || run->control.waits_for_epoch_event || run->evaluation.alone;
    return waits ? end_evaluation(run, done) : 0;
}

/* Takes the value that the function of the program returned after STEP, unless it was the last one. */
static void take_event_status(struct sgrad__run *run, long step) {
    if (step < run->steps) run->control.event_status = sgrad__metrics_event_status(run->files.metrics);
}

/* Records the metrics of an epoch. No effect if the evaluation was cancelled because the run must end: the resumed run repeats
 * it. */
static void record_epoch(struct sgrad__run *run) {
    const struct sgrad__epoch *e = &run->evaluation.epoch;
    if (!e->evaluated) return;
    /* on all ranks, and before the line in metrics.jsonl, from which a resumed run reads the best evaluation */
    const int kept = sgrad__best_record(run);
    if (!run->files.error) run->files.error = kept ? kept : sgrad__metrics_epoch(run->files.metrics, e);
    take_event_status(run, e->step);
    run->result.train_loss = e->train_loss;
    run->result.seconds += e->seconds;
    run->result.samples_per_second = e->samples_per_second;
}

static int advance_evaluation(struct sgrad__run *run) {
    if (!run->evaluation.active) return 0;
    SGRAD_TRY(sgrad__evaluation_advance(run));
    if (!run->evaluation.active) record_epoch(run);
    return 0;
}

/* Waits for the evaluation. It can be cancelled only if no step has followed, so that the checkpoint of the end of the run
 * belongs to its step. */
static int end_evaluation(struct sgrad__run *run, long done) {
    if (run->evaluation.active) {
        SGRAD_TRY(sgrad__evaluation_end(run, run->evaluation.epoch.step == done));
        record_epoch(run);
    }
    double ends = run->files.error || run->control.event_status;
    sgrad_ranks_sum(&ends, 1);
    if (ends > 0 || run->best.stop) run->control.stopping = true;
    return 0;
}

static int stop_for_nan(struct sgrad__run *run, long step, double loss) {
    const char *is = isnan(loss) ? "not a number" : "infinite";
    const char *help = "lower --lr, or add --clip-norm or --warmup; --nan-ok continues such a run";
    if (sgrad__checkpoint_end(run->files.checkpoint)) run->files.good_checkpoint = 0;
    run->files.checkpoint = NULL;
    if (run->files.good_checkpoint > 0)
        return COMMON_ERROR(run, SGRAD_ENAN,
                            "step %ld: the loss is %s; the last good checkpoint is %s/checkpoint-%ld.safetensors (%s)", step, is,
                            run->files.folder, run->files.good_checkpoint, help);
    return COMMON_ERROR(run, SGRAD_ENAN, "step %ld: the loss is %s, and there is no good checkpoint yet (%s)", step, is, help);
}

static const char *reason_to_stop(const struct sgrad__run *run) {
    const int signal = sgrad__signal_caught();
    if (run->files.error) return "the metrics cannot be written";
    if (signal) return strsignal(signal);
    if (run->control.event_status) return "the program ended the run";
    return sgrad__deadline_stops(run) ? sgrad__deadline_text(run) : "another rank stopped";
}

/* Ends the run with a checkpoint. Only rank 0 logs the reason; other ranks may not know it. */
static int interrupt(struct sgrad__run *run, long done) {
    const int error = run->files.error ? run->files.error : SGRAD_EINTR;
    const char *why = reason_to_stop(run);
    if (done == 0) return COMMON_ERROR(run, error, "%s: stopped before the first step", why);
    const int failed = begin_checkpoint(run, done);
    if (failed && !run->control.together) return failed;
    SGRAD_TRY(end_evaluation(run, done));
    SGRAD_TRY(failed);
    SGRAD_TRY(end_checkpoint(run));
    char *again = sgrad__run_again_text(run);
    const int status =
        COMMON_ERROR(run, error, "%s: stopped after step %ld; checkpoint written; continue with %s", why, done, again);
    free(again);
    return status;
}

static bool evaluation_is_due(const struct sgrad__run *run, long done) {
    const long every = run->options.evaluation.every;
    if (run->options.evaluation.only_last) return done >= run->steps;
    return done % run->steps_per_epoch == 0 || done >= run->steps || (every && done % every == 0);
}

static bool checkpoint_is_due(const struct sgrad__run *run, long done) {
    const long every = run->options.checkpoint.every * (run->options.checkpoint.in_steps ? 1 : run->steps_per_epoch);
    if (run->control.pausing || (run->options.checkpoint.seconds > 0 && done == run->steps)) return true;
    return every > 0 && (done % every == 0 || done == run->steps);
}

/* Returns the step at which the steps in flight must end: evaluations and checkpoints need consistent weights, and StarPU's
 * traces must not start while tasks run. */
static long next_stop(const struct sgrad__run *run, long done) {
    const long every = run->options.checkpoint.in_steps ? run->options.checkpoint.every : 0,
               evaluate = run->options.evaluation.every;
    long stops[] = { sgrad__run_next_freeze(run, done), (done / run->steps_per_epoch + 1) * run->steps_per_epoch,
                     every ? (done / every + 1) * every : 0, evaluate ? (done / evaluate + 1) * evaluate : 0,
                     run->options.output.trace.first - 1, run->options.output.trace.last, run->batch.fixed_until,
                     run->snapshots.next };
    long next = run->steps;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] > done && stops[i] < next) next = stops[i];
    return next;
}

/* Returns the mean of each metric over the samples of the step; NAN for those that only evaluations have. */
static const double *slot_means(const struct sgrad__run *run, const struct sgrad__slot *slot, double mean[SGRAD_MAX_METRICS]) {
    const double *sum = sgrad__slot_doubles(slot, run->program->statistics);
    for (int i = 0; i < run->result.metrics; i++) mean[i] = i < run->loss_metrics ? sum[i] / sum[run->loss_metrics] : NAN;
    return mean;
}

/* Returns true if the loss excludes all targets of the step, so that the step has no loss. */
static bool is_empty(const struct sgrad__run *run, const struct sgrad__slot *slot) {
    return sgrad__slot_doubles(slot, run->program->statistics)[run->loss_metrics] == 0;
}

/* Records a completed step. If that fails, the run ends with a checkpoint, as if its end had been requested. */
static void record_step(struct sgrad__run *run, const struct sgrad__slot *slot, long done, double loss) {
    const struct sgrad__program *p = run->program;
    const double *votes = sgrad__slot_doubles(slot, p->votes);
    double mean[SGRAD_MAX_METRICS];
    for (int i = 0; i < p->histograms; i++) {
        const struct sgrad__output *output = &p->output[p->histogram[i]];
        if (sgrad__takes_part(output->when, done))
            sgrad__metrics_histogram(run->files.metrics, p->buffer[output->buffer].name, done, slot->output[p->histogram[i]]);
    }
    const struct sgrad__step_event event = { done, (int)slot->step.epoch, loss, sgrad__run_lr(run, done - 1), slot->time,
                                             slot_means(run, slot, mean), votes ? votes + 1 : NULL, is_empty(run, slot),
                                             slot->overdue ? &slot->moves : NULL };
    const int error = run->files.error ? 0 : sgrad__metrics_step(run->files.metrics, &event);
    if (error) run->files.error = error;
    take_event_status(run, done);
}

/* Ends the run on all ranks after the same step. Steps in flight that have changed weights or states on one of the ranks are
 * completed on all; the others are cancelled. */
static void end_together(struct sgrad__run *run) {
    if (!run->control.stopping && !run->parallel.server) {
        const int here = sgrad__runner_hold(run->runner);
        sgrad__runner_release(run->runner, -sgrad_ranks_least(-here));
    }
    run->control.stopping = true;
}

/* Runs steps until the next stop; *DONE counts the completed ones. All ranks end after the same step. Each step carries a vote,
 * which all ranks receive when it ends: to end the run, or, from rank 0, to write a checkpoint that is due by the clock. After
 * such a vote, or a loss that is NaN or infinite, a rank still runs the steps that are promised at that time, and no others. If
 * the end is requested, steps in flight that have changed nothing are cancelled.
 *
 * The promised steps of servers: a rank can push the gradients of a step when all others have started the step WINDOW before it,
 * which they do when the step WINDOW before that one has ended. Therefore servers are promised twice as many steps. */
static int turn(struct sgrad__run *run, long *done) {
    const long window = sgrad__run_steps_in_flight(run), ahead = run->parallel.server ? 2 * window + 1 : window;
    long stop = next_stop(run, *done), next = *done, promised = next;
    int error = 0;
    while (*done < stop) {
        if (run->context->ranks == 1 && sgrad__run_is_asked(run)) run->control.stopping = true;
        if (run->context->ranks == 1 && sgrad__deadline_wants_checkpoint(run, *done)) run->control.pausing = true;
        if (run->control.stopping || run->control.pausing) stop = promised;
        else promised = *done + ahead < stop ? *done + ahead : stop;
        sgrad__server_expect(run->parallel.server, promised, stop);
        while (next < promised && next - *done < window) {
            sgrad__metrics_submitted(run->files.metrics);
            SGRAD_TRY(sgrad__run_submit(run, next++));
        }
        SGRAD_TRY(advance_evaluation(run));
        if (next == *done) break;       /* the run must end, and all steps have ended */
        const struct sgrad__slot *slot;
        SGRAD_TRY(sgrad__runner_wait(run->runner, &slot));
        if (slot->cancelled) {      /* so are all later steps */
            run->control.stopping = true;
            for (long behind = *done + 1; behind < next; behind++) SGRAD_TRY(sgrad__runner_wait(run->runner, &slot));
            break;
        }
        sgrad__deadline_step(run, slot->time);
        sgrad__snapshot_step(run, slot->time);
        const double *statistics = sgrad__slot_doubles(slot, run->program->statistics);
        const double *votes = sgrad__slot_doubles(slot, run->program->votes);
        const double loss = statistics[0] / statistics[run->loss_metrics];
        ++*done;
        if (error) continue;
        record_step(run, slot, *done, loss);
        if (votes && *votes >= 1) end_together(run);
        else if (votes && *votes > 0) run->control.pausing = true;
        if (isfinite(loss)) run->files.good_checkpoint = run->files.last_checkpoint;
        else if (!run->options.training.nan_ok && !is_empty(run, slot))
            run->control.stopping = true, error = stop_for_nan(run, *done, loss);
    }
    return error;
}

/* Evaluates a finished run that is resumed. The training loss is NaN, because this process runs no steps. */
static int evaluate_again(struct sgrad__run *run) {
    run->result.train_loss = NAN;
    SGRAD_TRY(sgrad__run_see_views(run));
    SGRAD_TRY(sgrad__evaluation_begin(run));
    return sgrad__evaluation_end(run, true);
}

/* Waits until no task is running, because StarPU's traces must start and end then. */
static int come_to_rest(struct sgrad__run *run, long done) {
    SGRAD_TRY(end_evaluation(run, done));
    return sgrad_wait_all();
}

/* Builds another program for the steps that follow. */
static int begin_anew(struct sgrad__run *run, long done) {
    SGRAD_TRY(come_to_rest(run, done));
    SGRAD_TRY(sgrad__run_agree(run, sgrad_task_error()));
    return sgrad__run_reopen_program(run, done);
}

/* Fixes the division of the batch between CPUs and GPUs for STEPS steps, if any rank has one; the stops must be the same on
 * all ranks. It is never corrected if the optimizer stores data of layers, or if gradients are not applied by the ranks that
 * compute them (strategies other than sync). */
static void fix_shares(struct sgrad__run *run, long done, long steps) {
    double shared = sgrad__run_is_shared(run) && !strcmp(run->parallel.strategy->name, "sync") && !run->training->hooks;
    sgrad_ranks_sum(&shared, 1);
    run->batch.fixed_steps = steps;
    run->batch.fixed_until = shared > 0 ? done + steps : 0;
}

/* Corrects the division of the batch between CPUs and GPUs. Collective: if one rank corrects its division, all of them rebuild
 * their programs. The next division is fixed for twice as many steps, so that the divisions converge. */
static int correct_shares(struct sgrad__run *run, long done) {
    if (!run->batch.fixed_until || done < run->batch.fixed_until) return 0;
    const bool mine = sgrad__run_correct_shares(run);
    double corrected = mine;
    sgrad_ranks_sum(&corrected, 1);
    if (corrected == 0) return 0;
    fix_shares(run, done, 2 * run->batch.fixed_steps);
    SGRAD_TRY(begin_anew(run, done));
    if (!mine) return 0;
    char *samples = sgrad__micros_text(run->program);
    char *line = sgrad_format("shares     from step %ld, by measured task times: micro-batches of %s", done + 1, samples);
    sgrad__metrics_say(run->files.metrics, line);
    free(samples);
    free(line);
    return 0;
}

/* Runs the steps until the next stop, and then starts the checkpoint or the evaluation that is due there. (A rank must not
 * wait for all of its tasks here: they include those of the evaluation, for which other ranks may wait.) */
static int stretch(struct sgrad__run *run, long *done) {
    const long before = *done;
    SGRAD_TRY(correct_shares(run, before));
    if (sgrad__run_freezes(run, before)) SGRAD_TRY(begin_anew(run, before));
    if (before == run->options.output.trace.first - 1) {
        SGRAD_TRY(come_to_rest(run, before));
        sgrad_trace_begin();
    }
    const int error = turn(run, done);
    if (error && !run->control.together) return error;
    if (*done == run->options.output.trace.last) {
        SGRAD_TRY(come_to_rest(run, *done));
        sgrad_trace_end();
    }
    SGRAD_TRY(sgrad__server_settle(run));
    if (!error && run->control.stopping && *done < run->steps) return 0;
    SGRAD_TRY(end_evaluation(run, *done));
    if (error) return error;
    if (checkpoint_is_due(run, *done)) SGRAD_TRY(begin_checkpoint(run, *done));
    if (sgrad__snapshot_is_due(run, *done)) SGRAD_TRY(sgrad__snapshot_begin(run, *done));
    run->control.pausing = false;
    if (*done == before || !evaluation_is_due(run, *done)) return 0;
    return begin_evaluation(run, *done);
}

/* Returns true if early stopping has ended the run. All ranks know this after the same evaluation; only rank 0 knows if it
 * could not record the metrics, so that this is summed over all ranks. */
static bool is_ended_by_early_stopping(struct sgrad__run *run) {
    double unwritten = run->files.error != 0;
    sgrad_ranks_sum(&unwritten, 1);
    return run->best.stop && unwritten == 0;
}

/* Returns true if the program has ended the run after step DONE, and nothing else ends it. Collective. */
static bool is_ended_by_program(const struct sgrad__run *run, long done) {
    const bool other = run->files.error || sgrad__signal_caught() || run->control.event_status < 0;
    double ends[] = { run->control.event_status > 0, other };
    sgrad_ranks_sum(ends, 2);
    return done > 0 && ends[0] > 0 && ends[1] == 0;
}

/* Ends such a run: step DONE becomes its last one. */
static int end_here(struct sgrad__run *run, long done) {
    run->steps = done;
    run->control.stopping = false;
    run->control.event_status = 0;
    SGRAD_TRY(end_evaluation(run, done));
    if (checkpoint_is_due(run, done)) SGRAD_TRY(begin_checkpoint(run, done));
    const bool evaluated = run->evaluation.epoch.step == done && run->evaluation.epoch.evaluated;
    return evaluated ? 0 : begin_evaluation(run, done);
}

static int train(struct sgrad__run *run, long done) {
    run->control.waits_for_epoch_event = run->options.output.events.epoch != NULL;
    sgrad_ranks_broadcast(&run->control.waits_for_epoch_event, sizeof run->control.waits_for_epoch_event, 0);
    SGRAD_TRY(sgrad__best_open(run, done));
    fix_shares(run, done, MEASURED);
    bool pending = sgrad__metrics_epoch_is_pending(run->files.metrics);
    sgrad_ranks_broadcast(&pending, sizeof pending, 0);
    /* the run was interrupted between the end of an epoch and its evaluation */
    if (pending) SGRAD_TRY(begin_evaluation(run, done));
    else if ((done >= run->steps || run->best.stop) && run->best.step) run->result.train_loss = NAN;
    else if (done >= run->steps || run->best.stop) SGRAD_TRY(evaluate_again(run));
    while (done < run->steps && !run->control.stopping) SGRAD_TRY(stretch(run, &done));
    if (run->control.stopping && is_ended_by_program(run, done)) SGRAD_TRY(end_here(run, done));
    if (!run->control.stopping) SGRAD_TRY(end_evaluation(run, done));
    if (run->control.stopping && !is_ended_by_early_stopping(run)) return interrupt(run, done);
    const bool keeps = run->options.checkpoint.every > 0 || run->options.checkpoint.seconds > 0;
    if (run->control.stopping && done > 0 && keeps) SGRAD_TRY(begin_checkpoint(run, done));
    SGRAD_TRY(end_evaluation(run, done));   /* some ranks may not have recorded it yet */
    SGRAD_TRY(end_checkpoint(run));
    run->result.steps = done;
    run->result.epochs = (double)done / (double)run->steps_per_epoch;
    sgrad__best_take(run);
    return 0;
}

static int open_metrics(struct sgrad__run *run, long done, FILE *terminal) {
    const struct sgrad__position position = sgrad__run_position(run, done);
    return sgrad__metrics_open(&(struct sgrad__metrics_options){ .folder = run->files.folder,
                                                                 .terminal = run->options.output.quiet ? NULL : terminal,
                                                                 .tensorboard = run->options.output.tensorboard,
                                                                 .prometheus = run->options.output.prometheus,
                                                                 .workers = run->files.workers,
                                                                 .events = &run->options.output.events,
                                                                 .metric = run->metric,
                                                                 .metrics = run->result.metrics,
                                                                 .main = run->result.main,
                                                                 .samples = sgrad__run_samples(run),
                                                                 .batch = run->options.training.batch,
                                                                 .steps = run->steps,
                                                                 .evaluate_every = run->options.evaluation.every,
                                                                 .evaluate_last = run->options.evaluation.only_last,
                                                                 .epochs = (double)run->steps / (double)run->steps_per_epoch,
                                                                 .resumed = run->options.checkpoint.resume ? &position : NULL },
                               &run->files.metrics);
}

/* Warns if the loss is finite but the run has failed. In the last epoch a network should be better than a guess with equal
 * probabilities for all classes, on the training or on the test set. If its loss is far larger, training has diverged. If it
 * is slightly larger, training may have just started, but not if many steps have been run and the accuracy is still that of a
 * guess. Only rank 0 has the metrics. */
static void warn_of_loss(const struct sgrad__run *run) {
    const struct sgrad_train_result end = sgrad__run_result(run), *result = &end;
    const double guess = log(run->data.train->classes), far = ROUGH * guess;
    const bool guesses = result->steps >= ENOUGH && result->test_top1 * run->data.train->classes <= CHANCE;
    const double limit = guesses ? guess : far;
    char train[SGRAD_NUMBER_TEXT], test[SGRAD_NUMBER_TEXT], guessed[SGRAD_NUMBER_TEXT];
    if (run->context->rank || run->update.peak_lr == 0 || run->data.train->classes < 2 || isnan(result->test_top1)) return;
    if (!(result->train_loss > limit && result->test_loss > limit)) return;
    sgrad_log_warning("the final loss is %s in training and %s on the test set, but a constant guess has a loss of %s: the run "
                      "has %s",
                      sgrad_number_text(result->train_loss, train), sgrad_number_text(result->test_loss, test),
                      sgrad_number_text(guess, guessed),
                      result->train_loss > far && result->test_loss > far ? "diverged; lower --lr, or add --clip-norm or --warmup"
                                                                          : "learned nothing; try another --lr");
}

/* Saves the weights of the best evaluation if they are available, else those of the last step. */
static int save_weights(struct sgrad__run *run) {
    char *path = sgrad_format("%s/model.safetensors", run->files.folder);
    int error = run->best.step ? sgrad__best_copy(run, path)
                             : sgrad__run_save_weights(run, sgrad__training_list(run->training, false), NULL, path, NULL, 0);
    free(path);
    return error;
}

static int train_run(struct sgrad__run *run) {
    FILE *terminal = run->options.output.json ? stderr : stdout;
    long done = 0;
    SGRAD_TRY(sgrad__run_open_training(run));
    if (!run->options.output.print) SGRAD_TRY(sgrad__run_open_folder(run, &done));
    sgrad__run_warn_unused(run);
    const bool prints = run->context->rank == 0 && (!run->options.output.quiet || run->options.output.print);
    if (prints) sgrad__run_print(run, terminal);
    if (run->options.output.show_batch)
        return sgrad__run_agree(run, run->context->rank ? 0 : sgrad__run_show_batch(run, terminal));
    if (run->options.output.print && run->context->rank == 0) {
        sgrad__graph_print(run->graph, stdout);
        sgrad__program_print(run->program, stdout);
    }
    if (run->options.output.print) return 0;
    if (done >= run->steps && prints)
        fprintf(terminal, "this run has already completed %ld %s; requested: %ld\n", done,
                sgrad_plural(done, "step", "steps"), run->steps);
    SGRAD_TRY(sgrad__run_agree(run, sgrad__deadline_open(run)));
    SGRAD_TRY(sgrad__run_open_runner(run, done));
    SGRAD_TRY(sgrad__run_await(run, run->context->rank ? 0 : open_metrics(run, done, terminal),
                               "for rank 0, which reads metrics.jsonl"));
    SGRAD_TRY(train(run, done));
    sgrad__throughput_keep(run);
    if (prints) sgrad__best_print(run, run->result.steps, terminal);
    warn_of_loss(run);
    if (run->parallel.strategy->asynchronous) sgrad__run_print_staleness(run, terminal);
    if (run->options.output.trace.first) SGRAD_TRY(sgrad__roof_write(run));
    SGRAD_TRY(sgrad__run_agree(run, 0));
    int error = sgrad__run_gather(run, false, run->context->rank == 0);
    if (!error && run->context->rank == 0) error = save_weights(run);
    sgrad__training_free_wholes(run->training);
    SGRAD_TRY(sgrad__run_await(run, error ? error : run->files.error, "for rank 0, which writes the weights"));
    sgrad_ranks_broadcast(&run->result, sizeof run->result, 0);
    return 0;
}

int sgrad_train(const struct sgrad_train_options *options, struct sgrad_train_result *result) {
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    r->options = *options;
    sgrad__signals_watch();
    int error = train_run(r);
    sgrad__signals_unwatch();
    sgrad__snapshots_end(r, !error || error == SGRAD_EINTR);
    if (error && !r->control.together) sgrad_ranks_abort(1);
    if (!error) {
        *result = sgrad__run_result(r);
        result->folder = r->files.folder;
        r->files.folder = NULL;
    }
    sgrad__run_close(r);
    free(r);
    return error;
}

