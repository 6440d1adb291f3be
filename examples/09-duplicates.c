/* 09-duplicates.c: finding near-duplicate images, and training without them.
 *
 *     09-duplicates                      finds built-in digits whose hashes differ in at most 2 bits
 *     09-duplicates cifar10:DIR 4        searches another data set, with another threshold
 *
 * Tasks compute a hash of 64 bits for each image, one block of images a task. More tasks search for pairs of near hashes. The
 * result is a list of samples to drop, one a line, the format of train --exclude. The data set itself does not change. To add
 * your own hash, write a record like sgrad_phash_hash with two functions: one for the image size, one that computes the bits.
 *
 * Next: 10-language-model.c. docs/guides/dedup.md describes thresholds, their results and cost. The command is stargrad dedup. */
#include "duplicates/duplicates.h"
#include "graphs/graphs.h"

#include <stdlib.h>

#define LIST "duplicates.txt"

static void show(const struct sgrad_dataset *train, const struct sgrad_hashes *hashes, const struct sgrad_duplicates *found) {
    printf("%lld training images; near pairs: %lld of one class, %lld of two, %lld with a test image; %lld dropped: " LIST "\n",
           (long long)hashes->train, (long long)found->pairs[SGRAD_WITHIN], (long long)found->pairs[SGRAD_ACROSS],
           (long long)found->pairs[SGRAD_LEAK], (long long)found->dropped);
    for (int64_t i = 0; i < found->kept; i++) {
        const struct sgrad_pair *p = &found->pair[i];
        if (p->b >= hashes->train) continue; /* a test image: their numbers follow those of the training images */
        char *a = sgrad_dataset_sample_name(train, p->a), *b = sgrad_dataset_sample_name(train, p->b);
        printf("  %s and %s: %u bits\n", a, b, p->distance);
        free(a);
        free(b);
    }
}

/* Finds near-duplicates and writes the samples to drop to LIST. */
static int find(const char *data, int threshold) {
    const struct sgrad_dataset_options how = { .pictures = true }; /* images in the sizes of their files */
    const struct sgrad_hash_options hashing = { .kind = &sgrad_phash_hash, .bits = 64, .damaged = SGRAD_SKIP };
    struct sgrad_dataset *part[2] = { NULL };
    struct sgrad_context *context = NULL;
    struct sgrad_hashes hashes = { 0 };
    struct sgrad_duplicates found = { 0 };
    int error = sgrad_dataset_open(data, SGRAD_TRAIN, &how, &part[0]);
    if (!error) error = sgrad_dataset_open(data, SGRAD_TEST, &how, &part[1]);
    if (!error) error = sgrad_context_open(&(struct sgrad_context_options){ .gpus = -1 }, &context);
    if (!error) error = sgrad_hashes_make(context, part, &hashing, &hashes);
    if (!error)
        error = sgrad_duplicates_find(part, &hashes,
                                      &(struct sgrad_duplicates_options){ .threshold = threshold, .pairs_kept = 8 }, &found);
    if (!error) error = sgrad_duplicates_write_level(part[0], &hashes, &found, found.levels - 1, LIST);
    if (!error) show(part[0], &hashes, &found);
    sgrad_duplicates_free(&found);
    sgrad_hashes_free(&hashes);
    if (context) sgrad_context_close(context);
    sgrad_dataset_close(part[0]);
    sgrad_dataset_close(part[1]);
    return error;
}

static int train(const char *data, const char *exclude) {
    struct sgrad_train_options options = sgrad_train_defaults();
    struct sgrad_train_result result = { 0 };
    options.model.name = "convnet";
    options.data.name = data;
    options.training.epochs = 2;
    options.training.batch = 64;
    options.data.exclude = exclude;
    SGRAD_TRY(sgrad_train(&options, &result));
    printf("%s: test accuracy %.2f %% after %ld steps\n", exclude ? "without duplicates" : "all images", 100 * result.test_top1,
           result.steps);
    free(result.folder);
    return 0;
}

int main(int argc, char **argv) {
    const char *data = argc > 1 ? argv[1] : "digits";
    return find(data, argc > 2 ? atoi(argv[2]) : 2) || train(data, NULL) || train(data, LIST);
}
