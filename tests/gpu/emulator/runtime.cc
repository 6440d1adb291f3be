/* runtime.cc: the functions of the CUDA runtime that StarPU and Stargrad call, on the CPU. A stream is a thread with a queue.
 * Other functions are those of the real runtime, which finds no device and returns an error. */
#include "tests/gpu/emulator/emulator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

struct CUstream_st {
    int device = 0;
    bool blocking = true; /* it waits for the default stream, and that for it */
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> work; /* what is being done stays in front until it is done */
    bool closing = false;
    std::thread thread;
};
struct CUgraph_st {
    cudaStream_t stream; /* that was captured */
    bool valid = true;
    std::vector<std::function<void()>> submit;
};
struct CUgraphExec_st : CUgraph_st {};

/* How often it was recorded, and how many of those have been reached. */
struct event {
    std::atomic<unsigned> recorded, reached;
    std::atomic<int> done{ 0 }; /* what its stream had done when that was */
    std::atomic<double> when{ 0 };  /* ms */
};
struct CUevent_st {
    std::shared_ptr<struct event> event; /* which outlives the handle that the program destroys */
    int device;                          /* where it was made, and where alone it may be recorded */
};

namespace emulator {

enum { MOST_DEVICES = 8 };
static const size_t FILLED = (size_t)1 << 20; /* of new memory, at most */

static thread_local int current;

void fail(const char *why, ...) {
    va_list arguments;
    va_start(arguments, why);
    fputs("emulated GPU: ", stderr);
    vfprintf(stderr, why, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

static int setting(const char *name, int otherwise) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return otherwise;
    const long number = strtol(text, &end, 10);
    if (*end || number < 0 || number > INT_MAX) {
        fprintf(stderr, "emulated GPU: %s=%s is not a whole number from 0 to %d; correct or unset it\n", name, text, INT_MAX);
        _exit(2);
    }
    return (int)number;
}

static int devices() {
    static const int count = setting("STARGRAD_EMULATED_GPUS", 1);
    return count < MOST_DEVICES ? count : (int)MOST_DEVICES;
}

/* Bytes of memory of a device; the most that device 0 has had in use. */
static size_t memory_size() {
    static const size_t bytes = (size_t)setting("STARGRAD_EMULATED_MEMORY", 2048) << 20;
    return bytes;
}
static size_t peak;

static std::atomic<size_t> counts[COUNTED];
static void tell_counts() {
    fprintf(stderr,
            "emulated GPUs: %zu kernels, %zu calls of libraries, %zu of these in %zu launches of graphs, bytes copied: "
            "%zu to devices, %zu from them, %zu on them; %zu questions to heuristics of graphs, %zu runs of slow plans; "
            "%zu bytes of device 0 at most\n",
            counts[KERNELS].load(), counts[LIBRARY_CALLS].load(), counts[IN_GRAPHS].load(), counts[GRAPHS].load(),
            counts[TO_DEVICES].load(), counts[FROM_DEVICES].load(), counts[ON_DEVICES].load(), counts[HEURISTICS].load(),
            counts[SLOW_PLANS].load(), peak);
}
void count(enum counted what, size_t by) {
    static const bool told = setting("STARGRAD_EMULATED_COUNT", 0) && atexit(tell_counts) == 0;
    if (told) counts[what] += by;
}

static thread_local cudaGraph_t capture;    /* of this thread; NULL: none */
static thread_local bool replays;           /* it launches a graph */
void count_work(enum counted what) {
    count(what);
    if (replays) count(IN_GRAPHS);
}
bool captures(cudaStream_t stream, std::function<void()> submit) {
    if (!capture || capture->stream != stream) return false;
    capture->submit.push_back(std::move(submit));
    return true;
}
bool disturbs() {
    if (capture) capture->valid = false;
    return capture;
}

/* Captures under way of streams that wait for the default one. */
static std::atomic<int> blocking_captures;
bool disturbs_by_default_stream(cudaStream_t stream) {
    if (stream) return false;
    if (capture) return disturbs();
    if (blocking_captures) fail("the default stream is given work while a stream that waits for it is captured");
    return false;
}

bool heuristics_fail() {
    static const bool fail = setting("STARGRAD_EMULATED_HEURISTICS", 1) == 0;
    return fail;
}

bool refuses() {
    static const bool refused = setting("STARGRAD_EMULATED_CAPTURE", 1) == 2;
    return refused && capture;
}

bool refuses_graph() {
    static const int first = setting("STARGRAD_EMULATED_REFUSAL", 0);
    static std::atomic<int> run;
    return first && ++run >= first;
}

static std::atomic<bool> stopped[MOST_DEVICES];
void stop(int device) { stopped[device] = true; }
bool faulted(int device) { return stopped[device] && !replays; }
bool faults() {
    static const int which = setting("STARGRAD_EMULATED_FAULT", 0);
    static std::atomic<int> launched;
    return ++launched == which;
}

/* ---- streams: never destroyed but when the program asks, so that none is while a thread of the program still uses it  */

static thread_local int done; /* of this stream's work */
static void work_off(cudaStream_t s) {
    static const int delay = setting("STARGRAD_EMULATED_DELAY", 0);
    std::unique_lock<std::mutex> lock(s->mutex);
    for (;;) {
        s->changed.wait(lock, [=] { return s->closing || !s->work.empty(); });
        if (s->work.empty()) return;
        const std::function<void()> &first = s->work.front();
        lock.unlock();
        if (delay) usleep(rand() % delay);
        if (!faulted(s->device)) first();
        done++;
        lock.lock();
        s->work.pop_front();
        s->changed.notify_all();
    }
}

static cudaStream_t new_stream(int device, bool blocking) {
    cudaStream_t s = new CUstream_st();
    s->device = device;
    s->blocking = blocking;
    s->thread = std::thread(work_off, s);
    return s;
}

static std::mutex &streams_mutex = *new std::mutex();
static std::map<cudaStream_t, int> &streams = *new std::map<cudaStream_t, int>(); /* and their devices */

static cudaStream_t default_stream(int device) {
    static cudaStream_t stream[MOST_DEVICES];
    std::lock_guard<std::mutex> lock(streams_mutex);
    if (!stream[device]) streams[stream[device] = new_stream(device, true)] = device;
    return stream[device];
}

/* STREAM, the default one where it is NULL. Ends the program if there is none (any more). */
static cudaStream_t named(cudaStream_t stream) {
    if (!stream) return default_stream(current);
    std::lock_guard<std::mutex> lock(streams_mutex);
    if (!streams.count(stream)) fail("%p is no stream, or one that was destroyed", (void *)stream);
    return stream;
}

/* Of one kind of thing that the program makes and destroys: those that exist. */
template <typename T> class living {
    std::mutex mutex;
    std::set<T> all;
    const char *what;

  public:
    explicit living(const char *name) : what(name) {}
    void add(T one) {
        std::lock_guard<std::mutex> lock(mutex);
        all.insert(one);
    }
    void check(T one) {
        std::lock_guard<std::mutex> lock(mutex);
        if (!all.count(one)) fail("%p is no %s, or one that was destroyed", (void *)one, what);
    }
    void remove(T one) {
        check(one);
        std::lock_guard<std::mutex> lock(mutex);
        all.erase(one);
    }
};
static living<cudaEvent_t> &events = *new living<cudaEvent_t>("event");
static living<cudaGraphExec_t> &graphs = *new living<cudaGraphExec_t>("graph");

int device_of_stream(cudaStream_t stream) { return named(stream)->device; }

static thread_local unsigned long enqueued;
unsigned long work_of_this_thread() { return enqueued; }

void enqueue(cudaStream_t stream, std::function<void()> work) {
    cudaStream_t s = named(stream);
    enqueued++;
    if (capture && capture->stream == s) fail("a stream that is being captured is given work");
    std::lock_guard<std::mutex> lock(s->mutex);
    s->work.push_back(std::move(work));
    s->changed.notify_all();
}

static void drain(cudaStream_t s) {
    std::unique_lock<std::mutex> lock(s->mutex);
    s->changed.wait(lock, [=] { return s->work.empty(); });
}
void wait_for(cudaStream_t stream) { drain(named(stream)); }

static bool is_done(cudaStream_t stream) {
    cudaStream_t s = named(stream);
    std::lock_guard<std::mutex> lock(s->mutex);
    return s->work.empty();
}

static void wait_for_device(int device) {
    std::lock_guard<std::mutex> lock(streams_mutex);
    for (auto [stream, own] : streams)
        if (own == device) drain(stream);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

struct piece {
    size_t bytes;
    int device;
    char *memory;
};
static std::mutex &pieces_mutex = *new std::mutex();
static std::map<const char *, struct piece> &pieces = *new std::map<const char *, struct piece>(); /* by address */
static size_t used[MOST_DEVICES];

/* Addresses are given once: one that has been freed is nobody's again. All have a lower half that is negative as an int, so that
 * no count in a kernel's parameter becomes an address by what lies in the padding beside it. */
static const size_t ADDRESSES = (size_t)1 << 40, APART = 256, HALF = (size_t)1 << 31;
static char *addresses;
static size_t given;
static struct sigaction others;

static void on_fault(int, siginfo_t *info, void *) {
    static const char text[] = "emulated GPU: the program touches a device's memory itself\n";
    const char *p = (const char *)info->si_addr;
    if (p >= addresses && p < addresses + ADDRESSES && write(2, text, sizeof text - 1)) abort();
    sigaction(SIGSEGV, &others, NULL); /* which the same instruction reaches next */
}

static void reserve_addresses() {
    struct sigaction action = {};
    addresses = (char *)mmap(NULL, ADDRESSES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) fail("no room for %zu bytes of addresses", ADDRESSES);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &others);
}

/* The address of BYTES that nobody had, or NULL. */
static char *new_address(size_t bytes) {
    const uintptr_t at = (uintptr_t)addresses + given;
    if (!(at & HALF))
        given += HALF - at % HALF;
    else if (bytes > HALF - at % HALF)
        given += 2 * HALF - at % HALF;
    if (bytes > HALF || bytes > ADDRESSES - given) return NULL;
    given += bytes;
    return addresses + given - bytes;
}

/* The piece that BYTES from POINTER on lie in, and its address; one of device -1 where they are no device's. */
static std::pair<const char *, struct piece> piece_of(const void *pointer, size_t bytes) {
    const char *p = (const char *)pointer;
    std::lock_guard<std::mutex> lock(pieces_mutex);
    auto after = pieces.upper_bound(p);
    const auto none = std::make_pair(p, piece{ 0, -1, NULL });
    if (after == pieces.begin()) return none;
    const auto [start, piece] = *--after;
    return p + bytes <= start + piece.bytes ? std::make_pair(start, piece) : none;
}

static int device_of(const void *pointer, size_t bytes) { return piece_of(pointer, bytes).second.device; }

/* Where the bytes at an address of any device, or of none, lie. */
static char *home(const void *pointer, size_t bytes) {
    const auto [start, piece] = piece_of(pointer, bytes);
    return piece.device < 0 ? (char *)pointer : piece.memory + ((const char *)pointer - start);
}

void *memory_of(cudaStream_t stream, const void *address, size_t bytes, const char *what) {
    const int device = device_of(address, bytes), wanted = device_of_stream(stream);
    if (device != wanted)
        fail("%s on device %d is given %zu bytes at %p, which are %s", what, wanted, bytes, address,
             device < 0 ? "no device's" : "another's");
    return home(address, bytes);
}

void find_memory(void *parameter, size_t bytes) {
    for (char *at = (char *)parameter; at + sizeof(void *) <= (char *)parameter + bytes; at += sizeof(void *)) {
        void *word;
        memcpy(&word, at, sizeof word);
        word = home(word, 0);
        memcpy(at, &word, sizeof word);
    }
}

static void check_copy(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    const bool to_device = device_of(to, bytes) >= 0, from_device = device_of(from, bytes) >= 0;
    if (kind == cudaMemcpyDefault) return;
    if (to_device != (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
        from_device != (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))
        fail("a copy of %zu bytes from %p to %p is not what it says, %d", bytes, from, to, (int)kind);
}
} // namespace emulator

using namespace emulator;

extern "C" {

/* ---- devices ----------------------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = devices();
    return devices() > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= devices()) return cudaErrorInvalidDevice;
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    if (device < 0 || device >= devices()) return cudaErrorInvalidDevice;
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "emulated GPU %d", device);
    properties->totalGlobalMem = memory_size();
    properties->major = 8;
    properties->multiProcessorCount = 1;
    properties->concurrentKernels = 1;
    properties->pciBusID = device + 1;
    properties->unifiedAddressing = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr, int) {
    *value = 0; /* cudaDevAttrComputeMode is all that is asked for: cudaComputeModeDefault */
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other) {
    *can = device != other;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

cudaError_t cudaDeviceSynchronize() {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    wait_for_device(current);
    return cudaSuccess;
}
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }
cudaError_t cudaGetLastError() { return faulted(current) ? cudaErrorIllegalAddress : cudaSuccess; }

/* ---- memory ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    std::lock_guard<std::mutex> lock(pieces_mutex);
    const size_t whole = (bytes + 255) / 256 * 256;
    void *memory;
    if (!addresses) reserve_addresses();
    if (used[current] + whole > memory_size()) return cudaErrorMemoryAllocation;
    char *address = new_address(whole + APART);
    if (!address || posix_memalign(&memory, 256, bytes + !bytes)) return cudaErrorMemoryAllocation;
    memset(memory, 0xff, bytes < FILLED ? bytes : FILLED); /* not a number, whatever the type */
    pieces[address] = { bytes, current, (char *)memory };
    *pointer = address;
    used[current] += whole;
    peak = std::max(peak, used[0]);
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer) {
    if (!pointer) return cudaSuccess;
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    const int device = device_of(pointer, 0);
    if (device < 0) return cudaErrorInvalidValue;
    wait_for_device(device);
    std::lock_guard<std::mutex> lock(pieces_mutex);
    auto piece = pieces.find((const char *)pointer);
    if (piece == pieces.end()) return cudaErrorInvalidValue;
    used[device] -= (piece->second.bytes + 255) / 256 * 256;
    free(piece->second.memory);
    pieces.erase(piece);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    std::lock_guard<std::mutex> lock(pieces_mutex);
    *available = memory_size() - used[current];
    *total = memory_size();
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned) {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    return posix_memalign(pointer, 4096, bytes + !bytes) ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void *pointer) {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    free(pointer);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void *, size_t, unsigned) { return disturbs() ? cudaErrorStreamCaptureUnsupported : cudaSuccess; }
cudaError_t cudaHostUnregister(void *) { return disturbs() ? cudaErrorStreamCaptureUnsupported : cudaSuccess; }

/* ---- streams and events ------------------------------------------------------------------------------------------ */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    *stream = new_stream(current, !(flags & cudaStreamNonBlocking));
    std::lock_guard<std::mutex> lock(streams_mutex);
    streams[*stream] = current;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    named(stream);
    {
        std::lock_guard<std::mutex> lock(streams_mutex);
        streams.erase(stream);
    }
    {
        std::lock_guard<std::mutex> lock(stream->mutex);
        stream->closing = true;
        stream->changed.notify_all();
    }
    stream->thread.join();
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    wait_for(stream);
    return cudaGetLastError();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    if (faulted(device_of_stream(stream))) return cudaErrorIllegalAddress;
    return is_done(stream) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    *event = new CUevent_st{ std::make_shared<struct event>(), current };
    events.add(*event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    events.remove(event);
    delete event;
    return cudaSuccess;
}

/* A thread that asks for an event again and again would take the CPU from the one that works. So it waits until the next event is
 * reached; a fault reaches none, so not for ever. */
static std::mutex &reached_mutex = *new std::mutex();
static std::condition_variable &reached_changed = *new std::condition_variable();
static unsigned long reached_events;

static void reach(struct event *event, unsigned number) {
    std::lock_guard<std::mutex> lock(reached_mutex);
    event->reached = number;
    reached_events++;
    reached_changed.notify_all();
}

static void wait_for_an_event(const struct event *event, unsigned number) {
    std::unique_lock<std::mutex> lock(reached_mutex);
    if ((int)(event->reached - number) >= 0) return;
    reached_changed.wait_for(lock, std::chrono::milliseconds(1), [before = reached_events] { return reached_events != before; });
}

static double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    events.check(event);
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    if (disturbs_by_default_stream(stream)) return cudaErrorStreamCaptureImplicit;
    if (event->device != device_of_stream(stream)) return cudaErrorInvalidResourceHandle;
    const unsigned number = ++event->event->recorded;
    enqueue(stream, [=, kept = event->event] {
        kept->done = done;
        kept->when = now_ms();
        reach(kept.get(), number);
    });
    return cudaSuccess;
}

/* What STREAM is given from now on waits for what EVENT was recorded behind. No event is captured, so all are of outside. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    events.check(event);
    if (disturbs()) return cudaErrorStreamCaptureIsolation;
    if (disturbs_by_default_stream(stream)) return cudaErrorStreamCaptureImplicit;
    enqueue(stream, [number = event->event->recorded.load(), kept = event->event] {
        while ((int)(kept->reached - number) < 0) wait_for_an_event(kept.get(), number);
    });
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    events.check(event);
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    if (event->event->reached == event->event->recorded) return cudaSuccess;
    if (faulted(event->device)) return cudaErrorIllegalAddress;
    wait_for_an_event(event->event.get(), event->event->recorded);
    return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    cudaError_t status;
    while ((status = cudaEventQuery(event)) == cudaErrorNotReady) continue;
    return status;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
    static const bool clock = setting("STARGRAD_EMULATED_CLOCK", 0);
    for (cudaEvent_t event : { from, to }) {
        events.check(event);
        if (!event->event->recorded) return cudaErrorInvalidResourceHandle;
        if (event->event->reached != event->event->recorded) return cudaErrorNotReady;
    }
    *milliseconds = clock ? (float)(to->event->when - from->event->when) : (float)(to->event->done - from->event->done);
    return cudaSuccess;
}

/* ---- graphs: of one stream, whose work goes one after the other ---------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    if (!stream || mode != cudaStreamCaptureModeThreadLocal) return cudaErrorStreamCaptureUnsupported;
    if (capture) return cudaErrorIllegalState;
    if (named(stream)->blocking) blocking_captures++;
    capture = new CUgraph_st{ stream, true, {} };
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    static const bool possible = setting("STARGRAD_EMULATED_CAPTURE", 1);
    if (!capture || capture->stream != stream) return cudaErrorStreamCaptureUnmatched;
    if (stream->blocking) blocking_captures--;
    *graph = possible && capture->valid ? capture : NULL;
    if (!*graph) delete capture;
    capture = NULL;
    return *graph ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long) {
    *made = new CUgraphExec_st{ *graph };
    graphs.add(*made);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    graphs.check(graph);
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    if (faulted(current)) return cudaErrorIllegalAddress;
    if (graph->stream != stream) fail("a graph is launched on another stream than it was captured on");
    count(GRAPHS);
    replays = true;
    for (const auto &submit : graph->submit) submit();
    replays = false;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    graphs.remove(graph);
    delete graph;
    return cudaSuccess;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (disturbs_by_default_stream(stream)) return cudaErrorStreamCaptureImplicit;
    if (captures(stream, [=] { cudaMemcpyAsync(to, from, bytes, kind, stream); })) return cudaSuccess;
    check_copy(to, from, bytes, kind);
    count(kind == cudaMemcpyHostToDevice ? TO_DEVICES : kind == cudaMemcpyDeviceToHost ? FROM_DEVICES : ON_DEVICES, bytes);
    enqueue(stream, [=, to = home(to, bytes), from = home(from, bytes)] { memcpy(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    cudaMemcpyAsync(to, from, bytes, kind, NULL);
    return cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream) {
    if (device_of(to, bytes) != to_device || device_of(from, bytes) != from_device)
        fail("a copy between devices %d and %d is not", from_device, to_device);
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    enqueue(stream, [=, to = home(to, bytes), from = home(from, bytes)] { memcpy(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes) {
    if (disturbs()) return cudaErrorStreamCaptureUnsupported;
    cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, NULL);
    return cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    if (disturbs_by_default_stream(NULL)) return cudaErrorStreamCaptureUnsupported;
    enqueue(NULL, [=, to = home(to, bytes)] { memset(to, value, bytes); });
    return cudaStreamSynchronize(NULL);
}
} // extern "C"
