/* nccl.c: sums over ranks by NCCL, from GPU to GPU.
 *
 * Each rank uses its first GPU; StarPU transfers tensors that are in other memory to it. NCCL has a separate stream there, so
 * that sums overlap the computation of the worker:
 *
 *     worker's stream   backward 3   backward 2   backward 1   update 3 …
 *     NCCL's stream                  sum 3        sum 2        sum 1
 *
 * All ranks must begin the same sums in the same order, otherwise they deadlock; the tickets of allreduce.c ensure this. A sum
 * delays only the tasks that use its result: it waits for the other ranks in its separate stream, and they do not wait for any
 * later operation of this rank.
 *
 * Limits: there is one communicator, of all ranks, while a context is open. If a rank is lost, the others detect this by an error
 * of NCCL or MPI, and end. */
#include "config.h"
#include "runtime/collectives.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#ifdef SGRAD_HAVE_NCCL
#include <cuda_runtime.h>
#include <nccl.h>
#include <starpu.h>

static struct {
    ncclComm_t comm;            /* NULL: not open */
    cudaStream_t stream;
    int device, node;           /* CUDA's number, StarPU's memory node */
} nccl;

/* Ends all ranks unless WENT, because ranks that wait for this one in NCCL would never return. */
static void must(bool went, const char *why, const char *what) {
    if (went) return;
    sgrad_log_error(SGRAD_EDEVICE, "NCCL: %s, in %s: %s; set NCCL_DEBUG=WARN for details", why, what,
                    nccl.comm ? ncclGetLastError(nccl.comm) : "");
    sgrad_ranks_abort(1);
}
static void must_nccl(ncclResult_t status, const char *what) { must(!status, ncclGetErrorString(status), what); }
static void must_cuda(cudaError_t status, const char *what) { must(!status, cudaGetErrorString(status), what); }

static void begin(struct sgrad__sum *sum) {
    const ncclDataType_t type = sum->tensor->view.dtype == SGRAD_F64 ? ncclDouble : ncclFloat;
    void *memory = sgrad__tensor_memory(sum->tensor, nccl.node);
    cudaEvent_t over;
    must_cuda(cudaSetDevice(nccl.device), "cudaSetDevice");
    must_cuda(cudaEventCreateWithFlags(&over, cudaEventDisableTiming), "cudaEventCreate");
    must_nccl(ncclAllReduce(memory, memory, (size_t)sgrad_shape_count(&sum->tensor->view.shape), type, ncclSum, nccl.comm,
                            nccl.stream), sum->tensor->name);
    must_cuda(cudaEventRecord(over, nccl.stream), "cudaEventRecord");
    sum->under_way = over;
}

static bool has_ended(struct sgrad__sum *sum) {
    ncclResult_t error = ncclSuccess;
    const cudaError_t status = cudaEventQuery(sum->under_way);
    if (status == cudaErrorNotReady) {
        must_nccl(ncclCommGetAsyncError(nccl.comm, &error), "ncclCommGetAsyncError");
        must_nccl(error, sum->tensor->name);
        return false;
    }
    must_cuda(status, sum->tensor->name);
    cudaEventDestroy(sum->under_way);
    return true;
}

static int node(void) { return nccl.node; }

const struct sgrad__summing sgrad__nccl_summing = { .node = node, .begin = begin, .has_ended = has_ended };

/* Logs an error of the start, for example if two ranks have the same GPU. */
static int failed(ncclResult_t status) {
    return sgrad_log_error(
        SGRAD_EDEVICE,
        "NCCL cannot start on rank %d, GPU %d: %s: %s; give each rank another GPU, or set NCCL_DEBUG=WARN for details",
        sgrad__world.rank, nccl.device, ncclGetErrorString(status), ncclGetLastError(NULL));
}

/* Creates the communicator and the stream on the calling thread's current device. */
static int start(int rank, int ranks) {
    struct {
        ncclUniqueId id;
        ncclResult_t status;
    } first = { .status = ncclSuccess };
    if (rank == 0) first.status = ncclGetUniqueId(&first.id);
    sgrad_ranks_broadcast(&first, sizeof first, 0);
    if (first.status) return rank ? SGRAD_EDEVICE : failed(first.status);
    const ncclResult_t status = ncclCommInitRank(&nccl.comm, ranks, first.id, rank);
    if (status) return nccl.comm = NULL, failed(status);
    return cudaStreamCreateWithFlags(&nccl.stream, cudaStreamNonBlocking) ? failed(ncclUnhandledCudaError) : 0;
}

int sgrad_nccl_open(const struct sgrad_context *ctx) {
    int before, error = 0;
    if (ctx->ranks == 1 || nccl.comm) return 0;
    if (!ctx->gpus)
        error = sgrad_log_error(
            SGRAD_EDEVICE,
            "NCCL requires GPUs, but rank %d has none; give --gpus 1 and a GPU for each rank, or another --allreduce", ctx->rank);
    SGRAD_TRY(sgrad_ranks_agree(error));
    const int worker = starpu_worker_get_by_type(STARPU_CUDA_WORKER, 0);
    nccl.device = starpu_worker_get_devid(worker);
    nccl.node = (int)starpu_worker_get_memory_node((unsigned)worker);
    cudaGetDevice(&before);
    cudaSetDevice(nccl.device);
    error = start(ctx->rank, ctx->ranks);
    cudaSetDevice(before);
    return sgrad_ranks_agree(error);
}

const char *sgrad_nccl_lacks(void) { return NULL; }

void sgrad__nccl_close(void) {
    if (!nccl.comm) return;
    cudaSetDevice(nccl.device);
    cudaStreamDestroy(nccl.stream);
    ncclCommDestroy(nccl.comm);
    nccl.comm = NULL;
}
#else
const struct sgrad__summing sgrad__nccl_summing = { 0 };
const char *sgrad_nccl_lacks(void) {
    return "this Stargrad was built without NCCL; build it with CUDA and configure --with-nccl=DIR, or give another --allreduce";
}
int sgrad_nccl_open(const struct sgrad_context *ctx) {
    return ctx->ranks == 1 ? 0 : sgrad_log_error(SGRAD_EDEVICE, "%s", sgrad_nccl_lacks());
}
void sgrad__nccl_close(void) {}
#endif
