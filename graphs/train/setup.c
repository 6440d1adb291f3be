/* setup.c: opens a run, from the options to the program, and closes it. */
#include "datasets/datasets.h"
#include "graphs/train/setup.h"
#include "runtime/ranks/early.h"
#include "runtime/environment.h"
#include "runtime/gpu_memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int open_context(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    char *trace = NULL;
    if (run->files.trace_folder) trace = sgrad_format("%s", run->files.trace_folder);
    else if (o->output.trace.first && !o->output.print)
        trace = sgrad_format("%s/trace", run->files.folder ? run->files.folder : "");
    const struct sgrad_context_options how = { .cpus = o->parallel.cpus,
                                               .gpus = o->parallel.gpus,
                                               .scheduler = o->parallel.scheduler,
                                               .trace = trace,
                                               .kinds = sgrad_kinds,
                                               .network = o->parallel.network,
                                               .timeout = o->parallel.stall_timeout };
    if (o->parallel.gpu_memory) sgrad_gpu_memory_limit((size_t)o->parallel.gpu_memory);
    int error = sgrad_context_open(&how, &run->context);
    free(trace);
    return error ? error : sgrad_launcher_check(run->context->ranks);
}

/* Returns the value of an option or, if that is below 0, the default: OWN, that of the optimizer; GENERAL if OWN is 0. */
static float given(double option, double own, double general) {
    if (option >= 0) return (float)option;
    return (float)(own > 0 ? own : general);
}

static void set_hyper(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &run->graph->parameter[i];
        const struct sgrad_optimizer *is = run->training->update[i].optimizer;
        if (!is) is = run->update.optimizer;    /* a running statistic, or frozen */
        run->training->update[i].hyper = (struct sgrad_hyper){
            .momentum = given(o->optimizer.momentum, is->momentum, 0.9),
            .weight_decay = o->optimizer.no_decay_1d && p->is.shape.rank <= 1
                                ? 0
                                : (float)(o->optimizer.weight_decay * sgrad__number_of(o->optimizer.weight_decay_of, p->name, 1)),
            .beta1 = given(o->optimizer.beta1, is->beta1, 0.9),
            .beta2 = given(o->optimizer.beta2, is->beta2, 0.999),
            .eps = (float)o->optimizer.eps,
            .clip_norm = (float)o->training.clip_norm,
            .trust = (float)o->optimizer.trust,
            .kl_clip = (float)o->optimizer.kfac.clip,
            .nesterov = o->optimizer.nesterov,
            .every = (int)o->optimizer.soap_every,
            .lr_scale = (float)sgrad__number_of(o->optimizer.lr_of, p->name, 1),
        };
    }
}

static int open_weights(struct sgrad__run *run) {
    struct sgrad_safetensors file;
    const struct sgrad_program_options how = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro);
    run->training->sharers =
        run->parallel.strategy && run->parallel.strategy->shards_optimizer && run->context->ranks > 1 ? run->context->ranks : 0;
    set_hyper(run);
    if (run->data.train) sgrad__run_assign_updates(run, &how);
    if (how.shares) sgrad__training_share_parameters(run->training);
    SGRAD_TRY(sgrad__parameters_allocate(run->graph, run->options.training.seed));
    SGRAD_TRY(sgrad__training_allocate(run->training));
    if (run->data.train && run->training->hooks) SGRAD_TRY(run->training->hooks->allocate(run->training, &how));
    if (run->data.train && run->options.training.lookahead.every) SGRAD_TRY(sgrad__training_keep_slow(run->training));
    if (run->data.train) SGRAD_TRY(sgrad__training_average(run->training, run->options.training.ema > 0));
    if (run->data.train) SGRAD_TRY(sgrad__run_open_limit(run));
    const struct sgrad__imported *imported = run->graph->imported;
    const char *skip = run->data.train ? run->options.model.init_skip : NULL;  /* an evaluation loads all weights */
    if (!run->options.model.init || run->files.restores)
        return imported ? sgrad__weights_load(run->graph, sgrad__network_list(run->graph), &imported->weights, skip) : 0;
    SGRAD_TRY(sgrad__run_check_ended(run->options.model.init));
    SGRAD_TRY(sgrad_safetensors_open(run->options.model.init, &file));
    int error = sgrad__weights_load(run->graph, sgrad__network_list(run->graph), &file, skip);
    if (!error && run->context->rank == 0) error = sgrad__weights_checksum(&file, (char[SGRAD_CHECKSUM]){ 0 });
    sgrad_safetensors_close(&file);
    return error;
}

static int open_parameters(struct sgrad__run *run) {
    SGRAD_TRY(open_weights(run));
    return run->data.train && !run->files.restores ? sgrad__run_load_adapter(run) : 0;
}

/* Sets *STRATEGY. --shard is implemented by the strategies "shard" and "shard_parameters", which replace "sync". */
static int choose_shares(const struct sgrad_train_options *options, const char **strategy) {
    static const struct { const char *shard, *strategy; } list[] = {
        { "none", "sync" }, { "optimizer", "shard" }, { "gradients", "shard" }, { "parameters", "shard_parameters" }
    };
    enum { CHOICES = sizeof list / sizeof *list };
    const char *shard = options->parallel.shard;
    *strategy = options->parallel.strategy;
    if (!shard) return 0;
    int i = 0;
    while (i < CHOICES && strcmp(shard, list[i].shard)) i++;
    if (i == CHOICES)
        return sgrad_log_error(SGRAD_EINVAL, "--shard %s must be none, optimizer, gradients or parameters", shard);
    const bool replaced = !strcmp(*strategy, "sync") || !strncmp(*strategy, "shard", strlen("shard"));
    if (i && !replaced)
        return sgrad_log_error(SGRAD_EINVAL, "--shard %s requires --strategy sync, not %s", shard, *strategy);
    if (replaced) *strategy = list[i].strategy;
    return 0;
}

/* Finds the model, the optimizer, the strategy and the allreduce of the run. SGRAD_ENAME: one does not exist. */
static int find_records(struct sgrad__run *run) {
    struct sgrad_train_options *o = &run->options;
    run->model = o->model.custom ? o->model.custom : sgrad_model_find(o->model.name);
    run->update.optimizer =
        o->optimizer.custom ? o->optimizer.custom : sgrad_registry_find("optimizer", o->optimizer.name, sgrad_optimizers);
    if (run->update.optimizer) o->optimizer.name = run->update.optimizer->name;
    if (o->parallel.allreduce) run->parallel.allreduce = sgrad_collective_find(SGRAD_ALLREDUCE, o->parallel.allreduce);
    const char *strategy;
    SGRAD_TRY(choose_shares(o, &strategy));
    run->parallel.strategy = sgrad_registry_find("strategy", strategy, sgrad_strategies);
    return run->model && run->update.optimizer && run->parallel.strategy && (run->parallel.allreduce || !o->parallel.allreduce)
               ? 0
               : SGRAD_ENAME;
}

static int check_lookahead(struct sgrad__run *run) {
    if (!run->options.training.lookahead.every || !strcmp(run->parallel.strategy->name, "sync")) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "--lookahead requires --strategy sync, not %s", run->parallel.strategy->name);
}

/* Sets the learning-rate schedule. With --lr-scale-base the rate is proportional to the batch; the warm-up starts at the
 * unscaled rate. */
static int set_rate(struct sgrad__run *run) {
    struct sgrad_train_options *o = &run->options;
    SGRAD_TRY(sgrad_schedule_parse(o->optimizer.schedule, &run->update.schedule));
    SGRAD_TRY(sgrad_schedule_parse(o->optimizer.kfac.damping_schedule, &run->update.damping));
    if (o->optimizer.lr < 0) o->optimizer.lr = run->update.optimizer->default_lr;
    run->update.schedule.warmup = o->optimizer.warmup;
    run->update.schedule.start = o->optimizer.lr_scale_base ? o->optimizer.lr : 0;
    run->update.peak_lr = o->optimizer.lr_scale_base
                              ? o->optimizer.lr * (double)o->training.batch / (double)o->optimizer.lr_scale_base
                              : o->optimizer.lr;
    return 0;
}

/* ---- the order in which a run is opened --------------------------------------------------------------------------- */

/* Members of struct sgrad__run that later stages need. */
enum {
    OPTIONS = 1 << 0,           /* options: complete */
    RECORDS = 1 << 1,           /* model, update.optimizer, parallel.strategy, parallel.allreduce */
    DATA = 1 << 2,              /* data.train, data.test */
    MESH = 1 << 3,              /* parallel.mesh */
    GRAPH = 1 << 4,             /* graph, training, metric */
    CONTEXT = 1 << 5,           /* context */
    PLACE = 1 << 6,             /* parallel: local_batches, local_batch, copies */
    SERVERS = 1 << 7,           /* parallel.servers, parallel.group_ranks */
    TASKS = 1 << 8,             /* batch: all members */
    INPUT = 1 << 9,             /* data.mean, data.deviation */
    WEIGHTS = 1 << 10,          /* the tensors of graph and training */
    SIZES = 1 << 11,            /* steps, steps_per_epoch, batch.norm_group; batch.micro, if it is an option */
    WORKERS = 1 << 12,          /* files.workers */
};

/* A stage of opening a run: OPEN uses the members in NEEDS and sets those in GIVES. */
struct stage {
    int (*open)(struct sgrad__run *run);
    unsigned needs, gives;
};

/* Runs the stages, a list that ends with a stage without OPEN. GIVEN: members that are set already. Returns the error of the
 * first stage that fails; later ones are not run. */
static int open_stages(struct sgrad__run *run, const struct stage *stage, unsigned given) {
    for (; stage->open; stage++) {
        assert(!(stage->needs & ~given));
        SGRAD_TRY(stage->open(run));
        given |= stage->gives;
    }
    return 0;
}

/* ---- stages that several lists contain ---- */

static int complete(struct sgrad__run *run) { return sgrad__options_complete(&run->options); }
static int check_options(struct sgrad__run *run) { return sgrad__options_check(&run->options); }
static int check_batch(struct sgrad__run *run) { return sgrad__run_check_sizes(run, 1); }
static int check_local_batch(struct sgrad__run *run) { return sgrad__run_check_sizes(run, run->parallel.local_batches); }
/* Sets slow weights (--lookahead) to the initial weights. */
static int begin_slow(struct sgrad__run *run) { return sgrad__training_begin_slow(run->training); }

/* Reading the weights may take long. */
static int read_parameters(struct sgrad__run *run) {
    return sgrad__run_await(run, open_parameters(run), "for all ranks to read the weights");
}

/* ---- training ---- */

/* A run that shows a batch trains nothing. */
static int print_batch(struct sgrad__run *run) {
    run->options.output.print |= run->options.output.show_batch != NULL;
    return 0;
}

/* Completes and checks the options, opens the data sets and builds the network. */
static const struct stage graph_stages[] = {
    { complete, 0, OPTIONS },
    { sgrad__run_complete_lora, OPTIONS, 0 },
    { print_batch, OPTIONS, 0 },
    { find_records, OPTIONS, RECORDS },
    { set_rate, RECORDS, 0 },
    { sgrad__run_check_strategy, RECORDS, 0 },
    { sgrad__run_open_data, OPTIONS, DATA },
    { sgrad__run_add_augmentation, DATA, 0 },
    { sgrad__run_open_classes, DATA, 0 },
    { check_batch, RECORDS | DATA, SIZES },
    { check_lookahead, RECORDS, 0 },
    { sgrad__run_open_mesh, RECORDS, MESH },
    { sgrad__run_build_graph, RECORDS | DATA | MESH, GRAPH },
    { 0 },
};

int sgrad__run_open_graph(struct sgrad__run *run) { return open_stages(run, graph_stages, 0); }

/* Rank 0: creates and locks the run directory. */
static int claim_folder(struct sgrad__run *run) {
    if (run->options.output.print || run->files.none || sgrad_launched_rank()) return 0;
    return sgrad__run_claim_folder(run);
}

/* Rank 0 knows whether there is a checkpoint. */
static int share_restores(struct sgrad__run *run) {
    sgrad_ranks_broadcast(&run->files.restores, sizeof run->files.restores, 0);
    return 0;
}

/* The ranks agree on the error, because each of them checks its own place on the mesh. */
static int choose_mesh(struct sgrad__run *run) {
    sgrad__run_measure_room(run);
    int error = sgrad__run_choose_mesh(run, sgrad__run_build_graph);
    if (!error) error = sgrad__run_place_on_mesh(run);
    return sgrad__run_agree(run, error);
}

/* The ranks agree on the error likewise. */
static int choose_strategy(struct sgrad__run *run) {
    int error = check_local_batch(run);
    if (!error) error = sgrad__run_choose_strategy(run);
    return sgrad__run_agree(run, error);
}

static int open_nccl(struct sgrad__run *run) {
    const struct sgrad_collective *allreduce = run->parallel.allreduce;
    return allreduce && allreduce->on_gpus ? sgrad__run_agree(run, sgrad_nccl_open(run->context)) : 0;
}

static int open_placement(struct sgrad__run *run) {
    if (run->options.data.partition) sgrad__run_open_placement(run);
    return 0;
}

static int watch_workers(struct sgrad__run *run) {
    run->files.workers = sgrad__workers_watch(run->context, run->options.output.tensorboard || run->options.output.prometheus ||
                                                              run->options.output.slow_rank);
    return 0;
}

static int build_program(struct sgrad__run *run) {
    const struct sgrad_program_options options =
        sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro);
    return sgrad__program_build(run->graph, &options, &run->program);
}

/* From the network to the program of a step, together with the other ranks. */
static const struct stage training_stages[] = {
    { claim_folder, OPTIONS, 0 },
    { open_context, OPTIONS, CONTEXT },
    { sgrad__run_compare_options, CONTEXT | DATA | GRAPH, 0 },
    { share_restores, CONTEXT, 0 },
    { choose_mesh, CONTEXT | GRAPH, PLACE },
    { sgrad__run_choose_group, PLACE, 0 },
    { choose_strategy, PLACE, SERVERS },
    { open_nccl, CONTEXT, 0 },
    { sgrad__run_choose_micro_batch, SIZES | SERVERS, TASKS },
    { sgrad__run_measure_data, CONTEXT | DATA | GRAPH, INPUT },
    { open_placement, PLACE | DATA | SIZES, 0 },
    { sgrad__run_agree_limit, CONTEXT, 0 },
    { read_parameters, SERVERS | TASKS, WEIGHTS },
    { sgrad__run_whiten, INPUT | WEIGHTS, 0 },
    { begin_slow, WEIGHTS, 0 },
    { watch_workers, CONTEXT, WORKERS },
    { sgrad__run_limit_memory, TASKS | WEIGHTS | WORKERS, 0 },
    { build_program, TASKS | WEIGHTS | WORKERS, 0 },
    { 0 },
};

int sgrad__run_open_training(struct sgrad__run *run) {
    SGRAD_TRY(sgrad_launcher_check(0));
    SGRAD_TRY(open_stages(run, graph_stages, 0));
    SGRAD_TRY(open_stages(run, training_stages, OPTIONS | RECORDS | DATA | SIZES | MESH | GRAPH));
    sgrad_early_close();
    return 0;
}

/* ---- trials of a search ---- */

int sgrad__run_open_ground(struct sgrad__run *run) {
    SGRAD_TRY(sgrad__run_open_data(run));
    SGRAD_TRY(open_context(run));
    run->data.fingerprint = sgrad_dataset_fingerprint(run->data.train);
    return sgrad__run_measure_data(run);
}

/* Sets the context of a trial to its ranks. The network between them is assumed to be that between the first ranks, so that
 * the program is the same on all ranks to which the trial may move. */
static void open_some_ranks(struct sgrad__run *run, const struct sgrad__beside *how) {
    const struct sgrad_context *all = how->ground->context;
    struct sgrad__run_trial *trial = &run->trial;
    run->beside = how->ground;
    run->context = &trial->context;
    trial->context = *all;
    trial->context.rank = how->place, trial->context.ranks = how->ranks;
    trial->context.all = NULL, trial->context.network = NULL;
    run->parallel.first_rank = all->rank - how->place;
    run->parallel.tags = (1 + how->number) * SGRAD__TAGS_OF_A_RUN;
    if (how->ranks == 1) return;
    trial->peers = (struct sgrad_group){ how->ranks, all->all->rank };
    trial->network = *all->network;
    trial->network.ranks = how->ranks;
    trial->context.all = &trial->peers;
    trial->context.network = &trial->network;
}

/* Returns a copy that refers to the same samples, but has its own random draws and augmentation. */
static struct sgrad_dataset *copy_of(const struct sgrad_dataset *dataset) {
    struct sgrad_dataset *copy = sgrad_xcalloc(1, sizeof *copy);
    *copy = *dataset;
    return copy;
}

static void open_same_data(struct sgrad__run_data *data, const struct sgrad__run_data *from) {
    data->train = copy_of(from->train);
    data->test = copy_of(from->test);
    data->fingerprint = from->fingerprint;
    memcpy(data->mean, from->mean, sizeof data->mean);
    memcpy(data->deviation, from->deviation, sizeof data->deviation);
}

/* A trial moves between ranks, which may have different numbers of GPUs. */
static int replace_gpu_group(struct sgrad__run *run) {
    if (run->options.training.bn_group == SGRAD_GROUP_GPU) run->options.training.bn_group = SGRAD_GROUP_RANK;
    return 0;
}

static int set_input(struct sgrad__run *run) {
    sgrad__run_set_input(run);
    return 0;
}

static const struct stage trial_stages[] = {
    { complete, 0, OPTIONS },
    { sgrad__run_complete_lora, OPTIONS, 0 },
    { check_options, OPTIONS, 0 },
    { find_records, OPTIONS, RECORDS },
    { set_rate, RECORDS, 0 },
    { sgrad__run_check_strategy, RECORDS, 0 },
    { sgrad__run_add_augmentation, DATA, 0 },
    { sgrad__run_open_classes, DATA, 0 },
    { replace_gpu_group, OPTIONS, 0 },
    { check_batch, RECORDS | DATA, SIZES },
    { check_lookahead, RECORDS, 0 },
    { sgrad__run_open_mesh, RECORDS, MESH },
    { sgrad__run_build_graph, RECORDS | DATA | MESH, GRAPH },
    { sgrad__run_place_on_mesh, CONTEXT | GRAPH, PLACE },
    { check_local_batch, PLACE, 0 },
    { sgrad__run_choose_strategy, PLACE, SERVERS },
    { sgrad__run_choose_micro_batch, SIZES | SERVERS, TASKS },
    { set_input, GRAPH | INPUT, 0 },
    { open_parameters, SERVERS | TASKS, WEIGHTS },
    { sgrad__run_whiten, INPUT | WEIGHTS, 0 },
    { begin_slow, WEIGHTS, 0 },
    { 0 },
};

int sgrad__run_open_beside(struct sgrad__run *run, const struct sgrad__beside *how) {
    open_some_ranks(run, how);
    open_same_data(&run->data, &how->ground->data);
    return open_stages(run, trial_stages, CONTEXT | DATA | INPUT);
}

/* ---- saved weights ---- */

static int check_weights(struct sgrad__run *run) {
    if (run->options.model.init || run->model->from_file) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "no weights are named; give --weights (in C: options.model.init)");
}

/* The mesh is that of the training run; with one rank the network is not sharded. */
static int open_mesh_of_weights(struct sgrad__run *run) {
    if (sgrad_launched_ranks() == 1) run->options.parallel.mesh = NULL;
    return sgrad__run_open_mesh(run);
}

static int place_on_mesh(struct sgrad__run *run) { return sgrad__run_agree(run, sgrad__run_place_on_mesh(run)); }

static const struct stage evaluation_stages[] = {
    { complete, 0, OPTIONS },
    { find_records, OPTIONS, RECORDS },
    { check_weights, RECORDS, 0 },
    { sgrad__run_open_samples, OPTIONS, DATA },
    { open_mesh_of_weights, RECORDS, MESH },
    { sgrad__run_build_graph, RECORDS | DATA | MESH, GRAPH },
    { open_context, OPTIONS, CONTEXT },
    { place_on_mesh, CONTEXT | GRAPH, PLACE },
    { read_parameters, PLACE, WEIGHTS },
    { sgrad__run_open_data_of_weights, DATA | GRAPH | CONTEXT, INPUT },
    { 0 },
};

int sgrad__run_open_evaluation(struct sgrad__run *run) {
    const long micro = run->options.training.micro_batch;
    if (!run->options.training.batch) run->options.training.batch = sgrad_train_defaults().training.batch;
    run->evaluation.micro = micro ? micro : 32;
    return open_stages(run, evaluation_stages, 0);
}

static const struct stage sampling_stages[] = {
    { complete, 0, OPTIONS },
    { find_records, OPTIONS, RECORDS },
    { sgrad__run_open_mesh, RECORDS, MESH },
    { sgrad__run_build_graph, RECORDS | DATA | MESH, GRAPH },
    { open_context, OPTIONS, CONTEXT },
    { open_parameters, CONTEXT | GRAPH, WEIGHTS },
    { 0 },
};

int sgrad__run_open_sampling(struct sgrad__run *run) {
    run->options.data.name = run->data.test->reader->name;
    return open_stages(run, sampling_stages, DATA);
}

/* ---- closing ---- */

/* Frees a data set; one that belongs to the caller gets its initial state back. */
static void give_back(const struct sgrad__run *run, enum sgrad_split split, struct sgrad_dataset *dataset) {
    if (run->beside) {
        free(dataset);
    } else if (!run->options.data.dataset[split]) {
        sgrad_dataset_close(dataset);
    } else if (dataset) {
        sgrad_dataset_mix(dataset, false);
        dataset->drawn.count = 0;
    }
}

void sgrad__run_close(struct sgrad__run *run) {
    /* otherwise StarPU is not running, or tasks of other trials are waiting for messages */
    if (run->context && !run->beside) sgrad_wait_all();
    sgrad__checkpoint_end(run->files.checkpoint);
    sgrad__metrics_close(run->files.metrics);
    sgrad__server_close(run);
    sgrad__runner_destroy(run->runner);
    sgrad__program_destroy(run->program);
    sgrad_spill_close(run->batch.limit.file);
    sgrad__evaluation_close(run);
    sgrad__placement_destroy(run->data.placement);
    sgrad__workers_free(run->files.workers);
    sgrad__training_destroy(run->training);
    sgrad_graph_destroy(run->graph);
    if (!run->beside) sgrad_context_close(run->context);
    give_back(run, SGRAD_TRAIN, run->data.train);
    give_back(run, SGRAD_TEST, run->data.test);
    sgrad__sampler_close(&run->data.sampler);
    sgrad__run_leave_folder(run);
    free(run->model_text);
    free(run->parallel.chosen_mesh);
    free(run->parallel.mesh_table);
    free(run->control.deadline);
    free(run->files.identity);
    free(run->files.history);
    free(run->data.augment);
    free(run->data.damaged);
    free(run->data.label);
    free(run->data.class_weight);
    for (int i = 0; i < 2; i++) free(run->lora[i]);
    free(run->files.folder);
}
