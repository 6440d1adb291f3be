/* processor.c: which instructions kernels may use: what this processor and oneDNN have, up to what STARGRAD_MAX_ISA says, so that
 * a machine shows what a lesser one gets, and runs its kernels in tests. oneDNN is limited alike. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *title;
    dnnl_cpu_isa_t onednn;
} levels[] = {
    [SGRAD_BASELINE] = { "baseline", "no vector instructions known", dnnl_cpu_isa_sse41 },
    [SGRAD_AVX2] = { "avx2", "AVX2", dnnl_cpu_isa_avx2 },
    [SGRAD_AVX512] = { "avx512", "AVX-512", dnnl_cpu_isa_avx512_core },
    [SGRAD_AVX512_BF16] = { "avx512_bf16", "AVX-512 with bf16", dnnl_cpu_isa_avx512_core_bf16 },
    [SGRAD_AMX] = { "amx", "AMX", dnnl_cpu_isa_avx512_core_amx },
};
enum { LEVELS = sizeof levels / sizeof *levels };

static enum sgrad_isa most;     /* of what kernels may use */
static int refused;             /* what was wrong with STARGRAD_MAX_ISA */

static int limit(void) {
    static const char variable[] = "STARGRAD_MAX_ISA";
    const char *asked = getenv(variable);
    int level = 0;
    if (!asked || !*asked) return 0;
    while (level < LEVELS && strcmp(levels[level].name, asked) != 0) level++;
    if (level == LEVELS)
        return sgrad_fail(SGRAD_EINVAL, "%s=%s is none of baseline, avx2, avx512, avx512_bf16, amx", variable, asked);
    if (dnnl_set_max_cpu_isa(levels[level].onednn) != dnnl_success)
        return sgrad_fail(SGRAD_EDEVICE, "%s=%s: oneDNN cannot be limited: it is in use already, or was built so",
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
