/* constants.c: computes, when a file is read, the nodes whose inputs are known: tensors of the file, and shapes. The numbers of a
 * tensor are doubles here, so that integers up to 2^53 and the products of shapes with SGRAD__SAMPLES are exact.
 *
 * A Range over the samples, of any number, is computed for the first two samples only: it is 0 and 1. Of such integers, only sums
 * and products with constants are computed. These are linear in the number of the sample, so two determine all others. */
#include "graphs/networks/onnx/constants.h"

#include <stdlib.h>
#include <string.h>

/* Maximum number of elements of all results and their inputs. A small file can request a large result, for example by Expand. */
enum { MOST_IN_ALL = 1 << 27 };

static const Onnx__Tensor *known(const struct sgrad__thing *thing) {
    if (!thing) return NULL;
    return thing->tensor ? thing->tensor : thing->indices;
}

static bool load(const struct sgrad__thing *thing, struct sgrad__constant *to) {
    const Onnx__Tensor *t = known(thing);
    *to = (struct sgrad__constant){
        .type = t->data_type, .rank = (int)t->n_dims, .first_two_samples = !thing->tensor, .samples = thing->samples
    };
    if (thing->sliced || t->n_dims > SGRAD__DIMENSIONS || sgrad__onnx_count(t) > SGRAD__CONSTANT_LIMIT) return false;
    for (int i = 0; i < to->rank; i++) to->dim[i] = t->dims[i];
    if (!sgrad__constant_allocate(to)) return false;
    sgrad__onnx_doubles(t, to->x);
    if (!thing->turned) return true;
    double *columns = sgrad_xcalloc((size_t)to->count + 1, sizeof *columns);
    for (int64_t i = 0; i < to->count; i++) columns[i % to->dim[1] * to->dim[0] + i / to->dim[1]] = to->x[i];
    free(to->x);
    to->x = columns;
    to->dim[0] = t->dims[1], to->dim[1] = t->dims[0];
    return true;
}

/* Makes the result a tensor: floats, 64-bit integers or truth values. */
static void store(struct sgrad__reader *reader, const struct sgrad__constant *from, struct sgrad__thing *to) {
    const bool real = sgrad__onnx_is_real(from->type), truth = from->type == ONNX_BOOL;
    const size_t size = real ? sizeof(float) : truth ? 1 : sizeof(int64_t);
    const int32_t type = real ? ONNX_FLOAT : truth ? ONNX_BOOL : ONNX_INT64;
    Onnx__Tensor *t = sgrad__onnx_new_tensor(reader, type, from->dim, (size_t)from->rank, (size_t)from->count * size);
    for (int64_t i = 0; i < from->count; i++)
        if (real) ((float *)t->raw_data.data)[i] = (float)from->x[i];
        else if (truth) t->raw_data.data[i] = from->x[i] != 0;
        else ((int64_t *)t->raw_data.data)[i] = sgrad__constant_integer(from->x[i]);
    if (from->first_two_samples) to->indices = t, to->samples = from->samples;
    else to->tensor = t;
    to->known = true;
}

/* Returns true if N is read as part of a layer instead, which keeps the tensor of a parameter: its name, its layout, and that two
 * layers have the same. */
static bool is_of_layer(const struct sgrad__reader *reader, const Onnx__Node *n) {
    const Onnx__Tensor *t = sgrad__onnx_input(reader, n, 0)->tensor;
    int64_t axis[SGRAD__NUMBERS];
    int count;
    if (!t) return false;
    if (!strcmp(n->op_type, "Cast")) return t->data_type == sgrad__onnx_int(n, "to", 0);
    if (!sgrad__onnx_is_real(t->data_type)) return false;
    if (!strcmp(n->op_type, "Transpose")) return t->n_dims == 2;
    return !strcmp(n->op_type, "Unsqueeze") && t->n_dims == 4 && sgrad__onnx_numbers(reader, n, 1, axis, &count) && count == 1 &&
           axis[0] == 2;
}

/* Other types round, or wrap around. */
static bool is_index(const struct sgrad__constant *is) { return is->type == ONNX_INT64 || is->type == ONNX_INT32; }

/* If an input of N is of the first two samples, so is the result, and its dimension of samples is set. Returns false if the
 * result is not linear in the number of the sample. */
static bool is_linear(struct sgrad__fold *f) {
    const char *operator = f->n->op_type;
    const bool two = !strcmp(operator, "Add") || !strcmp(operator, "Mul"), unsqueeze = !strcmp(operator, "Unsqueeze");
    const struct sgrad__constant *from = NULL;
    for (int i = 0; i < f->inputs; i++)
        if (f->in[i].first_two_samples) {
            if (from || (i && !two)) return false;
            from = &f->in[i];
        }
    if (!from) return !f->out.first_two_samples || is_index(&f->out);
    if ((!two && !unsqueeze && strcmp(operator, "Cast")) || !is_index(&f->out)) return false;
    f->out.first_two_samples = true;
    if (unsqueeze) return true;     /* which has set the dimension */
    const int after = from->rank - from->samples;
    f->out.samples = f->out.rank - after;
    for (int i = 0; i < f->inputs; i++) {
        const struct sgrad__constant *in = &f->in[i];
        if (!is_index(in) || (in != from && in->rank >= after && in->dim[in->rank - after] != 1)) return false;
    }
    return true;
}

bool sgrad__onnx_fold(struct sgrad__reader *reader, const Onnx__Node *n) {
    struct sgrad__fold f = { .reader = reader, .n = n, .inputs = (int)n->n_input };
    struct sgrad__thing *to = n->n_output == 1 ? sgrad__onnx_thing(reader, n->output[0]) : NULL;
    if (!to || !n->n_input || n->n_input > SGRAD_MAX_INPUTS) return false;
    for (size_t i = 0; i < n->n_input; i++) {
        const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
        if (*n->input[i] ? !known(t) : !i || strcmp(n->op_type, "Slice")) return false;
    }
    if (is_of_layer(reader, n)) return false;
    bool done = true;
    for (size_t i = 0; i < n->n_input && done; i++)
        if (*n->input[i]) {
            const struct sgrad__thing *t = sgrad__onnx_input(reader, n, i);
            done = (reader->folded += sgrad__onnx_count(known(t))) <= MOST_IN_ALL && load(t, &f.in[i]);
        }
    done = done && sgrad__constant_compute(&f) && is_linear(&f) && (reader->folded += f.out.count) <= MOST_IN_ALL;
    if (done) store(reader, &f.out, to);
    for (int i = 0; i < f.inputs; i++) free(f.in[i].x);
    free(f.out.x);
    return done;
}
