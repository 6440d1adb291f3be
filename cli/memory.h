/* memory.h: the choices that save memory (memory.c), for plan.c. Private to these two files. */
#ifndef SGRAD_CLI_MEMORY_H
#define SGRAD_CLI_MEMORY_H

#include "cli/cli.h"
#include "planner/planner.h"

/* Prints how a step fits into the memory --memory of a rank on NODES nodes of the machine of QUERY. With --out, draws the memory
 * of a step over time. Returns 0 or a negative SGRAD_E… code. */
int sgrad__plan_memory(const struct sgrad__request *request, const struct sgrad_plan_query *query, int nodes);

#endif
