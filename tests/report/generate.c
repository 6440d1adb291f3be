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

static FILE *begin(const struct run *r, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    FILE *file = fopen(path, "w");
    if (!file) abort();
    return file;
}

static void end(FILE *file) {
    if (fclose(file)) abort();
}

static void put(const struct run *r, const char *name, const char *text) {
    FILE *file = begin(r, name);
    fputs(text, file);
    end(file);
}

static double begins(int step, int slot) { return start + step * STEP_MS + 8 * slot; }
static double ends(const struct run *r, int rank, int step, int slot) {
    return begins(step, slot) + took[kind_at[slot]] * (rank == r->ranks - 1 ? slower : 1);
}

/* ---- tasks.rec ---- */

/* Jobs: a rank's tasks; then what sends and receives its chunks; of rank 0, too, the end of each step. */
static int tasks(const struct run *r) { return STEPS * SLOTS * r->workers; }
static int job(const struct run *r, int worker, int step, int slot) { return 1 + (step * SLOTS + slot) * r->workers + worker; }
static int sends(const struct run *r, int step, int bucket, int chunk) {
    return 1 + tasks(r) + 2 * ((step * BUCKETS + bucket) * CHUNKS + chunk);
}
static int barrier(const struct run *r, int step) { return sends(r, STEPS, 0, 0) + step; }

static void write_before(FILE *to, const struct run *r, int rank, int worker, int step, int slot) {
    if (slot) fprintf(to, "DependsOn: %d_%d", rank, job(r, worker, step, slot - 1));
    else if (step) fprintf(to, "DependsOn: 0_%d", barrier(r, step - 1));
    else return;
    for (int b = 0; kind_at[slot] == REDUCTION && worker == 0 && r->ranks > 1 && b < BUCKETS; b++)
        for (int c = 0; c < CHUNKS; c++) fprintf(to, " %d_%d", rank, sends(r, step, b, c) + 1);
    putc('\n', to);
}

static void write_task(FILE *to, const struct run *r, int rank, int worker, int step, int slot) {
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
            kind, rank, job(r, worker, step, slot), worker, begins(step, slot), ends(r, rank, step, slot), 10 + step, rank);
    write_before(to, r, rank, worker, step, slot);
    putc('\n', to);
}

static void write_tasks(const struct run *r) {
    FILE *to = begin(r, "trace/tasks.rec");
    for (int rank = 0; rank < r->ranks; rank++) {
        for (int step = 0; step < STEPS; step++)
            for (int slot = 0; slot < SLOTS; slot++)
                for (int w = 0; w < r->workers; w++) write_task(to, r, rank, w, step, slot);
        for (int j = sends(r, 0, 0, 0); r->ranks > 1 && j < sends(r, STEPS, 0, 0); j++) {
            fprintf(to, "JobId: %d_%d\nMPIRank: %d\n\n", rank, j, rank);
        }
    }
    for (int step = 0; step < STEPS; step++) {
        fprintf(to, "JobId: 0_%d\nMPIRank: 0\nDependsOn:", barrier(r, step));
        for (int rank = 0; rank < r->ranks; rank++)
            for (int w = 0; w < r->workers; w++) fprintf(to, " %d_%d", rank, job(r, w, step, SLOTS - 1));
        fputs("\n\n", to);
    }
    end(to);
}

/* ---- messages ---- */

static void write_messages(const struct run *r) {
    FILE *to = begin(r, "trace/comms.rec");
    for (int step = 0; step < STEPS && r->ranks > 1; step++)
        for (int b = 0; b < BUCKETS; b++)
            for (int rank = 0; rank < r->ranks; rank++)
                for (int c = 0; c < CHUNKS; c++) {
                    const double at = start + step * STEP_MS + sent_at[b], chunk = 10.0 / CHUNKS;
                    const int next = (rank + 1) % r->ranks, j = sends(r, step, b, c);
                    fprintf(to,
                            "Src: %d\nDst: %d\nSendTime: %.6f\nRecvTime: %.6f\nSendHandle: %x\nRecvHandle: %x\nSendJobId: "
                            "%d_%d\nRecvJobId: %d_%d\nSize: 20000\n\n",
                            rank, next, at + c * chunk, at + (c + 1) * chunk, 0x30 + b, 0x40 + b, rank, j, next, j + 1);
                }
    end(to);
}

static void write_handles(const struct run *r) {
    FILE *to = begin(r, "trace/data.rec");
    for (int rank = 0; rank < r->ranks; rank++)
        for (int b = 0; b < BUCKETS; b++)
            fprintf(to,
                    "Handle: %x\nName: conv%d.weight gradient#0\nMPIRank: %d\n\nHandle: %x\nName: conv%d.bias "
                    "gradient#0\nMPIRank: %d\n\n"
                    "Handle: %x\nName: bucket %d\nMPIRank: %d\n\nHandle: %x\nName: bucket %d from %d\nMPIRank: %d\n\n",
                    0x10 + b, b, rank, 0x20 + b, b, rank, 0x30 + b, b, rank, 0x40 + b, b, (rank + r->ranks - 1) % r->ranks, rank);
    end(to);
}

/* ---- paje.trace ---- */

/* A line of Paje: EVENT at MS in the container called NAME, a number, of a rank; then what FORMAT says. */
static void event(FILE *to, const struct run *r, int event, double ms, int rank, const char *name, int number, const char *format,
                  ...) {
    va_list list;
    fprintf(to, "%d\t%.6f\t", event, ms);
    if (r->ranks > 1) fprintf(to, "%d_", rank);
    fprintf(to, "%s%d\t", name, number);
    va_start(list, format);
    vfprintf(to, format, list);
    va_end(list);
    putc('\n', to);
}

static void write_states(FILE *to, const struct run *r, int rank, int worker, int step, int slot) {
    const double at = ends(r, rank, step, slot);
    event(to, r, 20, begins(step, slot), rank, "w", worker, "WS\t\"layer%d\"\t0\t0", slot);
    event(to, r, 10, at, rank, "w", worker, "WS\t\"Sc\"");
    event(to, r, 11, at + 0.25, rank, "w", worker, "WS\tFi");
    event(to, r, 12, at + 0.5, rank, "w", worker, "WS");
    event(to, r, 10, at + 0.75, rank, "w", worker, "WS\t\"Sl\"");
}

static void write_copies(FILE *to, const struct run *r) {
    char place[32];
    for (int arrives = 0; arrives < 2; arrives++)
        for (int rank = 0; rank < r->ranks; rank++) {
            if (r->ranks > 1) snprintf(place, sizeof place, "%d_mm%d", rank, arrives);
            else snprintf(place, sizeof place, "mm%d", arrives);
            for (int w = 0; w < r->workers; w++)
                fprintf(to, "%d\t%.6f\tF\tp\t1000000\t%s\tcom_%d%s\n", arrives ? 19 : 24, start + 1 + arrives, place, w,
                        arrives ? "" : "\tbeef\t\"images#0\"\t0\t0");
        }
}

static void write_paje(const struct run *r) {
    FILE *to = begin(r, "trace/paje.trace");
    fputs("%EventDef\tPajeSetState 10\n%EndEventDef\n", to);
    for (int rank = 0; rank < r->ranks; rank++) event(to, r, 13, start, rank, "mm", 0, "use\t100.0");
    write_copies(to, r);
    for (int step = 0; step < STEPS; step++)
        for (int slot = 0; slot < SLOTS; slot++)
            for (int rank = 0; rank < r->ranks; rank++)
                for (int w = 0; w < r->workers; w++) write_states(to, r, rank, w, step, slot);
    for (int rank = 0; rank < r->ranks; rank++)
        event(to, r, 13, begins(STEPS - 1, SLOTS - 1), rank, "mm", 0, "use\t%d.0", 200 + rank);
    end(to);
}

/* ---- all of it ---- */

static void write_roof(const struct run *r) {
    FILE *to = begin(r, "trace/roof.json");
    for (int i = 0; i < r->ranks * r->workers; i++)
        fprintf(to, "%c{\"rank\": %d, \"worker\": %d, \"gflops\": 50.0, \"gbytes\": 10.0}\n", i ? ',' : '[', i / r->workers,
                i % r->workers);
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
