/* result.c: converts the result of a run to JSON. */
#include "graphs/api/train.h"

#include <jansson.h>
#include <stdlib.h>

void sgrad_result_tests(json_t *to, const struct sgrad_train_result *result) {
    for (int i = 0; i < result->metrics; i++) {
        char *key = sgrad_format("test_%s", result->metric[i].name);
        json_object_set_new(to, key, sgrad_json_real(result->test[i]));
        free(key);
    }
}

json_t *sgrad_result_json(const struct sgrad_train_result *result) {
    json_t *json = json_pack("{s:s?, s:I, s:o, s:o}", "folder", result->folder, "steps", (json_int_t)result->steps, "epochs",
                             sgrad_json_real(result->epochs), "train_loss", sgrad_json_real(result->train_loss));
    sgrad_result_tests(json, result);
    if (result->best_step) json_object_set_new(json, "best_step", json_integer(result->best_step));
    json_object_set_new(json, "seconds", sgrad_json_real(result->seconds));
    json_object_set_new(json, "samples_per_second", sgrad_json_real(result->samples_per_second));
    return json;
}
