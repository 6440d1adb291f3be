/* machine_keys.c: the keys of machine files, as a table. The reader checks files with it (machine_file.c), stargrad plan --help
 * prints it, and docs/reference/machine-files.md contains it. */
#include "config.h"
#include "planner/machine_keys.h"

#include <stdlib.h>
#include <string.h>

#define IN(type, member) offsetof(struct sgrad_##type, member), sizeof(((struct sgrad_##type *)0)->member)

const struct sgrad__machine_field sgrad__machine_fields[] = {
    { "name", TEXT, NULL, NEEDED, 0, 0, NULL, "short name", IN(machine, name) },
    { "summary", TEXT, NULL, NEEDED, 0, 0, NULL, "description in one line", IN(machine, summary) },
    { "device", OBJECT, NULL, NEEDED, 0, 0, NULL, "the devices of a node", 0, 0 },
    { "bus", OBJECT, NULL, NEEDED, 0, 0, NULL, "connection between the devices of a node, and to its main memory", 0, 0 },
    { "network", OBJECT, NULL, NEEDED, 0, 0, NULL, "connection between nodes", 0, 0 },
    { "disk", OBJECT, NULL, 0, 0, 0, NULL, "the fast disk of a node, for train --spill", 0, 0 },
    { "input", FIGURE, "samples/s", 0, 0, 0, "optional; default: unlimited",
      "number of samples per second that a node can read and prepare", IN(machine, input) },
    { "price", FIGURE, "currency/hour", ZERO, 0, 0, "optional", "price of a node", IN(machine, price) },
    { "currency", TEXT, NULL, 0, 0, 0, "required with price", "for example $", IN(machine, currency) },
    { "measured", LIST, NULL, 0, 0, 0, NULL, "measured rates of networks", 0, 0 },
    { "calls", LIST, NULL, 0, 0, 0, NULL, "measured times of tasks, for --simulate", 0, 0 },

    { "device.kind", CHOICE, "cpu gpu", NEEDED, 0, 0, NULL, "cpu: one device that stands for all cores of a node",
      IN(machine, device.is_gpu) },
    { "device.name", TEXT, NULL, NEEDED, 0, 0, NULL, "name of the device", IN(machine, device.name) },
    { "device.count", FIGURE, "devices", NEEDED | WHOLE, 64, 0, NULL, "devices of a node; must be 1 for cpu",
      IN(machine, device.count) },
    { "device.workers", FIGURE, "workers", WHOLE, 4096, 1, NULL, "CPU workers of a node; only for cpu",
      IN(machine, device.workers) },
    { "device.memory", FIGURE, "bytes", NEEDED, 0, 0, NULL, "memory of a device", IN(machine, device.memory) },
    { "device.bandwidth", FIGURE, "bytes/s", NEEDED, 0, 0, NULL, "memory bandwidth of a device", IN(machine, device.bandwidth) },
    { "device.launch", FIGURE, "seconds", NEEDED | ZERO, 1, 0, NULL, "time that each task takes in addition to its work",
      IN(machine, device.launch) },
    { "device.flops", OBJECT, NULL, NEEDED, 0, 0, NULL,
      "peak rates by precision; a multiply-add counts as two operations", 0, 0 },
    { "device.share", OBJECT, NULL, 0, 0, 0, NULL, "fractions of the peaks that kernels reach", 0, 0 },

    { "device.flops.f32", FIGURE, "operations/s", NEEDED, 0, 0, NULL, "peak in f32", IN(machine, device.flops[0]) },
    { "device.flops.tf32", FIGURE, "operations/s", 0, 0, 0, "optional", "peak in tf32; without it, tf32 cannot be predicted",
      IN(machine, device.flops[1]) },
    { "device.flops.bf16", FIGURE, "operations/s", 0, 0, 0, "optional", "peak in bf16; without it, bf16 cannot be predicted",
      IN(machine, device.flops[2]) },

    { "device.share.OPERATION", FIGURE, NULL, SHARE, 1, 0, "optional; default: other",
      "fraction of flops that the kernels of OPERATION reach. OPERATION is a name from stargrad list ops, such as conv2d or "
      "linear. For K-FAC it is kronecker_factor, eigendecomposition or precondition",
      0, 0 },
    { "device.share.other", FIGURE, NULL, SHARE, 1, 1, NULL, "the same for operations that are not listed", 0, 0 },
    { "device.share.traffic", FIGURE, NULL, 0, 1, 1, NULL, "fraction of bandwidth that kernels reach",
      IN(machine, device.traffic_fraction) },

    { "bus.latency", FIGURE, "seconds", NEEDED | ZERO, 1, 0, NULL, "latency of a transfer between devices of a node",
      IN(machine, bus_latency) },
    { "bus.bandwidth", FIGURE, "bytes/s", NEEDED, 0, 0, NULL, "bandwidth of a transfer between devices of a node",
      IN(machine, bus_bandwidth) },

    { "disk.write", FIGURE, "bytes/s", 0, 0, 0, "optional",
      "bandwidth of writes that bypass the page cache; without it, moves of --spill cannot be predicted",
      IN(machine, disk.write) },
    { "disk.read", FIGURE, "bytes/s", 0, 0, 0, "optional", "the same of reads", IN(machine, disk.read) },

    { "network.latency", FIGURE, "seconds", NEEDED | ZERO, 1, 0, NULL, "latency between neighbouring nodes",
      IN(machine, network.latency) },
    { "network.bandwidth", FIGURE, "bytes/s", NEEDED, 0, 0, NULL, "bandwidth of a node's link, in each direction",
      IN(machine, network.bandwidth) },
    { "network.cpu_seconds_per_byte", FIGURE, "s/byte", ZERO, 1, 0, NULL,
      "time that a CPU worker needs for each byte to or from other nodes; only --simulate uses it",
      IN(machine, network.cpu_seconds_per_byte) },
    { "network.carrying", FIGURE, "s/byte", ZERO, 1, 0, "optional", "the name of cpu_seconds_per_byte in version 0.1.0", 0, 0 },
    { "network.hop", FIGURE, "seconds", ZERO, 1, 0, NULL, "additional latency of each further hop", IN(machine, network.hop) },
    { "network.torus", FIGURE, "dimensions", WHOLE, 6, 0, "optional; not with switches",
      "number of dimensions of the torus, if the network is one", IN(machine, network.dimensions) },
    { "network.switches", LIST, NULL, 0, 0, 0, "optional; not with torus",
      "levels of switches, if the network has them; the nodes are connected to the first level of the list. Without torus and "
      "switches, all nodes are connected to one switch without congestion",
      0, 0 },

    { "network.switches[].name", TEXT, NULL, NEEDED, 0, 0, NULL, "name of the level", IN(_switch_entry, name) },
    { "network.switches[].nodes", FIGURE, "nodes", WHOLE, 1e9, 0, "required, except for the highest level",
      "number of nodes below one switch of the level; must increase from level to level. For the highest level: the largest "
      "possible number of nodes",
      IN(_switch_entry, nodes) },
    { "network.switches[].uplink", FIGURE, "bytes/s", 0, 0, 0, "required, except for the highest level",
      "total bandwidth of the links of a switch to the level above, in each direction", IN(_switch_entry, uplink) },
    { "network.switches[].above", TEXT, NULL, 0, 0, 0, NULL, "name of the level above; absent: this is the highest level",
      IN(_switch_entry, above) },

    { "measured[].model", TEXT, NULL, NEEDED, 0, 0, NULL,
      "network, with its options: googlenet:aux=1,bn=0. Omitted options have their defaults", IN(measured, model) },
    { "measured[].batch", NUMBER, "samples", NEEDED | SIZES, 0, 0, NULL, "samples of a step", IN(measured, batch) },
    { "measured[].precision", CHOICE, "f32 tf32 bf16", 0, 0, 0, NULL, "precision of the measurement", IN(measured, precision) },
    { "measured[].samples_per_second", FIGURE, "samples/s", NEEDED, 0, 0, NULL,
      "rate of one device with this network. If an element matches the network of the prediction, all task times are scaled so "
      "that one device reaches this rate",
      IN(measured, samples_per_second) },

    { "calls[].kernel", TEXT, NULL, NEEDED, 0, 0, NULL, "name of the kernel, for example conv2d forward",
      IN(task_timing, kernel) },
    { "calls[].hash", INTEGER, NULL, NEEDED | ZERO, UINT32_MAX, 0, NULL, "StarPU's hash of the task's shapes",
      IN(task_timing, hash) },
    { "calls[].seconds", FIGURE, "seconds", NEEDED, 1e6, 0, NULL, "time that the task takes on one worker during training steps",
      IN(task_timing, seconds) },
    { .path = NULL },
};
enum { ROWS = sizeof sgrad__machine_fields / sizeof *sgrad__machine_fields };
_Static_assert((int)ROWS <= (int)SGRAD__MACHINE_FIELDS, "the reader has space for fewer keys");

/* ---- the table as text ------------------------------------------------------------------------------------------ */

static const char *const kinds[] = {
    [TEXT] = "text", [FIGURE] = "figure", [NUMBER] = "number", [INTEGER] = "integer", [OBJECT] = "object", [LIST] = "list"
};

char *sgrad__machine_range(const struct sgrad__machine_field *field) {
    const int rules = field->rules;
    const char *least = rules & ZERO ? "0" : "1";
    const bool closed = rules & (ZERO | WHOLE | SIZES);
    if (!closed) return field->most > 0 ? sgrad_format("above 0, at most %.10g", field->most) : sgrad_format("above 0");
    return field->most > 0 ? sgrad_format("%s to %.10g", least, field->most) : sgrad_format("%s or more", least);
}

char *sgrad__machine_choices(const struct sgrad__machine_field *field) {
    const char *last = strrchr(field->unit, ' ');
    char *text = sgrad_format("%.*s or %s", (int)(last - field->unit), field->unit, last + 1), *all = NULL;
    char *space = strchr(text, ' ');
    if (strncmp(space, " or ", 4) == 0) return text;
    all = sgrad_format("%.*s,%s", (int)(space - text), text, space);
    free(text);
    return all;
}

static char *type_of(const struct sgrad__machine_field *field) {
    if (field->kind == CHOICE) return sgrad__machine_choices(field);
    if (field->kind == TEXT || field->kind == OBJECT || field->kind == LIST) return sgrad_format("%s", kinds[field->kind]);
    char *range = sgrad__machine_range(field), *type;
    type = sgrad_format("%s, %s%s%s", kinds[field->kind], field->unit ? field->unit : "", field->unit ? ", " : "", range);
    free(range);
    return type;
}

static char *required_of(const struct sgrad__machine_field *field) {
    if (field->required || field->rules & NEEDED) return sgrad_format("%s", field->required ? field->required : "required");
    if (field->kind == FIGURE) return sgrad_format("optional; default: %g", field->usual);
    if (field->kind != CHOICE) return sgrad_format("optional");
    return sgrad_format("optional; default: %.*s", (int)strcspn(field->unit, " "), field->unit);
}

bool sgrad_machine_key(int i, struct sgrad_machine_key *key) {
    if (i < 0 || i >= ROWS - 1) return false;
    const struct sgrad__machine_field *field = &sgrad__machine_fields[i];
    *key = (struct sgrad_machine_key){ field->path, type_of(field), required_of(field), field->meaning };
    return true;
}
