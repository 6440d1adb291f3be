/* queue.h: a task queue in a shared folder, for any number of processes on any hosts, each of which may crash.
 *
 *     DIR/work               the description of the tasks; must be the same for all processes
 *     DIR/todo/0/17.0.0      task 17, of shard 0 (its number / 1000); numbers of lost leases and of failures
 *     DIR/leased/17.0.0@HOST,PID,START       leased by a process; the file time is that of the last renewal
 *     DIR/done/0/17@HOST,PID,START           done by this process
 *     DIR/failed/0/17@HOST,PID,START         given up after three failures or fifty lost leases
 *     DIR/logs/17            one line per failure or lost lease
 *
 * Each transition is one rename, which succeeds in only one process. A lease is renewed while its process is alive. It expires if
 * it is not renewed for its duration, or at once if its process was on this host and has ended. Any process may then return the
 * task to the queue. A task may therefore run twice, and both runs must have the same result. Requirements: rename is atomic,
 * file times are set by one server, and folders show renamed files. Local disks and NFS meet them. */
#ifndef SGRAD_RUNTIME_FILES_QUEUE_H
#define SGRAD_RUNTIME_FILES_QUEUE_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_queue;
/* Opens the queue in FOLDER. If it does not exist, creates it with tasks 0 to COUNT - 1. WORK is the text of DIR/work. LEASE is
 * the duration of leases in seconds. SGRAD_EINVAL: the queue has a different WORK. SGRAD_EIO: FOLDER is not accessible. */
int sgrad_queue_open(const char *folder, const char *work, int64_t count, double lease, struct sgrad_queue **queue);
void sgrad_queue_close(struct sgrad_queue *queue);     /* returns its leased tasks to the queue; NULL is allowed */

/* Leases a task and stores its number in *TASK; -1: all tasks are done or failed. If other processes have leased all remaining
 * tasks, waits for them if MAY_WAIT is true, else stores -2. SGRAD_EIO; *TASK is -1 then. */
int sgrad_queue_take(struct sgrad_queue *queue, bool may_wait, int64_t *task);
/* Marks a task that this queue has leased as done. If the lease was lost meanwhile: no effect, returns 0. SGRAD_EIO. */
int sgrad_queue_done(struct sgrad_queue *queue, int64_t task);
/* Logs WHY a leased task has failed, and returns it to the queue; at its third failure moves it to DIR/failed. SGRAD_EIO. */
int sgrad_queue_failed(struct sgrad_queue *queue, int64_t task, const char *why);

struct sgrad_queue_worker {             /* a process that has leased or done tasks of the queue */
    char name[288];                     /* HOST,PID,START */
    int64_t done, leased;               /* numbers of tasks */
    double first, last;                 /* server times of its first task done (INFINITY: none), its last activity */
};
struct sgrad_queue_state {
    int64_t todo, leased, done, failed; /* numbers of tasks */
    double per_second;                  /* rate of the last hundred tasks done; 0: unknown */
    int64_t *failures;                  /* numbers of failed tasks, at most a thousand */
    struct sgrad_queue_worker *worker;  /* sorted by name */
    int workers;
};
/* look reads the state of the queue in FOLDER without joining it. SGRAD_EIO: it is not a queue. forget frees the state. */
int sgrad_queue_look(const char *folder, struct sgrad_queue_state *state);
void sgrad_queue_forget(struct sgrad_queue_state *state);

#ifdef __cplusplus
}
#endif
#endif
