/* micros.c: a rank's share of the batch as micro-batches, the unit of tasks.
 *
 * None reaches beyond a unit: a group of batch norm, or what ranks that want the same bits have as a lane. A unit is cut into as
 * few as the most samples of a task allow, and these are as equal as they can be. A share of 20, units of 10, at most 4:
 *
 *     unit      0 ················ 9 │ 10 ··············· 19
 *     micro     0123 │ 456 │ 789     │ …                              */
#include "graphs/programs/builder.h"

#include <assert.h>

int sgrad__micros(int64_t samples, int64_t most) { return (int)((samples + most - 1) / most); }

void sgrad__cut_share(struct sgrad__program *p, int64_t unit, int64_t most) {
    assert(most > 0 && p->share % unit == 0);
    const int pieces = sgrad__micros(unit, most);
    p->micros = (int)(p->share / unit) * pieces;
    p->micro = sgrad_alloc((size_t)p->micros, sizeof *p->micro);
    int64_t first = 0;
    for (int m = 0; m < p->micros; first += p->micro[m++].samples)
        p->micro[m] = (struct sgrad__micro){ first, unit / pieces + (m % pieces < unit % pieces) };
}

char *sgrad__micros_text(const struct sgrad__program *p) {
    int64_t least = p->micro[0].samples;
    for (int m = 0; m < p->micros; m++)
        if (p->micro[m].samples < least) least = p->micro[m].samples;
    if (least == p->micro[0].samples) return sgrad_format("%lld", (long long)least);
    return sgrad_format("%lld or %lld", (long long)p->micro[0].samples, (long long)least);
}
