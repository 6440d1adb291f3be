/* lora.c: the options of low-rank adapters: --lora, --lora-on and --adapter; loading and saving adapters. */
#include "codelets/ops/router.h"
#include "graphs/networks/layers/layers.h"
#include "graphs/train/setup.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Query and value of attention, or the layer that computes them with the keys. The weight of this layer in torchvision's vision
 * transformers, self_attention.in_proj_weight, has no adapter (networks/adapters.c); of these, the layers of the MLP. */
#define DEFAULT_ON "*.q_proj,*.v_proj,*.c_attn,*.qkv,*.mlp.0,*.mlp.3"

/* Sets rank and alpha from TEXT, RANK or RANK:ALPHA. Returns false if it is invalid. */
static bool parse(const char *text, struct sgrad__lora *lora) {
    char *end = NULL;
    const long rank = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (rank < 1 || rank > SGRAD__LORA_RANK) return false;
    lora->rank = (int)rank;
    lora->alpha = (double)rank;
    if (!*end) return true;
    if (*end != ':' || !(isdigit((unsigned char)end[1]) || end[1] == '.')) return false;
    lora->alpha = strtod(end + 1, &end);
    return !*end && lora->alpha > 0 && lora->alpha <= 1e6;
}

int sgrad__run_complete_lora(struct sgrad__run *run) {
    struct sgrad_model_options *model = &run->options.model;
    struct sgrad__lora lora;
    if (model->adapter && (!model->lora || !model->lora_on)) {
        struct sgrad__adapter adapter;
        SGRAD_TRY(sgrad__adapter_read(model->adapter, &adapter));
        if (!model->lora) model->lora = run->lora[0] = sgrad_format("%d:%.15g", adapter.rank, adapter.alpha);
        if (!model->lora_on) model->lora_on = run->lora[1] = sgrad_format("%s", adapter.on);
        sgrad__adapter_close(&adapter);
    }
    if (!model->lora && model->lora_on) return sgrad_log_error(SGRAD_EINVAL, "--lora-on requires --lora RANK");
    if (!model->lora || parse(model->lora, &lora)) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "--lora '%s' is invalid; give RANK or RANK:ALPHA, such as 8:16", model->lora);
}

int sgrad__run_adapt(struct sgrad__run *run) {
    const struct sgrad_model_options *model = &run->options.model;
    struct sgrad__lora lora = { .on = (char *)(model->lora_on ? model->lora_on : DEFAULT_ON) };
    if (!model->lora || !run->data.train) return 0;
    if (!parse(model->lora, &lora)) return SGRAD_EINVAL;
    const struct sgrad_mesh *mesh = &run->parallel.mesh;
    for (const struct sgrad_axis *axis = mesh->axis; axis < mesh->axis + mesh->axes; axis++)
        if (axis->ranks > 1 && strcmp(axis->name, SGRAD__DATA) && strcmp(axis->name, SGRAD__PIPE) &&
            strcmp(axis->name, SGRAD__CONTEXT))
            return sgrad_log_error(SGRAD_EINVAL, "--lora supports meshes with axes data, pipe and context only, not axis %s",
                                   axis->name);
    sgrad__graph_adapt(run->graph, &lora);
    return 0;
}

int sgrad__run_check_lora(const struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    if (!run->graph->lora.rank) return 0;
    if (!o->model.init && !run->graph->imported && !SGRAD_SIMULATED)
        return sgrad_log_error(SGRAD_EINVAL, "--lora requires --init FILE, the weights that are adapted");
    if (o->model.init_skip)
        return sgrad_log_error(SGRAD_EINVAL, "--init-skip cannot be combined with --lora, which trains only the adapters: the "
                                             "parameters '%s' would keep their random values; first train these without --lora, "
                                             "and adapt the resulting weights", o->model.init_skip);
    for (int n = 0; n < run->graph->node_count; n++)
        if (run->graph->node[n].op == &sgrad_router_op && run->graph->node[n].is.s[0].shape.rank)
            return sgrad_log_error(SGRAD_EINVAL, "--lora trains only the adapters, but bias_rate changes the biases of routers, "
                                                 "which an adapter does not contain; use bias_rate=0");
    return sgrad__check_adapters(run->graph, o->model.lora_on);
}

int sgrad__run_load_adapter(struct sgrad__run *run) {
    const struct sgrad__lora *lora = &run->graph->lora;
    struct sgrad__adapter adapter;
    if (!run->options.model.adapter) return 0;
    SGRAD_TRY(sgrad__adapter_read(run->options.model.adapter, &adapter));
    int error = 0;
    if (adapter.rank != lora->rank || (float)adapter.alpha != (float)lora->alpha)
        error = sgrad_log_error(SGRAD_EINVAL, "--lora %s does not suit the adapter in %s, which has --lora %d:%.15g",
                                run->options.model.lora, run->options.model.adapter, adapter.rank, adapter.alpha);
    if (!error) error = sgrad__adapter_load(run->graph, &adapter);
    sgrad__adapter_close(&adapter);
    return error;
}

int sgrad__run_save_weights(const struct sgrad__run *run, struct sgrad__items items, struct sgrad_tensor *const *value,
                            const char *path, const char *const *metadata, int metadata_count) {
    struct sgrad__weights copy;
    SGRAD_TRY(sgrad__weights_copy(items, value, &copy));
    char *folder = sgrad_format("%.*s", (int)(strrchr(path, '/') - path), path);
    int error = run->graph->lora.rank ? sgrad__adapter_write(run->graph, &copy, folder, run->options.model.init) : 0;
    sgrad__weights_merge(&copy);
    if (!error) error = sgrad__weights_write(&copy, path, metadata, metadata_count);
    sgrad__weights_free(&copy);
    free(folder);
    return error;
}

void sgrad__run_print_lora(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_graph *graph = run->graph;
    int64_t trained = 0;
    int layers;
    if (!graph->lora.rank) return;
    for (int i = 0; i < graph->parameter_count; i++)
        if (graph->parameter[i].adapter) trained += sgrad_shape_count(&graph->parameter[i].is.shape);
    const int adapters = sgrad__adapters_count(graph, &layers);
    fprintf(to, "lora       rank %d, alpha %g, on %d of %d linear layers: %lld parameters are trained\n", graph->lora.rank,
            graph->lora.alpha, adapters, layers, (long long)trained);
}
