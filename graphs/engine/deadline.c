/* deadline.c: time limits of a run: it stops before a given time (--stop-before), and writes checkpoints at time intervals.
 *
 *     --stop-before slurm-5min       now        in flight, a checkpoint     job's end - 5 min
 *                                     │──────────│────────────────────│─────│
 *
 * A run stops early enough for the steps in flight to end and for a checkpoint to be written. It assumes that each step in flight
 * takes as long as the longest step so far, and that files are written at the rate of a busy disk of a cluster. */
#include "config.h"
#include "graphs/engine/run.h"
#include "runtime/environment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sgrad__deadline {
    double stop;            /* seconds since 1970; 0: no limit */
    double margin;          /* seconds for a checkpoint */
    double longest, last;   /* longest of the steps so far, in seconds; when the last one ended (sgrad_time_monotonic) */
    double written;         /* when the last checkpoint was started (sgrad_time_monotonic) */
    bool due;               /* the run must stop */
};

static double clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- times ------------------------------------------------------------------------------------------------------ */

bool sgrad_duration_parse(const char *text, double *seconds) {
    static const struct {
        const char *name;
        double seconds;
    } units[] = { { "", 1 }, { "s", 1 }, { "min", 60 }, { "h", 3600 }, { "d", 86400 } };
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    const double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].name) == 0 && number > 0 && number <= 1e9) return *seconds = number * units[i].seconds, true;
    return false;
}

/* Parses "17:30" or "17:30:15": the next such time of day in the local time zone. */
static bool parse_clock(const char *text, double *stop) {
    const time_t now = time(NULL);
    struct tm is;
    localtime_r(&now, &is);
    is.tm_sec = 0;
    const char *end = strptime(text, "%H:%M", &is);
    if (end && *end == ':') end = strptime(end, ":%S", &is);
    if (!end || *end) return false;
    is.tm_isdst = -1;
    *stop = (double)mktime(&is);
    if (*stop > (double)now) return true;
    is.tm_mday++;
    is.tm_isdst = -1;
    *stop = (double)mktime(&is);
    return true;
}

/* Parses "2026-11-27T07:00", optionally with seconds, in the local time zone or in the one that follows: Z, +01:00. */
static bool parse_iso(const char *text, double *stop) {
    struct tm is = { .tm_isdst = -1 };
    int hours, minutes = 0;
    const char *end = strptime(text, "%Y-%m-%d", &is);
    if (!end || (*end != 'T' && *end != ' ')) return false;
    end = strptime(end + 1, "%H:%M", &is);
    if (end && *end == ':') end = strptime(end, ":%S", &is);
    if (!end) return false;
    if (!*end) return *stop = (double)mktime(&is), true;
    *stop = (double)timegm(&is);
    if (strcmp(end, "Z") == 0) return true;
    if ((*end != '+' && *end != '-') || !isdigit((unsigned char)end[1])) return false;
    if (sscanf(end + 1, "%2d:%2d", &hours, &minutes) < 1) return false;
    *stop -= (*end == '-' ? -60.0 : 60.0) * (60 * hours + minutes);
    return true;
}

/* Reads the end of the Slurm job, in seconds since 1970. TEXT: the value of --stop-before, for messages. */
static int slurm_end(const char *text, double *stop) {
    const char *value = sgrad_variable("SLURM_JOB_END_TIME");
    char *end;
    if (!value)
        return sgrad_log_error(SGRAD_EINVAL,
                               "--stop-before %s: SLURM_JOB_END_TIME is not set: this is not a Slurm job, or it has no time "
                               "limit; export SLURM_JOB_END_TIME as seconds since 1970, or give another time",
                               text);
    *stop = strtod(value, &end);
    if (*end || !isdigit((unsigned char)*value))
        return sgrad_log_error(SGRAD_EINVAL, "--stop-before %s: SLURM_JOB_END_TIME=%s must be a number of seconds since 1970",
                               text, value);
    return 0;
}

int sgrad_deadline_parse(const char *text, double *stop) {
    double seconds, is = 0;
    if (strncmp(text, "slurm-", 6) == 0 && sgrad_duration_parse(text + 6, &seconds)) {
        SGRAD_TRY(slurm_end(text, &is));
        is -= seconds;
    }
    else if (sgrad_duration_parse(text, &seconds)) is = clock_now() + seconds;
    else if (!parse_clock(text, &is) && !parse_iso(text, &is))
        return sgrad_log_error(
            SGRAD_EINVAL,
            "--stop-before '%s' must be a duration from now (3600s, 90min, 2h), a time of day (17:30, 17:30:15), a date and time "
            "(2026-11-27T07:00, with Z or +01:00 for a time zone), or a time before the end of a Slurm job (slurm-5min)",
            text);
    if (is <= clock_now()) return sgrad_log_error(SGRAD_EINVAL, "--stop-before %s is in the past; give a later time", text);
    *stop = is;
    return 0;
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

int sgrad__deadline_open(struct sgrad__run *run) {
    const double bytes_a_second = 1e8, now = sgrad_time_monotonic();
    struct sgrad__deadline *d = run->control.deadline = sgrad_xcalloc(1, sizeof *d);
    d->last = d->written = now;
    d->margin = 1 + sgrad__training_memory(run->training) / bytes_a_second;
    if (!run->options.training.stop_before || run->context->rank) return 0;  /* the clock of rank 0 decides for all ranks */
    return sgrad_deadline_parse(run->options.training.stop_before, &d->stop);
}

void sgrad__deadline_step(const struct sgrad__run *run, double time) {
    struct sgrad__deadline *d = run->control.deadline;
    if (time - d->last > d->longest) d->longest = time - d->last;
    d->last = time;
}

bool sgrad__deadline_stops(const struct sgrad__run *run) {
    struct sgrad__deadline *d = run->control.deadline;
    if (!d || !d->stop) return false;
    const int in_flight = sgrad__run_steps_in_flight(run) + (run->context->ranks > 1);
    if (clock_now() + d->margin + in_flight * d->longest >= d->stop) d->due = true;
    return d->due;
}

bool sgrad__deadline_wants_checkpoint(const struct sgrad__run *run, long done) {
    const struct sgrad__deadline *d = run->control.deadline;
    const double every = run->options.checkpoint.seconds;
    return d && every > 0 && run->context->rank == 0 && done > run->files.last_checkpoint &&
           sgrad_time_monotonic() >= d->written + every;
}

void sgrad__deadline_checkpoint(const struct sgrad__run *run) {
    if (run->control.deadline) run->control.deadline->written = sgrad_time_monotonic();
}

char *sgrad__deadline_text(const struct sgrad__run *run) {
    return sgrad_format("--stop-before %s", run->options.training.stop_before);
}
