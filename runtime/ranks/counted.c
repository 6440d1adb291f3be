/* counted.c: tensors of which a message has only the bytes in use. Each row starts with two numbers:
 *
 *     row 0     in use | bytes of a row | data … | unused …           message     in use | bytes of a row | data …
 *     row 1     in use | bytes of a row | data … | unused …                       in use | bytes of a row | data …
 *
 * For StarPU, such a tensor is a variable with functions that pack and unpack it. StarPU-MPI calls them when the content is
 * complete, sends the packed size first, and allocates memory for it on the receiver. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/partitions.h"

#include <assert.h>
#include <pthread.h>
#include <starpu.h>
#include <string.h>

/* Reads the header of the row at byte AT of DATA, which has BYTES bytes. Returns false after the last row. */
static bool read_header(const char *data, size_t at, size_t bytes, struct sgrad_counted *header) {
    if (at + sizeof *header > bytes) return false;
    memcpy(header, data + at, sizeof *header);
    assert(header->used >= (int64_t)sizeof *header && header->used <= header->row);
    return true;
}

static int pack(starpu_data_handle_t handle, unsigned node, void **packed, starpu_ssize_t *count) {
    const struct starpu_variable_interface *is = starpu_data_get_interface_on_node(handle, node);
    const char *data = (const char *)is->ptr;
    struct sgrad_counted row;
    *count = 0;
    for (size_t at = 0; read_header(data, at, is->elemsize, &row); at += (size_t)row.row) *count += row.used;
    if (!packed) return 0;
    char *to = *packed = (void *)starpu_malloc_on_node_flags(node, (size_t)*count, 0);
    for (size_t at = 0; read_header(data, at, is->elemsize, &row); at += (size_t)row.row, to += row.used)
        memcpy(to, data + at, (size_t)row.used);
    sgrad__messages_count(*count, true);
    return 0;
}

static int peek(starpu_data_handle_t handle, unsigned node, void *packed, size_t count) {
    const struct starpu_variable_interface *is = starpu_data_get_interface_on_node(handle, node);
    struct sgrad_counted row;
    const char *from = packed;
    for (size_t at = 0, read = 0; read_header(from, read, count, &row); at += (size_t)row.row, read += (size_t)row.used) {
        assert(read + (size_t)row.used <= count && at + (size_t)row.used <= is->elemsize);
        memcpy((char *)is->ptr + at, from + read, (size_t)row.used);
    }
    sgrad__messages_count((int64_t)count, false);
    return 0;
}

static int unpack(starpu_data_handle_t handle, unsigned node, void *packed, size_t count) {
    peek(handle, node, packed, count);
    starpu_free_on_node_flags(node, (uintptr_t)packed, count, 0);
    return 0;
}

static struct starpu_data_interface_ops ops;
static void make_ops(void) {
    ops = starpu_interface_variable_ops;
    ops.pack_data = pack;
    ops.peek_data = peek;
    ops.unpack_data = unpack;
    ops.name = "counted tensor";
    ops.interfaceid = starpu_data_interface_get_next_id();      /* StarPU-MPI has no MPI type for it, so it packs */
}

void sgrad_tensor_set_counted(struct sgrad_tensor *tensor) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (SGRAD_SIMULATED) return;    /* no content: messages have the size of the tensor */
    pthread_once(&once, make_ops);
    struct starpu_variable_interface is = { .id = STARPU_VARIABLE_INTERFACE_ID, .ptr = (uintptr_t)tensor->home,
                                            .dev_handle = (uintptr_t)tensor->home, .elemsize = sgrad_view_bytes(&tensor->view) };
    starpu_data_unregister_no_coherency(tensor->handle);
    starpu_data_register(&tensor->handle, tensor->home ? tensor->node : -1, &is, &ops);
    starpu_data_set_name(tensor->handle, tensor->name);
    tensor->counted = true;
}
