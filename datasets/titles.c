/* titles.c: reads a file of names of classes for users: line i is the name of class i. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

#define FILE_LIMIT ((size_t)1 << 26)

/* Sets the first CLASSES titles, and *LINES to the number of lines. SGRAD_EFORMAT: a line is empty or not UTF-8. */
static int read_lines(const char *file, const struct sgrad_map *map, int classes, char **title, int *lines) {
    const char *at = (const char *)map->data, *end = at + map->size;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > at && stop[-1] == '\r') stop--;
        if (stop == at || !sgrad__is_text(at, (size_t)(stop - at)) || !sgrad__is_utf8(at, (size_t)(stop - at)))
            return sgrad_log_error(SGRAD_EFORMAT, "%s: line %d: must be the name of a class, as UTF-8 text", file, *lines + 1);
        if (*lines < classes) title[*lines] = sgrad_format("%.*s", (int)(stop - at), at);
        ++*lines;
        at = next;
    }
    return 0;
}

int sgrad_class_titles_read(const char *file, int classes, char ***title) {
    struct sgrad_map map;
    int lines = 0;
    SGRAD_TRY(sgrad_map_open(file, FILE_LIMIT, &map));
    char **all = sgrad_xcalloc((size_t)classes + 1, sizeof *all);
    int error = read_lines(file, &map, classes, all, &lines);
    sgrad_map_close(&map);
    if (!error && lines != classes)
        error = sgrad_log_error(SGRAD_EFORMAT, "%s: has %d %s, but there are %d %s; write a line for each class", file, lines,
                                sgrad_plural(lines, "line", "lines"), classes, sgrad_plural(classes, "class", "classes"));
    if (!error) return *title = all, 0;
    for (int c = 0; c < classes; c++) free(all[c]);
    free(all);
    return error;
}
