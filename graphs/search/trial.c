/* trial.c: a trial of a search on this rank: its state is received, trained, and sent on.
 *
 *     fetch ─> is it here? ─> begin ─> turn: steps, an evaluation after an epoch, a checkpoint ─> send ─> settle
 *
 * No function waits: the caller must call sgrad__trial_turn from time to time for trials in progress (slots.c). The state for the
 * next sub-epoch is received while the present one is trained, and the last state is sent during the next one. Only the tensors
 * of a graph are sent; the log of the trial is one of them. A program and its memory exist only during a sub-epoch.
 *
 * A trial on several ranks (by its mesh) moves from each rank of a group of consecutive ranks to the rank with the same index in
 * the next group:
 *
 *     index 0    rank 0 ──> rank 2        its shards of the state, its log; and DIR/NAME/part-0/checkpoint-….safetensors
 *     index 1    rank 1 ──> rank 3
 *
 * Limits: with one rank, or several partitions on each rank, all running trials stay in memory. A task that fails on one of
 * several ranks of a trial ends the search, because the other ranks cannot detect it. */
#include "graphs/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOURNAL "journal", "search"         /* names of the log: in the training; in files */
#define JOURNAL_NAME SGRAD__STATES "journal.search"

static struct sgrad_tensor *journal_of(const struct sgrad__trial *trial) {
    return sgrad__training_kept(trial->run->training, JOURNAL);
}

/* ---- the state on this rank --------------------------------------------------------------------------------------- */

static int open_run(struct sgrad__trial *trial, int place) {
    struct sgrad__search *s = trial->search;
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    const struct sgrad__beside how = { &s->ground, trial->number, place, trial->ranks };
    r->options = trial->options;
    r->control.listener = s->monitor;
    trial->place = place;
    int error = sgrad__run_open_beside(r, &how);
    if (!error && r->options.training.batch > s->partition_samples)
        error = sgrad_log_error(SGRAD_EINVAL,
                                "candidate %s: --batch %ld exceeds the %lld samples of each of the %d partitions; use a smaller "
                                "batch or fewer partitions",
                                trial->name, r->options.training.batch, (long long)s->partition_samples, s->partitions);
    if (!error) {
        trial->sub_epoch_steps = (long)(s->partition_samples / r->options.training.batch);
        trial->metrics = r->result.metrics;
        r->steps_per_epoch = trial->sub_epoch_steps * s->partitions;
        r->steps = r->steps_per_epoch * s->epochs;
        sgrad__run_time_freezes(r);
        error = sgrad__training_keep(r->training, JOURNAL, (struct sgrad_shape){ 1, { (int64_t)sgrad__journal_count(trial) } },
                                     -1, true);
    }
    if (r->training) r->training->sharded = trial->ranks > 1;
    trial->run = r;
    if (error) sgrad__trial_close(trial);
    return error;
}

/* Frees the program of the last transfer, which must have ended. */
static void end_transfer(struct sgrad__trial *trial) {
    if (trial->transfer) sgrad__program_destroy(trial->transfer);
    trial->transfer = NULL;
}

void sgrad__trial_close(struct sgrad__trial *trial) {
    end_transfer(trial);
    if (!trial->run) return;
    sgrad__run_close(trial->run);
    free(trial->run);
    trial->run = NULL;
    trial->leaves = false;
}

void sgrad__trial_measure(struct sgrad__trial *trial) {
    trial->status = SGRAD__BROKEN;
    if (open_run(trial, sgrad__search_place(trial))) return;
    const struct sgrad__run *r = trial->run;
    struct sgrad__items items = sgrad__training_list(r->training, true);
    for (int i = 0; i < items.count; i++) trial->part += (double)sgrad_view_bytes(&items.item[i].tensor->view);
    sgrad__items_free(&items);
    enum { PASSES = 3 };                    /* forward once, backward twice */
    const double share = (double)r->options.training.batch / r->parallel.local_batches,
                 work = sgrad__graph_work(r->graph).flops / r->graph->stages;
    trial->cost = PASSES * work * share * (double)trial->sub_epoch_steps;
    trial->tasks = share / (double)r->batch.micro;
    trial->metric = r->metric;
    trial->rates = r->update.schedule;
    trial->peak = r->update.peak_lr;
    trial->parameters = sgrad__parameters_whole(r->graph);
    trial->journal = sgrad_xcalloc(sgrad__journal_count(trial), sizeof *trial->journal);
    trial->recorded = sgrad_xcalloc((size_t)(trial->search->epochs * trial->search->partitions), sizeof *trial->recorded);
    trial->status = SGRAD__RUNNING;
}

static char *identity_of(const struct sgrad__trial *trial) {
    struct sgrad__config config;
    char devices[256];
    sgrad__run_describe(trial->run, &config, devices, sizeof devices);
    return sgrad__config_identity(&config);
}

/* Returns the directory of the checkpoints of the trial's rank with index PLACE. The caller must free it. */
static char *folder_of(const struct sgrad__trial *trial, int place) {
    return trial->ranks > 1 ? sgrad_format("%s/part-%d", trial->folder, place) : sgrad_format("%s", trial->folder);
}

/* Returns the path of the checkpoint after COMPLETED sub-epochs. The caller must free it. */
static char *checkpoint_of(const struct sgrad__trial *trial, int place, int completed) {
    char *folder = folder_of(trial, place), *path = sgrad__checkpoint_path(folder, completed * trial->sub_epoch_steps);
    free(folder);
    return path;
}

static int load(struct sgrad__trial *trial) {
    struct sgrad__position position;
    char *path = checkpoint_of(trial, trial->place, trial->completed), *identity = identity_of(trial);
    int error = sgrad__checkpoint_load(trial->run->training, path, identity, &position);
    free(identity);
    free(path);
    return error;
}

static int read_journal(struct sgrad__trial *trial, const char *path, int *completed) {
    struct sgrad_safetensors file;
    SGRAD_TRY(sgrad_safetensors_open(path, &file));
    const struct sgrad_entry *entry = sgrad_safetensors_find(&file, JOURNAL_NAME);
    const bool fits = entry && entry->view.dtype == SGRAD_F32 &&
                      sgrad_view_bytes(&entry->view) == sgrad__journal_count(trial) * sizeof *trial->journal;
    int error = fits ? sgrad_safetensors_read(&file, entry, trial->journal)
                     : sgrad_log_error(SGRAD_EFORMAT, "%s: is not a checkpoint of this search", path);
    const float done = trial->journal[SGRAD__JOURNAL_SUB_EPOCHS],
                most = (float)(trial->search->epochs * trial->search->partitions);
    if (!error && !(done >= 1 && done <= most && done == floorf(done)))
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: records %g training visits to partitions, but must record from 1 to %g", path,
                                done, most);
    if (!error) *completed = (int)done;
    sgrad_safetensors_close(&file);
    return error;
}

int sgrad__trial_find(struct sgrad__trial *trial, int place, int *completed) {
    char *folder = folder_of(trial, place), *path = NULL;
    *completed = 0;
    int error = access(folder, F_OK) ? 0 : sgrad__checkpoint_newest(folder, -1, &path);
    if (!error && path) error = read_journal(trial, path, completed);
    free(folder);
    free(path);
    return error;
}

bool sgrad__trial_has(const struct sgrad__trial *trial, int place, int completed) {
    char *path = checkpoint_of(trial, place, completed);
    const bool has = access(path, F_OK) == 0;
    free(path);
    return has;
}

int sgrad__trial_recall(struct sgrad__trial *trial, int place, int completed) {
    char *path = checkpoint_of(trial, place, completed);
    int error = read_journal(trial, path, &completed);
    free(path);
    return error;
}

/* ---- transfer ----------------------------------------------------------------------------------------------------- */

static void arrived(void *arg) {
    struct sgrad__trial *e = arg;
    sgrad_monitor_lock(e->search->monitor);
    e->under_way--;
    sgrad_monitor_notify(e->search->monitor);
    sgrad_monitor_unlock(e->search->monitor);
}

static int under_way(struct sgrad__trial *trial) {
    sgrad_monitor_lock(trial->search->monitor);
    const int count = trial->under_way;
    sgrad_monitor_unlock(trial->search->monitor);
    return count;
}

/* Sends everything that outlives a step to PEER, or receives it; one message per tensor, in the order of the list. */
static int move(struct sgrad__trial *trial, int peer, bool receives) {
    const struct sgrad_program_options how = { .rank = trial->search->rank, .tags = SGRAD__TAGS_SEARCH };
    struct sgrad__items items = sgrad__training_list(trial->run->training, true);
    struct sgrad_tensor **tensor = sgrad_xcalloc((size_t)items.count, sizeof(struct sgrad_tensor *));
    for (int i = 0; i < items.count; i++) tensor[i] = items.item[i].tensor;
    end_transfer(trial);
    struct sgrad__program *p = trial->transfer = sgrad__transfer_build(
        &how, &(struct sgrad__transfer){ peer, trial->number, items.count, receives, tensor });
    sgrad__items_free(&items);
    free(tensor);
    int error = sgrad__program_allocate(p);
    sgrad_monitor_lock(trial->search->monitor);
    trial->under_way += p->instruction_count;
    sgrad_monitor_unlock(trial->search->monitor);
    for (int i = 0; i < p->instruction_count && !error; i++)
        error = sgrad__instruction_submit(p, i, &trial->transferred, 0, arrived, trial);
    return error;
}

int sgrad__trial_fetch(struct sgrad__trial *trial, int place, int from) {
    const struct sgrad__search *s = trial->search;
    if (trial->run) return 0;
    SGRAD_TRY(open_run(trial, place));
    if (from >= 0 && from != s->rank) return move(trial, from, true);
    return from < 0 ? 0 : load(trial);
}

bool sgrad__trial_is_here(struct sgrad__trial *trial) { return trial->run && !trial->leaves && !under_way(trial); }

int sgrad__trial_send(struct sgrad__trial *trial, int to) {
    trial->leaves = true;
    trial->search->moved[0] += trial->place == 0;
    trial->search->moved[1] += trial->part;
    return move(trial, to, false);
}

bool sgrad__trial_settle(struct sgrad__trial *trial) {
    if (trial->leaves && !under_way(trial)) sgrad__trial_close(trial);
    return !trial->leaves;
}

/* ---- a sub-epoch ------------------------------------------------------------------------------------------------------ */

static int open_program(struct sgrad__trial *trial, long done) {
    struct sgrad__run *r = trial->run;
    const struct sgrad_program_options how = sgrad__run_program_options(r, true, r->options.training.batch, r->batch.micro);
    sgrad__training_freeze(r->training, r->options.training.freeze, done);
    SGRAD_TRY(sgrad__program_build(r->graph, &how, &r->program));
    sgrad__sampler_close(&r->data.sampler);
    SGRAD_TRY(sgrad__run_open_runner(r, done));
    r->data.sampler.count = trial->search->partition_samples;
    return 0;
}

static void close_program(struct sgrad__run *run) {
    sgrad__evaluation_close(run);
    sgrad__runner_destroy(run->runner);
    sgrad__program_destroy(run->program);
    run->runner = NULL;
    run->program = NULL;
}

static int submit(struct sgrad__trial *trial, const struct sgrad__sub_epoch *epoch, long step) {
    const struct sgrad__search *s = trial->search;
    struct sgrad__run *r = trial->run;
    const long batch = r->options.training.batch, first = step % trial->sub_epoch_steps * batch;
    const uint32_t pass = (uint32_t)(epoch->epoch * s->partitions + epoch->partition);
    const int64_t *index = s->sample + epoch->partition * s->partition_samples;
    struct sgrad_sample *sample = sgrad_xcalloc((size_t)batch, sizeof *sample);
    for (long i = 0; i < batch; i++) {
        sample[i] = sgrad__sampler_sample(&r->data.sampler, pass, first + i);
        sample[i].index = index[sample[i].index];
    }
    int error = sgrad__run_submit_samples(r, step, sample);
    free(sample);
    return error;
}

/* Stores the results of the step that is waited for. *LOST: the trial has diverged. */
static int take_step(struct sgrad__trial *trial, long step, double *last, bool *lost) {
    struct sgrad__run *r = trial->run;
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
    const double *statistics = sgrad__slot_doubles(slot, r->program->statistics);
    float *values = sgrad__journal_step(trial, step);
    values[SGRAD__STEP_LOSS] = (float)(statistics[0] / statistics[r->loss_metrics]);
    values[SGRAD__STEP_SECONDS] = fmaxf((float)(slot->time - *last), 1e-9f); /* 0 means that the step was not executed */
    *last = slot->time;
    *lost = !isfinite(values[SGRAD__STEP_LOSS]) && !r->options.training.nan_ok;
    return 0;
}

/* Returns the end of the steps that may be in flight now: the end of the sub-epoch, or the step after which fewer parameters are
 * trained, which needs another program. */
static long promise(const struct sgrad__trial *trial) {
    const struct sgrad__turn *t = &trial->turn;
    const long freeze = sgrad__run_next_freeze(trial->run, t->done), end = (t->sub_epoch->number + 1) * trial->sub_epoch_steps;
    const long stop = freeze && freeze < end ? freeze : end, ahead = t->done + sgrad__run_steps_in_flight(trial->run);
    return ahead < stop ? ahead : stop;
}

/* Records completed steps and submits further ones. A step that fails, or whose loss is NaN or infinite, is the last one of
 * the trial. The promised steps are still executed; these are the same on all ranks of the trial, which see such a loss after
 * the same step. */
static int turn_steps(struct sgrad__trial *trial) {
    struct sgrad__run *r = trial->run;
    struct sgrad__turn *t = &trial->turn;
    while (t->done < t->next && sgrad__runner_is_ready(r->runner)) {
        bool lost = false;
        const int failed = take_step(trial, t->done++, &t->last, &lost);
        if (failed && trial->ranks > 1) return failed;
        if ((failed || lost) && !t->lost) {
            trial->journal[SGRAD__JOURNAL_STATUS] = failed ? SGRAD__BROKEN : SGRAD__DIVERGED;
            trial->journal[SGRAD__JOURNAL_LOST] = (float)t->sub_epoch->number;
        }
        t->lost |= failed || lost;
        if (!t->lost) t->promised = promise(trial);
    }
    if (t->next < t->promised && sgrad__run_freezes(r, t->done)) {
        if (!sgrad__runner_is_at_rest(r->runner)) return 0;
        SGRAD_TRY(sgrad__run_reopen_program(r, t->done));
    }
    while (t->next < t->promised && t->next - t->done < sgrad__run_steps_in_flight(r))
        SGRAD_TRY(submit(trial, t->sub_epoch, t->next++));
    return 0;
}

static void take_evaluation(struct sgrad__trial *trial) {
    for (int i = 0; i < trial->metrics; i++) {
        const double value = trial->run->evaluation.epoch.test[i];
        float *test = sgrad__journal_tests(trial, trial->turn.sub_epoch->epoch) + i * SGRAD__TEST_NUMBERS;
        test[0] = (float)value;
        test[1] = isfinite(test[0]) ? (float)(value - test[0]) : 0;
    }
}

/* Evaluates the trial after its steps, if they end an epoch. */
static int turn_evaluation(struct sgrad__trial *trial) {
    struct sgrad__turn *t = &trial->turn;
    const bool ends_epoch = (t->sub_epoch->number + 1) % trial->search->partitions == 0;
    const bool due = ends_epoch && trial->journal[SGRAD__JOURNAL_STATUS] == SGRAD__RUNNING;
    if (due && !t->evaluates && t->done == trial->run->steps) SGRAD_TRY(sgrad__run_see_views(trial->run));
    if (due && !t->evaluates) SGRAD_TRY(sgrad__evaluation_begin(trial->run));
    t->evaluates = due;
    if (!due) return 0;
    SGRAD_TRY(sgrad__evaluation_advance(trial->run));
    if (!trial->run->evaluation.active) take_evaluation(trial);
    return 0;
}

/* Starts a checkpoint. One is written at a time, for all trials of this rank. */
static int begin_checkpoint(struct sgrad__trial *trial, int completed) {
    struct sgrad__search *s = trial->search;
    const int before = sgrad__checkpoint_end(s->checkpoint);
    const long step = completed * trial->sub_epoch_steps, epoch = trial->sub_epoch_steps * s->partitions;
    const struct sgrad__position position = { .step = step, .epoch = (int)(step / epoch), .step_in_epoch = step % epoch,
                                              .seed = trial->options.training.seed };
    s->checkpoint = NULL;
    SGRAD_TRY(before);
    char *identity = identity_of(trial), *folder = folder_of(trial, trial->place);
    int error = sgrad_folder_make(folder);
    if (!error)
        error = sgrad__checkpoint_begin(trial->run->training, folder, &position, identity, trial->options.checkpoint.keep,
                                        &s->checkpoint);
    free(identity);
    free(folder);
    return error;
}

int sgrad__trial_begin(struct sgrad__trial *trial, const struct sgrad__sub_epoch *epoch) {
    const long first = (long)epoch->number * trial->sub_epoch_steps;
    SGRAD_TRY(sgrad_tensor_read(journal_of(trial), trial->journal));
    trial->turn = (struct sgrad__turn){ .sub_epoch = epoch, .next = first, .done = first, .last = sgrad_time_monotonic() };
    trial->turn.promised = promise(trial);
    return trial->journal[SGRAD__JOURNAL_STATUS] == SGRAD__RUNNING ? open_program(trial, first) : 0;
}

int sgrad__trial_turn(struct sgrad__trial *trial) {
    struct sgrad__turn *t = &trial->turn;
    if (trial->run->program) {
        SGRAD_TRY(turn_steps(trial));
        if (t->next < t->promised || !sgrad__runner_is_at_rest(trial->run->runner)) return 0;
        SGRAD_TRY(turn_evaluation(trial));
        if (trial->run->evaluation.active) return 0;
        close_program(trial->run);
    }
    const int completed = t->sub_epoch->number + 1;
    trial->journal[SGRAD__JOURNAL_SUB_EPOCHS] = (float)completed;
    t->sub_epoch = NULL;
    SGRAD_TRY(sgrad_tensor_write(journal_of(trial), trial->journal));
    return begin_checkpoint(trial, completed);
}

static int save(struct sgrad__trial *trial, const char *path) {
    struct sgrad__run *r = trial->run;
    r->training->sharded = false;
    int error = trial->ranks > 1 ? sgrad__run_gather(r, false, r->context->rank == 0) : 0;
    if (!error && trial->place == 0)
        error = sgrad__run_save_weights(r, sgrad__training_list(r->training, false), NULL, path, NULL, 0);
    sgrad__training_free_wholes(r->training);
    return error;
}

int sgrad__trial_save(struct sgrad__trial *trial) {
    const struct sgrad_group ranks = { trial->ranks, trial->at };
    char *path = sgrad_format("%s/model.safetensors", trial->folder);
    bool saved = access(path, F_OK) == 0;
    sgrad_ranks_narrow(&ranks);
    sgrad_ranks_broadcast(&saved, sizeof saved, 0);
    int error = 0;
    if (!saved)
        error = sgrad_ranks_agree(sgrad__trial_fetch(trial, sgrad_group_index(&ranks, trial->search->rank), trial->search->rank));
    if (!saved && !error) error = save(trial, path);
    sgrad_ranks_widen();
    free(path);
    return error;
}
