/* terminal.c: is there a terminal, and how wide is it?
 *
 *     a rank ──a terminal that mpirun made──> mpirun ──standard output──> a terminal, or a job's log
 *
 * Limits: a rank on another host than mpirun's sees its daemon, which has no terminal; rank 0 is on mpirun's as a rule. */
#include "config.h"
#include "runtime/terminal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Of the process that started this one. */
static bool parent_has_terminal(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getppid(), STDOUT_FILENO);
    const int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    const bool is = fd >= 0 && isatty(fd);
    if (fd >= 0) close(fd);
    return is;
}

bool sgrad_terminal(int fd) { return isatty(fd) && (!getenv("OMPI_COMM_WORLD_SIZE") || parent_has_terminal()); }

int sgrad_terminal_columns(int fd) {
    struct winsize window = { 0 };
    ioctl(fd, TIOCGWINSZ, &window);
    return window.ws_col ? window.ws_col : 80;
}
