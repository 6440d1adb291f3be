/* train.c: stargrad train: the options of a run, and the summary at its end. */
#include "cli/cli.h"
#include "report/report.h"

#include <errno.h>
#include <stdlib.h>

static const struct sgrad__option options[] = {
    { .help = "What is trained, on what" },
    { "model", "NAME", "network: one of stargrad list models", &sgrad__text, SGRAD__FIELD(model.name), .required = true },
    { "data", "KIND[:PATH]", "data set: one of stargrad list datasets", &sgrad__text, SGRAD__FIELD(data.name), .required = true },
    { "config", "FILE", "options by their long names, a JSON object; those given here hold instead", &sgrad__file,
      SGRAD__PLACE(config) },
    { "like", "RUN", "options of the run in this folder hold where none is given here", &sgrad__folder, SGRAD__PLACE(like) },
    SGRAD__PLUGIN_OPTION,
    { "init", "FILE", "start from these weights (safetensors)", &sgrad__text, SGRAD__FIELD(model.init) },
    { "init-skip", "LIST", "parameters that are not taken from --init and begin anew: patterns like fc,layer4.*", &sgrad__text,
      SGRAD__FIELD(model.init_skip) },
    { "mean", "X,X,X", "mean of each channel, instead of the training set's", &sgrad__numbers, SGRAD__FIELD(data.mean) },
    { "deviation", "X,X,X", "standard deviation of each channel, instead of the training set's", &sgrad__numbers,
      SGRAD__FIELD(data.std) },
    { "image-size", "N", "scale images of a folder to NxN", &sgrad__whole, SGRAD__FIELD(data.image_size), 1, 4096 },
    { "data-placement", "replicate|partition", "each rank keeps all training samples in memory, or its share", &sgrad__choice,
      SGRAD__FIELD(data.partition) },
    { "exclude", "FILE", "leave out the training samples that FILE lists, one a line, as stargrad dedup writes them",
      &sgrad__file, SGRAD__FIELD(data.exclude) },
    { "damaged", "stop|skip", "a sample that cannot be read: end with an error, or name it and leave it out", &sgrad__choice,
      SGRAD__FIELD(data.skip_damaged) },
    { "no-shuffle", NULL, "samples in file order", &sgrad__flag, SGRAD__FIELD(data.no_shuffle) },
    { "class-weights", "LIST", "weights of classes in the loss of volumes, with commas between; 1 if not given", &sgrad__numbers,
      SGRAD__FIELD(training.class_weights) },
    { "dice", "X", "how much of the Dice loss is added in the loss of volumes", &sgrad__real, SGRAD__FIELD(training.dice), 0,
      1e6 },
    { "augment", "LIST",
      "changes to training images: none, or of stargrad list augmentations, with commas between; as list "
      "datasets says if not given",
      &sgrad__augmentation, SGRAD__FIELD(data.augment) },
    { "no-augment", NULL, "images only normalised: --augment none", &sgrad__none, SGRAD__FIELD(data.augment) },

    { .help = "How long, how much at once" },
    { "epochs", "N", "passes over the data", &sgrad__real, SGRAD__FIELD(training.epochs), 1e-3, 1e6 },
    { "steps", "N", "end after so many optimizer steps", &sgrad__whole, SGRAD__FIELD(training.steps), 1, 4294967295.0 },
    { "batch", "N", "global batch, whatever the number of ranks", &sgrad__whole, SGRAD__FIELD(training.batch), 1, 2147483647 },
    { "micro-batch", "N", "samples per task; divides the rank's share; chosen if not given", &sgrad__whole,
      SGRAD__FIELD(training.micro_batch), 1, 2147483647 },
    { "bn-group", "gpu|rank|micro|global|N", "samples over which batch norm takes its statistics", &sgrad__group,
      SGRAD__FIELD(training.bn_group), 1, 2147483647 },

    { .help = "How the weights change" },
    { "optimizer", "NAME", "one of stargrad list optimizers", &sgrad__text, SGRAD__FIELD(optimizer.name) },
    { "lr", "X", "learning rate; the optimizer's own, as stargrad list optimizers has it, if not given", &sgrad__real,
      SGRAD__FIELD(optimizer.lr), 0, 1e6 },
    { "optimizer-of", "LIST", "another optimizer, of parameters by patterns: *.bias=adamw,fc=sgd", &sgrad__text,
      SGRAD__FIELD(optimizer.of) },
    { "lr-of", "LIST", "times the learning rate, of parameters by patterns: fc=10,layer1.*=.1", &sgrad__text,
      SGRAD__FIELD(optimizer.lr_of) },
    { "weight-decay-of", "LIST", "times the weight decay, of parameters by patterns: *.bias=0,fc=.5", &sgrad__text,
      SGRAD__FIELD(optimizer.weight_decay_of) },
    { "freeze", "LIST", "parameters that stay as they are: patterns like conv1,layer1.*", &sgrad__text,
      SGRAD__FIELD(training.freeze) },
    { "freeze-after", "LIST", "after how many epochs parameters stay as they are: conv1=3", &sgrad__text,
      SGRAD__FIELD(training.freeze_after) },
    { "lr-scale-base", "B", "--lr is meant for batches of B: the rate is lr x batch / B", &sgrad__whole,
      SGRAD__FIELD(optimizer.lr_scale_base), 1, 2147483647 },
    { "schedule", "NAME", "learning rate over epochs: constant, step:E1,E2:F, cosine, poly:P, triangle:START,TOP,END or onecycle",
      &sgrad__schedule, SGRAD__FIELD(optimizer.schedule) },
    { "warmup", "E", "epochs of linear warm-up, from 0, or from --lr with --lr-scale-base", &sgrad__real,
      SGRAD__FIELD(optimizer.warmup), 0, 1e6 },
    { "momentum", "X", "of sgd, kfac, lars and muon", &sgrad__real, SGRAD__FIELD(optimizer.momentum), 0, 1 },
    { "nesterov", NULL, "Nesterov's momentum", &sgrad__flag, SGRAD__FIELD(optimizer.nesterov) },
    { "weight-decay", "X", "as PyTorch applies it", &sgrad__real, SGRAD__FIELD(optimizer.weight_decay), 0, 1e6 },
    { "no-decay-1d", NULL, "no weight decay on biases and batch norm", &sgrad__flag, SGRAD__FIELD(optimizer.no_decay_1d) },
    { "beta1", "X", "of adam, adamw and lamb", &sgrad__real, SGRAD__FIELD(optimizer.beta1), 0, 0.999999 },
    { "beta2", "X", "of adam, adamw and lamb", &sgrad__real, SGRAD__FIELD(optimizer.beta2), 0, 0.999999 },
    { "eps", "X", "of adam, adamw and lamb", &sgrad__real, SGRAD__FIELD(optimizer.eps), 1e-30, 1 },
    { "trust", "X", "of lars: a step is about lr times this as long as the parameter", &sgrad__real,
      SGRAD__FIELD(optimizer.trust), 0, 1e6 },
    { "kfac-damping", "X", "of kfac: added to the curvature's eigenvalues; more is nearer to sgd", &sgrad__real,
      SGRAD__FIELD(optimizer.kfac.damping), 1e-12, 1e6 },
    { "kfac-damping-schedule", "NAME", "damping over epochs, as --schedule", &sgrad__schedule,
      SGRAD__FIELD(optimizer.kfac.damping_schedule) },
    { "kfac-decay", "X", "of kfac: how much of a factor's running average stays", &sgrad__real,
      SGRAD__FIELD(optimizer.kfac.decay), 0, 0.999999 },
    { "kfac-clip", "X", "of kfac: how much a step may change the outputs; 0: off", &sgrad__real,
      SGRAD__FIELD(optimizer.kfac.clip), 0, 1e6 },
    { "kfac-factor-every", "N", "steps from one curvature factor to the next", &sgrad__whole,
      SGRAD__FIELD(optimizer.kfac.factor_every), 1, 1000000000 },
    { "kfac-eigen-every", "N", "steps from one decomposition of the factors to the next", &sgrad__whole,
      SGRAD__FIELD(optimizer.kfac.eigen_every), 1, 1000000000 },
    { "kfac-lag", "N",
      "steps until a decomposition is used, which goes on beside them; 0: it is waited for; as "
      "--kfac-factor-every if not given",
      &sgrad__whole, SGRAD__FIELD(optimizer.kfac.lag), 0, 1000000000 },
    { "kfac-skip", "LIST", "layers that are not preconditioned: patterns like fc,layer1.*", &sgrad__text,
      SGRAD__FIELD(optimizer.kfac.skip) },
    { "kfac-inverse", NULL, "precondition by damped inverses of factors, in place of their eigenvectors", &sgrad__flag,
      SGRAD__FIELD(optimizer.kfac.inverse) },
    { "kfac-variant", "auto|opt|lw|X", "ranks that precondition a layer: all, one or this share; auto: by cost and memory",
      &sgrad__text, SGRAD__FIELD(optimizer.kfac.variant) },
    { "label-smoothing", "X", "share of the target spread over all classes", &sgrad__real, SGRAD__FIELD(training.label_smoothing),
      0, 1 },
    { "clip-norm", "X", "largest norm of all gradients together; 0: off", &sgrad__real, SGRAD__FIELD(training.clip_norm), 0,
      1e30 },
    { "lookahead", "N[:D[:P]]",
      "every N steps the weights go back to slow ones, that keep D of themselves (.5 if not given), "
      "times the run's share to the power P",
      &sgrad__lookahead, SGRAD__FIELD(training.lookahead) },
    { "ema", "DECAY", "evaluate and save a moving average of the weights, that keeps so much of itself in a step; 0: off",
      &sgrad__real, SGRAD__FIELD(training.ema), 0, 0.9999999 },

    { .help = "How it is computed" },
    { "seed", "N", "of weights, shuffling, augmentation, dropout", &sgrad__whole, SGRAD__FIELD(training.seed), 0,
      9007199254740992.0 },
    { "deterministic", NULL, "same command, same bits", &sgrad__flag, SGRAD__FIELD(training.deterministic) },
    { "precision", "f32|tf32|bf16", "tf32: tensor cores of GPUs may round products; bf16: bfloat16 compute, f32 weights",
      &sgrad__choice, SGRAD__FIELD(model.precision) },
    { "cpus", "N", "CPU workers", &sgrad__workers, SGRAD__FIELD(parallel.cpus), 0, 4096 },
    { "gpus", "N", "CUDA devices", &sgrad__workers, SGRAD__FIELD(parallel.gpus), 0, 4096 },
    { "cpus-share", "auto|none", "samples of a batch that CPUs compute beside GPUs; auto: by their rates, if a tenth or more",
      &sgrad__choice, SGRAD__FIELD(parallel.gpus_only) },
    { "scheduler", "NAME", "StarPU's scheduler; chosen if not given", &sgrad__text, SGRAD__FIELD(parallel.scheduler) },
    { "window", "N", "steps in flight", &sgrad__whole, SGRAD__FIELD(parallel.steps_in_flight), 1, 8 },
    { "recompute", NULL, "blocks compute what they made again in backward: less memory, more work", &sgrad__flag,
      SGRAD__FIELD(model.recompute) },
    { "no-fuse", NULL, "every operation is a task of its own", &sgrad__flag, SGRAD__FIELD(parallel.no_fuse) },
    { "no-cuda-graphs", NULL, "what a task does on a GPU is launched one by one, and memory found anew each step", &sgrad__flag,
      SGRAD__FIELD(parallel.no_cuda_graphs) },
    { "mesh", "AXIS=N,...",
      "ranks that share the samples (data), the work of layers, on a line (tensor=1d:P), a square (2d:Q) or a cube (3d:Q), and "
      "the layers (pipe=P): data=2,pipe=2,tensor=1d:2; or auto, the cheapest by cost",
      &sgrad__text, SGRAD__FIELD(parallel.mesh) },
    { "shard", "none|optimizer|gradients", "what ranks that have the same parameters keep, and update, shares of", &sgrad__text,
      SGRAD__FIELD(parallel.shard) },
    { "strategy", "NAME", "how ranks train together: one of stargrad list strategies", &sgrad__text,
      SGRAD__FIELD(parallel.strategy) },
    { "servers", "N", "ranks that serve parameters, of all but sync; all if not given", &sgrad__whole,
      SGRAD__FIELD(parallel.servers), 1, 1000000 },
    { "group", "N", "ranks that keep in step, of mixed; those of a host if not given", &sgrad__whole,
      SGRAD__FIELD(parallel.group_ranks), 1, 1000000 },
    { "backup", "K", "gradients that an update does without, the slowest; 1 if not given", &sgrad__whole,
      SGRAD__FIELD(parallel.backup_workers), 0, 1000000 },
    { "staleness", "N", "steps that a rank may run ahead of the slowest, of async, backup and mixed; 1 if not given",
      &sgrad__whole, SGRAD__FIELD(parallel.staleness), 1, 7 },
    { "allreduce", "NAME", "one of stargrad list allreduce; cheapest by cost if not given", &sgrad__text,
      SGRAD__FIELD(parallel.allreduce) },
    { "bucket", "MB", "gradients summed over the ranks at once; 0: chosen by cost", &sgrad__real, SGRAD__FIELD(parallel.bucket),
      0, 1e6 },
    { "network", "FILE", "JSON with latency and bandwidth (seconds, bytes a second); measured if not given", &sgrad__text,
      SGRAD__FIELD(parallel.network) },
    { "stall-timeout", "SECONDS", "give up when nothing has happened for so long; 0: never", &sgrad__real,
      SGRAD__FIELD(parallel.stall_timeout), 0, 1e9 },
    { "nan-ok", NULL, "go on when the loss is not a number", &sgrad__flag, SGRAD__FIELD(training.nan_ok) },

    { .help = "What is kept, what is shown" },
    { "out", "DIR", "the run's folder; runs/NAME-TIME if not given", &sgrad__folder, SGRAD__FIELD(output.folder) },
    { "resume", "[auto]",
      "continue the run in --out from its newest checkpoint; options given here override the run's; auto: "
      "begin a run if --out has none",
      &sgrad__resume, SGRAD__FIELD(checkpoint.resume) },
    { "evaluate-every", "N", "steps from one evaluation to the next, besides those at ends of epochs; 0: these alone",
      &sgrad__whole, SGRAD__FIELD(evaluation.every), 0, 2147483647 },
    { "evaluate-last", NULL, "evaluate after the last step alone", &sgrad__flag, SGRAD__FIELD(evaluation.only_last) },
    { "tta", "flip|translate|flip,translate", "the last evaluation averages what is said of mirrored and shifted images",
      &sgrad__views, SGRAD__FIELD(evaluation.tta) },
    { "checkpoint-every", "N|Ns|Nmin|Nh", "epochs, steps (s), minutes (min) or hours (h) between checkpoints; 0: never",
      &sgrad__period, SGRAD__FIELD(checkpoint.every), 0, 2147483647 },
    { "stop-before", "TIME",
      "end with a checkpoint before this time: seconds from now (3600, 90min, 2h), 17:30, "
      "2026-11-27T07:00, or slurm-5min: a time before the end of the Slurm job",
      &sgrad__time, SGRAD__FIELD(training.stop_before) },
    { "keep", "N", "checkpoints to keep", &sgrad__whole, SGRAD__FIELD(checkpoint.keep), 1, 1000000 },
    { "best", NULL, "keep the weights of the best evaluation in DIR/best.safetensors, and end with them", &sgrad__flag,
      SGRAD__FIELD(evaluation.best) },
    { "patience", "N", "end after N evaluations without a better one, with the weights of the best; 0: never", &sgrad__whole,
      SGRAD__FIELD(evaluation.patience), 0, 1000000 },
    { "trace", "[STEPS]", "record a task trace of these steps (5-10) into DIR/trace", &sgrad__range, SGRAD__FIELD(output.trace) },
    { "tensorboard", NULL, "event files for TensorBoard in DIR/tensorboard", &sgrad__flag, SGRAD__FIELD(output.tensorboard) },
    { "histograms", "N", "every N steps, histograms of weights and gradients for TensorBoard; 0: none", &sgrad__whole,
      SGRAD__FIELD(output.histograms), 0, 2147483647 },
    { "prometheus", "PORT", "current values at 127.0.0.1:PORT/metrics", &sgrad__whole, SGRAD__FIELD(output.prometheus), 1,
      65535 },
    { "print", NULL, "print network and program, run nothing", &sgrad__flag, SGRAD__FIELD(output.print) },
    { "show-batch", "FILE", "draw the first batch as it goes into training into this PNG file, run nothing", &sgrad__text,
      SGRAD__FIELD(output.show_batch) },
    { "quiet", NULL, "print only warnings and the result: no configuration, progress bar or epochs", &sgrad__flag,
      SGRAD__FIELD(output.quiet) },
    { "json", NULL, "print the result as one JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

static json_t *as_json(const struct sgrad_train_result *result, const char *curve) {
    json_t *json = sgrad_result_json(result);
    json_object_set_new(json, "curve", json_pack("s?", curve));
    return json;
}

/* Draws the learning curve. Returns the path of the plot, which the caller must free, or NULL. */
static char *draw(const char *folder) {
    return sgrad_report_curve(folder) ? sgrad_format("%s/curve.png", folder) : NULL;
}

static void tell(const struct sgrad_train_result *result, bool json) {
    const int main = result->metrics > 1;      /* main metric of the test set */
    char *curve = draw(result->folder), text[SGRAD_NUMBER_TEXT];
    if (json)
        sgrad__print_json(as_json(result, curve));
    else {
        if (curve) printf("learning curve: %s\n", curve);
        printf("%s: test %s %s", result->folder, result->metric[main].title,
               sgrad_metric_text(&result->metric[main], result->test[main], text));
        if (result->best_step) printf(", of the best evaluation, after step %ld", result->best_step);
        putchar('\n');
    }
    free(curve);
}

static int run(const struct sgrad__request *request) {
    struct sgrad_train_result result = { 0 };
    struct sgrad_train_options options = request->train;
    char *command = sgrad_format("%s train", program_invocation_name);
    options.output.command = command;
    int error = sgrad_train(&options, &result);
    free(command);
    if (error) return sgrad__status(error);
    if (result.rank == 0 && !request->train.output.print && !request->train.output.show_batch)
        tell(&result, request->train.output.json);
    free(result.folder);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__train_command = {
    .name = "train",
    .summary = "train a network",
    .options = options,
    .run = run,
    .notes = "In [brackets] is what holds where an option is not given. For example:\n\n"
             "  stargrad train --model resnet20 --data cifar10:DIR --schedule step:82,123:0.1",
};
