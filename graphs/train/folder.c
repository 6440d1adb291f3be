/* folder.c: the run directory: claims it for one run at a time, initializes it, or loads the state of a resumed run from it. */
#include "config.h"
#include "graphs/api/plugin.h"
#include "graphs/train/setup.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>



/* Creates runs/MODEL-TIME; if another run has started in the same second, runs/MODEL-TIME-2, … The caller must free *FOLDER. */
static int make_default_folder(const char *model, char **folder) {
    char when[32];
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime(&now));
    SGRAD_TRY(sgrad_folder_make("runs"));
    for (int i = 1;; i++) {
        *folder = i == 1 ? sgrad_format("runs/%s-%s", model, when) : sgrad_format("runs/%s-%s-%d", model, when, i);
        if (mkdir(*folder, 0777) == 0) return 0;
        if (errno != EEXIST) return sgrad_log_error(SGRAD_EIO, "%s: cannot be made: %s", *folder, strerror(errno));
        free(*folder);
    }
}

int sgrad__run_claim_folder(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    SGRAD_TRY(sgrad__options_check(o));
    if (o->resume && !o->out) return sgrad_log_error(SGRAD_EINVAL, "--resume needs --out, the folder of the run to continue");
    if (!o->out) {
        r->fresh = true;
        SGRAD_TRY(make_default_folder(r->model->name, &r->folder));
    } else {
        r->folder = sgrad_format("%s", o->out);
        r->fresh = access(r->folder, F_OK) != 0;
        if (r->fresh) SGRAD_TRY(sgrad__run_folder_check(r->folder, o->resume));
        SGRAD_TRY(sgrad_folder_make(r->folder));
    }
    SGRAD_TRY(sgrad_lock_take(r->folder, &r->lock));
    SGRAD_TRY(sgrad__run_folder_check(r->folder, o->resume));
    return o->resume ? sgrad__checkpoint_exists(r->folder, &r->restores) : 0;
}

/* Quotes WORD for a shell if necessary. The caller must free it. */
static char *quoted(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./,:@%+=-";
    char *text = NULL;
    size_t size;
    if (*word && strspn(word, plain) == strlen(word)) return sgrad_format("%s", word);
    FILE *to = open_memstream(&text, &size);
    fputc('\'', to);
    for (; *word; word++)
        if (*word == '\'') fputs("'\\''", to);
        else fputc(*word, to);
    fputc('\'', to);
    fclose(to);
    return text;
}

char *sgrad__run_again_text(const struct sgrad__run *r) {
    char *folder = quoted(r->folder), *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (r->context->ranks > 1 && r->options.command)
        fprintf(to, "%s -n %d ", getenv("OMPI_COMM_WORLD_SIZE") ? "mpirun" : "srun", r->context->ranks);
    if (r->options.command) fprintf(to, "%s ", r->options.command);
    fprintf(to, "--out %s --resume", folder);
    for (const char *const *file = sgrad_plugins; *file && r->options.command; file++) {
        char *name = quoted(*file);
        fprintf(to, " --plugin %s", name);
        free(name);
    }
    fclose(to);
    free(folder);
    return text;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where) {
    (void)status, (void)type, (void)where;
    return remove(path);
}

void sgrad__run_leave_folder(struct sgrad__run *r) {
    char *lock = sgrad_format("%s/" SGRAD_LOCK, r->folder ? r->folder : "");
    char *trace = sgrad_format("%s/" SGRAD__TRACE, r->folder ? r->folder : "");
    if (r->lock > 0 && r->fresh) unlink(lock), nftw(trace, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    if (r->lock > 0) sgrad_lock_release(r->lock);
    if (r->lock > 0 && r->fresh) rmdir(r->folder);
    free(lock);
    free(trace);
}

void sgrad__run_describe(const struct sgrad__run *r, struct sgrad__config *config, char *devices, size_t size) {
    *config = (struct sgrad__config){
        .options = &r->options, .model = r->model_text, .dataset = r->train, .parameters = sgrad__parameters_whole(r->graph),
        .fingerprint = r->fingerprint, .metric = r->metric, .metrics = r->result.metrics, .ranks = r->context->ranks,
        .samples = sgrad__run_samples(r), .channels = sgrad_dataset_channels(r->train),
        .micro_batch = r->micro, .group = sgrad__has_groups(r->graph) ? r->group : 0, .tests = r->test->count,
        .auto_mesh = r->auto_mesh,
        .devices = sgrad_devices_text(r->context, devices, size),
    };
    memcpy(config->mean, r->mean, sizeof r->mean);
    memcpy(config->deviation, r->deviation, sizeof r->deviation);
}

/* Returns an error if the run has finished without checkpoints: starting it again would overwrite its result. */
static int refuse_finished(const char *folder) {
    char *path = sgrad_format("%s/model.safetensors", folder);
    int error =
        access(path, F_OK)
            ? 0
            : sgrad_log_error(SGRAD_EINVAL, "%s: there is no checkpoint from which this finished run could go on", folder);
    free(path);
    return error;
}

/* In the directory of a new run there is no config.json to check and no checkpoint, but there may be unfinished files of a
 * killed run, which are removed. */
static int open_own_folder(struct sgrad__run *r, const struct sgrad__config *config, long *done) {
    char *path = NULL;
    struct sgrad__position position;
    SGRAD_TRY(sgrad__config_check(r->folder, config));
    SGRAD_TRY(sgrad__checkpoint_newest(r->folder, &path));
    if (path) {
        int error = sgrad__checkpoint_load(r->training, path, r->identity, &position);
        free(path);
        if (error) return error;
        *done = position.step;
        return *done < r->steps ? sgrad__config_continue(r->folder, config, *done, &r->history) : 0;
    }
    r->fresh = false;
    if (!r->options.resume) return sgrad__config_write(r->folder, config);
    SGRAD_TRY(refuse_finished(r->folder));
    sgrad_log_warning("%s: no checkpoint there yet: the run begins anew", r->folder);
    return sgrad__config_continue(r->folder, config, 0, &r->history);
}

/* Writes damaged.txt, the list of unreadable samples, to the run directory, if there are any. Called by rank 0. */
static int write_damaged(const struct sgrad__run *r) {
    struct sgrad_file file;
    if (!r->damaged) return 0;
    char *path = sgrad_format("%s/damaged.txt", r->folder);
    int error = sgrad_file_begin(path, &file);
    if (!error) {
        fputs(r->damaged, file.stream);
        error = sgrad_file_commit(&file);
    }
    free(path);
    return error;
}

/* Sends parameters and optimizer states of rank 0 to all ranks. */
static int broadcast_parameters(struct sgrad__run *r) {
    struct sgrad__items items = sgrad__training_list(r->training, true);
    struct sgrad__broadcast *list = sgrad_xcalloc((size_t)items.count, sizeof *list);
    int count = 0;
    for (struct sgrad__item *item = items.item; item < items.item + items.count; item++)
        if (!item->whole) list[count++] = (struct sgrad__broadcast){ item->tensor, item->tensor, 0 };
    int error = sgrad__runner_broadcast(r->context, list, count);
    free(list);
    sgrad__items_free(&items);
    return error ? error : sgrad__run_scatter(r);
}

int sgrad__run_compare_options(struct sgrad__run *r) {
    struct sgrad__config config;
    char devices[256];
    if (!r->options.print) r->fingerprint = sgrad_dataset_fingerprint(r->train);
    sgrad__run_describe(r, &config, devices, sizeof devices);
    char *everything = sgrad__config_shared(&config);
    int error = sgrad_ranks_compare(everything);
    free(everything);
    r->together |= error != 0;
    return error;
}

/* Sends the name of the run directory from rank 0 to all ranks. */
static void broadcast_folder(struct sgrad__run *r) {
    size_t size = r->folder ? strlen(r->folder) + 1 : 0;
    sgrad_ranks_broadcast(&size, sizeof size, 0);
    if (r->context->rank) r->folder = sgrad_xcalloc(size, 1);
    sgrad_ranks_broadcast(r->folder, size, 0);
}

int sgrad__run_open_folder(struct sgrad__run *r, long *done) {
    struct sgrad__config config;
    char devices[256];
    sgrad__run_describe(r, &config, devices, sizeof devices);
    r->identity = sgrad__config_identity(&config);
    int error = r->context->rank ? 0 : open_own_folder(r, &config, done);
    if (!error && !r->context->rank) error = write_damaged(r);
    SGRAD_TRY(sgrad__run_await(r, error, "for rank 0, which reads a checkpoint"));
    sgrad_ranks_broadcast(done, sizeof *done, 0);
    r->last_checkpoint = *done;
    broadcast_folder(r);
    return broadcast_parameters(r);
}
