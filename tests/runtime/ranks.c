/* Operations of several ranks, started by together.py as `ranks NAME`: each rank runs the test with this name. Without NAME:
 * the tests of one rank.
 *
 *     sums             MPI_Iallreduce of tensors that are too long for one MPI call
 *     files PIPE       all wait for rank 0, which waits until a process opens a pipe
 *     tasks PIPE       the same; meanwhile, the tasks of rank 2 do not progress */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <mpi.h>
#include <semaphore.h>

enum { LIMIT = 1000 };

static struct sgrad_context *context;
static int longest;     /* sum that MPI was asked for */

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request) {
    if (count > longest) longest = count;
    return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

static void is_summed(void *arg) { sem_post(arg); }

static int sum(enum sgrad_dtype dtype, int count) {
    struct sgrad_tensor *t;
    double *x = sgrad_xcalloc((size_t)count, sizeof *x);
    sem_t summed;
    int wrong = 0;
    sem_init(&summed, 0, 0);
    for (int i = 0; i < count; i++)
        if (dtype == SGRAD_F64) x[i] = i + context->rank;
        else ((float *)x)[i] = (float)(i + context->rank);
    SGRAD_TRY(sgrad_tensor_create("x", dtype, sgrad_shape(1, count), SGRAD_PERSISTENT, &t));
    SGRAD_TRY(sgrad_tensor_write(t, x));
    SGRAD_TRY(sgrad_allreduce(&(struct sgrad_message){ .tensor = t, .done = is_summed, .arg = &summed }));
    while (sem_wait(&summed)) continue;
    SGRAD_TRY(sgrad_tensor_read(t, x));
    for (int i = 0; i < count; i++) {
        const double is = dtype == SGRAD_F64 ? x[i] : ((float *)x)[i];
        wrong += is != context->ranks * (i + (context->ranks - 1) / 2.0);
    }
    sgrad_tensor_destroy(t);
    sem_destroy(&summed);
    free(x);
    if (wrong) printf("rank %d: %d of %d sums are wrong\n", context->rank, wrong, count);
    return wrong ? 1 : 0;
}

static int sums(void) {
    const int counts[] = { 1, LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT, 4 * LIMIT + 500 };
    int wrong = 0;
    sgrad__message_limit = LIMIT;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) wrong |= sum(SGRAD_F32, counts[i]) | sum(SGRAD_F64, counts[i]);
    printf("rank %d: the longest sum was of %d\n", context->rank, longest);
    return wrong;
}

static int files(const char *pipe) {
    if (context->rank == 0) close(open(pipe, O_RDONLY));
    const int error = sgrad_ranks_await(context->rank == 1 ? SGRAD_EIO : 0, "for rank 0, which reads a pipe");
    printf("rank %d: %s\n", context->rank, sgrad_strerror(error));
    return 0;
}

static int tasks(const char *pipe) {
    if (context->rank == 2) sgrad_watchdog_report(true, "for tasks of its own");
    return files(pipe);
}

/* 4 GiB of which there is no byte, and as many as MPI counts. */
static void length(void) {
    struct sgrad_tensor *huge;
    const struct sgrad_message m = { .tag = 1 };
    struct sgrad_message to = m;
    assert_done(sgrad_tensor_create("huge", SGRAD_F32, sgrad_shape(2, 1 << 15, 1 << 15), SGRAD_TRANSIENT, &huge));
    to.tensor = huge;
    assert_fails(sgrad_send(&to), SGRAD_EINVAL,
                 "huge: has 4294967296 bytes, but a message between ranks can have at most 2147483647");
    assert_fails(sgrad_receive(&to), SGRAD_EINVAL,
                 "huge: has 4294967296 bytes, but a message between ranks can have at most 2147483647");
    sgrad_tensor_destroy(huge);
}

static void one_rank(void **state) {
    (void)state;
    length();
    assert_done(sgrad_ranks_await(0, "for nobody"));
    assert_int_equal(sgrad_ranks_await(SGRAD_EIO, "for nobody"), SGRAD_EIO);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "", *pipe = argc > 2 ? argv[2] : NULL;
    const struct CMUnitTest tests[] = {
        sentence("a single rank refuses messages that are too long, and does not wait", one_rank),
    };
    int status = 2;
    if (sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1, .timeout = 1 }, &context)) return 1;
    if (strcmp(name, "sums") && !pipe) status = run_sentences(argc, argv, tests, NULL, NULL);
    if (!strcmp(name, "sums")) status = sums();
    if (!strcmp(name, "files") && pipe) status = files(pipe);
    if (!strcmp(name, "tasks") && pipe) status = tasks(pipe);
    sgrad_context_close(context);
    return status;
}
