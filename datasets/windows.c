/* windows.c: samples from a long sequence of numbers. Window i consists of the T numbers from i·T on; its target is the number
 * after each of them. With T = 4 and ten numbers, not shifted, and shifted by 1:
 *
 *     t h e   c a t   s a            window 0   t h e _ │ h e _ c        window 1   c a t _ │ a t _ s
 *     └─────┘ └─────┘                shifted    h e _ c │ e _ c a                   a t _ s │ t _ s a
 *
 * A shifted window that would extend beyond the end begins earlier, so the last two windows may overlap. */
#include "config.h"
#include "datasets/windows.h"
#include "datasets/formats.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct windows {
    struct sgrad_map map, answers;  /* answers: by number, 1 if it may be a target; no data: all may */
    const unsigned char *first;     /* first number of the sequence */
    int64_t count, length;          /* numbers of the sequence; of a window */
    int bytes;                      /* of a number: 1, 2, 4 or 8, little-endian */
    int end;                        /* last number of each document */
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

int sgrad__windows_open(struct sgrad_dataset *dataset, struct sgrad_map map, const char *name, size_t from, int64_t count,
                        int bytes, int64_t length) {
    if (count <= length) {
        sgrad_map_close(&map);
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: the %s split has %lld %s, but samples of %lld require at least %lld; give shorter samples",
                               name, dataset->split == SGRAD_TRAIN ? "training" : "test", (long long)count,
                               bytes == 1 ? "bytes" : "tokens", (long long)length, (long long)length + 1);
    }
    struct windows *w = dataset->state = sgrad_xcalloc(1, sizeof *w);
    *w = (struct windows){ .map = map, .first = map.data + from, .count = count, .length = length, .bytes = bytes };
    dataset->field[0] = (struct sgrad_field){ "tokens", SGRAD_I32, { 1, { length } }, NULL };
    dataset->field[1] = (struct sgrad_field){ "next", SGRAD_I32, { 1, { length } }, NULL };
    dataset->count = (count - 1) / length;
    dataset->shifts = length;
    dataset->identity = sgrad__fingerprint_add(1, w->first, (size_t)(count * bytes));
    return 0;
}

void sgrad__windows_restrict(struct sgrad_dataset *dataset, struct sgrad_map answers) {
    struct windows *w = dataset->state;
    w->answers = answers;
    dataset->identity = sgrad__fingerprint_add(dataset->identity, answers.data, answers.size);
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

int sgrad__windows_attend(struct sgrad_dataset *dataset, const char *attend, const char *folder) {
    struct windows *w = dataset->state;
    const char *number = attend ? strchr(attend, ':') : NULL;
    if (!attend || strcmp(attend, "sample") == 0) return 0;
    if (number) w->end = atoi(number + 1);
    else if (folder) SGRAD_TRY(read_end(folder, &w->end));
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

int sgrad__windows_read(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const struct windows *w = dataset->state;
    const int64_t wanted = sample.index * w->length + sample.shift, last = w->count - 1 - w->length;
    const int64_t first = wanted < last ? wanted : last;
    const unsigned char *at = w->first + first * w->bytes, *answer = w->answers.data ? w->answers.data + first : NULL;
    const bool documents = sgrad_dataset_own_fields(dataset) == 3;
    int32_t *tokens = data[0], *document = data[1], *next = data[documents ? 2 : 1];
    for (int64_t i = 0; i <= w->length; i++, at += w->bytes) {
        uint32_t bits = 0;
        for (int b = w->bytes; b-- > 0;) bits = bits << 8 | at[b];
        const int32_t number = (int32_t)bits;
        if (i < w->length) tokens[i] = number;
        if (i > 0) next[i - 1] = answer && !answer[i] ? -1 : number;
    }
    for (int64_t i = 0; i < w->length && documents; i++)
        document[i] = i == 0 || tokens[i - 1] == w->end ? (int32_t)i : document[i - 1];
    return 0;
}

void sgrad__windows_close(struct sgrad_dataset *dataset) {
    struct windows *w = dataset->state;
    sgrad_map_close(&w->map);
    if (w->answers.data) sgrad_map_close(&w->answers);
    free(w);
}
