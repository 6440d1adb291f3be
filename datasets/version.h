/* version.h: versions of files, which show that a file or a folder has changed since it was looked at. The version of a folder
 * changes if a file in it is added, removed or renamed. Private to datasets/.
 *
 * Three rules use a version:
 *
 *     stored result   an index of an archive or the hash of a token file is valid for one version: all four numbers are equal
 *     storing         a result is stored only if the content is settled: it was last changed more than 2 seconds ago. Some file
 *                     systems count seconds, so a later change could have the same time. Content of time 0 is never settled: its
 *                     file system may have no times
 *     run             a file must not change while a run reads it: the size and the time of the content are equal, and either the
 *                     time of the inode or the inode
 *
 * The rule for runs accepts chmod, chown and new hard links, which change the time of the inode only, and network file systems
 * that number their files again, which changes the inode only. It notices each file that takes the place of another one.
 *
 * Limits: during a run, new content in the same file with the old size and the old time (cp -p, rsync --inplace -t) is not
 * noticed. */
#ifndef SGRAD_DATASETS_VERSION_H
#define SGRAD_DATASETS_VERSION_H

#include "datasets/walk.h"

#include <stdbool.h>

struct stat;
struct sgrad_file_version sgrad__version_of(const struct stat *status);
struct sgrad_file_version sgrad__version_at(const char *path);         /* zeros: there is no such file */
/* Returns true if a result that is stored for version A is valid for version B. */
bool sgrad__version_is_same(const struct sgrad_file_version *a, const struct sgrad_file_version *b);
/* Returns true if a result may be stored. */
bool sgrad__version_is_settled(const struct sgrad_file_version *version);
/* Sets *VERSION to that of the open FILE, or, if FILE is negative, of the file PATH. SGRAD_EIO. */
int sgrad__version_read(int file, const char *path, struct sgrad_file_version *version);
/* Checks by the rule for runs that the same file is the version WANTED. SGRAD_EIO: it has changed, or no longer exists. */
int sgrad__version_check(int file, const char *path, const struct sgrad_file_version *wanted);

#endif
