/* network.c: latency and bandwidth between ranks: read from a file, or measured with messages of StarPU-MPI between tensors, as
 * in training. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <mpi.h>
#include <starpu_mpi.h>

enum { SMALL = 8, LARGE = 1 << 20, SMALL_TIMES = 20, LARGE_TIMES = 3 };

/* Measures TIMES round trips of BYTES between ranks A and B, both of which must call it. Sets *SECONDS to half of the shortest
 * round trip; the value of A is the valid one. */
static int ping_pong(int rank, int a, int b, int bytes, int times, double *seconds) {
    struct sgrad_tensor *t;
    *seconds = 1e30;
    SGRAD_TRY(sgrad_tensor_create("network probe", SGRAD_U8, sgrad_shape(1, bytes), SGRAD_PERSISTENT, &t));
    for (int i = 0; i < times; i++) {
        double start = sgrad_time_monotonic();
        MPI_Status status;
        if (rank == a) starpu_mpi_send(t->handle, b, 0, MPI_COMM_WORLD);
        starpu_mpi_recv(t->handle, rank == a ? b : a, 0, MPI_COMM_WORLD, &status);
        if (rank == b) starpu_mpi_send(t->handle, a, 0, MPI_COMM_WORLD);
        double took = (sgrad_time_monotonic() - start) / 2;
        if (took < *seconds) *seconds = took;
    }
    sgrad_tensor_destroy(t);
    return 0;
}

static int measure(int rank, int a, int b, MPI_Comm comm, double *latency, double *bandwidth) {
    double seconds[2] = { 0 };
    if (rank == a || rank == b) {
        SGRAD_TRY(ping_pong(rank, a, b, SMALL, SMALL_TIMES, &seconds[0]));
        SGRAD_TRY(ping_pong(rank, a, b, LARGE, LARGE_TIMES, &seconds[1]));
    }
    MPI_Bcast(seconds, 2, MPI_DOUBLE, a, comm);
    *latency = seconds[0];
    *bandwidth = LARGE / (seconds[1] > 1.1 * seconds[0] ? seconds[1] - seconds[0] : 0.1 * seconds[1]);
    return 0;
}

/* Finds the first two ranks on the same host, or on different hosts; false: there are none. */
static bool find_pair(const struct sgrad_network *net, bool same, int *a, int *b) {
    for (*a = 0; *a < net->ranks; ++*a)
        for (*b = *a + 1; *b < net->ranks; ++*b)
            if ((net->host[*a] == net->host[*b]) == same) return true;
    return false;
}

int sgrad__network_measure(int rank, struct sgrad_network *net, MPI_Comm comm) {
    int a, b;
    bool distant = find_pair(net, false, &a, &b);
    if (distant) SGRAD_TRY(measure(rank, a, b, comm, &net->latency, &net->bandwidth));
    if (find_pair(net, true, &a, &b)) {
        SGRAD_TRY(measure(rank, a, b, comm, &net->host_latency, &net->host_bandwidth));
    } else {
        net->host_latency = net->latency;
        net->host_bandwidth = net->bandwidth;
    }
    if (!distant) {
        net->latency = net->host_latency;
        net->bandwidth = net->host_bandwidth;
    }
    return 0;
}

static bool get(const json_t *object, const char *key, double *value) {
    const json_t *number = json_object_get(object, key);
    *value = json_number_value(number);
    return number && *value > 0;
}

int sgrad__network_read(const char *path, struct sgrad_network *net) {
    json_error_t problem;
    json_t *object = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (!object) return sgrad_log_error(SGRAD_EFORMAT, "%s: %s", path, problem.text);
    struct sgrad_network n = *net;
    bool whole = get(object, "latency", &n.latency) && get(object, "bandwidth", &n.bandwidth);
    const bool hosts = get(object, "host_latency", &n.host_latency) && get(object, "host_bandwidth", &n.host_bandwidth);
    json_decref(object);
    if (!whole)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: latency (seconds) and bandwidth (bytes per second) must be numbers above 0",
                               path);
    if (!hosts) n.host_latency = n.latency, n.host_bandwidth = n.bandwidth;
    *net = n;
    return 0;
}
