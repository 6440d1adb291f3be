/* idle.cc: lets the threads that drive emulated GPUs sleep while they have nothing to do. StarPU's thread of a GPU polls without
 * pause, which is best with a GPU. Here, it would take the CPU from the threads that compute. */
#include <starpu.h> /* first: emulator.h defines words that it uses */
#include <unistd.h>

#include "tests/gpu/emulator/emulator.h"

using namespace emulator;

/* Called by each worker whenever it looks for work. */
static unsigned pause_idle_thread(void *) {
    static thread_local unsigned long submitted;
    static thread_local unsigned idle;
    if (starpu_worker_get_id() < 0 || starpu_worker_get_type(starpu_worker_get_id()) != STARPU_CUDA_WORKER) return 1;
    idle = submitted == work_of_this_thread() ? idle + 1 : 0;
    submitted = work_of_this_thread();
    if (idle > 10) usleep(50);
    return 1;
}

static const int hook = starpu_progression_hook_register(pause_idle_thread, NULL);
