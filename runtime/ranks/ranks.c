/* ranks.c: several processes as one program: start and end of MPI and StarPU-MPI.
 *
 * A process that was not started by a launcher is the only rank, and does not use MPI. StarPU-MPI has a thread that polls for
 * messages continuously. If a rank has enough cores, this thread gets one of them. Otherwise it is also the first CPU worker, and
 * polls between tasks (StarPU handbook, STARPU_MPI_DRIVER_CALL_FREQUENCY), because two threads on one core would wait for each
 * other's time slices, 4 ms on Linux, at every message. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/ranks/early.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <starpu_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CORES_TO_SPARE = 5 };        /* a rank with at least this number dedicates one to messages */
#define TASKS_BETWEEN_LOOKS "2"     /* a poll costs as much as a short task; 1, 2 and 4 were equally fast */
#define AWAKE_TAG ((starpu_mpi_tag_t)1 << 60)      /* not used by any other message */

static struct sgrad__world *const world = &sgrad__world;
static char (*name)[MPI_MAX_PROCESSOR_NAME];        /* per rank: the name of its host */
static int *host, *number;
static struct sgrad_network network;
static struct sgrad_group all;
static starpu_data_handle_t awake;
static bool thread_works;                   /* StarPU-MPI's thread is also a worker */

static void name_hosts(void) {
    char own[MPI_MAX_PROCESSOR_NAME] = { 0 };
    int length;
    name = sgrad_xcalloc((size_t)world->ranks, sizeof *name);
    MPI_Get_processor_name(own, &length);
    MPI_Allgather(own, sizeof own, MPI_CHAR, name, sizeof own, MPI_CHAR, world->control);
    host = sgrad_xcalloc((size_t)world->ranks, sizeof *host);
    for (int r = 0; r < world->ranks; r++)
        while (strcmp(name[host[r]], name[r])) host[r]++;
}

const char *sgrad_rank_host(int rank) {
    static char own[256];
    if (name) return name[rank];
    gethostname(own, sizeof own - 1);
    return own;
}

static void number_ranks(void) {
    number = sgrad_xcalloc((size_t)world->ranks, sizeof *number);
    for (int r = 0; r < world->ranks; r++) number[r] = r;
    all = (struct sgrad_group){ world->ranks, number };
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

/* Open MPI sends longer messages over TCP only after a request of the receiver. If both ends send, the request of one waits in
 * the socket after the data of the other, so that an exchange takes twice as long as necessary. */
#define TCP_EAGER "4194304"     /* bytes */

/* Set environment variables, unless the user has set them: of Open MPI, before MPI starts; of StarPU-MPI. */
static void set_up_mpi(void) {
#ifdef SGRAD_OPEN_MPI
    setenv("OMPI_MCA_btl_tcp_eager_limit", TCP_EAGER, 0);
    setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", TCP_EAGER, 0);
    setenv("OMPI_MCA_btl_tcp_max_send_size", TCP_EAGER, 0);
#endif
}
static void set_up_starpu(void) {
    setenv("STARPU_MPI_COOP_SENDS", "0", 0);            /* they require a different MPI */
    setenv("STARPU_MPI_NDETACHED_SEND", "2", 0);        /* waiting messages are sorted by priority, started ones are not */
}

/* With few cores, all of them get workers, and the thread that polls for messages is one of the workers. */
static void share_cores(int cores, struct starpu_conf *conf) {
    static bool chosen;     /* the frequency was set here, for this or an earlier context, not by the user */
    if (cores < CORES_TO_SPARE) {
        const char *asked = getenv("STARPU_NCPU");
        if (conf->ncpus < 0) conf->ncpus = asked ? atoi(asked) : cores;
        setenv("STARPU_MPI_NOBIND", "1", 0);
        chosen = chosen || !getenv("STARPU_MPI_DRIVER_CALL_FREQUENCY");
        setenv("STARPU_MPI_DRIVER_CALL_FREQUENCY", conf->ncpus > 0 ? "1" : "0", chosen);
    }
    const char *drives = getenv("STARPU_MPI_DRIVER_CALL_FREQUENCY");
    thread_works = drives && atoi(drives) > 0;
    if (thread_works) setenv("STARPU_MPI_DRIVER_TASK_FREQUENCY", TASKS_BETWEEN_LOOKS, 0);
}

/* Open MPI ends a process in opal_init, without a useful message, if it does not find its components. If its library was packed
 * (tests/gpu/run), the folder of the library also contains the file stargrad-pack, with the path of the folder of its components,
 * which were not packed. SGRAD_EDEVICE: they are not there. */
static int check_components(void) {
    Dl_info library;
    char components[4096] = "";
    if (getenv("OPAL_PREFIX") || !dladdr((void *)MPI_Init_thread, &library) || !library.dli_fname) return 0;
    const char *end = strrchr(library.dli_fname, '/');
    char *path = sgrad_format("%.*s/stargrad-pack", end ? (int)(end - library.dli_fname) : 1, end ? library.dli_fname : ".");
    FILE *file = fopen(path, "r");
    free(path);
    if (!file) return 0;
    if (fgets(components, sizeof components, file)) components[strcspn(components, "\n")] = 0;
    fclose(file);
    if (*components && access(components, R_OK) == 0) return 0;
    return sgrad_log_error(
        SGRAD_EDEVICE,
        "several ranks cannot start: Open MPI in this package looks for components in %s, which does not exist; install the Open "
        "MPI that it was built with, set OPAL_PREFIX to its folder, or start only one process",
        *components ? components : "its installation");
}

static bool joined;     /* a context of this process communicates */
enum { EXIT_TIMEOUT = 30 };     /* seconds that a failed process waits for ranks that may never exit */

/* Waits until all ranks call this function, at most SECONDS; 0: until the watchdog expires. LEAVES: the process exits. Returns
 * true if all ranks have called it, with the same value. */
static bool meet(bool leaves, double seconds) {
    const double begin = sgrad_time_monotonic();
    int any[] = { leaves, !leaves }, done;      /* a rank leaves; a rank stays */
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, any, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    for (;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        const double waited = sgrad_time_monotonic() - begin;
        if (done) return !any[0] || !any[1];
        if (seconds > 0 ? waited > seconds : sgrad_watchdog_expired(waited)) return false;
        sgrad_sleep(1e-3);
    }
}

/* Runs when the process exits with STATUS. MPI_Finalize waits for all ranks, so it must not be called if others may wait for this
 * process instead: it exits with an open context, or with an error that the others do not have. MPI then does not end, and the
 * launcher ends the other ranks. */
static void end_mpi(int status, void *unused) {
    int ended;
    (void)unused;
    MPI_Finalized(&ended);
    if (!ended && !joined && (!status || meet(true, EXIT_TIMEOUT))) MPI_Finalize();
}

/* Starts MPI, unless this process has started it; every rank must call it. MPI can start only once in a process, so it ends with
 * the process; MPI that the program has started itself is left to the program. ERROR is the error of this rank so far, or 0.
 * Returns 0, or the error of a rank. */
static int start_mpi(int error) {
    int started, level, worst = error, packed = check_components();
    if (packed) return error ? error : packed;
    MPI_Initialized(&started);
    set_up_starpu();
    if (!started) {
        set_up_mpi();
        MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
        on_exit(end_mpi, NULL);
    } else MPI_Query_thread(&level);
    if (!error && level < MPI_THREAD_MULTIPLE)
        worst = sgrad_log_error(
            SGRAD_EDEVICE, started ? "MPI was started without MPI_THREAD_MULTIPLE; call MPI_Init_thread with this level"
                                   : "several ranks require MPI_THREAD_MULTIPLE, which this MPI does not support; see 'stargrad "
                                     "doctor'");
    if (started && !meet(false, 0))
        return sgrad_log_error(SGRAD_EDEVICE,
                               "another rank has ended, or has not started yet; all ranks must make the same calls");
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    sgrad__early_compare(MPI_COMM_WORLD);
    if (worst && !started) MPI_Finalize();
    return worst;
}

/* Signal handler for the case that the other ranks have not started MPI in time: writes the lines of this rank and exits. */
static void give_up(int signal) {
    (void)signal;
    sgrad__early_write();
    _exit(1);
}

void sgrad_early_open(void) {
    if (sgrad__launched()) sgrad__early_hold(sgrad_launched_rank());
}

void sgrad_ranks_leave(int error) {
    enum { LONG = 30 };     /* seconds */
    int started;
    MPI_Initialized(&started);
    if (error && !started && sgrad__launched()) {
        signal(SIGALRM, give_up);
        alarm(LONG);
        start_mpi(error);
        alarm(0);
    }
    sgrad_early_close();
}

int sgrad__ranks_open(struct sgrad_context *context, struct starpu_conf *conf) {
    int finished, cores;
    context->ranks = 1;
    sgrad__watchdog_open(context->timeout);
    if (!sgrad__launched()) return 0;
    MPI_Finalized(&finished);
    if (finished)
        return sgrad_log_error(SGRAD_EDEVICE, "MPI has ended in this process, and cannot start again; use another process");
    SGRAD_TRY(start_mpi(0));
    MPI_Comm_dup(MPI_COMM_WORLD, &world->control);
    joined = true;
    MPI_Comm_rank(world->control, &world->rank);
    MPI_Comm_size(world->control, &world->ranks);
    context->rank = world->rank;
    context->ranks = world->ranks;
    SGRAD_TRY(sgrad__watchdog_start());
    SGRAD_TRY(sgrad__cores_claim(&cores));
    share_cores(cores, conf);
    return 0;
}

/* StarPU-MPI's thread sleeps while there is nothing to receive. As a worker it must not sleep. This receive prevents that: it is
 * pending until the end of the run. */
static void keep_awake(void) {
    starpu_variable_data_register(&awake, -1, 0, 1);
    starpu_mpi_irecv_detached(awake, world->rank, AWAKE_TAG, MPI_COMM_WORLD, NULL, NULL);
}

static void let_sleep(void) {
    starpu_data_handle_t end;
    char nothing = 0;
    starpu_variable_data_register(&end, STARPU_MAIN_RAM, (uintptr_t)&nothing, 1);
    starpu_mpi_isend_detached(end, world->rank, AWAKE_TAG, MPI_COMM_WORLD, NULL, NULL);
    starpu_data_unregister(end);
    starpu_data_unregister(awake);
}

int sgrad__ranks_init(struct starpu_conf *conf) {
    if (world->ranks == 1) return starpu_init(conf);
    int error = starpu_mpi_init_conf(NULL, NULL, 0, MPI_COMM_WORLD, conf);
    if (!error && thread_works) keep_awake();
    return error;
}

/* Reads the file on rank 0 only, so that all ranks compute the same plans even if their files differ. */
static int read_network(const char *file) {
    double *const is[] = { &network.latency, &network.bandwidth, &network.host_latency, &network.host_bandwidth };
    SGRAD_TRY(sgrad_ranks_agree(world->rank ? 0 : sgrad__network_read(file, &network)));
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) sgrad_ranks_broadcast(is[i], sizeof *is[i], 0);
    return 0;
}

int sgrad__ranks_start(struct sgrad_context *context, const char *file) {
    bool given = file;
    if (world->ranks == 1) return 0;
    name_hosts();
    network = (struct sgrad_network){ .ranks = world->ranks, .host = host };
    number_ranks();
    sgrad__allreduces_open();
    context->all = &all;
    context->network = &network;
    sgrad_ranks_broadcast(&given, sizeof given, 0);
    return given ? read_network(file) : sgrad__network_measure(world->rank, &network, world->control);
}

void sgrad__ranks_stop(void) {
    MPI_Request request;
    if (world->ranks == 1) return;
    sgrad__allreduces_close();
    MPI_Ibarrier(world->control, &request);
    sgrad__request_wait(&request, "for all ranks to end");
    sgrad__watchdog_stop();
    if (thread_works) let_sleep();
    starpu_mpi_shutdown();
}

void sgrad__ranks_close(void) {
    if (!joined) return;
    sgrad__watchdog_stop();
    MPI_Comm_free(&world->control);
    joined = false;
    free(name);
    free(host);
    free(number);
    name = NULL;
    host = number = NULL;
    world->ranks = 1;
    world->rank = 0;
}
