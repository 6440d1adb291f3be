/* result.c: converts the result of a run to JSON. */
#include "graphs/api/inference.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sgrad_result_tests(json_t *to, const struct sgrad_train_result *result) {
    for (int i = 0; i < result->metrics; i++) {
        char *key = sgrad_format("test_%s", result->metric[i].name);
        json_object_set_new(to, key, sgrad_json_real(result->test[i]));
        free(key);
    }
    json_object_set_new(to, "test_samples", json_integer((json_int_t)result->test_samples));
    if (!result->sources) return;
    json_t *sources = json_array();
    for (const struct sgrad_source_loss *s = result->source; s < result->source + result->sources; s++)
        json_array_append_new(sources, json_pack("{s:o, s:o, s:I}", "name", sgrad_json_text(s->name), "test_loss",
                                                 sgrad_json_real(s->loss), "test_samples", (json_int_t)s->samples));
    json_object_set_new(to, "sources", sources);
}

json_t *sgrad_class_score_json(const char *name, int64_t samples, const struct sgrad_class_score *score) {
    return json_pack("{s:o, s:I, s:o, s:f, s:f, s:f}", "name", sgrad_json_text(name), "samples", (json_int_t)samples, "accuracy",
                     samples ? sgrad_json_real(score->recall) : json_null(), "precision", score->precision, "recall",
                     score->recall, "f1", score->f1);
}

/* Returns the results by class of the evaluation after STEP from metrics.jsonl; NULL: the file does not contain them. The caller
 * must release them (json_decref). */
static json_t *find_classes(const char *folder, long step) {
    char *path = sgrad_format("%s/metrics.jsonl", folder), *line = NULL;
    FILE *file = fopen(path, "re");
    json_t *found = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        json_t *event = strstr(line, "\"event\":\"classes\"") ? json_loads(line, 0, NULL) : NULL;
        if (json_integer_value(json_object_get(event, "step")) == step) json_decref(found), found = json_incref(event);
        json_decref(event);
    }
    if (file) fclose(file);
    free(line);
    free(path);
    return found;
}

static double number_of(const json_t *event, const char *key, int class) {
    return json_number_value(json_array_get(json_object_get(event, key), (size_t)class));
}

/* Adds the scores of the classes, which rank 0 has written. */
static void add_classes(json_t *to, const struct sgrad_train_result *result) {
    json_t *event = result->folder ? find_classes(result->folder, result->best_step ? result->best_step : result->steps) : NULL;
    struct sgrad_run_input input = { 0 };
    if (event && !sgrad_run_input(result->folder, &input)) {
        json_t *list = json_array();
        for (int c = 0; c < input.classes; c++) {
            const struct sgrad_class_score score = { number_of(event, "precision", c), number_of(event, "recall", c),
                                                     number_of(event, "f1", c) };
            json_array_append_new(list, sgrad_class_score_json(input.class_name[c], (int64_t)number_of(event, "samples", c),
                                                               &score));
        }
        json_object_set_new(to, "classes", list);
    }
    sgrad_run_input_free(&input);
    json_decref(event);
}

json_t *sgrad_result_json(const struct sgrad_train_result *result) {
    json_t *json = json_pack("{s:s?, s:I, s:o, s:o}", "folder", result->folder, "steps", (json_int_t)result->steps, "epochs",
                             sgrad_json_real(result->epochs), "train_loss", sgrad_json_real(result->train_loss));
    sgrad_result_tests(json, result);
    add_classes(json, result);
    if (result->best_step) json_object_set_new(json, "best_step", json_integer(result->best_step));
    json_object_set_new(json, "seconds", sgrad_json_real(result->seconds));
    json_object_set_new(json, "samples_per_second", sgrad_json_real(result->samples_per_second));
    return json;
}
