/* contents.c: determines whether a directory contains a run, other files, or nothing; creates directories. */
#include "config.h"
#include "graphs/rundir/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Recognizes output files of batch systems, which are created in the directory where a job starts. */
static bool is_of_batch_system(const char *name) {
    return strncmp(name, "slurm-", 6) == 0 && (strstr(name, ".out") || strstr(name, ".err"));
}

/* Classifies the contents of FOLDER; a missing directory is empty. Unfinished files of a killed run (PATH.part.PID), and the
 * trace directory, which is created before the run writes anything else, are ignored. Also ignored: hidden files. */
enum content { NOTHING, FILES, RUN };
static int content_of(const char *folder, enum content *content) {
    DIR *d = opendir(folder);
    *content = NOTHING;
    if (!d && errno != ENOENT) return sgrad_log_error(SGRAD_EIO, "%s: cannot be read: %s", folder, strerror(errno));
    for (struct dirent *e; d && (e = readdir(d));) {
        const bool unfinished = strstr(e->d_name, ".part.") || strcmp(e->d_name, SGRAD__TRACE) == 0;
        if (e->d_name[0] == '.' || unfinished || is_of_batch_system(e->d_name)) continue;
        const bool run = strcmp(e->d_name, "config.json") == 0 || strncmp(e->d_name, "checkpoint-", 11) == 0;
        if (run || *content == NOTHING) *content = run ? RUN : FILES;
    }
    if (d) closedir(d);
    return 0;
}

bool sgrad_run_exists(const char *folder) {
    enum content content;
    return content_of(folder, &content) == 0 && content == RUN;
}

int sgrad__run_check_ended(const char *weights) {
    static const char final[] = "/model.safetensors";
    const char *slash = strrchr(weights, '/');
    if (!slash || strcmp(slash, final) || access(weights, F_OK) == 0) return 0;
    char *folder = sgrad_format("%.*s", (int)(slash - weights), weights);
    int error = 0;
    if (sgrad_run_exists(folder))
        error = sgrad_log_error(SGRAD_EIO,
                                "%s: does not exist, because the run has not ended; continue it with 'stargrad train --out %s "
                                "--resume', or give --weights %s/checkpoint-STEP.safetensors",
                                weights, folder, folder);
    free(folder);
    return error;
}

int sgrad__run_folder_check(const char *folder, bool resume) {
    enum content content;
    SGRAD_TRY(content_of(folder, &content));
    if (content == (resume ? RUN : NOTHING)) return 0;
    if (!resume)
        return sgrad_log_error(SGRAD_EINVAL, "%s: already contains files; choose another --out%s", folder,
                               content == RUN ? ", or continue that run with --resume" : "");
    return sgrad_log_error(SGRAD_EINVAL, "%s: contains no run to continue%s; leave out --resume to begin one%s", folder,
                           content == FILES ? ", only other files" : "", content == FILES ? " in another --out" : " there");
}

int sgrad_folder_make(const char *path) {
    char *name = sgrad_format("%s", path);
    int error = 0;
    for (char *s = name + 1; !error; s++) {
        if (*s && *s != '/') continue;
        char end = *s;
        *s = 0;
        if (mkdir(name, 0777) != 0 && errno != EEXIST)
            error = sgrad_log_error(SGRAD_EIO, "%s: cannot be created: %s", name, strerror(errno));
        *s = end;
        if (!end) break;
    }
    free(name);
    return error;
}
