/* shards.h: samples in tar archives (shards), one after the other, as WebDataset writes them: which files these are, an index of
 * their samples, and a cache of decompressed shards. Private to datasets/; tar.c is the reader. The reader of folders stores the
 * same index, in which a folder with its subfolders takes the place of a shard.
 *
 *     pattern.c     PATTERN -> paths of the shards of a split
 *     scan.c        shard -> its samples, from the headers of its members (libarchive)
 *     label.c       the label in a member NAME.cls or NAME.json
 *     index.c       the samples of a shard as one block of bytes, which is checked before it is used
 *     stored.c      the index of one shard or folder, from the user's cache folder if it is valid there
 *     cached.c      the indexes of all shards
 *     unpacked.c    decompressed shards, in bounded memory
 *     npy_members.c samples that are NumPy arrays instead of images
 *     list.c        the shards of a split as one list of encoded images */
#ifndef SGRAD_DATASETS_SHARDS_SHARDS_H
#define SGRAD_DATASETS_SHARDS_SHARDS_H

#include "datasets/encoded.h"
#include "datasets/shards/pattern.h"
#include "datasets/stream.h"
#include "datasets/version.h"

/* ---- scan.c, label.c, index.c ---- */

enum { SGRAD__NO_LABEL = -1, SGRAD__LABELS_LIMIT = 1 << 20 };
#define SGRAD__IMAGE_LIMIT ((uint64_t)1 << 28)
#define SGRAD__SMALLER_SHARD "divide it into several archives"

/* A sample in the index of a shard. */
struct sgrad__shard_sample {
    uint64_t at;        /* offset of the encoded image in the shard, in bytes; in a compressed one, after decompression */
    uint32_t size;      /* of the image, in bytes; in a folder, UINT32_MAX: the file is missing */
    int32_t label;      /* of a shard with names of classes: the number of the name in this shard; SGRAD__NO_LABEL: none */
    uint32_t name;      /* offset in the texts of the path of the image in the shard */
    uint32_t key;       /* length of the beginning of the path that is the key */
};

/* A subfolder in the index of a folder. */
struct sgrad__index_folder {
    struct sgrad_file_version version;  /* zeros: a link without a target */
    uint32_t name;                      /* offset in the texts of its path, relative to the folder */
    uint32_t unused;
};

/* A shard under construction, in the order of its samples. The owner frees it with sgrad__draft_free. */
struct sgrad__draft {
    struct sgrad__shard_sample *sample;
    int samples;
    struct sgrad__index_folder *folder; /* NULL: it is an archive */
    int folders;
    char *text;                         /* texts that end with 0 */
    size_t text_bytes, text_room;
    char **class_name;                  /* names of classes, in the order of their first occurrence */
    int classes;
    bool arrays;                        /* samples are arrays (.npy), not images */
    bool named, numbered;               /* labels are names of classes, are numbers */
    struct sgrad_walk others;           /* members that are not part of a sample */
    bool compressed;
    uint64_t bytes;                     /* of the archive, after decompression */
};
void sgrad__draft_free(struct sgrad__draft *draft);
/* Appends TEXT, of LENGTH bytes, to the texts. Returns its offset, which is wrong if the texts have more than 4 GiB; index_pack
 * refuses these. */
uint32_t sgrad__draft_text(struct sgrad__draft *draft, const char *text, size_t length);

/* Reads the headers of the archive in FILE, an open file of SIZE bytes, or, if FILE is negative, of SIZE bytes at DATA. NAME: its
 * path, for messages. LIMIT: bytes after decompression that a caller can use; with more than these (at least 256 MiB, at most
 * 4 GiB) and more than 100 times SIZE, the archive is taken for a decompression bomb. DRAFT must be zero; the caller frees it,
 * also after an error. SGRAD_EFORMAT: it is malformed, or a sample has no image. SGRAD_ELIBRARY: this build has no libarchive. */
int sgrad__shard_scan(const char *name, int file, const void *data, size_t size, uint64_t limit, struct sgrad__draft *draft);

/* Parses the label in the SIZE bytes at DATA, the member WHERE of a shard, with ENDING ".cls" or ".json". *LABEL:
 * SGRAD__NO_LABEL if JSON has none of the keys. SGRAD_EFORMAT: it is malformed, or out of range. */
int sgrad__label_parse(const char *where, const char *ending, const void *data, size_t size, struct sgrad__draft *draft,
                       int32_t *label);

/* An index, which points into a block of bytes. */
struct sgrad__shard {
    const void *block;
    size_t block_bytes;
    bool mapped;                        /* block is a map of a file; false: from malloc */
    const struct sgrad__shard_sample *sample;
    int64_t samples;
    const struct sgrad__index_folder *folder;
    int folders;                        /* 0: it is an archive */
    const char *text;
    const uint32_t *class_name;         /* offsets in the texts; classes is 0 if labels are numbers */
    int classes;
    const uint32_t *other;              /* (others,2): offset in the texts of a kind of other member, their number */
    int others;
    bool compressed;
    uint64_t bytes;                     /* of the archive, after decompression */
    const char *path;                   /* of the archive, absolute */
    struct sgrad_file_version file;    /* of the archive */
};
/* Returns DRAFT as a block from malloc, of *BYTES bytes; NULL: its texts have 4 GiB or more. */
void *sgrad__index_pack(struct sgrad__draft *draft, const char *path, const struct sgrad_file_version *file, size_t *bytes);
/* Returns true if a block, which may be damaged, begins as an index of this version of the format. */
bool sgrad__index_is_current(const void *block, size_t bytes);
/* Points SHARD into a block. Returns false if the block is not a valid index, of this version and machine. */
bool sgrad__index_parse(const void *block, size_t bytes, struct sgrad__shard *shard);

/* Returns true if the samples of a shard are arrays (.npy); false: images. A shard has only one of them. */
bool sgrad__index_has_arrays(const struct sgrad__shard *shard);
/* Adds the kinds and numbers of other files to OTHERS. */
void sgrad__index_others(const struct sgrad__shard *shard, struct sgrad_walk *others);

/* ---- stored.c ---- */

/* The cache folder of indexes, for one reader. Threads may use it concurrently. */
struct sgrad__index_store {
    const char *reader;                 /* "tar", for messages */
    const char *smaller;                /* the way out if names have more than 4 GiB: "divide it into several archives" */
    char *folder;                       /* path of the cache folder, with a slash; NULL: there is none */
    _Atomic bool unstored, damaged;     /* an index could not be stored; a stored index was damaged */
    /* Reads the shard or folder PATH, which is open as FILE, to DRAFT, which is zero. */
    int (*scan)(void *of, const char *path, int file, const struct sgrad_file_version *version, struct sgrad__draft *draft);
    void *of;
};
void sgrad__index_store_open(struct sgrad__index_store *store);         /* sets folder */
/* Warns of indexes of WHAT, "the shards", that could not be stored or were damaged. EACH: the effect, "each start reads …". */
void sgrad__index_store_close(struct sgrad__index_store *store, const char *what, const char *each);
/* Opens the index of PATH: that in the cache if it is valid, else a new one from scan. Processes that start together wait until
 * the first one has stored it. The caller closes SHARD. */
int sgrad__index_open(struct sgrad__index_store *store, const char *path, struct sgrad__shard *shard);
void sgrad__index_close(struct sgrad__shard *shard);                    /* zeros are a no-op */
/* Opens the archive PATH of SHARD. *FILE: a descriptor that the caller must close; -1 after an error. SGRAD_EIO: it cannot be
 * opened, or is another version than that of the index. */
int sgrad__shard_open(const char *path, const struct sgrad__shard *shard, int *file);

/* ---- cached.c ---- */

/* Opens the indexes of COUNT shards. Those that are not in the cache are read from the shards, by several threads, of several
 * processes if these start at the same time. LIMIT: as of sgrad__shard_scan. SHARD: zeros; the caller closes each, also after an
 * error. */
int sgrad__indexes_open(char *const *path, int64_t count, size_t limit, struct sgrad__shard *shard);
void sgrad__indexes_close(struct sgrad__shard *shard, int64_t count);    /* frees the members and the list; NULL is a no-op */

/* ---- unpacked.c ---- */

/* Decompressed shards in at most LIMIT bytes of memory. The least recently used one is replaced. */
struct sgrad__unpacked;
struct sgrad__unpacked *sgrad__unpacked_create(int64_t shards, size_t limit);
/* Sets *DATA to the content of shard I, whose file is PATH, until sgrad__unpacked_give. Threads may call it concurrently; a
 * thread must not take two shards at a time. The caller has checked that SHARD fits. SGRAD_EFORMAT: the file is damaged.
 * SGRAD_EIO: it has changed. SGRAD_ENOMEM. */
int sgrad__unpacked_take(struct sgrad__unpacked *unpacked, int64_t i, const char *path, const struct sgrad__shard *shard,
                         const unsigned char **data);
void sgrad__unpacked_give(struct sgrad__unpacked *unpacked, int64_t i);
void sgrad__unpacked_free(struct sgrad__unpacked *unpacked);            /* NULL is a no-op */

/* ---- npy_members.c ---- */

/* The common type and shape of samples that are NumPy arrays. */
struct sgrad__npy_members {
    bool used;                          /* samples are arrays */
    bool slow;                          /* a sample takes long to read: those that are measured are kept in memory meanwhile */
    struct sgrad__npy like;             /* type and shape of each; data is NULL */
    char *where;                        /* the sample that has determined them, for messages */
};
/* Sets field 0 of DATASET, and, if samples are not images of uint8, its origin: TRAINED, or mean and deviation of some samples of
 * TRAINING, the samples of the training shards. SKIPS: samples may be damaged. SGRAD_EFORMAT: a sample is malformed, or differs
 * from those of TRAINED. SGRAD_ESHAPE: as of read. */
int sgrad__npy_members_measure(struct sgrad__npy_members *members, const struct sgrad__source *training, bool skips,
                               const struct sgrad_origin *trained, struct sgrad_dataset *dataset);
/* Reads sample I of SOURCE to TO, of the type and shape of field 0. SGRAD_ESHAPE: these are other ones. */
int sgrad__npy_members_read(const struct sgrad__npy_members *members, const struct sgrad__source *source,
                            const struct sgrad_dataset *dataset, int64_t i, void *to);

/* ---- list.c ---- */

/* The shards of a split. Samples are numbered in the order of the shards. */
struct sgrad__shards {
    struct sgrad__paths paths;
    struct sgrad__shard *shard;         /* (paths.count) */
    int64_t *first;                     /* (paths.count + 1): number of the first sample of each shard, and of all samples */
    size_t folder;                      /* length of the folder that all paths have in common, with its slash */
    struct sgrad__unpacked *unpacked;   /* of compressed shards; NULL: there are none */
};
/* Opens the shards of PART that PATTERN names. LIMIT: bytes of memory for decompressed shards. The caller must close SHARDS, also
 * after an error. Errors: those of sgrad__pattern_expand and sgrad__shard_scan. SGRAD_EIO: there are none. SGRAD_EINVAL: a
 * compressed shard exceeds LIMIT. */
int sgrad__shards_list(const char *pattern, const char *part, size_t limit, struct sgrad__shards *shards);
void sgrad__shards_unlist(struct sgrad__shards *shards);
struct sgrad__source sgrad__shards_source(const struct sgrad__shards *shards);
/* Returns the shard of sample I. *SAMPLE: its entry in the index. */
int64_t sgrad__shards_find(const struct sgrad__shards *shards, int64_t i, const struct sgrad__shard_sample **sample);
/* Returns "SHARD: MEMBER at byte N", for messages. The caller must free it. */
char *sgrad__shards_where(const struct sgrad__shards *shards, int64_t i);
/* Returns the path of a shard in the common folder of all. */
const char *sgrad__shards_name(const struct sgrad__shards *shards, int64_t shard);

#endif
