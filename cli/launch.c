/* launch.c: stargrad launch: trains on several ranks with mpirun, and restarts when a rank or a host fails.
 *
 *     mpirun -n N stargrad train …  ──>  end: success, a wrong command line, a loss that is not finite, a signal to launch
 *                ^               └──>  any other failure
 *                ├── --resume, if a run exists, at most R times, without the hosts that cannot be reached
 *                └── --resume, after the file of hosts has changed and the run has ended with a checkpoint (--resize)
 *
 * With --retries, the ranks write snapshots (graphs/train/snapshots.c), and a start that has completed a step is followed by the
 * next one at once. The failure is described in STARGRAD_FAILURE, which the next start writes to metrics.jsonl. */
#include "cli/launch.h"
#include "graphs/api/inference.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILURE "STARGRAD_FAILURE"
#define STEP    "\"event\":\"step\""      /* in the line of a step */

static const struct sgrad__option options[] = {
    { "ranks", "N", "number of processes, usually one per host", &sgrad__whole, SGRAD__PLACE(launch.ranks), 1, 1000000,
      .required = true, .letter = 'n' },
    { "retries", "R", "restart from the newest snapshot or checkpoint up to R times", &sgrad__whole,
      SGRAD__PLACE(launch.retries), 0, 1000000 },
    { "host", "LIST", "hosts in the format of mpirun: A,B:2", &sgrad__text, SGRAD__PLACE(launch.host) },
    { "hostfile", "FILE", "file of hosts in the format of mpirun", &sgrad__text, SGRAD__PLACE(launch.hostfile) },
    { "resize", NULL, "when --hostfile changes, continue on its hosts, with N ranks for as many slots as at the start",
      &sgrad__flag, SGRAD__PLACE(launch.resize) },
    { 0 },
};

/* ---- mpirun ----------------------------------------------------------------------------------------------------- */

struct words {
    int count;
    char **word;    /* NULL-terminated */
};

static void add(struct words *words, const char *word) {
    words->word = sgrad_array_grow(words->word, words->count, sizeof *words->word);
    words->word[words->count++] = word ? sgrad_format("%s", word) : NULL;
}

static void free_words(struct words *words) {
    for (int i = 0; i < words->count; i++) free(words->word[i]);
    free(words->word);
}

/* PATH: of a copy of the file of hosts; NULL: none. */
static void add_hosts(struct words *words, const struct sgrad__request *request, const struct sgrad__hosts *hosts,
                      const char *path) {
    if (!hosts->count) return;
    if (hosts->file) {
        add(words, "--hostfile");
        add(words, path ? path : request->launch.hostfile);
        return;
    }
    char *list = sgrad__hosts_text(hosts, false, true, ",");
    add(words, "--host");
    add(words, list);
    free(list);
}

/* The launchers of MPICH and Intel MPI wait for an unreachable host without end; that of Open MPI ends. Returns true if the
 * launcher would wait. */
static bool would_wait(struct sgrad__hosts *hosts) {
#ifndef SGRAD_OPEN_MPI
    sgrad__hosts_probe(hosts);
#endif
    return hosts->gone;
}

/* Adds the variables that restarts need to the environment of the ranks on all hosts. Open MPI does not forward them. */
static void add_variables(struct words *words) {
#ifdef SGRAD_OPEN_MPI
    static const char *const names[] = { FAILURE, "STARGRAD_SNAPSHOTS" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!getenv(names[i])) continue;
        add(words, "-x");
        add(words, names[i]);
    }
#else
    (void)words;
#endif
}

/* Returns the path of this program, for all starts: it is unknown after the file has been replaced. */
static const char *own_path(void) {
    static char path[4096];
    if (!*path && readlink("/proc/self/exe", path, sizeof path - 1) <= 0) snprintf(path, sizeof path, "stargrad");
    return path;
}

/* Returns the end of a start without mpirun. */
static struct sgrad__end failed_start(int status) { return (struct sgrad__end){ status, -1, sgrad__children_clock(), false }; }

/* How a training is started. */
struct start {
    int ranks;
    bool resume, snapshots;     /* options --resume and --snapshot-every auto are added */
};

static bool hosts_have_changed(const struct sgrad__watch *watch) {
    return sgrad__hosts_changed(watch->request, watch->hosts);
}

/* Runs a training. The file of hosts is copied without unreachable hosts, and if it may change (--resize). */
static struct sgrad__end run_once(const struct sgrad__request *request, const struct sgrad__request *job,
                                  struct sgrad__hosts *hosts, struct start start, int *forwarded) {
    struct words w = { 0 };
    char number[16], path[] = "/tmp/stargrad-hosts-XXXXXX";
    const bool copies = hosts->file && (hosts->gone || request->launch.resize);
    const struct sgrad__watch watch = { start.ranks, job->train.parallel.stall_timeout,
                                        request->launch.resize ? hosts_have_changed : NULL, request, hosts };
    if (copies && sgrad__hosts_write(hosts, path)) return failed_start(SGRAD__FAILED);
    snprintf(number, sizeof number, "%d", start.ranks);
    add(&w, sgrad__mpirun());
    add(&w, "-n");
    add(&w, number);
    add_hosts(&w, request, hosts, copies ? path : NULL);
    add_variables(&w);
    add(&w, own_path());
    for (char **word = request->words; *word; word++) add(&w, *word);
    if (start.snapshots) add(&w, "--snapshot-every=auto");
    if (start.resume) add(&w, "--resume");
    add(&w, NULL);
    const struct sgrad__end end = sgrad__children_run((const char *const *)w.word, &watch, forwarded);
    if (copies) unlink(path);
    free_words(&w);
    return end;
}

/* ---- restarts ----------------------------------------------------------------------------------------------------- */

/* Returns the last event KIND of metrics.jsonl in FOLDER, which the caller must release. NULL: there is none in the last part of
 * the file. */
static json_t *last_event(const char *folder, const char *kind) {
    enum { TAIL = 1 << 20 };       /* bytes */
    char *path = sgrad_format("%s/metrics.jsonl", folder), *tail = sgrad_xcalloc(TAIL + 1, 1), *end, *line = NULL;
    json_t *event = NULL;
    FILE *file = fopen(path, "re");
    if (file && fseek(file, -TAIL, SEEK_END)) rewind(file);
    const size_t got = file ? fread(tail, 1, TAIL, file) : 0;
    if (file) fclose(file);
    tail[got] = 0;
    while (!event && (end = strrchr(tail, '\n'))) {
        *end = 0;
        line = strrchr(tail, '\n');
        line = line ? line + 1 : tail;
        if (strstr(line, kind)) event = json_loads(line, 0, NULL);
    }
    free(path);
    free(tail);
    return event;
}

/* Returns true if the run ended with a loss that is not finite; a restart would end likewise. */
static bool diverged(const struct sgrad_train_options *options) {
    json_t *event = options->training.nan_ok ? NULL : last_event(options->output.folder, STEP);
    const bool is = json_is_null(json_object_get(event, "loss"));
    json_decref(event);
    return is;
}

/* Returns the number of the last step that the run in FOLDER has recorded; 0: none. */
static long last_step(const char *folder) {
    json_t *event = last_event(folder, STEP);
    const long step = (long)json_integer_value(json_object_get(event, "step"));
    json_decref(event);
    return step;
}

/* Returns true if the start after the failure END has completed a step: it then records the failure. */
static bool has_recorded(const char *folder, const struct sgrad__end *end) {
    json_t *failure = last_event(folder, "\"event\":\"failure\"");
    const bool has = failure && fabs(json_number_value(json_object_get(failure, "time")) - end->time) < 0.01;
    json_decref(failure);
    return has;
}

/* Describes the failure to the next start. */
static void hand_on(const struct sgrad__end *end) {
    const int number = end->status - SGRAD__KILLED;
    json_t *is = json_pack("{s:f, s:o}", "time", end->time, "rank", end->rank < 0 ? json_null() : json_integer(end->rank));
    if (number > 0 && number <= SIGRTMAX) json_object_set_new(is, "signal", json_integer(number));
    else if (end->status < SGRAD__KILLED) json_object_set_new(is, "status", json_integer(end->status));
    char *text = json_dumps(is, JSON_COMPACT);
    setenv(FAILURE, text, 1);
    free(text);
    json_decref(is);
}

static const char *ending(int status, char text[64]) {
    int number = status - SGRAD__KILLED;
    if (status == SGRAD__STALLED)
        snprintf(text, 64, "a host or mpirun did not answer: mpirun was killed");
    else if (status == SGRAD__UNREACHABLE) snprintf(text, 64, "a host cannot be reached");
    else if (number > 0 && number <= SIGRTMAX)      /* more: a status of mpirun itself */
        snprintf(text, 64, "a process was ended by signal %d (%s)", number, strsignal(number));
    else snprintf(text, 64, "mpirun ended with exit status %d", status);
    return text;
}

/* ---- the loop ----------------------------------------------------------------------------------------------------- */

/* A launch in progress. */
struct launch {
    const struct sgrad__request *request, *job;
    struct sgrad__hosts hosts, former;  /* former: those before the last change; none after a step on the present ones */
    long slots;                         /* of the hosts at the start, for request->launch.ranks ranks */
    struct start start;
    struct sgrad__end end;              /* of the last start */
    int retry, idle;                    /* restarts after failures; starts without a step in succession */
    int forwarded;                      /* signals */
    bool resized;                       /* the last start followed a change of the hosts, and no failure */
};

/* Returns the number of ranks: N for as many slots as at the start, and a divisor of the batch. */
static int fitting_ranks(const struct launch *l) {
    const long batch = l->job->train.training.batch;
    long ranks = l->request->launch.ranks;
    if (l->hosts.count) ranks = ranks * sgrad__hosts_slots(&l->hosts) / l->slots;
    while (ranks > 1 && batch % ranks) ranks--;
    return ranks > 1 ? (int)ranks : 1;
}

/* Sets how the next start continues the run. */
static void continue_run(struct launch *l) {
    l->start.ranks = fitting_ranks(l);
    l->start.resume = sgrad_run_exists(l->job->train.output.folder);
}

/* Waits after a start without a step, longer after each, so that transient failures can end; then probes the hosts. False: launch
 * must end. */
static bool prepare(struct launch *l) {
    const int idle = l->idle;
    struct sgrad__hosts *hosts = &l->hosts;
    if (!sgrad__children_pause(idle ? 1 << (idle < 7 ? idle - 1 : 6) : 0)) return false;
    if (l->request->launch.resize && !sgrad__hosts_follow(l->request, hosts, &l->former)) return false;
    sgrad__hosts_probe(hosts);
    if (!sgrad__children_pause(0)) return false;
    if (!hosts->count || hosts->gone < hosts->count) return true;
    sgrad_log_error(SGRAD_EIO, "launch: no host can be reached; check --host or --hostfile, and the network");
    return false;
}

static void log_retry(const struct launch *l) {
    const char *out = l->job->train.output.folder;
    char text[64], rank[32] = "", *gone = sgrad__hosts_text(&l->hosts, true, false, ", ");
    if (l->end.rank >= 0) snprintf(rank, sizeof rank, "rank %d: ", l->end.rank);
    sgrad_log_warning("launch: %s%s; retry %d of %d, on %d %s, from the %s %s%s%s%s", rank, ending(l->end.status, text), l->retry,
                      l->request->launch.retries, l->start.ranks, sgrad_plural(l->start.ranks, "rank", "ranks"),
                      l->start.resume ? "newest checkpoint in" : "beginning, in", out,
                      l->start.resume ? " or snapshot in memory" : "", *gone ? "; unreachable: " : "", gone);
    free(gone);
}

/* Prepares the next start after a failure. False: launch must end. */
static bool retry(struct launch *l) {
    l->retry++;
    l->resized = false;
    if (!prepare(l)) return false;
    continue_run(l);
    log_retry(l);
    hand_on(&l->end);
    return true;
}

/* Returns a remark on results, for a number of ranks whose sums have another order (sgrad__program.lanes). */
static const char *difference(const struct launch *l) {
    const int ranks = l->start.ranks;
    const bool same = ranks == 1 || ranks == 2 || ranks == 4 || ranks == 8;
    if (same || !l->job->train.training.deterministic) return "";
    return "; results agree to rounding: only 1, 2, 4 and 8 ranks give the same bits";
}

/* Prepares the next start on the hosts to which the file has changed. It records a failure if a signal has ended the ranks before
 * their checkpoint, or if the last failure has not been RECORDED. False: launch must end. */
static bool resize(struct launch *l, bool recorded) {
    const int before = l->start.ranks;
    if (l->end.status >= SGRAD__KILLED) hand_on(&l->end);
    else if (recorded) unsetenv(FAILURE);
    if (!sgrad__hosts_follow(l->request, &l->hosts, &l->former)) return false;
    sgrad__hosts_probe(&l->hosts);
    if (l->hosts.gone == l->hosts.count && l->former.count) {
        sgrad_log_warning("launch: no host of %s answers, so the run continues on those before", l->request->launch.hostfile);
        sgrad__hosts_restore(&l->hosts, &l->former);
    }
    continue_run(l);
    l->resized = true;
    sgrad_log_warning("launch: the run continues on %d %s, with %d before%s", l->start.ranks,
                      sgrad_plural(l->start.ranks, "rank", "ranks"), before, difference(l));
    return true;
}

/* Returns to the hosts before the last change, if the run has failed on the new ones before it completed a step, other than by a
 * signal: for example, their number of ranks may not suit --mesh. False: there are none. */
static bool restore(struct launch *l) {
    char text[64];
    if (!l->former.count || l->end.status >= SGRAD__KILLED) return false;
    sgrad__hosts_restore(&l->hosts, &l->former);
    continue_run(l);
    l->resized = true;
    sgrad_log_warning("launch: %s; the run cannot continue on the hosts of %s, so it continues on those before, on %d %s",
                      ending(l->end.status, text), l->request->launch.hostfile, l->start.ranks,
                      sgrad_plural(l->start.ranks, "rank", "ranks"));
    return true;
}

/* Starts the run, and waits for its end. Returns true if it has completed a step. */
static bool start_run(struct launch *l) {
    const char *out = l->job->train.output.folder;
    const struct sgrad__end before = l->end;
    const bool after_failure = l->retry && !l->resized;
    const long step = out ? last_step(out) : 0;
    struct start start = l->start;
    start.resume &= l->job->resume == SGRAD_BEGIN;      /* otherwise, the command line has this option */
    if (!l->retry && !l->resized && would_wait(&l->hosts)) l->end = failed_start(SGRAD__UNREACHABLE);
    else l->end = run_once(l->request, l->job, &l->hosts, start, &l->forwarded);
    return out && (after_failure ? has_recorded(out, &before) : last_step(out) > step);
}

/* Returns true if the start has ended well without a step, because mpirun had no ranks yet when it received a signal. */
static bool was_lost(const struct launch *l, bool stepped) {
    if (stepped || !l->job->train.output.folder || !(l->forwarded || l->end.changed)) return false;
    if (l->forwarded) sgrad_log_error(SGRAD_EINTR, "launch: a signal ended the run before its first step; start it again");
    return true;
}

/* *OWNS becomes true if a start has completed a step or ended well: then no other launch trains in this run directory. */
static int launch(struct launch *l, bool *owns) {
    const char *out = l->job->train.output.folder;
    char text[64];
    sgrad__children_open();
    while (true) {
        const bool stepped = start_run(l);
        const int status = l->end.status;
#ifndef SGRAD_OPEN_MPI      /* after a forwarded signal, MPICH's launcher may exit with 0, whatever the ranks' status */
        if (l->forwarded && status == SGRAD__DONE) return SGRAD__FAILED;
#endif
        *owns |= stepped || (status == SGRAD__DONE && !l->forwarded && !l->end.changed);
        if (stepped) sgrad__hosts_free(&l->former);
        if (status == SGRAD__DONE && was_lost(l, stepped)) {
            if (l->forwarded) return SGRAD__FAILED;
        } else if (status == SGRAD__DONE) return status;
        if (l->forwarded || status == SGRAD__NOT_FOUND || (out && diverged(&l->job->train))) return SGRAD__FAILED;
        l->idle = stepped ? 0 : l->idle + 1;
        if (l->end.changed) {
            if (!resize(l, stepped)) return SGRAD__FAILED;
        } else if (!stepped && restore(l)) continue;
        else if (status == SGRAD__USAGE) return status;
        else if (l->retry == l->request->launch.retries) break;
        else if (!retry(l)) return SGRAD__FAILED;
    }
    sgrad_log_error(SGRAD_EDEVICE, "launch: %s%s", ending(l->end.status, text),
                    l->request->launch.retries ? "; no retries are left" : "");
    return SGRAD__FAILED;
}

/* Open MPI waits for seconds between the signals that end ranks after a failure; they need no time. Removes the snapshots at the
 * end, but not those of another launch or of an earlier run. */
static int launch_and_clean(struct launch *l) {
    bool owns = false;
    if (!l->request->launch.retries) return launch(l, &owns);
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
    setenv("PRTE_MCA_odls_base_sigkill_timeout", "0", 0);
    const int status = launch(l, &owns);
    if (owns) sgrad_snapshots_remove(l->job->train.output.folder);
    return status;
}

/* Returns how the first start differs from the command line of the user. */
static struct start first_start(const struct sgrad__request *request, const struct sgrad__request *job) {
    const bool chosen = job->train.checkpoint.snapshot_every || sgrad__is_asked(job, "snapshot-every");
    return (struct start){ .ranks = request->launch.ranks, .snapshots = request->launch.retries && !chosen };
}

/* Checks the options of launch against each other. Returns a status; SGRAD__DONE: they are valid. */
static int check_options(const struct sgrad__request *request, const struct sgrad__request *job) {
    if (request->launch.host && request->launch.hostfile)
        return sgrad__wrong("launch: --host cannot be combined with --hostfile");
    if (request->launch.resize && !request->launch.hostfile)
        return sgrad__wrong("launch: --resize requires --hostfile FILE: the run follows the changes of this file");
    if (!job->train.output.folder && (request->launch.retries || request->launch.resize))
        return sgrad__wrong("launch: --%s requires --out DIR after train: the run continues from the checkpoints there",
                            request->launch.retries ? "retries" : "resize");
    return SGRAD__DONE;
}

static int run(const struct sgrad__request *request) {
    struct sgrad__request job = { .command = &sgrad__train_command, .train = sgrad_train_defaults() };
    int count = 0, status;
    while (request->words[count]) count++;
    if (strcmp(request->words[0], "train")) return sgrad__wrong("launch: the command must be train, not '%s'", request->words[0]);
    if (!sgrad__options_parse(job.command, count, request->words, &job, &status)) return status;
    if ((status = check_options(request, &job)) != SGRAD__DONE) return status;
    struct launch l = { .request = request, .job = &job, .start = first_start(request, &job),
                        .end = failed_start(SGRAD__FAILED) };
    status = sgrad__hosts_read(request, &l.hosts) ? SGRAD__FAILED : SGRAD__DONE;
    l.slots = sgrad__hosts_slots(&l.hosts);
    if (status == SGRAD__DONE) status = launch_and_clean(&l);
    sgrad__hosts_free(&l.hosts);
    sgrad__hosts_free(&l.former);
    return status;
}

const struct sgrad__command sgrad__launch_command = {
    .name = "launch",
    .summary = "train on several ranks and restart after failures",
    .argument = "-- train ...",
    .takes_words = true,
    .options = options,
    .run = run,
    .notes = "Starts the ranks with mpirun. After a failure, the run restarts from its newest snapshot in memory "
             "(train --snapshot-every) or checkpoint, on the hosts that still answer. Therefore --retries requires --out, a "
             "folder that launch can read. SIGINT, SIGTERM, SIGHUP and SIGUSR1 end "
             "the run with a checkpoint and without retries. For example:\n\n"
             "  stargrad launch -n 4 --retries 3 -- train --model resnet20 \\\n"
             "      --data cifar10:DIR --out runs/r20",
};
