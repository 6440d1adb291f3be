/* records.h: reads files in the format of GNU recutils, which StarPU's trace tool writes: a record consists of lines "Key: value"
 * and ends with an empty line. */
#ifndef SGRAD_REPORT_RECORDS_H
#define SGRAD_REPORT_RECORDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SGRAD__KEYS = 16 };              /* maximum number of keys */

struct sgrad__records {
    const char *const *key;             /* the keys to read; NULL-terminated */
    char *value[SGRAD__KEYS];           /* per key, in the last record; NULL: absent; a caller may set NULL to take ownership */
    FILE *file;
    char *path, *line;
    size_t room;                        /* capacity of line */
    long number;                        /* number of the last line */
};

/* Opens FOLDER/trace/NAME. KEY must stay valid until the file is closed. SGRAD_EIO. */
int sgrad__records_open(const char *folder, const char *name, const char *const *key, struct sgrad__records *records);
/* Reads the next record. Returns false at the end of the file, or, after setting *ERROR to SGRAD_EFORMAT, if the file is
 * malformed or ends within a record. */
bool sgrad__records_next(struct sgrad__records *records, int *error);
void sgrad__records_close(struct sgrad__records *records);

/* Converts StarPU's identifier of a job, "RANK_NUMBER", or "NUMBER" in a run with one rank, to one integer; 0: invalid. *END is
 * set to the text after it. */
int64_t sgrad__records_job(const char *text, char **end);

#endif
