/* machine.h: doctor's other half. */
#ifndef SGRAD_CLI_MACHINE_H
#define SGRAD_CLI_MACHINE_H

#include "cli/cli.h"

/* Measures this machine by some steps of the request's network, on every rank, and writes the file that plan.machine names.
 * Returns the exit status. */
int sgrad__machine_measure(const struct sgrad__request *request);

#endif
