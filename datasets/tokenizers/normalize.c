/* normalize.c: the normal form NFC. A text is divided before each character that NFC neither changes nor joins to the one before
 * it. Parts of one character stay as they are; the others are decomposed, sorted and composed:
 *
 *     e ̂ ̣      decomposed and sorted by combining class: e ̣ ̂      composed: ẹ ̂      composed: ệ */
#include "config.h"
#include "datasets/tokenizers/unicode.h"
#include "datasets/tokenizers/unicode_data.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

#define LENGTH(table) (sizeof(table) / sizeof *(table))

/* Hangul syllables are computed: the Unicode Standard, section 3.12. */
enum { SYLLABLE = 0xAC00, LEAD = 0x1100, VOWEL = 0x1161, TAIL = 0x11A7, LEADS = 19, VOWELS = 21, TAILS = 28 };
enum { SYLLABLES = LEADS * VOWELS * TAILS };

/* The characters of a part. */
struct part {
    struct character {
        uint32_t code;
        uint8_t class; /* canonical combining class; 0: a starter */
    } *character, own[64];
    size_t count, capacity;
};

static uint8_t combining(uint32_t code) {
    size_t low = 0, high = LENGTH(unicode_combining);
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (code > unicode_combining[middle][1])
            low = middle + 1;
        else if (code < unicode_combining[middle][0])
            high = middle;
        else
            return (uint8_t)unicode_combining[middle][2];
    }
    return 0;
}

static void append(struct part *part, uint32_t code) {
    if (part->count == part->capacity) {
        struct character *larger = sgrad_xcalloc(2 * part->capacity, sizeof *larger);
        memcpy(larger, part->character, part->count * sizeof *larger);
        if (part->character != part->own) free(part->character);
        part->character = larger;
        part->capacity *= 2;
    }
    part->character[part->count++] = (struct character){ code, combining(code) };
}

static int by_code(const void *one, const void *other) {
    const uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return a < b ? -1 : a > b;
}

static int by_pair(const void *one, const void *other) {
    const int first = by_code(one, other);
    return first ? first : by_code((const uint32_t *)one + 1, (const uint32_t *)other + 1);
}

static void decompose(struct part *part, uint32_t code) {
    if (code - SYLLABLE < SYLLABLES) {
        const uint32_t i = code - SYLLABLE;
        append(part, LEAD + i / (VOWELS * TAILS));
        append(part, VOWEL + i / TAILS % VOWELS);
        if (i % TAILS) append(part, TAIL + i % TAILS);
        return;
    }
    const uint32_t *found =
        code < 0xC0 ? NULL : bsearch(&code, unicode_decomposed, LENGTH(unicode_decomposed), sizeof *unicode_decomposed, by_code);
    if (!found) {
        append(part, code);
        return;
    }
    decompose(part, found[1]);
    if (found[2]) append(part, found[2]); /* no second character has a decomposition */
}

/* Sorts COUNT characters by their classes, stably, by counting. */
static void sort_run(struct character *run, size_t count) {
    size_t from[256] = { 0 }, sum = 0;
    struct character *sorted = sgrad_xcalloc(count, sizeof *sorted);
    for (size_t i = 0; i < count; i++) from[run[i].class]++;
    for (size_t class = 0; class < LENGTH(from); class ++) {
        const size_t here = from[class];
        from[class] = sum;
        sum += here;
    }
    for (size_t i = 0; i < count; i++) sorted[from[run[i].class]++] = run[i];
    memcpy(run, sorted, count * sizeof *run);
    free(sorted);
}

/* Sorts each run of characters that are not starters. */
static void sort(struct part *part) {
    for (size_t i = 0, end; i < part->count; i = end) {
        bool sorted = true;
        end = i + 1;
        if (!part->character[i].class) continue;
        for (; end < part->count && part->character[end].class; end++)
            sorted &= part->character[end - 1].class <= part->character[end].class;
        if (!sorted) sort_run(part->character + i, end - i);
    }
}

/* Returns the composition of two characters; 0: they have none. */
static uint32_t compose_two(uint32_t one, uint32_t other) {
    if (one - LEAD < LEADS && other - VOWEL < VOWELS) return SYLLABLE + ((one - LEAD) * VOWELS + other - VOWEL) * TAILS;
    if (one - SYLLABLE < SYLLABLES && (one - SYLLABLE) % TAILS == 0 && other - TAIL - 1 < TAILS - 1) return one + other - TAIL;
    const uint32_t pair[2] = { one, other };
    const uint32_t *found = bsearch(pair, unicode_composed, LENGTH(unicode_composed), sizeof *unicode_composed, by_pair);
    return found ? found[2] : 0;
}

/* A character composes with the last starter, unless a character between them has the same class or a higher one. */
static void compose(struct part *part) {
    size_t count = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < part->count; i++) {
        const struct character c = part->character[i];
        const bool blocked = starter == SIZE_MAX || (count > starter + 1 && part->character[count - 1].class >= c.class);
        const uint32_t both = blocked ? 0 : compose_two(part->character[starter].code, c.code);
        if (both) {
            part->character[starter].code = both;
            continue;
        }
        if (!c.class) starter = count;
        part->character[count++] = c;
    }
    part->count = count;
}

/* Appends the normal form of the part of SIZE bytes at TEXT, all of them valid. */
static void normalize(const char *text, size_t size, struct sgrad__buffer *to) {
    struct part part = { .capacity = LENGTH(part.own) };
    size_t length;
    part.character = part.own;
    for (const char *at = text; at < text + size; at += length) decompose(&part, sgrad__utf8_get(at, text + size, &length));
    sort(&part);
    compose(&part);
    for (size_t i = 0; i < part.count; i++) {
        char utf8[4];
        sgrad__buffer_add(to, utf8, (size_t)(sgrad__utf8_put(part.character[i].code, utf8) - utf8));
    }
    if (part.character != part.own) free(part.character);
}

void sgrad__nfc(const char *text, size_t size, struct sgrad__buffer *to) {
    const char *end = text + size, *done = text, *last = text; /* last: the character before at */
    size_t length;
    for (const char *at = text; at < end; last = at, at += length) {
        uint32_t code = sgrad__utf8_get(at, end, &length);
        if (!(sgrad__unicode_class[code] & SGRAD__UNSTABLE)) continue;
        /* The part is the stable character before, if there is a valid one, and all unstable ones that follow. */
        const char *from = last < at && sgrad__utf8_get(last, end, &(size_t){ 0 }) != SGRAD__NO_CHARACTER ? last : at;
        if (from < done) from = at;
        const char *to_end = at + length;
        while (to_end < end) {
            code = sgrad__utf8_get(to_end, end, &length);
            if (!(sgrad__unicode_class[code] & SGRAD__UNSTABLE)) break;
            to_end += length;
        }
        sgrad__buffer_add(to, done, (size_t)(from - done));
        normalize(from, (size_t)(to_end - from), to);
        done = at = to_end;
        length = 0;
    }
    sgrad__buffer_add(to, done, (size_t)(end - done));
}
