/* star.c: a plug-in with a collective: rank 0 adds the buffers of all ranks, and sends the sum to all ranks.
 *
 *                rank 0    rank 1    rank 2
 *     start      A0        A1        A2
 *     add        A01       A1        A2          1 sends
 *     add        A*        A1        A2          2 sends
 *     copy       A*        A*        A*          0 sends twice
 *
 * Limits: rank 0 receives and sends all messages. It adds rank after rank, not along the binary tree of the other algorithms.
 *
 *     cc -O2 -shared -fPIC star.c -o libstar.so $(stargrad config --cflags)
 *     mpirun -n 3 stargrad train --plugin ./libstar.so --allreduce star --model convnet --data digits --batch 96 */
#include "graphs/graphs.h"

static double cost(double bytes, const struct sgrad_network *net) {
    return 2 * (net->ranks - 1) * (net->latency + bytes / net->bandwidth);
}

static int chunks(double bytes, const struct sgrad_network *net) { return (void)bytes, (void)net, 1; }

static void schedule(struct sgrad_plan *plan, int place, const struct sgrad_network *net) {
    for (int other = 1; other < net->ranks; other++) {
        if (place == 0) sgrad_plan_add(plan, SGRAD_ADD, other, 0);
        if (place == other) sgrad_plan_add(plan, SGRAD_SEND, 0, 0);
    }
    for (int other = 1; other < net->ranks; other++) {
        if (place == 0) sgrad_plan_add(plan, SGRAD_SEND, other, 0);
        if (place == other) sgrad_plan_add(plan, SGRAD_COPY, 0, 0);
    }
}

static const struct sgrad_collective star = {
    .name = "star",
    .kind = SGRAD_ALLREDUCE,
    .summary = "rank 0 adds all buffers and sends the sum to all ranks",
    .cost = cost,
    .chunks = chunks,
    .schedule = schedule,
};

SGRAD_PLUGIN(.collectives = (const struct sgrad_collective *const[]){ &star, NULL });
