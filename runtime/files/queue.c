/* queue.c: a task queue in a shared folder. queue.h describes its files and the transitions between them. */
#include "config.h"
#include "runtime/files/queue.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SHARD = 1000, FAILURES = 3, LOSSES = 50 };
static const char *const parts[] = { "todo", "leased", "done", "failed", "logs" };

/* A task, as the name of its file describes it. */
struct task {
    int64_t number;
    int lost, failed;
};
struct held {
    struct task task;
    struct held *next;
};
struct sgrad_queue {
    char *folder, *owner;               /* "HOST,PID,START" */
    double lease;
    int64_t count, next_shard;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t heart;
    bool beats, ends;
    struct held *held;
    double looked;                      /* time of the last check for expired leases */
};

/* ---- names ------------------------------------------------------------------------------------------------------- */

static char *todo_path(const struct sgrad_queue *queue, struct task t) {
    return sgrad_format("%s/todo/%lld/%lld.%d.%d", queue->folder, (long long)(t.number / SHARD), (long long)t.number, t.lost,
                        t.failed);
}
static char *leased_path(const struct sgrad_queue *queue, struct task t, const char *owner) {
    return sgrad_format("%s/leased/%lld.%d.%d@%s", queue->folder, (long long)t.number, t.lost, t.failed, owner);
}
static char *end_path(const struct sgrad_queue *queue, const char *part, int64_t number) {
    return sgrad_format("%s/%s/%lld/%lld@%s", queue->folder, part, (long long)(number / SHARD), (long long)number, queue->owner);
}

static bool parse_name(const char *name, struct task *task) {
    long long number;
    int lost, failed;
    if (sscanf(name, "%lld.%d.%d", &number, &lost, &failed) != 3 || number < 0) return false;
    *task = (struct task){ number, lost, failed };
    return true;
}

/* Returns the start time of process PID of this host, in ticks since the host's start. It distinguishes processes that had the
 * same number. 0: there is no such process. */
static long long start_of(long pid) {
    char *path = sgrad_format("/proc/%ld/stat", pid), text[1024] = "";
    FILE *file = fopen(path, "re");
    long long start = 0;
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
    }
    free(path);
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    if (at) start = strtoll(at, NULL, 10);
    return start;
}

/* Returns true if the owner in NAME, "17.0.0@HOST,PID,START", was a process of this host that has ended. */
static bool is_dead(const struct sgrad_queue *queue, const char *name) {
    const char *at = strchr(name, '@'), *comma = at ? strchr(at, ',') : NULL;
    const size_t host = strcspn(queue->owner, ",");
    long pid;
    long long start;
    if (!comma || (size_t)(comma - at - 1) != host || strncmp(at + 1, queue->owner, host)) return false;
    if (sscanf(comma, ",%ld,%lld", &pid, &start) != 2) return false;
    return start_of(pid) != start;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* Renames FROM to TO, and creates the folder of TO if it is missing. Returns 1: moved; 0: FROM does not exist; < 0: error. */
static int move(const char *from, const char *to) {
    if (!rename(from, to)) return 1;
    if (errno == ENOENT && !access(from, F_OK)) {
        char *folder = sgrad_format("%.*s", (int)(strrchr(to, '/') - to), to);
        mkdir(folder, 0777);
        free(folder);
        if (!rename(from, to)) return 1;
    }
    return errno == ENOENT ? 0 : sgrad_log_error(SGRAD_EIO, "%s: cannot be moved to %s: %s", from, to, strerror(errno));
}

static int move_task(char *from, char *to) {
    const int moved = move(from, to);
    free(from);
    free(to);
    return moved;
}

/* Adds a line to the task's log. Errors are ignored. */
static void log_line(const struct sgrad_queue *queue, int64_t number, const char *why) {
    char *path = sgrad_format("%s/logs/%lld", queue->folder, (long long)number), date[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%FT%TZ", gmtime_r(&now, &utc));
    FILE *file = fopen(path, "ae");
    if (file) {
        fprintf(file, "%s %s: %s\n", date, queue->owner, why);
        fclose(file);
    }
    free(path);
}

/* Ends an expired lease: returns the task to the queue, or, after LOSSES lost leases, moves it to DIR/failed. */
static int give_back(const struct sgrad_queue *queue, const char *name, struct task t) {
    char *from = sgrad_format("%s/leased/%s", queue->folder, name);
    t.lost++;
    char *to = t.lost >= LOSSES ? end_path(queue, "failed", t.number) : todo_path(queue, t);
    log_line(queue, t.number, t.lost >= LOSSES ? "its lease was lost too often, so the task has failed" : "its lease was lost");
    return move_task(from, to);
}

/* Returns the current time of the server of the folder. */
static double server_time(const struct sgrad_queue *queue) {
    char *path = sgrad_format("%s/leased/.now@%s", queue->folder, queue->owner);
    struct stat status = { 0 };
    FILE *file = fopen(path, "we");
    if (file) {
        fputc('\n', file);
        fclose(file);
    }
    if (stat(path, &status)) status.st_mtim.tv_sec = time(NULL);
    unlink(path);
    free(path);
    return (double)status.st_mtim.tv_sec + 1e-9 * (double)status.st_mtim.tv_nsec;
}

/* Ends all expired leases. Sets *LEFT to the number of the others. */
static int check_leases(struct sgrad_queue *queue, int64_t *left) {
    char *folder = sgrad_format("%s/leased", queue->folder);
    DIR *dir = opendir(folder);
    struct dirent *entry;
    const double now = server_time(queue);
    int moved = 0;
    *left = 0;
    while (dir && moved >= 0 && (entry = readdir(dir))) {
        struct task t;
        struct stat status;
        if (!parse_name(entry->d_name, &t) || fstatat(dirfd(dir), entry->d_name, &status, 0)) continue;
        const double age = now - ((double)status.st_mtim.tv_sec + 1e-9 * (double)status.st_mtim.tv_nsec);
        if (is_dead(queue, entry->d_name) || age > queue->lease) moved = give_back(queue, entry->d_name, t);
        else ++*left;
    }
    if (dir) closedir(dir);
    free(folder);
    queue->looked = sgrad_time_monotonic();
    return moved < 0 ? moved : 0;
}

/* ---- renewal of leases -------------------------------------------------------------------------------------------- */

static void renew(const struct sgrad_queue *queue) {
    for (const struct held *h = queue->held; h; h = h->next) {
        char *path = leased_path(queue, h->task, queue->owner);
        utimensat(AT_FDCWD, path, NULL, 0);
        free(path);
    }
}

static void *beat(void *arg) {
    struct sgrad_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    while (!q->ends) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        const double at = (double)until.tv_sec + 1e-9 * (double)until.tv_nsec + q->lease / 4;
        until = (struct timespec){ (time_t)at, (long)((at - (double)(time_t)at) * 1e9) };
        pthread_cond_timedwait(&q->wake, &q->lock, &until);
        renew(q);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

static int write_text(const char *path, const char *text) {
    struct sgrad_file file;
    SGRAD_TRY(sgrad_file_begin(path, &file));
    fputs(text, file.stream);
    return sgrad_file_commit(&file);
}

static int drop(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    (void)status, (void)kind, (void)walk;
    remove(path);
    return 0;
}

/* Creates the queue in a temporary folder, which it then renames, so that a queue is never incomplete. If several processes
 * create it concurrently, one succeeds, and the others delete their folders. */
static int make(const struct sgrad_queue *queue, const char *work) {
    struct sgrad_queue own = { .folder = sgrad_format("%s.part.%s", queue->folder, queue->owner) };
    int error =
        mkdir(own.folder, 0777) ? sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", own.folder, strerror(errno)) : 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *part = sgrad_format("%s/%s", own.folder, parts[i]);
        mkdir(part, 0777);
        free(part);
    }
    for (int64_t i = 0; i < queue->count && !error; i++) {
        if (i % SHARD == 0) {
            char *shard = sgrad_format("%s/todo/%lld", own.folder, (long long)(i / SHARD));
            mkdir(shard, 0777);
            free(shard);
        }
        char *path = todo_path(&own, (struct task){ .number = i });
        FILE *file = fopen(path, "we");
        if (!file || fclose(file)) error = sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", path, strerror(errno));
        free(path);
    }
    char *file = sgrad_format("%s/work", own.folder);
    if (!error) error = write_text(file, work);
    free(file);
    if (!error && rename(own.folder, queue->folder)) {
        const int why = errno;      /* ENOTEMPTY, EEXIST: another process was first */
        if (why != ENOTEMPTY && why != EEXIST)
            error = sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", queue->folder, strerror(why));
        nftw(own.folder, drop, 16, FTW_DEPTH | FTW_PHYS);
    }
    free(own.folder);
    return error;
}

static int compare_work(const struct sgrad_queue *queue, const char *work) {
    struct sgrad_map map;
    char *path = sgrad_format("%s/work", queue->folder);
    int error = sgrad_map_open(path, 1 << 20, &map);
    if (!error && (map.size != strlen(work) || memcmp(map.data, work, map.size))) {
        const char *other = (const char *)map.data, *end = memchr(other, '\n', map.size);   /* a file need not end a line */
        error =
            sgrad_log_error(SGRAD_EINVAL, "%s: is the queue of another job, '%.*s', not of this one, '%.*s'; use another folder",
                            queue->folder, (int)(end ? end - other : (ptrdiff_t)map.size), other, (int)strcspn(work, "\n"), work);
    }
    if (!error || error == SGRAD_EINVAL) sgrad_map_close(&map);
    free(path);
    return error;
}

int sgrad_queue_open(const char *folder, const char *work, int64_t count, double lease, struct sgrad_queue **queue) {
    struct sgrad_queue *q = sgrad_xcalloc(1, sizeof *q);
    char host[256] = "", *path = sgrad_format("%s/work", folder);
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (strchr(",@/", *c)) *c = '_';
    *q = (struct sgrad_queue){ .folder = sgrad_format("%s", folder), .lease = lease, .count = count,
                               .owner = sgrad_format("%s,%ld,%lld", host, (long)getpid(), start_of(getpid())) };
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->wake, NULL);
    int error = access(path, F_OK) ? make(q, work) : 0;
    free(path);
    if (!error) error = compare_work(q, work);
    q->next_shard = count ? getpid() % ((count + SHARD - 1) / SHARD) : 0;
    q->beats = !error && !pthread_create(&q->heart, NULL, beat, q);
    if (!error && !q->beats)
        error = sgrad_log_error(
            SGRAD_EIO, "%s: the thread that renews leases cannot be started; check the limit of threads (ulimit -u)", q->folder);
    if (error) sgrad_queue_close(q);
    else *queue = q;
    return error;
}

void sgrad_queue_close(struct sgrad_queue *queue) {
    if (!queue) return;
    pthread_mutex_lock(&queue->lock);
    queue->ends = true;
    pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->lock);
    if (queue->beats) pthread_join(queue->heart, NULL);
    while (queue->held) {
        struct held *h = queue->held;
        move_task(leased_path(queue, h->task, queue->owner), todo_path(queue, h->task));
        queue->held = h->next;
        free(h);
    }
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->wake);
    free(queue->folder);
    free(queue->owner);
    free(queue);
}

/* ---- leasing and ending tasks ------------------------------------------------------------------------------------- */

/* Leases one task of SHARD. Returns 1: leased, *TAKEN is the task; 0: no task is left; negative: error. */
static int take_from(struct sgrad_queue *queue, int64_t shard, struct task *taken) {
    char *folder = sgrad_format("%s/todo/%lld", queue->folder, (long long)shard);
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int moved = 0;
    while (dir && !moved && (entry = readdir(dir))) {
        if (!parse_name(entry->d_name, taken)) continue;
        char *from = todo_path(queue, *taken);
        utimensat(AT_FDCWD, from, NULL, 0);     /* must precede the rename, so that the lease has not expired */
        moved = move_task(from, leased_path(queue, *taken, queue->owner));
    }
    if (dir) closedir(dir);
    free(folder);
    return moved;
}

static int take_any(struct sgrad_queue *queue, struct task *taken) {
    const int64_t shards = (queue->count + SHARD - 1) / SHARD;
    int moved = 0;
    for (int64_t i = 0; i < shards && !moved; i++) {
        moved = take_from(queue, queue->next_shard, taken);
        if (!moved) queue->next_shard = (queue->next_shard + 1) % shards;
    }
    return moved;
}

int sgrad_queue_take(struct sgrad_queue *queue, bool may_wait, int64_t *number) {
    struct task t;
    int64_t leased = 0;
    *number = -1;
    if (sgrad_time_monotonic() - queue->looked > queue->lease / 2) SGRAD_TRY(check_leases(queue, &leased));
    for (;;) {
        const int moved = take_any(queue, &t);
        if (moved < 0) return moved;
        if (moved) break;
        SGRAD_TRY(check_leases(queue, &leased));
        const int again = take_any(queue, &t);
        if (again < 0) return again;
        if (again) break;
        if (!leased) return 0;
        if (!may_wait) return *number = -2, 0;
        usleep((useconds_t)(1e6 * (queue->lease / 8 < 1 ? queue->lease / 8 : 1))); /* renames by other hosts cause no event */
    }
    struct held *h = sgrad_xcalloc(1, sizeof *h);
    pthread_mutex_lock(&queue->lock);
    *h = (struct held){ t, queue->held };
    queue->held = h;
    pthread_mutex_unlock(&queue->lock);
    *number = t.number;
    return 0;
}

/* Removes task NUMBER from the list of leased tasks, and returns it. */
static struct task leave(struct sgrad_queue *queue, int64_t number) {
    pthread_mutex_lock(&queue->lock);
    struct held **at = &queue->held;
    while ((*at)->task.number != number) at = &(*at)->next;
    struct held *h = *at;
    const struct task t = h->task;
    *at = h->next;
    pthread_mutex_unlock(&queue->lock);
    free(h);
    return t;
}

/* If the lease was lost meanwhile, another process runs the task again, with the same result. */
int sgrad_queue_done(struct sgrad_queue *queue, int64_t number) {
    const struct task t = leave(queue, number);
    const int moved = move_task(leased_path(queue, t, queue->owner), end_path(queue, "done", number));
    return moved < 0 ? moved : 0;
}

int sgrad_queue_failed(struct sgrad_queue *queue, int64_t number, const char *why) {
    struct task t = leave(queue, number);
    char *from = leased_path(queue, t, queue->owner);
    t.failed++;
    log_line(queue, number, why);
    const int moved = move_task(from, t.failed >= FAILURES ? end_path(queue, "failed", number) : todo_path(queue, t));
    return moved < 0 ? moved : 0;
}

/* ---- state of the queue ------------------------------------------------------------------------------------------- */

enum { LATE = 100 };        /* number of last tasks from which the rate is computed */

/* The results of a walk through a folder. */
struct sight {
    struct sgrad_queue_state *state;
    const char *part;           /* name of the folder: "todo", … */
    int64_t files;
    double *done;               /* completion times of the tasks done */
    int dones;
};

/* Returns the worker called OWNER, "HOST,PID,START", after adding it if necessary. Workers are sorted by name. */
static struct sgrad_queue_worker *worker_of(struct sgrad_queue_state *state, const char *owner) {
    int low = 0, high = state->workers;
    while (low < high) {
        const int middle = (low + high) / 2, order = strcmp(state->worker[middle].name, owner);
        if (!order) return &state->worker[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    state->worker = sgrad_array_grow(state->worker, state->workers, sizeof *state->worker);
    memmove(&state->worker[low + 1], &state->worker[low], (size_t)(state->workers++ - low) * sizeof *state->worker);
    struct sgrad_queue_worker *w = &state->worker[low];
    *w = (struct sgrad_queue_worker){ .first = INFINITY };
    snprintf(w->name, sizeof w->name, "%s", owner);
    return w;
}

/* Evaluates one file. Its name is "17@HOST,PID,START"; that of a lease begins with "17.0.0@". */
static void see(struct sight *sight, int folder, const char *name) {
    const char *at = strchr(name, '@');
    const bool done = !strcmp(sight->part, "done"), leased = !strcmp(sight->part, "leased");
    struct stat status;
    sight->files++;
    if (!strcmp(sight->part, "failed") && sight->files <= 1000) {
        sight->state->failures = sgrad_array_grow(sight->state->failures, (int)sight->files - 1, sizeof *sight->state->failures);
        sight->state->failures[sight->files - 1] = strtoll(name, NULL, 10);
    }
    if ((!done && !leased) || !at || fstatat(folder, name, &status, 0)) return;
    struct sgrad_queue_worker *w = worker_of(sight->state, at + 1);
    const struct timespec when = done ? status.st_ctim : status.st_mtim;
    const double time = (double)when.tv_sec + 1e-9 * (double)when.tv_nsec;
    w->last = fmax(w->last, time);
    if (leased) w->leased++;
    if (!done) return;
    w->done++;
    w->first = fmin(w->first, time);
    sight->done = sgrad_array_grow(sight->done, sight->dones, sizeof *sight->done);
    sight->done[sight->dones++] = time;
}

static void walk(struct sight *sight, const char *path, bool deeper) {
    DIR *dir = opendir(path);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.') continue;
        if (!deeper) {
            see(sight, dirfd(dir), entry->d_name);
            continue;
        }
        char *inner = sgrad_format("%s/%s", path, entry->d_name);
        walk(sight, inner, false);
        free(inner);
    }
    if (dir) closedir(dir);
}

static int falling(const void *one, const void *other) {
    const double a = *(const double *)one, b = *(const double *)other;
    return (a < b) - (a > b);
}

int sgrad_queue_look(const char *folder, struct sgrad_queue_state *state) {
    char *work = sgrad_format("%s/work", folder);
    const bool is_queue = !access(work, F_OK);
    int64_t count[4];
    free(work);
    if (!is_queue) return sgrad_log_error(SGRAD_EIO, "%s: is not the folder of a queue: it has no file 'work'", folder);
    *state = (struct sgrad_queue_state){ 0 };
    for (int i = 0; i < 4; i++) {
        struct sight s = { .state = state, .part = parts[i] };
        char *part = sgrad_format("%s/%s", folder, parts[i]);
        walk(&s, part, i != 1);
        free(part);
        count[i] = s.files;
        if (s.dones) qsort(s.done, (size_t)s.dones, sizeof *s.done, falling);
        const int late = s.dones < LATE ? s.dones : LATE;
        if (late > 1 && s.done[0] > s.done[late - 1]) state->per_second = (late - 1) / (s.done[0] - s.done[late - 1]);
        free(s.done);
    }
    state->todo = count[0], state->leased = count[1], state->done = count[2], state->failed = count[3];
    return 0;
}

void sgrad_queue_forget(struct sgrad_queue_state *state) {
    free(state->failures);
    free(state->worker);
}
