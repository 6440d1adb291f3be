/* contents.h: identifies the kind of a file by its first bytes, for errors of readers that expected another kind. */
#ifndef SGRAD_RUNTIME_FILES_CONTENTS_H
#define SGRAD_RUNTIME_FILES_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>

struct sgrad_contents {
    const char *name;       /* with article: "a Git LFS pointer" */
    const char *way_out;    /* advice for the user: how to get the intended file; NULL: none */
};

/* Returns the kind of a file from its first SIZE bytes at FIRST: 512, or all of a shorter file. NULL: unknown. Static. */
const struct sgrad_contents *sgrad_contents(const void *first, size_t size);

/* Returns true if the SIZE bytes at FIRST begin with "{" or "[", after an optional byte order mark and blanks. */
bool sgrad_contents_is_json(const void *first, size_t size);

/* Returns true if PATH, a reference from one file to another, may lead out of the folder of the first file: it is empty or
 * absolute, or contains "..". */
bool sgrad_path_leads_out(const char *path);

#endif
