/* threads.cc: the threads of a block as fibers of one CPU thread.
 *
 * A fiber runs one thread of the block after another, as long as they end without waiting. Kernels without barriers need one
 * fiber. A thread that waits keeps its fiber, and the next threads run on another one:
 *
 *     fiber 0   thread 0 ───── barrier             thread 0 ─── ends
 *     fiber 1            thread 1 ───── barrier             thread 1 ─── ends
 *     fiber 2                     thread 2 ends, thread 3 ends, …
 *
 * If all threads that have not ended wait, a barrier opens if all of them are at it. An exchange runs for each warp whose 32
 * lanes are all at it. */
#undef _FORTIFY_SOURCE /* jumps from stack to stack are meant */
#include "tests/gpu/emulator/emulator.h"

#include <csetjmp>
#include <memory>
#include <ucontext.h>
#include <vector>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulator {

__thread struct place here;

enum state { RUNS, BARRIER, EXCHANGE, ENDED };
enum { MOST_THREADS = 1024, WARP = 32, COPY = 16, STACK = 256 << 10 };

struct fiber {
    ucontext_t first;
    jmp_buf at; /* where it waits */
    bool begun;
    unsigned thread;
    void *fake; /* of AddressSanitizer */
    std::unique_ptr<char[]> stack;
};

/* A copy to shared memory that was not waited for, and the group it is of. */
struct copy {
    void *to;
    const void *from;
    int group;
};

/* What one CPU thread needs to run a block. */
struct block {
    const std::function<void()> *kernel;
    unsigned size, next; /* threads; the first that has not begun */
    enum state state[MOST_THREADS];
    uint64_t given[MOST_THREADS], taken[MOST_THREADS];
    unsigned lanes[MOST_THREADS];
    void (*work[MOST_THREADS])(void *const data[WARP]);
    void *data[MOST_THREADS];
    std::vector<struct copy> copies[MOST_THREADS];
    int groups[MOST_THREADS]; /* that have ended */
    jmp_buf scheduler;
    void *fake;
    const void *stack; /* the scheduler's */
    size_t stack_size;
    struct fiber *running;
    std::vector<std::unique_ptr<struct fiber>> fibers;
};
static thread_local struct block block;

static void place_thread(unsigned thread) {
    const unsigned x = here.threads.x, y = here.threads.y;
    here.thread = { thread % x, thread / x % y, thread / x / y };
}

/* AddressSanitizer has to be told of every change of stacks: before, and after. */
static void leave(void **fake, const void *stack, size_t size) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(fake, stack, size);
#else
    (void)fake, (void)stack, (void)size;
#endif
}
static void arrive(void *fake, const void **stack, size_t *size) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(fake, stack, size);
#else
    (void)fake, (void)stack, (void)size;
#endif
}

static void to_scheduler(struct fiber *own) {
    leave(&own->fake, block.stack, block.stack_size);
    if (!_setjmp(own->at)) _longjmp(block.scheduler, 1);
    arrive(own->fake, &block.stack, &block.stack_size);
}

static void fiber_main() {
    struct fiber *own = block.running;
    arrive(NULL, &block.stack, &block.stack_size);
    for (;; to_scheduler(own))
        while (block.next < block.size) {
            own->thread = block.next++;
            place_thread(own->thread);
            block.state[own->thread] = RUNS;
            (*block.kernel)();
            if (!block.copies[own->thread].empty()) fail("a thread ends without waiting for its copies");
            block.groups[own->thread] = 0;
            block.state[own->thread] = ENDED;
        }
}

/* Until the fiber's thread waits, or there is none left to begin. Returns whether it waits. */
static bool resume(struct fiber *f) {
    block.running = f;
    leave(&block.fake, f->stack.get(), STACK);
    if (!_setjmp(block.scheduler)) {
        if (f->begun) _longjmp(f->at, 1);
        f->begun = true;
        setcontext(&f->first);
    }
    arrive(block.fake, NULL, NULL);
    return block.state[block.running->thread] != ENDED;
}

static struct fiber *new_fiber() {
    block.fibers.emplace_back(new struct fiber());
    struct fiber *f = block.fibers.back().get();
    f->stack.reset(new char[STACK]);
    getcontext(&f->first);
    f->first.uc_stack.ss_sp = f->stack.get();
    f->first.uc_stack.ss_size = STACK;
    makecontext(&f->first, fiber_main, 0);
    return f;
}

/* Lets those go on who have waited long enough. */
static void open_gates() {
    unsigned waiting[ENDED + 1] = {}, opened = 0;
    for (unsigned t = 0; t < block.size; t++) waiting[block.state[t]]++;
    if (waiting[EXCHANGE] == 0) {
        for (unsigned t = 0; t < block.size; t++)
            if (block.state[t] == BARRIER) block.state[t] = RUNS;
        return;
    }
    for (unsigned first = 0; first + WARP <= block.size; first += WARP) {
        unsigned lanes = 0;
        for (unsigned t = first; t < first + WARP; t++) lanes += block.state[t] == EXCHANGE;
        if (lanes < WARP) continue;
        opened++;
        for (unsigned t = first; t < first + WARP; t++)
            if (block.work[t] != block.work[first]) fail("lanes of a warp wait for different instructions");
        if (block.work[first]) block.work[first](block.data + first);
        for (unsigned t = first; t < first + WARP; t++) {
            block.taken[t] = block.given[first + ((t - first) ^ block.lanes[t])];
            block.state[t] = RUNS;
        }
    }
    if (opened == 0)
        fail("%u threads of a block wait at a barrier, %u for lanes of their warps: for ever", waiting[BARRIER],
             waiting[EXCHANGE]);
}

static void run_block() {
    std::vector<struct fiber *> waiting, still;
    size_t used = 0;
    for (block.next = 0; block.next < block.size; used++) {
        struct fiber *f = used < block.fibers.size() ? block.fibers[used].get() : new_fiber();
        if (resume(f)) waiting.push_back(f);
    }
    while (!waiting.empty()) {
        open_gates();
        still.clear();
        for (struct fiber *f : waiting) {
            if (block.state[f->thread] == RUNS) place_thread(f->thread);
            if (block.state[f->thread] != RUNS || resume(f)) still.push_back(f);
        }
        waiting.swap(still);
    }
}

void run_grid(dim3 grid, dim3 size, const std::function<void()> &thread) {
    block.kernel = &thread;
    block.size = size.x * size.y * size.z;
    here.threads = { size.x, size.y, size.z };
    here.blocks = { grid.x, grid.y, grid.z };
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                here.block = { x, y, z };
                run_block();
            }
}

static void wait_as(enum state state) {
    struct fiber *own = block.running;
    block.state[own->thread] = state;
    to_scheduler(own);
}

void barrier() { wait_as(BARRIER); }

uint64_t exchange(uint64_t value, unsigned lanes) {
    const unsigned own = block.running->thread;
    block.given[own] = value;
    block.lanes[own] = lanes;
    block.work[own] = NULL;
    wait_as(EXCHANGE);
    return block.taken[own];
}

void copy_later(void *to, const void *from) {
    const unsigned own = block.running->thread;
    if ((uintptr_t)to % COPY || (uintptr_t)from % COPY)
        fail("a copy from %p to %p, which are no multiples of %d", from, to, COPY);
    memset(to, 0xff, COPY);
    block.copies[own].push_back({ to, from, block.groups[own] });
}

void end_copies() { block.groups[block.running->thread]++; }

void wait_for(int left) {
    const unsigned own = block.running->thread;
    std::vector<struct copy> still;
    for (const struct copy &c : block.copies[own])
        if (c.group < block.groups[own] - left)
            memcpy(c.to, c.from, COPY);
        else
            still.push_back(c);
    block.copies[own].swap(still);
}

void together(void (*work)(void *const data[WARP]), void *data) {
    const unsigned own = block.running->thread;
    block.work[own] = work;
    block.data[own] = data;
    wait_as(EXCHANGE);
}
} // namespace emulator
