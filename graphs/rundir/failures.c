/* failures.c: the failure that preceded this start of a run, as stargrad launch describes it.
 *
 *     launch     STARGRAD_FAILURE={"time":1764490000.1,"rank":2,"signal":9}      in the environment of the next start
 *     rank 0     {"event":"failure","step":96,"time":…,"rank":2,"signal":9,"seconds":0.9,"repeated":3}     in metrics.jsonl */
#include "graphs/rundir/rundir.h"
#include "runtime/environment.h"

#include <jansson.h>
#include <stdlib.h>
#include <time.h>

/* Returns true if FAILURE has the members of a failure, and no others. */
static bool is_valid(const json_t *failure) {
    const json_t *rank = json_object_get(failure, "rank"), *signal = json_object_get(failure, "signal"),
                 *status = json_object_get(failure, "status");
    const size_t members = 2 + (signal != NULL) + (status != NULL);
    return json_object_size(failure) == members && json_is_number(json_object_get(failure, "time")) &&
           (json_is_null(rank) || json_is_integer(rank)) && (!signal || json_is_integer(signal)) &&
           (!status || json_is_integer(status));
}

json_t *sgrad__failure_read(void) {
    const char *text = sgrad_variable("STARGRAD_FAILURE");
    json_t *failure = text ? json_loads(text, 0, NULL) : NULL;
    if (!text || is_valid(failure)) return failure;
    sgrad_log_warning("STARGRAD_FAILURE=%s does not describe a failure, and is ignored; only stargrad launch should set it: "
                      "unset it", text);
    json_decref(failure);
    return NULL;
}

char *sgrad__failure_line(json_t *failure, long step, long repeated) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - json_number_value(json_object_get(failure, "time"));
    json_t *event = json_pack("{s:s, s:I}", "event", "failure", "step", (json_int_t)step);
    json_object_update(event, failure);
    json_object_set_new(event, "seconds", json_real(seconds > 0 ? seconds : 0));
    json_object_set_new(event, "repeated", json_integer(repeated > 0 ? repeated : 0));
    char *line = json_dumps(event, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(13));
    json_decref(event);
    return line;
}
