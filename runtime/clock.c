/* clock.c: the one clock that everything asks, and the one way to do nothing for a while. */
#include "config.h"
#include "runtime/runtime.h"

#include <time.h>

double sgrad_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sgrad_sleep(double seconds) {
    const time_t whole = (time_t)seconds;
    nanosleep(&(struct timespec){ .tv_sec = whole, .tv_nsec = (long)(1e9 * (seconds - (double)whole)) }, NULL);
}
