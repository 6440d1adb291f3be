/* GPT-2's tokens of texts, as the library `tokenizers` makes them of tests/reference/tokenizer.json; and tokenizers that are
 * refused, since they would make others. */
#include "config.h"

#include "cli/tokenizer.h"
#include "runtime/runtime.h"
#include "tests/scratch.h"

#include <jansson.h>

static char *reference(void) {
    const char *source = getenv("srcdir");
    return sgrad_format("%s/tests/reference/tokenizer.json", source ? source : ".");
}

static void check(const struct sgrad__tokenizer *t, const char *text, const int32_t *wanted) {
    int count, i = 0;
    int32_t *token = sgrad__tokenizer_encode(t, text, &count);
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

    json_array_append_new(json_object_get(object, "added_tokens"),
                          json_pack("{s:i, s:s, s:b, s:b}", "id", 702, "content", "<|end", "lstrip", 1, "rstrip", 1));
    assert_int_equal(json_dump_file(object, scratch_path("added.json"), 0), 0);
    assert_done(sgrad__tokenizer_open(scratch_path("added.json"), &t));
    check(t, "<|endoftext|>To be", (int32_t[]){ 700, 407, 309, -1 });
    check(t, "To \u00a0<|end \u3000 To <|endoftext|>", (int32_t[]){ 407, 702, 407, 220, 700, -1 });
    sgrad__tokenizer_close(t);
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
        { { "pre_tokenizer", "add_prefix_space" }, "true", "its pre_tokenizer ByteLevel's add_prefix_space" },
        { { "pre_tokenizer", "use_regex" }, "false", "its pre_tokenizer ByteLevel without use_regex" },
        { { "post_processor" }, "{\"type\": \"TemplateProcessing\"}", "its post_processor TemplateProcessing" },
        { { "truncation" }, "{\"max_length\": 5}", "its step truncation" },
        { { "model", "byte_fallback" }, "true", "its model's byte_fallback" },
        { { "model", "ignore_merges" }, "true", "its model's ignore_merges" },
        { { "model", "type" }, "\"Unigram\"", "its model Unigram" },
        { { "model", "end_of_word_suffix" }, "\"</w>\"", "its model's end_of_word_suffix" },
        { { "added_tokens" }, "[{\"id\": 5, \"content\": \"x\", \"single_word\": true}]", "'x' has single_word" },
        { { "added_tokens" }, "[{\"id\": -5, \"content\": \"x\"}]", "an added token has no content, or a number" },
        { { "model" }, "\"BPE\"", "is neither a tokenizer.json" },
    };
    char *file = reference();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sgrad__tokenizer *t;
        json_t *object = json_load_file(file, 0, NULL), *in = object;
        if (cases[i].path[1]) in = json_object_get(in, cases[i].path[0]);
        json_object_set_new(in, cases[i].path[1] ? cases[i].path[1] : cases[i].path[0],
                            json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
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
    };
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
