/* snapshots.c: checkpoints in the memory of the hosts, from which a run continues after the loss of a rank.
 *
 *     rank 0, host a   step 8 ends │ copy │ step 9   step 10   step 11
 *     thread                              │ checksum, write to memory, rename │
 *     rank 1, host a   step 8 ends │      │ step 9   step 10   step 11
 *     rank 2, host b   step 8 ends │ copy │ step 9   step 10   step 11           the same snapshot as on host a
 *
 * The first rank of each host writes the whole state of the run, so that it survives the loss of all hosts but one. A run that is
 * restarted loads the newest snapshot that is whole on any host, unless a checkpoint in the run directory is newer.
 *
 * With --snapshot-every auto, rank 0 measures the cost of a snapshot: the time that the steps around it lose, and the processor
 * time of the thread. It chooses the interval so that the cost is a hundredth of the time of the steps. */
#include "graphs/train/setup.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEEP = 2, NAME = 64, FIRST = 2 /* steps before the first automatic snapshot */, STEPS_PER_COST = 100 };

/* ---- opening ---- */

static bool is_first_on_host(const struct sgrad__run *run) {
    const char *host = sgrad_rank_host(run->context->rank);
    for (int r = 0; r < run->context->rank; r++)
        if (!strcmp(sgrad_rank_host(r), host)) return false;
    return true;
}

bool sgrad__snapshots_here(const struct sgrad__run *run) {
    return run->options.checkpoint.snapshot_every && is_first_on_host(run);
}

/* Sends the contents of the file PATH from rank FROM to rank 0, which stores it as the snapshot of STEP. Collective. If this
 * fails, rank 0 logs a warning, and continues from another snapshot or checkpoint. */
static void fetch(struct sgrad__run *run, const char *path, int from, long step) {
    enum { PIECE = 16 << 20 };
    const bool sends = run->context->rank == from, stores = !run->context->rank && run->snapshots.folder;
    char *data = sgrad_xcalloc(PIECE, 1), *to = stores ? sgrad__checkpoint_path(run->snapshots.folder, step) : NULL;
    FILE *in = sends ? fopen(path, "re") : NULL;
    struct sgrad_file out = { 0 };
    bool stored = stores && !sgrad_file_begin(to, &out), sent;
    for (size_t got = PIECE; got == PIECE;) {
        got = in ? fread(data, 1, PIECE, in) : 0;
        sgrad_ranks_broadcast(&got, sizeof got, from);
        sgrad_ranks_broadcast(data, got, from);
        if (out.stream) fwrite(data, 1, got, out.stream);
    }
    sent = in && !ferror(in);
    sgrad_ranks_broadcast(&sent, sizeof sent, from);
    if (stored && sent) stored = !sgrad_file_commit(&out);
    sgrad_file_abort(&out);
    if (stores && !(stored && sent))
        sgrad_log_warning("%s: the snapshot of rank %d cannot be %s, so the run continues from an older one or a checkpoint", to,
                          from, sent ? "stored" : "read there");
    if (in) fclose(in);
    free(to);
    free(data);
}

/* Removes the snapshots of each host that do not belong to the run any more. Collective. */
static void remove_abandoned(struct sgrad__run *run) {
    struct sgrad__run_snapshots *s = &run->snapshots;
    long *limit = NULL, count = run->context->rank ? 0 : sgrad__snapshots_limits(run->files.folder, &limit);
    sgrad_ranks_broadcast(&count, sizeof count, 0);
    if (run->context->rank) limit = sgrad_xcalloc((size_t)count + 1, sizeof *limit);
    sgrad_ranks_broadcast(limit, (size_t)count * sizeof *limit, 0);
    if (s->folder) sgrad__snapshots_remove_abandoned(s->folder, limit, count);
    s->start = count + 1;
    free(limit);
}

/* Finds the newest snapshot of all hosts, and copies it to the host of rank 0 if that has no equally new one. */
static void collect(struct sgrad__run *run) {
    const int ranks = run->context->ranks, rank = run->context->rank;
    double *step = sgrad_xcalloc((size_t)ranks, sizeof *step);      /* by rank; 0: it has none */
    char *path = NULL;
    int from = 0;
    if (run->snapshots.folder && !sgrad__checkpoint_newest(run->snapshots.folder, -1, &path) && path)
        step[rank] = (double)sgrad__checkpoint_step(path);
    sgrad_ranks_sum(step, ranks);
    for (int r = 1; r < ranks; r++)
        if (step[r] > step[from]) from = r;
    if (from) fetch(run, path, from, (long)step[from]);
    free(path);
    free(step);
}

void sgrad__snapshots_start(struct sgrad__run *run) {
    char name[NAME] = "";
    struct sgrad__run_snapshots *s = &run->snapshots;
    if (!run->options.checkpoint.snapshot_every) return;
    char *own = run->context->rank ? NULL : sgrad__snapshots_name(run->files.folder);
    if (own) snprintf(name, sizeof name, "%s", own);
    free(own);
    sgrad_ranks_broadcast(name, sizeof name, 0);
    if (*name && is_first_on_host(run)) sgrad__snapshots_open(name, &s->folder, &s->lock);
    s->start = 1;
    if (run->options.checkpoint.resume) {
        remove_abandoned(run);
        collect(run);
    } else if (s->folder) sgrad__snapshots_clear(s->folder);
}

void sgrad__snapshots_expect(struct sgrad__run *run, long done) {
    const long every = run->options.checkpoint.snapshot_every;
    run->snapshots.next = every ? done + (every > 0 ? every : FIRST) : 0;
}

int sgrad__snapshots_newest(const struct sgrad__run *run, char **path, bool *in_memory) {
    char *snapshot = NULL, *checkpoint = NULL;
    if (run->snapshots.folder && sgrad__checkpoint_newest(run->snapshots.folder, -1, &snapshot)) snapshot = NULL;
    SGRAD_TRY(sgrad__checkpoint_newest(run->files.folder, snapshot ? sgrad__checkpoint_step(snapshot) : -1, &checkpoint));
    *in_memory = snapshot && !checkpoint;
    *path = *in_memory ? snapshot : checkpoint;
    if (checkpoint) free(snapshot);
    return 0;
}

/* ---- the interval ---- */

void sgrad__snapshot_step(struct sgrad__run *run, double time) {
    struct sgrad__run_snapshots *s = &run->snapshots;
    if (!s->steps++) s->first = time;
    s->last = time;
}

/* Measures the steps since the last snapshot: the duration of one, and the time that the first one lost. The first one after an
 * evaluation also waits for that, which is no loss. */
static void measure(struct sgrad__run *run) {
    struct sgrad__run_snapshots *s = &run->snapshots;
    const long evaluated = run->evaluation.epoch.step;
    if (s->steps > 1) s->step = (s->last - s->first) / (double)(s->steps - 1);
    if (s->stopped > 0 && s->step > 0 && evaluated == s->evaluated) {
        const double lost = s->first - s->stopped - s->step, cost = (lost > 0 ? lost : 0) + s->work;
        s->cost = s->cost > 0 ? 0.7 * s->cost + 0.3 * cost : cost;
    }
    s->evaluated = evaluated;
    s->steps = 0;
    s->stopped = s->last;
}

/* Sets the step of the next snapshot. COPYING: seconds that the main thread took for this one. */
static void choose_next(struct sgrad__run *run, long done, double copying) {
    struct sgrad__run_snapshots *s = &run->snapshots;
    const long every = run->options.checkpoint.snapshot_every;
    const double cost = fmax(s->cost, copying + s->work), steps = s->step > 0 ? ceil(STEPS_PER_COST * cost / s->step) : FIRST;
    s->next = done + (every > 0 ? every : steps < 1 ? 1 : steps > 1e6 ? 1000000 : (long)steps);
    sgrad_ranks_broadcast(&s->next, sizeof s->next, 0);
}

/* ---- a snapshot ---- */

bool sgrad__snapshot_is_due(const struct sgrad__run *run, long done) {
    return run->snapshots.next && done >= run->snapshots.next;
}

/* Waits for the previous snapshot. If it could not be written, this host writes no more: memory may be full. */
static void end_writing(struct sgrad__run *run) {
    struct sgrad__run_snapshots *s = &run->snapshots;
    s->work = sgrad__checkpoint_seconds(s->writing);
    const int error = sgrad__checkpoint_end(s->writing);
    s->writing = NULL;
    if (!error || !s->folder) return;
    sgrad_log_warning("%s: no further snapshots are written there; a lost rank costs the steps since the newest checkpoint",
                      s->folder);
    sgrad__snapshots_close(s->folder, s->lock, true);
    s->folder = NULL;
}

int sgrad__snapshot_begin(struct sgrad__run *run, long done) {
    struct sgrad__run_snapshots *s = &run->snapshots;
    struct sgrad__position position = sgrad__run_position(run, done);
    const int failed = sgrad_failure_error(run->program->failure);
    const double begin = sgrad_time_monotonic();
    position.start = s->start;
    measure(run);
    SGRAD_TRY(sgrad__run_agree(run, failed ? failed : sgrad_task_error()));
    end_writing(run);
    int error = sgrad__run_gather(run, true, s->folder != NULL);
    if (!error && s->folder)
        error = sgrad__checkpoint_begin(run->training, s->folder, &position, run->files.identity, KEEP, &s->writing);
    sgrad__training_free_wholes(run->training);
    choose_next(run, done, sgrad_time_monotonic() - begin);
    return error;
}

void sgrad__snapshots_end(struct sgrad__run *run, bool remove) {
    struct sgrad__run_snapshots *s = &run->snapshots;
    sgrad__checkpoint_end(s->writing);
    sgrad__snapshots_close(s->folder, s->lock, remove);
    *s = (struct sgrad__run_snapshots){ 0 };
}
