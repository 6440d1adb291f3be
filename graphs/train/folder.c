/* folder.c: the run directory: claims it for one run at a time, initializes it, or loads the state of a resumed run from it. */
#include "config.h"
#include "datasets/tokenizers/tokenizer.h"
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
        if (errno != EEXIST) return sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", *folder, strerror(errno));
        free(*folder);
    }
}

int sgrad__run_claim_folder(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    SGRAD_TRY(sgrad__options_check(o));
    if (o->checkpoint.resume && !o->output.folder)
        return sgrad_log_error(SGRAD_EINVAL, "--resume requires --out, the folder of the run to continue");
    if (!o->output.folder) {
        run->files.created = true;
        SGRAD_TRY(make_default_folder(run->model->name, &run->files.folder));
    } else {
        run->files.folder = sgrad_format("%s", o->output.folder);
        run->files.created = access(run->files.folder, F_OK) != 0;
        if (run->files.created) SGRAD_TRY(sgrad__run_folder_check(run->files.folder, o->checkpoint.resume));
        SGRAD_TRY(sgrad_folder_make(run->files.folder));
    }
    SGRAD_TRY(sgrad_lock_take(run->files.folder, &run->files.lock));
    SGRAD_TRY(sgrad__run_folder_check(run->files.folder, o->checkpoint.resume));
    return o->checkpoint.resume ? sgrad__checkpoint_exists(run->files.folder, &run->files.restores) : 0;
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

char *sgrad__run_again_text(const struct sgrad__run *run) {
    char *folder = quoted(run->files.folder), *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    const bool by_mpirun = getenv("OMPI_COMM_WORLD_SIZE") || getenv("MPI_LOCALNRANKS");
    if (run->context->ranks > 1 && run->options.output.command)
        fprintf(to, "%s -n %d ", by_mpirun ? "mpirun" : "srun --mpi=pmix", run->context->ranks);
    if (run->options.output.command) fprintf(to, "%s ", run->options.output.command);
    fprintf(to, "--out %s --resume", folder);
    for (const char *const *file = sgrad_plugins; *file && run->options.output.command; file++) {
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

void sgrad__run_leave_folder(struct sgrad__run *run) {
    char *lock = sgrad_format("%s/" SGRAD_LOCK, run->files.folder ? run->files.folder : "");
    char *trace = sgrad_format("%s/" SGRAD__TRACE, run->files.folder ? run->files.folder : "");
    if (run->files.lock > 0 && run->files.created) unlink(lock), nftw(trace, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    if (run->files.lock > 0) sgrad_lock_release(run->files.lock);
    if (run->files.lock > 0 && run->files.created) rmdir(run->files.folder);
    free(lock);
    free(trace);
}

void sgrad__run_describe(const struct sgrad__run *run, struct sgrad__config *config, char *devices, size_t size) {
    *config = (struct sgrad__config){
        .options = &run->options,
        .model = run->model_text,
        .lora = run->graph->lora.rank ? &run->graph->lora : NULL,
        .dataset = run->data.train,
        .parameters = sgrad__parameters_whole(run->graph),
        .fingerprint = run->data.fingerprint,
        .metric = run->metric,
        .metrics = run->result.metrics,
        .ranks = run->context->ranks,
        .samples = sgrad__run_samples(run),
        .channels = sgrad_dataset_channels(run->data.train),
        .micro_batch = run->batch.micro,
        .recomputed = run->batch.recomputation.layers,
        .group = sgrad__has_groups(run->graph) ? run->batch.norm_group : 0,
        .tests = run->data.test->count,
        .auto_mesh = run->parallel.auto_mesh,
        .devices = sgrad_devices_text(run->context, devices, size),
    };
    memcpy(config->mean, run->data.mean, sizeof run->data.mean);
    memcpy(config->deviation, run->data.deviation, sizeof run->data.deviation);
}

/* Returns an error if the run has finished without checkpoints: starting it again would overwrite its result. */
static int refuse_finished(const char *folder) {
    char *path = sgrad_format("%s/model.safetensors", folder);
    int error = access(path, F_OK)
                    ? 0
                    : sgrad_log_error(SGRAD_EINVAL,
                                      "%s: contains no checkpoint, so this finished run cannot be continued; begin another run "
                                      "(--like DIR copies the options)",
                                      folder);
    free(path);
    return error;
}

/* In the directory of a new run there is no config.json to check and no checkpoint, but there may be unfinished files of a
 * killed run, which are removed. */
static int open_own_folder(struct sgrad__run *run, const struct sgrad__config *config, long *done) {
    char *path = NULL;
    bool in_memory = false;
    struct sgrad__position position;
    SGRAD_TRY(sgrad__config_check(run->files.folder, config));
    SGRAD_TRY(sgrad__snapshots_newest(run, &path, &in_memory));
    if (path) {
        int error = sgrad__checkpoint_load(run->training, path, run->files.identity, &position);
        free(path);
        if (error) return error;
        *done = position.step;
        run->files.last_checkpoint = in_memory ? sgrad__checkpoint_last(run->files.folder, *done) : *done;
        SGRAD_TRY(sgrad__config_same_order(run->files.folder, config, *done, run->steps_per_epoch));
        return *done < run->steps ? sgrad__config_continue(run->files.folder, config, *done, &run->files.history) : 0;
    }
    run->files.created = false;
    if (!run->options.checkpoint.resume) return sgrad__config_write(run->files.folder, config);
    SGRAD_TRY(refuse_finished(run->files.folder));
    sgrad_log_warning("%s: contains no checkpoint yet; the run starts from the beginning", run->files.folder);
    return sgrad__config_continue(run->files.folder, config, 0, &run->files.history);
}

/* Copies the tokenizer of the texts to the run directory, for stargrad sample. Called by rank 0. */
static int copy_tokenizer(const struct sgrad__run *run) {
    const char *from = run->options.data.tokenizer, *data = run->options.data.name;
    struct sgrad_tokenizer *tokenizer;
    if (!from || !data || strncmp(data, "jsonl:", strlen("jsonl:"))) return 0;
    SGRAD_TRY(sgrad_tokenizer_open(from, &tokenizer));
    const int error = sgrad_tokenizer_copy(tokenizer, run->files.folder);
    sgrad_tokenizer_close(tokenizer);
    return error;
}

/* Writes damaged.txt, the list of unreadable samples, to the run directory, if there are any. Called by rank 0. */
static int write_damaged(const struct sgrad__run *run) {
    struct sgrad_file file;
    if (!run->data.damaged) return 0;
    char *path = sgrad_format("%s/damaged.txt", run->files.folder);
    int error = sgrad_file_begin(path, &file);
    if (!error) {
        fputs(run->data.damaged, file.stream);
        error = sgrad_file_commit(&file);
    }
    free(path);
    return error;
}

/* Sends parameters and optimizer states of rank 0 to all ranks. */
static int broadcast_parameters(struct sgrad__run *run) {
    struct sgrad__items items = sgrad__training_list(run->training, true);
    struct sgrad__broadcast *list = sgrad_xcalloc((size_t)items.count, sizeof *list);
    int count = 0;
    for (struct sgrad__item *item = items.item; item < items.item + items.count; item++)
        if (!item->whole) list[count++] = (struct sgrad__broadcast){ item->tensor, item->tensor, 0 };
    int error = sgrad__runner_broadcast(run->context, list, count);
    free(list);
    sgrad__items_free(&items);
    return error ? error : sgrad__run_scatter(run);
}

int sgrad__run_compare_options(struct sgrad__run *run) {
    struct sgrad__config config;
    char devices[256];
    if (!run->options.output.print) run->data.fingerprint = sgrad_dataset_fingerprint(run->data.train);
    sgrad__run_describe(run, &config, devices, sizeof devices);
    char *everything = sgrad__config_shared(&config);
    int error = sgrad_ranks_compare(everything);
    free(everything);
    run->control.together |= error != 0;
    return error;
}

/* Sends the name of the run directory from rank 0 to all ranks. */
static void broadcast_folder(struct sgrad__run *run) {
    size_t size = run->files.folder ? strlen(run->files.folder) + 1 : 0;
    sgrad_ranks_broadcast(&size, sizeof size, 0);
    if (run->context->rank) run->files.folder = sgrad_xcalloc(size, 1);
    sgrad_ranks_broadcast(run->files.folder, size, 0);
}

int sgrad__run_open_folder(struct sgrad__run *run, long *done) {
    struct sgrad__config config;
    char devices[256];
    sgrad__run_describe(run, &config, devices, sizeof devices);
    run->files.identity = sgrad__config_identity(&config);
    sgrad__snapshots_start(run);
    int error = run->context->rank ? 0 : open_own_folder(run, &config, done);
    if (!error && !run->context->rank) error = write_damaged(run);
    if (!error && !run->context->rank) error = copy_tokenizer(run);
    SGRAD_TRY(sgrad__run_await(run, error, "for rank 0, which reads a checkpoint"));
    sgrad_ranks_broadcast(done, sizeof *done, 0);
    sgrad_ranks_broadcast(&run->files.last_checkpoint, sizeof run->files.last_checkpoint, 0);
    sgrad__snapshots_expect(run, *done);
    broadcast_folder(run);
    return broadcast_parameters(run);
}
