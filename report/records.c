/* records.c: reads files of records: lines "Key: value", with an empty line after each record. */
#include "report/records.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sgrad__records_open(const char *folder, const char *name, const char *const *key, struct sgrad__records *records) {
    *records = (struct sgrad__records){ .key = key, .path = sgrad_format("%s/trace/%s", folder, name) };
    records->file = fopen(records->path, "re");
    if (records->file) return 0;
    int error = sgrad_log_error(SGRAD_EIO, "%s: %s", records->path, strerror(errno));
    free(records->path);
    return error;
}

static void forget(struct sgrad__records *records) {
    for (int i = 0; i < SGRAD__KEYS; i++) free(records->value[i]), records->value[i] = NULL;
}

static bool refuse(const struct sgrad__records *records, const char *why, int *error) {
    *error = sgrad_log_error(SGRAD_EFORMAT, "%s: line %ld: %s; trace the run again", records->path, records->number, why);
    return false;
}

bool sgrad__records_next(struct sgrad__records *records, int *error) {
    bool some = false;
    forget(records);
    for (ssize_t length; (length = getline(&records->line, &records->room, records->file)) > 0;) {
        records->number++;
        while (length && strchr("\r\n", records->line[length - 1])) records->line[--length] = 0;
        if (!length && some) return true;
        if (!length) continue;
        char *colon = strstr(records->line, ": ");
        if (!colon && records->line[length - 1] == ':') colon = &records->line[length - 1];
        if (!colon) return refuse(records, "is not \"Key: value\"", error);
        some = true;
        *colon = 0;
        for (int i = 0; i < SGRAD__KEYS && records->key[i]; i++)
            if (strcmp(records->key[i], records->line) == 0 && !records->value[i])
                records->value[i] = sgrad_format("%s", colon[1] ? colon + 2 : "");
    }
    return some ? refuse(records, "the file ends within a record", error) : false;
}

void sgrad__records_close(struct sgrad__records *records) {
    forget(records);
    fclose(records->file);
    free(records->line);
    free(records->path);
}

int64_t sgrad__records_job(const char *text, char **end) {
    int64_t rank = 0, number = strtoll(text, end, 10);
    if (*end == text) return 0;
    if (**end == '_') {
        rank = number;
        number = strtoll(*end + 1, end, 10);
    }
    return (rank + 1) << 40 | number;
}
