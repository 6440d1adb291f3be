/* picture.c: one image as in its file, and a stamp that identifies it. */
#include "config.h"
#include "datasets/datasets.h"
#include "datasets/formats.h"

#include <assert.h>
#include <stdlib.h>

/* Reads the sample, for readers without a picture function: all their images have the same size. */
static int read_picture(const struct sgrad_dataset *dataset, int64_t index, struct sgrad_picture *picture) {
    void *data[SGRAD_MAX_FIELDS] = { NULL };
    for (int f = 0; dataset->field[f].name; f++) data[f] = sgrad_xcalloc(1, sgrad_field_bytes(&dataset->field[f]));
    int error = sgrad_dataset_read(dataset, &(struct sgrad_sample){ .index = index }, 1, data);
    const int64_t *dim = sgrad_field_plane(sgrad_dataset_image(dataset));
    for (int f = error ? 0 : 1; dataset->field[f].name; f++) free(data[f]);
    if (error) return error;
    const float scale = 255 / dataset->full_scale;
    const bool wide = dataset->field[0].dtype == SGRAD_U16;
    uint8_t *pixels = data[0];      /* 16-bit pixels are converted in the same memory: each is read before its byte is written */
    for (int64_t i = 0; (wide || dataset->full_scale != 255) && i < dim[0] * dim[1] * dim[2]; i++)
        pixels[i] = (uint8_t)((float)(wide ? ((const uint16_t *)data[0])[i] : pixels[i]) * scale);
    *picture = (struct sgrad_picture){ .height = (int)dim[0], .width = (int)dim[1], .channels = (int)dim[2], .pixels = pixels };
    return 0;
}

int sgrad_dataset_picture(const struct sgrad_dataset *dataset, int64_t index, struct sgrad_picture *picture) {
    assert(sgrad_dataset_image(dataset) && index >= 0 && index < dataset->count);
    if (!dataset->reader->picture) return read_picture(dataset, index, picture);
    return dataset->reader->picture(dataset, sgrad__index_in_reader(dataset, index), picture);
}

uint64_t sgrad_dataset_stamp(const struct sgrad_dataset *dataset, int64_t index) {
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    const int64_t own = sgrad__index_in_reader(dataset, index);
    if (dataset->reader->stamp) return dataset->reader->stamp(dataset, own);
    const size_t bytes = sgrad_field_bytes(image);
    if (image->data) return sgrad__fingerprint_add(1, (const char *)image->data + (size_t)index * bytes, bytes);
    const int64_t number[] = { (int64_t)dataset->identity, dataset->split, own };
    return sgrad__fingerprint_add(1, number, sizeof number);
}
