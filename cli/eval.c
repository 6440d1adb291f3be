/* eval.c: stargrad eval: computes accuracy and loss of saved weights. */
#include "cli/cli.h"
#include "graphs/api/inference.h"
#include "runtime/terminal.h"

#include <stdlib.h>
#include <string.h>

static const struct sgrad__option options[] = {
    { "weights", "FILE", "weights (safetensors) [RUN-DIR/model.safetensors; with --model onnx:FILE, the weights in FILE]",
      &sgrad__text, SGRAD__FIELD(model.init) },
    { "model", "NAME", "network that the weights belong to; see stargrad list models", &sgrad__text, SGRAD__FIELD(model.name),
      .required = true },
    { "data", "KIND[:PATH]", "evaluate the test set of this data set; see stargrad list datasets", &sgrad__text,
      SGRAD__FIELD(data.name), .required = true },
    { "details", NULL, "also print accuracy, precision and F1 per class, confusion matrix, top-5 accuracy and calibration",
      &sgrad__flag, SGRAD__PLACE(eval.details) },
    { "tta", "flip|translate|flip,translate", "test-time augmentation: average predictions over flipped and shifted images",
      &sgrad__views, SGRAD__FIELD(evaluation.tta) },
    SGRAD__PLUGIN_OPTION,
    { "mean", "X,X,X", "mean of each channel [the run's or the training set's]", &sgrad__numbers, SGRAD__FIELD(data.mean) },
    { "deviation", "X,X,X", "standard deviation of each channel [the run's or the training set's]", &sgrad__numbers,
      SGRAD__FIELD(data.std) },
    { "tokenizer", "FILE", "tokenize the texts of jsonl, as train [as of the run]", &sgrad__file, SGRAD__FIELD(data.tokenizer) },
    { "field", "NAME", "field of JSON lines that contains the text [as of the run]", &sgrad__text, SGRAD__FIELD(data.field) },
    SGRAD__EVALUATION_OPTIONS,
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

static json_t *as_json(const struct sgrad_train_options *options, const struct sgrad_train_result *result) {
    const char *file = strncmp(options->model.name, "onnx:", 5) ? NULL : options->model.name + 5; /* it also contains weights */
    json_t *json = json_pack("{s:o, s:o, s:o}", "weights", sgrad_json_text(options->model.init ? options->model.init : file),
                             "model", sgrad_json_text(options->model.name), "data", sgrad_json_text(options->data.name));
    sgrad_result_tests(json, result);
    return json;
}

/* Prints the metrics, of which the loss is the last, and the number of samples. */
static void print(const struct sgrad_train_result *result) {
    const long long samples = (long long)result->test_samples;
    char text[SGRAD_NUMBER_TEXT];
    printf("test ");
    for (int i = 1; i < result->metrics; i++)
        printf("%s %s, ", result->metric[i].title, sgrad_metric_text(&result->metric[i], result->test[i], text));
    printf("loss %s, %lld %s\n", sgrad_number_text(result->test[0], text), samples, sgrad_plural(samples, "sample", "samples"));
    for (const struct sgrad_source_loss *s = result->source; s < result->source + result->sources; s++)
        printf("  %s: loss %s, %lld %s\n", s->name, sgrad_number_text(s->loss, text), (long long)s->samples,
               sgrad_plural(s->samples, "sample", "samples"));
}

/* ---- classes ---- */

static int64_t samples_of(const struct sgrad_classification *classification, int class) {
    int64_t count = classification->unsure[class];
    for (int predicted = 0; predicted < classification->classes; predicted++)
        count += classification->confusion[class * classification->classes + predicted];
    return count;
}

/* NAN: the class has no samples. */
static double accuracy_of(const struct sgrad_classification *classification, int class) {
    return (double)classification->confusion[class * classification->classes + class] / (double)samples_of(classification, class);
}

static int64_t predicted_as(const struct sgrad_classification *classification, int class) {
    int64_t count = 0;
    for (int i = 0; i < classification->classes; i++)
        count += classification->confusion[i * classification->classes + class];
    return count;
}

static struct sgrad_class_score score_of(const struct sgrad_classification *classification, int class) {
    const double samples = (double)samples_of(classification, class), predicted = (double)predicted_as(classification, class);
    const int64_t right = classification->confusion[class * classification->classes + class];
    return sgrad_class_score(samples, predicted, (double)right);
}

/* With five classes or fewer, the top-5 accuracy is always 1. */
static bool has_top5(const struct sgrad_classification *classification) { return classification->classes > 5; }

static void add_details(json_t *json, const struct sgrad_classification *classification, const struct sgrad__classes *names) {
    json_t *classes = json_array(), *confusion = json_array(), *calibration = json_array();
    for (int i = 0; i < classification->classes; i++) {
        json_t *row = json_array();
        for (int j = 0; j < classification->classes; j++)
            json_array_append_new(row, json_integer((json_int_t)classification->confusion[i * classification->classes + j]));
        json_array_append_new(confusion, row);
        const struct sgrad_class_score score = score_of(classification, i);
        json_array_append_new(classes, sgrad_class_score_json(names->name[i], samples_of(classification, i), &score));
    }
    for (const struct sgrad_confidence *p = classification->confidence; p < classification->confidence + SGRAD_CONFIDENCES; p++)
        json_array_append_new(calibration, json_pack("{s:I, s:f, s:f}", "samples", (json_int_t)p->count,
                                                     "probability", p->probability,
                                                     "accuracy", p->right));
    if (has_top5(classification)) json_object_set_new(json, "top5", json_real(classification->top5));
    json_object_set_new(json, "calibration_error", sgrad_json_real(classification->calibration_error));
    json_object_set_new(json, "not_finite", json_integer((json_int_t)classification->all_unsure));
    json_object_set_new(json, "classes", classes);
    json_object_set_new(json, "confusion", confusion);
    json_object_set_new(json, "calibration", calibration);
}

/* Prints a cell of text, filled with blanks to WIDTH columns. */
static void print_cell(const char *text, int width) {
    const int blanks = width - sgrad_text_columns(text);
    printf("%s%*s", text, blanks > 0 ? blanks : 0, "");
}

/* Prints for each class its accuracy (the recall), precision, F1 and the most frequent wrong prediction; with at most FEW
 * classes, also the matrix. */
static void print_details(const struct sgrad_classification *classification, const struct sgrad__classes *names) {
    enum { FEW = 20, WIDTH = 16 };
    if (has_top5(classification)) printf("top-5 %.2f %%, ", 100 * classification->top5);
    printf("calibration error %.2f %%\n\n", 100 * classification->calibration_error);
    print_cell("class", WIDTH);
    printf(" %8s %9s %9s %9s  most frequent error\n", "samples", "accuracy", "precision", "F1");
    for (int i = 0; i < classification->classes; i++) {
        const int64_t *row = classification->confusion + i * classification->classes;
        int most = -1;
        for (int j = 0; j < classification->classes; j++)
            if (j != i && row[j] && (most < 0 || row[j] > row[most])) most = j;
        const struct sgrad_class_score score = score_of(classification, i);
        print_cell(names->name[i], WIDTH);
        printf(" %8lld ", (long long)samples_of(classification, i));
        if (samples_of(classification, i)) printf("%7.2f %%", 100 * accuracy_of(classification, i));
        else printf("%9s", "-");
        printf(" %7.2f %% %7.2f %%", 100 * score.precision, 100 * score.f1);
        if (most >= 0) printf("  %s (%lld)", names->name[most], (long long)row[most]);
        putchar('\n');
    }
    if (classification->classes > FEW) return;
    printf("\nconfusion matrix: a row for each class, a column for each prediction\n");
    for (int i = 0; i < classification->classes; i++) {
        for (int j = 0; j < classification->classes; j++)
            printf("%6lld", (long long)classification->confusion[i * classification->classes + j]);
        printf("  %s\n", names->name[i]);
    }
}

/* Writes details.json for stargrad report. If the folder cannot be written, only an error is logged. */
static void keep_details(const char *folder, json_t *json) {
    enum { DIGITS = 9 };
    char *path = sgrad_format("%s/details.json", folder);
    sgrad_json_write(path, json_incref(json), DIGITS);
    free(path);
}

static int print_result(const struct sgrad__request *request, const struct sgrad_train_options *options,
                        const struct sgrad_train_result *result, const struct sgrad_predictions *answers) {
    struct sgrad_classification c = { 0 };
    struct sgrad__classes names = { 0 };
    if (request->eval.details) {
        if (answers->label_rows != 1)
            return sgrad__wrong("eval: --details requires a data set with one class per sample; %s is not one",
                                options->data.name);
        if (sgrad__classes_find(request, options, (int)answers->width, &names)) return SGRAD__FAILED;
        c = sgrad_classify(answers);
        if (c.all_unsure)
            sgrad_log_warning("eval: %lld of %lld samples have logits that are NaN or infinite; these samples count as wrong",
                              (long long)c.all_unsure, (long long)answers->samples);
    }
    json_t *json = as_json(options, result);
    if (c.classes) add_details(json, &c, &names);
    if (c.classes && request->argument) keep_details(request->argument, json);
    if (request->train.output.json) sgrad__print_json(json_incref(json));
    else print(result);
    if (!request->train.output.json && c.classes) print_details(&c, &names);
    json_decref(json);
    sgrad__classes_free(&names);
    sgrad_classification_free(&c);
    return SGRAD__DONE;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_train_options o = request->train;
    struct sgrad_train_result result = { 0 };
    struct sgrad_predictions answers = { 0 };
    sgrad__weights_of_run(request, &o);
    if (!request->argument) sgrad_run_take_seed(&o);
    if (!o.model.init && strncmp(o.model.name, "onnx:", 5)) return sgrad__wrong("eval: --weights FILE is missing");
    int error = sgrad_predict(&o, &result, request->eval.details ? &answers : NULL);
    if (error) return sgrad__status(error);
    const int status = result.rank > 0 ? SGRAD__DONE : print_result(request, &o, &result, &answers);    /* rank 0 prints */
    sgrad_predictions_free(&answers);
    free(result.source);
    return status;
}

const struct sgrad__command sgrad__eval_command = {
    .name = "eval",
    .summary = "measure accuracy and loss of saved weights",
    .argument = "[RUN-DIR]",
    .of_run = true,
    .options = options,
    .run = run,
    .notes = "Weights, model and data set are read from RUN-DIR; options given here override them. Pixels are normalised "
             "with the statistics in config.json next to the weights. Without that file, the statistics of the training set "
             "are used.",
};
