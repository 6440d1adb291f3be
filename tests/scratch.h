/* scratch.h: for tests with files: a folder that is removed at the end, and the text on standard error. */
#ifndef SGRAD_TESTS_SCRATCH_H
#define SGRAD_TESTS_SCRATCH_H

#include "tests/asserts.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch_root[256];

/* Setup and teardown of a group of tests. */
static inline int scratch_open(void **state) {
    (void)state;
    const char *folder = getenv("TMPDIR");
    snprintf(scratch_root, sizeof scratch_root, "%s/stargrad-test-XXXXXX", folder ? folder : "/tmp");
    return mkdtemp(scratch_root) ? 0 : -1;
}

static inline int scratch_remove(const char *path, const struct stat *status, int kind, struct FTW *ftw) {
    (void)status, (void)kind, (void)ftw;
    return remove(path);
}

static inline int scratch_close(void **state) {
    (void)state;
    return nftw(scratch_root, scratch_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of NAME in the folder; good until sixteen more are asked for. */
static inline const char *scratch_path(const char *name) {
    static char path[16][512];
    static int next;
    char *p = path[next++ % 16];
    snprintf(p, sizeof path[0], "%s%s%s", scratch_root, *name ? "/" : "", name);
    return p;
}

/* Writes a file, and the folders on the way to it; returns its path. */
static inline const char *scratch_write(const char *name, const void *data, size_t size) {
    const char *path = scratch_path(name);
    char folder[512];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = folder + strlen(scratch_root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(folder, 0777);
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* Standard error, from silence to heard, as text. */
static FILE *scratch_heard;
static int scratch_stderr;
static char scratch_text[4096];

static inline const char *scratch_said(void);
static inline void scratch_recover(void) { fputs(scratch_said(), stderr); }

static inline void scratch_listen(void) {
    fflush(stderr);
    scratch_heard = tmpfile();
    assert_non_null(scratch_heard);
    scratch_stderr = dup(2);
    dup2(fileno(scratch_heard), 2);
    asserts_recover = scratch_recover;
}

static inline const char *scratch_said(void) {
    asserts_recover = NULL;
    fflush(stderr);
    dup2(scratch_stderr, 2);
    close(scratch_stderr);
    rewind(scratch_heard);
    scratch_text[fread(scratch_text, 1, sizeof scratch_text - 1, scratch_heard)] = 0;
    fclose(scratch_heard);
    return scratch_text;
}

static inline int scratch_one_line(const char *text) {
    return !strncmp(text, "stargrad: ", 10) && strchr(text, '\n') == text + strlen(text) - 1;
}

static inline void scratch_refused(const char *call, int is, int error, const char *said, const char *text, const char *file,
                                   int line) {
    if (is == error && scratch_one_line(said) && strstr(said, text)) return;
    if (is == SGRAD_ELIBRARY) asserts_lacks(said, file, line);
    asserts_fail(file, line, "%s\n    expected: %d (%s) and one line with \"%s\"\n    returned: %d (%s) and \"%.*s\"\n", call,
                 error, sgrad_strerror(error), text, is, sgrad_strerror(is), (int)strlen(said) - scratch_one_line(said), said);
}

/* The call returns ERROR and says so in one line, which has TEXT in it. */
#define assert_fails(call, error, text)                                                                    \
    do {                                                                                                   \
        scratch_listen();                                                                                  \
        const int scratch_result = (call);                                                                 \
        const char *scratch_line = scratch_said();                                                         \
        scratch_refused(#call, scratch_result, error, scratch_line, text, __FILE__, __LINE__);             \
    } while (0)

/* The call may return an error, but then says why in one line; it never does anything else. True: it returned 0. */
#define survives(call) scratch_judge((scratch_listen(), (call)))
static inline int scratch_judge(int error) {
    const char *line = scratch_said();
    assert_true(error <= 0);
    if (error == 0)
        assert_string_equal(line, "");
    else if (!scratch_one_line(line))
        fail_msg("\"%s\" is not one line", line);
    return error == 0;
}

#endif
