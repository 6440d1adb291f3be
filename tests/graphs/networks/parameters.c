/* Parameters of every network: their number, their initial values, saving and loading them. */
#include "config.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/linear.h"
#include "graphs/networks/graph.h"
#include "tests/scratch.h"

static int images(struct sgrad_graph *graph, int size, int channels) {
    return sgrad_graph_input(graph, "images", SGRAD_F32, sgrad_shape(3, size, size, channels));
}

static int what_takes(struct sgrad_graph *graph, const struct sgrad_model *model, int size, int channels) {
    return model->volumes ? sgrad_graph_input(graph, "volumes", SGRAD_F32, sgrad_shape(4, 2, size, size, channels))
                          : images(graph, size, channels);
}

static struct sgrad_graph *make(const char *model, int size, int channels, int classes) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const struct sgrad_model *m = sgrad_model_find(model);
    assert_done(sgrad__graph_set_model(g, m, model));
    const int y = m->build(g, what_takes(g, m, size, channels), classes);
    if (sgrad__graph_own_loss(g)) {
        m->loss(g, y, sgrad_graph_input(g, "label", SGRAD_I32, (struct sgrad_shape){ 0 }));
        assert_done(sgrad_graph_finalize(g));
        return g;
    }
    const struct sgrad_shape logits = sgrad_graph_shape(g, y);
    struct sgrad_shape label = { .rank = logits.rank - 2 };     /* one for an image, or for each of its pixels */
    for (int i = 0; i < label.rank; i++) label.dim[i] = logits.dim[i + 1];
    sgrad_graph_loss(g, y, sgrad_graph_input(g, "label", SGRAD_I32, label), 0);
    assert_done(sgrad_graph_error(g));
    assert_true(g->loss >= 0);
    return g;
}

static struct sgrad__parameter *find(const struct sgrad_graph *graph, const char *name) {
    for (int i = 0; i < graph->parameter_count; i++)
        if (strcmp(graph->parameter[i].name, name) == 0) return &graph->parameter[i];
    fail_msg("no parameter is called %s", name);
    return NULL;
}

/* A network takes images of the side that its record names, and no smaller ones. */
static void least_sides(void **state) {
    (void)state;
    for (const struct sgrad_model *const *m = sgrad_models; *m; m++) {
        const int least = (*m)->min_image_side ? (*m)->min_image_side : 1;
        if (((*m)->loss && !(*m)->loss_option) || (*m)->from_file) continue;      /* takes tokens; is nobody's yet */
        sgrad_graph_destroy(make((*m)->name, least, 3, 10));
        if (least == 1) continue;
        struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
        assert_done(sgrad__graph_set_model(g, *m, (*m)->name));
        scratch_listen();
        (*m)->build(g, what_takes(g, *m, least - 1, 3), 10);
        scratch_said();
        assert_true(sgrad_graph_error(g));
        sgrad_graph_destroy(g);
    }
}

/* The same of transformers.GPT2LMHeadModel, whose head is its embedding; sizes by options. */
static void language_models(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t numbers;
        int tensors;
    } is[] = {
        { "gpt2", 124439808, 148 },
        { "gpt2:layers=24,heads=16,width=1024", 354823168, 292 },
        { "gpt:layers=4,heads=4,width=128,context=64", 834304, 52 },
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
        const struct sgrad_model *model = sgrad_model_find(is[i].text);
        assert_done(sgrad__graph_set_model(g, model, is[i].text));
        const int tokens = sgrad_graph_input(g, "tokens", SGRAD_I32, sgrad_shape(1, 16));
        const int next = sgrad_graph_input(g, "next", SGRAD_I32, sgrad_shape(1, 16));
        model->loss(g, model->build(g, tokens, 256), next);
        assert_done(sgrad_graph_finalize(g));
        struct sgrad__items items = sgrad__parameters_list(g);
        assert_int_equal(sgrad__parameters_count(g), is[i].numbers);
        assert_int_equal(items.count, is[i].tensors);
        sgrad__items_free(&items);
        sgrad_graph_destroy(g);
    }
}

/* A copy of the tensor's values; free it. */
static float *values(struct sgrad_tensor *tensor) {
    float *v = sgrad_xcalloc(1, sgrad_view_bytes(&tensor->view));
    assert_done(sgrad_tensor_read(tensor, v));
    return v;
}

/* sum(p.numel() for p in model.parameters()) and len(model.state_dict()) of bench/torch_models.py; of 1000 classes also of
 * torchvision.models */
static void counts(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int size, channels, classes;
        int64_t numbers;
        int tensors;
    } is[] = {
        { "lenet", 32, 3, 10, 62006, 10 },           { "lenet", 28, 1, 10, 61706, 10 },
        { "mlp", 32, 3, 10, 1707274, 6 },            { "mlp", 8, 1, 10, 167178, 6 },
        { "convnet", 32, 3, 10, 66410, 26 },         { "convnet", 8, 1, 10, 65834, 26 },
        { "nin", 32, 3, 10, 966986, 18 },            { "resnet20", 32, 3, 10, 269722, 116 },
        { "resnet32", 32, 3, 10, 464154, 188 },      { "resnet44", 32, 3, 10, 658586, 260 },
        { "resnet56", 32, 3, 10, 853018, 332 },      { "resnet110", 32, 3, 10, 1727962, 656 },
        { "resnet18", 224, 3, 1000, 11689512, 122 }, { "resnet34", 224, 3, 1000, 21797672, 218 },
        { "resnet50", 224, 3, 1000, 25557032, 320 }, { "resnet101", 224, 3, 1000, 44549160, 626 },
        { "resnet152", 1, 3, 1000, 60192808, 932 },  { "vgg11", 32, 3, 10, 9231114, 58 },
        { "vgg13", 32, 3, 10, 9416010, 72 },         { "vgg16", 32, 3, 10, 14728266, 93 },
        { "alexnet", 224, 3, 1000, 61100840, 16 },   { "googlenet", 224, 3, 1000, 6624904, 344 },
        { "mobilenet_v2", 224, 3, 1000, 3504872, 314 },
        { "mobilenet_v3_small", 224, 3, 1000, 2542856, 244 }, { "mobilenet_v3_large", 224, 3, 1000, 5483032, 312 },
        { "efficientnet_b0", 224, 3, 1000, 5288548, 360 }, { "regnet_x_400mf", 224, 3, 1000, 5495976, 428 },
        { "regnet_y_400mf", 224, 3, 1000, 4344144, 384 }, { "regnet_y_800mf", 224, 3, 1000, 6432512, 340 },
        { "nin_imagenet", 224, 3, 1000, 7595176, 24 }, { "googlenet:aux=1", 224, 3, 1000, 13004888, 364 },
        { "googlenet:aux=1,bn=0", 224, 3, 1000, 13378280, 128 }, { "googlenet:bn=0", 224, 3, 1000, 6998552, 116 },
        { "airbench94", 32, 3, 10, 1972792, 39 },    { "airbench94", 9, 1, 4, 1961768, 39 },
        { "vgg11:large=1,bn=0", 224, 3, 1000, 132863336, 22 }, { "vgg16:large=1", 32, 3, 1000, 138365992, 97 },
        { "vgg16:large=1,bn=0", 224, 3, 1000, 138357544, 32 }, { "vgg19:large=1,bn=0", 224, 3, 1000, 143667240, 38 },
        { "vit_b_16", 224, 3, 1000, 86567656, 152 }, { "vit_b_32", 224, 3, 1000, 88224232, 152 },
        { "vit_l_16", 224, 3, 1000, 304326632, 296 }, { "convnext_tiny", 32, 3, 1000, 28589128, 182 },
        { "convnext_base", 32, 3, 1000, 88591464, 344 }, { "densenet121", 32, 3, 1000, 7978856, 727 },
        { "densenet161", 32, 3, 1000, 28681000, 967 }, { "densenet169", 32, 3, 1000, 14149480, 1015 },
        { "densenet201", 32, 3, 1000, 20013928, 1207 },
        { "resnet18:small=1", 32, 3, 10, 11173962, 122 }, { "resnet50:small=1", 32, 3, 10, 23520842, 320 },
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        struct sgrad_graph *g = make(is[i].model, is[i].size, is[i].channels, is[i].classes);
        if (sgrad__parameters_count(g) != is[i].numbers) print_message("%s\n", is[i].model);
        assert_int_equal(sgrad__parameters_count(g), is[i].numbers);
        assert_int_equal(g->parameter_count, is[i].tensors);
        sgrad_graph_destroy(g);
    }
}

/* Weights that PyTorch wrote. */
static void loads_pytorch(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int size, channels;
    } is[] = { { "lenet", 28, 1 }, { "resnet20", 32, 3 } };
    const char *source = getenv("srcdir");
    for (size_t i = 0; i < 2; i++) {
        struct sgrad_graph *g = make(is[i].model, is[i].size, is[i].channels, 10);
        struct sgrad_safetensors file;
        char *path = sgrad_format("%s/tests/reference/%s.safetensors", source ? source : ".", is[i].model);
        assert_done(sgrad__parameters_allocate(g, 1));
        assert_done(sgrad_safetensors_open(path, &file));
        assert_done(sgrad__weights_load(g, sgrad__parameters_list(g), &file, NULL));
        sgrad_safetensors_close(&file);
        sgrad_graph_destroy(g);
        free(path);
    }
}

/* ---- how they start ---- */

static void moments(const struct sgrad__parameter *parameter, double *mean, double *deviation) {
    float *v = values(parameter->tensor);
    double sum = 0, squares = 0, count = (double)sgrad_shape_count(&parameter->is.shape);
    for (int64_t i = 0; i < count; i++) sum += v[i], squares += (double)v[i] * v[i];
    *mean = sum / count;
    *deviation = sqrt(squares / count - *mean * *mean);
    free(v);
}

static bool equal(struct sgrad__parameter *one, struct sgrad__parameter *other) {
    float *x = values(one->tensor), *y = values(other->tensor);
    bool same = memcmp(x, y, sgrad_view_bytes(&one->tensor->view)) == 0;
    free(x);
    free(y);
    return same;
}

static void starts(void **state) {
    (void)state;
    struct sgrad_graph *g = make("resnet20", 32, 3, 10), *again = make("resnet20", 32, 3, 10),
                       *other = make("resnet20", 32, 3, 10);
    assert_done(sgrad__parameters_allocate(g, 7));
    assert_done(sgrad__parameters_allocate(again, 7));
    assert_done(sgrad__parameters_allocate(other, 8));

    double mean, deviation;
    moments(find(g, "layer3.1.conv1.weight"), &mean, &deviation);   /* 36,864 numbers; fan 9·64 */
    assert_near(mean, 0, 4 * sqrt(2.0 / 576 / 36864));
    assert_near(deviation, sqrt(2.0 / 576), 0.02 * sqrt(2.0 / 576));
    moments(find(g, "fc.weight"), &mean, &deviation);               /* U(-1/8, 1/8) */
    assert_near(mean, 0, 0.015);
    assert_near(deviation, 0.125 / sqrt(3), 0.005);
    moments(find(g, "bn1.weight"), &mean, &deviation);
    assert_near(mean, 1, 0);
    assert_near(deviation, 0, 0);

    assert_true(equal(find(g, "layer1.0.conv1.weight"), find(again, "layer1.0.conv1.weight")));
    assert_false(equal(find(g, "layer1.0.conv1.weight"), find(other, "layer1.0.conv1.weight")));
    assert_false(equal(find(g, "layer1.0.conv1.weight"), find(g, "layer1.0.conv2.weight")));
    sgrad_graph_destroy(g);
    sgrad_graph_destroy(again);
    sgrad_graph_destroy(other);
}

/* As in torchvision: the number of outputs of a unit does not depend on the groups; some biases are zeros. */
static void starts_of_mobile_networks(void **state) {
    (void)state;
    struct sgrad_graph *g = make("efficientnet_b0", 32, 3, 10);
    assert_done(sgrad__parameters_allocate(g, 7));
    double mean, deviation;
    moments(find(g, "features.6.1.block.1.0.weight"), &mean, &deviation);       /* 1152 filters of 5x5 */
    assert_near(deviation, sqrt(2.0 / 28800), 0.02 * sqrt(2.0 / 28800));
    moments(find(g, "features.6.1.block.2.fc1.bias"), &mean, &deviation);
    assert_near(mean, 0, 0);
    assert_near(deviation, 0, 0);
    moments(find(g, "classifier.1.weight"), &mean, &deviation);                 /* U(-1/√10, 1/√10) */
    assert_near(deviation, sqrt(1.0 / 30), 0.02 * sqrt(1.0 / 30));
    moments(find(g, "classifier.1.bias"), &mean, &deviation);
    assert_near(deviation, 0, 0);
    sgrad_graph_destroy(g);
    g = make("regnet_y_400mf", 32, 3, 10);
    assert_done(sgrad__parameters_allocate(g, 7));
    moments(find(g, "trunk_output.block4.block4-1.f.se.fc1.bias"), &mean, &deviation);     /* U(-1/√440, 1/√440) */
    assert_near(deviation, sqrt(1.0 / 1320), 0.2 * sqrt(1.0 / 1320));
    sgrad_graph_destroy(g);
}

/* The values and names that a network gives instead of those of its operations. */
static void set_by_network(void **state) {
    (void)state;
    struct sgrad_graph *g = make("vit:layers=1,heads=2,width=48,patch=4", 8, 3, 10);
    double mean, deviation;
    assert_done(sgrad__parameters_allocate(g, 7));
    moments(find(g, "encoder.layers.encoder_layer_0.self_attention.in_proj_weight"), &mean, &deviation);    /* (144,48): Xavier */
    assert_near(mean, 0, 0.005);
    assert_near(deviation, sqrt(2.0 / (144 + 48)), 0.003);
    moments(find(g, "conv_proj.weight"), &mean, &deviation);        /* N(0, 1/48) */
    assert_near(deviation, sqrt(1.0 / 48), 0.01);
    moments(find(g, "heads.head.weight"), &mean, &deviation);
    assert_near(deviation, 0, 0);
    assert_int_equal(find(g, "class_token")->is.shape.rank, 3);
    assert_int_equal(find(g, "encoder.pos_embedding")->is.shape.dim[1], 5);
    sgrad_graph_destroy(g);
    g = make("convnext_tiny:width=4", 32, 3, 10);
    assert_done(sgrad__parameters_allocate(g, 7));
    moments(find(g, "features.1.0.layer_scale"), &mean, &deviation);
    assert_near(mean, 1e-6, 1e-12);
    sgrad_graph_destroy(g);
}

static void renamings(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
        const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
        int x = images(g, 4, 5);
        sgrad_graph_rename(g, i ? "fc.weight" : "fc.weights", "fc");
        x = sgrad_layer(g, global_average_pool, "pool", (x));
        x = sgrad_layer(g, linear, "fc", (x), .features = 3);
        scratch_listen();
        assert_int_equal(sgrad_graph_loss(g, x, label, 0), i ? SGRAD_EINVAL : SGRAD_ENAME);
        assert_contains(scratch_said(),
                        i ? "fc.weight: cannot be renamed fc: a layer has this name" : "no layer has this parameter");
        sgrad_graph_destroy(g);
    }
}

/* Of filters (64,3,3,24) the first 24 pass on a channel each, the others are as PyTorch's: U(-1/√216, 1/√216). */
static void passes_on(void **state) {
    (void)state;
    struct sgrad_graph *g = make("airbench94", 32, 3, 10);
    assert_done(sgrad__parameters_allocate(g, 7));
    const struct sgrad__parameter *p = find(g, "block1.conv1.weight");
    float *v = values(p->tensor), largest = 0;
    for (int i = 0; i < 24 * 216; i++) assert_true(v[i] == (i % 216 == 4 * 24 + i / 216));
    for (int i = 24 * 216; i < 64 * 216; i++) largest = fmaxf(largest, fabsf(v[i]));
    assert_in_range((int)(1e6f * largest), (int)(0.99e6 / sqrt(216)), (int)(1e6 / sqrt(216)));
    free(v);
    v = values(find(g, "block3.conv2.weight")->tensor);
    for (int i = 0; i < 256 * 2304; i++) assert_true(v[i] == (i % 2304 == 4 * 256 + i / 2304));
    free(v);
    sgrad__graph_freeze(g, NULL);
    for (int i = 0; i < g->parameter_count; i++) {
        const char *name = g->parameter[i].name;
        const bool scale = strstr(name, ".norm") && strstr(name, ".weight");
        assert_int_equal(g->parameter[i].frozen, scale || !strcmp(name, "whiten.weight"));
    }
    sgrad_graph_destroy(g);
    g = make("airbench94:no_whitening=1,no_identity=1", 32, 3, 10);     /* it is trained; all begin as He's */
    sgrad__graph_freeze(g, NULL);
    assert_false(find(g, "whiten.weight")->frozen);
    assert_int_equal(find(g, "whiten.weight")->is.init, SGRAD_HE);
    assert_int_equal(find(g, "block3.conv2.weight")->is.init, SGRAD_HE);
    sgrad_graph_destroy(g);
    g = sgrad_graph_create(SGRAD_F32);
    scratch_listen();
    sgrad_layer(g, conv2d, "conv", (images(g, 5, 1)), .channels = 10, .kernel = 2, .whitening = true);
    assert_contains(scratch_said(), "an even number of at most 8 filters, not 10");
    sgrad_graph_destroy(g);
    g = sgrad_graph_create(SGRAD_F32);
    images(g, 5, 1);
    scratch_listen();
    sgrad_graph_freeze(g, "conv.weight");
    assert_contains(scratch_said(), "no layer has this parameter");
    sgrad_graph_destroy(g);
}

/* ---- files ---- */

#define PATH scratch_path("weights.safetensors")

/* A convolution (2,3,3,5) in memory, batch norm, linear. */
static struct sgrad_graph *small(void) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    int x = images(g, 4, 5);
    x = sgrad_layer(g, conv2d, "conv", (x), .channels = 2, .kernel = 3);
    x = sgrad_layer(g, batchnorm, "bn", (x));
    x = sgrad_layer(g, global_average_pool, "pool", (x));
    x = sgrad_layer(g, linear, "fc", (x), .features = 3, .bias = true);
    assert_done(sgrad_graph_loss(g, x, label, 0));
    assert_done(sgrad__parameters_allocate(g, 1));
    return g;
}

static int load(struct sgrad_graph *graph, const char *path) {
    struct sgrad_safetensors file;
    assert_done(sgrad_safetensors_open(path, &file));
    int error = sgrad__weights_load(graph, sgrad__parameters_list(graph), &file, NULL);
    sgrad_safetensors_close(&file);
    return error;
}

/* Weights for small() of which the last entry, and the type of all, are the test's. */
static float zeros[90];
static int load_entry(struct sgrad_graph *graph, struct sgrad_entry last) {
    struct sgrad_entry entry[] = {
        { "bn.bias", { SGRAD_F32, { 1, { 2 } } }, zeros },         { "bn.weight", { SGRAD_F32, { 1, { 2 } } }, zeros },
        { "bn.running_mean", { SGRAD_F32, { 1, { 2 } } }, zeros }, { "bn.running_var", { SGRAD_F32, { 1, { 2 } } }, zeros },
        { "fc.bias", { SGRAD_F32, { 1, { 3 } } }, zeros },         { "fc.weight", { SGRAD_F32, { 2, { 3, 2 } } }, zeros },
        { "conv.weight", { SGRAD_F32, { 4, { 2, 5, 3, 3 } } }, zeros }, last,
    };
    int count = sizeof entry / sizeof *entry - 1;
    for (int i = 0; i < count; i++)
        if (last.name && strcmp(entry[i].name, last.name) == 0) entry[i] = last, last.name = NULL;
    assert_done(sgrad_safetensors_write(PATH, entry, count + (last.name != NULL), NULL, 0));
    return load(graph, PATH);
}

static void types(void **state) {
    (void)state;
    struct sgrad_graph *g = small();
    const uint16_t bf16[] = { 0x3f80, 0xc000, 0x3e80 };
    const uint16_t f16[] = { 0x3e00, 0xc000, 0x0001 };
    const double f64[] = { 0.1, -7, 1e-3 };
    const int64_t batches = 9;
    float *v;
    assert_done(load_entry(g, (struct sgrad_entry){ "fc.bias", { SGRAD_BF16, { 1, { 3 } } }, bf16 }));
    v = values(find(g, "fc.bias")->tensor);
    assert_memory_equal(v, ((float[]){ 1, -2, 0.25 }), 12);
    free(v);
    assert_done(load_entry(g, (struct sgrad_entry){ "fc.bias", { SGRAD_F16, { 1, { 3 } } }, f16 }));
    v = values(find(g, "fc.bias")->tensor);
    assert_memory_equal(v, ((float[]){ 1.5f, -2, 0x1p-24f }), 12);
    free(v);
    assert_done(load_entry(g, (struct sgrad_entry){ "fc.bias", { SGRAD_F64, { 1, { 3 } } }, f64 }));
    v = values(find(g, "fc.bias")->tensor);
    assert_memory_equal(v, ((float[]){ 0.1f, -7, 1e-3f }), 12);
    free(v);
    assert_done(load_entry(g, (struct sgrad_entry){ "bn.num_batches_tracked", { SGRAD_I64, { 0 } }, &batches }));
    assert_done(load_entry(g, (struct sgrad_entry){ 0 }));      /* without num_batches_tracked: it stays */
    float *kept = values(find(g, "bn.num_batches_tracked")->tensor);
    assert_memory_equal(kept, &batches, 8);
    free(kept);
    sgrad_graph_destroy(g);
}

static void refusals(void **state) {
    (void)state;
    struct sgrad_graph *g = small(), *untouched = small();
    assert_fails(load_entry(g, (struct sgrad_entry){ "conv.weight", { SGRAD_F32, { 4, { 2, 3, 3, 5 } } }, zeros }), SGRAD_ESHAPE,
                 "conv.weight has shape (2,3,3,5), but the network requires (2,5,3,3)");
    assert_fails(load_entry(g, (struct sgrad_entry){ "fc.weight", { SGRAD_F32, { 1, { 6 } } }, zeros }), SGRAD_ESHAPE,
                 "fc.weight has shape (6), but the network requires (3,2)");
    assert_fails(load_entry(g, (struct sgrad_entry){ "fc.bias", { SGRAD_I32, { 1, { 3 } } }, zeros }), SGRAD_EFORMAT,
                 "fc.bias has type I32, but must be F32, BF16, F16 or F64");
    assert_fails(load_entry(g, (struct sgrad_entry){ "bn.num_batches_tracked", { SGRAD_F32, { 0 } }, zeros }), SGRAD_EFORMAT,
                 "bn.num_batches_tracked has type F32, but must be I64");
    assert_fails(load_entry(g, (struct sgrad_entry){ "fc2.bias", { SGRAD_F32, { 1, { 3 } } }, zeros }), SGRAD_EFORMAT,
                 "has a tensor fc2.bias, which the network does not have; check --model");
    const struct sgrad_entry one = { "conv.weight", { SGRAD_F32, { 4, { 2, 5, 3, 3 } } }, zeros };
    assert_done(sgrad_safetensors_write(PATH, &one, 1, NULL, 0));
    assert_fails(load(g, PATH), SGRAD_EFORMAT, "has no tensor bn.weight, which the network requires");
    for (int i = 0; i < g->parameter_count; i++) assert_true(equal(&g->parameter[i], &untouched->parameter[i]));
    sgrad_graph_destroy(g);
    sgrad_graph_destroy(untouched);
}

static struct sgrad_context *context;
static int begin(void **state) {
    return scratch_open(state) || sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1 }, &context);
}
static int end(void **state) {
    sgrad_context_close(context);
    return scratch_close(state);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("every model has as many parameters as its PyTorch counterpart", counts),
        sentence("weights of PyTorch are loaded", loads_pytorch),
        sentence("weights start as in PyTorch, and follow the seed", starts),
        sentence("mobile networks start as in torchvision", starts_of_mobile_networks),
        sentence("a network can set names and initial values of parameters", set_by_network),
        sentence("a parameter that no layer has, and a layer's name, are refused in renamings", renamings),
        sentence("airbench94 starts with identity filters", passes_on),
        sentence("weights of bf16, f16 and f64 are loaded", types),
        sentence("weights that do not fit are refused, and the network stays as it was", refusals),
        sentence("a model accepts images of its minimum side and refuses smaller ones", least_sides),
        sentence("GPT models have as many parameters as in transformers", language_models),
    };
    return run_sentences(argc, argv, tests, begin, end);
}
