/* reference.c: our operations and optimizers against those of PyTorch, on all cases of layers.safetensors and vision.safetensors
 * in tests/reference (make.py there describes a case). */
#include "codelets/operations.h"
#include "codelets/updates.h"
#include "tests/codelets/check.h"

#include <jansson.h>

SGRAD_UPDATE_KERNEL(sgd);
SGRAD_UPDATE_KERNEL(adam);
SGRAD_UPDATE_KERNEL(adamw);

#define TOLERANCE 1e-4

static struct sgrad_safetensors file;

/* ---- a case's tensors ---- */

/* What the tensors of a case are, by their names: what an operation is given, and what has to come out. */
struct meaning {
    const char *name;
    enum sgrad_role role;
    int index;
};
static const struct meaning given[] = {
    { "x", SGRAD_X, 0 },           { "x0", SGRAD_X, 0 },   { "x1", SGRAD_X, 1 },
    { "x2", SGRAD_X, 2 },          { "r", SGRAD_X, 1 },    { "target", SGRAD_X, 1 },
    { "weight", SGRAD_P, 0 },      { "bias", SGRAD_P, 1 }, { "running_mean", SGRAD_S, 0 },
    { "running_var", SGRAD_S, 1 }, { "dy", SGRAD_DY, 0 },  { .name = NULL },
};
static const struct meaning results[] = {
    { "y", SGRAD_Y, 0 }, { "loss", SGRAD_STAT, 0 }, { "dx", SGRAD_DX, 0 }, { "dx0", SGRAD_DX, 0 }, { "dx1", SGRAD_DX, 1 },
    { "dx2", SGRAD_DX, 2 }, { "dr", SGRAD_DX, 1 }, { "dweight", SGRAD_DP, 0 }, { "dbias", SGRAD_DP, 1 },
    { "running_mean_after", SGRAD_S, 0 }, { "running_var_after", SGRAD_S, 1 },
    { .name = NULL },
};

static bool has_meaning(const struct meaning *meaning, const char *tensor) {
    while (meaning->name && strcmp(meaning->name, tensor)) meaning++;
    return meaning->name;
}

static const struct sgrad_entry *entry_of(const char *name, const char *tensor) {
    char *path = sgrad_format("%s/%s", name, tensor);
    const struct sgrad_entry *entry = sgrad_safetensors_find(&file, path);
    free(path);
    return entry;
}

/* PyTorch's (N,C,H,W) is our (N,H,W,C), and so is a filter's (K,C,R,S) our (K,R,S,C); volumes and their filters likewise. */
static struct sgrad_shape channels_last(struct sgrad_shape s) {
    const int64_t channels = s.dim[1];
    if (s.rank < 4) return s;
    for (int i = 1; i < s.rank - 1; i++) s.dim[i] = s.dim[i + 1];
    s.dim[s.rank - 1] = channels;
    return s;
}

/* The values of an entry, channels last; free them. */
static double *values_of(const struct sgrad_entry *entry) {
    const int64_t count = sgrad_shape_count(&entry->view.shape), *dim = entry->view.shape.dim;
    const bool images = entry->view.shape.rank >= 4;
    const int64_t channels = images ? dim[1] : 1, area = images ? count / (dim[0] * dim[1]) : 1;
    double *values = sgrad_xcalloc((size_t)count, sizeof *values);
    char *data = sgrad_xcalloc(1, sgrad_view_bytes(&entry->view));
    assert_done(sgrad_safetensors_read(&file, entry, data));
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = i / (channels * area), c = i / area % channels, pixel = i % area;
        float real;
        int64_t integer;
        if (entry->view.dtype == SGRAD_F32) memcpy(&real, data + i * 4, 4);
        else memcpy(&integer, data + i * 8, 8);
        values[(n * area + pixel) * channels + c] = entry->view.dtype == SGRAD_F32 ? (double)real : (double)integer;
    }
    free(data);
    return values;
}

/* ---- a case's operation ---- */

union attributes {
    struct sgrad_conv2d conv2d;
    struct sgrad_conv3d conv3d;
    struct sgrad_conv_transpose conv_transpose;
    struct sgrad_batchnorm batchnorm;
    struct sgrad_add add;
    struct sgrad_concat concat;
    struct sgrad_crop crop;
    struct sgrad_group_norm group_norm;
    struct sgrad_max_pool max_pool;
    struct sgrad_pad pad;
    struct sgrad_resize resize;
    struct sgrad_average_pool average_pool;
    struct sgrad_linear linear;
    struct sgrad_local_response_norm local_response_norm;
    struct sgrad_shortcut_a shortcut_a;
    struct sgrad_softmax_cross_entropy softmax_cross_entropy;
    struct sgrad_voxel_loss voxel_loss;
};

static double number(const json_t *how, const char *key) { return json_number_value(json_object_get(how, key)); }

static bool is(const json_t *how, const char *layer) { return !strcmp(json_string_value(json_object_get(how, "layer")), layer); }

/* The operation and its attributes; Y is the shape of its output. NULL: the case is an optimizer's. */
static const struct sgrad_op *operation(const json_t *how, const struct sgrad_shape *shape, union attributes *a) {
    const int kernel = (int)number(how, "kernel"), stride = (int)number(how, "stride"), padding = (int)number(how, "padding");
    const bool relu = number(how, "relu") != 0, bias = number(how, "bias") != 0;
    if (is(how, "conv2d")) {
        a->conv2d = (struct sgrad_conv2d){ .channels = (int)shape->dim[3],
                                           .kernel = kernel,
                                           .stride = stride,
                                           .padding = padding,
                                           .dilation = (int)number(how, "dilation"),
                                           .groups = (int)number(how, "groups"),
                                           .bias = bias };
        return &sgrad_conv2d_op;
    }
    if (is(how, "batchnorm")) {
        a->batchnorm = (struct sgrad_batchnorm){ .relu = relu,
                                                 .eps = (float)number(how, "eps"),
                                                 .momentum = (float)number(how, "momentum") };
        return &sgrad_batchnorm_op;
    }
    if (is(how, "add")) {
        a->add = (struct sgrad_add){ .relu = relu };
        return &sgrad_add_op;
    }
    if (is(how, "maxpool")) {
        a->max_pool = (struct sgrad_max_pool){ .kernel = kernel, .stride = stride, .padding = padding };
        return &sgrad_max_pool_op;
    }
    if (is(how, "avgpool")) {
        a->average_pool = (struct sgrad_average_pool){ .kernel = kernel, .stride = stride, .padding = padding,
                                                       .exclude_padding = number(how, "count_include_pad") == 0 };
        return &sgrad_average_pool_op;
    }
    if (is(how, "linear")) {
        a->linear = (struct sgrad_linear){ .features = (int)shape->dim[1], .bias = bias };
        return &sgrad_linear_op;
    }
    if (is(how, "lrn")) {
        a->local_response_norm = (struct sgrad_local_response_norm){ .size = (int)number(how, "size"),
                                                                     .alpha = (float)number(how, "alpha"),
                                                                     .beta = (float)number(how, "beta"),
                                                                     .k = (float)number(how, "k") };
        return &sgrad_local_response_norm_op;
    }
    if (is(how, "shortcut")) {
        a->shortcut_a = (struct sgrad_shortcut_a){ .channels = (int)number(how, "channels"), .stride = stride };
        return &sgrad_shortcut_a_op;
    }
    if (is(how, "conv3d")) {
        a->conv3d = (struct sgrad_conv3d){ .channels = (int)shape->dim[4], .kernel = kernel, .stride = stride, .padding = padding,
                                           .dilation = (int)number(how, "dilation"), .groups = (int)number(how, "groups"),
                                           .bias = bias, .depth = (int)number(how, "depth") };
        return &sgrad_conv3d_op;
    }
    if (is(how, "conv_transpose")) {
        a->conv_transpose = (struct sgrad_conv_transpose){ .channels = (int)shape->dim[shape->rank - 1],
                                                           .kernel = kernel,
                                                           .stride = stride,
                                                           .padding = padding,
                                                           .volume = number(how, "volume") != 0 };
        return &sgrad_conv_transpose_op;
    }
    if (is(how, "group_norm")) {
        a->group_norm = (struct sgrad_group_norm){ .groups = (int)number(how, "groups"), .relu = relu };
        return &sgrad_group_norm_op;
    }
    if (is(how, "crop")) {
        for (int d = 0; d < 3; d++) {
            a->crop.size[d] = (int)json_integer_value(json_array_get(json_object_get(how, "size"), (size_t)d));
            a->crop.from[d] = (int)json_integer_value(json_array_get(json_object_get(how, "from"), (size_t)d));
        }
        return &sgrad_crop_op;
    }
    if (is(how, "resize")) {
        a->resize = (struct sgrad_resize){ .height = (int)number(how, "height"), .width = (int)number(how, "width"),
                                           .bilinear = number(how, "bilinear") != 0, .area = number(how, "area") != 0 };
        return &sgrad_resize_op;
    }
    if (is(how, "pad")) {
        a->pad = (struct sgrad_pad){ .top = (int)number(how, "top"), .bottom = (int)number(how, "bottom"),
                                     .left = (int)number(how, "left"), .right = (int)number(how, "right"),
                                     .reflect = number(how, "reflect") != 0 };
        return &sgrad_pad_op;
    }
    if (is(how, "voxel_loss")) {
        a->voxel_loss = (struct sgrad_voxel_loss){ .dice = (float)number(how, "dice") };
        for (int c = 0; c < 3; c++)
            a->voxel_loss.weight[c] = (float)number(how, (const char *[]){ "weight0", "weight1", "weight2" }[c]);
        return &sgrad_voxel_loss_op;
    }
    if (is(how, "softmax_cross_entropy")) {
        a->softmax_cross_entropy =
            (struct sgrad_softmax_cross_entropy){ .label_smoothing = (float)number(how, "label_smoothing") };
        return &sgrad_softmax_cross_entropy_op;
    }
    if (is(how, "global_avgpool")) return &sgrad_global_average_pool_op;
    return sgrad_op_find(json_string_value(json_object_get(how, "layer")));
}

/* ---- layers ---- */

static bool compare(struct instance *instance, const char *name, const struct meaning *meaning) {
    const struct sgrad_entry *entry = entry_of(name, meaning->name);
    char *what = sgrad_format("%s, %s", name, meaning->name);
    double *wanted = values_of(entry), *got = instance_read(instance->tensor[meaning->role][meaning->index]);
    if (meaning->role == SGRAD_STAT) got[0] /= got[instance->is.stat[0].dim[0] - 1];       /* the reference is the mean */
    const bool good = near(what, got, wanted, sgrad_shape_count(&entry->view.shape), TOLERANCE);
    free(got);
    free(wanted);
    free(what);
    return good;
}

/* Forward and backward in training, or forward alone where the case is of evaluation: of that no gradient is ever asked. And
 * what is the same in both has to come out of the tasks of evaluation too. */
static bool check_layer(struct instance *instance, const char *name, const json_t *how) {
    const bool statistics = json_object_get(how, "training"), training = !statistics || number(how, "training") != 0;
    bool good = true;
    instance->step.training = training;
    if (training) {
        assert_done(instance_run(instance, instance->op->forward, 0));
        assert_done(instance_run(instance, instance->op->backward, 0));
        assert_done(instance_run(instance, instance->op->finish, 0));
        for (const struct meaning *m = results; m->name; m++)
            if (entry_of(name, m->name)) good &= compare(instance, name, m);
    }
    if (instance->op->inference[0].kernel.name && !(statistics && training)) {
        assert_done(instance_run(instance, instance->op->inference, 0));
        good &= compare(instance, name, &results[0]);
    }
    return good;
}

/* Every tensor of the case has a meaning, else something would go unchecked in silence. */
static void check_names(const char *name) {
    const size_t length = strlen(name);
    for (int k = 0; k < file.count; k++) {
        if (strncmp(file.entry[k].name, name, length) || file.entry[k].name[length] != '/') continue;
        const char *tensor = file.entry[k].name + length + 1;
        if (!has_meaning(given, tensor) && !has_meaning(results, tensor)) fail_msg("%s/%s: what is it?", name, tensor);
    }
}

static bool run_layer(const char *name, const json_t *how) {
    const struct sgrad_entry *y = entry_of(name, "y"), *entry;
    const struct sgrad_shape shape = y ? channels_last(y->view.shape) : (struct sgrad_shape){ 0 };
    union attributes attributes = { 0 };
    const struct sgrad_op *op = operation(how, &shape, &attributes);
    struct sgrad_test test = { .name = name, .attrs = &attributes };
    struct instance t;
    if (!op) fail_msg("%s: no operation for it", name);
    check_names(name);
    for (const struct meaning *m = given; m->name; m++)
        if (m->role == SGRAD_X && (entry = entry_of(name, m->name))) test.x[m->index] = channels_last(entry->view.shape);
    assert_true(op->attrs_size <= sizeof attributes);
    assert_done(instance_open(&t, op, &test, SGRAD_F32));
    for (const struct meaning *m = given; m->name; m++) {
        if (!(entry = entry_of(name, m->name))) continue;
        double *values = values_of(entry);
        assert_int_equal(instance_count(t.tensor[m->role][m->index]), sgrad_shape_count(&entry->view.shape));
        instance_write(t.tensor[m->role][m->index], values);
        free(values);
    }
    const bool good = check_layer(&t, name, how);
    instance_close(&t);
    return good;
}

/* ---- optimizers ---- */

static const struct optimizer {
    const char *name;
    const struct sgrad_kernel *kernel;
    int states;
} optimizers[] = { { "sgd", &sgrad_sgd_kernel, 1 }, { "adam", &sgrad_adam_kernel, 2 }, { "adamw", &sgrad_adamw_kernel, 2 } };

/* Three updates of one weight, with the gradients that the case gives. */
static bool run_optimizer(const char *name, const struct optimizer *optimizer, const json_t *how) {
    const struct sgrad_hyper hyper = { .momentum = (float)number(how, "momentum"),
                                       .weight_decay = (float)number(how, "weight_decay"),
                                       .beta1 = (float)number(how, "beta1"),
                                       .beta2 = (float)number(how, "beta2"),
                                       .eps = (float)number(how, "eps"),
                                       .nesterov = number(how, "nesterov") != 0 };
    const struct sgrad_view view = entry_of(name, "weight")->view;
    const size_t count = (size_t)sgrad_shape_count(&view.shape);
    double *weight = values_of(entry_of(name, "weight"));
    double *state[2] = { sgrad_xcalloc(count, sizeof *weight), sgrad_xcalloc(count, sizeof *weight) };
    bool good = true;
    for (uint32_t update = 1; update <= 3; update++) {
        char from[16], to[16], what[64];
        snprintf(from, sizeof from, "gradient%u", update);
        snprintf(to, sizeof to, "weight%u", update);
        snprintf(what, sizeof what, "%s, %s", name, to);
        double *gradient = values_of(entry_of(name, from)), *wanted = values_of(entry_of(name, to));
        const struct sgrad_step step = { .number = update, .training = true, .lr = (float)number(how, "lr") };
        const struct operand operand[] = { { view, SGRAD_RW, weight }, { view, SGRAD_R, gradient }, { .values = NULL },
                                           { view, SGRAD_RW, state[0] }, { view, SGRAD_RW, state[1] } };
        run_kernel(optimizer->kernel, &hyper, &step, 0, operand, 3 + optimizer->states);
        good &= near(what, weight, wanted, (int64_t)count, 1e-6);
        free(gradient);
        free(wanted);
    }
    free(weight);
    free(state[0]);
    free(state[1]);
    return good;
}

/* ---- all ---- */

static bool run_case(const char *name, const json_t *how) {
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (is(how, optimizers[i].name)) return run_optimizer(name, &optimizers[i], how);
    return run_layer(name, how);
}

static bool run_file(const char *name) {
    const char *source = getenv("srcdir");
    char *path = sgrad_format("%s/tests/reference/%s", source ? source : ".", name);
    bool good = true;
    assert_done(sgrad_safetensors_open(path, &file));
    assert_in_range(file.metadata_count, 1, 1000);
    for (int i = 0; i < file.metadata_count; i++) {
        json_t *how = json_loads(file.metadata[2 * i + 1], 0, NULL);
        assert_non_null(json_object_get(how, "layer"));
        good &= run_case(file.metadata[2 * i], how);
        json_decref(how);
    }
    sgrad_safetensors_close(&file);
    free(path);
    return good;
}

static void reference(void **state) {
    (void)state;
    assert_true(run_file("layers.safetensors"));
    assert_true(run_file("vision.safetensors"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("operations and optimizers equal those of PyTorch", reference),
    };
    return run_on_devices(argc, argv, tests);
}
