/* hash.c: computes the hashes of a data set's images. A block of images is a task; the blocks are distributed over the ranks.
 *
 *     images     0 … 255 | 256 … 511 | 512 … 767 | 768 … 999       of the training set, then of the test set
 *     rank       0         0           1           1
 *     then every rank broadcasts its hashes
 *
 * The reader logs an image that cannot be read; here it is marked as damaged, or its error is returned. Images whose stamp is in
 * the cache file of hashes are not decoded again. */
#include "duplicates/internal.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256 };

struct job {
    struct sgrad_dataset *const *part;
    const struct sgrad_hash_options *options;
    struct sgrad_hashes *hashes;
    struct sgrad__store store;
    int64_t begin, end;         /* images of this rank */
    _Atomic int64_t known;
};

void sgrad__hash(const struct sgrad_hash_kind *kind, int side, const struct sgrad_picture *picture, struct sgrad__scaler *scaler,
                 uint8_t *grey, uint64_t *word) {
    uint8_t bit[SGRAD_HASH_SIDE * SGRAD_HASH_SIDE];
    int width, height;
    kind->size(side, &width, &height);
    sgrad__scale(scaler, picture, width, height, grey);
    kind->bits(grey, side, bit);
    for (int w = 0; w < side * side / 64; w++) {
        word[w] = 0;
        for (int i = 0; i < 64; i++) word[w] = word[w] << 1 | bit[64 * w + i];
    }
}

void sgrad_hash_picture(const struct sgrad_hash_kind *kind, int side, const struct sgrad_picture *picture, uint64_t *word) {
    struct sgrad__scaler scaler = { 0 };
    uint8_t *grey = sgrad_xcalloc(SGRAD__GREY_MOST, 1);
    sgrad__hash(kind, side, picture, &scaler, grey, word);
    sgrad__scaler_free(&scaler);
    free(grey);
}

static int refuse_odd(const struct job *job, int64_t i, int state) {
    char *name = sgrad__image_name(job->part, job->hashes, i);
    int error = sgrad_log_error(SGRAD_EFORMAT, "%s: %s; give --odd take or --odd skip to continue", name,
                                state & SGRAD_IMAGE_DEEP ? "has more than 8 bits per channel" : "is animated");
    free(name);
    return error;
}

/* Copies the hash of image I from the cache. Returns false if the cache does not have it. Damaged images are decoded again,
 * so that every run reports them. */
static bool is_known(struct job *job, int64_t i) {
    struct sgrad_hashes *h = job->hashes;
    const struct sgrad__record *r = sgrad__store_find(&job->store, h->stamp[i]);
    if (!r || r->state & SGRAD_IMAGE_DAMAGED) return false;
    memcpy(h->word + i * h->words, r->word, (size_t)h->words * sizeof *h->word);
    h->state[i] = r->state & (SGRAD_IMAGE_DEEP | SGRAD_IMAGE_ANIMATED);
    job->known++;
    return true;
}

static int hash_one(struct job *job, int64_t i, struct sgrad__scaler *scaler, uint8_t *grey) {
    struct sgrad_hashes *h = job->hashes;
    struct sgrad_picture picture;
    int64_t index = i;
    const struct sgrad_dataset *dataset = sgrad__part_of(job->part, h, &index);
    h->stamp[i] = sgrad_dataset_stamp(dataset, index);
    if (!is_known(job, i)) {
        int error = sgrad_dataset_picture(dataset, index, &picture);
        if (error && (job->options->damaged == SGRAD_REFUSE || error == SGRAD_ENOMEM || error == SGRAD_ELIBRARY)) return error;
        if (error) return h->state[i] = SGRAD_IMAGE_DAMAGED, 0;
        h->state[i] = (uint8_t)(picture.deep * SGRAD_IMAGE_DEEP + picture.animated * SGRAD_IMAGE_ANIMATED);
        sgrad__hash(h->kind, h->bits == 64 ? 8 : 16, &picture, scaler, grey, h->word + i * h->words);
        free(picture.pixels);
    }
    if (h->state[i] && job->options->odd == SGRAD_REFUSE) return refuse_odd(job, i, h->state[i]);
    if (h->state[i] && job->options->odd == SGRAD_SKIP) h->state[i] |= SGRAD_IMAGE_SKIPPED;
    return 0;
}

/* Hashes the block that begins with image args->first. After a failed task, the tasks that follow do nothing. */
static void hash_block(const struct sgrad_args *args) {
    struct job *job = (struct job *)args->attrs;
    struct sgrad__scaler scaler = { 0 };
    uint8_t *grey = sgrad_xcalloc(SGRAD__GREY_MOST, 1);
    int error = 0;
    for (int64_t i = args->first; i < args->first + BLOCK && i < job->end && !error; i++) error = hash_one(job, i, &scaler, grey);
    if (error) sgrad_task_fail(error);
    sgrad__scaler_free(&scaler);
    free(grey);
}

static double no_bytes(const struct sgrad_args *args) { return (void)args, 0; }

static int hash_share(struct job *job) {
    static const struct sgrad_kernel kernel = { .name = "hash", .cpu = hash_block, .flops = sgrad_no_flops, .bytes = no_bytes };
    struct sgrad_bound_kernel call = { .kernel = &kernel, .attrs = job };
    int error = 0;
    sgrad_bound_kernel_prepare(&call);
    for (int64_t i = job->begin; i < job->end && !error; i += BLOCK)
        error = sgrad_task_submit(&(struct sgrad_submission){ .call = &call, .first = i, .name = "hash" });
    const int failed = sgrad_wait_all();
    return error ? error : failed;
}

/* Returns the first image of RANK, at the beginning of a block. */
static int64_t share_first(int64_t count, int rank, int ranks) {
    const int64_t first = (count + BLOCK - 1) / BLOCK * rank / ranks * BLOCK;
    return first < count ? first : count;
}

static void hand_out(struct sgrad_hashes *hashes, const struct sgrad_context *context) {
    for (int rank = 0; rank < context->ranks; rank++) {
        const int64_t from = share_first(hashes->count, rank, context->ranks),
                      to = share_first(hashes->count, rank + 1, context->ranks);
        const size_t n = (size_t)(to - from);
        sgrad_ranks_broadcast(hashes->word + from * hashes->words, n * (size_t)hashes->words * sizeof *hashes->word, rank);
        sgrad_ranks_broadcast(hashes->stamp + from, n * sizeof *hashes->stamp, rank);
        sgrad_ranks_broadcast(hashes->state + from, n, rank);
    }
    double known = (double)hashes->known;
    sgrad_ranks_sum(&known, 1);
    hashes->known = (int64_t)known;
}

/* Reads the cache file on rank 0 and broadcasts its records to all ranks. */
static int open_store(struct job *job, const struct sgrad_context *context) {
    struct sgrad__store *store = &job->store;
    int error = 0;
    if (context->rank == 0 && job->options->file)
        error = sgrad__store_open(job->options->file, job->options->kind, job->options->bits, store);
    SGRAD_TRY(sgrad_ranks_agree(error));
    sgrad_ranks_broadcast(&store->count, sizeof store->count, 0);
    if (context->rank) store->record = sgrad_xcalloc((size_t)store->count + 1, sizeof *store->record);
    sgrad_ranks_broadcast(store->record, (size_t)store->count * sizeof *store->record, 0);
    return 0;
}

static struct sgrad_hashes hashes_create(struct sgrad_dataset *const part[2], const struct sgrad_hash_options *options) {
    struct sgrad_hashes h = { .kind = options->kind, .bits = options->bits, .words = options->bits / 64, .train = part[0]->count,
                              .count = part[0]->count + (part[1] ? part[1]->count : 0) };
    h.word = sgrad_xcalloc((size_t)(h.count * h.words), sizeof *h.word);
    h.stamp = sgrad_xcalloc((size_t)h.count, sizeof *h.stamp);
    h.state = sgrad_xcalloc((size_t)h.count, 1);
    return h;
}

int sgrad_hashes_make(const struct sgrad_context *context, struct sgrad_dataset *const part[2],
                      const struct sgrad_hash_options *options, struct sgrad_hashes *hashes) {
    struct sgrad_hashes h = hashes_create(part, options);
    struct job job = { .part = part, .options = options, .hashes = &h,
                       .begin = share_first(h.count, context->rank, context->ranks),
                       .end = share_first(h.count, context->rank + 1, context->ranks) };
    int error = open_store(&job, context);
    if (!error) error = sgrad_ranks_await(hash_share(&job), "for all ranks to hash their images");
    h.known = job.known;
    if (!error) hand_out(&h, context);
    free(job.store.record);
    const bool writes = !error && context->rank == 0 && options->file;
    const int unwritten = writes ? sgrad__store_write(options->file, &h) : 0;
    if (!error) error = sgrad_ranks_agree(unwritten);
    if (error) sgrad_hashes_free(&h);
    else *hashes = h;
    return error;
}

void sgrad_hashes_free(struct sgrad_hashes *hashes) {
    free(hashes->word);
    free(hashes->stamp);
    free(hashes->state);
}
