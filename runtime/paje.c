/* paje.c: corrects a Paje file of StarPU's tool for ViTE, which interprets some of it differently (the Paje trace format, Schnorr
 * 2016). */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* Writes the definition of a task's name and colour. StarPU's colours range from 0 to 255, those of Paje from 0 to 1. Names
 * contain spaces and "#", which starts a comment outside quotes. Without the correction, all tasks would be black.
 *
 *     6  conv1 forward #3  Ctx0  conv1 forward #3  "59 130 196"
 *     6  "conv1 forward #3"  Ctx0  "conv1 forward #3"  "0.231373 0.509804 0.768627" */
static void write_value(FILE *to, char *line) {
    char *alias = strchr(line, '\t') + 1, *type = strchr(alias, '\t'), *name = type ? strchr(type + 1, '\t') : NULL;
    char *color = name ? strchr(name + 1, '\t') : NULL;
    double red, green, blue;
    if (!color || *alias == '"' || sscanf(color, "\t\"%lf %lf %lf\"", &red, &green, &blue) != 3) {
        fputs(line, to);
        return;
    }
    const double scale = red > 1 || green > 1 || blue > 1 ? 255 : 1;
    fprintf(to, "6\t\"%.*s\"\t%.*s\t\"%.*s\"\t\"%.6f %.6f %.6f\"\n", (int)(type - alias), alias, (int)(name - type - 1), type + 1,
            (int)(color - name - 1), name + 1, red / scale, green / scale, blue / scale);
}

/* Writes the start or end of a message. With 11 to 99 ranks, the MPI thread of rank 7 is defined as "07_mpict", but messages
 * refer to it as "7_mpict". Without the correction, they would be missing. */
static void write_ends(FILE *to, char *line) {
    for (char *tab; (tab = strchr(line, '\t')); line = tab + 1) {
        fwrite(line, 1, (size_t)(tab + 1 - line), to);
        if (tab[1] >= '0' && tab[1] <= '9' && strncmp(tab + 2, "_mpict", 6) == 0) putc('0', to);
    }
    fputs(line, to);
}

static bool has_ends(const char *line) {
    const char *const kinds[] = { "13\t", "18\t", "19\t", "23\t" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(line, kinds[i], 3) == 0) return true;
    return false;
}

/* Returns the rank in "8 time container …". Containers are called "3_w0" if there are several ranks, "w0" if there is one. */
static int rank_of(const char *line) {
    const char *container = strchr(line + 2, '\t');
    return container && container[1] >= '0' && container[1] <= '9' ? atoi(container + 1) : 0;
}

/* The last events of a rank are the ends of its threads. If they are missing, the events of the rank are truncated. */
void sgrad__paje_mend(const char *folder, int ranks) {
    struct sgrad_file file;
    bool *ended = sgrad_xcalloc((size_t)ranks, sizeof *ended);
    char *path = sgrad_format("%spaje.trace", folder), *line = NULL;
    size_t room = 0;
    FILE *from = fopen(path, "re");
    if (from && sgrad_file_begin(path, &file) == 0) {
        while (getline(&line, &room, from) > 0) {
            const int rank = strncmp(line, "8\t", 2) == 0 ? rank_of(line) : ranks;
            if (rank < ranks) ended[rank] = true;
            if (strncmp(line, "6\t", 2) == 0) write_value(file.stream, line);
            else if (ranks > 10 && ranks < 100 && has_ends(line)) write_ends(file.stream, line);
            else fputs(line, file.stream);
        }
        sgrad_file_commit(&file);
    }
    for (int r = 0; r < ranks; r++)
        if (!ended[r])
            sgrad_log_warning("%s: the events of rank %d end too soon, so the trace is incomplete; check that no disk is full",
                              folder, r);
    if (from) fclose(from);
    free(ended);
    free(line);
    free(path);
}
