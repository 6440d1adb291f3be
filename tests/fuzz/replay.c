/* replay.c: main() of a fuzz target without a fuzzer. It runs the target on every file of tests/fuzz/corpus/NAME/, where NAME
 * is that of the program, or on the files of its command line. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path) {
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    printf("%s: %zu bytes\n", path, size);
    fflush(stdout);
    /* Memory of exactly this size, so that a sanitizer sees a step beyond it. */
    uint8_t *copy = malloc(size + !size);
    if (!copy) return 1;
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return 0;
}

int main(int argc, char **argv) {
    int failed = 0;
    for (int i = 1; i < argc; i++) failed |= replay(argv[i]);
    if (argc > 1) return failed;
    const char *srcdir = getenv("srcdir"), *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    if (!strncmp(name, "lt-", 3)) name += 3;
    char folder[4096], path[8192];
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", srcdir ? srcdir : ".", name);
    DIR *dir = opendir(folder);
    if (!dir) {
        perror(folder);
        return 1;
    }
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        failed |= replay(path);
    }
    closedir(dir);
    return failed;
}
