/* environment.h: checks of the environment variables that StarPU, OpenMP and launchers read. */
#ifndef SGRAD_RUNTIME_ENVIRONMENT_H
#define SGRAD_RUNTIME_ENVIRONMENT_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the value of the environment variable NAME; NULL: it is not set, or empty, which has the same meaning. */
const char *sgrad_variable(const char *name);

/* Returns the index of the value of NAME in CHOICES, which ends with NULL; -1: not set, or another value. Rank 0 logs another
 * value as a warning with its effect, INSTEAD ("the fastest kernels are used"). */
int sgrad_variable_choice(const char *name, const char *const *choices, const char *instead);

/* Returns the path of the file NAME, "onednn" or "indexes/0", in the user's cache folder of Stargrad: .starpu/stargrad below
 * $XDG_CACHE_HOME, else $STARPU_HOME, else $HOME. The caller must free it. NULL: no folder is set. MAKE: create missing
 * folders, except $HOME; if this fails, NULL is returned, and the first call logs a warning. (files/tuning_cache.c) */
char *sgrad_cache_path(const char *name, bool make);

/* Returns the name of the variable with the user's cache folder: XDG_CACHE_HOME, else STARPU_HOME, else HOME; NULL: none is
 * set. */
const char *sgrad_home_variable(void);

/* Creates the folder PATH, and its missing parents that are longer than FROM bytes. Those of up to HOME bytes are accessible only
 * to this user, as the XDG Base Directory Specification requires of $XDG_CACHE_HOME. Returns 0 or errno. */
int sgrad_folders_make(const char *path, size_t from, size_t home);

/* Checks the folder for StarPU's time measurements: .starpu in $XDG_CACHE_HOME, else $STARPU_HOME, else $HOME. Creates missing
 * folders, except $HOME. Returns NULL if StarPU can write there, else the reason, "HOME=/x: Permission denied", which the caller
 * must free. */
char *sgrad_home_trouble(void);

/* Returns the variable that makes OpenMP bind the first thread of the program to one core, as "NAME=value"; the caller must free
 * it. NULL: no such variable is set. */
char *sgrad_binding_variable(void);

/* Returns a sentence that warns of more WORKERS than CPUs (sgrad_cpus); the caller must free it. NULL: there are enough CPUs. */
char *sgrad_crowding_text(int workers);

/* Checks that the launcher has not started more processes than the run has RANKS. SGRAD_EINVAL: it has, so that each process
 * would train independently; the first one logs the launcher's variable and a remedy. RANKS must be 0 before MPI starts; then
 * only a process that will not start MPI is checked. For commands whose processes are the ranks of one run. */
int sgrad_launcher_check(int ranks);

#ifdef __cplusplus
}
#endif
#endif
