/* config.c: stargrad config: prints the compiler and linker flags for programs and plug-ins that use Stargrad.
 *
 * The flags are those of the file for pkg-config that belongs to this program: build/stargrad-uninstalled.pc of a build, or
 * LIBDIR/pkgconfig/stargrad.pc of an installation. */
#include "cli/cli.h"
#include "runtime/files/data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct sgrad__option options[] = {
    { "cflags", NULL, "print the flags for the compiler", &sgrad__flag, SGRAD__PLACE(config_flags.compiler) },
    { "libs", NULL, "print the flags for the linker", &sgrad__flag, SGRAD__PLACE(config_flags.linker) },
    { 0 },
};

/* The lines of the file so far: "NAME=VALUE" and "KEY: VALUE", without line ends. */
struct lines {
    char **line;
    int count;
};

/* Returns the value of the line that begins with NAME, of LENGTH bytes, and MARK; NULL: there is none. */
static const char *value_of(const struct lines *lines, const char *name, size_t length, char mark) {
    for (int i = 0; i < lines->count; i++)
        if (!strncmp(lines->line[i], name, length) && lines->line[i][length] == mark) {
            const char *value = lines->line[i] + length + 1;
            return value + strspn(value, " ");
        }
    return NULL;
}

/* Returns TEXT with the values of its variables, ${NAME}. Unknown variables are empty. The caller must free it. */
static char *expand(const struct lines *lines, const char *text) {
    char *all = sgrad_format("%s", "");
    while (*text) {
        const char *at = strstr(text, "${"), *end = at ? strchr(at, '}') : NULL;
        const size_t plain = end ? (size_t)(at - text) : strlen(text);
        const char *value = end ? value_of(lines, at + 2, (size_t)(end - at - 2), '=') : NULL;
        char *before = all;
        all = sgrad_format("%s%.*s%s", before, (int)plain, text, value ? value : "");
        free(before);
        text = end ? end + 1 : text + plain;
    }
    return all;
}

/* Reads the file PATH. The values of variables are expanded, so that each may use those before it. */
static int read_lines(const char *path, struct lines *lines) {
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    if (!file) return sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    for (ssize_t length; (length = getline(&line, &room, file)) > 0;) {
        if (line[length - 1] == '\n') line[length - 1] = 0;
        char *expanded = expand(lines, line);
        lines->line = sgrad_array_grow(lines->line, lines->count, sizeof *lines->line);
        lines->line[lines->count++] = expanded;
    }
    const int error = ferror(file) ? sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno)) : 0;
    free(line);
    fclose(file);
    return error;
}

/* Prints the flags of KEY after GAP. */
static int print_flags(const char *path, const struct lines *lines, const char *key, const char *gap) {
    const char *value = value_of(lines, key, strlen(key), ':');
    if (!value) return sgrad_log_error(SGRAD_EFORMAT, "%s: has no line '%s:'", path, key);
    printf("%s%s", gap, value);
    return 0;
}

static int run(const struct sgrad__request *request) {
    static const char *const name[] = { "stargrad-uninstalled.pc", SGRAD_PKGCONFIG "/stargrad.pc" };
    const bool compiler = request->config_flags.compiler, linker = request->config_flags.linker;
    struct lines lines = { 0 };
    char *path = NULL;
    if (!compiler && !linker) return sgrad__wrong("config: give --cflags, --libs, or both");
    for (size_t i = 0; !path && i < sizeof name / sizeof *name; i++) path = sgrad_data_path(name[i]);
    if (!path) {
        sgrad_log_error(SGRAD_EIO, "config: stargrad.pc was not found: this installation has no headers; install Stargrad from "
                                   "source, or use build/stargrad of a clone");
        return SGRAD__FAILED;
    }
    int error = read_lines(path, &lines);
    if (!error && compiler) error = print_flags(path, &lines, "Cflags", "");
    if (!error && linker) error = print_flags(path, &lines, "Libs", compiler ? " " : "");
    if (!error) putchar('\n');
    for (int i = 0; i < lines.count; i++) free(lines.line[i]);
    free(lines.line);
    free(path);
    return sgrad__status(error);
}

const struct sgrad__command sgrad__config_command = {
    .name = "config",
    .summary = "print compiler flags for programs and plug-ins",
    .options = options,
    .run = run,
    .notes = "Compile a plug-in:\n\n  cc -O2 -shared -fPIC mine.c -o libmine.so $(stargrad config --cflags)\n\n"
             "Compile a program:\n\n  cc mine.c -o mine $(stargrad config --cflags --libs)\n\n"
             "In a build that is not installed, the flags name the folders of the clone. Of an installation, they are those of "
             "pkg-config stargrad.",
};
