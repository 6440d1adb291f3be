/* disk.c: both engines transfer pieces of any size and address, in whatever parts the system does so. */
#include "config.h"
#include "runtime/disk.h"
#include "tests/asserts.h"
#include "tests/runtime/context.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#ifdef SGRAD_HAVE_LIBURING
#include <liburing.h>
#endif

enum { PIECES = 40 };

/* ---- a system that transfers parts, or is interrupted ---- */

static bool odd;                    /* it does so now */
static _Atomic int calls;

/* Returns the bytes that call NUMBER transfers of BYTES: half of them, in whole blocks; -1: it is interrupted. */
static ssize_t part(size_t bytes, int number) {
    if (!odd || bytes <= SGRAD_SPILL_BLOCK || number % 3 == 0) return (ssize_t)bytes;
    return number % 3 == 1 ? -1 : (ssize_t)sgrad_spill_blocks(bytes / 2);
}

ssize_t pread(int file, void *to, size_t bytes, off_t at) {
    ssize_t (*next)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    const ssize_t n = part(bytes, calls++);
    return n < 0 ? errno = EINTR, -1 : next(file, to, (size_t)n, at);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) {
    ssize_t (*next)(int, const void *, size_t, off_t) = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    const ssize_t n = part(bytes, calls++);
    return n < 0 ? errno = EINTR, -1 : next(file, from, (size_t)n, at);
}

#ifdef SGRAD_HAVE_LIBURING
/* Each second call is interrupted. Of the transfers that are submitted, every third one is for a part. Every third one does
 * nothing instead, which the kernel completes at once with the result 0. An error, after which it must be repeated, replaces this
 * result. */
int io_uring_submit(struct io_uring *ring) {
    typedef int submitter(struct io_uring *);
    submitter *next = (submitter *)dlsym(RTLD_NEXT, "io_uring_submit");
    static int number;
    if (odd && ++number % 2) return -EINTR;
    for (unsigned i = ring->sq.sqe_head; odd && i != ring->sq.sqe_tail; i++) {
        struct io_uring_sqe *entry = &ring->sq.sqes[i & *ring->sq.kring_mask];
        const ssize_t n = part(entry->len, calls++);
        const uint64_t data = entry->user_data;
        if (n > 0) entry->len = (unsigned)n;
        else io_uring_prep_nop(entry);
        entry->user_data = data;
    }
    const int result = next(ring);
    const unsigned end = io_uring_smp_load_acquire(ring->cq.ktail);
    for (unsigned i = *ring->cq.khead; odd && i != end; i++) {
        struct io_uring_cqe *entry = &ring->cq.cqes[i & *ring->cq.kring_mask];
        if (!entry->res) entry->res = i % 2 ? -EAGAIN : -EINTR;
    }
    return result;
}
#endif

/* ---- a user ---- */

struct list {
    struct sgrad__piece piece[PIECES];
    int begun, ended, failed;
    struct sgrad_monitor *monitor;  /* protects all members */
};

static bool next(void *arg, struct sgrad__piece *piece) {
    struct list *l = arg;
    sgrad_monitor_lock(l->monitor);
    const bool found = l->begun < PIECES;
    if (found) *piece = l->piece[l->begun++];
    sgrad_monitor_unlock(l->monitor);
    return found;
}

static void ended(void *arg, const struct sgrad__piece *piece, const char *why) {
    struct list *l = arg;
    (void)piece;
    sgrad_monitor_lock(l->monitor);
    l->ended++;
    l->failed += why != NULL;
    sgrad_monitor_notify(l->monitor);
    sgrad_monitor_unlock(l->monitor);
}

/* Executes all pieces. Returns the number of errors; skips the test where the system refuses the engine. */
static int execute(const struct sgrad__disk_engine *engine, int file, struct list *list) {
    const struct sgrad__disk_user user = { next, ended, list };
    void *disk = engine->open(file, true, &user);
    if (!disk && engine == &sgrad__disk_uring) {
        print_message("skipped: this build has no io_uring, or the kernel refuses it: %s\n", strerror(errno));
        skip();
    }
    assert_non_null(disk);
    engine->wake(disk);
    sgrad_monitor_lock(list->monitor);
    while (list->ended < PIECES) sgrad_monitor_wait(list->monitor, 0);
    sgrad_monitor_unlock(list->monitor);
    engine->close(disk);
    return list->failed;
}

static int create(void) {
    const char *folder = getenv("TMPDIR");
    int file;
    assert_done(sgrad__disk_create(folder ? folder : "/tmp", &file));
    return file;
}

/* Fills MEMORY, writes it in pieces, clears it, and reads it back. Sizes and addresses are those of whole blocks, or not. */
static void transfer(const struct sgrad__disk_engine *engine) {
    static const size_t sizes[] = { 1, 4095, 4096, 4097, 65536, 1000000, SGRAD__PIECE };
    struct list list = { .monitor = sgrad_monitor_create() };
    size_t at = 0, all = 0;
    char *memory = NULL;
    const int file = create();
    for (int i = 0; i < PIECES; i++) {
        struct sgrad__piece *p = &list.piece[i];
        p->bytes = sizes[i % 7];
        p->at = (off_t)at;
        at += sgrad_spill_blocks(p->bytes);
        all += sgrad_spill_blocks(p->bytes + 8);
    }
    assert_done(sgrad__disk_reserve("", file, 0, (off_t)at));
    assert_int_equal(posix_memalign((void **)&memory, SGRAD_SPILL_BLOCK, all), 0);
    for (size_t i = 0, from = 0; i < PIECES; from += sgrad_spill_blocks(list.piece[i++].bytes + 8))
        list.piece[i].memory = memory + from + (i % 2 ? 8 : 0);
    for (int pass = 0; pass < 2; pass++) {
        const bool writes = !pass;
        for (int i = 0; i < PIECES; i++) {
            list.piece[i].writes = writes;
            memset(list.piece[i].memory, writes ? i + 1 : 0, list.piece[i].bytes);
        }
        list.begun = list.ended = 0;
        assert_int_equal(execute(engine, file, &list), 0);
    }
    for (int i = 0; i < PIECES; i++)
        for (size_t b = 0; b < list.piece[i].bytes; b++) assert_int_equal(list.piece[i].memory[b], i + 1);
    sgrad_monitor_destroy(list.monitor);
    free(memory);
    close(file);
}

static void threads_transfer(void **state) {
    (void)state;
    transfer(&sgrad__disk_threads);
}

static void uring_transfers(void **state) {
    (void)state;
    transfer(&sgrad__disk_uring);
}

static void threads_continue(void **state) {
    odd = true;
    threads_transfer(state);
}

static void uring_continues(void **state) {
    odd = true;
    uring_transfers(state);
}

static int becomes_usual(void **state) {
    (void)state;
    return odd = false;
}

/* Bytes after the end of the file cannot be read. */
static void read_nothing(const struct sgrad__disk_engine *engine) {
    struct list list = { .monitor = sgrad_monitor_create() };
    char *memory = NULL;
    const int file = create();
    assert_int_equal(posix_memalign((void **)&memory, SGRAD_SPILL_BLOCK, SGRAD__PIECE), 0);
    for (int i = 0; i < PIECES; i++) list.piece[i] = (struct sgrad__piece){ .memory = memory, .bytes = SGRAD__PIECE };
    assert_int_equal(execute(engine, file, &list), PIECES);
    sgrad_monitor_destroy(list.monitor);
    free(memory);
    close(file);
}

static void threads_fail(void **state) {
    (void)state;
    read_nothing(&sgrad__disk_threads);
}

static void uring_fails(void **state) {
    (void)state;
    read_nothing(&sgrad__disk_uring);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("threads transfer pieces of any size and address", threads_transfer),
        sentence("io_uring transfers pieces of any size and address", uring_transfers),
        sentence_with("threads continue a transfer of which the system does a part", threads_continue, NULL, becomes_usual),
        sentence_with("io_uring continues a transfer of which the kernel does a part", uring_continues, NULL, becomes_usual),
        sentence("threads return the errors of all pieces", threads_fail),
        sentence("io_uring returns the errors of all pieces", uring_fails),
    };
    return run_sentences(argc, argv, tests, context_open, context_close);
}
