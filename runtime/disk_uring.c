/* disk_uring.c: transfers by the kernel (io_uring), of which one thread has several in flight.
 *
 *     thread      next x0, x1, x2, y0 → submit → wait      x1 ended → next y1 → submit → wait      …
 *     kernel      ├──── x0 ────┤├──── x1 ────┤ …           in any order
 *
 * The thread waits for an event (eventfd): a transfer has ended, or another piece may begin. It does not wait in io_uring itself,
 * because Valgrind would then stop all threads. The kernel may transfer a part of a piece only; the rest is then submitted again.
 *
 * Limits: open fails where the kernel or a container refuses io_uring, and for files that are not transferred directly: copies to
 * and from the page cache would all be made by the one thread.
 *
 * Source: J. Axboe, Efficient IO with io_uring, 2019. */
#include "config.h"
#include "runtime/disk.h"
#include "runtime/internal.h"

#include <errno.h>

#ifdef SGRAD_HAVE_LIBURING
#include <liburing.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct flight {
    struct sgrad__piece piece;
    char *memory, *buffer; /* of the transfer; for pieces that are not aligned */
    size_t done;           /* bytes transferred */
    bool busy;
};

struct uring {
    struct io_uring ring;
    int file, event;
    struct sgrad__disk_user user;
    atomic_bool closing;
    struct sgrad_thread *thread;
    struct flight flight[SGRAD__PIECES];
};

/* The ring has room for all transfers. Their user data are the flights. */
static void submit(struct uring *u, struct flight *flight) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&u->ring);
    const off_t at = flight->piece.at + (off_t)flight->done;
    char *memory = flight->memory + flight->done;
    const unsigned bytes = (unsigned)(sgrad_spill_blocks(flight->piece.bytes) - flight->done);
    if (flight->piece.writes) io_uring_prep_write(entry, u->file, memory, bytes, (uint64_t)at);
    else io_uring_prep_read(entry, u->file, memory, bytes, (uint64_t)at);
    io_uring_sqe_set_data(entry, flight);
}

static void begin_pieces(struct uring *u) {
    for (struct flight *f = u->flight; f < u->flight + SGRAD__PIECES; f++) {
        if (f->busy) continue;
        if (!u->user.next(u->user.arg, &f->piece)) return;
        f->busy = true;
        f->done = 0;
        f->memory = sgrad__piece_memory(&f->piece, f->buffer);
        submit(u, f);
    }
}

static void end(struct uring *u, struct flight *flight, int error) {
    if (!error) sgrad__piece_fetched(&flight->piece, flight->memory);
    u->user.ended(u->user.arg, &flight->piece, error ? strerror(error) : NULL);
    flight->busy = false;
}

/* RESULT: transferred bytes, or an error below 0. */
static void complete(struct uring *u, struct flight *flight, int result) {
    if (result > 0) flight->done += (size_t)result;
    if (result == -EINTR || result == -EAGAIN) submit(u, flight);
    else if (result <= 0) end(u, flight, result ? -result : EIO);
    else if (flight->done < sgrad_spill_blocks(flight->piece.bytes)) submit(u, flight);
    else end(u, flight, 0);
}

/* Returns false if no transfer has ended. */
static bool complete_ended(struct uring *u) {
    struct io_uring_cqe *entry;
    bool any = false;
    for (; !io_uring_peek_cqe(&u->ring, &entry); any = true) {
        struct flight *flight = io_uring_cqe_get_data(entry);
        const int result = entry->res;
        io_uring_cqe_seen(&u->ring, entry);
        complete(u, flight, result);
    }
    return any;
}

static void *work(void *arg) {
    struct uring *u = arg;
    uint64_t events;
    while (!u->closing) {
        begin_pieces(u);
        const int error = io_uring_submit(&u->ring);
        const bool again = error == -EINTR || error == -EAGAIN || error == -EBUSY;
        if (error < 0 && !again) {
            sgrad_log_error(SGRAD_EIO, "io_uring: %s; set STARGRAD_SPILL_IO=threads", strerror(-error));
            abort();
        }
        if (!complete_ended(u) && !again && read(u->event, &events, sizeof events) < 0 && errno != EINTR) abort();
    }
    return NULL;
}

static void wake(void *engine) {
    const struct uring *u = engine;
    if (write(u->event, &(uint64_t){ 1 }, sizeof(uint64_t)) < 0) abort();
}

static void release(struct uring *u) {
    if (u->event >= 0) close(u->event);
    if (u->ring.ring_fd >= 0) io_uring_queue_exit(&u->ring);
    for (int i = 0; i < SGRAD__PIECES; i++) free(u->flight[i].buffer);
    free(u);
}

static void stop(void *engine) {
    struct uring *u = engine;
    u->closing = true;
    wake(u);
    sgrad_thread_join(u->thread);
    release(u);
}

/* Returns 0 or a number of errno: the kernel is older than the operations, or refuses. */
static int prepare(struct uring *u) {
    const int error = io_uring_queue_init(SGRAD__PIECES, &u->ring, 0);
    if (error) return u->ring.ring_fd = -1, -error;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
    const bool able =
        probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    if (!able) return ENOSYS;
    for (int i = 0; i < SGRAD__PIECES; i++)
        if (posix_memalign((void **)&u->flight[i].buffer, SGRAD_SPILL_BLOCK, SGRAD__PIECE)) return ENOMEM;
    if ((u->event = eventfd(0, EFD_CLOEXEC)) < 0) return errno;
    const int refused = io_uring_register_eventfd(&u->ring, u->event);
    if (refused) return -refused;
    return (u->thread = sgrad_thread_start(work, u)) ? 0 : EAGAIN;
}

static void *start(int file, bool direct, const struct sgrad__disk_user *user) {
    if (!direct) return errno = ENOTSUP, NULL;
    struct uring *u = sgrad_xcalloc(1, sizeof *u);
    u->file = file;
    u->event = -1;
    u->user = *user;
    const int error = prepare(u);
    if (!error) return u;
    release(u);
    return errno = error, NULL;
}
#else
static void *start(int file, bool direct, const struct sgrad__disk_user *user) {
    (void)file, (void)direct, (void)user;
    return errno = ENOSYS, NULL;
}
static void wake(void *engine) { (void)engine; }
static void stop(void *engine) { (void)engine; }
#endif

const struct sgrad__disk_engine sgrad__disk_uring = { "io_uring", start, wake, stop };
