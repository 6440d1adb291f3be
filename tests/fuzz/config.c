/* Any bytes as the config.json of a run that is resumed or evaluated, and as the identity in a checkpoint. */
#include "datasets/datasets.h"
#include "graphs/api/inference.h"
#include "graphs/rundir/rundir.h"
#include "tests/fuzz/folder.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { CHANNELS = 3 };
    const struct sgrad_train_options options = { .training.batch = 32, .training.seed = 1, .optimizer.name = "sgd" };
    const struct sgrad_dataset dataset = { .count = 100, .classes = 10 };
    const struct sgrad__config config = { .options = &options, .model = "convnet", .dataset = &dataset, .fingerprint = 1 };
    const char *run = folder_with("config.json", data, size);
    double mean[CHANNELS], deviation[CHANNELS];
    bool found;
    struct sgrad_train_options again;
    struct sgrad_run_input input;
    sgrad__config_check(run, &config);
    sgrad_run_options(run, &again);
    if (!sgrad_run_input(run, &input)) {
        for (int i = 0; i < input.classes; i++) free(input.class_name[i]);
        free(input.class_name);
    }
    if (!sgrad__config_input(run, CHANNELS, mean, deviation, &found) && found) /* as floats they scale pixels */
        for (int i = 0; i < CHANNELS; i++)
            if (!isfinite((float)mean[i]) || !isfinite(1 / (float)deviation[i])) __builtin_trap();

    char *text = strndup((const char *)data, size), *identity = sgrad__config_identity(&config);
    if (!text) abort();
    sgrad__config_same("fuzz", text, identity);
    free(identity);
    free(text);
    return 0;
}
