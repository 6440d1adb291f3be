/* search.c: measures the search for near pairs on a file of 64-bit hashes: search FILE THRESHOLD [MIB]. Prints seconds, pairs and
 * memory as JSON. To build it, in the build folder:
 *
 *     make V=0 tests/duplicates/search
 *     ./libtool --tag=CC --mode=link gcc -O2 -I.. -I. ../bench/dedup/search.c -o dedup-search libduplicates.la libdatasets.la \
 *         libruntime.la $(sed -n 's/^\(STARPU\|MPI\|HWLOC\|DNNL\|JANSSON\|ZLIB\|JPEG\|PNG\|TIFF\|ZIP\|CUDA\)_LIBS = //p'
 * Makefile) */
#include "config.h"
#include "duplicates/duplicates.h"

#include <stdlib.h>
#include <sys/resource.h>

static int count(void *arg, const struct sgrad_pair *pair, int64_t pairs) { return (void)pair, *(int64_t *)arg += pairs, 0; }

int main(int argc, char **argv) {
    struct sgrad_context *context;
    struct sgrad_map map;
    struct rusage usage;
    int64_t pairs = 0;
    if (argc < 3 || argc > 4 || sgrad_map_open(argv[1], SIZE_MAX, &map)) return 1;
    if (sgrad_context_open(&(struct sgrad_context_options){ .gpus = -1 }, &context)) return 1;
    struct sgrad_hashes h = { .bits = 64, .words = 1, .count = (int64_t)(map.size / 8), .word = (uint64_t *)map.data };
    h.state = calloc((size_t)h.count, 1);
    const double begin = sgrad_time_monotonic();
    if (sgrad_hashes_search(&h, &(struct sgrad_search){ .threshold = atoi(argv[2]), .memory = argc > 3 ? atol(argv[3]) << 20 : 0,
                                                        .folder = ".", .see = count, .arg = &pairs }))
        return 1;
    const double seconds = sgrad_time_monotonic() - begin;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"seconds\": %g, \"pairs\": %lld, \"megabytes\": %ld, \"cores\": %d}\n", seconds, (long long)pairs,
           usage.ru_maxrss / 1024, context->cpus);
    sgrad_context_close(context);
    return 0;
}
