/* schedule.h: predicts when the instructions of a step run, on the workers of one rank. Private to graphs/. */
#ifndef SGRAD_GRAPHS_COSTS_SCHEDULE_H
#define SGRAD_GRAPHS_COSTS_SCHEDULE_H

#include "graphs/compiler/program.h"

/* Rates of a rank. */
struct sgrad__pace {
    int workers;
    double flops, bandwidth;       /* of a worker, per second: operations, bytes of its memory */
    struct sgrad_spill_speed disk; /* of the file; 0: moves take no time */
};
/* Times in seconds from the start of the step. Of an instruction: it has begun, if its operands are available and a worker is
 * free; it has ended. */
struct sgrad__schedule {
    double *begin, *end; /* by instruction */
    double seconds;      /* of the step */
};
/* The caller must free *SCHEDULE with sgrad__schedule_free. */
void sgrad__schedule_make(const struct sgrad__program *program, const struct sgrad__pace *pace, struct sgrad__schedule *schedule);
/* Returns the seconds of instruction I on one worker; 0: it is not a task. */
double sgrad__schedule_task(const struct sgrad__program *program, const struct sgrad__pace *pace, int i);
void sgrad__schedule_free(struct sgrad__schedule *schedule);

#endif
