/* meshes.h: what stargrad plan asks of meshes.c. Private to the two. */
#ifndef SGRAD_CLI_MESHES_H
#define SGRAD_CLI_MESHES_H

#include "cli/cli.h"
#include "planner/planner.h"

/* Prints what meshes cost on FROM to TO nodes of MACHINE. */
int sgrad__plan_meshes(const struct sgrad__request *request, const struct sgrad_machine *machine, int from, int to);

#endif
