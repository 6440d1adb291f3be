/* nccl.cc: the functions of NCCL that Stargrad calls, on top of MPI, which the program must have initialised. A communicator
 * has all ranks, each with one device. The thread of a stream computes a sum when it reaches it, and waits there for the other
 * ranks. If the ranks submit different sums, or in a different order, MPI ends the program or the program hangs, as with NCCL. */
#include "tests/gpu/emulator/emulator.h"

#include <cstdio>
#define OMPI_SKIP_MPICXX 1 /* MPI's own C++ */
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <nccl.h>
#include <unistd.h>

using namespace emulator;

struct ncclComm {
    int device;
    MPI_Comm ranks;
};

extern "C" {

const char *ncclGetErrorString(ncclResult_t status) { return status ? "an error" : "no error"; }
const char *ncclGetLastError(ncclComm_t) { return "nothing more is known"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "emulated NCCL, process %d", (int)getpid());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    int all, own;
    ncclUniqueId first = id;
    struct ncclComm *made = new ncclComm();
    cudaGetDevice(&made->device);
    MPI_Comm_dup(MPI_COMM_WORLD, &made->ranks);
    MPI_Comm_size(made->ranks, &all);
    MPI_Comm_rank(made->ranks, &own);
    MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, made->ranks);
    if (all != ranks || own != rank) fail("NCCL: rank %d of %d says that it is rank %d of %d", own, all, rank, ranks);
    if (memcmp(&first, &id, sizeof id) != 0) fail("NCCL: rank %d has another id than rank 0", rank);
    *comm = made;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *error) {
    *error = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    MPI_Comm_free(&comm->ranks);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    int current;
    cudaGetDevice(&current);
    if (current != comm->device || device_of_stream(stream) != comm->device)
        fail("NCCL: a communicator of device %d is used with another", comm->device);
    if ((type != ncclFloat && type != ncclDouble) || op != ncclSum || from != to) return ncclInvalidArgument;
    const size_t bytes = count * (type == ncclDouble ? sizeof(double) : sizeof(float));
    void *memory = memory_of(stream, to, bytes, "NCCL");
    count_work(LIBRARY_CALLS);
    enqueue(stream, [=] {
        MPI_Request request;
        int over = 0;
        MPI_Iallreduce(MPI_IN_PLACE, memory, (int)count, type == ncclDouble ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, comm->ranks,
                       &request);
        for (;; usleep(20)) { /* a CPU that the other ranks need */
            MPI_Test(&request, &over, MPI_STATUS_IGNORE);
            if (over) break;
        }
    });
    return ncclSuccess;
}
} // extern "C"
