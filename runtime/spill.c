/* spill.c: moves tensors between memory and a file, on separate threads (spill.h). */
#include "config.h"
#include "runtime/environment.h"
#include "runtime/gpu_memory.h"
#include "runtime/internal.h"
#include "runtime/spill.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <starpu.h>

/* PIECE: bytes of one transfer; it is also the size of the buffer of a thread, through which memory that is not aligned is
 * copied. In a simulation (simulation.h) there is no file, and one thread executes one move at a time. */
enum { THREADS = SGRAD_SIMULATED ? 1 : 4, PIECE = 4 << 20, SAMPLE = 128 << 20 };

struct place {
    off_t at;
    size_t bytes;
    void *memory;                   /* pinned, instead of a part of the file; NULL: none */
};

struct slot {
    struct place place;
    long submitted, finished;       /* numbers of moves */
};

struct transfer {
    struct sgrad_spill_move is;
    bool writes, begun;
    int awaited;                    /* tensors to which StarPU has not granted access yet */
    long turn;                      /* moves of its slot that must finish before it */
    struct sgrad_spill *spill;
    struct transfer *next;
};

/* Pinned memory with some of the slots. */
struct block {
    void *memory;
    size_t bytes;
};

/* A part of the file for a copy of data. */
struct room {
    struct place place;
    void *memory;                   /* where it is mapped; NULL: it is free */
};

struct sgrad_spill {
    int file;                       /* -1: none, in a simulation or if RAM */
    bool ram;                       /* slots are in blocks of main memory */
    off_t size;
    int blocks;
    struct block *block;
    char *folder;
    bool direct;
    int slots, threads, active;     /* active: transfers in progress */
    struct slot *slot;
    int rooms;
    struct room *room;
    struct sgrad_monitor *monitor;  /* protects all members that change */
    struct transfer *first, **last; /* transfers that have not finished, in the order of submission */
    bool closing, failed;           /* failed: an error has been logged */
    double since;                   /* time at which ACTIVE became 1 */
    struct sgrad_spill_totals totals;
    struct sgrad_thread *thread[THREADS];
};

/* ---- the file ---- */

static int refuse(const char *folder, const char *what) {
    return sgrad_log_error(SGRAD_EIO, "--spill %s: %s: %s; check the disk, or give another folder", folder, what,
                           strerror(errno));
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

static int create(const char *folder, int *file) {
    struct stat about;
    if (SGRAD_SIMULATED) return *file = -1, 0;
    if (stat(folder, &about)) return refuse(folder, "cannot be opened");
    if (!S_ISDIR(about.st_mode)) return errno = ENOTDIR, refuse(folder, "cannot be opened");
    *file = open_file(folder);
    return *file < 0 ? refuse(folder, "a file in it cannot be created") : 0;
}

/* Reserves BYTES bytes from AT on. Transfers are direct only after that: some file systems reserve space by writing bytes. */
static int reserve(const char *folder, int file, off_t at, off_t bytes, bool *direct) {
    if (SGRAD_SIMULATED) return *direct = true, 0;
    const int flags = fcntl(file, F_GETFL) & ~O_DIRECT;
    fcntl(file, F_SETFL, flags);
    const int error = posix_fallocate(file, at, bytes);
    *direct = fcntl(file, F_SETFL, flags | O_DIRECT) == 0;
    if (!error) return 0;
    return sgrad_log_error(SGRAD_EIO, "--spill %s: %.2f GB cannot be reserved: %s; give a folder on a disk with that much space",
                           folder, 1e-9 * (double)bytes, strerror(error));
}

/* Waits, so that BYTES more bytes of all transfers do not exceed the bandwidth STARGRAD_SPILL_LIMIT. environment.c checks its
 * value, in MB/s. */
static void slow_down(size_t bytes) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static double end;              /* of the transfers so far */
    const char *limit = sgrad_variable("STARGRAD_SPILL_LIMIT");
    if (!limit) return;
    pthread_mutex_lock(&lock);
    const double now = sgrad_time_monotonic();
    const double wait = (end = (end > now ? end : now) + (double)bytes / (1e6 * strtod(limit, NULL))) - now;
    pthread_mutex_unlock(&lock);
    sgrad_sleep(wait);
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
    slow_down(bytes);
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

static bool move(const struct sgrad_spill *spill, const struct place *place, bool writes, char *memory, char *buffer) {
    const size_t whole = (uintptr_t)memory % SGRAD_SPILL_BLOCK ? 0 : place->bytes / SGRAD_SPILL_BLOCK * SGRAD_SPILL_BLOCK;
    bool right = true;
    if (SGRAD_SIMULATED) return sgrad_sleep((double)place->bytes / sgrad__simulation_disk(writes)), true;
    for (size_t done = 0; done < whole && right; done += PIECE) {
        const size_t bytes = whole - done < PIECE ? whole - done : PIECE;
        right = transfer(spill->file, writes, memory + done, bytes, place->at + (off_t)done);
    }
    if (right)
        right = transfer_copied(spill->file, writes, memory + whole, place->bytes - whole, place->at + (off_t)whole, buffer);
    if (right && writes && !spill->direct) {
        right = !fdatasync(spill->file);
        posix_fadvise(spill->file, place->at, (off_t)place->bytes, POSIX_FADV_DONTNEED);
    }
    return right;
}

/* ---- moves ---- */

static void is_ready(void *arg) {
    struct transfer *t = arg;
    struct sgrad_monitor *monitor = t->spill->monitor;
    sgrad_monitor_lock(monitor);
    if (!--t->awaited) sgrad_monitor_notify(monitor);
    sgrad_monitor_unlock(monitor);
}

/* Returns the first transfer that can begin; NULL: none can. */
static struct transfer *find_ready(const struct sgrad_spill *spill) {
    struct transfer *t = spill->first;
    while (t && !(!t->awaited && !t->begun && (t->is.home || spill->slot[t->is.slot].finished == t->turn))) t = t->next;
    return t;
}

static void remove_from_list(struct sgrad_spill *spill, struct transfer *t) {
    struct transfer **at = &spill->first;
    while (*at != t) at = &(*at)->next;
    if (!(*at = t->next)) spill->last = at;
}

static struct place place_of(const struct sgrad_spill *spill, const struct sgrad_spill_move *move) {
    if (!move->home) return spill->slot[move->slot].place;
    if (spill->ram) return (struct place){ 0, sgrad_view_bytes(&move->home->view), sgrad__tensor_memory(move->home, 0) };
    return (struct place){ (off_t)move->home->at, sgrad_view_bytes(&move->home->view), NULL };
}

/* What a thread moves data through: memory that is aligned for the file, or a stream of the GPU. */
struct means {
    char *buffer;
    struct sgrad_gpu_copier *copier;
};

/* Executes transfer T to or from PLACE. Returns NULL, or a reason why not. */
static const char *move_now(const struct sgrad_spill *spill, const struct transfer *t, const struct place *place,
                            const struct means *by) {
    char *memory = sgrad__tensor_memory(t->is.tensor, t->is.tensor->node);
    if (spill->ram) return sgrad_gpu_copy(by->copier, !t->writes, memory, place->memory, place->bytes);
    return move(spill, place, t->writes, memory, by->buffer) ? NULL : strerror(errno);
}

/* Stores the error of a transfer, and its cause. Only the first one is logged: later ones are likely to have the same cause. */
static void fail(struct sgrad_spill *spill, const struct transfer *t, const char *why) {
    sgrad_monitor_lock(spill->monitor);
    const bool again = spill->failed;
    spill->failed = true;
    sgrad_monitor_unlock(spill->monitor);
    if (!again)
        sgrad_log_error(SGRAD_EIO,
                        "--spill %s: %s cannot be %s: %s; check the disk, or give another folder; checkpoints are not affected",
                        spill->folder, t->is.tensor->name, t->writes ? "written" : "read", why);
    sgrad__failure_note(t->is.failure, SGRAD_EIO);
}

/* Executes transfer T. The monitor must be locked; it is unlocked meanwhile. */
static void execute(struct sgrad_spill *spill, struct transfer *t, const struct means *by) {
    const struct place place = place_of(spill, &t->is);
    t->begun = true;
    if (!spill->active++) spill->since = sgrad_time_monotonic();
    sgrad_monitor_unlock(spill->monitor);
    sgrad__trace_move(t->is.tensor->name, t->writes, true);
    const char *why = move_now(spill, t, &place, by);
    if (why) fail(spill, t, why);
    sgrad__trace_move(t->is.tensor->name, t->writes, false);
    sgrad_monitor_lock(spill->monitor);
    *(t->writes ? &spill->totals.written : &spill->totals.read) += (double)place.bytes;
    if (!--spill->active) spill->totals.seconds += sgrad_time_monotonic() - spill->since;
    if (!t->is.home) spill->slot[t->is.slot].finished++;
    remove_from_list(spill, t);
    sgrad_monitor_notify(spill->monitor);
    sgrad_monitor_unlock(spill->monitor);
    sgrad__tensor_release(t->is.tensor, t->is.tensor->node);
    if (t->is.home) sgrad__tensor_release(t->is.home, STARPU_MAIN_RAM);
    if (t->is.done) t->is.done(t->is.arg);
    free(t);
    sgrad_monitor_lock(spill->monitor);
}

static void *work(void *arg) {
    struct sgrad_spill *spill = arg;
    void *buffer = NULL;
    if (!spill->ram && posix_memalign(&buffer, SGRAD_SPILL_BLOCK, PIECE)) abort();
    const struct means by = { buffer, spill->ram ? sgrad_gpu_copier_open() : NULL };
    sgrad_monitor_lock(spill->monitor);
    while (!spill->closing || spill->first) {
        struct transfer *t = find_ready(spill);
        if (t) execute(spill, t, &by);
        else sgrad_monitor_wait(spill->monitor, 0);
    }
    sgrad_monitor_unlock(spill->monitor);
    sgrad_gpu_copier_close(by.copier);
    free(buffer);
    return NULL;
}

/* Appends T to the list. */
static void append(struct sgrad_spill *spill, struct transfer *t) {
    sgrad_monitor_lock(spill->monitor);
    if (!t->is.home) t->turn = spill->slot[t->is.slot].submitted++;
    *spill->last = t;
    spill->last = &t->next;
    sgrad_monitor_unlock(spill->monitor);
}

static int submit(struct sgrad_spill *spill, const struct sgrad_spill_move *move, bool writes) {
    struct transfer *t = sgrad_xcalloc(1, sizeof *t);
    *t = (struct transfer){ .is = *move, .writes = writes, .spill = spill, .awaited = move->home ? 2 : 1 };
    assert(!move->home || move->home->mapped || spill->ram);
    append(spill, t);
    if (!sgrad__tensor_acquire(move->tensor, move->tensor->node, writes ? SGRAD_R : SGRAD_W, is_ready, t) &&
        (!move->home || !sgrad__tensor_acquire(move->home, STARPU_MAIN_RAM, writes ? SGRAD_W : SGRAD_R, is_ready, t)))
        return 0;
    sgrad_monitor_lock(spill->monitor);     /* T may still be used by a callback */
    remove_from_list(spill, t);
    sgrad_monitor_unlock(spill->monitor);
    return sgrad_log_error(SGRAD_EDEVICE, "StarPU cannot access tensor %s", move->tensor->name);
}

int sgrad_spill_write(struct sgrad_spill *spill, const struct sgrad_spill_move *move) { return submit(spill, move, true); }
int sgrad_spill_read(struct sgrad_spill *spill, const struct sgrad_spill_move *move) { return submit(spill, move, false); }

const char *sgrad_spill_folder(const struct sgrad_spill *spill) { return spill->folder; }

struct sgrad_spill_totals sgrad_spill_totals(const struct sgrad_spill *spill) {
    sgrad_monitor_lock(spill->monitor);
    struct sgrad_spill_totals totals = spill->totals;
    if (spill->active) totals.seconds += sgrad_time_monotonic() - spill->since;
    sgrad_monitor_unlock(spill->monitor);
    return totals;
}

/* ---- opening and closing ---- */

/* Starts the threads for FILE in FOLDER, or for main memory (RAM). */
static int start(const char *folder, int file, bool ram, struct sgrad_spill **spill) {
    struct sgrad_spill *s = sgrad_xcalloc(1, sizeof *s);
    s->file = file;
    s->ram = ram;
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

int sgrad_spill_open(const char *folder, struct sgrad_spill **spill) {
    int file;
    SGRAD_TRY(create(folder, &file));
    return start(folder, file, false, spill);
}

int sgrad_spill_open_ram(struct sgrad_spill **spill) {
    struct sgrad_gpu_copier *copier = sgrad_gpu_copier_open();
    if (!copier) return sgrad_log_error(SGRAD_EDEVICE, "--spill ram: CUDA cannot create a stream; see 'stargrad doctor'");
    sgrad_gpu_copier_close(copier);
    return start("main memory", -1, true, spill);
}

/* Adds a block of pinned memory. Returns NULL if there is too little memory. */
static char *add_block(struct sgrad_spill *spill, size_t bytes) {
    struct block block = { .bytes = bytes };
    if (starpu_malloc_flags(&block.memory, bytes, STARPU_MALLOC_PINNED)) return NULL;
    spill->block = sgrad_array_grow(spill->block, spill->blocks, sizeof *spill->block);
    spill->block[spill->blocks++] = block;
    return block.memory;
}

int sgrad_spill_reserve(struct sgrad_spill *spill, const size_t *bytes, int slots, int *first) {
    off_t size = 0;
    char *memory = NULL;
    for (int i = 0; i < slots; i++) size += (off_t)sgrad_spill_blocks(bytes[i]);
    if (!spill->ram) SGRAD_TRY(reserve(spill->folder, spill->file, spill->size, size, &spill->direct));
    else if (!(memory = add_block(spill, (size_t)size)))
        return sgrad_log_error(SGRAD_ENOMEM, "--spill ram: no pinned main memory for %.2f MB; use a smaller --micro-batch",
                               1e-6 * (double)size);
    sgrad_monitor_lock(spill->monitor);
    *first = spill->slots;
    for (int i = 0; i < slots; i++) {
        spill->slot = sgrad_array_grow(spill->slot, spill->slots, sizeof *spill->slot);
        spill->slot[spill->slots++] = (struct slot){ .place = { spill->size, bytes[i], memory } };
        if (memory) memory += sgrad_spill_blocks(bytes[i]);
        spill->size += (off_t)sgrad_spill_blocks(bytes[i]);
    }
    sgrad_monitor_unlock(spill->monitor);
    return 0;
}

/* Maps BYTES bytes from AT on, which must have been reserved. */
static int map(const struct sgrad_spill *spill, off_t at, size_t bytes, void **memory) {
    char *name = sgrad_format("--spill %s: weights or optimizer states", spill->folder);
    errno = sgrad__map(spill->file, at, bytes, name, memory);
    free(name);
    return errno ? refuse(spill->folder, "a file in it cannot be mapped") : 0;
}

int sgrad_spill_settle(struct sgrad_spill *spill, struct sgrad_tensor *tensor) {
    const size_t bytes = sgrad_view_bytes(&tensor->view), blocks = sgrad_spill_blocks(bytes);
    void *memory;
    if (SGRAD_SIMULATED) return tensor->mapped = true, 0; /* its memory has no pages that could leave */
    SGRAD_TRY(reserve(spill->folder, spill->file, spill->size, (off_t)blocks, &spill->direct));
    SGRAD_TRY(map(spill, spill->size, bytes, &memory));
    sgrad__tensor_settle(tensor, memory, spill->size);
    if (msync(memory, bytes, MS_SYNC)) return refuse(spill->folder, "a file in it cannot be written");
    sgrad_mapped_leave(memory, bytes);
    posix_fadvise(spill->file, spill->size, (off_t)blocks, POSIX_FADV_DONTNEED);
    spill->size += (off_t)blocks;
    return 0;
}

int sgrad_spill_return(struct sgrad_spill *spill, struct sgrad_tensor *tensor) {
    if (SGRAD_SIMULATED) return tensor->mapped = false, 0;
    const off_t at = tensor->at, blocks = (off_t)sgrad_spill_blocks(sgrad_view_bytes(&tensor->view));
    SGRAD_TRY(sgrad__tensor_return(tensor));
    fallocate(spill->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, blocks);     /* or it remains unused */
    return 0;
}

size_t sgrad_spill_resident(const struct sgrad_tensor *tensor) {
    const size_t bytes = sgrad_view_bytes(&tensor->view), size = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + size - 1) / size;
    if (!tensor->paged) return tensor->mapped ? 0 : bytes;
    unsigned char *page = sgrad_xcalloc(pages, 1);
    size_t here = mincore(tensor->home, bytes, page) ? pages : 0;
    for (size_t i = 0; i < pages; i++) here += page[i] & 1;
    free(page);
    return here * size;
}

void sgrad_spill_leave(void *memory, size_t bytes) {
    const uintptr_t start = sgrad_spill_blocks((uintptr_t)memory),
                    end = ((uintptr_t)memory + bytes) / SGRAD_SPILL_BLOCK * SGRAD_SPILL_BLOCK;
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
}

/* Returns the smallest free part of at least BYTES bytes; NULL: there is none. */
static struct room *find_room(const struct sgrad_spill *spill, size_t bytes) {
    struct room *best = NULL;
    for (struct room *r = spill->room; r < spill->room + spill->rooms; r++)
        if (!r->memory && r->place.bytes >= bytes && (!best || r->place.bytes < best->place.bytes)) best = r;
    return best;
}

static int add_room(struct sgrad_spill *spill, size_t bytes) {
    SGRAD_TRY(reserve(spill->folder, spill->file, spill->size, (off_t)bytes, &spill->direct));
    spill->room = sgrad_array_grow(spill->room, spill->rooms, sizeof *spill->room);
    spill->room[spill->rooms++] = (struct room){ .place = { spill->size, bytes } };
    spill->size += (off_t)bytes;
    return 0;
}

int sgrad_spill_room(struct sgrad_spill *spill, size_t bytes, void **memory) {
    const size_t blocks = sgrad_spill_blocks(bytes);
    if (!find_room(spill, blocks)) SGRAD_TRY(add_room(spill, blocks));
    struct room *r = find_room(spill, blocks);
    SGRAD_TRY(map(spill, r->place.at, r->place.bytes, &r->memory));
    *memory = r->memory;
    return 0;
}

void sgrad_spill_room_free(struct sgrad_spill *spill, void *memory) {
    for (struct room *r = spill->room; r < spill->room + spill->rooms; r++)
        if (r->memory == memory) r->memory = NULL;
    sgrad__unmap(memory);
}

int sgrad_spill_flush(struct sgrad_spill *spill) {
    const bool fails = fdatasync(spill->file);
    const int error = fails ? refuse(spill->folder, "copies of weights cannot be written") : 0;
    sgrad_monitor_lock(spill->monitor);
    const bool failed = spill->failed;      /* the system reports an error to one caller only */
    spill->failed |= fails;
    sgrad_monitor_unlock(spill->monitor);
    return failed && !error ? SGRAD_EIO : error;
}

void sgrad_spill_close(struct sgrad_spill *spill) {
    if (!spill) return;
    sgrad_monitor_lock(spill->monitor);
    spill->closing = true;
    sgrad_monitor_notify(spill->monitor);
    sgrad_monitor_unlock(spill->monitor);
    for (int i = 0; i < spill->threads; i++) sgrad_thread_join(spill->thread[i]);
    sgrad_monitor_destroy(spill->monitor);
    if (spill->file >= 0) close(spill->file);
    for (int i = 0; i < spill->blocks; i++)
        starpu_free_flags(spill->block[i].memory, spill->block[i].bytes, STARPU_MALLOC_PINNED);
    free(spill->block);
    free(spill->folder);
    free(spill->slot);
    free(spill->room);
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
    struct sgrad_spill_speed is = { 0 };
    if (SGRAD_SIMULATED)
        return *speed = (struct sgrad_spill_speed){ sgrad__simulation_disk(true), sgrad__simulation_disk(false) }, 0;
    SGRAD_TRY(create(folder, &file));
    if (reserve(folder, file, 0, SAMPLE, &direct)) return close(file), SGRAD_EIO;
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
