/* environment.h: checks of the environment variables that StarPU, OpenMP and launchers read. */
#ifndef SGRAD_RUNTIME_ENVIRONMENT_H
#define SGRAD_RUNTIME_ENVIRONMENT_H

#include "runtime/runtime.h"

/* StarPU keeps measured times in the folder .starpu of $XDG_CACHE_HOME, else $STARPU_HOME, else $HOME. Returns why it cannot, as
 * "HOME=/x: Permission denied", to free, or NULL. Makes missing folders. */
char *sgrad_home_trouble(void);

/* The variable that is set of those that bind an OpenMP program's first thread to one core: "NAME=value", to free; NULL: none. */
char *sgrad_binding_variable(void);

/* "8 workers take turns on the 2 CPUs here, and are no faster than 2". The caller frees it. NULL: there are CPUs enough. */
char *sgrad_crowding_text(int workers);

/* A launcher that has started more processes than the RANKS of this run has started copies that know nothing of each other: an
 * error that names the launcher's variable and the way out. RANKS 0: MPI has not started; then only a process that will not start
 * it is judged. For commands whose processes are ranks of one run. */
int sgrad_launcher_check(int ranks);

#endif
