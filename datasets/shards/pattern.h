/* pattern.h: the paths of the shards of a split, which a pattern names. KIND is the name of the reader, "tar" or "jsonl", and the
 * ending of the files in a folder. Private to datasets/. */
#ifndef SGRAD_DATASETS_SHARDS_PATTERN_H
#define SGRAD_DATASETS_SHARDS_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

/* A list of paths, each from malloc. */
struct sgrad__paths {
    char **path;
    int64_t count;
};
void sgrad__paths_free(struct sgrad__paths *paths);

/* Expands the braces of PATTERN for PART, "train", "val" or "test", in their order: {a,b}, {000..099}. Of a group in which each
 * alternative begins with the name of a split, only those of PART remain; without such a group, PATTERN is of "train". Accesses
 * no file. The caller must free WORDS, also after an error. SGRAD_EINVAL: PATTERN is malformed, or has too many files. */
int sgrad__pattern_words(const char *kind, const char *pattern, const char *part, struct sgrad__paths *words);
/* Lists the shards of PART that PATTERN names: files, a pattern of the shell, or a folder with PART*.KIND. The caller must free
 * SHARDS, also after an error. SGRAD_EIO: a shard does not exist. SGRAD_EINVAL: PATTERN is malformed, or names a shard twice. */
int sgrad__pattern_expand(const char *kind, const char *pattern, const char *part, struct sgrad__paths *shards);
/* Returns FOLDER/PATTERN, in which the characters of FOLDER that have a meaning in patterns are quoted. The caller must free
 * it. */
char *sgrad__pattern_in(const char *folder, const char *pattern);
/* Returns true if PATTERN names shards of PART, which may be missing. */
bool sgrad__pattern_has(const char *kind, const char *pattern, const char *part);
/* Logs that PATTERN names no shard of PART. Returns SGRAD_EIO. */
int sgrad__pattern_refuse(const char *kind, const char *pattern, const char *part);

#endif
