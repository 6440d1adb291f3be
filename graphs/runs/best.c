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

/* As metrics.jsonl has them: to nine digits. Is it better than what was before? */
static bool compare(struct sgrad__run *r, double value, double epoch) {
    const bool better = is_better(&r->metric[deciding(r)], (float)value, (float)r->best);
    r->best = better ? value : r->best;
    r->best_epoch = better ? epoch : r->best_epoch;
    r->worse = better ? 0 : r->worse + 1;
    r->enough = r->options.patience && r->worse >= r->options.patience;
    return better;
}

int sgrad__best_tell(struct sgrad__run *r) {
    const double value = r->epoch.test[deciding(r)];
    return compare(r, value, r->epoch.epoch) && r->options.best && r->context->rank == 0 ? write_best(r, value) : 0;
}

/* A run that goes on knows the evaluations of before: as far as it goes back to, these are what metrics.jsonl has. */
static void count_again(struct sgrad__run *r) {
    char *path = sgrad_format("%s/metrics.jsonl", r->folder), *key = sgrad_format("test_%s", r->metric[deciding(r)].name);
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        json_t *event = strstr(line, "\"epoch\"") ? json_loads(line, 0, NULL) : NULL, *value = json_object_get(event, key);
        if (value) compare(r, json_is_number(value) ? json_number_value(value) : NAN,
                           json_number_value(json_object_get(event, "epoch")));
        json_decref(event);
    }
    if (file) fclose(file);
    free(line);
    free(key);
    free(path);
}

int sgrad__best_open(struct sgrad__run *r) {
    for (int i = 0; i < r->graph->parameter_count && r->options.best; i++)
        if (r->graph->parameter[i].cuts)
            return sgrad_fail(SGRAD_EINVAL, "--best: %s is split over ranks, none of which has the whole",
                              r->graph->parameter[i].name);
    r->best = NAN;
    if (r->options.resume && r->context->rank == 0) count_again(r);
    sgrad_ranks_broadcast(&r->best, sizeof r->best, 0);
    sgrad_ranks_broadcast(&r->best_epoch, sizeof r->best_epoch, 0);
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
    if (r->options.best && r->best_epoch > 0)
        fprintf(to, "best: %s %s, after epoch %s: %s/best.safetensors\n", metric->text, sgrad_metric_text(metric, r->best, text),
                sgrad_amount_text(r->best_epoch, epoch), r->folder);
}
