/* doctor.c: stargrad doctor: reports the capabilities of this machine, misconfigurations, and remedies.
 *
 * Libraries that may hang or crash (StarPU, MPI, CUDA, hwloc's plugins) are called in a child process, a probe, with a time
 * limit. */
#include "cli/cli.h"
#include "graphs/api/bench.h"
#include "cli/limits.h"
#include "cli/machine.h"
#include "runtime/environment.h"
#include "runtime/libraries.h"

#include <hwloc.h>
#include <mpi.h>
#include <oneapi/dnnl/dnnl.h>
#include <signal.h>
#include <starpu.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef SGRAD_HAVE_CUDA
#include <cuda_runtime.h>
#include <cudnn.h>
#endif
#ifdef SGRAD_HAVE_NCCL
#include <nccl.h>
#define NCCL ", NCCL " NUMBER(NCCL_MAJOR) "." NUMBER(NCCL_MINOR)
#define NUMBER(value) WORD(value)
#define WORD(word) #word
#else
#define NCCL ""
#endif

/* The results of the probes. */
struct machine {
    struct {
        int cores, threads, numa, gpus, located_gpus;
        char cpu[128];
    } hwloc;
    struct {
        int cpus, cudas, models, error;
    } starpu;
    struct {
        int level, error;
    } mpi;
    struct {
        int count, error;
        struct {
            char name[256];
            double memory;
            int major, minor;
        } gpu[16];
    } cuda;
    bool seen, started, joined, asked; /* hwloc, starpu, mpi, cuda: the probe completed */
};

struct doctor {
    struct machine *machine;
    json_t *findings;
    bool cannot_train;
};

#define BINDING "binds a process to one core; stargrad undoes this, but your programs that use libstargrad are slower: unset it"

enum level { OK, NOTE, WARNING, FATAL };
static const char *const level_name[] = { "ok", "note", "warning", "error" };

/* Adds a finding; ADVICE: a remedy, NULL: none. */
__attribute__((format(printf, 5, 6))) static void find(struct doctor *doctor, enum level level, const char *about,
                                                       const char *advice, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (level == FATAL) doctor->cannot_train = true;
    json_array_append_new(doctor->findings, json_pack("{s:s, s:s, s:s, s:s?}", "status", level_name[level], "about", about,
                                                      "text", text, "advice", advice));
}

/* ---- probes ---- */

/* Ends MPI if this process has started it. */
static void end_mpi(void) {
    int started, ended;
    MPI_Initialized(&started);
    MPI_Finalized(&ended);
    if (started && !ended) MPI_Finalize();
}

/* Runs FUNCTION in a child without output. MACHINE must be shared memory. Returns true if FUNCTION completed within LIMIT
 * seconds. */
static bool probe(void (*function)(struct machine *machine), struct machine *machine, double limit) {
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(1);
        function(machine);
        end_mpi();
        _exit(0);
    }
    int status;
    for (double end = sgrad_time_monotonic() + limit; child > 0; sgrad_sleep(5e-3)) {
        if (waitpid(child, &status, WNOHANG) == child) return status == 0;
        if (sgrad_time_monotonic() < end) continue;
        kill(-child, SIGKILL);
        waitpid(child, &status, 0);
        break;
    }
    return false;
}

static void count_gpus(hwloc_topology_t topology, struct machine *machine) {
    const char *subtype;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(topology, o));)
        machine->hwloc.gpus += o->attr->pcidev.vendor_id == 0x10de && o->attr->pcidev.class_id >> 8 == 0x03;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(topology, o));)
        machine->hwloc.located_gpus +=
            o->attr->osdev.type == HWLOC_OBJ_OSDEV_COPROC && (subtype = o->subtype) && !strcmp(subtype, "CUDA");
}

static void see_hwloc(struct machine *machine) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology)) _exit(1);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(topology)) _exit(1);
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char *cpu = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    snprintf(machine->hwloc.cpu, sizeof machine->hwloc.cpu, "%s", cpu ? cpu : "unknown kind");
    machine->hwloc.cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    machine->hwloc.threads = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    machine->hwloc.numa = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    count_gpus(topology, machine);
}

static void start_starpu(struct machine *machine) {
    struct sgrad_context *context;
    machine->starpu.error = sgrad_context_open(&(struct sgrad_context_options){ 0 }, &context);
    if (machine->starpu.error) return;
    machine->starpu.cpus = context->cpus;
    machine->starpu.cudas = context->gpus;
    FILE *list = tmpfile();
    if (list) {
        starpu_perfmodel_list(list);
        rewind(list);
        for (int c; (c = getc(list)) != EOF;) machine->starpu.models += c == '\n';
    }
    sgrad_context_close(context);
}

static void join_mpi(struct machine *machine) {
    machine->mpi.error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &machine->mpi.level);
}

static void ask_cuda(struct machine *machine) {
#ifdef SGRAD_HAVE_CUDA
    machine->cuda.error = cudaGetDeviceCount(&machine->cuda.count);
    if (machine->cuda.error) machine->cuda.count = 0;
    for (int i = 0; i < machine->cuda.count && i < 16; i++) {
        struct cudaDeviceProp p;
        if (cudaGetDeviceProperties(&p, i)) continue;
        snprintf(machine->cuda.gpu[i].name, sizeof machine->cuda.gpu[i].name, "%s", p.name);
        machine->cuda.gpu[i].memory = (double)p.totalGlobalMem;
        machine->cuda.gpu[i].major = p.major;
        machine->cuda.gpu[i].minor = p.minor;
    }
#else
    (void)machine;
#endif
}

/* ---- findings ---- */

static void check_versions(struct doctor *doctor) {
    int major, minor, release;
    char text[MPI_MAX_LIBRARY_VERSION_STRING], cuda[64] = "without CUDA";
    unsigned hwloc = hwloc_get_api_version();
    const dnnl_version_t *dnnl = dnnl_version();
    starpu_get_version(&major, &minor, &release);
    MPI_Get_library_version(text, &(int){ 0 });
    text[strcspn(text, ",\n")] = 0;
    if (strchr(text, '\t')) *strchr(text, '\t') = ' ';       /* MPICH's "Version:\t4.0" */
#ifdef SGRAD_HAVE_CUDA
    int runtime = 0;
    cudaRuntimeGetVersion(&runtime);
    snprintf(cuda, sizeof cuda, "CUDA %d.%d, cuDNN %zu.%zu" NCCL, runtime / 1000, runtime % 1000 / 10, cudnnGetVersion() / 10000,
             cudnnGetVersion() % 10000 / 100);
#endif
    find(doctor, OK, "versions", NULL, "stargrad " PACKAGE_VERSION ", StarPU %d.%d.%d, oneDNN %d.%d.%d, %s, hwloc API %u.%u, %s",
         major, minor, release, dnnl->major, dnnl->minor, dnnl->patch, text, hwloc >> 16, hwloc >> 8 & 0xff, cuda);
}

/* HiGHS and GLPK solve the same programs, so one of them is sufficient. */
static bool is_needed(const struct sgrad_library *library) {
    const bool solver = !strcmp(library->option, "highs") || !strcmp(library->option, "glpk");
    return !library->built_in && !(solver && (sgrad_library_has("highs") || sgrad_library_has("glpk")));
}

/* Reports the optional libraries: those that are built in on one line, each other one with what it is for. */
static void check_libraries(struct doctor *doctor) {
    char *names = sgrad_format("%s", "");
    for (const struct sgrad_library *l = sgrad_libraries; l->option; l++) {
        if (!l->built_in) continue;
        char *more = sgrad_format("%s%s%s", names, *names ? ", " : "", l->name);
        free(names);
        names = more;
    }
    find(doctor, OK, "libraries", NULL, "built in: %s", *names ? names : "none of the optional libraries");
    free(names);
    for (const struct sgrad_library *l = sgrad_libraries; l->option; l++) {
        if (!is_needed(l)) continue;
        char *advice = sgrad_format("install %s, then configure --with-%s=yes and build again", l->packages, l->option);
        find(doctor, NOTE, "libraries", advice, "this build has no %s: %s", l->name, l->use);
        free(advice);
    }
}

/* Reports the cores and the instruction set that kernels use. */
static void check_cpu(struct doctor *doctor) {
    struct machine *m = doctor->machine;
    const bool bf16 = sgrad_isa() >= SGRAD_AVX512_BF16;
    find(doctor, bf16 ? OK : NOTE, "CPU",
         bf16 ? NULL : "this CPU has no bf16 instructions: bf16 saves memory, but time only if training is memory-bound",
         "%d %s, %d %s of %s; kernels use %s", m->hwloc.cores, sgrad_plural(m->hwloc.cores, "core", "cores"), m->hwloc.threads,
         sgrad_plural(m->hwloc.threads, "thread", "threads"), m->hwloc.cpu, sgrad_isa_title(sgrad_isa()));
    if (!m->seen)
        find(doctor, WARNING, "hwloc", "check the output of lstopo; HWLOC_COMPONENTS=-NAME disables a broken plugin",
             "hwloc hangs or crashes: cores, NUMA nodes and locations of GPUs are unknown");
}

static void check_quota(struct doctor *doctor) {
    long quota, period;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (!file) return;
    if (fscanf(file, "%ld %ld", &quota, &period) == 2 && period > 0 &&
        (double)quota / (double)period < doctor->machine->hwloc.cores - 0.5)
        find(doctor, WARNING, "CPU", "set --cpus to that number, or raise the limit of the container",
             "this container may use %.1f of %d %s", (double)quota / (double)period, doctor->machine->hwloc.cores,
             sgrad_plural(doctor->machine->hwloc.cores, "core", "cores"));
    fclose(file);
}

static void check_memory(struct doctor *doctor) {
    double page = (double)sysconf(_SC_PAGESIZE) / (1 << 30);
    int numa = doctor->machine->hwloc.numa;
    find(doctor, OK, "memory", NULL, "%.1f GiB, %.1f GiB of it unused, %d NUMA %s", page * (double)sysconf(_SC_PHYS_PAGES),
         page * (double)sysconf(_SC_AVPHYS_PAGES), numa, sgrad_plural(numa, "node", "nodes"));
}

static void check_starpu(struct doctor *doctor) {
    const struct machine *m = doctor->machine;
    const char *again = "build StarPU again with ./quickstart build";
    if (!m->started)
        find(doctor, FATAL, "StarPU", "run stargrad train under gdb, or with STARPU_NCUDA=0",
             "StarPU hangs or crashes when it starts");
    else if (m->starpu.error)
        find(doctor, FATAL, "StarPU", "check STARPU_NCPU and STARPU_NCUDA in the environment", "StarPU cannot be started: %s",
             sgrad_strerror(m->starpu.error));
    else
        find(doctor, OK, "StarPU", NULL, "%d CPU and %d CUDA workers", m->starpu.cpus, m->starpu.cudas);

    find(doctor, OK, "StarPU", NULL, "built for at most %d CPUs, %d CUDA %s, %d buffers per task", STARPU_MAXCPUS,
         STARPU_MAXCUDADEVS, sgrad_plural(STARPU_MAXCUDADEVS, "device", "devices"), STARPU_NMAXBUFS);
    if (STARPU_NMAXBUFS <= SGRAD_FEW_OPERANDS)
        find(doctor, FATAL, "StarPU", again, "tasks require %d buffers, more than StarPU supports", SGRAD_FEW_OPERANDS + 1);
    const int cores = m->hwloc.cores - STARPU_MAXCPUS, gpus = m->cuda.count - STARPU_MAXCUDADEVS;
    if (cores > 0) {
        char *advice = sgrad_format("build StarPU for them: MAXCPUS=%d ./quickstart build, or install DIR", m->hwloc.cores);
        find(doctor, WARNING, "StarPU", advice, "%d %s idle, because StarPU is built for fewer", cores,
             sgrad_plural(cores, "core stays", "cores stay"));
        free(advice);
    }
    if (gpus > 0)
        find(doctor, WARNING, "StarPU", again, "%d %s idle, because StarPU is built for fewer", gpus,
             sgrad_plural(gpus, "GPU stays", "GPUs stay"));
}

static void check_gpus(struct doctor *doctor) {
    const struct machine *m = doctor->machine;
    int count = m->hwloc.gpus > m->cuda.count ? m->hwloc.gpus : m->cuda.count;
    if (!m->asked)
        find(doctor, WARNING, "GPU", "check whether nvidia-smi works; train --gpus 0 does not use CUDA",
             "CUDA hangs or crashes when it starts");
    if (!count) find(doctor, OK, "GPU", NULL, "none: training uses CPUs");
    for (int i = 0; i < m->cuda.count && i < 16; i++)
        find(doctor, OK, "GPU", NULL, "%s, %.0f GiB, compute capability %d.%d", m->cuda.gpu[i].name,
             m->cuda.gpu[i].memory / (1 << 30), m->cuda.gpu[i].major, m->cuda.gpu[i].minor);
#ifndef SGRAD_HAVE_CUDA
    if (count)
        find(doctor, WARNING, "GPU", "install CUDA and cuDNN, then ./quickstart build",
             "%d on the PCI bus, but this build does not support CUDA", count);
#else
    if (m->asked && count > m->cuda.count)
        find(doctor, WARNING, "GPU",
             "check whether nvidia-smi shows them; install a driver as new as the toolkit; check CUDA_VISIBLE_DEVICES",
             "%d on the PCI bus, but CUDA offers %d: %s", count, m->cuda.count,
             cudaGetErrorString((enum cudaError)m->cuda.error));
#endif
    if (m->cuda.count && m->seen && !m->hwloc.located_gpus)
        find(doctor, WARNING, "GPU", "install hwloc's CUDA plugin (Debian, Ubuntu: libhwloc-plugins)",
             "hwloc does not report where the GPUs are, so StarPU may place data badly: training can be 10 times slower");
    if (m->cuda.count && m->started && !m->starpu.error && !m->starpu.cudas)
        find(doctor, WARNING, "GPU", "build StarPU with CUDA: ./quickstart build does so if it finds nvcc",
             "StarPU starts no CUDA worker: training uses CPUs");
}

static void check_mpi(struct doctor *doctor) {
    static const struct {
        int level;
        const char *name;
    } levels[] = {
        { MPI_THREAD_SINGLE, "single" },
        { MPI_THREAD_FUNNELED, "funneled" },
        { MPI_THREAD_SERIALIZED, "serialized" },
        { MPI_THREAD_MULTIPLE, "multiple" },
    };
    const struct machine *m = doctor->machine;
    const char *name = "unknown";
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (levels[i].level == m->mpi.level) name = levels[i].name;
    if (!m->joined || m->mpi.error)
        find(doctor, WARNING, "MPI", "training on one rank works without MPI; mpirun -n 1 true shows the cause",
             "MPI cannot be started");
    else
        find(doctor, m->mpi.level < MPI_THREAD_MULTIPLE ? WARNING : OK, "MPI",
             m->mpi.level < MPI_THREAD_MULTIPLE ? "several ranks require an MPI built with thread support" : NULL,
             "thread level %s", name);
}

static void check_calibration(struct doctor *doctor) {
    const struct machine *m = doctor->machine;
    if (m->starpu.models)
        find(doctor, OK, "calibration", NULL, "StarPU has measured %d %s of tasks", m->starpu.models,
             sgrad_plural(m->starpu.models, "kind", "kinds"));
    else if (m->starpu.cudas)
        find(doctor, NOTE, "calibration", "train once for a few hundred steps: StarPU stores the measured times",
             "StarPU has measured no tasks yet: GPU runs begin slowly");
}

static void check_home(struct doctor *doctor) {
    char *trouble = sgrad_home_trouble();
    if (trouble)
        find(doctor, WARNING, "environment", "set STARPU_HOME to a writable folder",
             "%s: StarPU cannot store measured times there", trouble);
    free(trouble);
}

static void check_environment(struct doctor *doctor) {
    static const struct {
        const char *name;
        enum level level;
        const char *what;
    } known[] = {
        { "OMP_PROC_BIND", NOTE, BINDING },
        { "OMP_PLACES", NOTE, BINDING },
        { "GOMP_CPU_AFFINITY", NOTE, BINDING },
        { "OMP_NUM_THREADS", NOTE, "no effect: oneDNN gets one thread in each task" },
        { "DNNL_MAX_CPU_ISA", WARNING, "oneDNN may not use the best instructions: unset it" },
        { "ONEDNN_MAX_CPU_ISA", WARNING, "oneDNN may not use the best instructions: unset it" },
        { "DNNL_VERBOSE", WARNING, "oneDNN prints every call: unset it" },
        { "ONEDNN_VERBOSE", WARNING, "oneDNN prints every call: unset it" },
        { "CUDA_VISIBLE_DEVICES", NOTE, "the GPUs that can be used" },
        { "CUDA_LAUNCH_BLOCKING", WARNING, "kernels and copies on GPUs do not overlap: unset it" },
        { "STARGRAD_MAX_ISA", WARNING, "kernels may not use the best instructions: unset it" },
        { "STARGRAD_CUDNN", WARNING, "convolutions on GPUs may not use the fastest algorithm: unset it" },
        { "STARGRAD_CPU_ALGORITHM", WARNING, "layers may not use the fastest algorithm: unset it" },
        { "STARPU_NCPU", NOTE, "the number of CPU workers; --cpus overrides it" },
        { "STARPU_NCUDA", NOTE, "the number of CUDA workers; --gpus overrides it" },
        { "STARPU_SCHED", NOTE, "the scheduler; --scheduler overrides it" },
        { "STARPU_HOME", NOTE, "the folder of StarPU's calibration" },
        { "STARPU_PERF_MODEL_DIR", NOTE, "the folder of StarPU's calibration" },
        { "STARPU_CALIBRATE", WARNING, "2 discards the measured times at every start: unset it" },
        { "STARPU_FXT_TRACE", WARNING, "every run is traced and slower: unset it, and use --trace" },
        { "STARPU_WORKERS_NOBIND", WARNING, "workers move between cores: unset it" },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *value = getenv(known[i].name);
        if (value) find(doctor, known[i].level, "environment", known[i].what, "%s=%s", known[i].name, value);
    }
    for (char **variable = environ; *variable; variable++) {
        bool explained = strncmp(*variable, "STARPU_", 7) != 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            size_t length = strlen(known[i].name);
            explained |= !strncmp(*variable, known[i].name, length) && (*variable)[length] == '=';
        }
        if (!explained) find(doctor, NOTE, "environment", "see the manual of StarPU", "%s", *variable);
    }
}

static void check_tools(struct doctor *doctor) {
    if (system("command -v gnuplot >/dev/null 2>&1"))
        find(doctor, NOTE, "gnuplot", "install it to draw learning curves (Debian, Ubuntu: gnuplot-nox)", "not installed");
}

static void (*const checks[])(struct doctor *doctor) = {
    check_versions, check_libraries, check_cpu,         check_quota, check_memory,      check_gpus,
    check_starpu,   check_mpi,       check_calibration, check_home,  check_environment, check_tools,
};

/* ---- limits ---- */

/* Measures the lower bounds of a step of the request's network. A step that takes far longer than the largest bound is limited by
 * something else. */
static int find_limits(struct doctor *doctor, const struct sgrad__request *request) {
    static const double far = 1.5;
    struct sgrad_train_options options = request->train;
    struct sgrad_bench_result r;
    struct sgrad__limit limit[SGRAD__LIMITS];
    options.output.json = true;        /* disables the output of the run */
    SGRAD_TRY(sgrad_bench(&options, &r));
    const int limits = sgrad__limits_of(&r, limit);
    const struct sgrad__limit *longest = sgrad__limits_longest(limit, limits);
    for (int i = 0; i < limits; i++) find(doctor, OK, limit[i].name, NULL, "%s", limit[i].text);
    find(doctor, r.step_ms > far * longest->ms ? NOTE : OK, "limit", longest->advice,
         "%s, batch %ld: %.1f ms a step; the largest limit is %.0f %% of it: %s", options.model.name, r.batch, r.step_ms,
         100 * longest->ms / r.step_ms, longest->name);
    free(r.kernel);
    free(r.call);
    return 0;
}

/* ---- the command ---- */

static void print(const struct doctor *doctor) {
    size_t i;
    json_t *f;
    json_array_foreach(doctor->findings, i, f) {
        const char *advice = json_string_value(json_object_get(f, "advice"));
        printf("%-8s %-12s %s\n", json_string_value(json_object_get(f, "status")), json_string_value(json_object_get(f, "about")),
               json_string_value(json_object_get(f, "text")));
        if (advice) printf("%-8s %-12s   -> %s\n", "", "", advice);
    }
    printf("\nTraining %s run here.\n", doctor->cannot_train ? "cannot" : "can");
}

static int run(const struct sgrad__request *request) {
    if (request->plan.machine) return sgrad__machine_measure(request);
    struct machine *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        return sgrad_log_error(SGRAD_ENOMEM, "doctor: memory for the checks cannot be allocated"), SGRAD__FAILED;
    m->asked = probe(ask_cuda, m, 20);
    m->started = probe(start_starpu, m, 60);
    m->joined = probe(join_mpi, m, 20);
    m->seen = probe(see_hwloc, m, 20);

    struct doctor d = { .machine = m, .findings = json_array() };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) checks[i](&d);
    if (request->plan.limits && !d.cannot_train && find_limits(&d, request)) d.cannot_train = true;
    if (request->train.output.json)
        sgrad__print_json(json_pack("{s:b, s:O}", "can_train", !d.cannot_train, "findings", d.findings));
    else
        print(&d);
    json_decref(d.findings);
    munmap(m, sizeof *m);
    return d.cannot_train ? SGRAD__FAILED : SGRAD__DONE;
}

static void defaults(struct sgrad__request *request) {
    request->train.model.name = "resnet20";
    request->train.data.name = "synthetic:32x32x3,10,12800";
}

static const struct sgrad__option options[] = {
    { "machine", "FILE", "instead of the diagnosis, measure this machine and write its description to FILE for stargrad plan",
      &sgrad__text, SGRAD__PLACE(plan.machine) },
    { "limits", NULL, "also measure the limits of a step: arithmetic, kernels, memory, submission, tasks", &sgrad__flag,
      SGRAD__PLACE(plan.limits) },
    { "model", "NAME", "network to measure, for --limits and --machine", &sgrad__text, SGRAD__FIELD(model.name) },
    { "data", "KIND[:PATH]", "data set to measure, for --limits and --machine", &sgrad__text, SGRAD__FIELD(data.name) },
    { "batch", "N", "batch size to measure, for --limits and --machine", &sgrad__whole, SGRAD__FIELD(training.batch), 1,
      2147483647 },
    { "strategy", "NAME", "training strategy across ranks to measure, for --machine", &sgrad__text,
      SGRAD__FIELD(parallel.strategy) },
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

const struct sgrad__command sgrad__doctor_command = {
    .name = "doctor",
    .summary = "diagnose the machine and its configuration",
    .options = options,
    .defaults = defaults,
    .run = run,
    .notes = "Prints the hardware and the libraries of this machine, and each misconfiguration with its remedy. Under mpirun, "
             "--machine also measures the network between ranks.",
};
