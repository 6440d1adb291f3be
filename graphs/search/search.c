/* search.c: hyperparameter search: trains many candidates on a partitioned training set, round by round.
 *
 *     round      which trials are running, and the number of epochs until trials may be stopped
 *                a plan of sub-epochs (sub_epochs.c), the same on every rank
 *                each rank executes its sub-epochs in this order, while it receives the next trial and sends the last one
 *                rank 0 receives all results, decides which trials are stopped, and sends the decision to all ranks
 *
 *     rank 0     fetch A   A: sub-epoch, send      B: sub-epoch, send      C …
 *     rank 1     fetch B   B: sub-epoch, send      A: sub-epoch, send      D …          states of A and B are exchanged
 *
 * No result depends on the speed of ranks: plans are computed from costs that are counted, not measured, and from the results of
 * trials. A resumed search therefore has the same rounds, and omits the sub-epochs that are contained in checkpoints.
 *
 * Limits: every rank opens the data set, reads its partitions, and once its shard for mean and standard deviation. Ranks with
 * other processors compute results that differ in rounding. */
#include "graphs/search/search.h"
#include "graphs/api/search.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAY(s, ...) ((s)->rank ? SGRAD_EINVAL : sgrad_log_error(SGRAD_EINVAL, __VA_ARGS__))

static bool is_over(const struct sgrad__trial *e) { return e->status != SGRAD__RUNNING; }

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* Sets the options that all trials have in common: data, duration, directories, and deterministic results. */
static void set_options(const struct sgrad__search *s, struct sgrad__trial *e) {
    struct sgrad_train_options *o = &e->options;
    const struct sgrad_train_options *common = &s->options->common;
    *o = e->is->options;
    o->data = common->data;
    o->custom_reader = common->custom_reader;
    o->epochs = s->epochs;
    o->steps = 0;
    o->out = e->folder;
    o->cpus = common->cpus, o->gpus = common->gpus, o->scheduler = common->scheduler;
    o->deterministic = true;
    o->resume = o->partition_data = o->print = false;
    o->shard = o->strategy = o->allreduce = NULL;
    o->trace.first = 0;
    o->group_ranks = 1;
    o->keep_checkpoints = 2;
}

/* Sets the number of ranks that the mesh of the candidate needs. It must be 1, 2, 4, 8, …: for these numbers, sums have the
 * same bits on any network, because their order is that of one tree. */
static int count_ranks(struct sgrad__trial *e) {
    const struct sgrad__search *s = e->search;
    struct sgrad_mesh mesh;
    e->ranks = 1;
    if (!e->options.mesh) return 0;
    if (!strcmp(e->options.mesh, "auto"))
        return SAY(s, "candidate %s: mesh auto: a candidate says how many ranks it takes: tensor=1d:2", e->name);
    SGRAD_TRY(sgrad_mesh_parse(e->options.mesh, SGRAD__DATA, &mesh));
    for (int i = 0; i < mesh.axes; i++) e->ranks *= mesh.axis[i].ranks ? mesh.axis[i].ranks : 1;
    if (e->ranks & (e->ranks - 1))
        return SAY(s, "candidate %s: mesh %s takes %d ranks: 2, 4, 8, … add up to the same bits on any network", e->name,
                   e->options.mesh, e->ranks);
    if (e->ranks <= s->ranks) return 0;
    return SAY(s, "candidate %s: mesh %s takes %d ranks, and %d %s here: mpirun -n %d", e->name, e->options.mesh, e->ranks,
               s->ranks, sgrad_plural(s->ranks, "is", "are"), e->ranks);
}

static int open_trials(struct sgrad__search *s) {
    const struct sgrad_search_options *o = s->options;
    int digits = snprintf(NULL, 0, "%d", o->candidates);
    s->trials = o->candidates;
    s->trial = sgrad_xcalloc((size_t)s->trials, sizeof *s->trial);
    for (int i = 0; i < s->trials; i++) {
        struct sgrad__trial *e = &s->trial[i];
        *e = (struct sgrad__trial){ .is = &o->candidate[i], .search = s, .number = i, .planned_at = -1 };
        e->name = e->is->name ? sgrad_format("%s", e->is->name) : sgrad_format("%0*d", digits, i + 1);
        e->folder = o->replay ? sgrad_format("%s/replay", o->replay) : sgrad_format("%s/%s", o->common.out, e->name);
        set_options(s, e);
        SGRAD_TRY(count_ranks(e));
        e->at = sgrad_xcalloc((size_t)e->ranks, sizeof *e->at);
        for (int p = 0; p < e->ranks; p++) e->at[p] = -1;
    }
    return 0;
}

static int compare_ranks(const struct sgrad__search *s) {
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    fprintf(to, "version: %s\ntraining set: %016llx\nepochs: %d\nseed: %llu\n", PACKAGE_VERSION,
            (unsigned long long)s->ground.fingerprint, s->epochs, (unsigned long long)s->options->common.seed);
    for (int i = 0; i < s->trials; i++)
        fprintf(to, "candidate %s: %s\n", s->trial[i].name,
                s->trial[i].is->options_json ? s->trial[i].is->options_json : "{}");
    fclose(to);
    int error = sgrad_ranks_compare(text);
    free(text);
    return error;
}

/* Removes the files of an earlier replay. */
static int remove_files(const char *folder) {
    DIR *d = opendir(folder);
    for (struct dirent *file; d && (file = readdir(d));) {
        char *path = sgrad_format("%s/%s", folder, file->d_name);
        if (file->d_name[0] != '.') unlink(path);
        free(path);
    }
    if (d) closedir(d);
    return 0;
}

/* Rank 0: opens the directory of a new or a resumed search. */
static int open_folder(struct sgrad__search *s) {
    const struct sgrad_train_options *o = &s->options->common;
    bool found;
    SGRAD_TRY(sgrad__leaderboard_open(s));
    if (s->options->replay) return remove_files(s->folder);
    SGRAD_TRY(sgrad__manifest_read(o->resume ? s : NULL, s->folder, &s->partitions, &found));
    for (int i = 0; i < s->trials && !found && !o->resume; i++)
        SGRAD_TRY(sgrad__run_folder_check(s->trial[i].folder, false));
    if (found == o->resume) return 0;
    if (found)
        return sgrad_log_error(SGRAD_EINVAL, "%s: holds a search already; choose another --out, or continue it with --resume",
                               s->folder);
    return sgrad_log_error(SGRAD_EINVAL, "%s: there is no search to continue; leave out --resume to begin one", s->folder);
}

/* Distributes all samples to partitions in a random order, because samples of a class are often consecutive in files. */
static void distribute_samples(struct sgrad__search *s) {
    const int64_t count = s->ground.train->count;
    struct sgrad__sampler order = { .seed = sgrad_hash("partitions", 10) ^ s->options->common.seed, .count = count,
                                  .shuffle = true };
    s->partition_samples = count / s->partitions;
    s->sample = sgrad_xcalloc((size_t)count, sizeof *s->sample);
    for (int64_t i = 0; i < count; i++) s->sample[i] = sgrad__sampler_index(&order, 0, i);
    sgrad__sampler_close(&order);
}

/* Chooses a rank among those that have the state of the trial's rank with index PLACE: preferably one that will need it, and
 * none that was chosen for another index. Returns -1 if there is none. */
static int choose_rank(const struct sgrad__trial *e, int place, const double *have) {
    int chosen = -1;
    for (int r = e->search->ranks - 1; r >= 0; r--) {
        bool taken = have[r] == 0;
        for (int p = 0; p < place; p++) taken |= e->at[p] == r;
        if (!taken && (chosen < 0 || chosen % e->ranks != place || r % e->ranks == place)) chosen = r;
    }
    return chosen;
}

/* Finds the number of sub-epochs for which the states of all ranks of the trial still exist. */
static int find_completed(struct sgrad__trial *e) {
    const struct sgrad__search *s = e->search;
    double *completed = sgrad_xcalloc((size_t)s->ranks, sizeof *completed);
    int error = 0;
    e->completed = s->epochs * s->partitions;
    for (int place = 0; place < e->ranks && !error; place++) {
        int own = 0, most = 0;
        error = sgrad_ranks_await(sgrad__trial_find(e, place, &own), "for all ranks to look for checkpoints");
        for (int r = 0; r < s->ranks; r++) completed[r] = r == s->rank ? own : 0;
        sgrad_ranks_sum(completed, s->ranks);
        for (int r = 0; r < s->ranks; r++) most = (int)completed[r] > most ? (int)completed[r] : most;
        if (most < e->completed) e->completed = most;
    }
    free(completed);
    if (!e->completed) memset(e->journal, 0, sgrad__journal_count(e) * sizeof *e->journal);
    return error;
}

/* Finds the ranks that have these states on their disks, and sends the log of the trial to all ranks. */
static int find_past(struct sgrad__trial *e) {
    const struct sgrad__search *s = e->search;
    SGRAD_TRY(find_completed(e));
    if (!e->completed) return 0;
    double *have = sgrad_xcalloc((size_t)s->ranks, sizeof *have);
    bool whole = true;
    for (int place = 0; place < e->ranks; place++) {
        for (int r = 0; r < s->ranks; r++) have[r] = r == s->rank && sgrad__trial_has(e, place, e->completed);
        sgrad_ranks_sum(have, s->ranks);
        e->at[place] = choose_rank(e, place, have);
        whole &= e->at[place] >= 0;
    }
    free(have);
    if (!whole)
        return SAY(s, "%s: of its checkpoints after %d visits some parts are missing, or one rank alone has several", e->folder,
                   e->completed);
    SGRAD_TRY(sgrad_ranks_agree(e->at[0] == s->rank ? sgrad__trial_recall(e, 0, e->completed) : 0));
    sgrad_ranks_broadcast(e->journal, sgrad__journal_count(e) * sizeof *e->journal, e->at[0]);
    return 0;
}

static int add_trial(struct sgrad__trial *e) {
    const struct sgrad__search *s = e->search;
    sgrad__trial_measure(e);
    if (sgrad_ranks_agree(e->status == SGRAD__BROKEN ? SGRAD_EINVAL : 0)) {
        e->status = SGRAD__BROKEN;
        if (s->rank == 0) sgrad_log_warning("candidate %s cannot be trained; the others go on", e->name);
    }
    e->bytes = s->rank < e->ranks ? e->part : 0;
    sgrad_ranks_sum(&e->bytes, 1);
    if (s->options->common.resume && e->status != SGRAD__BROKEN) SGRAD_TRY(find_past(e));
    int error = s->rank ? 0 : sgrad__leaderboard_add(e);
    sgrad__trial_close(e);
    return sgrad_ranks_await(error, "for rank 0, which writes a candidate's folder");
}

/* Chooses the number of trials that a rank trains concurrently, so that there are two micro-batches for each worker of rank 0:
 * at the end of a step there are fewer. */
static void choose_slots(struct sgrad__search *s) {
    enum { MOST = 8 };
    double tasks = 0;
    int able = 0;
    for (int i = 0; i < s->trials; i++) {
        if (is_over(&s->trial[i])) continue;
        tasks += s->trial[i].tasks;
        able++;
    }
    const double wanted = able ? 2.0 * (s->ground.context->cpus + s->ground.context->gpus) / (tasks / able) : 1;
    s->slots = (int)fmax(1, fmin(wanted, MOST));
    if (s->options->concurrent) s->slots = s->options->concurrent;
    if (s->slots > able) s->slots = able ? able : 1;
    sgrad_ranks_broadcast(&s->slots, sizeof s->slots, 0);
}

static int open_search(struct sgrad__search *s) {
    const struct sgrad_search_options *o = s->options;
    SGRAD_TRY(sgrad__stop_check(&o->stop));
    s->ground.options = o->common;
    s->ground.options.resume = false;
    SGRAD_TRY(sgrad__run_open_ground(&s->ground));
    s->rank = s->ground.context->rank;
    s->ranks = s->ground.context->ranks;
    s->epochs = (int)o->common.epochs;
    s->partitions = o->partitions ? o->partitions : s->ranks;
    s->monitor = sgrad_monitor_create();
    SGRAD_TRY(sgrad_ranks_agree(open_trials(s)));
    SGRAD_TRY(compare_ranks(s));
    s->folder = sgrad_format("%s", o->replay ? s->trial->folder : o->common.out);
    SGRAD_TRY(sgrad_ranks_await(s->rank ? 0 : open_folder(s), "for rank 0, which opens the folder"));
    sgrad_ranks_broadcast(&s->partitions, sizeof s->partitions, 0);
    distribute_samples(s);
    if (s->rank == 0 && !o->replay) SGRAD_TRY(sgrad__manifest_write(s, s->folder));   /* before anything else, for --resume */
    for (int i = 0; i < s->trials; i++) SGRAD_TRY(add_trial(&s->trial[i]));
    choose_slots(s);
    return sgrad__search_messages_open(s);
}

static void close_search(struct sgrad__search *s) {
    /* otherwise this could wait for messages that will never arrive */
    if (s->ground.context && s->ranks == 1) sgrad_wait_all();
    if (s->ground.context) sgrad__checkpoint_end(s->checkpoint);
    for (int i = 0; i < s->trials; i++) {
        struct sgrad__trial *e = &s->trial[i];
        sgrad__trial_close(e);
        free(e->name);
        free(e->folder);
        free(e->at);
        free(e->journal);
        free(e->recorded);
    }
    sgrad__search_messages_close(s);
    if (s->rank == 0) sgrad__leaderboard_close(s);
    sgrad__sub_epochs_free(&s->plan);
    sgrad__run_close(&s->ground);
    if (s->monitor) sgrad_monitor_destroy(s->monitor);
    free(s->trial);
    free(s->sample);
    free(s->folder);
}

/* ---- the plan of a round ------------------------------------------------------------------------------------------ */

/* Counts the migrations of trials between ranks, and their bytes. The first of a trial starts at the rank that has it. */
static void count_hops(struct sgrad__search *s) {
    int *at = sgrad_xcalloc((size_t)s->trials, sizeof *at);
    double work = 0;
    s->hops = 0;
    s->bytes = 0;
    for (int i = 0; i < s->trials; i++) at[i] = -1;
    for (const struct sgrad__sub_epoch *v = s->plan.sub_epoch; v < s->plan.sub_epoch + s->plan.count; v++) {
        const struct sgrad__trial *e = &s->trial[v->model];
        const int before = at[v->model] < 0 ? e->planned_at : at[v->model];
        at[v->model] = sgrad__search_rank(s, v);
        work += e->ranks * (v->end - v->begin);
        if (before < 0 || before == at[v->model]) continue;
        s->hops++;
        s->bytes += e->bytes;
    }
    for (int i = 0; i < s->trials; i++)
        if (at[i] >= 0) s->trial[i].planned_at = at[i];
    s->busy = work / (s->plan.makespan * s->ranks * s->slots);
    free(at);
}

/* Plans a round; the unit of time is its longest sub-epoch. The order is computed for as many ranks as partitions, independently
 * of the number of ranks, so that a resumed search with fewer or more ranks has the same results. */
static int plan_round(struct sgrad__search *s, int from, int to) {
    int *number = sgrad_xcalloc((size_t)s->trials, sizeof *number), *width = sgrad_xcalloc((size_t)s->trials, sizeof *width);
    int running = 0;
    double *cost = sgrad_xcalloc((size_t)s->trials, sizeof *cost), most = 0;
    for (int i = 0; i < s->trials; i++)
        if (!is_over(&s->trial[i])) number[running++] = i;
    for (int i = 0; i < running; i++) most = s->trial[number[i]].cost > most ? s->trial[number[i]].cost : most;
    for (int i = 0; i < running; i++) cost[i] = s->trial[number[i]].cost / most, width[i] = s->trial[number[i]].ranks;
    struct sgrad__sub_epochs_options how = { .models = running, .partitions = s->partitions, .first_epoch = from,
                                         .epochs = to - from, .ranks = s->partitions, .cost = cost, .width = width,
                                         .seed = s->options->common.seed };
    sgrad__sub_epochs_free(&s->plan);
    int error = sgrad__sub_epochs_plan(s->options->schedule, &how, &s->plan);
    how.ranks = s->ranks;
    how.slots = s->slots;
    if (!error) sgrad__sub_epochs_time(&how, &s->plan);
    for (int i = 0; !error && i < s->plan.count; i++) s->plan.sub_epoch[i].model = number[s->plan.sub_epoch[i].model];
    if (!error) count_hops(s);
    free(number);
    free(width);
    free(cost);
    return error;
}

/* ---- the end of a round ------------------------------------------------------------------------------------------- */

/* Records the ranks that have the states of the trials after the round. */
static void note_places(struct sgrad__search *s) {
    for (const struct sgrad__sub_epoch *v = s->plan.sub_epoch; v < s->plan.sub_epoch + s->plan.count; v++) {
        struct sgrad__trial *e = &s->trial[v->model];
        if (v->number < e->completed) continue;
        e->completed = v->number + 1;
        for (int p = 0; p < e->ranks; p++) e->at[p] = sgrad__search_rank(s, v) + p;
    }
}

/* Rank 0: decides which trials are stopped. Scores use the epochs that all running trials have completed. A later failure,
 * which is already known from a checkpoint, is ignored until its round. */
static void decide(struct sgrad__search *s, int epoch) {
    struct sgrad__score *score = sgrad_xcalloc((size_t)s->trials, sizeof *score);
    double *value = sgrad_xcalloc((size_t)s->trials * (size_t)epoch, sizeof *value);
    struct sgrad__trial **of = sgrad_xcalloc((size_t)s->trials, sizeof *of);
    int count = 0;
    for (int i = 0; i < s->trials; i++) {
        struct sgrad__trial *e = &s->trial[i];
        if (!is_over(e) && e->journal[SGRAD__JOURNAL_LOST] < (float)(epoch * s->partitions))
            e->status = (enum sgrad__trial_status)e->journal[SGRAD__JOURNAL_STATUS];
        if (is_over(e)) continue;
        double *own = value + (size_t)count * (size_t)epoch;
        for (int j = 0; j < epoch; j++) own[j] = sgrad__leaderboard_value(e, j);
        score[count].value = own;
        of[count++] = e;
    }
    if (epoch < s->epochs) sgrad__stop_decide(&s->options->stop, epoch, score, count);
    for (int i = 0; i < count; i++)
        if (epoch == s->epochs) of[i]->status = SGRAD__FINISHED;
        else if (score[i].stops) of[i]->status = SGRAD__STOPPED;
    free(score);
    free(value);
    free(of);
}

/* Saves the weights of ended trials on the ranks that have their states. An error is returned only at the end, so that the
 * other trials are saved and no rank waits. */
static int save_ended(struct sgrad__search *s) {
    int first = 0;
    for (int i = 0; i < s->trials; i++) {
        struct sgrad__trial *e = &s->trial[i];
        const struct sgrad_group ranks = { e->ranks, e->at };
        int error = 0;
        if (!is_over(e) || sgrad_group_place(&ranks, s->rank) < 0) continue;
        if (e->status == SGRAD__FINISHED || e->status == SGRAD__STOPPED) error = sgrad__trial_save(e);
        sgrad__trial_close(e);
        if (!first) first = error;
    }
    return first;
}

static int end_round(struct sgrad__search *s, int epoch) {
    int *status = sgrad_xcalloc((size_t)s->trials, sizeof *status);
    note_places(s);
    SGRAD_TRY(sgrad_ranks_await(0, "for the visits of all ranks"));
    if (s->rank == 0) decide(s, epoch);
    for (int i = 0; i < s->trials; i++) status[i] = s->trial[i].status;
    sgrad_ranks_broadcast(status, (size_t)s->trials * sizeof *status, 0);
    for (int i = 0; i < s->trials; i++) s->trial[i].status = (enum sgrad__trial_status)status[i];
    free(status);
    return sgrad_ranks_await(save_ended(s), "for all ranks, which write weights");
}

/* ---- the search --------------------------------------------------------------------------------------------------- */

static bool any_is_running(const struct sgrad__search *s) {
    for (int i = 0; i < s->trials; i++)
        if (!is_over(&s->trial[i])) return true;
    return false;
}

static int run_rounds(struct sgrad__search *s) {
    for (int round = 0, epoch = 0; epoch < s->epochs && any_is_running(s); round++) {
        const int next = sgrad__stop_next(&s->options->stop, epoch, s->epochs);
        SGRAD_TRY(plan_round(s, epoch, next));
        int error = s->rank ? 0 : sgrad__manifest_round(s, s->folder, round);
        SGRAD_TRY(sgrad_ranks_await(error, "for rank 0, which writes the schedule"));
        if (s->rank == 0) sgrad__leaderboard_round(s, epoch, next);
        SGRAD_TRY(sgrad__slots_run(s));
        SGRAD_TRY(end_round(s, next));
        epoch = next;
    }
    return 0;
}

/* Repeats the recorded sub-epochs of a candidate, which rank 0 reads and sends to all ranks. */
static int replay(struct sgrad__search *s) {
    const struct sgrad_search_options *o = s->options;
    struct sgrad__sub_epochs recorded = { 0 };
    if (is_over(s->trial)) return SGRAD_EINVAL;
    int error = s->rank ? 0 : sgrad__manifest_sub_epochs(o->common.out, o->candidate->name, s->partitions, s->epochs, &recorded);
    SGRAD_TRY(sgrad_ranks_agree(error));
    sgrad_ranks_broadcast(&recorded.count, sizeof recorded.count, 0);
    s->plan = (struct sgrad__sub_epochs){ .schedule = "recorded", .count = recorded.count, .makespan = recorded.count };
    s->plan.sub_epoch = sgrad_xcalloc((size_t)recorded.count, sizeof *recorded.sub_epoch);
    if (s->rank == 0) memcpy(s->plan.sub_epoch, recorded.sub_epoch, (size_t)recorded.count * sizeof *recorded.sub_epoch);
    sgrad_ranks_broadcast(s->plan.sub_epoch, (size_t)recorded.count * sizeof *recorded.sub_epoch, 0);
    sgrad__sub_epochs_free(&recorded);
    count_hops(s);
    if (s->rank == 0) sgrad__leaderboard_round(s, 0, recorded.count / s->partitions);
    SGRAD_TRY(sgrad__slots_run(s));
    return end_round(s, s->epochs);
}

static void find_result(struct sgrad__search *s, struct sgrad_search_result *result) {
    const struct sgrad__trial *best = sgrad__leaderboard_best(s);
    char *path = best ? sgrad_format("%s/model.safetensors", best->folder) : NULL;
    if (path && access(path, F_OK)) sgrad_log_warning("%s: is with rank %d, where the candidate ended", path, best->at[0]);
    free(path);
    result->best = best ? sgrad_format("%s", best->name) : NULL;
    result->same = s->options->replay && sgrad__manifest_same(s->options->replay, s->folder);
}

static int run_search(struct sgrad__search *s, struct sgrad_search_result *result) {
    SGRAD_TRY(open_search(s));
    SGRAD_TRY(s->options->replay ? replay(s) : run_rounds(s));
    sgrad_ranks_sum(s->moved, 2);
    int error = s->rank ? 0 : sgrad__leaderboard_end(s);
    SGRAD_TRY(sgrad_ranks_await(error, "for rank 0, which writes the leaderboard"));
    *result = (struct sgrad_search_result){ .rank = s->rank, .folder = sgrad_format("%s", s->folder), .hops = (long)s->moved[0],
                                            .bytes = s->moved[1] };
    if (s->rank == 0) find_result(s, result);
    return 0;
}

int sgrad_search(const struct sgrad_search_options *options, struct sgrad_search_result *result) {
    struct sgrad__search *s = sgrad_xcalloc(1, sizeof *s);
    s->options = options;
    int error = run_search(s, result);
    if (error) sgrad_ranks_abort(1);
    close_search(s);
    free(s);
    return error;
}
