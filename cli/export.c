/* export.c: stargrad export: writes the network of a run to an ONNX file, or its weights to a safetensors file. */
#include "cli/cli.h"
#include "graphs/api/inference.h"
#include "datasets/datasets.h"

#include <stdlib.h>
#include <string.h>

static const struct sgrad__option options[] = {
    { "weights", "FILE", "weights (safetensors) [RUN-DIR/model.safetensors]", &sgrad__text, SGRAD__FIELD(model.init) },
    { "shard-size", "SIZE", "write several safetensors files of at most SIZE, such as 5G, and their index", &sgrad__bytes,
      SGRAD__PLACE(export.shard_size), 1, 1e18 },
    SGRAD__PLUGIN_OPTION,
    { 0 },
};

static bool is_in_run(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? sgrad_format("%.*s", (int)(slash - path) + 1, path) : sgrad_format(".");
    const bool is = sgrad_run_exists(folder);
    free(folder);
    return is;
}

static int run(const struct sgrad__request *request) {
    struct sgrad_train_options o = request->train;
    const char *const *word = (const char *const *)request->words;
    struct sgrad_dataset *dataset = NULL;
    const char *end = word[1] ? strrchr(word[1], '.') : NULL;
    if (!word[1] || word[2]) return sgrad__wrong("export: give the folder of a run and one FILE.onnx or FILE.safetensors");
    if (!end || (strcmp(end, ".onnx") && strcmp(end, ".safetensors")))
        return sgrad__wrong("export: FILE must end with .onnx or .safetensors, not '%s'", word[1]);
    if (strcmp(end, ".onnx") && is_in_run(word[1]))
        return sgrad__wrong("export: '%s' is in the folder of a run, whose weights it could replace; give another folder",
                            word[1]);
    if (!strcmp(end, ".onnx") && request->export.shard_size)
        return sgrad__wrong("export: --shard-size requires FILE.safetensors; an ONNX network is one file");
    sgrad__weights_of_run(request, &o);
    int error = sgrad_run_samples(request->argument, &o, &dataset);
    o.data.dataset[SGRAD_TEST] = dataset;
    if (!error) error = sgrad_export(&o, word[1], request->export.shard_size);
    if (!error) printf("%s: %s, with the weights from %s\n", word[1], o.model.name, o.model.init);
    sgrad_dataset_close(dataset);
    return sgrad__status(error);
}

const struct sgrad__command sgrad__export_command = {
    .name = "export",
    .summary = "export a trained network to ONNX, or its weights to safetensors",
    .argument = "RUN-DIR FILE.onnx|FILE.safetensors",
    .repeats = true,
    .of_run = true,
    .options = options,
    .run = run,
    .notes = "The ONNX network takes samples as they are stored in the data set, and normalises them itself. Images are bytes in "
             "the shape (N,C,H,W), with any N. The output is logits. Batch norm uses its running statistics; dropout is "
             "disabled. See docs/guides/onnx.md. A safetensors file has only the weights, with PyTorch's names; low-rank "
             "adapters are merged into them.",
};
