/* setup.h: opening and closing a run: its data, network, mesh, strategy and directory. Private to graphs/.
 *
 * Functions of type int return 0 or a SGRAD_E… code, which has been logged. sgrad__run_close must also be called after an error.
 * Collective functions must be called by every rank of the run, in the same order. */
#ifndef SGRAD_GRAPHS_TRAIN_SETUP_H
#define SGRAD_GRAPHS_TRAIN_SETUP_H

#include "graphs/costs/costs.h"
#include "graphs/engine/run.h"

/* ---- complete.c, network.c, setup.c ---- */

/* Completes options that the caller has not set, and checks those that need no data. Names have defaults, except for the model
 * and the data. SGRAD_EINVAL: one is missing or out of range. */
int sgrad__options_complete(struct sgrad_train_options *options);
/* Builds the network for the run's model, data and mesh in run->graph, which must be NULL. The network ends with the loss.
 * SGRAD_ESHAPE, SGRAD_EINVAL: the model does not fit the data or the options. */
int sgrad__run_build_graph(struct sgrad__run *run);

/* Completes and checks the options, opens the data sets and builds the network: the first half of the next function. It needs
 * neither a context nor the number of ranks. */
int sgrad__run_open_graph(struct sgrad__run *run);
/* Opens a run for training: options, data, context, mesh, parameters and program; everything except the contents of the run
 * directory. Collective. */
int sgrad__run_open_training(struct sgrad__run *run);
/* Opens a run for the evaluation of saved weights (options.model.init, or an ONNX file). Collective. */
int sgrad__run_open_evaluation(struct sgrad__run *run);
/* Opens the context and the data that several runs use, the trials of a search. The run itself has no network. Collective. */
int sgrad__run_open_ground(struct sgrad__run *run);
/* How a trial of a search is trained: with the context and the data of ground, by consecutive ranks of these. */
struct sgrad__beside {
    const struct sgrad__run *ground;
    int number, place, ranks;           /* of the trial, from 0; index of this rank among the ranks that train it; their number */
};
/* Opens a run in this manner; everything except its program. Not collective: other ranks may train other trials meanwhile. */
int sgrad__run_open_beside(struct sgrad__run *run, const struct sgrad__beside *how);
/* Opens a run for text generation. run->data.test must be the text, as a data set that the caller has allocated. */
int sgrad__run_open_sampling(struct sgrad__run *run);
/* Frees everything that the run owns; waits for all tasks first, unless the run is a trial. Also after a failed open. */
void sgrad__run_close(struct sgrad__run *run);

/* ---- tune.c: fine-tuning: parameters that are initialized or trained differently from the others ---- */

/* Checks and applies --init-skip, --freeze, --freeze-after, --optimizer-of, --lr-of and --weight-decay-of. The graph must be
 * complete. SGRAD_EINVAL: an option is invalid, or no parameter is trained. SGRAD_ENAME: an optimizer is unknown. */
int sgrad__run_fine_tune(struct sgrad__run *run);
/* Returns the number that LIST ("fc=10,conv1=.1") assigns to PARAMETER, by the first pattern that matches its name; OTHERWISE if
 * none matches. LIST may be NULL. */
double sgrad__number_of(const char *list, const char *parameter, double otherwise);
/* Converts --freeze-after from epochs to steps. Must be called again if run->steps_per_epoch has changed since the graph was
 * built. */
void sgrad__run_time_freezes(struct sgrad__run *run);
/* next_freeze: returns the first step after DONE with which the training of a parameter ends; 0: none. freezes: returns true if,
 * after DONE steps, the graph still trains a parameter whose training has ended. */
long sgrad__run_next_freeze(const struct sgrad__run *run, long done);
bool sgrad__run_freezes(const struct sgrad__run *run, long done);
void sgrad__run_print_tuning(const struct sgrad__run *run, FILE *to);       /* prints these options, if set, to TO */

/* ---- lora.c: low-rank adapters (graphs/networks/adapters.c) ---- */

/* Checks --lora, --lora-on and --adapter, and completes them from the files of the adapter. SGRAD_EINVAL: one is invalid. Other
 * errors: those of sgrad__adapter_read. */
int sgrad__run_complete_lora(struct sgrad__run *run);
/* adapt: sets the adapters of run->graph, which must have no layers yet, if the run trains. check_lora: checks the completed
 * graph. SGRAD_EINVAL: no layer can be adapted, or an option cannot be combined with --lora. */
int sgrad__run_adapt(struct sgrad__run *run);
int sgrad__run_check_lora(const struct sgrad__run *run);
/* Loads --adapter, if it is set, into the graph's adapters. SGRAD_EINVAL: its scale is not that of --lora. Others: those of
 * sgrad__adapter_read and sgrad__weights_load. */
int sgrad__run_load_adapter(struct sgrad__run *run);
/* Saves ITEMS, or VALUE instead (sgrad__weights_copy), as the result of the run, in the file PATH. Adapters are merged into the
 * weights. They are also written, as Hugging Face peft has them, to the folder of PATH. SGRAD_EIO. */
int sgrad__run_save_weights(const struct sgrad__run *run, struct sgrad__items items, struct sgrad_tensor *const *value,
                            const char *path, const char *const *metadata, int metadata_count);
void sgrad__run_print_lora(const struct sgrad__run *run, FILE *to);     /* prints a line about the adapters, if there are any */

/* ---- whitening.c ---- */

/* Computes the filters that whiten the first images of the training set, for layers that have such initial values and are not
 * loaded from a file. Parameters must be allocated; mean and standard deviation must be known. Collective, except for a trial. */
int sgrad__run_whiten(struct sgrad__run *run);

/* ---- data.c, sizes.c, strategy.c, folder.c ---- */

/* Opens both splits; decodes no samples that are not needed yet. SGRAD_ESHAPE: the splits have different fields or classes. Other
 * errors are those of sgrad_dataset_open. */
int sgrad__run_open_data(struct sgrad__run *run);
/* Opens the test split for the use of saved weights (inference.h: sgrad_run_open_samples). */
int sgrad__run_open_samples(struct sgrad__run *run);
/* Determine mean and standard deviation of the input. measure_data: of the training set, after open_data; all ranks measure a
 * shard each, and check that the samples of both splits can be read. A resumed run takes them from its config.json instead;
 * with options.output.print nothing is read. data_of_weights: for saved weights, after open_samples; as in the config.json in
 * their directory, or as in their ONNX file, or else of the training set, which is opened for this. Options override both.
 * Collective. */
int sgrad__run_measure_data(struct sgrad__run *run);
/* Returns true if options state mean and deviation, and a measurement would not read, and so check, all training samples: it is
 * left out. */
bool sgrad__run_states_input(const struct sgrad__run *run);
int sgrad__run_open_data_of_weights(struct sgrad__run *run);
/* Sets mean and standard deviation in the graph. */
void sgrad__run_set_input(struct sgrad__run *run);
/* Creates run->data.placement: the training set is partitioned over the ranks. */
void sgrad__run_open_placement(struct sgrad__run *run);
/* Sets the augmentation of the training images: that of the options, or else the default of the data set. Must be called after
 * open_data. SGRAD_EINVAL: it does not suit the data. */
int sgrad__run_add_augmentation(struct sgrad__run *run);

/* classes.c.
 * Checks --sampler, and sets run->data.label and class_weight if options need them. SGRAD_EINVAL: an option is invalid, or does
 * not suit the data. Other errors are those of reading the labels. */
int sgrad__run_open_classes(struct sgrad__run *run);
/* Parses TEXT, the numbers of --class-weights, into WEIGHT, of CLASSES. DATA: for the message. SGRAD_EINVAL: TEXT is invalid. */
int sgrad__class_weights_parse(const char *text, int classes, const char *data, float *weight);

/* Sets the samples of a batch-normalization group and, if specified, of a micro-batch, the steps of an epoch and of the run.
 * RANKS: number of local batches in the batch. SGRAD_EINVAL: the sizes do not divide each other, or exceed the training set. */
int sgrad__run_check_sizes(struct sgrad__run *run, long ranks);
/* Replaces SGRAD_GROUP_GPU by a number of samples or SGRAD_GROUP_RANK, and sets the group size that a resumed run must preserve.
 * The number of ranks must be known. Collective. */
int sgrad__run_choose_group(struct sgrad__run *run);
/* Sets the remaining sizes: micro-batch, samples on GPUs and on CPUs, gradient-accumulation buffers. Collective, except for a
 * trial. SGRAD_EINVAL: too few samples for batch normalization or for the pipeline stages. */
int sgrad__run_choose_micro_batch(struct sgrad__run *run);
/* is_shared: returns true if GPUs and CPUs each process samples of the local batch. correct_shares: chooses their numbers of
 * samples again, from the measured durations of tasks; returns true if it has changed them, because a step should take at least
 * 10 % less time. The program must then be built again, and later runs start with these durations. */
bool sgrad__run_is_shared(const struct sgrad__run *run);
bool sgrad__run_correct_shares(struct sgrad__run *run);
/* Returns the divisor of N that is nearest to WANTED; the smaller one of two. */
int64_t sgrad__nearest_divisor(int64_t n, int64_t wanted);

/* Checks that the options suit the strategy, as far as this does not depend on the number of ranks. SGRAD_EINVAL: they do not. */
int sgrad__run_check_strategy(struct sgrad__run *run);
/* The same for the present ranks. Sets run->parallel.servers, group_ranks and push_ranks. SGRAD_EINVAL: the options do not suit
 * them. */
int sgrad__run_choose_strategy(struct sgrad__run *run);
/* SGRAD_EINVAL: optimizer OF, the value of --OPTION, does not suit --shard, because it can only update all parameters together,
 * or it averages the weights, which does not suit other averages or asynchronous strategies. */
int sgrad__run_check_optimizer(const struct sgrad__run *run, const struct sgrad_optimizer *of, const char *option);
/* tune.c.
 * Assigns the update of a parameter that several ranks store completely to one of them: with --shard, if the optimizer needs
 * whole parameters; otherwise, if its updates are expensive. OPTIONS: of the program. */
void sgrad__run_assign_updates(struct sgrad__run *run, const struct sgrad_program_options *options);
/* Sets the memory limit of a rank for K-FAC: a quarter of the memory of rank 0's host, divided by the number of ranks there.
 * Collective. */
void sgrad__run_measure_room(struct sgrad__run *run);

/* Rank 0: creates and locks the run directory, before any other work. SGRAD_EINVAL: it contains other files, or no run to resume.
 * SGRAD_EIO: it cannot be created, or is locked by another process. */
int sgrad__run_claim_folder(struct sgrad__run *run);
/* Collective. Checks that all ranks have the same options and data, except for options that are specific to a node; sets
 * run->data.fingerprint. Must precede everything that the ranks do together and that depends on these options. SGRAD_EINVAL on
 * all ranks: they differ. */
int sgrad__run_compare_options(struct sgrad__run *run);
/* Fills *CONFIG with the contents of the run's config.json. It refers to the run and to DEVICES, a buffer of SIZE bytes. */
void sgrad__run_describe(const struct sgrad__run *run, struct sgrad__config *config, char *devices, size_t size);
/* Releases the lock; removes the directory if this run has created it and written nothing. */
void sgrad__run_leave_folder(struct sgrad__run *run);
/* Writes config.json, or loads the newest checkpoint of a resumed run; *DONE becomes the number of its completed steps, otherwise
 * it is unchanged. Rank 0 accesses the directory, and sends the other ranks its name, *DONE and the parameters. Collective. */
int sgrad__run_open_folder(struct sgrad__run *run, long *done);
/* Returns the command that resumes the run, quoted for a shell; if options.output.command is NULL, only its options. The caller
 * must free it. */
char *sgrad__run_again_text(const struct sgrad__run *run);

/* ---- mesh.c: the coordinates of ranks on the mesh, and parameters that are sharded ---- */

/* Parses --mesh, unless it is auto. Must precede the graph. SGRAD_EINVAL: it is invalid. */
int sgrad__run_open_mesh(struct sgrad__run *run);
/* Sets the coordinates of this rank, and divides the graph into pipeline stages. The number of ranks must be known. SGRAD_EINVAL:
 * the mesh does not suit the ranks, the network or other options. */
int sgrad__run_place_on_mesh(struct sgrad__run *run);
/* For tensors that not all ranks store completely: sharded ones, and those of only some ranks. gather: assembles them on each
 * rank that calls it with KEEP, optimizer states only if WITH_STATES; sgrad__training_free_wholes frees them. scatter: sends
 * those that rank 0 has read from a file to all ranks, which store their shards, and frees them. Collective. */
int sgrad__run_gather(struct sgrad__run *run, bool with_states, bool keep);
int sgrad__run_scatter(struct sgrad__run *run);

/* ---- best.c: the weights of the best evaluation, and early stopping ---- */

/* Sets run->result.main, the metric by which evaluations are compared. run->metric must be set. SGRAD_ENAME: the network does not
 * have the metric of --best. */
int sgrad__best_choose_metric(struct sgrad__run *run);

/* Initializes the best evaluation so far; a resumed run with DONE completed steps reads it from its directory. Collective.
 * SGRAD_EINVAL: --best is set, and a parameter is sharded. */
int sgrad__best_open(struct sgrad__run *run, long done);
/* Compares the metrics in run->evaluation.epoch with the best ones so far, after its evaluation; rank 0 saves the weights if
 * these are better. Collective. SGRAD_EIO: they cannot be saved. */
int sgrad__best_record(struct sgrad__run *run);
/* Returns true if the next evaluation can end the run (--patience). */
bool sgrad__best_may_end(const struct sgrad__run *run);
/* Sets the result of the run to that of its best evaluation, if its weights were saved. */
void sgrad__best_take(struct sgrad__run *run);
/* Copies best.safetensors to the file TO. SGRAD_EIO: it cannot be read or written. */
int sgrad__best_copy(const struct sgrad__run *run, const char *to);
/* Prints the best evaluation to TO and, if --patience has stopped the run, the number DONE of its steps. */
void sgrad__best_print(const struct sgrad__run *run, long done, FILE *to);

/* ---- snapshots.c: checkpoints in the memory of the hosts, for restarts. No effect without --snapshot-every ---- */

/* Opens the folders of snapshots, whose run directory rank 0 has opened. A resumed run finds the newest snapshot of all hosts and
 * copies it to the host of rank 0; a new run removes all. Collective. Snapshots that cannot be used only cause a warning. */
void sgrad__snapshots_start(struct sgrad__run *run);
/* Sets the step of the first snapshot after DONE completed steps. */
void sgrad__snapshots_expect(struct sgrad__run *run, long done);
/* Stores the path of the newest whole checkpoint or snapshot in *PATH, which the caller must free; NULL: none. *IN_MEMORY: it is
 * a snapshot. Called by rank 0. Errors: those of sgrad__checkpoint_newest. */
int sgrad__snapshots_newest(const struct sgrad__run *run, char **path, bool *in_memory);
/* Records that a step has ended at TIME (sgrad_time_monotonic). */
void sgrad__snapshot_step(struct sgrad__run *run, double time);
bool sgrad__snapshot_is_due(const struct sgrad__run *run, long done);
bool sgrad__snapshots_here(const struct sgrad__run *run);   /* returns true if this rank writes snapshots, if it can */
/* Starts a snapshot after DONE steps; none may be in flight. Copies the state; a thread writes it during later steps. The first
 * rank of each host writes it. Collective. If it cannot be written, this is logged, and only ends the snapshots of the host.
 * Errors: those of failed tasks. */
int sgrad__snapshot_begin(struct sgrad__run *run, long done);
/* Waits for the snapshot that is being written, and frees everything. REMOVE: the run needs no snapshots any more. */
void sgrad__snapshots_end(struct sgrad__run *run, bool remove);

/* ---- unused_options.c ---- */

/* Rank 0: logs a warning for each explicitly set option that has no effect on this run, or another one than expected. */
void sgrad__run_warn_unused(const struct sgrad__run *run);

/* ---- print.c ---- */

/* Prints the configuration in use to TO, before the first step. */
void sgrad__run_print(const struct sgrad__run *run, FILE *to);
/* Writes a picture of the first batch of all ranks, or of its first 256 samples, and prints its path to TERMINAL. Errors: as
 * sgrad_dataset_show. */
int sgrad__run_show_batch(const struct sgrad__run *run, FILE *terminal);
/* pipe.c: prints the pipeline stages, if there are several; with options.output.print also the layers of each stage. */
void sgrad__run_print_pipe(const struct sgrad__run *run, FILE *to);
/* Prints the distribution of the staleness of gradients, and the number of dropped ones. Collective. */
void sgrad__run_print_staleness(struct sgrad__run *run, FILE *to);

/* ---- limit.c: --memory, --spill ---- */

/* Checks the options of all ranks. Collective. SGRAD_EINVAL: they do not fit together. */
int sgrad__run_agree_limit(struct sgrad__run *run);
/* Opens the file of --spill, if the ranks have agreed. If weights and optimizer states, which must be allocated, are large, they
 * move to the file, until sgrad__run_limit_memory. SGRAD_EIO: the folder. */
int sgrad__run_open_limit(struct sgrad__run *run);
/* Sets batch.limit: the memory that a step may use. Moves optimizer states and weights to the file, if they do not fit. Reserves
 * the space of copies for checkpoints in the file.
 * Collective. SGRAD_EIO. SGRAD_ENOMEM: the limit is too low; the message names the lowest possible one. */
int sgrad__run_limit_memory(struct sgrad__run *run);
enum { SGRAD__INSTRUCTION_BYTES = 40000 };      /* memory of an instruction of a program while it runs: tasks, tensors */
/* Returns the bytes of this process without parameters and optimizer states; in a simulation, those of the simulated process. */
double sgrad__run_process_memory(const struct sgrad__run *run);
/* Measures them for run->batch, without a file. Returns them if MOVED homes are in the file. */
void sgrad__run_measure_memory(struct sgrad__run *run);
struct sgrad__memory_use sgrad__run_memory_use(const struct sgrad__run *run, int moved);

/* ---- gpu_limit.c: --gpu-memory, --spill ram: the same for this rank's GPU; called by the functions of limit.c ---- */

int sgrad__run_check_gpu_limit(const struct sgrad__run *run);
struct sgrad__memory_limit sgrad__run_gpu_limit(void);      /* without a number of bytes */
int sgrad__run_open_gpu_limit(struct sgrad__run *run);
/* Returns the bytes on the GPU of run ARG that steps cannot use, with an evaluation, if MOVED homes are in main memory. */
struct sgrad__memory_use sgrad__run_gpu_memory_use(void *arg, int moved);
/* Logs and returns an error that names the lowest possible limit. */
int sgrad__run_refuse_gpu(const struct sgrad__limit_search *search);

#endif
