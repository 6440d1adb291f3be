/* simulation.c: ranks, decisions and durations of a simulated trainer; replaces allreduce.c, cores.c, decisions.c, network.c,
 * ranks.c and watchdog.c.
 *
 * MPI is that of SimGrid, which delivers messages only to the actor that it has started: the thread of StarPU-MPI. The main
 * program is a different actor and therefore must not call MPI. It does not need to: all ranks run the same program with the same
 * options, and no decision depends on computed values, so each rank already has the values that it would receive.
 *
 * Limits: differences between ranks (for example files that only one rank can read) are not simulated. There are no timeouts. */
#include "config.h"
#include "runtime/simulation.h"
#include "runtime/collectives.h"
#include "runtime/ranks/early.h"
#include "runtime/internal.h"

#include <errno.h>
#include <math.h>
#include <mpi.h>
#include <starpu_mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct sgrad__world *const world = &sgrad__world;
static const struct sgrad_simulation *simulation;
static const struct sgrad_bound_kernel *(*call_of)(const struct starpu_task *task);
static int *number;
static struct sgrad_network network;
static struct sgrad_group all;

void sgrad_simulation_set(const struct sgrad_simulation *is) { simulation = is; }

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

void sgrad_simulated_kernel(const struct sgrad_args *args) { (void)args; }

const struct sgrad_kind sgrad__simulated_reduction = { "reduction", 0x8e5bb5 };
const struct sgrad_kernel sgrad__simulated_carry = { .name = "carry", .kind = &sgrad__simulated_reduction,
                                                     .cpu = sgrad_simulated_kernel };

double sgrad__simulation_seconds(const struct sgrad_bound_kernel *call) {
    if (call->kernel == &sgrad__simulated_carry) return call->bytes * simulation->carrying;
    return call->kernel->cpu || call->kernel->cuda ? simulation->seconds(call, simulation->arg) : NAN;
}

/* Returns the duration of a task in microseconds, as StarPU requires. It is never 0, because StarPU takes 0 for unknown. */
static double length(struct starpu_task *task, struct starpu_perfmodel_arch *arch, unsigned implementation) {
    (void)arch, (void)implementation;
    const double seconds = sgrad__simulation_seconds(call_of(task));
    return seconds > 1e-9 ? 1e6 * seconds : 1e-3;
}

void sgrad__simulation_model(struct starpu_perfmodel *model,
                             const struct sgrad_bound_kernel *(*of)(const struct starpu_task *task)) {
    call_of = of;
    model->type = STARPU_PER_ARCH;
    model->arch_cost_function = length;
}

int sgrad__simulation_gpus(void) { return simulation ? simulation->gpus : 0; }
double sgrad__simulation_carrying(void) { return simulation->carrying; }
double sgrad__simulation_disk(bool writes) { return writes ? simulation->disk.write : simulation->disk.read; }
double sgrad_simulation_memory(void) { return simulation->memory; }

/* One simulated rank represents several ranks, so messages to different ranks have the same destination. The XOR of the two
 * ranks in the tag distinguishes them; it is equal at both ends. */
struct sgrad_message sgrad__simulation_message(struct sgrad_message m) {
    if (!simulation->ranks) return m;
    m.tag += (int64_t)(world->rank ^ m.peer) << 7;      /* below it, 7 bits for the messages of a plan between two ranks */
    m.peer = !world->rank;
    return m;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Allocates addresses for tensors. Memory is only used for those pages that the short messages of StarPU-MPI access. The address
 * range of a rank is larger than all its tensors at one time. When it is exhausted, allocation restarts at its beginning. */
static int give_place(unsigned node, void **place, size_t bytes, int flags) {
    static const size_t room = (size_t)64 << 30;
    static size_t used;
    static char *first;
    (void)node, (void)flags;
    if (!first) first = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (first == MAP_FAILED || bytes > room) return -ENOMEM;
    if (used + bytes > room) used = 0;
    *place = first + used;
    used += sgrad_aligned(bytes);
    return 0;
}

static int take_back(unsigned node, void *place, size_t bytes, int flags) {
    (void)node, (void)place, (void)bytes, (void)flags;
    return 0;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* SimGrid's hook that copies the content of messages. Internal messages of StarPU-MPI are short and must be copied; tensors have
 * no content. */
enum { LONGEST_WORD = 512 };
extern void (*smpi_comm_copy_data_callback)(void *message, void *buffer, size_t bytes);
static void (*copy)(void *message, void *buffer, size_t bytes);

static void copy_words(void *message, void *buffer, size_t bytes) {
    if (bytes <= LONGEST_WORD) copy(message, buffer, bytes);
}

static void leave_contents(void) {
    copy = smpi_comm_copy_data_callback;
    smpi_comm_copy_data_callback = copy_words;
}

/* SimGrid runs one actor at a time, so every level of thread support that StarPU-MPI requests is available. */
int __real_MPI_Init_thread(int *, char ***, int, int *);
int __wrap_MPI_Init_thread(int *count, char ***words, int wanted, int *level) {
    const int error = __real_MPI_Init_thread(count, words, wanted, level);
    *level = MPI_THREAD_MULTIPLE;
    return error;
}

/* StarPU-MPI sends derived types, which SimGrid would copy. Every tensor consists of plain bytes, so these functions, to which
 * the linker redirects the calls of the library, send bytes. */
int __real_MPI_Isend(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int __real_MPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

int __wrap_MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request) {
    int size;
    MPI_Type_size(type, &size);
    return __real_MPI_Isend(data, count * size, MPI_BYTE, to, tag, comm, request);
}

int __wrap_MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request) {
    int size;
    MPI_Type_size(type, &size);
    return __real_MPI_Irecv(data, count * size, MPI_BYTE, from, tag, comm, request);
}

int sgrad_allreduce(const struct sgrad_message *message) {
    return sgrad_log_error(SGRAD_EINVAL, "%s: an allreduce of MPI or NCCL cannot be simulated; give another --allreduce",
                           message->tensor->name);
}
int sgrad_allreduce_on_gpus(const struct sgrad_message *message) { return sgrad_allreduce(message); }

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

int sgrad__ranks_open(struct sgrad_context *context, struct starpu_conf *conf) {
    (void)conf;
    world->rank = context->rank = starpu_mpi_world_rank();
    world->ranks = context->ranks = simulation && simulation->ranks ? simulation->ranks : starpu_mpi_world_size();
    if (!simulation)
        return sgrad_log_error(SGRAD_EINVAL,
                               "the simulated trainer requires a machine file; start it with stargrad plan --simulate");
    starpu_malloc_set_hooks(give_place, take_back);
    if (world->rank == 0) leave_contents();
    return 0;
}

int sgrad__ranks_init(struct starpu_conf *conf) { return starpu_mpi_init_conf(NULL, NULL, 0, MPI_COMM_WORLD, conf); }

/* Each rank is on a separate host. */
int sgrad__ranks_start(struct sgrad_context *context, const char *file) {
    (void)file;
    if (world->ranks == 1) return 0;
    number = sgrad_xcalloc((size_t)world->ranks, sizeof *number);
    for (int r = 0; r < world->ranks; r++) number[r] = r;
    all = (struct sgrad_group){ world->ranks, number };
    network = (struct sgrad_network){ .ranks = world->ranks, .host = number, .latency = simulation->latency,
                                      .bandwidth = simulation->bandwidth, .host_latency = simulation->latency,
                                      .host_bandwidth = simulation->bandwidth };
    context->all = &all;
    context->network = &network;
    return 0;
}

void sgrad_early_close(void) {}

void sgrad__ranks_stop(void) { starpu_mpi_shutdown(); }

void sgrad__ranks_close(void) {
    free(number);
    number = NULL;
}

const char *sgrad_rank_host(int rank) {
    static char name[16];
    snprintf(name, sizeof name, "node%d", rank);
    return name;
}

/* ---- decisions of all ranks -------------------------------------------------------------------------------------- */

void sgrad_ranks_sum(double *value, int count) {
    for (int i = 0; i < count; i++) value[i] *= world->ranks;
}

void sgrad_ranks_broadcast(void *data, size_t bytes, int from) { (void)data, (void)bytes, (void)from; }
void sgrad_ranks_swap(const void *mine, void *theirs, size_t bytes) { memcpy(theirs, mine, bytes * (size_t)world->ranks); }
int sgrad_ranks_least(int value) { return value; }
int sgrad_ranks_agree(int error) { return error; }
int sgrad_ranks_await(int error, const char *what) { return (void)what, error; }
int sgrad_ranks_compare(const char *text) { return (void)text, 0; }
void sgrad_ranks_narrow(const struct sgrad_group *group) { (void)group; }
void sgrad_ranks_widen(void) {}

char *sgrad__rank_deliver(int from, const void *data, size_t *bytes) {
    if (world->rank || from) return NULL;
    char *copied = sgrad_xcalloc(*bytes + 1, 1);
    return memcpy(copied, data, *bytes);
}

bool sgrad_watchdog_expired(double waited) { return (void)waited, false; }
void sgrad_watchdog_report(bool own, const char *what) { (void)own, (void)what; }
