/* search.c: the report of a search: a plot of all candidates' learning curves, and a page with the plot and the leaderboard. */
#include "config.h"
#include "report/pictures.h"
#include "report/report.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>search</title>\n<style>\n"
    "body { font: 15px/1.5 sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #222 }\n"
    "table { border-collapse: collapse; margin: 1rem 0 }\nth, td { text-align: left; padding: .15rem 1rem .15rem 0; "
    "border-bottom: 1px solid #e4e4e4 }\ntd.number { text-align: right; font-variant-numeric: tabular-nums }\n"
    ".diverged, .failed { color: #b5374f } .stopped { color: #777 }\nsvg { max-width: 100%; height: auto }\n"
    "</style></head><body>\n";

static char *path_of(const char *folder, const char *name) { return sgrad_format("%s/%s", folder, name); }

bool sgrad_report_is_search(const char *folder) {
    char *path = path_of(folder, "leaderboard.json");
    const bool is = access(path, F_OK) == 0;
    free(path);
    return is;
}

static json_t *read_leaderboard(const char *folder) {
    char *path = path_of(folder, "leaderboard.json");
    json_error_t problem;
    json_t *list = json_load_file(path, 0, &problem);
    if (!json_is_array(list)) {
        sgrad_log_error(SGRAD_EFORMAT, "%s: %s", path, list ? "is not a list" : problem.text);
        json_decref(list);
        list = NULL;
    }
    free(path);
    return list;
}

static const char *name_of(const json_t *candidate) {
    const char *name = json_string_value(json_object_get(candidate, "name"));
    return name ? name : "";
}

/* Returns true if the candidate has completed a step. */
static bool has_begun(const char *folder, const char *name) {
    char *path = sgrad_format("%s/%s/metrics.jsonl", folder, name), line[64] = "";
    FILE *file = fopen(path, "re");
    const bool has = file && fgets(line, sizeof line, file) && strstr(line, "\"step\"");
    if (file) fclose(file);
    free(path);
    return has;
}

static bool draw(const char *folder, const json_t *leaderboard) {
    const size_t count = json_array_size(leaderboard);
    char **run = sgrad_xcalloc(count + 1, sizeof *run);
    int begun = 0;
    for (size_t i = 0; i < count; i++) {
        const char *name = name_of(json_array_get(leaderboard, i));
        if (has_begun(folder, name)) run[begun++] = path_of(folder, name);
    }
    const bool drawn = begun && sgrad__curves_draw(folder, run);
    while (begun) free(run[--begun]);
    free(run);
    return drawn;
}

/* ---- the page ---- */

static void put_text(FILE *to, const char *text) {
    for (; *text; text++)
        if (*text == '<') fputs("&lt;", to);
        else if (*text == '&') fputs("&amp;", to);
        else putc(*text, to);
}

/* An empty cell if VALUE is not a number. */
static void put_number(FILE *to, const json_t *value, bool share) {
    char text[SGRAD_NUMBER_TEXT] = "";
    if (json_is_number(value) && share) snprintf(text, sizeof text, "%.2f %%", 100 * json_number_value(value));
    else if (json_is_number(value)) sgrad_number_text(json_number_value(value), text);
    fprintf(to, "<td class=\"number\">%s</td>", text);
}

static void put_row(FILE *to, const json_t *c, size_t place) {
    const char *status = json_string_value(json_object_get(c, "status"));
    char *given = json_dumps(json_object_get(c, "options"), JSON_COMPACT | JSON_REAL_PRECISION(6));
    fprintf(to, "<tr class=\"%s\"><td class=\"number\">%zu</td><td>", status ? status : "", place);
    put_text(to, name_of(c));
    fprintf(to, "</td><td>%s</td><td class=\"number\">%d</td>", status ? status : "",
            (int)json_integer_value(json_object_get(c, "epochs")));
    put_number(to, json_object_get(c, "train_loss"), false);
    put_number(to, json_object_get(c, "test_loss"), false);
    put_number(to, json_object_get(c, "test_top1"), true);
    fputs("<td><code>", to);
    put_text(to, given ? given : "");
    fputs("</code></td></tr>\n", to);
    free(given);
}

static void put_picture(FILE *to, const char *folder) {
    char *path = path_of(folder, "curves.svg");
    struct sgrad_map map;
    const bool read = sgrad_map_open(path, SIZE_MAX, &map) == 0;
    free(path);
    if (!read) return;
    const char *svg = memmem(map.data, map.size, "<svg", 4);
    if (svg) fwrite(svg, 1, (size_t)((const char *)map.data + map.size - svg), to);
    sgrad_map_close(&map);
}

static bool write_page(const char *folder, const json_t *leaderboard, bool drawn) {
    struct sgrad_file file;
    char *path = path_of(folder, "report.html");
    const bool begun = sgrad_file_begin(path, &file) == 0;
    free(path);
    if (!begun) return false;
    fprintf(file.stream, "%s<h1>%zu candidates</h1>\n", head, json_array_size(leaderboard));
    if (drawn) put_picture(file.stream, folder);
    fputs("<table><tr><th></th><th>name</th><th></th><th>epochs</th><th>training loss</th><th>test loss</th>"
          "<th>test accuracy</th><th>options</th></tr>\n", file.stream);
    for (size_t i = 0; i < json_array_size(leaderboard); i++) put_row(file.stream, json_array_get(leaderboard, i), i + 1);
    fputs("</table></body></html>\n", file.stream);
    return sgrad_file_commit(&file) == 0;
}

bool sgrad_report_search(const char *folder, json_t **leaderboard) {
    json_t *list = read_leaderboard(folder);
    const bool drawn = list && draw(folder, list), written = list && write_page(folder, list, drawn);
    if (leaderboard) *leaderboard = list;
    else json_decref(list);
    return written;
}
