/* generate.c: writes a run of two traced steps, the files that stargrad report reads. */
#include "tests/report/generate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const double start = 1000;       /* ms of StarPU's clock */
static const double took[KINDS] = { 1, 4, 6, 2, 3 };
static const int kind_at[SLOTS] = { INPUT,    FORWARD,  FORWARD,  FORWARD,  FORWARD,   BACKWARD,
                                    BACKWARD, BACKWARD, BACKWARD, BACKWARD, REDUCTION, UPDATE };
static const double sent_at[BUCKETS] = { 50, 66 };
const char *const generated_kinds[KINDS] = { "input", "forward", "backward", "reduction", "update" };
const double generated_ms[KINDS] = { STEPS * 1 * 1, STEPS * 4 * 4, STEPS * 5 * 6, STEPS * 2, STEPS * 3 };

struct run {
    const char *folder;
    int ranks, workers;
};

static FILE *begin(const struct run *run, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", run->folder, name);
    FILE *file = fopen(path, "w");
    if (!file) abort();
    return file;
}

static void end(FILE *file) {
    if (fclose(file)) abort();
}

static void put(const struct run *run, const char *name, const char *text) {
    FILE *file = begin(run, name);
    fputs(text, file);
    end(file);
}

static double begins(int step, int slot) { return start + step * STEP_MS + 8 * slot; }
static double ends(const struct run *run, int rank, int step, int slot) {
    return begins(step, slot) + took[kind_at[slot]] * (rank == run->ranks - 1 ? slower : 1);
}

/* ---- tasks.rec ---- */

/* Jobs: a rank's tasks; then what sends and receives its chunks; of rank 0, too, the end of each step. */
static int tasks(const struct run *run) { return STEPS * SLOTS * run->workers; }
static int job(const struct run *run, int worker, int step, int slot) {
    return 1 + (step * SLOTS + slot) * run->workers + worker;
}
static int sends(const struct run *run, int step, int bucket, int chunk) {
    return 1 + tasks(run) + 2 * ((step * BUCKETS + bucket) * CHUNKS + chunk);
}
static int barrier(const struct run *run, int step) { return sends(run, STEPS, 0, 0) + step; }

static void write_before(FILE *to, const struct run *run, int rank, int worker, int step, int slot) {
    if (slot) fprintf(to, "DependsOn: %d_%d", rank, job(run, worker, step, slot - 1));
    else if (step) fprintf(to, "DependsOn: 0_%d", barrier(run, step - 1));
    else return;
    for (int b = 0; kind_at[slot] == REDUCTION && worker == 0 && run->ranks > 1 && b < BUCKETS; b++)
        for (int c = 0; c < CHUNKS; c++) fprintf(to, " %d_%d", rank, sends(run, step, b, c) + 1);
    putc('\n', to);
}

static void write_task(FILE *to, const struct run *run, int rank, int worker, int step, int slot) {
    const char *kind = generated_kinds[kind_at[slot]];
    const int bucket = (worker + step) % BUCKETS;
    if (kind_at[slot] == REDUCTION)
        fprintf(to, "Name: bucket %d\nHandles: %x %x %x\nModes: R R W\nSizes: 3000 2000 5000\n", bucket, 0x10 + bucket,
                0x20 + bucket, 0x30 + bucket);
    else
        fprintf(to, "Name: layer%d %s #%d\nHandles: 1\nModes: RW\nSizes: 1000000\n", slot, kind, worker);
    fprintf(to,
            "Model: stargrad_%s\nJobId: %d_%d\nWorkerId: %d\nStartTime: %.6f\nEndTime: %.6f\nGFlop: 0.1\nIteration: %d\nMPIRank: "
            "%d\n",
            kind, rank, job(run, worker, step, slot), worker, begins(step, slot), ends(run, rank, step, slot), 10 + step, rank);
    write_before(to, run, rank, worker, step, slot);
    putc('\n', to);
}

static void write_tasks(const struct run *run) {
    FILE *to = begin(run, "trace/tasks.rec");
    for (int rank = 0; rank < run->ranks; rank++) {
        for (int step = 0; step < STEPS; step++)
            for (int slot = 0; slot < SLOTS; slot++)
                for (int w = 0; w < run->workers; w++) write_task(to, run, rank, w, step, slot);
        for (int j = sends(run, 0, 0, 0); run->ranks > 1 && j < sends(run, STEPS, 0, 0); j++) {
            fprintf(to, "JobId: %d_%d\nMPIRank: %d\n\n", rank, j, rank);
        }
    }
    for (int step = 0; step < STEPS; step++) {
        fprintf(to, "JobId: 0_%d\nMPIRank: 0\nDependsOn:", barrier(run, step));
        for (int rank = 0; rank < run->ranks; rank++)
            for (int w = 0; w < run->workers; w++) fprintf(to, " %d_%d", rank, job(run, w, step, SLOTS - 1));
        fputs("\n\n", to);
    }
    end(to);
}

/* ---- messages ---- */

static void write_messages(const struct run *run) {
    FILE *to = begin(run, "trace/comms.rec");
    for (int step = 0; step < STEPS && run->ranks > 1; step++)
        for (int b = 0; b < BUCKETS; b++)
            for (int rank = 0; rank < run->ranks; rank++)
                for (int c = 0; c < CHUNKS; c++) {
                    const double at = start + step * STEP_MS + sent_at[b], chunk = 10.0 / CHUNKS;
                    const int next = (rank + 1) % run->ranks, j = sends(run, step, b, c);
                    fprintf(to,
                            "Src: %d\nDst: %d\nSendTime: %.6f\nRecvTime: %.6f\nSendHandle: %x\nRecvHandle: %x\nSendJobId: "
                            "%d_%d\nRecvJobId: %d_%d\nSize: 20000\n\n",
                            rank, next, at + c * chunk, at + (c + 1) * chunk, 0x30 + b, 0x40 + b, rank, j, next, j + 1);
                }
    end(to);
}

static void write_handles(const struct run *run) {
    FILE *to = begin(run, "trace/data.rec");
    for (int rank = 0; rank < run->ranks; rank++)
        for (int b = 0; b < BUCKETS; b++)
            fprintf(to,
                    "Handle: %x\nName: conv%d.weight gradient#0\nMPIRank: %d\n\nHandle: %x\nName: conv%d.bias "
                    "gradient#0\nMPIRank: %d\n\n"
                    "Handle: %x\nName: bucket %d\nMPIRank: %d\n\nHandle: %x\nName: bucket %d from %d\nMPIRank: %d\n\n",
                    0x10 + b, b, rank, 0x20 + b, b, rank, 0x30 + b, b, rank, 0x40 + b, b, (rank + run->ranks - 1) % run->ranks,
                    rank);
    end(to);
}

/* ---- paje.trace ---- */

/* A line of Paje: EVENT at MS in the container called NAME, a number, of a rank; then what FORMAT says. */
static void event(FILE *to, const struct run *run, int event, double ms, int rank, const char *name, int number,
                  const char *format, ...) {
    va_list list;
    fprintf(to, "%d\t%.6f\t", event, ms);
    if (run->ranks > 1) fprintf(to, "%d_", rank);
    fprintf(to, "%s%d\t", name, number);
    va_start(list, format);
    vfprintf(to, format, list);
    va_end(list);
    putc('\n', to);
}

static void write_states(FILE *to, const struct run *run, int rank, int worker, int step, int slot) {
    const double at = ends(run, rank, step, slot);
    event(to, run, 20, begins(step, slot), rank, "w", worker, "WS\t\"layer%d\"\t0\t0", slot);
    event(to, run, 10, at, rank, "w", worker, "WS\t\"Sc\"");
    event(to, run, 11, at + 0.25, rank, "w", worker, "WS\tFi");
    event(to, run, 12, at + 0.5, rank, "w", worker, "WS");
    event(to, run, 10, at + 0.75, rank, "w", worker, "WS\t\"Sl\"");
}

static void write_copies(FILE *to, const struct run *run) {
    char place[32];
    for (int arrives = 0; arrives < 2; arrives++)
        for (int rank = 0; rank < run->ranks; rank++) {
            if (run->ranks > 1) snprintf(place, sizeof place, "%d_mm%d", rank, arrives);
            else snprintf(place, sizeof place, "mm%d", arrives);
            for (int w = 0; w < run->workers; w++)
                fprintf(to, "%d\t%.6f\tF\tp\t1000000\t%s\tcom_%d%s\n", arrives ? 19 : 24, start + 1 + arrives, place, w,
                        arrives ? "" : "\tbeef\t\"images#0\"\t0\t0");
        }
}

static void write_paje(const struct run *run) {
    FILE *to = begin(run, "trace/paje.trace");
    fputs("%EventDef\tPajeSetState 10\n%EndEventDef\n", to);
    for (int rank = 0; rank < run->ranks; rank++) event(to, run, 13, start, rank, "mm", 0, "use\t100.0");
    write_copies(to, run);
    for (int step = 0; step < STEPS; step++)
        for (int slot = 0; slot < SLOTS; slot++)
            for (int rank = 0; rank < run->ranks; rank++)
                for (int w = 0; w < run->workers; w++) write_states(to, run, rank, w, step, slot);
    for (int rank = 0; rank < run->ranks; rank++)
        event(to, run, 13, begins(STEPS - 1, SLOTS - 1), rank, "mm", 0, "use\t%d.0", 200 + rank);
    end(to);
}

/* ---- all of it ---- */

static void write_roof(const struct run *run) {
    FILE *to = begin(run, "trace/roof.json");
    for (int i = 0; i < run->ranks * run->workers; i++)
        fprintf(to, "%c{\"rank\": %d, \"worker\": %d, \"gflops\": 50.0, \"gbytes\": 10.0}\n", i ? ',' : '[', i / run->workers,
                i % run->workers);
    fputs("]\n", to);
    end(to);
}

void generate(const char *folder, int ranks, int workers) {
    const struct run r = { folder, ranks, workers };
    char path[4096];
    snprintf(path, sizeof path, "%s/trace", folder);
    mkdir(path, 0777);
    put(&r, "config.json", "{\"identity\": {\"model\": \"generated\"}, \"options\": {\"data\": \"nothing\"}}\n");
    put(&r, "metrics.jsonl", "{\"event\":\"step\",\"step\":11,\"epoch\":0,\"loss\":2.5,\"lr\":0.1,\"samples_per_second\":100}\n");
    put(&r, "trace/kernels.json",
        "{\"stargrad_input\": \"input\", \"stargrad_forward\": \"forward\", \"stargrad_backward\": \"backward\", "
        "\"stargrad_reduction\": \"reduction\", \"stargrad_update\": \"update\"}\n");
    write_tasks(&r);
    write_messages(&r);
    write_handles(&r);
    write_paje(&r);
    write_roof(&r);
}
