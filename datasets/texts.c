/* texts.c: the data set jsonl with a tokenizer: texts in JSON lines, as tokens. Each file is tokenized once, into a file of the
 * cache folder (corpus/cached.c); then the samples are windows of tokens, as those of tokens.c.
 *
 *     shards-0.jsonl   {"text": "To be"}    tokens  1 7 2 0 | 3 0        0: the end of each document
 *                      {"text": "or"}
 *     training         the first nine tenths of the tokens of each file, if there are no files of val or test
 *     test             the last tenth, or the part options.split */
#include "config.h"
#include "datasets/corpus/cached.h"
#include "datasets/formats.h"
#include "datasets/token_file.h"
#include "datasets/windows.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HELD_OUT 0.1

/* ---- files --------------------------------------------------------------------------------------------------------- */

static bool has_part(const void *pattern, const char *part) { return sgrad__pattern_has("jsonl", pattern, part); }

/* Lists the files of the split of DATASET. *PART: the range of the tokens of each file that belongs to it, as fractions. */
static int list_files(const struct sgrad_dataset *dataset, const char *pattern, const struct sgrad_dataset_options *options,
                      struct sgrad__paths *texts, double part[2]) {
    const bool test = dataset->split == SGRAD_TEST;
    struct sgrad_dataset_options divided = *options;
    const bool alone = !has_part(pattern, "val") && !has_part(pattern, "test");
    if (alone && !options->third && !(options->split > 0)) divided.split = HELD_OUT;
    const struct sgrad__part from = sgrad__part_choose(test, &divided, has_part, pattern);
    const double border = from.holds_out && !options->whole ? 1 - divided.split : 1;
    part[0] = test && border < 1 ? border : 0;
    part[1] = test ? 1 : border;
    SGRAD_TRY(sgrad__pattern_expand("jsonl", pattern, from.name, texts));
    if (!texts->count) return sgrad__pattern_refuse("jsonl", pattern, from.name);
    if (texts->count < INT_MAX) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "data set jsonl:%s: has more than %d files", pattern, INT_MAX);
}

/* ---- tokens -------------------------------------------------------------------------------------------------------- */

/* Restricts the tokens to a part. */
static void take_part(struct sgrad__numbers *numbers, const double part[2]) {
    const int64_t count = numbers->count, first = (int64_t)floor(part[0] * (double)count);
    const int64_t end = part[1] < 1 ? (int64_t)floor(part[1] * (double)count) : count;
    numbers->from += (size_t)first * (size_t)numbers->bytes;
    numbers->count = end - first;
}

/* Opens token files, and passes over their tokens. *IN: the caller must free it, also after an error. */
static int open_tokens(const struct sgrad__paths *tokens, const double part[2], int classes, struct sgrad__sequences *in) {
    const size_t count = (size_t)tokens->count;
    *in = (struct sgrad__sequences){ .numbers = sgrad_xcalloc(count, sizeof *in->numbers),
                                     .hash = sgrad_xcalloc(count, sizeof *in->hash) };
    for (size_t i = 0; i < count; i++) {
        struct sgrad__token_file file;
        SGRAD_TRY(sgrad__token_file_open(tokens->path[i], 0, &file));
        take_part(&file.numbers, part);
        in->numbers[in->count++] = file.numbers;
    }
    struct sgrad__pass *pass = sgrad_xcalloc(count, sizeof *pass);
    uint64_t *start = sgrad_xcalloc(count, sizeof *start);
    for (size_t i = 0; i < count; i++) start[i] = 1;
    int error = sgrad__numbers_pass(in->numbers, start, in->count, classes, pass);
    for (size_t i = 0; i < count && !error; i++) {
        in->hash[i] = pass[i].hash;
        if (pass[i].bad >= 0)
            error = sgrad_log_error(SGRAD_EFORMAT, "jsonl: %s: token %lld is %lld, which the tokenizer lacks; remove this file",
                                    tokens->path[i], (long long)pass[i].bad, (long long)pass[i].value);
    }
    free(start);
    free(pass);
    return error;
}

/* Returns the number of samples that options.split holds out; of a training set, to one sample per file. */
static int64_t count_held_out(const struct sgrad_dataset *dataset, const struct sgrad_dataset_options *options,
                              const double part[2]) {
    if (!(options->split > 0) || part[1] - part[0] >= 1) return 0;
    if (dataset->split == SGRAD_TEST) return dataset->count;
    return llround((double)dataset->count * options->split / (1 - options->split));
}

/* Warns of files that have no sample. */
static void warn_of_short(const struct sgrad__paths *texts, const struct sgrad__sequences *in, int64_t length) {
    int few = 0;
    const char *name = "";
    for (int i = 0; i < in->count; i++)
        if (in->numbers[i].count <= length && !few++) name = texts->path[i];
    if (few && few < in->count && sgrad_launched_rank() == 0)
        sgrad_log_warning("jsonl: %d of %d files %s no sample, because samples of %lld require %lld tokens: %s%s", few, in->count,
                          sgrad_plural(few, "has", "have"), (long long)length, (long long)length + 1, name, few > 1 ? ", …" : "");
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

/* Adds the field of documents, which end with the token END. */
static int attend(struct sgrad_dataset *dataset, const char *wanted, int32_t end) {
    char *document = wanted && !strcmp(wanted, "document") ? sgrad_format("document:%d", (int)end) : NULL;
    const int error = sgrad__windows_attend(dataset, document ? document : wanted, NULL, 0);
    free(document);
    return error;
}

static int open_split(struct sgrad_dataset *dataset, const char *pattern, int64_t length, const struct sgrad__recipe *recipe,
                      const struct sgrad_dataset_options *options) {
    struct sgrad__paths texts = { 0 }, tokens = { 0 };
    struct sgrad__sequences in = { 0 };
    double part[2];
    int error = list_files(dataset, pattern, options, &texts, part);
    if (!error) error = sgrad__cached_tokens(recipe, &texts, &tokens);
    if (!error) error = open_tokens(&tokens, part, dataset->classes, &in);
    if (!error) {
        warn_of_short(&texts, &in, length);
        dataset->note = sgrad_format("tokens of %d bits in %d %s, from the texts '%s'", 8 * in.numbers[0].bytes, in.count,
                                     sgrad_plural(in.count, "file", "files"), recipe->field);
        error = sgrad__windows_open(dataset, &in, pattern, "tokens", length);
    }
    if (!error) dataset->held_out = count_held_out(dataset, options, part);
    if (!error) error = attend(dataset, options->attend, recipe->end);
    sgrad__sequences_free(&in);
    sgrad__paths_free(&tokens);
    sgrad__paths_free(&texts);
    return error;
}

/* Samples are windows of tokens, not rows of a table. */
static const struct sgrad_reader texts_reader = {
    .name = "jsonl",
    .argument = "PATTERN,T",
    .summary = "texts in JSON lines, as tokens",
    .read = sgrad__windows_read,
    .close = sgrad__windows_close,
    .computes = true,
};

int sgrad__texts_open(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct sgrad_tokenizer *tokenizer = NULL;
    struct sgrad__recipe recipe;
    char *pattern;
    int64_t length;
    if (options->id) return sgrad_log_error(SGRAD_EINVAL, "--id requires a table, but --tokenizer reads texts");
    SGRAD_TRY(sgrad__windows_argument("jsonl", argument, &pattern, &length));
    const char *field = options->field ? options->field : "text";
    int error = sgrad__recipe_open("jsonl", options->tokenizer, field, &recipe, &tokenizer);
    dataset->reader = &texts_reader;
    if (!error) dataset->classes = sgrad_tokenizer_tokens(tokenizer);
    if (!error) error = open_split(dataset, pattern, length, &recipe, options);
    sgrad_tokenizer_close(tokenizer);
    free(pattern);
    return error;
}
