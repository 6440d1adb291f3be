/* reading.c: adds the tasks that read the samples of a micro-batch, on CPUs.
 *
 * A GPU processes hundreds of samples at once, but a core decodes them one after another. Therefore, if slices of them are large
 * enough for tasks, idle cores read the slices, and they are joined on the GPU:
 *
 *     read 0    0 ···· 15  ──┐
 *     read 16   16 ··· 31  ──┼──>  the micro-batch of 48
 *     read 32   32 ··· 47  ──┘ */
#include "graphs/compiler/builder.h"

#include <stdlib.h>

static int64_t samples_of(const struct sgrad_builder *builder, int m) { return builder->p->micro[m].samples; }

static struct sgrad_view view_of(const struct sgrad_builder *builder, int input, int64_t samples) {
    struct sgrad_view view = builder->g->value[builder->g->input[input]].view;
    view.shape.dim[0] = samples;
    return view;
}

/* The buffer has one copy per step in flight, so that the samples of the next steps are read early. */
static int add_field(struct sgrad_builder *builder, int m, int input, int64_t samples) {
    const struct sgrad__value *v = &builder->g->value[builder->g->input[input]];
    const int buffer = sgrad__add_buffer(builder, sgrad_format("%s#%d", v->name, m), view_of(builder, input, samples));
    builder->p->buffer[buffer].rows = true;
    builder->p->buffer[buffer].copies = builder->p->window;
    return buffer;
}

/* Adds the task that reads SAMPLES samples of micro-batch M, from FIRST on, to the buffers FIELD. */
static void add_read(struct sgrad_builder *builder, int m, int64_t first, int64_t samples, const int *field) {
    const struct sgrad__source *from = &builder->o->source;
    struct sgrad_bound_kernel read = { .kernel = from->kernel, .attrs = from->attrs };
    int operand[SGRAD_MAX_OPERANDS];
    for (int i = 0; i < builder->g->inputs; i++) {
        operand[i] = field[i];
        read.view[read.operands] = view_of(builder, i, samples);
        read.access[read.operands++] = SGRAD_W;
    }
    if (builder->p->records >= 0) {
        operand[read.operands] = builder->p->records;
        read.view[read.operands] = from->records;
        read.access[read.operands++] = SGRAD_R;
    }
    char *name = first || samples < samples_of(builder, m) ? sgrad_format("read %lld #%d", (long long)first, m)
                                                     : sgrad_format("read #%d", m);
    sgrad__add_instruction(builder, sgrad__shared_call(builder, read), operand, m, SGRAD__PRIORITY_INPUT, name)->first = first;
}

/* Returns the number of slices. A slice has at least about 16 samples and a megabyte: a task that reads less is too short. */
static int slices_of(const struct sgrad_builder *builder, int m) {
    enum { SAMPLES = 16, BYTES = 1 << 20 };
    int64_t bytes = 0;
    if (!sgrad__on_gpus(builder, builder->p->micro[m].workers) || builder->o->cpus < 2) return 1;
    for (int i = 0; i < builder->g->inputs; i++) {
        const struct sgrad_view view = view_of(builder, i, samples_of(builder, m));
        bytes += (int64_t)sgrad_view_bytes(&view);
    }
    const int by_samples = sgrad__micros(samples_of(builder, m), SAMPLES), by_bytes = sgrad__micros(bytes, BYTES);
    return by_samples < by_bytes ? by_samples : by_bytes;
}

/* Adds the tasks that join the SLICES of field INPUT to TO, the buffer for all samples. */
static void add_whole(struct sgrad_builder *builder, int m, int input, const struct sgrad__piece *piece, int slices, int to) {
    const int begin = builder->p->instruction_count;
    sgrad__add_copies(builder, piece, slices, to, builder->p->buffer[to].name);
    for (int j = begin; j < builder->p->instruction_count; j++) {
        struct sgrad__instruction *in = &builder->p->instruction[j];
        in->priority += SGRAD__PRIORITY_INPUT - SGRAD__PRIORITY_UPDATE;
        in->micro = m;
        in->workers = builder->p->micro[m].workers;
        in->gpu = builder->p->micro[m].gpu;
    }
    builder->activation[0][builder->g->input[input] * builder->micros + m] = to;
}

void sgrad__add_input(struct sgrad_builder *builder, int m) {
    const int slices = slices_of(builder, m);
    const int64_t samples = samples_of(builder, m);
    struct sgrad__piece *piece = sgrad_xcalloc((size_t)(slices * builder->g->inputs), sizeof *piece);
    int field[SGRAD_MAX_OPERANDS];
    for (int64_t s = 0, first = 0, count; s < slices; s++, first += count) {
        count = samples / slices + (s < samples % slices);
        for (int i = 0; i < builder->g->inputs; i++) {
            const struct sgrad_view whole = view_of(builder, i, samples);
            const int64_t row = sgrad_shape_count(&whole.shape) / samples;
            field[i] = add_field(builder, m, i, count);
            piece[i * slices + s] = (struct sgrad__piece){ field[i], { 0, first * row, count * row } };
        }
        add_read(builder, m, first, count, field);
    }
    for (int i = 0; i < builder->g->inputs; i++)
        if (slices > 1) add_whole(builder, m, i, piece + i * slices, slices, add_field(builder, m, i, samples));
        else builder->activation[0][builder->g->input[i] * builder->micros + m] = field[i];
    free(piece);
}
