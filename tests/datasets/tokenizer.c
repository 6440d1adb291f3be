/* Tokens of texts equal those that the library `tokenizers` computes with tests/reference/tokenizer.json (GPT-2's) and with the
 * small tokenizers of every kind in tests/reference/tokenizer_kinds.json. Tokenizers that would give other tokens are refused. */
#include "config.h"

#include "datasets/tokenizers/tokenizer.h"
#include "runtime/runtime.h"
#include "tests/scratch.h"

#include <jansson.h>

static char *reference(void) {
    const char *source = getenv("srcdir");
    return sgrad_format("%s/tests/reference/tokenizer.json", source ? source : ".");
}

static void check(const struct sgrad_tokenizer *tokenizer, const char *text, const int32_t *wanted) {
    struct sgrad_encoder *encoder = sgrad_encoder_create(tokenizer);
    size_t count, i = 0;
    const int32_t *token = sgrad_encode(encoder, text, strlen(text), &count);
    for (; i < count && token[i] == wanted[i]; i++) {}
    if (i < count || wanted[i] >= 0)
        fail_msg("'%s': token %zu of %zu is %d, not %d", text, i, count, i < count ? token[i] : -1, wanted[i]);
    sgrad_encoder_destroy(encoder);
}

static const struct {
    const char *text;
    int32_t token[20];
} rows[] = {
    { "<|endoftext|>To be", { 700, 407, 309, -1 } },
    { "To be<|endoftext|><|endoftext|> be<|endoftext", { 407, 309, 700, 700, 309, 27, 91, 437, -1 } },
    { "To be, or not to be", { 407, 309, 11, 609, 327, 286, 309, -1 } },
    { "a\u00a0b \u00a0c! \u202fd", { 64, 126, 254, 65, 220, 126, 254, 66, 0, 220, 158, 222, 107, 67, -1 } },
    { "\u0627\u0614", { 678, 679, -1 } },
    { "Cafe\u0301 2026", { 34, 64, 69, 68, 136, 223, 690, -1 } },
    { "12345 67", { 671, 688, 220, 21, 22, -1 } },
    { "line one\r\nline two\n\n  three", { 75, 531, 550, 201, 198, 75, 531, 256, 86, 78, 198, 198, 220, 295, 263, 68, -1 } },
    { "\u4f60\u597d \U0001f600 na\u00efve", { 160, 121, 254, 161, 98, 121, 220, 172, 253, 246, 222, 687, -1 } },
};

static void texts(void **state) {
    (void)state;
    char *file = reference();
    struct sgrad_tokenizer *t;
    assert_done(sgrad_tokenizer_open(file, &t));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (i != 1) check(t, rows[i].text, rows[i].token);
    size_t size;
    assert_memory_equal(sgrad_tokenizer_word(t, 700, &size), "<|endoftext|>", 13);
    sgrad_tokenizer_close(t);
    free(file);
}

/* The pair of files has one vocabulary, in which "model" is a word; of added tokens the longest counts, and takes blanks. */
static void files(void **state) {
    (void)state;
    char *file = reference();
    struct sgrad_tokenizer *t;
    json_t *object = json_load_file(file, 0, NULL), *model = json_object_get(object, "model");
    json_t *vocabulary = json_object_get(model, "vocab"), *merge;
    FILE *to = fopen(scratch_path("merges.txt"), "w");
    size_t i;
    fputs("#version: 0.2\n", to);
    json_array_foreach(json_object_get(model, "merges"), i, merge) fprintf(to, "%s\n", json_string_value(merge));
    fclose(to);
    if (!json_object_get(vocabulary, "model")) json_object_set_new(vocabulary, "model", json_integer(701));
    assert_int_equal(json_dump_file(vocabulary, scratch_path("vocab.json"), 0), 0);
    assert_done(sgrad_tokenizer_open(scratch_path("vocab.json"), &t));
    for (size_t r = 2; r < sizeof rows / sizeof *rows; r++) check(t, rows[r].text, rows[r].token);
    sgrad_tokenizer_close(t);

    json_decref(object);
    free(file);
}

static json_t *added_token(int id, const char *content, bool lstrip, bool rstrip, bool normalized) {
    return json_pack("{s:i, s:s, s:b, s:b, s:b}", "id", id, "content", content, "lstrip", lstrip, "rstrip", rstrip, "normalized",
                     normalized);
}

/* Opens what OBJECT has become. */
static struct sgrad_tokenizer *open_changed(const json_t *object) {
    struct sgrad_tokenizer *t;
    assert_int_equal(json_dump_file(object, scratch_path("changed.json"), 0), 0);
    assert_done(sgrad_tokenizer_open(scratch_path("changed.json"), &t));
    return t;
}

static void added(void **state) {
    (void)state;
    char *file = reference();
    json_t *object = json_load_file(file, 0, NULL), *list = json_object_get(object, "added_tokens");
    json_array_append_new(list, added_token(701, "<|end", true, true, false));
    json_array_append_new(list, added_token(702, "\n\n", false, false, false));
    json_array_append_new(list, added_token(703, "<a>", false, false, false));
    json_array_append_new(list, added_token(704, "x<a>y", false, false, true));
    json_array_append_new(list, added_token(705, "x<b>y", false, false, true));
    json_array_append_new(list, added_token(68, "e", false, false, true));
    struct sgrad_tokenizer *t = open_changed(object);
    check(t, "<|endoftext|>To b", (int32_t[]){ 700, 407, 268, -1 });
    check(t, "To \u00a0<|end \u3000 To <|endoftext|>", (int32_t[]){ 407, 701, 407, 220, 700, -1 });
    check(t, "C<|end  \n\n", (int32_t[]){ 34, 701, 702, -1 });       /* the blanks that one takes are the next */
    check(t, "x<a>y <a>", (int32_t[]){ 87, 703, 88, 220, 703, -1 }); /* what is not normalized comes first */
    check(t, "x<b>y<a>", (int32_t[]){ 705, 703, -1 });
    sgrad_tokenizer_close(t);
    json_decref(object);
    free(file);
}

/* A byte that has no token is left out before its neighbours are joined; of equal merges the last holds. */
static void lacks(void **state) {
    (void)state;
    char *file = reference();
    json_t *object = json_load_file(file, 0, NULL), *model = json_object_get(object, "model");
    json_object_set_new(model, "vocab",
                        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "a", 0, "b", 1, "c", 2, "ab", 3, "bc", 4, "abc", 5));
    json_object_set_new(model, "merges", json_pack("[[s,s], s, s, [s,s]]", "b", "c", "a bc", "a b", "b", "c"));
    json_object_set_new(json_array_get(json_object_get(object, "added_tokens"), 0), "id", json_integer(6));
    struct sgrad_tokenizer *t = open_changed(object);
    check(t, "axbc", (int32_t[]){ 3, 2, -1 });
    check(t, "bxxc<|endoftext|>a", (int32_t[]){ 4, 6, 0, -1 });
    sgrad_tokenizer_close(t);
    json_object_set_new(model, "unk_token", json_string("a")); /* takes the place of such bytes, each a word here */
    t = open_changed(object);
    check(t, "xx", (int32_t[]){ 0, 0, -1 });
    sgrad_tokenizer_close(t);
    json_decref(object);
    free(file);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *path[3], *value, *says; /* of a member of the file what it becomes */
    } cases[] = {
        { { "normalizer" },
          "{\"type\": \"NFKC\"}",
          "normalizer: {\"type\":\"NFKC\"} is not supported; Stargrad would produce other" },
        { { "normalizer" },
          "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Lowercase\"}]}",
          "normalizer: {\"type\":\"Lowercase\"}" },
        { { "normalizer" },
          "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" +\"}, \"content\": \"\"}",
          "normalizer: {\"type\":\"Replace\"" },
        { { "normalizer" }, "{\"type\": \"NFC\", \"form\": 5}", "normalizer.form: 5 is not supported" },
        { { "pre_tokenizer" }, "{\"type\": \"Whitespace\"}", "pre_tokenizer: {\"type\":\"Whitespace\"}" },
        { { "pre_tokenizer" },
          "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"a+\"}, \"behavior\": \"Isolated\", \"invert\": false}",
          "pre_tokenizer: {\"Regex\":\"a+\"} is not supported" },
        { { "pre_tokenizer" },
          "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": \"Digits\"}]}",
          "pre_tokenizer: {\"type\":\"Digits\"} is not supported" },
        { { "pre_tokenizer", "add_prefix_space" }, "5", "pre_tokenizer.add_prefix_space: 5" },
        { { "decoder" },
          "{\"type\": \"BPEDecoder\"}",
          "decoder: {\"type\":\"BPEDecoder\"} is not supported; Stargrad would decode tokens to other text" },
        { { "decoder" }, "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}", "decoder: {\"type\":\"Strip\"" },
        { { "post_processor" },
          "{\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\"}}, "
          "{\"SpecialToken\": {\"id\": \"x\"}}]}",
          "post_processor: [{\"Sequence\":{\"id\":\"A\"}}" },
        { { "post_processor" }, "{\"type\": \"BertProcessing\"}", "post_processor: {\"type\":\"BertProcessing\"}" },
        { { "truncation" }, "{\"max_length\": 5}", "truncation: {\"max_length\":5} is not supported" },
        { { "cheese" }, "5", "cheese: 5 is not supported" },
        { { "model", "dropout" }, "0.1", "model.dropout: 0.1" },
        { { "model", "type" }, "\"Unigram\"", "model.type: \"Unigram\" is not supported" },
        { { "model", "unk_token" }, "\"<none>\"", "model.unk_token (not a token of the vocabulary): \"<none>\"" },
        { { "model", "end_of_word_suffix" }, "\"</w>\"", "end_of_word_suffix: \"</w>\"" },
        { { "model", "byte_fallback" }, "\"yes\"", "model.byte_fallback: \"yes\"" },
        { { "model", "vocab" }, "{\"a\": 1048576}", "a token whose number is not from 0 to 1048575" },
        { { "model", "vocab" }, "{}", "has no vocabulary" },
        { { "added_tokens" },
          "[{\"id\": 5000, \"content\": \"<m>\"}]",
          "the added token '<m>' has number 5000, but the vocabulary and the tokens before it require 700" },
        { { "added_tokens" }, "[{\"id\": 700, \"content\": \"e\"}]", "'e' has number 700, but the vocabulary" },
        { { "added_tokens" },
          "[{\"id\": 700, \"content\": \"<m>\"}, {\"id\": 700, \"content\": \"<n>\"}]",
          "before it require 701" },
        { { "added_tokens" },
          "[{\"id\": 700, \"content\": \"<m>\"}, {\"id\": 700, \"content\": \"<m>\", \"lstrip\": true}]",
          "added_tokens (again): {" },
        { { "model", "merges" }, "[[\"q\", \"x\"]]", "merge 1, 'q' with 'x': 'qx' is not a token of the vocabulary" },
        { { "model", "merges" }, "[\"qx\"]", "merge 1, 'qx' with '': 'qx' is not a token of the vocabulary" },
        { { "model", "merges" }, "[[\"q\"]]", "one of its merges is not a pair" },
        { { "added_tokens" }, "[{\"id\": -5, \"content\": \"x\"}]", "an added token has no content, or a number" },
        { { "model" }, "\"BPE\"", "is neither a tokenizer.json" },
    };
    char *file = reference();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sgrad_tokenizer *t;
        json_t *object = json_load_file(file, 0, NULL), *in = object;
        if (cases[i].path[1]) in = json_object_get(in, cases[i].path[0]);
        const char *key = cases[i].path[1] ? cases[i].path[1] : cases[i].path[0];
        if (*cases[i].value)
            json_object_set_new(in, key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(in, key);
        assert_int_equal(json_dump_file(object, scratch_path("other.json"), 0), 0);
        assert_fails(sgrad_tokenizer_open(scratch_path("other.json"), &t), SGRAD_EFORMAT, cases[i].says);
        json_decref(object);
    }
    free(file);
}

/* The texts and tokens of tests/reference/tokenizer_kinds.json. Two threads' encoders would share nothing, and neither do two
 * here. */
static void every_kind(void **state) {
    (void)state;
    const char *source = getenv("srcdir");
    char *path = sgrad_format("%s/tests/reference/tokenizer_kinds.json", source ? source : ".");
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, NULL), *texts = json_object_get(file, "texts"), *one;
    size_t c, i;
    assert_non_null(file);
    json_array_foreach(json_object_get(file, "cases"), c, one) {
        struct sgrad_tokenizer *t;
        char *content = json_dumps(json_object_get(one, "tokenizer"), 0);
        const char *name = json_string_value(json_object_get(one, "name"));
        assert_done(sgrad_tokenizer_parse(name, content, strlen(content), &t));
        struct sgrad_encoder *encoder = sgrad_encoder_create(t);
        json_t *text;
        for (int again = 0; again < 2; again++) json_array_foreach(texts, i, text) { /* the second time from the cache */
                const json_t *wanted = json_array_get(json_object_get(one, "ids"), i);
                size_t count;
                const int32_t *token = sgrad_encode(encoder, json_string_value(text), json_string_length(text), &count);
                for (size_t k = 0; k < count || k < json_array_size(wanted); k++)
                    if (k >= count || k >= json_array_size(wanted) || token[k] != json_integer_value(json_array_get(wanted, k)))
                        fail_msg("%s: '%s': token %zu of %zu is not that of the library", name, json_string_value(text), k,
                                 count);
            }
        sgrad_encoder_destroy(encoder);
        sgrad_tokenizer_close(t);
        free(content);
    }
    json_decref(file);
    free(path);
}

/* The decoded text of the library, except where an added token has a letter that is also the character of a byte: the library
 * breaks it. Each part of the text is valid UTF-8. */
static void decoded(void **state) {
    (void)state;
    const char *source = getenv("srcdir");
    char *path = sgrad_format("%s/tests/reference/tokenizer_kinds.json", source ? source : ".");
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, NULL), *one;
    size_t c, i;
    assert_non_null(file);
    json_array_foreach(json_object_get(file, "cases"), c, one) {
        struct sgrad_tokenizer *t;
        char *content = json_dumps(json_object_get(one, "tokenizer"), 0);
        json_t *ids;
        assert_done(sgrad_tokenizer_parse("it", content, strlen(content), &t));
        json_array_foreach(json_object_get(one, "ids"), i, ids) {
            struct sgrad_decoder *decoder = sgrad_decoder_create(t, false);
            const json_t *wanted = json_array_get(json_object_get(one, "decoded"), i);
            char text[1024];
            size_t size = 0, more;
            for (size_t k = 0; k <= json_array_size(ids); k++) {
                const char *part = k < json_array_size(ids)
                                       ? sgrad_decode(decoder, (int)json_integer_value(json_array_get(ids, k)), &more)
                                       : sgrad_decode_end(decoder, &more);
                json_t *valid = json_stringn(part, more);
                assert_non_null(valid);
                json_decref(valid);
                memcpy(text + size, part, more);
                size += more;
            }
            if (!strstr(json_string_value(wanted), "caf\uFFFD")) {
                assert_int_equal(size, json_string_length(wanted));
                assert_memory_equal(text, json_string_value(wanted), size);
            }
            sgrad_decoder_destroy(decoder);
        }
        sgrad_tokenizer_close(t);
        free(content);
    }
    json_decref(file);
    free(path);
}

/* A character of four bytes appears with its last token. Bytes that can no longer become a character are U+FFFD at once. */
static void incomplete(void **state) {
    (void)state;
    char *file = reference();
    struct sgrad_tokenizer *t;
    size_t size, count;
    assert_done(sgrad_tokenizer_open(file, &t));
    struct sgrad_encoder *encoder = sgrad_encoder_create(t);
    struct sgrad_decoder *decoder = sgrad_decoder_create(t, true);
    const int32_t *token = sgrad_encode(encoder, "\U0001f600", 4, &count);
    assert_int_equal(count, 4);
    for (int i = 0; i < 3; i++) assert_string_equal(sgrad_decode(decoder, token[i], &size), "");
    assert_memory_equal(sgrad_decode(decoder, token[3], &size), "\U0001f600", 4);
    assert_int_equal(size, 4);
    sgrad_decode(decoder, token[0], &size);
    sgrad_decode(decoder, token[1], &size);
    assert_memory_equal(sgrad_decode(decoder, 64, &size), "\uFFFDa", 4);
    assert_int_equal(size, 4);
    sgrad_decode(decoder, token[0], &size);
    assert_memory_equal(sgrad_decode_end(decoder, &size), "\uFFFD", 3);
    assert_int_equal(size, 3);
    assert_string_equal(sgrad_decode(decoder, 1000000, &size), "");
    sgrad_decoder_destroy(decoder);
    sgrad_encoder_destroy(encoder);
    sgrad_tokenizer_close(t);
    free(file);
}

/* Kind NAME of tests/reference/tokenizer_kinds.json. */
static struct sgrad_tokenizer *open_kind(const char *name) {
    const char *source = getenv("srcdir");
    char *path = sgrad_format("%s/tests/reference/tokenizer_kinds.json", source ? source : "."), *content = NULL;
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, NULL), *one;
    struct sgrad_tokenizer *t;
    size_t c;
    json_array_foreach(json_object_get(file, "cases"), c, one) if (!strcmp(json_string_value(json_object_get(one, "name")), name))
        content = json_dumps(json_object_get(one, "tokenizer"), 0);
    assert_non_null(content);
    assert_done(sgrad_tokenizer_parse(name, content, strlen(content), &t));
    json_decref(file);
    free(content);
    free(path);
    return t;
}

/* A character in UTF-8: of ASCII, or any other one, except those that no text has and the blank of Llama 2's files. */
static size_t draw_character(unsigned *seed, char *to) {
    static const unsigned most[] = { 0x80, 0x80, 0x80, 0x800, 0x3000, 0x10000, 0x110000 };
    for (;;) {
        *seed = *seed * 1103515245 + 12345;
        const unsigned code = (*seed >> 8) % most[(*seed >> 4) % 7];
        if (!code || (code >= 0xD800 && code < 0xE000) || code == 0x2581) continue;
        char text[32], *end;
        snprintf(text, sizeof text, code < 0x10000 ? "\"\\u%04X\"" : "\"\\u%04X\\u%04X\"",
                 code < 0x10000 ? code : 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
        json_t *character = json_loads(text, JSON_DECODE_ANY, NULL);
        end = stpcpy(to, json_string_value(character));
        json_decref(character);
        return (size_t)(end - to);
    }
}

/* Tokenizers that neither normalize nor lack characters. */
static void round_trip(void **state) {
    (void)state;
    for (const char *const *name = (const char *const[]){ "gpt2", "gpt2-split", "llama3", "smollm", "llama2", NULL }; *name;
         name++) {
        struct sgrad_tokenizer *t = open_kind(*name);
        struct sgrad_encoder *encoder = sgrad_encoder_create(t);
        unsigned seed = 1;
        for (int i = 0; i < 1000; i++) {
            char text[256], back[256];
            size_t size = 0, done = 0, count, more;
            while (size < (size_t)(i % 64)) size += draw_character(&seed, text + size);
            const int32_t *token = sgrad_encode(encoder, text, size, &count);
            struct sgrad_decoder *decoder = sgrad_decoder_create(t, false);
            for (size_t k = 0; k <= count; k++) {
                const char *part = k < count ? sgrad_decode(decoder, token[k], &more) : sgrad_decode_end(decoder, &more);
                assert_true(done + more <= sizeof back);
                memcpy(back + done, part, more);
                done += more;
            }
            if (done != size || memcmp(text, back, size))
                fail_msg("%s: '%.*s' becomes '%.*s'", *name, (int)size, text, (int)done, back);
            sgrad_decoder_destroy(decoder);
        }
        assert_int_equal(sgrad_encoder_dropped(encoder), 0);
        sgrad_encoder_destroy(encoder);
        sgrad_tokenizer_close(t);
    }
}

/* Hundreds of thousands of marks of one character, which NFC sorts, and of letters of one word: no step is quadratic. Also the
 * properties that `tokenize` uses. */
static void long_texts(void **state) {
    (void)state;
    enum { MARKS = 400000 };
    struct sgrad_tokenizer *t = open_kind("qwen");
    struct sgrad_encoder *encoder = sgrad_encoder_create(t);
    char *text = sgrad_xcalloc(2 * MARKS + 1, 1);
    size_t count;
    assert_true(sgrad_tokenizer_cuts_lines(t));
    for (int i = 0; i < MARKS; i++) memcpy(text + 2 * i, i % 2 ? "\u0301" : "\u0323", 2);
    sgrad_encode(encoder, text, 2 * MARKS, &count);
    assert_true(count > 0);
    memset(text, 'a', 2 * MARKS);
    sgrad_encode(encoder, text, 2 * MARKS, &count);
    assert_true(count > 0);
    sgrad_encoder_destroy(encoder);
    sgrad_tokenizer_close(t);
    char *file = reference();
    json_t *object = json_load_file(file, 0, NULL);
    json_array_append_new(json_object_get(object, "added_tokens"), added_token(701, "\n", true, true, false));
    t = open_changed(object);
    encoder = sgrad_encoder_create(t);
    memset(text, '\n', 2 * MARKS);
    sgrad_encode(encoder, text, 2 * MARKS, &count);
    assert_int_equal(count, 1);     /* takes all others, and those have nothing left */
    sgrad_encoder_destroy(encoder);
    sgrad_tokenizer_close(t);
    json_decref(object);
    free(file);
    free(text);
    t = open_kind("llama2");
    assert_false(sgrad_tokenizer_cuts_lines(t));
    int begins;
    assert_int_equal(*sgrad_tokenizer_begin(t, &begins), 1);
    assert_int_equal(begins, 1);
    assert_int_equal(sgrad_tokenizer_find(t, "</s>", true), 2);
    assert_int_equal(sgrad_tokenizer_find(t, "<0x00>", true), -1);
    assert_int_equal(sgrad_tokenizer_find(t, "<0x00>", false), 3);
    sgrad_tokenizer_close(t);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("tokens equal those of the tokenizers library", texts),
        sentence("tokenizers of every kind give the tokens of the tokenizers library", every_kind),
        sentence("decoded text is that of the tokenizers library, in valid parts", decoded),
        sentence("decoded tokens are the text", round_trip),
        sentence("long words and long runs of marks are tokenized", long_texts),
        sentence("a decoder returns no incomplete character", incomplete),
        sentence("vocab.json with merges.txt gives the same tokens as tokenizer.json", files),
        sentence("a tokenizer that would give other tokens is refused", refused),
        sentence("added tokens are found as the tokenizers library finds them", added),
        sentence("a byte that has no token is left out before its neighbours are joined", lacks),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
