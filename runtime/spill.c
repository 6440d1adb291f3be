/* spill.c: moves tensors between memory and a file, on separate threads (spill.h). */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <starpu.h>

/* PIECE: bytes of one transfer; it is also the size of the buffer of a thread, through which memory that is not aligned is
 * copied. */
enum { THREADS = 4, PIECE = 4 << 20, SAMPLE = 128 << 20 };

struct slot {
    off_t at;
    size_t bytes;
    long submitted, finished;       /* numbers of moves */
};

struct transfer {
    struct sgrad_spill_move is;
    bool writes, ready, begun;      /* ready: StarPU has granted the access */
    long turn;                      /* moves of its slot that must finish before it */
    struct sgrad_spill *spill;
    struct transfer *next;
};

struct sgrad_spill {
    int file;
    char *folder;
    bool direct;
    int slots, threads, active;     /* active: transfers in progress */
    struct slot *slot;
    struct sgrad_monitor *monitor;  /* protects all members that change */
    struct transfer *first, **last; /* transfers that have not finished, in the order of submission */
    bool closing;
    double since;                   /* time at which ACTIVE became 1 */
    struct sgrad_spill_totals totals;
    struct sgrad_thread *thread[THREADS];
};

/* ---- the file ---- */

static int refuse(const char *folder, const char *what) {
    return sgrad_log_error(SGRAD_EIO, "--spill %s: %s: %s", folder, what, strerror(errno));
}

/* Opens a file without a name; where the file system lacks O_TMPFILE, one whose name is removed at once. */
static int open_file(const char *folder) {
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
    char *path = sgrad_format("%s/.stargrad-spill-XXXXXX", folder);
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0) unlink(path);
    free(path);
    return file;
}

/* Opens the file and reserves SIZE bytes. Direct transfers begin after that: some file systems reserve space by writing bytes. */
static int reserve(const char *folder, off_t size, bool *direct, int *file) {
    struct stat about;
    if (stat(folder, &about)) return refuse(folder, "cannot be opened");
    if (!S_ISDIR(about.st_mode)) return errno = ENOTDIR, refuse(folder, "cannot be opened");
    const int f = open_file(folder);
    if (f < 0) return refuse(folder, "a file in it cannot be created");
    const int error = posix_fallocate(f, 0, size);
    if (!error) {
        const int flags = fcntl(f, F_GETFL);
        *direct = flags >= 0 && fcntl(f, F_SETFL, flags | O_DIRECT) == 0;
        return *file = f, 0;
    }
    close(f);
    errno = error;
    return sgrad_log_error(SGRAD_EIO, "--spill %s: %.2f GB cannot be reserved: %s; give a folder on a disk with that much space",
                           folder, 1e-9 * (double)size, strerror(error));
}

/* Transfers BYTES bytes between MEMORY and the file. Sets errno. */
static bool transfer(int file, bool writes, char *memory, size_t bytes, off_t at) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = writes ? pwrite(file, memory + done, bytes - done, at + (off_t)done)
                                 : pread(file, memory + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* The same through BUFFER, for memory that is not aligned. The file has whole blocks. */
static bool transfer_copied(int file, bool writes, char *memory, size_t bytes, off_t at, char *buffer) {
    for (size_t done = 0; done < bytes;) {
        const size_t n = bytes - done < PIECE ? bytes - done : PIECE;
        if (writes) memcpy(buffer, memory + done, n);
        if (!transfer(file, writes, buffer, sgrad_spill_blocks(n), at + (off_t)done)) return false;
        if (!writes) memcpy(memory + done, buffer, n);
        done += n;
    }
    return true;
}

static bool copy_slot(const struct sgrad_spill *spill, const struct slot *slot, bool writes, char *memory, char *buffer) {
    const size_t whole = (uintptr_t)memory % SGRAD_SPILL_BLOCK ? 0 : slot->bytes / SGRAD_SPILL_BLOCK * SGRAD_SPILL_BLOCK;
    bool right = true;
    for (size_t done = 0; done < whole && right; done += PIECE)
        right = transfer(spill->file, writes, memory + done, whole - done < PIECE ? whole - done : PIECE, slot->at + (off_t)done);
    if (right)
        right = transfer_copied(spill->file, writes, memory + whole, slot->bytes - whole, slot->at + (off_t)whole, buffer);
    if (right && writes && !spill->direct) {
        right = !fdatasync(spill->file);
        posix_fadvise(spill->file, slot->at, (off_t)slot->bytes, POSIX_FADV_DONTNEED);
    }
    return right;
}

/* ---- moves ---- */

static void is_ready(void *arg) {
    struct transfer *t = arg;
    struct sgrad_monitor *monitor = t->spill->monitor;
    sgrad_monitor_lock(monitor);
    t->ready = true;
    sgrad_monitor_notify(monitor);
    sgrad_monitor_unlock(monitor);
}

/* Returns the first transfer that can begin; NULL: none can. */
static struct transfer *find_ready(const struct sgrad_spill *spill) {
    struct transfer *t = spill->first;
    while (t && !(t->ready && !t->begun && spill->slot[t->is.slot].finished == t->turn)) t = t->next;
    return t;
}

static void remove_from_list(struct sgrad_spill *spill, struct transfer *t) {
    struct transfer **at = &spill->first;
    while (*at != t) at = &(*at)->next;
    if (!(*at = t->next)) spill->last = at;
}

/* Executes transfer T. The monitor must be locked; it is unlocked meanwhile. */
static void execute(struct sgrad_spill *spill, struct transfer *t, char *buffer) {
    struct slot *slot = &spill->slot[t->is.slot];
    t->begun = true;
    if (!spill->active++) spill->since = sgrad_time_monotonic();
    sgrad_monitor_unlock(spill->monitor);
    if (!copy_slot(spill, slot, t->writes, sgrad__tensor_memory(t->is.tensor, STARPU_MAIN_RAM), buffer)) {
        char *what = sgrad_format("%s cannot be %s", t->is.tensor->name, t->writes ? "written" : "read");
        sgrad__failure_note(t->is.failure, refuse(spill->folder, what));
        free(what);
    }
    sgrad_monitor_lock(spill->monitor);
    *(t->writes ? &spill->totals.written : &spill->totals.read) += (double)slot->bytes;
    if (!--spill->active) spill->totals.seconds += sgrad_time_monotonic() - spill->since;
    slot->finished++;
    remove_from_list(spill, t);
    sgrad_monitor_notify(spill->monitor);
    sgrad_monitor_unlock(spill->monitor);
    sgrad__tensor_release(t->is.tensor, STARPU_MAIN_RAM);
    t->is.done(t->is.arg);
    free(t);
    sgrad_monitor_lock(spill->monitor);
}

static void *work(void *arg) {
    struct sgrad_spill *spill = arg;
    void *buffer = NULL;
    if (posix_memalign(&buffer, SGRAD_SPILL_BLOCK, PIECE)) abort();
    sgrad_monitor_lock(spill->monitor);
    while (!spill->closing || spill->first) {
        struct transfer *t = find_ready(spill);
        if (t) execute(spill, t, buffer);
        else sgrad_monitor_wait(spill->monitor, 0);
    }
    sgrad_monitor_unlock(spill->monitor);
    free(buffer);
    return NULL;
}

static int submit(struct sgrad_spill *spill, const struct sgrad_spill_move *move, bool writes) {
    struct transfer *t = sgrad_xcalloc(1, sizeof *t);
    *t = (struct transfer){ .is = *move, .writes = writes, .spill = spill };
    sgrad_monitor_lock(spill->monitor);
    t->turn = spill->slot[move->slot].submitted++;
    *spill->last = t;
    spill->last = &t->next;
    sgrad_monitor_unlock(spill->monitor);
    if (sgrad__tensor_acquire(move->tensor, STARPU_MAIN_RAM, writes ? SGRAD_R : SGRAD_W, is_ready, t) == 0) return 0;
    sgrad_monitor_lock(spill->monitor);
    spill->slot[move->slot].submitted--;
    remove_from_list(spill, t);
    sgrad_monitor_unlock(spill->monitor);
    free(t);
    return sgrad_log_error(SGRAD_EDEVICE, "StarPU cannot access tensor %s", move->tensor->name);
}

int sgrad_spill_write(struct sgrad_spill *spill, const struct sgrad_spill_move *move) { return submit(spill, move, true); }
int sgrad_spill_read(struct sgrad_spill *spill, const struct sgrad_spill_move *move) { return submit(spill, move, false); }

struct sgrad_spill_totals sgrad_spill_totals(const struct sgrad_spill *spill) {
    sgrad_monitor_lock(spill->monitor);
    const struct sgrad_spill_totals totals = spill->totals;
    sgrad_monitor_unlock(spill->monitor);
    return totals;
}

/* ---- opening and closing ---- */

int sgrad_spill_open(const char *folder, const size_t *bytes, int slots, struct sgrad_spill **spill) {
    struct sgrad_spill *s = sgrad_xcalloc(1, sizeof *s);
    off_t size = 0;
    s->slot = sgrad_xcalloc((size_t)slots, sizeof *s->slot);
    s->slots = slots;
    for (int i = 0; i < slots; i++) {
        s->slot[i] = (struct slot){ .at = size, .bytes = bytes[i] };
        size += (off_t)sgrad_spill_blocks(bytes[i]);
    }
    const int error = reserve(folder, size, &s->direct, &s->file);
    if (error) {
        free(s->slot);
        free(s);
        return error;
    }
    s->folder = sgrad_format("%s", folder);
    s->monitor = sgrad_monitor_create();
    s->last = &s->first;
    starpu_malloc_set_align(SGRAD_SPILL_BLOCK);     /* of tensors created from now on, so that they are not copied */
    while (s->threads < THREADS && (s->thread[s->threads] = sgrad_thread_start(work, s))) s->threads++;
    if (s->threads) return *spill = s, 0;
    sgrad_spill_close(s);
    return sgrad_log_error(SGRAD_ENOMEM,
                           "the threads that move tensors cannot be started; check the limit of threads (ulimit -u)");
}

void sgrad_spill_close(struct sgrad_spill *spill) {
    if (!spill) return;
    sgrad_monitor_lock(spill->monitor);
    spill->closing = true;
    sgrad_monitor_notify(spill->monitor);
    sgrad_monitor_unlock(spill->monitor);
    for (int i = 0; i < spill->threads; i++) sgrad_thread_join(spill->thread[i]);
    sgrad_monitor_destroy(spill->monitor);
    close(spill->file);
    free(spill->folder);
    free(spill->slot);
    free(spill);
}

/* Sets *RATE to the bytes per second of one pass over the file, in pieces. */
static bool time_pass(int file, bool writes, char *buffer, double *rate) {
    const double start = sgrad_time_monotonic();
    for (off_t at = 0; at < SAMPLE; at += PIECE)
        if (!transfer(file, writes, buffer, PIECE, at)) return false;
    if (writes && fdatasync(file)) return false;
    *rate = SAMPLE / (sgrad_time_monotonic() - start);
    return true;
}

int sgrad_spill_measure(const char *folder, struct sgrad_spill_speed *speed) {
    int file;
    bool direct;
    void *buffer;
    struct sgrad_spill_speed is;
    SGRAD_TRY(reserve(folder, SAMPLE, &direct, &file));
    if (posix_memalign(&buffer, SGRAD_SPILL_BLOCK, PIECE)) abort();
    memset(buffer, 1, PIECE);
    const bool right = time_pass(file, true, buffer, &is.write) && (direct || !posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)) &&
                       time_pass(file, false, buffer, &is.read);
    const int error = right ? 0 : refuse(folder, "a test file cannot be written and read");
    free(buffer);
    close(file);
    if (right) *speed = is;
    return error;
}
