/* machine.c: the machine files that belong to Stargrad, and the network of a machine. */
#include "config.h"
#include "planner/planner.h"
#include "runtime/files/data.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENDING ".json"

/* ---- files ------------------------------------------------------------------------------------------------------ */

static int is_machine(const struct dirent *entry) {
    return *entry->d_name != '.' && sgrad_ends_with(entry->d_name, ENDING);
}

static char *summary_of(const char *path) {
    json_t *file = json_load_file(path, 0, NULL);
    const char *summary = json_string_value(json_object_get(file, "summary"));
    char *copy = sgrad_format("%s", summary ? summary : "");
    json_decref(file);
    return copy;
}

struct sgrad_machine_file *sgrad_machine_files(void) {
    struct dirent **entry = NULL;
    char *folder = sgrad_data_path("machines");
    const int found = folder ? scandir(folder, &entry, is_machine, alphasort) : 0, count = found > 0 ? found : 0;
    struct sgrad_machine_file *files = sgrad_xcalloc((size_t)count + 1, sizeof *files);
    for (int i = 0; i < count; i++) {
        const int length = (int)(strlen(entry[i]->d_name) - strlen(ENDING));
        files[i].name = sgrad_format("%.*s", length, entry[i]->d_name);
        files[i].path = sgrad_format("%s/%s", folder, entry[i]->d_name);
        files[i].summary = summary_of(files[i].path);
        free(entry[i]);
    }
    free(entry);
    free(folder);
    return files;
}

void sgrad_machine_files_free(struct sgrad_machine_file *files) {
    for (struct sgrad_machine_file *file = files; file && file->name; file++) {
        free(file->name);
        free(file->path);
        free(file->summary);
    }
    free(files);
}

static int unknown(const char *name, const struct sgrad_machine_file *files) {
    const char *names[256] = { 0 }, *near;
    char *all = sgrad_format("%s", "");
    for (int i = 0; files[i].name && i < 255; i++) {
        char *longer = sgrad_format("%s%s%s", all, i ? ", " : "", names[i] = files[i].name);
        free(all);
        all = longer;
    }
    near = sgrad_suggest(name, names);
    if (near)
        sgrad_log_error(SGRAD_ENAME, "unknown machine '%s'; did you mean '%s'? The known ones are %s", name, near, all);
    else if (*names)
        sgrad_log_error(SGRAD_ENAME, "unknown machine '%s'; give one of %s, or the path of a machine file", name,
                        all);
    else
        sgrad_log_error(SGRAD_ENAME,
                        "unknown machine '%s': Stargrad's own machine files were not found; give the path of a machine file",
                        name);
    free(all);
    return SGRAD_ENAME;
}

int sgrad_machine_find(const char *name, char **path) {
    const bool is_path = strchr(name, '/') || sgrad_ends_with(name, ENDING);
    char *found = NULL;
    if (!is_path) {
        struct sgrad_machine_file *files = sgrad_machine_files(), *file = files;
        while (file->name && strcmp(file->name, name)) file++;
        if (file->name) found = sgrad_format("%s", file->path);
        const int error = found || access(name, F_OK) == 0 ? 0 : unknown(name, files);
        sgrad_machine_files_free(files);
        SGRAD_TRY(error);
    }
    *path = found ? found : sgrad_format("%s", name);
    return 0;
}

/* ---- machines --------------------------------------------------------------------------------------------------- */

void sgrad_machine_free(struct sgrad_machine *machine) {
    if (!machine) return;
    for (int i = 0; i < machine->device.efficiencies; i++) free(machine->device.efficiency[i].operation);
    for (int i = 0; i < machine->measurements; i++) free(machine->measured[i].model);
    for (int i = 0; i < machine->timings; i++) free(machine->timed[i].kernel);
    free(machine->timed);
    free(machine->device.efficiency);
    free(machine->device.name);
    free(machine->network.level);
    free(machine->measured);
    free(machine->currency);
    free(machine->summary);
    free(machine->name);
    free(machine->path);
    free(machine);
}

/* The bandwidth of a node is limited by each level of switches that its messages pass: the uplinks of a switch are divided
 * equally among the nodes below it. The latency includes the further hops between two nodes: up and down through the levels, or
 * the mean distance in a torus, a quarter of the length of each dimension. */
struct sgrad_network sgrad_machine_network(const struct sgrad_machine *machine, int nodes) {
    struct sgrad_network net = { .ranks = nodes * machine->device.count,
                                 .latency = machine->network.latency,
                                 .bandwidth = machine->network.bandwidth,
                                 .host_latency = machine->bus_latency,
                                 .host_bandwidth = machine->bus_bandwidth };
    for (int i = 0; i < machine->network.levels && nodes > machine->network.level[i].nodes; i++) {
        net.bandwidth = fmin(net.bandwidth, machine->network.level[i].uplink / machine->network.level[i].nodes);
        net.latency += 2 * machine->network.hop;
    }
    if (machine->network.dimensions)
        net.latency += machine->network.hop * machine->network.dimensions * pow(nodes, 1.0 / machine->network.dimensions) / 4;
    int *host = sgrad_xcalloc((size_t)net.ranks, sizeof *host);
    for (int r = 0; r < net.ranks; r++) host[r] = r / machine->device.count;
    net.host = host;
    return net;
}
