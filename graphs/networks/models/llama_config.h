/* llama_config.h: reads Hugging Face's configuration of a model of the Llama family. Private to llama.c. */
#ifndef SGRAD_GRAPHS_NETWORKS_MODELS_LLAMA_CONFIG_H
#define SGRAD_GRAPHS_NETWORKS_MODELS_LLAMA_CONFIG_H

#include "graphs/networks/networks.h"

/* Sets the VALUEs of llama's OPTIONS as FOLDER/config.json specifies. Logs errors: SGRAD_EIO; SGRAD_EFORMAT: an invalid file;
 * SGRAD_EINVAL: a feature that is not supported. */
int sgrad__llama_configure(const char *folder, const struct sgrad_model_option *options, double *value);

#endif
