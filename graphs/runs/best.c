/* best.c: the weights of the best evaluation, and when a run has had enough.
 *
 *     evaluation     top-1 .71   .78   .77   .76       --patience 2: the run ends when the last of these is told
 *     best           .71         .78                   best.safetensors: the second's weights
 *
 * The weights that were evaluated are written, not those that later steps have made of them. */
#include "graphs/runs/run.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What decides: the first metric that is a share of all, of which more is better, else the loss. */
static int deciding(const struct sgrad__run *r) { return r->result.metrics > 1 ? 1 : 0; }

static bool is_better(const struct sgrad_metric *metric, double value, double than) {
    return !isnan(value) && (isnan(than) || (metric->share ? value > than : value < than));
}

static char *path_of(const struct sgrad__run *r) { return sgrad_format("%s/best.safetensors", r->folder); }

static int write_best(const struct sgrad__run *r, double value) {
    char *path = path_of(r), *number = sgrad_format("%.17g", value), *step = sgrad_format("%ld", r->epoch.step);
    const char *metadata[] = { "step", step, r->metric[deciding(r)].name, number };
    int error = sgrad__weights_save_values(r->graph, sgrad__evaluation_weights(r), path, metadata, 2);
    free(path);
    free(number);
    free(step);
    return error;
}

/* An evaluation, as metrics.jsonl has it, to nine digits: is it better than those before? */
static void count(struct sgrad__run *r, double value) {
    const bool better = is_better(&r->metric[deciding(r)], (float)value, (float)r->best);
    r->best = better ? value : r->best;
    r->worse = better ? 0 : r->worse + 1;
    r->enough = r->options.patience && r->worse >= r->options.patience;
}

int sgrad__best_tell(struct sgrad__run *r) {
    const double value = r->epoch.test[deciding(r)];
    count(r, value);
    if (!r->options.best || r->context->rank || !is_better(&r->metric[deciding(r)], value, r->kept)) return 0;
    r->kept = value;
    r->kept_epoch = r->epoch.epoch;
    return write_best(r, value);
}

/* A run that goes on knows the evaluations of before: as far as it goes back to, these are what metrics.jsonl has. */
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

/* And the weights that it has kept, unless they are of a step that it has not come to yet. */
static void find_kept(struct sgrad__run *r, long done) {
    struct sgrad_safetensors file;
    char *path = path_of(r);
    if (access(path, F_OK) == 0 && !sgrad_safetensors_open(path, &file)) {
        const char *value = sgrad_safetensors_metadata(&file, r->metric[deciding(r)].name);
        const char *step = sgrad_safetensors_metadata(&file, "step");
        if (value && step && strtol(step, NULL, 10) <= done) {
            r->kept = strtod(value, NULL);
            r->kept_epoch = (double)strtol(step, NULL, 10) / (double)r->steps_per_epoch;
        }
        sgrad_safetensors_close(&file);
    }
    free(path);
}

int sgrad__best_open(struct sgrad__run *r, long done) {
    for (int i = 0; i < r->graph->parameter_count && r->options.best; i++)
        if (r->graph->parameter[i].cuts)
            return sgrad_fail(SGRAD_EINVAL, "--best: %s is split over ranks, none of which has the whole",
                              r->graph->parameter[i].name);
    r->best = r->kept = NAN;
    if (r->options.resume && r->context->rank == 0) count_again(r), find_kept(r, done);
    sgrad_ranks_broadcast(&r->best, sizeof r->best, 0);
    sgrad_ranks_broadcast(&r->worse, sizeof r->worse, 0);
    sgrad_ranks_broadcast(&r->enough, sizeof r->enough, 0);
    r->stopping |= r->enough;
    return 0;
}

void sgrad__best_print(const struct sgrad__run *r, long done, FILE *to) {
    const struct sgrad_metric *metric = &r->metric[deciding(r)];
    char text[SGRAD_NUMBER_TEXT], epoch[SGRAD_AMOUNT_TEXT];
    if (r->enough && done < r->steps)
        fprintf(to, "ended after step %ld: %d %s without a better %s\n", done, r->worse,
                sgrad_plural(r->worse, "evaluation", "evaluations"), metric->text);
    if (r->options.best && r->kept_epoch > 0)
        fprintf(to, "best: %s %s, after epoch %s: %s/best.safetensors\n", metric->text, sgrad_metric_text(metric, r->kept, text),
                sgrad_amount_text(r->kept_epoch, epoch), r->folder);
}
