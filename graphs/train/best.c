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

int sgrad__best_choose_metric(struct sgrad__run *run) {
    const char *name = run->options.evaluation.metric, *names[SGRAD_MAX_METRICS + 2] = { NULL };
    int count = run->result.metrics;
    run->result.main = count > 1;
    if (!name) return 0;
    for (int i = 0; i < count; i++) names[i] = run->metric[i].name;
    if (!strcmp(run->metric[run->result.main].name, "top1")) names[count++] = "accuracy";
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return run->result.main = i < run->result.metrics ? i : run->result.main, 0;
    char *list = sgrad_format("%s", names[0]);
    for (int i = 1; i < count; i++) {
        char *before = list;
        list = sgrad_format("%s, %s", before, names[i]);
        free(before);
    }
    sgrad_log_error(SGRAD_ENAME, "--best '%s': %s has no such metric; it has %s", name, run->model_text, list);
    free(list);
    return SGRAD_ENAME;
}

/* Returns true if VALUE is better than THAN, by more than DELTA. */
static bool is_better(const struct sgrad_metric *metric, double value, double than, double delta) {
    return !isnan(value) && (isnan(than) || (metric->is_fraction ? value - delta > than : value + delta < than));
}

static char *path_of(const struct sgrad__run *run) { return sgrad_format("%s/best.safetensors", run->files.folder); }

/* The metadata contain the step, and the metrics with all digits. */
static int write_best(const struct sgrad__run *run) {
    enum { MOST = 1 + SGRAD_MAX_METRICS };
    char *path = path_of(run), *number[MOST];
    const char *metadata[2 * MOST];
    const int count = 1 + run->result.metrics;
    number[0] = sgrad_format("%ld", run->best.step);
    for (int i = 1; i < count; i++) number[i] = sgrad_format("%.17g", run->best.metrics[i - 1]);
    for (int i = 0; i < count; i++) metadata[2 * i] = i ? run->metric[i - 1].name : "step", metadata[2 * i + 1] = number[i];
    int error =
        sgrad__run_save_weights(run, sgrad__parameters_list(run->graph), sgrad__evaluation_weights(run), path, metadata, count);
    for (int i = 0; i < count; i++) free(number[i]);
    free(path);
    return error;
}

/* Compares the result of an evaluation with the best one so far, and counts evaluations without enough improvement. Values are
 * compared with float precision, as in metrics.jsonl, so that a resumed run gets the same results. */
static void count(struct sgrad__run *run, double value) {
    const bool better =
        is_better(&run->metric[run->result.main], (float)value, (float)run->best.value, run->options.evaluation.min_delta);
    run->best.value = better ? value : run->best.value;
    run->best.worse = better ? 0 : run->best.worse + 1;
    run->best.stop = run->options.evaluation.patience && run->best.worse >= run->options.evaluation.patience;
}

bool sgrad__best_may_end(const struct sgrad__run *run) {
    return run->options.evaluation.patience && run->best.worse + 1 >= run->options.evaluation.patience;
}

int sgrad__best_record(struct sgrad__run *run) {
    const double value = run->evaluation.epoch.test[run->result.main],
                 kept = run->best.step ? run->best.metrics[run->result.main] : NAN;
    count(run, value);
    if (!run->best.saves || !is_better(&run->metric[run->result.main], (float)value, (float)kept, 0)) return 0;
    memcpy(run->best.metrics, run->evaluation.epoch.test, sizeof run->best.metrics);
    run->best.step = run->evaluation.epoch.step;
    return run->context->rank ? 0 : write_best(run);
}

/* Repeats this for the evaluations before a resume, which are read from metrics.jsonl; lines after the resumed step have been
 * removed. */
static void count_again(struct sgrad__run *run) {
    char *path = sgrad_format("%s/metrics.jsonl", run->files.folder),
         *key = sgrad_format("test_%s", run->metric[run->result.main].name);
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) > 0) {
        json_t *event = strstr(line, "\"epoch\"") ? json_loads(line, 0, NULL) : NULL, *value = json_object_get(event, key);
        if (value) count(run, json_is_number(value) ? json_number_value(value) : NAN);
        json_decref(event);
    }
    if (file) fclose(file);
    free(line);
    free(key);
    free(path);
}

/* Finds the saved weights of a resumed run. They are not used if they belong to a step after DONE. */
static void find_kept(struct sgrad__run *run, long done) {
    struct sgrad_safetensors file;
    char *path = path_of(run);
    if (access(path, F_OK) == 0 && !sgrad_safetensors_open(path, &file)) {
        const char *text = sgrad_safetensors_metadata(&file, "step");
        const long step = text ? strtol(text, NULL, 10) : 0;
        if (step > done && !isnan(run->best.value))
            sgrad_log_warning("%s: has weights of step %ld, but the checkpoint is of step %ld; these weights are not used", path,
                              step, done);
        const char *known = sgrad_safetensors_metadata(&file, run->metric[run->result.main].name);
        if (step > 0 && step <= done && known) run->best.step = step;
        for (int i = 0; i < run->result.metrics; i++) {
            const char *value = sgrad_safetensors_metadata(&file, run->metric[i].name);
            run->best.metrics[i] = value ? strtod(value, NULL) : NAN;
        }
        sgrad_safetensors_close(&file);
    }
    free(path);
}

/* Returns the name of the first parameter that is sharded; NULL: no parameter is. */
static const char *find_split(const struct sgrad__run *run) {
    for (int i = 0; i < run->graph->parameter_count; i++)
        if (run->graph->parameter[i].cuts || run->graph->parameter[i].share.ranks) return run->graph->parameter[i].name;
    return NULL;
}

int sgrad__best_open(struct sgrad__run *run, long done) {
    const char *split = find_split(run);
    if (run->options.evaluation.best && split)
        return sgrad_log_error(SGRAD_EINVAL, "--best requires that one rank has the whole network, but %s is sharded over ranks",
                               split);
    const bool whole = !split && run->graph->stages == 1;
    run->best.saves = whole && (run->options.evaluation.best || run->options.evaluation.patience);
    if (!whole && run->options.evaluation.patience && run->context->rank == 0)
        sgrad_log_warning("--patience: no rank has the whole network; the run ends with its last weights, not with its best");
    run->best.value = NAN;
    if (run->options.checkpoint.resume && run->context->rank == 0) {
        count_again(run);
        if (run->best.saves) find_kept(run, done);
    }
    sgrad_ranks_broadcast(&run->best.value, sizeof run->best.value, 0);
    sgrad_ranks_broadcast(&run->best.worse, sizeof run->best.worse, 0);
    sgrad_ranks_broadcast(&run->best.stop, sizeof run->best.stop, 0);
    sgrad_ranks_broadcast(&run->best.step, sizeof run->best.step, 0);
    sgrad_ranks_broadcast(run->best.metrics, sizeof run->best.metrics, 0);
    run->control.stopping |= run->best.stop;
    return 0;
}

void sgrad__best_take(struct sgrad__run *run) {
    if (!run->best.step) return;
    memcpy(run->result.test, run->best.metrics, sizeof run->best.metrics);
    run->result.best_step = run->best.step;
}

int sgrad__best_copy(const struct sgrad__run *run, const char *to) {
    const size_t most = (size_t)1 << 40;
    struct sgrad_map from;
    struct sgrad_file file;
    char *path = path_of(run);
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

void sgrad__best_print(const struct sgrad__run *run, long done, FILE *to) {
    const struct sgrad_metric *metric = &run->metric[run->result.main];
    char text[SGRAD_NUMBER_TEXT], least[48] = "";
    if (run->options.evaluation.min_delta > 0)
        snprintf(least, sizeof least, " of more than %g", run->options.evaluation.min_delta);
    if (run->best.stop && done < run->steps)
        fprintf(to, "stopped after step %ld: %d %s without an improvement of the %s%s\n", done, run->best.worse,
                sgrad_plural(run->best.worse, "evaluation", "evaluations"), metric->text, least);
    if (!run->best.step) return;
    fprintf(to, "best: %s %s, after ", metric->text, sgrad_metric_text(metric, run->best.metrics[run->result.main], text));
    if (run->best.step % run->steps_per_epoch == 0) fprintf(to, "epoch %ld", run->best.step / run->steps_per_epoch);
    else fprintf(to, "step %ld", run->best.step);
    fprintf(to, ": %s/best.safetensors\n", run->files.folder);
}
