/* failure.c: stores the first error of a set of tasks. After it, the tasks of the set that have not started do not run. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <stdatomic.h>
#include <stdlib.h>

struct sgrad_failure {
    _Atomic int error;
};

/* The error of tasks without a set; cleared when a wait returns it. */
static struct sgrad_failure others;

struct sgrad_failure *sgrad_failure_create(void) { return sgrad_xcalloc(1, sizeof(struct sgrad_failure)); }
void sgrad_failure_destroy(struct sgrad_failure *failure) { free(failure); }

int sgrad_failure_error(const struct sgrad_failure *failure) { return atomic_load(&failure->error); }
int sgrad_task_error(void) { return sgrad_failure_error(&others); }

void sgrad__failure_note(struct sgrad_failure *failure, int error) {
    int none = 0;
    atomic_compare_exchange_strong(failure ? &failure->error : &others.error, &none, error);
}

int sgrad__failure_take(void) { return atomic_exchange(&others.error, 0); }
