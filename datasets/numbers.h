/* numbers.h: sequences of integers in files that may be larger than memory. Private to datasets/. */
#ifndef SGRAD_DATASETS_NUMBERS_H
#define SGRAD_DATASETS_NUMBERS_H

#include "datasets/version.h"

#include <stddef.h>

/* The numbers of a file: COUNT little-endian integers of BYTES bytes, from byte FROM on. */
struct sgrad__numbers {
    char *path;
    struct sgrad_file_version version;
    size_t from;
    int64_t count;
    int bytes;      /* 1, 2, 4 or 8 */
    bool is_signed; /* two's complement */
};

/* Returns the number of BYTES bytes at AT. A number of 8 bytes without a sign must be below 2^63. */
static inline int64_t sgrad__number_at(const unsigned char *at, int bytes, bool is_signed) {
    const int unused = 64 - 8 * bytes;
    uint64_t bits = 0;
    for (int b = bytes; b-- > 0;) bits = bits << 8 | at[b];
    return is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

/* ---- open_files.c ---- */

/* Files that are read in parts, by several threads. Only the last few that were read are open. */
struct sgrad__open_files;
struct sgrad__open_files *sgrad__open_files_create(void);
void sgrad__open_files_free(struct sgrad__open_files *files); /* closes all; NULL is a no-op */
/* Copies BYTES bytes from byte AT of the file OF, which must outlive FILES, to TO. Threads may call it concurrently.
 * SGRAD_EIO: the file cannot be read, or is no longer of->version. */
int sgrad__open_files_read(struct sgrad__open_files *files, const struct sgrad__numbers *of, size_t at, size_t bytes, void *to);

/* ---- numbers.c ---- */

/* The result of a pass over all numbers of a file. */
struct sgrad__pass {
    uint64_t hash; /* sgrad__fingerprint_add(START, …) of their bytes */
    int64_t largest;
    int64_t bad;   /* index of the first number that is not from 0 to LIMIT - 1; -1: there is none */
    int64_t value; /* its value */
};
/* Passes over the numbers of COUNT files, each read once, in blocks, by up to eight threads. start[i] is the initial hash of file
 * i, and LIMIT at most 2^31. The results of files without a bad number are cached (passes.c), also for other processes that pass
 * over the same files at the same time. SGRAD_EIO: a file cannot be read, or changes meanwhile. */
int sgrad__numbers_pass(const struct sgrad__numbers *numbers, const uint64_t *start, int count, int64_t limit,
                        struct sgrad__pass *pass);

/* ---- passes.c ---- */

/* Results of complete passes over files, which are cached, so that later runs need no pass. */

/* Returns the key of a result that depends on this VERSION of the file PATH and on WHAT, a text without tabs and line ends; the
 * caller must free it. NULL: the result must not be cached: the file is small, or its version is not settled. */
char *sgrad__pass_key(const char *path, const struct sgrad_file_version *version, const char *what);
/* Return the cached COUNT numbers (at most 8), or cache them. KEY may be NULL: get returns false, and put has no effect. */
bool sgrad__pass_get(const char *key, int64_t *number, int count);
void sgrad__pass_put(const char *key, const int64_t *number, int count);

#endif
