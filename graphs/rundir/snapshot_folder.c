/* snapshot_folder.c: the folder of a run's snapshots: checkpoints in the memory of a host, for a restart of the run.
 *
 *     /dev/shm/stargrad-UID-HASH/         HASH: of the run directory, see below; only its owner may access it
 *         checkpoint-STEP.safetensors     the newest two, in the format of checkpoints
 *         .lock                           held by the rank that writes
 *
 * The memory outlives the processes of the run, but not the host. A snapshot is written to a temporary file and renamed, and
 * the previous one remains until then: at any moment, one snapshot is whole. STARGRAD_SNAPSHOTS replaces /dev/shm. */
#include "config.h"
#include "graphs/rundir/rundir.h"
#include "runtime/environment.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TO_END = 5 };        /* seconds that a killed process may take to end */

/* The hash is that of the path of the run directory, and of the inode and the time of its lock. That file is never written after
 * its creation, so the time is that of its creation: a new directory may get the inodes of a removed one. */
char *sgrad__snapshots_name(const char *folder) {
    char path[PATH_MAX];
    struct stat status;
    if (!realpath(folder, path)) return NULL;
    char *lock = sgrad_format("%s/" SGRAD_LOCK, path);
    const bool exists = !stat(lock, &status);
    free(lock);
    if (!exists) return NULL;
    char *of = sgrad_format("%s %llu %lld.%09ld", path, (unsigned long long)status.st_ino, (long long)status.st_mtim.tv_sec,
                            status.st_mtim.tv_nsec);
    char *name = sgrad_format("stargrad-%lu-%016llx", (unsigned long)geteuid(), (unsigned long long)sgrad_hash(of, strlen(of)));
    free(of);
    return name;
}

static char *path_of(const char *name) {
    const char *root = sgrad_variable("STARGRAD_SNAPSHOTS");
    return sgrad_format("%s/%s", root ? root : "/dev/shm", name);
}

/* Returns true if PATH is a folder of this user that nobody else may access: the parent folder is open to all users. */
static bool is_own(const char *path) {
    struct stat status;
    return !lstat(path, &status) && S_ISDIR(status.st_mode) && status.st_uid == geteuid() && !(status.st_mode & 077);
}

/* Ends a process of an earlier start of this run that still holds the lock, for example because it was stopped. The lock of the
 * run directory ensures that this process belongs to the only current start. */
static void end_holder(const char *path) {
    const long holder = sgrad_lock_holder(path);
    if (holder <= 0) return;
    sgrad_log_warning("%s: process %ld, of an earlier start of this run, still runs; it is killed", path, holder);
    kill((pid_t)holder, SIGKILL);
    for (double end = sgrad_time_monotonic() + TO_END; sgrad_lock_holder(path) == holder && sgrad_time_monotonic() < end;)
        sgrad_sleep(1e-3);
}

int sgrad__snapshots_open(const char *name, char **folder, int *lock) {
    char *path = path_of(name);
    const bool made = !mkdir(path, 0700);
    const char *why = made || errno == EEXIST ? "is not a folder that only this user may access" : strerror(errno);
    int error = is_own(path) ? 0 : SGRAD_EIO;
    if (error) sgrad_log_warning("%s: %s; this host stores no snapshots; set STARGRAD_SNAPSHOTS to another folder", path, why);
    if (!error) end_holder(path);
    if (!error) error = sgrad_lock_take(path, lock);
    if (error) free(path);
    else *folder = path;
    return error;
}

void sgrad__snapshots_clear(const char *folder) {
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, "checkpoint-", strlen("checkpoint-")) != 0) continue;
        char *path = sgrad_format("%s/%s", folder, e->d_name);
        unlink(path);
        free(path);
    }
    if (d) closedir(d);
}

long sgrad__snapshots_limits(const char *folder, long **limit) {
    char *path;
    json_t *config;
    const int error = sgrad__config_read(folder, &path, &config);
    const json_t *continued = json_object_get(config, "continued");
    const long count = error || !config ? 0 : (long)json_array_size(continued) + 1;
    long *l = sgrad_xcalloc((size_t)count + 1, sizeof *l);
    for (long i = count - 1; i >= 0; i--) {
        const json_t *next = json_array_get(continued, (size_t)i);      /* the start after start i + 1; NULL: none */
        l[i] = next ? (long)json_integer_value(json_object_get(next, "step")) : LONG_MAX;
        if (i + 1 < count && l[i + 1] < l[i]) l[i] = l[i + 1];
    }
    json_decref(config);
    free(path);
    *limit = l;
    return count;
}

/* Returns the number of the start that wrote the snapshot PATH; 0: unknown, also if the file is damaged. */
static long start_of(const char *path) {
    char problem[256];
    struct sgrad_safetensors file;
    sgrad_log_capture(problem, sizeof problem);     /* a damaged file is reported when the newest one is chosen */
    const int error = sgrad_safetensors_open(path, &file);
    sgrad_log_capture(NULL, 0);
    if (error) return 0;
    const char *start = sgrad_safetensors_metadata(&file, "start");
    const long number = start ? strtol(start, NULL, 10) : 0;
    sgrad_safetensors_close(&file);
    return number;
}

void sgrad__snapshots_remove_abandoned(const char *folder, const long *limit, long count) {
    if (count < 1) return;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        const long step = sgrad__checkpoint_step(e->d_name);
        if (step < 0) continue;
        char *path = sgrad_format("%s/%s", folder, e->d_name);
        const long start = start_of(path);
        if (start > count || (start >= 1 && step > limit[start - 1])) {
            sgrad_log_warning("%s: the run has continued from an earlier step since, so this snapshot is removed", path);
            unlink(path);
        }
        free(path);
    }
    if (d) closedir(d);
}

static void remove_folder(const char *folder) {
    char *lock = sgrad_format("%s/" SGRAD_LOCK, folder);
    sgrad__snapshots_clear(folder);
    unlink(lock);
    rmdir(folder);
    free(lock);
}

void sgrad__snapshots_close(char *folder, int lock, bool remove) {
    if (!folder) return;
    if (remove) remove_folder(folder);
    sgrad_lock_release(lock);
    free(folder);
}

void sgrad_snapshots_remove(const char *folder) {
    char *name = sgrad__snapshots_name(folder), *path = name ? path_of(name) : NULL;
    int lock = 0;
    if (path && is_own(path) && !sgrad_lock_holder(path) && !sgrad_lock_take(path, &lock)) {
        remove_folder(path);
        sgrad_lock_release(lock);
    }
    free(path);
    free(name);
}
