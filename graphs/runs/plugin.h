/* plugin.h: code of one's own without a change to this library: records in a shared object, beside those that are built in.
 *
 * A *plug-in* is a shared object that defines one symbol, which names its records. With this at the end of a file that holds an
 * operation and a network,
 *
 *     SGRAD_PLUGIN(.ops = (const struct sgrad_op *const[]){ &sgrad_swish_op, NULL },
 *                  .models = (const struct sgrad_model *const[]){ &swishnet, NULL });
 *
 *     cc -shared -fPIC swish.c -o libswish.so $(pkg-config --cflags stargrad)
 *     stargrad train --plugin ./libswish.so --model swishnet --data digits
 *
 * whoever looks for a record finds it. Functions of the library are the program's own: nothing is linked. docs/add-a-plug-in.md
 * shows the whole way. */
#ifndef SGRAD_PLUGIN_H
#define SGRAD_PLUGIN_H

#include "codelets/codelets.h"
#include "datasets/datasets.h"
#include "graphs/networks/networks.h"
#include "graphs/programs/programs.h"
#include "runtime/collectives.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of what the records mean; what they look like shows in their sizes. Both have to be as the library was compiled with. */
#define SGRAD_PLUGIN_VERSION 2
#define SGRAD_RECORD_SIZES                                                                                                   \
    { sizeof(struct sgrad_op), sizeof(struct sgrad_model), sizeof(struct sgrad_reader), sizeof(struct sgrad_optimizer),       \
      sizeof(struct sgrad_collective), sizeof(struct sgrad_signature), sizeof(struct sgrad_args), sizeof(struct sgrad_step),  \
      sizeof(struct sgrad_hyper), sizeof(struct sgrad_dataset), sizeof(struct sgrad_augmentation) }
enum { SGRAD_RECORD_KINDS = 11 };

/* Each list ends with NULL; NULL: it has none of these. */
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
extern const struct sgrad_plugin sgrad_plugin __attribute__((visibility("default")));      /* a plug-in's */
#define SGRAD_PLUGIN(...) \
    const struct sgrad_plugin sgrad_plugin = { .version = SGRAD_PLUGIN_VERSION, .size = SGRAD_RECORD_SIZES, __VA_ARGS__ }

/* Adds the records of the plug-in in the file PATH, before anything is opened; once, however often it is asked for. SGRAD_EIO: no
 * such file, or none that can be loaded; SGRAD_EFORMAT: it is no plug-in, or one of other headers, or a record lacks what it must
 * have; SGRAD_ENAME: a record of that name is there. On an error nothing is added. */
int sgrad_plugin_open(const char *path);

/* The files of all that were added, in their order; ends with NULL. */
extern const char *const *sgrad_plugins;

#ifdef __cplusplus
}
#endif
#endif
