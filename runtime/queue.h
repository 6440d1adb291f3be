/* queue.h: tasks in a folder, which any number of processes on any hosts that see it share, and any of which may die.
 *
 *     DIR/work               what the tasks are: the same for all who come
 *     DIR/todo/0/17.0.0      task 17, of shard 0 (its number / 1000); leases lost, failures so far
 *     DIR/leased/17.0.0@HOST,PID,START       taken; its time is that of the last sign of life
 *     DIR/done/0/17@HOST,PID,START           done, by whom
 *     DIR/failed/0/17@HOST,PID,START         put aside after three failures, or fifty lost leases
 *     DIR/logs/17            what failed, a line each
 *
 * Each step is one rename, which one process alone succeeds in. A lease is renewed while its process lives; it ends when it is
 * not renewed for its time, or, at once, when its process on this host is gone; then anybody puts the task back. A task may so be
 * done twice: what it does has to be the same again. It relies on rename being atomic, on times of files that
 * one server sets, and on folders showing what was renamed: local disks and NFS do. */
#ifndef SGRAD_RUNTIME_QUEUE_H
#define SGRAD_RUNTIME_QUEUE_H

#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_queue;
/* Joins the queue in FOLDER, or makes it: tasks 0 to COUNT - 1 of WORK, a text. A lease lasts LEASE seconds. SGRAD_EINVAL: there
 * is a queue of other work. */
int sgrad_queue_open(const char *folder, const char *work, int64_t count, double lease, struct sgrad_queue **queue);
void sgrad_queue_close(struct sgrad_queue *queue);     /* what is still taken is put back; NULL is fine */

/* Takes a task: its number. -1: all are done or put aside. Where others have all that is left, waits for them if it MAY_WAIT,
 * else says -2. */
int sgrad_queue_take(struct sgrad_queue *queue, bool may_wait, int64_t *task);
int sgrad_queue_done(struct sgrad_queue *queue, int64_t task);
/* It could not be done, WHY: once more, or, after three times, put aside. */
int sgrad_queue_failed(struct sgrad_queue *queue, int64_t task, const char *why);

struct sgrad_queue_worker {             /* a process that has, or had, tasks of the queue */
    char name[288];                     /* HOST,PID,START */
    int64_t done, leased;
    double first, last;                 /* times, as the folder's server has them: its first task done, its last sign of life */
};
struct sgrad_queue_state {
    int64_t todo, leased, done, failed;
    double per_second;                  /* of the latest hundred tasks done; 0: not known */
    int64_t *failures;                  /* numbers of those that are put aside, a thousand at most */
    struct sgrad_queue_worker *worker;
    int workers;
};
int sgrad_queue_look(const char *folder, struct sgrad_queue_state *state);
void sgrad_queue_forget(struct sgrad_queue_state *state);

#ifdef __cplusplus
}
#endif
#endif
