/* codelets.h: the operations of neural networks, each one file and one line of codelets.def.
 *
 * An *operation* is a record: how shapes follow from shapes, and the tasks that compute its forward and its backward
 * pass. A *task* is a kernel (runtime.h) and the roles its operands play. Whoever builds a training program walks the
 * records; nobody knows an operation by name. The whole of y = max(x, 0):
 *
 *     static void forward(const struct sgrad_args *a)  { … a->data[0] to a->data[1] … }
 *     static void backward(const struct sgrad_args *a) { … a->data[0], a->data[1] to a->data[2] … }
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
 * Letters in shapes: N samples, H W C height, width, channels of the input, P Q K of the output, R S of the filter.
 * Activations are channels-last, (N,H,W,C); dim[0] is always the sample. Filters are (K,R,S,C/groups). Volumes have a dimension
 * more: D slices of the input, O of the output, T taps of the filter: (N,D,H,W,C), (N,O,P,Q,K), (K,T,R,S,C/groups).
 *
 * Micro-batches, groups, the step. A batch is computed as micro-batches; a task runs once per micro-batch (SGRAD_MICRO).
 * An operation that needs sums over more samples (batch norm) writes its micro-batch's part to PART i; the program adds
 * the parts over the *group* in a fixed tree and hands the result to later tasks of the operation as SUM i. A task may
 * run once per group (SGRAD_GROUP; it may write DP and STAT alone) or once per step (SGRAD_STEP). DP i and STAT i are added
 * over the whole step, and over the ranks, in the same way: a task only ever writes its own leaf.
 *
 * Ranks. A task may be a move of a value between the ranks along an axis of the mesh (collectives.h): forward from every rank's X
 * to every rank's Y, and backward, from every DY to every DX, its transpose, for a loss that is the sum of what all ranks
 * compute. So all_gather and reduce_scatter are each other's backward, broadcast and reduce too, and all_reduce is its own.
 *
 * Accumulation: DX may be shared with another reader of the same value: bit j of args->accumulate says that operand j is to be
 * added to, not overwritten. (Of y = add(x, relu(x)), add's backward comes first and overwrites x's gradient; relu's adds, to
 * operand 2.) Everything else that is W is overwritten, but by kernels that say .adds: on CPUs they heed the
 * bits of DP, PART and STAT, too.
 *
 * A SGRAD_MICRO task does each sample by itself: its rows of X, DY and KEEP, and what is no samples' (P, SUM), lead to its rows
 * of Y and DX. So it may be called on a few samples at a time.
 *
 * Of a layer that is computed again (sgrad_graph_recompute), forward tasks that leave Y or KEEP run twice, the second time in
 * backward. So they change no S; what they write to PART and STAT counts once.
 *
 * Precision: X, Y, DX, DY are of the run's compute type (F32 or BF16: see view[i].dtype), but for inputs without gradient, which
 * are of input_dtype; P, DP, S are F32; PART, SUM, STAT are F64; KEEP is what the operation says. */
#ifndef SGRAD_CODELETS_H
#define SGRAD_CODELETS_H

#include "runtime/collectives.h"
#include "runtime/philox.h"
#include "runtime/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What tasks of a training program do. */
extern const struct sgrad_kind sgrad_forward_kind, sgrad_backward_kind, sgrad_reduction_kind, sgrad_update_kind, sgrad_input_kind;
extern const struct sgrad_kind *const sgrad_kinds[];    /* all of them; ends with NULL */

enum sgrad_role {
    SGRAD_NONE,
    SGRAD_X,        /* input i */
    SGRAD_Y,        /* the output */
    SGRAD_P,        /* parameter i, trained */
    SGRAD_S,        /* state i, kept from step to step, not trained (running statistics) */
    SGRAD_KEEP,     /* what forward i leaves for backward, per micro-batch */
    SGRAD_PART,     /* this micro-batch's part of sum i */
    SGRAD_SUM,      /* sum i over the group */
    SGRAD_STAT,     /* written: this task's part of statistic i; read (SGRAD_STEP tasks): its sum over the step */
    SGRAD_DX,       /* gradient of the loss with respect to X i, to Y, to P i */
    SGRAD_DY,
    SGRAD_DP,
    SGRAD_PIECE,    /* of a value that ranks share: place i's, for the next task of the operation */
};
enum sgrad_scope { SGRAD_MICRO, SGRAD_GROUP, SGRAD_STEP };

/* What the ranks along an axis of the mesh do with a value, in place of a kernel's work: use[0] is moved to use[1]. */
enum sgrad_move {
    SGRAD_STAY,             /* nothing: a task as others */
    SGRAD_ADD_ALL,          /* every place gets the sum over all */
    SGRAD_ADD_PIECES,       /* PIECE: every place gets the sum of its own */
    SGRAD_GATHER_PIECES,    /* to PIECE: every place gets all */
    SGRAD_TAKE_OWN,         /* PIECE: every place has all, and keeps its own */
    SGRAD_PUT_OWN,          /* to PIECE: every place has its own, the others are zeros */
    SGRAD_ADD_AT_ROOT,      /* the root gets the sum over all, the others zeros */
    SGRAD_COPY_ROOT,        /* every place gets the root's */
    SGRAD_TO_NEXT,          /* every place gets the one's before, the first the last's */
    SGRAD_TO_BEFORE,        /* every place gets the next one's, the last the first's */
};

struct sgrad_use {
    enum sgrad_role role;
    int index;
    enum sgrad_access access;
    bool passing;               /* there only where y is made again in passing, and Y is not: see the signature */
    bool factor;                /* once a step, not by every task, GPUs have it rounded to bf16 where activations are, and CPUs
                                   packed as .packing of the kernel says */
};
#define SGRAD_IN(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_R }
#define SGRAD_IN_PASSING(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_R, .passing = true }
#define SGRAD_IN_FACTOR(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_R, .factor = true }
#define SGRAD_OUT(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_W }
#define SGRAD_INOUT(what, i) { .role = SGRAD_##what, .index = i, .access = SGRAD_RW }

/* Is operand I added to, not overwritten? */
static inline bool sgrad_adds(const struct sgrad_args *args, int i) { return args->accumulate >> i & 1; }

/* What comes right behind a kernel, within a task of a GPU. */
struct sgrad_next {
    const struct sgrad_kernel *kernel;
    const struct sgrad_args *args;
    bool alone;                                 /* it takes something of what the one before it leaves, which nobody else does */
};

struct sgrad_task {
    struct sgrad_kernel kernel;                 /* of a move its name and kind alone */
    struct sgrad_use use[SGRAD_MAX_OPERANDS];   /* operand j of the kernel; ends at SGRAD_NONE */
    enum sgrad_scope scope;
    enum sgrad_move move;
};

/* What all steps of a program do: samples. */
struct sgrad_batch {
    int64_t samples;            /* of the whole batch, over all ranks: each as often as ranks have it */
    int64_t group;              /* over which group sums were taken */
    int64_t averaged;           /* of which the step takes the mean: the batch, where all ranks go in step */
};

/* What all tasks of one step share. */
struct sgrad_step {
    uint64_t seed;
    uint32_t number;            /* 1 is the first optimizer step of the run */
    uint32_t epoch;             /* 0 is the first */
    bool training;
    float stop;                 /* 1: this rank was asked to end the run; less: it wants a checkpoint; 0: neither */
    float rate;                 /* learning rate */
    float damping;              /* of second-order training */
    const int64_t *sample;      /* index in the data set of every sample of this rank's part of the batch */
    int64_t first;              /* index, in the whole batch, of sample[0] */
};
#ifdef __cplusplus
static_assert(sizeof(struct sgrad_step) == SGRAD_STEP_BYTES, "a step's size is the runtime's");
#else
_Static_assert(sizeof(struct sgrad_step) == SGRAD_STEP_BYTES, "a step's size is the runtime's");
#endif

/* How a parameter starts. FAN is the number of inputs (or, for SGRAD_HE, outputs, as the operation chooses) of one unit. */
enum sgrad_init {
    SGRAD_ZEROS,
    SGRAD_ONES,
    SGRAD_UNIFORM,      /* U(-1/sqrt(fan), 1/sqrt(fan)): PyTorch's default for weights and biases */
    SGRAD_HE,           /* N(0, 2/fan): He et al. 2015 */
    SGRAD_NORMAL,       /* N(0, deviation²) */
    SGRAD_DIRAC,        /* as UNIFORM, but of filters (K,R,S,C) the first C pass on a channel each (torch.nn.init.dirac_) */
    SGRAD_WHITENING,    /* of a layer that takes the images, as whitening.h has it; where no images are at hand, as UNIFORM */
};
/* How a parameter lies in files (PyTorch's layout) as against memory. */
/* OIHW, or OIDHW: memory is OHWI, or ODHWI; TURNED: (C,K), memory is (K,C) */
enum sgrad_file_layout { SGRAD_AS_IS, SGRAD_OIHW, SGRAD_TURNED };

#define SGRAD_MAX_INPUTS 8
#define SGRAD_MAX_PARAMETERS 4
#define SGRAD_MAX_WEIGHTED 8        /* classes that a loss can give weights */
struct sgrad_parameter {
    const char *name;           /* after the layer's name and a dot: "weight" */
    struct sgrad_shape shape;
    enum sgrad_dtype dtype;     /* F32; a state may be I64 (num_batches_tracked), in memory too */
    enum sgrad_init init;
    double fan, deviation;
    enum sgrad_file_layout layout;
    bool unsaved;               /* a state that goes to no file */
};

/* What the shape rule is told and what it answers. x[i].shape.dim[0] and y.shape.dim[0] are the micro-batch. */
struct sgrad_signature {
    const char *layer;                              /* for messages: "layer1.0.conv1" */
    int inputs;
    struct sgrad_view x[SGRAD_MAX_INPUTS];
    struct sgrad_view y;                            /* dtype comes as x[0].dtype; the rule fills the shape */
    struct sgrad_parameter p[SGRAD_MAX_PARAMETERS], s[SGRAD_MAX_PARAMETERS];    /* end at name NULL */
    struct sgrad_view keep[SGRAD_MAX_PARAMETERS];   /* rank 0 ends; dim[0] is the micro-batch */
    struct sgrad_shape part[SGRAD_MAX_PARAMETERS];  /* rank 0 ends; of PART, SUM i (F64) */
    struct sgrad_shape stat[SGRAD_MAX_PARAMETERS];  /* rank 0 ends; of STAT i (F64) */
    bool view_of_input;                             /* y is x[0] with another shape: no tasks run */
    bool passing;                                   /* y is a pass over x[0], which backward keeps: where tasks that take it in
                                                     * backward make it again in passing, and on GPUs, backward's own do
                                                     * without Y */
    /* Moves between ranks. The rule is told the mesh (NULL: there is none) and names the axis, perhaps a place on it, and what of
     * the value is one place's. */
    const struct sgrad_mesh *mesh;
    const struct sgrad_axis *axis;
    int root;
    struct sgrad_view piece;
};

/* One test shape: the gradient test, the device test and the benchmarks run every operation on each of its rows.
 * Input values are drawn from N(0,1); operations whose inputs are not plain activations fill them with FILL. */
struct sgrad_test {
    const char *name;                           /* NULL ends the table */
    struct sgrad_shape x[SGRAD_MAX_INPUTS];
    const void *attrs;
};

/* What a loss tells of the samples that it saw. An operation with metrics is a loss: its STAT 0 is sums over all rows of the
 * samples, or over all elements, and last how many these are. Metric i is sum i divided by that; the first is the loss itself.
 * There are as many as STAT 0 has room for: of the five best of ten classes nobody asks. */
#define SGRAD_MAX_METRICS 5
struct sgrad_metric {
    const char *name;                   /* in files: "top1" */
    const char *text;                   /* in a line: "top-1" */
    const char *title;                  /* of a table or a picture: "accuracy" */
    bool share;                         /* of all, which is shown in %, and the more the better; else the less the better */
    double (*of)(double mean);          /* what is told, of the mean; NULL: the mean itself */
    bool plain;                         /* in metrics.jsonl by its own name, too, without "test_" */
};

/* How a layer whose outputs are its first parameter times patches of its input, and its second parameter more, takes them: square
 * ones of so many taps, stride and all as conv2d.c has them. kernel 0: there are no images, each row of the input is a patch. */
struct sgrad_patches {
    int kernel, stride, padding, dilation, groups;
};

#define SGRAD_MAX_TASKS 4
#define SGRAD_MAX_TESTS 24
#define SGRAD_ONNX_OPSET 20
struct sgrad_op {
    const char *name, *summary;
    const char *source;                 /* paper or document of the method, or NULL */
    int inputs;                         /* at least this many */
    int optional_inputs;                /* and at most so many more */
    size_t attrs_size;
    unsigned no_gradient;               /* bit i: input i has no gradient (labels, images) */
    enum sgrad_dtype input_dtype[SGRAD_MAX_INPUTS];    /* of inputs with no_gradient; U8: U16 as well, as the view says */
    /* Checks attributes and inputs, fills y, p, s, keep, part, stat. Errors name s->layer and the shapes. Attributes
     * that are 0 may be replaced by their default here: ATTRS is the node's own copy. */
    int (*infer)(struct sgrad_signature *s, void *attrs);
    /* Of an operation that needs to know which part of a sample a rank has: completes ATTRS for RANK of the mesh. NULL: none. */
    void (*place)(const struct sgrad_signature *s, int rank, void *attrs);
    void (*describe)(const void *attrs, char *text, size_t size);   /* "3x3 stride 2 pad 1"; NULL: nothing to say */
    struct sgrad_patches (*patches)(const void *attrs);     /* of such a layer; NULL: it is none */
    /* Writes what the layer is as nodes of ONNX, opset SGRAD_ONNX_OPSET, in ONNX's text syntax, one a line, "y = Relu (x)":
     * docs/onnx.md. Nothing, of those that have no such form; NULL: none has. */
    void (*onnx)(const struct sgrad_signature *s, const void *attrs, FILE *to);
    struct sgrad_task forward[SGRAD_MAX_TASKS];     /* end at kernel.name NULL */
    struct sgrad_task backward[SGRAD_MAX_TASKS];
    struct sgrad_task inference[SGRAD_MAX_TASKS];   /* forward outside training; empty: forward itself */
    struct sgrad_task finish[SGRAD_MAX_TASKS];      /* SGRAD_STEP tasks on S and STAT, at the end of a training step */
    void (*fill)(const struct sgrad_test *test, int input, void *data);     /* test values of input i (F32 or its input_dtype) */
    struct sgrad_metric metrics[SGRAD_MAX_METRICS + 1]; /* of a loss; end without a name */
    bool not_differentiable;            /* the gradient test leaves it out: says why in the summary of its tests */
    struct sgrad_test tests[SGRAD_MAX_TESTS];
};

/* Shape rules that many operations share. */
int sgrad_infer_same(struct sgrad_signature *s, void *attrs);   /* y and every input have x[0]'s shape */

/* An operation's attributes, struct sgrad_<name>, and record, sgrad_<name>_op, are in codelets/ops/<name>.h, which is made from
 * its line of codelets.def; codelets/operations.h has all. */
extern const struct sgrad_op *const *sgrad_ops;         /* all of codelets.def, and of plug-ins; ends with NULL */
const struct sgrad_op *sgrad_op_find(const char *name);  /* or NULL */

/* Bookkeeping operations of the training program: not layers, so not in codelets.def. */

/* out = ((0+1)+(2+3)) + ((4+5)+(6+7)), absent inputs left out. Operands: 0…7 the inputs (R; 0 is there, and the first of each
 * pair and each four of which any is), 8 the output (W); all F32 or all F64, and of one shape; or, with attributes, the inputs
 * are at least as long as the output, which is as long as the runs that begin at their elements FIRST. */
extern const struct sgrad_kernel sgrad_sum_kernel;
#define SGRAD_SUM_INPUTS 8
struct sgrad_sum {
    int64_t first[SGRAD_SUM_INPUTS];
};
static inline int64_t sgrad_sum_first(const struct sgrad_args *a, int input) {
    return a->attrs ? ((const struct sgrad_sum *)a->attrs)->first[input] : 0;
}

/* out[to + i] = in[from + i] for i < count, for each input's piece; -0 where a piece has no input. Operands: 0…13 the inputs (R),
 * 14 the output (W or RW); any shapes, all F32 or all F64. */
#define SGRAD_COPY_INPUTS 14
struct sgrad_copy_piece {
    int64_t from, to, count;        /* elements; count 0: none */
};
struct sgrad_copy {
    struct sgrad_copy_piece piece[SGRAD_COPY_INPUTS];
};
extern const struct sgrad_kernel sgrad_copy_kernel;
extern const struct sgrad_kernel sgrad_round_kernel;    /* a parameter F32, as bf16 */

/* A parameter as the tasks of a call want it: attrs is the struct sgrad_call. Operands: F32 (R), U8 (W). CPUs only. */
extern const struct sgrad_kernel sgrad_pack_kernel;

/* Between a value and its pieces side by side along the dimension in which these are shorter. Operands of cut: 0 the value (R),
 * 1…8 its pieces (W); of join: 0…7 the pieces (R), 8 the value (W or RW); those after the last piece are absent. F32; CPUs only,
 * since pieces come from, or go to, messages. */
extern const struct sgrad_kernel sgrad_cut_kernel, sgrad_join_kernel;

/* norm = sqrt(Σ x²) parts. Operands: x F32 (R), out F64[1] (W): Σ x². */
extern const struct sgrad_kernel sgrad_squared_norm_kernel;

/* out = Σ x·y. Operands: x, y F32 of one shape (R), out F64[1] (W). */
extern const struct sgrad_kernel sgrad_inner_product_kernel;

/* out.bucket[i] = how many x there are from limit i - 1 up to, but without, limit i of sgrad_histogram_limits(); what is no
 * finite number is left out. Operands: 0 x F32 (R), 1 out F64[SGRAD_HISTOGRAM] (W): a struct sgrad_histogram. CPUs only. */
enum { SGRAD_HISTOGRAM_BUCKETS = 1551, SGRAD_HISTOGRAM = 5 + SGRAD_HISTOGRAM_BUCKETS };
struct sgrad_histogram {
    double min, max, count, sum, sum_squares;
    double bucket[SGRAD_HISTOGRAM_BUCKETS];
};
const double *sgrad_histogram_limits(void);     /* SGRAD_HISTOGRAM_BUCKETS of them, rising; the last is the largest double */
extern const struct sgrad_kernel sgrad_histogram_kernel;

/* The ways in which this machine's CPUs could compute a convolution's or an inner product's task, each measured on one core:
 * least seconds of all its samples (infinite: there is no such way), bytes of workspace. Returns how many there are; 0: the task
 * is none of those. */
struct sgrad_way {
    const char *name;               /* "winograd" */
    double seconds, bytes;
};
enum { SGRAD_MAX_WAYS = 6 };
struct sgrad_call;
int sgrad_call_ways(const struct sgrad_call *call, struct sgrad_way way[SGRAD_MAX_WAYS]);

/* What an optimizer's update is told of its parameter; its kernel is in codelets/updates.h. */
struct sgrad_hyper {
    float momentum, weight_decay, beta1, beta2, eps, trust;
    float clip_norm;        /* largest norm of all gradients together; 0: off (torch.nn.utils.clip_grad_norm_) */
    float kl_clip;          /* of second-order training: kfac.c */
    float rate;             /* times the step's learning rate; 0: once */
    bool nesterov;
};

#ifdef __cplusplus
}
#endif
#endif
