/* best.c: saves the weights of the best evaluation; early stopping.
 *
 *     evaluation     top-1 .71   .78   .77   .76       --patience 2: the run ends after the last of these evaluations
 *     best           .71   .78                         best.safetensors: the weights of the second one, the result of the run
 *
 * The evaluated weights are written, not those after the steps that have followed. With --patience, if an evaluation may end the
 * run, no step is started before it has ended (train.c). */
#include "graphs/train/setup.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the index of the metric that decides: metric 1, a fraction of which more is better, or the loss if it is the only
 * metric. */
static int deciding(const struct sgrad__run *r) { return r->result.metrics > 1 ? 1 : 0; }

static bool is_better(const struct sgrad_metric *metric, double value, double than) {
    return !isnan(value) && (isnan(than) || (metric->is_fraction ? value > than : value < than));
}

static char *path_of(const struct sgrad__run *r) { return sgrad_format("%s/best.safetensors", r->folder); }

/* The metadata contain the step, and the metrics with all digits. */
static int write_best(const struct sgrad__run *r) {
    enum { MOST = 1 + SGRAD_MAX_METRICS };
    char *path = path_of(r), *number[MOST];
    const char *metadata[2 * MOST];
    const int count = 1 + r->result.metrics;
    number[0] = sgrad_format("%ld", r->kept_step);
    for (int i = 1; i < count; i++) number[i] = sgrad_format("%.17g", r->kept[i - 1]);
    for (int i = 0; i < count; i++) metadata[2 * i] = i ? r->metric[i - 1].name : "step", metadata[2 * i + 1] = number[i];
    int error = sgrad__weights_save_values(sgrad__parameters_list(r->graph), sgrad__evaluation_weights(r), path, metadata, count);
    for (int i = 0; i < count; i++) free(number[i]);
    free(path);
    return error;
}

/* Compares the result of an evaluation with the best one so far, and counts evaluations without improvement. Values are
 * compared with float precision, as in metrics.jsonl, so that a resumed run gets the same results. */
static void count(struct sgrad__run *r, double value) {
    const bool better = is_better(&r->metric[deciding(r)], (float)value, (float)r->best);
    r->best = better ? value : r->best;
    r->worse = better ? 0 : r->worse + 1;
    r->enough = r->options.patience && r->worse >= r->options.patience;
}

bool sgrad__best_may_end(const struct sgrad__run *r) { return r->options.patience && r->worse + 1 >= r->options.patience; }

int sgrad__best_tell(struct sgrad__run *r) {
    const double value = r->epoch.test[deciding(r)], kept = r->kept_step ? r->kept[deciding(r)] : NAN;
    count(r, value);
    if (!r->keeps || !is_better(&r->metric[deciding(r)], (float)value, (float)kept)) return 0;
    memcpy(r->kept, r->epoch.test, sizeof r->kept);
    r->kept_step = r->epoch.step;
    return r->context->rank ? 0 : write_best(r);
}

/* Repeats this for the evaluations before a resume, which are read from metrics.jsonl; lines after the resumed step have been
 * removed. */
static void count_again(struct sgrad__run *r) {
    char *path = sgrad_format("%s/metrics.jsonl", r->folder), *key = sgrad_format("test_%s", r->metric[deciding(r)].name);
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        json_t *event = strstr(line, "\"epoch\"") ? json_loads(line, 0, NULL) : NULL, *value = json_object_get(event, key);
        if (value) count(r, json_is_number(value) ? json_number_value(value) : NAN);
        json_decref(event);
    }
    if (file) fclose(file);
    free(line);
    free(key);
    free(path);
}

/* Finds the saved weights of a resumed run. They are not used if they belong to a step after DONE. */
static void find_kept(struct sgrad__run *r, long done) {
    struct sgrad_safetensors file;
    char *path = path_of(r);
    if (access(path, F_OK) == 0 && !sgrad_safetensors_open(path, &file)) {
        const char *text = sgrad_safetensors_metadata(&file, "step");
        const long step = text ? strtol(text, NULL, 10) : 0;
        if (step > done && !isnan(r->best))
            sgrad_log_warning("%s: is of step %ld, after the checkpoint of step %ld: the run repeats it", path, step, done);
        if (step > 0 && step <= done && sgrad_safetensors_metadata(&file, r->metric[deciding(r)].name)) r->kept_step = step;
        for (int i = 0; i < r->result.metrics; i++) {
            const char *value = sgrad_safetensors_metadata(&file, r->metric[i].name);
            r->kept[i] = value ? strtod(value, NULL) : NAN;
        }
        sgrad_safetensors_close(&file);
    }
    free(path);
}

/* Returns the name of the first parameter that is sharded; NULL: there is none. */
static const char *find_split(const struct sgrad__run *r) {
    for (int i = 0; i < r->graph->parameter_count; i++)
        if (r->graph->parameter[i].cuts) return r->graph->parameter[i].name;
    return NULL;
}

int sgrad__best_open(struct sgrad__run *r, long done) {
    const char *split = find_split(r);
    if (r->options.best && split)
        return sgrad_log_error(SGRAD_EINVAL, "--best: %s is split over ranks, none of which has the whole", split);
    const bool whole = !split && r->graph->stages == 1;
    r->keeps = whole && (r->options.best || r->options.patience);
    if (!whole && r->options.patience && r->context->rank == 0)
        sgrad_log_warning("--patience: no rank has the whole network: the run ends with its last weights, not with its best");
    r->best = NAN;
    if (r->options.resume && r->context->rank == 0) {
        count_again(r);
        if (r->keeps) find_kept(r, done);
    }
    sgrad_ranks_broadcast(&r->best, sizeof r->best, 0);
    sgrad_ranks_broadcast(&r->worse, sizeof r->worse, 0);
    sgrad_ranks_broadcast(&r->enough, sizeof r->enough, 0);
    sgrad_ranks_broadcast(&r->kept_step, sizeof r->kept_step, 0);
    sgrad_ranks_broadcast(r->kept, sizeof r->kept, 0);
    r->stopping |= r->enough;
    return 0;
}

void sgrad__best_take(struct sgrad__run *r) {
    if (!r->kept_step) return;
    memcpy(r->result.test, r->kept, sizeof r->kept);
    r->result.best_step = r->kept_step;
}

int sgrad__best_copy(const struct sgrad__run *r, const char *to) {
    const size_t most = (size_t)1 << 40;
    struct sgrad_map from;
    struct sgrad_file file;
    char *path = path_of(r);
    int error = sgrad_map_open(path, most, &from);
    free(path);
    if (error) return error;
    error = sgrad_file_begin(to, &file);
    if (!error) {
        fwrite(from.data, 1, from.size, file.stream);
        error = sgrad_file_commit(&file);
    }
    sgrad_map_close(&from);
    return error;
}

void sgrad__best_print(const struct sgrad__run *r, long done, FILE *to) {
    const struct sgrad_metric *metric = &r->metric[deciding(r)];
    char text[SGRAD_NUMBER_TEXT];
    if (r->enough && done < r->steps)
        fprintf(to, "ended after step %ld: %d %s without a better %s\n", done, r->worse,
                sgrad_plural(r->worse, "evaluation", "evaluations"), metric->text);
    if (!r->kept_step) return;
    fprintf(to, "best: %s %s, after ", metric->text, sgrad_metric_text(metric, r->kept[deciding(r)], text));
    if (r->kept_step % r->steps_per_epoch == 0) fprintf(to, "epoch %ld", r->kept_step / r->steps_per_epoch);
    else fprintf(to, "step %ld", r->kept_step);
    fprintf(to, ": %s/best.safetensors\n", r->folder);
}
