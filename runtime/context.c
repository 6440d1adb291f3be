/* context.c: opens and closes a context: starts and stops MPI and StarPU. */
#include "config.h"
#include "runtime/environment.h"
#include "runtime/internal.h"

#include <malloc.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <starpu.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Configures malloc to retain freed memory. Activations are allocated and freed in every step; if their memory were returned to
 * the system, each allocation would cause page faults again. mmap is disabled completely, because glibc does not accept a
 * threshold above 32 MiB. */
static void keep_freed_memory(void) {
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);     /* never */
    mallopt(M_TOP_PAD, 64 << 20);
    mallopt(M_ARENA_MAX, 1);
}

/* Requests pages of 2 MiB for the memory of future tensors, if Linux provides them on request: a step accesses hundreds of
 * megabytes, more than the processor's TLB covers with 4 KiB pages. The memory is allocated, marked, and freed. Because it is not
 * touched, this costs nothing, except if address space is limited or malloc is configured to fill memory; then it is omitted. */
static void want_large_pages(void) {
#ifndef __SANITIZE_ADDRESS__
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), quarter = (size_t)sysconf(_SC_PHYS_PAGES) / 4 * page;
    const size_t most = (size_t)4 << 30, bytes = quarter < most ? quarter : most;
    struct rlimit space, data;
    getrlimit(RLIMIT_AS, &space);
    getrlimit(RLIMIT_DATA, &data);
    const bool counted = space.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY;
    if (counted || getenv("MALLOC_PERTURB_") || getenv("GLIBC_TUNABLES")) return;
    char *room = malloc(bytes);
    if (room) madvise(room + (page - (uintptr_t)room % page), bytes - page, MADV_HUGEPAGE);
    free(room);
#endif
}

/* oneDNN uses OpenMP: within a worker it must not start additional threads. */
static void one_thread(void *arg) {
    (void)arg;
    omp_set_num_threads(1);
}

static int check_scheduler(const char *name) {
    struct starpu_sched_policy **policy = starpu_sched_get_predefined_policies();
    const char *names[64] = { 0 };
    for (int i = 0; policy[i] && i < 63; i++) {
        names[i] = policy[i]->policy_name;
        if (strcmp(names[i], name) == 0) return 0;
    }
    const char *near = sgrad_suggest(name, names);
    return sgrad_log_error(SGRAD_ENAME, "StarPU has no scheduler '%s'%s%s%s (STARPU_SCHED=help lists them)", name,
                           near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* Returns the remedy if the user has requested no CPU worker. */
static const char *no_worker_text(const struct sgrad_context_options *options) {
    const char *count = sgrad_variable("STARPU_NCPU") ? sgrad_variable("STARPU_NCPU") : sgrad_variable("STARPU_NCPUS");
    if (options->cpus) return "; give --cpus 1 or more";
    return count && atoi(count) == 0 ? "; STARPU_NCPU or STARPU_NCPUS is 0: unset it" : "";
}

static int start(struct starpu_conf *conf, const struct sgrad_context_options *options) {
    int error = sgrad__ranks_init(conf);
    if (error == -ENODEV)
        return sgrad_log_error(SGRAD_EDEVICE, "StarPU found no worker: neither a CPU core nor a CUDA device is available%s",
                               no_worker_text(options));
    if (error) return sgrad_log_error(SGRAD_EDEVICE, "StarPU cannot start: %s; see 'stargrad doctor'", strerror(-error));
    starpu_malloc_set_align(SGRAD_LINE);
    int found = (int)starpu_cuda_worker_get_count();
    if (found >= options->gpus) return 0;
    starpu_shutdown();
    return sgrad_log_error(SGRAD_EDEVICE, "%d CUDA devices were requested, but StarPU found %d; see 'stargrad doctor'",
                           options->gpus, found);
}

/* Selects the GPUs of this rank, unless the user has selected them or the launcher makes only one visible to each rank. */
static void claim_gpus(struct starpu_conf *conf) {
    const int all = sgrad__cuda_devices(), ranks = sgrad__world.ranks_here;
    if (SGRAD_SIMULATED || ranks < 2 || all < 2 || conf->ncuda == 0 || getenv("STARPU_WORKERS_CUDAID")) return;
    const int own = sgrad__gpus_share(all, conf->ncuda, ranks, sgrad__world.rank_here, conf->workers_cuda_gpuid);
    if (!own) return;   /* StarPU then finds too few, which start() reports */
    conf->use_explicit_workers_cuda_gpuid = 1;
    conf->ncuda = own;
}

int sgrad_context_open(const struct sgrad_context_options *options, struct sgrad_context **context) {
    struct starpu_conf conf;
    struct sgrad_context *ctx;
    SGRAD_TRY(sgrad__trace_prepare(options->trace, options->kinds));
    if (!SGRAD_SIMULATED) {
        keep_freed_memory();
        want_large_pages();
    }
    SGRAD_TRY(sgrad__environment_settle(options));
    setenv("STARPU_SILENT", "1", 0);
    starpu_conf_init(&conf);
    conf.precedence_over_environment_variables = 1;
    if (options->cpus) conf.ncpus = options->cpus > 0 ? options->cpus : 0;
    if (options->gpus) conf.ncuda = options->gpus > 0 ? options->gpus : 0;
    conf.nopencl = 0;
    conf.catch_signals = 0;
    const char *scheduler = options->scheduler ? options->scheduler : sgrad_variable("STARPU_SCHED");
    if (!scheduler) scheduler = sgrad__cuda_devices() > 0 && conf.ncuda != 0 ? "dmdas" : "lws";
    SGRAD_TRY(check_scheduler(scheduler));
    SGRAD_TRY(sgrad__isa_check());
    conf.sched_policy_name = scheduler;
    ctx = sgrad_xcalloc(1, sizeof *ctx);
    ctx->timeout = options->timeout;
    int error = sgrad__ranks_open(ctx, &conf);
    claim_gpus(&conf);
    if (!error) error = start(&conf, options);
    if (!error) error = sgrad__ranks_start(ctx, options->network);
    if (error) {
        sgrad_ranks_abort(1);
        free(ctx);
        return error;
    }
    sgrad__devices_open();
    ctx->cpus = (int)starpu_cpu_worker_get_count();
    ctx->gpus = (int)starpu_cuda_worker_get_count();
    snprintf(ctx->scheduler, sizeof ctx->scheduler, "%s", scheduler);
    omp_set_num_threads(1);
    if (ctx->cpus) starpu_execute_on_each_worker(one_thread, NULL, STARPU_CPU);
    *context = ctx;
    return 0;
}

void sgrad_context_close(struct sgrad_context *context) {
    if (!context) return;
    starpu_task_wait_for_all();
    sgrad__caches_clear();
    sgrad__devices_close();
    sgrad__ranks_stop();
    starpu_shutdown();
    sgrad__trace_collect(context);
    sgrad__ranks_close();
    sgrad__trace_convert(context);
    free(context);
}

bool sgrad_worker_is_cuda(int i) { return starpu_worker_get_type(i) == STARPU_CUDA_WORKER; }

int sgrad_worker_here(void) { return starpu_worker_get_id(); }

const char *sgrad_devices_text(const struct sgrad_context *context, char *text, size_t size) {
    int used = snprintf(text, size, "%d CPU %s (%s)", context->cpus,
                        context->cpus > sgrad_cpus() ? "workers" : sgrad_plural(context->cpus, "core", "cores"),
                        sgrad_isa_title(sgrad_isa()));
    for (int i = 0; i < context->gpus && used < (int)size; i++) {
        char name[128];
        starpu_worker_get_name(starpu_worker_get_by_type(STARPU_CUDA_WORKER, i), name, sizeof name);
        used += snprintf(text + used, size - (size_t)used, ", %s", name);
    }
    return text;
}
