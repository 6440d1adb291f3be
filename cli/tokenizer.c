/* tokenizer.c: GPT-2's tokenizer, from its files. In the files, each byte is written as a visible character: as itself, if it is
 * one, else as the next character from U+0100 on; a blank is Ġ.
 *
 * Text is first split into words: a blank and letters, a blank and digits, a blank and other characters, blanks; and the endings
 * 's 't 're 've 'm 'll 'd; by Unicode's classes (unicode_data.h). The pairs of each word are then merged. Added tokens
 * (<|endoftext|>) are found before the split, the longest at each position; normalized ones only in the text between the others.
 *
 * Limits: processing steps of a tokenizer.json that GPT-2 does not have are refused by name. */
#include "cli/tokenizer.h"
#include "cli/unicode_data.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256, CHARACTER = 4, SHIFTED = 0x100, MOST = 65536 };
#define FILE_LIMIT ((size_t)1 << 28)

struct sgrad__tokenizer {
    json_t *token, *rank;               /* number, by characters of a token; merge rank, by "a b" */
    char character[BYTES][CHARACTER];   /* by byte */
    int words, own;                     /* number of tokens; of those in the vocabulary */
    struct word {
        char *byte;
        size_t size;
    } *word;                            /* by token */
    struct added {
        char *text;
        size_t size;
        int32_t token;
        bool lstrip, rstrip;            /* includes preceding, following blanks */
        bool normalized;
    } *added;
    int addeds;
    int merges;
};

/* ---- bytes as characters ----------------------------------------------------------------------------------------- */

static bool shows(int byte) { return (byte > ' ' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD); }

static void write_character(int code, char *to) {
    if (code < 0x80) to[0] = (char)code, to[1] = 0;
    else to[0] = (char)(0xC0 | code >> 6), to[1] = (char)(0x80 | (code & 63)), to[2] = 0;
}

static void make_characters(struct sgrad__tokenizer *tokenizer) {
    for (int byte = 0, hidden = 0; byte < BYTES; byte++)
        write_character(shows(byte) ? byte : SHIFTED + hidden++, tokenizer->character[byte]);
}

/* Returns the bytes of a token from its characters TEXT. Characters of no byte are copied as they are (<|endoftext|>). */
static struct word word_of(const struct sgrad__tokenizer *tokenizer, const char *text) {
    struct word word = { sgrad_xcalloc(strlen(text) + 1, 1), 0 };
    while (*text) {
        int byte = 0;
        while (byte < BYTES && strncmp(text, tokenizer->character[byte], strlen(tokenizer->character[byte]))) byte++;
        word.byte[word.size++] = byte < BYTES ? (char)byte : *text;
        text += byte < BYTES ? strlen(tokenizer->character[byte]) : 1;
    }
    return word;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int wrong(const char *file, const char *what) { return sgrad_log_error(SGRAD_EFORMAT, "tokenizer: %s: %s", file, what); }

static int take_vocabulary(struct sgrad__tokenizer *tokenizer, const char *file, json_t *vocabulary) {
    const char *text;
    json_t *number;
    int words = 0;
    if (!json_is_object(vocabulary) || !json_object_size(vocabulary)) return wrong(file, "has no vocabulary");
    tokenizer->token = json_incref(vocabulary);
    json_object_foreach(vocabulary, text, number) {
        const json_int_t n = json_is_integer(number) ? json_integer_value(number) : -1;
        if (n < 0 || n >= MOST) return wrong(file, "its vocabulary has a token whose number is not from 0 to 65535");
        if (n >= words) words = (int)n + 1;
    }
    tokenizer->word = sgrad_xcalloc((size_t)words, sizeof *tokenizer->word);
    tokenizer->words = tokenizer->own = words;
    json_object_foreach(vocabulary, text, number) {
        struct word *word = &tokenizer->word[json_integer_value(number)];
        free(word->byte);
        *word = word_of(tokenizer, text);
    }
    return 0;
}

/* Adds a token that is found before the text is split. */
static void add_token(struct sgrad__tokenizer *tokenizer, const char *text, int32_t token, struct added how) {
    tokenizer->added = sgrad_array_grow(tokenizer->added, tokenizer->addeds, sizeof *tokenizer->added);
    how.text = sgrad_format("%s", text), how.size = strlen(text), how.token = token;
    tokenizer->added[tokenizer->addeds++] = how;
    if (token >= tokenizer->words) {
        struct word *longer = sgrad_xcalloc((size_t)token + 1, sizeof *longer);
        memcpy(longer, tokenizer->word, (size_t)tokenizer->words * sizeof *longer);
        free(tokenizer->word);
        tokenizer->word = longer;
        tokenizer->words = token + 1;
    }
    free(tokenizer->word[token].byte);
    tokenizer->word[token] = (struct word){ sgrad_format("%s", text), strlen(text) };
}

/* Returns the number that the library `tokenizers` assigns to an added token, independently of the file: its number in the
 * vocabulary, or the next free one. */
static json_int_t number_of(const struct sgrad__tokenizer *tokenizer, const char *text) {
    const json_t *known = json_object_get(tokenizer->token, text);
    json_int_t next = (json_int_t)json_object_size(tokenizer->token);
    if (known) return json_integer_value(known);
    for (const struct added *a = tokenizer->added; a < tokenizer->added + tokenizer->addeds; a++) {
        if (!strcmp(a->text, text)) return a->token;
        if (a->token >= next) next = a->token + 1;
    }
    return next;
}

static int take_added(struct sgrad__tokenizer *tokenizer, const char *file, const json_t *added) {
    size_t i;
    json_t *one;
    json_array_foreach(added, i, one) {
        const char *text = json_string_value(json_object_get(one, "content"));
        const json_t *id = json_object_get(one, "id");
        const json_int_t token = json_is_integer(id) ? json_integer_value(id) : -1;
        if (!text || !*text || token < 0 || token >= MOST)
            return wrong(file, "an added token has no content, or a number that is not from 0 to 65535");
        if (json_is_true(json_object_get(one, "single_word")))
            return sgrad_log_error(SGRAD_EFORMAT,
                                   "tokenizer: %s: the added token '%.100s' has single_word, which is not supported", file, text);
        if (token != number_of(tokenizer, text))
            return sgrad_log_error(SGRAD_EFORMAT,
                                   "tokenizer: %s: the added token '%.100s' has number %lld, but the vocabulary and the tokens "
                                   "before it require %lld",
                                   file, text, (long long)token, (long long)number_of(tokenizer, text));
        add_token(tokenizer, text, (int32_t)token, (struct added){ .lstrip = json_is_true(json_object_get(one, "lstrip")),
                                                           .rstrip = json_is_true(json_object_get(one, "rstrip")),
                                                           .normalized = json_is_true(json_object_get(one, "normalized")) });
    }
    return 0;
}

/* ---- features that GPT-2's tokenizer lacks ---- */

static int refuse(const char *file, const char *what, const char *name) {
    return sgrad_log_error(SGRAD_EFORMAT, "tokenizer: %s: its %s %s is not supported; Stargrad would %s", file, what, name,
                           strcmp(what, "decoder") ? "produce other tokens" : "decode tokens to other text");
}

/* STEP: null or an object with a type, which may be a Sequence of such objects. Returns the first type other than KNOWN; NULL:
 * all are KNOWN. */
static const char *other_type(const json_t *step, const char *known) {
    const char *type = json_string_value(json_object_get(step, "type"));
    size_t i;
    const char *key;
    json_t *list, *one;
    if (!step || json_is_null(step)) return NULL;
    if (!type) return "without a type";
    if (strcmp(type, "Sequence")) return known && !strcmp(type, known) ? NULL : type;
    json_object_foreach((json_t *)step, key, list) json_array_foreach(list, i, one) {
        const char *other = other_type(one, known);
        if (other) return other;
    }
    return NULL;
}

/* Returns the only ByteLevel of STEP or of its sequence; NULL: there are none, or several. */
static const json_t *byte_level(const json_t *step) {
    const json_t *list = json_object_get(step, "pretokenizers");
    if (!list) return step;
    return json_array_size(list) == 1 ? byte_level(json_array_get(list, 0)) : NULL;
}

static int check_steps(const char *file, const json_t *object) {
    const json_t *pre = json_object_get(object, "pre_tokenizer"), *level = byte_level(pre);
    const struct {
        const char *name, *known;
    } steps[] = { { "normalizer", NULL }, { "pre_tokenizer", "ByteLevel" }, { "post_processor", "ByteLevel" },
                  { "decoder", "ByteLevel" } };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const char *other = other_type(json_object_get(object, steps[i].name), steps[i].known);
        if (other) return refuse(file, steps[i].name, other);
    }
    if (!json_is_object(level)) return refuse(file, "pre_tokenizer", json_is_object(pre) ? "Sequence" : "null");
    if (json_is_true(json_object_get(level, "add_prefix_space")))
        return refuse(file, "pre_tokenizer", "ByteLevel with add_prefix_space");
    if (json_is_false(json_object_get(level, "use_regex"))) return refuse(file, "pre_tokenizer", "ByteLevel without use_regex");
    for (const char *const *name = (const char *const[]){ "truncation", "padding", NULL }; *name; name++)
        if (json_is_object(json_object_get(object, *name))) return refuse(file, "step", *name);
    return 0;
}

static int check_model(const char *file, const json_t *model) {
    const char *type = json_string_value(json_object_get(model, "type")), *key;
    json_t *value;
    if (type && strcmp(type, "BPE")) return refuse(file, "model", type);
    json_object_foreach((json_t *)model, key, value) {
        const bool flag = !strcmp(key, "byte_fallback") || !strcmp(key, "ignore_merges");
        const bool text = !strcmp(key, "continuing_subword_prefix") || !strcmp(key, "end_of_word_suffix");
        if (flag && json_is_true(value)) return refuse(file, "model's", key);
        if (text && json_string_length(value)) return refuse(file, "model's", key);
        if (!strcmp(key, "dropout") && json_number_value(value) > 0) return refuse(file, "model's", key);
    }
    return 0;
}

/* Adds a merge. A later equal pair replaces an earlier one. Both tokens of the pair and the merged one must be in the
 * vocabulary. */
static int add_pair(struct sgrad__tokenizer *tokenizer, const char *file, const char *pair) {
    const char *blank = strchr(pair, ' ');
    char *piece[3] = { sgrad_format("%.*s", (int)(blank ? blank - pair : 0), pair), sgrad_format("%s", blank ? blank + 1 : "") };
    int error = 0;
    piece[2] = sgrad_format("%s%s", piece[0], piece[1]);
    for (int i = 0; i < 3; i++) {
        if (!error && !json_object_get(tokenizer->token, piece[i]))
            error = sgrad_log_error(SGRAD_EFORMAT, "tokenizer: %s: merge %d, '%.100s': '%.100s' is not a token of the vocabulary",
                                    file, tokenizer->merges + 1, pair, piece[i]);
        free(piece[i]);
    }
    if (!error) json_object_set_new(tokenizer->rank, pair, json_integer(tokenizer->merges++));
    return error;
}

/* Adds merges of the form "a b" or ["a","b"]. */
static int take_merges(struct sgrad__tokenizer *tokenizer, const char *file, const json_t *merges) {
    size_t i;
    json_t *merge;
    if (!json_is_array(merges)) return wrong(file, "has no merges");
    json_array_foreach(merges, i, merge) {
        const char *one = json_string_value(json_array_get(merge, 0)), *other = json_string_value(json_array_get(merge, 1));
        if (!json_string_value(merge) && !(one && other)) return wrong(file, "one of its merges is not a pair of tokens");
        char *pair = json_string_value(merge) ? sgrad_format("%s", json_string_value(merge)) : sgrad_format("%s %s", one, other);
        const int error = add_pair(tokenizer, file, pair);
        free(pair);
        SGRAD_TRY(error);
    }
    return 0;
}

/* Reads merges.txt, with a pair per line after the line #version. */
static int read_merges(struct sgrad__tokenizer *tokenizer, const char *vocabulary) {
    const char *slash = strrchr(vocabulary, '/');
    char *path = sgrad_format("%.*smerges.txt", slash ? (int)(slash + 1 - vocabulary) : 0, vocabulary);
    struct sgrad_map map;
    int error = sgrad_map_open(path, FILE_LIMIT, &map);
    char *text = error ? NULL : sgrad_format("%.*s", (int)map.size, (const char *)map.data), *rest = text;
    if (!error) sgrad_map_close(&map);
    for (char *line; !error && (line = strsep(&rest, "\n"));) {
        line[strcspn(line, "\r")] = 0;
        if (*line && strncmp(line, "#version", strlen("#version"))) error = add_pair(tokenizer, path, line);
    }
    free(text);
    free(path);
    return error;
}

/* Refuses unk_token if it could occur: if the vocabulary lacks a byte. */
static int check_unknown(const struct sgrad__tokenizer *tokenizer, const char *file, const json_t *model) {
    if (!json_is_string(json_object_get(model, "unk_token"))) return 0;
    for (int byte = 0; byte < BYTES; byte++)
        if (!json_object_get(tokenizer->token, tokenizer->character[byte]))
            return refuse(file, "model's", "unk_token (the vocabulary lacks bytes)");
    return 0;
}

/* Reads tokenizer.json. */
static int read_whole(struct sgrad__tokenizer *tokenizer, const char *file, const json_t *object, const json_t *model) {
    SGRAD_TRY(check_model(file, model));
    SGRAD_TRY(check_steps(file, object));
    SGRAD_TRY(take_vocabulary(tokenizer, file, json_object_get(model, "vocab")));
    SGRAD_TRY(check_unknown(tokenizer, file, model));
    SGRAD_TRY(take_merges(tokenizer, file, json_object_get(model, "merges")));
    return take_added(tokenizer, file, json_object_get(object, "added_tokens"));
}

/* Reads vocab.json, with only integers as values, and merges.txt. GPT-2's added token is in its vocabulary. */
static int read_pair(struct sgrad__tokenizer *tokenizer, const char *file, json_t *object) {
    static const char end[] = "<|endoftext|>";
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
        if (!json_is_integer(value))
            return wrong(file, "is neither a tokenizer.json (with a model) nor a vocab.json (with a number for each token)");
    SGRAD_TRY(take_vocabulary(tokenizer, file, object));
    if (json_object_get(object, end))
        add_token(tokenizer, end, (int32_t)json_integer_value(json_object_get(object, end)), (struct added){ 0 });
    return read_merges(tokenizer, file);
}

static int read_files(struct sgrad__tokenizer *tokenizer, const char *file) {
    struct sgrad_map map;
    json_error_t problem;
    SGRAD_TRY(sgrad_map_open(file, FILE_LIMIT, &map));
    json_t *object = json_loadb((const char *)map.data, map.size, JSON_ALLOW_NUL, &problem);
    sgrad_map_close(&map);
    if (!object) return sgrad_log_error(SGRAD_EFORMAT, "tokenizer: %s: line %d: %s", file, problem.line, problem.text);
    const json_t *model = json_object_get(object, "model");        /* in vocab.json, "model" may be a token */
    int error = json_is_object(model) ? read_whole(tokenizer, file, object, model) : read_pair(tokenizer, file, object);
    json_decref(object);
    return error;
}

int sgrad__tokenizer_open(const char *file, struct sgrad__tokenizer **tokenizer) {
    struct sgrad__tokenizer *t = sgrad_xcalloc(1, sizeof *t);
    t->rank = json_object();
    make_characters(t);
    int error = read_files(t, file);
    if (error) sgrad__tokenizer_close(t);
    else *tokenizer = t;
    return error;
}

void sgrad__tokenizer_close(struct sgrad__tokenizer *tokenizer) {
    if (!tokenizer) return;
    for (int i = 0; i < tokenizer->words; i++) free(tokenizer->word[i].byte);
    free(tokenizer->word);
    for (int i = 0; i < tokenizer->addeds; i++) free(tokenizer->added[i].text);
    free(tokenizer->added);
    json_decref(tokenizer->token);
    json_decref(tokenizer->rank);
    free(tokenizer);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Returns the length in bytes of the UTF-8 character that FIRST starts. */
static int length_of(unsigned char first) {
    if (first >= 0xF0) return 4;
    if (first >= 0xE0) return 3;
    return first >= 0xC0 ? 2 : 1;
}

/* Returns the character at TEXT and its LENGTH in bytes. A byte that starts no valid character is a character itself. */
static uint32_t character_at(const char *text, size_t *length) {
    const unsigned char *b = (const unsigned char *)text;
    const int bytes = length_of(b[0]);
    uint32_t code = bytes == 1 ? b[0] : b[0] & (0x7Fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if (b[i] >> 6 != 2) return *length = 1, 0xFFFD;
        code = code << 6 | (b[i] & 63);
    }
    return *length = (size_t)bytes, code;
}

enum { END, BLANK, LETTER, DIGIT, OTHER };

/* Unicode's White_Space. */
static bool is_blank(uint32_t c) {
    static const uint32_t blanks[] = { ' ', 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000 };
    bool is = (c >= '\t' && c <= '\r') || (c >= 0x2000 && c <= 0x200A);
    for (size_t i = 0; i < sizeof blanks / sizeof *blanks; i++) is |= c == blanks[i];
    return is;
}

static bool is_in(uint32_t c, const uint32_t (*range)[2], size_t count) {
    size_t low = 0;
    while (count > low) {
        const size_t middle = (low + count) / 2;
        if (c > range[middle][1]) low = middle + 1;
        else if (c < range[middle][0]) count = middle;
        else return true;
    }
    return false;
}

static int kind_at(const char *text, size_t *length) {
    const uint32_t c = character_at(text, length);
    if (!*text) return END;
    if (is_blank(c)) return BLANK;
    if (is_in(c, unicode_numbers, sizeof unicode_numbers / sizeof *unicode_numbers)) return DIGIT;
    return is_in(c, unicode_letters, sizeof unicode_letters / sizeof *unicode_letters) ? LETTER : OTHER;
}

/* Returns the number of bytes of the word at the beginning of TEXT. */
static size_t word_length(const char *text) {
    static const char *const endings[] = { "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" };
    size_t length, one;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (!strncmp(text, endings[i], strlen(endings[i]))) return strlen(endings[i]);
    const size_t blank = *text == ' ' && kind_at(text + 1, &one) > BLANK;
    const int kind = kind_at(text + blank, &one);
    size_t last = 0;
    for (length = blank; kind_at(text + length, &one) == kind; length += one) last = one;
    /* The last of several blanks belongs to the word that follows. */
    return kind == BLANK && text[length] && length > last ? length - last : length;
}

/* Merges the COUNT substrings of a word, written as characters, as long as a merge applies; returns the remaining number. */
static int join(const struct sgrad__tokenizer *tokenizer, char **piece, int count) {
    for (;;) {
        int best = -1;
        json_int_t turn = 0;
        for (int i = 0; i + 1 < count; i++) {
            char *pair = sgrad_format("%s %s", piece[i], piece[i + 1]);
            const json_t *rank = json_object_get(tokenizer->rank, pair);
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

/* Appends the tokens of TEXT, which contains no added tokens. Bytes without a token are skipped before the merges. */
static void encode_plain(const struct sgrad__tokenizer *tokenizer, const char *text, int32_t *token, int *count) {
    char **piece = sgrad_xcalloc(strlen(text) + 1, sizeof *piece);
    for (size_t length; *text; text += length) {
        int pieces = 0;
        length = word_length(text);
        for (size_t i = 0; i < length; i++) {
            const char *character = tokenizer->character[(unsigned char)text[i]];
            if (json_object_get(tokenizer->token, character)) piece[pieces++] = sgrad_format("%s", character);
            else
                sgrad_log_warning("tokenizer: '%s' is not a token of the vocabulary and is left out", character);
        }
        pieces = join(tokenizer, piece, pieces);
        for (int i = 0; i < pieces; i++) {
            token[(*count)++] = (int32_t)json_integer_value(json_object_get(tokenizer->token, piece[i]));
            free(piece[i]);
        }
    }
    free(piece);
}

/* Returns the first added token in TEXT, NORMALIZED or not, the longest of several at the same position, and the number of bytes
 * BEFORE it; NULL: none. */
static const struct added *find_added(const struct sgrad__tokenizer *tokenizer, const char *text, bool normalized,
                                      size_t *before) {
    const struct added *found = NULL;
    *before = strlen(text);
    for (const struct added *a = tokenizer->added; a < tokenizer->added + tokenizer->addeds; a++) {
        const char *at = a->normalized == normalized ? strstr(text, a->text) : NULL;
        const size_t here = at ? (size_t)(at - text) : 0;
        if (!at || here > *before || (found && here == *before && a->size <= found->size)) continue;
        *before = here;
        found = a;
    }
    return found;
}

/* Returns SIZE without the blanks at the end of TEXT. */
static size_t without_blanks(const char *text, size_t size) {
    size_t end = 0, length;
    for (size_t i = 0; i < size; i += length)
        if (!is_blank(character_at(text + i, &length))) end = i + length;
    return end < size ? end : size;
}

/* Appends the tokens of SIZE bytes of TEXT. NORMALIZED: finds only normalized added tokens; else first the others. The blanks
 * that an added token includes may themselves be the next added token. */
static void encode(const struct sgrad__tokenizer *tokenizer, const char *from, size_t size, bool normalized, int32_t *token,
                   int *count) {
    char *text = sgrad_format("%.*s", (int)size, from);
    const struct added *added;
    size_t done = 0, found = 0, before, length;
    do {
        added = find_added(tokenizer, text + found, normalized, &before);
        size_t start = found + before, end = start + (added ? added->size : 0);
        found = end;
        if (added && added->lstrip) start = without_blanks(text, start);
        for (; added && added->rstrip && is_blank(character_at(text + end, &length)); end += length) {}
        if (start > done && normalized) {
            char *plain = sgrad_format("%.*s", (int)(start - done), text + done);
            encode_plain(tokenizer, plain, token, count);
            free(plain);
        } else if (start > done) {
            encode(tokenizer, text + done, start - done, true, token, count);
        }
        if (added) token[(*count)++] = added->token;
        done = end;
    } while (added);
    free(text);
}

int32_t *sgrad__tokenizer_encode(const struct sgrad__tokenizer *tokenizer, const char *text, int *count) {
    int32_t *token = sgrad_xcalloc(strlen(text) + 1, sizeof *token);
    *count = 0;
    encode(tokenizer, text, strlen(text), false, token, count);
    return token;
}

const char *sgrad__tokenizer_word(const struct sgrad__tokenizer *tokenizer, int token, size_t *size) {
    const bool known = token >= 0 && token < tokenizer->words && tokenizer->word[token].byte;
    *size = known ? tokenizer->word[token].size : 0;
    return known ? tokenizer->word[token].byte : "";
}

int sgrad__tokenizer_words(const struct sgrad__tokenizer *tokenizer) { return tokenizer->own; }
