/* inference.h: use of trained weights: evaluation, predictions, generated text, ONNX; and the contents of run directories. */
#ifndef SGRAD_GRAPHS_API_INFERENCE_H
#define SGRAD_GRAPHS_API_INFERENCE_H

#include "graphs/api/train.h"

#ifdef __cplusplus
extern "C" {
#endif

struct json_t;
struct sgrad_dataset;
struct sgrad_tokenizer;

/* ---- evaluation and prediction ------------------------------------------------------------------------------------ */

/* Computes the metrics of saved weights on the test split. Every rank must call it. Uses of OPTIONS: model, data (or the custom
 * ones), init (the weights), mesh, micro_batch, precision, tta, seed, skip_damaged, mean and standard deviation, image_size,
 * cpus, gpus, scheduler. Without mean and standard deviation, the input is normalized as in the run's config.json, which is in
 * the directory of the weights; without this file, by the statistics of the training split. SGRAD_EINVAL, SGRAD_ENAME,
 * SGRAD_ESHAPE: an option is invalid. SGRAD_EIO, SGRAD_EFORMAT: a file cannot be read, or is malformed. On an error, *RESULT is
 * unchanged. */
int sgrad_evaluate(const struct sgrad_train_options *options, struct sgrad_train_result *result);

/* The outputs of a network for samples, in the order of the samples, and the expected outputs. */
struct sgrad_predictions {
    int64_t samples, width;       /* numbers of a sample: logits, one per class (of each row, if it has several), or targets */
    float *logits;                    /* (samples,numbers): the outputs */
    int64_t label_rows;                 /* labels of a sample, one per row; 0: samples have no labels */
    int32_t *label;                 /* (samples,labels) */
    char **name;                    /* (samples): the name of each sample (sgrad_dataset_sample_name) */
    bool numbered;                  /* the names are numbers, because the samples have none in their data set */
    struct sgrad_shape shape;       /* of a sample's logits: (width); if it has several labels, a row for each: (H,W,classes)
                                       for the pixels of an image, (D,H,W,classes) for a volume, (T,classes) for a text */
};
/* As sgrad_evaluate; also returns the predictions, the same on every rank, unless PREDICTIONS is NULL. The caller must free them
 * (sgrad_predictions_free). On an error, *PREDICTIONS is unchanged. */
int sgrad_predict(const struct sgrad_train_options *options, struct sgrad_train_result *result,
                  struct sgrad_predictions *predictions);
void sgrad_predictions_free(struct sgrad_predictions *predictions);

/* Writes saved weights and their network to the ONNX file PATH (docs/guides/onnx.md) or, if PATH ends with ".safetensors", only
 * the weights. Adapters are merged into the weights. LIMIT: the weights are written to several files, PATH with
 * "-00001-of-0000N" before its ending, of at most this number of bytes, or one tensor, and an index, PATH with ".index.json";
 * to PATH, if one file is enough; 0: no limit. Rank 0 writes; every rank must call it. Uses the same OPTIONS as sgrad_evaluate;
 * the precision is always f32. SGRAD_EINVAL: a layer has no equivalent in ONNX. SGRAD_EIO: a file cannot be written. Other errors
 * are those of sgrad_evaluate. */
int sgrad_export(const struct sgrad_train_options *options, const char *path, int64_t limit);

/* Scores of a class: precision, recall (the accuracy of its samples), and F1, their harmonic mean. */
struct sgrad_class_score {
    double precision, recall, f1;
};
/* Returns the scores of a class with SAMPLES samples, PREDICTED samples that are predicted as it, and RIGHT in both numbers. A
 * score with the denominator 0 is 0. */
struct sgrad_class_score sgrad_class_score(double samples, double predicted, double right);
/* Returns a new JSON object: name, samples, accuracy (null: there are no samples), precision, recall, f1. The caller must release
 * it (json_decref). */
struct json_t *sgrad_class_score_json(const char *name, int64_t samples, const struct sgrad_class_score *score);

/* Statistics of predictions with one label per sample. */
enum { SGRAD_CONFIDENCES = 15 };
struct sgrad_classification {
    int classes;
    int64_t *confusion;             /* (classes,classes): number of samples of class i that are predicted as class j */
    int64_t *unsure, all_unsure;    /* (classes): samples of class i without finite probabilities; their sum over all classes.
                                       They count as wrong, and are neither in confusion nor in confidence */
    double top1, top5;              /* accuracy, 0 to 1; of several equal logits the first counts as the largest */
    /* Bin i: the samples with a largest probability (the confidence) from i/SGRAD_CONFIDENCES to (i+1)/SGRAD_CONFIDENCES. Their
     * number, their mean confidence, and their accuracy. calibration_error: the mean difference of the last two, weighted by the
     * number of samples (expected calibration error; Guo et al., On calibration of modern neural networks, 2017). */
    struct sgrad_confidence {
        int64_t count;
        double probability, right;
    } confidence[SGRAD_CONFIDENCES];
    double calibration_error;
};
/* Computes these statistics. The caller must free them (sgrad_classification_free). */
struct sgrad_classification sgrad_classify(const struct sgrad_predictions *predictions);
void sgrad_classification_free(struct sgrad_classification *classification);
/* Returns true if COUNT logits have finite probabilities; false if one of them is NaN or +infinity, or all are -infinity. */
bool sgrad_is_sure(const float *logit, int64_t count);
/* Writes the softmax of COUNT logits to PROBABILITY[COUNT]. */
void sgrad_probabilities(const float *logit, int64_t count, double *probability);

/* ---- language models ---------------------------------------------------------------------------------------------- */

struct sgrad_prompt {
    const int32_t *token;               /* at least one */
    int tokens;
};
struct sgrad_sample_options {
    const struct sgrad_prompt *prompt;  /* beginnings of texts, which are generated together */
    int prompts;
    long tokens;                        /* number of tokens to generate for each text */
    double temperature;                 /* 0: always the most probable token */
    int top_k;                          /* draw from the top_k most probable tokens; 0: from all */
    double top_p;                       /* draw from the most probable tokens that together have this probability; 0: from all */
    double repetition_penalty;          /* divides positive logits of tokens in the text, multiplies negative ones; 0: none */
    /* Called with each generated token of text TEXT, an index of .prompt. False: the text ends with this token. */
    bool (*take)(void *arg, int text, int token);
    void *arg;
    int words;                          /* size of the tokenizer's vocabulary, at most that of the network; 0: unknown */
};
/* Generates texts by a language model with the weights OPTIONS.init. Uses of OPTIONS: model, init, seed, precision, cpus, gpus,
 * scheduler. The random numbers of a text depend on the seed and on its index, not on the other prompts. SGRAD_EINVAL: a prompt
 * contains a token outside the network's vocabulary, that vocabulary is smaller than the tokenizer's, an option is out of range,
 * or the model is not a language model. SGRAD_ENAME: the model does not exist. SGRAD_ENAN: the logits are NaN. SGRAD_EIO,
 * SGRAD_EFORMAT: the weights cannot be read. */
int sgrad_sample(const struct sgrad_train_options *options, const struct sgrad_sample_options *how);

/* A generated text. */
struct sgrad_text {
    char *text;                         /* SIZE bytes, without the prompt and without the stop text; then a byte 0 */
    size_t size;
    long tokens;                        /* number of generated tokens */
    bool stopped;                       /* the text ended with the stop text */
    bool numbers;                       /* the text is a list of token numbers */
};
struct sgrad_text_options {
    const char *const *prompt;          /* beginnings of texts, none of which may be empty */
    int prompts;
    /* Converts text to tokens and back (tokenizer.h). NULL: a network of 256 tokens reads and writes bytes; the texts of other
     * networks are token numbers, separated by blanks. */
    const struct sgrad_tokenizer *tokenizer;
    const char *stop;                   /* a text ends before this text; NULL or "": after sampling.tokens tokens */
    struct sgrad_sample_options sampling;       /* its fields prompt, prompts, take, arg and words are ignored */
    /* Called after each token of text TEXT. TEXTS are all texts so far, without bytes that may be the beginning of the stop text.
     * False: the text ends with this token. May be NULL. */
    bool (*take)(void *arg, const struct sgrad_text *texts, int text);
    void *arg;
};
/* Generates texts, as sgrad_sample, with the same OPTIONS. If the tokenizer's template puts tokens before a text, they are put
 * before the prompts that do not begin with them. The text of a tokenizer is UTF-8; that of bytes may be invalid. *TEXTS: the
 * texts of all prompts; the caller must free them (sgrad_texts_free). Errors are those of sgrad_sample; SGRAD_EINVAL also if a
 * prompt is empty, or is not a list of token numbers where it must be one. On an error, *TEXTS is unchanged. */
int sgrad_sample_texts(const struct sgrad_train_options *options, const struct sgrad_text_options *how,
                       struct sgrad_text **texts);
void sgrad_texts_free(struct sgrad_text *texts, int count);     /* COUNT texts; NULL is allowed */
/* Returns a new JSON object with the fields prompt, text, tokens and stopped. Bytes that JSON cannot represent become U+FFFD. */
struct json_t *sgrad_text_json(const char *prompt, const struct sgrad_text *text);

/* ---- run directories ------------------------------------------------------------------------------------------------ */

/* Reads the options of the run in FOLDER from its config.json, including the changes by its continuations; out, resume and trace
 * are reset. The run's plug-ins are not opened; a warning lists those that are not loaded. The strings remain valid until the
 * program ends. SGRAD_EIO: there is no config.json. SGRAD_EFORMAT: it is malformed. On an error, *OPTIONS is unchanged. */
int sgrad_run_options(const char *folder, struct sgrad_train_options *options);

/* Continues a run. SGRAD_CONTINUE: FOLDER must contain one. SGRAD_CONTINUE_OR_BEGIN: a run is begun if FOLDER contains none;
 * FOLDER may then contain only the files that batch systems write there (slurm-*.out). SGRAD_BEGIN: does nothing. If the run is
 * continued, *OPTIONS become its options, as above, and *CONTINUED is true; otherwise *OPTIONS are unchanged. Options that depend
 * on the number of ranks, and do not suit the present number, are chosen again. Each rank reads config.json, so all ranks must
 * see FOLDER. SGRAD_EINVAL: there is no run to continue. SGRAD_EIO, SGRAD_EFORMAT: as above. */
enum sgrad_continuation { SGRAD_BEGIN, SGRAD_CONTINUE, SGRAD_CONTINUE_OR_BEGIN };
int sgrad_run_continue(const char *folder, enum sgrad_continuation how, struct sgrad_train_options *options, bool *continued);

/* Prepares the options of another run, INHERITED, for being overridden by options of GIVEN: those with a long name in the list
 * CHANGED, which ends with NULL. Resets dependent options: another optimizer uses its default learning rate, epochs replaces
 * steps, and without lora there are no lora_on and no adapter. */
void sgrad_run_options_yield(struct sgrad_train_options *inherited, const struct sgrad_train_options *given,
                             const char *const *changed);

/* The input that a run was trained on: its images, and the names of its classes. */
struct sgrad_run_input {
    struct sgrad_shape image;       /* (H,W,C); rank 0: the input is not images */
    float full_scale;               /* largest value of a pixel */
    int classes;                    /* 0: the data have no classes */
    char **class_name;              /* of each class: data.class_names of the run, or else the name in its data set */
};
/* Reads it from the config.json in FOLDER. The caller must free it (sgrad_run_input_free). SGRAD_EIO: there is no config.json.
 * SGRAD_EFORMAT: it is malformed, or from an old version. */
int sgrad_run_input(const char *folder, struct sgrad_run_input *input);
void sgrad_run_input_free(struct sgrad_run_input *input);

/* Opens a data set that describes the samples of the run in FOLDER with the options OPTIONS. For images with classes or numbers,
 * and for numeric features, it is built from config.json and contains no samples. Otherwise, or if FOLDER is NULL, it is the test
 * split of OPTIONS.data, which must exist. OPTIONS.data.attend is ignored: a sample is one document. The caller must close it
 * (sgrad_dataset_close). SGRAD_EINVAL: FOLDER and OPTIONS.data are NULL. Other errors are those of sgrad_run_input and
 * sgrad_run_open_samples. */
int sgrad_run_samples(const char *folder, const struct sgrad_train_options *options, struct sgrad_dataset **dataset);

/* Opens the test split of OPTIONS.data for the weights OPTIONS.init. Columns and classes are matched with those in the
 * config.json in the directory of the weights, and features are normalized as specified there (datasets.h: sgrad_origin). If
 * these are weights of a run, the test split of its own data is the one that it held out, and of other data without a test set,
 * all samples. EVERY: the targets may be missing, and all lines of a table are read. The caller must close the data set
 * (sgrad_dataset_close). SGRAD_EINVAL, SGRAD_ENAME: OPTIONS.data is NULL or invalid. SGRAD_EIO: a file cannot be read.
 * SGRAD_EFORMAT: columns or classes do not match, or a file is malformed. */
int sgrad_run_open_samples(const struct sgrad_train_options *options, bool every, struct sgrad_dataset **dataset);

/* Finds the run that trained the weights in OPTIONS: *FOLDER is the directory of the weights, if it contains the config.json of a
 * run; NULL: it does not, or on an error. The caller must free it. SGRAD_EIO, SGRAD_EFORMAT: config.json cannot be read. */
int sgrad_run_of_weights(const struct sgrad_train_options *options, char **folder);

/* A list of image files. Zeros: an empty list. */
struct sgrad_image_files {
    char **name;
    int count;
};
/* Adds the file PATH, or the images in the folder PATH and its subfolders, in the order of sgrad_walk. Rank 0 warns of other
 * files in it. SGRAD_EIO: the folder cannot be read, or contains no image. The caller must free the list
 * (sgrad_image_files_free), also after an error. */
int sgrad_image_files_add(struct sgrad_image_files *files, const char *path);
void sgrad_image_files_free(struct sgrad_image_files *files);

/* Opens COUNT image files as samples without labels for the weights in OPTIONS (sgrad_dataset_of_files). FILE and its strings
 * must outlive the data set. The shape of the images and the number of classes are those of the run in the folder RUN; if it is
 * NULL, of the run that trained the weights (sgrad_run_of_weights); without that run, of OPTIONS.data; if it is NULL, images are
 * squares of OPTIONS.data.image_size pixels in colour, and the classes are counted in the weights. The caller must close the data
 * set.
 * SGRAD_EINVAL: the network does not take images of 1 or 3 channels, or their size is unknown. SGRAD_EFORMAT: the classes of the
 * weights cannot be counted. Other errors are those of sgrad_run_input and sgrad_run_open_samples. */
int sgrad_run_open_images(const char *run, const struct sgrad_train_options *options, const char *const *file, int64_t count,
                          struct sgrad_dataset **dataset);

/* Sets the seed of OPTIONS to that of the run that trained its weights, if they are in a run directory, and data.split, unless it
 * is set. Synthetic data and held-out samples, which depend on them, are then the same as in the run. */
void sgrad_run_take_seed(struct sgrad_train_options *options);

char *sgrad_run_weights(const char *folder);    /* returns the path of the run's final weights; free it */

/* Returns the path of the tokenizer of the run in FOLDER, which was trained on DATA (its option data; NULL: unknown):
 * tokenizer.json or vocab.json in FOLDER, or else beside the token files of DATA. NULL: there is none. The caller must free
 * it. */
char *sgrad_run_tokenizer(const char *folder, const char *data);

#ifdef __cplusplus
}
#endif
#endif
