/* survey.c: properties of encoded images, from the headers of a sample: opening every file at every start would take too long.
 *
 * The sample has all images if there are at most MOST. Otherwise their order is divided into MOST equal intervals, and each
 * contributes one image, at an index that depends only on the interval. So every rank, both splits and every start use the same
 * images. */
#include "config.h"
#include "datasets/encoded.h"

enum { MOST = 256 };

static void look(const struct sgrad__source *source, int64_t i, struct sgrad__survey *survey) {
    char reason[256];
    struct sgrad__image image;
    struct sgrad__bytes bytes;
    sgrad_log_capture(reason, sizeof reason);
    if (!source->fetch(source->of, i, &bytes)) {
        if (!sgrad__image_header(bytes.name, bytes.data, bytes.size, &image)) {
            survey->images++;
            survey->coloured += !image.grey;
            survey->deep += image.deep;
        }
        source->release(source->of, i, &bytes);
    }
    sgrad_log_capture(NULL, 0);
}

void sgrad__survey(const struct sgrad__source *source, struct sgrad__survey *survey) {
    *survey = (struct sgrad__survey){ 0 };
    const int64_t count = source->count, looked = count < MOST ? count : MOST;
    for (int64_t i = 0; i < looked; i++) {
        const int64_t first = count * i / looked, next = count * (i + 1) / looked;
        const uint64_t chance = sgrad__fingerprint_add(1, &i, sizeof i);
        look(source, first + (int64_t)(chance % (uint64_t)(next - first)), survey);
    }
}
