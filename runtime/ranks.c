/* ranks.c: several processes as one program: MPI and StarPU-MPI from beginning to end, and what all ranks decide together.
 *
 * A process that no launcher started is the only rank, and MPI stays out of it. StarPU-MPI has a thread of its own that looks
 * for messages without rest. Where a core is to spare it gets one; where none is, it is the first CPU worker as well, and looks
 * between tasks (StarPU handbook, STARPU_MPI_DRIVER_CALL_FREQUENCY): two threads that share a core would wait for each other's
 * time slices, 4 ms on Linux, at every message.
 *
 * Limits: MPI starts once in the life of a process, so a context of several ranks is opened once. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <mpi.h>
#include <sched.h>
#include <starpu_mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CORES_TO_SPARE = 5 };        /* with so many for a rank, one is the messages' */
#define TASKS_BETWEEN_LOOKS "2"     /* a look costs as much as a short task; 1, 2 and 4 made no difference */
#define AWAKE_TAG ((starpu_mpi_tag_t)1 << 60)      /* no message has it */

static MPI_Comm control = MPI_COMM_NULL;    /* of the collective calls of main threads */
static int rank, ranks = 1, *host;
static struct sgrad_network network;
static starpu_data_handle_t awake;
static bool thread_works;                   /* StarPU-MPI's thread is a worker */

int sgrad_launched_rank(void) {
    static const char *const says[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK" };
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        if (getenv(says[i])) return atoi(getenv(says[i]));
    return 0;
}

static bool launched(void) {
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    return size ? atoi(size) > 1 : getenv("PMIX_RANK") || getenv("PMI_RANK");
}

/* ---- the cores of this rank -------------------------------------------------------------------------------------- */

/* Ranks that share a host, not bound by the launcher, share its cores: each takes its slice. */
static int claim_cores(void) {
    MPI_Comm here;
    cpu_set_t all, mine;
    int at, count, cores, seen = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_rank(here, &at);
    MPI_Comm_size(here, &count);
    sched_getaffinity(0, sizeof all, &all);
    cores = CPU_COUNT(&all);
    int bound = cores < (int)sysconf(_SC_NPROCESSORS_ONLN), any;
    MPI_Allreduce(&bound, &any, 1, MPI_INT, MPI_MAX, here);
    MPI_Comm_free(&here);
    if (any || count == 1 || cores < count) return any || count == 1 ? cores : 1;
    CPU_ZERO(&mine);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all) && seen++ * count / cores == at) CPU_SET(c, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
    return CPU_COUNT(&mine);
}

static void name_hosts(void) {
    char name[MPI_MAX_PROCESSOR_NAME] = { 0 }, *names = sgrad_alloc((size_t)ranks, sizeof name);
    int length;
    MPI_Get_processor_name(name, &length);
    MPI_Allgather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, control);
    host = sgrad_alloc((size_t)ranks, sizeof *host);
    for (int r = 0; r < ranks; r++)
        while (strcmp(names + host[r] * MPI_MAX_PROCESSOR_NAME, names + r * MPI_MAX_PROCESSOR_NAME)) host[r]++;
    free(names);
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

int sgrad__ranks_open(struct sgrad_context *context, struct starpu_conf *conf) {
    int level, finished;
    context->ranks = 1;
    sgrad__stall_open(context, MPI_COMM_NULL);
    if (!launched()) return 0;
    MPI_Finalized(&finished);
    if (finished) return sgrad_fail(SGRAD_EDEVICE, "MPI has ended in this process, and starts only once");
    set_up();
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (level < MPI_THREAD_MULTIPLE)
        return sgrad_fail(SGRAD_EDEVICE, "this MPI has no MPI_THREAD_MULTIPLE, which ranks need; see stargrad doctor");
    MPI_Comm_dup(MPI_COMM_WORLD, &control);
    MPI_Comm_rank(control, &rank);
    MPI_Comm_size(control, &ranks);
    context->rank = rank;
    context->ranks = ranks;
    sgrad__stall_open(context, control);
    share_cores(claim_cores(), conf);
    return 0;
}

/* As a worker the thread must not sleep, as it does when nothing is to be received: this receive ends with the run. */
static void keep_awake(void) {
    starpu_variable_data_register(&awake, -1, 0, 1);
    starpu_mpi_irecv_detached(awake, rank, AWAKE_TAG, MPI_COMM_WORLD, NULL, NULL);
}

static void let_sleep(void) {
    starpu_data_handle_t end;
    char nothing = 0;
    starpu_variable_data_register(&end, STARPU_MAIN_RAM, (uintptr_t)&nothing, 1);
    starpu_mpi_isend_detached(end, rank, AWAKE_TAG, MPI_COMM_WORLD, NULL, NULL);
    starpu_data_unregister(end);
    starpu_data_unregister(awake);
}

int sgrad__ranks_init(struct starpu_conf *conf) {
    if (ranks == 1) return starpu_init(conf);
    int error = starpu_mpi_init_conf(NULL, NULL, 0, MPI_COMM_WORLD, conf);
    if (!error && thread_works) keep_awake();
    return error;
}

int sgrad__ranks_start(struct sgrad_context *context, const char *file) {
    if (ranks == 1) return 0;
    name_hosts();
    network = (struct sgrad_network){ .ranks = ranks, .host = host };
    sgrad__messages_open();
    context->network = &network;
    return file ? sgrad__network_read(file, &network) : sgrad__network_measure(rank, &network, control);
}

void sgrad__ranks_stop(void) {
    MPI_Request request;
    if (ranks == 1) return;
    sgrad__messages_close();
    MPI_Ibarrier(control, &request);
    sgrad__request_wait(&request, "for all ranks to end");
    if (thread_works) let_sleep();
    starpu_mpi_shutdown();
}

void sgrad__ranks_close(void) {
    int initialized, finished;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finished);
    if (!initialized || finished) return;
    MPI_Comm_free(&control);
    MPI_Finalize();
    free(host);
    host = NULL;
    ranks = 1;
    rank = 0;
}

void sgrad_ranks_abort(int status) {
    if (ranks > 1) MPI_Abort(MPI_COMM_WORLD, status);
}

/* ---- together ---------------------------------------------------------------------------------------------------- */

static void reduce(void *value, int count, MPI_Datatype type, MPI_Op op, const char *what) {
    MPI_Request request;
    if (ranks == 1) return;
    MPI_Iallreduce(MPI_IN_PLACE, value, count, type, op, control, &request);
    sgrad__request_wait(&request, what);
}

void sgrad_ranks_sum(double *value, int count) { reduce(value, count, MPI_DOUBLE, MPI_SUM, "for a sum over all ranks"); }

void sgrad_ranks_broadcast(void *data, size_t bytes, int from) {
    char what[64];
    snprintf(what, sizeof what, "for what rank %d has to send", from);
    for (size_t at = 0, piece; ranks > 1 && at < bytes; at += piece) {
        piece = bytes - at < 1 << 30 ? bytes - at : 1 << 30;
        MPI_Request request;
        MPI_Ibcast((char *)data + at, (int)piece, MPI_BYTE, from, control, &request);
        sgrad__request_wait(&request, what);
    }
}

char *sgrad__rank_deliver(int from, const void *data, size_t *bytes) {
    enum { PIECE = 1 << 30 };
    char *received = NULL;
    uint64_t size = *bytes;
    if (rank == from) MPI_Send(&size, 1, MPI_UINT64_T, 0, 0, control);
    if (rank == 0) MPI_Recv(&size, 1, MPI_UINT64_T, from, 0, control, MPI_STATUS_IGNORE);
    if (rank == 0) received = sgrad_alloc(size, 1);
    for (uint64_t at = 0; at < size; at += PIECE) {
        int piece = (int)(size - at < PIECE ? size - at : PIECE);
        if (rank == from) MPI_Send((const char *)data + at, piece, MPI_BYTE, 0, 0, control);
        if (rank == 0) MPI_Recv(received + at, piece, MPI_BYTE, from, 0, control, MPI_STATUS_IGNORE);
    }
    *bytes = size;
    return received;
}

int sgrad_ranks_agree(int error) {
    int worst = error;
    reduce(&worst, 1, MPI_INT, MPI_MIN, "for all ranks to come as far");
    return error ? error : worst;
}

/* The length of a line without the blanks around it and a comma at its end. */
static int trim(const char **line) {
    *line += strspn(*line, " ");
    int length = (int)strcspn(*line, "\n");
    return length && (*line)[length - 1] == ',' ? length - 1 : length;
}

/* The first line in which MINE is not what rank 0 says. */
static void tell_difference(const char *first, const char *mine) {
    while (*first && *mine) {
        size_t a = strcspn(first, "\n"), b = strcspn(mine, "\n");
        if (a != b || strncmp(first, mine, a)) break;
        first += a + (first[a] != 0);
        mine += b + (mine[b] != 0);
    }
    int a = trim(&first), b = trim(&mine);
    sgrad_fail(SGRAD_EINVAL, "rank %d has %.*s, rank 0 has %.*s: start all ranks with the same program, options and data", rank, b, mine, a, first);
}

int sgrad_ranks_compare(const char *text) {
    size_t size = strlen(text) + 1;
    int lowest = ranks;
    if (ranks == 1) return 0;
    sgrad_ranks_broadcast(&size, sizeof size, 0);
    char *first = sgrad_alloc(size, 1);
    if (rank == 0) memcpy(first, text, size);
    sgrad_ranks_broadcast(first, size, 0);
    if (strcmp(first, text)) lowest = rank;
    reduce(&lowest, 1, MPI_INT, MPI_MIN, "for all ranks to compare their options");
    if (lowest == rank) tell_difference(first, text);
    free(first);
    return lowest < ranks ? SGRAD_EINVAL : 0;
}
