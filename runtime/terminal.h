/* terminal.h: detection of terminals, for output such as progress bars, and the width of text on them. */
#ifndef SGRAD_RUNTIME_TERMINAL_H
#define SGRAD_RUNTIME_TERMINAL_H

#include <stdbool.h>

/* Returns true if output to the descriptor FD appears on a terminal. In a rank of mpirun, which provides pseudo-terminals, the
 * standard output of mpirun must be a terminal as well. */
bool sgrad_terminal(int fd);

/* Returns the width of the terminal FD in columns; 80 if unknown. A line of that width or more wraps, and cannot be redrawn. */
int sgrad_terminal_columns(int fd);

/* Returns the number of columns of a terminal that TEXT, UTF-8 without control characters, needs: 2 for a Chinese character, 0
 * for a combining accent. A byte that is not UTF-8 needs one. */
int sgrad_text_columns(const char *text);

#endif
