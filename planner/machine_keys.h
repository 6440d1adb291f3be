/* machine_keys.h: the table of the keys of machine files (machine_keys.c). Private to planner/. */
#ifndef SGRAD_PLANNER_MACHINE_KEYS_H
#define SGRAD_PLANNER_MACHINE_KEYS_H

#include "planner/planner.h"

#include <stddef.h>

enum sgrad__machine_kind { TEXT, CHOICE, FIGURE, NUMBER, INTEGER, OBJECT, LIST };
enum {
    NEEDED = 1, /* must be present */
    ZERO = 2,   /* a number may be 0; without it, a number must be above 0 */
    WHOLE = 4,  /* a figure must be a whole number */
    SIZES = 8,  /* a number must be 1 or more */
    SHARE = 16  /* read_shares reads it; other keys of this object are allowed */
};

struct sgrad__machine_field {
    const char *path; /* "bus.latency"; of the elements of a list: "measured[].model" */
    enum sgrad__machine_kind kind;
    const char *unit; /* of a number; choices: separated by spaces, the first one is the default; NULL: none */
    int rules;
    double most;          /* largest value of a number; 0: unlimited */
    double usual;         /* value of a number that is absent */
    const char *required; /* text for the documentation; NULL: derived from the other members */
    const char *meaning;
    size_t offset, size; /* in the structure of the object or element; size 0: not stored */
};

/* An element of network.switches. */
struct sgrad__switch_entry {
    char *name, *above;
    double nodes, uplink;
};

enum { SGRAD__MACHINE_FIELDS = 64 }; /* limit of the number of rows, with the last one, whose path is NULL */
extern const struct sgrad__machine_field sgrad__machine_fields[];

/* Return "1 to 64", the range of a number, and "f32, tf32 or bf16", all choices. The caller must free the text. */
char *sgrad__machine_range(const struct sgrad__machine_field *field);
char *sgrad__machine_choices(const struct sgrad__machine_field *field);

#endif
