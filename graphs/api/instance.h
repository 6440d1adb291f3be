/* instance.h: an operation on one of its test shapes, with tensors for its operands, so that its tasks can be run and their
 * results read. Used by the checks of operations (check.c) and by tests. It contains one micro-batch: a partial sum is therefore
 * the sum of the group, and the gradient of the micro-batch is the complete one. The operands of a task follow from the
 * operation's record; this file refers to no operation by name. A context must be open. */
#ifndef SGRAD_GRAPHS_API_INSTANCE_H
#define SGRAD_GRAPHS_API_INSTANCE_H

#include "codelets/codelets.h"
#include "datasets/datasets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROLES (SGRAD_DSHARD + 1)
/* A test instance. The caller must close it (instance_close). */
struct instance {
    const struct sgrad_op *op;  /* borrowed */
    const struct sgrad_test *test; /* borrowed; the test shape */
    struct sgrad_signature is;  /* result of the shape rule */
    void *attrs;                /* attributes of the operation */
    struct sgrad_step step;     /* arguments of all tasks; training by default */
    struct sgrad_sample sample[64]; /* 0 to 63: step.sample */
    /* by role and index; NULL: no such operand; SUM is PARTIAL */
    struct sgrad_tensor *tensor[ROLES][SGRAD_MAX_INPUTS];
    bool passing;               /* y is recomputed by its consumers in backward, whose own tasks do not read Y */
};

/* Returns true if the operation computes a gradient of this input. */
static inline bool instance_has_gradient(const struct instance *instance, int input) {
    return input < instance->is.inputs && !(instance->op->no_gradient >> input & 1);
}

/* Creates the tensor of operand I of a role; aborts if that fails. */
static inline void instance_tensor(struct instance *instance, enum sgrad_role role, int i, struct sgrad_view view) {
    char name[64];
    snprintf(name, sizeof name, "%s %d.%d", instance->op->name, (int)role, i);
    if (sgrad_tensor_create(name, view.dtype, view.shape, SGRAD_PERSISTENT, &instance->tensor[role][i])) abort();
}

static inline struct sgrad_view instance_doubles(struct sgrad_shape shape) { return (struct sgrad_view){ SGRAD_F64, shape }; }

/* Runs the shape rule for TEST with activations of type DTYPE, and creates a tensor for each operand, without values. Returns the
 * error of the shape rule. */
static inline int instance_open(struct instance *instance, const struct sgrad_op *op, const struct sgrad_test *test,
                                enum sgrad_dtype dtype) {
    *instance = (struct instance){
        .op = op,
        .test = test,
        .step = { .seed = 7, .number = 3, .epoch = 1, .training = true, .lr = 0.1f, .sample = instance->sample }
    };
    for (int i = 0; i < 64; i++) instance->sample[i].index = i;
    instance->attrs = sgrad_xcalloc(1, op->attrs_size);
    if (test->attrs) memcpy(instance->attrs, test->attrs, op->attrs_size);
    instance->is = (struct sgrad_signature){ .layer = test->name, .y.dtype = dtype };
    for (int i = 0; i < SGRAD_MAX_INPUTS && test->x[i].rank; i++) {
        instance->is.x[i] = (struct sgrad_view){ op->no_gradient >> i & 1 ? op->input_dtype[i] : dtype, test->x[i] };
        instance->is.inputs = i + 1;
    }
    SGRAD_TRY(op->infer(&instance->is, instance->attrs));
    for (int i = 0; i < instance->is.inputs; i++) {
        instance_tensor(instance, SGRAD_X, i, instance->is.x[i]);
        if (instance_has_gradient(instance, i)) instance_tensor(instance, SGRAD_DX, i, instance->is.x[i]);
    }
    if (instance->is.y.shape.rank) {
        instance_tensor(instance, SGRAD_Y, 0, instance->is.y);
        instance_tensor(instance, SGRAD_DY, 0, instance->is.y);
    }
    if (instance->is.shard.shape.rank) {
        instance_tensor(instance, SGRAD_SHARD, 0, instance->is.shard);
        instance_tensor(instance, SGRAD_DSHARD, 0, (struct sgrad_view){ SGRAD_F32, instance->is.shard.shape });
    }
    for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
        if (instance->is.p[i].name) {
            instance_tensor(instance, SGRAD_P, i, (struct sgrad_view){ SGRAD_F32, instance->is.p[i].shape });
            instance_tensor(instance, SGRAD_DP, i, (struct sgrad_view){ SGRAD_F32, instance->is.p[i].shape });
        }
        if (instance->is.s[i].name)
            instance_tensor(instance, SGRAD_S, i, (struct sgrad_view){ instance->is.s[i].dtype, instance->is.s[i].shape });
        if (instance->is.saved[i].shape.rank) instance_tensor(instance, SGRAD_SAVED, i, instance->is.saved[i]);
        if (instance->is.partial[i].rank) {
            instance_tensor(instance, SGRAD_PARTIAL, i, instance_doubles(instance->is.partial[i]));
            instance->tensor[SGRAD_SUM][i] = instance->tensor[SGRAD_PARTIAL][i];
        }
        if (instance->is.stat[i].rank) instance_tensor(instance, SGRAD_STAT, i, instance_doubles(instance->is.stat[i]));
    }
    return 0;
}

/* Frees the tensors and the attributes. */
static inline void instance_close(struct instance *instance) {
    for (int role = 0; role < ROLES; role++)
        for (int i = 0; i < SGRAD_MAX_INPUTS; i++)
            if (role != SGRAD_SUM) sgrad_tensor_destroy(instance->tensor[role][i]);
    free(instance->attrs);
}

/* Submits the tasks of a phase (forward, backward, …) one by one, and waits. ADDED: bit mask of roles whose outputs are added to
 * the existing values, not overwritten. Returns the first error. */
static inline int instance_run(struct instance *instance, const struct sgrad_task *tasks, unsigned added) {
    for (int k = 0; k < SGRAD_MAX_TASKS && tasks[k].kernel.name; k++) {
        const int64_t samples = instance->is.x[0].shape.dim[0];
        const struct sgrad_batch batch = { samples, samples, samples };
        struct sgrad_bound_kernel call = { .kernel = &tasks[k].kernel, .attrs = instance->attrs, .batch = &batch };
        struct sgrad_tensor *operand[SGRAD_MAX_OPERANDS], *workspace = NULL;
        for (int j = 0; j < SGRAD_MAX_OPERANDS && tasks[k].use[j].role; j++, call.operands++) {
            struct sgrad_use use = tasks[k].use[j];
            const bool absent =
                use.if_recomputed ? !instance->passing : instance->passing && use.role == SGRAD_Y && use.access == SGRAD_R;
            operand[j] = absent ? NULL : instance->tensor[use.role][use.index];
            call.view[j] = operand[j] ? operand[j]->view : (struct sgrad_view){ .shape.rank = -1 };
            if (use.access != SGRAD_R && added >> use.role & 1) {
                use.access = SGRAD_RW;
                call.accumulate |= UINT64_C(1) << j;
            }
            call.access[j] = use.access;
        }
        sgrad_bound_kernel_prepare(&call);
        SGRAD_TRY(sgrad_workspace_create(call.workspace, call.gpu_workspace, &workspace));
        int error = sgrad_task_submit(&(struct sgrad_submission){ .call = &call, .operand = operand, .workspace = workspace,
                                                                  .step = &instance->step, .name = tasks[k].kernel.name });
        if (!error) error = sgrad_wait_all();
        sgrad_tensor_destroy(workspace);
        SGRAD_TRY(error);
    }
    return 0;
}

/* Returns the number of elements. */
static inline int64_t instance_count(const struct sgrad_tensor *tensor) { return sgrad_shape_count(&tensor->view.shape); }

/* Returns the values of a tensor of any type as doubles; aborts if that fails. The caller must free them. */
static inline double *instance_read(struct sgrad_tensor *tensor) {
    int64_t count = instance_count(tensor);
    void *raw = sgrad_xcalloc(1, sgrad_view_bytes(&tensor->view));
    double *values = sgrad_xcalloc((size_t)count, sizeof *values);
    if (sgrad_tensor_read(tensor, raw)) abort();
    for (int64_t i = 0; i < count; i++)
        switch (tensor->view.dtype) {
        case SGRAD_F32: values[i] = ((float *)raw)[i]; break;
        case SGRAD_BF16: values[i] = sgrad_bf16_to_f32(((uint16_t *)raw)[i]); break;
        case SGRAD_F64: values[i] = ((double *)raw)[i]; break;
        case SGRAD_I32: values[i] = ((int32_t *)raw)[i]; break;
        case SGRAD_I64: values[i] = (double)((int64_t *)raw)[i]; break;
        case SGRAD_U8: values[i] = ((uint8_t *)raw)[i]; break;
        case SGRAD_U16: values[i] = ((uint16_t *)raw)[i]; break;
        case SGRAD_F16: abort();    /* only in files */
        }
    free(raw);
    return values;
}

/* Sets the values of a tensor, rounded to its type; aborts if that fails. */
static inline void instance_write(struct sgrad_tensor *tensor, const double *values) {
    int64_t count = instance_count(tensor);
    void *raw = sgrad_xcalloc(1, sgrad_view_bytes(&tensor->view));
    for (int64_t i = 0; i < count; i++)
        switch (tensor->view.dtype) {
        case SGRAD_F32: ((float *)raw)[i] = (float)values[i]; break;
        case SGRAD_BF16: ((uint16_t *)raw)[i] = sgrad_f32_to_bf16((float)values[i]); break;
        case SGRAD_F64: ((double *)raw)[i] = values[i]; break;
        case SGRAD_I32: ((int32_t *)raw)[i] = (int32_t)values[i]; break;
        case SGRAD_I64: ((int64_t *)raw)[i] = (int64_t)values[i]; break;
        case SGRAD_U8: ((uint8_t *)raw)[i] = (uint8_t)values[i]; break;
        case SGRAD_U16: ((uint16_t *)raw)[i] = (uint16_t)values[i]; break;
        case SGRAD_F16: abort();
        }
    if (sgrad_tensor_write(tensor, raw)) abort();
    free(raw);
}

/* Returns a standard normal number that depends only on STREAM and I. */
static inline double instance_normal(uint32_t stream, int64_t i) {
    struct sgrad_random r = sgrad_philox(99, 0, stream, (uint64_t)i, 0);
    return sqrt(-2 * log(1 - sgrad_uniform(r.word[0]))) * cos(6.283185307179586 * sgrad_uniform(r.word[1]));
}

/* Sets all inputs, output gradients, parameters and states. The values depend only on the operation and the test, and are rounded
 * to bf16, so that instances in f32 and in bf16 have the same values. */
static inline void instance_fill(struct instance *instance) {
    for (int i = 0; i < instance->is.inputs; i++) {
        struct sgrad_tensor *x = instance->tensor[SGRAD_X][i];
        int64_t count = instance_count(x);
        double *values = sgrad_xcalloc((size_t)count, sizeof *values);
        if (instance->op->fill) {
            float *raw = sgrad_xcalloc((size_t)count, sizeof *raw);
            instance->op->fill(instance->test, i, raw);
            for (int64_t k = 0; k < count; k++)
                if (x->view.dtype == SGRAD_I32) values[k] = ((int32_t *)raw)[k];
                else if (x->view.dtype == SGRAD_U8) values[k] = ((uint8_t *)raw)[k];
                else values[k] = raw[k];
            free(raw);
        } else {
            for (int64_t k = 0; k < count; k++) values[k] = instance_normal((uint32_t)i, k);
        }
        for (int64_t k = 0; k < count; k++) values[k] = sgrad_bf16_to_f32(sgrad_f32_to_bf16((float)values[k]));
        instance_write(x, values);
        free(values);
    }
    for (int role = 0; role < ROLES; role++) {
        if (role != SGRAD_DY && role != SGRAD_P && role != SGRAD_S) continue;
        for (int i = 0; i < SGRAD_MAX_PARAMETERS; i++) {
            struct sgrad_tensor *p = instance->tensor[role][i];
            if (!p) continue;
            int64_t count = instance_count(p);
            double *values = sgrad_xcalloc((size_t)count, sizeof *values);
            for (int64_t k = 0; k < count; k++) {
                double x = instance_normal((uint32_t)(role * 16 + i), k);
                if (role == SGRAD_S) x = fabs(x) + 0.5;     /* variances are positive */
                values[k] = sgrad_bf16_to_f32(sgrad_f32_to_bf16((float)x));
            }
            instance_write(p, values);
            free(values);
        }
    }
}

/* ---- check.c: checks on one test shape. They return 0 or SGRAD_EINVAL; the error is logged in one line ---- */

/* Compares the gradients of inputs and parameters with finite differences of the forward pass. 0 if the operation is not
 * differentiable. */
int sgrad__check_gradients(const struct sgrad_op *op, const struct sgrad_test *test);
/* Checks that the gradients of inputs can be added to existing values. */
int sgrad__check_accumulate(const struct sgrad_op *op, const struct sgrad_test *test);
/* Checks that kernels with .accumulates add their partial sums and parameter gradients to existing values. Only on CPUs: 0 if
 * there are GPU workers. */
int sgrad__check_adds(const struct sgrad_op *op, const struct sgrad_test *test);
/* check_absent.c: checks that backward tasks run without some of the gradients of inputs (absent operands), and then compute the
 * same other outputs. */
int sgrad__check_absent(const struct sgrad_op *op, const struct sgrad_test *test);
/* Compares all phases in bf16 with f32, on the same values. TOLERANCE: of training, relative to the root mean square of a tensor
 * and to its elements (sgrad__instance_compare); that of inference is SGRAD__BF16_TOLERANCE. SGRAD__WINOGRAD_TOLERANCE: for
 * operations that may use the Winograd algorithm. */
#define SGRAD__BF16_TOLERANCE     0.03
#define SGRAD__WINOGRAD_TOLERANCE 0.12     /* for the largest of 50,000 errors; the mean error is 1.2 % */
int sgrad__check_bf16(const struct sgrad_op *op, const struct sgrad_test *test, double tolerance);
/* Sets all values (instance_fill), and runs forward, backward and finish. Returns the first error. */
int sgrad__instance_run_whole(struct instance *instance);
/* Compares the elements of GOT with WANTED: their absolute differences must be at most TOLERANCE times the sum of the root mean
 * square of WANTED and the absolute value of the element of WANTED. ROLE and I: role and index of GOT in INSTANCE, for the
 * message. SGRAD_EINVAL: an element differs by more, which is logged. */
int sgrad__instance_compare(const struct instance *instance, enum sgrad_role role, int i, struct sgrad_tensor *got,
                            const double *wanted, double tolerance);

#endif
