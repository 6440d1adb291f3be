/* terminal.h: is output, such as a progress bar, shown on a terminal? */
#ifndef SGRAD_RUNTIME_TERMINAL_H
#define SGRAD_RUNTIME_TERMINAL_H

#include <stdbool.h>

/* Does output to the descriptor FD appear on a terminal? mpirun gives its ranks pseudo-terminals; its own standard output then
 * decides. */
bool sgrad_terminal(int fd);

/* The width of the terminal FD in columns; 80 if unknown. A line of that width or more wraps, and cannot be redrawn. */
int sgrad_terminal_columns(int fd);

#endif
