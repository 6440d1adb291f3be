/* predict.c: stargrad predict: prints the predictions of a trained network for images, or for the test split of a data set. */
#include "cli/cli.h"
#include "graphs/api/inference.h"
#include "datasets/datasets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct sgrad__option options[] = {
    { "weights", "FILE", "weights (safetensors) [RUN-DIR/model.safetensors; with --model onnx:FILE, the weights in FILE]",
      &sgrad__text, SGRAD__FIELD(model.init) },
    { "model", "NAME", "network that the weights belong to; see stargrad list models [the run's]", &sgrad__text,
      SGRAD__FIELD(model.name), .required = true },
    { "data", "KIND[:PATH]",
      "if there is no FILE: predict all lines of this CSV file, or the test set of this data set [the run's]", &sgrad__text,
      SGRAD__FIELD(data.name) },
    { "mean", "X,X,X", "mean of each channel [the run's or the training set's]", &sgrad__numbers, SGRAD__FIELD(data.mean) },
    { "deviation", "X,X,X", "standard deviation of each channel [the run's or the training set's]", &sgrad__numbers,
      SGRAD__FIELD(data.std) },
    { "id", "COLUMN",
      "column of a CSV file, by title or number, whose cells are printed as the names of the samples [their numbers]",
      &sgrad__text, SGRAD__FIELD(data.id) },
    { "top", "K", "print the K most probable classes of each sample", &sgrad__whole, SGRAD__PLACE(predict.top), 1, 1000000 },
    SGRAD__PLUGIN_OPTION,
    SGRAD__EVALUATION_OPTIONS,
    { "json", NULL, "print one JSON object per line instead of CSV", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

/* ---- output ---- */

/* RFC 4180: a text with commas, quotes or line breaks must be quoted. */
static void print_csv(const char *text) {
    if (!text[strcspn(text, ",\"\r\n")]) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

struct ranked {
    double probability;
    int class;
};
static int by_probability(const void *a, const void *b) {
    const struct ranked *one = a, *other = b;
    if (one->probability != other->probability) return one->probability < other->probability ? 1 : -1;
    return (one->class > other->class) - (one->class < other->class);
}

/* Prints a sample without a predicted class, because its logits are not finite. */
static void print_unsure(const char *sample, const char *label, bool json) {
    if (json) {
        sgrad__print_json(json_pack("{s:o, s:o*, s:[]}", "sample", sgrad_json_text(sample), "label",
                                    label ? sgrad_json_text(label) : NULL, "classes"));
        return;
    }
    print_csv(sample);
    puts(",,nan");
}

/* Prints the most probable classes of a sample, in descending order. LABEL: the true class; NULL: unknown. */
static void print_classes(const char *sample, const char *label, const struct ranked *ranked, int top,
                          const struct sgrad__classes *names, bool json) {
    json_t *list = json ? json_array() : NULL;
    for (int k = 0; k < top; k++) {
        const char *name = names->name[ranked[k].class];
        if (json) {
            json_array_append_new(list, json_pack("{s:o, s:f}", "class", sgrad_json_text(name), "probability",
                                                  ranked[k].probability));
            continue;
        }
        print_csv(sample);
        putchar(',');
        print_csv(name);
        printf(",%.6g\n", ranked[k].probability);
    }
    if (json) sgrad__print_json(json_pack("{s:o, s:o*, s:o}", "sample", sgrad_json_text(sample), "label",
                                          label ? sgrad_json_text(label) : NULL, "classes", list));
}

static void print_numbers(const char *sample, const float *number, int64_t count, bool json) {
    json_t *list = json ? json_array() : NULL;
    if (!json) print_csv(sample);
    for (int64_t k = 0; k < count; k++)
        if (json) json_array_append_new(list, sgrad_json_real(number[k]));
        else printf(",%.9g", number[k]);
    if (json) sgrad__print_json(json_pack("{s:o, s:o}", "sample", sgrad_json_text(sample), "numbers", list));
    else putchar('\n');
}

/* Prints the header line. The target of a table has a title. */
static void print_titles(const struct sgrad_dataset *dataset, const struct sgrad_predictions *predictions) {
    const struct sgrad_origin *origin = dataset->origin;
    print_csv(dataset->id_title ? dataset->id_title : "sample");
    if (predictions->label_rows == 1) {
        puts(",class,probability");
        return;
    }
    for (int64_t k = 0; k < predictions->width; k++) {
        if (predictions->width > 1) printf(",number %lld", (long long)k + 1);
        else putchar(','), print_csv(!predictions->label_rows && origin && origin->target ? origin->target : "number");
    }
    putchar('\n');
}

static bool are_finite(const float *number, int64_t count) {
    for (int64_t k = 0; k < count; k++)
        if (!isfinite(number[k])) return false;
    return true;
}

static void print_all(const struct sgrad__request *request, const struct sgrad_dataset *dataset,
                      const struct sgrad_predictions *predictions, const struct sgrad__classes *names) {
    const int classes = names->count, top = request->predict.top < classes ? request->predict.top : classes;
    struct ranked *ranked = sgrad_xcalloc((size_t)predictions->width + 1, sizeof *ranked);
    double *probability = sgrad_xcalloc((size_t)predictions->width + 1, sizeof *probability);
    int64_t unsure = 0;
    if (!request->train.output.json) print_titles(dataset, predictions);
    for (int64_t i = 0; i < predictions->samples; i++) {
        const float *logits = predictions->logits + i * predictions->width;
        const char *sample = predictions->name[i];
        if (classes) sgrad_probabilities(logits, classes, probability);
        for (int c = 0; c < classes; c++) ranked[c] = (struct ranked){ probability[c], c };
        if (classes) qsort(ranked, (size_t)classes, sizeof *ranked, by_probability);
        const char *label = classes && !request->files && !dataset->unlabelled ? names->name[predictions->label[i]] : NULL;
        const bool sure = classes ? sgrad_is_sure(logits, classes) : are_finite(logits, predictions->width);
        unsure += !sure;
        if (!sure && classes) print_unsure(sample, label, request->train.output.json);
        else if (classes) print_classes(sample, label, ranked, top, names, request->train.output.json);
        else print_numbers(sample, logits, predictions->width, request->train.output.json);
    }
    if (unsure)
        sgrad_log_warning("predict: %lld of %lld samples have %s", (long long)unsure, (long long)predictions->samples,
                          classes ? "logits that are NaN or infinite, and therefore no class"
                                  : "numbers that are NaN or infinite");
    free(ranked);
    free(probability);
}

/* ---- the command ---- */

static int predict(const struct sgrad__request *request, struct sgrad_train_options *options, struct sgrad_dataset *dataset) {
    struct sgrad_train_result result = { 0 };
    struct sgrad_predictions answers;
    struct sgrad__classes names = { 0 };
    options->data.dataset[SGRAD_TEST] = dataset;
    SGRAD_TRY(sgrad_predict(options, &result, &answers));
    int error = 0;
    if (result.rank == 0 && answers.label_rows == 1) error = sgrad__classes_find(request, options, (int)answers.width, &names);
    if (result.rank == 0 && !error) print_all(request, dataset, &answers, &names);
    sgrad__classes_free(&names);
    sgrad_predictions_free(&answers);
    free(result.source);
    return error;
}

static int open_files(const struct sgrad__request *request, const struct sgrad_train_options *options,
                      struct sgrad_image_files *files, struct sgrad_dataset **dataset) {
    for (char **file = request->files; *file; file++) SGRAD_TRY(sgrad_image_files_add(files, *file));
    SGRAD_TRY(sgrad_run_open_images(request->argument, options, (const char *const *)files->name, files->count, dataset));
    return sgrad_dataset_skip_damaged(*dataset, sgrad_launched_rank() == 0, NULL);
}

static int run(const struct sgrad__request *request) {
    struct sgrad_train_options o = request->train;
    struct sgrad_dataset *dataset = NULL;
    struct sgrad_image_files files = { 0 };
    sgrad__weights_of_run(request, &o);
    if (!request->argument) sgrad_run_take_seed(&o);
    if (!o.model.init && strncmp(o.model.name, "onnx:", 5)) return sgrad__wrong("predict: --weights FILE is missing");
    if (!request->argument && !request->files && !o.data.name)
        return sgrad__wrong("predict: RUN-DIR, FILE or --data KIND[:PATH] is missing");
    int error = request->files ? open_files(request, &o, &files, &dataset)
                               : sgrad_run_open_samples(&o, sgrad__is_asked(request, "data"), &dataset);
    if (!error) error = predict(request, &o, dataset);
    if (!error && request->files && dataset->damaged) {     /* the other files have predictions */
        error = SGRAD_EFORMAT;
        if (sgrad_launched_rank() == 0)
            sgrad_log_warning("%lld of %d files cannot be read and have no prediction", (long long)dataset->damaged, files.count);
    }
    sgrad_dataset_close(dataset);
    sgrad_image_files_free(&files);
    return sgrad__status(error);
}

static void defaults(struct sgrad__request *request) { request->predict.top = 1; }

const struct sgrad__command sgrad__predict_command = {
    .name = "predict",
    .summary = "predict classes or numbers with a trained network",
    .argument = "[RUN-DIR] [FILE...]",
    .repeats = true,
    .of_run = true,
    .takes_files = true,
    .options = options,
    .defaults = defaults,
    .run = run,
    .notes = "FILE is an image (JPEG, PNG, TIFF, BMP, PNM, WebP, GIF) or a folder of images. Images are resized and cropped to "
             "the size that the network was trained on. Without FILE, the test set of the run's data set is used. "
             "Without RUN-DIR, --weights and --model name a network, and FILE or --data its samples. If the folder of the "
             "weights is not that of a run, FILE also requires --image-size, --mean and --deviation, or --data, the data set of "
             "the network.\n\n"
             "For each sample, prints one line for each of its --top classes: sample,class,probability. A file that cannot be "
             "read causes a warning and exit status 1; the other files are predicted.",
};
