/* trace.c: outputs the analyses of a run's trace, as text and as JSON. */
#include "report/trace.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

static json_t *shares_as_json(const struct sgrad__timeline *timeline, const struct sgrad__overlap_row *row) {
    json_t *shares = json_object();
    for (int i = 0; i < sgrad__shares(timeline); i++)
        json_object_set_new(shares, sgrad__share_name(timeline, i), json_real(sgrad__share(timeline, row, i)));
    return shares;
}

static json_t *critical_as_json(const struct sgrad__timeline *timeline, const struct sgrad__critical *critical) {
    json_t *kinds = json_object();
    for (int k = 0; k < timeline->kinds.count; k++)
        json_object_set_new(kinds, timeline->kinds.kind[k].name, json_real(critical->kind[k]));
    json_object_set_new(kinds, "messages", json_real(critical->messages));
    return json_pack("{s:f, s:o}", "ms", critical->ms, "in", kinds);
}

static json_t *bound_as_json(const struct sgrad__critical *critical) {
    return json_pack("{s:f, s:f, s:f}", "ms", sgrad__critical_bound(critical), "work_ms", critical->work, "critical_path_ms",
                     critical->ms);
}

static json_t *parts_as_json(const struct sgrad__timeline_parcel *parcel) {
    json_t *parts = json_array();
    for (int i = 0; i < parcel->parts; i++) json_array_append_new(parts, json_string(parcel->part[i].name));
    return parts;
}

static json_t *traffic_as_json(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap) {
    json_t *traffic = json_array();
    for (int i = 0; i < timeline->parcels; i++) {
        const struct sgrad__timeline_parcel *p = &timeline->parcel[i];
        json_t *exposed = json_array();
        for (int r = 0; r < timeline->ranks; r++)
            json_array_append_new(exposed, json_real(overlap->exposed[i * timeline->ranks + r]));
        json_t *parcel = json_pack("{s:s, s:o, s:i, s:f, s:o}", "name", p->name, "of", parts_as_json(p), "messages", p->messages,
                                   "mb", 1e-6 * p->bytes, "exposed_ms", exposed);
        if (p->messages) json_array_append(traffic, parcel);
        json_decref(parcel);
    }
    return traffic;
}

json_t *sgrad__trace_as_json(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap,
                             const struct sgrad__critical *critical, double moves) {
    json_t *workers = json_array(), *ranks = json_array(), *layers = json_array();
    for (int i = 0; i < timeline->rows; i++)
        json_array_append_new(workers, json_pack("{s:i, s:i, s:o}", "rank", timeline->row[i].rank, "worker",
                                                 timeline->row[i].worker, "ms", shares_as_json(timeline, &overlap->row[i])));
    for (int r = 0; r < timeline->ranks && timeline->ranks > 1; r++)
        json_array_append_new(ranks,
                              json_pack("{s:i, s:f, s:f, s:f}", "rank", r, "communication_ms", overlap->rank[r].communication,
                                        "hidden_ms", overlap->rank[r].hidden, "received_mb", overlap->rank[r].megabytes));
    for (int i = 0; i < overlap->layers; i++) {
        const struct sgrad__overlap_layer *l = &overlap->layer[i];
        json_array_append_new(layers, json_pack("{s:s%, s:f, s:f, s:f, s:f}", "layer", l->name, l->length, "ms", l->ms, "gflop",
                                                l->gflop, "gbyte", l->gbyte, "roof_ms", l->roof_ms));
    }
    return json_pack("{s:f, s:f, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o*}", "start_ms", timeline->start, "ms",
                     timeline->length, "steps", timeline->steps, "tasks", timeline->tasks, "messages", timeline->messages,
                     "workers", workers, "ranks", ranks, "traffic", traffic_as_json(timeline, overlap), "memory",
                     sgrad__memory_as_json(timeline), "critical_path", critical_as_json(timeline, critical), "bound",
                     bound_as_json(critical), "layers", layers, "findings", sgrad__findings(timeline, overlap, moves), "copies",
                     sgrad__copies_as_json(timeline));
}

/* ---- text ---- */

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

enum { LAYERS = 10, PARCELS = 5, WORKERS = 256 };      /* printed at most; with more workers, the means of ranks are printed */

static void print_rest(int count, int shown) {
    if (count > shown) printf("and %d more (--json has all)\n", count - shown);
}

/* Prints the mean of the rows FIRST to END - 1. */
static void print_mean(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap, int first, int end) {
    for (int j = 0; j < sgrad__shares(timeline); j++) {
        double sum = 0;
        for (int i = first; i < end; i++) sum += sgrad__share(timeline, &overlap->row[i], j);
        printf(" %10.1f", percent(sum, timeline->length * (end - first)));
    }
    putchar('\n');
}

static void print_workers(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap) {
    const bool each = timeline->rows <= WORKERS;
    int printed = 0, there = 0;
    if (!each) printf("means over the workers of each rank (--json has all %d)\n", timeline->rows);
    printf("%16s", "% of the time");
    for (int k = 0; k < timeline->kinds.count; k++) printf(" %10s", timeline->kinds.kind[k].name);
    printf(" %10s %10s %10s %10s\n", "scheduling", "fetching", "waiting", "idle");
    for (int i = 0; i < timeline->rows && each; i++) {
        printf("rank %d worker %-2d", timeline->row[i].rank, timeline->row[i].worker);
        print_mean(timeline, overlap, i, i + 1);
    }
    for (int r = 0; r < timeline->ranks && !each; r++) {
        const int workers = timeline->first_row[r + 1] - timeline->first_row[r];
        if (!workers || there++ >= SGRAD__LISTED) continue;
        printf("rank %-11d", r);
        print_mean(timeline, overlap, timeline->first_row[r], timeline->first_row[r + 1]);
        printed++;
    }
    if (each) return;
    print_rest(there, printed);
    printf("%-16s", "all");
    print_mean(timeline, overlap, 0, timeline->rows);
}

static void print_ranks(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap) {
    if (timeline->ranks < 2) return;
    for (int r = 0; r < timeline->ranks && r < SGRAD__LISTED; r++)
        printf("%srank %d: %.2f MB received; messages in flight for %.1f ms, %.0f %% of it hidden by computation\n",
               r ? "" : "\n", r, overlap->rank[r].megabytes, overlap->rank[r].communication,
               percent(overlap->rank[r].hidden, overlap->rank[r].communication));
    print_rest(timeline->ranks, SGRAD__LISTED);
}

struct exposed {
    int parcel;
    double ms;                          /* on the rank where it is longest */
};

static int by_ms(const void *one, const void *other) {
    const struct exposed *a = one, *b = other;
    return a->ms != b->ms ? (a->ms < b->ms) - (a->ms > b->ms) : a->parcel - b->parcel;
}

/* Prints the parcels that are exposed longest, on any rank. */
static void print_traffic(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap) {
    struct exposed *exposed = sgrad_xcalloc((size_t)timeline->parcels + 1, sizeof *exposed);
    for (int p = 0; p < timeline->parcels; p++) {
        exposed[p].parcel = p;
        for (int r = 0; r < timeline->ranks; r++) exposed[p].ms = fmax(exposed[p].ms, overlap->exposed[p * timeline->ranks + r]);
    }
    qsort(exposed, (size_t)timeline->parcels, sizeof *exposed, by_ms);
    for (int n = 0; n < timeline->parcels && n < PARCELS && exposed[n].ms > 0; n++) {
        const struct sgrad__timeline_parcel *p = &timeline->parcel[exposed[n].parcel];
        char *text = sgrad__timeline_parcel_text(p);
        printf("%sexposed %8.1f ms: %s, %d %s, %.2f MB in total\n", n ? "" : "\n", exposed[n].ms, text, p->messages,
               sgrad_plural(p->messages, "message", "messages"), 1e-6 * p->bytes);
        free(text);
    }
    free(exposed);
}

static void print_critical(const struct sgrad__timeline *timeline, const struct sgrad__critical *critical) {
    printf("\ncritical path: %.1f ms, %.0f %% of the time; ", critical->ms, percent(critical->ms, timeline->length));
    for (int k = 0; k < timeline->kinds.count; k++) printf("%s %.1f, ", timeline->kinds.kind[k].name, critical->kind[k]);
    printf("messages %.1f ms\n", critical->messages);
    printf("lower bound: %.1f ms, %.0f %% of the time, for any order of these tasks; work per worker %.1f ms, critical path "
           "%.1f ms\n",
           sgrad__critical_bound(critical), percent(sgrad__critical_bound(critical), timeline->length), critical->work,
           critical->ms);
}

static void print_findings(const json_t *findings) {
    json_t *finding;
    size_t i;
    json_array_foreach(findings, i, finding) printf("%s- %s\n", i ? "" : "\n", json_string_value(finding));
}

static void print_layers(const struct sgrad__overlap *overlap) {
    printf("\n%-24s %10s %10s %10s %10s %10s\n", "layer", "ms", "GFlop", "GFlop/s", "Flop/byte", "% of roof");
    for (int i = 0; i < overlap->layers && i < LAYERS; i++) {
        const struct sgrad__overlap_layer *l = &overlap->layer[i];
        printf("%-24.*s %10.1f %10.2f %10.1f %10.1f", l->length, l->name, l->ms, l->gflop,
               l->ms > 0 ? 1000 * l->gflop / l->ms : 0, l->gbyte > 0 ? l->gflop / l->gbyte : 0);
        if (l->roof_ms > 0) printf(" %10.0f\n", percent(l->roof_ms, l->ms));
        else printf(" %10s\n", "?");
    }
    print_rest(overlap->layers, LAYERS);
}

void sgrad__trace_print(const struct sgrad__timeline *timeline, const struct sgrad__overlap *overlap,
                        const struct sgrad__critical *critical, const json_t *found) {
    printf("\ntrace: %d %s in %.1f ms, %d %s, %d %s\n\n", timeline->steps, sgrad_plural(timeline->steps, "step", "steps"),
           timeline->length, timeline->tasks, sgrad_plural(timeline->tasks, "task", "tasks"), timeline->messages,
           sgrad_plural(timeline->messages, "message", "messages"));
    print_workers(timeline, overlap);
    print_ranks(timeline, overlap);
    print_traffic(timeline, overlap);
    print_critical(timeline, critical);
    sgrad__memory_print(json_object_get(found, "memory"));
    if (json_object_get(found, "copies")) sgrad__copies_print(json_object_get(found, "copies"));
    print_layers(overlap);
    print_findings(json_object_get(found, "findings"));
}
