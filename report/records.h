/* records.h: files of GNU recutils' records, which StarPU's trace tool writes: lines "Key: value", an empty line after each. */
#ifndef SGRAD_REPORT_RECORDS_H
#define SGRAD_REPORT_RECORDS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SGRAD__KEYS = 16 };

struct sgrad__records {
    const char *const *key;             /* what is asked for; ends with NULL */
    char *value[SGRAD__KEYS];           /* in the record last read; NULL: it has none. A reader that keeps one sets NULL here */
    FILE *file;
    char *path, *line;
    size_t room;
    long number;                        /* of the line last read */
};

/* Opens FOLDER/trace/NAME; KEY stays the caller's. */
int sgrad__records_open(const char *folder, const char *name, const char *const *key, struct sgrad__records *records);
/* The next record; false: there is none, or *ERROR: the file is none of records, or not whole. */
bool sgrad__records_next(struct sgrad__records *records, int *error);
void sgrad__records_close(struct sgrad__records *records);

/* A job, "RANK_NUMBER", or of one rank alone "NUMBER", as one number; 0: it is neither. *END is what comes after it. */
int64_t sgrad__records_job(const char *text, char **end);

#endif
