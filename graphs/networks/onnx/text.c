/* text.c: reads nodes in ONNX's text syntax (onnx/docs/Syntax.md), as records of operations contain them, one per line:
 *
 *     scale = Constant <value = float[1, 3] {0.5, 1, inf}> ()
 *     y = Conv <kernel_shape = [3, 3], group = 1> (x, weight)
 *     z = Resize <mode = "linear"> (y, , , sizes)          optional inputs are omitted
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

static bool is_next(struct text *text, char c) {
    while (*text->at == ' ') text->at++;
    if (*text->at != c) return false;
    text->at++;
    return true;
}

static void expect(struct text *text, char c) {
    if (!text->wrong && !is_next(text, c)) text->wrong = true;
}

/* Returns a name, which the caller must free. */
static char *take_word(struct text *text) {
    while (*text->at == ' ') text->at++;
    const char *from = text->at;
    while (isalnum((unsigned char)*text->at) || *text->at == '_') text->at++;
    text->wrong |= text->at == from;
    return sgrad_format("%.*s", (int)(text->at - from), from);
}

/* Sets *WHOLE to true if the number is written without a point and an exponent. */
static double take_number(struct text *text, int64_t *integer, bool *whole) {
    char *end = NULL, *end_whole = NULL;
    while (*text->at == ' ') text->at++;
    const double real = strtod(text->at, &end);
    *integer = strtoll(text->at, &end_whole, 10);
    *whole = end == end_whole;
    text->wrong |= end == text->at;
    text->at = end;
    return real;
}

/* "[3, 4] {…}", after its type */
static Onnx__Tensor *take_tensor(struct text *text, bool whole) {
    Onnx__Tensor *tensor = sgrad_xcalloc(1, sizeof *tensor);
    int64_t integer;
    bool is_whole;
    onnx__tensor__init(tensor);
    tensor->has_data_type = tensor->has_raw_data = true;
    tensor->data_type = whole ? ONNX_INT64 : ONNX_FLOAT;
    if (is_next(text, '['))
        do {
            take_number(text, &integer, &is_whole);
            tensor->dims = sgrad_array_grow(tensor->dims, (int)tensor->n_dims, sizeof *tensor->dims);
            tensor->dims[tensor->n_dims++] = integer;
        } while (is_next(text, ','));
    if (tensor->n_dims) expect(text, ']');
    expect(text, '{');
    int count = 0;
    do {
        const float real = (float)take_number(text, &integer, &is_whole);
        const size_t size = whole ? sizeof integer : sizeof real;
        tensor->raw_data.data = sgrad_array_grow(tensor->raw_data.data, count++, size);
        memcpy(tensor->raw_data.data + tensor->raw_data.len, whole ? (const void *)&integer : &real, size);
        tensor->raw_data.len += size;
    } while (!text->wrong && is_next(text, ','));
    expect(text, '}');
    return tensor;
}

static void take_text(struct text *text, Onnx__Attribute *a) {
    const size_t length = strcspn(text->at, "\"");
    a->has_s = true;
    a->type = ONNX_OF_TEXT;
    a->s.len = length;
    a->s.data = (uint8_t *)sgrad_format("%.*s", (int)length, text->at);
    text->at += length;
    expect(text, '"');
}

static void take_list(struct text *text, Onnx__Attribute *a) {
    int64_t integer;
    bool whole;
    a->type = ONNX_OF_INTS;
    do {
        take_number(text, &integer, &whole);
        a->ints = sgrad_array_grow(a->ints, (int)a->n_ints, sizeof *a->ints);
        a->ints[a->n_ints++] = integer;
        text->wrong |= !whole;
    } while (!text->wrong && is_next(text, ','));
    expect(text, ']');
}

static Onnx__Attribute *take_attribute(struct text *text) {
    Onnx__Attribute *a = sgrad_xcalloc(1, sizeof *a);
    onnx__attribute__init(a);
    a->name = take_word(text);
    a->has_type = true;
    expect(text, '=');
    bool whole;
    if (is_next(text, '[')) take_list(text, a);
    else if (is_next(text, '"')) take_text(text, a);
    else if (!strncmp(text->at, "float", 5) || !strncmp(text->at, "int64", 5)) {
        whole = *text->at == 'i';
        text->at += 5;
        a->type = ONNX_OF_TENSOR;
        a->t = take_tensor(text, whole);
    } else {
        a->f = (float)take_number(text, &a->i, &whole);
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
        while (*t.at == ' ') t.at++;
        n->input[n->n_input++] = *t.at == ',' ? sgrad_format("%s", "") : take_word(&t);
        if (*t.at != ')') expect(&t, ',');
    }
    if (!t.wrong && *t.at == '\n') t.at++;
    *line = t.at;
    if (!t.wrong) return n;
    onnx__node__free_unpacked(n, NULL);
    return NULL;
}
