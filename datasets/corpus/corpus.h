/* corpus.h: text files and JSON lines become files of tokens. Blocks of the input are tokenized by threads and written in order:
 *
 *     input       block 5 | block 6 | block 7 …           the calling thread reads whole lines, or parts of a text file
 *     threads             2 3 4                           tokenize
 *     output      0 1                                     the calling thread writes
 *
 * Only a few blocks per thread are in memory. */
#ifndef SGRAD_DATASETS_CORPUS_CORPUS_H
#define SGRAD_DATASETS_CORPUS_CORPUS_H

#include "datasets/corpus/template.h"
#include "datasets/tokenizers/tokenizer.h"
#include "datasets/tokenizers/unicode.h"

#include <sys/types.h>

enum { SGRAD__PART_TRAIN, SGRAD__PART_VAL, SGRAD__PARTS };

/* The token file of one input file. */
struct sgrad__corpus_output {
    char *path;
    const void *stamp; /* is put into the header, at byte SGRAD__STAMP_AT; of at most SGRAD__STAMP_BYTES bytes */
    size_t stamp_bytes;
};
enum { SGRAD__STAMP_AT = 512, SGRAD__STAMP_BYTES = 512 };

struct sgrad__corpus_options {
    const char *what; /* name of the command or the reader, for messages */
    const struct sgrad_tokenizer *tokenizer;
    char **files;      /* NULL-terminated; "-": standard input */
    const char *field; /* of the objects of JSON lines */
    const struct sgrad__template *template;     /* JSON lines are conversations; NULL: texts */
    bool lines;        /* standard input, and each file with an own output, has JSON lines, not text */
    double fraction;   /* of the documents for validation; of a text file that is the only one, its end */
    int64_t documents; /* number of the first documents for validation, instead of a fraction; 0: none */
    int threads;
    const int32_t *begin; /* tokens before each document */
    int begins;
    int32_t end;        /* token after each document; -1: none */
    const char *folder; /* gets train.bin and val.bin */
    const struct sgrad__corpus_output *outputs; /* (files), instead of folder: each file has its own; NULL: a folder */
    bool progress;
};
struct sgrad__corpus_result {
    struct sgrad__corpus_part {
        int64_t documents, tokens, bytes;
    } part[SGRAD__PARTS];
    int64_t dropped; /* characters that have no token */
    int bits;        /* of a token */
    double seconds;
};

/* Writes train.bin and val.bin, or the outputs, in llm.c's formats, each when it is complete. With a template, also train.answers
 * and val.answers, with a byte for each token: 1 if it belongs to an answer or to the text of the template after it, or ends the
 * document; else 0. SIGINT, SIGTERM and SIGHUP end the process, after its temporary files are removed. SGRAD_EFORMAT: a file is
 * malformed, or a part or an output has no tokens. SGRAD_EIO. */
int sgrad__corpus_write(const struct sgrad__corpus_options *options, struct sgrad__corpus_result *result);

/* ---- input.c ---- */

/* A part of the input. JSON lines: whole lines, each a document. Text: a part of a document. */
struct sgrad__block {
    char *text; /* the owner must free it */
    size_t size;
    const char *file; /* its name */
    int number;       /* of the file, from 0 */
    int64_t line;     /* number of its first line, from 1 */
    int64_t document; /* number of its first document, from 0 */
    bool lines;       /* JSON lines */
    bool first, last; /* text: it begins, ends a document */
};
struct sgrad__input;

/* WHAT: name of the command or the reader, for messages. STDIN_LINES: standard input has JSON lines. ALL_LINES: all files have,
 * also without such an ending. CUTS: text may be divided after a line break between two letters. FRACTION: if the only input is a
 * text file, this part of it, at its end, is a second document. */
int sgrad__input_open(const char *what, char **files, bool stdin_lines, bool all_lines, bool cuts, double fraction,
                      struct sgrad__input **input);
void sgrad__input_close(struct sgrad__input *input);         /* NULL is allowed */
bool sgrad__input_has_two(const struct sgrad__input *input); /* a text file was divided into two documents */
/* Sets *BLOCK to the next block. *MORE becomes false at the end of the input. SGRAD_EIO, SGRAD_EFORMAT. */
int sgrad__input_next(struct sgrad__input *input, struct sgrad__block *block, bool *more);
double sgrad__input_done(const struct sgrad__input *input); /* fraction of the input that was read; 0: unknown */

/* ---- documents.c ---- */

/* How documents are tokenized. */
struct sgrad__documents {
    const struct sgrad__corpus_options *options;
    int width;     /* bytes of a token */
    bool one_text; /* the only input is a text file, with two documents */
};
/* The tokens of a block, little-endian, and with a template a byte for each, 1 if it belongs to an answer. */
struct sgrad__tokenized {
    struct sgrad__buffer tokens, answers;
    struct sgrad__corpus_part sum;
};
#define SGRAD__END_TOKENS "<|endoftext|>, <|end_of_text|>, </s> and <|im_end|>"
int sgrad__documents_width(const struct sgrad_tokenizer *tokenizer); /* bytes of a token */
/* Returns the first of the added tokens SGRAD__END_TOKENS that the tokenizer has; -1: none. */
int32_t sgrad__documents_end(const struct sgrad_tokenizer *tokenizer);
/* Appends the tokens of BLOCK to those of each part. Returns an error, "FILE: line N: reason", which the caller must free; NULL:
 * none. */
char *sgrad__documents_tokenize(const struct sgrad__documents *documents, struct sgrad_encoder *encoder,
                                const struct sgrad__block *block, struct sgrad__tokenized part[SGRAD__PARTS]);

#endif
