/* open_files.c: reads parts of many files, of which only the OPEN that were read last are open. A process may have as few as
 * 1,024 open files, and opening a file on a network file system takes about a millisecond. */
#include "config.h"
#include "datasets/numbers.h"
#include "runtime/files/parts.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { OPEN = 64 };
struct slot {
    const struct sgrad__numbers *of; /* NULL: the slot is unused */
    int file, users;                 /* users: threads that read at present */
    uint64_t last;                   /* time of the last use */
};
struct sgrad__open_files {
    pthread_mutex_t lock;
    uint64_t time; /* number of calls */
    struct slot slot[OPEN];
};

struct sgrad__open_files *sgrad__open_files_create(void) {
    struct sgrad__open_files *files = sgrad_xcalloc(1, sizeof *files);
    pthread_mutex_init(&files->lock, NULL);
    return files;
}

void sgrad__open_files_free(struct sgrad__open_files *files) {
    if (!files) return;
    for (int i = 0; i < OPEN; i++)
        if (files->slot[i].of) close(files->slot[i].file);
    pthread_mutex_destroy(&files->lock);
    free(files);
}

static int open_one(const struct sgrad__numbers *of, int *file) {
    size_t size;
    SGRAD_TRY(sgrad__file_open(of->path, SIZE_MAX / 2, file, &size));
    const int error = sgrad__version_check(*file, of->path, &of->version);
    if (error) close(*file);
    return error;
}

/* Returns the slot of OF; else the unused one, or the one that was not read for the longest time; NULL: all are being read. */
static struct slot *find_slot(struct sgrad__open_files *files, const struct sgrad__numbers *of) {
    struct slot *oldest = NULL;
    for (struct slot *s = files->slot; s < files->slot + OPEN; s++) {
        if (s->of == of) return s;
        if (!s->users && (!oldest || s->last < oldest->last)) oldest = s;
    }
    return oldest;
}

/* Returns a slot with OF open, for this thread as well. NULL: all slots are being read, or *ERROR is set. */
static struct slot *take(struct sgrad__open_files *files, const struct sgrad__numbers *of, int *error) {
    pthread_mutex_lock(&files->lock);
    struct slot *slot = find_slot(files, of);
    if (slot && slot->of != of) {
        int file;
        *error = open_one(of, &file);
        if (!*error && slot->of) close(slot->file);
        if (!*error) *slot = (struct slot){ .of = of, .file = file };
    }
    if (*error) slot = NULL;
    if (slot) slot->users++, slot->last = ++files->time;
    pthread_mutex_unlock(&files->lock);
    return slot;
}

int sgrad__open_files_read(struct sgrad__open_files *files, const struct sgrad__numbers *of, size_t at, size_t bytes, void *to) {
    int error = 0, file;
    struct slot *slot = take(files, of, &error);
    SGRAD_TRY(error);
    if (!slot) SGRAD_TRY(open_one(of, &file));
    error = sgrad__file_read(slot ? slot->file : file, of->path, at, bytes, to);
    if (!error) error = sgrad__version_check(-1, of->path, &of->version); /* after reading; an open file may be replaced */
    if (!slot) return close(file), error;
    pthread_mutex_lock(&files->lock);
    slot->users--;
    pthread_mutex_unlock(&files->lock);
    return error;
}
