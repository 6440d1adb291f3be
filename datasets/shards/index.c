/* index.c: the samples of a shard, or of a folder, as one block of bytes, which the user's cache folder stores (stored.c).
 *
 *     header | samples | folders | offsets of the names of classes | kinds of other files, and their numbers | texts
 *
 * Numbers have the byte order of this machine. The block is checked before it is used: it may be damaged, or of another
 * version. */
#include "config.h"
#include "datasets/shards/shards.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "STARDIX3". Another version of the format needs another number, and another corpus for tests/fuzz/index.c. */
#define MAGIC 0x3358494452415453u

/* Sizes and offsets are multiples of 8 bytes, except those of the texts. */
struct header {
    uint64_t magic, checksum;         /* checksum: of all that follows it */
    struct sgrad_file_version file;   /* of the archive, or of the folder itself */
    uint64_t bytes;                   /* of the archive, after decompression */
    uint64_t samples, folders, classes, others, text_bytes;
    uint64_t compressed;
};

static size_t even(size_t count) { return (count + 1) & ~(size_t)1; }

/* Returns the bytes of the block that HEADER describes; 0: it is too large. */
static size_t block_bytes(const struct header *h) {
    if (h->samples > UINT32_MAX || h->folders > INT32_MAX || h->classes > SGRAD__LABELS_LIMIT || h->others > INT32_MAX) return 0;
    if (h->text_bytes > UINT32_MAX) return 0;
    return sizeof *h + h->samples * sizeof(struct sgrad__shard_sample) + h->folders * sizeof(struct sgrad__index_folder) +
           4 * even(h->classes) + 8 * h->others + h->text_bytes;
}

static uint64_t checksum(const void *block, size_t bytes) {
    const size_t before = offsetof(struct header, file);
    return sgrad__fingerprint_add(1, (const char *)block + before, bytes - before);
}

/* Points SHARD to the parts of the block, which starts with H. */
static void divide(const struct header *h, struct sgrad__shard *shard) {
    const struct sgrad__shard_sample *sample = (const void *)(h + 1);
    const struct sgrad__index_folder *folder = (const void *)(sample + h->samples);
    const uint32_t *class_name = (const void *)(folder + h->folders), *other = class_name + even(h->classes);
    *shard = (struct sgrad__shard){ .block = h,
                                    .block_bytes = block_bytes(h),
                                    .sample = sample,
                                    .samples = (int64_t)h->samples,
                                    .folder = folder,
                                    .folders = (int)h->folders,
                                    .class_name = class_name,
                                    .classes = (int)h->classes,
                                    .other = other,
                                    .others = (int)h->others,
                                    .text = (const char *)(other + 2 * h->others),
                                    .compressed = h->compressed,
                                    .bytes = h->bytes,
                                    .path = (const char *)(other + 2 * h->others),
                                    .file = h->file };
}

/* Returns the bytes of the texts of an index of the archive or folder PATH. */
static size_t text_bytes(const struct sgrad__draft *draft, const char *path) {
    size_t bytes = strlen(path) + 1 + draft->text_bytes;
    for (int c = 0; c < draft->classes; c++) bytes += strlen(draft->class_name[c]) + 1;
    for (int i = 0; i < draft->others.kinds; i++) bytes += strlen(draft->others.other[i].kind) + 1;
    return bytes;
}

void *sgrad__index_pack(struct sgrad__draft *draft, const char *path, const struct sgrad_file_version *file, size_t *bytes) {
    struct sgrad__draft texts = { 0 }; /* the path of the archive is the first text */
    if (text_bytes(draft, path) > UINT32_MAX) return NULL;
    const uint32_t before = (uint32_t)strlen(path) + 1;
    uint32_t *offset = sgrad_xcalloc(even((size_t)draft->classes) + 2 * (size_t)draft->others.kinds + 1, sizeof *offset);
    uint32_t *other = offset + even((size_t)draft->classes);
    sgrad__draft_text(&texts, path, strlen(path));
    if (draft->text_bytes) sgrad__draft_text(&texts, draft->text, draft->text_bytes - 1);
    for (int c = 0; c < draft->classes; c++)
        offset[c] = sgrad__draft_text(&texts, draft->class_name[c], strlen(draft->class_name[c]));
    for (int i = 0; i < draft->others.kinds; i++) {
        const struct sgrad_walk_other *kind = &draft->others.other[i];
        other[2 * i] = sgrad__draft_text(&texts, kind->kind, strlen(kind->kind));
        other[2 * i + 1] = (uint32_t)sgrad_clamp(kind->files, 0, UINT32_MAX);
    }
    struct header header = { MAGIC,
                             0,
                             *file,
                             draft->bytes,
                             (uint64_t)draft->samples,
                             (uint64_t)draft->folders,
                             (uint64_t)draft->classes,
                             (uint64_t)draft->others.kinds,
                             texts.text_bytes,
                             draft->compressed };
    struct sgrad__shard shard;
    *bytes = block_bytes(&header);
    struct header *block = *bytes ? sgrad_xcalloc(1, *bytes + 1) : NULL;
    if (!block) return sgrad__draft_free(&texts), free(offset), NULL;
    *block = header;
    divide(block, &shard);
    struct sgrad__shard_sample *sample = (void *)shard.sample;
    for (int i = 0; i < draft->samples; i++) sample[i] = draft->sample[i], sample[i].name += before;
    struct sgrad__index_folder *folder = (void *)shard.folder;
    for (int i = 0; i < draft->folders; i++) folder[i] = draft->folder[i], folder[i].name += before;
    memcpy((void *)shard.class_name, offset, 4 * even((size_t)draft->classes) + 8 * (size_t)draft->others.kinds);
    memcpy((char *)shard.text, texts.text, texts.text_bytes);
    block->checksum = checksum(block, *bytes);
    free(offset);
    sgrad__draft_free(&texts);
    return block;
}

/* Returns true if all offsets and labels are in range. */
static bool is_consistent(const struct header *h, const struct sgrad__shard *shard) {
    const uint64_t texts = h->text_bytes;
    if ((!shard->samples && !shard->folders) || !texts || shard->text[texts - 1]) return false;
    if (shard->folders && !shard->classes) return false;
    const int32_t least = shard->folders ? 0 : SGRAD__NO_LABEL; /* each image in a folder has a class */
    const int32_t labels = shard->classes ? shard->classes : SGRAD__LABELS_LIMIT;
    for (int64_t i = 0; i < shard->samples; i++) {
        const struct sgrad__shard_sample *s = &shard->sample[i];
        if (s->at > h->bytes || s->size > h->bytes - s->at) return false;
        if (s->size > SGRAD__IMAGE_LIMIT && !shard->folders) return false;
        if (s->label < least || s->label >= labels || s->name >= texts || s->key > texts - s->name) return false;
    }
    for (int i = 0; i < shard->folders; i++)
        if (shard->folder[i].name >= texts) return false;
    for (int c = 0; c < shard->classes; c++)
        if (shard->class_name[c] >= texts) return false;
    for (int i = 0; i < shard->others; i++)
        if (shard->other[2 * i] >= texts) return false;
    return true;
}

bool sgrad__index_parse(const void *block, size_t bytes, struct sgrad__shard *shard) {
    const struct header *h = block;
    struct sgrad__shard found;
    if (bytes < sizeof *h || h->magic != MAGIC || block_bytes(h) != bytes || checksum(block, bytes) != h->checksum) return false;
    divide(h, &found);
    if (!is_consistent(h, &found)) return false;
    *shard = found;
    return true;
}

bool sgrad__index_is_current(const void *block, size_t bytes) {
    const uint64_t magic = MAGIC;
    return bytes >= sizeof magic && !memcmp(block, &magic, sizeof magic);
}

bool sgrad__index_has_arrays(const struct sgrad__shard *shard) {
    const char *name = shard->text + shard->sample[0].name;
    const size_t length = strlen(name);
    return length >= 4 && !strcasecmp(name + length - 4, ".npy");
}

void sgrad__index_others(const struct sgrad__shard *shard, struct sgrad_walk *others) {
    for (int i = 0; i < shard->others; i++) {
        char *kind = (char *)shard->text + shard->other[2 * i];
        struct sgrad_walk_other other = { kind, shard->other[2 * i + 1] };
        sgrad_walk_add(others, &(struct sgrad_walk){ .kinds = 1, .other = &other });
    }
}
