/* early.c: buffers log lines, so that a line that several ranks log is printed once (early.h).
 *
 * Limits: ranks above 0 compare their lines only with those of rank 0, not with each other. The lines that they print start with
 * the number of the rank. */
#include "config.h"
#include "runtime/ranks/early.h"
#include "runtime/internal.h"

#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool holds;
static int own;             /* the rank of this process */
static char *held;          /* buffered lines; rank 0 also prints them immediately */
static size_t length;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;       /* protects held and length */

static void hold(const char *line) {
    const size_t size = strlen(line);
    pthread_mutex_lock(&lock);
    held = realloc(held, length + size + 1);
    if (!held) abort();
    memcpy(held + length, line, size + 1);
    length += size;
    pthread_mutex_unlock(&lock);
    if (own == 0) fputs(line, stderr);
}

void sgrad__early_hold(int rank) {
    own = rank;
    holds = true;
    sgrad_log_set_callback(hold);
}

static bool has_line(const char *text, const char *line, size_t size) {
    for (; *text; text += strcspn(text, "\n") + 1)
        if (!strncmp(text, line, size)) return true;
    return false;
}

/* Returns the buffered lines, which the caller must free, and empties the buffer. NULL: there are none. */
static char *take(void) {
    pthread_mutex_lock(&lock);
    char *lines = held;
    held = NULL;
    length = 0;
    pthread_mutex_unlock(&lock);
    return lines;
}

/* Prints the lines of LINES that are not in OTHER, as "stargrad: rank 3: …", unless a line already starts with "rank". If OTHER
 * is NULL, prints all lines unchanged. Rank 0 prints nothing, because its lines have already been printed. */
static void print(const char *lines, const char *other) {
    static const char name[] = "stargrad: ";
    for (const char *line = lines, *end; line && *line; line = end) {
        const char *text = line + strlen(name);
        end = strchr(line, '\n') + 1;
        if (!own || (other && has_line(other, line, (size_t)(end - line)))) continue;
        if (other && strncmp(text, "rank ", 5)) fprintf(stderr, "%srank %d: %.*s", name, own, (int)(end - text), text);
        else fprintf(stderr, "%.*s", (int)(end - line), line);
    }
}

void sgrad__early_compare(MPI_Comm comm) {
    if (!holds) return;
    char *lines = take();
    uint64_t size = lines ? strlen(lines) : 0;
    MPI_Bcast(&size, 1, MPI_UINT64_T, 0, comm);
    char *first = sgrad_xcalloc(size + 1, 1);
    if (own == 0 && size) memcpy(first, lines, size);
    MPI_Bcast(first, (int)size, MPI_BYTE, 0, comm);
    print(lines, first);
    free(first);
    free(lines);
    MPI_Barrier(comm);      /* a rank that ends also ends the others, which must have printed by then */
}

void sgrad__early_flush(void) {
    if (!holds) return;
    char *lines = take();
    print(lines, NULL);
    free(lines);
}

void sgrad__early_write(void) {
    for (size_t at = 0; at < length;) {
        const ssize_t put = write(STDERR_FILENO, held + at, length - at);
        if (put <= 0) return;
        at += (size_t)put;
    }
}

void sgrad_early_close(void) {
    if (!holds) return;
    sgrad_log_set_callback(NULL);
    sgrad__early_flush();
    holds = false;
}
