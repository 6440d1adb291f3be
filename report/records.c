/* records.c: reads files of records: lines "Key: value", with an empty line after each record. */
#include "report/records.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int sgrad__records_open(const char *folder, const char *name, const char *const *key, struct sgrad__records *r) {
    *r = (struct sgrad__records){ .key = key, .path = sgrad_format("%s/trace/%s", folder, name) };
    r->file = fopen(r->path, "re");
    if (r->file) return 0;
    int error = sgrad_log_error(SGRAD_EIO, "%s: %s", r->path, strerror(errno));
    free(r->path);
    return error;
}

static void forget(struct sgrad__records *r) {
    for (int i = 0; i < SGRAD__KEYS; i++) free(r->value[i]), r->value[i] = NULL;
}

static bool refuse(const struct sgrad__records *r, const char *why, int *error) {
    *error = sgrad_log_error(SGRAD_EFORMAT, "%s: line %ld: %s; trace the run again", r->path, r->number, why);
    return false;
}

bool sgrad__records_next(struct sgrad__records *r, int *error) {
    bool some = false;
    forget(r);
    for (ssize_t length; (length = getline(&r->line, &r->room, r->file)) > 0;) {
        r->number++;
        while (length && strchr("\r\n", r->line[length - 1])) r->line[--length] = 0;
        if (!length && some) return true;
        if (!length) continue;
        char *colon = strstr(r->line, ": ");
        if (!colon && r->line[length - 1] == ':') colon = &r->line[length - 1];
        if (!colon) return refuse(r, "not \"Key: value\"", error);
        some = true;
        *colon = 0;
        for (int i = 0; i < SGRAD__KEYS && r->key[i]; i++)
            if (strcmp(r->key[i], r->line) == 0 && !r->value[i]) r->value[i] = sgrad_format("%s", colon[1] ? colon + 2 : "");
    }
    return some ? refuse(r, "the file ends within a record", error) : false;
}

void sgrad__records_close(struct sgrad__records *r) {
    forget(r);
    fclose(r->file);
    free(r->line);
    free(r->path);
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
