/* calls.h: training, and what comes after it, for languages that have not C's structures: what is asked for and what has come of
 * it are texts, samples and answers are arrays. The Python module (docs/python.md) is made of these.
 *
 * OPTIONS are a JSON object, of fields of struct sgrad_train_options as config.json calls and writes them:
 *
 *     char *result;
 *     SGRAD_TRY(sgrad_call_train(NULL, "{\"model\": \"convnet\", \"data\": \"digits\", \"epochs\": 2}", &result));
 *     puts(result);                           // {"folder": "runs/convnet-…", "steps": 24, …, "test_top1": 0.93, …}
 *     free(result);
 *
 * What they leave out is as the run in the folder RUN had it, or, where RUN is NULL, as sgrad_train_defaults has it. A name that
 * there is not is SGRAD_ENAME, a value of another kind SGRAD_EFORMAT; all else is as of the functions of runs.h. */
#ifndef SGRAD_CALLS_H
#define SGRAD_CALLS_H

#include "graphs/runs/runs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every option, as it is where nothing is said; free it. */
char *sgrad_call_defaults(void);

/* *RESULT is an object, to be freed: folder, steps, epochs, train_loss, test_loss, …, seconds, samples_per_second. */
int sgrad_call_train(const char *run, const char *options, char **result);

/* Samples that are asked about, of one of two kinds: images in FILEs, or COUNT of TYPE ("U8", "U16", "I32", "F32") and (DIM[0],
 * …, DIM[RANK-1]) each in an ARRAY. */
struct sgrad_call_samples {
    const char *const *file;            /* NULL: there is an array */
    int64_t count;
    const void *array;
    const char *type;
    int rank;
    const int64_t *dim;
};
/* What RUN's network says of SAMPLES, or, where they are NULL, of its test set: then *RESULT has test_loss, …, and is to be
 * freed. RESULT, ANSWERS: NULL where they are not asked for. The weights are RUN/model.safetensors unless OPTIONS have init or
 * model. */
int sgrad_call_predict(const char *run, const char *options, const struct sgrad_call_samples *samples, char **result,
                       struct sgrad_answers *answers);

/* The ONNX file PATH of the same weights. */
int sgrad_call_export(const char *run, const char *options, const char *path);

#ifdef __cplusplus
}
#endif
#endif
