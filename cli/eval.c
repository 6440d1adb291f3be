/* eval.c: stargrad eval: accuracy and loss of saved weights. */
#include "cli/cli.h"

static const struct sgrad__option options[] = {
    { "weights", "FILE", "the weights (safetensors)", &sgrad__text, SGRAD__FIELD(init), .required = true },
    { "model", "NAME", "their network: one of stargrad list models", &sgrad__text, SGRAD__FIELD(model), .required = true },
    { "data", "KIND[:PATH]", "data set, whose test part is used: one of stargrad list datasets", &sgrad__text, SGRAD__FIELD(data),
      .required = true },
    { "image-size", "N", "scale images of a folder to NxN", &sgrad__whole, SGRAD__FIELD(image_size), 1, 4096 },
    { "micro-batch", "N", "samples per task; chosen if not given", &sgrad__whole, SGRAD__FIELD(micro_batch), 1, 2147483647 },
    { "precision", "f32|tf32|bf16", "tf32: tensor cores of GPUs may round products; bf16: bfloat16 compute", &sgrad__choice,
      SGRAD__FIELD(precision) },
    { "cpus", "N", "CPU workers", &sgrad__workers, SGRAD__FIELD(cpus), 0, 4096 },
    { "gpus", "N", "CUDA devices", &sgrad__workers, SGRAD__FIELD(gpus), 0, 4096 },
    { "scheduler", "NAME", "StarPU's scheduler; chosen if not given", &sgrad__text, SGRAD__FIELD(scheduler) },
    { "json", NULL, "print the result as one JSON object", &sgrad__flag, SGRAD__FIELD(json) },
    { 0 },
};

static json_t *as_json(const struct sgrad__request *request, const struct sgrad_train_result *result) {
    json_t *json = json_pack("{s:s, s:s, s:s}", "weights", request->train.init, "model", request->train.model, "data",
                             request->train.data);
    sgrad__json_tests(json, result);
    return json;
}

/* The loss comes last. */
static void print(const struct sgrad_train_result *result) {
    char text[SGRAD_NUMBER_TEXT];
    printf("test ");
    for (int i = 1; i < result->metrics; i++)
        printf("%s %s, ", result->metric[i].title, sgrad_metric_text(&result->metric[i], result->test[i], text));
    printf("loss %s\n", sgrad_number_text(result->test[0], text));
}

static int run(const struct sgrad__request *request) {
    struct sgrad_train_result result = { 0 };
    int error = sgrad_evaluate(&request->train, &result);
    if (error) return sgrad__status(error);
    if (result.rank > 0) return SGRAD__DONE;    /* rank 0 tells */
    if (request->train.json)
        sgrad__print_json(as_json(request, &result));
    else
        print(&result);
    return SGRAD__DONE;
}

const struct sgrad__command sgrad__eval_command = {
    .name = "eval",
    .summary = "accuracy and loss of saved weights",
    .options = options,
    .run = run,
    .notes = "Pixels are normalised as the config.json beside the weights says; without one, by the training part's statistics.",
};
