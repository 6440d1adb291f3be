/* setup.c: opens a run, from the options to the program, and closes it. */
#include "codelets/ops/convert.h"
#include "codelets/ops/image.h"
#include "codelets/ops/softmax_cross_entropy.h"
#include "codelets/ops/token_cross_entropy.h"
#include "codelets/ops/voxel_loss.h"
#include "datasets/datasets.h"
#include "graphs/train/setup.h"
#include "runtime/ranks/early.h"
#include "runtime/environment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static int open_context(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    char *trace = NULL;
    if (r->trace_folder) trace = sgrad_format("%s", r->trace_folder);
    else if (o->trace.first && !o->print) trace = sgrad_format("%s/trace", r->folder ? r->folder : "");
    const struct sgrad_context_options how = { .cpus = o->cpus,
                                               .gpus = o->gpus,
                                               .scheduler = o->scheduler,
                                               .trace = trace,
                                               .kinds = sgrad_kinds,
                                               .network = o->network,
                                               .timeout = o->stall_timeout };
    int error = sgrad_context_open(&how, &r->context);
    free(trace);
    return error ? error : sgrad_launcher_check(r->context->ranks);
}

/* Checks the size of the images. A layer whose input is too small would report an error as well, but neither the network nor
 * the size that it needs. */
static int check_images(const struct sgrad__run *r, const struct sgrad_dataset *d) {
    const struct sgrad_field *image = sgrad_dataset_image(d);
    const int least = r->model->min_image_side, multiple = r->model->side_multiple;
    if (r->model->volumes && !(image && image->shape.rank == 4))
        return sgrad_log_error(SGRAD_ESHAPE, "model %s: takes volumes (--data volume:DIR), and %s has none", r->model->name,
                               r->options.data);
    if (image && multiple && (sgrad_field_plane(image)[0] % multiple || sgrad_field_plane(image)[1] % multiple))
        return sgrad_log_error(SGRAD_ESHAPE, "model %s: takes images whose sides are multiples of %d, those of %s have %dx%d",
                               r->model->name, multiple, r->options.data, (int)sgrad_field_plane(image)[0],
                               (int)sgrad_field_plane(image)[1]);
    if (!least || (image && sgrad_field_plane(image)[0] >= least && sgrad_field_plane(image)[1] >= least)) return 0;
    if (!image)
        return sgrad_log_error(SGRAD_ESHAPE, "model %s: takes images, and %s has none, but %s", r->model->name, r->options.data,
                               d->field[0].name);
    return sgrad_log_error(
        SGRAD_ESHAPE,
        "model %s: takes images of %dx%d or more, those of %s have %dx%d: another model (stargrad list models) "
        "takes them, or --image-size %d scales those of a folder",
        r->model->name, least, least, r->options.data, (int)sgrad_field_plane(image)[0], (int)sgrad_field_plane(image)[1], least);
}

/* Checks that the network has one logit per class. If the targets are numbers, the loss itself checks the shapes. */
static int check_logits(const struct sgrad__run *r, const struct sgrad_dataset *d, int logits) {
    const struct sgrad_shape shape = sgrad_graph_shape(r->graph, logits);
    char text[SGRAD_SHAPE_TEXT];
    if (sgrad_graph_error(r->graph) || !d->classes) return sgrad_graph_error(r->graph);
    if (shape.rank == 2 + sgrad_dataset_target(d)->shape.rank && shape.dim[shape.rank - 1] == d->classes) return 0;
    return sgrad_log_error(SGRAD_ESHAPE, "model %s: ends with %s, where %s has %d classes: build has to return (N,%s%d)",
                           r->model->name, sgrad_shape_text(&shape, text), r->options.data, d->classes,
                           sgrad_dataset_target(d)->shape.rank ? "…," : "", d->classes);
}

/* Adds the loss for labels of pixels or voxels. --class-weights must have one number per class. */
static int add_voxel_loss(struct sgrad__run *r, int y, int target) {
    const struct sgrad_train_options *o = &r->options;
    const struct sgrad_numbers *weights = &o->class_weights;
    const int classes = (r->train ? r->train : r->test)->classes;
    struct sgrad_voxel_loss loss = { .dice = (float)o->dice };
    bool valid = !weights->count || weights->count == classes;
    for (int i = 0; i < weights->count; i++) {
        loss.weight[i] = (float)weights->number[i];
        valid &= loss.weight[i] > 0;
    }
    if (valid) {
        sgrad_graph_apply(r->graph, &sgrad_voxel_loss_op, "loss", (const int[]){ y, target }, 2, &loss);
        return sgrad_graph_finalize(r->graph);
    }
    char *text = sgrad_numbers_text(weights);
    sgrad_log_error(SGRAD_EINVAL,
                    "--class-weights '%s': takes %d numbers above 0 with commas between, one for each class of %s", text, classes,
                    o->data);
    free(text);
    return SGRAD_EINVAL;
}

/* Adds the loss for samples that are mixtures of two classes. FIELD: label, other label, fraction. */
static int add_mixed_loss(struct sgrad__run *r, int y, const int *field) {
    const struct sgrad_softmax_cross_entropy loss = { .label_smoothing = (float)r->options.label_smoothing };
    const int input[] = { y, field[0], field[1], field[2] };
    sgrad_graph_apply(r->graph, &sgrad_softmax_cross_entropy_op, "loss", input, 4, &loss);
    return sgrad_graph_finalize(r->graph);
}

/* Adds the loss of Y. FIELD: the fields of the data set from the target on. */
static int add_loss(struct sgrad__run *r, const struct sgrad_dataset *d, int y, const int *field) {
    if (sgrad__graph_own_loss(r->graph)) {
        if (d->mixed)
            return sgrad_log_error(SGRAD_EINVAL, "--augment %s mixes classes, and %s has a loss of its own", r->options.augment,
                                   r->model_text);
        r->model->loss(r->graph, y, *field);
        return sgrad_graph_finalize(r->graph);
    }
    SGRAD_TRY(check_logits(r, d, y));
    if (r->model->from_file && d->field[0].dtype == SGRAD_I32 && sgrad_dataset_target(d)->shape.rank == 1) {     /* tokens */
        sgrad_layer(r->graph, token_cross_entropy, "loss", (y, *field), 0);
        return sgrad_graph_finalize(r->graph);
    }
    if (sgrad_dataset_target(d)->shape.rank >= 2 && d->classes) return add_voxel_loss(r, y, *field);
    if (d->mixed) return add_mixed_loss(r, y, field);
    return sgrad_graph_loss(r->graph, y, *field, (float)r->options.label_smoothing);
}

int sgrad__run_build_graph(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    const struct sgrad_dataset *d = r->train ? r->train : r->test;
    SGRAD_TRY(check_images(r, d));
    const enum sgrad_dtype type = o->precision == SGRAD_PRECISION_BF16 ? SGRAD_BF16 : SGRAD_F32;
    struct sgrad_graph *g = r->graph = sgrad_graph_create(type);
    SGRAD_TRY(sgrad__graph_set_model(g, r->model, o->model));
    r->model_text = sgrad__graph_model_text(g);
    sgrad__graph_set_mesh(g, &r->mesh);
    g->cached = r->draw;
    int field[SGRAD_MAX_FIELDS], x;
    for (int f = 0; d->field[f].name; f++)
        field[f] = sgrad_graph_input(g, d->field[f].name, d->field[f].dtype, d->field[f].shape);
    x = field[0];
    if (sgrad_dataset_image(d))
        x = sgrad_layer(g, image, "augment", (x), .full_scale = d->full_scale);
    else if (d->field[0].dtype == SGRAD_F32 && type != SGRAD_F32)
        x = sgrad_layer(g, convert, "convert", (x), 0);
    const int64_t numbers = sgrad_shape_count(&sgrad_dataset_target(d)->shape);
    const int y = r->model->build(g, x, d->classes ? d->classes : (int)numbers);
    if (g->imported && g->imported->softmax && !d->classes)
        return sgrad_log_error(SGRAD_EINVAL, "%s: ends with Softmax, as networks of classes do, and the targets are numbers "
                                        "(regression): export the network without it", g->file);
    if (r->draw) {
        sgrad_graph_apply(g, &sgrad_draw_token_op, "draw", &y, 1, r->draw);
        SGRAD_TRY(sgrad_graph_finalize(g));
    } else {
        SGRAD_TRY(add_loss(r, d, y, &field[sgrad_dataset_own_fields(d) - 1]));
    }
    r->training = sgrad__training_create(g, r->optimizer);
    r->training->hooks = sgrad__layer_hooks_of(r->optimizer);
    if (r->train) SGRAD_TRY(sgrad__run_fine_tune(r));
    if (o->recompute) r->recomputed = sgrad__graph_recompute_blocks(g);
    r->metric = sgrad__graph_metrics(g, &r->result.metrics);
    if (r->train && !r->draw) SGRAD_TRY(sgrad__run_check_views(r));
    return 0;
}

static void set_hyper(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    for (int i = 0; i < r->graph->parameter_count; i++) {
        const struct sgrad__parameter *p = &r->graph->parameter[i];
        r->training->update[i].hyper = (struct sgrad_hyper){
            .momentum = (float)o->momentum,
            .weight_decay = o->no_decay_1d && p->is.shape.rank <= 1
                                ? 0
                                : (float)(o->weight_decay * sgrad__number_of(o->weight_decay_of, p->name, 1)),
            .beta1 = (float)o->beta1, .beta2 = (float)o->beta2, .eps = (float)o->eps, .clip_norm = (float)o->clip_norm,
            .trust = (float)o->trust, .kl_clip = (float)o->kfac_clip, .nesterov = o->nesterov,
            .lr_scale = (float)sgrad__number_of(o->lr_of, p->name, 1),
        };
    }
}

static int open_parameters(struct sgrad__run *r) {
    struct sgrad_safetensors file;
    const struct sgrad_program_options how = sgrad__run_program_options(r, true, r->options.batch, r->micro);
    r->training->sharers = r->strategy && r->strategy->shards_optimizer && r->context->ranks > 1 ? r->context->ranks : 0;
    if (r->train) sgrad__run_assign_updates(r, &how);
    SGRAD_TRY(sgrad__parameters_allocate(r->graph, r->options.seed));
    SGRAD_TRY(sgrad__training_allocate(r->training));
    if (r->train && r->training->hooks) SGRAD_TRY(r->training->hooks->allocate(r->training, &how));
    if (r->train && r->options.lookahead.every) SGRAD_TRY(sgrad__training_keep_slow(r->training));
    if (r->train && r->options.ema > 0) SGRAD_TRY(sgrad__training_average(r->training));
    set_hyper(r);
    const struct sgrad__imported *imported = r->graph->imported;
    const char *skip = r->train ? r->options.init_skip : NULL;      /* an evaluation loads all weights */
    if (!r->options.init || r->restores)
        return imported ? sgrad__weights_load(r->graph, sgrad__parameters_list(r->graph), &imported->weights, skip) : 0;
    SGRAD_TRY(sgrad_safetensors_open(r->options.init, &file));
    int error = sgrad__weights_load(r->graph, sgrad__parameters_list(r->graph), &file, skip);
    if (!error && r->context->rank == 0) error = sgrad__weights_checksum(&file, (char[SGRAD_CHECKSUM]){ 0 });
    sgrad_safetensors_close(&file);
    return error;
}

/* Sets *STRATEGY. --shard is implemented by the strategy "shard", which replaces "sync". */
static int choose_shares(const struct sgrad_train_options *o, const char **strategy) {
    *strategy = o->strategy;
    if (!o->shard) return 0;
    if (!strcmp(o->shard, "none")) {
        if (!strcmp(o->strategy, "shard")) *strategy = "sync";
        return 0;
    }
    if (strcmp(o->shard, "optimizer") && strcmp(o->shard, "gradients"))
        return sgrad_log_error(SGRAD_EINVAL, "--shard %s: takes none, optimizer or gradients", o->shard);
    if (strcmp(o->strategy, "sync") && strcmp(o->strategy, "shard"))
        return sgrad_log_error(SGRAD_EINVAL, "--shard %s goes with --strategy sync, not with %s", o->shard, o->strategy);
    *strategy = "shard";
    return 0;
}

static int find_records(struct sgrad__run *r) {
    struct sgrad_train_options *o = &r->options;
    r->model = o->custom_model ? o->custom_model : sgrad_model_find(o->model);
    r->optimizer =
        o->custom_optimizer ? o->custom_optimizer : sgrad_registry_find("optimizer", o->optimizer, sgrad_optimizers);
    if (r->optimizer) o->optimizer = r->optimizer->name;
    if (o->allreduce) r->allreduce = sgrad_collective_find(SGRAD_ALLREDUCE, o->allreduce);
    const char *strategy;
    SGRAD_TRY(choose_shares(o, &strategy));
    r->strategy = sgrad_registry_find("strategy", strategy, sgrad_strategies);
    return r->model && r->optimizer && r->strategy && (r->allreduce || !o->allreduce) ? 0 : SGRAD_ENAME;
}

static int check_lookahead(const struct sgrad__run *r) {
    if (!r->options.lookahead.every || !strcmp(r->strategy->name, "sync")) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "--lookahead goes with --strategy sync, not with %s", r->strategy->name);
}

/* Sets the learning-rate schedule. With --lr-scale-base the rate is proportional to the batch; the warm-up starts at the
 * unscaled rate. */
static int set_rate(struct sgrad__run *r) {
    struct sgrad_train_options *o = &r->options;
    SGRAD_TRY(sgrad_schedule_parse(o->schedule, &r->schedule));
    SGRAD_TRY(sgrad_schedule_parse(o->kfac_damping_schedule, &r->damping));
    if (o->lr < 0) o->lr = r->optimizer->default_lr;
    r->schedule.warmup = o->warmup;
    r->schedule.start = o->lr_scale_base ? o->lr : 0;
    r->peak = o->lr_scale_base ? o->lr * (double)o->batch / (double)o->lr_scale_base : o->lr;
    return 0;
}

/* Completes options that the caller has not set. Names have defaults, except for the model and the data. */
static int complete_options(struct sgrad_train_options *o) {
    const struct sgrad_train_options defaults = sgrad_train_defaults();
    if (!o->data && o->custom_reader) o->data = o->custom_reader->name;
    if (!o->data && o->custom_dataset[SGRAD_TEST]) o->data = o->custom_dataset[SGRAD_TEST]->reader->name;
    if (!o->data) return sgrad_log_error(SGRAD_EINVAL, "no data set is named (options.data, --data)");
    if (!o->model && !o->custom_model) return sgrad_log_error(SGRAD_EINVAL, "no model is named (options.model, --model)");
    if (o->custom_model && !o->custom_model->name) return sgrad_log_error(SGRAD_EINVAL, "options.custom_model has no name");
    if (o->batch < 1) return sgrad_log_error(SGRAD_EINVAL, "a batch of %ld samples: takes 1 or more", o->batch);
    if (o->micro_batch < 0) return sgrad_log_error(SGRAD_EINVAL, "a micro-batch of %ld samples: takes 0 or more", o->micro_batch);
    if (o->steps_in_flight < 0 || o->steps_in_flight > SGRAD__MAX_WINDOW)
        return sgrad_log_error(SGRAD_EINVAL, "%d steps in flight: takes 1 to %d", o->steps_in_flight, SGRAD__MAX_WINDOW);
    if (!o->optimizer) o->optimizer = defaults.optimizer;
    if (!o->schedule) o->schedule = defaults.schedule;
    if (!o->strategy) o->strategy = defaults.strategy;
    if (!o->steps_in_flight) o->steps_in_flight = defaults.steps_in_flight;
    if (!o->kfac_variant) o->kfac_variant = defaults.kfac_variant;
    if (!o->kfac_damping_schedule) o->kfac_damping_schedule = defaults.kfac_damping_schedule;
    if (!o->kfac_factor_every) o->kfac_factor_every = defaults.kfac_factor_every;
    if (!o->kfac_eigen_every) o->kfac_eigen_every = defaults.kfac_eigen_every;
    return 0;
}

int sgrad__run_open_graph(struct sgrad__run *r) {
    SGRAD_TRY(complete_options(&r->options));
    if (r->options.show_batch) r->options.print = true;     /* nothing is trained */
    SGRAD_TRY(find_records(r));
    SGRAD_TRY(set_rate(r));
    SGRAD_TRY(sgrad__run_check_strategy(r));
    SGRAD_TRY(sgrad__run_open_data(r));
    SGRAD_TRY(sgrad__run_add_augmentation(r));
    SGRAD_TRY(sgrad__run_check_sizes(r, 1));
    SGRAD_TRY(check_lookahead(r));
    SGRAD_TRY(sgrad__run_open_mesh(r));
    SGRAD_TRY(sgrad__run_build_graph(r));
    return 0;
}

int sgrad__run_open_training(struct sgrad__run *r) {
    SGRAD_TRY(sgrad_launcher_check(0));
    SGRAD_TRY(sgrad__run_open_graph(r));
    if (!r->options.print && !r->unkept && sgrad_launched_rank() == 0) SGRAD_TRY(sgrad__run_claim_folder(r));
    SGRAD_TRY(open_context(r));
    SGRAD_TRY(sgrad__run_compare_options(r));
    sgrad_ranks_broadcast(&r->restores, sizeof r->restores, 0);
    sgrad__run_measure_room(r);
    int error = sgrad__run_choose_mesh(r, sgrad__run_build_graph);
    if (!error) error = sgrad__run_place_on_mesh(r);
    SGRAD_TRY(sgrad__run_agree(r, error));
    SGRAD_TRY(sgrad__run_choose_group(r));
    error = sgrad__run_check_sizes(r, r->parts);
    if (!error) error = sgrad__run_choose_strategy(r);
    SGRAD_TRY(sgrad__run_agree(r, error));
    if (r->allreduce && r->allreduce->on_gpus) SGRAD_TRY(sgrad__run_agree(r, sgrad_nccl_open(r->context)));
    SGRAD_TRY(sgrad__run_choose_micro_batch(r));
    SGRAD_TRY(sgrad__run_measure_data(r));
    if (r->options.partition_data) sgrad__run_open_placement(r);
    SGRAD_TRY(sgrad__run_await(r, open_parameters(r), "for all ranks to read the weights"));
    SGRAD_TRY(sgrad__run_whiten(r));
    SGRAD_TRY(sgrad__training_begin_slow(r->training));
    r->workers = sgrad__workers_watch(r->context, r->options.tensorboard || r->options.prometheus);
    struct sgrad_program_options p = sgrad__run_program_options(r, true, r->options.batch, r->micro);
    SGRAD_TRY(sgrad__program_build(r->graph, &p, &r->program));
    sgrad_early_close();
    return 0;
}

int sgrad__run_open_ground(struct sgrad__run *r) {
    SGRAD_TRY(sgrad__run_open_data(r));
    SGRAD_TRY(open_context(r));
    r->fingerprint = sgrad_dataset_fingerprint(r->train);
    return sgrad__run_measure_data(r);
}

/* Sets the context of a trial to its ranks. The network between them is assumed to be that between the first ranks, so that
 * the program is the same on all ranks to which the trial may move. */
static void open_some_ranks(struct sgrad__run *r, const struct sgrad__beside *how) {
    const struct sgrad_context *all = how->ground->context;
    r->beside = how->ground;
    r->context = &r->some;
    r->some = *all;
    r->some.rank = how->place, r->some.ranks = how->ranks, r->some.all = NULL, r->some.network = NULL;
    r->first = all->rank - how->place;
    r->tags = (1 + how->number) * SGRAD__TAGS_OF_A_RUN;
    if (how->ranks == 1) return;
    r->peers = (struct sgrad_group){ how->ranks, all->all->rank };
    r->between = *all->network;
    r->between.ranks = how->ranks;
    r->some.all = &r->peers;
    r->some.network = &r->between;
}

/* Returns a copy that refers to the same samples, but has its own random draws and augmentation. */
static struct sgrad_dataset *copy_of(const struct sgrad_dataset *d) {
    struct sgrad_dataset *copy = sgrad_xcalloc(1, sizeof *copy);
    *copy = *d;
    return copy;
}

int sgrad__run_open_beside(struct sgrad__run *r, const struct sgrad__beside *how) {
    const struct sgrad__run *ground = how->ground;
    open_some_ranks(r, how);
    r->train = copy_of(ground->train);
    r->test = copy_of(ground->test);
    r->fingerprint = ground->fingerprint;
    memcpy(r->mean, ground->mean, sizeof r->mean);
    memcpy(r->deviation, ground->deviation, sizeof r->deviation);
    SGRAD_TRY(complete_options(&r->options));
    SGRAD_TRY(sgrad__options_check(&r->options));
    SGRAD_TRY(find_records(r));
    SGRAD_TRY(set_rate(r));
    SGRAD_TRY(sgrad__run_check_strategy(r));
    SGRAD_TRY(sgrad__run_add_augmentation(r));
    if (r->options.bn_group == SGRAD_GROUP_GPU) r->options.bn_group = SGRAD_GROUP_RANK;     /* a trial moves between ranks */
    SGRAD_TRY(sgrad__run_check_sizes(r, 1));
    SGRAD_TRY(check_lookahead(r));
    SGRAD_TRY(sgrad__run_open_mesh(r));
    SGRAD_TRY(sgrad__run_build_graph(r));
    SGRAD_TRY(sgrad__run_place_on_mesh(r));
    SGRAD_TRY(sgrad__run_check_sizes(r, r->parts));
    SGRAD_TRY(sgrad__run_choose_strategy(r));
    SGRAD_TRY(sgrad__run_choose_micro_batch(r));
    sgrad__run_set_input(r);
    SGRAD_TRY(open_parameters(r));
    SGRAD_TRY(sgrad__run_whiten(r));
    return sgrad__training_begin_slow(r->training);
}

int sgrad__run_open_evaluation(struct sgrad__run *r) {
    if (!r->options.batch) r->options.batch = sgrad_train_defaults().batch;
    SGRAD_TRY(complete_options(&r->options));
    SGRAD_TRY(find_records(r));
    if (!r->options.init && !r->model->from_file)
        return sgrad_log_error(SGRAD_EINVAL, "no weights are named (options.init, --weights)");
    SGRAD_TRY(sgrad__run_open_samples(r));
    /* set by the training run: with one rank the network is not sharded */
    if (sgrad_launched_ranks() == 1) r->options.mesh = NULL;
    SGRAD_TRY(sgrad__run_open_mesh(r));
    SGRAD_TRY(sgrad__run_build_graph(r));
    SGRAD_TRY(open_context(r));
    SGRAD_TRY(sgrad__run_agree(r, sgrad__run_place_on_mesh(r)));
    SGRAD_TRY(sgrad__run_await(r, open_parameters(r), "for all ranks to read the weights"));
    SGRAD_TRY(sgrad__run_open_data_of_weights(r));
    r->evaluated = r->options.micro_batch ? r->options.micro_batch : 32;
    return 0;
}

int sgrad__run_open_sampling(struct sgrad__run *r) {
    r->options.data = r->test->reader->name;
    SGRAD_TRY(complete_options(&r->options));
    SGRAD_TRY(find_records(r));
    SGRAD_TRY(sgrad__run_open_mesh(r));
    SGRAD_TRY(sgrad__run_build_graph(r));
    SGRAD_TRY(open_context(r));
    return open_parameters(r);
}

/* Frees a data set; one that belongs to the caller gets its initial state back. */
static void give_back(const struct sgrad__run *r, enum sgrad_split split, struct sgrad_dataset *d) {
    if (r->beside) {
        free(d);
    } else if (!r->options.custom_dataset[split]) {
        sgrad_dataset_close(d);
    } else if (d) {
        sgrad_dataset_mix(d, false);
        d->drawn.count = 0;
    }
}

void sgrad__run_close(struct sgrad__run *r) {
    /* otherwise StarPU is not running, or tasks of other trials are waiting for messages */
    if (r->context && !r->beside) sgrad_wait_all();
    sgrad__checkpoint_end(r->checkpoint);
    sgrad__metrics_close(r->metrics);
    sgrad__server_close(r);
    sgrad__runner_destroy(r->runner);
    sgrad__program_destroy(r->program);
    sgrad__evaluation_close(r);
    sgrad__placement_destroy(r->placement);
    sgrad__workers_free(r->workers);
    sgrad__training_destroy(r->training);
    sgrad_graph_destroy(r->graph);
    if (!r->beside) sgrad_context_close(r->context);
    give_back(r, SGRAD_TRAIN, r->train);
    give_back(r, SGRAD_TEST, r->test);
    sgrad__sampler_close(&r->order);
    sgrad__run_leave_folder(r);
    free(r->model_text);
    free(r->chosen);
    free(r->choice);
    free(r->deadline);
    free(r->identity);
    free(r->history);
    free(r->augment);
    free(r->damaged);
    free(r->folder);
}
