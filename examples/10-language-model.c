/* 10-language-model.c: a small GPT that learns a text byte by byte, then continues a text of yours.
 *
 *     10-language-model FILE [BEGINNING]      trains on any text of about 100 kB, in about a minute, then continues BEGINNING
 *     10-language-model FILE --print          prints the network and its tasks, without training
 *
 * A sample is 64 bytes; the target of each byte is the next one. The network predicts all 64 targets at once. Causal attention
 * hides later bytes from each position. The sizes are options of the model: "gpt:layers=2,heads=4,width=64,context=64". The loss
 * is the mean cross entropy per byte, in nats. Its exponential is the perplexity: the number of equally probable bytes that
 * would be as hard to predict.
 *
 * Next: 11-plan.c. docs/guides/language-models.md describes larger models. docs/develop/add-a-model.md adds a network. */
#include "graphs/graphs.h"

#include <stdlib.h>
#include <string.h>

#define MODEL "gpt:layers=2,heads=4,width=64,context=64"

static bool take(void *arg, int text, int token) {
    (void)arg, (void)text;
    putchar(token);
    fflush(stdout);
    return true;
}

/* Prints BEGINNING and the bytes that the model in FOLDER adds to it. */
static int go_on(const char *folder, const char *beginning) {
    struct sgrad_train_options options = sgrad_train_defaults();
    char *weights = sgrad_format("%s/model.safetensors", folder);
    int32_t *token = sgrad_xcalloc(strlen(beginning) + 1, sizeof *token);
    for (size_t i = 0; i < strlen(beginning); i++) token[i] = (unsigned char)beginning[i];
    options.model.name = MODEL;
    options.model.init = weights;
    printf("%s", beginning);
    const struct sgrad_prompt prompt = { token, (int)strlen(beginning) };
    int error = sgrad_sample(&options, &(struct sgrad_sample_options){ .prompt = &prompt, .prompts = 1, .tokens = 200,
                                                                       .temperature = 0.8, .take = take });
    putchar('\n');
    free(token);
    free(weights);
    return error;
}

int main(int argc, char **argv) {
    if (argc < 2) return fprintf(stderr, "usage: 10-language-model FILE [BEGINNING|--print]\n"), 2;
    const char *word = argc > 2 ? argv[2] : "\n";
    char *data = sgrad_format("text:%s,64", argv[1]);
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.name = MODEL;
    options.data.name = data;
    options.training.steps = 600;
    options.training.batch = 16;
    options.optimizer.name = "adamw";
    options.optimizer.lr = 0.003;
    options.optimizer.beta2 = 0.99;
    options.optimizer.weight_decay = 0.1;
    options.optimizer.no_decay_1d = true;         /* only matrices decay */
    options.training.clip_norm = 1;
    options.optimizer.schedule = "cosine";
    options.output.print = !strcmp(word, "--print");

    struct sgrad_train_result result = { 0 };
    int error = sgrad_train(&options, &result);
    if (!error && result.rank == 0 && !options.output.print) {
        printf("%s: %s %.2f on the last tenth of the text\n\n", result.folder, result.metric[1].title, result.test[1]);
        error = go_on(result.folder, word);
    }
    free(result.folder);
    free(data);
    return error != 0;
}
