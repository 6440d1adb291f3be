/* early.c: lines that several ranks would print alike are printed once: early.h.
 *
 * Limits: the ranks that are not 0 do not compare their lines with each other; what they print names the rank. */
#include "config.h"
#include "runtime/early.h"
#include "runtime/internal.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool holds;
static int own;             /* rank */
static char *held;          /* lines; rank 0's are printed as well */
static size_t length;

/* error.c calls it under a lock. */
static void hold(const char *line) {
    const size_t size = strlen(line);
    held = realloc(held, length + size + 1);
    if (!held) abort();
    memcpy(held + length, line, size + 1);
    length += size;
    if (own == 0) fputs(line, stderr);
}

void sgrad__early_hold(int rank) {
    own = rank;
    holds = true;
    sgrad_listen(hold);
}

static bool has_line(const char *text, const char *line, size_t size) {
    for (; *text; text += strcspn(text, "\n") + 1)
        if (!strncmp(text, line, size)) return true;
    return false;
}

/* The lines that OTHER has not, "stargrad: rank 3: …", if they do not name the rank themselves. NULL: all, as they are. */
static void print_held(const char *other) {
    static const char name[] = "stargrad: ";
    for (char *line = held, *end; line && *line; line = end) {
        const char *said = line + strlen(name);
        end = strchr(line, '\n') + 1;
        if (!own || (other && has_line(other, line, (size_t)(end - line)))) continue;
        if (other && strncmp(said, "rank ", 5)) fprintf(stderr, "%srank %d: %.*s", name, own, (int)(end - said), said);
        else fprintf(stderr, "%.*s", (int)(end - line), line);
    }
    free(held);
    held = NULL;
    length = 0;
}

void sgrad__early_compare(MPI_Comm comm) {
    if (!holds) return;
    uint64_t size = length;
    MPI_Bcast(&size, 1, MPI_UINT64_T, 0, comm);
    char *first = sgrad_alloc(size + 1, 1);
    if (own == 0 && size) memcpy(first, held, size);
    MPI_Bcast(first, (int)size, MPI_BYTE, 0, comm);
    print_held(first);
    free(first);
    MPI_Barrier(comm);      /* a rank that ends ends the others, who must have printed by then */
}

void sgrad__early_flush(void) {
    if (holds) print_held(NULL);
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
    sgrad_listen(NULL);
    sgrad__early_flush();
    holds = false;
}
