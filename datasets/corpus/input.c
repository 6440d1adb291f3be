/* input.c: divides text files and JSON lines into blocks. */
#include "config.h"

#include "datasets/corpus/corpus.h"
#include "datasets/stream.h"
#include "runtime/files/contents.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a block, unless a document is longer; the longest document that cannot be divided. */
#define BLOCK        ((size_t)1 << 20)
#define LONGEST      ((size_t)1 << 28)
#define LONGEST_TEXT "256 MiB"

struct sgrad__input {
    const char *what; /* name of the command or the reader, for messages */
    char **files;     /* the open file and those that follow */
    int number;       /* of the open file, from 0 */
    bool stdin_lines, all_lines, cuts;
    int descriptor;               /* -1: none is open */
    struct sgrad__stream *stream; /* of JSON lines, which may be compressed; NULL: the descriptor is read */
    int64_t passed;               /* bytes of the files before */
    bool lines, end;              /* the open file has JSON lines; was read to its end */
    bool begun;                   /* a text of it has begun */
    char *text;                   /* read, but not yet in a block */
    size_t size, capacity;
    int64_t line, document, read, all; /* all: bytes of all files; 0: unknown */
    int64_t split;                     /* bytes of the open file before its second document; 0: it has one */
};

/* JSON lines often have the ending .json; any other content of such a file is refused at line 1. They may be compressed. */
static bool has_lines(const char *file) {
    static const char *const ending[] = { ".jsonl", ".ndjson", ".json" }, *const packed[] = { "", ".gz", ".zst" };
    bool has = false;
    for (int i = 0; i < 9 && !has; i++) {
        char *text = sgrad_format("%s%s", ending[i / 3], packed[i % 3]);
        has = sgrad_ends_with(file, text);
        free(text);
    }
    return has;
}

static const char *name_of(const char *file) { return strcmp(file, "-") ? file : "standard input"; }

static int fail(const struct sgrad__input *in, const char *file, const char *why) {
    return sgrad_log_error(SGRAD_EIO, "%s: %s: %s", in->what, name_of(file), why);
}

/* Refuses other kinds of files by their first bytes. Text that is not UTF-8 is refused by the threads. */
static int check_kind(const struct sgrad__input *in, const char *file, const char *text, size_t size, const char *wanted) {
    const struct sgrad_contents *is = size ? sgrad_contents(text, size < 512 ? size : 512) : NULL;
    if (!is || sgrad_contents_is_json(text, size)) return 0;
    return sgrad_log_error(SGRAD_EFORMAT, "%s: %s: is %s, not %s%s%s", in->what, name_of(file), is->name, wanted,
                           is->way_out ? "; " : "", is->way_out ? is->way_out : "");
}

/* Sets input->split to the beginning of the first line in the last FRACTION of a text file. */
static int find_split(struct sgrad__input *input, double fraction) {
    char buffer[4096];
    const int file = open(input->files[0], O_RDONLY | O_CLOEXEC);
    int64_t at = (int64_t)((1 - fraction) * (double)input->all + 0.5) - 1; /* a line may begin after this byte */
    ssize_t got = file < 0 ? -1 : pread(file, buffer, sizeof buffer, 0);
    const int error = got > 0 ? check_kind(input, input->files[0], buffer, (size_t)got, "text") : 0;
    if (at < 0) at = 0;
    while (got > 0 && !input->split && (got = pread(file, buffer, sizeof buffer, at)) > 0) {
        const char *line = memchr(buffer, '\n', (size_t)got);
        if (line) input->split = at + (line - buffer) + 1;
        at += got;
    }
    if (file >= 0) close(file);
    if (error) return error;
    if (got < 0) return fail(input, input->files[0], strerror(errno));
    if (!input->split || input->split >= input->all)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: %s: no line begins in the last %g of the file, so there is no text for val.bin; set "
                               "another --val, or give several files",
                               input->what, input->files[0], fraction);
    return 0;
}

int sgrad__input_open(const char *what, char **files, bool stdin_lines, bool all_lines, bool cuts, double fraction,
                      struct sgrad__input **input) {
    struct sgrad__input *in = sgrad_xcalloc(1, sizeof *in);
    bool known = true;
    int error = 0;
    *in = (struct sgrad__input){
        .what = what, .files = files, .stdin_lines = stdin_lines, .all_lines = all_lines, .cuts = cuts, .descriptor = -1
    };
    for (char **file = files; *file && !error; file++) {
        struct stat status = { 0 };
        if (!strcmp(*file, "-"))
            known = false;
        else if (stat(*file, &status))
            error = fail(in, *file, strerror(errno));
        else if (S_ISDIR(status.st_mode))
            error = fail(in, *file, "is a folder; give its files");
        known &= S_ISREG(status.st_mode);
        in->all += status.st_size;
    }
    if (!known) in->all = 0;
    if (!error && fraction > 0 && !files[1] && in->all && !has_lines(files[0])) error = find_split(in, fraction);
    if (error)
        sgrad__input_close(in);
    else
        *input = in;
    return error;
}

static void close_file(struct sgrad__input *in) {
    sgrad__stream_close(in->stream);
    if (in->descriptor > STDIN_FILENO) close(in->descriptor);
    in->stream = NULL;
    in->descriptor = -1;
}

void sgrad__input_close(struct sgrad__input *in) {
    if (!in) return;
    close_file(in);
    free(in->text);
    free(in);
}

bool sgrad__input_has_two(const struct sgrad__input *in) { return in->split > 0; }

static int open_file(struct sgrad__input *in) {
    const char *file = *in->files;
    const bool standard = !strcmp(file, "-");
    in->descriptor = standard ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC);
    if (in->descriptor < 0) return fail(in, file, strerror(errno));
    in->lines = standard ? in->stdin_lines : in->all_lines || has_lines(file);
    in->end = in->begun = false;
    in->line = 1;
    in->read = 0;
    return in->lines ? sgrad__stream_open(name_of(file), in->descriptor, NULL, 0, &in->stream) : 0;
}

/* Reads at most MOST bytes, at least one, unless the file has ended. -1: an error; *WHY: its reason. */
static ssize_t read_some(const struct sgrad__input *in, void *to, size_t most, const char **why) {
    ssize_t got;
    if (in->stream) {
        got = sgrad__stream_read(in->stream, to, most);
        if (got < 0) *why = sgrad__stream_damage(in->stream);
        return got;
    }
    do got = read(in->descriptor, to, most);
    while (got < 0 && errno == EINTR);
    if (got < 0) *why = strerror(errno);
    return got;
}

/* Reads until SIZE bytes are present, or until the end of the file or of its first document. */
static int fill(struct sgrad__input *in, size_t size) {
    const bool first = in->split && in->document == 0;
    if (in->capacity < size) {
        in->text = realloc(in->text, in->capacity = size);
        if (!in->text) return sgrad_log_error(SGRAD_ENOMEM, "%s: no memory for %zu bytes of %s", in->what, size, *in->files);
    }
    while (in->size < size && !in->end) {
        size_t most = size - in->size;
        if (first && (int64_t)most > in->split - in->read) most = (size_t)(in->split - in->read);
        const char *why = NULL;
        const ssize_t got = most ? read_some(in, in->text + in->size, most, &why) : 0;
        if (got < 0) return fail(in, *in->files, why);
        in->end = got == 0;
        in->size += (size_t)got;
        in->read += got;
    }
    return 0;
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Returns the number of bytes before the last place at which the text may be divided; 0: it cannot be divided. */
static size_t find_cut(const struct sgrad__input *in) {
    if (in->end) return in->size;
    const char *text = in->text;
    if (!in->lines && !in->cuts) return 0;
    for (size_t i = in->size; i-- > 0;) {
        const char *line = memrchr(text, '\n', i + 1);
        if (!line) return 0;
        i = (size_t)(line - text);
        if (in->lines || (i > 0 && i + 1 < in->size && is_letter(text[i - 1]) && is_letter(text[i + 1]))) return i + 1;
    }
    return 0;
}

/* Counts the lines of BLOCK, and its documents, which are lines that are not blank. */
static void count(struct sgrad__input *in, const struct sgrad__block *block) {
    const char *at = block->text, *end = at + block->size;
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        while (block->lines && at < end && (*at == ' ' || *at == '\t' || *at == '\r')) at++;
        in->document += block->lines && at < end && *at != '\n';
        in->line += line != NULL;
        at = line ? line + 1 : end;
    }
    in->document += !block->lines && block->last;
}

/* Moves the first SIZE bytes of the text to BLOCK. */
static void take(struct sgrad__input *in, size_t size, struct sgrad__block *block) {
    const size_t rest = in->size - size;
    char *next = sgrad_xcalloc(in->capacity = rest > BLOCK ? rest : BLOCK, 1);
    if (rest) memcpy(next, in->text + size, rest);
    *block = (struct sgrad__block){ .text = in->text,
                                    .size = size,
                                    .file = name_of(*in->files),
                                    .number = in->number,
                                    .line = in->line,
                                    .document = in->document,
                                    .lines = in->lines,
                                    .first = !in->begun,
                                    .last = in->end };
    in->text = next;
    in->size = rest;
    in->begun = true;
    count(in, block);
}

int sgrad__input_next(struct sgrad__input *in, struct sgrad__block *block, bool *more) {
    for (; *in->files; in->files++, in->number++) {
        const bool opens = in->descriptor < 0;
        if (opens) SGRAD_TRY(open_file(in));
        size_t cut = 0;
        for (size_t size = BLOCK; !cut && !(in->end && !in->size); size *= 2) {
            if (size > LONGEST)
                return sgrad_log_error(SGRAD_EFORMAT,
                                       "%s: %s: line %lld: a document has more than " LONGEST_TEXT "; divide it into several",
                                       in->what, name_of(*in->files), (long long)in->line);
            SGRAD_TRY(fill(in, size));
            if (opens && size == BLOCK)
                SGRAD_TRY(check_kind(in, *in->files, in->text, in->size, in->lines ? "JSON lines" : "text"));
            cut = find_cut(in);
        }
        if (cut) {
            take(in, cut, block);
            if (in->split && block->last && in->document == 1) in->end = in->begun = false; /* the second document */
            return *more = true, 0;
        }
        struct stat is;
        if (!fstat(in->descriptor, &is)) in->passed += is.st_size;
        close_file(in);
    }
    return *more = false, 0;
}

double sgrad__input_done(const struct sgrad__input *in) {
    const int64_t at = in->stream ? sgrad__stream_at(in->stream) : in->read;
    return in->all ? (double)(in->passed + at) / (double)in->all : 0;
}
