/* early.h: lines that ranks print before they train: one of each, however many ranks have it. For programs whose ranks all begin
 * alike, as the command's do.
 *
 *     rank 0   prints its lines at once
 *     rank r   holds its lines; when MPI has started, and whenever ranks agree, it prints those that rank 0 has not printed
 *
 * A rank that fails before MPI starts calls sgrad_ranks_leave, which starts MPI, so that the ranks that have not failed end as
 * well, and in order. */
#ifndef SGRAD_RUNTIME_EARLY_H
#define SGRAD_RUNTIME_EARLY_H

#include "runtime/runtime.h"

void sgrad_early_open(void);        /* lines are held from here on; does nothing unless a launcher started several ranks */
void sgrad_early_close(void);       /* they are printed at once again, and those that are still held now */

/* The end of a process with this error, 0: success. Prints the lines that are held, once for all ranks if MPI has not started. */
void sgrad_ranks_leave(int error);

#endif
