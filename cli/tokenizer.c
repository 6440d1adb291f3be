/* tokenizer.c: GPT-2's tokens, from its files. In them a byte is written as a character that can be seen: itself, where it is
 * one, else the next from U+0100 on: a blank is Ġ.
 *
 * Text is cut into words before anything is joined: a blank and letters, a blank and digits, a blank and what is neither, blanks;
 * and the endings 's 't 're 've 'm 'll 'd. Limits: what is a letter the C library says, which takes the digits of other scripts
 * for letters. */
#include "cli/tokenizer.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

enum { BYTES = 256, CHARACTER = 4, SHIFTED = 0x100, MOST = 65536 };
#define FILE_LIMIT ((size_t)1 << 28)

struct sgrad__tokenizer {
    json_t *token, *rank;               /* by a token's characters its number; by those of a pair, a blank between, its turn */
    char character[BYTES][CHARACTER];   /* of each byte */
    int words;
    struct word {
        char *byte;
        size_t size;
    } *word;                            /* by token */
    locale_t locale;
};

/* ---- bytes as characters ----------------------------------------------------------------------------------------- */

static bool shows(int byte) { return (byte > ' ' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD); }

static void write_character(int code, char *to) {
    if (code < 0x80) to[0] = (char)code, to[1] = 0;
    else to[0] = (char)(0xC0 | code >> 6), to[1] = (char)(0x80 | (code & 63)), to[2] = 0;
}

static void make_characters(struct sgrad__tokenizer *t) {
    for (int byte = 0, hidden = 0; byte < BYTES; byte++)
        write_character(shows(byte) ? byte : SHIFTED + hidden++, t->character[byte]);
}

/* The bytes that TEXT, a token's characters, stands for; what stands for none is taken as it is (<|endoftext|>). */
static struct word word_of(const struct sgrad__tokenizer *t, const char *text) {
    struct word word = { sgrad_alloc(strlen(text) + 1, 1), 0 };
    while (*text) {
        int byte = 0;
        while (byte < BYTES && strncmp(text, t->character[byte], strlen(t->character[byte]))) byte++;
        word.byte[word.size++] = byte < BYTES ? (char)byte : *text;
        text += byte < BYTES ? strlen(t->character[byte]) : 1;
    }
    return word;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int wrong(const char *file, const char *what) { return sgrad_fail(SGRAD_EFORMAT, "tokenizer: %s: %s", file, what); }

static int take_vocabulary(struct sgrad__tokenizer *t, const char *file, json_t *vocabulary) {
    const char *text;
    json_t *number;
    int words = 0;
    if (!json_is_object(vocabulary) || !json_object_size(vocabulary)) return wrong(file, "has no vocabulary");
    t->token = json_incref(vocabulary);
    json_object_foreach(vocabulary, text, number) {
        const json_int_t n = json_is_integer(number) ? json_integer_value(number) : -1;
        if (n < 0 || n >= MOST) return wrong(file, "its vocabulary has a token whose number is none from 0 to 65535");
        if (n >= words) words = (int)n + 1;
    }
    t->word = sgrad_alloc((size_t)words, sizeof *t->word);
    t->words = words;
    json_object_foreach(vocabulary, text, number) {
        struct word *word = &t->word[json_integer_value(number)];
        free(word->byte);
        *word = word_of(t, text);
    }
    return 0;
}

static void add_pair(struct sgrad__tokenizer *t, const char *pair) {
    if (!json_object_get(t->rank, pair)) json_object_set_new(t->rank, pair, json_integer((json_int_t)json_object_size(t->rank)));
}

/* "a b", or ["a","b"] */
static int take_merges(struct sgrad__tokenizer *t, const char *file, const json_t *merges) {
    size_t i;
    json_t *merge;
    if (!json_is_array(merges)) return wrong(file, "has no merges");
    json_array_foreach(merges, i, merge) {
        const char *one = json_string_value(json_array_get(merge, 0)), *other = json_string_value(json_array_get(merge, 1));
        if (!json_string_value(merge) && !(one && other)) return wrong(file, "one of its merges is no pair");
        char *pair = json_string_value(merge) ? sgrad_format("%s", json_string_value(merge)) : sgrad_format("%s %s", one, other);
        add_pair(t, pair);
        free(pair);
    }
    return 0;
}

/* merges.txt: a pair a line, after one that begins with #version. */
static int read_merges(struct sgrad__tokenizer *t, const char *vocabulary) {
    const char *slash = strrchr(vocabulary, '/');
    char *path = sgrad_format("%.*smerges.txt", slash ? (int)(slash + 1 - vocabulary) : 0, vocabulary);
    struct sgrad_map map;
    int error = sgrad_map_open(path, FILE_LIMIT, &map);
    free(path);
    SGRAD_TRY(error);
    char *text = sgrad_format("%.*s", (int)map.size, (const char *)map.data), *rest = text;
    sgrad_map_close(&map);
    for (char *line; (line = strsep(&rest, "\n"));) {
        line[strcspn(line, "\r")] = 0;
        if (strchr(line, ' ') && strncmp(line, "#version", strlen("#version"))) add_pair(t, line);
    }
    free(text);
    return 0;
}

static int read_files(struct sgrad__tokenizer *t, const char *file) {
    struct sgrad_map map;
    json_error_t problem;
    SGRAD_TRY(sgrad_map_open(file, FILE_LIMIT, &map));
    json_t *object = json_loadb((const char *)map.data, map.size, JSON_ALLOW_NUL, &problem);
    sgrad_map_close(&map);
    if (!object) return sgrad_fail(SGRAD_EFORMAT, "tokenizer: %s: line %d: %s", file, problem.line, problem.text);
    const json_t *model = json_object_get(object, "model");
    int error = take_vocabulary(t, file, model ? json_object_get(model, "vocab") : object);
    if (!error) error = model ? take_merges(t, file, json_object_get(model, "merges")) : read_merges(t, file);
    json_decref(object);
    return error;
}

int sgrad__tokenizer_open(const char *file, struct sgrad__tokenizer **tokenizer) {
    struct sgrad__tokenizer *t = sgrad_alloc(1, sizeof *t);
    t->rank = json_object();
    t->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    make_characters(t);
    int error = read_files(t, file);
    if (error) sgrad__tokenizer_close(t);
    else *tokenizer = t;
    return error;
}

void sgrad__tokenizer_close(struct sgrad__tokenizer *t) {
    if (!t) return;
    for (int i = 0; i < t->words; i++) free(t->word[i].byte);
    free(t->word);
    json_decref(t->token);
    json_decref(t->rank);
    if (t->locale) freelocale(t->locale);
    free(t);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* The character at TEXT, its LENGTH in bytes; a byte that begins none is one of its own. */
static wint_t character_at(const char *text, size_t *length) {
    const unsigned char *b = (const unsigned char *)text;
    const int bytes = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : b[0] >= 0xC0 ? 2 : 1;
    wint_t code = bytes == 1 ? b[0] : b[0] & (0x7Fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if (b[i] >> 6 != 2) return *length = 1, 0xFFFD;
        code = code << 6 | (b[i] & 63);
    }
    return *length = (size_t)bytes, code;
}

enum { END, BLANK, LETTER, DIGIT, OTHER };

static int kind_at(const struct sgrad__tokenizer *t, const char *text, size_t *length) {
    const wint_t c = character_at(text, length);
    if (!*text) return END;
    if (t->locale ? iswspace_l(c, t->locale) : iswspace(c)) return BLANK;
    if (c >= '0' && c <= '9') return DIGIT;
    return (t->locale ? iswalpha_l(c, t->locale) : iswalpha(c)) ? LETTER : OTHER;
}

/* Bytes of the word that TEXT begins with. */
static size_t word_length(const struct sgrad__tokenizer *t, const char *text) {
    static const char *const endings[] = { "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" };
    size_t length, one;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!strncmp(text, endings[i], strlen(endings[i]))) return strlen(endings[i]);
    const size_t blank = *text == ' ' && kind_at(t, text + 1, &one) > BLANK;
    const int kind = kind_at(t, text + blank, &one);
    size_t last = 0;
    for (length = blank; kind_at(t, text + length, &one) == kind; length += one) last = one;
    /* Of blanks the last goes with the word that follows. */
    return kind == BLANK && text[length] && length > last ? length - last : length;
}

/* Joins the COUNT pieces of a word, each of them its characters, while there is a pair to join; returns how many are left. */
static int join(const struct sgrad__tokenizer *t, char **piece, int count) {
    for (;;) {
        int best = -1;
        json_int_t turn = 0;
        for (int i = 0; i + 1 < count; i++) {
            char *pair = sgrad_format("%s %s", piece[i], piece[i + 1]);
            const json_t *rank = json_object_get(t->rank, pair);
            free(pair);
            if (rank && (best < 0 || json_integer_value(rank) < turn)) best = i, turn = json_integer_value(rank);
        }
        if (best < 0) return count;
        char *joined = sgrad_format("%s%s", piece[best], piece[best + 1]);
        free(piece[best]);
        free(piece[best + 1]);
        piece[best] = joined;
        memmove(piece + best + 1, piece + best + 2, (size_t)(count-- - best - 2) * sizeof *piece);
    }
}

int32_t *sgrad__tokenizer_encode(const struct sgrad__tokenizer *t, const char *text, int *count) {
    int32_t *token = sgrad_alloc(strlen(text) + 1, sizeof *token);
    char **piece = sgrad_alloc(strlen(text) + 1, sizeof *piece);
    *count = 0;
    for (size_t length; *text; text += length) {
        length = word_length(t, text);
        for (size_t i = 0; i < length; i++) piece[i] = sgrad_format("%s", t->character[(unsigned char)text[i]]);
        const int pieces = join(t, piece, (int)length);
        for (int i = 0; i < pieces; i++) {
            const json_t *number = json_object_get(t->token, piece[i]);
            if (number) token[(*count)++] = (int32_t)json_integer_value(number);
            else sgrad_warn("tokenizer: '%s' is no token of its vocabulary: left out", piece[i]);
            free(piece[i]);
        }
    }
    free(piece);
    return token;
}

const char *sgrad__tokenizer_word(const struct sgrad__tokenizer *t, int token, size_t *size) {
    const bool known = token >= 0 && token < t->words && t->word[token].byte;
    *size = known ? t->word[token].size : 0;
    return known ? t->word[token].byte : "";
}
