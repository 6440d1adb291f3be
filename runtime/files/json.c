/* json.c: reads and writes JSON files as a whole. */
#include "config.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *sgrad_json_real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

json_t *sgrad_json_text(const char *text) {
    static const char unknown[] = "\xef\xbf\xbd";      /* U+FFFD */
    json_t *string = text ? json_string(text) : json_null();
    if (string) return string;
    char *valid = sgrad_xcalloc(strlen(text) + 1, sizeof unknown), *to = valid;
    for (const char *c = text; *c; c++)
        if (*c & 0x80) to = stpcpy(to, unknown);
        else *to++ = *c;
    string = json_string(valid);
    free(valid);
    return string;
}

int sgrad_json_read(const char *path, size_t limit, struct json_t **json) {
    struct sgrad_map map;
    json_error_t problem;
    *json = NULL;
    SGRAD_TRY(sgrad_map_open(path, limit, &map));
    *json = json_loadb((const char *)map.data, map.size, JSON_REJECT_DUPLICATES, &problem);
    sgrad_map_close(&map);
    return *json ? 0 : sgrad_log_error(SGRAD_EFORMAT, "%s: line %d: %s", path, problem.line, problem.text);
}

int sgrad_json_write(const char *path, struct json_t *json, int digits) {
    struct sgrad_file file;
    int error = sgrad_file_begin(path, &file);
    if (!error) {
        json_dumpf(json, file.stream, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(digits));
        fputc('\n', file.stream);
        error = sgrad_file_commit(&file);
    }
    json_decref(json);
    return error;
}
