/* page.c: writes index.html, which shows the duplicates: page.html, with the data and small images inserted at its mark.
 *
 *     pairs kept     (0,3) within  (3,9) within  (5,8) across  (7,t2) leak       groups: images connected by near pairs
 *     groups         {0,3,9} within              {5,8} across  {7,t2} leak       a group has the worst relation of its pairs
 *
 * Of each relation at most GROUPS groups are shown, at equal intervals among all groups. The slider of the page separates groups
 * again, because each pair has its distance. */
#include "duplicates/internal.h"
#include "runtime/libraries.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 80, GROUP_MOST = 12, SIDE = 96 };

static const char page[] =
#include "duplicates/page.inc"
    ;

/* ---- groups --------------------------------------------------------------------------------------------------------- */

struct groups {
    int64_t images;
    uint32_t *leader;       /* of each image: an image of its group; finally the same for all of the group */
    uint8_t *relation;      /* of each leader: worst relation in its group, plus one; 0: no group */
    int32_t *shown;         /* of each image: its index on the page; -1: not shown */
    uint32_t *image;        /* by index on the page */
    int count;
};

static uint32_t leader_of(struct groups *groups, uint32_t i) {
    while (groups->leader[i] != i) i = groups->leader[i] = groups->leader[groups->leader[i]];
    return i;
}

static enum sgrad_relation relation_of(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                                       const struct sgrad_pair *pair) {
    if (pair->b >= hashes->train) return SGRAD_LEAK;
    return sgrad__image_class(part, hashes, pair->a) == sgrad__image_class(part, hashes, pair->b) ? SGRAD_WITHIN : SGRAD_ACROSS;
}

static void join(struct groups *groups, struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                 const struct sgrad_pair *pair) {
    const uint32_t a = leader_of(groups, pair->a), b = leader_of(groups, pair->b);
    uint8_t worst = (uint8_t)(1 + relation_of(part, hashes, pair));
    if (groups->relation[a] > worst) worst = groups->relation[a];
    if (groups->relation[b] > worst) worst = groups->relation[b];
    const uint32_t first = a < b ? a : b, second = a < b ? b : a;
    groups->leader[second] = first;
    groups->relation[first] = worst;
}

/* Selects the groups to show, by their leaders: of each relation at most GROUPS, at equal intervals. The caller must free the
 * result. */
static bool *choose_groups(const struct groups *groups) {
    bool *chosen = sgrad_xcalloc((size_t)groups->images, 1);
    for (int r = 1; r <= SGRAD_RELATIONS; r++) {
        int64_t all = 0, n = 0;
        for (int64_t i = 0; i < groups->images; i++) all += groups->leader[i] == i && groups->relation[i] == r;
        for (int64_t i = 0; i < groups->images; i++)
            if (groups->leader[i] == i && groups->relation[i] == r) {
                chosen[i] = all <= GROUPS || n * GROUPS / all != (n + 1) * GROUPS / all;
                n++;
            }
    }
    return chosen;
}

static struct groups make_groups(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                                 const struct sgrad_duplicates *duplicates) {
    struct groups g = { .images = hashes->count };
    g.leader = sgrad_xcalloc((size_t)g.images, sizeof *g.leader);
    g.relation = sgrad_xcalloc((size_t)g.images, 1);
    g.shown = sgrad_xcalloc((size_t)g.images, sizeof *g.shown);
    g.image = sgrad_xcalloc(SGRAD_RELATIONS * GROUPS * GROUP_MOST, sizeof *g.image);
    for (int64_t i = 0; i < g.images; i++) g.leader[i] = (uint32_t)i, g.shown[i] = -1;
    for (int64_t i = 0; i < duplicates->kept; i++) join(&g, part, hashes, &duplicates->pair[i]);
    bool *chosen = choose_groups(&g);
    uint8_t *members = sgrad_xcalloc((size_t)g.images, 1);
    for (int64_t i = g.images; i-- > 0;) { /* test images first: a leak shows images of both splits */
        const uint32_t leader = leader_of(&g, (uint32_t)i);
        if (!chosen[leader] || members[leader] == GROUP_MOST - (i != leader)) continue;
        members[leader]++;
        g.shown[i] = g.count;
        g.image[g.count++] = (uint32_t)i;
    }
    free(members);
    free(chosen);
    return g;
}

static void free_groups(struct groups *groups) {
    free(groups->leader);
    free(groups->relation);
    free(groups->shown);
    free(groups->image);
}

/* ---- images --------------------------------------------------------------------------------------------------------- */

/* Shrinks an image to RGB, by means of blocks, so that no side exceeds SIDE. The caller must free the result. */
static uint8_t *shrink(const struct sgrad_picture *picture, int *width, int *height) {
    const int longer = picture->width > picture->height ? picture->width : picture->height, by = (longer + SIDE - 1) / SIDE;
    *width = (picture->width + by - 1) / by;
    *height = (picture->height + by - 1) / by;
    uint8_t *small = sgrad_xcalloc((size_t)(*width * *height), 3);
    for (int y = 0; y < *height; y++)
        for (int x = 0; x < *width; x++)
            for (int c = 0; c < 3; c++) {
                int sum = 0, count = 0;
                for (int i = y * by; i < (y + 1) * by && i < picture->height; i++)
                    for (int j = x * by; j < (x + 1) * by && j < picture->width; j++, count++)
                        sum += picture->pixels[((size_t)i * (size_t)picture->width + (size_t)j) * (size_t)picture->channels +
                                               (size_t)(picture->channels >= 3 ? c : 0)];
                small[(y * *width + x) * 3 + c] = (uint8_t)(sum / count);
            }
    return small;
}

/* Returns a PNG file as "data:image/png;base64,…". The caller must free it. */
static char *as_url(const uint8_t *data, size_t size) {
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char head[] = "data:image/png;base64,";
    char *url = sgrad_xcalloc(sizeof head + (size + 2) / 3 * 4, 1), *to = stpcpy(url, head);
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)data[i] << 16;
        if (i + 1 < size) three |= (uint32_t)data[i + 1] << 8;
        if (i + 2 < size) three |= data[i + 2];
        for (int d = 0; d < 4; d++) *to++ = (size_t)d <= size - i ? digit[three >> (18 - 6 * d) & 63] : '=';
    }
    return url;
}

/* Returns a sample's image as a URL with its data; NULL: it can no longer be read, or not be encoded. The caller must free it. */
static char *picture_url(const struct sgrad_dataset *dataset, int64_t index) {
    struct sgrad_picture picture;
    int width, height;
    size_t size;
    void *data = NULL;
    if (!sgrad_library_has("png") || sgrad_dataset_picture(dataset, index, &picture)) return NULL;
    uint8_t *small = shrink(&picture, &width, &height);
    free(picture.pixels);
    char *url = sgrad_png_encode(small, height, width, &data, &size) ? NULL : as_url(data, size);
    free(data);
    free(small);
    return url;
}

/* Returns the name or else the number of CLASS as JSON; null: the image has no class. */
static json_t *class_as_json(const struct sgrad_dataset *dataset, int class) {
    if (class < 0) return json_null();
    char *number = sgrad_format("%d", class);
    json_t *json = json_string(dataset->class_name && dataset->class_name[class] ? dataset->class_name[class] : number);
    free(number);
    return json ? json : json_string("?");      /* a name that is not UTF-8 */
}

static json_t *image_as_json(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes, int64_t i) {
    int64_t index = i;
    const struct sgrad_dataset *dataset = sgrad__part_of(part, hashes, &index);
    char *name = sgrad__image_name(part, hashes, i), *url = picture_url(dataset, index);
    json_t *json = json_object(), *text = json_string(name);    /* NULL: not UTF-8 */
    json_object_set_new(json, "name", text ? text : json_string("?"));
    json_object_set_new(json, "class", class_as_json(dataset, sgrad__image_class(part, hashes, i)));
    json_object_set_new(json, "test", json_boolean(i >= hashes->train));
    json_object_set_new(json, "url", url ? json_string(url) : json_null());
    free(name);
    free(url);
    return json;
}

/* ---- the page ------------------------------------------------------------------------------------------------------- */

static json_t *counts(const int64_t *x, int n) {
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(array, json_integer((json_int_t)x[i]));
    return array;
}

static json_t *guide_as_json(const struct sgrad_guide *guide, int bits) {
    json_t *worst = json_array();
    for (int i = 0; i <= bits; i++) json_array_append_new(worst, json_real(guide->worst[i]));
    return json_pack("{s:o, s:o, s:o, s:i}", "within", counts(guide->distance[0], bits + 1), "across",
                     counts(guide->distance[1], bits + 1), "worst", worst, "automatic", guide->automatic);
}

static json_t *page_as_json(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                            const struct sgrad_duplicates *duplicates, const struct sgrad_guide *guide, const char *title) {
    struct groups g = make_groups(part, hashes, duplicates);
    json_t *images = json_array(), *pairs = json_array(), *near = json_array();
    for (int i = 0; i < g.count; i++) json_array_append_new(images, image_as_json(part, hashes, g.image[i]));
    for (const struct sgrad_pair *p = duplicates->pair; p < duplicates->pair + duplicates->kept; p++)
        if (g.shown[p->a] >= 0 && g.shown[p->b] >= 0)
            json_array_append_new(pairs, json_pack("[i, i, i]", g.shown[p->a], g.shown[p->b], (int)p->distance));
    for (int r = 0; r < SGRAD_RELATIONS; r++) json_array_append_new(near, counts(duplicates->near[r], duplicates->levels));
    free_groups(&g);
    json_t *named = json_string(title);
    return json_pack("{s:o, s:s, s:i, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "title", named ? named : json_string("?"),
                     "hash", hashes->kind->name, "bits", hashes->bits, "threshold", duplicates->threshold, "first",
                     duplicates->first, "train", (json_int_t)hashes->train, "test", (json_int_t)(hashes->count - hashes->train),
                     "near", near, "drops", counts(duplicates->drops, duplicates->levels), "images", images, "pairs", pairs,
                     "guide", guide_as_json(guide, hashes->bits));
}

int sgrad_duplicates_page(struct sgrad_dataset *const part[2], const struct sgrad_hashes *hashes,
                          const struct sgrad_duplicates *found, const struct sgrad_guide *guide, const char *title,
                          const char *folder) {
    static const char mark[] = "<!--DATA-->";
    const char *rest = strstr(page, mark);
    struct sgrad_file file;
    char *path = sgrad_format("%s/index.html", folder);
    int error = sgrad_file_begin(path, &file);
    if (!sgrad_library_has("png")) sgrad_log_warning("%s: shows no images, because this build has no libpng", path);
    free(path);
    SGRAD_TRY(error);
    json_t *data = page_as_json(part, hashes, found, guide, title);
    fwrite(page, 1, (size_t)(rest - page), file.stream);
    json_dumpf(data, file.stream, JSON_COMPACT | JSON_ESCAPE_SLASH | JSON_REAL_PRECISION(6)); /* escapes </script> */
    fputs(rest + strlen(mark), file.stream);
    json_decref(data);
    return sgrad_file_commit(&file);
}
