/* template.c: reads the form of a conversation: template.h. */
#include "datasets/corpus/template.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

enum place { SECTION, SYSTEM, SECTION_END, PROMPT, ANSWER, PLACES };

static const char *const places[] = { "{#system}", "{system}", "{/system}", "{prompt}", "{answer}" };

/* Sets AT to the address of each place in TEXT; NULL: it is not there. */
static int find(const char *file, const char *text, bool answer, const char *at[PLACES]) {
    const char *last = NULL;
    for (int i = 0; i < PLACES; i++) {
        at[i] = strstr(text, places[i]);
        const bool needed = i == PROMPT || (i == ANSWER && answer);
        if (at[i] ? strstr(at[i] + 1, places[i]) != NULL : needed)
            return sgrad_log_error(SGRAD_EFORMAT, "--template: %s must contain %s exactly once", file, places[i]);
        if (i > SECTION && i <= SECTION_END && !at[i] != !at[SECTION])
            return sgrad_log_error(SGRAD_EFORMAT, "--template: %s must contain %s, {system} and %s together, each once", file,
                                   places[SECTION], places[SECTION_END]);
        if (at[i] && last && at[i] < last)
            return sgrad_log_error(SGRAD_EFORMAT, "--template: %s must contain {system}, {prompt} and {answer} in this order",
                                   file);
        if (at[i]) last = at[i];
    }
    return 0;
}

/* Returns a copy of the text from the end of place FROM, or from BEGIN, to place TO. */
static char *cut(const char *begin, const char *const at[PLACES], int from, int to) {
    const char *start = from >= 0 && at[from] ? at[from] + strlen(places[from]) : begin;
    return to < PLACES && at[to] ? sgrad_format("%.*s", (int)(at[to] - start), start) : sgrad_format("%s", start);
}

static int divide(const char *file, const char *text, bool answer, struct sgrad__template *template) {
    const char *at[PLACES];
    SGRAD_TRY(find(file, text, answer, at));
    if (at[SECTION]) {
        template->before = cut(text, at, -1, SECTION);
        template->system[0] = cut(text, at, SECTION, SYSTEM);
        template->system[1] = cut(text, at, SYSTEM, SECTION_END);
    }
    template->opening = cut(text, at, SECTION_END, PROMPT);
    template->between = cut(text, at, PROMPT, ANSWER);
    if (at[ANSWER]) template->after = cut(text, at, ANSWER, PLACES);
    return 0;
}

int sgrad__template_open(const char *file, bool answer, struct sgrad__template *template) {
    enum { LIMIT = 1 << 20 };
    struct sgrad_map map;
    *template = (struct sgrad__template){ 0 };
    SGRAD_TRY(sgrad_map_open(file, LIMIT, &map));
    char *text = sgrad_format("%.*s", (int)map.size, (const char *)map.data);
    const int error = divide(file, text, answer, template);
    free(text);
    sgrad_map_close(&map);
    return error;
}

void sgrad__template_close(struct sgrad__template *template) {
    free(template->before);
    free(template->system[0]);
    free(template->system[1]);
    free(template->opening);
    free(template->between);
    free(template->after);
}

char *sgrad__template_prompt(const struct sgrad__template *template, const char *system, const char *prompt) {
    const bool has = system && template->system[0];
    return sgrad_format("%s%s%s%s%s%s%s", template->before ? template->before : "", has ? template->system[0] : "",
                        has ? system : "", has ? template->system[1] : "", template->opening, prompt, template->between);
}
