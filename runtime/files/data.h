/* data.h: the data files that are installed with Stargrad. */
#ifndef SGRAD_RUNTIME_FILES_DATA_H
#define SGRAD_RUNTIME_FILES_DATA_H

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the absolute path of the data file or folder NAME ("machines"), which the caller must free. NULL: not found. */
char *sgrad_data_path(const char *name);

#ifdef __cplusplus
}
#endif
#endif
