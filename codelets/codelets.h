/* codelets.h: the operations of neural networks. Each operation is one source file and one line of codelets.def.
 *
 * An *operation* is a record (struct sgrad_op). It contains the rule that infers the output shape from the input shapes, and
 * the tasks that compute the forward and the backward pass. A *task* is a kernel (struct sgrad_kernel, runtime.h) and the
 * roles of the kernel's operands. The code that builds a training program iterates over these records; it does not depend on
 * the names of the operations. The complete record of y = max(x, 0):
 *
 *     static void forward(const struct sgrad_args *a)  { … reads a->data[0], writes a->data[1] … }
 *     static void backward(const struct sgrad_args *a) { … reads a->data[0], a->data[1], writes a->data[2] … }
 *
 *     const struct sgrad_op sgrad_relu_op = {
 *         .name = "relu", .summary = "rectified linear unit, y = max(x, 0)", .inputs = 1, .infer = sgrad_infer_same,
 *         .forward  = { { { .name = "relu forward",  .kind = &sgrad_forward_kind,  .cpu = forward },
 *                         { SGRAD_IN(X, 0), SGRAD_OUT(Y, 0) } } },
 *         .backward = { { { .name = "relu backward", .kind = &sgrad_backward_kind, .cpu = backward },
 *                         { SGRAD_IN(Y, 0), SGRAD_IN(DY, 0), SGRAD_OUT(DX, 0) } } },
 *         .tests = { { "7 samples of 5", .x = { { 2, { 7, 5 } } } } },
 *     };
 *
 * Letters in shapes: N is the number of samples. H, W, C are height, width and channels of the input; P, Q, K are those of the
 * output. R, S are height and width of the filter. Activations are channels-last, (N,H,W,C); dim[0] is always the sample.
 * Filters are (K,R,S,C/groups). Volumes have one more dimension: D slices of the input, O slices of the output, T slices of
 * the filter. Their shapes are (N,D,H,W,C), (N,O,P,Q,K) and (K,T,R,S,C/groups).
 *
 * Micro-batches, groups, steps. A batch is divided into micro-batches, and a SGRAD_MICRO task runs once per micro-batch. An
 * operation that needs sums over more samples than a micro-batch has (batch norm) writes its micro-batch's partial sum to
 * PARTIAL i. The program adds the partial sums over the *group* in a fixed tree and passes the result to later tasks of the
 * operation as SUM i. A task may also run once per group (SGRAD_GROUP; it may write only DP and STAT) or once per step
 * (SGRAD_STEP). DP i and STAT i are added over the whole step, and over the ranks, in the same manner. A task only ever
 * writes its own term of such a sum.
 *
 * Ranks. A task may be a *move* (enum sgrad_move) instead of a kernel: it moves a value between the ranks along an axis of the
 * mesh (collectives.h). In the forward pass it moves from X of every rank to Y of every rank. In the backward pass it is the
 * transpose, from DY of every rank to DX of every rank, for a loss that is the sum of the losses of all ranks. Therefore
 * all_gather and reduce_scatter are each other's backward, so are broadcast and reduce, and all_reduce is its own.
 *
 * Accumulation. DX may be written by several readers of the same value. If bit j of args->accumulate is set, operand j must be
 * added to, not overwritten. (Example: of y = add(x, relu(x)) the backward task of add runs first and overwrites the gradient
 * of x; the one of relu then adds to its operand 2.) All other W operands are overwritten. Exception: on CPUs, kernels with
 * .accumulates set must also honour the bits of DP, PARTIAL and STAT.
 *
 * Independent samples. A SGRAD_MICRO task computes each sample independently: a sample's rows of Y and DX depend only on its
 * rows of X, DY and SAVED, and on operands without samples (P, SUM). So the task may be called on a slice of the samples.
 *
 * Recomputation. In a layer that is recomputed (sgrad_graph_recompute), forward tasks that write Y or SAVED run a second time,
 * during the backward pass. Therefore they must not change S. Their writes to PARTIAL and STAT count only once.
 *
 * Precision. X, Y, DX and DY have the run's compute type (F32 or BF16: see view[i].dtype), except inputs without gradient,
 * which have input_dtype. P, DP and S are F32. PARTIAL, SUM and STAT are F64. SAVED has the type that the operation sets. */
#ifndef SGRAD_CODELETS_CODELETS_H
#define SGRAD_CODELETS_CODELETS_H

#include "runtime/collectives.h"
#include "runtime/philox.h"
#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of tasks of a training program; a kind is the task's label and colour in traces and plots. */
extern const struct sgrad_kind sgrad_forward_kind, sgrad_backward_kind, sgrad_reduction_kind, sgrad_update_kind, sgrad_input_kind;
extern const struct sgrad_kind *const sgrad_kinds[];    /* all of them; ends with NULL */

/* The role of a task's operand. The index i of a role is struct sgrad_use.index. */
enum sgrad_role {
    SGRAD_NONE,
    SGRAD_X,        /* input i */
    SGRAD_Y,        /* the output */
    SGRAD_P,        /* parameter i, trained */
    SGRAD_S,        /* state i: retained between steps, not trained (running statistics) */
    SGRAD_SAVED,    /* value i that forward saves for backward, per micro-batch */
    SGRAD_PARTIAL,  /* this micro-batch's partial sum i */
    SGRAD_SUM,      /* sum i over the group */
    SGRAD_STAT,     /* written: this task's term of statistic i; read: its sum over the step; only SGRAD_STEP tasks read it */
    SGRAD_DX,       /* gradient of the loss with respect to X i */
    SGRAD_DY,       /* the same with respect to Y */
    SGRAD_DP,       /* the same with respect to P i */
    SGRAD_SHARD,    /* a value split over ranks: the shard of rank i on the axis; for the next task of the same operation */
    SGRAD_DSHARD,   /* of a task that is executed in a ring: the gradient of SHARD 0, F32 */
};
enum sgrad_scope { SGRAD_MICRO, SGRAD_GROUP, SGRAD_STEP };      /* A task runs once per micro-batch, group or step. */

/* How a task without a kernel moves a value, use[0], to use[1], between the ranks along an axis of the mesh. In REDUCE_SCATTER
 * and SLICE use[0] is SHARD 0, which stands for the shards of all ranks; in ALL_GATHER and PAD use[1] is. */
enum sgrad_move {
    SGRAD_MOVE_NONE,            /* no move: the task runs its kernel */
    SGRAD_MOVE_ALL_REDUCE,      /* every rank gets the sum over all ranks */
    SGRAD_MOVE_REDUCE_SCATTER,  /* from SHARD: every rank gets the sum of its own shard */
    SGRAD_MOVE_ALL_TO_ALL,      /* from SHARD to SHARD: rank i sends its shard j to rank j, whose shard i replaces it */
    SGRAD_MOVE_ALL_GATHER,      /* to SHARD: every rank gets the shards of all ranks */
    SGRAD_MOVE_SLICE,           /* from SHARD: every rank has all shards and retains its own; no communication */
    SGRAD_MOVE_PAD,             /* to SHARD: every rank gets its own shard, and zeros for the others; no communication */
    SGRAD_MOVE_REDUCE,          /* the root gets the sum over all ranks; the others get zeros */
    SGRAD_MOVE_BROADCAST,       /* every rank gets the root's value */
    SGRAD_MOVE_SHIFT,           /* every rank gets the value of the previous rank; the first rank, that of the last */
    SGRAD_MOVE_UNSHIFT,         /* every rank gets the value of the next rank; the last rank, that of the first */
};

/* The positions of a rank's rows in a sample that is split over the N ranks of an axis so that causal attention is balanced: of
 * 2·N chunks of HALF rows, rank r has chunks r and 2·N-1-r. Row t has position t + EARLY if t < half, else t + LATE. All 0: the
 * rank has the whole sample. */
struct sgrad_zigzag {
    int half, early, late;
};
static inline int64_t sgrad_zigzag_position(const struct sgrad_zigzag *rows, int64_t t) {
    return t + (t < rows->half ? rows->early : rows->late);
}

/* One operand of a task. */
struct sgrad_use {
    enum sgrad_role role;
    int index;
    enum sgrad_access access;
    bool if_recomputed;               /* present only in backward tasks that get no Y, because y is cheap to recompute: see
                                 * struct sgrad_signature.cheap_to_recompute */
    bool factor;                /* a weight converted once per step, not by every task: on GPUs it is rounded to bf16 if
                                 * activations are bf16; on CPUs it is packed in the layout of the kernel's .pack_layout */
};
#define SGRAD_IN(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_R }
#define SGRAD_IN_PASSING(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_R, .if_recomputed = true }
#define SGRAD_IN_FACTOR(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_R, .factor = true }
#define SGRAD_OUT(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_W }
#define SGRAD_INOUT(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_RW }

/* Returns true if operand I must be added to, not overwritten. */
static inline bool sgrad_adds(const struct sgrad_args *args, int i) { return args->accumulate >> i & 1; }

/* A kernel that follows another one within one GPU task; a candidate for fusion (struct sgrad_kernel.cuda_fused). */
struct sgrad_next {
    const struct sgrad_kernel *kernel;
    const struct sgrad_args *args;
    bool sole_consumer;                                 /* this kernel is the only consumer of an output of its predecessor */
};

struct sgrad_task {
    struct sgrad_kernel kernel;                 /* of a move only its name and kind are used */
    struct sgrad_use use[SGRAD_MAX_OPERANDS];   /* operand j of the kernel; ends at SGRAD_NONE */
    enum sgrad_scope scope;
    enum sgrad_move move;
    /* The kernel is executed for each shard: first with SHARD 0 of this rank, then with that of the previous rank along the axis,
     * and so on, while shards travel to the next rank. Outputs Y, SAVED and DX of later executions are added to (accumulate).
     * DSHARD is written in each; afterwards it is the sum over all ranks of the gradients of this rank's shard. */
    bool ring;
};

/* Constants of all steps of a program: numbers of samples. */
struct sgrad_batch {
    int64_t samples;            /* of the whole batch, over all ranks; a sample that several ranks compute counts once per rank */
    int64_t group;              /* over which group sums are taken */
    int64_t averaged;           /* over which a step averages the gradient; the whole batch if all ranks step synchronously */
};

struct sgrad_sample;
/* Constants of all tasks of one step. */
struct sgrad_step {
    uint64_t seed;
    uint32_t number;            /* 1 is the first optimizer step of the run */
    uint32_t epoch;             /* 0 is the first */
    bool training;
    float stop;                 /* 1: this rank requests the end of the run; above 0, below 1: it requests a checkpoint; else 0 */
    float lr;                 /* learning rate */
    float damping;              /* of second-order training (K-FAC) */
    const struct sgrad_sample *sample;  /* every sample of this rank's local batch (datasets.h); only reading needs it */
    int64_t first;              /* index in the whole batch of sample[0]; in text generation: of the token in the text */
    float weight_scale;         /* factor that makes the mean class weight of the whole batch 1; 0: 1 */
    float lr_share;             /* γ² of this step by the sum of γ² of all steps so far; γ: as in schedulefree.c. 0: not needed */
};
#ifdef __cplusplus
static_assert(sizeof(struct sgrad_step) == SGRAD_STEP_BYTES, "a step's size is the runtime's");
#else
_Static_assert(sizeof(struct sgrad_step) == SGRAD_STEP_BYTES, "a step's size is the runtime's");
#endif

/* Initial values of a parameter. FAN is the number of inputs of one unit; for SGRAD_HE it may be the number of outputs, as the
 * operation chooses. */
enum sgrad_init {
    SGRAD_ZEROS,
    SGRAD_ONES,         /* 1; deviation, if that is not 0 */
    SGRAD_UNIFORM,      /* U(-1/sqrt(fan), 1/sqrt(fan)): PyTorch's default for weights and biases */
    SGRAD_HE,           /* N(0, 2/fan): He et al. 2015 */
    SGRAD_NORMAL,       /* N(0, deviation²) */
    SGRAD_DIRAC,        /* of filters (K,R,S,C) the first C copy one channel each (torch.nn.init.dirac_); the rest as UNIFORM */
    SGRAD_WHITENING,    /* for the layer that reads the images: computed from them, see whitening.h; without images as UNIFORM */
};
/* Layout of a parameter in files (PyTorch's) if it differs from the layout in memory.
 * SGRAD_AS_IS: the same. SGRAD_OIHW: OIHW or OIDHW in files, OHWI or ODHWI in memory. SGRAD_TRANSPOSED: (C,K) in files, (K,C)
 * in memory. SGRAD_STACKED: (E,K,C) in memory, E tensors (K,C) in files: "experts.*.weight" is experts.0.weight,
 * experts.1.weight and so on. */
enum sgrad_file_layout { SGRAD_AS_IS, SGRAD_OIHW, SGRAD_TRANSPOSED, SGRAD_STACKED };

#define SGRAD_MAX_INPUTS 8
#define SGRAD_MAX_PARAMETERS 4
#define SGRAD_MAX_WEIGHTED 8        /* classes to which a loss can assign weights */
#define SGRAD_MAX_FREQUENCIES 256   /* pairs of features of a head with rotary positions */
struct sgrad_parameter {
    const char *name;           /* appended to the layer's name and a dot: "weight" */
    struct sgrad_shape shape;
    enum sgrad_dtype dtype;     /* F32; a state may be I64 (num_batches_tracked), also in memory */
    enum sgrad_init init;
    double fan, deviation;      /* parameters of init, if it uses them */
    enum sgrad_file_layout layout;
    bool unsaved;               /* true: this state is not written to files */
    const float *values;        /* initial values, of a state; must remain valid until memory is allocated; NULL: as init */
};

/* Arguments and results of the shape rule (struct sgrad_op.infer). dim[0] of x[i].shape and y.shape is the size of the
 * micro-batch. */
struct sgrad_signature {
    const char *layer;                              /* for messages: "layer1.0.conv1" */
    int inputs;
    struct sgrad_view x[SGRAD_MAX_INPUTS];
    struct sgrad_view y;                            /* on entry dtype is x[0].dtype; the rule sets the shape */
    struct sgrad_parameter p[SGRAD_MAX_PARAMETERS], s[SGRAD_MAX_PARAMETERS];    /* parameters, states; end at name NULL */
    struct sgrad_view saved[SGRAD_MAX_PARAMETERS];  /* of SAVED i; ends at rank 0; dim[0] is the micro-batch */
    struct sgrad_shape partial[SGRAD_MAX_PARAMETERS];  /* of PARTIAL i and SUM i (F64); ends at rank 0 */
    struct sgrad_shape stat[SGRAD_MAX_PARAMETERS];  /* of STAT i (F64); ends at rank 0 */
    bool view_of_input;                             /* y is x[0] with another shape: no tasks run */
    bool cheap_to_recompute;                        /* y is cheap to recompute from x[0], which is saved for backward. CPU
                                                     * consumers recompute it inline in backward instead of loading it; on
                                                     * GPUs this operation's own backward tasks do not read Y */
    /* Moves between ranks. The rule reads the mesh and sets the axis, the root where there is one, and the shard. */
    const struct sgrad_mesh *mesh;                  /* NULL: no mesh */
    const struct sgrad_axis *axis;                  /* NULL: the operation does not move values */
    int root;                                       /* index on the axis of the root's rank */
    struct sgrad_view shard;                        /* of one rank's shard */
    double shard_use;                               /* expected fraction of its bytes that a message has; 0: all */
};

/* One test shape. The gradient test, the device test and the benchmarks run every operation on each row of its table.
 * Input values are drawn from N(0,1); operations whose inputs are not plain activations set them with struct sgrad_op.fill. */
struct sgrad_test {
    const char *name;                           /* NULL ends the table */
    struct sgrad_shape x[SGRAD_MAX_INPUTS];
    const void *attrs;                          /* the operation's attributes */
};

/* A metric that a loss computes over its samples. An operation with metrics is a loss. Its STAT 0 contains one sum per metric,
 * over all rows of the samples or over all elements, and as its last element the number of these rows or elements. Metric i is
 * sum i divided by that number. Metric 0 is the loss itself. The length of STAT 0 minus 1 is the number of metrics in use: with
 * few classes the record's last ones (top-5 accuracy) may be unused. */
#define SGRAD_MAX_METRICS 8
struct sgrad_metric {
    const char *name;                   /* in files: "top1" */
    const char *text;                   /* in printed lines: "top-1" */
    const char *title;                  /* of a table or a plot: "accuracy" */
    bool is_fraction;                         /* a fraction, shown in %; larger is better. false: a number; smaller is better */
    double (*transform)(double mean);          /* returns the reported value for a mean; NULL: the mean itself */
    bool in_target_units;                    /* the reported value is in the unit of the target, also if the target is scaled */
    bool unprefixed;                         /* metrics.jsonl also has it under its own name, without "test_" */
    bool by_class;                      /* not of the loss: computed from the predictions of a whole evaluation, by class */
};

/* How a linear layer takes patches from its input: its output is parameter 0 times the patches, plus parameter 1. Patches are
 * square, kernel x kernel pixels; all fields mean the same as in conv2d.c. kernel 0: the inputs are not images, and each row of
 * the input is a patch. */
struct sgrad_patches {
    int kernel, stride, padding, dilation, groups;
};

/* The record of an operation. Errors of its functions are SGRAD_E… codes, which they log (sgrad_log_error). */
#define SGRAD_MAX_TASKS 4
#define SGRAD_MAX_TESTS 24
#define SGRAD_ONNX_OPSET 20
struct sgrad_op {
    const char *name, *summary;
    const char *source;                 /* paper or document of the method, or NULL */
    int inputs;                         /* minimum number of inputs */
    int optional_inputs;                /* maximum number of further inputs */
    size_t attrs_size;                  /* bytes */
    unsigned no_gradient;               /* bit i: input i has no gradient (labels, images) */
    enum sgrad_dtype input_dtype[SGRAD_MAX_INPUTS];    /* of inputs with no_gradient; U8 also allows U16: see the view */
    /* Checks attributes and inputs; sets y, p, s, saved, partial and stat. May replace attributes that are 0 by their defaults:
     * ATTRS is the node's own copy. Returns 0, SGRAD_ESHAPE or SGRAD_EINVAL; messages must name s->layer and the shapes. */
    int (*infer)(struct sgrad_signature *s, void *attrs);
    /* Completes ATTRS for RANK of s->mesh. For operations that need to know which shard of a sample a rank has; else NULL. */
    void (*set_rank)(const struct sgrad_signature *s, int rank, void *attrs);
    /* Completes ATTRS, a copy, for the shard of the rank with index PLACE on the axis: for tasks in a ring; else NULL. */
    void (*set_shard)(int place, void *attrs);
    void (*describe)(const void *attrs, char *text, size_t size);   /* writes "3x3 stride 2 pad 1"; NULL: no description */
    struct sgrad_patches (*patches)(const void *attrs);     /* NULL: not a linear layer on patches (struct sgrad_patches) */
    /* Writes the layer as ONNX nodes of opset SGRAD_ONNX_OPSET in ONNX's text syntax, one per line: "y = Relu (x)". Attention,
     * RMSNormalization and RotaryEmbedding of opset 23 are also allowed. See docs/guides/onnx.md. Writes nothing if this layer
     * has no ONNX form. NULL: the operation has none. */
    void (*onnx)(const struct sgrad_signature *s, const void *attrs, FILE *to);
    struct sgrad_task forward[SGRAD_MAX_TASKS];     /* ends at kernel.name NULL, like the other tasks */
    struct sgrad_task backward[SGRAD_MAX_TASKS];
    struct sgrad_task inference[SGRAD_MAX_TASKS];   /* forward outside training; empty: same as forward */
    struct sgrad_task finish[SGRAD_MAX_TASKS];      /* SGRAD_STEP tasks on S and STAT, at the end of a training step */
    void (*fill)(const struct sgrad_test *test, int input, void *data);     /* sets test values of an input (F32, input_dtype) */
    struct sgrad_metric metrics[SGRAD_MAX_METRICS + 1]; /* of a loss; ends at name NULL */
    bool not_differentiable;            /* the gradient test skips it */
    struct sgrad_test tests[SGRAD_MAX_TESTS];
};

/* Shape rule of many operations: y and every input have the shape of x[0]. Returns SGRAD_ESHAPE if the inputs differ. */
int sgrad_infer_same(struct sgrad_signature *signature, void *attrs);

/* The attributes of an operation, struct sgrad_NAME, and its record, sgrad_NAME_op, are declared in codelets/ops/NAME.h, which
 * the build generates from the operation's line of codelets.def. codelets/operations.h includes all of these headers. */
extern const struct sgrad_op *const *sgrad_ops;         /* all of codelets.def and of plug-ins; ends with NULL */
const struct sgrad_op *sgrad_op_find(const char *name);  /* returns NULL if there is no such operation */

/* Kernels that the training program uses between layers. They are not operations, so codelets.def does not list them. */

/* out = ((0+1)+(2+3)) + ((4+5)+(6+7)); absent inputs are left out. Operands: 0…7 the inputs (R), 8 the output (W). Input 0 must
 * be present, and so must the first of each pair and of each four of which any is present. All are F32, or all F64, and of one
 * shape. Exception: with attributes (struct sgrad_sum) input k may be longer; as many of its elements as the output has are
 * added, from element first[k] on. */
extern const struct sgrad_kernel sgrad_sum_kernel;
#define SGRAD_SUM_INPUTS 8
struct sgrad_sum {
    int64_t first[SGRAD_SUM_INPUTS];    /* elements */
};
static inline int64_t sgrad_sum_first(const struct sgrad_args *args, int input) {
    return args->attrs ? ((const struct sgrad_sum *)args->attrs)->first[input] : 0;
}

/* out[to + i] = in[from + i] for i < count, for the segment of each input; -0, the neutral element of sums, where a segment's
 * input is absent. Operands: 0…13 the inputs (R), 14 the output (W or RW); of any shapes, all F32 or all F64. Attributes:
 * struct sgrad_copy. */
#define SGRAD_COPY_INPUTS 14
struct sgrad_copy_block {
    int64_t from, to, count;        /* elements; count 0: no segment */
};
struct sgrad_copy {
    struct sgrad_copy_block block[SGRAD_COPY_INPUTS];
};
extern const struct sgrad_kernel sgrad_copy_kernel;

/* Computes nothing: the task runs after the tasks before it that use its operands, and those after it wait for it. Operands: of
 * any type and shape (R, W or RW); W leaves the content undefined. CPUs only. */
extern const struct sgrad_kernel sgrad_wait_kernel;
extern const struct sgrad_kernel sgrad_round_kernel;    /* rounds a parameter to bf16; operands: F32 (R), BF16 (W) */

/* Packs a parameter in the layout that the tasks of a bound kernel use (struct sgrad_kernel.pack). Attributes: that
 * struct sgrad_bound_kernel. Operands: F32 (R), U8 (W). CPUs only. */
extern const struct sgrad_kernel sgrad_pack_kernel;

/* Split a value into shards, and concatenate them, along the dimension in which the shards are shorter. Operands of cut: 0 the
 * value (R), 1…8 its shards (W). Operands of join: 0…7 the shards (R), 8 the value (W or RW). Operands after the last shard are
 * absent. F32. CPUs only, because shards are sent or received as messages. */
extern const struct sgrad_kernel sgrad_cut_kernel, sgrad_join_kernel;

/* out = Σ x², one tensor's term of norm = sqrt(Σ x²) over all. Operands: x F32 (R), out F64[1] (W). */
extern const struct sgrad_kernel sgrad_squared_norm_kernel;

/* out = Σ x·y. Operands: x, y F32 of one shape (R), out F64[1] (W). */
extern const struct sgrad_kernel sgrad_inner_product_kernel;

/* out.bucket[i] is the number of elements x with limit[i - 1] <= x < limit[i], the limits being sgrad_histogram_limits().
 * NaN and infinities are left out. If there is no finite element, all fields are 0. Operands: 0 x F32 (R), 1 out
 * F64[SGRAD_HISTOGRAM] (W), a struct sgrad_histogram. CPUs only. */
enum { SGRAD_HISTOGRAM_BUCKETS = 1551, SGRAD_HISTOGRAM = 5 + SGRAD_HISTOGRAM_BUCKETS };
struct sgrad_histogram {
    double min, max, count, sum, sum_squares;
    double bucket[SGRAD_HISTOGRAM_BUCKETS];
};
/* Returns SGRAD_HISTOGRAM_BUCKETS ascending limits, those of TensorFlow's histograms; the last is the largest double. Must not
 * be freed. */
const double *sgrad_histogram_limits(void);
extern const struct sgrad_kernel sgrad_histogram_kernel;

/* An algorithm for a task of a convolution or an inner product on this machine's CPUs. */
struct sgrad_algorithm {
    const char *name;               /* "winograd" */
    double seconds, bytes;          /* best time for all samples on one core (INFINITY: not available here); workspace */
};
enum { SGRAD_MAX_ALGORITHMS = 6 };
struct sgrad_bound_kernel;
/* Measures the task of CALL, on generated data, on one core with each algorithm; blocks until that is done. Returns the number
 * of array elements that it wrote; 0: CALL is not a task of a convolution or an inner product. */
int sgrad_kernel_algorithms(const struct sgrad_bound_kernel *call, struct sgrad_algorithm algorithm[SGRAD_MAX_ALGORITHMS]);

/* Hyperparameters of one parameter's update; the optimizers' kernels are declared in codelets/updates.h. */
struct sgrad_hyper {
    float momentum, weight_decay, beta1, beta2, eps, trust;     /* trust: trust coefficient of LARS */
    float clip_norm;        /* largest norm of all gradients together; 0: no clipping (torch.nn.utils.clip_grad_norm_) */
    float kl_clip;          /* κ of second-order training: kfac.c; 0: no clipping */
    float lr_scale;             /* learning-rate multiplier; 0: 1 */
    bool nesterov;
    int every;              /* steps between two decompositions of SOAP (soap.c); 0: its default */
};

#ifdef __cplusplus
}
#endif
#endif
