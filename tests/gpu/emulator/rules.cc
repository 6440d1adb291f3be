/* rules.cc: programs that break one rule of CUDA each, which the emulator must detect. Usage: rules NAME; without NAME it
 * prints a list. It prints the result of the wrong call and the state of the capture. For some rules the program ends instead. */
#include "tests/gpu/emulator/libraries.h"

#include <cstdio>
#include <cstdlib>
#include <cublas_v2.h>
#include <thread>

#include "codelets/cuda/tensor_cores.h"

/* What the library has for these; no task runs here. */
extern "C" void sgrad_cuda_fail(const char *why, const char *where) {
    fprintf(stderr, "CUDA: %s, in %s\n", why, where);
    abort();
}
extern "C" bool sgrad_cuda_excuses(const char *, const char *) { return false; }
extern "C" void sgrad__lapack_alone(void) {}

namespace {

cudaStream_t stream;
extern "C" struct CUstream_st *sgrad_cuda_stream(void) { return stream; }

cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t made;
    SGRAD_CUDA(cudaStreamCreateWithFlags(&made, flags));
    return made;
}

void *new_memory(size_t bytes = 1024) {
    void *made;
    SGRAD_CUDA(cudaMalloc(&made, bytes));
    return made;
}

/* While the stream is captured. */
void while_captured(const std::function<cudaError_t()> &breaks) {
    cudaGraph_t graph = NULL;
    SGRAD_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    printf("%s\n", cudaGetErrorName(breaks()));
    printf("capture: %s\n", cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
}

__global__ void set(uint32_t n, float *to) {
    const uint32_t i = sgrad__thread();
    if (i < n) to[i] = 1;
}
void launch(void *to) { sgrad__launch(set, 4, to); }

__global__ void add_packs(uint32_t n, const char *from, char *to) {
    float v[4];
    if (sgrad__thread() >= n) return;
    sgrad__load((const sgrad__pack<float, 4> *)from, v);
    sgrad__store((sgrad__pack<float, 4> *)to, v);
}
void add_at(size_t from, size_t to) {
    char *memory = (char *)new_memory();
    sgrad__launch(add_packs, 1, (void *)(memory + from), (void *)(memory + to));
    SGRAD_CUDA(cudaStreamSynchronize(stream));
}

/* A warp that copies 16 bytes to shared memory and takes them from there, as a row of matrices, SHIFTED bytes further on. */
__global__ void through_shared(uint32_t, const char *from, char *to, int shifted, bool waits) {
    alignas(16) __shared__ char there[32];
    uint32_t word[4];
    copy_later(there + shifted, from);
    end_copies();
    if (waits) wait_for_copies<0>();
    load_matrices(word, there + shifted);
    if (threadIdx.x == 0) memcpy(to, word, sizeof word);
}
void copy_through(int shifted, bool waits) {
    char *memory = (char *)new_memory();
    SGRAD_CUDA(cudaMemset(memory, 0, 1024));
    sgrad__launch_warps(through_shared, 1, (void *)memory, (void *)(memory + 512), shifted, waits);
    SGRAD_CUDA(cudaStreamSynchronize(stream));
}

__global__ void meet(uint32_t, float *to) {
    if (threadIdx.x % 2) to[threadIdx.x] = sgrad__warp_sum(1.0f);
    else multiply_tf32(to, (const uint32_t *)to, (const uint32_t *)to);
}

cudnnHandle_t new_cudnn() {
    cudnnHandle_t made;
    SGRAD_CUDA(cudnnCreate(&made));
    return made;
}

const struct rule {
    const char *name;
    void (*breaks)();
} rules[] = {
    { "none", [] { void *p = new_memory(); while_captured([=] { return launch(p), cudaSuccess; }); } },
    { "allocation", [] { while_captured([] { void *p; return cudaMalloc(&p, 16); }); } },
    { "free", [] { void *p = new_memory(); while_captured([=] { return cudaFree(p); }); } },
    { "host allocation", [] { while_captured([] { void *p; return cudaHostAlloc(&p, 16, cudaHostAllocDefault); }); } },
    { "synchronous copy", [] {
         void *p = new_memory();
         while_captured([=] { float x = 0; return cudaMemcpy(p, &x, sizeof x, cudaMemcpyHostToDevice); });
     } },
    { "synchronous set", [] { void *p = new_memory(); while_captured([=] { return cudaMemset(p, 0, 16); }); } },
    { "wait for the stream", [] { while_captured([] { return cudaStreamSynchronize(stream); }); } },
    { "question to the stream", [] { while_captured([] { return cudaStreamQuery(stream); }); } },
    { "wait for the device", [] { while_captured([] { return cudaDeviceSynchronize(); }); } },
    { "question to an event", [] {
         cudaEvent_t event;
         SGRAD_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
         while_captured([=] { return cudaEventQuery(event); });
     } },
    { "foreign event", [] {
         cudaEvent_t event;
         SGRAD_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
         SGRAD_CUDA(cudaEventRecord(event, new_stream()));
         while_captured([=] { return cudaStreamWaitEvent(stream, event, 0); });
     } },
    { "copy on the default stream", [] {
         void *p = new_memory();
         while_captured([=] { float x = 0; return cudaMemcpyAsync(p, &x, sizeof x, cudaMemcpyHostToDevice, NULL); });
     } },
    { "launch on the default stream", [] {
         void *p = new_memory();
         while_captured([=] {
             const cudaLaunchConfig_t config = { dim3(1), dim3(32), 0, NULL, NULL, 0 };
             return cudaLaunchKernelEx(&config, set, 4u, (float *)p);
         });
     } },
    { "another thread's default stream", [] {
         void *p = new_memory();
         stream = new_stream(cudaStreamDefault);
         while_captured([=] {
             std::thread([=] { cudaMemset(p, 0, 16); }).join();
             return cudaSuccess;
         });
     } },
    { "destroyed stream", [] {
         cudaStream_t other = new_stream();
         SGRAD_CUDA(cudaStreamDestroy(other));
         cudaStreamSynchronize(other);
     } },
    { "destroyed event", [] {
         cudaEvent_t event;
         SGRAD_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
         SGRAD_CUDA(cudaEventDestroy(event));
         cudaEventRecord(event, stream);
     } },
    { "event of another device", [] {
         cudaEvent_t event;
         SGRAD_CUDA(cudaSetDevice(1));
         SGRAD_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
         printf("%s\n", cudaGetErrorName(cudaEventRecord(event, stream)));
     } },
    { "event without an end", [] {
         cudaEvent_t event[2];
         float ms;
         for (cudaEvent_t &e : event) SGRAD_CUDA(cudaEventCreateWithFlags(&e, cudaEventDefault));
         SGRAD_CUDA(cudaEventRecord(event[0], stream));
         SGRAD_CUDA(cudaEventSynchronize(event[0]));
         printf("%s\n", cudaGetErrorName(cudaEventElapsedTime(&ms, event[0], event[1])));
     } },
    { "launch on another device's stream", [] {
         void *p = new_memory();
         SGRAD_CUDA(cudaSetDevice(1));
         const cudaLaunchConfig_t config = { dim3(1), dim3(32), 0, stream, NULL, 0 };
         printf("%s\n", cudaGetErrorName(cudaLaunchKernelEx(&config, set, 4u, (float *)p)));
     } },
    { "destroyed handle", [] {
         cudnnHandle_t h = new_cudnn();
         SGRAD_CUDA(cudnnDestroy(h));
         cudnnSetStream(h, stream);
     } },
    { "handle of another device", [] {
         cudnnHandle_t h = new_cudnn();
         SGRAD_CUDA(cudaSetDevice(1));
         cudnnSetStream(h, stream);
     } },
    { "handle with another device's stream", [] {
         SGRAD_CUDA(cudaSetDevice(1));
         cudnnSetStream(new_cudnn(), stream);
     } },
    { "cuBLAS's handle with another device's stream", [] {
         cublasHandle_t h;
         SGRAD_CUDA(cudaSetDevice(1));
         SGRAD_CUDA(cublasCreate(&h));
         cublasSetStream(h, stream);
     } },
    { "aligned", [] { add_at(16, 32); } },
    { "load that is not aligned", [] { add_at(8, 32); } },
    { "store that is not aligned", [] { add_at(16, 36); } },
    { "copy that is waited for", [] { copy_through(0, true); } },
    { "copy that is not waited for", [] { copy_through(0, false); } },
    { "copy that is not aligned", [] { copy_through(8, true); } },
    { "lanes apart", [] {
         sgrad__launch_warps(meet, 1, new_memory());
         SGRAD_CUDA(cudaStreamSynchronize(stream));
     } },
};

} // namespace

int main(int count, char **word) {
    setenv("STARGRAD_EMULATED_GPUS", "2", 1);
    for (const struct rule &rule : rules) {
        if (count < 2) printf("%s\n", rule.name);
        if (count < 2 || strcmp(rule.name, word[1])) continue;
        stream = new_stream();
        rule.breaks();
        printf("end\n");
        return 0;
    }
    return count > 1;
}
