/* plot.c: draws plots with gnuplot: NAME.svg and NAME.png in the folder of a run; both are complete, or neither is written. */
#include "report/pictures.h"
#include "runtime/environment.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *ending, *terminal;
} pictures[] = {
    { "svg", "svg size %d,%d font 'sans,13' background 'white'" },
    { "png", "@png size %d,%d font 'sans,11'" },
};
enum { PICTURES = sizeof pictures / sizeof *pictures };

void sgrad__plot_quoted(FILE *to, const char *text) {
    putc('\'', to);
    for (; *text; text++) fputs(*text == '\'' ? "''" : (char[]){ *text, 0 }, to);
    putc('\'', to);
}

static void write_script(FILE *to, const char *folder, const struct sgrad__plot *plot) {
    fputs("png = strstrt(GPVAL_TERMINALS, 'pngcairo') ? 'pngcairo' : 'png'\n"
          "set encoding utf8\nset border 3 lc '#666666'\nset tics nomirror textcolor '#444444'\n"
          "set grid ytics lc '#e4e4e4' lt 1\nunset key\n", to);
    for (int i = 0; i < PICTURES; i++) {
        fputs("set terminal ", to);
        fprintf(to, pictures[i].terminal, plot->width, plot->height);
        fputs("\nset output ", to);
        char *part = sgrad_format("%s/%s.%s.part", folder, plot->name, pictures[i].ending);
        sgrad__plot_quoted(to, part);
        putc('\n', to);
        plot->write(to, plot->of);
        fputs("unset output\n", to);
        free(part);
    }
}

/* Renames complete plots to their final names, and removes incomplete ones. */
static bool settle(const char *folder, const struct sgrad__plot *plot, bool whole) {
    for (int i = 0; i < PICTURES; i++) {
        char *path = sgrad_format("%s/%s.%s", folder, plot->name, pictures[i].ending), *part = sgrad_format("%s.part", path);
        if (whole && rename(part, path)) {
            sgrad_log_warning("%s: the %s was not drawn: %s", path, plot->what, strerror(errno));
            whole = false;
        }
        if (!whole) remove(part);
        free(path);
        free(part);
    }
    return whole;
}

static bool are_wanted(void) {
    static const char *const choices[] = { "no", "yes", NULL };
    static int choice = -2;
    if (choice < -1) choice = sgrad_variable_choice("STARGRAD_PICTURES", choices, "plots are drawn");
    return choice != 0;
}

bool sgrad__plot_draw(const char *folder, const struct sgrad__plot *plot) {
    if (!are_wanted()) return false;
    if (system("command -v gnuplot >/dev/null 2>&1")) {
        sgrad_log_warning("the %s was not drawn: gnuplot is not installed (Debian, Ubuntu: apt install gnuplot-nox)", plot->what);
        return false;
    }
    void (*before)(int) = signal(SIGPIPE, SIG_IGN); /* gnuplot may end before it has read everything */
    FILE *gnuplot = popen("gnuplot >/dev/null 2>&1", "w");
    int status = -1;
    if (gnuplot) {
        write_script(gnuplot, folder, plot);
        status = pclose(gnuplot);
    }
    signal(SIGPIPE, before);
    if (status) sgrad_log_warning("%s: the %s was not drawn: gnuplot failed", folder, plot->what);
    return settle(folder, plot, status == 0);
}
