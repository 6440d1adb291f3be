/* template.c: reads the form of a conversation: template.h. */
#include "cli/template.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

/* Returns the address of PLACE in TEXT; NULL: it is not there, or twice. */
static const char *find(const char *text, const char *place) {
    const char *at = strstr(text, place);
    return at && !strstr(at + 1, place) ? at : NULL;
}

static int divide(const char *file, const char *text, bool answer, struct sgrad__template *template) {
    static const char places[2][10] = { "{prompt}", "{answer}" };
    const char *prompt = find(text, places[0]), *answers = find(text, places[1]);
    if (!prompt) return sgrad_log_error(SGRAD_EFORMAT, "--template: %s must contain %s exactly once", file, places[0]);
    if ((!answers && (answer || strstr(text, places[1]))) || (answers && answers < prompt))
        return sgrad_log_error(SGRAD_EFORMAT, "--template: %s must contain %s exactly once, after %s", file, places[1],
                               places[0]);
    const char *rest = prompt + strlen(places[0]);
    template->before = sgrad_format("%.*s", (int)(prompt - text), text);
    template->between = answers ? sgrad_format("%.*s", (int)(answers - rest), rest) : sgrad_format("%s", rest);
    template->after = answers ? sgrad_format("%s", answers + strlen(places[1])) : NULL;
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
    free(template->between);
    free(template->after);
}
