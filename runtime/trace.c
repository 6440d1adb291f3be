/* trace.c: StarPU's FxT records of what ran where and when, for chosen steps, as a Paje file that ViTE opens. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <starpu.h>

static char *folder;    /* ends in '/'; NULL: this run is not traced */

int sgrad__trace_prepare(const char *path) {
    starpu_fxt_autostart_profiling(0);
    if (!path) return 0;
#ifndef STARPU_USE_FXT
    return sgrad_fail(SGRAD_EINVAL, "no traces: StarPU was built without FxT (configure it --with-fxt; ./quickstart does)");
#endif
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return sgrad_fail(SGRAD_EIO, "%s: cannot be made: %s", path, strerror(errno));
    folder = sgrad_format("%s/", path);
    setenv("STARPU_FXT_TRACE", "1", 1);
    setenv("STARPU_FXT_PREFIX", folder, 1);
    setenv("STARPU_GENERATE_TRACE", "0", 1);
    return 0;
}

void sgrad_trace_begin(void) {
    if (folder) starpu_fxt_start_profiling();
}

void sgrad_trace_end(void) {
    if (folder) starpu_fxt_stop_profiling();
}

/* prof_file_… of this folder becomes paje.trace, tasks.rec and the like beside it. */
void sgrad__trace_convert(void) {
    struct starpu_fxt_options options;
    glob_t found = { 0 };
    if (!folder) return;
    char *pattern = sgrad_format("%sprof_file_*", folder);
    if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0) {
        starpu_fxt_options_init(&options);
        options.no_bus = options.no_events = options.no_counter = options.no_flops = 1;
        options.use_task_color = 1;
        options.dir = folder;
        options.ninputfiles = 1;
        options.filenames[0] = found.gl_pathv[0];
        starpu_fxt_generate_trace(&options);
        starpu_fxt_options_shutdown(&options);
    } else {
        sgrad_warn("%s: StarPU left no trace", folder);
    }
    globfree(&found);
    free(pattern);
    free(folder);
    folder = NULL;
}
