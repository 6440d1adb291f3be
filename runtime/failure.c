/* failure.c: the first error that a kernel reports stops the tasks that have not started, until a wait has returned it. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <stdatomic.h>

static _Atomic int failure;

void sgrad_task_fail(int error) {
    int none = 0;
    atomic_compare_exchange_strong(&failure, &none, error);
}

int sgrad_task_error(void) { return atomic_load(&failure); }

int sgrad__failure_take(void) { return atomic_exchange(&failure, 0); }
