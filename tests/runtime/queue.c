/* queue.c: a queue in a folder: each task is done once; it returns to the queue if its process dies or stops responding, and
 * is put aside if it fails. */
#include "config.h"
#include "runtime/files/queue.h"
#include "tests/scratch.h"

#include <signal.h>
#include <sys/wait.h>

static struct sgrad_queue *join(const char *name, int64_t count, double lease) {
    struct sgrad_queue *q;
    assert_done(sgrad_queue_open(scratch_path(name), "work\n", count, lease, &q));
    return q;
}

static int64_t take(struct sgrad_queue *queue, bool may_wait) {
    int64_t task;
    assert_done(sgrad_queue_take(queue, may_wait, &task));
    return task;
}

static struct sgrad_queue_state look(const char *name) {
    struct sgrad_queue_state s;
    assert_done(sgrad_queue_look(scratch_path(name), &s));
    return s;
}

static void all_once(void **state) {
    enum { COUNT = 2500 };
    static int seen[COUNT];
    struct sgrad_queue *one = join("once", COUNT, 600), *other = join("once", COUNT, 600);
    (void)state;
    for (int64_t i = 0; i < COUNT; i++) {
        struct sgrad_queue *q = i % 3 ? one : other;
        const int64_t task = take(q, false);
        assert_in_range(task, 0, COUNT - 1);
        assert_int_equal(seen[task]++, 0);
        assert_done(sgrad_queue_done(q, task));
    }
    assert_int_equal(take(one, true), -1);
    struct sgrad_queue_state s = look("once");
    assert_equal(s.done, COUNT);
    assert_equal(s.todo, 0);
    assert_equal(s.leased, 0);
    assert_equal(s.failed, 0);
    sgrad_queue_forget(&s);
    sgrad_queue_close(one);
    sgrad_queue_close(other);
    struct sgrad_queue *q;
    assert_fails(sgrad_queue_open(scratch_path("once"), "other work\n", COUNT, 600, &q), SGRAD_EINVAL, "other work");
}

/* Its file fills a page, and does not end a line: what follows in memory is not read. */
static void unended(void **state) {
    static char text[4096];
    struct sgrad_queue *q;
    (void)state;
    memset(text, 'x', sizeof text);
    scratch_write("unended/work", text, sizeof text);
    assert_fails(sgrad_queue_open(scratch_path("unended"), "work\n", 1, 600, &q), SGRAD_EINVAL,
                 "is the queue of another job, 'xxx");
}

/* Its lease is long, but its process is gone. */
static void dead(void **state) {
    struct sgrad_queue *q = join("dead", 1, 600);
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        struct sgrad_queue *own;
        int64_t task;
        _exit(sgrad_queue_open(scratch_path("dead"), "work\n", 1, 600, &own) || sgrad_queue_take(own, false, &task) || task != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(take(q, true), 0);
    assert_done(sgrad_queue_done(q, 0));
    sgrad_queue_close(q);
}

/* One that is stopped says nothing; once it goes on, it has lost its task, and does no harm. */
static void stopped(void **state) {
    int ready[2], go[2], status;
    char byte;
    (void)state;
    assert_int_equal(pipe(ready) | pipe(go), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct sgrad_queue *own;
        int64_t task;
        int error =
            sgrad_queue_open(scratch_path("stopped"), "work\n", 1, 1, &own) || sgrad_queue_take(own, false, &task) || task != 0;
        error |= write(ready[1], "", 1) != 1;
        error |= read(go[0], &byte, 1) != 1;
        _exit(error || sgrad_queue_done(own, 0));
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(child, SIGSTOP);
    struct sgrad_queue *q = join("stopped", 1, 1);
    assert_int_equal(take(q, true), 0);
    kill(child, SIGCONT);
    assert_int_equal(write(go[1], "", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_done(sgrad_queue_done(q, 0));
    struct sgrad_queue_state s = look("stopped");
    assert_equal(s.done, 1);
    assert_equal(s.todo, 0);
    assert_equal(s.leased, 0);
    sgrad_queue_forget(&s);
    sgrad_queue_close(q);
}

static void failing(void **state) {
    struct sgrad_queue *q = join("failing", 2, 600);
    (void)state;
    for (int64_t task; (task = take(q, true)) >= 0;)
        assert_done(task == 1 ? sgrad_queue_failed(q, task, "it is poison") : sgrad_queue_done(q, task));
    struct sgrad_queue_state s = look("failing");
    assert_equal(s.done, 1);
    assert_equal(s.failed, 1);
    assert_equal(s.failures[0], 1);
    sgrad_queue_forget(&s);
    FILE *log = fopen(scratch_path("failing/logs/1"), "r");
    char line[512];
    int lines = 0;
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) lines += strstr(line, "it is poison") != NULL;
    fclose(log);
    assert_int_equal(lines, 3);
    sgrad_queue_close(q);
}

/* What a process has when it leaves in good order goes back. */
static void left(void **state) {
    struct sgrad_queue *q = join("left", 1, 600);
    (void)state;
    assert_int_equal(take(q, false), 0);
    struct sgrad_queue *other = join("left", 1, 600);
    assert_int_equal(take(other, false), -2);
    sgrad_queue_close(q);
    assert_int_equal(take(other, false), 0);
    sgrad_queue_close(other);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("every task of a queue is done once", all_once),
        sentence("a queue file without an end of line is read no further than its end", unended),
        sentence("the task of a dead process goes back to the queue", dead),
        sentence("the task of a stopped process goes back, and a second result does no harm", stopped),
        sentence("a task that fails three times is put aside", failing),
        sentence("the task of a process that leaves goes back to the queue", left),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
