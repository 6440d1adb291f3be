/* generate.h: a traced run of any size with known sums, with the files that training and StarPU's trace tool would write. */
#ifndef SGRAD_TESTS_REPORT_GENERATE_H
#define SGRAD_TESTS_REPORT_GENERATE_H

/* Two steps of 100 ms. Every worker runs the same twelve tasks in each, one every 8 ms; on the last rank they take longer:
 *
 *     at  0    8 … 32     40 … 72      80         88
 *     input   4 forward  5 backward  reduction  update     then 0.25 ms scheduling, 0.25 fetching, 0.25 scheduling, asleep
 *      1 ms     4 each     6 each      2 ms      3 ms
 *
 * From 50 to 60 and from 66 to 76 each rank's chunks of a bucket travel to the next rank. Between the tasks that run meanwhile a
 * worker sleeps for 1.25 ms; on the last rank it does not. Each task waits for the one before it on its worker, each step for the
 * one before it. */
enum { STEPS = 2, SLOTS = 12, BUCKETS = 2, CHUNKS = 50, STEP_MS = 100 };
enum { INPUT, FORWARD, BACKWARD, REDUCTION, UPDATE, KINDS };
extern const char *const generated_kinds[KINDS];
extern const double generated_ms[KINDS];            /* of all tasks of a kind of one worker, in both steps */
static const double slower = 1.25;                  /* times as long */

/* Writes config.json, metrics.jsonl and trace/ into FOLDER, which is there. Every worker has a copy of 1 MB to memory node 1. */
void generate(const char *folder, int ranks, int workers);

#endif
