/* simulate.h: what stargrad plan --simulate asks of simulate.c. Private to the two, and to main.c. */
#ifndef SGRAD_CLI_SIMULATE_H
#define SGRAD_CLI_SIMULATE_H

#include "cli/cli.h"
#include "planner/planner.h"

#define SGRAD__SIMULATION "STARGRAD_SIMULATION"     /* the variable that leads a simulated trainer to FOLDER/request.json */
enum { SGRAD__SIMULATION_LIMIT = 1 << 20 };         /* bytes of requests and answers */

/* 0, or the exit status of a request that no simulation knows how to answer, which was told. */
int sgrad__simulate_check(const struct sgrad__request *request);
/* The points of FORECAST become what simulated machines say. */
int sgrad__simulate(const struct sgrad__request *request, const struct sgrad_question *question, struct sgrad_forecast *forecast);
/* The simulated trainer, built with --enable-simulation alone: one rank of such a request; its exit status. */
int sgrad__simulated_rank(void);

#endif
