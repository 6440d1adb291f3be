/* train.c: the training loop.
 *
 *     turn: submit steps until the window is full; wait for the oldest; write down its loss
 *     at the end of an epoch: begin a checkpoint and an evaluation, which go on beside the steps that follow
 *     at the end: the final weights
 *
 * A checkpoint of a later step is not begun before the evaluation is over, and told: what is continued from it owes nothing. */
#include "datasets/datasets.h"
#include "graphs/runs/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROUGH  4    /* times the loss of a constant guess: more is no rough beginning (measured: vgg16 has up to 3.7) */
#define ENOUGH 100  /* steps in which a network that learns is better than the guess */
#define SETTLED 16  /* steps after which what tasks take is known: StarPU wants ten of each */
#define CHANCE 1.5  /* times the guess's accuracy: less is chance */

/* ---- training ---- */

#define SAY(r, error, ...) ((r)->together = true, (r)->context->rank ? (error) : sgrad_fail(error, __VA_ARGS__))

static struct sgrad__position position_of(const struct sgrad__run *r, long done) {
    return (struct sgrad__position){ .step = done,
                                     .epoch = (int)(done / r->steps_per_epoch),
                                     .step_in_epoch = done % r->steps_per_epoch,
                                     .seed = r->options.seed };
}

/* The newest checkpoint is there, or all ranks know that it could not be written. */
static int end_checkpoint(struct sgrad__run *r) {
    const int error = sgrad__checkpoint_end(r->checkpoint);
    r->checkpoint = NULL;
    return sgrad__run_await(r, error, "for rank 0, which writes a checkpoint");
}

/* One at a time. A rank whose kernel has failed has sent what it had all the same: nothing is written before all have come so far
 * without. */
static int begin_checkpoint(struct sgrad__run *r, long done) {
    if (r->last_checkpoint == done) return 0;
    const struct sgrad__position position = position_of(r, done);
    SGRAD_TRY(end_checkpoint(r));
    const int failed = sgrad_failure_error(r->program->failure);
    SGRAD_TRY(sgrad__run_agree(r, failed ? failed : sgrad_task_error()));
    int error = sgrad__run_gather(r, true);
    if (!error && r->context->rank == 0)
        error = sgrad__checkpoint_begin(r->graph, r->folder, &position, r->identity, r->options.keep, &r->checkpoint);
    sgrad__wholes_free(r->graph);
    SGRAD_TRY(error);
    r->last_checkpoint = done;
    sgrad__deadline_checkpoint(r);
    if (r->options.keep == 1) r->good_checkpoint = 0;   /* it goes */
    return 0;
}

static int end_evaluation(struct sgrad__run *r, long done);

/* The epoch's steps are done, and are evaluated beside those that follow; but where the evaluation may be the one that ends the
 * run, no step follows before it is over. */
static int begin_evaluation(struct sgrad__run *r, long done) {
    r->epoch = (struct sgrad__epoch){ .step = done, .epoch = (double)done / (double)r->steps_per_epoch };
    r->epoch.memory = 1e-6 * (double)sgrad_tensors_most();
    sgrad__metrics_steps(r->metrics, &r->epoch);
    if (done >= r->steps) SGRAD_TRY(sgrad__run_see_views(r));
    if (r->views.count) r->epoch.views = r->options.tta;
    SGRAD_TRY(sgrad__evaluation_begin(r));
    return sgrad__best_may_end(r) ? end_evaluation(r, done) : 0;
}

/* The epoch is evaluated; or, where the run was asked to end, that is left to its continuation. */
static void tell_epoch(struct sgrad__run *r) {
    const struct sgrad__epoch *e = &r->epoch;
    if (!e->evaluated) return;
    const int kept = sgrad__best_tell(r);   /* on all ranks, and before the line of metrics: by it a resumed run knows the best */
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

/* It can be left only while no step has followed: the checkpoint will be of its step. */
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

/* Rank 0 knows more than the others of why: they are told that it was so. */
static int stop_early(struct sgrad__run *r, long done) {
    const int signal = sgrad__signal_caught(), error = r->unwritten ? r->unwritten : SGRAD_EINTR;
    const char *why = r->unwritten                ? "its metrics cannot be written"
                      : signal                    ? strsignal(signal)
                      : sgrad__deadline_stops(r)  ? sgrad__deadline_text(r)
                                                  : "another rank was asked to end";
    if (done == 0) return SAY(r, error, "%s: stopped before the first step", why);
    const int failed = begin_checkpoint(r, done);
    if (failed && !r->together) return failed;
    SGRAD_TRY(end_evaluation(r, done));
    SGRAD_TRY(failed);
    SGRAD_TRY(end_checkpoint(r));
    char *again = sgrad__run_again_text(r);
    const int said = SAY(r, error, "%s: stopped after step %ld; checkpoint written; continue with %s", why, done, again);
    free(again);
    return said;
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

/* Up to where steps may be in flight together: evaluations and checkpoints look at whole steps, and StarPU's traces may not
 * begin while tasks run. */
static long next_stop(const struct sgrad__run *r, long done) {
    const long every = r->options.checkpoint_in_steps ? r->options.checkpoint_every : 0, evaluate = r->options.evaluate_every;
    long stops[] = { sgrad__run_next_freeze(r, done), (done / r->steps_per_epoch + 1) * r->steps_per_epoch,
                     every ? (done / every + 1) * every : 0, evaluate ? (done / evaluate + 1) * evaluate : 0,
                     r->trace_first - 1, r->trace_last, r->settled };
    long next = r->steps;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] > done && stops[i] < next) next = stops[i];
    return next;
}

/* Of each metric over the step's samples. */
static const double *slot_means(const struct sgrad__run *r, const struct sgrad__slot *slot, double mean[SGRAD_MAX_METRICS]) {
    const double *sum = sgrad__slot_doubles(slot, r->program->statistics);
    for (int i = 0; i < r->result.metrics; i++) mean[i] = sum[i] / sum[r->result.metrics];
    return mean;
}

/* Writes down a step that is done. Where that cannot be, the run ends as if it were asked to, with a checkpoint. */
static void tell_step(struct sgrad__run *r, const struct sgrad__slot *slot, long done, double loss) {
    const struct sgrad__program *p = r->program;
    const double *votes = sgrad__slot_doubles(slot, p->votes);
    double mean[SGRAD_MAX_METRICS];
    for (int i = 0; i < p->histograms; i++) {
        const struct sgrad__output *output = &p->output[p->histogram[i]];
        if (sgrad__takes_part(output->when, done))
            sgrad__metrics_histogram(r->metrics, p->buffer[output->buffer].name, done, slot->output[p->histogram[i]]);
    }
    const struct sgrad__step_event event = { done, (int)slot->step.epoch, loss, sgrad__run_rate(r, done - 1), slot->time,
                                             slot_means(r, slot, mean), votes ? votes + 1 : NULL };
    const int error = r->unwritten ? 0 : sgrad__metrics_step(r->metrics, &event);
    if (error) r->unwritten = error;
}

/* All ranks do this after the same step. The steps in flight that some rank has begun to take place on all. */
static void end_together(struct sgrad__run *r) {
    if (!r->stopping && !r->server) {
        const int here = sgrad__runner_hold(r->runner);
        sgrad__runner_release(r->runner, -sgrad_ranks_least(-here));
    }
    r->stopping = true;
}

/* Turns steps until the next stop. *DONE counts the steps that have ended. All ranks end after the same one: they see that one
 * was asked to end, or a loss that is no number, after the same step, and turn those that are promised by then. So they do where
 * rank 0 wants a checkpoint by the clock. Asked to end, they cancel the steps in flight that have changed nothing.
 *
 * A rank may push the gradients of a step when all others have begun the one WINDOW before, whose own WINDOW before has ended:
 * twice as many are promised to servers. */
static int turn(struct sgrad__run *r, long *done) {
    const long window = sgrad__run_window(r), ahead = r->server ? 2 * window + 1 : window;
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
        if (next == *done) break;       /* asked to end, and all that was begun has ended */
        const struct sgrad__slot *slot;
        SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
        if (slot->cancelled) {      /* those behind it are, too */
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

/* A run that is over, resumed: no step of this process has a loss. */
static int evaluate_again(struct sgrad__run *r) {
    r->result.train_loss = NAN;
    SGRAD_TRY(sgrad__run_see_views(r));
    SGRAD_TRY(sgrad__evaluation_begin(r));
    return sgrad__evaluation_end(r, true);
}

/* StarPU's traces begin and end while no task runs. */
static int come_to_rest(struct sgrad__run *r, long done) {
    SGRAD_TRY(end_evaluation(r, done));
    return sgrad_wait_all();
}

/* The steps that follow are another program's. */
static int begin_anew(struct sgrad__run *r, long done) {
    SGRAD_TRY(come_to_rest(r, done));
    SGRAD_TRY(sgrad__run_agree(r, sgrad_task_error()));
    return sgrad__run_reopen_program(r, done);
}

/* Shares of GPUs and CPUs hold for so many STEPS, where any rank has such: stops are the same on all. They are not corrected
 * where others than the ranks that compute a gradient update by it, or something is kept of layers. */
static void settle(struct sgrad__run *r, long done, long steps) {
    double shared = sgrad__run_is_shared(r) && !strcmp(r->strategy->name, "sync") && !r->optimizer->keep;
    sgrad_ranks_sum(&shared, 1);
    r->settles = steps;
    r->settled = shared > 0 ? done + steps : 0;
}

/* On whichever rank it is worth it; all go on together. The next shares hold for longer, so that they come to rest. */
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

/* Steps until the next stop, and what is due there. (A rank that waited for all of its tasks, the evaluation's among them, would
 * wait for ranks that wait for it.) */
static int stretch(struct sgrad__run *r, long *done) {
    const long before = *done;
    SGRAD_TRY(correct_shares(r, before));
    if (sgrad__run_freezes(r, before)) SGRAD_TRY(begin_anew(r, before));
    if (before == r->trace_first - 1) {
        SGRAD_TRY(come_to_rest(r, before));
        sgrad_trace_begin();
    }
    const int error = turn(r, done);
    if (error && !r->together) return error;
    if (*done == r->trace_last) {
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

/* All ranks know it after the same evaluation; that rank 0 could not write that down it knows alone. */
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
    if (owed) SGRAD_TRY(begin_evaluation(r, done));     /* the run was ended between an epoch and its evaluation */
    else if ((done >= r->steps || r->enough) && r->kept_step) r->result.train_loss = NAN;
    else if (done >= r->steps || r->enough) SGRAD_TRY(evaluate_again(r));
    while (done < r->steps && !r->stopping) SGRAD_TRY(stretch(r, &done));
    if (!r->stopping) SGRAD_TRY(end_evaluation(r, done));
    if (r->stopping && !has_enough(r)) return stop_early(r, done);
    const bool keeps = r->options.checkpoint_every > 0 || r->options.checkpoint_seconds > 0;
    if (r->stopping && done > 0 && keeps) SGRAD_TRY(begin_checkpoint(r, done));
    SGRAD_TRY(end_evaluation(r, done));     /* of ranks that have not told it yet */
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

/* Those of the best evaluation, where they are kept, else those of the last step. */
static int save_weights(struct sgrad__run *r) {
    char *path = sgrad_format("%s/model.safetensors", r->folder);
    int error = r->kept_step ? sgrad__best_copy(r, path) : sgrad__weights_save(r->graph, path, false, NULL, 0);
    free(path);
    return error;
}

/* The first batch of all ranks, or the beginning of a large one. */
static int show_batch(struct sgrad__run *r, FILE *terminal) {
    enum { MOST = 256 };
    const int count = r->options.batch < MOST ? (int)r->options.batch : MOST;
    const struct sgrad_drawing how = { .seed = r->options.seed, .augmentations = r->train->drawn };
    int64_t sample[MOST];
    struct sgrad__order order = sgrad__run_order(r);
    for (int i = 0; i < count; i++) sample[i] = sgrad__order_sample(&order, 0, i);
    sgrad__order_close(&order);
    SGRAD_TRY(sgrad_dataset_show(r->train, sample, count, &how, r->options.show_batch, terminal));
    fprintf(terminal, "the first %d of a batch as they go into training: %s\n", count, r->options.show_batch);
    return 0;
}

static int train_run(struct sgrad__run *r) {
    FILE *terminal = r->options.json ? stderr : stdout;
    long done = 0;
    SGRAD_TRY(sgrad__run_open_training(r));
    if (!r->options.print) SGRAD_TRY(sgrad__run_open_folder(r, &done));
    sgrad__run_tell_idle(r);
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
    sgrad__rates_keep(r);
    if (tells) sgrad__best_print(r, r->result.steps, terminal);
    warn_of_loss(r);
    if (r->strategy->served) sgrad__run_print_staleness(r, terminal);
    if (r->options.trace) SGRAD_TRY(sgrad__roof_write(r));
    SGRAD_TRY(sgrad__run_agree(r, 0));
    int error = sgrad__run_gather(r, false);
    if (!error && r->context->rank == 0) error = save_weights(r);
    sgrad__wholes_free(r->graph);
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

