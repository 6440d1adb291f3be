/* disk.c: a file without a name, the choice of an engine for its transfers, and its bandwidths (disk.h). */
#include "config.h"
#include "runtime/disk.h"
#include "runtime/environment.h"
#include "runtime/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAMPLE = 128 << 20 }; /* bytes that a measurement writes and reads */

struct sgrad__disk {
    const struct sgrad__disk_engine *is;
    void *engine;
};

static int refuse(const char *folder, const char *what, const char *why) {
    return sgrad_log_error(SGRAD_EIO, "--spill %s: %s: %s; check the disk, or give another folder", folder, what, why);
}

int sgrad__disk_refuse(const char *folder, const char *what) { return refuse(folder, what, strerror(errno)); }

/* Where the file system lacks O_TMPFILE, creates a file whose name is removed at once. */
static int open_file(const char *folder) {
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
    char *path = sgrad_format("%s/.stargrad-spill-XXXXXX", folder);
    file = mkostemp(path, O_CLOEXEC);
    if (file >= 0) unlink(path);
    free(path);
    return file;
}

static bool make_direct(int file) { return !fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_DIRECT); }

int sgrad__disk_create(const char *folder, int *file) {
    struct stat about;
    if (SGRAD_SIMULATED) return *file = -1, 0;
    if (stat(folder, &about)) return sgrad__disk_refuse(folder, "cannot be opened");
    if (!S_ISDIR(about.st_mode)) return errno = ENOTDIR, sgrad__disk_refuse(folder, "cannot be opened");
    *file = open_file(folder);
    return *file < 0 ? sgrad__disk_refuse(folder, "a file in it cannot be created") : 0;
}

/* Transfers are not direct meanwhile: some file systems reserve space by writing bytes. */
int sgrad__disk_reserve(const char *folder, int file, off_t at, off_t bytes) {
    if (SGRAD_SIMULATED) return 0;
    fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_DIRECT);
    const int error = posix_fallocate(file, at, bytes);
    make_direct(file);
    if (!error) return 0;
    return sgrad_log_error(SGRAD_EIO, "--spill %s: %.2f GB cannot be reserved: %s; give a folder on a disk with that much space",
                           folder, 1e-9 * (double)bytes, strerror(error));
}

/* environment.c checks the value of the variable, in MB/s. */
void sgrad__disk_slow_down(size_t bytes) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static double end; /* of the transfers so far */
    const char *limit = sgrad_variable("STARGRAD_SPILL_LIMIT");
    if (!limit) return;
    pthread_mutex_lock(&lock);
    const double now = sgrad_time_monotonic();
    const double wait = (end = (end > now ? end : now) + (double)bytes / (1e6 * strtod(limit, NULL))) - now;
    pthread_mutex_unlock(&lock);
    sgrad_sleep(wait);
}

/* ---- engines ---- */

static bool try(struct sgrad__disk *disk, const struct sgrad__disk_engine *engine, int file,
                const struct sgrad__disk_user *user) {
    disk->is = engine;
    disk->engine = engine->open(file, file < 0 || make_direct(file), user);
    return disk->engine;
}

int sgrad__disk_open(int file, const struct sgrad__disk_user *user, struct sgrad__disk **disk) {
    static const char variable[] = "STARGRAD_SPILL_IO";
    const char *wanted = file < 0 ? NULL : sgrad_variable(variable);
    const bool threads = file < 0 || (wanted && !strcmp(wanted, sgrad__disk_threads.name));
    if (wanted && !threads && strcmp(wanted, sgrad__disk_uring.name))
        return sgrad_log_error(SGRAD_EINVAL, "%s=%s is unknown; it must be io_uring or threads", variable, wanted);
    struct sgrad__disk *d = sgrad_xcalloc(1, sizeof *d);
    if ((!threads && try(d, &sgrad__disk_uring, file, user)) || try(d, &sgrad__disk_threads, file, user)) return *disk = d, 0;
    free(d);
    return sgrad_log_error(SGRAD_ENOMEM,
                           "the threads that move tensors cannot be started; check the limit of threads (ulimit -u)");
}

void sgrad__disk_wake(struct sgrad__disk *disk) { disk->is->wake(disk->engine); }

void sgrad__disk_close(struct sgrad__disk *disk) {
    if (disk) disk->is->close(disk->engine);
    free(disk);
}

const char *sgrad__disk_engine_name(const struct sgrad__disk *disk) { return disk->is->name; }

/* ---- bandwidths ---- */

/* One pass over the file. */
struct pass {
    bool writes;
    char *buffer;                  /* of all pieces */
    struct sgrad_monitor *monitor; /* protects the members below */
    off_t begun, ended;            /* bytes */
    char why[256];                 /* the last error; empty: none */
};

static bool next_of_pass(void *arg, struct sgrad__piece *piece) {
    struct pass *p = arg;
    sgrad_monitor_lock(p->monitor);
    const off_t at = p->begun;
    const bool found = at < SAMPLE;
    if (found) p->begun += SGRAD__PIECE;
    sgrad_monitor_unlock(p->monitor);
    if (found) *piece = (struct sgrad__piece){ .writes = p->writes, .memory = p->buffer, .bytes = SGRAD__PIECE, .at = at };
    return found;
}

static void ended_of_pass(void *arg, const struct sgrad__piece *piece, const char *why) {
    struct pass *p = arg;
    sgrad__disk_slow_down(piece->bytes);
    sgrad_monitor_lock(p->monitor);
    if (why) snprintf(p->why, sizeof p->why, "%s", why);
    p->ended += (off_t)piece->bytes;
    sgrad_monitor_notify(p->monitor);
    sgrad_monitor_unlock(p->monitor);
}

/* Sets *RATE to the bytes per second of one pass over the file. An error of the file is in PASS. SGRAD_EINVAL, SGRAD_ENOMEM:
 * sgrad__disk_open fails. */
static int time_pass(int file, struct pass *pass, double *rate) {
    struct sgrad__disk *disk;
    const double start = sgrad_time_monotonic();
    pass->begun = pass->ended = 0;
    SGRAD_TRY(sgrad__disk_open(file, &(struct sgrad__disk_user){ next_of_pass, ended_of_pass, pass }, &disk));
    sgrad_monitor_lock(pass->monitor);
    while (pass->ended < SAMPLE) sgrad_monitor_wait(pass->monitor, 0);
    sgrad_monitor_unlock(pass->monitor);
    sgrad__disk_close(disk);
    if (!*pass->why && pass->writes && fdatasync(file)) snprintf(pass->why, sizeof pass->why, "%s", strerror(errno));
    *rate = SAMPLE / (sgrad_time_monotonic() - start);
    return 0;
}

static int measure(const char *folder, int file, struct pass *pass, struct sgrad_spill_speed *speed) {
    SGRAD_TRY(sgrad__disk_reserve(folder, file, 0, SAMPLE));
    pass->writes = true;
    SGRAD_TRY(time_pass(file, pass, &speed->write));
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    pass->writes = false;
    if (!*pass->why) SGRAD_TRY(time_pass(file, pass, &speed->read));
    return *pass->why ? refuse(folder, "a test file cannot be written and read", pass->why) : 0;
}

int sgrad_spill_measure(const char *folder, struct sgrad_spill_speed *speed) {
    int file;
    struct pass pass = { 0 };
    struct sgrad_spill_speed is = { 0 };
    if (SGRAD_SIMULATED)
        return *speed = (struct sgrad_spill_speed){ sgrad__simulation_disk(true), sgrad__simulation_disk(false) }, 0;
    SGRAD_TRY(sgrad__disk_create(folder, &file));
    if (posix_memalign((void **)&pass.buffer, SGRAD_SPILL_BLOCK, SGRAD__PIECE)) abort();
    memset(pass.buffer, 1, SGRAD__PIECE);
    pass.monitor = sgrad_monitor_create();
    const int error = measure(folder, file, &pass, &is);
    sgrad_monitor_destroy(pass.monitor);
    free(pass.buffer);
    close(file);
    if (!error) *speed = is;
    return error;
}
