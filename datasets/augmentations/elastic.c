/* elastic.c: smooth random displacement of the pixels in slices of volumes, implemented by volume.c. */
#include "config.h"
#include "datasets/datasets.h"

const struct sgrad_augmentation sgrad_elastic_augmentation = {
    .name = "elastic",
    .summary = "elastic deformation of volumes by random displacements of a grid",
    .source = "Simard, Steinkraus, Platt, Best practices for convolutional neural networks, 2003",
    .volumes = true,
};
