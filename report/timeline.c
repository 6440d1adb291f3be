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
static void find_steps(struct sgrad__timeline *t) {
    int first = -1, last = -1;
    for (int i = 0; i < t->tasks; i++) {
        const int step = t->task[i].step;
        if (step < 0) continue;
        first = first < 0 || step < first ? step : first;
        last = step > last ? step : last;
    }
    t->first_step = first;
    t->steps = first < 0 || last - first >= t->tasks ? 0 : last - first + 1;
    t->step_end = sgrad_xcalloc((size_t)t->steps + 1, sizeof *t->step_end);
    for (int i = 0; i < t->tasks && t->steps; i++)
        if (t->task[i].step >= 0)
            t->step_end[t->task[i].step - first] = fmax(t->step_end[t->task[i].step - first], t->task[i].end);
}

/* Sorts rows by rank and worker, tasks by row and time. */
static void put_in_order(struct sgrad__timeline *t) {
    struct sgrad__timeline_row *found = sgrad_xcalloc((size_t)t->rows, sizeof *found);
    memcpy(found, t->row, (size_t)t->rows * sizeof *found);
    qsort(t->row, (size_t)t->rows, sizeof *t->row, by_rank);
    sgrad__numbers_free(&t->workers);
    for (int i = 0; i < t->rows; i++) sgrad__number(&t->workers, (int[]){ t->row[i].rank, t->row[i].worker }, sizeof(int[2]));
    t->first_row = sgrad_xcalloc((size_t)t->ranks + 1, sizeof *t->first_row);
    for (int i = 0, r = 0; r <= t->ranks; t->first_row[r++] = i)
        while (i < t->rows && t->row[i].rank < r) i++;
    for (int i = 0; i < t->tasks; i++) {
        const struct sgrad__timeline_row *row = &found[t->task[i].worker];
        t->task[i].worker = sgrad__number_find(&t->workers, (int[]){ row->rank, row->worker }, sizeof(int[2]));
        t->row[t->task[i].worker].tasks++;
    }
    for (int i = 1; i < t->rows; i++) t->row[i].first = t->row[i - 1].first + t->row[i - 1].tasks;
    qsort(t->task, (size_t)t->tasks, sizeof *t->task, by_row);
    qsort(t->job, (size_t)t->jobs, sizeof *t->job, by_id);
    free(found);
}

/* Subtracts the start of the first task from all times. */
static void set_clock(struct sgrad__timeline *t) {
    t->start = t->task[0].begin;
    for (int i = 0; i < t->tasks; i++) t->start = fmin(t->start, t->task[i].begin);
    for (int i = 0; i < t->tasks; i++) {
        t->task[i].begin -= t->start;
        t->task[i].end -= t->start;
        t->length = fmax(t->length, t->task[i].end);
    }
    for (int i = 0; i < t->messages; i++) {
        t->message[i].begin -= t->start;
        t->message[i].end -= t->start;
    }
}

/* Reads the peaks of the workers, which the run measured (graphs/costs/roof.c); the file may be missing. */
static void read_roof(const char *folder, struct sgrad__timeline *t) {
    char *path = sgrad_format("%s/trace/roof.json", folder);
    json_t *roof = json_load_file(path, 0, NULL), *worker;
    size_t i;
    json_array_foreach(roof, i, worker) {
        const int key[] = { (int)json_integer_value(json_object_get(worker, "rank")),
                            (int)json_integer_value(json_object_get(worker, "worker")) };
        const int row = sgrad__number_find(&t->workers, key, sizeof key);
        if (row < 0) continue;
        t->row[row].gflops = json_real_value(json_object_get(worker, "gflops"));
        t->row[row].gbytes = json_real_value(json_object_get(worker, "gbytes"));
    }
    json_decref(roof);
    free(path);
}

static int read_trace(const char *folder, struct sgrad__timeline *t) {
    SGRAD_TRY(sgrad__kinds_read(folder, &t->kinds));
    SGRAD_TRY(sgrad__timeline_read_tasks(folder, t));
    SGRAD_TRY(sgrad__timeline_read_messages(folder, t));
    if (t->messages) SGRAD_TRY(sgrad__timeline_read_parcels(folder, t));
    put_in_order(t);
    set_clock(t);
    find_steps(t);
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
    free(t->first_row);
    sgrad__numbers_free(&t->workers);
    free(t->job);
    free(t->before);
    free(t->step_end);
    *t = (struct sgrad__timeline){ 0 };
}
