/* memory.h: the choices that save memory (memory.c), for plan.c and simulate.c. Private to these files. */
#ifndef SGRAD_CLI_MEMORY_H
#define SGRAD_CLI_MEMORY_H

#include "cli/cli.h"
#include "graphs/api/costs.h"
#include "planner/planner.h"

/* Prints how a step fits into the memory --memory of a rank on NODES nodes of the machine of QUERY. With --out, draws the memory
 * of a step over time. Returns 0 or a negative SGRAD_E… code. */
int sgrad__plan_memory(const struct sgrad__request *request, const struct sgrad_plan_query *query, int nodes);
/* Returns 0 if --memory and --spill can be planned for the machine. SGRAD_EINVAL: it has GPUs; its file lacks the disk that a
 * simulation requires. */
int sgrad__memory_check(const struct sgrad__request *request, const struct sgrad_machine *machine);
/* Predicts the step of ROW, which is by formula, within --memory, with moves to the machine's disk if --spill is given. Returns 0
 * or a negative SGRAD_E… code. */
int sgrad__memory_predict(const struct sgrad__request *request, const struct sgrad_plan_query *query,
                          const struct sgrad_plan_row *row, struct sgrad_memory_choice *choice);

#endif
