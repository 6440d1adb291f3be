/* plugin.h: plug-ins: custom operations, models, readers, augmentations, optimizers and collectives in a shared object.
 *
 * A *plug-in* is a shared object that defines one symbol, sgrad_plugin, which lists its records. It extends the library without a
 * change to it. At the end of a file that defines an operation and a network, write:
 *
 *     SGRAD_PLUGIN(.ops = (const struct sgrad_op *const[]){ &sgrad_swish_op, NULL },
 *                  .models = (const struct sgrad_model *const[]){ &swishnet, NULL });
 *
 *     cc -shared -fPIC swish.c -o libswish.so $(stargrad config --cflags)
 *     stargrad train --plugin ./libswish.so --model swishnet --data digits
 *
 * The records can then be used by name, like built-in ones. A plug-in is not linked with the library: it calls the functions of
 * the program that opens it. docs/develop/add-a-plug-in.md is a complete example. */
#ifndef SGRAD_GRAPHS_API_PLUGIN_H
#define SGRAD_GRAPHS_API_PLUGIN_H

#include "codelets/codelets.h"
#include "datasets/datasets.h"
#include "graphs/networks/networks.h"
#include "graphs/compiler/compiler.h"
#include "runtime/collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version identifies the meaning of the records, and their sizes identify their layout. Both must be the same as those that
 * the library was compiled with. */
#define SGRAD_PLUGIN_VERSION 2
#define SGRAD_RECORD_SIZES                                                                                                   \
    { sizeof(struct sgrad_op), sizeof(struct sgrad_model), sizeof(struct sgrad_reader), sizeof(struct sgrad_optimizer),       \
      sizeof(struct sgrad_collective), sizeof(struct sgrad_signature), sizeof(struct sgrad_args), sizeof(struct sgrad_step),  \
      sizeof(struct sgrad_hyper), sizeof(struct sgrad_dataset), sizeof(struct sgrad_augmentation) }
enum { SGRAD_RECORD_KINDS = 11 };

/* The records of a plug-in. They must exist until the program ends. Each list ends with NULL; NULL: no records. */
struct sgrad_plugin {
    int version;
    size_t size[SGRAD_RECORD_KINDS];
    const struct sgrad_op *const *ops;
    const struct sgrad_model *const *models;
    const struct sgrad_reader *const *readers;
    const struct sgrad_augmentation *const *augmentations;
    const struct sgrad_optimizer *const *optimizers;
    const struct sgrad_collective *const *collectives;
};
extern const struct sgrad_plugin sgrad_plugin __attribute__((visibility("default")));      /* defined by the plug-in */
/* Defines sgrad_plugin, with the given lists. */
#define SGRAD_PLUGIN(...) \
    const struct sgrad_plugin sgrad_plugin = { .version = SGRAD_PLUGIN_VERSION, .size = SGRAD_RECORD_SIZES, __VA_ARGS__ }

/* Opens the plug-in in the file PATH, and adds its records to the lists of the library. Call it before any other function of
 * the library. Opening a file again does nothing. On an error, nothing is added. SGRAD_EIO: the file does not exist or cannot be
 * loaded. SGRAD_EFORMAT: it is not a plug-in, it was compiled with other headers, or a record lacks a required member.
 * SGRAD_ENAME: a record of this name exists. */
int sgrad_plugin_open(const char *path);

/* Absolute paths of the opened plug-ins, in the order of opening; ends with NULL. */
extern const char *const *sgrad_plugins;

#ifdef __cplusplus
}
#endif
#endif
