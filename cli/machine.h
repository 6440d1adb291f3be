/* machine.h: the measurement of this machine for stargrad doctor --machine (machine.c). Private to doctor.c and machine.c. */
#ifndef SGRAD_CLI_MACHINE_H
#define SGRAD_CLI_MACHINE_H

#include "cli/cli.h"

/* Measures this machine with some training steps of the requested model, on CPUs only, and writes the file request->plan.machine
 * on rank 0. Every rank must call it. Returns the exit status. */
int sgrad__machine_measure(const struct sgrad__request *request);

#endif
