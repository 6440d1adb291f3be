/* 10-language-model.c: a small GPT learns a text byte by byte, and goes on from where you begin.
 *
 *     10-language-model FILE [BEGINNING]      any text of some 100 kB; a minute
 *     10-language-model FILE --print          the network and its tasks; runs nothing
 *
 * A sample is 64 bytes and the bytes after each; the network is asked for all of them at once, and attention sees to it that no
 * position knows what comes later. Its sizes are options of the model: "gpt:layers=2,heads=4,width=64,context=64". The loss is
 * what a byte costs, in nats: exp of it, the perplexity, is among how many bytes it hesitates.
 *
 * Next: 11-plan.c. docs/guides/language-models.md has the recipe for more; docs/develop/add-a-model.md how a network is added. */
#include "graphs/graphs.h"

#include <stdlib.h>
#include <string.h>

#define MODEL "gpt:layers=2,heads=4,width=64,context=64"

static void take(void *arg, int token) {
    (void)arg;
    putchar(token);
    fflush(stdout);
}

/* What the weights in FOLDER add to BEGINNING. */
static int go_on(const char *folder, const char *beginning) {
    struct sgrad_train_options options = sgrad_train_defaults();
    char *weights = sgrad_format("%s/model.safetensors", folder);
    int32_t *token = sgrad_xcalloc(strlen(beginning) + 1, sizeof *token);
    for (size_t i = 0; i < strlen(beginning); i++) token[i] = (unsigned char)beginning[i];
    options.model.name = MODEL;
    options.model.init = weights;
    printf("%s", beginning);
    int error = sgrad_sample(&options, &(struct sgrad_sample_options){ .prompt = token, .prompt_tokens = (int)strlen(beginning),
                                                                       .tokens = 200, .temperature = 0.8, .take = take });
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
    options.optimizer.no_decay_1d = true;         /* matrices alone decay */
    options.training.clip_norm = 1;
    options.optimizer.schedule = "cosine";
    options.output.print = !strcmp(word, "--print");

    struct sgrad_train_result result = { 0 };
    int error = sgrad_train(&options, &result);
    if (!error && result.rank == 0 && !options.output.print) {
        printf("%s: %s %.2f on the last tenth\n\n", result.folder, result.metric[1].title, result.test[1]);
        error = go_on(result.folder, word);
    }
    free(result.folder);
    free(data);
    return error != 0;
}
