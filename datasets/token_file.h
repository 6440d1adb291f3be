/* token_file.h: files of tokens. Private to datasets/. */
#ifndef SGRAD_DATASETS_TOKEN_FILE_H
#define SGRAD_DATASETS_TOKEN_FILE_H

#include "datasets/numbers.h"

/* A .bin or .npy file. */
struct sgrad__token_file {
    struct sgrad__numbers numbers;
    bool stated; /* the width is stated by the file, or by its index */
};
/* Reads the beginning of the file PATH, whose name ends with .bin or .npy, and, of a .bin file, its index, if there is one.
 * ASKED: 16 or 32 bits, as 2 or 4 bytes, of a file that does not state the width; 0: 16, and files that probably do not contain
 * tokens are refused. The caller must free numbers.path. SGRAD_EIO, SGRAD_EFORMAT. */
int sgrad__token_file_open(const char *path, int asked, struct sgrad__token_file *file);
/* Warns of tokens that seem to be wider integers. Returns true if it warned. ASKED: the user specified the width. */
bool sgrad__token_file_warn(const struct sgrad__token_file *file, bool asked);

#endif
