/* tar.c: the reader of images or arrays in tar archives (shards), as WebDataset writes them (github.com/webdataset/webdataset).
 *
 *     train-000.tar      n01/0001.jpg  n01/0001.cls     a sample: an image, and its label, an integer
 *                        n01/0002.jpg  n01/0002.json    {"label": 3}, or the name of a class: {"class": "cat"}
 *                        n01/0003.npy  n01/0003.cls     an array instead of an image: then all samples are arrays
 *     train-001.tar.gz   …
 *     val-000.tar        the test split; its classes are those of the training shards
 *
 * Without val, options.split holds out a part of the training samples. shards/ finds the files and their samples. encoded.c
 * decodes the images. Only the index of the samples and their labels are in memory, unless all decoded images fit. */
#include "config.h"
#include "datasets/shards/shards.h"

#include <stdlib.h>
#include <string.h>

struct tar {
    struct sgrad__encoded images;
    struct sgrad__npy_members arrays;
    const struct sgrad_origin *trained; /* options.origin, while the data set is opened */
    struct sgrad__part part;
    struct sgrad__shards shards;       /* of the split */
    struct sgrad__shards own_training; /* the training shards, if the split has others */
    struct sgrad__shards *training;    /* shards or own_training */
    char **class_name;                 /* (names), sorted; NULL: labels are numbers */
    int names;                         /* the classes of the data set may become more: those of a run */
    struct sgrad_walk beside;          /* members that belong to no sample */
    char *others;                      /* string of the data set */
};

/* ---- classes ------------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static const char *class_name_of(const struct sgrad__shard *shard, int class) { return shard->text + shard->class_name[class]; }

/* The labels of a shard: none, integers, or names of classes. */
enum labels { NONE, INTEGERS, NAMES };

static enum labels labels_of(const struct sgrad__shard *shard) {
    if (shard->classes) return NAMES;
    for (int64_t i = 0; i < shard->samples; i++)
        if (shard->sample[i].label != SGRAD__NO_LABEL) return INTEGERS;
    return NONE;
}

/* Checks that the labels of SHARDS are those of *FIRST, a shard with the path *PATH, or none. *FIRST NONE: sets both to the first
 * shard of SHARDS with labels. */
static int check_labels(const struct sgrad__shards *shards, enum labels *first, const char **path) {
    static const char *const text[] = { [INTEGERS] = "integers", [NAMES] = "names of classes" };
    for (int64_t s = 0; s < shards->paths.count; s++) {
        const enum labels own = labels_of(&shards->shard[s]);
        if (*first == NONE) *first = own, *path = shards->paths.path[s];
        if (own != NONE && own != *first)
            return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: the labels are %s, but those of %s are %s", shards->paths.path[s],
                                   text[own], *path, text[*first]);
    }
    return 0;
}

/* Sets the classes to the sorted names of those of the training shards. */
static void collect_names(struct sgrad_dataset *dataset) {
    struct tar *tar = dataset->state;
    int64_t all = 0, distinct = 0;
    for (int64_t s = 0; s < tar->training->paths.count; s++) all += tar->training->shard[s].classes;
    const char **name = sgrad_xcalloc((size_t)all, sizeof *name);
    for (int64_t s = 0, n = 0; s < tar->training->paths.count; s++)
        for (int c = 0; c < tar->training->shard[s].classes; c++) name[n++] = class_name_of(&tar->training->shard[s], c);
    qsort(name, (size_t)all, sizeof *name, by_name);
    for (int64_t n = 0; n < all; n++)
        if (!distinct || strcmp(name[n], name[distinct - 1])) name[distinct++] = name[n];
    tar->class_name = sgrad_xcalloc((size_t)distinct, sizeof *tar->class_name);
    for (int64_t n = 0; n < distinct; n++) tar->class_name[n] = sgrad__utf8_of(name[n]);
    free(name);
    dataset->classes = tar->names = (int)distinct;
    dataset->class_name = (const char *const *)tar->class_name;
}

/* Sets the classes to the numbers up to the largest label of the training shards. */
static void count_labels(struct sgrad_dataset *dataset) {
    const struct tar *tar = dataset->state;
    int32_t largest = 0;
    for (int64_t s = 0; s < tar->training->paths.count; s++)
        for (int64_t i = 0; i < tar->training->shard[s].samples; i++)
            if (tar->training->shard[s].sample[i].label > largest) largest = tar->training->shard[s].sample[i].label;
    dataset->classes = largest + 1;
}

/* Sets the classes. SGRAD_EFORMAT: some labels are names and others integers. */
static int find_classes(struct sgrad_dataset *dataset) {
    struct tar *tar = dataset->state;
    enum labels labels = NONE;
    const char *path;
    SGRAD_TRY(check_labels(tar->training, &labels, &path));
    if (labels == NONE) tar->training = &tar->shards;
    SGRAD_TRY(check_labels(&tar->shards, &labels, &path));
    if (labels == NAMES) collect_names(dataset);
    else count_labels(dataset);
    return 0;
}

/* ---- labels -------------------------------------------------------------------------------------------------------- */

/* Returns, for each name of a class in SHARD, its number in the data set; NULL: labels are numbers. The caller must free it.
 * *ERROR: SGRAD_EFORMAT if a name is unknown. */
static int32_t *map_names(const struct sgrad_dataset *dataset, const struct sgrad__shard *shard, const char *path, int *error) {
    const struct tar *tar = dataset->state;
    if (!tar->class_name) return NULL;
    int32_t *map = sgrad_xcalloc((size_t)shard->classes + 1, sizeof *map);
    for (int c = 0; c < shard->classes && !*error; c++) {
        const char *name = class_name_of(shard, c);
        char *const *found = bsearch(&name, tar->class_name, (size_t)dataset->classes, sizeof *tar->class_name, by_name);
        if (found)
            map[c] = (int32_t)(found - tar->class_name);
        else
            *error = sgrad_log_error(SGRAD_EFORMAT, "tar: %s: the training split has no class '%s'", path, name);
    }
    return map;
}

/* Logs that sample I has no valid LABEL. */
static int refuse_label(const struct sgrad_dataset *dataset, int64_t i, int32_t label) {
    const struct tar *tar = dataset->state;
    char *where = sgrad__shards_where(&tar->shards, i);
    const int error =
        label == SGRAD__NO_LABEL
            ? sgrad_log_error(SGRAD_EFORMAT,
                              "tar: %s: the sample has no label; it must be in a member of the same name up to "
                              "the first dot, with ending .cls, or with ending .json and the key label, class or cls",
                              where)
            : sgrad_log_error(SGRAD_EFORMAT, "tar: %s: the label is %d, but those of the training split are 0 to %d", where,
                              label, dataset->classes - 1);
    free(where);
    return error;
}

/* Sets the labels of shard S. With EVERY, samples without labels make the data set unlabelled. */
static int take_shard(struct sgrad_dataset *dataset, int64_t s, bool every, int32_t *label) {
    const struct tar *tar = dataset->state;
    const struct sgrad__shard *shard = &tar->shards.shard[s];
    int error = 0;
    int32_t *map = map_names(dataset, shard, tar->shards.paths.path[s], &error);
    for (int64_t i = 0; i < shard->samples && !error; i++) {
        const int32_t own = shard->sample[i].label;
        if (own == SGRAD__NO_LABEL && every)
            dataset->unlabelled = true;
        else if (own < 0 || (!map && own >= dataset->classes))
            error = refuse_label(dataset, tar->shards.first[s] + i, own);
        else
            label[tar->shards.first[s] + i] = map ? map[own] : own;
    }
    free(map);
    return error;
}

static int take_labels(struct sgrad_dataset *dataset, const char *pattern, bool every) {
    const struct tar *tar = dataset->state;
    int32_t *label = sgrad_xcalloc((size_t)dataset->count, sizeof *label);
    dataset->field[1].data = label;
    for (int64_t s = 0; s < tar->shards.paths.count; s++) SGRAD_TRY(take_shard(dataset, s, every, label));
    char *where = sgrad_format("tar: %s", pattern);
    if (dataset->unlabelled)
        memset(label, 0, (size_t)dataset->count * sizeof *label);
    else if (dataset->split == SGRAD_TRAIN)
        sgrad__warn_of_unused(where, label, dataset->count, dataset);
    else if (strcmp(tar->part.name, "train"))
        sgrad__warn_of_absent(where, dataset->class_name, dataset->classes, label, dataset->count);
    free(where);
    return 0;
}

/* ---- opening ------------------------------------------------------------------------------------------------------- */

static bool has_part(const void *pattern, const char *part) { return sgrad__pattern_has("tar", pattern, part); }

/* Sets the numbers of samples, and the identity: of the names and sizes of the shards, and of the keys and sizes of the images.
 */
static void take_samples(struct sgrad_dataset *dataset) {
    const struct tar *tar = dataset->state;
    const int64_t shards = tar->shards.paths.count;
    uint64_t hash = dataset->identity;
    for (int64_t s = 0; s < shards; s++) {
        const struct sgrad__shard *shard = &tar->shards.shard[s];
        const char *name = sgrad__shards_name(&tar->shards, s);
        hash = sgrad__fingerprint_add(hash, name, strlen(name));
        hash = sgrad__fingerprint_add(hash, &shard->file.bytes, sizeof shard->file.bytes);
        for (int64_t i = 0; i < shard->samples; i++) {
            const struct sgrad__shard_sample *sample = &shard->sample[i];
            hash = sgrad__fingerprint_add(hash, shard->text + sample->name, sample->key);
            hash = sgrad__fingerprint_add(hash, &sample->size, sizeof sample->size);
        }
    }
    dataset->identity = hash;
    dataset->count = tar->shards.first[shards];
    dataset->shards = shards;
    dataset->first = sgrad_xcalloc((size_t)shards + 1, sizeof *dataset->first);
    memcpy(dataset->first, tar->shards.first, ((size_t)shards + 1) * sizeof *dataset->first);
}

/* Checks that the shards have either images or arrays. */
static int check_inputs(struct sgrad_dataset *dataset, const char *pattern) {
    struct tar *tar = dataset->state;
    const struct sgrad__shards *const all[] = { &tar->shards, tar->training };
    const char *const first = tar->shards.paths.path[0];
    tar->arrays.used = sgrad__index_has_arrays(&tar->shards.shard[0]);
    for (int k = 0; k < 2; k++)
        for (int64_t s = 0; s < all[k]->paths.count; s++)
            if (sgrad__index_has_arrays(&all[k]->shard[s]) != tar->arrays.used)
                return sgrad_log_error(SGRAD_EFORMAT, "tar: %s: has %s, but %s has %s; write them to two data sets",
                                       all[k]->paths.path[s], tar->arrays.used ? "images" : "arrays", first,
                                       tar->arrays.used ? "arrays" : "images");
    if (!tar->arrays.used || !tar->images.side) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "data set tar:%s: its samples are arrays, which are not resized; omit the image size",
                           pattern);
}

/* Warns of images that belong to no sample. */
static void warn_of_images(const struct sgrad_dataset *dataset, const char *pattern) {
    const struct tar *tar = dataset->state;
    int64_t images = 0;
    for (int i = 0; i < tar->beside.kinds; i++)
        if (*tar->beside.other[i].kind == '.' && sgrad__image_is_named(tar->beside.other[i].kind))
            images += tar->beside.other[i].files;
    if (images && sgrad_launched_rank() == 0)
        sgrad_log_warning("tar: %s: %lld %s not read: the name of a sample ends at the first dot, so '1.2.jpg' is a further "
                          "member of '1', not its image",
                          pattern, (long long)images, sgrad_plural(images, "image is", "images are"));
}

/* Adds up the members that belong to no sample. */
static void count_others(struct sgrad_dataset *dataset) {
    struct tar *tar = dataset->state;
    for (int64_t s = 0; s < tar->shards.paths.count; s++) sgrad__index_others(&tar->shards.shard[s], &tar->beside);
    dataset->others = tar->others = sgrad_walk_others(&tar->beside);
}

static int open_split(struct sgrad_dataset *dataset, const char *pattern, const struct sgrad_dataset_options *options) {
    struct tar *tar = dataset->state;
    const size_t limit = sgrad__memory_limit(options->memory);
    tar->part = sgrad__part_choose(dataset->split == SGRAD_TEST, options, has_part, pattern);
    SGRAD_TRY(sgrad__shards_list(pattern, tar->part.name, limit, &tar->shards));
    const bool other = tar->part.has_train && strcmp(tar->part.name, "train");
    tar->training = other ? &tar->own_training : &tar->shards;
    if (other) SGRAD_TRY(sgrad__shards_list(pattern, "train", limit, &tar->own_training));
    tar->images.source = sgrad__shards_source(&tar->shards);
    tar->trained = options->origin;
    SGRAD_TRY(check_inputs(dataset, pattern));
    take_samples(dataset);
    count_others(dataset);
    warn_of_images(dataset, pattern);
    SGRAD_TRY(find_classes(dataset));
    SGRAD_TRY(take_labels(dataset, pattern, options->every));
    return tar->part.holds_out && !options->whole ? sgrad__split_hold_out(dataset, pattern, options) : 0;
}

static int open_tar(struct sgrad_dataset *dataset, const char *argument, const struct sgrad_dataset_options *options) {
    struct tar *tar = dataset->state = sgrad_xcalloc(1, sizeof *tar);
    char *pattern = NULL;
    int error = sgrad__encoded_open(&tar->images, dataset, argument, options, &pattern);
    if (!error) error = open_split(dataset, pattern, options);
    free(pattern);
    return error;
}

/* Surveys the training images, for both splits; of compressed shards only the first one. Measures the training arrays. Closes the
 * training shards of a test split, which are not needed any more. */
static int measure(struct sgrad_dataset *dataset) {
    struct tar *tar = dataset->state;
    struct sgrad__survey survey;
    struct sgrad__source source = sgrad__shards_source(tar->training);
    int error = 0;
    tar->arrays.slow = tar->training->unpacked != NULL;
    if (tar->arrays.used)
        error = sgrad__npy_members_measure(&tar->arrays, &source, tar->images.skips, tar->trained, dataset);
    else {
        if (tar->training->unpacked) source.count = tar->training->first[1];
        sgrad__survey(&source, &survey);
    }
    tar->training = &tar->shards;
    sgrad__shards_unlist(&tar->own_training);
    if (tar->arrays.used) return error;
    return sgrad__encoded_measure(&tar->images, dataset, &survey, !tar->shards.unpacked);
}

/* ---- the reader ---------------------------------------------------------------------------------------------------- */

static int read_sample(const struct sgrad_dataset *dataset, struct sgrad_sample sample, void *const *data) {
    struct tar *tar = dataset->state;
    if (tar->arrays.used) return sgrad__npy_members_read(&tar->arrays, &tar->images.source, dataset, sample.index, data[0]);
    return sgrad__encoded_read(&tar->images, dataset, sample.index, data[0]);
}

static char *name_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct sgrad__shards *shards = &((const struct tar *)dataset->state)->shards;
    const struct sgrad__shard_sample *sample;
    const int64_t s = sgrad__shards_find(shards, i, &sample);
    return sgrad_format("%s/%.*s", sgrad__shards_name(shards, s), (int)sample->key, shards->shard[s].text + sample->name);
}

static int decode_picture(const struct sgrad_dataset *dataset, int64_t i, struct sgrad_picture *picture) {
    const struct tar *tar = dataset->state;
    if (!tar->arrays.used) return sgrad__encoded_picture(&tar->images, i, picture);
    const int64_t *dim = dataset->field[0].shape.dim;
    uint8_t *pixels = sgrad_xcalloc(1, sgrad_field_bytes(&dataset->field[0]));
    const int error = sgrad__npy_members_read(&tar->arrays, &tar->images.source, dataset, i, pixels);
    if (error) return free(pixels), error;
    *picture = (struct sgrad_picture){ (int)dim[0], (int)dim[1], (int)dim[2], false, false, pixels };
    return 0;
}

static uint64_t stamp_sample(const struct sgrad_dataset *dataset, int64_t i) {
    const struct sgrad__shards *shards = &((const struct tar *)dataset->state)->shards;
    const struct sgrad__shard_sample *sample;
    const struct sgrad__shard *shard = &shards->shard[sgrad__shards_find(shards, i, &sample)];
    const int64_t number[] = { shard->file.bytes, shard->file.written, (int64_t)sample->at, sample->size };
    char *name = name_sample(dataset, i);
    const uint64_t stamp = sgrad__sample_stamp(name, number, sizeof number / sizeof *number);
    free(name);
    return stamp;
}

static void close_tar(struct sgrad_dataset *dataset) {
    struct tar *tar = dataset->state;
    for (int c = 0; c < tar->names; c++) free(tar->class_name[c]);
    free(tar->class_name);
    sgrad__encoded_close(&tar->images);
    free(tar->arrays.where);
    sgrad__shards_unlist(&tar->shards);
    sgrad__shards_unlist(&tar->own_training);
    sgrad_walk_free(&tar->beside);
    free(tar->others);
    free(tar);
}

const struct sgrad_reader sgrad_tar_reader = {
    .name = "tar",
    .argument = "PATTERN[,SIZE]",
    .summary = "images in tar archives (WebDataset), resized and cropped to SIZE x SIZE, or NumPy arrays (.npy): "
               "'tar:DIR/{train,val}-{000..099}.tar'; "
               "labels are in .cls or .json members; archives may be compressed (.gz, .zst); --split replaces val",
    .augment = "crop:1/8,flip",
    .open = open_tar,
    .measure = measure,
    .read = read_sample,
    .close = close_tar,
    .sample_name = name_sample,
    .picture = decode_picture,
    .resizes = "tar:PATTERN,SIZE",
    .stamp = stamp_sample,
    .measures = 10000,
};
