/* timeline.c: reads what StarPU's trace tool leaves in a run's folder: tasks.rec and comms.rec, GNU recutils' records of
 * "Key: value" lines with an empty line after each.
 *
 * StarPU writes a record for everything that tasks depend on; a task of ours has a name, a worker and times. */
#include "report/records.h"
#include "report/timeline.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- tasks ---- */

enum { NAME, MODEL, WORKER, START, END, GFLOP, RANK, STEP, JOB, BEFORE, SIZES, MODES };
static const char *const task_keys[] = { "Name", "Model", "WorkerId", "StartTime", "EndTime", "GFlop", "MPIRank", "Iteration", "JobId", "DependsOn", "Sizes", "Modes", NULL };

/* "RANK_NUMBER", or of one rank alone "NUMBER", as one number; 0: neither. */
static int64_t job_id(const char *text, char **end) {
    int64_t rank = 0, number = strtoll(text, end, 10);
    if (*end == text) return 0;
    if (**end == '_') {
        rank = number;
        number = strtoll(*end + 1, end, 10);
    }
    return (rank + 1) << 40 | number;
}

static void add_job(struct sgrad__timeline *t, const struct sgrad__records *r, double ms, int kind) {
    char *end;
    if (!r->value[JOB]) return;
    struct sgrad__timeline_job job = { .id = job_id(r->value[JOB], &end), .ms = ms, .kind = kind, .first = t->befores };
    if (!job.id) return;
    for (const char *at = r->value[BEFORE] ? r->value[BEFORE] : ""; *at; at = end + (*end == ' ')) {
        const int64_t before = job_id(at, &end);
        if (!before) break;
        t->before = sgrad_grow(t->before, t->befores, sizeof *t->before);
        t->before[t->befores++] = before;
        job.count++;
    }
    t->job = sgrad_grow(t->job, t->jobs, sizeof job);
    t->job[t->jobs++] = job;
}

static int row_of(struct sgrad__timeline *t, int rank, int worker) {
    for (int i = 0; i < t->rows; i++)
        if (t->row[i].rank == rank && t->row[i].worker == worker) return i;
    t->row = sgrad_grow(t->row, t->rows, sizeof *t->row);
    t->row[t->rows] = (struct sgrad__timeline_row){ .rank = rank, .worker = worker };
    if (rank >= t->ranks) t->ranks = rank + 1;
    return t->rows++;
}

/* Operands are read or written once each; a workspace (S) stays in the caches. */
static double operand_gbytes(const char *sizes, const char *modes) {
    double bytes = 0;
    while (sizes && modes && *sizes && *modes) {
        if (*modes != 'S') bytes += atof(sizes);
        sizes += strcspn(sizes, " "), sizes += strspn(sizes, " ");
        modes += strcspn(modes, " "), modes += strspn(modes, " ");
    }
    return 1e-9 * bytes;
}

static bool add_task(struct sgrad__timeline *t, struct sgrad__records *r) {
    if (!r->value[NAME] || !r->value[WORKER] || !r->value[START] || !r->value[END] || atoi(r->value[WORKER]) < 0) {
        add_job(t, r, 0, -1);
        return true;
    }
    const int rank = r->value[RANK] ? atoi(r->value[RANK]) : -1;
    struct sgrad__timeline_task task = { .name = r->value[NAME], .kind = sgrad__kinds_of(&t->kinds, r->value[MODEL]),
                                         .step = r->value[STEP] ? atoi(r->value[STEP]) : -1, .begin = atof(r->value[START]), .end = atof(r->value[END]),
                                         .gflop = r->value[GFLOP] ? atof(r->value[GFLOP]) : 0, .gbyte = operand_gbytes(r->value[SIZES], r->value[MODES]) };
    if (!(task.end >= task.begin) || !isfinite(task.end - task.begin) || rank >= 1 << 16) return false;
    task.worker = row_of(t, rank < 0 ? 0 : rank, atoi(r->value[WORKER]));
    t->task = sgrad_grow(t->task, t->tasks, sizeof task);
    t->task[t->tasks++] = task;
    add_job(t, r, task.end - task.begin, task.kind);
    r->value[NAME] = NULL;
    return true;
}

static int read_tasks(const char *folder, struct sgrad__timeline *t) {
    struct sgrad__records records;
    int error = 0;
    SGRAD_TRY(sgrad__records_open(folder, "tasks.rec", task_keys, &records));
    while (!error && sgrad__records_next(&records, &error))
        if (!add_task(t, &records)) error = sgrad_fail(SGRAD_EFORMAT, "%s: line %ld: a task with impossible times", records.path, records.number);
    if (!error && !t->tasks) error = sgrad_fail(SGRAD_EFORMAT, "%s: no task in it; trace the run again", records.path);
    sgrad__records_close(&records);
    return error;
}

/* ---- messages ---- */

enum { FROM, TO, SENT, RECEIVED, BYTES, SENDS, RECEIVES, SEND_HANDLE, RECEIVE_HANDLE };
static const char *const message_keys[] = { "Src", "Dst", "SendTime", "RecvTime", "Size", "SendJobId", "RecvJobId", "SendHandle", "RecvHandle", NULL };

static void add_message(struct sgrad__timeline *t, struct sgrad__records *r) {
    for (int i = FROM; i <= BYTES; i++)
        if (!r->value[i]) return;
    char *end;
    struct sgrad__timeline_message m = { .from = atoi(r->value[FROM]), .to = atoi(r->value[TO]), .begin = atof(r->value[SENT]),
                                         .end = atof(r->value[RECEIVED]), .bytes = atof(r->value[BYTES]) };
    if (r->value[SENDS] && r->value[RECEIVES]) {
        m.sends = job_id(r->value[SENDS], &end);
        m.receives = job_id(r->value[RECEIVES], &end);
    }
    if (r->value[SEND_HANDLE]) m.sent = strtoull(r->value[SEND_HANDLE], NULL, 16);
    if (r->value[RECEIVE_HANDLE]) m.received = strtoull(r->value[RECEIVE_HANDLE], NULL, 16);
    if (m.from < 0 || m.to < 0 || m.from >= t->ranks || m.to >= t->ranks || !isfinite(m.end - m.begin)) return;
    if (m.end < m.begin) m.end = m.begin;       /* clocks are not aligned better */
    t->message = sgrad_grow(t->message, t->messages, sizeof m);
    t->message[t->messages++] = m;
}

static int read_messages(const char *folder, struct sgrad__timeline *t) {
    struct sgrad__records records;
    int error = 0;
    if (t->ranks == 1) return 0;
    SGRAD_TRY(sgrad__records_open(folder, "comms.rec", message_keys, &records));
    while (!error && sgrad__records_next(&records, &error)) add_message(t, &records);
    sgrad__records_close(&records);
    return error;
}

/* ---- both ---- */

static int by_begin(const void *one, const void *other) {
    const struct sgrad__timeline_task *a = one, *b = other;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int by_rank(const void *one, const void *other) {
    const struct sgrad__timeline_row *a = one, *b = other;
    return a->rank != b->rank ? a->rank - b->rank : a->worker - b->worker;
}

static int by_id(const void *one, const void *other) {
    const struct sgrad__timeline_job *a = one, *b = other;
    return (a->id > b->id) - (a->id < b->id);
}

/* A step ends when the last of its tasks does. */
static void find_steps(struct sgrad__timeline *t) {
    int first = -1, last = -1;
    for (int i = 0; i < t->tasks; i++) {
        const int step = t->task[i].step;
        if (step < 0) continue;
        first = first < 0 || step < first ? step : first;
        last = step > last ? step : last;
    }
    t->steps = first < 0 || last - first >= t->tasks ? 0 : last - first + 1;
    t->step_end = sgrad_alloc((size_t)t->steps + 1, sizeof *t->step_end);
    for (int i = 0; i < t->tasks && t->steps; i++)
        if (t->task[i].step >= 0) t->step_end[t->task[i].step - first] = fmax(t->step_end[t->task[i].step - first], t->task[i].end);
}

/* Rows in the order of ranks and workers, tasks in that of time, time from zero. */
static void put_in_order(struct sgrad__timeline *t) {
    struct sgrad__timeline_row *found = sgrad_alloc((size_t)t->rows, sizeof *found);
    memcpy(found, t->row, (size_t)t->rows * sizeof *found);
    qsort(t->row, (size_t)t->rows, sizeof *t->row, by_rank);
    qsort(t->task, (size_t)t->tasks, sizeof *t->task, by_begin);
    const double start = t->start = t->task[0].begin;
    for (int i = 0; i < t->tasks; i++) {
        struct sgrad__timeline_task *task = &t->task[i];
        task->worker = row_of(t, found[task->worker].rank, found[task->worker].worker);
        task->begin -= start;
        task->end -= start;
        t->length = fmax(t->length, task->end);
    }
    for (int i = 0; i < t->messages; i++) {
        t->message[i].begin -= start;
        t->message[i].end -= start;
    }
    qsort(t->job, (size_t)t->jobs, sizeof *t->job, by_id);
    find_steps(t);
    free(found);
}

/* What the run measured of its workers (graphs/runs/roof.c), where it got so far. */
static void read_roof(const char *folder, struct sgrad__timeline *t) {
    char *path = sgrad_format("%s/trace/roof.json", folder);
    json_t *roof = json_load_file(path, 0, NULL), *worker;
    size_t i;
    json_array_foreach(roof, i, worker)
        for (int row = 0; row < t->rows; row++) {
            struct sgrad__timeline_row *at = &t->row[row];
            if (at->rank != json_integer_value(json_object_get(worker, "rank")) || at->worker != json_integer_value(json_object_get(worker, "worker"))) continue;
            at->gflops = json_real_value(json_object_get(worker, "gflops"));
            at->gbytes = json_real_value(json_object_get(worker, "gbytes"));
        }
    json_decref(roof);
    free(path);
}

static int read_trace(const char *folder, struct sgrad__timeline *t) {
    SGRAD_TRY(sgrad__kinds_read(folder, &t->kinds));
    SGRAD_TRY(read_tasks(folder, t));
    SGRAD_TRY(read_messages(folder, t));
    if (t->messages) SGRAD_TRY(sgrad__timeline_read_parcels(folder, t));
    put_in_order(t);
    read_roof(folder, t);
    return sgrad__timeline_read_paje(folder, t);
}

int sgrad__timeline_read(const char *folder, struct sgrad__timeline *timeline, bool *there) {
    struct stat status;
    char *path = sgrad_format("%s/trace", folder);
    *timeline = (struct sgrad__timeline){ 0 };
    *there = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    const int error = *there ? read_trace(folder, timeline) : 0;
    if (error) sgrad__timeline_free(timeline);
    free(path);
    return error;
}

/* ---- lines ---- */

int sgrad__timeline_lines(const struct sgrad__timeline *t) { return t->rows + (t->ranks > 1 ? t->ranks : 0); }

int sgrad__timeline_line(const struct sgrad__timeline *t, int row) { return row + (t->ranks > 1 ? t->row[row].rank : 0); }

int sgrad__timeline_receives(const struct sgrad__timeline *t, int rank) {
    int line = rank;
    for (int i = 0; i < t->rows && t->row[i].rank <= rank; i++) line++;
    return line;
}

char *sgrad__timeline_name(const struct sgrad__timeline *t, int line) {
    for (int i = 0; i < t->rows; i++)
        if (sgrad__timeline_line(t, i) == line) return sgrad_format("rank %d worker %d", t->row[i].rank, t->row[i].worker);
    int rank = 0;
    while (rank + 1 < t->ranks && sgrad__timeline_receives(t, rank) != line) rank++;
    return sgrad_format("rank %d receives", rank);
}

void sgrad__timeline_free(struct sgrad__timeline *t) {
    for (int i = 0; i < t->tasks; i++) free(t->task[i].name);
    free(t->task);
    sgrad__kinds_free(&t->kinds);
    for (int i = 0; i < t->parcels; i++) {
        for (int j = 0; j < t->parcel[i].parts; j++) free(t->parcel[i].part[j].name);
        free(t->parcel[i].part);
        free(t->parcel[i].name);
    }
    free(t->parcel);
    free(t->span);
    free(t->memory);
    for (int i = 0; i < t->copies; i++) free(t->copy[i].name);
    free(t->copy);
    free(t->message);
    free(t->row);
    free(t->job);
    free(t->before);
    free(t->step_end);
    *t = (struct sgrad__timeline){ 0 };
}
