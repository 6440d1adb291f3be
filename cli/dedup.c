/* dedup.c: stargrad dedup: counts, lists and shows near-duplicate images of a data set, and measures the effect of training
 * without them. */
#include "cli/dedup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sgrad__option options[] = {
    { .help = "Images" },
    { "data", "KIND[:PATH]", "data set of images; see stargrad list datasets", &sgrad__text, SGRAD__FIELD(data.name),
      .required = true },
    { "no-test", NULL, "examine only the training set", &sgrad__flag, SGRAD__PLACE(dedup.no_test) },
    { "split", "FRACTION",
      "hold out this fraction of the training samples as the test set, drawn by --seed, as stargrad train --split does; 0: none",
      &sgrad__real, SGRAD__FIELD(data.split), 0, 0.99 },
    { "damaged", "skip|stop|refuse", "on an image that cannot be read: skip it, or stop with an error (refuse means stop)",
      &sgrad__choice, SGRAD__PLACE(dedup.refuse_damaged) },
    { "odd", "take|skip|refuse",
      "on images with more than 8 bits per channel or with several frames: take them (rounded to 8 bits, first frame), skip "
      "them, or stop with an error (refuse)",
      &sgrad__choice, SGRAD__PLACE(dedup.odd) },

    { .help = "Similarity" },
    { "hash", "NAME", "hash; see stargrad list hashes", &sgrad__text, SGRAD__PLACE(dedup.hash) },
    { "bits", "64|256", "number of bits of a hash", &sgrad__choice, SGRAD__PLACE(dedup.bits) },
    { "threshold", "T|auto",
      "largest Hamming distance of duplicates; auto: the largest at which fewer than 1 in 10,000 random pairs match [10; 40 "
      "with --bits 256]", &sgrad__text, SGRAD__PLACE(dedup.threshold) },
    { "across", NULL, "also drop duplicates in other classes, and training images similar to a test image", &sgrad__flag,
      SGRAD__PLACE(dedup.across) },

    { .help = "Threshold sweep: one training per threshold" },
    { "sweep", "A-B", "for each threshold from A to B, train without the images that it drops; write sweep.json and sweep.svg",
      &sgrad__text, SGRAD__PLACE(dedup.sweep) },
    { "epsilon", "X",
      "largest accepted loss of accuracy; the best threshold drops the most images without losing more than this",
      &sgrad__real, SGRAD__PLACE(dedup.epsilon), 0, 1 },
    { "seeds", "N", "number of trainings per threshold", &sgrad__whole, SGRAD__PLACE(dedup.seeds), 1, 1000 },
    { "model", "NAME", "network; see stargrad list models", &sgrad__text, SGRAD__FIELD(model.name) },
    { "image-size", "N", "resize the images of a folder to NxN [original size]", &sgrad__whole, SGRAD__FIELD(data.image_size), 1,
      4096 },
    { "augment", "LIST", "augmentations, as in stargrad train", &sgrad__augmentation, SGRAD__FIELD(data.augment) },
    { "epochs", "N", "passes over the remaining samples", &sgrad__real, SGRAD__FIELD(training.epochs), 1e-3, 1e6 },
    { "steps", "N", "number of steps per training; overrides --epochs", &sgrad__whole, SGRAD__FIELD(training.steps), 1,
      4294967295.0 },
    { "batch", "N", "samples per step", &sgrad__whole, SGRAD__FIELD(training.batch), 1, 2147483647 },
    { "optimizer", "NAME", "optimizer; see stargrad list optimizers", &sgrad__text, SGRAD__FIELD(optimizer.name) },
    { "lr", "X", "learning rate [see stargrad list optimizers]", &sgrad__real, SGRAD__FIELD(optimizer.lr), 0, 1e6 },
    { "schedule", "NAME", "learning-rate schedule, as in stargrad train", &sgrad__schedule, SGRAD__FIELD(optimizer.schedule) },
    { "weight-decay", "X", "weight decay, applied as in PyTorch", &sgrad__real, SGRAD__FIELD(optimizer.weight_decay), 0, 1e6 },
    { "precision", "f32|tf32|bf16",
      "tf32: GPU tensor cores may round the inputs of matrix products to TF32; bf16: bfloat16 activations",
      &sgrad__choice, SGRAD__FIELD(model.precision) },
    { "seed", "N", "seed of --split and of the first training per threshold; the seed of each further training is larger by 1",
      &sgrad__whole, SGRAD__FIELD(training.seed), 0, 9007199254740992.0 },

    { .help = "Output and resources" },
    { "out", "DIR", "folder for the lists, the HTML page and the hashes; a later run reuses the hashes", &sgrad__folder,
      SGRAD__FIELD(output.folder), .required = true },
    { "memory", "MIB",
      "memory limit of the search, in addition to 26 bytes per image; data beyond it are kept in a file in the --out folder "
      "[half of the machine's memory]",
      &sgrad__whole, SGRAD__PLACE(dedup.memory), 1, 1e9 },
    { "cpus", "N", "number of CPU workers", &sgrad__workers, SGRAD__FIELD(parallel.cpus), 0, 4096 },
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

/* The results of a search. */
struct answer {
    struct sgrad_dataset *part[2];
    struct sgrad_hashes hashes;
    struct sgrad_guide guide;
    struct sgrad_duplicates found;
    double hashing, searching;  /* seconds */
    bool automatic;
};

static int64_t images_in_state(const struct sgrad_hashes *hashes, int state) {
    int64_t count = 0;
    for (int64_t i = 0; i < hashes->count; i++) count += (hashes->state[i] & state) != 0;
    return count;
}

/* ---- preparation -------------------------------------------------------------------------------------------------- */

static int open_parts(const struct sgrad__request *request, struct sgrad_dataset *part[2]) {
    const struct sgrad_train_options *o = &request->train;
    const struct sgrad_dataset_options how = { .seed = o->training.seed, .split = o->data.split, .pictures = true };
    SGRAD_TRY(sgrad_dataset_open(o->data.name, SGRAD_TRAIN, &how, &part[0]));
    if (!sgrad_dataset_image(part[0]) || sgrad_dataset_image(part[0])->shape.rank != 3)
        return sgrad_log_error(SGRAD_EINVAL, "dedup: --data %s has no images; give a data set of images, such as folder:DIR",
                               o->data.name);
    if (o->data.split > 0 && !part[0]->held_out && sgrad_launched_rank() == 0)
        sgrad_log_warning("--split has no effect: %s has a test set", o->data.name);
    return request->dedup.no_test ? 0 : sgrad_dataset_open(o->data.name, SGRAD_TEST, &how, &part[1]);
}

/* Returns the requested threshold; -1: auto; -2: invalid. */
static int read_threshold(const struct sgrad__request *request) {
    const int bits = request->dedup.bits ? 256 : 64;
    const char *text = request->dedup.threshold;
    char *end;
    if (!text) return 10 * bits / 64;
    if (!strcmp(text, "auto")) return -1;
    const long threshold = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && threshold <= bits ? (int)threshold : -2;
}

/* ---- the work ----------------------------------------------------------------------------------------------------- */

static int hash_images(const struct sgrad__request *request, const struct sgrad_context *context, struct answer *answer) {
    char *file = sgrad_format("%s/hashes.bin", request->train.output.folder);
    const struct sgrad_hash_options how = { .kind = sgrad_registry_find("hash", request->dedup.hash, sgrad_hash_kinds),
                                            .bits = request->dedup.bits ? 256 : 64, .file = file,
                                            .damaged = request->dedup.refuse_damaged ? SGRAD_REFUSE : SGRAD_SKIP,
                                            .odd = (enum sgrad_treatment)request->dedup.odd };
    const double begin = sgrad_time_monotonic();
    int error = sgrad_hashes_make(context, answer->part, &how, &answer->hashes);
    answer->hashing = sgrad_time_monotonic() - begin;
    free(file);
    return error;
}

/* Writes the names of images with a state: "train/cat/1.jpg  damaged". */
static int write_unusual(const char *folder, const struct answer *answer) {
    struct sgrad_file file;
    char *path = sgrad_format("%s/unusual.txt", folder);
    remove(path);
    int error = images_in_state(&answer->hashes, 255) ? sgrad_file_begin(path, &file) : 1;
    for (int64_t i = 0; !error && i < answer->hashes.count; i++) {
        const int state = answer->hashes.state[i];
        const bool test = i >= answer->hashes.train;
        if (!state) continue;
        char *name = sgrad_dataset_sample_name(answer->part[test], test ? i - answer->hashes.train : i);
        fprintf(file.stream, "%s%s\t%s%s%s%s\n", test && !answer->part[1]->reader->sample_name ? "test:" : "", name,
                state & SGRAD_IMAGE_DAMAGED ? "damaged" : "", state & SGRAD_IMAGE_DEEP ? "16 bits " : "",
                state & SGRAD_IMAGE_ANIMATED ? "animated " : "", state & SGRAD_IMAGE_SKIPPED ? "skipped" : "");
        free(name);
    }
    free(path);
    if (!error) return sgrad_file_commit(&file);
    return error < 0 ? error : 0;
}

/* Returns the memory of the search in bytes. */
static int64_t search_memory(const struct sgrad__request *request) {
    if (request->dedup.memory) return (int64_t)request->dedup.memory << 20;
    return (int64_t)sysconf(_SC_PHYS_PAGES) / 2 * (int64_t)sysconf(_SC_PAGESIZE);
}

/* The work of rank 0: finds the duplicates, and writes the lists and the page. */
static int find(const struct sgrad__request *request, struct answer *answer) {
    const char *folder = request->train.output.folder;
    int threshold = read_threshold(request), from = 0, to = 0;
    SGRAD_TRY(sgrad_guide_sample(answer->part[0], &answer->hashes, 1, &answer->guide));
    answer->automatic = threshold < 0;
    if (answer->automatic && answer->guide.automatic < 0)
        sgrad_log_warning(
            "--threshold auto: more than %g %% of the random pairs of one class have equal hashes, so the threshold is 0",
            100 * SGRAD_FALSE_RATE);
    if (answer->automatic) threshold = answer->guide.automatic < 0 ? 0 : answer->guide.automatic;
    if (request->dedup.sweep && sgrad__sweep_parse(request->dedup.sweep, &from, &to) && threshold < to) {
        sgrad_log_warning("--sweep %s: the lists and the page use its highest threshold, %d, instead of %d",
                          request->dedup.sweep, to, threshold);
        threshold = to;
        answer->automatic = false;
    }
    const double begin = sgrad_time_monotonic();
    SGRAD_TRY(sgrad_duplicates_find(answer->part, &answer->hashes,
                                    &(struct sgrad_duplicates_options){ .threshold = threshold, .across = request->dedup.across,
                                                                        .folder = folder, .memory = search_memory(request),
                                                                        .pairs_kept = 2000000 }, &answer->found));
    answer->searching = sgrad_time_monotonic() - begin;
    SGRAD_TRY(sgrad_duplicates_write(answer->part, &answer->hashes, &answer->found, folder));
    SGRAD_TRY(write_unusual(folder, answer));
    return sgrad_duplicates_page(answer->part, &answer->hashes, &answer->found, &answer->guide, request->train.data.name, folder);
}

/* ---- output ------------------------------------------------------------------------------------------------------- */

static double share(int64_t count, int64_t of) { return of ? (double)count / (double)of : 0; }

static void print(const struct sgrad__request *request, const struct answer *answer) {
    const struct sgrad_duplicates *d = &answer->found;
    const struct sgrad_hashes *h = &answer->hashes;
    const int64_t damaged = images_in_state(h, SGRAD_IMAGE_DAMAGED), deep = images_in_state(h, SGRAD_IMAGE_DEEP),
                  animated = images_in_state(h, SGRAD_IMAGE_ANIMATED),
                  unhashed = images_in_state(h, SGRAD_IMAGE_SKIPPED | SGRAD_IMAGE_DAMAGED);
#define COUNT(n) (long long)(n)
    printf("data       %s: %lld training and %lld test images", request->train.data.name, COUNT(h->train),
           COUNT(h->count - h->train));
    for (int i = 0; i < 2; i++)
        if (answer->part[i] && answer->part[i]->others)
            printf("; %s folder: %s", i ? "test" : "training", answer->part[i]->others);
    putchar('\n');
    printf("hashes     %s, %d bits: %lld computed, %lld reused, in %.2f s\n", h->kind->name, h->bits,
           COUNT(h->count - h->known - damaged), COUNT(h->known), answer->hashing);
    if (damaged + deep + animated)
        printf("unusual    %lld damaged, %lld of more than 8 bits, %lld animated; %lld left out; see %s/unusual.txt\n",
               COUNT(damaged), COUNT(deep), COUNT(animated), COUNT(unhashed), request->train.output.folder);
    printf("threshold  %d%s: matches up to %.2g %% of the random pairs of one class", d->threshold,
           answer->automatic ? " (auto)" : "", 100 * answer->guide.worst[d->threshold]);
    if (answer->guide.automatic >= 0)
        printf("; below %g %% at thresholds up to %d\n", 100 * SGRAD_FALSE_RATE, answer->guide.automatic);
    else
        printf("; not below %g %% at any threshold\n", 100 * SGRAD_FALSE_RATE);
    printf(
        "within     %lld %s of one class, %lld images: duplicates; about %.*f by chance, estimated from pairs of two classes\n",
        COUNT(d->pairs[SGRAD_WITHIN]), sgrad_plural(d->pairs[SGRAD_WITHIN], "pair", "pairs"), COUNT(d->images[SGRAD_WITHIN]),
        d->chance < 10, d->chance);
    printf("across     %lld %s of two classes, %lld images: wrong labels or similar images\n", COUNT(d->pairs[SGRAD_ACROSS]),
           sgrad_plural(d->pairs[SGRAD_ACROSS], "pair", "pairs"), COUNT(d->images[SGRAD_ACROSS]));
    printf("leaks      %lld training images near %lld test images (%.2f %% of the test set); %lld of %lld pairs are of one "
           "class\n",
           COUNT(d->images[SGRAD_LEAK]), COUNT(d->tests), 100 * share(d->tests, h->count - h->train), COUNT(d->leaks_of_class),
           COUNT(d->pairs[SGRAD_LEAK]));
    printf("dropped    %lld of %lld training images (%.2f %%), searched in %.2f s\n", COUNT(d->dropped), COUNT(h->train),
           100 * share(d->dropped, h->train), answer->searching);
    if (d->written < d->pairs[0] + d->pairs[1] + d->pairs[2])
        printf("pairs      pairs.jsonl has only the first %lld\n", COUNT(d->written));
#undef COUNT
    printf("%s: keep.txt, drop.txt, leaks.txt, pairs.jsonl, index.html, hashes.bin\n", request->train.output.folder);
}

static json_t *relation_json(const struct sgrad_duplicates *duplicates, enum sgrad_relation r) {
    return json_pack("{s:I, s:I}", "pairs", (json_int_t)duplicates->pairs[r], "images", (json_int_t)duplicates->images[r]);
}

static json_t *as_json(const struct sgrad__request *request, const struct answer *answer) {
    const struct sgrad_duplicates *d = &answer->found;
    const struct sgrad_hashes *h = &answer->hashes;
    json_t *json = json_pack("{s:s, s:s, s:i, s:i, s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "data", request->train.data.name, "hash",
                             h->kind->name, "bits", h->bits, "threshold", d->threshold, "auto", answer->automatic, "train",
                             (json_int_t)h->train, "test", (json_int_t)(h->count - h->train), "known", (json_int_t)h->known,
                             "damaged", (json_int_t)images_in_state(h, SGRAD_IMAGE_DAMAGED), "deep",
                             (json_int_t)images_in_state(h, SGRAD_IMAGE_DEEP), "animated",
                             (json_int_t)images_in_state(h, SGRAD_IMAGE_ANIMATED));
    json_object_set_new(json, "within", relation_json(d, SGRAD_WITHIN));
    json_object_set_new(json, "across", relation_json(d, SGRAD_ACROSS));
    json_t *leaks = relation_json(d, SGRAD_LEAK);
    json_object_set_new(leaks, "tests", json_integer((json_int_t)d->tests));
    json_object_set_new(leaks, "pairs_of_one_class", json_integer((json_int_t)d->leaks_of_class));
    json_object_set_new(json, "leaks", leaks);
    json_object_set_new(json, "dropped", json_integer((json_int_t)d->dropped));
    json_object_set_new(json, "ratio", json_real(share(d->dropped, h->train)));
    json_object_set_new(json, "false_rate", json_real(answer->guide.worst[d->threshold]));
    json_object_set_new(json, "chance_pairs", json_real(d->chance));
    json_object_set_new(json, "auto_threshold", json_integer(answer->guide.automatic));
    json_object_set_new(json, "hash_seconds", json_real(answer->hashing));
    json_object_set_new(json, "search_seconds", json_real(answer->searching));
    json_object_set_new(json, "folder", json_string(request->train.output.folder));
    return json;
}

static int check(const struct sgrad__request *request) {
    int from, to;
    if (!sgrad_registry_find("hash", request->dedup.hash, sgrad_hash_kinds)) return SGRAD__USAGE;
    if (read_threshold(request) == -2)
        return sgrad__wrong("dedup: --threshold: '%s' is not auto or a whole number from 0 to %d", request->dedup.threshold,
                            request->dedup.bits ? 256 : 64);
    if (!request->dedup.sweep) return SGRAD__DONE;
    if (!sgrad__sweep_parse(request->dedup.sweep, &from, &to) || to >= SGRAD_LEVELS_MOST)
        return sgrad__wrong("dedup: --sweep: '%s' is not a range of thresholds below %d, like 0-16", request->dedup.sweep,
                            SGRAD_LEVELS_MOST);
    if (request->train.data.split > 0 && request->dedup.seeds > 1)
        return sgrad__wrong("dedup: --seeds %d cannot be combined with --split: other seeds hold out other samples",
                            request->dedup.seeds);
    return request->train.model.name ? SGRAD__DONE
                                     : sgrad__wrong("dedup: --sweep requires --model NAME, the network to train");
}

/* Opens a context only for hashing and searching; each training of a sweep opens another. */
static int work(const struct sgrad__request *request, struct answer *answer) {
    struct sgrad_context *context;
    SGRAD_TRY(open_parts(request, answer->part));
    SGRAD_TRY(sgrad_folder_make(request->train.output.folder));
    SGRAD_TRY(sgrad_context_open(&(struct sgrad_context_options){ .cpus = request->train.parallel.cpus, .gpus = -1 }, &context));
    int error = 0;
    if (context->ranks > 1 && request->dedup.sweep)
        error = context->rank ? SGRAD_EINVAL : sgrad_log_error(SGRAD_EINVAL, "--sweep trains on one rank; run it without mpirun");
    if (!error) error = hash_images(request, context, answer);
    if (!error)
        error = sgrad_ranks_await(context->rank ? 0 : find(request, answer), "for rank 0, which searches for duplicates");
    sgrad_context_close(context);
    return error;
}

static int run(const struct sgrad__request *request) {
    struct answer a = { 0 };
    struct sgrad__sweep sweep = { 0 };
    const int status = check(request);
    if (status) return status;
    int error = work(request, &a);
    if (!error && request->dedup.sweep) error = sgrad__sweep_run(request, a.part[0], &a.hashes, &a.found, &sweep);
    if (!error && sgrad_launched_rank() == 0) {
        json_t *json = request->train.output.json ? as_json(request, &a) : NULL;
        if (json && sweep.count) json_object_set_new(json, "sweep", sgrad__sweep_json(&sweep));
        if (json) sgrad__print_json(json);
        else print(request, &a);
    }
    free(sweep.point);
    sgrad_duplicates_free(&a.found);
    sgrad_hashes_free(&a.hashes);
    sgrad_dataset_close(a.part[0]);
    sgrad_dataset_close(a.part[1]);
    return sgrad__status(error);
}

static void set_defaults(struct sgrad__request *request) {
    request->dedup.hash = "phash";
    request->dedup.seeds = 1;
    request->dedup.epsilon = 0.005;
}

const struct sgrad__command sgrad__dedup_command = {
    .name = "dedup",
    .summary = "find near-duplicate images in a data set",
    .options = options,
    .defaults = set_defaults,
    .run = run,
    .notes = "To train without the images that dedup drops:\n\n"
             "  stargrad dedup --data cifar10:DIR --out dups\n"
             "  stargrad train --model resnet20 --data cifar10:DIR --exclude dups/drop.txt",
};
