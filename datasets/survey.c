/* survey.c: properties of a folder's images, from the headers of a sample: opening every file at every start would take too long.
 *
 * The sample has all images if there are at most MOST. Otherwise their order is divided into MOST equal intervals, and each
 * contributes one image, at an index that depends only on the interval. So every rank, both splits and every start use the same
 * images. */
#include "config.h"
#include "datasets/formats.h"

#include <stdlib.h>

enum { MOST = 256 };
#define FILE_LIMIT ((size_t)1 << 28)

static void look(const char *folder, const char *name, struct sgrad__survey *survey) {
    char reason[256], *path = sgrad_format("%s/%s", folder, name);
    struct sgrad__image image;
    struct sgrad_map map;
    sgrad_log_capture(reason, sizeof reason);
    if (!sgrad_map_open(path, FILE_LIMIT, &map)) {
        if (!sgrad__image_header(path, map.data, map.size, &image)) {
            survey->images++;
            survey->coloured += !image.grey;
            survey->deep += image.deep;
        }
        sgrad_map_close(&map);
    }
    sgrad_log_capture(NULL, 0);
    free(path);
}

void sgrad__survey(const char *folder, char *const *name, int64_t count, struct sgrad__survey *survey) {
    *survey = (struct sgrad__survey){ 0 };
    const int64_t looked = count < MOST ? count : MOST;
    for (int64_t i = 0; i < looked; i++) {
        const int64_t first = count * i / looked, next = count * (i + 1) / looked;
        const uint64_t chance = sgrad__fingerprint_add(1, &i, sizeof i);
        look(folder, name[first + (int64_t)(chance % (uint64_t)(next - first))], survey);
    }
}
