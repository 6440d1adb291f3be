/* tasks.c: reads tasks.rec, with a record for each node of the dependency graph. Records of Stargrad's tasks have a name, a
 * worker and times. */
#include "report/records.h"
#include "report/timeline.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME, MODEL, WORKER, START, END, GFLOP, RANK, STEP, JOB, BEFORE, SIZES, MODES };
static const char *const task_keys[] = { "Name",      "Model", "WorkerId",  "StartTime", "EndTime", "GFlop", "MPIRank",
                                         "Iteration", "JobId", "DependsOn", "Sizes",     "Modes",   NULL };

static void add_job(struct sgrad__timeline *t, const struct sgrad__records *r, double ms, int kind) {
    char *end;
    if (!r->value[JOB]) return;
    struct sgrad__timeline_job job = { .id = sgrad__records_job(r->value[JOB], &end), .ms = ms, .kind = kind };
    job.first = t->befores;
    if (!job.id) return;
    for (const char *at = r->value[BEFORE] ? r->value[BEFORE] : ""; *at; at = end + (*end == ' ')) {
        const int64_t before = sgrad__records_job(at, &end);
        if (!before) break;
        t->before = sgrad_array_grow(t->before, t->befores, sizeof *t->before);
        t->before[t->befores++] = before;
        job.count++;
    }
    t->job = sgrad_array_grow(t->job, t->jobs, sizeof job);
    t->job[t->jobs++] = job;
}

static int row_of(struct sgrad__timeline *t, int rank, int worker) {
    const int row = sgrad__number(&t->workers, (int[]){ rank, worker }, sizeof(int[2]));
    if (row < t->rows) return row;
    t->row = sgrad_array_grow(t->row, row, sizeof *t->row);
    t->row[t->rows++] = (struct sgrad__timeline_row){ .rank = rank, .worker = worker };
    if (rank >= t->ranks) t->ranks = rank + 1;
    return row;
}

/* Counts each operand once. A workspace (S) does not count, because it stays in the caches. */
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
    struct sgrad__timeline_task task = { .name = r->value[NAME],
                                         .kind = sgrad__kinds_of(&t->kinds, r->value[MODEL]),
                                         .step = r->value[STEP] ? atoi(r->value[STEP]) : -1,
                                         .begin = atof(r->value[START]),
                                         .end = atof(r->value[END]),
                                         .gflop = r->value[GFLOP] ? atof(r->value[GFLOP]) : 0,
                                         .gbyte = operand_gbytes(r->value[SIZES], r->value[MODES]) };
    if (!(task.end >= task.begin) || !isfinite(task.end - task.begin) || rank >= 1 << 16) return false;
    task.worker = row_of(t, rank < 0 ? 0 : rank, atoi(r->value[WORKER]));
    t->task = sgrad_array_grow(t->task, t->tasks, sizeof task);
    t->task[t->tasks++] = task;
    add_job(t, r, task.end - task.begin, task.kind);
    r->value[NAME] = NULL;
    return true;
}

int sgrad__timeline_read_tasks(const char *folder, struct sgrad__timeline *t) {
    struct sgrad__records records;
    int error = 0;
    SGRAD_TRY(sgrad__records_open(folder, "tasks.rec", task_keys, &records));
    while (!error && sgrad__records_next(&records, &error))
        if (!add_task(t, &records))
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: line %ld: a task with impossible times", records.path, records.number);
    if (!error && !t->tasks) error = sgrad_log_error(SGRAD_EFORMAT, "%s: no task in it; trace the run again", records.path);
    sgrad__records_close(&records);
    return error;
}
