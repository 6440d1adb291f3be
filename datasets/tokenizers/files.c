/* files.c: the files of a tokenizer in a folder:
 *
 *     tokenizer.json                 of Hugging Face
 *     vocab.json, merges.txt         a pair, as that of GPT-2 */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WHOLE  "tokenizer.json"
#define PAIR   "vocab.json"
#define MERGES "merges.txt"

bool sgrad_tokenizer_is_pair(const struct sgrad_tokenizer *tokenizer) { return tokenizer->pair; }

const char *sgrad_tokenizer_name(const struct sgrad_tokenizer *tokenizer) { return tokenizer->pair ? PAIR : WHOLE; }

char *sgrad_tokenizer_merges(const char *file) {
    const char *slash = strrchr(file, '/');
    return sgrad_format("%.*s" MERGES, slash ? (int)(slash + 1 - file) : 0, file);
}

char *sgrad_tokenizer_in(const char *folder) {
    static const char *const name[] = { WHOLE, PAIR };
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char *path = sgrad_format("%s/%s", folder, name[i]);
        if (!access(path, F_OK)) return path;
        free(path);
    }
    return NULL;
}

/* Copies the file FROM to FOLDER/NAME. */
static int copy(const char *from, const char *folder, const char *name) {
    char *path = sgrad_format("%s/%s", folder, name);
    const int error = sgrad_file_copy(from, path, (size_t)1 << 28);
    free(path);
    return error;
}

int sgrad_tokenizer_copy(const struct sgrad_tokenizer *tokenizer, const char *folder) {
    char *merges = tokenizer->pair ? sgrad_tokenizer_merges(tokenizer->file) : NULL;
    int error = merges ? copy(merges, folder, MERGES) : 0;
    if (!error) error = copy(tokenizer->file, folder, sgrad_tokenizer_name(tokenizer));
    free(merges);
    return error;
}
