/* libraries.h: the optional libraries of Stargrad. configure.ac has a line for each, from which configure makes the table.
 *
 * A function that needs a library which the build lacks fails with a message that names the library and the remedy:
 *
 *     stargrad: cannot read x.h5: this build has no HDF5; install libhdf5-dev, then configure --with-hdf5=yes and build again */
#ifndef SGRAD_RUNTIME_LIBRARIES_H
#define SGRAD_RUNTIME_LIBRARIES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sgrad_library {
    bool built_in;
    const char *option;         /* of configure: --with-OPTION; NULL: end of the table */
    const char *name;           /* "HDF5" */
    const char *packages;       /* of Debian: "libhdf5-dev" */
    const char *use;            /* the parts of Stargrad that need it: "HDF5 volumes" */
};
extern const struct sgrad_library sgrad_libraries[];

bool sgrad_library_has(const char *option);     /* the library with this OPTION is built in */
/* Logs "cannot WHAT: this build has no …" for the library with this OPTION. Returns SGRAD_ELIBRARY. */
int sgrad_library_missing(const char *option, const char *what, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
