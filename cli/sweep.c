/* sweep.c: measures the cost of dropping near-duplicates: a training at each threshold, accuracy by the fraction dropped.
 *
 *     OUT/sweep/none-1/     a run of all samples, by seed       OUT/sweep.json     points, and which is the best
 *     OUT/sweep/4-1/        without those of threshold 4        OUT/sweep.svg
 *     OUT/sweep/4.txt       list of those samples               OUT/sweep/none.txt damaged ones, if there are any
 *
 * Thresholds that drop the same number of samples drop the same samples, and are trained once. */
#include "cli/dedup.h"

#include <math.h>
#include <stdlib.h>

bool sgrad__sweep_parse(const char *text, int *from, int *to) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    const long first = strtol(text, &end, 10);
    if (*end != '-' || end[1] < '0' || end[1] > '9') return false;
    const long last = strtol(end + 1, &end, 10);
    if (*end || last < first || last > 256) return false;
    *from = (int)first;
    *to = (int)last;
    return true;
}

/* Runs one training. LIST: file of excluded samples; may be NULL. */
static int train_once(const struct sgrad__request *request, const char *list, const char *name, int seed, double *accuracy) {
    struct sgrad_train_options o = request->train;
    struct sgrad_train_result result = { 0 };
    char *out = sgrad_format("%s/sweep/%s-%d", request->train.output.folder, name, seed + 1);
    o.data.exclude = list;
    o.output.folder = out;
    o.training.seed += (uint64_t)seed;
    o.checkpoint.every = 0;
    o.output.explicit_options = NULL;
    int error = sgrad_train(&o, &result);
    if (!error && isnan(result.test_top1))
        error = sgrad_log_error(SGRAD_EINVAL, "--sweep compares accuracies, but the evaluation of %s has none", o.model.name);
    *accuracy = result.test_top1;
    free(result.folder);
    free(out);
    return error;
}

static int train_point(const struct sgrad__request *request, const char *list, const char *name,
                       struct sgrad__sweep_point *point) {
    double sum = 0;
    point->least = INFINITY, point->most = -INFINITY;
    for (int seed = 0; seed < request->dedup.seeds; seed++) {
        double accuracy;
        SGRAD_TRY(train_once(request, list, name, seed, &accuracy));
        sum += accuracy;
        point->least = fmin(point->least, accuracy);
        point->most = fmax(point->most, accuracy);
    }
    point->accuracy = sum / request->dedup.seeds;
    return 0;
}

/* ---- output --------------------------------------------------------------------------------------------------------- */

json_t *sgrad__sweep_json(const struct sgrad__sweep *sweep) {
    json_t *points = json_array();
    for (const struct sgrad__sweep_point *p = sweep->point; p < sweep->point + sweep->count; p++) {
        json_t *threshold = p->threshold < 0 ? json_null() : json_integer(p->threshold);
        json_array_append_new(points, json_pack("{s:o, s:I, s:f, s:f, s:f, s:f, s:b}", "threshold", threshold, "dropped",
                                                (json_int_t)p->dropped, "ratio", p->ratio, "test_top1", p->accuracy, "least",
                                                p->least, "most", p->most, "best", p == sweep->point + sweep->best));
    }
    return points;
}

static int write_json(const char *folder, const struct sgrad__sweep *sweep) {
    char *path = sgrad_format("%s/sweep.json", folder);
    int error = sgrad_json_write(path, sgrad__sweep_json(sweep), 9);
    free(path);
    return error;
}

/* Draws accuracy (y) by ratio (x), with a bar from the minimum to the maximum of the runs; the best point is filled. */
static int write_picture(const char *folder, const struct sgrad__sweep *sweep) {
    enum { WIDTH = 640, HEIGHT = 360, LEFT = 60, BOTTOM = 40, TOP = 24, RIGHT = 20 };
    struct sgrad_file file;
    char *path = sgrad_format("%s/sweep.svg", folder);
    int error = sgrad_file_begin(path, &file);
    free(path);
    SGRAD_TRY(error);
    double ratio = 1e-9, low = INFINITY, high = -INFINITY;
    for (int i = 0; i < sweep->count; i++) {
        ratio = fmax(ratio, sweep->point[i].ratio);
        low = fmin(low, sweep->point[i].least);
        high = fmax(high, sweep->point[i].most);
    }
    low -= 0.1 * (high - low) + 1e-4, high += 0.1 * (high - low) + 1e-4;
#define X(r) (LEFT + (WIDTH - LEFT - RIGHT) * (r) / ratio)
#define Y(a) (HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * ((a) - low) / (high - low))
    FILE *to = file.stream;
    fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    for (int i = 0; i <= 4; i++) {
        const double a = low + (high - low) * i / 4, r = ratio * i / 4;
        fprintf(to, "<path d=\"M%d %.1fH%d\" stroke=\"#e4e4e4\"/>", LEFT, Y(a), WIDTH - RIGHT);
        fprintf(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.2f %%</text>\n", LEFT - 6, Y(a) + 4, 100 * a);
        fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.1f %%</text>\n", X(r), HEIGHT - BOTTOM + 16, 100 * r);
    }
    fprintf(to, "<text x=\"%d\" y=\"14\">test accuracy by the dropped fraction of the training set</text>\n", LEFT);
    for (const struct sgrad__sweep_point *p = sweep->point; p < sweep->point + sweep->count; p++) {
        const bool best = p == sweep->point + sweep->best;
        char label[16] = "all";
        if (p->threshold >= 0) snprintf(label, sizeof label, "%d", p->threshold);
        fprintf(to, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#2c7fb8\"/><circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\" "
                    "stroke=\"#2c7fb8\"/><text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                X(p->ratio), Y(p->least), Y(p->most), X(p->ratio), Y(p->accuracy), best ? "#2c7fb8" : "#fff", X(p->ratio) + 6,
                Y(p->accuracy) - 6, label);
    }
#undef X
#undef Y
    fputs("</svg>\n", to);
    return sgrad_file_commit(&file);
}

static void print(const struct sgrad__sweep *sweep) {
    printf("\n%9s %9s %8s %9s %9s %9s\n", "threshold", "dropped", "ratio", "accuracy", "lowest", "highest");
    for (const struct sgrad__sweep_point *p = sweep->point; p < sweep->point + sweep->count; p++) {
        char label[16] = "none";
        if (p->threshold >= 0) snprintf(label, sizeof label, "%d", p->threshold);
        printf("%9s %9lld %6.2f %% %7.2f %% %7.2f %% %7.2f %%%s\n", label, (long long)p->dropped, 100 * p->ratio,
               100 * p->accuracy, 100 * p->least, 100 * p->most,
               p == sweep->point + sweep->best ? "  <- best: the largest ratio that loses at most epsilon" : "");
    }
    putchar('\n');
}

/* ---- the runs ------------------------------------------------------------------------------------------------------- */

/* Trains with all samples except those that could not be hashed, because training cannot read them either. */
static int train_whole(const struct sgrad__request *request, const struct sgrad_dataset *train, const struct sgrad_hashes *hashes,
                       const struct sgrad_duplicates *found, struct sgrad__sweep_point *point) {
    bool whole = true;
    for (int64_t i = 0; i < hashes->train; i++) whole &= sgrad_hashes_has(hashes, i);
    char *list = whole ? NULL : sgrad_format("%s/sweep/none.txt", request->train.output.folder);
    *point = (struct sgrad__sweep_point){ .threshold = -1 };
    int error = list ? sgrad_duplicates_write_level(train, hashes, found, -1, list) : 0;
    if (!error) error = train_point(request, list, "none", point);
    free(list);
    return error;
}

static int run_points(const struct sgrad__request *request, const struct sgrad_dataset *train, const struct sgrad_hashes *hashes,
                      const struct sgrad_duplicates *found, int from, int to, struct sgrad__sweep *sweep) {
    struct sgrad__sweep_point *p = sweep->point;
    SGRAD_TRY(train_whole(request, train, hashes, found, &p[sweep->count++]));
    for (int t = from; t <= to; t++) {
        const int level = t - found->first;
        char *name = sgrad_format("%d", t), *list = sgrad_format("%s/sweep/%d.txt", request->train.output.folder, t);
        struct sgrad__sweep_point *now = &p[sweep->count], *before = now - 1;
        *now = (struct sgrad__sweep_point){ .threshold = t, .dropped = found->drops[level],
                                            .ratio = (double)found->drops[level] / (double)hashes->train };
        int error = 0;
        if (now->dropped == before->dropped)
            now->accuracy = before->accuracy, now->least = before->least, now->most = before->most;
        else if (!(error = sgrad_duplicates_write_level(train, hashes, found, level, list)))
            error = train_point(request, list, name, now);
        free(name);
        free(list);
        SGRAD_TRY(error);
        sweep->count++;
    }
    return 0;
}

int sgrad__sweep_run(const struct sgrad__request *request, const struct sgrad_dataset *train, const struct sgrad_hashes *hashes,
                     const struct sgrad_duplicates *found, struct sgrad__sweep *sweep) {
    int from, to;
    if (!sgrad__sweep_parse(request->dedup.sweep, &from, &to)) return SGRAD_EINVAL;
    char *folder = sgrad_format("%s/sweep", request->train.output.folder);
    int error = sgrad_folder_make(folder);
    free(folder);
    sweep->point = sgrad_xcalloc((size_t)(to - from + 2), sizeof *sweep->point);
    if (!error) error = run_points(request, train, hashes, found, from, to, sweep);
    for (int i = 1; i < sweep->count; i++)
        if (sweep->point[i].accuracy >= sweep->point->accuracy - request->dedup.epsilon &&
            sweep->point[i].ratio > sweep->point[sweep->best].ratio)
            sweep->best = i;
    if (!error) error = write_json(request->train.output.folder, sweep);
    if (!error) error = write_picture(request->train.output.folder, sweep);
    if (!error && !request->train.output.json) print(sweep);
    return error;
}
