/* best.c: the weights of the best evaluation, and when a run has had enough.
 *
 *     evaluation     top-1 .71   .78   .77   .76       --patience 2: the run ends when the last of these is told
 *     best           .71         .78                   best.safetensors: the second's weights
 *
 * The weights that were evaluated are written, not those that later steps have made of them. */
#include "graphs/runs/run.h"

#include <math.h>
#include <stdlib.h>
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

int sgrad__best_tell(struct sgrad__run *r) {
    const struct sgrad_metric *metric = &r->metric[deciding(r)];
    const double value = r->epoch.test[deciding(r)];
    if (!is_better(metric, value, r->best)) {
        r->worse++;
        r->enough = r->options.patience && r->worse >= r->options.patience;
        return 0;
    }
    r->best = value;
    r->best_epoch = r->epoch.epoch;
    r->worse = 0;
    return r->options.best && r->context->rank == 0 ? write_best(r, value) : 0;
}

/* A run that goes on knows the best of before. */
static double read_best(const struct sgrad__run *r) {
    struct sgrad_safetensors file;
    char *path = path_of(r);
    double value = NAN;
    if (r->options.resume && access(path, F_OK) == 0 && !sgrad_safetensors_open(path, &file)) {
        const char *text = sgrad_safetensors_metadata(&file, r->metric[deciding(r)].name);
        if (text) value = strtod(text, NULL);
        sgrad_safetensors_close(&file);
    }
    free(path);
    return value;
}

int sgrad__best_open(struct sgrad__run *r) {
    for (int i = 0; i < r->graph->parameter_count && r->options.best; i++)
        if (r->graph->parameter[i].cuts)
            return sgrad_fail(SGRAD_EINVAL, "--best: %s is split over ranks, none of which has the whole",
                              r->graph->parameter[i].name);
    r->best = r->context->rank == 0 ? read_best(r) : NAN;
    sgrad_ranks_broadcast(&r->best, sizeof r->best, 0);
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
