/* numbers.c: a pass over all numbers of files, which computes their hash and the largest one. A file is read in blocks, so the
 * memory does not depend on its size. Processes that start together divide the files whose results are stored (turns.c). */
#include "config.h"
#include "datasets/numbers.h"
#include "datasets/formats.h"
#include "runtime/files/parts.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TURNS "passes.lock"
enum { BLOCK = 1 << 20, THREADS = 8 }; /* bytes of a block: a multiple of 8; largest number of threads */

/* Returns the largest of COUNT numbers. *BAD: index of the first that is not from 0 to LIMIT - 1; COUNT: there is none. */
static inline int64_t largest_of(const unsigned char *at, int64_t count, int bytes, bool is_signed, int64_t limit, int64_t *bad) {
    uint64_t largest = 0;
    for (int64_t i = 0; i < count; i++) { /* as a number without a sign, a negative one is above LIMIT */
        const uint64_t number = (uint64_t)sgrad__number_at(at + i * bytes, bytes, is_signed);
        if (number > largest) largest = number;
    }
    *bad = count;
    if (largest >= (uint64_t)limit)
        for (*bad = 0; (uint64_t)sgrad__number_at(at + *bad * bytes, bytes, is_signed) < (uint64_t)limit;) ++*bad;
    return (int64_t)largest;
}

/* The same; each call has constant arguments, so that the loop is compiled for them. */
static int64_t largest_in(const struct sgrad__numbers *of, const unsigned char *at, int64_t count, int64_t limit, int64_t *bad) {
    const bool is_signed = of->is_signed;
    if (of->bytes == 1)
        return is_signed ? largest_of(at, count, 1, true, limit, bad) : largest_of(at, count, 1, false, limit, bad);
    if (of->bytes == 2)
        return is_signed ? largest_of(at, count, 2, true, limit, bad) : largest_of(at, count, 2, false, limit, bad);
    if (of->bytes == 4)
        return is_signed ? largest_of(at, count, 4, true, limit, bad) : largest_of(at, count, 4, false, limit, bad);
    return largest_of(at, count, 8, is_signed, limit, bad);
}

static int pass_over(const struct sgrad__numbers *of, int file, int64_t limit, unsigned char *block, struct sgrad__pass *pass) {
    const size_t all = (size_t)of->count * (size_t)of->bytes;
    pass->bad = -1;
    for (size_t done = 0; done < all && pass->bad < 0;) {
        const size_t bytes = all - done < BLOCK ? all - done : BLOCK;
        const int64_t count = (int64_t)bytes / of->bytes;
        int64_t bad;
        SGRAD_TRY(sgrad__file_read(file, of->path, of->from + done, bytes, block));
        const int64_t largest = largest_in(of, block, count, limit, &bad);
        if (largest > pass->largest) pass->largest = largest;
        if (bad < count) {
            pass->bad = (int64_t)done / of->bytes + bad;
            pass->value = sgrad__number_at(block + bad * of->bytes, of->bytes, of->is_signed);
        }
        done += bytes;
        pass->hash = done < all ? sgrad__fingerprint_words(pass->hash, block, bytes)
                                : sgrad__fingerprint_end(pass->hash, block, bytes, all);
    }
    return 0;
}

static int pass_one(const struct sgrad__numbers *of, uint64_t start, int64_t limit, unsigned char *block,
                    struct sgrad__pass *pass) {
    char *what = sgrad_format("numbers %zu %" PRId64 " %d%c %016" PRIx64 " %" PRId64, of->from, of->count, of->bytes,
                              of->is_signed ? 's' : 'u', start, limit);
    char *key = sgrad__pass_key(of->path, &of->version, what);
    int64_t result[2];
    int file, error = 0;
    size_t size;
    *pass = (struct sgrad__pass){ .hash = start, .bad = -1 };
    const bool cached = sgrad__pass_get(key, result, 2);
    const int turn = key && !cached ? sgrad__turn_take(TURNS, sgrad__fingerprint_add(1, key, strlen(key))) : -1;
    if (cached || sgrad__pass_get(key, result, 2)) {
        pass->hash = (uint64_t)result[0];
        pass->largest = result[1];
    } else if (!(error = sgrad__file_open(of->path, SIZE_MAX / 2, &file, &size))) {
        error = pass_over(of, file, limit, block, pass);
        if (!error) error = sgrad__version_check(file, of->path, &of->version);
        close(file);
        if (!error && pass->bad < 0) sgrad__pass_put(key, (int64_t[]){ (int64_t)pass->hash, pass->largest }, 2);
    }
    sgrad__turn_end(turn);
    free(key);
    free(what);
    return error;
}

/* The files that threads take one after another. */
struct work {
    const struct sgrad__numbers *numbers;
    const uint64_t *start;
    int count, first; /* first: the file at which this process begins */
    int64_t limit;
    struct sgrad__pass *pass;
    atomic_int next, error;
};

static void *take_files(void *argument) {
    struct work *work = argument;
    unsigned char *block = sgrad_xcalloc(1, BLOCK);
    for (int n; !work->error && (n = atomic_fetch_add(&work->next, 1)) < work->count;) {
        const int i = (work->first + n) % work->count;
        const int error = pass_one(&work->numbers[i], work->start[i], work->limit, block, &work->pass[i]);
        if (error) work->error = error;
    }
    free(block);
    return NULL;
}

int sgrad__numbers_pass(const struct sgrad__numbers *numbers, const uint64_t *start, int count, int64_t limit,
                        struct sgrad__pass *pass) {
    struct work work = { numbers, start, count, (int)sgrad__turn_first(count), limit, .pass = pass };
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t helper[THREADS];
    int helpers = 0;
    sgrad_log_progress("reading all tokens, to check them …");
    while (helpers < THREADS - 1 && helpers < cores - 1 && helpers < count - 1) {
        if (pthread_create(&helper[helpers], NULL, take_files, &work)) break;
        helpers++;
    }
    take_files(&work);
    for (int i = 0; i < helpers; i++) pthread_join(helper[i], NULL);
    sgrad_log_progress(NULL);
    return work.error;
}
