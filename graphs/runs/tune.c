/* tune.c: fine-tuning: parameters that do not begin, or do not change, as the others do. */
#include "graphs/runs/run.h"

#include <stdlib.h>
#include <string.h>

/* What stands after the "=" of the pattern at LIST; below 0: no number above 0 does. */
static double number_at(const char *list) {
    const char *equals = list + strcspn(list, "=,");
    char *end;
    const double x = *equals == '=' ? strtod(equals + 1, &end) : -1;
    return x > 0 && x <= 1e6 && (!*end || *end == ',') ? x : -1;
}

double sgrad__rate_of(const char *list, const char *parameter) {
    const char *at = sgrad__find_listed(list, parameter);
    return at ? number_at(at) : 1;
}

static int check_rates(const char *list) {
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (number_at(at) < 0)
            return sgrad_fail(SGRAD_EINVAL, "--lr-of '%s': takes patterns and how many times the learning rate, above 0: "
                              "fc=10,layer1.*=.1", list);
    return 0;
}

int sgrad__run_fine_tune(struct sgrad__run *r) {
    const struct sgrad_train_options *o = &r->options;
    if (o->init_skip && !o->init) return sgrad_fail(SGRAD_EINVAL, "--init-skip: leaves nothing out without --init FILE");
    SGRAD_TRY(check_rates(o->lr_of));
    SGRAD_TRY(sgrad__check_listed(r->graph, "init-skip", o->init_skip));
    SGRAD_TRY(sgrad__check_listed(r->graph, "freeze", o->freeze));
    SGRAD_TRY(sgrad__check_listed(r->graph, "lr-of", o->lr_of));
    sgrad__graph_freeze(r->graph, o->freeze);
    for (int i = 0; i < r->graph->parameter_count; i++)
        if (!r->graph->parameter[i].state && !r->graph->parameter[i].frozen) return 0;
    return sgrad_fail(SGRAD_EINVAL, "--freeze '%s': leaves no parameter to train", o->freeze);
}

void sgrad__run_print_tuning(const struct sgrad__run *r, FILE *to) {
    const struct sgrad_train_options *o = &r->options;
    const struct sgrad_graph *g = r->graph;
    int left = 0, frozen = 0, trained = 0;
    for (int i = 0; i < g->parameter_count; i++) {
        left += sgrad__is_listed(o->init_skip, g->parameter[i].name);
        frozen += g->parameter[i].frozen;
        trained += !g->parameter[i].state;
    }
    if (o->init) fprintf(to, "init       %s: %d %s taken", o->init, g->parameter_count - left,
                         sgrad_plural(g->parameter_count - left, "tensor", "tensors"));
    for (int i = 0, told = 0; i < g->parameter_count && left; i++)
        if (sgrad__is_listed(o->init_skip, g->parameter[i].name) && told++ < 6)
            fprintf(to, told == 1 ? "; anew %s" : ", %s", g->parameter[i].name);
    if (left > 6) fprintf(to, " and %d more", left - 6);
    if (o->init) fputc('\n', to);
    if (frozen) fprintf(to, "frozen     %d of %d parameters: %s\n", frozen, trained, o->freeze);
    if (o->lr_of) fprintf(to, "rates      times the learning rate: %s\n", o->lr_of);
}
