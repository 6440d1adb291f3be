/* json_calls.h: training, prediction, generation of text and export for languages without C's structures: options and results are
 * JSON texts, samples and predictions are arrays. The Python module (docs/guides/python.md) uses these functions.
 *
 * OPTIONS is a JSON object. Its keys are fields of struct sgrad_train_options, with names and values as in config.json:
 *
 *     char *result;
 *     SGRAD_TRY(sgrad_json_train(NULL, "{\"model\": \"convnet\", \"data\": \"digits\", \"epochs\": 2}", NULL, &result));
 *     puts(result);                           // {"folder": "runs/convnet-…", "steps": 24, …, "test_top1": 0.93, …}
 *     free(result);
 *
 * RUN is a run directory, or NULL. An option that OPTIONS does not contain has its value in that run; if RUN is NULL, its default
 * (sgrad_train_defaults). SGRAD_ENAME: an option is unknown. SGRAD_EFORMAT: OPTIONS is not a JSON object, or a value has the
 * wrong type. All other errors are those of the corresponding functions of train.h and inference.h. Output parameters are set
 * only on success. */
#ifndef SGRAD_GRAPHS_JSON_JSON_CALLS_H
#define SGRAD_GRAPHS_JSON_JSON_CALLS_H

#include "graphs/api/inference.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns all options with their defaults, as a JSON object; the caller must free it. */
char *sgrad_json_defaults(void);

/* What OPTIONS cannot contain. Zeros: nothing. */
struct sgrad_json_training {
    const struct sgrad_arrays *arrays;  /* samples in memory, instead of the option data; NULL: none */
    struct sgrad_train_events events;   /* functions that are called during the training */
    bool quiet;                         /* nothing is printed */
};
/* Trains (sgrad_train). The option resume may also be "auto": it is then true if the option out names an existing run. If a run
 * is continued, its options are used instead of those of RUN. TRAINING may be NULL. *RESULT is a JSON object: folder, steps,
 * epochs, train_loss, test_loss, …, seconds, samples_per_second. The caller must free it. */
int sgrad_json_train(const char *run, const char *options, const struct sgrad_json_training *training, char **result);

/* Samples to predict: COUNT image files or folders of images; COUNT samples in an array, without targets; or the test split of
 * arrays in memory. */
struct sgrad_json_samples {
    const char *const *file;            /* COUNT files and folders; NULL: use the array, or arrays */
    int64_t count;
    const void *array;                  /* (COUNT,DIM[0],…,DIM[RANK-1]) */
    const char *type;                   /* of the array's elements: "U8", "U16", "I32" or "F32" */
    int rank;                           /* number of dimensions of one sample */
    const int64_t *dim;                 /* dimensions of one sample */
    const struct sgrad_arrays *arrays;  /* x[SGRAD_TEST] and, optionally, its targets y[SGRAD_TEST]; NULL: none */
};
/* Predicts the outputs for SAMPLES (sgrad_predict); if SAMPLES is NULL, for the test split of the data, or, if ANSWERS is not
 * NULL, RESULT is NULL and OPTIONS contains data, for all samples of a file that is not divided into splits, which may lack
 * targets. The weights are RUN/model.safetensors, unless OPTIONS contains init or model. *RESULT: a JSON object with the metrics
 * of the test split (test_loss, …); the caller must free it. *ANSWERS: the predictions; the caller must free them
 * (sgrad_predictions_free). RESULT and ANSWERS may be NULL. SGRAD_EINVAL also if the type or the rank of an array is invalid.
 * SGRAD_ESHAPE also if the samples do not have the shape that the network expects. */
int sgrad_json_predict(const char *run, const char *options, const struct sgrad_json_samples *samples, char **result,
                       struct sgrad_predictions *answers);

/* Writes the weights, chosen as by sgrad_json_predict, and their network to the ONNX file PATH (sgrad_export). */
int sgrad_json_export(const char *run, const char *options, const char *path);

/* Generates texts with a language model (sgrad_sample_texts). TEXTS is a JSON object:
 *
 *     {"prompts": ["To be", "ROMEO:"], "tokens": 50, "temperature": 0.8,       required
 *      "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.1,                   optional; fields of struct sgrad_sample_options
 *      "stop": "\n\n", "tokenizer": "tokenizer.json"}                          optional
 *
 * The weights are chosen as by sgrad_json_predict; without RUN, OPTIONS must contain init. The default tokenizer is that of RUN
 * (sgrad_run_tokenizer), if it has one. *RESULT: a JSON array with the object of each text (sgrad_text_json), in the order of the
 * prompts; the caller must free it. SGRAD_EFORMAT: TEXTS is malformed. SGRAD_EINTR: interrupted by a signal. Other errors are
 * those of sgrad_sample_texts and sgrad_tokenizer_open. */
int sgrad_json_sample(const char *run, const char *options, const char *texts, char **result);

#ifdef __cplusplus
}
#endif
#endif
