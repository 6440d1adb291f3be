/* windows.c: samples from long sequences of numbers. Window i of a sequence consists of the T numbers from i·T on; its target is
 * the number after each of them. With T = 4 and ten numbers, not shifted, and shifted by 1:
 *
 *     t h e   c a t   s a            window 0   t h e _ │ h e _ c        window 1   c a t _ │ a t _ s
 *     └─────┘ └─────┘                shifted    h e _ c │ e _ c a                   a t _ s │ t _ s a
 *
 * A shifted window that would extend beyond the end begins earlier, so the last two windows of a sequence may overlap. Sequences
 * are numbered one after another: of sequences with 2 and 3 windows, samples 2 to 4 are the windows of the second. The numbers
 * are read from the files when a sample is read, so the memory does not depend on the size of the files. */
#include "config.h"
#include "datasets/windows.h"
#include "datasets/formats.h"
#include "datasets/mixture.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The samples of a source of a test set: evenly spaced windows. */
struct pick {
    int64_t first, count;  /* samples */
    int64_t from, windows; /* first window of the source; number of its windows */
};

struct windows {
    struct sgrad__sequences in;
    struct sgrad__open_files *files;
    int64_t *first;    /* (in.count + 1): index of the first window of each sequence, and the number of windows */
    int64_t length;    /* numbers of a window */
    int limit;         /* numbers are below it */
    int end;           /* last number of each document */
    struct pick *pick; /* (picks), of a test set that is a mixture; NULL: sample i is window i */
    int picks;
};

int sgrad__windows_argument(const char *what, const char *argument, char **path, int64_t *length) {
    enum { MOST = 1 << 20 };
    const char *comma = strrchr(argument, ',');
    char *end = NULL;
    const long long number = comma ? strtoll(comma + 1, &end, 10) : 0;
    if (!comma || comma == argument || comma[1] < '0' || comma[1] > '9' || *end || number < 1 || number > MOST)
        return sgrad_log_error(SGRAD_EINVAL, "data set %s:%s: must end with ,T, where T is the length of a sample (1 to %d)",
                               what, argument, MOST);
    *path = sgrad_format("%.*s", (int)(comma - argument), argument);
    *length = number;
    return 0;
}

void sgrad__sequences_free(struct sgrad__sequences *in) {
    for (int i = 0; i < in->count; i++) {
        free(in->numbers[i].path);
        if (in->answers) free(in->answers[i].path);
    }
    free(in->numbers);
    free(in->answers);
    free(in->hash);
    *in = (struct sgrad__sequences){ 0 };
}

static int refuse_short(const struct sgrad_dataset *dataset, const struct sgrad__sequences *in, const char *name,
                        const char *what, int64_t length) {
    const char *split = dataset->split == SGRAD_TRAIN ? "training" : "test";
    int64_t most = 0;
    for (int i = 0; i < in->count; i++)
        if (in->numbers[i].count > most) most = in->numbers[i].count;
    return sgrad_log_error(SGRAD_EFORMAT,
                           "%s: %s%s split has %s%lld %s, but samples of %lld require at least %lld; give shorter samples", name,
                           in->count > 1 ? "each file of the " : "the ", split, in->count > 1 ? "at most " : "", (long long)most,
                           what, (long long)length, (long long)length + 1);
}

int sgrad__windows_open(struct sgrad_dataset *dataset, struct sgrad__sequences *sequences, const char *name, const char *what,
                        int64_t length) {
    const int n = sequences->count;
    struct windows *w = dataset->state = sgrad_xcalloc(1, sizeof *w);
    *w = (struct windows){ .in = *sequences, .length = length, .limit = dataset->classes };
    *sequences = (struct sgrad__sequences){ 0 };
    w->files = sgrad__open_files_create();
    w->first = sgrad_xcalloc((size_t)n + 1, sizeof *w->first);
    for (int i = 0; i < n; i++) w->first[i + 1] = w->first[i] + (w->in.numbers[i].count - (w->in.numbers[i].count > 0)) / length;
    if (!w->first[n]) return refuse_short(dataset, &w->in, name, what, length);
    dataset->field[0] = (struct sgrad_field){ "tokens", SGRAD_I32, { 1, { length } }, NULL };
    dataset->field[1] = (struct sgrad_field){ "next", SGRAD_I32, { 1, { length } }, NULL };
    dataset->count = w->first[n];
    dataset->shifts = length;
    dataset->identity = n == 1 ? w->in.hash[0] : sgrad__fingerprint_add(1, w->in.hash, (size_t)n * sizeof *w->in.hash);
    return 0;
}

/* Restricts the samples of a test set to as many as possible with N[s] of source s, in the proportion of WEIGHT; sets N. */
static void pick_samples(struct sgrad_dataset *dataset, int count, const double *weight, int64_t *n) {
    struct windows *w = dataset->state;
    double most = INFINITY;
    int64_t from = 0;
    w->pick = sgrad_xcalloc((size_t)count, sizeof *w->pick);
    w->picks = count;
    dataset->count = 0;
    for (int s = 0; s < count; s++)
        if ((double)n[s] / weight[s] < most) most = (double)n[s] / weight[s];
    for (int s = 0; s < count; s++) {
        const int64_t windows = n[s], wanted = llround(most * weight[s]);
        n[s] = wanted < 1 ? 1 : wanted < windows ? wanted : windows;
        w->pick[s] = (struct pick){ dataset->count, n[s], from, windows };
        dataset->count += n[s];
        from += windows;
    }
}

int sgrad__windows_mix(struct sgrad_dataset *dataset, int count, const char *const *name, const double *weight,
                       const int *files) {
    const struct windows *w = dataset->state;
    const char *split = dataset->split == SGRAD_TRAIN ? "training" : "test";
    int64_t *n = sgrad_xcalloc((size_t)count, sizeof *n);
    int file = 0, error = 0;
    for (int s = 0; s < count && !error; file += files[s++]) {
        n[s] = w->first[file + files[s]] - w->first[file];
        if (!n[s])
            error = sgrad_log_error(SGRAD_EFORMAT, "tokens: %s: its %s files have no sample of %lld tokens; give shorter samples",
                                    name[s], split, (long long)w->length);
    }
    if (!error && dataset->split == SGRAD_TEST) pick_samples(dataset, count, weight, n);
    if (!error) sgrad__mixture_create(dataset, count, name, weight, n);
    for (int s = 0; s < count && !error; s++) {
        const struct sgrad_source *source = &dataset->source[s];
        if (!source->quota)
            error =
                sgrad_log_error(SGRAD_EINVAL,
                                "tokens: %s: its weight is %.3g of all, which is less than one of the %lld %s samples; give a "
                                "larger weight, or leave it out",
                                name[s], source->weight, (long long)dataset->count, split);
        dataset->identity = sgrad__fingerprint_add(dataset->identity, &source->quota, sizeof source->quota);
    }
    free(n);
    return error;
}

/* Sets *END to the end token in FOLDER/tokens.json, which stargrad tokenize writes. */
static int read_end(const char *folder, int *end) {
    char *path = sgrad_format("%s/tokens.json", folder);
    json_t *file = NULL;
    int error = access(path, F_OK)
                    ? sgrad_log_error(SGRAD_EINVAL,
                                      "--attend document: %s does not exist; give --attend document:TOKEN, where TOKEN is the "
                                      "number of the last token of each document",
                                      path)
                    : sgrad_json_read(path, 1 << 20, &file);
    const json_t *number = json_object_get(file, "end");
    if (!error && (!json_is_integer(number) || json_integer_value(number) < 0 || json_integer_value(number) >= INT32_MAX))
        error = sgrad_log_error(SGRAD_EFORMAT,
                                "--attend document: %s: \"end\" is not the number of a token: documents have no end token; "
                                "tokenize with --end TOKEN",
                                path);
    if (!error) *end = (int)json_integer_value(number);
    json_decref(file);
    free(path);
    return error;
}

/* Sets *END to the end token of all folders. */
static int read_ends(const char *const *folder, int folders, int *end) {
    SGRAD_TRY(read_end(folder[0], end));
    for (int i = 1; i < folders; i++) {
        int other;
        SGRAD_TRY(read_end(folder[i], &other));
        if (other != *end)
            return sgrad_log_error(SGRAD_EFORMAT,
                                   "--attend document: documents end with token %d in %s, but with %d in %s; tokenize "
                                   "them in the same way",
                                   *end, folder[0], other, folder[i]);
    }
    return 0;
}

int sgrad__windows_attend(struct sgrad_dataset *dataset, const char *attend, const char *const *folder, int folders) {
    struct windows *w = dataset->state;
    const char *number = attend ? strchr(attend, ':') : NULL;
    if (!attend || strcmp(attend, "sample") == 0) return 0;
    if (number)
        w->end = atoi(number + 1);
    else if (folders)
        SGRAD_TRY(read_ends(folder, folders, &w->end));
    else
        return sgrad_log_error(SGRAD_EINVAL, "--attend document: text has no end token; give --attend document:BYTE, where BYTE "
                                             "is the number of the last byte of each document");
    if (w->end >= dataset->classes)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--attend document: token %d, the last of each document, does not occur: the largest token is %d; "
                               "give --attend document:TOKEN",
                               w->end, dataset->classes - 1);
    dataset->field[2] = dataset->field[1];
    dataset->field[1] = (struct sgrad_field){ SGRAD_DOCUMENT_FIELD, SGRAD_I32, dataset->field[0].shape, NULL };
    return 0;
}

/* Copies COUNT numbers of sequence I, from number FIRST on, to the tokens of a sample, and, from the second on, to its targets.
 */
static int read_numbers(const struct windows *w, int i, int64_t first, int64_t count, int32_t *tokens, int32_t *next) {
    enum { BLOCK = 2048 };
    const struct sgrad__numbers *in = &w->in.numbers[i], *answers = w->in.answers ? &w->in.answers[i] : NULL;
    unsigned char block[BLOCK * sizeof(int64_t)], answer[BLOCK];
    for (int64_t done = 0; done < count;) {
        const size_t n = count - done < BLOCK ? (size_t)(count - done) : BLOCK, bytes = (size_t)in->bytes;
        const size_t at = (size_t)(first + done);
        SGRAD_TRY(sgrad__open_files_read(w->files, in, in->from + at * bytes, n * bytes, block));
        if (answers) SGRAD_TRY(sgrad__open_files_read(w->files, answers, at, n, answer));
        for (size_t k = 0; k < n; k++, done++) {
            const int64_t number = sgrad__number_at(block + k * bytes, in->bytes, in->is_signed);
            if (number < 0 || number >= w->limit)
                return sgrad_log_error(SGRAD_EFORMAT,
                                       "%s: number %zu is %lld, but was below %d when the file was checked; a file "
                                       "must not change during a run",
                                       in->path, at + k, (long long)number, w->limit);
            if (done < w->length) tokens[done] = (int32_t)number;
            if (done > 0) next[done - 1] = answers && !answer[k] ? -1 : (int32_t)number;
        }
    }
    return 0;
}

/* Returns the window of sample INDEX. */
static int64_t window_of(const struct windows *w, int64_t index) {
    const struct pick *pick = w->pick;
    if (!pick) return index;
    while (index >= pick->first + pick->count) pick++;
    return pick->from + (int64_t)((__int128)(index - pick->first) * pick->windows / pick->count);
}

/* Returns the sequence that window INDEX is part of. */
static int sequence_of(const struct windows *w, int64_t index) {
    int low = 0, high = w->in.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (w->first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int sgrad__windows_read(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const struct windows *w = dataset->state;
    const int64_t window = window_of(w, sample.index);
    const int s = sequence_of(w, window);
    const int64_t wanted = (window - w->first[s]) * w->length + sample.shift, last = w->in.numbers[s].count - 1 - w->length;
    const bool documents = sgrad_dataset_own_fields(dataset) == 3;
    int32_t *tokens = data[0], *document = data[1];
    SGRAD_TRY(read_numbers(w, s, wanted < last ? wanted : last, w->length + 1, tokens, data[documents ? 2 : 1]));
    for (int64_t i = 0; i < w->length && documents; i++)
        document[i] = i == 0 || tokens[i - 1] == w->end ? (int32_t)i : document[i - 1];
    return 0;
}

void sgrad__windows_close(struct sgrad_dataset *dataset) {
    struct windows *w = dataset->state;
    sgrad__open_files_free(w->files);
    sgrad__sequences_free(&w->in);
    free(w->first);
    free(w->pick);
    free(w);
}
