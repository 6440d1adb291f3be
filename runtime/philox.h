/* philox.h: a counter-based random number generator, whose numbers depend only on its arguments.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11): 128 bits of counter and 64
 * bits of key give 128 random bits. The key is the seed of the run. The counter consists of a stream (below), a time (any
 * counter, for example of steps), an index and a block. Every worker, on every rank, in any order, draws the same number for the
 * same arguments. Usable in CUDA kernels. */
#ifndef SGRAD_RUNTIME_PHILOX_H
#define SGRAD_RUNTIME_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define SGRAD_BOTH __host__ __device__
#else
#define SGRAD_BOTH
#endif

/* The purposes of random numbers. Each has a separate stream: initial parameters, order of samples, augmentation, dropout,
 * synthetic data, pairs of images (duplicates), sampled tokens, drawn options of a search, held-out samples. */
enum sgrad_stream { SGRAD_STREAM_INIT, SGRAD_STREAM_SHUFFLE, SGRAD_STREAM_AUGMENT, SGRAD_STREAM_DROPOUT, SGRAD_STREAM_DATA,
                    SGRAD_STREAM_PAIRS, SGRAD_STREAM_TOKEN, SGRAD_STREAM_SEARCH, SGRAD_STREAM_SPLIT };

struct sgrad_random {
    uint32_t word[4];       /* uniformly distributed bits */
};

/* Returns four random words. STREAM must be below 16, TIME below 2^28; INDEX and BLOCK may be any. A use that needs more than
 * four words numbers them by BLOCK. */
static inline SGRAD_BOTH struct sgrad_random sgrad_philox(uint64_t seed, uint32_t stream, uint32_t time, uint64_t index,
                                                          uint32_t block) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    struct sgrad_random c = { { (uint32_t)index, (uint32_t)(index >> 32), block, stream << 28 | time } };
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c.word[0], b = (uint64_t)0xCD9E8D57u * c.word[2];
        struct sgrad_random n = { { (uint32_t)(b >> 32) ^ c.word[1] ^ k0, (uint32_t)b,
                                    (uint32_t)(a >> 32) ^ c.word[3] ^ k1, (uint32_t)a } };
        c = n;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

/* Converts a random word to a float, uniform in [0,1), with 24 bits. */
static inline SGRAD_BOTH float sgrad_uniform(uint32_t word) {
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

#endif
