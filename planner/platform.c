/* platform.c: writes the description of a machine in the formats of SimGrid and StarPU.
 *
 *     node-0 ──┐ each node has one full-duplex   StarPU-MPI0:  RAM ── CUDA0     zone of rank 0: its cores, its devices, and the
 *     node-1 ──┼── link, with the bandwidth                     │ ╲    │        bus between them
 *     node-2 ──┘   of the machine's file                       CUDA1 ──┘
 *     messages of a node to itself use the bus
 *
 * Ranks communicate from node to node; tasks run on hosts of the rank's zone. No route connects a node with such a zone. */
#include "config.h"
#include "planner/planner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* StarPU simulates each worker of a node if it was built for that number of workers. Otherwise one worker is simulated, which is
 * as fast as all together. */
int sgrad_platform_workers(const struct sgrad_machine *machine) {
    return machine->device.is_gpu || machine->device.workers > SGRAD_PLATFORM_WORKERS ? 1 : machine->device.workers;
}

/* A core to drive each GPU, one for messages, and those of the CPU workers. On nodes with GPUs, the CPU worker reads the input;
 * on others, CPU workers run all tasks. */
static int cores(const struct sgrad_machine *machine, int gpus) { return gpus + 1 + sgrad_platform_workers(machine); }

static void print_link(FILE *to, int rank, const char *from, const char *towards, double bandwidth, double latency) {
    fprintf(to, " <link id=\"StarPU-MPI%d-%s-%s\" bandwidth=\"%.9gBps\" latency=\"%.9gs\" sharing_policy=\"FATPIPE\"/>\n", rank,
            from, towards, bandwidth, latency);
}

static void print_route(FILE *to, int rank, const char *from, const char *towards) {
    fprintf(to, " <route src=\"StarPU-MPI%d-%s\" dst=\"StarPU-MPI%d-%s\" symmetrical=\"NO\"><link_ctn id=\"StarPU-MPI%d-%s-%s\"/>"
                "</route>\n", rank, from, rank, towards, rank, from, towards);
}

/* StarPU's name of a memory node: main memory is number 0, the GPUs follow. */
static const char *place(int i, char name[16]) {
    snprintf(name, 16, i ? "CUDA%d" : "RAM", i - 1);
    return name;
}

/* The zone of a rank: its hosts, then the links, then the routes over them. */
static void print_rank(FILE *to, const struct sgrad_machine *machine, int rank, int gpus) {
    char a[16], b[16];
    fprintf(to, "<zone id=\"StarPU-MPI%d\" routing=\"Full\">\n <host id=\"StarPU-MPI%d-MAIN\" speed=\"1Gf\"/>\n"
                " <host id=\"StarPU-MPI%d-RAM\" speed=\"1Gf\"/>\n", rank, rank, rank);
    for (int i = 0; i < cores(machine, gpus); i++) fprintf(to, " <host id=\"StarPU-MPI%d-CPU%d\" speed=\"1Gf\"/>\n", rank, i);
    for (int i = 0; i < gpus; i++)
        fprintf(to, " <host id=\"StarPU-MPI%d-CUDA%d\" speed=\"1Gf\"><prop id=\"memsize\" value=\"%.0f\"/>"
                    "<prop id=\"memcpy_peer\" value=\"1\"/></host>\n", rank, i, machine->device.memory);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i <= gpus; i++)
            for (int j = 0; j <= gpus; j++) {
                if (i == j) continue;
                if (pass) print_route(to, rank, place(i, a), place(j, b));
                else print_link(to, rank, place(i, a), place(j, b), machine->bus_bandwidth, machine->bus_latency);
            }
    fputs("</zone>\n", to);
}

static int open_file(const char *folder, const char *name, struct sgrad_file *file) {
    char *path = sgrad_format("%s/%s", folder, name);
    const int error = sgrad_file_begin(path, file);
    free(path);
    return error;
}

static int write_platform(const struct sgrad_machine *machine, int nodes, int simulated, int gpus, const char *folder) {
    const struct sgrad_network net = sgrad_machine_network(machine, nodes);
    struct sgrad_file file;
    free((int *)net.host);
    SGRAD_TRY(open_file(folder, "platform.xml", &file));
    fputs("<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n<platform version=\"4.1\">\n"
          "<zone id=\"all\" routing=\"None\">\n", file.stream);
    fprintf(file.stream, "<cluster id=\"nodes\" prefix=\"node-\" suffix=\"\" radical=\"0-%d\" speed=\"1Gf\" bw=\"%.9gBps\" "
                         "lat=\"%.9gs\" loopback_bw=\"%.9gBps\" loopback_lat=\"%.9gs\" sharing_policy=\"SPLITDUPLEX\"/>\n",
            simulated - 1, net.bandwidth, net.latency / 2, machine->bus_bandwidth, machine->bus_latency);
    for (int rank = 0; rank < simulated; rank++) print_rank(file.stream, machine, rank, gpus);
    fputs("</zone>\n</platform>\n", file.stream);
    return sgrad_file_commit(&file);
}

static int write_hosts(int nodes, const char *folder) {
    struct sgrad_file file;
    SGRAD_TRY(open_file(folder, "hosts", &file));
    for (int i = 0; i < nodes; i++) fprintf(file.stream, "node-%d\n", i);
    return sgrad_file_commit(&file);
}

/* Writes a matrix with VALUE between any two memory nodes of a rank. Each line has one number more, because StarPU ignores the
 * last number of a line. */
static int write_matrix(const char *folder, const char *name, int gpus, double value) {
    struct sgrad_file file;
    SGRAD_TRY(open_file(folder, name, &file));
    for (int i = 0; i <= gpus; i++)
        for (int j = 0; j <= gpus + 1; j++)
            fprintf(file.stream, "%.9g%c", i == j ? 0 : value, j <= gpus ? '\t' : '\n');
    return sgrad_file_commit(&file);
}

static int write_empty(const char *folder, const char *name) {
    struct sgrad_file file;
    SGRAD_TRY(open_file(folder, name, &file));
    fputs("# nothing\n", file.stream);
    return sgrad_file_commit(&file);
}

#define BUS(kind) "bus/" SGRAD_PLATFORM_HOST "." kind

int sgrad_platform_write(const struct sgrad_machine *machine, int nodes, int simulated, const char *folder) {
    const int gpus = machine->device.is_gpu ? machine->device.count : 0;
    if (gpus > SGRAD_PLATFORM_GPUS)
        return sgrad_log_error(SGRAD_EINVAL, "%s: a node has %d GPUs, but a simulated node can have %d at most", machine->path,
                               gpus, SGRAD_PLATFORM_GPUS);
    char *bus = sgrad_format("%s/bus", folder);
    const int error = mkdir(bus, 0777) && errno != EEXIST ? errno : 0;
    if (error) sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", bus, strerror(error));
    free(bus);
    if (error) return SGRAD_EIO;
    SGRAD_TRY(write_platform(machine, nodes, simulated, gpus, folder));
    SGRAD_TRY(write_hosts(simulated, folder));
    SGRAD_TRY(write_matrix(folder, BUS("latency"), gpus, 1e6 * machine->bus_latency));
    SGRAD_TRY(write_matrix(folder, BUS("bandwidth"), gpus, 1e-6 * machine->bus_bandwidth));
    SGRAD_TRY(write_empty(folder, BUS("affinity")));
    return write_empty(folder, BUS("config"));
}
