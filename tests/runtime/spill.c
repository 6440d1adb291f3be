/* spill.c: a file returns the contents that were moved to it, of any size, in the order of submission; tasks wait for moves, and
 * moves for tasks. */
#include "runtime/partitions.h"
#include "runtime/spill.h"
#include "tests/asserts.h"
#include "tests/runtime/context.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 5, TURNS = 20 };
static const int sizes[SLOTS] = { 1, 1024, 1025, 70000, 3000001 };    /* elements: less than a block, blocks, several pieces */

static void add_one(const struct sgrad_args *args) {
    float *x = args->data[0];
    for (int64_t i = 0; i < sgrad_shape_count(&args->view[0].shape); i++) x[i] += 1;
}
static const struct sgrad_kernel adding = { .name = "adding", .cpu = add_one };

static void nothing(void *arg) { (void)arg; }

static int use_threads(void **state) {
    (void)state;
    return setenv("STARGRAD_SPILL_IO", "threads", 1);
}

static int use_any(void **state) {
    (void)state;
    return unsetenv("STARGRAD_SPILL_IO");
}

static const char *scratch(void) {
    const char *folder = getenv("TMPDIR");
    return folder ? folder : "/tmp";
}

static void submit(const struct sgrad_kernel *kernel, struct sgrad_tensor *tensor, struct sgrad_bound_kernel *call) {
    *call = (struct sgrad_bound_kernel){ .kernel = kernel, .operands = 1, .view = { tensor->view }, .access = { SGRAD_RW } };
    sgrad_bound_kernel_prepare(call);
    assert_done(sgrad_task_submit(&(struct sgrad_submission){ .call = call, .operand = &tensor }));
}

/* Each turn adds 1 to x, writes it, reads it to y, adds 1 to y and copies y to x: with a lost or an early move the result has
 * another value. All turns are submitted before the first one ends. */
static void returns_contents(void **state) {
    (void)state;
    static struct sgrad_bound_kernel call[SLOTS][2 * TURNS];
    struct sgrad_tensor *x[SLOTS], *y[SLOTS];
    struct sgrad_spill *spill;
    size_t bytes[SLOTS];
    double all = 0;
    for (int s = 0; s < SLOTS; s++) all += (double)(bytes[s] = (size_t)sizes[s] * sizeof(float));
    int first;
    assert_done(sgrad_spill_open(scratch(), &spill));
    assert_done(sgrad_spill_reserve(spill, bytes, SLOTS, &first));
    assert_int_equal(first, 0);
    for (int s = 0; s < SLOTS; s++) {
        assert_done(sgrad_tensor_create("x", SGRAD_F32, sgrad_shape(1, sizes[s]), SGRAD_PERSISTENT, &x[s]));
        assert_done(sgrad_tensor_create("y", SGRAD_F32, sgrad_shape(1, sizes[s]), SGRAD_TRANSIENT, &y[s]));
    }
    for (int t = 0; t < TURNS; t++)
        for (int s = 0; s < SLOTS; s++) {
            submit(&adding, x[s], &call[s][2 * t]);
            assert_done(sgrad_spill_write(spill, &(struct sgrad_spill_move){ .tensor = x[s], .slot = s, .done = nothing }));
            assert_done(sgrad_spill_read(spill, &(struct sgrad_spill_move){ .tensor = y[s], .slot = s, .done = nothing }));
            submit(&adding, y[s], &call[s][2 * t + 1]);
            assert_done(sgrad_tensor_copy(y[s], x[s]));
        }
    assert_done(sgrad_wait_all());
    for (int s = 0; s < SLOTS; s++) {
        float *is = sgrad_xcalloc((size_t)sizes[s], sizeof *is);
        assert_done(sgrad_tensor_read(x[s], is));
        for (int i = 0; i < sizes[s]; i++) assert_float_equal(is[i], 2 * TURNS, 0);
        free(is);
        sgrad_tensor_destroy(x[s]);
        sgrad_tensor_destroy(y[s]);
    }
    const struct sgrad_spill_totals totals = sgrad_spill_totals(spill);
    assert_float_equal(totals.written, TURNS * all, 0);
    assert_float_equal(totals.read, TURNS * all, 0);
    assert_true(totals.seconds > 0);
    sgrad_spill_close(spill);
}

/* Each turn reads the parts of x, which lives in the file, to y, adds 1 to y and writes it back. Then x is used as any tensor. */
static void moves_tensors_to_the_file(void **state) {
    (void)state;
    enum { COUNT = 300001, PARTS = 3 };
    static struct sgrad_bound_kernel call[PARTS * TURNS + 1];
    struct sgrad_tensor *x, *part[PARTS], *y[PARTS];
    struct sgrad_spill *spill;
    float *is = sgrad_xcalloc(COUNT, sizeof *is);
    for (int i = 0; i < COUNT; i++) is[i] = (float)i;
    assert_done(sgrad_spill_open(scratch(), &spill));
    assert_done(sgrad_tensor_create("x", SGRAD_F32, sgrad_shape(1, COUNT), SGRAD_PERSISTENT, &x));
    assert_done(sgrad_tensor_write(x, is));
    assert_done(sgrad_spill_to_file(spill, x));
    sgrad_tensor_partition(x, PARTS, part);
    for (int p = 0; p < PARTS; p++)
        assert_done(sgrad_tensor_create("y", SGRAD_F32, part[p]->view.shape, SGRAD_TRANSIENT, &y[p]));
    for (int t = 0; t < TURNS; t++)
        for (int p = 0; p < PARTS; p++) {
            const struct sgrad_spill_move move = { .tensor = y[p], .home = part[p], .done = nothing };
            assert_done(sgrad_spill_read(spill, &move));
            submit(&adding, y[p], &call[t * PARTS + p]);
            assert_done(sgrad_spill_write(spill, &move));
        }
    submit(&adding, x, &call[PARTS * TURNS]);
    assert_done(sgrad_wait_all());
    for (int p = 0; p < PARTS; p++) sgrad_tensor_destroy(y[p]);
    sgrad_tensor_unpartition(x, PARTS, part);
    sgrad_spill_close(spill);
    assert_done(sgrad_tensor_read(x, is));
    for (int i = 0; i < COUNT; i++) assert_float_equal(is[i], i + TURNS + 1, 0);
    sgrad_tensor_destroy(x);
    free(is);
}

static void returns_tensors(void **state) {
    (void)state;
    enum { COUNT = 300001 };
    struct sgrad_tensor *x;
    struct sgrad_spill *spill;
    float *is = sgrad_xcalloc(COUNT, sizeof *is);
    for (int i = 0; i < COUNT; i++) is[i] = (float)(i + 1);
    assert_done(sgrad_spill_open(scratch(), &spill));
    assert_done(sgrad_tensor_create("x", SGRAD_F32, sgrad_shape(1, COUNT), SGRAD_PERSISTENT, &x));
    for (int turn = 0; turn < 2; turn++) {
        assert_done(sgrad_spill_to_file(spill, x));
        assert_true(x->mapped);
        assert_done(sgrad_tensor_write(x, is));
        assert_done(sgrad_spill_to_memory(spill, x));
        assert_false(x->mapped);
    }
    sgrad_spill_close(spill);
    memset(is, 0, COUNT * sizeof *is);
    assert_done(sgrad_tensor_read(x, is));
    for (int i = 0; i < COUNT; i++) assert_float_equal(is[i], i + 1, 0);
    sgrad_tensor_destroy(x);
    free(is);
}

/* Returns a descriptor of the file without a name in the scratch folder. */
static int nameless_file(void) {
    for (int file = 3; file < 1024; file++) {
        char link[32], target[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        const ssize_t length = readlink(link, target, sizeof target - 1);
        if (length < 0) continue;
        target[length] = 0;
        if (!strncmp(target, scratch(), strlen(scratch())) && strstr(target, "(deleted)")) return file;
    }
    return -1;
}

static off_t file_size(void) {
    struct stat is;
    assert_int_equal(fstat(nameless_file(), &is), 0);
    return is.st_size;
}

/* Slots with other sizes, of fewer and of more bytes in total, have the space of the ones before; only the rest is added. Another
 * part of the file lies between. */
static void reuses_slots(void **state) {
    (void)state;
    enum { BLOCK = SGRAD_SPILL_BLOCK, KEPT = 3 * BLOCK };
    const size_t some[] = { 10 * BLOCK, 1, 20 * BLOCK }, fewer[] = { BLOCK, 25 * BLOCK };
    const size_t more[] = { 30 * BLOCK, 2 * BLOCK, BLOCK };
    struct sgrad_spill *spill;
    void *kept;
    int first;
    assert_done(sgrad_spill_open(scratch(), &spill));
    assert_done(sgrad_spill_reserve(spill, some, 3, &first));
    assert_done(sgrad_spill_map(spill, KEPT, &kept));
    const off_t size = file_size();
    assert_int_equal(size, 31 * BLOCK + KEPT);
    sgrad_spill_free(spill, first, 3);
    assert_done(sgrad_spill_reserve(spill, fewer, 2, &first));
    assert_int_equal(first, 0);
    assert_int_equal(file_size(), size);
    sgrad_spill_free(spill, first, 2);
    assert_int_equal(sgrad_spill_reserve(spill, &(size_t){ (size_t)1 << 60 }, 1, &first), SGRAD_EIO);
    assert_done(sgrad_spill_reserve(spill, more, 3, &first));       /* two blocks are new */
    assert_int_equal(file_size(), size + 2 * BLOCK);
    sgrad_spill_free(spill, first, 3);
    assert_done(sgrad_spill_reserve(spill, more, 3, &first));
    assert_int_equal(file_size(), size + 2 * BLOCK);
    sgrad_spill_unmap(spill, kept);
    sgrad_spill_close(spill);
}

/* The second part has the space of the first one: the file does not grow. */
static void maps_parts(void **state) {
    (void)state;
    enum { BYTES = 5000003 };
    struct sgrad_spill *spill;
    struct stat before, after;
    char *one, *other;
    assert_done(sgrad_spill_open(scratch(), &spill));
    assert_done(sgrad_spill_map(spill, BYTES, (void **)&one));
    memset(one, 7, BYTES);
    sgrad_mapped_drop_pages(one, BYTES);
    assert_done(sgrad_spill_flush(spill));
    for (int i = 0; i < BYTES; i++) assert_int_equal(one[i], 7);
    sgrad_spill_unmap(spill, one);
    assert_int_equal(fstat(nameless_file(), &before), 0);
    assert_done(sgrad_spill_map(spill, BYTES - 4096, (void **)&one));
    assert_int_equal(fstat(nameless_file(), &after), 0);
    assert_int_equal(before.st_size, after.st_size);
    assert_done(sgrad_spill_map(spill, 1, (void **)&other));
    *other = 5;
    assert_int_equal(sgrad_spill_map(spill, (size_t)1 << 60, (void **)&other), SGRAD_EIO);
    assert_int_equal(*other, 5);
    sgrad_spill_unmap(spill, one);
    sgrad_spill_unmap(spill, other);
    sgrad_spill_close(spill);
}

/* A file that is cut has pages that cannot be read, like a file on a broken disk. */
static void reports_lost_pages(void **state) {
    (void)state;
    struct sgrad_spill *spill;
    void *memory;
    char said[512] = "";
    int message[2], status;
    assert_done(sgrad_spill_open(scratch(), &spill));
    assert_done(sgrad_spill_map(spill, 10000, &memory));
    assert_int_equal(pipe(message), 0);
    const pid_t child = fork();
    if (!child) {
        dup2(message[1], STDERR_FILENO);
        if (ftruncate(nameless_file(), 0)) _exit(3);
        _exit(((volatile char *)memory)[5000]);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_true(read(message[0], said, sizeof said - 1) > 0);
    assert_non_null(strstr(said, scratch()));
    assert_non_null(strstr(said, "cannot be read: Input/output error; check the disk"));
    close(message[0]), close(message[1]);
    sgrad_spill_unmap(spill, memory);
    sgrad_spill_close(spill);
}

static void refuses_folders(void **state) {
    (void)state;
    struct sgrad_spill *spill;
    struct sgrad_spill_speed speed;
    char *file = sgrad_format("%s/spill-is-a-file-%d", scratch(), (int)getpid());
    FILE *f = fopen(file, "w");
    fclose(f);
    int first;
    assert_int_equal(sgrad_spill_open("/nonexistent", &spill), SGRAD_EIO);
    assert_int_equal(sgrad_spill_open(file, &spill), SGRAD_EIO);
    assert_done(sgrad_spill_open(scratch(), &spill));
    assert_int_equal(sgrad_spill_reserve(spill, &(size_t){ (size_t)1 << 60 }, 1, &first), SGRAD_EIO);
    assert_done(sgrad_spill_reserve(spill, &(size_t){ 1 }, 1, &first));
    assert_int_equal(first, 0);
    sgrad_spill_close(spill);
    assert_int_equal(sgrad_spill_measure("/nonexistent", &speed), SGRAD_EIO);
    assert_done(sgrad_spill_measure(scratch(), &speed));
    assert_true(speed.write > 0 && speed.read > 0);
    unlink(file);
    free(file);
    sgrad_spill_close(NULL);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a file returns the contents that were moved to it, in order", returns_contents),
        sentence_with("a file returns them with threads", returns_contents, use_threads, use_any),
        sentence("a tensor in the file has the changes of its copies, and of tasks", moves_tensors_to_the_file),
        sentence_with("a tensor in the file has them with threads", moves_tensors_to_the_file, use_threads, use_any),
        sentence("a tensor returns from the file to memory with its content", returns_tensors),
        sentence("slots use space in which there were others", reuses_slots),
        sentence("copies of data use space that was reserved before", maps_parts),
        sentence("a page that cannot be read ends the process with a message", reports_lost_pages),
        sentence("folders without a disk, or without enough space, are refused", refuses_folders),
        sentence_with("such folders are refused with threads", refuses_folders, use_threads, use_any),
    };
    return run_sentences(argc, argv, tests, context_open, context_close);
}
