/* registry.h: finds records by their names: models, optimizers, data set readers, … A list of records is a NULL-terminated array
 * of pointers to structures whose first member is their name:
 *
 *     const struct sgrad_model *model = sgrad_registry_find("model", "lenet", sgrad_models);
 *
 * WHAT is the type of the records in messages: "model", "optimizer", … */
#ifndef SGRAD_RUNTIME_REGISTRY_H
#define SGRAD_RUNTIME_REGISTRY_H

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the record called NAME of the list RECORDS; NULL: there is none. */
const void *sgrad_registry_get(const char *name, const void *records);
/* Logs that there is no record called NAME, with the most similar name. Returns SGRAD_ENAME. */
int sgrad_registry_refuse(const char *what, const char *name, const void *records);
/* Returns the record called NAME. If there is none, logs this and returns NULL. */
const void *sgrad_registry_find(const char *what, const char *name, const void *records);

/* Returns the name in NAMES (a NULL-terminated list) most similar to WORD, ignoring case; NULL if none is similar enough. */
const char *sgrad_suggest(const char *word, const char *const *names);

#ifdef __cplusplus
}
#endif
#endif
