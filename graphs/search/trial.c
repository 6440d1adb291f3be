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

static struct sgrad_tensor *journal_of(const struct sgrad__trial *e) { return sgrad__training_kept(e->run->training, JOURNAL); }

/* ---- the state on this rank --------------------------------------------------------------------------------------- */

static int open_run(struct sgrad__trial *e, int place) {
    struct sgrad__search *s = e->search;
    struct sgrad__run *r = sgrad_xcalloc(1, sizeof *r);
    const struct sgrad__beside how = { &s->ground, e->number, place, e->ranks };
    r->options = e->options;
    r->listener = s->monitor;
    e->place = place;
    int error = sgrad__run_open_beside(r, &how);
    if (!error && r->options.batch > s->partition_samples)
        error = sgrad_log_error(SGRAD_EINVAL,
                                "candidate %s: --batch %ld is more than the %lld samples of a partition, of which there "
                                "are %d",
                                e->name, r->options.batch, (long long)s->partition_samples, s->partitions);
    if (!error) {
        e->sub_epoch_steps = (long)(s->partition_samples / r->options.batch);
        e->metrics = r->result.metrics;
        r->steps_per_epoch = e->sub_epoch_steps * s->partitions;
        r->steps = r->steps_per_epoch * s->epochs;
        sgrad__run_time_freezes(r);
        error = sgrad__training_keep(r->training, JOURNAL, (struct sgrad_shape){ 1, { (int64_t)sgrad__journal_count(e) } }, -1,
                                     true);
    }
    if (r->training) r->training->sharded = e->ranks > 1;
    e->run = r;
    if (error) sgrad__trial_close(e);
    return error;
}

/* Frees the program of the last transfer, which must have ended. */
static void end_transfer(struct sgrad__trial *e) {
    if (e->transfer) sgrad__program_destroy(e->transfer);
    e->transfer = NULL;
}

void sgrad__trial_close(struct sgrad__trial *e) {
    end_transfer(e);
    if (!e->run) return;
    sgrad__run_close(e->run);
    free(e->run);
    e->run = NULL;
    e->leaves = false;
}

void sgrad__trial_measure(struct sgrad__trial *e) {
    e->status = SGRAD__BROKEN;
    if (open_run(e, sgrad__search_place(e))) return;
    const struct sgrad__run *r = e->run;
    struct sgrad__items items = sgrad__training_list(r->training, true);
    for (int i = 0; i < items.count; i++) e->part += (double)sgrad_view_bytes(&items.item[i].tensor->view);
    sgrad__items_free(&items);
    enum { PASSES = 3 };                    /* forward once, backward twice */
    const double share = (double)r->options.batch / r->parts, work = sgrad__graph_work(r->graph).flops / r->graph->stages;
    e->cost = PASSES * work * share * (double)e->sub_epoch_steps;
    e->tasks = share / (double)r->micro;
    e->metric = r->metric;
    e->rates = r->schedule;
    e->peak = r->peak;
    e->parameters = sgrad__parameters_whole(r->graph);
    e->journal = sgrad_xcalloc(sgrad__journal_count(e), sizeof *e->journal);
    e->recorded = sgrad_xcalloc((size_t)(e->search->epochs * e->search->partitions), sizeof *e->recorded);
    e->status = SGRAD__RUNNING;
}

static char *identity_of(const struct sgrad__trial *e) {
    struct sgrad__config config;
    char devices[256];
    sgrad__run_describe(e->run, &config, devices, sizeof devices);
    return sgrad__config_identity(&config);
}

/* Returns the directory of the checkpoints of the trial's rank with index PLACE. The caller must free it. */
static char *folder_of(const struct sgrad__trial *e, int place) {
    return e->ranks > 1 ? sgrad_format("%s/part-%d", e->folder, place) : sgrad_format("%s", e->folder);
}

/* Returns the path of the checkpoint after COMPLETED sub-epochs. The caller must free it. */
static char *checkpoint_of(const struct sgrad__trial *e, int place, int completed) {
    char *folder = folder_of(e, place), *path = sgrad__checkpoint_path(folder, completed * e->sub_epoch_steps);
    free(folder);
    return path;
}

static int load(struct sgrad__trial *e) {
    struct sgrad__position position;
    char *path = checkpoint_of(e, e->place, e->completed), *identity = identity_of(e);
    int error = sgrad__checkpoint_load(e->run->training, path, identity, &position);
    free(identity);
    free(path);
    return error;
}

static int read_journal(struct sgrad__trial *e, const char *path, int *completed) {
    struct sgrad_safetensors file;
    SGRAD_TRY(sgrad_safetensors_open(path, &file));
    const struct sgrad_entry *entry = sgrad_safetensors_find(&file, JOURNAL_NAME);
    const bool fits = entry && entry->view.dtype == SGRAD_F32 &&
                      sgrad_view_bytes(&entry->view) == sgrad__journal_count(e) * sizeof *e->journal;
    int error = fits ? sgrad_safetensors_read(&file, entry, e->journal)
                     : sgrad_log_error(SGRAD_EFORMAT, "%s: is no checkpoint of this search", path);
    const float done = e->journal[SGRAD__JOURNAL_SUB_EPOCHS], most = (float)(e->search->epochs * e->search->partitions);
    if (!error && !(done >= 1 && done <= most && done == floorf(done)))
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: its journal has %g visits, of %g", path, done, most);
    if (!error) *completed = (int)done;
    sgrad_safetensors_close(&file);
    return error;
}

int sgrad__trial_find(struct sgrad__trial *e, int place, int *completed) {
    char *folder = folder_of(e, place), *path = NULL;
    *completed = 0;
    int error = access(folder, F_OK) ? 0 : sgrad__checkpoint_newest(folder, &path);
    if (!error && path) error = read_journal(e, path, completed);
    free(folder);
    free(path);
    return error;
}

bool sgrad__trial_has(const struct sgrad__trial *e, int place, int completed) {
    char *path = checkpoint_of(e, place, completed);
    const bool has = access(path, F_OK) == 0;
    free(path);
    return has;
}

int sgrad__trial_recall(struct sgrad__trial *e, int place, int completed) {
    char *path = checkpoint_of(e, place, completed);
    int error = read_journal(e, path, &completed);
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

static int under_way(struct sgrad__trial *e) {
    sgrad_monitor_lock(e->search->monitor);
    const int count = e->under_way;
    sgrad_monitor_unlock(e->search->monitor);
    return count;
}

/* Sends everything that outlives a step to PEER, or receives it; one message per tensor, in the order of the list. */
static int move(struct sgrad__trial *e, int peer, bool receives) {
    const struct sgrad_program_options how = { .rank = e->search->rank, .tags = SGRAD__TAGS_SEARCH };
    struct sgrad__items items = sgrad__training_list(e->run->training, true);
    struct sgrad_tensor **tensor = sgrad_xcalloc((size_t)items.count, sizeof(struct sgrad_tensor *));
    for (int i = 0; i < items.count; i++) tensor[i] = items.item[i].tensor;
    end_transfer(e);
    struct sgrad__program *p = e->transfer = sgrad__transfer_build(
        &how, &(struct sgrad__transfer){ peer, e->number, items.count, receives, tensor });
    sgrad__items_free(&items);
    free(tensor);
    int error = sgrad__program_allocate(p);
    sgrad_monitor_lock(e->search->monitor);
    e->under_way += p->instruction_count;
    sgrad_monitor_unlock(e->search->monitor);
    for (int i = 0; i < p->instruction_count && !error; i++)
        error = sgrad__instruction_submit(p, i, &e->transferred, 0, arrived, e);
    return error;
}

int sgrad__trial_fetch(struct sgrad__trial *e, int place, int from) {
    const struct sgrad__search *s = e->search;
    if (e->run) return 0;
    SGRAD_TRY(open_run(e, place));
    if (from >= 0 && from != s->rank) return move(e, from, true);
    return from < 0 ? 0 : load(e);
}

bool sgrad__trial_is_here(struct sgrad__trial *e) { return e->run && !e->leaves && !under_way(e); }

int sgrad__trial_send(struct sgrad__trial *e, int to) {
    e->leaves = true;
    e->search->moved[0] += e->place == 0;
    e->search->moved[1] += e->part;
    return move(e, to, false);
}

bool sgrad__trial_settle(struct sgrad__trial *e) {
    if (e->leaves && !under_way(e)) sgrad__trial_close(e);
    return !e->leaves;
}

/* ---- a sub-epoch ------------------------------------------------------------------------------------------------------ */

static int open_program(struct sgrad__trial *e, long done) {
    struct sgrad__run *r = e->run;
    const struct sgrad_program_options how = sgrad__run_program_options(r, true, r->options.batch, r->micro);
    sgrad__training_freeze(r->training, r->options.freeze, done);
    SGRAD_TRY(sgrad__program_build(r->graph, &how, &r->program));
    sgrad__sampler_close(&r->order);
    SGRAD_TRY(sgrad__run_open_runner(r, done));
    r->order.count = e->search->partition_samples;
    return 0;
}

static void close_program(struct sgrad__run *r) {
    sgrad__evaluation_close(r);
    sgrad__runner_destroy(r->runner);
    sgrad__program_destroy(r->program);
    r->runner = NULL;
    r->program = NULL;
}

static int submit(struct sgrad__trial *e, const struct sgrad__sub_epoch *v, long step) {
    const struct sgrad__search *s = e->search;
    struct sgrad__run *r = e->run;
    const long batch = r->options.batch, first = step % e->sub_epoch_steps * batch;
    const uint32_t pass = (uint32_t)(v->epoch * s->partitions + v->partition);
    const int64_t *index = s->sample + v->partition * s->partition_samples;
    struct sgrad_sample *sample = sgrad_xcalloc((size_t)batch, sizeof *sample);
    for (long i = 0; i < batch; i++) {
        sample[i] = sgrad__sampler_sample(&r->order, pass, first + i);
        sample[i].index = index[sample[i].index];
    }
    int error = sgrad__run_submit_samples(r, step, sample + r->part * r->program->share);
    free(sample);
    return error;
}

/* Stores the results of the step that is waited for. *LOST: the trial has diverged. */
static int take_step(struct sgrad__trial *e, long step, double *last, bool *lost) {
    struct sgrad__run *r = e->run;
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_wait(r->runner, &slot));
    const double *statistics = sgrad__slot_doubles(slot, r->program->statistics);
    float *values = sgrad__journal_step(e, step);
    values[SGRAD__STEP_LOSS] = (float)(statistics[0] / statistics[r->result.metrics]);
    values[SGRAD__STEP_SECONDS] = fmaxf((float)(slot->time - *last), 1e-9f); /* 0 means that the step was not executed */
    *last = slot->time;
    *lost = !isfinite(values[SGRAD__STEP_LOSS]) && !r->options.nan_ok;
    return 0;
}

/* Returns the end of the steps that may be in flight now: the end of the sub-epoch, or the step after which fewer parameters are
 * trained, which needs another program. */
static long promise(const struct sgrad__trial *e) {
    const struct sgrad__turn *t = &e->turn;
    const long freeze = sgrad__run_next_freeze(e->run, t->done), end = (t->sub_epoch->number + 1) * e->sub_epoch_steps;
    const long stop = freeze && freeze < end ? freeze : end, ahead = t->done + sgrad__run_steps_in_flight(e->run);
    return ahead < stop ? ahead : stop;
}

/* Records completed steps and submits further ones. A step that fails, or whose loss is NaN or infinite, is the last one of
 * the trial. The promised steps are still executed; these are the same on all ranks of the trial, which see such a loss after
 * the same step. */
static int turn_steps(struct sgrad__trial *e) {
    struct sgrad__run *r = e->run;
    struct sgrad__turn *t = &e->turn;
    while (t->done < t->next && sgrad__runner_is_ready(r->runner)) {
        bool lost = false;
        const int failed = take_step(e, t->done++, &t->last, &lost);
        if (failed && e->ranks > 1) return failed;
        if ((failed || lost) && !t->lost) {
            e->journal[SGRAD__JOURNAL_STATUS] = failed ? SGRAD__BROKEN : SGRAD__DIVERGED;
            e->journal[SGRAD__JOURNAL_LOST] = (float)t->sub_epoch->number;
        }
        t->lost |= failed || lost;
        if (!t->lost) t->promised = promise(e);
    }
    if (t->next < t->promised && sgrad__run_freezes(r, t->done)) {
        if (!sgrad__runner_is_at_rest(r->runner)) return 0;
        SGRAD_TRY(sgrad__run_reopen_program(r, t->done));
    }
    while (t->next < t->promised && t->next - t->done < sgrad__run_steps_in_flight(r))
        SGRAD_TRY(submit(e, t->sub_epoch, t->next++));
    return 0;
}

static void take_evaluation(struct sgrad__trial *e) {
    for (int i = 0; i < e->metrics; i++) {
        const double value = e->run->epoch.test[i];
        float *test = sgrad__journal_tests(e, e->turn.sub_epoch->epoch) + i * SGRAD__TEST_NUMBERS;
        test[0] = (float)value;
        test[1] = isfinite(test[0]) ? (float)(value - test[0]) : 0;
    }
}

/* Evaluates the trial after its steps, if they end an epoch. */
static int turn_evaluation(struct sgrad__trial *e) {
    struct sgrad__turn *t = &e->turn;
    const bool ends_epoch = (t->sub_epoch->number + 1) % e->search->partitions == 0;
    const bool due = ends_epoch && e->journal[SGRAD__JOURNAL_STATUS] == SGRAD__RUNNING;
    if (due && !t->evaluates && t->done == e->run->steps) SGRAD_TRY(sgrad__run_see_views(e->run));
    if (due && !t->evaluates) SGRAD_TRY(sgrad__evaluation_begin(e->run));
    t->evaluates = due;
    if (!due) return 0;
    SGRAD_TRY(sgrad__evaluation_turn(e->run));
    if (!e->run->evaluates) take_evaluation(e);
    return 0;
}

/* Starts a checkpoint. One is written at a time, for all trials of this rank. */
static int begin_checkpoint(struct sgrad__trial *e, int completed) {
    struct sgrad__search *s = e->search;
    const int before = sgrad__checkpoint_end(s->checkpoint);
    const long step = completed * e->sub_epoch_steps, epoch = e->sub_epoch_steps * s->partitions;
    const struct sgrad__position position = { .step = step, .epoch = (int)(step / epoch), .step_in_epoch = step % epoch,
                                              .seed = e->options.seed };
    s->checkpoint = NULL;
    SGRAD_TRY(before);
    char *identity = identity_of(e), *folder = folder_of(e, e->place);
    int error = sgrad_folder_make(folder);
    if (!error)
        error = sgrad__checkpoint_begin(e->run->training, folder, &position, identity, e->options.keep_checkpoints,
                                        &s->checkpoint);
    free(identity);
    free(folder);
    return error;
}

int sgrad__trial_begin(struct sgrad__trial *e, const struct sgrad__sub_epoch *v) {
    const long first = (long)v->number * e->sub_epoch_steps;
    SGRAD_TRY(sgrad_tensor_read(journal_of(e), e->journal));
    e->turn = (struct sgrad__turn){ .sub_epoch = v, .next = first, .done = first, .last = sgrad_time_monotonic() };
    e->turn.promised = promise(e);
    return e->journal[SGRAD__JOURNAL_STATUS] == SGRAD__RUNNING ? open_program(e, first) : 0;
}

int sgrad__trial_turn(struct sgrad__trial *e) {
    struct sgrad__turn *t = &e->turn;
    if (e->run->program) {
        SGRAD_TRY(turn_steps(e));
        if (t->next < t->promised || !sgrad__runner_is_at_rest(e->run->runner)) return 0;
        SGRAD_TRY(turn_evaluation(e));
        if (e->run->evaluates) return 0;
        close_program(e->run);
    }
    const int completed = t->sub_epoch->number + 1;
    e->journal[SGRAD__JOURNAL_SUB_EPOCHS] = (float)completed;
    t->sub_epoch = NULL;
    SGRAD_TRY(sgrad_tensor_write(journal_of(e), e->journal));
    return begin_checkpoint(e, completed);
}

static int save(struct sgrad__trial *e, const char *path) {
    struct sgrad__run *r = e->run;
    r->training->sharded = false;
    int error = e->ranks > 1 ? sgrad__run_gather(r, false) : 0;
    if (!error && e->place == 0) error = sgrad__weights_save(sgrad__training_list(r->training, false), path, NULL, 0);
    sgrad__training_free_wholes(r->training);
    return error;
}

int sgrad__trial_save(struct sgrad__trial *e) {
    const struct sgrad_group ranks = { e->ranks, e->at };
    char *path = sgrad_format("%s/model.safetensors", e->folder);
    bool saved = access(path, F_OK) == 0;
    sgrad_ranks_narrow(&ranks);
    sgrad_ranks_broadcast(&saved, sizeof saved, 0);
    int error = 0;
    if (!saved) error = sgrad_ranks_agree(sgrad__trial_fetch(e, sgrad_group_place(&ranks, e->search->rank), e->search->rank));
    if (!saved && !error) error = save(e, path);
    sgrad_ranks_widen();
    free(path);
    return error;
}
