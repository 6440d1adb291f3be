/* onnx: networks exported to ONNX and read again; files that PyTorch exported (tests/reference/export_onnx.py); refused files. */
#include "config.h"
#include "datasets/datasets.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

#ifdef SGRAD_HAVE_PROTOBUF_C
#include "tests/graphs/inference/onnx_files.h"

/* ---- there and back: the same bytes ------------------------------------------------------------------------------ */

static void round_trips(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int side, channels;
    } is[] = { { "convnet", 8, 1 }, { "lenet", 28, 1 }, { "mlp", 8, 3 }, { "nin", 32, 3 }, { "resnet20", 32, 3 },
               { "unet2d", 16, 1 }, { "unet2d:groups=4", 16, 1 }, { "vit_tiny:layers=1", 16, 1 },
               { "vgg11:large=1,width=2,hidden=4", 64, 1 },
               { "gpt:layers=1,heads=2,width=8,context=5,vocabulary=10", 5, 0 },
               { "llama:layers=1,heads=2,width=8,vocabulary=10", 1, 0 },
               { "llama:layers=2,heads=4,kv_heads=2,width=16,hidden=12,vocabulary=10,bias=1,tied=0", 7, 0 },
               { "llama:layers=1,heads=4,kv_heads=1,width=32,vocabulary=12,qk_norm=1,rope_factor=8,rope_original=20", 200, 0 } };
    struct sgrad_context *context;
    const struct sgrad_context_options how = { .cpus = 1 };
    assert_done(sgrad_context_open(&how, &context));
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct sgrad_graph *g = make(is[i].model, is[i].side, is[i].channels, 3);
        assert_done(sgrad__onnx_write(g, FILE_1));
        char *text = sgrad_format("onnx:%s", FILE_1);
        struct sgrad_graph *again = make(text, is[i].side, is[i].channels, 4);
        assert_done(sgrad__onnx_write(again, FILE_2));
        assert_equal(sgrad__parameters_count(g), sgrad__parameters_count(again));
        size_t one, other;
        char *a = read_file(FILE_1, &one), *b = read_file(FILE_2, &other);
        if (one != other || memcmp(a, b, one)) fail_msg("%s is another one, read and written again", is[i].model);
        free(a), free(b), free(text);
        sgrad_graph_destroy(g);
        sgrad_graph_destroy(again);
    }
    sgrad_context_close(context);
}

/* ---- logits ------------------------------------------------------------------------------------------------------ */

static struct sgrad_train_options options(const char *model, const char *data) {
    struct sgrad_train_options o = sgrad_train_defaults();
    o.model.name = model;
    o.data.name = data;
    o.training.batch = 64;
    o.parallel.cpus = 1;
    o.training.deterministic = true;
    return o;
}

/* A run, its file, and the run that goes on from that. */
static void a_run(void **state) {
    (void)state;
    struct sgrad_train_options o = options("convnet", "digits");
    struct sgrad_train_result result;
    struct sgrad_predictions answers, again;
    o.training.steps = 2;
    o.output.folder = scratch_path("run");
    o.output.json = true;
    freopen("/dev/null", "w", stdout);
    assert_done(sgrad_train(&o, &result));
    free(result.folder);
    o.model.init = scratch_path("run/model.safetensors");
    assert_done(sgrad_export(&o, FILE_1, 0));
    assert_done(sgrad_predict(&o, &result, &answers));

    char *text = sgrad_format("onnx:%s", FILE_1);
    struct sgrad_train_options from_file = options(text, "digits");     /* the file's folder has no config.json: it normalises */
    assert_done(sgrad_predict(&from_file, &result, &again));
    assert_int_equal(answers.samples * answers.width, again.samples * again.width);
    assert_memory_equal(answers.logits, again.logits, (size_t)(answers.samples * answers.width) * sizeof(float));
    sgrad_predictions_free(&again);

    from_file.training.steps = 2;
    from_file.output.folder = scratch_path("on");
    from_file.output.json = true;
    assert_done(sgrad_train(&from_file, &result));
    free(result.folder);
    from_file.model.init = scratch_path("on/model.safetensors");
    assert_done(sgrad_export(&from_file, FILE_2, 0));
    assert_done(sgrad_predict(&from_file, &result, &again));
    assert_memory_not_equal(answers.logits, again.logits, (size_t)(answers.samples * answers.width) * sizeof(float));
    sgrad_predictions_free(&answers), sgrad_predictions_free(&again);
    free(text);
}

enum { SIDE = 8, IMAGES = 8, CLASSES = 10 };

/* export_onnx.py's images. */
static int open_images(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *how) {
    float *pixel = sgrad_xcalloc(IMAGES * SIDE * SIDE, sizeof *pixel);
    (void)argument, (void)how;
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++) pixel[i] = (float)(i * 7919 % 251) / 255;
    dataset->count = IMAGES;
    dataset->classes = CLASSES;
    dataset->field[0] = (struct sgrad_field){ "images", SGRAD_F32, sgrad_shape(3, SIDE, SIDE, 1), pixel };
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, { 0 }, sgrad_xcalloc(IMAGES, sizeof(int32_t)) };
    return 0;
}
static const struct sgrad_reader reader = { .name = "floats", .summary = "of a test", .open = open_images };

/* export_onnx.py's tokens: as many as there are images. */
static int open_tokens(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *how) {
    int32_t *token = sgrad_xcalloc(IMAGES, sizeof *token);
    (void)argument, (void)how;
    for (int i = 0; i < IMAGES; i++) token[i] = i * 7919 % CLASSES;
    dataset->count = 2;
    dataset->classes = CLASSES;
    dataset->field[0] = (struct sgrad_field){ "tokens", SGRAD_I32, sgrad_shape(1, IMAGES / 2), token };
    dataset->field[1] = (struct sgrad_field){ "label", SGRAD_I32, sgrad_shape(1, IMAGES / 2),
                                              sgrad_xcalloc(IMAGES, sizeof(int32_t)) };
    return 0;
}
static const struct sgrad_reader reader_of_tokens = { .name = "ids", .summary = "of a test", .open = open_tokens };

static void pytorch(void **state) {
    (void)state;
    const char *source = getenv("srcdir");
    char *path = sgrad_format("%s/tests/reference/onnx.txt", source ? source : "."), name[32], last[32] = "";
    FILE *logits = fopen(path, "r");
    struct sgrad_predictions answers = { 0 };
    int rows = 0;
    assert_non_null(logits);
    while (fscanf(logits, "%31s", name) == 1) {
        if (strcmp(name, last)) {
            char *model = sgrad_format("onnx:%s/tests/reference/onnx-%s.onnx", source ? source : ".", name);
            struct sgrad_train_options o = options(model, NULL);
            struct sgrad_train_result result;
            const bool tokens = !strcmp(name, "language");
            o.data.reader = tokens ? &reader_of_tokens : &reader;
            sgrad_predictions_free(&answers);
            assert_done(sgrad_predict(&o, &result, &answers));
            assert_int_equal(answers.width, tokens ? CLASSES * IMAGES / 2 : CLASSES);
            snprintf(last, sizeof last, "%s", name);
            rows = 0;
            free(model);
        }
        for (int c = 0; c < CLASSES; c++) {
            double logit;
            assert_int_equal(fscanf(logits, "%lf", &logit), 1);
            assert_near(answers.logits[rows * CLASSES + c], logit, 1e-5);
        }
        rows++;
    }
    assert_int_equal(rows, IMAGES);
    sgrad_predictions_free(&answers);
    fclose(logits);
    free(path);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void other_operator(Onnx__Model *m) { put(&node_of(m, "Conv")->op_type, "Einsum"); }
static void other_domain(Onnx__Model *m) { node_of(m, "Conv")->domain = strdup("com.example"); }
static void other_attribute(Onnx__Model *m) { put(&node_of(m, "Conv")->attribute[0]->name, "shape"); }
static void no_input(Onnx__Model *m) { put(&node_of(m, "MaxPool")->input[0], "nothing"); }
static void no_weight(Onnx__Model *m) { put(&m->graph->initializer[0]->name, "nothing"); }
static void circle(Onnx__Model *m) { put(&node_of(m, "Conv")->input[0], "fc1"); }
static void twice(Onnx__Model *m) { put(&node_of(m, "MaxPool")->output[0], "conv1"); }
static void two_inputs(Onnx__Model *m) {
    m->graph->initializer[0]->name[0] = 'C';        /* is an input now, not a tensor */
    m->graph->input = realloc(m->graph->input, 2 * sizeof *m->graph->input);
    Onnx__Value *v = m->graph->input[m->graph->n_input++] = sgrad_xcalloc(1, sizeof *v);
    onnx__value__init(v);
    v->name = strdup("mask");
}
static void elsewhere(Onnx__Model *m) {
    m->graph->initializer[0]->has_data_location = true;
    m->graph->initializer[0]->data_location = 1;
}
static void negative(Onnx__Model *m) { m->graph->initializer[0]->dims[0] = -6; }
static void huge(Onnx__Model *m) { m->graph->initializer[0]->dims[0] = INT64_MAX; }
static void too_many(Onnx__Model *m) { m->graph->initializer[0]->dims[0]++; }
static void of_texts(Onnx__Model *m) { m->graph->initializer[0]->data_type = 8; }
static void of_ints(Onnx__Model *m) { m->graph->initializer[0]->data_type = ONNX_INT32; }
static void no_steps(Onnx__Model *m) { node_of(m, "Conv")->attribute[1]->ints[0] = 0; }
static void oblong(Onnx__Model *m) { node_of(m, "MaxPool")->attribute[0]->ints[1] = 3; }
static void wide(Onnx__Model *m) { node_of(m, "Conv")->attribute[2]->ints[0] = INT64_MAX; }
static void scaled(Onnx__Model *m) { put(&node_of(m, "Gemm")->attribute[0]->name, "transA"); }
static void no_output(Onnx__Model *m) { put(&m->graph->output[0]->name, "nothing"); }
static void set_int(Onnx__Node *n, const char *name, int64_t value) {
    for (size_t i = 0; i < n->n_attribute; i++)
        if (!strcmp(n->attribute[i]->name, name)) n->attribute[i]->name[0] = '-';
    Onnx__Attribute *a = add_attribute(n, name);
    a->has_i = true;
    a->i = value;
    for (size_t i = 0; i < n->n_attribute - 1; i++)
        if (n->attribute[i]->name[0] == '-') n->attribute[i] = a, n->n_attribute--;
}
static void set_float(Onnx__Node *n, const char *name, float value) {
    Onnx__Attribute *a = add_attribute(n, name);
    a->has_f = true;
    a->f = value;
}
static void set_text(Onnx__Node *n, const char *name, const char *value) {
    Onnx__Attribute *a = add_attribute(n, name);
    a->has_s = true;
    a->s = (ProtobufCBinaryData){ strlen(value), (uint8_t *)strdup(value) };
}
/* A node of TYPE behind the last, which makes the output. */
static Onnx__Node *append(Onnx__Model *m, const char *type) {
    Onnx__Node *n = sgrad_xcalloc(1, sizeof *n);
    onnx__node__init(n);
    n->op_type = strdup(type);
    n->input = sgrad_xcalloc(1, sizeof *n->input);
    n->output = sgrad_xcalloc(1, sizeof *n->output);
    n->input[n->n_input++] = strdup(m->graph->output[0]->name);
    n->output[n->n_output++] = strdup("appended");
    put(&m->graph->output[0]->name, "appended");
    m->graph->node = realloc(m->graph->node, (m->graph->n_node + 1) * sizeof(Onnx__Node *));
    return m->graph->node[m->graph->n_node++] = n;
}
static void second_output(Onnx__Model *m) {
    m->graph->output = realloc(m->graph->output, 2 * sizeof *m->graph->output);
    Onnx__Value *v = m->graph->output[m->graph->n_output++] = sgrad_xcalloc(1, sizeof *v);
    onnx__value__init(v);
    v->name = strdup("fc1");
}
static void indices(Onnx__Model *m) {
    add_output(node_of(m, "MaxPool"), "indices");
    put(&node_of(m, "Flatten")->input[0], "indices");
}
static void half_alpha(Onnx__Model *m) { set_float(node_of(m, "Gemm"), "alpha", 0.5f); }
static void half_beta(Onnx__Model *m) { set_float(node_of(m, "Gemm"), "beta", 0.5f); }
static void softmax_of_samples(Onnx__Model *m) { set_int(append(m, "Softmax"), "axis", 0); }
static void softmax_from_the_end(Onnx__Model *m) { set_int(append(m, "LogSoftmax"), "axis", -2); }
static void old_opset(Onnx__Model *m) { m->opset_import[0]->version = 6; }
static void same_padding(Onnx__Model *m) { set_text(node_of(m, "MaxPool"), "auto_pad", "SAME_LESS"); }
static void set_pair(Onnx__Node *n, const char *name, int64_t one, int64_t other) {
    Onnx__Attribute *a = add_attribute(n, name);
    a->ints = sgrad_xcalloc(2, sizeof *a->ints);
    a->ints[a->n_ints++] = one, a->ints[a->n_ints++] = other;
}
static void dilated(Onnx__Model *m) { set_pair(node_of(m, "MaxPool"), "dilations", 2, 2); }
static void flatten_later(Onnx__Model *m) { set_int(node_of(m, "Flatten"), "axis", 2); }
static void to_half(Onnx__Model *m) { set_int(append(m, "Cast"), "to", ONNX_FLOAT16); }
static void short_floats(Onnx__Model *m) {
    Onnx__Tensor *t = m->graph->initializer[0];
    t->has_raw_data = false;
    t->float_data = sgrad_xcalloc(7, sizeof *t->float_data);
    t->n_float_data = 7;
}
static void wrong_field(Onnx__Model *m) {
    short_floats(m);
    m->graph->initializer[0]->data_type = ONNX_DOUBLE;
}
static void two_fields(Onnx__Model *m) {
    short_floats(m);
    m->graph->initializer[0]->has_raw_data = true;
}

/* Makes the first pool, of 6 channels, a normalisation with the scale and bias of another layer, of 16. */
static Onnx__Node *normalise_by_16(Onnx__Model *m, const char *type) {
    Onnx__Node *n = node_of(m, "MaxPool");
    put(&n->op_type, type);
    n->n_attribute = 0;
    n->input = realloc(n->input, 3 * sizeof *n->input);
    while (n->n_input < 3) n->input[n->n_input++] = strdup("conv2.bias");
    return n;
}
static void instances_by_16(Onnx__Model *m) { normalise_by_16(m, "InstanceNormalization"); }
static void groups_by_16(Onnx__Model *m) { set_int(normalise_by_16(m, "GroupNormalization"), "num_groups", 2); }

/* What means the same as before, and is read. */
static void softmax(Onnx__Model *m) { set_int(append(m, "Softmax"), "axis", 1); }
static void log_softmax(Onnx__Model *m) { set_int(append(m, "LogSoftmax"), "axis", -1); }
static void usual_softmax(Onnx__Model *m) { append(m, "Softmax"); }
static void old_softmax(Onnx__Model *m) { append(m, "Softmax"), m->opset_import[0]->version = 11; }
static void unused_indices(Onnx__Model *m) { add_output(node_of(m, "MaxPool"), "indices"); }
static void ceil_of_even(Onnx__Model *m) { set_int(node_of(m, "MaxPool"), "ceil_mode", 1); }
static void same_as_float(Onnx__Model *m) { set_int(append(m, "Cast"), "to", ONNX_FLOAT); }
static void flatten_from_the_end(Onnx__Model *m) { set_int(node_of(m, "Flatten"), "axis", -3); }
static void by_valid(Onnx__Model *m) { set_text(node_of(m, "MaxPool"), "auto_pad", "VALID"); }

static void sparse(Onnx__Model *m) {
    m->graph->sparse_initializer = sgrad_xcalloc(1, sizeof *m->graph->sparse_initializer);
    m->graph->n_sparse_initializer = 1;
}

static void by_the_batch(Onnx__Model *m) { set_int(node_of(m, "BatchNormalization"), "training_mode", 1); }
static void batch_mean(Onnx__Model *m) { add_output(node_of(m, "BatchNormalization"), "mean"); }
static void extremes(Onnx__Model *m) {
    Onnx__Node *norm = node_of(m, "BatchNormalization");
    norm->n_attribute = 0;
    set_float(norm, "epsilon", 0);
    set_float(norm, "momentum", 1);
}
static void by_pixels(Onnx__Model *m) { set_int(node_of(m, "BatchNormalization"), "spatial", 0); }

static int read_back(const void *data, size_t size) { return read_images(data, size, 28, NULL, NULL); }

static void norms(void **state) {
    (void)state;
    static const struct {
        void (*change)(Onnx__Model *m);
        const char *text;
    } is[] = { { by_the_batch, "(BatchNormalization): training_mode is 1, but must be 0; call model.eval() before the export" },
               { batch_mean, "(BatchNormalization): has output 1, 'mean', so it normalises with batch statistics" },
               { by_pixels, "(BatchNormalization): spatial is 0" } };
    size_t size;
    float eps = 0, share = 0;
    char *data = file_of("convnet", 8, &size);
    assert_done(read_images(data, size, 8, &eps, &share));
    assert_near(eps, 1e-5, 1e-9);
    assert_near(share, 0.1, 1e-6);
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        assert_fails(read_changed(data, size, 8, is[i].change, NULL, NULL), SGRAD_EFORMAT, is[i].text);
    assert_done(read_changed(data, size, 8, extremes, &eps, &share));
    assert_near(eps, 0, 1e-30);
    assert_near(share, 0, 1e-30);
    free(data);
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        void (*change)(Onnx__Model *m);
        int error;
        const char *text;
    } is[] = {
        { other_operator, SGRAD_EFORMAT, "a.onnx: node 'conv1' (Einsum): the operator is not supported" },
        { other_domain, SGRAD_EFORMAT, "a.onnx: node 'conv1' (Conv): has domain 'com.example'" },
        { other_attribute, SGRAD_EFORMAT, "a.onnx: node 'conv1' (Conv): attribute shape is not supported" },
        { no_input, SGRAD_EFORMAT, "a.onnx: node 'pool1' (MaxPool): input 'nothing' is not computed by an earlier node" },
        { no_weight, SGRAD_EFORMAT, "a.onnx: node 'conv1' (Conv): input 'conv1.weight' is not computed by an earlier node" },
        { circle, SGRAD_EFORMAT, "a.onnx: node 'conv1' (Conv): input 'fc1' is not computed by an earlier node" },
        { twice, SGRAD_EFORMAT, "a.onnx: 'conv1' is defined twice" },
        { two_inputs, SGRAD_EFORMAT, "a.onnx: has inputs 'images' and 'mask'" },
        { elsewhere, SGRAD_EFORMAT, "a.onnx: tensor 'conv1.weight' is in another file" },
        { negative, SGRAD_EFORMAT, "a.onnx: tensor 'conv1.weight': dimension 0 is -6" },
        { huge, SGRAD_EFORMAT, "a.onnx: tensor 'conv1.weight': dimension 0 is 9223372036854775807" },
        { too_many, SGRAD_EFORMAT, "a.onnx: tensor 'conv1.weight' has 600 bytes, but its dimensions require 700" },
        { of_texts, SGRAD_EFORMAT, "a.onnx: tensor 'conv1.weight' has type 8" },
        { of_ints, SGRAD_EFORMAT, "a.onnx: tensor 'conv1.weight' has type 6, but weights must be" },
        { no_steps, SGRAD_EFORMAT, "a.onnx: node 'conv1' (Conv): kernel_shape, strides and dilations must have" },
        { oblong, SGRAD_EFORMAT, "a.onnx: node 'pool1' (MaxPool): its window must be square" },
        { wide, SGRAD_EFORMAT, "a.onnx: node 'conv1' (Conv): kernel_shape, strides and dilations must have" },
        { scaled, SGRAD_EFORMAT, "a.onnx: node 'fc1' (Gemm): requires rows (N,C), transA 0" },
        { no_output, SGRAD_EFORMAT, "a.onnx: output 'nothing' is not computed by any node" },
        { sparse, SGRAD_EFORMAT, "a.onnx: has sparse tensors" },
        { second_output, SGRAD_EFORMAT, "a.onnx: has outputs 'logits' and 'fc1'" },
        { indices, SGRAD_EFORMAT, "(MaxPool): output 'indices' is used" },
        { half_alpha, SGRAD_EFORMAT, "(Gemm): requires rows (N,C), transA 0, alpha 1 and beta 1, but has transA 0, alpha" },
        { half_beta, SGRAD_EFORMAT, "and beta 0.5" },
        { softmax_of_samples, SGRAD_EFORMAT, "(Softmax): axis is 0 (opset 20)" },
        { softmax_from_the_end, SGRAD_EFORMAT, "(LogSoftmax): axis is -2" },
        { old_opset, SGRAD_EFORMAT, "a.onnx: has opset 6" },
        { same_padding, SGRAD_EFORMAT, "(MaxPool): auto_pad is 'SAME_LESS'" },
        { dilated, SGRAD_EFORMAT, "(MaxPool): its dilations are 2" },
        { flatten_later, SGRAD_EFORMAT, "(Flatten): axis is 2" },
        { to_half, SGRAD_EFORMAT, "(Cast): converts to type 10, but only constants and pixels" },
        { short_floats, SGRAD_EFORMAT, "tensor 'conv1.weight' has 7 numbers in float_data, but its dimensions require 150" },
        { wrong_field, SGRAD_EFORMAT, "the numbers of tensor 'conv1.weight' (type 11) must be in raw_data or double_data" },
        { instances_by_16, SGRAD_EFORMAT, "its scale and bias must have 6 numbers, one per channel; its inputs have" },
        { groups_by_16, SGRAD_EFORMAT, "its scale and bias must have 6 numbers, one per channel (opset 21)" },
        { two_fields, SGRAD_EFORMAT, "tensor 'conv1.weight' must have numbers in raw_data or in another field, not in both" },
    };
    size_t size;
    char *data = file_of("lenet", 28, &size);
    assert_done(read_back(data, size));
    for (size_t i = 0; i < sizeof is / sizeof *is; i++)
        assert_fails(read_changed(data, size, 28, is[i].change, NULL, NULL), is[i].error, is[i].text);
    void (*const same[])(Onnx__Model *m) = { softmax, log_softmax, usual_softmax, old_softmax, unused_indices, ceil_of_even,
                                             same_as_float, flatten_from_the_end, by_valid };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) assert_done(read_changed(data, size, 28, same[i], NULL, NULL));
    for (size_t end = 0; end < size; end += end < 4000 ? 97 : 40009) assert_false(survives(read_back(data, end)));
    assert_fails(read_back("hello, this is text", 19), SGRAD_EFORMAT, "a.onnx: is not an ONNX file, or is damaged");
    free(data);

    struct sgrad__onnx *file;
    assert_fails(sgrad__onnx_open(scratch_path("none.onnx"), &file), SGRAD_EIO, "none.onnx: No such file");
    struct sgrad_train_options o = options("onnx", "digits");
    struct sgrad_train_result result;
    o.output.print = true;
    assert_fails(sgrad_train(&o, &result), SGRAD_EINVAL, "model onnx: requires a file; write onnx:FILE");
}

/* Makes the first ReLU, of 192 channels, a Resize to 4096 x 4096 pixels. */
static void enlarge(Onnx__Model *m) {
    static const int64_t size[] = { 4096, 4096 };
    Onnx__Node *n = node_of(m, "Relu");
    Onnx__Tensor *t = sgrad_xcalloc(1, sizeof *t);
    onnx__tensor__init(t);
    t->name = strdup("size");
    t->has_data_type = t->has_raw_data = true;
    t->data_type = ONNX_INT64;
    t->dims = sgrad_xcalloc(1, sizeof *t->dims);
    t->dims[t->n_dims++] = 2;
    t->raw_data.data = sgrad_xcalloc(1, t->raw_data.len = sizeof size);
    memcpy(t->raw_data.data, size, sizeof size);
    m->graph->initializer = realloc(m->graph->initializer, (m->graph->n_initializer + 1) * sizeof(Onnx__Tensor *));
    m->graph->initializer[m->graph->n_initializer++] = t;
    set_pair(n, "axes", 2, 3);
    put(&n->op_type, "Resize");
    n->input = realloc(n->input, 4 * sizeof *n->input);
    while (n->n_input < 3) n->input[n->n_input++] = strdup("");
    n->input[n->n_input++] = strdup("size");
}

/* A value has so few numbers that those of all samples can be counted. */
static void too_large(void **state) {
    (void)state;
    size_t size;
    char *data = file_of("nin", 32, &size);
    assert_fails(read_changed(data, size, 32, enlarge, NULL, NULL), SGRAD_EFORMAT,
                 "(Resize): its output has more than 2147483648 numbers per sample");
    free(data);
}

/* A table of positions (1,T,C), as vision transformers have it, is one of (T,C). */
static void positions(void **state) {
    (void)state;
    const char *source = getenv("srcdir");
    char *path = sgrad_format("%s/tests/reference/onnx-attention.onnx", source ? source : ".");
    struct sgrad__onnx *file;
    int found = 0;
    assert_done(sgrad__onnx_open(path, &file));
    for (size_t i = 0; i < file->model->graph->n_initializer; i++) {
        Onnx__Tensor *t = file->model->graph->initializer[i];
        if (t->n_dims != 2 || t->dims[0] != 16 || t->dims[1] != 12) continue;
        t->dims = realloc(t->dims, 3 * sizeof *t->dims);
        t->dims[0] = 1, t->dims[1] = 16, t->dims[2] = 12;
        t->n_dims = 3;
    }
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    sgrad__onnx_build(file, g, sgrad_graph_input(g, "images", SGRAD_F32, sgrad_shape(3, 8, 8, 1)), 10);
    assert_done(sgrad_graph_error(g));
    for (int i = 0; i < g->imported->weights.count; i++) {
        const struct sgrad_shape *shape = &g->imported->weights.entry[i].view.shape;
        found += shape->rank == 2 && shape->dim[0] == 16 && shape->dim[1] == 12;
    }
    assert_int_equal(found, 1);
    sgrad_graph_destroy(g);
    sgrad__onnx_close(file);
    free(path);
}

/* What has no form is told by its layer. */
static void no_form(void **state) {
    (void)state;
    struct sgrad_context *context;
    const struct sgrad_context_options how = { .cpus = 1 };
    assert_done(sgrad_context_open(&how, &context));
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    int x = sgrad_graph_input(g, "images", SGRAD_F32, sgrad_shape(4, 2, 4, 4, 2));
    x = sgrad_layer(g, linear, "pixelwise", (x), .features = 3);
    sgrad_graph_loss(g, x, sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(3, 2, 4, 4)), 0);
    assert_done(sgrad__parameters_allocate(g, 1));
    assert_fails(sgrad__onnx_write(g, FILE_1), SGRAD_EINVAL, "pixelwise: linear of shape (1,2,4,4,2) cannot be written as ONNX");
    sgrad_graph_destroy(g);
    sgrad_context_close(context);
}

/* Other programs refuse a whole number where ONNX has a float. */
static void whole_floats(void **state) {
    (void)state;
    struct sgrad_context *context;
    const struct sgrad_context_options how = { .cpus = 1 };
    assert_done(sgrad_context_open(&how, &context));
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    int x = sgrad_graph_input(g, "images", SGRAD_F32, sgrad_shape(3, 4, 4, 2));
    x = sgrad_layer(g, batchnorm, "norm", (x), .momentum = 1);
    sgrad_graph_loss(g, x, sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(2, 4, 4)), 0);
    assert_done(sgrad__parameters_allocate(g, 1));
    assert_done(sgrad__onnx_write(g, FILE_1));
    size_t size;
    char *data = read_file(FILE_1, &size);
    Onnx__Model *m = unpack(data, size);
    const Onnx__Node *norm = node_of(m, "BatchNormalization");
    for (size_t i = 0; i < norm->n_attribute; i++) assert_int_equal(norm->attribute[i]->type, ONNX_OF_FLOAT);
    onnx__model__free_unpacked(m, NULL);
    free(data);
    sgrad_graph_destroy(g);
    sgrad_context_close(context);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a float attribute is written as a float, even if it is a whole number", whole_floats),
        sentence("a network exported to ONNX, read and exported again has the same bytes", round_trips),
        sentence("logits of ONNX files that PyTorch exported equal those of PyTorch", pytorch),
        sentence("a malformed or unsupported ONNX file is refused with its reason", refusals),
        sentence("a value with too many numbers is refused", too_large),
        sentence("batch norm that normalises by the batch is refused; epsilon 0 and momentum 1 are taken as they are", norms),
        sentence("a layer that ONNX cannot express is refused by its name", no_form),
        sentence("a table of positions with a leading dimension of one is read", positions),
        sentence("a run exported to ONNX predicts the same and can be trained on", a_run),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
#else
SKIPPED_WITHOUT("protobuf-c")
#endif
