/* keys.c: checks of the keys and values of a tokenizer.json. Every one that has an effect in the library `tokenizers`, but not
 * here, is refused. */
#include "config.h"
#include "datasets/tokenizers/internal.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

int sgrad__malformed(const struct sgrad_tokenizer *t, const char *what) {
    return sgrad_log_error(SGRAD_EFORMAT, "tokenizer: %s: %s", t->file, what);
}

int sgrad__refuse(const struct sgrad_tokenizer *t, const char *where, const json_t *value) {
    enum { MOST = 200 };
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const bool longer = text && strlen(text) > MOST;
    const int error =
        sgrad_log_error(SGRAD_EFORMAT, "tokenizer: %s: %s: %.*s%s is not supported; Stargrad would %s", t->file, where, MOST,
                        text ? text : "null", longer ? "…" : "",
                        strncmp(where, "decoder", strlen("decoder")) ? "produce other tokens" : "decode tokens to other text");
    free(text);
    return error;
}

int sgrad__check_keys(const struct sgrad_tokenizer *t, const char *where, const json_t *object, const char *keys) {
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return sgrad__refuse(t, where, object);
    json_object_foreach((json_t *)object, key, value) {
        const size_t size = strlen(key);
        bool known = false;
        for (const char *at = keys; !known && *at; at += strcspn(at, " "), at += *at == ' ')
            known = strcspn(at, " ") == size && !strncmp(at, key, size);
        if (known) continue;
        char *path = sgrad_format("%s%s%.100s", where, *where ? "." : "", key);
        const int error = sgrad__refuse(t, path, value);
        free(path);
        return error;
    }
    return 0;
}

int sgrad__read_flag(const struct sgrad_tokenizer *t, const char *where, const json_t *object, const char *key, bool *value) {
    const json_t *flag = json_object_get(object, key);
    if (json_is_boolean(flag)) *value = json_is_true(flag);
    if (!flag || json_is_boolean(flag) || json_is_null(flag)) return 0;
    char *path = sgrad_format("%s.%s", where, key);
    const int error = sgrad__refuse(t, path, flag);
    free(path);
    return error;
}
