/* launch.c: stargrad launch: trains on several ranks with mpirun, and restarts when a rank or a host fails.
 *
 *     mpirun -n N stargrad train …  ──>  end: success, a wrong command line, a loss that is not finite, a signal to launch
 *                ^               └──>  any other failure
 *                └── --resume, if a run exists, at most R times, without the hosts that cannot be reached
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
    { 0 },
};

/* ---- hosts ------------------------------------------------------------------------------------------------------ */

struct host {
    char *name, *entry;     /* "A"; "A:2", or a line of the file */
    pid_t probe;
    bool gone;
};
struct hosts {
    bool file;
    int count, gone;
    struct host *host;
};

static void add_host(struct hosts *hosts, const char *entry, size_t length, const char *end_of_name) {
    size_t name = strcspn(entry, end_of_name);
    if (!length || *entry == '#') return;
    hosts->host = sgrad_array_grow(hosts->host, hosts->count, sizeof *hosts->host);
    hosts->host[hosts->count++] = (struct host){ .name = sgrad_format("%.*s", (int)(name < length ? name : length), entry),
                                                 .entry = sgrad_format("%.*s", (int)length, entry) };
}

static int read_hosts(const struct sgrad__request *request, struct hosts *hosts) {
    const char *path = request->launch.hostfile;
    for (const char *at = request->launch.host; at; at = *at ? at + 1 : NULL) {
        size_t length = strcspn(at, ",");
        add_host(hosts, at, length, ":,");
        at += length;
    }
    if (!path) return 0;
    FILE *file = fopen(path, "re");
    if (!file) return sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    hosts->file = true;
    char *line = NULL;
    for (size_t room = 0; getline(&line, &room, file) > 0;) {
        const char *at = line + strspn(line, " \t");
        add_host(hosts, at, strcspn(at, "\n"), " \t\n");
    }
    free(line);
    fclose(file);
    return 0;
}

static void free_hosts(struct hosts *hosts) {
    for (int i = 0; i < hosts->count; i++) {
        free(hosts->host[i].name);
        free(hosts->host[i].entry);
    }
    free(hosts->host);
}

/* Returns the entries, or the names, of the hosts that are unreachable (GONE) or reachable; the caller must free the text. */
static char *list_hosts(const struct hosts *hosts, bool gone, bool entries, const char *between) {
    char *text = NULL;
    size_t size;
    int count = 0;
    FILE *to = open_memstream(&text, &size);
    for (int i = 0; i < hosts->count; i++)
        if (hosts->host[i].gone == gone)
            fprintf(to, "%s%s", count++ ? between : "", entries ? hosts->host[i].entry : hosts->host[i].name);
    fclose(to);
    return text;
}

/* ---- mpirun ----------------------------------------------------------------------------------------------------- */

static const char *mpirun(void) { return access(SGRAD_MPIRUN, X_OK) ? "mpirun" : SGRAD_MPIRUN; }

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

/* Starts a program on each host with mpirun, so that the hosts are reached in the same manner as for a run. */
static void probe(struct hosts *hosts) {
    hosts->gone = 0;
    for (int i = 0; i < hosts->count; i++)
        hosts->host[i].probe = sgrad__children_start_silent(
            (const char *[]){ "timeout", "-k", "5", "30", mpirun(), "--host", hosts->host[i].name, "-n", "1", "true", NULL });
    for (int i = 0; i < hosts->count; i++) {
        int status = 1;
        waitpid(hosts->host[i].probe, &status, 0);
        hosts->host[i].gone = status != 0;
        hosts->gone += hosts->host[i].gone;
    }
}

/* Writes the reachable hosts to a new temporary file, which the caller must remove. */
static int write_hosts(const struct hosts *hosts, char *path) {
    char *text = list_hosts(hosts, false, true, "\n");
    int fd = mkstemp(path), error = 0;
    if (fd < 0 || dprintf(fd, "%s\n", text) < 0) error = sgrad_log_error(SGRAD_EIO, "launch: %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    free(text);
    return error;
}

static void add_hosts(struct words *words, const struct sgrad__request *request, const struct hosts *hosts, const char *path) {
    if (!hosts->count) return;
    if (hosts->file) {
        add(words, "--hostfile");
        add(words, hosts->gone ? path : request->launch.hostfile);
        return;
    }
    char *list = list_hosts(hosts, false, true, ",");
    add(words, "--host");
    add(words, list);
    free(list);
}

/* The launchers of MPICH and Intel MPI wait for an unreachable host without end; that of Open MPI ends. Returns true if the
 * launcher would wait. */
static bool would_wait(struct hosts *hosts) {
#ifndef SGRAD_OPEN_MPI
    probe(hosts);
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
static struct sgrad__end failed_start(int status) { return (struct sgrad__end){ status, -1, sgrad__children_clock() }; }

/* How a training is started. */
struct start {
    int ranks;
    bool resume, snapshots;     /* options --resume and --snapshot-every auto are added */
};

/* Runs a training. */
static struct sgrad__end run_once(const struct sgrad__request *request, const struct hosts *hosts, struct start start,
                                  int *forwarded) {
    struct words w = { 0 };
    char number[16], path[] = "/tmp/stargrad-hosts-XXXXXX";
    if (hosts->file && hosts->gone && write_hosts(hosts, path)) return failed_start(SGRAD__FAILED);
    snprintf(number, sizeof number, "%d", start.ranks);
    add(&w, mpirun());
    add(&w, "-n");
    add(&w, number);
    add_hosts(&w, request, hosts, path);
    add_variables(&w);
    add(&w, own_path());
    for (char **word = request->words; *word; word++) add(&w, *word);
    if (start.snapshots) add(&w, "--snapshot-every=auto");
    if (start.resume) add(&w, "--resume");
    add(&w, NULL);
    const struct sgrad__end end = sgrad__children_run((const char *const *)w.word, forwarded);
    if (hosts->file && hosts->gone) unlink(path);
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
        snprintf(text, 64, "a host did not answer: mpirun was killed");
    else if (status == SGRAD__UNREACHABLE) snprintf(text, 64, "a host cannot be reached");
    else if (number > 0 && number <= SIGRTMAX)      /* more: a status of mpirun itself */
        snprintf(text, 64, "a process was ended by signal %d (%s)", number, strsignal(number));
    else snprintf(text, 64, "mpirun ended with exit status %d", status);
    return text;
}

/* Returns the number of ranks: the same number for each host as before, and a divisor of the batch. */
static int ranks_left(int ranks, const struct hosts *hosts, long batch) {
    if (hosts->gone) ranks = (int)((long)ranks * (hosts->count - hosts->gone) / hosts->count);
    while (ranks > 1 && batch % ranks) ranks--;
    return ranks > 1 ? ranks : 1;
}

/* Waits after a start without a step, longer after each, so that transient failures can end; then probes the hosts. IDLE: such
 * starts in succession. False: launch must end. */
static bool prepare(struct hosts *hosts, int idle) {
    if (!sgrad__children_pause(idle ? 1 << (idle < 7 ? idle - 1 : 6) : 0)) return false;
    probe(hosts);
    if (!sgrad__children_pause(0)) return false;
    if (!hosts->count || hosts->gone < hosts->count) return true;
    sgrad_log_error(SGRAD_EIO, "launch: no host can be reached; check --host or --hostfile, and the network");
    return false;
}

static void tell_retry(const struct sgrad__request *request, const char *out, const struct hosts *hosts, struct start start,
                       int retry, const struct sgrad__end *end) {
    char text[64], rank[32] = "", *gone = list_hosts(hosts, true, false, ", ");
    if (end->rank >= 0) snprintf(rank, sizeof rank, "rank %d: ", end->rank);
    sgrad_log_warning("launch: %s%s; retry %d of %d, on %d %s, from the %s %s%s%s%s", rank, ending(end->status, text), retry,
                      request->launch.retries, start.ranks, sgrad_plural(start.ranks, "rank", "ranks"),
                      start.resume ? "newest checkpoint in" : "beginning, in", out,
                      start.resume ? " or snapshot in memory" : "", *gone ? "; unreachable: " : "", gone);
    free(gone);
}

/* Returns how the first start differs from the command line of the user. */
static struct start first_start(const struct sgrad__request *request, const struct sgrad__request *job) {
    const bool chosen = job->train.checkpoint.snapshot_every || sgrad__is_asked(job, "snapshot-every");
    return (struct start){ .ranks = request->launch.ranks, .snapshots = request->launch.retries && !chosen };
}

/* *OWNS becomes true if a start has completed a step or ended well: then no other launch trains in this run directory. */
static int launch(const struct sgrad__request *request, const struct sgrad__request *job, struct hosts *hosts, bool *owns) {
    const char *out = job->train.output.folder;
    const bool resumes = job->resume != SGRAD_BEGIN;
    const int retries = request->launch.retries;
    struct start start = first_start(request, job);
    struct sgrad__end end = { SGRAD__FAILED, -1, 0 }, before;
    char text[64];
    int forwarded = 0, idle = 0;
    const long step = out ? last_step(out) : 0;
    sgrad__children_open();
    for (int retry = 0; retry <= retries; retry++) {
        if (retry) {
            if (!prepare(hosts, idle)) return SGRAD__FAILED;
            start.ranks = ranks_left(request->launch.ranks, hosts, job->train.training.batch);
            start.resume = sgrad_run_exists(out);
            tell_retry(request, out, hosts, start, retry, &end);
            start.resume &= !resumes;
            hand_on(&end);
        }
        before = end;
        if (!retry && would_wait(hosts)) end = failed_start(SGRAD__UNREACHABLE);
        else end = run_once(request, hosts, start, &forwarded);
#ifndef SGRAD_OPEN_MPI      /* after a forwarded signal, MPICH's launcher may exit with 0, whatever the ranks' status */
        if (forwarded && end.status == SGRAD__DONE) return SGRAD__FAILED;
#endif
        const bool stepped = out && (retry ? has_recorded(out, &before) : last_step(out) > step);
        *owns |= stepped || end.status == SGRAD__DONE;
        if (end.status == SGRAD__DONE || end.status == SGRAD__USAGE) return end.status;
        if (forwarded || end.status == SGRAD__NOT_FOUND || (out && diverged(&job->train))) return SGRAD__FAILED;
        idle = stepped ? 0 : idle + 1;
    }
    sgrad_log_error(SGRAD_EDEVICE, "launch: %s%s", ending(end.status, text), retries ? "; no retries are left" : "");
    return SGRAD__FAILED;
}

/* Open MPI waits for seconds between the signals that end ranks after a failure; they need no time. Removes the snapshots at the
 * end, but not those of another launch or of an earlier run. */
static int launch_and_clean(const struct sgrad__request *request, const struct sgrad__request *job, struct hosts *hosts) {
    bool owns = false;
    if (!request->launch.retries) return launch(request, job, hosts, &owns);
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
    setenv("PRTE_MCA_odls_base_sigkill_timeout", "0", 0);
    const int status = launch(request, job, hosts, &owns);
    if (owns) sgrad_snapshots_remove(job->train.output.folder);
    return status;
}

static int run(const struct sgrad__request *request) {
    struct sgrad__request job = { .command = &sgrad__train_command, .train = sgrad_train_defaults() };
    struct hosts hosts = { 0 };
    int count = 0, status;
    while (request->words[count]) count++;
    if (strcmp(request->words[0], "train")) return sgrad__wrong("launch: the command must be train, not '%s'", request->words[0]);
    if (request->launch.host && request->launch.hostfile)
        return sgrad__wrong("launch: --host cannot be combined with --hostfile");
    if (!sgrad__options_parse(job.command, count, request->words, &job, &status)) return status;
    if (request->launch.retries && !job.train.output.folder)
        return sgrad__wrong("launch: --retries requires --out DIR after train: the run continues from the checkpoints there");
    status = read_hosts(request, &hosts) ? SGRAD__FAILED : launch_and_clean(request, &job, &hosts);
    free_hosts(&hosts);
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
