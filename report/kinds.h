/* kinds.h: the kinds of task of a trace, in order, and of which kind a kernel is. */
#ifndef SGRAD_REPORT_KINDS_H
#define SGRAD_REPORT_KINDS_H

#include <jansson.h>

enum { SGRAD__KINDS = 16 };             /* at most */

struct sgrad__kinds {
    int count;
    struct sgrad__kind {
        const char *name;               /* "forward" */
        unsigned color;                 /* 0xRRGGBB */
    } kind[SGRAD__KINDS];
    json_t *file;                       /* whose the names are */
    const json_t *kernels;              /* {"stargrad_relu_forward": "forward", …} */
};
/* Reads FOLDER/trace/kernels.json. */
int sgrad__kinds_read(const char *folder, struct sgrad__kinds *kinds);
void sgrad__kinds_free(struct sgrad__kinds *kinds);
int sgrad__kinds_find(const struct sgrad__kinds *kinds, const char *name);      /* its index; -1: there is none */
/* Of the kernel that StarPU calls so (NULL: it has no name): one that the file does not name is of kind input, or the last. */
int sgrad__kinds_of(const struct sgrad__kinds *kinds, const char *model);

#endif
