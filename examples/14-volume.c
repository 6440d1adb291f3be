/* 14-volume.c: a network of one's own learns to see the bright cells of a stack, and is run over it patch by patch.
 *
 *     14-volume [FOLDER]      makes FOLDER (volume-example) with a stack, its labels, a run, and the predictions of its voxels
 *
 * The stack is made here: bright balls in noise. Volumes are files of voxels (C,Z,Y,X), opened, read and written window by window
 * (volumes/volumes.h), so that they may be larger than memory. A network that says classes of voxels is any whose last layer,
 * "out", has a channel for each, and whose output is as large as its input. Group norm makes no patch depend on others.
 * Segmenting shows the network overlapping patches and blends what it says.
 *
 * Next: docs/guides/volumes.md. The command does the same to stacks of your own: stargrad train --data volume:DIR, stargrad
 * segment. And docs/performance/record.md, where the whole course leads. */
#include "graphs/graphs.h"
#include "volumes/volumes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { Z = 16, Y = 96, X = 96, VOXELS = Z * Y * X, CELL = 24 };

/* A convolution that looks around in the slice, and one that looks in the slices beside it, too. */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, conv3d, "conv1", (x), .channels = 8, .kernel = 5, .depth = 1, .padding = 2);
    x = sgrad_layer(graph, group_norm, "norm1", (x), .groups = 2, .relu = true);
    x = sgrad_layer(graph, conv3d, "conv2", (x), .channels = 8, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, group_norm, "norm2", (x), .groups = 2, .relu = true);
    return sgrad_layer(graph, conv3d, "out", (x), .channels = classes, .kernel = 1, .bias = true);
}
static const struct sgrad_model model = { .name = "cells", .volumes = true, .build = build };

/* Balls on a grid, in noise brighter than they are: one voxel tells little, its neighbours all. */
static int write_stack(const char *folder, const char *part, unsigned seed) {
    static uint8_t image[VOXELS], label[VOXELS];
    const struct sgrad_box all = { { 0 }, { 1, Z, Y, X } };
    const int64_t chunk[] = { 1, 8, 48, 48 };
    uint8_t *const voxels[] = { image, label };
    for (int i = 0; i < VOXELS; i++) {
        const int z = i / (Y * X) % Z - Z / 2, y = i / X % Y % CELL - CELL / 2, x = i % X % CELL - CELL / 2;
        seed = seed * 1664525 + 1013904223;
        label[i] = 4 * z * z + y * y + x * x < 80;
        image[i] = (uint8_t)(label[i] * 60 + (seed >> 24) / 2);
    }
    for (int i = 0; i < 2; i++) {
        struct sgrad_volume *v;
        char *path = sgrad_format("%s/%s/%s.zarr", folder, part, i ? "label" : "image"), *slash = strrchr(path, '/');
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
        int error = sgrad_volume_create(path, SGRAD_VOXEL_U8, all.size, chunk, &v);
        if (!error) error = sgrad_volume_write(v, &all, SGRAD_VOXEL_U8, voxels[i]);
        if (!error) error = sgrad_volume_finish(v);
        if (!error) sgrad_volume_close(v);
        free(path);
        SGRAD_TRY(error);
    }
    return 0;
}

static int train(const char *folder, struct sgrad_train_result *result) {
    struct sgrad_train_options options = sgrad_train_defaults();
    char *data = sgrad_format("volume:%s,8x48x48", folder), *out = sgrad_format("%s/run", folder);
    options.model.custom = &model;
    options.data.name = data;
    options.output.folder = out;
    options.training.batch = 4;
    options.training.steps = 60;
    options.optimizer.name = "adam";
    options.optimizer.lr = 0.01;
    int error = sgrad_train(&options, result);
    free(data);
    free(out);
    return error;
}

static int segment(const char *folder) {
    char *weights = sgrad_format("%s/run/model.safetensors", folder), *in = sgrad_format("%s/val/image.zarr", folder);
    char *out = sgrad_format("%s/cells.zarr", folder);
    struct sgrad_segment_result result;
    int error = sgrad_segment(&(struct sgrad_segment_options){ .custom_model = &model, .weights = weights, .in = in, .out = out,
                                                               .patch = { 8, 48, 48 }, .overlap = { 4, 16, 16 }, .memory = 1,
                                                               .flips = true },
                              &result);
    if (!error)
        printf("%s: %lld voxels, each shown %.1f times; open it with zarr, or napari\n", out, (long long)result.voxels,
               result.shown);
    free(weights);
    free(in);
    free(out);
    return error;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "volume-example";
    struct sgrad_train_result result = { 0 };
    mkdir(folder, 0777);
    int error = write_stack(folder, "train", 1);
    if (!error) error = write_stack(folder, "val", 2);
    if (!error) error = train(folder, &result);
    free(result.folder);
    if (!error) error = segment(folder);
    return error != 0;
}
