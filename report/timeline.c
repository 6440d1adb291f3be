/* timeline.c: reads the output of StarPU's trace tool from the folder of a run, and sorts it by rank and worker, then by time. */
#include "report/timeline.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int by_row(const void *one, const void *other) {
    const struct sgrad__timeline_task *a = one, *b = other;
    return a->worker != b->worker ? a->worker - b->worker : (a->begin > b->begin) - (a->begin < b->begin);
}

static int by_rank(const void *one, const void *other) {
    const struct sgrad__timeline_row *a = one, *b = other;
    return a->rank != b->rank ? a->rank - b->rank : a->worker - b->worker;
}

static int by_id(const void *one, const void *other) {
    const struct sgrad__timeline_job *a = one, *b = other;
    return (a->id > b->id) - (a->id < b->id);
}

/* A step ends with the last of its tasks. */
static void find_steps(struct sgrad__timeline *timeline) {
    int first = -1, last = -1;
    for (int i = 0; i < timeline->tasks; i++) {
        const int step = timeline->task[i].step;
        if (step < 0) continue;
        first = first < 0 || step < first ? step : first;
        last = step > last ? step : last;
    }
    timeline->first_step = first;
    timeline->steps = first < 0 || last - first >= timeline->tasks ? 0 : last - first + 1;
    timeline->step_end = sgrad_xcalloc((size_t)timeline->steps + 1, sizeof *timeline->step_end);
    for (int i = 0; i < timeline->tasks && timeline->steps; i++)
        if (timeline->task[i].step >= 0)
            timeline->step_end[timeline->task[i].step - first] =
                fmax(timeline->step_end[timeline->task[i].step - first], timeline->task[i].end);
}

/* Sorts rows by rank and worker, tasks by row and time. */
static void put_in_order(struct sgrad__timeline *timeline) {
    struct sgrad__timeline_row *found = sgrad_xcalloc((size_t)timeline->rows, sizeof *found);
    memcpy(found, timeline->row, (size_t)timeline->rows * sizeof *found);
    qsort(timeline->row, (size_t)timeline->rows, sizeof *timeline->row, by_rank);
    sgrad__numbers_free(&timeline->workers);
    for (int i = 0; i < timeline->rows; i++)
        sgrad__number(&timeline->workers, (int[]){ timeline->row[i].rank, timeline->row[i].worker }, sizeof(int[2]));
    timeline->first_row = sgrad_xcalloc((size_t)timeline->ranks + 1, sizeof *timeline->first_row);
    for (int i = 0, r = 0; r <= timeline->ranks; timeline->first_row[r++] = i)
        while (i < timeline->rows && timeline->row[i].rank < r) i++;
    for (int i = 0; i < timeline->tasks; i++) {
        const struct sgrad__timeline_row *row = &found[timeline->task[i].worker];
        timeline->task[i].worker = sgrad__number_find(&timeline->workers, (int[]){ row->rank, row->worker }, sizeof(int[2]));
        timeline->row[timeline->task[i].worker].tasks++;
    }
    for (int i = 1; i < timeline->rows; i++) timeline->row[i].first = timeline->row[i - 1].first + timeline->row[i - 1].tasks;
    qsort(timeline->task, (size_t)timeline->tasks, sizeof *timeline->task, by_row);
    qsort(timeline->job, (size_t)timeline->jobs, sizeof *timeline->job, by_id);
    free(found);
}

/* Subtracts the start of the first task from all times. */
static void set_clock(struct sgrad__timeline *timeline) {
    timeline->start = timeline->task[0].begin;
    for (int i = 0; i < timeline->tasks; i++) timeline->start = fmin(timeline->start, timeline->task[i].begin);
    for (int i = 0; i < timeline->tasks; i++) {
        timeline->task[i].begin -= timeline->start;
        timeline->task[i].end -= timeline->start;
        timeline->length = fmax(timeline->length, timeline->task[i].end);
    }
    for (int i = 0; i < timeline->messages; i++) {
        timeline->message[i].begin -= timeline->start;
        timeline->message[i].end -= timeline->start;
    }
}

/* Reads the peaks of the workers, which the run measured (graphs/costs/roof.c); the file may be missing. */
static void read_roof(const char *folder, struct sgrad__timeline *timeline) {
    char *path = sgrad_format("%s/trace/roof.json", folder);
    json_t *roof = json_load_file(path, 0, NULL), *worker;
    size_t i;
    json_array_foreach(roof, i, worker) {
        const int key[] = { (int)json_integer_value(json_object_get(worker, "rank")),
                            (int)json_integer_value(json_object_get(worker, "worker")) };
        const int row = sgrad__number_find(&timeline->workers, key, sizeof key);
        if (row < 0) continue;
        timeline->row[row].gflops = json_real_value(json_object_get(worker, "gflops"));
        timeline->row[row].gbytes = json_real_value(json_object_get(worker, "gbytes"));
    }
    json_decref(roof);
    free(path);
}

static int read_trace(const char *folder, struct sgrad__timeline *timeline) {
    SGRAD_TRY(sgrad__kinds_read(folder, &timeline->kinds));
    SGRAD_TRY(sgrad__timeline_read_tasks(folder, timeline));
    SGRAD_TRY(sgrad__timeline_read_messages(folder, timeline));
    if (timeline->messages) SGRAD_TRY(sgrad__timeline_read_parcels(folder, timeline));
    put_in_order(timeline);
    set_clock(timeline);
    find_steps(timeline);
    read_roof(folder, timeline);
    return sgrad__timeline_read_paje(folder, timeline);
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

void sgrad__timeline_free(struct sgrad__timeline *timeline) {
    for (int i = 0; i < timeline->tasks; i++) free(timeline->task[i].name);
    free(timeline->task);
    sgrad__kinds_free(&timeline->kinds);
    for (int i = 0; i < timeline->parcels; i++) {
        for (int j = 0; j < timeline->parcel[i].parts; j++) free(timeline->parcel[i].part[j].name);
        free(timeline->parcel[i].part);
        free(timeline->parcel[i].name);
    }
    free(timeline->parcel);
    free(timeline->span);
    free(timeline->memory);
    for (int i = 0; i < timeline->copies; i++) free(timeline->copy[i].name);
    free(timeline->copy);
    for (int i = 0; i < timeline->moves; i++) free(timeline->move[i].name);
    free(timeline->move);
    free(timeline->message);
    free(timeline->row);
    free(timeline->first_row);
    sgrad__numbers_free(&timeline->workers);
    free(timeline->job);
    free(timeline->before);
    free(timeline->step_end);
    *timeline = (struct sgrad__timeline){ 0 };
}
