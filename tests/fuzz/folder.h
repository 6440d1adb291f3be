/* folder.h: for targets whose input is a file in a run's folder. */
#ifndef SGRAD_TESTS_FUZZ_FOLDER_H
#define SGRAD_TESTS_FUZZ_FOLDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const folder_files[] = { "config.json", "metrics.jsonl" };
static char folder[512];

static inline void folder_remove(void) {
    char path[sizeof folder + 64];
    for (size_t i = 0; i < sizeof folder_files / sizeof *folder_files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, folder_files[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* The folder, gone when the program ends, in which the file NAME is now these bytes. */
static inline const char *folder_with(const char *name, const void *data, size_t size) {
    char path[sizeof folder + 64];
    if (!*folder) {
        const char *temporary = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/stargrad-fuzz-XXXXXX", temporary ? temporary : "/tmp");
        if (!mkdtemp(folder)) abort();
        atexit(folder_remove);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) abort();
    return folder;
}

#endif
