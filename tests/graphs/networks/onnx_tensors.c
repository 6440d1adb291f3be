/* onnx_tensors: the values of tensors in ONNX files, in all fields in which the format allows them. */
#include "config.h"
#include "tests/scratch.h"

#ifdef SGRAD_HAVE_PROTOBUF_C
#include "graphs/networks/onnx/reader.h"

/* ---- where numbers are stored ------------------------------------------------------------------------------------- */

/* The numbers -3 to 4, or 0 to 7 where there is no sign, as TYPE in the field that it may have besides raw_data. */
static Onnx__Tensor eight(int32_t type, bool raw) {
    static const uint16_t half[] = { 0xc200, 0xc000, 0xbc00, 0, 0x3c00, 0x4000, 0x4200, 0x4400 };
    static const uint16_t brain[] = { 0xc040, 0xc000, 0xbf80, 0, 0x3f80, 0x4000, 0x4040, 0x4080 };
    static char room[64], bytes[64];
    Onnx__Tensor t;
    onnx__tensor__init(&t);
    static int64_t dim = 8;
    t.dims = &dim, t.n_dims = 1;
    t.has_data_type = true, t.data_type = type;
    size_t size = 4;
    for (int i = 0; i < 8; i++) {
        const int x = i - 3, bits = type == ONNX_FLOAT16 ? half[i] : type == ONNX_BFLOAT16 ? brain[i] : x;
        if (type == ONNX_FLOAT) ((float *)room)[i] = (float)x;
        else if (type == ONNX_DOUBLE) ((double *)room)[i] = x, size = 8;
        else if (type == ONNX_INT64) ((int64_t *)room)[i] = x, size = 8;
        else if (type == ONNX_UINT32 || type == ONNX_UINT64) ((uint64_t *)room)[i] = (uint64_t)i, size = 8;
        else ((int32_t *)room)[i] = type == ONNX_UINT8 || type == ONNX_UINT16 ? i : type == ONNX_BOOL ? i > 3 : bits;
    }
    const size_t width = type == ONNX_FLOAT16 || type == ONNX_BFLOAT16 || type == ONNX_INT16 || type == ONNX_UINT16 ? 2
                         : type == ONNX_BOOL || type == ONNX_INT8 || type == ONNX_UINT8                             ? 1
                         : type == ONNX_UINT32                                                                      ? 4 : size;
    for (size_t i = 0; i < 8; i++) memcpy(bytes + i * width, room + i * size, width);
    if (raw) t.has_raw_data = true, t.raw_data = (ProtobufCBinaryData){ 8 * width, (uint8_t *)bytes };
    else if (type == ONNX_FLOAT) t.float_data = (float *)room, t.n_float_data = 8;
    else if (type == ONNX_DOUBLE) t.double_data = (double *)room, t.n_double_data = 8;
    else if (type == ONNX_INT64) t.int64_data = (int64_t *)room, t.n_int64_data = 8;
    else if (type == ONNX_UINT32 || type == ONNX_UINT64) t.uint64_data = (uint64_t *)room, t.n_uint64_data = 8;
    else t.int32_data = (int32_t *)room, t.n_int32_data = 8;
    return t;
}

static void storages(void **state) {
    (void)state;
    static const int32_t types[] = { ONNX_FLOAT, ONNX_DOUBLE, ONNX_FLOAT16, ONNX_BFLOAT16, ONNX_INT64, ONNX_INT32, ONNX_INT16,
                                     ONNX_INT8, ONNX_UINT8, ONNX_UINT16, ONNX_UINT32, ONNX_UINT64, ONNX_BOOL };
    for (size_t k = 0; k < 2 * sizeof types / sizeof *types; k++) {
        const int32_t type = types[k / 2];
        const bool real = sgrad__onnx_is_real(type);
        const bool is_unsigned = type == ONNX_UINT8 || type == ONNX_UINT16 || type > ONNX_DOUBLE;
        const Onnx__Tensor t = eight(type, k % 2);
        int64_t whole[8];
        float number[8];
        int count = 0;
        assert_done(sgrad__onnx_check_tensor("a.onnx", "t", &t));
        assert_int_equal(sgrad__onnx_floats(&t, number, 8, &count), real);
        assert_int_equal(sgrad__onnx_ints(&t, whole, 8, &count), !real);
        assert_int_equal(count, 8);
        double any[8];
        sgrad__onnx_doubles(&t, any);
        for (int i = 0; i < 8; i++) {
            const int wanted = type == ONNX_BOOL ? i > 3 : is_unsigned && !real ? i : i - 3;
            if (real) assert_near(number[i], wanted, 0);
            else assert_int_equal(whole[i], wanted);
            assert_near(any[i], wanted, 0);
        }
        struct sgrad_entry entry;
        assert_int_equal(sgrad__onnx_entry(&t, "t", &entry), real);
        if (real) free(entry.name), free((void *)entry.data);
    }
}

/* A node, and a tensor (6) without numbers. */
static Onnx__Model *make_model(void) {
    Onnx__Model *m = sgrad_xcalloc(1, sizeof *m);
    onnx__model__init(m);
    onnx__graph__init(m->graph = sgrad_xcalloc(1, sizeof *m->graph));
    m->graph->node = sgrad_xcalloc(1, sizeof *m->graph->node);
    onnx__node__init(m->graph->node[m->graph->n_node++] = sgrad_xcalloc(1, sizeof **m->graph->node));
    m->graph->initializer = sgrad_xcalloc(1, sizeof *m->graph->initializer);
    Onnx__Tensor *t = m->graph->initializer[m->graph->n_initializer++] = sgrad_xcalloc(1, sizeof *t);
    onnx__tensor__init(t);
    t->name = strdup("bias");
    t->has_data_type = true, t->data_type = ONNX_FLOAT;
    t->dims = sgrad_xcalloc(1, sizeof *t->dims);
    t->dims[t->n_dims++] = 6;
    return m;
}

static void set_entry(Onnx__Tensor *t, const char *key, const char *value) {
    t->external_data = realloc(t->external_data, (t->n_external_data + 1) * sizeof *t->external_data);
    Onnx__Entry *e = t->external_data[t->n_external_data++] = sgrad_xcalloc(1, sizeof *e);
    onnx__entry__init(e);
    e->key = strdup(key), e->value = strdup(value);
}

/* Numbers in a file beside: read, or refused where they are not there, or not in the folder. */
static void beside(void **state) {
    (void)state;
    static const struct {
        const char *location, *offset, *length;
        int error;
        const char *text;
    } is[] = {
        { "weights.bin", "8", "24", 0, NULL },
        { "weights.bin", "8", NULL, 0, NULL },
        { "weights.bin", "16", "24", SGRAD_EFORMAT,
          "weights.bin: is truncated: it ends before byte 40, the end of tensor 'bias'" },
        { "weights.bin", "8", "20", SGRAD_EFORMAT, "tensor 'bias': its offset or length" },
        { "weights.bin", "-8", "24", SGRAD_EFORMAT, "tensor 'bias': its offset or length" },
        { "none.bin", NULL, "24", SGRAD_EIO, "none.bin: cannot be opened to read tensor 'bias': No such file" },
        { "../weights.bin", NULL, "24", SGRAD_EFORMAT, "'../weights.bin', which is not in the folder of this file" },
        { "/etc/passwd", NULL, "24", SGRAD_EFORMAT, "'/etc/passwd', which is not in the folder of this file" },
    };
    const float numbers[] = { 9, 9, 1, 2, 3, 4, 5, 6 };
    scratch_write("weights.bin", numbers, sizeof numbers);
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        Onnx__Model *m = make_model();
        Onnx__Tensor *t = m->graph->initializer[0];
        t->has_data_location = true, t->data_location = 1;
        set_entry(t, "location", is[i].location);
        if (is[i].offset) set_entry(t, "offset", is[i].offset);
        if (is[i].length) set_entry(t, "length", is[i].length);
        uint8_t *changed = sgrad_xcalloc(1, onnx__model__get_packed_size(m));
        scratch_write("outside.onnx", changed, onnx__model__pack(m, changed));
        struct sgrad__onnx *file;
        float bias[6];
        int count;
        if (is[i].error) assert_fails(sgrad__onnx_open(scratch_path("outside.onnx"), &file), is[i].error, is[i].text);
        else {
            assert_done(sgrad__onnx_open(scratch_path("outside.onnx"), &file));
            assert_true(sgrad__onnx_floats(file->model->graph->initializer[0], bias, 6, &count) && count == 6);
            for (int k = 0; k < 6; k++) assert_near(bias[k], k + 1, 0);
            sgrad__onnx_close(file);
        }
        onnx__model__free_unpacked(m, NULL);
        free(changed);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("ONNX numbers are read in every type and from every field", storages),
        sentence("ONNX numbers in a second file are read, and refused outside of the folder", beside),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
#else
SKIPPED_WITHOUT("protobuf-c")
#endif
