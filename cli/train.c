/* train.c: stargrad train: the options of a run, and the summary at its end. */
#include "cli/cli.h"
#include "report/report.h"

#include <errno.h>
#include <stdlib.h>

static const struct sgrad__option options[] = {
    { .help = "Model and data" },
    { "model", "NAME", "network; see stargrad list models", &sgrad__text, SGRAD__FIELD(model.name), .required = true },
    { "data", "KIND[:PATH]", "data set; see stargrad list datasets", &sgrad__text, SGRAD__FIELD(data.name), .required = true },
    { "config", "FILE", "read options from FILE, a JSON object with long option names; the command line overrides them",
      &sgrad__file, SGRAD__PLACE(config) },
    { "like", "RUN", "use the options of the run in this folder as defaults", &sgrad__folder, SGRAD__PLACE(like) },
    SGRAD__PLUGIN_OPTION,
    { "init", "FILE", "initial weights (safetensors) [random]", &sgrad__text, SGRAD__FIELD(model.init) },
    { "init-skip", "LIST", "parameters to initialise randomly instead of from --init: patterns such as fc,layer4.*", &sgrad__text,
      SGRAD__FIELD(model.init_skip) },
    { "lora", "RANK[:ALPHA]",
      "LoRA: train only low-rank adapters of linear layers, multiplied by ALPHA / RANK; requires --init [off; ALPHA: RANK]",
      &sgrad__text, SGRAD__FIELD(model.lora) },
    { "lora-on", "LIST",
      "weights that --lora adapts: patterns such as *.q_proj,*.mlp.* [attention's query and value, or the MLP of vit]",
      &sgrad__text, SGRAD__FIELD(model.lora_on) },
    { "adapter", "DIR", "continue with the adapter in DIR, written by train --lora or peft; sets --lora and --lora-on",
      &sgrad__folder, SGRAD__FIELD(model.adapter) },
    { "mean", "X,X,X", "mean of each channel [the training set's]", &sgrad__numbers, SGRAD__FIELD(data.mean) },
    { "deviation", "X,X,X", "standard deviation of each channel [the training set's]", &sgrad__numbers, SGRAD__FIELD(data.std) },
    SGRAD__SAMPLE_OPTIONS,
    { "data-placement", "replicate|partition",
      "replicate: each rank keeps all training samples in memory; partition: each rank keeps a part of them", &sgrad__choice,
      SGRAD__FIELD(data.partition) },
    { "exclude", "FILE", "exclude the training samples listed in FILE, one per line, as written by stargrad dedup", &sgrad__file,
      SGRAD__FIELD(data.exclude) },
    { "damaged", "stop|skip", "on a sample that cannot be read: stop with an error, or log and skip it", &sgrad__choice,
      SGRAD__FIELD(data.skip_damaged) },
    { "no-shuffle", NULL, "use the samples in file order", &sgrad__flag, SGRAD__FIELD(data.no_shuffle) },
    { "shuffle-window", "N",
      "samples in archives (tar): shuffle the archives, and draw each sample from the next N ones; 0: from all samples",
      &sgrad__whole, SGRAD__FIELD(data.shuffle_window), 0, 1e12 },
    { "data-memory", "SIZE",
      "memory of a rank for decoded images and decompressed files of each split: 8G, or 50% of the machine's [2G, at most a "
      "quarter of it]",
      &sgrad__memory, SGRAD__FIELD(data.memory), 1, 1e18 },
    { "sampler", "shuffle|balanced",
      "shuffle: an epoch has each sample once; balanced: an epoch has equally many samples of each class [shuffle]", &sgrad__text,
      SGRAD__FIELD(data.sampler) },
    { "class-weights", "LIST",
      "comma-separated weights of the classes in the loss, as in PyTorch's CrossEntropyLoss; balanced: inversely proportional to "
      "the number of samples [1]",
      &sgrad__text, SGRAD__FIELD(training.class_weights) },
    { "focal-gamma", "X", "focal loss with this exponent, in place of the cross entropy; 0: off", &sgrad__real,
      SGRAD__FIELD(training.focal_gamma), 0, 100 },
    { "dice", "X", "weight of a Dice term in the loss for volumes", &sgrad__real, SGRAD__FIELD(training.dice), 0, 1e6 },
    { "augment", "LIST",
      "comma-separated augmentations of training images, or none; see stargrad list augmentations "
      "[depends on the data set; see stargrad list datasets]",
      &sgrad__augmentation, SGRAD__FIELD(data.augment) },
    { "no-augment", NULL, "only normalise images; the same as --augment none", &sgrad__none, SGRAD__FIELD(data.augment) },

    { .help = "Duration and batch size" },
    { "epochs", "N", "passes over the training set; fractions are allowed", &sgrad__real, SGRAD__FIELD(training.epochs), 1e-3,
      1e6 },
    { "steps", "N", "stop after N optimizer steps", &sgrad__whole, SGRAD__FIELD(training.steps), 1, 4294967295.0 },
    { "batch", "N", "batch size: samples per step, over all ranks together", &sgrad__whole, SGRAD__FIELD(training.batch), 1,
      2147483647 },
    { "micro-batch", "N", "samples per task; must divide the batch of each rank [automatic]", &sgrad__whole,
      SGRAD__FIELD(training.micro_batch), 1, 2147483647 },
    { "bn-group", "gpu|rank|micro|global|N",
      "samples over which batch norm computes its statistics; gpu: the samples of one GPU (without GPUs: the same as rank); "
      "rank: of one rank; micro: of one micro-batch; global: of the whole batch; N: of N samples",
      &sgrad__group, SGRAD__FIELD(training.bn_group), 1, 2147483647 },

    { .help = "Optimizer" },
    { "optimizer", "NAME", "optimizer; see stargrad list optimizers", &sgrad__text, SGRAD__FIELD(optimizer.name) },
    { "lr", "X", "learning rate [see stargrad list optimizers]", &sgrad__real, SGRAD__FIELD(optimizer.lr), 0, 1e6 },
    { "optimizer-of", "LIST", "other optimizers for the parameters that match patterns: *.bias=adamw,fc=sgd", &sgrad__text,
      SGRAD__FIELD(optimizer.of) },
    { "lr-of", "LIST", "learning-rate multipliers for parameters that match patterns: fc=10,layer1.*=.1", &sgrad__text,
      SGRAD__FIELD(optimizer.lr_of) },
    { "weight-decay-of", "LIST", "weight-decay multipliers for parameters that match patterns: *.bias=0,fc=.5", &sgrad__text,
      SGRAD__FIELD(optimizer.weight_decay_of) },
    { "freeze", "LIST", "parameters to freeze: patterns such as conv1,layer1.*", &sgrad__text, SGRAD__FIELD(training.freeze) },
    { "freeze-after", "LIST", "parameters to freeze after a number of epochs: patterns such as conv1=3", &sgrad__text,
      SGRAD__FIELD(training.freeze_after) },
    { "lr-scale-base", "B", "scale the learning rate with the batch size: use --lr x batch / B", &sgrad__whole,
      SGRAD__FIELD(optimizer.lr_scale_base), 1, 2147483647 },
    { "schedule", "NAME",
      "learning-rate schedule over epochs: constant, step:E1,E2:F, cosine, poly:P, triangle:START,TOP,END or onecycle",
      &sgrad__schedule, SGRAD__FIELD(optimizer.schedule) },
    { "warmup", "E", "epochs of linear warm-up from 0 (with --lr-scale-base: from --lr)", &sgrad__real,
      SGRAD__FIELD(optimizer.warmup), 0, 1e6 },
    { "momentum", "X", "momentum of sgd, kfac, lars, muon and normuon [0.9; see stargrad list optimizers]",
      &sgrad__real, SGRAD__FIELD(optimizer.momentum), 0, 1 },
    { "nesterov", NULL, "use Nesterov momentum", &sgrad__flag, SGRAD__FIELD(optimizer.nesterov) },
    { "weight-decay", "X", "weight decay, applied as in PyTorch", &sgrad__real, SGRAD__FIELD(optimizer.weight_decay), 0, 1e6 },
    { "no-decay-1d", NULL, "exclude biases and batch norm from weight decay", &sgrad__flag, SGRAD__FIELD(optimizer.no_decay_1d) },
    { "beta1", "X",
      "decay rate of the first moment in adam, adamw, lamb, schedulefree and soap [0.9; see stargrad list optimizers]",
      &sgrad__real, SGRAD__FIELD(optimizer.beta1), 0, 0.999999 },
    { "beta2", "X",
      "decay rate of the second moment in adam, adamw, lamb, schedulefree, normuon and soap [0.999; see stargrad list "
      "optimizers]",
      &sgrad__real, SGRAD__FIELD(optimizer.beta2), 0, 0.999999 },
    { "eps", "X", "constant added to the denominator in adam, adamw, lamb, schedulefree and soap", &sgrad__real,
      SGRAD__FIELD(optimizer.eps), 1e-30, 1 },
    { "trust", "X", "LARS trust coefficient: the norm of a step is about X times --lr times the norm of the parameter",
      &sgrad__real, SGRAD__FIELD(optimizer.trust), 0, 1e6 },
    { "soap-every", "N", "update the eigenvectors of soap every N steps", &sgrad__whole, SGRAD__FIELD(optimizer.soap_every), 1,
      1000000000 },
    { "kfac-damping", "X",
      "K-FAC damping, added to the eigenvalues of the curvature; a larger X makes steps more like those of sgd", &sgrad__real,
      SGRAD__FIELD(optimizer.kfac.damping), 1e-12, 1e6 },
    { "kfac-damping-schedule", "NAME", "damping schedule over epochs, in the format of --schedule", &sgrad__schedule,
      SGRAD__FIELD(optimizer.kfac.damping_schedule) },
    { "kfac-decay", "X", "decay rate of the running averages of the Kronecker factors", &sgrad__real,
      SGRAD__FIELD(optimizer.kfac.decay), 0, 0.999999 },
    { "kfac-clip", "X", "limit of the change of the network's outputs in a K-FAC step; 0: off", &sgrad__real,
      SGRAD__FIELD(optimizer.kfac.clip), 0, 1e6 },
    { "kfac-factor-every", "N", "update the Kronecker factors every N steps", &sgrad__whole,
      SGRAD__FIELD(optimizer.kfac.factor_every), 1, 1000000000 },
    { "kfac-eigen-every", "N", "update the eigendecompositions of the factors every N steps", &sgrad__whole,
      SGRAD__FIELD(optimizer.kfac.eigen_every), 1, 1000000000 },
    { "kfac-lag", "N",
      "use each eigendecomposition N steps after it starts, so that it runs in the background; 0: wait for it "
      "[--kfac-factor-every]",
      &sgrad__whole, SGRAD__FIELD(optimizer.kfac.lag), 0, 1000000000 },
    { "kfac-skip", "LIST", "layers without preconditioning: patterns such as fc,layer1.*", &sgrad__text,
      SGRAD__FIELD(optimizer.kfac.skip) },
    { "kfac-inverse", NULL, "precondition with damped inverses of the factors instead of their eigenvectors", &sgrad__flag,
      SGRAD__FIELD(optimizer.kfac.inverse) },
    { "kfac-variant", "auto|opt|lw|X",
      "ranks that precondition each layer; opt: all; lw (layer-wise): one; X: this fraction of them; auto: chosen by cost and "
      "memory",
      &sgrad__text, SGRAD__FIELD(optimizer.kfac.variant) },
    { "tokenizer", "FILE",
      "tokenize the texts of jsonl: --data jsonl:PATTERN,T; tokenizer.json, or vocab.json with merges.txt in the same folder",
      &sgrad__file, SGRAD__FIELD(data.tokenizer) },
    { "field", "NAME", "field of JSON lines that contains the text, with --tokenizer [text]", &sgrad__text,
      SGRAD__FIELD(data.field) },
    { "attend", "sample|document[:TOKEN]",
      "document: tokens attend only to tokens of the same document; TOKEN is the last of each [end in tokens.json]", &sgrad__text,
      SGRAD__FIELD(data.attend) },
    { "loss-on", "all|answers", "answers: only tokens of answers count, as marked by stargrad tokenize --template",
      &sgrad__choice, SGRAD__FIELD(data.loss_on_answers) },
    { "label-smoothing", "X", "label smoothing: the fraction of each target that is spread over all classes", &sgrad__real,
      SGRAD__FIELD(training.label_smoothing), 0, 1 },
    { "clip-norm", "X", "gradient clipping: limit of the global norm of the gradients; 0: off", &sgrad__real,
      SGRAD__FIELD(training.clip_norm), 0, 1e30 },
    { "lookahead", "N[:D[:P]]",
      "Lookahead: every N steps, blend the weights into slow weights, and continue from these; the slow weights retain "
      "D x (step/steps)^P of their value [off; D 0.5, P 0]",
      &sgrad__lookahead, SGRAD__FIELD(training.lookahead) },
    { "ema", "DECAY", "evaluate and save an exponential moving average of the weights with this decay; 0: off", &sgrad__real,
      SGRAD__FIELD(training.ema), 0, 0.9999999 },

    { .help = "Computation and parallelism" },
    { "seed", "N", "seed of initial weights, shuffling, augmentation and dropout", &sgrad__whole, SGRAD__FIELD(training.seed), 0,
      9007199254740992.0 },
    { "deterministic", NULL, "produce identical bits each time the same command runs", &sgrad__flag,
      SGRAD__FIELD(training.deterministic) },
    { "precision", "f32|tf32|bf16",
      "tf32: GPU tensor cores may round the inputs of matrix products to TF32; bf16: bfloat16 activations, f32 weights",
      &sgrad__choice, SGRAD__FIELD(model.precision) },
    { "cpus", "N", "number of CPU workers; 0: none", &sgrad__workers, SGRAD__FIELD(parallel.cpus), 0, 4096 },
    { "gpus", "N", "number of CUDA devices; 0: none", &sgrad__workers, SGRAD__FIELD(parallel.gpus), 0, 4096 },
    { "cpus-share", "auto|none",
      "share of each batch that CPUs compute when GPUs are used; auto: according to measured speed, but nothing if this share is "
      "less than a tenth",
      &sgrad__choice, SGRAD__FIELD(parallel.gpus_only) },
    { "scheduler", "NAME", "StarPU scheduler [lws; with GPUs dmdas]", &sgrad__text, SGRAD__FIELD(parallel.scheduler) },
    { "window", "N", "maximum number of steps in progress at the same time", &sgrad__whole,
      SGRAD__FIELD(parallel.steps_in_flight), 1, 8 },
    { "recompute", NULL, "activation checkpointing: recompute activations in the backward pass to save memory", &sgrad__flag,
      SGRAD__FIELD(model.recompute) },
    { "memory", "SIZE",
      "memory that a rank may use, such as 8G, or 50% of the machine's; if a step requires more, the run ends with an error, or "
      "moves data to --spill; 0: no limit [0]",
      &sgrad__memory, SGRAD__FIELD(parallel.memory), 0, 1e18 },
    { "gpu-memory", "SIZE",
      "memory of its GPU that a rank may use, such as 8G; if a step requires more, the run ends with an error, or moves data to "
      "main memory (--spill ram); 0: no limit [0]",
      &sgrad__bytes, SGRAD__FIELD(parallel.gpu_memory), 0, 1e18 },
    { "spill", "DIR|ram|none",
      "folder on a fast disk for data that exceed --memory; ram: main memory, for data that exceed --gpu-memory [none]",
      &sgrad__text, SGRAD__FIELD(parallel.spill) },
    { "no-fuse", NULL, "run each operation as a separate task", &sgrad__flag, SGRAD__FIELD(parallel.no_fuse) },
    { "no-cuda-graphs", NULL,
      "launch GPU kernels individually instead of through CUDA graphs, and allocate activations every step", &sgrad__flag,
      SGRAD__FIELD(parallel.no_cuda_graphs) },
    { "mesh", "AXIS=N,...",
      "mesh of ranks: data parallelism (data=N), pipeline parallelism (pipe=P), and tensor parallelism on P ranks (tensor=1d:P), "
      "QxQ ranks (2d:Q) or QxQxQ ranks (3d:Q); context parallelism (context=N) splits the tokens of samples, and expert "
      "parallelism (expert=N) divides the experts of mixtures; example: "
      "data=2,pipe=2,tensor=1d:2; auto: the mesh with the lowest estimated cost",
      &sgrad__text, SGRAD__FIELD(parallel.mesh) },
    { "shard", "none|optimizer|gradients|parameters",
      "shard optimizer states over data-parallel ranks (ZeRO); gradients: the same; parameters: also weights [none]",
      &sgrad__text, SGRAD__FIELD(parallel.shard) },
    { "strategy", "NAME", "training strategy across ranks; see stargrad list strategies", &sgrad__text,
      SGRAD__FIELD(parallel.strategy) },
    { "servers", "N", "number of parameter-server ranks, for --strategy ps, async, mixed and backup [all]", &sgrad__whole,
      SGRAD__FIELD(parallel.servers), 1, 1000000 },
    { "group", "N", "ranks per synchronous group, for --strategy mixed [the ranks of a host]", &sgrad__whole,
      SGRAD__FIELD(parallel.group_ranks), 1, 1000000 },
    { "backup", "K", "number of late gradients that each update drops, for --strategy backup [1]", &sgrad__whole,
      SGRAD__FIELD(parallel.backup_workers), 0, 1000000 },
    { "staleness", "N",
      "number of steps by which a rank may be ahead of the slowest rank, for --strategy async, backup and mixed [1]",
      &sgrad__whole, SGRAD__FIELD(parallel.staleness), 1, 7 },
    { "allreduce", "NAME", "allreduce algorithm; see stargrad list allreduce [the one with the lowest estimated cost]",
      &sgrad__text, SGRAD__FIELD(parallel.allreduce) },
    { "bucket", "MB", "size of the gradient buckets that ranks exchange; 0: automatic", &sgrad__real,
      SGRAD__FIELD(parallel.bucket), 0, 1e6 },
    { "network", "FILE", "JSON file with latency (seconds) and bandwidth (bytes per second) between ranks [measured]",
      &sgrad__text, SGRAD__FIELD(parallel.network) },
    { "stall-timeout", "SECONDS", "stop with an error after this time without progress; 0: never", &sgrad__real,
      SGRAD__FIELD(parallel.stall_timeout), 0, 1e9 },
    { "nan-ok", NULL, "continue when the loss is NaN or infinite", &sgrad__flag, SGRAD__FIELD(training.nan_ok) },

    { .help = "Evaluation, checkpoints and output" },
    { "out", "DIR", "folder of the run [runs/NAME-TIME]", &sgrad__folder, SGRAD__FIELD(output.folder) },
    { "resume", "[auto]",
      "continue the run in --out from its newest checkpoint; options given here override the run's; auto: start a run if --out "
      "has none",
      &sgrad__resume, SGRAD__FIELD(checkpoint.resume) },
    { "evaluate-every", "N", "evaluate every N steps and after each epoch; 0: only after each epoch", &sgrad__whole,
      SGRAD__FIELD(evaluation.every), 0, 2147483647 },
    { "evaluate-last", NULL, "evaluate only after the last step", &sgrad__flag, SGRAD__FIELD(evaluation.only_last) },
    { "tta", "flip|translate|flip,translate",
      "test-time augmentation: average the final evaluation's predictions over flipped and shifted images", &sgrad__views,
      SGRAD__FIELD(evaluation.tta) },
    { "checkpoint-every", "N|Ns|Nmin|Nh", "interval between checkpoints: epochs, steps (s), minutes (min) or hours (h); 0: never",
      &sgrad__period, SGRAD__FIELD(checkpoint.every), 0, 2147483647 },
    { "stop-before", "TIME",
      "write a checkpoint and stop before this time: a duration from now (3600s, 90min, 2h), a time (17:30, "
      "2026-11-27T07:00), or slurm-5min, 5 minutes before the Slurm job ends",
      &sgrad__time, SGRAD__FIELD(training.stop_before) },
    { "snapshot-every", "N|auto",
      "interval in steps between snapshots, checkpoints in the memory of each host for a restart by launch; auto: less than 1 % "
      "of the time; 0: never [0; with launch --retries auto]",
      &sgrad__interval, SGRAD__FIELD(checkpoint.snapshot_every), 0, 2147483647 },
    { "keep", "N", "number of checkpoints to keep", &sgrad__whole, SGRAD__FIELD(checkpoint.keep), 1, 1000000 },
    { "best", "[METRIC]",
      "save the weights of the best evaluation to DIR/best.safetensors, and use them as the final weights; METRIC, which "
      "--patience uses as well, is accuracy, loss, macro_f1, balanced_accuracy, top5 and so on [accuracy; without classes, the "
      "first metric after the loss]",
      &sgrad__best, SGRAD__FIELD(evaluation.best) },
    { "patience", "N",
      "early stopping: stop after N evaluations without improvement, and use the best weights as the final ones; 0: never",
      &sgrad__whole, SGRAD__FIELD(evaluation.patience), 0, 1000000 },
    { "min-delta", "X", "smallest improvement that counts for --patience; of an accuracy, a fraction such as 0.001", &sgrad__real,
      SGRAD__FIELD(evaluation.min_delta), 0, 1e9 },
    { "trace", "[STEPS]", "record a task trace of STEPS, such as 5-10, in DIR/trace [10-12]", &sgrad__range,
      SGRAD__FIELD(output.trace) },
    { "tensorboard", NULL, "write event files for TensorBoard to DIR/tensorboard", &sgrad__flag,
      SGRAD__FIELD(output.tensorboard) },
    { "histograms", "N", "write histograms of weights and gradients for TensorBoard every N steps; 0: never", &sgrad__whole,
      SGRAD__FIELD(output.histograms), 0, 2147483647 },
    { "slow-rank", NULL, "name a rank that computes for much longer than the others", &sgrad__flag,
      SGRAD__FIELD(output.slow_rank) },
    { "prometheus", "PORT", "serve current metrics for Prometheus at 127.0.0.1:PORT/metrics", &sgrad__whole,
      SGRAD__FIELD(output.prometheus), 1, 65535 },
    { "print", NULL, "print the network and the tasks of a step, without training", &sgrad__flag, SGRAD__FIELD(output.print) },
    { "show-batch", "FILE", "draw the first batch, with augmentation, to this PNG file, without training", &sgrad__text,
      SGRAD__FIELD(output.show_batch) },
    { "quiet", NULL, "print only warnings and the result: no configuration, progress bar or epochs", &sgrad__flag,
      SGRAD__FIELD(output.quiet) },
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
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

static void print_result(const struct sgrad_train_result *result, bool json) {
    const int main = result->main;
    char *curve = draw(result->folder), text[SGRAD_NUMBER_TEXT];
    if (json)
        sgrad__print_json(as_json(result, curve));
    else {
        if (curve) printf("learning curve: %s\n", curve);
        printf("%s: test %s %s", result->folder, result->metric[main].title,
               sgrad_metric_text(&result->metric[main], result->test[main], text));
        if (result->best_step) printf(", from the best evaluation, after step %ld", result->best_step);
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
        print_result(&result, request->train.output.json);
    free(result.folder);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__train_command = {
    .name = "train",
    .summary = "train a network",
    .options = options,
    .run = run,
    .notes = "Defaults are shown in [brackets]. A pattern is a shell pattern or the beginning of a parameter name; patterns "
             "are separated by commas, and the first match applies. For example:\n\n"
             "  stargrad train --model resnet20 --data cifar10:DIR \\\n"
             "      --epochs 164 --schedule step:82,123:0.1 --out runs/r20",
};
