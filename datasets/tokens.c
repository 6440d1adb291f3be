/* tokens.c: the reader of tokens: train.bin and val.bin, or train.npy and val.npy (token_file.c). */
#include "config.h"
#include "datasets/formats.h"
#include "datasets/token_file.h"
#include "datasets/windows.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WANTED "give tokens:DIR,T, where DIR contains train.bin and val.bin, or train.npy and val.npy"

static bool exists(const char *path) {
    struct stat status;
    return !stat(path, &status);
}

/* Opens the file of SPLIT, "train" or "val", in FOLDER. ASKED: as of sgrad__token_file_open. */
static int open_file(const char *folder, const char *split, int asked, struct sgrad__token_file *file) {
    char *bin = sgrad_format("%s/%s.bin", folder, split), *npy = sgrad_format("%s/%s.npy", folder, split);
    const bool array = exists(npy);
    int error = 0;
    if (array && exists(bin))
        error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s and %s both exist; remove one of them", bin, npy);
    else if (!array && !exists(bin))
        error = sgrad_log_error(SGRAD_EIO, "tokens: %s: neither %s.bin nor %s.npy exists; " WANTED, folder, split, split);
    if (!error) error = sgrad__token_file_open(array ? npy : bin, asked, file);
    free(bin);
    free(npy);
    return error;
}

/* Parses "DIR,T", "DIR,T,16" or "DIR,T,32". *BYTES becomes 2 or 4; 0: not specified. */
static int read_argument(const char *argument, char **folder, int64_t *length, int *bytes) {
    char *text = sgrad_format("%s", argument), *last = strrchr(text, ',');
    const bool width = last && (!strcmp(last, ",16") || !strcmp(last, ",32"));
    struct stat status;
    *bytes = 0;
    if (width && memchr(text, ',', (size_t)(last - text))) {
        *last = 0;
        if (stat(text, &status))
            *bytes = last[1] == '3' ? 4 : 2; /* else it is T, and DIR contains a comma */
        else
            *last = ',';
    }
    const int error = sgrad__windows_argument("tokens", text, folder, length);
    free(text);
    return error;
}

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
        *answers = (struct sgrad__numbers){ path, (size_t)is.st_size, 0, tokens->count, 1, false };
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

/* Opens the files of both splits. *IN: the tokens of the split of the data set; the caller must free it, also after an error. The
 * number of classes is determined by the tokens of both. WARNS: may warn, once. */
static int open_files(struct sgrad_dataset *dataset, const char *folder, int asked, bool warns, struct sgrad__sequences *in) {
    static const char *const name[] = { [SGRAD_TRAIN] = "train", [SGRAD_TEST] = "val" };
    struct sgrad__token_file own = { .stated = false }, other = { .stated = false };
    int largest = 0;
    *in = (struct sgrad__sequences){ 1, sgrad_xcalloc(1, sizeof *in->numbers), NULL, sgrad_xcalloc(1, sizeof *in->hash) };
    SGRAD_TRY(sgrad__folder_check("tokens", folder, WANTED));
    SGRAD_TRY(open_file(folder, name[dataset->split], asked, &own));
    in->numbers[0] = own.numbers;
    SGRAD_TRY(check_tokens(in->numbers, 1, in->hash, &largest));
    if (warns) warns = !sgrad__token_file_warn(&own, asked);
    SGRAD_TRY(open_file(folder, name[!dataset->split], asked, &other));
    const int error = check_tokens(&other.numbers, 1, NULL, &largest);
    if (!error && warns && dataset->split == SGRAD_TRAIN) sgrad__token_file_warn(&other, asked);
    free(other.numbers.path);
    dataset->classes = largest + 1;
    dataset->note = sgrad_format("tokens of %d bits", 8 * own.numbers.bytes);
    return error;
}

static int open_tokens(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    const bool first = dataset->split == SGRAD_TRAIN || options->origin; /* warns once, not for both splits */
    struct sgrad__sequences in;
    int asked;
    char *folder;
    int64_t length;
    SGRAD_TRY(read_argument(argument, &folder, &length, &asked));
    int error = open_files(dataset, folder, asked, first && sgrad_launched_rank() == 0, &in);
    if (!error && options->answers) error = read_answers(&in);
    if (!error) error = sgrad__windows_open(dataset, &in, argument, "tokens", length);
    if (!error) error = sgrad__windows_attend(dataset, options->attend, folder);
    sgrad__sequences_free(&in);
    free(folder);
    return error;
}

const struct sgrad_reader sgrad_tokens_reader = {
    .name = "tokens",
    .argument = "DIR,T[,16|32]",
    .summary = "tokens, T per sample: train.bin and val.bin in DIR, as written by nanoGPT, llm.c or Megatron-LM (with train.idx "
               "and val.idx), or train.npy and val.npy",
    .open = open_tokens,
    .read = sgrad__windows_read,
    .close = sgrad__windows_close,
    .computes = true,
};
