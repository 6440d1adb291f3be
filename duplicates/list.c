/* list.c: the table of all kinds of hashes, generated from hashes.def. */
#include "duplicates/duplicates.h"

const struct sgrad_hash_kind *const sgrad_hash_kinds[] = {
#define SGRAD_HASH(name) &sgrad_##name##_hash,
#include "duplicates/hashes.def"
#undef SGRAD_HASH
    NULL,
};
