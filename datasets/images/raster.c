/* raster.c: functions that several image formats use: limits of sizes, orientation, conversion of inks to colours. */
#include "config.h"
#include "datasets/formats.h"

#include <stdlib.h>
#include <string.h>

#define PIXEL_LIMIT ((uint64_t)1 << 28)

int sgrad__image_check_size(const char *format, const char *name, uint64_t width, uint64_t height, uint64_t most) {
    if (width < 1 || height < 1 || width > SGRAD__SIDE_LIMIT || height > SGRAD__SIDE_LIMIT || width * height > PIXEL_LIMIT)
        return sgrad_log_error(SGRAD_EFORMAT,
                               "%s: %s: an image of %llux%llu pixels is not supported; sides must be 1 to %d, and an image must "
                               "have at most 2^28 pixels",
                               format, name, (unsigned long long)width, (unsigned long long)height, SGRAD__SIDE_LIMIT);
    if (width * height > most)
        return sgrad_log_error(SGRAD_EFORMAT, "%s: %s: the file is too short for its image of %llux%llu pixels", format, name,
                               (unsigned long long)width, (unsigned long long)height);
    return 0;
}

/* An orientation states on which sides of the upright image row 0 and column 0 of the stored image are:
 *
 *     1 top left    2 top right    3 bottom right    4 bottom left    5 to 8: the same, rows and columns exchanged:
 *     5 left top    6 right top    7 right bottom    8 left bottom */
void sgrad__image_orient(struct sgrad__image *image, int orientation) {
    if (orientation < 2 || orientation > 8) return;
    static const bool down[9] = { [3] = true, [4] = true, [7] = true, [8] = true };     /* upright rows are reversed */
    static const bool left[9] = { [2] = true, [3] = true, [6] = true, [7] = true };     /* upright columns are reversed */
    const bool turned = orientation > 4;
    const size_t height = (size_t)(turned ? image->width : image->height);
    const size_t width = (size_t)(turned ? image->height : image->width);
    const size_t pixel = image->rgb16 ? 6 : 3, row = (size_t)image->width;
    const char *from = image->rgb16 ? (const char *)image->rgb16 : (const char *)image->rgb;
    char *to = from ? sgrad_xcalloc(height * width, pixel) : NULL;
    for (size_t y = 0; to && y < height; y++)
        for (size_t x = 0; x < width; x++) {
            const size_t v = down[orientation] ? height - 1 - y : y, h = left[orientation] ? width - 1 - x : x;
            memcpy(to + (y * width + x) * pixel, from + (turned ? h * row + v : v * row + h) * pixel, pixel);
        }
    if (image->rgb16) free(image->rgb16), image->rgb16 = (uint16_t *)(void *)to;
    else free(image->rgb), image->rgb = (uint8_t *)to;
    image->height = (int)height;
    image->width = (int)width;
}

void sgrad__image_of_inks(const uint16_t ink[4], unsigned most, uint16_t rgb[3]) {
    const unsigned black = ink[3] < most ? ink[3] : most, white = most - black;
    for (int c = 0; c < 3; c++) {
        const unsigned taken = (unsigned)(((uint64_t)ink[c] * white + most / 2) / most);
        rgb[c] = (uint16_t)(taken < white ? white - taken : 0);
    }
}
