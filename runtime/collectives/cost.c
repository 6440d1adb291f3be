/* cost.c: the time that concurrent messages take.
 *
 * The cost model is the standard one (Hockney 1994; Thakur, Rabenseifner and Gropp 2005), with one network link per host:
 *
 *     rank 0 ─┐ host 0                  host 1 ┌─ rank 2        0→2, 1→3: latency + 2 bytes / bandwidth
 *             ├────────── one link ────────────┤                0→1: host_latency + bytes / host_bandwidth
 *     rank 1 ─┘                                └─ rank 3        1→2, 3→2: the sum of both, as rank 2 receives one at a time
 *
 * Limits: additions take no time, and switches have no congestion. */
#include "config.h"
#include "runtime/collectives/internal.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

int sgrad__hosts(const struct sgrad_network *net, int *first, int *order) {
    int hosts = 0, largest = -1;        /* largest number of a host so far: a larger one is new */
    for (int r = 0; r < net->ranks; r++) {
        int q = net->host && net->host[r] <= largest ? 0 : r;
        if (r && net->host && net->host[r - 1] == net->host[r]) q = first[r - 1];
        if (net->host && net->host[r] > largest) largest = net->host[r];
        while (q < r && net->host[q] != net->host[r]) q++;
        first[r] = q;
        hosts += q == r;
    }
    for (int begin = 0; begin < net->ranks && order; begin++)
        for (int r = begin; r < net->ranks && first[begin] == begin; r++)
            if (first[r] == begin) *order++ = r;
    return hosts;
}

struct sgrad__port {
    double in, out;        /* seconds */
    int wire_in, wire_out; /* messages over the link of the host, counted at its first rank */
};

struct sgrad__round sgrad__round_begin(const struct sgrad_network *net, double bytes) {
    struct sgrad__round round = { net, bytes, NULL, NULL };
    round.first = sgrad_xcalloc((size_t)net->ranks, sizeof *round.first);
    round.port = sgrad_xcalloc((size_t)net->ranks, sizeof *round.port);
    sgrad__hosts(net, round.first, NULL);
    return round;
}

void sgrad__round_send(struct sgrad__round *round, int from, int to) {
    const struct sgrad_network *net = round->net;
    const bool crosses = round->first[from] != round->first[to];
    const double seconds =
        crosses ? net->latency + round->bytes / net->bandwidth : net->host_latency + round->bytes / net->host_bandwidth;
    round->port[from].out += seconds;
    round->port[to].in += seconds;
    round->port[round->first[from]].wire_out += crosses;
    round->port[round->first[to]].wire_in += crosses;
}

double sgrad__round_end(struct sgrad__round *round) {
    const struct sgrad_network *net = round->net;
    double longest = 0;
    for (int r = 0; r < net->ranks; r++) {
        const struct sgrad__port *port = &round->port[r];
        const int wire = port->wire_in > port->wire_out ? port->wire_in : port->wire_out;
        longest = fmax(longest, fmax(port->in, port->out));
        if (wire) longest = fmax(longest, net->latency + wire * round->bytes / net->bandwidth);
    }
    free(round->first);
    free(round->port);
    return longest;
}

double sgrad__slowest(double bytes, const struct sgrad_network *net) {
    int first[net->ranks];
    if (sgrad__hosts(net, first, NULL) == 1) return net->host_latency + bytes / net->host_bandwidth;
    return net->latency + bytes / net->bandwidth;
}

int sgrad__best_chunks(double (*price)(double bytes, int chunks, const struct sgrad_network *net), int from, int most,
                       double bytes, const struct sgrad_network *net) {
    int best = from;
    double least = price(bytes, from, net);
    for (int chunks = 2 * from; chunks <= most; chunks *= 2) {
        const double seconds = price(bytes, chunks, net);
        if (seconds >= least) continue;
        best = chunks;
        least = seconds;
    }
    return best;
}
