/* terminal.c: determines whether output goes to a terminal, the width of the terminal, and that of text.
 *
 *     a rank ──a terminal that mpirun made──> mpirun ──standard output──> a terminal, or a job's log
 *
 * The output of a rank goes to mpirun, so the standard output of its parent process is checked as well.
 *
 * Limits: on a host other than that of mpirun, the parent is a daemon of mpirun, which has no terminal. Rank 0 is usually on the
 * host of mpirun. */
#include "config.h"
#include "runtime/terminal.h"

#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

/* Returns true if the standard output of the parent process is a terminal. */
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

static int columns_of(const char *text) {
    mbstate_t state = { 0 };
    int columns = 0;
    for (size_t left = strlen(text), bytes; left; text += bytes, left -= bytes) {
        wchar_t character;
        bytes = mbrtowc(&character, text, left, &state);
        if (bytes <= left) columns += wcwidth(character) > 0 ? wcwidth(character) : 0;
        else state = (mbstate_t){ 0 }, bytes = 1, columns++;
    }
    return columns;
}

int sgrad_text_columns(const char *text) {
    const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);     /* whatever the locale of the process is */
    if (!utf8) return (int)strlen(text);
    const locale_t before = uselocale(utf8);
    const int columns = columns_of(text);
    uselocale(before);
    freelocale(utf8);
    return columns;
}
