/* lapack.c: makes LAPACK use one thread, because a worker is one core. */
#include "config.h"
#include "codelets/cpu/lapack.h"

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
