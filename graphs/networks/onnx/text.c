/* text.c: reads nodes in ONNX's text syntax (onnx/docs/Syntax.md), as records of operations contain them, one per line:
 *
 *     scale = Constant <value = float[1, 3] {0.5, 1, inf}> ()
 *     y = Conv <kernel_shape = [3, 3], group = 1> (x, weight)
 *
 * Limits: one output; tensors of type float or int64 only. */
#include "graphs/networks/onnx/writer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct text {
    const char *at;
    bool wrong;
};

static bool is_next(struct text *t, char c) {
    while (*t->at == ' ') t->at++;
    if (*t->at != c) return false;
    t->at++;
    return true;
}

static void expect(struct text *t, char c) {
    if (!t->wrong && !is_next(t, c)) t->wrong = true;
}

/* Returns a name, which the caller must free. */
static char *take_word(struct text *t) {
    while (*t->at == ' ') t->at++;
    const char *from = t->at;
    while (isalnum((unsigned char)*t->at) || *t->at == '_') t->at++;
    t->wrong |= t->at == from;
    return sgrad_format("%.*s", (int)(t->at - from), from);
}

/* Sets *WHOLE to true if the number is written without a point and an exponent. */
static double take_number(struct text *t, int64_t *integer, bool *whole) {
    char *end = NULL, *end_whole = NULL;
    while (*t->at == ' ') t->at++;
    const double real = strtod(t->at, &end);
    *integer = strtoll(t->at, &end_whole, 10);
    *whole = end == end_whole;
    t->wrong |= end == t->at;
    t->at = end;
    return real;
}

/* "[3, 4] {…}", after its type */
static Onnx__Tensor *take_tensor(struct text *t, bool whole) {
    Onnx__Tensor *tensor = sgrad_xcalloc(1, sizeof *tensor);
    int64_t integer;
    bool is_whole;
    onnx__tensor__init(tensor);
    tensor->has_data_type = tensor->has_raw_data = true;
    tensor->data_type = whole ? ONNX_INT64 : ONNX_FLOAT;
    if (is_next(t, '['))
        do {
            take_number(t, &integer, &is_whole);
            tensor->dims = sgrad_array_grow(tensor->dims, (int)tensor->n_dims, sizeof *tensor->dims);
            tensor->dims[tensor->n_dims++] = integer;
        } while (is_next(t, ','));
    if (tensor->n_dims) expect(t, ']');
    expect(t, '{');
    int count = 0;
    do {
        const float real = (float)take_number(t, &integer, &is_whole);
        const size_t size = whole ? sizeof integer : sizeof real;
        tensor->raw_data.data = sgrad_array_grow(tensor->raw_data.data, count++, size);
        memcpy(tensor->raw_data.data + tensor->raw_data.len, whole ? (const void *)&integer : &real, size);
        tensor->raw_data.len += size;
    } while (!t->wrong && is_next(t, ','));
    expect(t, '}');
    return tensor;
}

static void take_text(struct text *t, Onnx__Attribute *a) {
    const size_t length = strcspn(t->at, "\"");
    a->has_s = true;
    a->type = ONNX_OF_TEXT;
    a->s.len = length;
    a->s.data = (uint8_t *)sgrad_format("%.*s", (int)length, t->at);
    t->at += length;
    expect(t, '"');
}

static void take_list(struct text *t, Onnx__Attribute *a) {
    int64_t integer;
    bool whole;
    a->type = ONNX_OF_INTS;
    do {
        take_number(t, &integer, &whole);
        a->ints = sgrad_array_grow(a->ints, (int)a->n_ints, sizeof *a->ints);
        a->ints[a->n_ints++] = integer;
        t->wrong |= !whole;
    } while (!t->wrong && is_next(t, ','));
    expect(t, ']');
}

static Onnx__Attribute *take_attribute(struct text *t) {
    Onnx__Attribute *a = sgrad_xcalloc(1, sizeof *a);
    onnx__attribute__init(a);
    a->name = take_word(t);
    a->has_type = true;
    expect(t, '=');
    bool whole;
    if (is_next(t, '[')) take_list(t, a);
    else if (is_next(t, '"')) take_text(t, a);
    else if (!strncmp(t->at, "float", 5) || !strncmp(t->at, "int64", 5)) {
        whole = *t->at == 'i';
        t->at += 5;
        a->type = ONNX_OF_TENSOR;
        a->t = take_tensor(t, whole);
    } else {
        a->f = (float)take_number(t, &a->i, &whole);
        a->type = whole ? ONNX_OF_INT : ONNX_OF_FLOAT;
        a->has_i = whole;
        a->has_f = !whole;
    }
    return a;
}

Onnx__Node *sgrad__onnx_take_node(const char **line) {
    struct text t = { .at = *line };
    Onnx__Node *n = sgrad_xcalloc(1, sizeof *n);
    onnx__node__init(n);
    n->output = sgrad_xcalloc(1, sizeof *n->output);
    n->output[n->n_output++] = take_word(&t);
    expect(&t, '=');
    n->op_type = take_word(&t);
    if (is_next(&t, '<')) {
        do {
            n->attribute = sgrad_array_grow(n->attribute, (int)n->n_attribute, sizeof *n->attribute);
            n->attribute[n->n_attribute++] = take_attribute(&t);
        } while (!t.wrong && is_next(&t, ','));
        expect(&t, '>');
    }
    expect(&t, '(');
    while (!t.wrong && !is_next(&t, ')')) {
        n->input = sgrad_array_grow(n->input, (int)n->n_input, sizeof *n->input);
        n->input[n->n_input++] = take_word(&t);
        if (*t.at != ')') expect(&t, ',');
    }
    if (!t.wrong && *t.at == '\n') t.at++;
    *line = t.at;
    if (!t.wrong) return n;
    onnx__node__free_unpacked(n, NULL);
    return NULL;
}
