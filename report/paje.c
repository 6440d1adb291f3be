/* paje.c: reads worker states, memory use, copies and moves, which only paje.trace contains. Its fields are separated by tabs;
 * times are in ms of StarPU's clock:
 *
 *     10 time worker WS "state"                      new state of a worker: the name of a task, or a state of StarPU
 *     20 time worker WS "name" …                     the same, with more on the task
 *     11 time worker WS state, 12 time worker WS     start and end of a state nested in it
 *     13 time node use MiB                           new use of a memory node
 *     24 time kind rank bytes node com_N handle "name" X Y     a copy leaves its memory node
 *     19 time kind rank bytes node com_N                       and arrives at another
 *     9 time prog_event p "store begins name"                  a move to or from a file begins or ends (runtime/trace.c)
 */
#include "report/timeline.h"
#include "runtime/runtime.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS = 12, DEPTH = 16, MOST = 1 << 12 };   /* of a line; of nested states; workers or memory nodes of a rank */

struct line {
    int count;
    char *field[FIELDS];                /* without quotes */
    double ms;
};

/* The state of a worker while a trace is read. */
struct now {
    enum sgrad__state state;
    double since;
    int depth;
    enum sgrad__state outer[DEPTH];
};
struct search {
    struct sgrad__timeline *t;
    struct now *now;                    /* by row */
    struct sgrad__numbers copies;       /* keys {rank, number}, two longs */
    int *copy;                          /* by the key's number: index in the timeline */
};

/* ---- lines ---- */

static void split(char *text, struct line *line) {
    *line = (struct line){ 0 };
    for (char *field; line->count < FIELDS && (field = strsep(&text, "\t"));) {
        const size_t length = strcspn(field + (*field == '"'), "\"");
        if (*field == '"') (++field)[length] = 0;
        line->field[line->count++] = field;
    }
    if (line->count > 1) line->ms = atof(line->field[1]);
}

/* Parses "3_w1": KIND "w", number 1, of rank 3. With a single rank it is "w1". */
static bool place(const char *text, const char *kind, int *rank, int *number) {
    char *end;
    *rank = 0;
    if (isdigit((unsigned char)*text)) {
        *rank = (int)strtol(text, &end, 10);
        if (*end != '_') return false;
        text = end + 1;
    }
    const size_t length = strlen(kind);
    if (strncmp(text, kind, length) != 0 || !isdigit((unsigned char)text[length])) return false;
    *number = (int)strtol(text + length, &end, 10);
    return !*end && *number >= 0 && *number < MOST && *rank >= 0;
}

/* ---- states ---- */

static enum sgrad__state state_of(const char *name) {
    static const char *const scheduling[] = { "B", "Sc", "P", "C", "Su", "Bu", "H", "U", "Th" };
    static const char *const fetching[] = { "Fi", "Po" };
    for (size_t i = 0; i < sizeof scheduling / sizeof *scheduling; i++)
        if (strcmp(name, scheduling[i]) == 0) return SGRAD__SCHEDULING;
    for (size_t i = 0; i < sizeof fetching / sizeof *fetching; i++)
        if (strcmp(name, fetching[i]) == 0) return SGRAD__FETCHING;
    return SGRAD__NOTHING;
}

static void change(struct search *search, int row, double ms, enum sgrad__state state) {
    struct now *now = &search->now[row];
    struct sgrad__timeline *t = search->t;
    if (state == now->state) return;
    if (now->state != SGRAD__NOTHING && ms > now->since) {
        t->span = sgrad_array_grow(t->span, t->spans, sizeof *t->span);
        t->span[t->spans++] = (struct sgrad__timeline_span){ row, now->state, now->since - t->start, ms - t->start };
    }
    now->state = state;
    now->since = ms;
}

static void see_state(struct search *search, const struct line *line) {
    int rank, worker;
    const bool pops = strcmp(line->field[0], "12") == 0;
    if (line->count < (pops ? 4 : 5) || strcmp(line->field[3], "WS") != 0 || !place(line->field[2], "w", &rank, &worker)) return;
    const int row = sgrad__number_find(&search->t->workers, (int[]){ rank, worker }, sizeof(int[2]));
    if (row < 0) return;
    struct now *now = &search->now[row];
    if (pops) {
        if (now->depth && --now->depth < DEPTH) change(search, row, line->ms, now->outer[now->depth]);
        return;
    }
    if (strcmp(line->field[0], "11") != 0) now->depth = 0;
    else if (now->depth++ < DEPTH) now->outer[now->depth - 1] = now->state;
    change(search, row, line->ms, strcmp(line->field[0], "20") == 0 ? SGRAD__NOTHING : state_of(line->field[4]));
}

/* ---- memory ---- */

static void see_memory(struct search *search, const struct line *line) {
    struct sgrad__timeline *t = search->t;
    struct sgrad__timeline_memory memory = { .ms = line->ms - t->start };
    if (line->count < 5 || strcmp(line->field[3], "use") != 0 || !place(line->field[2], "mm", &memory.rank, &memory.node)) return;
    memory.megabytes = 1.048576 * atof(line->field[4]);
    t->memory = sgrad_array_grow(t->memory, t->memories, sizeof memory);
    t->memory[t->memories++] = memory;
}

/* ---- copies ---- */

static bool number_of(const struct line *line, long *number) { return sscanf(line->field[6], "com_%ld", number) == 1; }

static void see_departure(struct search *search, const struct line *line) {
    struct sgrad__timeline *t = search->t;
    struct sgrad__timeline_copy copy = { .to = -1 };
    if (line->count < 9 || !place(line->field[5], "mm", &copy.rank, &copy.from) || !number_of(line, &copy.number)) return;
    copy.bytes = atof(line->field[4]);
    copy.name = sgrad_format("%s", line->field[8]);
    const int known = search->copies.count,
              n = sgrad__number(&search->copies, (long[]){ copy.rank, copy.number }, sizeof(long[2]));
    if (n == known) search->copy = sgrad_array_grow(search->copy, n, sizeof *search->copy);
    search->copy[n] = t->copies;
    t->copy = sgrad_array_grow(t->copy, t->copies, sizeof copy);
    t->copy[t->copies++] = copy;
}

static void see_arrival(struct search *search, const struct line *line) {
    int rank, node;
    long number;
    if (line->count < 7 || !place(line->field[5], "mm", &rank, &node) || !number_of(line, &number)) return;
    const int n = sgrad__number_find(&search->copies, (long[]){ rank, number }, sizeof(long[2]));
    if (n >= 0 && search->t->copy[search->copy[n]].to < 0) search->t->copy[search->copy[n]].to = node;
}

/* ---- moves ---- */

static void see_move(struct search *search, const struct line *line) {
    struct sgrad__timeline *t = search->t;
    struct sgrad__timeline_move move = { .begin = line->ms - t->start, .end = t->length };
    char kind[8], edge[8];
    int from = 0;
    if (line->count < 5 || strcmp(line->field[2], "prog_event") != 0 ||
        sscanf(line->field[4], "%7s %7s %n", kind, edge, &from) != 2)
        return;
    move.reads = strcmp(kind, "fetch") == 0;
    if (!move.reads && strcmp(kind, "store") != 0) return;
    move.rank = atoi(line->field[3]); /* "3_p" of rank 3; with a single rank "p" */
    if (move.rank < 0 || move.rank >= t->ranks) return;
    if (strcmp(edge, "begins") == 0) {
        move.name = sgrad_format("%s", line->field[4] + from);
        t->move = sgrad_array_grow(t->move, t->moves, sizeof move);
        t->move[t->moves++] = move;
        return;
    }
    for (int i = t->moves - 1; i >= 0; i--) {
        struct sgrad__timeline_move *m = &t->move[i];
        if (m->rank != move.rank || m->reads != move.reads || strcmp(m->name, line->field[4] + from) != 0) continue;
        m->end = move.begin;
        return;
    }
}

/* ---- the file ---- */

static void see(struct search *search, const struct line *line) {
    static const struct {
        const char *event;
        void (*see)(struct search *search, const struct line *line);
    } events[] = { { "10", see_state },  { "20", see_state },     { "11", see_state },   { "12", see_state },
                   { "13", see_memory }, { "24", see_departure }, { "19", see_arrival }, { "9", see_move } };
    for (size_t i = 0; i < sizeof events / sizeof *events && line->count > 2; i++)
        if (strcmp(line->field[0], events[i].event) == 0) events[i].see(search, line);
}

static int read_lines(FILE *file, const char *path, struct search *search) {
    struct line line;
    char *text = NULL;
    size_t room = 0;
    int error = 0;
    long number = 0;
    for (ssize_t length; !error && (length = getline(&text, &room, file)) > 0;) {
        const bool whole = text[length - 1] == '\n';
        if (!number++ && text[0] != '%')
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: is not a Paje trace; trace the run again", path);
        else if (!whole)
            error =
                sgrad_log_error(SGRAD_EFORMAT, "%s: line %ld: the file ends within this line; trace the run again", path, number);
        if (whole) text[length - 1] = 0;
        if (!error && isdigit((unsigned char)text[0])) split(text, &line), see(search, &line);
    }
    if (!error && !number) error = sgrad_log_error(SGRAD_EFORMAT, "%s: is not a Paje trace; trace the run again", path);
    free(text);
    return error;
}

static int by_row(const void *one, const void *other) {
    const struct sgrad__timeline_span *a = one, *b = other;
    return a->row != b->row ? a->row - b->row : (a->begin > b->begin) - (a->begin < b->begin);
}

static void put_in_order(struct sgrad__timeline *timeline) {
    if (timeline->spans) qsort(timeline->span, (size_t)timeline->spans, sizeof *timeline->span, by_row);
    for (int i = 0; i < timeline->spans; i++) timeline->row[timeline->span[i].row].spans++;
    for (int i = 1; i < timeline->rows; i++)
        timeline->row[i].first_span = timeline->row[i - 1].first_span + timeline->row[i - 1].spans;
}

int sgrad__timeline_read_paje(const char *folder, struct sgrad__timeline *timeline) {
    char *path = sgrad_format("%s/trace/paje.trace", folder);
    struct search s = { .t = timeline, .now = sgrad_xcalloc((size_t)timeline->rows, sizeof *s.now) };
    FILE *file = fopen(path, "re");
    int error = file ? read_lines(file, path, &s) : sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    for (int i = 0; i < timeline->rows && !error; i++) change(&s, i, timeline->start + timeline->length, SGRAD__NOTHING);
    put_in_order(timeline);
    if (file) fclose(file);
    sgrad__numbers_free(&s.copies);
    free(s.copy);
    free(s.now);
    free(path);
    return error;
}
