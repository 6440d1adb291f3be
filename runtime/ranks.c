/* ranks.c: several processes as one program: MPI and StarPU-MPI from beginning to end.
 *
 * A process that no launcher started is the only rank, and MPI stays out of it. StarPU-MPI has a thread of its own that looks
 * for messages without rest. Where a core is to spare it gets one; where none is, it is the first CPU worker as well, and looks
 * between tasks (StarPU handbook, STARPU_MPI_DRIVER_CALL_FREQUENCY): two threads that share a core would wait for each other's
 * time slices, 4 ms on Linux, at every message.
 *
 * Limits: MPI starts once in the life of a process, so a context of several ranks is opened once. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/early.h"
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

enum { CORES_TO_SPARE = 5 };        /* with so many for a rank, one is the messages' */
#define TASKS_BETWEEN_LOOKS "2"     /* a look costs as much as a short task; 1, 2 and 4 made no difference */
#define AWAKE_TAG ((starpu_mpi_tag_t)1 << 60)      /* no message has it */

static struct sgrad__world *const world = &sgrad__world;
static int *host, *number;
static struct sgrad_network network;
static struct sgrad_group all;
static starpu_data_handle_t awake;
static bool thread_works;                   /* StarPU-MPI's thread is a worker */

static void name_hosts(void) {
    char name[MPI_MAX_PROCESSOR_NAME] = { 0 }, *names = sgrad_alloc((size_t)world->ranks, sizeof name);
    int length;
    MPI_Get_processor_name(name, &length);
    MPI_Allgather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, world->control);
    host = sgrad_alloc((size_t)world->ranks, sizeof *host);
    for (int r = 0; r < world->ranks; r++)
        while (strcmp(names + host[r] * MPI_MAX_PROCESSOR_NAME, names + r * MPI_MAX_PROCESSOR_NAME)) host[r]++;
    free(names);
}

static void number_ranks(void) {
    number = sgrad_alloc((size_t)world->ranks, sizeof *number);
    for (int r = 0; r < world->ranks; r++) number[r] = r;
    all = (struct sgrad_group){ world->ranks, number };
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

/* Open MPI sends more than this over TCP only after the receiver has asked for it; and when both ends send, the one's request
 * waits in the socket behind the other's data, so that an exchange takes twice as long as it should. */
#define TCP_EAGER "4194304"     /* bytes */

/* Settings that a user has made stay. */
static void set_up(void) {
    setenv("OMPI_MCA_btl_tcp_eager_limit", TCP_EAGER, 0);
    setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", TCP_EAGER, 0);
    setenv("OMPI_MCA_btl_tcp_max_send_size", TCP_EAGER, 0);
    setenv("STARPU_MPI_COOP_SENDS", "0", 0);            /* they need another MPI */
    setenv("STARPU_MPI_NDETACHED_SEND", "2", 0);        /* what waits goes by priority, what is under way does not */
}

/* With few cores all of them are workers', and the thread that looks for messages is one of these. */
static void share_cores(int cores, struct starpu_conf *conf) {
    if (cores < CORES_TO_SPARE) {
        const char *asked = getenv("STARPU_NCPU");
        if (conf->ncpus < 0) conf->ncpus = asked ? atoi(asked) : cores;
        setenv("STARPU_MPI_NOBIND", "1", 0);
        setenv("STARPU_MPI_DRIVER_CALL_FREQUENCY", conf->ncpus > 0 ? "1" : "0", 0);
    }
    const char *drives = getenv("STARPU_MPI_DRIVER_CALL_FREQUENCY");
    thread_works = drives && atoi(drives) > 0;
    if (thread_works) setenv("STARPU_MPI_DRIVER_TASK_FREQUENCY", TASKS_BETWEEN_LOOKS, 0);
}

/* Open MPI ends a process whose components it does not find, in opal_init, without a word of use. Where its library was packed
 * (tests/gpu/run), the file stargrad-pack lies beside it and names the directory of its components, which were not packed. */
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
    return sgrad_fail(SGRAD_EDEVICE,
                      "several ranks cannot start from a pack here: its Open MPI looks for components in %s, which is not there: "
                      "install the Open MPI it was built with, name its place by OPAL_PREFIX, or start one process alone",
                      *components ? components : "its installation");
}

/* MPI starts on all ranks, with ERROR on this one. Returns 0, or the error of a rank, and then MPI has ended. */
static int start_mpi(int error) {
    int level, worst = error, packed = check_components();
    if (packed) return error ? error : packed;
    set_up();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (!error && level < MPI_THREAD_MULTIPLE)
        worst = sgrad_fail(SGRAD_EDEVICE, "this MPI has no MPI_THREAD_MULTIPLE, which ranks need; see stargrad doctor");
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    sgrad__early_compare(MPI_COMM_WORLD);
    if (worst) MPI_Finalize();
    return worst;
}

/* The others have not come to MPI for as long: the lines of this rank alone. */
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
    sgrad__stall_open(context->patience);
    if (!sgrad__launched()) return 0;
    MPI_Finalized(&finished);
    if (finished) return sgrad_fail(SGRAD_EDEVICE, "MPI has ended in this process, and starts only once");
    SGRAD_TRY(start_mpi(0));
    MPI_Comm_dup(MPI_COMM_WORLD, &world->control);
    MPI_Comm_rank(world->control, &world->rank);
    MPI_Comm_size(world->control, &world->ranks);
    context->rank = world->rank;
    context->ranks = world->ranks;
    SGRAD_TRY(sgrad__cores_claim(&cores));
    share_cores(cores, conf);
    return 0;
}

/* As a worker the thread must not sleep, as it does when nothing is to be received: this receive ends with the run. */
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

/* Rank 0's file, so that all plan alike whatever their own holds. */
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
    sgrad__messages_open();
    context->all = &all;
    context->network = &network;
    sgrad_ranks_broadcast(&given, sizeof given, 0);
    return given ? read_network(file) : sgrad__network_measure(world->rank, &network, world->control);
}

void sgrad__ranks_stop(void) {
    MPI_Request request;
    if (world->ranks == 1) return;
    sgrad__messages_close();
    MPI_Ibarrier(world->control, &request);
    sgrad__request_wait(&request, "for all ranks to end");
    if (thread_works) let_sleep();
    starpu_mpi_shutdown();
}

void sgrad__ranks_close(void) {
    int initialized, finished;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finished);
    if (!initialized || finished) return;
    MPI_Comm_free(&world->control);
    MPI_Finalize();
    free(host);
    free(number);
    host = number = NULL;
    world->ranks = 1;
    world->rank = 0;
}
