/* simulate.h: stargrad plan --simulate. simulate.c starts the simulated trainer, whose ranks are in simulated.c. Private to these
 * two files, plan.c and main.c. */
#ifndef SGRAD_CLI_SIMULATE_H
#define SGRAD_CLI_SIMULATE_H

#include "cli/cli.h"
#include "planner/planner.h"

#define SGRAD__SIMULATION "STARGRAD_SIMULATION"     /* environment variable: path of request.json, for the simulated trainer */
enum { SGRAD__SIMULATION_LIMIT = 1 << 20 };         /* maximum size of request.json and answer.json in bytes */

/* Returns 0, or, if the simulation does not support the request, its exit status, after logging the reason. */
int sgrad__simulate_check(const struct sgrad__request *request);
/* Simulates each point of FORECAST and replaces its estimate by the result. Returns 0 or a negative SGRAD_E… code: SGRAD_EIO: the
 * simulated trainer is not built, or a file cannot be written; SGRAD_EDEVICE: it fails; SGRAD_EINTR: a signal ended it. */
int sgrad__simulate(const struct sgrad__request *request, const struct sgrad_plan_query *question,
                    struct sgrad_forecast *forecast);
/* Runs one rank of the simulated trainer, in a program that is built with --enable-simulation. Returns the exit status. */
int sgrad__simulated_rank(void);

#endif
