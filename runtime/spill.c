/* spill.c: moves tensors between memory and a file (spill.h): which moves may begin, and in which order. disk.h executes them. */
#include "config.h"
#include "runtime/disk.h"
#include "runtime/gpu_memory.h"
#include "runtime/internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <starpu.h>

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
    bool writes;
    int awaited;                    /* tensors to which StarPU has not granted access yet */
    struct place place;             /* set when it begins, like MEMORY */
    char *memory;
    size_t cut;                     /* bytes in pieces that have begun; 0: it has not begun */
    int pieces;                     /* that have begun, but not ended */
    long turn;                      /* moves of its slot that must finish before it */
    struct sgrad_spill *spill;
    struct transfer *next;
};

/* Pinned memory with some of the slots. */
struct block {
    void *memory;
    size_t bytes;
};

/* A free part of the file, where slots were. */
struct gap {
    off_t at, bytes;
};

/* A part of the file for a copy of data. */
struct region {
    struct place place;
    void *memory;                   /* where it is mapped; NULL: it is free */
};

struct sgrad_spill {
    int file;                       /* -1: none, in a simulation or if RAM */
    bool ram;                       /* slots are in blocks of main memory */
    off_t size;                     /* end of the last part of the file that is in use; the file may be longer */
    int blocks;
    struct block *block;
    char *folder;
    int slots, active;              /* active: transfers in progress */
    struct slot *slot;
    int gaps;
    struct gap *gap;                /* in the order of addresses, not adjacent */
    int regions;
    struct region *region;
    struct sgrad_monitor *monitor;  /* protects all members that change */
    struct transfer *first, **last; /* transfers that have not finished, in the order of submission */
    bool failed;                    /* an error has been logged */
    double since;                   /* time at which ACTIVE became 1 */
    struct sgrad_spill_totals totals;
    struct sgrad__disk *disk;
};

/* ---- moves ---- */

static void is_ready(void *arg) {
    struct transfer *t = arg;
    struct sgrad_spill *spill = t->spill;
    sgrad_monitor_lock(spill->monitor);
    if (!--t->awaited) sgrad__disk_wake(spill->disk);
    sgrad_monitor_unlock(spill->monitor);
}

static bool has_piece(const struct sgrad_spill *spill, const struct transfer *t) {
    if (t->cut) return t->cut < t->place.bytes;
    return !t->awaited && (t->is.home || spill->slot[t->is.slot].finished == t->turn);
}

/* Returns the first transfer of which a piece can begin; NULL: there is none. */
static struct transfer *find_ready(const struct sgrad_spill *spill) {
    struct transfer *t = spill->first;
    while (t && !has_piece(spill, t)) t = t->next;
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

static void begin(struct sgrad_spill *spill, struct transfer *t) {
    t->place = place_of(spill, &t->is);
    assert(t->place.bytes);
    t->memory = sgrad__tensor_memory(t->is.tensor, t->is.tensor->node);
    if (!spill->active++) spill->since = sgrad_time_monotonic();
    sgrad__trace_move(t->is.tensor->name, t->writes, true);
}

/* Returns the next piece of T: whole blocks, or the last bytes, which are less than a block. Without a file, a move is one
 * piece. */
static struct sgrad__piece cut(const struct sgrad_spill *spill, struct transfer *t) {
    const struct place *p = &t->place;
    size_t bytes = p->bytes - t->cut;
    if (spill->file >= 0 && bytes > SGRAD__PIECE) bytes = SGRAD__PIECE;
    if (spill->file >= 0 && bytes > SGRAD_SPILL_BLOCK) bytes -= bytes % SGRAD_SPILL_BLOCK;
    const size_t done = t->cut;
    t->cut += bytes;
    t->pieces++;
    return (struct sgrad__piece){ t->writes, t->memory + done, bytes, p->at + (off_t)done, p->memory, t };
}

static bool next(void *arg, struct sgrad__piece *piece) {
    struct sgrad_spill *spill = arg;
    sgrad_monitor_lock(spill->monitor);
    struct transfer *t = find_ready(spill);
    if (t && !t->cut) begin(spill, t);
    if (t) *piece = cut(spill, t);
    sgrad_monitor_unlock(spill->monitor);
    return t;
}

/* Ends transfer T: moves of its slot and tasks that wait for it may begin. */
static void finish(struct sgrad_spill *spill, struct transfer *t) {
    sgrad__trace_move(t->is.tensor->name, t->writes, false);
    sgrad_monitor_lock(spill->monitor);
    *(t->writes ? &spill->totals.written : &spill->totals.read) += (double)t->place.bytes;
    if (!--spill->active) spill->totals.seconds += sgrad_time_monotonic() - spill->since;
    if (!t->is.home) spill->slot[t->is.slot].finished++;
    remove_from_list(spill, t);
    sgrad_monitor_notify(spill->monitor);
    sgrad_monitor_unlock(spill->monitor);
    sgrad__tensor_release(t->is.tensor, t->is.tensor->node);
    if (t->is.home) sgrad__tensor_release(t->is.home, STARPU_MAIN_RAM);
    if (t->is.done) t->is.done(t->is.arg);
    free(t);
    sgrad__disk_wake(spill->disk);
}

static void ended(void *arg, const struct sgrad__piece *piece, const char *why) {
    struct sgrad_spill *spill = arg;
    struct transfer *t = piece->of;
    if (spill->file >= 0) sgrad__disk_slow_down(piece->bytes);
    if (why) fail(spill, t, why);
    sgrad_monitor_lock(spill->monitor);
    if (why) t->cut = t->place.bytes;           /* the other pieces need not begin */
    const bool last = !--t->pieces && t->cut == t->place.bytes;
    sgrad_monitor_unlock(spill->monitor);
    if (last) finish(spill, t);
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
    if (!move->home) spill->slot[move->slot].submitted--;
    sgrad_monitor_unlock(spill->monitor);
    return sgrad_log_error(SGRAD_EDEVICE, "StarPU cannot access tensor %s", move->tensor->name);
}

int sgrad_spill_write(struct sgrad_spill *spill, const struct sgrad_spill_move *move) { return submit(spill, move, true); }
int sgrad_spill_read(struct sgrad_spill *spill, const struct sgrad_spill_move *move) { return submit(spill, move, false); }

const char *sgrad_spill_folder(const struct sgrad_spill *spill) { return spill->folder; }
const char *sgrad_spill_engine(const struct sgrad_spill *spill) {
    return spill->ram ? "CUDA" : SGRAD_SIMULATED ? "simulated" : sgrad__disk_engine_name(spill->disk);
}

struct sgrad_spill_totals sgrad_spill_totals(const struct sgrad_spill *spill) {
    sgrad_monitor_lock(spill->monitor);
    struct sgrad_spill_totals totals = spill->totals;
    if (spill->active) totals.seconds += sgrad_time_monotonic() - spill->since;
    sgrad_monitor_unlock(spill->monitor);
    return totals;
}

/* ---- opening and closing ---- */

/* For FILE in FOLDER, or for main memory (RAM). Owns FILE. */
static int start(const char *folder, int file, bool ram, struct sgrad_spill **spill) {
    struct sgrad_spill *s = sgrad_xcalloc(1, sizeof *s);
    s->file = file;
    s->ram = ram;
    s->folder = sgrad_format("%s", folder);
    s->monitor = sgrad_monitor_create();
    s->last = &s->first;
    starpu_malloc_set_align(SGRAD_SPILL_BLOCK);     /* of tensors created from now on, so that they are not copied */
    const int error = sgrad__disk_open(file, &(struct sgrad__disk_user){ next, ended, s }, &s->disk);
    if (!error) return *spill = s, 0;
    sgrad_spill_close(s);
    return error;
}

int sgrad_spill_open(const char *folder, struct sgrad_spill **spill) {
    int file;
    SGRAD_TRY(sgrad__disk_create(folder, &file));
    return start(folder, file, false, spill);
}

int sgrad_spill_open_ram(struct sgrad_spill **spill) {
    struct sgrad_gpu_copier *copier = sgrad_gpu_copier_open();
    if (!copier) return sgrad_log_error(SGRAD_EDEVICE, "--spill ram: CUDA cannot create a stream; see 'stargrad doctor'");
    sgrad_gpu_copier_close(copier);
    return start("main memory", -1, true, spill);
}

static void free_block(struct sgrad_spill *spill, const void *memory) {
    struct block *b = spill->block;
    while (b->memory != memory) b++;
    starpu_free_flags(b->memory, b->bytes, STARPU_MALLOC_PINNED);
    *b = spill->block[--spill->blocks];
}

/* Adds a block of pinned memory. Returns NULL if there is too little memory. */
static char *add_block(struct sgrad_spill *spill, size_t bytes) {
    struct block block = { .bytes = bytes };
    if (starpu_malloc_flags(&block.memory, bytes, STARPU_MALLOC_PINNED)) return NULL;
    spill->block = sgrad_array_grow(spill->block, spill->blocks, sizeof *spill->block);
    spill->block[spill->blocks++] = block;
    return block.memory;
}

/* Takes BYTES bytes from the first gap that has them, else from the end of the file, *END, which grows. Returns their start. */
static off_t take(struct gap *gap, int gaps, off_t bytes, off_t *end) {
    struct gap *g = gap;
    while (g < gap + gaps && g->bytes < bytes) g++;
    off_t *start = g < gap + gaps ? &g->at : end;
    if (start != end) g->bytes -= bytes;
    *start += bytes;
    return *start - bytes;
}

/* Sets the places of slots in the file. */
static int place_in_file(struct sgrad_spill *spill, struct slot *slot, int slots) {
    const size_t bytes = (size_t)spill->gaps * sizeof *spill->gap;
    struct gap *gap = sgrad_xcalloc(1, bytes + 1);
    off_t end = spill->size;
    if (bytes) memcpy(gap, spill->gap, bytes);
    for (int i = 0; i < slots; i++)
        slot[i].place.at = take(gap, spill->gaps, (off_t)sgrad_spill_blocks(slot[i].place.bytes), &end);
    const int error = end > spill->size ? sgrad__disk_reserve(spill->folder, spill->file, spill->size, end - spill->size) : 0;
    if (!error && bytes) memcpy(spill->gap, gap, bytes);
    if (!error) spill->size = end;
    free(gap);
    return error;
}

/* Sets the places of slots in a new block of main memory. */
static int place_in_ram(struct sgrad_spill *spill, struct slot *slot, int slots) {
    size_t size = 0;
    for (int i = 0; i < slots; i++) size += sgrad_spill_blocks(slot[i].place.bytes);
    char *memory = add_block(spill, size);
    if (!memory)
        return sgrad_log_error(SGRAD_ENOMEM, "--spill ram: no pinned main memory for %.2f MB; use a smaller --micro-batch",
                               1e-6 * (double)size);
    for (int i = 0; i < slots; memory += sgrad_spill_blocks(slot[i++].place.bytes)) slot[i].place.memory = memory;
    return 0;
}

int sgrad_spill_reserve(struct sgrad_spill *spill, const size_t *bytes, int slots, int *first) {
    struct slot *slot = sgrad_xcalloc((size_t)slots + 1, sizeof *slot);
    for (int i = 0; i < slots; i++) slot[i].place.bytes = bytes[i];
    const int error = spill->ram ? place_in_ram(spill, slot, slots) : place_in_file(spill, slot, slots);
    if (error) return free(slot), error;
    sgrad_monitor_lock(spill->monitor);
    *first = spill->slots;
    for (int i = 0; i < slots; i++) {
        spill->slot = sgrad_array_grow(spill->slot, spill->slots, sizeof *spill->slot);
        spill->slot[spill->slots++] = slot[i];
    }
    sgrad_monitor_unlock(spill->monitor);
    free(slot);
    return 0;
}

static int by_address(const void *a, const void *b) {
    const off_t x = ((const struct gap *)a)->at, y = ((const struct gap *)b)->at;
    return (x > y) - (x < y);
}

/* Joins adjacent gaps. Removes those without bytes, and the one at the end of the file, so that the next slots begin there. */
static void join_gaps(struct sgrad_spill *spill) {
    struct gap *last = NULL;
    qsort(spill->gap, (size_t)spill->gaps, sizeof *spill->gap, by_address);
    for (struct gap *g = spill->gap; g < spill->gap + spill->gaps; g++) {
        if (!g->bytes) continue;
        if (last && last->at + last->bytes == g->at) last->bytes += g->bytes;
        else *(last = last ? last + 1 : spill->gap) = *g;
    }
    spill->gaps = last ? (int)(last - spill->gap) + 1 : 0;
    if (last && last->at + last->bytes == spill->size) spill->size = last->at, spill->gaps--;
}

void sgrad_spill_free(struct sgrad_spill *spill, int first, int slots) {
    sgrad_monitor_lock(spill->monitor);
    if (spill->ram) free_block(spill, spill->slot[first].place.memory);
    for (int i = first; i < first + slots && !spill->ram; i++) {
        const struct place *p = &spill->slot[i].place;
        spill->gap = sgrad_array_grow(spill->gap, spill->gaps, sizeof *spill->gap);
        spill->gap[spill->gaps++] = (struct gap){ p->at, (off_t)sgrad_spill_blocks(p->bytes) };
    }
    if (!spill->ram) join_gaps(spill);
    if (first + slots == spill->slots) spill->slots = first;    /* else their numbers remain unused */
    sgrad_monitor_unlock(spill->monitor);
}

/* Maps BYTES bytes from AT on, which must have been reserved. */
static int map(const struct sgrad_spill *spill, off_t at, size_t bytes, void **memory) {
    char *name = sgrad_format("--spill %s: weights or optimizer states", spill->folder);
    errno = sgrad__map(spill->file, at, bytes, name, memory);
    free(name);
    return errno ? sgrad__disk_refuse(spill->folder, "a file in it cannot be mapped") : 0;
}

int sgrad_spill_to_file(struct sgrad_spill *spill, struct sgrad_tensor *tensor) {
    const size_t bytes = sgrad_view_bytes(&tensor->view), blocks = sgrad_spill_blocks(bytes);
    void *memory;
    if (SGRAD_SIMULATED) return tensor->mapped = true, 0; /* its memory has no pages that could leave */
    SGRAD_TRY(sgrad__disk_reserve(spill->folder, spill->file, spill->size, (off_t)blocks));
    SGRAD_TRY(map(spill, spill->size, bytes, &memory));
    sgrad__tensor_to_file(tensor, memory, spill->size);
    if (msync(memory, bytes, MS_SYNC)) return sgrad__disk_refuse(spill->folder, "a file in it cannot be written");
    sgrad_mapped_drop_pages(memory, bytes);
    posix_fadvise(spill->file, spill->size, (off_t)blocks, POSIX_FADV_DONTNEED);
    spill->size += (off_t)blocks;
    return 0;
}

int sgrad_spill_to_memory(struct sgrad_spill *spill, struct sgrad_tensor *tensor) {
    if (SGRAD_SIMULATED) return tensor->mapped = false, 0;
    const off_t at = tensor->at, blocks = (off_t)sgrad_spill_blocks(sgrad_view_bytes(&tensor->view));
    SGRAD_TRY(sgrad__tensor_to_memory(tensor));
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

void sgrad_spill_drop_pages(void *memory, size_t bytes) {
    const uintptr_t start = sgrad_spill_blocks((uintptr_t)memory),
                    end = ((uintptr_t)memory + bytes) / SGRAD_SPILL_BLOCK * SGRAD_SPILL_BLOCK;
    if (start < end) madvise((void *)start, end - start, MADV_DONTNEED);
}

/* Returns the smallest free part of at least BYTES bytes; NULL: there is none. */
static struct region *find_region(const struct sgrad_spill *spill, size_t bytes) {
    struct region *best = NULL;
    for (struct region *r = spill->region; r < spill->region + spill->regions; r++)
        if (!r->memory && r->place.bytes >= bytes && (!best || r->place.bytes < best->place.bytes)) best = r;
    return best;
}

static int add_region(struct sgrad_spill *spill, size_t bytes) {
    SGRAD_TRY(sgrad__disk_reserve(spill->folder, spill->file, spill->size, (off_t)bytes));
    spill->region = sgrad_array_grow(spill->region, spill->regions, sizeof *spill->region);
    spill->region[spill->regions++] = (struct region){ .place = { spill->size, bytes } };
    spill->size += (off_t)bytes;
    return 0;
}

int sgrad_spill_map(struct sgrad_spill *spill, size_t bytes, void **memory) {
    const size_t blocks = sgrad_spill_blocks(bytes);
    if (!find_region(spill, blocks)) SGRAD_TRY(add_region(spill, blocks));
    struct region *r = find_region(spill, blocks);
    SGRAD_TRY(map(spill, r->place.at, r->place.bytes, &r->memory));
    *memory = r->memory;
    return 0;
}

void sgrad_spill_unmap(struct sgrad_spill *spill, void *memory) {
    for (struct region *r = spill->region; r < spill->region + spill->regions; r++)
        if (r->memory == memory) r->memory = NULL;
    sgrad__unmap(memory);
}

int sgrad_spill_flush(struct sgrad_spill *spill) {
    const bool fails = fdatasync(spill->file);
    const int error = fails ? sgrad__disk_refuse(spill->folder, "copies of weights cannot be written") : 0;
    sgrad_monitor_lock(spill->monitor);
    const bool failed = spill->failed;      /* the system reports an error to one caller only */
    spill->failed |= fails;
    sgrad_monitor_unlock(spill->monitor);
    return failed && !error ? SGRAD_EIO : error;
}

void sgrad_spill_close(struct sgrad_spill *spill) {
    if (!spill) return;
    sgrad_monitor_lock(spill->monitor);
    while (spill->first) sgrad_monitor_wait(spill->monitor, 0);
    sgrad_monitor_unlock(spill->monitor);
    sgrad__disk_close(spill->disk);
    sgrad_monitor_destroy(spill->monitor);
    if (spill->file >= 0) close(spill->file);
    while (spill->blocks) free_block(spill, spill->block->memory);
    free(spill->block);
    free(spill->folder);
    free(spill->slot);
    free(spill->gap);
    free(spill->region);
    free(spill);
}

