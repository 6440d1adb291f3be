/* terminal.h: what is drawn over and over, a progress bar say, is for a terminal that a person looks at. */
#ifndef SGRAD_RUNTIME_TERMINAL_H
#define SGRAD_RUNTIME_TERMINAL_H

#include <stdbool.h>

/* Does a person see what is written to the descriptor FD? mpirun gives its ranks terminals of its own making: what counts then is
 * where mpirun's own standard output goes. */
bool sgrad_terminal(int fd);

/* The width of the terminal FD; 80 if it does not say. A line of so many columns, or more, wraps, and cannot be drawn over. */
int sgrad_terminal_columns(int fd);

#endif
