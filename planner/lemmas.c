/* lemmas.c: the number of devices for an efficiency, and the number of servers that hide their traffic (Zou et al.,
 * arXiv:1709.06622).
 *
 * The overhead of one device is R = T_O / T_C. G devices divide the computation among them, but not the overhead:
 *
 *     speed-up(G) = G (1 + R) / (1 + G R)      efficiency(G) = (1 + R) / (1 + G R)                                  */
#include "config.h"
#include "planner/planner.h"

#include <math.h>

double sgrad_lemma_efficiency(double overhead, double devices) { return (1 + overhead) / (1 + devices * overhead); }

double sgrad_lemma_devices(double overhead, double efficiency) {
    if (isnan(overhead)) return NAN;
    return overhead > 0 ? (1 + overhead - efficiency) / (efficiency * overhead) : INFINITY;
}

double sgrad_lemma_overhead(double devices, double speedup) { return (devices - speedup) / (devices * (speedup - 1)); }

double sgrad_lemma_servers(double bytes, double workers, double bandwidth, double seconds) {
    return ceil(2 * bytes * workers / (bandwidth * seconds));
}
