/* squared_norm_cuda.cu: squared_norm.c on CUDA devices. Tensors are divided into chunks, each of which is summed by one block.
 * Then one block per tensor adds the sums of its chunks, in an order that depends only on the shape. */
#include "codelets/cuda/cuda.h"

enum { CHUNK = 16384 }; /* elements */

struct job : sgrad__job {
    const float *x;
    double *out;
};

/* Returns the sum of MINE over all threads of the block; valid only in the first thread. */
static __device__ inline double block_sum(double mine) {
    __shared__ double all[256];
    all[threadIdx.x] = mine;
    for (unsigned half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) all[threadIdx.x] += all[threadIdx.x + half];
    }
    return all[0];
}

/* Sums each chunk. If a tensor has only one chunk, the sum is written to its output. */
static __global__ void chunks(SGRAD_SHARED_PARAMETER(struct sgrad__jobs<job>) jobs, double *partial) {
    const int j = sgrad__job_of_block(jobs.first, jobs.count);
    const struct job &job = jobs.job[j];
    const uint32_t first = (blockIdx.x - jobs.first[j]) * CHUNK, end = min(job.n, first + CHUNK);
    double sum = 0;
    for (uint32_t i = first + threadIdx.x; i < end; i += blockDim.x) sum += (double)job.x[i] * job.x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *(job.n <= CHUNK ? job.out : partial + blockIdx.x) = sum;
}

static __global__ void totals(SGRAD_SHARED_PARAMETER(struct sgrad__jobs<job>) jobs, const double *partial) {
    double sum = 0;
    if (jobs.job[blockIdx.x].n <= CHUNK) return;
    for (uint32_t i = jobs.first[blockIdx.x] + threadIdx.x; i < jobs.first[blockIdx.x + 1]; i += blockDim.x) sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *jobs.job[blockIdx.x].out = sum;
}

/* Operands: x (any shape), out (1). */
extern "C" void sgrad__squared_norm_cuda(const struct sgrad_args *args) {
    const auto make = [](const struct sgrad_args *one) {
        return job{ sgrad__job_of(&one->view[0]), (const float *)one->data[0], (double *)one->data[1] };
    };
    sgrad__each_jobs(args, CHUNK, make, [](const struct sgrad__jobs<job> &jobs, uint32_t blocks) {
        double *partial = sgrad__partials();
        if (blocks > SGRAD_PARTIALS) sgrad_cuda_fail("an operand has too many elements", "a squared norm");
        sgrad__launch_grid(chunks, dim3(blocks), dim3(256), jobs, partial);
        if (blocks > (uint32_t)jobs.count) sgrad__launch_grid(totals, dim3(jobs.count), dim3(256), jobs, partial);
    });
}
