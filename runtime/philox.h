/* philox.h: random numbers that depend on where they are used and on nothing else.
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11): 128 bits of counter
 * and 64 of key give 128 random bits. The key is the run's seed; the counter says who asks: a stream (below), a time
 * (whatever counts), an index, a block. Any worker, on any rank, in any order, draws the same number. Usable in CUDA kernels. */
#ifndef SGRAD_PHILOX_H
#define SGRAD_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define SGRAD_BOTH __host__ __device__
#else
#define SGRAD_BOTH
#endif

/* Who draws: no two uses share a stream. */
enum sgrad_stream { SGRAD_STREAM_INIT, SGRAD_STREAM_SHUFFLE, SGRAD_STREAM_AUGMENT, SGRAD_STREAM_DROPOUT, SGRAD_STREAM_DATA,
                    SGRAD_STREAM_PAIRS, SGRAD_STREAM_TOKEN, SGRAD_STREAM_SEARCH };

struct sgrad_random {
    uint32_t word[4];
};

/* stream (below 16), time (below 2^28), index (below 2^64), block (below 2^32; four words each) */
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

/* A float in [0,1), 24 bits. */
static inline SGRAD_BOTH float sgrad_uniform(uint32_t word) {
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

#endif
