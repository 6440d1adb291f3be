/* data.c: finds the data files that are installed with Stargrad.
 *
 * They are found relative to the library, or to the program if it contains the library, so that an installation can move:
 *
 *     LIBDIR/libstargrad.so, BINDIR/stargrad                          PKGDATADIR, as configured
 *     PREFIX/bin/stargrad, PREFIX/lib/…, PREFIX/lib/ARCHITECTURE/…    PREFIX/share/stargrad, with make install prefix=PREFIX
 *     build/stargrad, build/.libs/libstargrad.so (not installed)      build/machines, a link to machines/ of the source
 *
 * If a part of the installation was moved, they are found where they were installed. */
#include "config.h"
#include "runtime/files/data.h"
#include "runtime/runtime.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Returns the absolute path of the file that contains this function: the library or the program. The caller must free it; NULL:
 * unknown. */
static char *own_path(void) {
    Dl_info object;
    const bool known = dladdr((void *)sgrad_data_path, &object) && object.dli_fname && strchr(object.dli_fname, '/');
    return realpath(known ? object.dli_fname : "/proc/self/exe", NULL);
}

char *sgrad_data_path(const char *name) {
    /* Makefile.am defines the folder of the data files, and its paths from LIBDIR and BINDIR. */
    static const char *const places[] = { ".", "..", SGRAD_DATA_FROM_LIB, SGRAD_DATA_FROM_BIN, "../share/stargrad",
                                          "../../share/stargrad" };
    char *own = own_path(), *found = NULL;
    for (size_t i = 0; own && !found && i < sizeof places / sizeof *places; i++) {
        char *path = sgrad_format("%.*s/%s/%s", (int)(strrchr(own, '/') - own), own, places[i], name);
        found = realpath(path, NULL);
        free(path);
    }
    free(own);
    char *installed = sgrad_format("%s/%s", SGRAD_DATA, name);
    if (!found) found = realpath(installed, NULL);
    free(installed);
    return found;
}
