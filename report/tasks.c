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

static void add_job(struct sgrad__timeline *timeline, const struct sgrad__records *records, double ms, int kind) {
    char *end;
    if (!records->value[JOB]) return;
    struct sgrad__timeline_job job = { .id = sgrad__records_job(records->value[JOB], &end), .ms = ms, .kind = kind };
    job.first = timeline->befores;
    if (!job.id) return;
    for (const char *at = records->value[BEFORE] ? records->value[BEFORE] : ""; *at; at = end + (*end == ' ')) {
        const int64_t before = sgrad__records_job(at, &end);
        if (!before) break;
        timeline->before = sgrad_array_grow(timeline->before, timeline->befores, sizeof *timeline->before);
        timeline->before[timeline->befores++] = before;
        job.count++;
    }
    timeline->job = sgrad_array_grow(timeline->job, timeline->jobs, sizeof job);
    timeline->job[timeline->jobs++] = job;
}

static int row_of(struct sgrad__timeline *timeline, int rank, int worker) {
    const int row = sgrad__number(&timeline->workers, (int[]){ rank, worker }, sizeof(int[2]));
    if (row < timeline->rows) return row;
    timeline->row = sgrad_array_grow(timeline->row, row, sizeof *timeline->row);
    timeline->row[timeline->rows++] = (struct sgrad__timeline_row){ .rank = rank, .worker = worker };
    if (rank >= timeline->ranks) timeline->ranks = rank + 1;
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

static bool add_task(struct sgrad__timeline *timeline, struct sgrad__records *records) {
    if (!records->value[NAME] || !records->value[WORKER] || !records->value[START] || !records->value[END] ||
        atoi(records->value[WORKER]) < 0) {
        add_job(timeline, records, 0, -1);
        return true;
    }
    const int rank = records->value[RANK] ? atoi(records->value[RANK]) : -1;
    struct sgrad__timeline_task task = { .name = records->value[NAME],
                                         .kind = sgrad__kinds_of(&timeline->kinds, records->value[MODEL]),
                                         .step = records->value[STEP] ? atoi(records->value[STEP]) : -1,
                                         .begin = atof(records->value[START]),
                                         .end = atof(records->value[END]),
                                         .gflop = records->value[GFLOP] ? atof(records->value[GFLOP]) : 0,
                                         .gbyte = operand_gbytes(records->value[SIZES], records->value[MODES]) };
    if (!(task.end >= task.begin) || !isfinite(task.end - task.begin) || rank >= 1 << 16) return false;
    task.worker = row_of(timeline, rank < 0 ? 0 : rank, atoi(records->value[WORKER]));
    timeline->task = sgrad_array_grow(timeline->task, timeline->tasks, sizeof task);
    timeline->task[timeline->tasks++] = task;
    add_job(timeline, records, task.end - task.begin, task.kind);
    records->value[NAME] = NULL;
    return true;
}

int sgrad__timeline_read_tasks(const char *folder, struct sgrad__timeline *timeline) {
    struct sgrad__records records;
    int error = 0;
    SGRAD_TRY(sgrad__records_open(folder, "tasks.rec", task_keys, &records));
    while (!error && sgrad__records_next(&records, &error))
        if (!add_task(timeline, &records))
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: line %ld: the times of a task are invalid; trace the run again",
                                    records.path, records.number);
    if (!error && !timeline->tasks)
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: contains no tasks; trace the run again", records.path);
    sgrad__records_close(&records);
    return error;
}
