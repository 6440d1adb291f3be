/* 14-volume.c: your own network learns to find the bright cells in a stack of slices, then segments a stack patch by patch.
 *
 *     14-volume [FOLDER]      creates FOLDER (default: volume-example) with two stacks, their labels, a run and the predictions
 *
 * The program generates the stacks: bright balls in noise. A volume is a file of voxels (C,Z,Y,X). It can be larger than memory:
 * programs open it, then read and write boxes of it (volumes/volumes.h).
 *
 * A network predicts classes of voxels if its last layer, "out", has a channel for each class and its output is as large as its
 * input. With group norm, the prediction of a patch does not depend on other patches. Segmentation runs the network on
 * overlapping patches and blends the predictions.
 *
 * Next: docs/guides/volumes.md. Commands for your own stacks: stargrad train --data volume:DIR, stargrad segment. The course ends
 * with docs/performance/record.md. */
#include "graphs/graphs.h"
#include "volumes/volumes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { Z = 16, Y = 96, X = 96, VOXELS = Z * Y * X, CELL = 24 };

/* A convolution within a slice, and one that also reads the adjacent slices. */
static int build(struct sgrad_graph *graph, int x, int classes) {
    x = sgrad_layer(graph, conv3d, "conv1", (x), .channels = 8, .kernel = 5, .depth = 1, .padding = 2);
    x = sgrad_layer(graph, group_norm, "norm1", (x), .groups = 2, .relu = true);
    x = sgrad_layer(graph, conv3d, "conv2", (x), .channels = 8, .kernel = 3, .padding = 1);
    x = sgrad_layer(graph, group_norm, "norm2", (x), .groups = 2, .relu = true);
    return sgrad_layer(graph, conv3d, "out", (x), .channels = classes, .kernel = 1, .bias = true);
}
static const struct sgrad_model model = { .name = "cells", .volumes = true, .build = build };

/* Writes balls on a grid, in noise stronger than their brightness. The class of a voxel depends on its neighbours. */
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
        printf("%s: %lld voxels, each processed %.1f times; open it with zarr or napari\n", out, (long long)result.voxels,
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
