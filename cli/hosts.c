/* hosts.c: the hosts of stargrad launch: reads them from its options, checks which of them answer, and notices when the file of
 * hosts changes.
 *
 *     node1 slots=2        a line of a file, or an element of --host: entry "node1 slots=2", name "node1", 2 slots
 *     node2:4              4 slots
 *     node3                1 slot, as far as this program compares hosts */
#include "cli/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns the slots of an entry; 1 if it has none, or no valid number. */
static int slots_of(const char *entry) {
    const char *at = strstr(entry, "slots=");
    if (at && at > entry && !strchr(" \t", at[-1])) at = NULL;     /* max_slots= */
    at = at ? at + strlen("slots=") : strchr(entry, ':') ? strchr(entry, ':') + 1 : "1";
    const long slots = strtol(at, NULL, 10);
    return slots >= 1 && slots <= 1000000 ? (int)slots : 1;
}

static void add_host(struct sgrad__hosts *hosts, const char *entry, size_t length, const char *end_of_name) {
    size_t name = strcspn(entry, end_of_name);
    if (!length || *entry == '#') return;
    hosts->host = sgrad_array_grow(hosts->host, hosts->count, sizeof *hosts->host);
    struct sgrad__host *host = &hosts->host[hosts->count++];
    *host = (struct sgrad__host){ .name = sgrad_format("%.*s", (int)(name < length ? name : length), entry),
                                  .entry = sgrad_format("%.*s", (int)length, entry) };
    host->slots = slots_of(host->entry);
}

int sgrad__hosts_read(const struct sgrad__request *request, struct sgrad__hosts *hosts) {
    const char *path = request->launch.hostfile;
    struct sgrad__hosts h = { .file = path };
    for (const char *at = request->launch.host; at; at = *at ? at + 1 : NULL) {
        size_t length = strcspn(at, ",");
        add_host(&h, at, length, ":,");
        at += length;
    }
    FILE *file = path ? fopen(path, "re") : NULL;
    if (path && !file) return sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    if (file) fstat(fileno(file), &h.read);
    char *line = NULL;
    for (size_t room = 0; file && getline(&line, &room, file) > 0;) {
        const char *at = line + strspn(line, " \t");
        add_host(&h, at, strcspn(at, "\r\n"), " \t\r\n");
    }
    free(line);
    if (file) fclose(file);
    *hosts = h;
    return 0;
}

void sgrad__hosts_free(struct sgrad__hosts *hosts) {
    for (int i = 0; i < hosts->count; i++) {
        free(hosts->host[i].name);
        free(hosts->host[i].entry);
    }
    free(hosts->host);
    *hosts = (struct sgrad__hosts){ 0 };
}

char *sgrad__hosts_text(const struct sgrad__hosts *hosts, bool gone, bool entries, const char *between) {
    char *text = NULL;
    size_t size;
    int count = 0;
    FILE *to = open_memstream(&text, &size);
    for (int i = 0; i < hosts->count; i++)
        if (hosts->host[i].gone == gone)
            fprintf(to, "%s%s", count++ ? between : "", entries ? hosts->host[i].entry : hosts->host[i].name);
    fclose(to);
    return text;
}

int sgrad__hosts_write(const struct sgrad__hosts *hosts, char *path) {
    char *text = sgrad__hosts_text(hosts, false, true, "\n");
    int fd = mkstemp(path), error = 0;
    if (fd < 0 || dprintf(fd, "%s\n", text) < 0) error = sgrad_log_error(SGRAD_EIO, "launch: %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    if (fd >= 0 && error) unlink(path);
    free(text);
    return error;
}

long sgrad__hosts_slots(const struct sgrad__hosts *hosts) {
    long slots = 0;
    for (int i = 0; i < hosts->count; i++) slots += hosts->host[i].gone ? 0 : hosts->host[i].slots;
    return slots;
}

void sgrad__hosts_probe(struct sgrad__hosts *hosts) {
    hosts->gone = 0;
    for (int i = 0; i < hosts->count; i++)
        hosts->host[i].probe = sgrad__children_start_silent((const char *[]){
            "timeout", "-k", "5", "30", sgrad__mpirun(), "--host", hosts->host[i].name, "-n", "1", "true", NULL });
    for (int i = 0; i < hosts->count; i++) {
        int status = 1;
        waitpid(hosts->host[i].probe, &status, 0);
        hosts->host[i].gone = status != 0;
        hosts->gone += hosts->host[i].gone;
    }
}

/* ---- changes ---- */

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static bool same_entries(const struct sgrad__hosts *a, const struct sgrad__hosts *b) {
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++) same = !strcmp(a->host[i].entry, b->host[i].entry);
    return same;
}

bool sgrad__hosts_changed(const struct sgrad__request *request, struct sgrad__hosts *hosts) {
    struct stat now;
    struct sgrad__hosts read = { 0 };
    const char *path = request->launch.hostfile;
    if (stat(path, &now) || same_file(&now, &hosts->read)) return false;
    const bool at_rest = same_file(&now, &hosts->seen);
    hosts->seen = now;
    if (!at_rest) return false;
    if (sgrad__hosts_read(request, &read)) {     /* reported once, until it changes again */
        hosts->read = now;
        return false;
    }
    const bool changed = read.count && !same_entries(&read, hosts);
    if (!read.count) sgrad_log_warning("%s: contains no hosts, so the run continues on those before", path);
    if (changed) sgrad_log_warning("launch: %s has changed; the run ends with a checkpoint, and continues on its hosts", path);
    else hosts->read = read.read;
    sgrad__hosts_free(&read);
    return changed;
}

bool sgrad__hosts_follow(const struct sgrad__request *request, struct sgrad__hosts *hosts, struct sgrad__hosts *former) {
    struct stat now;
    struct sgrad__hosts read = { 0 };
    while (!stat(request->launch.hostfile, &now) && !same_file(&now, &hosts->read) && !same_file(&now, &hosts->seen)) {
        hosts->seen = now;      /* somebody may be writing it */
        if (!sgrad__children_pause(1)) return false;
    }
    if (stat(request->launch.hostfile, &now) || same_file(&now, &hosts->read) || sgrad__hosts_read(request, &read)) return true;
    if (!read.count || same_entries(&read, hosts)) {
        hosts->read = read.read;
        sgrad__hosts_free(&read);
        return true;
    }
    if (former->count) sgrad__hosts_free(hosts);
    else *former = *hosts;
    *hosts = read;
    return true;
}

void sgrad__hosts_restore(struct sgrad__hosts *hosts, struct sgrad__hosts *former) {
    former->read = hosts->read;
    sgrad__hosts_free(hosts);
    *hosts = *former;
    *former = (struct sgrad__hosts){ 0 };
}
