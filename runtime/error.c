/* error.c: error messages and warnings, one line each; memory allocation, and text formatting. */
#include "config.h"
#include "runtime/runtime.h"
#include "runtime/terminal.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const messages[] = {
#define SGRAD_ERROR(name, message) message,
#include "runtime/errors.def"
#undef SGRAD_ERROR
};

const char *sgrad_strerror(int error) {
    if (error == 0) return "success";
    return error < 0 && error >= -SGRAD_ERRORS ? messages[-1 - error] : "unknown error";
}

static _Thread_local char *kept;        /* receives the lines of this thread; NULL: they are printed */
static _Thread_local size_t room;

void sgrad_log_capture(char *text, size_t size) {
    kept = text;
    room = size;
    if (text) *text = 0;
}

static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER;
static void (*hears)(const char *line);

/* Writes each line with one call, so that lines of several threads and ranks are not mixed. On a terminal, it replaces a progress
 * line. */
static void say(const char *prefix, const char *format, va_list list) {
    char line[2048];
    if (kept) {
        vsnprintf(kept, room, format, list);
        return;
    }
    int used = snprintf(line, sizeof line, "%sstargrad: %s", !hears && isatty(STDERR_FILENO) ? "\r\033[K" : "", prefix);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, list);
    size_t end = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (end > sizeof line - 2) end = sizeof line - 2;
    for (size_t i = (size_t)used; i < end; i++)     /* names from files may contain any bytes */
        if ((unsigned char)line[i] < ' ') line[i] = '?';
    line[end] = '\n';
    line[end + 1] = 0;
    pthread_mutex_lock(&hearing);
    if (hears) hears(line);
    else fputs(line, stderr);
    pthread_mutex_unlock(&hearing);
}

void sgrad_log_set_callback(void (*hear)(const char *line)) {
    pthread_mutex_lock(&hearing);
    hears = hear;
    pthread_mutex_unlock(&hearing);
}

int sgrad_log_error(int error, const char *format, ...) {
    va_list list;
    va_start(list, format);
    say("", format, list);
    va_end(list);
    return error;
}

void sgrad_log_warning(const char *format, ...) {
    va_list list;
    va_start(list, format);
    say("warning: ", format, list);
    va_end(list);
}

void sgrad_log_progress(const char *doing) {
    if (!sgrad_terminal(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[K%.*s", sgrad_terminal_columns(STDERR_FILENO) - 1, doing ? doing : "");
}

static _Noreturn void out_of_memory(void) {
    fputs("stargrad: out of memory\n", stderr);
    exit(1);
}

void *sgrad_xcalloc(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory) out_of_memory();
    return memory;
}

void *sgrad_array_grow(void *array, int count, size_t size) {
    if (count & (count - 1)) return array;
    array = realloc(array, (size_t)(count ? 2 * count : 1) * size);
    if (!array) out_of_memory();
    return array;
}

char *sgrad_format(const char *format, ...) {
    va_list list;
    char *text;
    va_start(list, format);
    int length = vasprintf(&text, format, list);
    va_end(list);
    if (length < 0) out_of_memory();
    return text;
}

const char *sgrad_number_text(double number, char text[SGRAD_NUMBER_TEXT]) {
    snprintf(text, SGRAD_NUMBER_TEXT, fabs(number) < 1e4 ? "%.4f" : "%.3g", number);
    return text;
}

const char *sgrad_plural(int64_t count, const char *one, const char *many) { return count == 1 ? one : many; }

bool sgrad_ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), last = strlen(end);
    return length >= last && !strcmp(text + length - last, end);
}

/* Two decimals; three significant digits if the amount is less than 1. */
const char *sgrad_amount_text(double amount, char text[SGRAD_AMOUNT_TEXT]) {
    snprintf(text, SGRAD_AMOUNT_TEXT, "%.*g", fabs(amount) < 1 ? 3 : 12, fabs(amount) < 1 ? amount : round(100 * amount) / 100);
    return text;
}

uint64_t sgrad_hash(const void *data, size_t size) {
    const unsigned char *byte = data;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ byte[i]) * 0x100000001b3u;
    return hash;
}
