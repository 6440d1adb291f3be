/* tune.c: fine-tuning: parameters that are initialized or trained differently from the others. */
#include "graphs/train/setup.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number after the "=" of the pattern at LIST; negative: it is missing, or not between 0 and 1e6. */
static double number_at(const char *list) {
    const char *equals = list + strcspn(list, "=,");
    char *end = NULL;
    const bool begins = *equals == '=' && (isdigit((unsigned char)equals[1]) || equals[1] == '.');
    const double x = begins ? strtod(equals + 1, &end) : -1;
    return x >= 0 && x <= 1e6 && (!*end || *end == ',') ? x : -1;
}

double sgrad__number_of(const char *list, const char *parameter, double otherwise) {
    const char *at = sgrad__find_listed(list, parameter);
    return at ? number_at(at) : otherwise;
}

/* Checks that LIST consists of patterns that match parameters, each with a number; ZERO: the number may be 0. FORM: an example
 * for the error message. */
static int check_numbers(const struct sgrad__run *run, const char *option, const char *list, bool zero, const char *form) {
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (number_at(at) < 0 || (number_at(at) == 0 && !zero))
            return sgrad_log_error(SGRAD_EINVAL, "--%s '%s' is invalid; give %s", option, list, form);
    return sgrad__check_listed(run->graph, option, list);
}

/* ---- parameters with another optimizer ---- */

/* Returns the optimizer at LIST, after the "=" of the pattern; NULL: it is unknown, which is logged. */
static const struct sgrad_optimizer *optimizer_at(const char *list) {
    const char *is = list + strcspn(list, "=") + 1;
    char *name = sgrad_format("%.*s", (int)strcspn(is, ","), is);
    const struct sgrad_optimizer *found = sgrad_registry_find("optimizer", name, sgrad_optimizers);
    free(name);
    return found;
}

/* Sets the optimizer of each parameter. One that processes layers (K-FAC) must train all of them, and cannot be combined with
 * others. */
static int set_optimizers(struct sgrad__run *run) {
    const char *list = run->options.optimizer.of;
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (at[strcspn(at, "=,")] != '=')
            return sgrad_log_error(
                SGRAD_EINVAL, "--optimizer-of '%s' is invalid; give patterns with an optimizer each, such as *.bias=adamw,fc=sgd",
                list);
    SGRAD_TRY(sgrad__check_listed(run->graph, "optimizer-of", list));
    for (int i = 0; i < run->graph->parameter_count && list; i++) {
        const char *at = sgrad__find_listed(list, run->graph->parameter[i].name);
        if (!run->training->update[i].optimizer || !at) continue;
        const struct sgrad_optimizer *is = optimizer_at(at);
        if (!is) return SGRAD_ENAME;
        SGRAD_TRY(sgrad__run_check_optimizer(run, is, "optimizer-of"));
        if (sgrad__layer_hooks_of(is) || run->training->hooks)
            return sgrad_log_error(SGRAD_EINVAL, "--optimizer-of '%s': optimizer %s must train all layers or none", list,
                                   run->training->hooks ? run->update.optimizer->name : is->name);
        run->training->update[i].optimizer = is;
    }
    return 0;
}

/* ---- parameters that are trained for a limited number of epochs ---- */

static long last_step_of(const struct sgrad__run *run, const char *parameter) {
    const double epochs = sgrad__number_of(run->options.training.freeze_after, parameter, 0);
    const long steps = (long)(epochs * (double)run->steps_per_epoch + 0.5);
    return epochs > 0 && steps < 1 ? 1 : steps;
}

void sgrad__run_assign_updates(struct sgrad__run *run, const struct sgrad_program_options *how) {
    bool *wanted = sgrad_xcalloc((size_t)run->graph->parameter_count, sizeof *wanted);
    for (int i = 0; i < run->graph->parameter_count && run->context->ranks > 1; i++) {
        const struct sgrad__parameter *p = &run->graph->parameter[i];
        const struct sgrad_optimizer *is = run->training->update[i].optimizer;
        if (!is || p->frozen || p->cuts || sgrad__layer_hooks_of(is)) continue;
        wanted[i] = run->parallel.strategy->shards_optimizer ? is->needs_full_tensor
                                                             : run->parallel.strategy->balances_updates && is->expensive;
    }
    sgrad__assign_updates(run->training, how, wanted);
    free(wanted);
}

void sgrad__run_time_freezes(struct sgrad__run *run) {
    for (int i = 0; i < run->graph->parameter_count; i++)
        if (!run->graph->parameter[i].state) run->training->update[i].until = last_step_of(run, run->graph->parameter[i].name);
}

long sgrad__run_next_freeze(const struct sgrad__run *run, long done) {
    long next = 0;
    for (int i = 0; i < run->graph->parameter_count && run->options.training.freeze_after; i++) {
        const long until = run->training->update[i].until;
        if (until > done && (!next || until < next)) next = until;
    }
    return next;
}

bool sgrad__run_freezes(const struct sgrad__run *run, long done) {
    for (int i = 0; i < run->graph->parameter_count; i++) {
        const long until = run->training->update[i].until;
        if (until && until <= done && !run->graph->parameter[i].frozen) return true;
    }
    return false;
}

/* Only the ranks that compute a gradient know that it ends. The option is therefore not available if other ranks apply the
 * gradient, or if the optimizer stores data of layers. */
static int check_freeze_after(const struct sgrad__run *run) {
    if (!run->options.training.freeze_after) return 0;
    if (strcmp(run->parallel.strategy->name, "sync"))
        return sgrad_log_error(SGRAD_EINVAL, "--freeze-after requires --strategy sync, not %s", run->parallel.strategy->name);
    if (run->training->hooks)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--freeze-after cannot be combined with --optimizer %s, which stores data for each layer",
                               run->update.optimizer->name);
    return 0;
}

int sgrad__run_fine_tune(struct sgrad__run *run) {
    const struct sgrad_train_options *o = &run->options;
    if (o->model.init_skip && !o->model.init && !run->graph->imported)
        return sgrad_log_error(SGRAD_EINVAL, "--init-skip requires --init FILE");
    SGRAD_TRY(sgrad__run_check_lora(run));
    SGRAD_TRY(check_freeze_after(run));
    SGRAD_TRY(set_optimizers(run));
    SGRAD_TRY(sgrad__check_listed(run->graph, "init-skip", o->model.init_skip));
    SGRAD_TRY(sgrad__check_listed(run->graph, "freeze", o->training.freeze));
    SGRAD_TRY(
        check_numbers(run, "lr-of", o->optimizer.lr_of, false, "patterns with multipliers above 0, such as fc=10,layer1.*=.1"));
    SGRAD_TRY(check_numbers(run, "weight-decay-of", o->optimizer.weight_decay_of, true,
                            "patterns with multipliers of 0 or more, such as *.bias=0,fc=.5"));
    SGRAD_TRY(check_numbers(run, "freeze-after", o->training.freeze_after, false,
                            "patterns with numbers of epochs above 0, such as conv1=3,bn1=.5"));
    sgrad__run_time_freezes(run);
    sgrad__training_freeze(run->training, o->training.freeze, 0);
    for (int i = 0; i < run->graph->parameter_count; i++)
        if (!run->graph->parameter[i].state && !run->graph->parameter[i].frozen && !run->training->update[i].until) return 0;
    if (o->training.freeze_after)
        return sgrad_log_error(SGRAD_EINVAL, "--freeze-after '%s' leaves no parameter to train", o->training.freeze_after);
    return sgrad_log_error(SGRAD_EINVAL, "--freeze '%s' leaves no parameter to train", o->training.freeze);
}

void sgrad__run_print_tuning(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_train_options *o = &run->options;
    const struct sgrad_graph *g = run->graph;
    int left = 0, frozen = 0, fixed = 0, trained = 0;
    for (int i = 0; i < g->parameter_count; i++) {
        left += g->parameter[i].adapter || sgrad__is_listed(o->model.init_skip, g->parameter[i].name);
        frozen += g->parameter[i].frozen;
        fixed += g->parameter[i].fixed;
        trained += !g->parameter[i].state;
    }
    const char *file = g->imported ? g->file : NULL;
    if (o->model.init) file = o->model.init;
    if (file)
        fprintf(to, "init       %s: %d %s loaded", file, g->parameter_count - left,
                sgrad_plural(g->parameter_count - left, "tensor", "tensors"));
    for (int i = 0, printed = 0; i < g->parameter_count && left && !g->lora.rank; i++)
        if (sgrad__is_listed(o->model.init_skip, g->parameter[i].name) && printed++ < 6)
            fprintf(to, printed == 1 ? "; random: %s" : ", %s", g->parameter[i].name);
    if (left > 6 && !g->lora.rank) fprintf(to, " and %d more", left - 6);
    if (file) fputc('\n', to);
    sgrad__run_print_lora(run, to);
    if (frozen && !g->lora.rank)
        fprintf(to, "frozen     %d of %d parameters: %s%s%s\n", frozen, trained, fixed ? "by the network" : "",
                fixed && o->training.freeze ? ", and " : "", o->training.freeze ? o->training.freeze : "");
    if (o->training.freeze_after) fprintf(to, "frozen     later (PATTERN=EPOCHS): %s\n", o->training.freeze_after);
    if (o->optimizer.of) fprintf(to, "optimizer  for some parameters: %s\n", o->optimizer.of);
    if (o->optimizer.lr_of) fprintf(to, "rates      learning-rate multipliers: %s\n", o->optimizer.lr_of);
    if (o->optimizer.weight_decay_of) fprintf(to, "decay      weight-decay multipliers: %s\n", o->optimizer.weight_decay_of);
}
