/* split.c: the regular expressions by which pre-tokenizers split a text into words, each as a function. Their alternatives are
 * tried in order, and every character belongs to a word. */
#include "config.h"
#include "datasets/tokenizers/internal.h"

#include <string.h>

/* A character: its classes, and the address after it. */
struct character {
    uint32_t code;
    unsigned class;
    const char *next;
};

static struct character at(const char *text, const char *end) {
    size_t length;
    const uint32_t code = sgrad__utf8_get(text, end, &length);
    return (struct character){ code, sgrad__unicode_class[code], text + length };
}

enum { KINDS = SGRAD__LETTER | SGRAD__NUMBER | SGRAD__SPACE };

/* Returns the end of the characters from TEXT on that have the CLASS of KINDS (0: none of them), at most MOST. */
static const char *run_of(const char *text, const char *end, unsigned class, size_t most) {
    for (size_t i = 0; i < most && text < end; i++) {
        const struct character c = at(text, end);
        if ((c.class & KINDS) != class) break;
        text = c.next;
    }
    return text;
}

static bool is_line_end(const struct character *c) { return c->code == '\n' || c->code == '\r'; }

/* \s+(?!\S)|\s+ of a text that begins with white space: the last character of it belongs to the word that follows, if it is not
 * the only one. */
static const char *split_spaces(const char *text, const char *end) {
    const char *last = text, *now = text;
    while (now < end) {
        const struct character c = at(now, end);
        if (!(c.class & SGRAD__SPACE)) return last > text ? last : now;
        last = now;
        now = c.next;
    }
    return end;
}

/* 's|'t|'re|'ve|'m|'ll|'d from TEXT on, which begins with '. Returns NULL if TEXT begins otherwise. FOLDS: ignores case; then
 * U+017F is an s. */
static const char *split_ending(const char *text, const char *end, bool folds) {
    const size_t left = (size_t)(end - text);
    const int fold = folds ? 0x20 : 0;
    if (left < 2) return NULL;
    const int one = text[1] | fold, other = left > 2 ? text[2] | fold : 0;
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return text + 2;
    if ((one == 'r' && other == 'e') || (one == 'v' && other == 'e') || (one == 'l' && other == 'l')) return text + 3;
    return folds && left > 2 && !memcmp(text + 1, "\u017F", 2) ? text + 3 : NULL;
}

/* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t sgrad__split_gpt2(const char *text, size_t size) {
    const char *end = text + size, *ending = *text == '\'' ? split_ending(text, end, false) : NULL;
    if (ending) return (size_t)(ending - text);
    const struct character first = at(text, end), second = first.next < end ? at(first.next, end) : first;
    const bool blank = first.code == ' ' && !(second.class & SGRAD__SPACE);
    if (first.class & SGRAD__SPACE && !blank) return (size_t)(split_spaces(text, end) - text);
    const struct character *c = blank ? &second : &first;
    return (size_t)(run_of(c->next, end, c->class & KINDS, SIZE_MAX) - text);
}

/* White space without a following word: \s*[\r\n]+|\s+(?!\S)|\s+ */
static const char *split_lines(const char *text, const char *end) {
    const char *line = NULL;
    for (const char *now = text; now < end;) {
        const struct character c = at(now, end);
        if (!(c.class & SGRAD__SPACE)) break;
        now = c.next;
        if (is_line_end(&c)) line = now;
    }
    return line ? line : split_spaces(text, end);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t split_words(const char *text, size_t size, size_t digits) {
    const char *end = text + size, *ending = *text == '\'' ? split_ending(text, end, true) : NULL;
    if (ending) return (size_t)(ending - text);
    const struct character first = at(text, end), second = first.next < end ? at(first.next, end) : (struct character){ 0 };
    if (first.class & SGRAD__LETTER) return (size_t)(run_of(first.next, end, SGRAD__LETTER, SIZE_MAX) - text);
    if (first.class & SGRAD__NUMBER) return (size_t)(run_of(first.next, end, SGRAD__NUMBER, digits - 1) - text);
    if (second.class & SGRAD__LETTER && !is_line_end(&first))
        return (size_t)(run_of(second.next, end, SGRAD__LETTER, SIZE_MAX) - text);
    const bool blank = first.code == ' ' && first.next < end && !(second.class & KINDS);
    if (first.class & SGRAD__SPACE && !blank) return (size_t)(split_lines(text, end) - text);
    text = run_of(first.next, end, 0, SIZE_MAX);
    while (text < end && (*text == '\r' || *text == '\n')) text++;
    return (size_t)(text - (end - size));
}

size_t sgrad__split_llama3(const char *text, size_t size) { return split_words(text, size, 3); }
size_t sgrad__split_qwen2(const char *text, size_t size) { return split_words(text, size, 1); }

/* The pre-tokenizer Digits: each number is a word, or each run of numbers. */
static size_t split_numbers(const char *text, size_t size, bool each) {
    const char *end = text + size;
    struct character c = at(text, end);
    const unsigned class = c.class & SGRAD__NUMERIC;
    text = c.next;
    while (text < end && !(each && class)) {
        c = at(text, end);
        if ((c.class & SGRAD__NUMERIC) != class) break;
        text = c.next;
    }
    return (size_t)(text - (end - size));
}

size_t sgrad__split_digits(const char *text, size_t size) { return split_numbers(text, size, false); }
size_t sgrad__split_digit(const char *text, size_t size) { return split_numbers(text, size, true); }

#define ENDINGS "'s|'t|'re|'ve|'m|'ll|'d"
#define WORDS(numbers)                                                                                                           \
    "(?i:" ENDINGS ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

sgrad__splitter *sgrad__splitter_find(const char *pattern) {
    static const struct {
        const char *pattern;
        sgrad__splitter *split;
    } known[] = {
        { ENDINGS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", sgrad__split_gpt2 },
        { WORDS("\\p{N}{1,3}"), sgrad__split_llama3 },
        { WORDS("\\p{N}"), sgrad__split_qwen2 },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(pattern, known[i].pattern)) return known[i].split;
    return NULL;
}
