/* Files are complete or do not exist; files that are read must be regular, not too large, and not empty; only one process can
 * write to a folder. */
#include "config.h"
#include "runtime/environment.h"
#include "runtime/runtime.h"
#include "runtime/files/streams.h"
#include "tests/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int files_in_scratch(void) {
    DIR *dir = opendir(scratch_root);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void content_is(const char *path, const char *text) {
    struct sgrad_map map;
    assert_done(sgrad_map_open(path, 1000, &map));
    assert_int_equal(map.size, strlen(text));
    assert_memory_equal(map.data, text, map.size);
    sgrad_map_close(&map);
}

static void appears_at_commit(void **state) {
    (void)state;
    const char *path = scratch_write("file", "old", 3);
    struct sgrad_file file;
    assert_done(sgrad_file_begin(path, &file));
    fputs("new content", file.stream);
    fflush(file.stream);
    content_is(path, "old");
    assert_done(sgrad_file_commit(&file));
    content_is(path, "new content");
    assert_int_equal(files_in_scratch(), 1);
}

static void abort_leaves_nothing(void **state) {
    (void)state;
    const char *path = scratch_write("file", "old", 3);
    struct sgrad_file file;
    assert_done(sgrad_file_begin(path, &file));
    fputs("new content", file.stream);
    sgrad_file_abort(&file);
    sgrad_file_abort(&file);
    content_is(path, "old");
    assert_int_equal(files_in_scratch(), 1);
}

static void relative_path(void **state) {
    (void)state;
    char before[4096];
    struct sgrad_file file;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(scratch_root), 0);
    assert_done(sgrad_file_begin("file", &file));
    fputs("here", file.stream);
    assert_done(sgrad_file_commit(&file));
    assert_int_equal(chdir(before), 0);
    content_is(scratch_path("file"), "here");
}

static void unwritable(void **state) {
    (void)state;
    struct sgrad_file file;
    assert_fails(sgrad_file_begin(scratch_path("absent/file"), &file), SGRAD_EIO, "absent/file: cannot be written: No such file");
    scratch_write("folder/x", "x", 1);
    assert_done(sgrad_file_begin(scratch_path("folder"), &file));
    fputs("new", file.stream);
    assert_fails(sgrad_file_commit(&file), SGRAD_EIO, "folder: cannot be written: Is a directory");
    content_is(scratch_path("folder/x"), "x");
}

/* A limit on file sizes stands for a full disk: the write fails, once inside stdio where nobody looks, once at the end. */
static void disk_full(void **state) {
    (void)state;
    const char *path = scratch_write("file", "old", 3);
    const int before = files_in_scratch();
    struct rlimit limit, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    small = limit;
    small.rlim_cur = 10000;
    static const char zeros[200000];
    for (size_t size = 10001; size <= sizeof zeros; size *= 4) {
        struct sgrad_file file;
        setrlimit(RLIMIT_FSIZE, &small);
        int begun = sgrad_file_begin(path, &file);
        size_t written = fwrite(zeros, 1, size, file.stream);
        setrlimit(RLIMIT_FSIZE, &limit);
        assert_done(begun);
        if (written == size) setrlimit(RLIMIT_FSIZE, &small); /* still buffered: fails at commit */
        scratch_listen();
        int error = sgrad_file_commit(&file);
        setrlimit(RLIMIT_FSIZE, &limit);
        const char *line = scratch_said();
        assert_int_equal(error, SGRAD_EIO);
        assert_contains(line, "file: cannot be written: ");
        content_is(path, "old");
        assert_int_equal(files_in_scratch(), before);
    }
}

/* The reason is found, also if the write that failed is over. */
static void device_full(void **state) {
    (void)state;
    static const char zeros[200000];
    for (size_t size = 1; size <= sizeof zeros; size += sizeof zeros - 1) {
        FILE *stream = fopen("/dev/full", "w");
        if (!stream) skip();
        fwrite(zeros, 1, size, stream);
        assert_int_equal(sgrad_stream_error(stream), ENOSPC);
        assert_int_equal(sgrad_stream_error(stream), ENOSPC);
        fclose(stream);
    }
}

static void unreadable(void **state) {
    (void)state;
    struct sgrad_map map;
    assert_fails(sgrad_map_open(scratch_path("nowhere"), 10, &map), SGRAD_EIO, "nowhere: No such file or directory");
    assert_fails(sgrad_map_open(scratch_root, 10, &map), SGRAD_EIO, ": not a regular file");
    assert_fails(sgrad_map_open(scratch_write("empty", "", 0), 10, &map), SGRAD_EFORMAT, "empty: the file is empty");
    assert_fails(sgrad_map_open(scratch_write("long", "0123456789x", 11), 10, &map), SGRAD_EFORMAT,
                 "has 11 bytes, but must have at most 10");
    const char *pipe = scratch_path("pipe");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_fails(sgrad_map_open(pipe, 10, &map), SGRAD_EIO, "pipe: not a regular file");
}

/* Somebody shortens the file after it was opened, or while it is: no signal. The kernel's own files say 4096 bytes, and have
 * fewer. */
static void shortened(void **state) {
    (void)state;
    static const char long_text[100000] = "begin";
    const char *kernels = "/sys/kernel/mm/transparent_hugepage/enabled";
    const char *path = scratch_write("long", long_text, sizeof long_text);
    struct sgrad_map map;
    assert_done(sgrad_map_open(path, sizeof long_text, &map));
    assert_int_equal(truncate(path, 3), 0);
    assert_memory_equal(map.data, long_text, sizeof long_text);
    sgrad_map_close(&map);
    if (access(kernels, R_OK) == 0)
        assert_fails(sgrad_map_open(kernels, 10000, &map), SGRAD_EIO, "but was longer when it was opened");
    else
        print_message("not tested: %s is not there\n", kernels);
}

/* Another process that takes the folder's lock, sends the result, and keeps it until its pipe is closed, or it is killed. */
static pid_t other_writer(const char *folder, int *error, int *pipe_end) {
    int up[2], down[2], lock;
    assert_int_equal(pipe(up) | pipe(down), 0);
    const pid_t other = fork();
    if (other == 0) {
        close(down[1]);
        int result = sgrad_lock_take(folder, &lock);
        if (write(up[1], &result, sizeof result) != sizeof result || read(down[0], &lock, 1) < 0) _exit(1);
        _exit(0);
    }
    assert_int_equal(read(up[0], error, sizeof *error), sizeof *error);
    close(up[0]);
    close(up[1]);
    close(down[0]);
    *pipe_end = down[1];
    return other;
}

static void locks(void **state) {
    (void)state;
    int error, end, lock;
    for (int killed = 0; killed < 2; killed++) {
        pid_t other = other_writer(scratch_root, &error, &end);
        assert_done(error);
        assert_fails(sgrad_lock_take(scratch_root, &lock), SGRAD_EIO, ": another run is writing there");
        assert_int_equal(sgrad_lock_holder(scratch_root), other);
        if (killed) kill(other, SIGKILL);
        close(end);
        assert_int_equal(waitpid(other, NULL, 0), other);
    }
    assert_int_equal(sgrad_lock_holder(scratch_root), 0);
    assert_int_equal(sgrad_lock_holder(scratch_path("absent")), 0);
    assert_done(sgrad_lock_take(scratch_root, &lock));
    assert_int_equal(files_in_scratch(), 0);
    scratch_listen();
    pid_t other = other_writer(scratch_root, &error, &end);
    assert_int_equal(error, SGRAD_EIO);
    assert_contains(scratch_said(), ": another run is writing there");
    close(end);
    waitpid(other, NULL, 0);
    sgrad_lock_release(lock);
    other = other_writer(scratch_root, &error, &end);
    assert_done(error);
    close(end);
    waitpid(other, NULL, 0);
    assert_fails(sgrad_lock_take(scratch_path("absent"), &lock), SGRAD_EIO, "absent/.lock: cannot be written: No such file");
}

/* Two writers at once, one of whom was cut off: what is whole is found, the last one counts. */
static void memos(void **state) {
    (void)state;
    char value[8] = "none";
    unsetenv("XDG_CACHE_HOME");
    setenv("STARPU_HOME", scratch_root, 1);
    assert_false(sgrad_tuning_cache_get("topic", "a key", value, sizeof value));
    sgrad_tuning_cache_put("topic", "a key", "1 2");
    sgrad_tuning_cache_put("topic", "a key, longer", "3");
    assert_true(sgrad_tuning_cache_get("topic", "a key", value, sizeof value));
    assert_string_equal(value, "1 2");
    sgrad_tuning_cache_put("topic", "a key", "7654321");
    assert_true(sgrad_tuning_cache_get("topic", "a key", value, sizeof value));
    assert_string_equal(value, "7654321");
    sgrad_tuning_cache_put("topic", "too long", "87654321");
    assert_false(sgrad_tuning_cache_get("topic", "too long", value, sizeof value));
    assert_false(sgrad_tuning_cache_get("topic", "a", value, sizeof value));
    assert_false(sgrad_tuning_cache_get("another", "a key", value, sizeof value));
    FILE *file = fopen(scratch_path(".starpu/stargrad/topic"), "a");
    fputs("cut off\t5", file);
    fclose(file);
    assert_false(sgrad_tuning_cache_get("topic", "cut off", value, sizeof value));
    assert_int_equal(sgrad_folders_make(scratch_path(".starpu/stargrad/full"), 0, 0), 0);
    scratch_listen();
    sgrad_tuning_cache_put("full", "a key", "1");
    assert_contains(scratch_said(), "the cache cannot be written: Is a directory; the next run will repeat the measurements");
}

/* The folder of XDG_CACHE_HOME may be missing, also with its parents; $HOME may not. */
static void cache_folder(void **state) {
    (void)state;
    struct stat is;
    setenv("XDG_CACHE_HOME", scratch_path("new/cache"), 1);
    char *path = sgrad_cache_path("topic/x", false);
    assert_non_null(path);
    free(path);
    assert_int_equal(access(scratch_path("new"), F_OK), -1);
    assert_non_null(path = sgrad_cache_path("topic/x", true));
    free(path);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stat(scratch_path(i ? "new" : "new/cache"), &is), 0);
        assert_int_equal(is.st_mode & 0777, 0700);
    }
    assert_int_equal(access(scratch_path("new/cache/.starpu/stargrad/topic"), W_OK), 0);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("STARPU_HOME");
    setenv("HOME", scratch_path("absent"), 1);
    scratch_listen();
    assert_null(sgrad_cache_path("topic", true));
    assert_contains(scratch_said(), "absent/.starpu/stargrad cannot be created: No such file or directory; measurements and "
                                    "indexes of data sets are not stored; set XDG_CACHE_HOME to a writable folder");
    scratch_listen();
    assert_null(sgrad_cache_path("topic", true)); /* warns once */
    assert_string_equal(scratch_said(), "");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence_with("a file is replaced when it is committed, and not before", appears_at_commit, scratch_open, scratch_close),
        sentence_with("a file that is given up leaves the old one and nothing else",
                      abort_leaves_nothing, scratch_open, scratch_close),
        sentence_with("a file of a relative path is written", relative_path, scratch_open, scratch_close),
        sentence_with("a file that cannot be written is refused, with the reason", unwritable, scratch_open, scratch_close),
        sentence_with("a full disk is an error, and the old file stays", disk_full, scratch_open, scratch_close),
        sentence("the reason of a failed write is known after the write", device_full),
        sentence_with("a file that is missing, empty, too long or not regular is refused",
                      unreadable, scratch_open, scratch_close),
        sentence_with("a file that somebody shortens while it is read does no harm", shortened, scratch_open, scratch_close),
        sentence_with("two runs cannot write to one folder", locks, scratch_open, scratch_close),
        sentence_with("measured values are kept for later runs, and damaged ones are left out",
                      memos, scratch_open, scratch_close),
        sentence_with("a missing cache folder is created for this user only, or a warning states the reason", cache_folder,
                      scratch_open, scratch_close),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
