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

#include <stdlib.h>
#include <string.h>

struct windows {
    struct sgrad_map map, answers;  /* answers: by number, 1 if it may be a target; no data: all may */
    const unsigned char *first;     /* first number of the sequence */
    int64_t count, length;          /* numbers of the sequence; of a window */
    int bytes;                      /* of a number: 1, 2, 4 or 8, little-endian */
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

int sgrad__windows_read(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    const struct windows *w = dataset->state;
    const int64_t wanted = sample.index * w->length + sample.shift, last = w->count - 1 - w->length;
    const int64_t first = wanted < last ? wanted : last;
    const unsigned char *at = w->first + first * w->bytes, *answer = w->answers.data ? w->answers.data + first : NULL;
    int32_t *tokens = data[0], *next = data[1];
    for (int64_t i = 0; i <= w->length; i++, at += w->bytes) {
        uint32_t bits = 0;
        for (int b = w->bytes; b-- > 0;) bits = bits << 8 | at[b];
        const int32_t number = (int32_t)bits;
        if (i < w->length) tokens[i] = number;
        if (i > 0) next[i - 1] = answer && !answer[i] ? -1 : number;
    }
    return 0;
}

void sgrad__windows_close(struct sgrad_dataset *dataset) {
    struct windows *w = dataset->state;
    sgrad_map_close(&w->map);
    if (w->answers.data) sgrad_map_close(&w->answers);
    free(w);
}
