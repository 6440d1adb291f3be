/* early.h: log lines before training starts. A line that several ranks log is printed once. For programs whose ranks all start in
 * the same manner, such as the command stargrad.
 *
 *     rank 0   prints its lines immediately
 *     rank r   buffers its lines; when MPI has started, and at each collective decision, prints those that rank 0 has not printed
 *
 * A rank that fails before MPI starts must call sgrad_ranks_leave. It starts MPI, so that the ranks that have not failed end as
 * well, in an orderly manner. */
#ifndef SGRAD_RUNTIME_RANKS_EARLY_H
#define SGRAD_RUNTIME_RANKS_EARLY_H

#include "runtime/runtime.h"

void sgrad_early_open(void);        /* starts buffering; no effect unless a launcher started several ranks */
void sgrad_early_close(void);       /* prints the buffered lines and ends buffering */

/* Must be called before the process ends with ERROR; 0: success. Prints the buffered lines and ends buffering. If it ends with an
 * error before MPI has started, it first starts MPI to inform the other ranks and to print each line once for all ranks. If they
 * do not start MPI within 30 seconds, it writes the lines of this rank and exits with status 1. */
void sgrad_ranks_leave(int error);

#endif
