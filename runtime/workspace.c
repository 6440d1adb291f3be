/* workspace.c: scratch buffers of tasks, with different sizes on CPUs and GPUs: cuDNN needs hundreds of megabytes, which every
 * CPU worker would otherwise allocate, pinned, without use. For StarPU, a workspace is a variable with a size per node. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <starpu.h>

struct room {
    struct starpu_variable_interface is;    /* its size: the larger one of the two below */
    size_t of_cpus, of_gpus;
};

static size_t bytes_on(const struct room *room, unsigned node) {
    const size_t bytes = starpu_node_get_kind(node) == STARPU_CPU_RAM ? room->of_cpus : room->of_gpus;
    return bytes ? bytes : 1;
}

static void begin(starpu_data_handle_t handle, int home, void *given) {
    (void)home;
    for (unsigned node = 0; node < STARPU_MAXNODES; node++)
        *(struct room *)starpu_data_get_interface_on_node(handle, node) = *(const struct room *)given;
}

static starpu_ssize_t allocate(void *interface, unsigned node) {
    struct room *r = interface;
    const size_t bytes = bytes_on(r, node);
    r->is.ptr = r->is.dev_handle = starpu_malloc_on_node(node, bytes);
    return r->is.ptr ? (starpu_ssize_t)bytes : -ENOMEM;
}

static void release(void *interface, unsigned node) {
    struct room *r = interface;
    starpu_free_on_node(node, r->is.ptr, bytes_on(r, node));
    r->is.ptr = r->is.dev_handle = 0;
}

static int is_like(void *a, void *b) {
    const struct room *x = a, *y = b;
    return x->of_cpus == y->of_cpus && x->of_gpus == y->of_gpus;
}

static struct starpu_data_interface_ops ops;
static void make_ops(void) {
    ops = starpu_interface_variable_ops;
    ops.register_data_handle = begin;
    ops.allocate_data_on_node = allocate;
    ops.free_data_on_node = release;
    ops.compare = is_like;
    ops.interface_size = sizeof(struct room);
    ops.interfaceid = starpu_data_interface_get_next_id();      /* so its memory is never reused for a variable of equal size */
}

int sgrad_workspace_create(size_t of_cpus, size_t of_gpus, struct sgrad_tensor **tensor) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct room room = { { .elemsize = sgrad_larger(of_cpus, of_gpus) }, of_cpus, of_gpus };
    if (!room.is.elemsize) return 0;
    pthread_once(&once, make_ops);
    room.is.id = ops.interfaceid;
    struct sgrad_tensor *t = sgrad_xcalloc(1, sizeof *t);
    t->name = sgrad_format("workspace");
    t->view = (struct sgrad_view){ SGRAD_U8, { 1, { (int64_t)room.is.elemsize } } };
    t->lifetime = SGRAD_SCRATCH;
    starpu_data_register(&t->handle, -1, &room, &ops);
    starpu_data_set_name(t->handle, t->name);
    *tensor = t;
    return 0;
}
