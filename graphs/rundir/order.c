/* order.c: the options that determine the order of the samples. They must not change within an epoch of a run, or the rest of the
 * epoch would repeat some samples and leave out others. */
#include "datasets/datasets.h"
#include "graphs/rundir/rundir.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Returns the option with the name KEY in config.json and VALUE, as it is given on the command line. The caller must free it. */
static char *option_text(const char *key, const json_t *value) {
    if (!strcmp(key, "no_shuffle")) return sgrad_format("%s", json_is_true(value) ? "--no-shuffle" : "--shuffle");
    if (!strcmp(key, "sampler"))
        return sgrad_format("--sampler %s", json_is_string(value) ? json_string_value(value) : "shuffle");
    return sgrad_format("--shuffle-window %lld", (long long)json_integer_value(value));
}

int sgrad__config_same_order(const char *folder, const struct sgrad__config *config, long step, long steps_per_epoch) {
    static const char *const keys[] = { "no_shuffle", "sampler", "shuffle_window" };
    const size_t used = config->dataset->shards && !config->options->data.no_shuffle ? 3 : 2; /* the window is for shards */
    char *path;
    json_t *object;
    if (step % steps_per_epoch == 0) return 0;
    int error = sgrad__config_read(folder, &path, &object);
    json_t *before = object ? sgrad__config_options(object) : NULL, *now = sgrad__options_json(config->options);
    for (size_t k = 0; k < used && before && !error; k++) {
        const json_t *value = json_object_get(before, keys[k]);
        char *was = option_text(keys[k], value), *is = option_text(keys[k], json_object_get(now, keys[k]));
        if (value && strcmp(was, is))
            error = sgrad_log_error(SGRAD_EINVAL,
                                    "%s: the run has %s, so it cannot be continued with %s within epoch %ld: the order of the "
                                    "samples would change; leave that option out, or give it at the end of an epoch, after step "
                                    "%ld",
                                    folder, was, is, step / steps_per_epoch + 1, (step / steps_per_epoch + 1) * steps_per_epoch);
        free(was);
        free(is);
    }
    json_decref(before);
    json_decref(now);
    json_decref(object);
    free(path);
    return error;
}
