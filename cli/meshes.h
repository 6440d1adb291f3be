/* meshes.h: the costs of meshes (meshes.c), for plan.c. Private to these two files. */
#ifndef SGRAD_CLI_MESHES_H
#define SGRAD_CLI_MESHES_H

#include "cli/cli.h"
#include "planner/planner.h"

/* Prints the estimated cost of the mesh --mesh, or for "auto" of the cheapest mesh of each kind, on FROM, 2 FROM, … and TO nodes
 * of MACHINE. Returns 0 or a negative SGRAD_E… code. */
int sgrad__plan_meshes(const struct sgrad__request *request, const struct sgrad_machine *machine, int from, int to);

#endif
