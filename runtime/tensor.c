/* tensor.c: shapes, and tensors: named memory that StarPU transfers between devices. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/partitions.h"
#include "runtime/runtime.h"
#include "runtime/spill.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <starpu.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [SGRAD_F32] = { "F32", 4 }, [SGRAD_BF16] = { "BF16", 2 }, [SGRAD_F16] = { "F16", 2 }, [SGRAD_F64] = { "F64", 8 },
    [SGRAD_I32] = { "I32", 4 }, [SGRAD_I64] = { "I64", 8 },   [SGRAD_U8] = { "U8", 1 },
    [SGRAD_U16] = { "U16", 2 },
};

size_t sgrad_dtype_size(enum sgrad_dtype dtype) { return dtypes[dtype].size; }
const char *sgrad_dtype_name(enum sgrad_dtype dtype) { return dtypes[dtype].name; }

struct sgrad_shape sgrad_shape(int rank, ...) {
    struct sgrad_shape shape = { .rank = rank };
    va_list list;
    va_start(list, rank);
    for (int i = 0; i < rank; i++) shape.dim[i] = va_arg(list, int);
    va_end(list);
    return shape;
}

int64_t sgrad_shape_count(const struct sgrad_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= shape->dim[i];
    return count;
}

bool sgrad_shape_equal(const struct sgrad_shape *one, const struct sgrad_shape *other) {
    if (one->rank != other->rank) return false;
    for (int i = 0; i < one->rank; i++)
        if (one->dim[i] != other->dim[i]) return false;
    return true;
}

const char *sgrad_shape_text(const struct sgrad_shape *shape, char text[SGRAD_SHAPE_TEXT]) {
    int used = snprintf(text, SGRAD_SHAPE_TEXT, "(");
    for (int i = 0; i < shape->rank && used < SGRAD_SHAPE_TEXT; i++)
        used += snprintf(text + used, (size_t)(SGRAD_SHAPE_TEXT - used), "%s%lld", i ? "," : "", (long long)shape->dim[i]);
    if (used < SGRAD_SHAPE_TEXT) snprintf(text + used, (size_t)(SGRAD_SHAPE_TEXT - used), ")");
    return text;
}

size_t sgrad_view_bytes(const struct sgrad_view *view) {
    return (size_t)sgrad_shape_count(&view->shape) * sgrad_dtype_size(view->dtype);
}

enum { PIECE = 4 << 20 };       /* bytes of a file that a copy has in memory at a time */
/* Flags of host buffers. STARPU_MALLOC_COUNT includes them in StarPU's memory limits and traces. */
enum { HOME = STARPU_MALLOC_PINNED | STARPU_MALLOC_COUNT };

static _Atomic size_t most;

void sgrad__tensors_look(void) {
    const size_t now = starpu_memory_get_used(STARPU_MAIN_RAM);
    size_t before = most;
    while (now > before && !atomic_compare_exchange_weak(&most, &before, now)) {}
}

size_t sgrad_tensors_peak_bytes(void) { return most; }

/* Values written to a simulated tensor are lost, and values read are 0. Pages of files that are mapped leave memory. */
static void copy(char *to, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes && !SGRAD_SIMULATED; at += PIECE) {
        const size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        memcpy(to + at, from + at, n);
        sgrad_mapped_drop_pages(to + at, n);
        sgrad_mapped_drop_pages(from + at, n);
    }
}

/* Allocates the host buffer, zeros. A large one that no GPU uses occupies memory only once it is written. */
static bool allocate_home(struct sgrad_tensor *tensor, size_t bytes) {
    enum { LARGE = 1 << 20 };
    if (!SGRAD_SIMULATED && bytes >= LARGE && !starpu_cuda_worker_get_count()) {
        tensor->home = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        tensor->paged = tensor->home != MAP_FAILED;
        if (tensor->paged) starpu_memory_allocate(STARPU_MAIN_RAM, bytes, STARPU_MEMORY_OVERFLOW);
        return tensor->paged;
    }
    if (starpu_malloc_flags(&tensor->home, bytes, HOME) != 0) return false;
    if (!SGRAD_SIMULATED) memset(tensor->home, 0, bytes);
    return true;
}

int sgrad_tensor_create(const char *name, enum sgrad_dtype dtype, struct sgrad_shape shape, enum sgrad_lifetime lifetime,
                        struct sgrad_tensor **tensor) {
    struct sgrad_tensor *t = sgrad_xcalloc(1, sizeof *t);
    t->name = sgrad_format("%s", name);
    t->view = (struct sgrad_view){ dtype, shape };
    t->lifetime = lifetime;
    size_t bytes = sgrad_view_bytes(&t->view);
    assert(bytes > 0);
    if (lifetime == SGRAD_PERSISTENT) {
        if (!allocate_home(t, bytes)) {
            int error = sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for %zu bytes", name, bytes);
            free(t->name);
            free(t);
            return error;
        }
        starpu_variable_data_register(&t->handle, STARPU_MAIN_RAM, (uintptr_t)t->home, bytes);
    } else {
        starpu_variable_data_register(&t->handle, -1, 0, bytes);
    }
    starpu_data_set_name(t->handle, t->name);
    *tensor = t;
    return 0;
}

int sgrad_tensor_create_in(const char *name, enum sgrad_dtype dtype, struct sgrad_shape shape, const struct sgrad_tensor *block,
                           size_t offset, struct sgrad_tensor **tensor) {
    struct sgrad_tensor *t = sgrad_xcalloc(1, sizeof *t);
    t->name = sgrad_format("%s", name);
    t->view = (struct sgrad_view){ dtype, shape };
    t->lifetime = SGRAD_PERSISTENT;
    t->borrows = true;
    t->home = (char *)block->home + offset;
    t->node = block->node;
    assert(block->home && offset + sgrad_view_bytes(&t->view) <= sgrad_view_bytes(&block->view));
    starpu_variable_data_register(&t->handle, t->node, (uintptr_t)t->home, sgrad_view_bytes(&t->view));
    starpu_data_set_name(t->handle, t->name);
    *tensor = t;
    return 0;
}

static void free_home(struct sgrad_tensor *tensor) {
    const size_t bytes = sgrad_view_bytes(&tensor->view);
    if (SGRAD_SIMULATED) tensor->mapped = false; /* there is no file (spill.c) */
    if (tensor->mapped) sgrad__unmap(tensor->home);
    else if (tensor->paged) munmap(tensor->home, bytes);
    else if (tensor->node && !tensor->borrows) starpu_free_on_node((unsigned)tensor->node, (uintptr_t)tensor->home, bytes);
    else if (!tensor->borrows) starpu_free_flags(tensor->home, bytes, HOME);
    if (tensor->paged) starpu_memory_deallocate(STARPU_MAIN_RAM, bytes);
}

/* Copies all pages that are not zero to TO, which is zero. Thus memory that has never been written stays absent. */
static void copy_written(char *to, const char *from, size_t bytes) {
    static const char zeros[4096];
    for (size_t at = 0; at < bytes; at += sizeof zeros) {
        const size_t n = bytes - at < sizeof zeros ? bytes - at : sizeof zeros;
        if (memcmp(from + at, zeros, n)) memcpy(to + at, from + at, n);
        if ((at + n) % PIECE && at + n < bytes) continue;
        const size_t start = at / PIECE * PIECE;
        sgrad_mapped_drop_pages(to + start, at + n - start);
        sgrad_mapped_drop_pages(from + start, at + n - start);
    }
}

/* Gives the tensor another host buffer, and frees the old one, as IS states. Both are zeros where nothing was written. */
static void replace_home(struct sgrad_tensor *tensor, struct sgrad_tensor is) {
    const size_t bytes = sgrad_view_bytes(&tensor->view);
    assert(tensor->lifetime == SGRAD_PERSISTENT && !tensor->borrows);
    starpu_data_unregister(tensor->handle);
    copy_written(is.home, tensor->home, bytes);
    free_home(tensor);
    *tensor = is;
    starpu_variable_data_register(&tensor->handle, STARPU_MAIN_RAM, (uintptr_t)tensor->home, bytes);
    starpu_data_set_name(tensor->handle, tensor->name);
}

void sgrad__tensor_to_file(struct sgrad_tensor *tensor, void *memory, int64_t at) {
    struct sgrad_tensor is = *tensor;
    is.home = memory, is.mapped = true, is.paged = false, is.at = at;
    replace_home(tensor, is);
}

int sgrad__tensor_to_memory(struct sgrad_tensor *tensor) {
    struct sgrad_tensor is = *tensor;
    const size_t bytes = sgrad_view_bytes(&tensor->view);
    is.mapped = false;
    if (!allocate_home(&is, bytes)) return sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for %zu bytes", tensor->name, bytes);
    replace_home(tensor, is);
    return 0;
}

void sgrad_tensor_destroy(struct sgrad_tensor *tensor) {
    if (!tensor) return;
    if (tensor->lifetime == SGRAD_PERSISTENT) {
        if (tensor->node) starpu_data_unregister_no_coherency(tensor->handle);
        else starpu_data_unregister(tensor->handle);
        free_home(tensor);
    } else {
        starpu_data_unregister_no_coherency(tensor->handle);
    }
    free(tensor->name);
    free(tensor);
}

/* Specifies main memory explicitly, because a callback may run on a device's worker, whose "local" memory is on the device. */
static int acquire(struct sgrad_tensor *tensor, enum starpu_data_access_mode mode) {
    return starpu_data_acquire_on_node(tensor->handle, STARPU_MAIN_RAM, mode);
}

int sgrad__tensor_acquire(struct sgrad_tensor *tensor, int node, enum sgrad_access access, void (*then)(void *arg), void *arg) {
    static const enum starpu_data_access_mode modes[] = { [SGRAD_R] = STARPU_R, [SGRAD_W] = STARPU_W, [SGRAD_RW] = STARPU_RW };
    return starpu_data_acquire_on_node_cb(tensor->handle, node, modes[access], then, arg);
}

void *sgrad__tensor_memory(const struct sgrad_tensor *tensor, int node) {
    return starpu_data_handle_to_pointer(tensor->handle, (unsigned)node);
}

void sgrad__tensor_release(struct sgrad_tensor *tensor, int node) { starpu_data_release_on_node(tensor->handle, node); }

int sgrad_tensor_read(struct sgrad_tensor *tensor, void *to) {
    if (acquire(tensor, STARPU_R) != 0) return sgrad_log_error(SGRAD_EDEVICE, "StarPU cannot read tensor %s", tensor->name);
    copy(to, sgrad__tensor_memory(tensor, STARPU_MAIN_RAM), sgrad_view_bytes(&tensor->view));
    sgrad__tensor_release(tensor, STARPU_MAIN_RAM);
    return sgrad_task_error();
}

int sgrad_tensor_write(struct sgrad_tensor *tensor, const void *from) {
    if (acquire(tensor, STARPU_W) != 0) return sgrad_log_error(SGRAD_EDEVICE, "StarPU cannot write tensor %s", tensor->name);
    copy(sgrad__tensor_memory(tensor, STARPU_MAIN_RAM), from, sgrad_view_bytes(&tensor->view));
    sgrad__tensor_release(tensor, STARPU_MAIN_RAM);
    return 0;
}

void sgrad_tensor_invalidate(struct sgrad_tensor *tensor) {
    starpu_data_invalidate_submit(tensor->handle);
}

int sgrad_tensor_copy(struct sgrad_tensor *from, struct sgrad_tensor *to) {
    assert(sgrad_view_bytes(&from->view) == sgrad_view_bytes(&to->view));
    if (starpu_data_cpy(to->handle, from->handle, 1, NULL, NULL) == 0) return 0;
    return sgrad_log_error(SGRAD_EDEVICE, "StarPU cannot copy tensor %s", from->name);
}

struct fetch {
    struct sgrad_tensor *tensor;
    void *to, *arg;
    void (*done)(void *arg);
};

static void fetched(void *arg) {
    struct fetch *f = arg;
    copy(f->to, sgrad__tensor_memory(f->tensor, STARPU_MAIN_RAM), sgrad_view_bytes(&f->tensor->view));
    sgrad__tensor_release(f->tensor, STARPU_MAIN_RAM);
    f->done(f->arg);
    free(f);
}

int sgrad_tensor_fetch(struct sgrad_tensor *tensor, void *to, void (*done)(void *arg), void *arg) {
    struct fetch *f = sgrad_xcalloc(1, sizeof *f);
    *f = (struct fetch){ tensor, to, arg, done };
    if (sgrad__tensor_acquire(tensor, STARPU_MAIN_RAM, SGRAD_R, fetched, f) == 0) return 0;
    free(f);
    return sgrad_log_error(SGRAD_EDEVICE, "StarPU cannot read tensor %s", tensor->name);
}
