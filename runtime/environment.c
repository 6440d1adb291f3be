/* environment.c: checks the environment before StarPU starts, which would otherwise abort or ignore the user's intention:
 *
 *     home folder not writable            measured times are stored in a folder in $TMPDIR, with a warning
 *     empty variable                      counts as unset
 *     number that StarPU cannot use       error
 *     StarPU aborts                       error with the variables that may be the reason
 *     OpenMP has bound this process       warning
 *     small stack                         threads get 8 MiB */
#include "config.h"
#include "runtime/environment.h"
#include "runtime/internal.h"

#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <starpu.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STACK = 8 << 20 };   /* minimum bytes of a worker's stack: kernels have local arrays */

/* ---- values ------------------------------------------------------------------------------------------------------ */

const char *sgrad_variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

int sgrad_variable_choice(const char *name, const char *const *choices, const char *instead) {
    const char *value = sgrad_variable(name);
    char *all = NULL;
    if (!value) return -1;
    for (int i = 0; choices[i]; i++) {
        if (!strcmp(value, choices[i])) return i;
        char *longer = sgrad_format("%s%s%s", all ? all : "", !all ? "" : choices[i + 1] ? ", " : " or ", choices[i]);
        free(all);
        all = longer;
    }
    if (sgrad_launched_rank() == 0) sgrad_log_warning("%s=%s is unknown, so %s; give %s, or unset it", name, value, instead, all);
    free(all);
    return -1;
}

/* ---- home ------------------------------------------------------------------------------------------------------- */

const char *sgrad_home_variable(void) {
    static const char *const all[] = { "XDG_CACHE_HOME", "STARPU_HOME", "HOME" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (sgrad_variable(all[i])) return all[i];
    return NULL;
}

/* Creates the folder PATH with access MODE. Returns 0, also if it exists, or errno. */
static int make_folder(const char *path, mode_t mode) {
    struct stat status;
    if (!mkdir(path, mode)) return 0;
    const int error = errno; /* of a folder that exists on a read-only file system, it may be EROFS */
    return !stat(path, &status) ? (S_ISDIR(status.st_mode) ? 0 : ENOTDIR) : error;
}

int sgrad_folders_make(const char *path, size_t from, size_t home) {
    char *part = sgrad_format("%s", path), *slash = part + from;
    int error = 0;
    while (!error && (slash = strchr(slash + 1, '/'))) {
        *slash = 0;
        error = make_folder(part, (size_t)(slash - part) <= home ? 0700 : 0777);
        *slash = '/';
    }
    if (!error) error = make_folder(part, strlen(part) <= home ? 0700 : 0777);
    free(part);
    return error;
}

/* Returns 0 if StarPU can write its measured times to PATH, else errno. Creates the missing folders. FROM, HOME: as of
 * sgrad_folders_make. */
static int try_folder(const char *path, size_t from, size_t home) {
    static const char *const parts[] = { "", "/bus", "/codelets", "/codelets/45" };
    int error = sgrad_folders_make(path, from, home);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !error; i++) {
        char *part = sgrad_format("%s%s", path, parts[i]);
        if (access(part, W_OK | X_OK) && (i == 0 || errno != ENOENT)) error = errno;
        free(part);
    }
    return error;
}

/* Returns 0 if StarPU can write below HOME, else errno. MAKE: create HOME if it is missing; must be false for the user's home. */
static int try_home(const char *home, bool make) {
    struct stat status;
    if (!make && stat(home, &status)) return errno;
    char *path = sgrad_format("%s/.starpu/sampling", home);
    const int error = try_folder(path, make ? 0 : strlen(home), strlen(home));
    free(path);
    return error;
}

char *sgrad_home_trouble(void) {
    const char *name = sgrad_home_variable();
    if (!name) return sgrad_format("HOME is not set");
    const int error = try_home(getenv(name), strcmp(name, "HOME") != 0);
    return error ? sgrad_format("%s=%s: %s", name, getenv(name), strerror(error)) : NULL;
}

/* Creates a folder of this user in $TMPDIR. Returns its path, which the caller must free; NULL: failed. A folder of the same name
 * that belongs to another user is not used. */
static char *make_home(void) {
    const char *folder = getenv("TMPDIR");
    struct stat status;
    if (!folder || !*folder) folder = "/tmp";
    char *path = sgrad_format("%s/stargrad-%ld", folder, (long)getuid());
    mkdir(path, 0700);
    if (lstat(path, &status) || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() || try_home(path, false)) {
        free(path);
        path = sgrad_format("%s/stargrad-XXXXXX", folder);
        if (mkdtemp(path)) return path;
        free(path);
        return NULL;
    }
    return path;
}

/* Empty variables count as unset: StarPU would abort, or store its files in /.starpu. */
static void drop_empty(void) {
    static const char *const homes[] = { "XDG_CACHE_HOME", "HOME" };
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++)
        if (!sgrad_variable(homes[i])) unsetenv(homes[i]);
    for (char **variable = environ; *variable;) {
        const size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, "STARPU_", 7) || (*variable)[length] != '=' || (*variable)[length + 1]) {
            variable++;
            continue;
        }
        char *name = sgrad_format("%.*s", (int)length, *variable);
        unsetenv(name);     /* moves the following variables */
        free(name);
    }
}

static int settle_home(void) {
    char *trouble = sgrad_home_trouble();
    if (!trouble) return 0;
    char *home = make_home();
    int error = 0;
    if (!home)
        error = sgrad_log_error(SGRAD_EIO,
                                "%s: StarPU cannot store measured times there or in TMPDIR; set STARPU_HOME to a writable folder",
                                trouble);
    else {
        sgrad_log_warning(
            "%s: StarPU cannot store measured times there and uses %s instead; set STARPU_HOME to a writable folder", trouble,
            home);
        setenv("STARPU_HOME", home, 1);
        if (getenv("XDG_CACHE_HOME")) setenv("XDG_CACHE_HOME", home, 1);
    }
    free(home);
    free(trouble);
    return error;
}

/* StarPU aborts if it cannot write to this folder. */
static void settle_model_folder(void) {
    static const char variable[] = "STARPU_PERF_MODEL_DIR";
    const char *value = sgrad_variable(variable);
    char *path = value ? sgrad_format("%s", value) : NULL;
    const int error = path ? try_folder(path, 0, 0) : 0;
    if (error) {
        const char *home = getenv(sgrad_home_variable());
        sgrad_log_warning("%s=%s: %s: measured times of tasks are stored in %s/.starpu/sampling; set %s to a writable folder",
                          variable, path, strerror(error), home, variable);
        unsetenv(variable);
    }
    free(path);
}

/* ---- numbers ---------------------------------------------------------------------------------------------------- */

static int count_objects(hwloc_obj_type_t type) {
    hwloc_topology_t topology;
    int count = -1;
    if (hwloc_topology_init(&topology)) return -1;
    if (!hwloc_topology_load(topology)) count = hwloc_get_nbobjs_by_type(topology, type);
    hwloc_topology_destroy(topology);
    return count;
}

int sgrad_cpus(void) {
    cpu_set_t own;
    return sched_getaffinity(0, sizeof own, &own) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&own);
}

char *sgrad_crowding_text(int workers) {
    const int cpus = sgrad_cpus();
    if (workers <= cpus) return NULL;
    return sgrad_format("%d workers share the %d %s of this machine, so they are no faster than %d %s", workers, cpus,
                        sgrad_plural(cpus, "CPU", "CPUs"), cpus, sgrad_plural(cpus, "worker", "workers"));
}

/* Variables that must be whole numbers. StarPU aborts on other values. */
static const struct {
    const char *name;
    int least, most;
    const char *limit;      /* reason of the largest value */
} numbers[] = {
    { "STARPU_NCPU", 0, STARPU_MAXCPUS, ", the number of CPU workers that StarPU was built for" },
    { "STARPU_NCPUS", 0, STARPU_MAXCPUS, ", the number of CPU workers that StarPU was built for" },
    { "STARPU_NCUDA", 0, STARPU_MAXCUDADEVS, ", the number of CUDA devices that StarPU was built for" },
    { "STARPU_SILENT", 0, INT_MAX, "" },
    { "STARPU_CALIBRATE", 0, 2, "" },
    { "STARPU_FXT_TRACE", 0, INT_MAX, "" },
    { "STARPU_WORKERS_NOBIND", 0, INT_MAX, "" },
    { "STARPU_MPI_NOBIND", 0, INT_MAX, "" },
    { "STARPU_MPI_COOP_SENDS", 0, INT_MAX, "" },
    { "STARPU_MPI_NDETACHED_SEND", 0, INT_MAX, "" },
    { "STARPU_MPI_DRIVER_CALL_FREQUENCY", 0, INT_MAX, "" },
    { "STARPU_MPI_DRIVER_TASK_FREQUENCY", 0, INT_MAX, "" },
    { "STARGRAD_MESSAGE_LIMIT", 64, INT_MAX, "" },
    { "STARGRAD_SPILL_LIMIT", 1, INT_MAX, "" },
};

/* Returns true if TEXT is a whole number from LEAST to MOST, and sets *NUMBER. */
static bool parse_number(const char *text, long least, long most, long *number) {
    char *end;
    errno = 0;
    *number = strtol(text, &end, 10);
    return end != text && !*end && !errno && *number >= least && *number <= most;
}

static int check_whole(void) {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *name = numbers[i].name, *text = sgrad_variable(name);
        const bool counts = *numbers[i].limit;      /* StarPU accepts -1: all */
        long number;
        if (!text || parse_number(text, counts ? -1 : numbers[i].least, numbers[i].most, &number)) continue;
        return sgrad_log_error(SGRAD_EINVAL, "%s=%s is not a whole number from %d to %d%s; unset it", name, text,
                               numbers[i].least, numbers[i].most, numbers[i].limit);
    }
    return 0;
}

/* Only warns, because it is possible to have more workers than CPUs. */
static void compare_workers(const char *name) {
    const char *value = sgrad_variable(name);
    char *crowding = value ? sgrad_crowding_text(atoi(value)) : NULL;
    if (crowding) sgrad_log_warning("%s=%s: %s", name, value, crowding);
    free(crowding);
}

static int check_place(const char *name, hwloc_obj_type_t type, const char *what) {
    const char *text = sgrad_variable(name);
    long number;
    if (!text) return 0;
    const int count = count_objects(type);
    if (parse_number(text, -1, count < 1 ? INT_MAX : count - 1, &number)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "%s=%s is not a %s of this machine (0 to %d); unset it", name, text, what,
                           count - 1);
}

/* The CUDA devices: StarPU ignores all text after the first word that is not a number, and divides by 0 without any number. */
static int check_devices(void) {
    static const char variable[] = "STARPU_WORKERS_CUDAID";
    const char *text = sgrad_variable(variable);
    char *words = text ? sgrad_format("%s", text) : NULL, *rest = words;
    int count = 0;
    bool valid = true;
    long number;
    for (char *word; valid && (word = strsep(&rest, " "));)
        if (*word) valid = parse_number(word, 0, INT_MAX, &number) && ++count <= STARPU_MAXCUDADEVS;
    free(words);
    if (!text || (valid && count)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "%s=%s is not a list of CUDA devices, such as '0 1'; unset it", variable, text);
}

static int check_numbers(const struct sgrad_context_options *options) {
    SGRAD_TRY(check_whole());
    SGRAD_TRY(check_devices());
    SGRAD_TRY(check_place("STARPU_MAIN_THREAD_CPUID", HWLOC_OBJ_PU, "CPU"));
    SGRAD_TRY(check_place("STARPU_MAIN_THREAD_COREID", HWLOC_OBJ_CORE, "core"));
    SGRAD_TRY(check_place("STARPU_MPI_THREAD_CPUID", HWLOC_OBJ_PU, "CPU"));
    SGRAD_TRY(check_place("STARPU_MPI_THREAD_COREID", HWLOC_OBJ_CORE, "core"));
    if (options->cpus <= 0) compare_workers(sgrad_variable("STARPU_NCPU") ? "STARPU_NCPU" : "STARPU_NCPUS");
    if (options->cpus <= STARPU_MAXCPUS) return 0;
    const int cpus = sgrad_cpus();
    return sgrad_log_error(
        SGRAD_EINVAL,
        "%d CPU workers were requested (--cpus), but StarPU was built for at most %d, and this machine has %d %s; give fewer",
        options->cpus, STARPU_MAXCPUS, cpus, sgrad_plural(cpus, "CPU", "CPUs"));
}

/* ---- aborts of StarPU -------------------------------------------------------------------------------------------- */

static char *abort_text;

static void explain_abort(int number) {
    (void)number;
    const ssize_t written = write(STDERR_FILENO, abort_text, strlen(abort_text));
    _exit(written < 0 ? 2 : 1);
}

/* Returns true if StarPU may abort because of VARIABLE, "STARPU_BACKOFF_MAX=x", which is not a number of 0 or more. */
static bool may_abort(const char *variable) {
    static const char *const texts[] = { "STARPU_HOME=", "STARPU_SCHED=", "STARPU_HOSTNAME=", "STARPU_PERF_MODEL_",
                                         "STARPU_FXT_" };
    const char *value = strchr(variable, '=');
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strncmp(variable, texts[i], strlen(texts[i]))) return false;
    return !strncmp(variable, "STARPU_", 7) && value && value[strspn(value, "=0123456789.")];
}

/* If StarPU aborts, now or when it reads a variable later, the process ends with a message that names the variables which may be
 * the reason. Without such variables, an abort is unchanged. */
static void watch_aborts(void) {
    char *all = NULL;
    for (char **variable = environ; *variable; variable++) {
        if (!may_abort(*variable)) continue;
        char *longer = sgrad_format("%s%s%s", all ? all : "", all ? ", " : "", *variable);
        free(all);
        all = longer;
    }
    if (!all || abort_text) return;
    abort_text = sgrad_format("stargrad: StarPU has aborted, possibly because of %s; correct or unset it\n", all);
    signal(SIGABRT, explain_abort);
    free(all);
}

/* ---- threads ---------------------------------------------------------------------------------------------------- */

char *sgrad_binding_variable(void) {
    static const char *const all[] = { "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY" };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *value = getenv(all[i]);
        if (value && *value && strcasecmp(value, "false")) return sgrad_format("%s=%s", all[i], value);
    }
    return NULL;
}

static void look_at_binding(void) {
    const int all = (int)sysconf(_SC_NPROCESSORS_ONLN), own = sgrad_cpus();
    char *set = own < all ? sgrad_binding_variable() : NULL;
    if (set) sgrad_log_warning("%s limits this process to %d of %d CPUs; unset it to use all CPUs", set, own, all);
    free(set);
}

/* Sets the stack size of all threads created from now on. */
static void widen_stacks(void) {
    pthread_attr_t attributes;
    size_t size = 0;
    if (pthread_getattr_default_np(&attributes)) return;
    if (!pthread_attr_getstacksize(&attributes, &size) && size < STACK && !pthread_attr_setstacksize(&attributes, STACK))
        pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
}

int sgrad__environment_settle(const struct sgrad_context_options *options) {
    drop_empty();
    SGRAD_TRY(settle_home());
    settle_model_folder();
    if (SGRAD_SIMULATED) return 0;
    SGRAD_TRY(check_numbers(options));
    watch_aborts();
    look_at_binding();
    widen_stacks();
    return 0;
}

/* ---- launchers -------------------------------------------------------------------------------------------------- */

#define OWN_MPIRUN "start them with the launcher of the " SGRAD_MPI " that Stargrad was built with: " SGRAD_MPIRUN
static const struct {
    const char *size, *place;       /* variables: number of processes; number of this process */
    const char *unless;             /* ignore this launcher if this variable is also set; NULL: never */
    const char *launcher, *help;
} launchers[] = {
    { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", NULL, "mpirun", OWN_MPIRUN },
    { "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "OMPI_COMM_WORLD_SIZE", "srun",
      "use srun --mpi=pmix, or mpirun in a batch script, to make them ranks of one run" },
    { "PALS_NRANKS", "PALS_RANKID", "OMPI_COMM_WORLD_SIZE", "mpiexec", OWN_MPIRUN },
    { "PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "mpiexec", OWN_MPIRUN },
};

int sgrad_launcher_check(int ranks) {
    if (!ranks && sgrad__launched()) return 0;
    if (!ranks) ranks = 1;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !SGRAD_SIMULATED; i++) {
        const char *size = getenv(launchers[i].size);
        if (!size || atoi(size) <= ranks || (launchers[i].unless && getenv(launchers[i].unless))) continue;
        const char *place = getenv(launchers[i].place);
        if (place && atoi(place) > 0) return SGRAD_EINVAL;      /* process 0 logs the error for all */
        return sgrad_log_error(SGRAD_EINVAL,
                               "%s has started %d processes (%s), but MPI has %d %s, so each process would train by itself; %s; "
                               "for separate runs, unset %s",
                               launchers[i].launcher, atoi(size), launchers[i].size, ranks, sgrad_plural(ranks, "rank", "ranks"),
                               launchers[i].help, launchers[i].size);
    }
    return 0;
}
