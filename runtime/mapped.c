/* mapped.c: parts of files that are mapped as memory. If such a part cannot be read, the system sends SIGBUS to the process: it
 * then ends with a message instead of a core dump.
 *
 * Limits: an error of a write that the system does later is not a signal; sgrad_spill_flush returns it. */
#include "runtime/internal.h"
#include "runtime/spill.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Parts are added at the front of a list, and are never removed, so that a signal handler can read it; they may be used again. */
struct part {
    _Atomic(char *) start;          /* NULL: it is not in use */
    _Atomic size_t bytes;
    _Atomic(char *) message;        /* is printed if it cannot be read */
    struct part *next;
};
static _Atomic(struct part *) first;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;

static struct part *find(const char *address) {
    struct part *p = first;
    while (p && !(p->start && address >= p->start && address < p->start + p->bytes)) p = p->next;
    return p;
}

/* If the address is in none of the parts, the signal is repeated, with its former effect. */
static void end(int number, siginfo_t *info, void *context) {
    (void)context;
    const struct part *p = find(info->si_addr);
    if (!p) {
        sigaction(number, &before, NULL);
        return;
    }
    const char *message = p->message;
    if (write(STDERR_FILENO, message, strlen(message)) < 0) _exit(2);
    _exit(1);
}

/* A program may have replaced the handler since the last call. */
static void watch(void) {
    const struct sigaction action = { .sa_sigaction = end, .sa_flags = SA_SIGINFO };
    struct sigaction now;
    sigaction(SIGBUS, &action, &now);
    if (now.sa_sigaction != end) before = now;
}

int sgrad__map(int file, int64_t at, size_t bytes, const char *name, void **memory) {
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, at);
    if (start == MAP_FAILED) return errno;
    pthread_mutex_lock(&changing);
    watch();
    struct part *p = first;
    while (p && p->start) p = p->next;
    const bool added = !p;
    if (added) p = sgrad_xcalloc(1, sizeof *p), p->next = first;
    p->message = sgrad_format("stargrad: %s cannot be read: %s; check the disk, or give another folder; checkpoints are not "
                              "affected\n", name, strerror(EIO));
    p->bytes = bytes;
    p->start = start;
    if (added) first = p;
    pthread_mutex_unlock(&changing);
    *memory = start;
    return 0;
}

void sgrad__unmap(void *memory) {
    pthread_mutex_lock(&changing);
    struct part *p = find(memory);
    const size_t bytes = p->bytes;
    p->start = NULL;
    munmap(memory, bytes);
    free(p->message);
    pthread_mutex_unlock(&changing);
}

void sgrad_mapped_drop_pages(const void *memory, size_t bytes) {
    const struct part *p = find(memory);
    if (!p || !bytes) return;
    const size_t page = SGRAD_SPILL_BLOCK, from = (size_t)((const char *)memory - p->start), to = from + bytes;
    madvise(p->start + from / page * page, (to < p->bytes ? to : p->bytes) - from / page * page, MADV_DONTNEED);
}
