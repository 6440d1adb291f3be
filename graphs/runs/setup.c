/* setup.c: opening a run: its data, network, parameters, program and folder; and closing it. */
#include "graphs/runs/train.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- sizes ---- */

static int64_t largest_divisor(int64_t n, int64_t limit) {
    for (int64_t d = limit < n ? limit : n; d > 1; d--)
        if (n % d == 0) return d;
    return 1;
}

static int64_t nearest_divisor(int64_t n, int64_t wanted) {
    int64_t best = 1;
    for (int64_t d = 1; d <= n; d++)
        if (n % d == 0 && llabs(d - wanted) < llabs(best - wanted)) best = d;
    return best;
}

/* The samples whose sums batch norm joins, the unit of tasks if it is given, and how long the run is, on RANKS ranks. */
static int check_sizes(struct sgrad__run *r, long ranks) {
    const struct sgrad_train_options *o = &r->options;
    if (o->batch > r->train->count)
        return sgrad_fail(SGRAD_EINVAL, "--batch %ld is more than the %lld samples of the training set", o->batch, (long long)r->train->count);
    if (o->batch % ranks)
        return sgrad_fail(SGRAD_EINVAL, "--batch %ld cannot be shared by %ld ranks: %ld can", o->batch, ranks, (o->batch / ranks + 1) * ranks);
    const int64_t share = o->batch / ranks, micro = o->micro_batch;
    const int64_t group = o->bn_group > 0 ? o->bn_group : o->bn_group == SGRAD_GROUP_GLOBAL ? o->batch : share, part = group < share ? group : share;
    if (o->batch % group || share % part || group % part)
        return sgrad_fail(SGRAD_EINVAL, "--bn-group %lld does not divide the %s of %lld: %lld does", (long long)group,
                          ranks > 1 ? "rank's share" : "batch", (long long)share, (long long)nearest_divisor(share, group));
    if (micro && part % micro)
        return sgrad_fail(SGRAD_EINVAL, "--micro-batch %lld does not divide %s of %lld: %lld does", (long long)micro,
                          part < share ? "the group" : "this rank's share", (long long)part, (long long)nearest_divisor(part, micro));
    r->micro = micro;
    r->group = group;
    r->steps_per_epoch = r->train->count / o->batch;
    r->steps = o->steps ? o->steps : (long)(o->epochs * (double)r->steps_per_epoch + 0.5);
    if (r->steps < 1) r->steps = 1;
    if (r->trace_first > r->steps)
        return sgrad_fail(SGRAD_EINVAL, "--trace begins with step %ld, the run ends with step %ld", r->trace_first, r->steps);
    return 0;
}

/* Samples that are worth a task (measured): 32, or 64 of a network so small that its activations stay in the caches. */
static int64_t good_micro_batch(const struct sgrad_graph *g) {
    const int64_t caches = 4 << 20;
    int64_t bytes = 0;
    for (int i = 0; i < g->value_count; i++) bytes += (int64_t)sgrad_view_bytes(&g->value[i].view);
    return 32 * bytes < caches ? 64 : 32;
}

/* Every worker should find a micro-batch;
 * --deterministic must not look at the machine, and up to eight ranks, a power of two, have to choose the same. */
static void choose_micro_batch(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const int64_t share = o->batch / r->context->ranks, part = r->group < share ? r->group : share;
    if (!r->micro && o->deterministic) {
        r->micro = largest_divisor(part, 32);
        while (o->batch % 8 == 0 && (o->batch / 8) % r->micro) r->micro = largest_divisor(part, r->micro - 1);
    } else if (!r->micro) {
        r->micro = largest_divisor(part, r->context->cudas ? 256 : good_micro_batch(r->graph));
        while (share / r->micro < r->context->cpus && r->micro > 1) r->micro = largest_divisor(part, r->micro - 1);
    }
    if (o->bn_group == SGRAD_GROUP_MICRO) r->group = r->micro;
}

/* ---- how ranks train together ---- */

static int host_ranks(const struct sgrad_network *net) {
    int count = 0;
    for (int i = 0; i < net->ranks; i++) count += net->host[i] == net->host[0];
    return count;
}

/* What does not go with this strategy, whatever the ranks. */
static int check_strategy(const struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const char *name = r->strategy->name;
    if (o->allreduce && r->strategy->sharded) return sgrad_fail(SGRAD_EINVAL, "--allreduce goes with --strategy sync, not with %s", name);
    if (o->clip_norm > 0 && r->strategy->sharded) return sgrad_fail(SGRAD_EINVAL, "--clip-norm goes with --strategy sync, not with %s", name);
    if (o->histograms && !o->tensorboard) return sgrad_fail(SGRAD_EINVAL, "--histograms needs --tensorboard, which shows them");
    if (o->histograms && r->strategy->sharded)
        return sgrad_fail(SGRAD_EINVAL, "--histograms goes with --strategy sync, not with %s: gradients are each at its server", name);
    if (o->backup >= 0 && !r->strategy->fresh) return sgrad_fail(SGRAD_EINVAL, "--backup goes with --strategy backup, not with %s", name);
    if (o->deterministic && r->strategy->served)
        return sgrad_fail(SGRAD_EINVAL, "--deterministic cannot go with --strategy %s: who comes first decides", name);
    if (o->deterministic && r->allreduce && !r->allreduce->halving)
        return sgrad_fail(SGRAD_EINVAL, "--allreduce %s does not keep to one order of sums, as --deterministic needs: doubling, halving and tree do", o->allreduce);
    return 0;
}

static int choose_strategy(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const int ranks = r->context->ranks;
    r->servers = o->servers ? o->servers : ranks;
    r->group_ranks = o->group ? o->group : r->context->network ? host_ranks(r->context->network) : 1;
    if (r->servers > ranks) return sgrad_fail(SGRAD_EINVAL, "--servers %d are more than the %d ranks", r->servers, ranks);
    if (ranks % r->group_ranks)
        return sgrad_fail(SGRAD_EINVAL, "--group %d does not divide the %d ranks: %d does", r->group_ranks, ranks, (int)nearest_divisor(ranks, r->group_ranks));
    if (o->backup >= ranks) return sgrad_fail(SGRAD_EINVAL, "--backup %d leaves none of the %d ranks", o->backup, ranks);
    if (o->backup < 0 && r->strategy->fresh) r->options.backup = ranks > 1;
    r->push_ranks = r->strategy->fresh ? 1 : r->strategy->ranks(&(struct sgrad__program_options){ .ranks = ranks, .group_ranks = r->group_ranks });
    if (r->strategy->served && r->group > o->batch / ranks * r->push_ranks)
        return sgrad_fail(SGRAD_EINVAL, "--bn-group spans ranks that --strategy %s does not keep in step", r->strategy->name);
    if (r->strategy->served && o->staleness) r->options.window = o->staleness + 1;
    return 0;
}

/* ---- data, network, parameters ---- */

static int open_context(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    char *trace = o->trace && !o->print ? sgrad_format("%s/trace", r->folder ? r->folder : "") : NULL;
    int error = sgrad_context_open(&(struct sgrad_context_options){ .cpus = o->cpus, .cudas = o->gpus, .scheduler = o->scheduler,
                                                                    .trace = trace, .network = o->network, .patience = o->stall_timeout }, &r->context);
    free(trace);
    return error;
}

static void set_input(struct sgrad__run *r) {
    r->image.full_scale = r->train->full_scale;
    for (int c = 0; c < r->train->channels; c++) {
        r->image.mean[c] = (float)r->mean[c];
        r->image.deviation[c] = (float)r->deviation[c];
    }
}

static int open_data(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    struct sgrad_dataset_options how = { .seed = o->seed, .size = o->image_size }, once = how;
    once.memory = o->partition ? 1 : 0;     /* an image that is decoded for the placement is not kept twice */
    SGRAD_TRY(sgrad_dataset_open(o->data, SGRAD_TRAIN, &once, &r->train));
    SGRAD_TRY(sgrad_dataset_open(o->data, SGRAD_TEST, &how, &r->test));
    if (r->train->height != r->test->height || r->train->width != r->test->width || r->train->channels != r->test->channels)
        return sgrad_fail(SGRAD_ESHAPE, "%s: training images are %dx%dx%d, test images %dx%dx%d", o->data, r->train->height,
                          r->train->width, r->train->channels, r->test->height, r->test->width, r->test->channels);
    if (r->test->classes > r->train->classes)
        return sgrad_fail(SGRAD_ESHAPE, "%s: the test part has %d classes, the training part %d", o->data, r->test->classes, r->train->classes);
    if (o->partition) return 0;     /* statistics wait until there are ranks to share the reading */
    SGRAD_TRY(sgrad_dataset_statistics(r->train, r->mean, r->deviation));
    set_input(r);
    return 0;
}

/* Every rank reads a part. Sums go over the ranks as halves, since whole numbers of 32 bits are exact in doubles. */
static int open_placement(struct sgrad__run *r) {
    const int rank = r->context->rank, ranks = r->context->ranks;
    const int64_t count = r->train->count, from = count * rank / ranks;
    struct sgrad_dataset_sums sums;
    enum { WORDS = sizeof sums / sizeof(uint64_t) };
    uint64_t *word = (uint64_t *)&sums;
    double half[WORDS][2];
    SGRAD_TRY(sgrad_dataset_sums(r->train, from, count * (rank + 1) / ranks - from, &sums));
    for (int i = 0; i < WORDS; i++) half[i][0] = (double)(uint32_t)word[i], half[i][1] = (double)(word[i] >> 32);
    sgrad_ranks_sum(half[0], 2 * WORDS);
    for (int i = 0; i < WORDS; i++) word[i] = (uint64_t)half[i][0] + ((uint64_t)half[i][1] << 32);
    sgrad_dataset_moments(r->train, &sums, r->mean, r->deviation);
    set_input(r);
    r->placement = sgrad__placement_create(&(struct sgrad__placement_options){
        .dataset = r->train, .order = &r->order, .batch = r->options.batch, .steps = r->steps, .rank = rank, .ranks = ranks,
        .shuffle = !r->options.no_shuffle });
    return 0;
}

/* A damaged test image is found before the first step, not after the first epoch. */
static int check_test_images(struct sgrad__run *r) {
    return sgrad_dataset_check(r->test, 0, r->test->count);
}

/* The standard recipe for small colour images. */
static void add_augmentation(struct sgrad__run *r) {
    if (r->options.no_augment || r->train->channels != 3 || r->train->height > 64) return;
    r->image.pad = 4;
    r->image.flip = true;
}

/* Images are normalised as the run that made the weights did it, where its config.json lies beside them. */
static int input_of_weights(struct sgrad__run *r) {
    char *folder = sgrad_format("%s", r->options.init), *slash = strrchr(folder, '/');
    bool found;
    if (slash) *slash = 0;
    int error = sgrad__config_input(slash ? folder : ".", r->train->channels, r->mean, r->deviation, &found);
    free(folder);
    set_input(r);
    return error;
}

static int open_graph(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    r->graph = sgrad_graph_create(o->precision == SGRAD_PRECISION_BF16 ? SGRAD_BF16 : SGRAD_F32);
    int x = sgrad_graph_input(r->graph, r->train->height, r->train->width, r->train->channels);
    int logits = r->model->build(r->graph, x, r->train->classes);
    return sgrad_graph_loss(r->graph, logits, (float)o->label_smoothing);
}

static void set_hyper(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    for (int i = 0; i < r->graph->parameter_count; i++) {
        struct sgrad__parameter *p = &r->graph->parameter[i];
        p->hyper = (struct sgrad_hyper){
            .momentum = (float)o->momentum, .weight_decay = o->no_decay_1d && p->is.shape.rank <= 1 ? 0 : (float)o->weight_decay,
            .beta1 = (float)o->beta1, .beta2 = (float)o->beta2, .eps = (float)o->eps, .clip_norm = (float)o->clip_norm,
            .trust = (float)o->trust, .nesterov = o->nesterov,
        };
    }
}

static int open_parameters(struct sgrad__run *r) {
    struct sgrad_safetensors file;
    SGRAD_TRY(sgrad__parameters_allocate(r->graph, r->optimizer, r->options.seed));
    set_hyper(r);
    if (!r->options.init) return 0;
    SGRAD_TRY(sgrad_safetensors_open(r->options.init, &file));
    int error = sgrad__parameters_load(r->graph, r->optimizer, &file, false);
    sgrad_safetensors_close(&file);
    return error;
}

struct sgrad__program_options sgrad__run_program_options(struct sgrad__run *r, bool training, int64_t batch, int64_t micro) {
    struct sgrad__program_options p = {
        .batch = batch, .micro = micro, .group = training ? r->group : micro, .training = training,
        .rank = training ? r->context->rank : 0, .ranks = training ? r->context->ranks : 1, .network = r->context->network,
        .strategy = r->strategy, .servers = r->servers, .group_ranks = r->group_ranks, .backup = r->options.backup, .allreduce = r->allreduce, .bucket = (int64_t)(r->options.bucket * 1e6),
        .deterministic = r->options.deterministic, .tf32 = r->options.precision == SGRAD_PRECISION_TF32, .optimizer = r->optimizer, .clip_norm = (float)r->options.clip_norm,
        .fuse = !r->options.no_fuse, .cpus = r->context->cpus, .cudas = r->context->cudas,
        .window = r->options.window, .image = r->image, .dataset = training ? r->train : r->test,
        .histograms = training && r->options.histograms && r->context->rank == 0, .placement = training ? r->placement : NULL, .workers = r->workers,
    };
    return p;
}

/* ---- the run's folder ---- */

static bool is_empty(const char *folder) {
    DIR *d = opendir(folder);
    bool empty = true;
    for (struct dirent *e; d && (e = readdir(d));) empty &= e->d_name[0] == '.';
    if (d) closedir(d);
    return empty;
}

/* mkdir -p */
static int make_folder(const char *path) {
    char *part = sgrad_format("%s", path);
    int error = 0;
    for (char *s = part + 1; !error; s++) {
        if (*s && *s != '/') continue;
        char end = *s;
        *s = 0;
        if (mkdir(part, 0777) != 0 && errno != EEXIST) error = sgrad_fail(SGRAD_EIO, "%s: cannot be made: %s", part, strerror(errno));
        *s = end;
        if (!end) break;
    }
    free(part);
    return error;
}

static char *default_folder(const char *model) {
    char when[32];
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", localtime(&now));
    return sgrad_format("runs/%s-%s", model, when);
}

/* One run at a time: the lock ends with the process, however that ends. A file system without locks has to trust its users. */
static int lock_folder(struct sgrad__run *r) {
    int fd = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return sgrad_fail(SGRAD_EIO, "%s: %s", r->folder, strerror(errno));
    r->lock = fd;
    if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) return sgrad_fail(SGRAD_EIO, "%s: another run is writing there", r->folder);
    return 0;
}

/* Names the folder, and refuses one that holds something else, before any work is done. */
static int claim_folder(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    if (o->resume && !o->out) return sgrad_fail(SGRAD_EINVAL, "--resume needs --out, the folder of the run to continue");
    r->folder = o->out ? sgrad_format("%s", o->out) : default_folder(r->model->name);
    SGRAD_TRY(make_folder(r->folder));
    SGRAD_TRY(lock_folder(r));
    if (!o->resume && !is_empty(r->folder))
        return sgrad_fail(SGRAD_EINVAL, "%s: holds files already; choose another --out, or continue that run with --resume", r->folder);
    return 0;
}

static void describe_run(struct sgrad__run *r, struct sgrad__config *config, char *devices, size_t size) {
    *config = (struct sgrad__config){
        .options = &r->options, .model = r->model->name, .parameters = sgrad__parameters_count(r->graph),
        .fingerprint = sgrad_dataset_fingerprint(r->train), .channels = r->train->channels, .ranks = r->context->ranks,
        .micro_batch = r->micro, .devices = sgrad_devices_text(r->context, devices, size),
    };
    memcpy(config->mean, r->mean, sizeof r->mean);
    memcpy(config->deviation, r->deviation, sizeof r->deviation);
}

/* Beginning anew would lose what a run without checkpoints has come to. */
static int refuse_finished(const char *folder) {
    char *path = sgrad_format("%s/model.safetensors", folder);
    int error = access(path, F_OK) ? 0 : sgrad_fail(SGRAD_EINVAL, "%s: there is no checkpoint from which this finished run could go on", folder);
    free(path);
    return error;
}

static int open_own_folder(struct sgrad__run *r, const struct sgrad__config *config, long *done) {
    char *path = NULL;
    if (r->options.resume) {
        struct sgrad__position position;
        SGRAD_TRY(sgrad__config_check(r->folder, config));
        SGRAD_TRY(sgrad__checkpoint_newest(r->folder, &path));
        if (path) {
            int error = sgrad__checkpoint_load(r->graph, r->optimizer, path, r->identity, &position);
            free(path);
            if (error) return error;
            *done = position.step;
        } else {
            SGRAD_TRY(refuse_finished(r->folder));
            sgrad_warn("%s: no checkpoint there yet: the run begins anew", r->folder);
        }
    }
    return sgrad__config_write(r->folder, config);
}

/* Writes config.json, or, continuing a run, loads its newest checkpoint: *DONE steps lie behind it. The folder is rank 0's; the
 * others get what it holds from there. */
int sgrad__run_open_folder(struct sgrad__run *r, long *done) {
    struct sgrad__config config;
    char devices[256];
    describe_run(r, &config, devices, sizeof devices);
    r->identity = sgrad__config_identity(&config);
    char *everything = sgrad__config_shared(&config);
    int error = sgrad_ranks_compare(everything);
    free(everything);
    r->together |= error != 0;
    if (error) return error;
    SGRAD_TRY(sgrad__run_agree(r, r->context->rank ? 0 : open_own_folder(r, &config, done)));
    sgrad_ranks_broadcast(done, sizeof *done, 0);
    r->last_checkpoint = *done;
    return sgrad__parameters_broadcast(r->graph, r->optimizer);
}

/* ---- the whole of it ---- */

/* "": steps 10 to 12, warm but early. "N": that one. "A-B": those. */
static int parse_trace(struct sgrad__run *r) {
    const char *text = r->options.trace;
    char *end = NULL;
    if (!text) return 0;
    r->trace_first = 10;
    r->trace_last = 12;
    if (!*text) return 0;
    r->trace_first = r->trace_last = strtol(text, &end, 10);
    if (*end == '-') r->trace_last = strtol(end + 1, &end, 10);
    if (*end || r->trace_first < 1 || r->trace_last < r->trace_first) return sgrad_fail(SGRAD_EINVAL, "--trace '%s': takes a step, or FIRST-LAST", text);
    return 0;
}

static int find_records(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    r->model = o->custom_model ? o->custom_model : sgrad_record_find("model", o->model, sgrad_models);
    r->optimizer = sgrad_record_find("optimizer", o->optimizer, sgrad_optimizers);
    if (o->allreduce) r->allreduce = sgrad_record_find("allreduce", o->allreduce, sgrad_allreduces);
    r->strategy = sgrad_record_find("strategy", o->strategy, sgrad_strategies);
    return r->model && r->optimizer && r->strategy && (r->allreduce || !o->allreduce) ? 0 : SGRAD_ENAME;
}

/* A batch k times as large takes steps k times as long, once the warm-up has led there from those of the small one. */
static int set_rate(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    SGRAD_TRY(sgrad_schedule_parse(o->schedule, &r->schedule));
    r->schedule.warmup = o->warmup;
    r->schedule.start = o->lr_scale_base ? o->lr : 0;
    r->peak = o->lr_scale_base ? o->lr * (double)o->batch / (double)o->lr_scale_base : o->lr;
    return 0;
}

int sgrad__run_open_training(struct sgrad__run *r) {
    SGRAD_TRY(parse_trace(r));
    SGRAD_TRY(set_rate(r));
    SGRAD_TRY(find_records(r));
    SGRAD_TRY(check_strategy(r));
    SGRAD_TRY(open_data(r));
    SGRAD_TRY(check_test_images(r));
    add_augmentation(r);
    SGRAD_TRY(check_sizes(r, 1));
    SGRAD_TRY(open_graph(r));
    if (!r->options.print && sgrad_launched_rank() == 0) SGRAD_TRY(claim_folder(r));
    SGRAD_TRY(open_context(r));
    int error = check_sizes(r, r->context->ranks);
    if (!error) error = choose_strategy(r);
    SGRAD_TRY(sgrad__run_agree(r, error));
    choose_micro_batch(r);
    if (r->options.partition) SGRAD_TRY(open_placement(r));
    SGRAD_TRY(open_parameters(r));
    r->workers = sgrad__workers_watch(r->context, r->options.tensorboard || r->options.prometheus);
    struct sgrad__program_options p = sgrad__run_program_options(r, true, r->options.batch, r->micro);
    return sgrad__program_build(r->graph, &p, &r->program);
}

int sgrad__run_open_evaluation(struct sgrad__run *r) {
    SGRAD_TRY(find_records(r));
    SGRAD_TRY(open_data(r));
    SGRAD_TRY(open_graph(r));
    SGRAD_TRY(open_context(r));
    SGRAD_TRY(open_parameters(r));
    SGRAD_TRY(input_of_weights(r));
    r->micro = r->options.micro_batch ? r->options.micro_batch : 32;
    return 0;
}

void sgrad__run_close(struct sgrad__run *r) {
    sgrad_wait_all();
    sgrad__metrics_close(r->metrics);
    sgrad__server_close(r);
    sgrad__runner_destroy(r->runner);
    sgrad__program_destroy(r->program);
    for (int i = 0; i < 3; i++) {
        sgrad__runner_destroy(r->evaluation[i].runner);
        sgrad__program_destroy(r->evaluation[i].program);
    }
    sgrad__placement_destroy(r->placement);
    sgrad__workers_free(r->workers);
    sgrad_graph_destroy(r->graph);
    sgrad_context_close(r->context);
    sgrad_dataset_close(r->train);
    sgrad_dataset_close(r->test);
    sgrad__order_close(&r->order);
    if (r->lock > 0) close(r->lock);
    free(r->identity);
    free(r->folder);
}

