/* program.c: properties of training programs for any network. The tests walk over the instructions with symbols instead of
 * numbers. The network has the difficult cases: a value with two readers, a branch without an effect, batch norm. It is tested
 * as it is, and with all layers up to bn2 recomputed. */
#include "graphs/compiler/program.h"
#include "codelets/ops/batchnorm.h"
#include "codelets/ops/conv2d.h"
#include "codelets/ops/global_average_pool.h"
#include "codelets/ops/image.h"
#include "codelets/ops/linear.h"
#include "codelets/ops/max_pool.h"
#include "tests/graphs/training.h"

enum { WINDOW = 3 };

/* pixels ── images ── conv1 ── bn1 ──┬── conv2 ── bn2 ── pool ── fc ── loss
 *                                    └─────────────┘ (added)
 *                           bn1 ── dead ── dead_bn                          */
static struct sgrad__training *network(bool again) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    const int pixels = sgrad_graph_input(g, "pixels", SGRAD_U8, sgrad_shape(3, 4, 4, 3));
    const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    int x = sgrad_layer(g, image, "images", (pixels), 0);
    x = sgrad_layer(g, conv2d, "conv1", (x), .channels = 5, .kernel = 3, .padding = 1);
    x = sgrad_layer(g, batchnorm, "bn1", (x), .relu = true);
    int dead = sgrad_layer(g, conv2d, "dead", (x), .channels = 5, .kernel = 1);
    sgrad_layer(g, batchnorm, "dead_bn", (dead), .relu = true);
    int y = sgrad_layer(g, conv2d, "conv2", (x), .channels = 5, .kernel = 3, .padding = 1, .bias = true);
    y = sgrad_graph_block(g, sgrad_layer(g, batchnorm, "bn2", (y, x), .relu = true));
    y = sgrad_layer(g, global_average_pool, "pool", (y));
    y = sgrad_layer(g, linear, "fc", (y), .features = 4, .bias = true);
    assert_done(sgrad_graph_loss(g, y, label, 0));
    if (again) assert_int_equal(sgrad__graph_recompute_blocks(g), 5);
    return training_open(g, sgrad_optimizers[0], 1);
}

static int lanes;       /* of gradients; 0: as many as micro-batches */
static int micro = 2;   /* samples */
static bool fuse;

static struct sgrad__program *build(struct sgrad__training *of, int micros, int group_micros, bool training, float clip_norm) {
    struct sgrad__program *p;
    const struct sgrad_program_options o = { .batch = micro * micros, .micro = micro, .group = micro * group_micros,
                                              .lanes = lanes, .training = training ? of : NULL,
                                              .clip_norm = clip_norm, .window = WINDOW, .fuse = fuse, .cpus = 1,
                                              .source = sgrad__source_of(NULL) };
    assert_done(sgrad__program_build(of->graph, &o, &p));
    return p;
}

/* ---- walking ---- */

/* What a buffer holds: nothing yet, something, or nothing any more; and, of a sum, which micro-batches in which tree:
 * "((0+2)+4)". */
struct content {
    enum { UNWRITTEN, WRITTEN, FORGOTTEN } state;
    int lasts;
    char text[256];
};

/* sum(n) = sum(first ⌈n/2⌉) + sum(rest), of the COUNT texts of LEAF */
static void halved(char *text, size_t size, char (*leaf)[256], int count) {
    char left[256], right[256];
    if (count == 1) {
        snprintf(text, size, "%s", leaf[0]);
        return;
    }
    halved(left, sizeof left, leaf, count - count / 2);
    halved(right, sizeof right, leaf + count - count / 2, count / 2);
    assert_true(snprintf(text, size, "(%s+%s)", left, right) < (int)size);
}

/* The tree over the micro-batches FROM, FROM + STEP, … below TO. */
static const char *tree(int from, int to, int step) {
    static char text[256];
    char leaf[64][256];
    int count = 0;
    for (int m = from; m < to; m += step) snprintf(leaf[count++], sizeof leaf[0], "%d", m);
    halved(text, sizeof text, leaf, count);
    return text;
}

/* The sum task's tree of eight, absent operands left out: SPAN of them from J on. */
static bool added(const struct sgrad__instruction *in, const struct content *content, int j, int span, char *text, size_t size) {
    char left[256], right[256];
    if (span == 1) return in->operand[j] >= 0 && snprintf(text, size, "%s", content[in->operand[j]].text) < (int)size;
    if (!added(in, content, j, span / 2, left, sizeof left)) return false;
    bool both = added(in, content, j + span / 2, span / 2, right, sizeof right);
    assert_true(snprintf(text, size, both ? "(%s+%s)" : "%s", left, right) < (int)size);
    return true;
}

/* What an instruction leaves in what it writes: a sum the tree of its operands, any other task its own micro-batch. */
static void write_content(const struct sgrad__instruction *in, const struct content *content, char *text, size_t size) {
    if (in->call->kernel == &sgrad_sum_kernel) assert_true(added(in, content, 0, SGRAD_SUM_INPUTS, text, size));
    else snprintf(text, size, "%d", in->micro);
}

/* One operand: nothing is read that was not written, or is forgotten; what is written again is added to, and the kernel knows. */
static void check_operand(const struct sgrad__program *program, const struct sgrad__instruction *in, int j,
                          const struct content *content) {
    const struct sgrad__buffer *b = &program->buffer[in->operand[j]];
    const enum sgrad_access access = in->call->access[j];
    const bool adds = in->call->accumulate >> j & 1;
    if (content->state == FORGOTTEN) fail_msg("%s uses %s after its last use", in->name, b->name);
    if (access != SGRAD_W && content->state == UNWRITTEN && !b->lent)
        fail_msg("%s reads %s, which nobody has written", in->name, b->name);
    if (access == SGRAD_W && (content->state == WRITTEN || b->lent)) fail_msg("%s overwrites %s", in->name, b->name);
    if (adds && access != SGRAD_RW) fail_msg("%s adds to %s, but does not say that it reads it", in->name, b->name);
    if (access == SGRAD_RW && !b->lent && !adds) fail_msg("%s changes %s, but does not add to it", in->name, b->name);
    if (in->call->view[j].shape.rank >= 0) assert_equal(sgrad_view_bytes(&in->call->view[j]), sgrad_view_bytes(&b->view));
}

static void walk_instruction(const struct sgrad__program *program, const struct sgrad__instruction *in, struct content *content) {
    char text[256];
    for (int j = 0; j < in->call->operands; j++)
        if (in->operand[j] >= 0) check_operand(program, in, j, &content[in->operand[j]]);
    write_content(in, content, text, sizeof text);
    for (int j = 0; j < in->call->operands; j++) {
        if (in->operand[j] < 0) continue;
        struct content *c = &content[in->operand[j]];
        if (in->call->access[j] == SGRAD_W) {
            c->state = WRITTEN;
            memcpy(c->text, text, sizeof text);
        } else if (in->call->accumulate >> j & 1 && !program->buffer[in->operand[j]].rows) {
            char before[256];
            memcpy(before, c->text, sizeof before);
            assert_true(snprintf(c->text, sizeof c->text, "(%s+%s)", before, text) < (int)sizeof c->text);
        }
        if (in->last >> j & 1) {
            c->state = FORGOTTEN;
            c->lasts++;
        }
    }
}

/* The tree over lanes, of which each has its micro-batches added in order. */
static const char *lane_tree(int micros) {
    static char text[256];
    char leaf[64][256];
    const int count = lanes && lanes < micros ? lanes : micros;
    for (int l = 0, m = 0; l < count; l++) {
        snprintf(leaf[l], sizeof leaf[0], "%d", m++);
        for (; m < micros && m * count / micros == l; m++) {
            char before[256];
            memcpy(before, leaf[l], sizeof before);
            snprintf(leaf[l], sizeof leaf[0], "(%.100s+%d)", before, m);
        }
    }
    halved(text, sizeof text, leaf, count);
    return text;
}

/* A sum that INSTRUCTION reads as operand J is that of the micro-batches FROM to TO, one in STEP. */
static void check_sum(const struct sgrad__instruction *in, int j, const struct content *content, int from, int to, int step) {
    const char *wanted = tree(from, to, step), *got = content[in->operand[j]].text;
    if (strcmp(got, wanted)) fail_msg("%s reads the sum %s, not %s", in->name, got, wanted);
}

/* Where sums are read: batch norm's over its group, its statistics' over the groups; gradients over all that made them. */
static void check_sums(const struct sgrad__program *program, const struct sgrad__instruction *in, const struct content *content) {
    const int micros = program->micros, group = (int)(program->micros * program->batch.group / program->share), m = in->micro,
              start = m - m % group;
    const char *kernel = in->call->kernel->name;
    if (!strcmp(kernel, "batchnorm apply")) check_sum(in, 4, content, start, start + group, 1);
    if (!strcmp(kernel, "batchnorm moments")) check_sum(in, 0, content, start, start + group, 1);
    if (!strcmp(kernel, "batchnorm data")) check_sum(in, 5, content, start, start + group, 1);
    if (!strcmp(kernel, "batchnorm finish")) check_sum(in, 0, content, 0, micros, group);
    if (in->call->kernel != sgrad_optimizers[0]->update) return;
    if (strstr(in->name, "bn")) check_sum(in, 1, content, 0, micros, group);
    else assert_string_equal(content[in->operand[1]].text, lane_tree(micros));
}

static void walk(const struct sgrad__program *program) {
    struct content *content = sgrad_xcalloc((size_t)program->buffer_count, sizeof *content);
    for (int i = 0; i < program->instruction_count; i++) {
        check_sums(program, &program->instruction[i], content);
        walk_instruction(program, &program->instruction[i], content);
    }
    for (int i = 0; i < program->buffer_count; i++) {
        const struct sgrad__buffer *b = &program->buffer[i];
        if (content[i].state == UNWRITTEN && !b->lent) fail_msg("%s: nobody writes it", b->name);
        if (content[i].lasts != (b->lifetime == SGRAD_TRANSIENT)) fail_msg("%s: given back %d times", b->name, content[i].lasts);
    }
    assert_string_equal(content[program->output[program->statistics].buffer].text, tree(0, program->micros, 1));
    free(content);
}

/* How many instructions have a name that begins so. */
static int times(const struct sgrad__program *program, const char *name) {
    int count = 0;
    for (int i = 0; i < program->instruction_count; i++) count += !strncmp(program->instruction[i].name, name, strlen(name));
    return count;
}

/* ---- tests ---- */

/* Micro-batches, and micro-batches of a group. */
static const int cuts[][2] = { { 1, 1 }, { 2, 2 }, { 4, 1 }, { 4, 2 }, { 6, 3 }, { 9, 9 }, { 12, 4 } };
#define for_each_cut(c) for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)

static struct sgrad__training *plain, *marked;

static void check_training(struct sgrad__training *of, const int cut[2], float clip_norm) {
    struct sgrad__program *p = build(of, cut[0], cut[1], true, clip_norm);
    const int micros = cut[0], groups = cut[0] / cut[1];
    walk(p);
    assert_int_equal(times(p, "conv1 forward #"), micros);
    assert_int_equal(times(p, "conv1 backward-weight"), micros);
    assert_int_equal(times(p, "bn1 apply #"), micros);
    assert_int_equal(times(p, "bn1 moments"), groups);
    assert_int_equal(times(p, "bn1 parameters"), groups);
    assert_int_equal(times(p, "bn1 finish"), 1);
    for (int i = 0; i < of->graph->parameter_count; i++) {
        const struct sgrad__parameter *w = &of->graph->parameter[i];
        char name[64];
        snprintf(name, sizeof name, "%s update", w->name);
        assert_int_equal(times(p, name), !w->state && strncmp(w->name, "dead", 4));
    }
    sgrad__program_destroy(p);
}

static void training(void **state) {
    (void)state;
    static const int lane_counts[] = { 1, 2, 5, 8, 0 };
    for (size_t l = 0; l < sizeof lane_counts / sizeof *lane_counts; l++) {
        lanes = lane_counts[l];
        for_each_cut(c) {
            check_training(plain, cuts[c], 0);
            check_training(plain, cuts[c], 1);
            check_training(marked, cuts[c], 0);
        }
    }
}

static void evaluation(void **state) {
    (void)state;
    struct sgrad__program *p = build(plain, 4, 1, false, 0);
    walk(p);
    for (int i = 0; i < p->instruction_count; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        assert_true(in->call->kernel->kind != &sgrad_backward_kind && in->call->kernel->kind != &sgrad_update_kind);
        for (int j = 0; j < in->call->operands; j++)
            assert_false(in->operand[j] >= 0 && p->buffer[in->operand[j]].lent && in->call->access[j] != SGRAD_R);
    }
    assert_int_equal(times(p, "bn1 inference"), 4);
    assert_int_equal(times(p, "bn1 sum"), 0);
    sgrad__program_destroy(p);
}

/* What nobody asks for is not computed: gradients of the images, and of a branch that leads nowhere. */
static void nothing_in_vain(void **state) {
    (void)state;
    struct sgrad__program *p = build(plain, 4, 2, true, 0);
    assert_int_equal(times(p, "conv1 backward-data"), 0);
    for (int i = 0; i < p->instruction_count; i++)
        assert_false(!strncmp(p->instruction[i].name, "dead", 4) && p->instruction[i].call->kernel->kind == &sgrad_backward_kind);
    assert_int_equal(times(p, "dead_bn finish"), 1);        /* it saw the images, so its running statistics move */
    sgrad__program_destroy(p);
}

/* The gradient of a value with two readers: the first task overwrites it, the second adds. */
static void shared_value(void **state) {
    (void)state;
    struct sgrad__program *p = build(plain, 4, 2, true, 0);
    for (int b = 0; b < p->buffer_count; b++) {
        int writers = 0;
        if (strncmp(p->buffer[b].name, "bn1 gradient", 12)) continue;
        for (int i = 0; i < p->instruction_count; i++)
            for (int j = 0; j < p->instruction[i].call->operands; j++) {
                const struct sgrad_bound_kernel *call = p->instruction[i].call;
                if (p->instruction[i].operand[j] != b || call->access[j] == SGRAD_R) continue;
                assert_string_equal(call->kernel->name, writers ? "conv2d backward-data" : "batchnorm data");
                assert_int_equal(call->accumulate >> j & 1, writers);
                assert_int_equal(call->access[j], writers ? SGRAD_RW : SGRAD_W);
                writers++;
            }
        assert_int_equal(writers, 2);
    }
    sgrad__program_destroy(p);
}

/* Twice the micro-batches are twice the tasks of micro-batches, and no more sums than what they add. */
static void size_is_linear(void **state) {
    (void)state;
    int others[6], sums[6];
    for (int k = 0; k < 6; k++) {
        struct sgrad__program *p = build(plain, 1 << k, 1 << k, true, 0);
        sums[k] = others[k] = 0;
        for (int i = 0; i < p->instruction_count; i++) (p->instruction[i].call->kernel == &sgrad_sum_kernel ? sums : others)[k]++;
        sgrad__program_destroy(p);
    }
    for (int k = 0; k + 2 < 6; k++) assert_int_equal(others[k + 2] - others[k + 1], 2 * (others[k + 1] - others[k]));
    assert_int_equal(sums[0], 0);
    assert_int_equal(sums[3], sums[1]);     /* eight terms are one task */
    assert_int_equal(sums[4], 3 * sums[1]);
    assert_int_equal(sums[5], 5 * sums[1]);
}

static int64_t of_gpus, gpu_micro, gpus = 1;    /* samples that GPUs have, and of a GPU's task; 0: any worker any task. GPUs */

/* Every sample of the share is in one micro-batch, in order, none reaches beyond a unit, and all that a task takes or leaves for
 * its samples is for so many, and for the workers whose they are; none of these adds to a gradient of others. */
static void check_cut(int batch, int group, int unit, int most, bool fused, const char *sizes) {
    const struct sgrad_program_options o = { .batch = batch, .micro = most, .group = group, .unit = unit, .training = plain,
                                              .window = WINDOW, .fuse = fused, .cpus = 1,
                                              .gpus = of_gpus > 0 ? (int)gpus : 0, .gpu_samples = of_gpus,
                                              .gpu_micro = gpu_micro, .lanes = lanes, .source = sgrad__source_of(NULL) };
    struct sgrad__program *p;
    char text[256] = "";
    int64_t size = unit ? unit : group, units = batch / size, next = 0;
    assert_done(sgrad__program_build(plain->graph, &o, &p));
    for (int m = 0; m < p->micros; next += p->micro[m++].samples) {
        assert_int_equal(p->micro[m].first, next);
        const bool on_gpu = next % size < of_gpus / units;
        assert_int_equal(p->micro[m].workers, !of_gpus ? SGRAD_ANY_WORKER : on_gpu ? SGRAD_GPU_WORKERS : SGRAD_CPU_WORKERS);
        assert_int_equal(p->micro[m].gpu, on_gpu && gpus > 1 ? (units > 1 ? next / size : m) % gpus + 1 : 0);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", m ? " " : "", (long long)p->micro[m].samples);
    }
    assert_string_equal(text, sizes);
    enum sgrad_workers *whose = sgrad_xcalloc((size_t)p->buffer_count, sizeof *whose);
    for (int i = 0; i < p->instruction_count; i++) {
        const struct sgrad__instruction *in = &p->instruction[i];
        for (int j = 0; j < in->call->operands; j++) {
            if (in->operand[j] < 0) continue;
            if (in->call->access[j] == SGRAD_RW && in->workers) assert_int_equal(whose[in->operand[j]], in->workers);
            if (in->call->access[j] != SGRAD_R) whose[in->operand[j]] = in->workers;
            if (!p->buffer[in->operand[j]].rows) continue;
            const struct sgrad__micro *m = &p->micro[in->micro];
            assert_int_equal(p->buffer[in->operand[j]].view.shape.dim[0], m->samples);
            assert_int_equal(in->call->view[j].shape.dim[0], m->samples);
            if (strncmp(in->name, "read", 4) != 0) assert_true(in->workers == m->workers && in->gpu == m->gpu);
        }
    }
    if (!fused && !lanes && gpus == 1) walk(p);     /* which knows one tree */
    sgrad__program_destroy(p), free(whose);
}

static void uneven(void **state) {
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        check_cut(20, 20, 10, 4, fused, "4 3 3 4 3 3");
        check_cut(20, 10, 0, 4, fused, "4 3 3 4 3 3");
        check_cut(20, 20, 0, 8, fused, "7 7 6");
        check_cut(7, 7, 0, 7, fused, "7");
        check_cut(7, 7, 0, 9, fused, "7");
        check_cut(5, 1, 0, 4, fused, "1 1 1 1 1");
    }
}

/* GPUs have the beginning, of several groups of each, one GPU all of that: their tasks and CPUs' are of other sizes. */
static void shared_out(void **state) {
    (void)state;
    for (of_gpus = 13, gpu_micro = 7, lanes = 0; lanes < 8; lanes++) {
        check_cut(20, 20, 0, 3, lanes % 2, "7 6 3 2 2");
        check_cut(20, 20, 20, 7, lanes % 2, "7 6 7");
    }
    for (gpus = 2, gpu_micro = 4, lanes = 0; lanes < 8; lanes += 7) check_cut(20, 20, 0, 3, lanes % 2, "4 3 3 3 3 2 2");
    of_gpus = 12, lanes = 0, check_cut(20, 10, 0, 3, false, "3 3 2 2 3 3 2 2"), of_gpus = 0, gpus = 1;
}

/* The inputs of the steps in flight lie side by side, so that the next can be read early; nothing else does. */
static void window(void **state) {
    (void)state;
    struct sgrad__program *p = build(plain, 2, 2, true, 0);
    int many = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        assert_true(p->buffer[i].copies == 1 || p->buffer[i].copies == WINDOW);
        many += p->buffer[i].copies == WINDOW;
    }
    assert_int_equal(many, 2 * 3);      /* pixels, labels, images */
    sgrad__program_destroy(p);
}

/* ---- computed again ---- */

/* It waits, itself or through another that does, for something that backward has made. */
static void check_held_back(const struct sgrad__program *program) {
    bool *late = sgrad_xcalloc((size_t)program->buffer_count, sizeof *late);
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad__instruction *in = &program->instruction[i];
        bool waits = false;
        for (int j = 0; j < in->call->operands; j++) waits |= in->operand[j] >= 0 && late[in->operand[j]];
        if (in->again >= 0 && !waits) fail_msg("%s may run before backward begins", in->name);
        for (int j = 0; j < in->call->operands; j++)
            if (in->operand[j] >= 0 && in->call->access[j] != SGRAD_R)
                late[in->operand[j]] |= in->again >= 0 || in->call->kernel->kind == &sgrad_backward_kind;
    }
    free(late);
}

/* Once more is done what backward needs, and nothing else: no sums, no statistics, nothing of what is kept or leads nowhere. */
static void computed_again(void **state) {
    (void)state;
    for_each_cut(c) {
        struct sgrad__program *p = build(marked, cuts[c][0], cuts[c][1], true, 0);
        int again = 0;
        for (int i = 0; i < p->instruction_count; i++) again += p->instruction[i].again >= 0;
        assert_int_equal(again, 3 * cuts[c][0]);
        assert_int_equal(times(p, "conv1 forward again"), cuts[c][0]);
        assert_int_equal(times(p, "bn1 apply again"), cuts[c][0]);
        assert_int_equal(times(p, "conv2 forward again"), cuts[c][0]);
        check_held_back(p);
        sgrad__program_destroy(p);
    }
    struct sgrad__program *p = build(marked, 4, 1, false, 0);
    for (int i = 0; i < p->instruction_count; i++) assert_int_equal(p->instruction[i].again, -1);
    sgrad__program_destroy(p);
}

/* Twelve equal convolutions with batch norm, pooled once, of images so large that tasks go by slices. */
static struct sgrad__training *deep(bool again) {
    struct sgrad_graph *g = sgrad_graph_create(SGRAD_F32);
    char name[32];
    int x = sgrad_graph_input(g, "images", SGRAD_F32, sgrad_shape(3, 16, 16, 32));
    const int label = sgrad_graph_input(g, "label", SGRAD_I32, sgrad_shape(0));
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "conv%d", i);
        x = sgrad_layer(g, conv2d, name, (x), .channels = 32, .kernel = 3, .padding = 1);
        snprintf(name, sizeof name, "bn%d", i);
        x = sgrad_layer(g, batchnorm, name, (x), .relu = true);
        if (i == 1) x = sgrad_layer(g, max_pool, "pool", (x), .kernel = 3, .stride = 1, .padding = 1);
    }
    x = sgrad_layer(g, global_average_pool, "average", (x));
    assert_done(sgrad_graph_loss(g, sgrad_layer(g, linear, "fc", (x), .features = 4), label, 0));
    if (again) assert_in_range(sgrad__graph_recompute_blocks(g), 15, 20);   /* of 25 */
    return training_open(g, sgrad_optimizers[0], 1);
}

static size_t memory(const struct sgrad__program *program) {
    size_t bytes = 0;
    for (int i = 0; i < program->buffer_count; i++)
        if (program->buffer[i].rows) bytes += sgrad__buffer_bytes(&program->buffer[i]) * (size_t)program->buffer[i].copies;
    return bytes;
}

/* All else is the same tasks, of the same links, by the same slices: else sums would have other bits. What is done again goes by
 * the slices that it went by first. */
static void check_same_tasks(const struct sgrad__program *program, const struct sgrad__program *q) {
    int sliced = 0, j = 0;
    for (int i = 0; i < q->instruction_count; i++) {
        const struct sgrad_bound_kernel *call = q->instruction[i].call;
        sliced += q->instruction[i].again >= 0 && sgrad__call_slice(call);
        if (q->instruction[i].again >= 0) continue;
        const struct sgrad_bound_kernel *other = program->instruction[j].call;
        assert_string_equal(q->instruction[i].name, program->instruction[j++].name);
        assert_int_equal(sgrad__call_slice(call), sgrad__call_slice(other));
        assert_int_equal(sgrad__call_links(call), sgrad__call_links(other));
        for (int l = 0; l < sgrad__call_links(call); l++)
            assert_ptr_equal(sgrad__call_link(call, l)->kernel, sgrad__call_link(other, l)->kernel);
    }
    assert_int_equal(j, program->instruction_count);
    assert_true(sliced > 0);
}

static void memory_falls(void **state) {
    (void)state;
    struct sgrad__training *g = deep(false), *h = deep(true);
    micro = 32, fuse = true;
    struct sgrad__program *p = build(g, 2, 2, true, 0), *q = build(h, 2, 2, true, 0);
    micro = 2, fuse = false;
    check_same_tasks(p, q);
    check_held_back(q);
    if (10 * memory(q) > 7 * memory(p)) fail_msg("%zu bytes with layers computed again, %zu without", memory(q), memory(p));
    sgrad__program_destroy(p), sgrad__program_destroy(q);
    training_close(g), training_close(h);
}

static struct sgrad_context *context;
static int begin(void **state) {
    (void)state;
    if (sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1 }, &context)) return -1;
    plain = network(false);
    marked = network(true);
    return 0;
}
static int end(void **state) {
    (void)state;
    training_close(plain);
    training_close(marked);
    sgrad_context_close(context);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a training program reads nothing that was not written, and adds in a fixed tree", training),
        sentence("an evaluation program changes no parameter", evaluation),
        sentence("gradients that are not needed are not computed", nothing_in_vain),
        sentence("the gradients of two readers of a value are added", shared_value),
        sentence("the number of tasks grows with the number of micro-batches", size_is_linear),
        sentence("the inputs of several steps are in memory at a time, and nothing else is", window),
        sentence("recomputation repeats what backward needs, and nothing else", computed_again),
        sentence("recomputation saves memory and keeps all other tasks", memory_falls),
        sentence("micro-batches of uneven sizes have every sample once", uneven),
        sentence("GPUs and CPUs share a batch by the documented sizes", shared_out),
    };
    return run_sentences(argc, argv, tests, begin, end);
}
