/* contents.h: what a file is by its first bytes, for messages of readers that expected another kind of file. */
#ifndef SGRAD_RUNTIME_CONTENTS_H
#define SGRAD_RUNTIME_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>

struct sgrad_contents {
    const char *name;       /* with its article: "a Git LFS pointer" */
    const char *way_out;    /* how to get what such a file stands for; NULL: nothing is known */
};

/* The kind of a file of which the first SIZE bytes are at FIRST, 512 or all of them; NULL: it is not known. Lives as long as the
 * program. */
const struct sgrad_contents *sgrad_contents(const void *first, size_t size);

/* Is it text that begins with "{" or "[", after blanks and a byte order mark? */
bool sgrad_contents_is_json(const void *first, size_t size);

/* Does PATH, which a file names beside itself, lead out of that file's folder? So does an empty one. */
bool sgrad_path_leads_out(const char *path);

#endif
