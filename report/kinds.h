/* kinds.h: the kinds of tasks in a trace, in order, and the kind of each kernel. */
#ifndef SGRAD_REPORT_KINDS_H
#define SGRAD_REPORT_KINDS_H

#include <jansson.h>

enum { SGRAD__KINDS = 16 };             /* maximum number of kinds */

struct sgrad__kinds {
    int count;
    struct sgrad__kind {
        const char *name;               /* "forward" */
        unsigned color;                 /* 0xRRGGBB */
    } kind[SGRAD__KINDS];
    json_t *file;                       /* kernels.json, which owns the names */
    const json_t *kernels;              /* the kind of each kernel: {"stargrad_relu_forward": "forward", …} */
};
/* Reads FOLDER/trace/kernels.json. On success the caller must free *KINDS. SGRAD_EFORMAT: the file is missing or malformed. */
int sgrad__kinds_read(const char *folder, struct sgrad__kinds *kinds);
void sgrad__kinds_free(struct sgrad__kinds *kinds);
int sgrad__kinds_find(const struct sgrad__kinds *kinds, const char *name);      /* index of the kind NAME; -1: none */
/* Returns the index of the kind of the kernel MODEL, its name in StarPU's traces; NULL: it has no name. A kernel that the file
 * does not list is of the kind "input", or, if there is no such kind, of the last kind. */
int sgrad__kinds_of(const struct sgrad__kinds *kinds, const char *model);

#endif
