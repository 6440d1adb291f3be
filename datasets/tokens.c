/* tokens.c: the reader of tokens, in files (token_file.c) of a folder or a pattern (token_list.c). */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/token_file.h"
#include "datasets/token_list.h"
#include "datasets/windows.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Parses "DIR,T", "DIR,T,16" or "DIR,T,32", where DIR may contain commas. *BYTES becomes 2 or 4; 0: not specified. */
static int read_argument(const char *argument, char **folder, int64_t *length, int *bytes) {
    char *text = sgrad_format("%s", argument), *last = strrchr(text, ',');
    struct stat status;
    *bytes = 0;
    if (last && (!strcmp(last, ",16") || !strcmp(last, ",32"))) {
        *last = 0;
        const char *before = strrchr(text, ',');
        const bool width = before && before[1] && !before[1 + strspn(before + 1, "0123456789")];
        if (width && stat(text, &status))
            *bytes = last[1] == '3' ? 4 : 2; /* else it is T, and DIR ends with ",NUMBER" */
        else
            *last = ',';
    }
    const int error = sgrad__windows_argument("tokens", text, folder, length);
    free(text);
    return error;
}

/* ---- sources ------------------------------------------------------------------------------------------------------ */

enum { SOURCES = 64 };
struct sources {
    int count;
    struct {
        char *text; /* a folder or a pattern */
        double weight;
        struct sgrad__token_list files;
    } source[SOURCES];
};

static void free_sources(struct sources *from) {
    for (int s = 0; s < from->count; s++) {
        free(from->source[s].text);
        sgrad__token_list_free(&from->source[s].files);
    }
}

/* Returns the length of ITEM, of LENGTH bytes, without its weight, "*0.7", and sets *WEIGHT; LENGTH: it has no weight. */
static int weight_of(const char *item, int length, double *weight) {
    char *text = sgrad_format("%.*s", length, item), *star = strrchr(text, '*'), *end = NULL;
    const bool number = star && star > text && star[1] && strchr("+-.0123456789", star[1]);
    const double value = number ? strtod(star + 1, &end) : 0;
    const bool weighted = number && end != star + 1 && !*end;
    if (weighted) length = (int)(star - text), *weight = value;
    free(text);
    return length;
}

/* Returns the length of the first item of TEXT, which ends before a comma outside braces. */
static int item_length(const char *text) {
    int depth = 0, i = 0;
    for (; text[i] && (text[i] != ',' || depth > 0); i++) depth += (text[i] == '{') - (text[i] == '}');
    return i;
}

/* Parses TEXT, "A*0.7,B*0.3", or one source without a weight. The caller must free FROM, also after an error. SGRAD_EINVAL. */
static int read_sources(const char *text, struct sources *from) {
    struct stat is;
    const char *bare = NULL, *wrong = NULL, *at = text;
    int items = 0, weighted = 0, bare_length = 0, wrong_length = 0;
    for (int length; *at; at += length + (at[length] == ',')) {
        double weight = 1;
        length = item_length(at);
        const int name = weight_of(at, length, &weight);
        if (name == length && !bare) bare = at, bare_length = length;
        weighted += name < length;
        const bool valid = name == length || (weight > 0 && weight < 1e9);
        if (!valid && !wrong) wrong = at, wrong_length = length;
        if (items++ >= SOURCES || !valid) continue;
        from->source[from->count].text = sgrad_format("%.*s", name, at);
        from->source[from->count++].weight = weight;
    }
    if (items > 1 && weighted == items && items == from->count) return 0;
    if (items > 1 && weighted && stat(text, &is)) {
        if (bare)
            return sgrad_log_error(SGRAD_EINVAL, "data set tokens: %.*s has no weight; give a mixture as tokens:A*0.7,B*0.3,T",
                                   bare_length, bare);
        if (wrong)
            return sgrad_log_error(SGRAD_EINVAL, "data set tokens: %.*s: the weight must be a number above 0 and below 1e9",
                                   wrong_length, wrong);
        return sgrad_log_error(SGRAD_EINVAL, "data set tokens:%s: a mixture has at most %d sources", text, SOURCES);
    }
    free_sources(from);
    from->source[0].text = sgrad_format("%s", text);
    from->source[0].weight = 1;
    from->count = 1;
    return 0;
}

char *sgrad__tokens_folder(const char *argument) {
    struct sources from = { 0 };
    char *text = NULL, *folder = NULL;
    int64_t length;
    int asked;
    if (!read_argument(argument, &text, &length, &asked) && !read_sources(text, &from))
        folder = sgrad__token_folder(from.source[0].text);
    free_sources(&from);
    free(text);
    return folder;
}

/* ---- files -------------------------------------------------------------------------------------------------------- */

/* Passes over the tokens of COUNT files. Each must be a number from 0 on that is less than INT32_MAX. *LARGEST becomes the
 * largest, if it is larger. Sets hash[i] to the hash of file i, unless HASH is NULL. */
static int check_tokens(const struct sgrad__numbers *numbers, int count, uint64_t *hash, int *largest) {
    struct sgrad__pass *pass = sgrad_xcalloc((size_t)count, sizeof *pass);
    uint64_t *start = sgrad_xcalloc((size_t)count, sizeof *start);
    for (int i = 0; i < count; i++) start[i] = 1;
    int error = sgrad__numbers_pass(numbers, start, count, INT32_MAX, pass);
    for (int i = 0; i < count && !error; i++) {
        if (pass[i].bad >= 0)
            error =
                sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: token %lld is %lld, but tokens must be at least 0 and less than %d",
                                numbers[i].path, (long long)pass[i].bad, (long long)pass[i].value, INT32_MAX);
        else if (pass[i].largest > *largest)
            *largest = (int)pass[i].largest;
        if (hash) hash[i] = pass[i].hash;
    }
    free(start);
    free(pass);
    return error;
}

/* Sets *ANSWERS to the file of answers of TOKENS: NAME.answers of NAME.bin or NAME.npy, a byte for each token. The caller must
 * free its path. */
static int find_answers(const struct sgrad__numbers *tokens, struct sgrad__numbers *answers) {
    char *path = sgrad_format("%.*s.answers", (int)(strlen(tokens->path) - strlen(".bin")), tokens->path);
    struct stat is;
    int error = 0;
    if (stat(path, &is))
        error = sgrad_log_error(SGRAD_EINVAL, "--loss-on answers requires %s, which stargrad tokenize --template writes", path);
    else if (is.st_size != tokens->count)
        error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: has %lld bytes, but must have one for each of the %lld tokens", path,
                                (long long)is.st_size, (long long)tokens->count);
    if (error)
        free(path);
    else
        *answers = (struct sgrad__numbers){ path, sgrad__version_of(&is), 0, tokens->count, 1, false };
    return error;
}

/* Restricts the targets to the tokens of answers. */
static int read_answers(struct sgrad__sequences *in) {
    const size_t n = (size_t)in->count;
    struct sgrad__pass *pass = sgrad_xcalloc(n, sizeof *pass);
    int64_t largest = 0;
    int error = 0;
    in->answers = sgrad_xcalloc(n, sizeof *in->answers);
    for (size_t i = 0; i < n && !error; i++) error = find_answers(&in->numbers[i], &in->answers[i]);
    if (!error) error = sgrad__numbers_pass(in->answers, in->hash, in->count, 2, pass);
    for (size_t i = 0; i < n && !error; i++) {
        if (pass[i].bad >= 0)
            error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: byte %lld is %lld, not 0 or 1", in->answers[i].path,
                                    (long long)pass[i].bad, (long long)pass[i].value);
        if (pass[i].largest > largest) largest = pass[i].largest;
        in->hash[i] = pass[i].hash;
    }
    if (!error && !largest)
        error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: no token belongs to an answer", in->answers[0].path);
    free(pass);
    return error;
}

/* Opens all files of SPLIT: *IN, which the caller must free, also after an error. *LARGEST becomes the largest token, if it is
 * larger. ASKED: as of sgrad__token_file_open. If *WARNS is set, may warn, by the first file, and then clears it. */
static int open_files(const struct sources *from, int split, int asked, bool *warns, struct sgrad__sequences *in, int *largest) {
    struct sgrad__token_file first = { .stated = true };
    size_t count = 0;
    for (int s = 0; s < from->count; s++) count += (size_t)from->source[s].files.count[split];
    *in = (struct sgrad__sequences){ .numbers = sgrad_xcalloc(count, sizeof *in->numbers),
                                     .hash = sgrad_xcalloc(count, sizeof *in->hash) };
    for (int s = 0; s < from->count; s++)
        for (int i = 0; i < from->source[s].files.count[split]; i++) {
            struct sgrad__token_file file;
            SGRAD_TRY(sgrad__token_file_open(from->source[s].files.path[split][i], asked, &file));
            if (!in->count) first = file;
            in->numbers[in->count++] = file.numbers;
        }
    SGRAD_TRY(check_tokens(in->numbers, in->count, in->hash, largest));
    if (*warns) *warns = !sgrad__token_file_warn(&first, asked);
    return 0;
}

/* Returns a warning of files that have no sample, which the caller must free; NULL: each has one, or none has one. */
static char *text_of_short(const struct sgrad__sequences *in, int64_t length) {
    int few = 0;
    const char *name = "";
    for (int i = 0; i < in->count; i++)
        if (in->numbers[i].count <= length && !few++) name = in->numbers[i].path;
    if (!few || few == in->count) return NULL;
    return sgrad_format("tokens: %d of %d training files %s no sample, because samples of %lld require %lld tokens: %s%s", few,
                        in->count, sgrad_plural(few, "has", "have"), (long long)length, (long long)length + 1, name,
                        few > 1 ? ", …" : "");
}

/* Opens the files of both splits. *IN: the tokens of the split of the data set; the caller must free it, also after an error. The
 * number of classes is determined by the tokens of both. */
static int open_splits(struct sgrad_dataset *dataset, const struct sources *from, int asked, bool warns,
                       struct sgrad__sequences *in) {
    const int own = dataset->split, other = !own;
    struct sgrad__sequences rest = { 0 };
    int largest = 0;
    SGRAD_TRY(open_files(from, own, asked, &warns, in, &largest));
    warns &= own == SGRAD_TRAIN;
    const int error = open_files(from, other, asked, &warns, &rest, &largest);
    sgrad__sequences_free(&rest);
    dataset->classes = largest + 1;
    dataset->note = in->count > 1 ? sgrad_format("tokens of %d bits in %d files", 8 * in->numbers[0].bytes, in->count)
                                  : sgrad_format("tokens of %d bits", 8 * in->numbers[0].bytes);
    return error;
}

/* Makes the data set a mixture, if there are several sources. */
static int mix(struct sgrad_dataset *dataset, const struct sources *from) {
    const char *name[SOURCES];
    double weight[SOURCES];
    int files[SOURCES];
    if (from->count < 2) return 0;
    for (int s = 0; s < from->count; s++) {
        name[s] = from->source[s].text;
        weight[s] = from->source[s].weight;
        files[s] = from->source[s].files.count[dataset->split];
    }
    return sgrad__windows_mix(dataset, from->count, name, weight, files);
}

static int attend(struct sgrad_dataset *dataset, const struct sources *from, const char *wanted) {
    char *folder[SOURCES];
    for (int s = 0; s < from->count; s++) folder[s] = sgrad__token_folder(from->source[s].text);
    const int error = sgrad__windows_attend(dataset, wanted, (const char *const *)folder, from->count);
    for (int s = 0; s < from->count; s++) free(folder[s]);
    return error;
}

static int open_tokens(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    const bool first = dataset->split == SGRAD_TRAIN || options->origin; /* warns once, not for both splits */
    const bool warns = first && sgrad_launched_rank() == 0;
    struct sgrad__sequences in = { 0 };
    struct sources from = { 0 };
    int asked;
    char *text;
    int64_t length;
    SGRAD_TRY(read_argument(argument, &text, &length, &asked));
    int error = read_sources(text, &from);
    for (int s = 0; s < from.count && !error; s++) error = sgrad__token_list_find(from.source[s].text, &from.source[s].files);
    if (!error) error = open_splits(dataset, &from, asked, warns, &in);
    if (!error && options->answers) error = read_answers(&in);
    char *warning = !error && warns && dataset->split == SGRAD_TRAIN ? text_of_short(&in, length) : NULL;
    if (!error) error = sgrad__windows_open(dataset, &in, argument, "tokens", length);
    if (!error) error = mix(dataset, &from);
    if (!error) error = attend(dataset, &from, options->attend);
    if (!error && warning) sgrad_log_warning("%s", warning);
    free(warning);
    sgrad__sequences_free(&in);
    free_sources(&from);
    free(text);
    return error;
}

const struct sgrad_reader sgrad_tokens_reader = {
    .name = "tokens",
    .argument = "DIR,T[,16|32]",
    .summary = "tokens, T per sample: train.bin and val.bin in DIR, as written by nanoGPT, llm.c or Megatron-LM (with train.idx "
               "and val.idx), or train.npy and val.npy; or several files: *train*.bin and *val*.bin in DIR, or a pattern of "
               "files. A*0.7,B*0.3,T is a mixture of A and B",
    .open = open_tokens,
    .read = sgrad__windows_read,
    .close = sgrad__windows_close,
    .computes = true,
};
