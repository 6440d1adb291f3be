/* page.c: writes report.html, a page that needs only a browser. It is page.html, with the figures, the plots and the library for
 * zooming (d3, version 3, from Debian's libjs-d3) inserted at its markers. */
#include "config.h"
#include "report/lines.h"
#include "report/pictures.h"
#include "runtime/files/data.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
#include "report/page.inc"
    ;

/* ---- the timeline, for the page's script ---- */

static json_t *box(int row, double begin, double end, const char *color, const char *name) {
    return json_pack("[i, f, f, s, s]", row, begin, end, color, name);
}

static json_t *names_as_json(const struct sgrad__timeline *timeline, const struct sgrad__lines *lines) {
    json_t *names = json_array();
    for (int i = 0; i < lines->count; i++) {
        char *name = sgrad__lines_name(timeline, lines, i);
        json_array_append_new(names, json_string(name));
        free(name);
    }
    return names;
}

static void add_messages(const struct sgrad__timeline *timeline, const struct sgrad__lines *lines, json_t *boxes) {
    char **text = sgrad_xcalloc((size_t)timeline->parcels + 1, sizeof *text);
    for (int i = 0; i < timeline->parcels; i++) text[i] = sgrad__timeline_parcel_text(&timeline->parcel[i]);
    for (int i = 0; i < timeline->messages; i++) {
        const struct sgrad__timeline_message *m = &timeline->message[i];
        const double begin = fmax(0, m->begin), end = fmin(timeline->length, m->end);
        if (begin >= end || lines->of_rank[m->to] < 0) continue;
        char *name = sgrad_format("%s, %.0f bytes from rank %d", text[m->parcel], m->bytes, m->from);
        json_array_append_new(boxes, box(lines->of_rank[m->to], begin, end, "message", name));
        free(name);
    }
    for (int i = 0; i < timeline->parcels; i++) free(text[i]);
    free(text);
}

static void add_moves(const struct sgrad__timeline *timeline, const struct sgrad__lines *lines, json_t *boxes) {
    for (const struct sgrad__timeline_move *m = timeline->move; m < timeline->move + timeline->moves; m++) {
        const double begin = fmax(0, m->begin), end = fmin(timeline->length, m->end);
        if (begin >= end || lines->of_disk[m->rank] < 0) continue;
        char *name = sgrad_format("%s %s", m->reads ? "fetch" : "store", m->name);
        json_array_append_new(boxes, box(lines->of_disk[m->rank], begin, end, m->reads ? "fetch" : "store", name));
        free(name);
    }
}

/* Returns [step, ms] of the end of each step. */
static json_t *steps_as_json(const struct sgrad__timeline *timeline) {
    json_t *steps = json_array();
    for (int i = 0; i < timeline->steps; i++)
        json_array_append_new(steps, json_pack("[i, f]", timeline->first_step + i, timeline->step_end[i]));
    return steps;
}

static json_t *timeline_as_json(const struct sgrad__timeline *timeline) {
    json_t *boxes = json_array(), *colors = json_object();
    struct sgrad__lines lines;
    sgrad__lines_pick(timeline, &lines);
    for (int i = 0; i < timeline->tasks; i++) {
        const struct sgrad__timeline_task *task = &timeline->task[i];
        const int line = lines.of_row[task->worker];
        if (line >= 0)
            json_array_append_new(boxes, box(line, task->begin, task->end, timeline->kinds.kind[task->kind].name, task->name));
    }
    add_messages(timeline, &lines, boxes);
    add_moves(timeline, &lines, boxes);
    for (int k = 0; k < timeline->kinds.count; k++)
        json_object_set_new(colors, timeline->kinds.kind[k].name, json_sprintf("#%06x", timeline->kinds.kind[k].color));
    if (timeline->ranks > 1) json_object_set_new(colors, "message", json_sprintf("#%06x", SGRAD__MESSAGE_COLOR));
    if (timeline->moves) {
        json_object_set_new(colors, "store", json_sprintf("#%06x", SGRAD__STORE_COLOR));
        json_object_set_new(colors, "fetch", json_sprintf("#%06x", SGRAD__FETCH_COLOR));
    }
    json_t *json = json_pack("{s:o, s:o, s:o, s:o, s:s?}", "rows", names_as_json(timeline, &lines), "boxes", boxes, "steps",
                             steps_as_json(timeline), "colors", colors, "left_out", lines.left_out);
    sgrad__lines_free(&lines);
    return json;
}

/* ---- the page ---- */

/* Inserts a file, from the first occurrence of START; NULL: from its beginning. Returns false if the file cannot be read. */
static bool put_file(FILE *to, const char *path, const char *start) {
    struct sgrad_map map;
    FILE *there = fopen(path, "re");
    if (!there) return false;
    fclose(there);
    if (sgrad_map_open(path, SIZE_MAX, &map)) return false;
    const char *from = start ? memmem(map.data, map.size, start, strlen(start)) : map.data;
    if (from) fwrite(from, 1, (size_t)((const char *)map.data + map.size - from), to);
    sgrad_map_close(&map);
    return true;
}

static void put_picture(FILE *to, const char *folder, const char *name) {
    char *path = sgrad_format("%s/%s.svg", folder, name);
    put_file(to, path, "<svg");
    free(path);
}

/* Writes the text up to MARK; returns the text after it. */
static const char *put_until(FILE *to, const char *from, const char *mark) {
    const char *end = strstr(from, mark);
    fwrite(from, 1, (size_t)(end - from), to);
    return end + strlen(mark);
}

/* Inserts d3. An installation that can be moved, such as a Python wheel, has its own copy. */
static bool put_d3(FILE *to) {
    char *path = sgrad_data_path("d3.min.js");
    const bool found = (path && put_file(to, path, NULL)) || put_file(to, SGRAD_D3, NULL);
    free(path);
    return found;
}

static void write_page(FILE *to, const char *folder, json_t *data, bool curve) {
    const char *rest = put_until(to, page, "<!--CURVE-->");
    if (curve) put_picture(to, folder, "curve");
    rest = put_until(to, rest, "<!--DETAILS-->");
    if (json_object_get(data, "details_picture")) put_picture(to, folder, "details");
    rest = put_until(to, rest, "<!--D3-->");
    if (json_object_get(data, "trace") && !put_d3(to))
        sgrad_log_warning(
            "%s does not exist, so the page has no zoomable timeline; install d3 (Debian, Ubuntu: apt install libjs-d3)",
            SGRAD_D3);
    rest = put_until(to, rest, "<!--DATA-->");
    json_dumpf(data, to, JSON_COMPACT | JSON_ESCAPE_SLASH | JSON_REAL_PRECISION(9));   /* it cannot contain </script> */
    fputs(rest, to);
}

bool sgrad__page_write(const char *folder, const json_t *report, const struct sgrad__timeline *timeline, bool curve) {
    struct sgrad_file file;
    char *path = sgrad_format("%s/report.html", folder);
    json_t *data = json_copy((json_t *)report);
    if (timeline) json_object_set_new(data, "timeline", timeline_as_json(timeline));
    bool whole = sgrad_file_begin(path, &file) == 0;
    if (whole) {
        write_page(file.stream, folder, data, curve);
        whole = sgrad_file_commit(&file) == 0;
    }
    json_decref(data);
    free(path);
    return whole;
}
