/* source.h: a source of a mixture of data sets. */
#ifndef SGRAD_DATASETS_SOURCE_H
#define SGRAD_DATASETS_SOURCE_H

#include <stdint.h>

/* A source of a mixture of data, such as A of tokens:A*0.7,B*0.3. */
struct sgrad_source {
    char *name;                         /* "A" */
    double weight;                      /* share of the positions of an epoch; the weights of all sources sum to 1 */
    int64_t first, count;               /* its samples are first to first + count - 1 */
    int64_t quota;                      /* its positions of an epoch: its samples may repeat, or not all be read in an epoch */
};

#endif
