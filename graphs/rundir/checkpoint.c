/* checkpoint.c: writes and reads checkpoints. A checkpoint contains the complete state of a run in one file; a resumed run
 * continues as if it had not been interrupted.
 *
 *     checkpoint-STEP.safetensors     parameters and states by PyTorch's names, optimizer.STATE.PARAMETER
 *         metadata                    step, epoch, step_in_epoch, seed; identity: values that must agree when resuming;
 *                                     start: of a snapshot, the number of the start of the run that wrote it;
 *                                     lora_scale: factor of the low-rank adapters, if there are any;
 *                                     checksum of all tensors; stargrad: the version that wrote it
 *
 * A checkpoint is written to a temporary file and renamed, so that it is either complete or does not exist. Truncation and
 * bit errors on the disk are detected by the lengths in the file and by the checksum.
 *
 *     run      step 8 ends │ copy │ step 9   step 10   step 11
 *     thread                      │ checksum, write, sync, rename, remove older ones │                                */
#include "graphs/rundir/rundir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "checkpoint-"
#define SUFFIX ".safetensors"

char *sgrad__checkpoint_path(const char *folder, long step) {
    return sgrad_format("%s/" PREFIX "%ld" SUFFIX, folder, step);
}

/* ---- finding checkpoints -------------------------------------------------------------------------------------- */

/* Parses TEXT, a number without sign, blanks or leading zeros that must be followed by END. Returns -1 if it is malformed. */
static long parse_number(const char *text, const char *end) {
    char *rest;
    errno = 0;
    long number = strtol(text, &rest, 10);
    bool plain = isdigit((unsigned char)*text) && (*text != '0' || rest == text + 1);
    return plain && !errno && strcmp(rest, end) == 0 ? number : -1;
}

static long step_of(const char *name) {
    return strncmp(name, PREFIX, strlen(PREFIX)) ? -1 : parse_number(name + strlen(PREFIX), SUFFIX);
}

long sgrad__checkpoint_step(const char *path) {
    const char *slash = strrchr(path, '/');
    return step_of(slash ? slash + 1 : path);
}

static int is_checkpoint(const struct dirent *file) { return step_of(file->d_name) >= 0; }

/* Returns true for temporary files, which sgrad_file_begin names PATH.part.PID. */
static int is_part(const struct dirent *file) {
    const char *part = strstr(file->d_name, ".part.");
    return part && parse_number(part + strlen(".part."), "") >= 0;
}

static int newest_first(const struct dirent **a, const struct dirent **b) {
    long x = step_of((*a)->d_name), y = step_of((*b)->d_name);
    return (x < y) - (x > y);
}

static int list_files(const char *folder, int (*filter)(const struct dirent *), struct dirent ***file, int *count) {
    *count = scandir(folder, file, filter, newest_first);
    return *count < 0 ? sgrad_log_error(SGRAD_EIO, "%s: %s", folder, strerror(errno)) : 0;
}

static void remove_file(const char *folder, const char *name) {
    char *path = sgrad_format("%s/%s", folder, name);
    if (unlink(path)) sgrad_log_warning("%s: cannot be removed: %s", path, strerror(errno));
    free(path);
}

static void free_files(struct dirent **file, int count) {
    for (int i = 0; i < count; i++) free(file[i]);
    free(file);
}

/* ---- saving --------------------------------------------------------------------------------------------------- */

/* Removes the checkpoints up to STEP except the newest KEEP. Checkpoints after STEP do not belong to the history of this run
 * and are not removed: they could not be read when it was resumed. */
static int remove_old(const char *folder, long step, int keep) {
    struct dirent **file;
    int count, kept = 0;
    SGRAD_TRY(list_files(folder, is_checkpoint, &file, &count));
    for (int i = 0; i < count; i++)
        if (step_of(file[i]->d_name) <= step && kept++ >= keep) remove_file(folder, file[i]->d_name);
    free_files(file, count);
    return 0;
}

struct sgrad__checkpoint {
    struct sgrad__weights weights;
    char *folder, *identity;
    struct sgrad__position position;
    int keep;
    struct sgrad_thread *thread;
    atomic_int error;           /* error code of the save; 0: none so far */
    _Atomic double seconds;     /* processor time of the save; 0: it has not ended */
};

static int save(struct sgrad__checkpoint *checkpoint) {
    const struct sgrad__position *at = &checkpoint->position;
    char *path = sgrad__checkpoint_path(checkpoint->folder, at->step), step[24], epoch[24], step_in_epoch[24], seed[24],
         scale[32], start[24];
    snprintf(step, sizeof step, "%ld", at->step);
    snprintf(epoch, sizeof epoch, "%d", at->epoch);
    snprintf(step_in_epoch, sizeof step_in_epoch, "%ld", at->step_in_epoch);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)at->seed);
    snprintf(scale, sizeof scale, "%.17g", checkpoint->weights.items.lora_scale);
    snprintf(start, sizeof start, "%ld", at->start);
    const char *metadata[8][2] = {
        { "step", step }, { "epoch", epoch },            { "step_in_epoch", step_in_epoch },
        { "seed", seed }, { "identity", checkpoint->identity },   { "stargrad", PACKAGE_VERSION },
    };
    int count = 6;
    if (checkpoint->weights.items.lora_scale != 0) metadata[count][0] = SGRAD__LORA_SCALE, metadata[count++][1] = scale;
    if (at->start) metadata[count][0] = "start", metadata[count++][1] = start;
    int error = sgrad__weights_write(&checkpoint->weights, path, metadata[0], count);
    free(path);
    return error ? error : remove_old(checkpoint->folder, at->step, checkpoint->keep);
}

static void *write_checkpoint(void *arg) {
    struct sgrad__checkpoint *c = arg;
    atomic_store(&c->error, save(c));
    atomic_store(&c->seconds, sgrad_time_thread_cpu());
    return NULL;
}

static void free_checkpoint(struct sgrad__checkpoint *checkpoint) {
    sgrad__weights_free(&checkpoint->weights);
    free(checkpoint->folder);
    free(checkpoint->identity);
    free(checkpoint);
}

int sgrad__checkpoint_begin(const struct sgrad__training *training, const char *folder, const struct sgrad__position *position,
                            const char *identity, int keep, struct sgrad__checkpoint **checkpoint) {
    struct sgrad__weights weights;
    SGRAD_TRY(sgrad__weights_copy(sgrad__training_list(training, true), NULL, &weights));
    struct sgrad__checkpoint *c = sgrad_xcalloc(1, sizeof *c);
    *c = (struct sgrad__checkpoint){ .weights = weights, .folder = sgrad_format("%s", folder), .position = *position,
                                     .identity = sgrad_format("%s", identity), .keep = keep };
    c->thread = sgrad_thread_start(write_checkpoint, c);
    if (!c->thread) {
        free_checkpoint(c);
        return sgrad_log_error(SGRAD_ENOMEM, "the thread that writes checkpoints cannot be started; check the limit of threads "
                                             "(ulimit -u)");
    }
    *checkpoint = c;
    return 0;
}

bool sgrad__checkpoint_failed(const struct sgrad__checkpoint *checkpoint) {
    return checkpoint && atomic_load(&checkpoint->error);
}

double sgrad__checkpoint_seconds(const struct sgrad__checkpoint *checkpoint) {
    return checkpoint ? atomic_load(&checkpoint->seconds) : 0;
}

int sgrad__checkpoint_end(struct sgrad__checkpoint *checkpoint) {
    if (!checkpoint) return 0;
    sgrad_thread_join(checkpoint->thread);
    const int error = atomic_load(&checkpoint->error);
    free_checkpoint(checkpoint);
    return error;
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

static int get_number(const struct sgrad_safetensors *file, const char *key, long limit, long *number) {
    const char *text = sgrad_safetensors_metadata(file, key);
    if (!text) return sgrad_log_error(SGRAD_EFORMAT, "%s: is not a checkpoint: its metadata have no %s", file->path, key);
    long value = parse_number(text, "");
    if (value < 0 || value > limit)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s in its metadata is invalid: '%s'", file->path, key, text);
    *number = value;
    return 0;
}

static int get_position(const struct sgrad_safetensors *file, struct sgrad__position *position) {
    struct sgrad__position p = { 0 };
    long epoch = 0;
    SGRAD_TRY(get_number(file, "step", LONG_MAX, &p.step));
    SGRAD_TRY(get_number(file, "epoch", INT_MAX, &epoch));
    SGRAD_TRY(get_number(file, "step_in_epoch", LONG_MAX, &p.step_in_epoch));
    const char *seed = sgrad_safetensors_metadata(file, "seed");
    p.seed = seed ? strtoull(seed, NULL, 10) : 0;
    p.epoch = (int)epoch;
    *position = p;
    return 0;
}

static int check_whole(const struct sgrad_safetensors *file) {
    struct sgrad__position position;
    SGRAD_TRY(get_position(file, &position));
    char sum[SGRAD_CHECKSUM];
    const char *stored = sgrad_safetensors_metadata(file, "checksum");
    SGRAD_TRY(sgrad_safetensors_file_checksum(file, sum));
    if (!stored || strcmp(stored, sum))
        return sgrad_log_error(SGRAD_EFORMAT, "%s: is damaged: its data have checksum %s, but its metadata have %s", file->path,
                               sum, stored ? stored : "none");
    return 0;
}

static int open_whole(const char *path, struct sgrad_safetensors *file) {
    struct sgrad_safetensors f;
    SGRAD_TRY(sgrad_safetensors_open(path, &f));
    int error = check_whole(&f);
    if (error) sgrad_safetensors_close(&f);
    else *file = f;
    return error;
}

static bool is_whole(const char *path) {
    struct sgrad_safetensors file;
    if (open_whole(path, &file)) return false;
    sgrad_safetensors_close(&file);
    return true;
}

int sgrad__checkpoint_exists(const char *folder, bool *exists) {
    struct dirent **file;
    int count;
    SGRAD_TRY(list_files(folder, is_checkpoint, &file, &count));
    free_files(file, count);
    *exists = count;
    return 0;
}

long sgrad__checkpoint_last(const char *folder, long done) {
    struct dirent **file;
    int count;
    long last = 0;
    if (list_files(folder, is_checkpoint, &file, &count)) return 0;
    for (int i = 0; i < count && !last; i++) {
        const long step = step_of(file[i]->d_name);
        char *path = sgrad_format("%s/%s", folder, file[i]->d_name);
        if (step < done || (step == done && is_whole(path))) last = step;
        free(path);
    }
    free_files(file, count);
    return last;
}

int sgrad__checkpoint_newest(const char *folder, long after, char **path) {
    struct dirent **file;
    int count;
    SGRAD_TRY(list_files(folder, is_part, &file, &count));
    for (int i = 0; i < count; i++) remove_file(folder, file[i]->d_name);
    free_files(file, count);

    SGRAD_TRY(list_files(folder, is_checkpoint, &file, &count));
    char *newest = NULL;
    bool damaged = false;
    for (int i = 0; i < count && !newest && step_of(file[i]->d_name) > after; i++) {
        newest = sgrad_format("%s/%s", folder, file[i]->d_name);
        if (is_whole(newest)) break;
        sgrad_log_warning("%s: is incomplete or damaged, and is skipped", newest);
        free(newest);
        newest = NULL;
        damaged = true;
    }
    free_files(file, count);
    if (damaged && !newest && after < 0) return sgrad_log_error(SGRAD_EFORMAT, "%s: contains no complete checkpoint", folder);
    *path = newest;
    return 0;
}

static int load(struct sgrad__training *training, const struct sgrad_safetensors *file, const char *identity,
                struct sgrad__position *position) {
    struct sgrad__position p;
    const char *before = sgrad_safetensors_metadata(file, "identity");
    if (!before) return sgrad_log_error(SGRAD_EFORMAT, "%s: is not a checkpoint: its metadata have no identity", file->path);
    SGRAD_TRY(sgrad__config_same(file->path, before, identity));
    SGRAD_TRY(get_position(file, &p));
    SGRAD_TRY(sgrad__weights_load(training->graph, sgrad__training_list(training, true), file, NULL));
    *position = p;
    return 0;
}

int sgrad__checkpoint_load(struct sgrad__training *training, const char *path, const char *identity,
                           struct sgrad__position *position) {
    struct sgrad_safetensors file;
    SGRAD_TRY(open_whole(path, &file));
    int error = load(training, &file, identity, position);
    sgrad_safetensors_close(&file);
    return error;
}
