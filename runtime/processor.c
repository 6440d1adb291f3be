/* processor.c: the instruction set that kernels may use: the best that this processor and oneDNN support, limited by the variable
 * STARGRAD_MAX_ISA, which applies to oneDNN as well. With it, a machine can show the performance of an older one, and tests can
 * run the kernels of all instruction sets. */
#include "config.h"
#include "runtime/environment.h"
#include "runtime/internal.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *title;
    dnnl_cpu_isa_t onednn;
} levels[] = {
    [SGRAD_BASELINE] = { "baseline", "baseline instructions", dnnl_cpu_isa_sse41 },
    [SGRAD_AVX2] = { "avx2", "AVX2", dnnl_cpu_isa_avx2 },
    [SGRAD_AVX512] = { "avx512", "AVX-512", dnnl_cpu_isa_avx512_core },
    [SGRAD_AVX512_BF16] = { "avx512_bf16", "AVX-512 with bf16", dnnl_cpu_isa_avx512_core_bf16 },
    [SGRAD_AMX] = { "amx", "AMX", dnnl_cpu_isa_avx512_core_amx },
};
enum { LEVELS = sizeof levels / sizeof *levels };

static enum sgrad_isa most;     /* the best instruction set that kernels may use */
static int refused;             /* the error of STARGRAD_MAX_ISA; 0: none */

static int limit(void) {
    static const char variable[] = "STARGRAD_MAX_ISA";
    const char *asked = sgrad_variable(variable);
    int level = 0;
    if (!asked) return 0;
    while (level < LEVELS && strcmp(levels[level].name, asked) != 0) level++;
    if (level == LEVELS)
        return sgrad_log_error(SGRAD_EINVAL, "%s=%s is unknown; it must be baseline, avx2, avx512, avx512_bf16 or amx", variable,
                               asked);
    /* In a simulation a process has several ranks: oneDNN refuses a second limit, and has the first. */
    const bool limited = dnnl_set_max_cpu_isa(levels[level].onednn) == dnnl_success ||
                         !((unsigned)dnnl_get_effective_cpu_isa() & ~(unsigned)levels[level].onednn);
    if (!limited)
        return sgrad_log_error(SGRAD_EDEVICE,
                               "%s=%s: the instruction set of oneDNN cannot be limited: oneDNN is already in use, or was built "
                               "without this feature; unset the variable",
                               variable, asked);
    return 0;
}

static void look(void) {
    refused = limit();
    const int has = (int)dnnl_get_effective_cpu_isa();
    most = LEVELS - 1;
    while (most > SGRAD_BASELINE && (has & (int)levels[most].onednn) != (int)levels[most].onednn) most--;
}

static void look_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
}

int sgrad__isa_check(void) {
    look_once();
    return refused;
}

enum sgrad_isa sgrad_isa(void) {
    look_once();
    return most;
}

const char *sgrad_isa_title(enum sgrad_isa isa) { return levels[isa].title; }
