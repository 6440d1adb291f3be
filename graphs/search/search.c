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

/* An error that all ranks return, and that rank 0 logs. */
#define COMMON_ERROR(s, ...) ((s)->rank ? SGRAD_EINVAL : sgrad_log_error(SGRAD_EINVAL, __VA_ARGS__))

static bool is_over(const struct sgrad__trial *trial) { return trial->status != SGRAD__RUNNING; }

/* ---- opening ------------------------------------------------------------------------------------------------------ */

/* Sets the options that all trials have in common: data, duration, directories, and deterministic results. */
static void set_options(const struct sgrad__search *search, struct sgrad__trial *trial) {
    struct sgrad_train_options *o = &trial->options;
    const struct sgrad_train_options *common = &search->options->common;
    *o = trial->is->options;
    o->data.name = common->data.name;
    o->data.reader = common->data.reader;
    o->training.epochs = search->epochs;
    o->training.steps = 0;
    o->output.folder = trial->folder;
    o->parallel.cpus = common->parallel.cpus, o->parallel.gpus = common->parallel.gpus,
    o->parallel.scheduler = common->parallel.scheduler;
    o->training.deterministic = true;
    o->checkpoint.resume = o->data.partition = o->output.print = false;
    o->parallel.shard = o->parallel.strategy = o->parallel.allreduce = NULL;
    o->output.trace = (struct sgrad_step_range){ 0 };
    o->parallel.group_ranks = 1;
    o->checkpoint.keep = 2;
}

/* Sets the number of ranks that the mesh of the candidate needs. It must be 1, 2, 4, 8, …: for these numbers, sums have the
 * same bits on any network, because their order is that of one tree. */
static int count_ranks(struct sgrad__trial *trial) {
    const struct sgrad__search *s = trial->search;
    struct sgrad_mesh mesh;
    trial->ranks = 1;
    if (!trial->options.parallel.mesh) return 0;
    if (!strcmp(trial->options.parallel.mesh, "auto"))
        return COMMON_ERROR(s, "candidate %s: mesh auto is not supported; give the numbers of ranks, for example tensor=1d:2",
                            trial->name);
    SGRAD_TRY(sgrad__mesh_parse(trial->options.parallel.mesh, &mesh));
    for (int i = 0; i < mesh.axes; i++) trial->ranks *= mesh.axis[i].ranks ? mesh.axis[i].ranks : 1;
    if (trial->ranks & (trial->ranks - 1))
        return COMMON_ERROR(s,
                            "candidate %s: mesh %s requires %d ranks, but the number of ranks of a candidate must be a power "
                            "of 2",
                            trial->name, trial->options.parallel.mesh, trial->ranks);
    if (trial->ranks <= s->ranks) return 0;
    return COMMON_ERROR(s, "candidate %s: mesh %s requires %d ranks, but there %s %d; use mpirun -n %d", trial->name,
                        trial->options.parallel.mesh, trial->ranks, sgrad_plural(s->ranks, "is", "are"), s->ranks, trial->ranks);
}

static int open_trials(struct sgrad__search *search) {
    const struct sgrad_search_options *o = search->options;
    int digits = snprintf(NULL, 0, "%d", o->candidates);
    search->trials = o->candidates;
    search->trial = sgrad_xcalloc((size_t)search->trials, sizeof *search->trial);
    for (int i = 0; i < search->trials; i++) {
        struct sgrad__trial *e = &search->trial[i];
        *e = (struct sgrad__trial){ .is = &o->candidate[i], .search = search, .number = i, .planned_at = -1 };
        e->name = e->is->name ? sgrad_format("%s", e->is->name) : sgrad_format("%0*d", digits, i + 1);
        e->folder = o->replay ? sgrad_format("%s/replay", o->replay) : sgrad_format("%s/%s", o->common.output.folder, e->name);
        set_options(search, e);
        SGRAD_TRY(count_ranks(e));
        e->at = sgrad_xcalloc((size_t)e->ranks, sizeof *e->at);
        for (int p = 0; p < e->ranks; p++) e->at[p] = -1;
    }
    return 0;
}

static int compare_ranks(const struct sgrad__search *search) {
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    fprintf(to, "version: %s\ntraining set: %016llx\nepochs: %d\nseed: %llu\n", PACKAGE_VERSION,
            (unsigned long long)search->ground.data.fingerprint, search->epochs,
            (unsigned long long)search->options->common.training.seed);
    for (int i = 0; i < search->trials; i++)
        fprintf(to, "candidate %s: %s\n", search->trial[i].name,
                search->trial[i].is->options_json ? search->trial[i].is->options_json : "{}");
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
static int open_folder(struct sgrad__search *search) {
    const struct sgrad_train_options *o = &search->options->common;
    bool found;
    SGRAD_TRY(sgrad__leaderboard_open(search));
    if (search->options->replay) return remove_files(search->folder);
    SGRAD_TRY(sgrad__manifest_read(o->checkpoint.resume ? search : NULL, search->folder, &search->partitions, &found));
    for (int i = 0; i < search->trials && !found && !o->checkpoint.resume; i++)
        SGRAD_TRY(sgrad__run_folder_check(search->trial[i].folder, false));
    if (found == o->checkpoint.resume) return 0;
    if (found)
        return sgrad_log_error(SGRAD_EINVAL, "%s: contains a search already; choose another --out, or continue it with --resume",
                               search->folder);
    return sgrad_log_error(SGRAD_EINVAL, "%s: has no search to continue; omit --resume to begin one", search->folder);
}

/* Distributes all samples to partitions in a random order, because samples of a class are often consecutive in files. */
static void distribute_samples(struct sgrad__search *search) {
    const int64_t count = search->ground.data.train->count;
    struct sgrad__sampler order = { .seed = sgrad_hash("partitions", 10) ^ search->options->common.training.seed, .count = count,
                                  .shuffle = true };
    search->partition_samples = count / search->partitions;
    search->sample = sgrad_xcalloc((size_t)count, sizeof *search->sample);
    for (int64_t i = 0; i < count; i++) search->sample[i] = sgrad__sampler_index(&order, 0, i);
    sgrad__sampler_close(&order);
}

/* Chooses a rank among those that have the state of the trial's rank with index PLACE: preferably one that will need it, and
 * none that was chosen for another index. Returns -1 if no rank is left. */
static int choose_rank(const struct sgrad__trial *trial, int place, const double *have) {
    int chosen = -1;
    for (int r = trial->search->ranks - 1; r >= 0; r--) {
        bool taken = have[r] == 0;
        for (int p = 0; p < place; p++) taken |= trial->at[p] == r;
        if (!taken && (chosen < 0 || chosen % trial->ranks != place || r % trial->ranks == place)) chosen = r;
    }
    return chosen;
}

/* Finds the number of sub-epochs for which the states of all ranks of the trial still exist. */
static int find_completed(struct sgrad__trial *trial) {
    const struct sgrad__search *s = trial->search;
    double *completed = sgrad_xcalloc((size_t)s->ranks, sizeof *completed);
    int error = 0;
    trial->completed = s->epochs * s->partitions;
    for (int place = 0; place < trial->ranks && !error; place++) {
        int own = 0, most = 0;
        error = sgrad_ranks_await(sgrad__trial_find(trial, place, &own), "for all ranks to look for checkpoints");
        for (int r = 0; r < s->ranks; r++) completed[r] = r == s->rank ? own : 0;
        sgrad_ranks_sum(completed, s->ranks);
        for (int r = 0; r < s->ranks; r++) most = (int)completed[r] > most ? (int)completed[r] : most;
        if (most < trial->completed) trial->completed = most;
    }
    free(completed);
    if (!trial->completed) memset(trial->journal, 0, sgrad__journal_count(trial) * sizeof *trial->journal);
    return error;
}

/* Finds the ranks that have these states on their disks, and sends the log of the trial to all ranks. */
static int find_past(struct sgrad__trial *trial) {
    const struct sgrad__search *s = trial->search;
    SGRAD_TRY(find_completed(trial));
    if (!trial->completed) return 0;
    double *have = sgrad_xcalloc((size_t)s->ranks, sizeof *have);
    bool whole = true;
    for (int place = 0; place < trial->ranks; place++) {
        for (int r = 0; r < s->ranks; r++) have[r] = r == s->rank && sgrad__trial_has(trial, place, trial->completed);
        sgrad_ranks_sum(have, s->ranks);
        trial->at[place] = choose_rank(trial, place, have);
        whole &= trial->at[place] >= 0;
    }
    free(have);
    if (!whole)
        return COMMON_ERROR(s,
                            "%s: each of %d ranks must have a different shard of the checkpoint after %d visits, but some have "
                            "none; copy the shards to a file system that all ranks share",
                            trial->folder, trial->ranks, trial->completed);
    SGRAD_TRY(sgrad_ranks_agree(trial->at[0] == s->rank ? sgrad__trial_recall(trial, 0, trial->completed) : 0));
    sgrad_ranks_broadcast(trial->journal, sgrad__journal_count(trial) * sizeof *trial->journal, trial->at[0]);
    return 0;
}

static int add_trial(struct sgrad__trial *trial) {
    const struct sgrad__search *s = trial->search;
    sgrad__trial_measure(trial);
    if (sgrad_ranks_agree(trial->status == SGRAD__BROKEN ? SGRAD_EINVAL : 0)) {
        trial->status = SGRAD__BROKEN;
        if (s->rank == 0) sgrad_log_warning("candidate %s cannot be trained; the others continue", trial->name);
    }
    trial->bytes = s->rank < trial->ranks ? trial->part : 0;
    sgrad_ranks_sum(&trial->bytes, 1);
    if (s->options->common.checkpoint.resume && trial->status != SGRAD__BROKEN) SGRAD_TRY(find_past(trial));
    int error = s->rank ? 0 : sgrad__leaderboard_add(trial);
    sgrad__trial_close(trial);
    return sgrad_ranks_await(error, "for rank 0, which writes a candidate's folder");
}

/* Chooses the number of trials that a rank trains concurrently, so that there are two micro-batches for each worker of rank 0:
 * at the end of a step there are fewer. */
static void choose_slots(struct sgrad__search *search) {
    enum { MOST = 8 };
    double tasks = 0;
    int able = 0;
    for (int i = 0; i < search->trials; i++) {
        if (is_over(&search->trial[i])) continue;
        tasks += search->trial[i].tasks;
        able++;
    }
    const double wanted = able ? 2.0 * (search->ground.context->cpus + search->ground.context->gpus) / (tasks / able) : 1;
    search->slots = (int)fmax(1, fmin(wanted, MOST));
    if (search->options->concurrent) search->slots = search->options->concurrent;
    if (search->slots > able) search->slots = able ? able : 1;
    sgrad_ranks_broadcast(&search->slots, sizeof search->slots, 0);
}

static int open_search(struct sgrad__search *search) {
    const struct sgrad_search_options *o = search->options;
    SGRAD_TRY(sgrad__stop_check(&o->stop));
    search->ground.options = o->common;
    search->ground.options.checkpoint.resume = false;
    SGRAD_TRY(sgrad__run_open_ground(&search->ground));
    if (search->ground.data.train->sources)
        return sgrad_log_error(SGRAD_EINVAL, "search: --data must not be a mixture: the samples of a search are partitioned");
    search->rank = search->ground.context->rank;
    search->ranks = search->ground.context->ranks;
    search->epochs = (int)o->common.training.epochs;
    search->partitions = o->partitions ? o->partitions : search->ranks;
    search->monitor = sgrad_monitor_create();
    SGRAD_TRY(sgrad_ranks_agree(open_trials(search)));
    SGRAD_TRY(compare_ranks(search));
    search->folder = sgrad_format("%s", o->replay ? search->trial->folder : o->common.output.folder);
    SGRAD_TRY(sgrad_ranks_await(search->rank ? 0 : open_folder(search), "for rank 0, which opens the folder"));
    sgrad_ranks_broadcast(&search->partitions, sizeof search->partitions, 0);
    distribute_samples(search);
    if (search->rank == 0 && !o->replay)
        SGRAD_TRY(sgrad__manifest_write(search, search->folder)); /* before anything else, for --resume */
    for (int i = 0; i < search->trials; i++) SGRAD_TRY(add_trial(&search->trial[i]));
    choose_slots(search);
    return sgrad__search_messages_open(search);
}

static void close_search(struct sgrad__search *search) {
    /* otherwise this could wait for messages that will never arrive */
    if (search->ground.context && search->ranks == 1) sgrad_wait_all();
    if (search->ground.context) sgrad__checkpoint_end(search->checkpoint);
    for (int i = 0; i < search->trials; i++) {
        struct sgrad__trial *e = &search->trial[i];
        sgrad__trial_close(e);
        free(e->name);
        free(e->folder);
        free(e->at);
        free(e->journal);
        free(e->recorded);
    }
    sgrad__search_messages_close(search);
    if (search->rank == 0) sgrad__leaderboard_close(search);
    sgrad__sub_epochs_free(&search->plan);
    sgrad__run_close(&search->ground);
    if (search->monitor) sgrad_monitor_destroy(search->monitor);
    free(search->trial);
    free(search->sample);
    free(search->folder);
}

/* ---- the plan of a round ------------------------------------------------------------------------------------------ */

/* Counts the migrations of trials between ranks, and their bytes. The first of a trial starts at the rank that has it. */
static void count_hops(struct sgrad__search *search) {
    int *at = sgrad_xcalloc((size_t)search->trials, sizeof *at);
    double work = 0;
    search->hops = 0;
    search->bytes = 0;
    for (int i = 0; i < search->trials; i++) at[i] = -1;
    for (const struct sgrad__sub_epoch *v = search->plan.sub_epoch; v < search->plan.sub_epoch + search->plan.count; v++) {
        const struct sgrad__trial *e = &search->trial[v->model];
        const int before = at[v->model] < 0 ? e->planned_at : at[v->model];
        at[v->model] = sgrad__search_rank(search, v);
        work += e->ranks * (v->end - v->begin);
        if (before < 0 || before == at[v->model]) continue;
        search->hops++;
        search->bytes += e->bytes;
    }
    for (int i = 0; i < search->trials; i++)
        if (at[i] >= 0) search->trial[i].planned_at = at[i];
    search->busy = work / (search->plan.makespan * search->ranks * search->slots);
    free(at);
}

/* Plans a round; the unit of time is its longest sub-epoch. The order is computed for as many ranks as partitions, independently
 * of the number of ranks, so that a resumed search with fewer or more ranks has the same results. */
static int plan_round(struct sgrad__search *search, int from, int to) {
    int *number = sgrad_xcalloc((size_t)search->trials, sizeof *number),
        *width = sgrad_xcalloc((size_t)search->trials, sizeof *width);
    int running = 0;
    double *cost = sgrad_xcalloc((size_t)search->trials, sizeof *cost), most = 0;
    for (int i = 0; i < search->trials; i++)
        if (!is_over(&search->trial[i])) number[running++] = i;
    for (int i = 0; i < running; i++) most = search->trial[number[i]].cost > most ? search->trial[number[i]].cost : most;
    for (int i = 0; i < running; i++) cost[i] = search->trial[number[i]].cost / most, width[i] = search->trial[number[i]].ranks;
    struct sgrad__sub_epochs_options how = { .models = running, .partitions = search->partitions, .first_epoch = from,
                                         .epochs = to - from, .ranks = search->partitions, .cost = cost, .width = width,
                                         .seed = search->options->common.training.seed };
    sgrad__sub_epochs_free(&search->plan);
    int error = sgrad__sub_epochs_plan(search->options->schedule, &how, &search->plan);
    how.ranks = search->ranks;
    how.slots = search->slots;
    if (!error) sgrad__sub_epochs_time(&how, &search->plan);
    for (int i = 0; !error && i < search->plan.count; i++)
        search->plan.sub_epoch[i].model = number[search->plan.sub_epoch[i].model];
    if (!error) count_hops(search);
    free(number);
    free(width);
    free(cost);
    return error;
}

/* ---- the end of a round ------------------------------------------------------------------------------------------- */

/* Records the ranks that have the states of the trials after the round. */
static void note_places(struct sgrad__search *search) {
    for (const struct sgrad__sub_epoch *v = search->plan.sub_epoch; v < search->plan.sub_epoch + search->plan.count; v++) {
        struct sgrad__trial *e = &search->trial[v->model];
        if (v->number < e->completed) continue;
        e->completed = v->number + 1;
        for (int p = 0; p < e->ranks; p++) e->at[p] = sgrad__search_rank(search, v) + p;
    }
}

/* Rank 0: decides which trials are stopped. Scores use the epochs that all running trials have completed. A later failure,
 * which is already known from a checkpoint, is ignored until its round. */
static void decide(struct sgrad__search *search, int epoch) {
    struct sgrad__score *score = sgrad_xcalloc((size_t)search->trials, sizeof *score);
    double *value = sgrad_xcalloc((size_t)search->trials * (size_t)epoch, sizeof *value);
    struct sgrad__trial **of = sgrad_xcalloc((size_t)search->trials, sizeof *of);
    int count = 0;
    for (int i = 0; i < search->trials; i++) {
        struct sgrad__trial *e = &search->trial[i];
        if (!is_over(e) && e->journal[SGRAD__JOURNAL_LOST] < (float)(epoch * search->partitions))
            e->status = (enum sgrad__trial_status)e->journal[SGRAD__JOURNAL_STATUS];
        if (is_over(e)) continue;
        double *own = value + (size_t)count * (size_t)epoch;
        for (int j = 0; j < epoch; j++) own[j] = sgrad__leaderboard_value(e, j);
        score[count].value = own;
        of[count++] = e;
    }
    if (epoch < search->epochs) sgrad__stop_decide(&search->options->stop, epoch, score, count);
    for (int i = 0; i < count; i++)
        if (epoch == search->epochs) of[i]->status = SGRAD__FINISHED;
        else if (score[i].stops) of[i]->status = SGRAD__STOPPED;
    free(score);
    free(value);
    free(of);
}

/* Saves the weights of ended trials on the ranks that have their states. An error is returned only at the end, so that the
 * other trials are saved and no rank waits. */
static int save_ended(struct sgrad__search *search) {
    int first = 0;
    for (int i = 0; i < search->trials; i++) {
        struct sgrad__trial *e = &search->trial[i];
        const struct sgrad_group ranks = { e->ranks, e->at };
        int error = 0;
        if (!is_over(e) || sgrad_group_index(&ranks, search->rank) < 0) continue;
        if (e->status == SGRAD__FINISHED || e->status == SGRAD__STOPPED) error = sgrad__trial_save(e);
        sgrad__trial_close(e);
        if (!first) first = error;
    }
    return first;
}

static int end_round(struct sgrad__search *search, int epoch) {
    int *status = sgrad_xcalloc((size_t)search->trials, sizeof *status);
    note_places(search);
    SGRAD_TRY(sgrad_ranks_await(0, "for the visits of all ranks"));
    if (search->rank == 0) decide(search, epoch);
    for (int i = 0; i < search->trials; i++) status[i] = search->trial[i].status;
    sgrad_ranks_broadcast(status, (size_t)search->trials * sizeof *status, 0);
    for (int i = 0; i < search->trials; i++) search->trial[i].status = (enum sgrad__trial_status)status[i];
    free(status);
    return sgrad_ranks_await(save_ended(search), "for all ranks, which write weights");
}

/* ---- the search --------------------------------------------------------------------------------------------------- */

static bool any_is_running(const struct sgrad__search *search) {
    for (int i = 0; i < search->trials; i++)
        if (!is_over(&search->trial[i])) return true;
    return false;
}

static int run_rounds(struct sgrad__search *search) {
    for (int round = 0, epoch = 0; epoch < search->epochs && any_is_running(search); round++) {
        const int next = sgrad__stop_next(&search->options->stop, epoch, search->epochs);
        SGRAD_TRY(plan_round(search, epoch, next));
        int error = search->rank ? 0 : sgrad__manifest_round(search, search->folder, round);
        SGRAD_TRY(sgrad_ranks_await(error, "for rank 0, which writes the schedule"));
        if (search->rank == 0) sgrad__leaderboard_round(search, epoch, next);
        SGRAD_TRY(sgrad__slots_run(search));
        SGRAD_TRY(end_round(search, next));
        epoch = next;
    }
    return 0;
}

/* Repeats the recorded sub-epochs of a candidate, which rank 0 reads and sends to all ranks. */
static int replay(struct sgrad__search *search) {
    const struct sgrad_search_options *o = search->options;
    struct sgrad__sub_epochs recorded = { 0 };
    if (is_over(search->trial)) return SGRAD_EINVAL;
    int error = search->rank ? 0
                             : sgrad__manifest_sub_epochs(o->common.output.folder, o->candidate->name, search->partitions,
                                                          search->epochs, &recorded);
    SGRAD_TRY(sgrad_ranks_agree(error));
    sgrad_ranks_broadcast(&recorded.count, sizeof recorded.count, 0);
    search->plan = (struct sgrad__sub_epochs){ .schedule = "recorded", .count = recorded.count, .makespan = recorded.count };
    search->plan.sub_epoch = sgrad_xcalloc((size_t)recorded.count, sizeof *recorded.sub_epoch);
    if (search->rank == 0)
        memcpy(search->plan.sub_epoch, recorded.sub_epoch, (size_t)recorded.count * sizeof *recorded.sub_epoch);
    sgrad_ranks_broadcast(search->plan.sub_epoch, (size_t)recorded.count * sizeof *recorded.sub_epoch, 0);
    sgrad__sub_epochs_free(&recorded);
    count_hops(search);
    if (search->rank == 0) sgrad__leaderboard_round(search, 0, recorded.count / search->partitions);
    SGRAD_TRY(sgrad__slots_run(search));
    return end_round(search, search->epochs);
}

static void find_result(struct sgrad__search *search, struct sgrad_search_result *result) {
    const struct sgrad__trial *best = sgrad__leaderboard_best(search);
    char *path = best ? sgrad_format("%s/model.safetensors", best->folder) : NULL;
    if (path && access(path, F_OK))
        sgrad_log_warning("%s: is not on this host; rank %d, which finished the candidate, wrote it to its own disk", path,
                          best->at[0]);
    free(path);
    result->best = best ? sgrad_format("%s", best->name) : NULL;
    result->same = search->options->replay && sgrad__manifest_same(search->options->replay, search->folder);
}

static int run_search(struct sgrad__search *search, struct sgrad_search_result *result) {
    SGRAD_TRY(open_search(search));
    SGRAD_TRY(search->options->replay ? replay(search) : run_rounds(search));
    sgrad_ranks_sum(search->moved, 2);
    int error = search->rank ? 0 : sgrad__leaderboard_end(search);
    SGRAD_TRY(sgrad_ranks_await(error, "for rank 0, which writes the leaderboard"));
    *result = (struct sgrad_search_result){ .rank = search->rank,
                                            .folder = sgrad_format("%s", search->folder),
                                            .hops = (long)search->moved[0],
                                            .bytes = search->moved[1] };
    if (search->rank == 0) find_result(search, result);
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
