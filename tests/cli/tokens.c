/* GPT-2's tokens of texts equal those that the library `tokenizers` computes with tests/reference/tokenizer.json. Tokenizers
 * that would give other tokens are refused. */
#include "config.h"

#include "cli/tokenizer.h"
#include "runtime/runtime.h"
#include "tests/scratch.h"

#include <jansson.h>

static char *reference(void) {
    const char *source = getenv("srcdir");
    return sgrad_format("%s/tests/reference/tokenizer.json", source ? source : ".");
}

static void check(const struct sgrad__tokenizer *tokenizer, const char *text, const int32_t *wanted) {
    int count, i = 0;
    int32_t *token = sgrad__tokenizer_encode(tokenizer, text, &count);
    for (; i < count && token[i] == wanted[i]; i++) {}
    if (i < count || wanted[i] >= 0)
        fail_msg("'%s': token %d of %d is %d, not %d", text, i, count, i < count ? token[i] : -1, wanted[i]);
    free(token);
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
    { "line one\r\nline two\n\n  three",
      { 75, 531, 550, 201, 198, 75, 531, 256, 86, 78, 198, 198, 220, 295, 263, 68, -1 } },
    { "\u4f60\u597d \U0001f600 na\u00efve", { 160, 121, 254, 161, 98, 121, 220, 172, 253, 246, 222, 687, -1 } },
};

static void texts(void **state) {
    (void)state;
    char *file = reference();
    struct sgrad__tokenizer *t;
    assert_done(sgrad__tokenizer_open(file, &t));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (i != 1) check(t, rows[i].text, rows[i].token);
    size_t size;
    assert_memory_equal(sgrad__tokenizer_word(t, 700, &size), "<|endoftext|>", 13);
    sgrad__tokenizer_close(t);
    free(file);
}

/* The pair of files has one vocabulary, in which "model" is a word; of added tokens the longest counts, and takes blanks. */
static void files(void **state) {
    (void)state;
    char *file = reference();
    struct sgrad__tokenizer *t;
    json_t *object = json_load_file(file, 0, NULL), *model = json_object_get(object, "model");
    json_t *vocabulary = json_object_get(model, "vocab"), *merge;
    FILE *to = fopen(scratch_path("merges.txt"), "w");
    size_t i;
    fputs("#version: 0.2\n", to);
    json_array_foreach(json_object_get(model, "merges"), i, merge) fprintf(to, "%s\n", json_string_value(merge));
    fclose(to);
    if (!json_object_get(vocabulary, "model")) json_object_set_new(vocabulary, "model", json_integer(701));
    assert_int_equal(json_dump_file(vocabulary, scratch_path("vocab.json"), 0), 0);
    assert_done(sgrad__tokenizer_open(scratch_path("vocab.json"), &t));
    for (size_t r = 2; r < sizeof rows / sizeof *rows; r++) check(t, rows[r].text, rows[r].token);
    sgrad__tokenizer_close(t);

    json_decref(object);
    free(file);
}

static json_t *added_token(int id, const char *content, bool lstrip, bool rstrip, bool normalized) {
    return json_pack("{s:i, s:s, s:b, s:b, s:b}", "id", id, "content", content, "lstrip", lstrip, "rstrip", rstrip, "normalized",
                     normalized);
}

/* Opens what OBJECT has become. */
static struct sgrad__tokenizer *open_changed(const json_t *object) {
    struct sgrad__tokenizer *t;
    assert_int_equal(json_dump_file(object, scratch_path("changed.json"), 0), 0);
    assert_done(sgrad__tokenizer_open(scratch_path("changed.json"), &t));
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
    struct sgrad__tokenizer *t = open_changed(object);
    check(t, "<|endoftext|>To b", (int32_t[]){ 700, 407, 268, -1 });
    check(t, "To \u00a0<|end \u3000 To <|endoftext|>", (int32_t[]){ 407, 701, 407, 220, 700, -1 });
    check(t, "C<|end  \n\n", (int32_t[]){ 34, 701, 702, -1 });            /* the blanks that one takes are the next */
    check(t, "x<a>y <a>", (int32_t[]){ 87, 703, 88, 220, 703, -1 });      /* what is not normalized comes first */
    check(t, "x<b>y<a>", (int32_t[]){ 705, 703, -1 });
    sgrad__tokenizer_close(t);
    json_decref(object);
    free(file);
}

/* A byte that has no token is left out before its neighbours are joined; of equal merges the last holds. */
static void lacks(void **state) {
    (void)state;
    char *file = reference();
    json_t *object = json_load_file(file, 0, NULL), *model = json_object_get(object, "model");
    json_object_set_new(model, "vocab", json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "a", 0, "b", 1, "c", 2, "ab", 3, "bc", 4,
                                                  "abc", 5));
    json_object_set_new(model, "merges", json_pack("[[s,s], s, s, [s,s]]", "b", "c", "a bc", "a b", "b", "c"));
    json_object_set_new(json_array_get(json_object_get(object, "added_tokens"), 0), "id", json_integer(6));
    struct sgrad__tokenizer *t = open_changed(object);
    check(t, "axbc", (int32_t[]){ 3, 2, -1 });
    check(t, "bxxc<|endoftext|>a", (int32_t[]){ 4, 6, 0, -1 });
    sgrad__tokenizer_close(t);
    json_object_set_new(model, "unk_token", json_string("a"));
    assert_int_equal(json_dump_file(object, scratch_path("changed.json"), 0), 0);
    assert_fails(sgrad__tokenizer_open(scratch_path("changed.json"), &t), SGRAD_EFORMAT,
                 "its model's unk_token (the vocabulary lacks bytes) is not supported; Stargrad would produce other tokens");
    json_decref(object);
    free(file);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *path[3], *value, *says;     /* of a member of the file what it becomes */
    } cases[] = {
        { { "normalizer" }, "{\"type\": \"NFC\"}", "its normalizer NFC is not supported" },
        { { "normalizer" }, "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}]}",
          "its normalizer Lowercase" },
        { { "pre_tokenizer" },
          "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, {\"type\": \"ByteLevel\"}]}",
          "its pre_tokenizer Digits" },
        { { "pre_tokenizer" }, "{\"type\": \"Split\"}", "its pre_tokenizer Split" },
        { { "pre_tokenizer" }, "null", "its pre_tokenizer null" },
        { { "pre_tokenizer" }, "", "its pre_tokenizer null" },
        { { "decoder" }, "{\"type\": \"BPEDecoder\"}",
          "its decoder BPEDecoder is not supported; Stargrad would decode tokens to other text" },
        { { "pre_tokenizer", "add_prefix_space" }, "true", "its pre_tokenizer ByteLevel with add_prefix_space" },
        { { "pre_tokenizer", "use_regex" }, "false", "its pre_tokenizer ByteLevel without use_regex" },
        { { "post_processor" }, "{\"type\": \"TemplateProcessing\"}", "its post_processor TemplateProcessing" },
        { { "truncation" }, "{\"max_length\": 5}", "its step truncation" },
        { { "model", "byte_fallback" }, "true", "its model's byte_fallback" },
        { { "model", "ignore_merges" }, "true", "its model's ignore_merges" },
        { { "model", "type" }, "\"Unigram\"", "its model Unigram" },
        { { "model", "end_of_word_suffix" }, "\"</w>\"", "its model's end_of_word_suffix" },
        { { "added_tokens" }, "[{\"id\": 5, \"content\": \"x\", \"single_word\": true}]", "'x' has single_word" },
        { { "added_tokens" }, "[{\"id\": 5000, \"content\": \"<m>\"}]",
          "the added token '<m>' has number 5000, but the vocabulary and the tokens before it require 700" },
        { { "added_tokens" }, "[{\"id\": 700, \"content\": \"e\"}]", "'e' has number 700, but the vocabulary" },
        { { "added_tokens" }, "[{\"id\": 700, \"content\": \"<m>\"}, {\"id\": 700, \"content\": \"<n>\"}]",
          "before it require 701" },
        { { "model", "merges" }, "[[\"q\", \"x\"]]", "merge 1, 'q x': 'qx' is not a token of the vocabulary" },
        { { "model", "merges" }, "[\"qx\"]", "merge 1, 'qx': '' is not a token of the vocabulary" },
        { { "added_tokens" }, "[{\"id\": -5, \"content\": \"x\"}]", "an added token has no content, or a number" },
        { { "model" }, "\"BPE\"", "is neither a tokenizer.json" },
    };
    char *file = reference();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sgrad__tokenizer *t;
        json_t *object = json_load_file(file, 0, NULL), *in = object;
        if (cases[i].path[1]) in = json_object_get(in, cases[i].path[0]);
        const char *key = cases[i].path[1] ? cases[i].path[1] : cases[i].path[0];
        if (*cases[i].value) json_object_set_new(in, key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        else json_object_del(in, key);
        assert_int_equal(json_dump_file(object, scratch_path("other.json"), 0), 0);
        assert_fails(sgrad__tokenizer_open(scratch_path("other.json"), &t), SGRAD_EFORMAT, cases[i].says);
        json_decref(object);
    }
    free(file);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("tokens equal those of the tokenizers library", texts),
        sentence("vocab.json with merges.txt gives the same tokens as tokenizer.json", files),
        sentence("a tokenizer that would give other tokens is refused", refused),
        sentence("added tokens are found as the tokenizers library finds them", added),
        sentence("a byte that has no token is left out before its neighbours are joined", lacks),
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
