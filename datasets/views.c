/* views.c: several views of an image, whose predictions are averaged (test-time augmentation). The views and their weights:
 *
 *     flip              image 1/2    mirror image 1/2
 *     translate         image 1/2    up and left 1/4    down and right 1/4
 *     flip,translate    image 1/4    up and left 1/8    down and right 1/8    mirror image 1/4    of that 1/8    1/8 */
#include "config.h"
#include "datasets/colours.h"
#include "datasets/datasets.h"

#include <string.h>

/* Replaces each view by COUNT views: view i applies MAP[i] in addition to the view's map, and has WEIGHT[i] of its weight. */
static void multiply(struct sgrad_views *views, const struct sgrad_affine *map, const double *weight, int count) {
    const struct sgrad_views old = *views;
    views->count = 0;
    for (int v = 0; v < old.count; v++)
        for (int i = 0; i < count; i++) {
            views->view[views->count].map = sgrad__affine_after(&old.view[v].map, &map[i]);
            views->view[views->count++].weight = old.view[v].weight * weight[i];
        }
}

int sgrad_views_parse(const char *text, struct sgrad_views *views) {
    const struct sgrad_affine mirrored[] = { { .yy = 1, .xx = 1 }, { .yy = 1, .xx = -1 } };     /* width not yet in x0 */
    const struct sgrad_affine shifted[] = { { .yy = 1, .xx = 1 },
                                            { .y0 = -1, .yy = 1, .x0 = -1, .xx = 1, .reflect = true },
                                            { .y0 = 1, .yy = 1, .x0 = 1, .xx = 1, .reflect = true } };
    struct sgrad_views v = { .count = 1, .view = { { mirrored[0], 1 } } };
    const bool both = !strcmp(text, "flip,translate") || !strcmp(text, "translate,flip");
    const bool flip = both || !strcmp(text, "flip"), translate = both || !strcmp(text, "translate");
    if (!flip && !translate)
        return sgrad_log_error(SGRAD_EINVAL, "--tta '%s' is invalid; give flip, translate, or flip,translate", text);
    if (flip) multiply(&v, mirrored, (const double[]){ 0.5, 0.5 }, 2);
    if (translate) multiply(&v, shifted, (const double[]){ 0.5, 0.25, 0.25 }, 3);
    *views = v;
    return 0;
}

int sgrad_views_read(const struct sgrad_dataset *dataset, const struct sgrad_views *views, const struct sgrad_sample *sample,
                     int n, void *const *data) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    void *at[SGRAD_MAX_FIELDS];
    for (int i = 0; i < n; i++) {
        struct sgrad_affine map = views->view[sample[i].view].map;
        for (int f = 0; dataset->field[f].name; f++) at[f] = (char *)data[f] + (size_t)i * sgrad_field_bytes(&dataset->field[f]);
        SGRAD_TRY(sgrad_dataset_load(dataset, &sample[i], 1, NULL, at));
        if (map.xx < 0) map.x0 += (double)(sgrad_field_plane(image)[1] - 1);
        if (sample[i].view) sgrad__pixels_move(dataset, &map, at[0]);
    }
    return 0;
}
