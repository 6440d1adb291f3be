/* emulator.h: CUDA devices emulated by CPU threads, so that CUDA code runs and can be tested without a GPU.
 *
 * The CUDA sources of codelets/ are compiled unchanged as C++, with this header before them. Here __global__ and __device__
 * have no effect, and the built-in functions of a kernel are defined below. A program of these and of the other files of this
 * folder has emulated devices:
 *
 *     threads.cc     the threads of a block, barriers, exchanges in a warp
 *     runtime.cc     the functions of the CUDA runtime that StarPU and Stargrad call: devices, memory, streams, events, copies
 *     matrices.cc    products of matrices by a warp
 *     libraries.cc   the functions of cuDNN and cuBLAS that Stargrad calls
 *     idle.cc        pauses of StarPU's threads
 *
 * The functions of a program take precedence over those of shared libraries, so StarPU also calls these.
 *
 *     STARGRAD_EMULATED_GPUS=N     number of devices (default: 1)
 *     STARGRAD_EMULATED_DELAY=N    each operation of a stream starts up to N µs late (default: 0)
 *     STARGRAD_EMULATED_FAULT=N    kernel N accesses invalid memory; after that, its device does nothing
 *     STARGRAD_EMULATED_CAPTURE=0  streams cannot be captured as graphs; 2: during a capture, cuDNN's convolutions are not
 *                                  supported
 *     STARGRAD_EMULATED_REFUSAL=N  cuDNN runs the first N - 1 of its graphs and refuses all later ones
 *     STARGRAD_EMULATED_HEURISTICS=0  cuDNN's heuristics fail: they return neither an algorithm nor an engine
 *     STARGRAD_EMULATED_CLOCK=1    events measure elapsed time; otherwise, each operation of a stream takes 1 ms, so that
 *                                  measurements give the same result every time
 *     STARGRAD_EMULATED_COUNT=1    prints the number of all operations at the end, and the most memory that device 0 had in use
 *     STARGRAD_EMULATED_MEMORY=N   memory of each device in MiB; an allocation that exceeds it fails (default: 2048)
 *
 * Every stream is a thread with a queue. As on a GPU, results exist only after a synchronisation. An address of a device
 * cannot be read or written by the CPU. The data are in ordinary memory, and operations of a stream get the translated
 * address:
 *
 *     cudaMalloc   0x7e0000000100   pages without access: a CPU access ends the program
 *     a kernel     0x5581c02a3300   heap, initially NaNs: a sanitizer detects kernels that access memory outside of their
 *                                   operands
 *
 * These errors end the program: host memory, or memory of another device, passed to a kernel or a library; an exchange or a
 * matrix instruction that not all lanes of a warp reach; a copy to shared memory without a wait, or at an address that is not
 * a multiple of 16; a load or store of a pack at an address that is not a multiple of its size; a stream, event, graph or
 * handle that does not exist; a handle with a stream of another device.
 *
 * While a thread captures a stream, these calls of this thread fail and invalidate the capture, as in the driver's mode
 * cudaStreamCaptureModeThreadLocal: allocating and freeing memory, also of the host; synchronous copies; waits and queries of
 * streams, events and devices; work for the default stream; a wait for an event from outside the capture. If the captured
 * stream synchronises with the default stream, work of another thread for the default stream ends the program.
 *
 * Limits: the emulator checks logic. It does not test speed, races between the warps of a block or between blocks, which run
 * one after another, or the behaviour of nvcc, cuDNN and cuBLAS themselves. */
#ifndef SGRAD_EMULATOR_H
#define SGRAD_EMULATOR_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#include <cuda_runtime.h>

namespace emulator {

/* Where the running thread of a kernel is. */
struct place {
    uint3 thread, block, threads, blocks;
};
extern __thread struct place here;

/* Runs THREAD for every thread of every block of a grid. Of a kernel's thread: waits for all of its block. */
void run_grid(dim3 grid, dim3 block, const std::function<void()> &thread);
void barrier();

/* Of a kernel's thread: hands VALUE to the lanes of its warp, and takes that of lane (its own ^ LANES). */
uint64_t exchange(uint64_t value, unsigned lanes);

/* Of a kernel's thread: WORK, once, when all lanes of its warp have come for it; data[i] is what lane i brought. */
void together(void (*work)(void *const data[32]), void *data);

/* Matrix instructions (matrices.cc): codelets/cuda/tensor_cores.h. */
void multiply_bf16(float *sum, const uint32_t *left, const uint32_t *right);
void multiply_tf32(float *sum, const uint32_t *left, const uint32_t *right);
uint32_t round_to_tf32(float x);
void load_matrices(uint32_t *to, const void *row);
void load_turned_matrices(uint32_t *to, const void *row);

/* Copies of 16 bytes that are under way until they are waited for: as NaN till then. */
void copy_later(void *to, const void *from);
void end_copies();
void wait_for(int left);
template <int LEFT> void wait_for_copies() { wait_for(LEFT); }

/* The device that STREAM is on. */
int device_of_stream(cudaStream_t stream);

/* WORK is done after what the stream has been given before. STREAM may be NULL, the default one. */
void enqueue(cudaStream_t stream, std::function<void()> work);
void wait_for(cudaStream_t stream);
/* How often this thread has given work to streams. */
unsigned long work_of_this_thread();

/* What is counted: kernels and calls of libraries that compute, launches of graphs, in which some of these were; bytes copied,
 * from and to the same devices, too. */
enum counted {
    KERNELS, LIBRARY_CALLS, GRAPHS, IN_GRAPHS, TO_DEVICES, FROM_DEVICES, ON_DEVICES,
    HEURISTICS, SLOW_PLANS, /* questions to those of cuDNN's graphs; runs of plans that are slow on purpose */
    COUNTED
};
void count(enum counted what, size_t by = 1);
void count_work(enum counted what);

/* Whether STREAM is being captured: then SUBMIT, which gives it work, is called whenever the graph is launched, and finds memory
 * where it is then. */
bool captures(cudaStream_t stream, std::function<void()> submit);

/* Whether this thread captures, for what it may not do then: the capture is over with that. */
bool disturbs();
/* The same, if STREAM is the default one. Ends the program where the capture is another thread's and would be disturbed. */
bool disturbs_by_default_stream(cudaStream_t stream);
/* Do cuDNN's heuristics fail? */
bool heuristics_fail();
/* Whether it captures, and cuDNN is to refuse that. */
bool refuses();
/* Does cuDNN refuse to run the graph that it is asked to run now? */
bool refuses_graph();

/* Whether the kernel that is launched now is the one that faults; its device does nothing more; whether that is so. */
bool faults();
void stop(int device);
bool faulted(int device);

/* Ends the program. */
[[noreturn]] void fail(const char *why, ...);

/* Where what is at a device's address lies. Ends the program unless BYTES from there on are memory of the stream's device. */
void *memory_of(cudaStream_t stream, const void *address, size_t bytes, const char *what);

/* Every device's address in a parameter, which may be a structure, becomes where that lies. */
void find_memory(void *parameter, size_t bytes);

/* Of a kernel's thread, before it loads or stores a T at P in one instruction. */
template <typename T> static inline void aligned(const T *p) {
    if ((uintptr_t)p % alignof(T) == 0) return;
    fail("%zu bytes at once at %p, which is no multiple of %zu", sizeof(T), (const void *)p, alignof(T));
}

template <typename T> static T in_memory(cudaStream_t stream, T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (std::is_pointer_v<T>) {
        return value ? (T)memory_of(stream, value, sizeof *value, "a kernel") : value;
    } else {
        find_memory(&value, sizeof value);
        return value;
    }
}

/* Static, because two codelets may give one name to different structures, which are parameters of their kernels. */
template <typename... Parameter>
static cudaError_t launch(const cudaLaunchConfig_t *config, void (*kernel)(Parameter...),
                          std::common_type_t<Parameter>... value) {
    const dim3 grid = config->gridDim, block = config->blockDim;
    int current;
    cudaGetDevice(&current);
    if (current != device_of_stream(config->stream)) return cudaErrorInvalidResourceHandle;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535 ||
        block.x * block.y * block.z == 0 || block.x * block.y * block.z > 1024 || block.z > 64)
        return cudaErrorInvalidConfiguration;
    static_assert((sizeof value + ...) <= 4096, "more parameters than a kernel can have");
    if (faulted(current)) return cudaErrorIllegalAddress;
    if (disturbs_by_default_stream(config->stream)) return cudaErrorStreamCaptureImplicit;
    if (captures(config->stream, [=, own = *config] {
            if (launch(&own, kernel, value...) != cudaSuccess) fail("a captured kernel cannot be launched");
        }))
        return cudaSuccess;
    const std::tuple<std::common_type_t<Parameter>...> own(in_memory(config->stream, value)...);
    const bool fault = faults();
    count_work(KERNELS);
    enqueue(config->stream, [=] { fault ? stop(current) : run_grid(grid, block, [&] { std::apply(kernel, own); }); });
    return cudaSuccess;
}

template <typename T> T exchange_any(unsigned mask, T value, unsigned lanes) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    if (mask != ~0u) fail("an exchange between some lanes of a warp is not emulated");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = exchange(bits, lanes);
    memcpy(&value, &bits, sizeof value);
    return value;
}
} // namespace emulator

/* ---- what kernels are written with ------------------------------------------------------------------------------- */

#define threadIdx          (emulator::here.thread)
#define blockIdx           (emulator::here.block)
#define blockDim           (emulator::here.threads)
#define gridDim            (emulator::here.blocks)
#define __syncthreads()    emulator::barrier()
#define __shfl_xor_sync    emulator::exchange_any
#define cudaLaunchKernelEx emulator::launch

/* Blocks of one stream run one after another, so a stream's thread can have one of each. */
#undef __launch_bounds__
#define __launch_bounds__(...) /* registers, which nobody has here */
#undef __shared__
#define __shared__ static thread_local

static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }

#endif
