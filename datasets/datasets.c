/* datasets.c: functions for data sets of all kinds: opening by name, reading samples, closing. */
#include "config.h"

#include "datasets/datasets.h"
#include "datasets/folder.h"
#include "datasets/formats.h"
#include "datasets/mixture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int find_reader(const char *kind, const char *argument, const struct sgrad_reader *custom,
                       const struct sgrad_reader **reader) {
    const bool own = custom && !strcmp(custom->name, kind);
    const struct sgrad_reader *found = own ? custom : sgrad_registry_get(kind, sgrad_readers);
    if (!found && sgrad__is_folder(kind))
        return sgrad_log_error(SGRAD_ENAME, "unknown dataset '%s'; for the images in this folder, give folder:%s", kind, kind);
    if (!found) return sgrad_registry_refuse("dataset", kind, sgrad_readers);
    if (found->argument && !argument)
        return sgrad_log_error(SGRAD_EINVAL, "data set %s: its argument is missing; give %s:%s", kind, kind, found->argument);
    if (!found->argument && argument) return sgrad_log_error(SGRAD_EINVAL, "data set %s: accepts no argument", kind);
    *reader = found;
    return 0;
}

/* Asserts that a reader has set the members of its data set correctly. */
static void check(const struct sgrad_dataset *dataset) {
    assert(dataset->count > 0 && sgrad_dataset_fields(dataset) >= 2);
    assert((sgrad_dataset_target(dataset)->dtype == SGRAD_I32) == (dataset->classes > 0));
    const struct sgrad_field *image = sgrad_dataset_image(dataset);
    assert(!image || (sgrad_field_plane(image)[2] <= SGRAD_MAX_CHANNELS && dataset->full_scale > 0));
    for (const struct sgrad_field *f = dataset->field; f->name; f++) {
        assert(f->dtype == SGRAD_U8 || f->dtype == SGRAD_U16 || f->dtype == SGRAD_I32 || f->dtype == SGRAD_F32);
        assert(f->shape.rank < SGRAD_MAX_RANK && (f->data || dataset->reader->read));
    }
}

/* Checks options->attend for the data set TEXT. */
static int check_attend(const struct sgrad_dataset_options *options, const struct sgrad_reader *reader, const char *text) {
    const char *attend = options->attend;
    static const char with_token[] = "document:";
    if (!attend || strcmp(attend, "sample") == 0) return 0;
    const bool given = strncmp(attend, with_token, strlen(with_token)) == 0;
    const char *token = attend + (given ? strlen(with_token) : 0);
    const size_t digits = strspn(token, "0123456789");
    if (given ? digits < 1 || digits > 9 || token[digits] : strcmp(attend, "document") != 0)
        return sgrad_log_error(SGRAD_EINVAL, "--attend '%s' must be sample, document or document:TOKEN, where TOKEN is a number",
                               attend);
    if (strcmp(reader->name, "tokens") == 0 || strcmp(reader->name, "text") == 0) return 0;
    if (strcmp(reader->name, "jsonl") == 0 && options->tokenizer) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "--attend document requires --data tokens:DIR,T or text:FILE,T, not %s", text);
}

int sgrad_dataset_open(const char *text, enum sgrad_split split, const struct sgrad_dataset_options *options,
                       struct sgrad_dataset **dataset) {
    static const struct sgrad_dataset_options none;
    const struct sgrad_reader *reader = NULL;
    const char *colon = strchr(text, ':');
    char *kind = sgrad_format("%.*s", (int)(colon ? colon - text : (ptrdiff_t)strlen(text)), text);
    const char *argument = colon && colon[1] ? colon + 1 : NULL;
    int error = find_reader(kind, argument, options ? options->custom : NULL, &reader);
    free(kind);
    SGRAD_TRY(error);

    struct sgrad_dataset *opened = sgrad_xcalloc(1, sizeof *opened);
    opened->reader = reader;
    opened->split = split;
    opened->augment = reader->augment;
    if (!options) options = &none;
    if (options->answers && strcmp(reader->name, "tokens"))
        error = sgrad_log_error(SGRAD_EINVAL, "--loss-on answers requires --data tokens:DIR,T, not %s", text);
    if (!error) error = check_attend(options, reader, text);
    if (!error && options->id && strcmp(reader->name, "csv") && strcmp(reader->name, "jsonl"))
        error = sgrad_log_error(SGRAD_EINVAL, "--id requires --data csv:FILE or jsonl:FILE, not %s", text);
    if (!error && !(options->split >= 0 && options->split < 1))
        error = sgrad_log_error(SGRAD_EINVAL, "--split %g must be a fraction below 1", options->split);
    if (!error) error = reader->open(opened, argument, options);
    if (!error && options->origin) error = sgrad__origin_match(opened, text, options->origin, options->every);
    if (!error && options->class_titles)
        error = sgrad_class_titles_read(options->class_titles, opened->classes, &opened->class_title);
    if (!error && options->exclude) error = sgrad__dataset_exclude(opened, options->exclude);
    if (!error && reader->measure && !options->pictures) error = reader->measure(opened);
    if (error) {
        sgrad_dataset_close(opened);
        return error;
    }
    check(opened);
    *dataset = opened;
    return 0;
}

void sgrad_dataset_close(struct sgrad_dataset *dataset) {
    if (!dataset) return;
    if (dataset->reader->close && dataset->state) dataset->reader->close(dataset);
    sgrad_dataset_release(dataset);
    for (char **name = dataset->own_name; name && *name; name++) free(*name);
    for (int64_t i = 0; i < dataset->ids; i++) free(dataset->id[i]);
    for (int c = 0; dataset->class_title && c < dataset->classes; c++) free(dataset->class_title[c]);
    free(dataset->class_title);
    free(dataset->id);
    free(dataset->id_title);
    sgrad_origin_free(dataset->origin);
    free(dataset->own_name);
    free(dataset->label_of);
    free(dataset->note);
    free(dataset->kept);
    free(dataset->first);
    sgrad__mixture_free(dataset);
    free(dataset);
}

void sgrad_dataset_release(struct sgrad_dataset *dataset) {
    for (struct sgrad_field *f = dataset->field; f->name; f++) {
        free((void *)f->data);
        f->data = NULL;
    }
}

size_t sgrad_dataset_sample_bytes(const struct sgrad_dataset *dataset) {
    size_t bytes = 0;
    for (const struct sgrad_field *f = dataset->field; f->name; f++) bytes += sgrad_field_bytes(f);
    return bytes;
}

/* Replaces the labels that reader->read returned by those of the network, or, if they are unknown, by 0. Negative labels
 * remain. */
static void relabel(const struct sgrad_dataset *dataset, int32_t *label) {
    const int64_t count = sgrad_shape_count(&sgrad_dataset_target(dataset)->shape);
    for (int64_t i = 0; i < count; i++)
        if (dataset->unlabelled) label[i] = 0;
        else if (label[i] >= 0) label[i] = dataset->label_of[label[i]];
}

int sgrad_dataset_read(const struct sgrad_dataset *dataset, const struct sgrad_sample *sample, int n, void *const *data) {
    const int own = sgrad_dataset_own_fields(dataset);
    void *at[SGRAD_MAX_FIELDS];
    for (int i = 0; i < n; i++) {
        bool whole = true;
        const int64_t index = sample[i].index, shift = sample[i].shift;
        assert(index >= 0 && index < dataset->count && shift >= 0 && (!shift || shift < dataset->shifts));
        for (int f = 0; f < own; f++) {
            const struct sgrad_field *field = &dataset->field[f];
            const size_t bytes = sgrad_field_bytes(field);
            at[f] = (char *)data[f] + (size_t)i * bytes;
            if (field->data) memcpy(at[f], (const char *)field->data + (size_t)index * bytes, bytes);
            else whole = false;
        }
        if (!whole) SGRAD_TRY(dataset->reader->read(dataset, sgrad__sample_in_reader(dataset, sample[i]), at));
        if (dataset->label_of && !dataset->field[own - 1].data) relabel(dataset, at[own - 1]);
        if (!dataset->mixed) continue;
        ((int32_t *)data[own])[i] = *(const int32_t *)at[own - 1];
        ((float *)data[own + 1])[i] = 1;
    }
    return 0;
}
