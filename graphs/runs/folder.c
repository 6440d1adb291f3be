/* folder.c: a run's folder: claimed for one run at a time; what a run begins or goes on with. */
#include "config.h"
#include "graphs/runs/plugin.h"
#include "graphs/runs/run.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TRACE "trace"

/* Batch systems write a job's output where it begins. */
static bool is_of_batch_system(const char *name) {
    return strncmp(name, "slurm-", 6) == 0 && (strstr(name, ".out") || strstr(name, ".err"));
}

/* What is in FOLDER, which need not be there. What a killed run left half-written (PATH.part.PID), or before it began anything
 * (its trace), counts for nothing. */
enum content { NOTHING, FILES, RUN };
static int content_of(const char *folder, enum content *content) {
    DIR *d = opendir(folder);
    *content = NOTHING;
    if (!d && errno != ENOENT) return sgrad_fail(SGRAD_EIO, "%s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.' || strstr(e->d_name, ".part.") || strcmp(e->d_name, TRACE) == 0 || is_of_batch_system(e->d_name))
            continue;
        const bool run = strcmp(e->d_name, "config.json") == 0 || strncmp(e->d_name, "checkpoint-", 11) == 0;
        if (run || *content == NOTHING) *content = run ? RUN : FILES;
    }
    if (d) closedir(d);
    return 0;
}

bool sgrad_run_exists(const char *folder) {
    enum content content;
    return content_of(folder, &content) == 0 && content == RUN;
}

int sgrad__run_folder_check(const char *folder, bool resume) {
    enum content content;
    SGRAD_TRY(content_of(folder, &content));
    if (content == (resume ? RUN : NOTHING)) return 0;
    if (!resume)
        return sgrad_fail(SGRAD_EINVAL, "%s: holds files already; choose another --out%s", folder,
                          content == RUN ? ", or continue that run with --resume" : "");
    return sgrad_fail(SGRAD_EINVAL, "%s: there is no run to continue; leave out --resume to begin one%s", folder,
                      content == FILES ? " in another --out: this one holds files" : " there");
}

int sgrad_folder_make(const char *path) {
    char *name = sgrad_format("%s", path);
    int error = 0;
    for (char *s = name + 1; !error; s++) {
        if (*s && *s != '/') continue;
        char end = *s;
        *s = 0;
        if (mkdir(name, 0777) != 0 && errno != EEXIST)
            error = sgrad_fail(SGRAD_EIO, "%s: cannot be made: %s", name, strerror(errno));
        *s = end;
        if (!end) break;
    }
    free(name);
    return error;
}

/* runs/MODEL-TIME, made here; where another run began in the same second, runs/MODEL-TIME-2, … */
static int make_default_folder(const char *model, char **folder) {
    char when[32];
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime(&now));
    SGRAD_TRY(sgrad_folder_make("runs"));
    for (int i = 1;; i++) {
        *folder = i == 1 ? sgrad_format("runs/%s-%s", model, when) : sgrad_format("runs/%s-%s-%d", model, when, i);
        if (mkdir(*folder, 0777) == 0) return 0;
        if (errno != EEXIST) return sgrad_fail(SGRAD_EIO, "%s: cannot be made: %s", *folder, strerror(errno));
        free(*folder);
    }
}

int sgrad__run_claim_folder(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    SGRAD_TRY(sgrad__options_check(o));
    if (o->resume && !o->out) return sgrad_fail(SGRAD_EINVAL, "--resume needs --out, the folder of the run to continue");
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

/* WORD for a shell; free it. */
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
    char *trace = sgrad_format("%s/" TRACE, r->folder ? r->folder : "");
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

/* Beginning anew would lose what a run without checkpoints has come to. */
static int refuse_finished(const char *folder) {
    char *path = sgrad_format("%s/model.safetensors", folder);
    int error = access(path, F_OK)
                    ? 0
                    : sgrad_fail(SGRAD_EINVAL, "%s: there is no checkpoint from which this finished run could go on", folder);
    free(path);
    return error;
}

/* In a folder where a run begins there is nothing to check and no checkpoint, but perhaps what a killed one left half-written. */
static int open_own_folder(struct sgrad__run *r, const struct sgrad__config *config, long *done) {
    char *path = NULL;
    struct sgrad__position position;
    SGRAD_TRY(sgrad__config_check(r->folder, config));
    SGRAD_TRY(sgrad__checkpoint_newest(r->folder, &path));
    if (path) {
        int error = sgrad__checkpoint_load(r->graph, path, r->identity, &position);
        free(path);
        if (error) return error;
        *done = position.step;
        return *done < r->steps ? sgrad__config_continue(r->folder, config, *done, &r->history) : 0;
    }
    r->fresh = false;
    if (!r->options.resume) return sgrad__config_write(r->folder, config);
    SGRAD_TRY(refuse_finished(r->folder));
    sgrad_warn("%s: no checkpoint there yet: the run begins anew", r->folder);
    return sgrad__config_continue(r->folder, config, 0, &r->history);
}

/* Writes damaged.txt, the list of samples that cannot be read, into the folder, where there are any. Rank 0 calls it. */
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

/* Rank 0's values, and its optimizer's, to every rank. */
static int broadcast_parameters(struct sgrad__run *r) {
    struct sgrad__items items = sgrad__parameters_list(r->graph, true);
    struct sgrad__broadcast *list = sgrad_alloc((size_t)items.count, sizeof *list);
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

/* Rank 0's name of the folder to every rank. */
static void broadcast_folder(struct sgrad__run *r) {
    size_t size = r->folder ? strlen(r->folder) + 1 : 0;
    sgrad_ranks_broadcast(&size, sizeof size, 0);
    if (r->context->rank) r->folder = sgrad_alloc(size, 1);
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
