/* kronecker.c: what the kernels of second-order training share: LAPACK's threads, and what they tell of factors. */
#include "config.h"
#include "codelets/lapack.h"

#include <pthread.h>

#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
void openblas_set_num_threads(int threads);
static void one_thread(void) { openblas_set_num_threads(1); }
#else
static void one_thread(void) {}
#endif

void sgrad__lapack_alone(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, one_thread);
}

void sgrad__factor_tell(const struct sgrad_factor_health *health, long *count, const struct sgrad_step *step, const char *what) {
    long times = ++*count;
    while (times % 10 == 0) times /= 10;
    if (times != 1) return;
    sgrad_warn("step %u: the curvature factor %s %s (%ld %s so far; told again at %ld)", step->number, health->name, what, *count,
               sgrad_plural(*count, "time", "times"), 10 * *count);
}
