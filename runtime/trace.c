/* trace.c: execution traces of selected steps, recorded by StarPU with FxT, collected from all ranks, and converted. */
#include "config.h"
#include "runtime/internal.h"
#include "runtime/libraries.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <starpu.h>

static char *folder;    /* ends in '/'; NULL: this run is not traced */
static bool ours;       /* this rank's folder is the final one; else it is temporary */
static const struct sgrad_kind *const *kinds;

static char *temporary_folder(void) {
    const char *parent = getenv("TMPDIR");
    char *path = sgrad_format("%s/stargrad-trace-XXXXXX", parent && *parent ? parent : "/tmp");
    if (mkdtemp(path)) return path;
    free(path);
    return NULL;
}

/* StarPU-MPI synchronises the clocks of all ranks when it starts and ends, so either all ranks are traced or none. Ranks above 0
 * may be on other hosts: each writes to a temporary folder and sends its events to rank 0. */
int sgrad__trace_prepare(const char *path, const struct sgrad_kind *const *all) {
    kinds = all;
    starpu_fxt_autostart_profiling(0);
    if (!path) return 0;
    if (!sgrad_library_has("fxt")) return sgrad_library_missing("fxt", "trace");
    ours = sgrad_launched_rank() == 0;
    char *own = ours || SGRAD_SIMULATED ? sgrad_format("%s", path) : temporary_folder();
    if (!own || (mkdir(own, 0777) != 0 && errno != EEXIST)) {
        free(own);
        return sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", ours ? path : "a temporary folder for the trace",
                               strerror(errno));
    }
    folder = sgrad_format("%s/", own);
    free(own);
    setenv("STARPU_FXT_TRACE", "1", 1);
    setenv("STARPU_FXT_PREFIX", folder, 1);
    setenv("STARPU_FXT_SUFFIX", "events", 1);
    setenv("STARPU_GENERATE_TRACE", "0", 1);
    return 0;
}

/* StarPU records the memory use of a node when it changes. An allocation of 0 bytes makes it record the current value. */
static void note_memory(void) {
    for (unsigned node = 0; node < starpu_memory_nodes_get_count(); node++)
        starpu_memory_allocate(node, 0, STARPU_MEMORY_OVERFLOW);
}

void sgrad_trace_begin(void) {
    if (!folder) return;
    starpu_fxt_start_profiling();
    note_memory();
}

void sgrad_trace_end(void) {
    if (folder) starpu_fxt_stop_profiling();
}

void sgrad_trace_step(long step) {
    if (step >= 0) starpu_iteration_push((unsigned long)step);
    else starpu_iteration_pop();
}

void sgrad_trace_step_ends(long step) {
    char text[32];
    if (!folder) return;
    snprintf(text, sizeof text, "step %ld", step);
    starpu_fxt_trace_user_event_string(text);
}

void sgrad__trace_move(const char *name, bool writes, bool begins) {
    char text[96];
    if (!folder) return;
    snprintf(text, sizeof text, "%s %s %s", writes ? "store" : "fetch", begins ? "begins" : "ends", name);
    starpu_fxt_trace_user_event_string(text);
}

static char *events_of(int rank) { return sgrad_format("%sevents_%d", folder, rank); }

static void keep_events(const char *data, size_t bytes, int rank) {
    struct sgrad_file file;
    char *path = events_of(rank);
    if (sgrad_file_begin(path, &file) == 0) {
        fwrite(data, 1, bytes, file.stream);
        sgrad_file_commit(&file);
    }
    free(path);
}

/* Transfers the events of every rank to the folder of rank 0. */
void sgrad__trace_collect(const struct sgrad_context *context) {
    struct sgrad_map map = { 0 };
    if (!folder || context->ranks == 1 || SGRAD_SIMULATED) return;     /* simulated ranks use the same folder */
    char *path = events_of(context->rank);
    if (!ours) sgrad_map_open(path, SIZE_MAX, &map);
    for (int r = 1; r < context->ranks; r++) {
        size_t bytes = map.size;
        char *data = sgrad__rank_deliver(r, map.data, &bytes);
        if (ours && bytes) keep_events(data, bytes, r);
        free(data);
    }
    if (!ours) {
        sgrad_map_close(&map);
        unlink(path);
        rmdir(folder);
    }
    free(path);
}

static void note_kernel(const char *model, const struct sgrad_kernel *kernel, void *kernels) {
    if (kernel->kind) json_object_set_new(kernels, model, json_string(kernel->kind->name));
}

/* Writes kernels.json, which maps kernels to kinds: the files of StarPU contain the kernel of a task, but not its kind. */
static void write_kinds(void) {
    char *path = sgrad_format("%skernels.json", folder);
    json_t *kernels = json_object(), *list = json_array();
    sgrad__kernels_each(note_kernel, kernels);
    for (const struct sgrad_kind *const *k = kinds; k && *k; k++)
        json_array_append_new(list, json_pack("{s:s, s:o}", "name", (*k)->name, "color", json_sprintf("#%06x", (*k)->color)));
    json_t *both = json_pack("{s:o, s:o}", "kinds", list, "kernels", kernels);
    if (json_dump_file(both, path, JSON_INDENT(1) | JSON_SORT_KEYS))
        sgrad_log_warning("%s: cannot be written: %s", path, strerror(errno));
    json_decref(both);
    free(path);
}

#ifdef SGRAD_HAVE_FXT
/* Runs StarPU's tool in a separate process, without its messages, because it exits or crashes if events are not as it expects,
 * for example if a full disk has truncated them. */
static bool generate(struct starpu_fxt_options *options) {
    int status = 0;
    const pid_t tool = fork();
    if (tool == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        starpu_fxt_generate_trace(options);
        _exit(0);
    }
    while (tool > 0 && waitpid(tool, &status, 0) < 0 && errno == EINTR) continue;
    if (tool > 0 && status == 0) return true;
    sgrad_log_warning("%s: has no trace, because StarPU's tool cannot read the events of the ranks; check that no disk is full",
                      folder);
    return false;
}

/* Converts events_0, events_1, … to paje.trace, tasks.rec and other files in the same folder. */
static bool convert(int ranks) {
    struct starpu_fxt_options options;
    starpu_fxt_options_init(&options);
    options.no_counter = options.no_flops = 1;
    options.use_task_color = 1;
    options.dir = folder;
    if (ranks > STARPU_FXT_MAX_FILES)
        sgrad_log_warning("%s: the trace has the events of only %d ranks, the limit of StarPU's tool; those of %d other ranks "
                          "are missing",
                          folder, STARPU_FXT_MAX_FILES, ranks - STARPU_FXT_MAX_FILES);
    for (int r = 0; r < ranks && r < STARPU_FXT_MAX_FILES; r++) {
        char *path = events_of(r);
        if (access(path, R_OK) == 0) options.filenames[options.ninputfiles++] = path;
        else sgrad_log_warning("%s: rank %d wrote no trace", folder, r), free(path);
    }
    const bool converted = options.ninputfiles && generate(&options);
    if (converted) sgrad__paje_mend(folder, ranks);
    for (unsigned i = 0; i < options.ninputfiles; i++) free(options.filenames[i]);
    options.ninputfiles = 0;
    starpu_fxt_options_shutdown(&options);
    return converted;
}
#else
static bool convert(int ranks) { return (void)ranks, false; }
#endif

/* Writes kernels.json last. Simulated ranks do not convert, because they do not know whether the others have written their
 * events; the process that started them calls sgrad_trace_convert. */
void sgrad__trace_convert(const struct sgrad_context *context) {
    if (!folder) return;
    if (ours && (SGRAD_SIMULATED || convert(context->ranks))) write_kinds();
    free(folder);
    folder = NULL;
}

int sgrad_trace_convert(const char *path, int ranks) {
    folder = sgrad_format("%s/", path);
    const bool converted = convert(ranks);
    free(folder);
    folder = NULL;
    return converted ? 0 : sgrad_log_error(SGRAD_EDEVICE, "%s: the trace of the simulation cannot be converted", path);
}
