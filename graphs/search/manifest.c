/* manifest.c: writes and reads the options of a search (search.json) and the order of its sub-epochs (schedule.jsonl).
 *
 *     search.json       {"partitions": 2, "epochs": 3, "seed": …, "candidates": [{"name": "1", "options": {"lr": 0.1}}, …], …}
 *     schedule.jsonl    {"event": "round", "schedule": "staggered", "makespan": 24, "bytes": …, …}
 *                       {"event": "visit", "name": "1", "epoch": 0, "partition": 1, "rank": 1, "begin": 0, "end": 1}, …      */
#include "graphs/search/search.h"
#include "graphs/api/search.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LARGEST = 256 << 20 };       /* bytes of a file that can be read, at most */

/* ---- search.json -------------------------------------------------------------------------------------------------- */

json_t *sgrad__manifest_options(const char *given) {
    json_t *o = given ? json_loads(given, 0, NULL) : NULL;
    return o ? o : json_object();
}

static json_t *describe(const struct sgrad__search *search) {
    const struct sgrad_search_options *o = search->options;
    json_t *candidates = json_array();
    for (int i = 0; i < search->trials; i++)
        json_array_append_new(candidates, json_pack("{s:s, s:o}", "name", search->trial[i].name, "options",
                                                    sgrad__manifest_options(o->candidate[i].options_json)));
    json_t *stop = json_pack("{s:s, s:i, s:i}", "rule", o->stop.rule ? o->stop.rule : "none", "first", o->stop.first, "factor",
                             o->stop.factor);
    return json_pack("{s:s, s:o, s:i, s:i, s:o, s:s?, s:o, s:o, s:o}", "data", o->common.data.name, "fingerprint",
                     json_sprintf("%016llx", (unsigned long long)search->ground.data.fingerprint), "partitions",
                     search->partitions, "epochs", search->epochs, "seed",
                     json_sprintf("%llu", (unsigned long long)o->common.training.seed), "schedule", o->schedule, "stop", stop,
                     "options", sgrad__manifest_options(o->options_json), "candidates", candidates);
}

static int load(const char *folder, json_t **json) {
    char *path = sgrad_format("%s/search.json", folder);
    int error = sgrad_json_read(path, LARGEST, json);
    free(path);
    return error;
}

bool sgrad_search_exists(const char *folder) {
    char *path = sgrad_format("%s/search.json", folder);
    const bool exists = access(path, F_OK) == 0;
    free(path);
    return exists;
}

/* Checks that the search is the same as in the file. The data may have been moved; their fingerprint must agree. The number of
 * partitions is that of the file. */
static int check_same(const struct sgrad__search *search, const char *folder, json_t *before, int partitions) {
    struct sgrad__search as = *search;
    as.partitions = partitions;
    json_t *now = describe(&as), *value;
    const char *key;
    int error = 0;
    json_object_del(now, "data");
    json_object_foreach(now, key, value) if (!error && !json_equal(value, json_object_get(before, key))) error =
        sgrad_log_error(SGRAD_EINVAL,
                        "%s/search.json: the search cannot be continued, because it began with another \"%s\"; choose another "
                        "--out",
                        folder, key);
    json_decref(now);
    return error;
}

int sgrad__manifest_read(const struct sgrad__search *search, const char *folder, int *partitions, bool *found) {
    json_t *json;
    *found = sgrad_search_exists(folder);
    if (!*found) return 0;
    SGRAD_TRY(load(folder, &json));
    const json_int_t count = json_integer_value(json_object_get(json, "partitions"));
    int error = count >= 1 && count <= INT_MAX
                    ? 0
                    : sgrad_log_error(SGRAD_EFORMAT, "%s/search.json: partitions must be a whole number of at least 1", folder);
    if (!error && search) error = check_same(search, folder, json, (int)count);
    if (!error) *partitions = (int)count;
    json_decref(json);
    return error;
}

int sgrad__manifest_write(const struct sgrad__search *search, const char *folder) {
    char *path = sgrad_format("%s/search.json", folder);
    int error = sgrad_json_write(path, describe(search), 15);
    free(path);
    return error;
}

/* ---- schedule.jsonl ----------------------------------------------------------------------------------------------- */

static void write_line(FILE *to, json_t *line) {
    json_dumpf(line, to, JSON_COMPACT | JSON_REAL_PRECISION(9));
    fputc('\n', to);
    json_decref(line);
}

/* Copies the rounds before ROUND unchanged. */
static int copy_rounds(const char *path, int round, FILE *to) {
    FILE *from = fopen(path, "re");
    int error = from || errno == ENOENT ? 0 : sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    for (int rounds = 0; from && getline(&line, &room, from) > 0;) {
        rounds += strstr(line, "\"event\":\"round\"") != NULL;
        if (rounds > round) break;
        fputs(line, to);
    }
    if (from && ferror(from)) error = sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    free(line);
    if (from) fclose(from);
    return error;
}

int sgrad__manifest_round(const struct sgrad__search *search, const char *folder, int round) {
    const struct sgrad__sub_epochs *plan = &search->plan;
    char *path = sgrad_format("%s/schedule.jsonl", folder);
    struct sgrad_file file;
    int error = sgrad_file_begin(path, &file);
    if (!error) {
        error = copy_rounds(path, round, file.stream);
        write_line(file.stream,
                   json_pack("{s:s, s:i, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:I, s:f}", "event", "round", "round", round,
                             "schedule", plan->schedule, "partitions", search->partitions, "ranks", search->ranks, "together",
                             search->slots, "visits", plan->count, "makespan", plan->makespan, "busy", search->busy, "hops",
                             (json_int_t)search->hops, "bytes", search->bytes));
        for (const struct sgrad__sub_epoch *v = plan->sub_epoch; v < plan->sub_epoch + plan->count; v++)
            write_line(file.stream, json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:f, s:f}", "event", "visit", "name",
                                              search->trial[v->model].name, "epoch", v->epoch, "partition", v->partition, "rank",
                                              sgrad__search_rank(search, v), "ranks", search->trial[v->model].ranks, "begin",
                                              v->begin, "end", v->end));
        if (error) sgrad_file_abort(&file);
        else error = sgrad_file_commit(&file);
    }
    free(path);
    return error;
}

/* Stores the sub-epoch of candidate NAME in *SUB_EPOCH. Returns false if LINE is something else. */
static bool read_sub_epoch(const char *line, const char *name, struct sgrad__sub_epoch *sub_epoch) {
    json_t *json = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(json, "event")), *of = json_string_value(json_object_get(json, "name"));
    const bool matches = event && of && !strcmp(event, "visit") && !strcmp(of, name);
    *sub_epoch = (struct sgrad__sub_epoch){ .epoch = (int)json_integer_value(json_object_get(json, "epoch")),
                                    .partition = (int)json_integer_value(json_object_get(json, "partition")) };
    json_decref(json);
    return matches;
}

int sgrad__manifest_sub_epochs(const char *folder, const char *name, int partitions, int epochs,
                               struct sgrad__sub_epochs *sub_epochs) {
    char *path = sgrad_format("%s/schedule.jsonl", folder), *line = NULL;
    FILE *from = fopen(path, "re");
    size_t room = 0;
    int error = from ? 0 : sgrad_log_error(SGRAD_EIO, "%s: %s", path, strerror(errno));
    struct sgrad__sub_epochs v = { .schedule = "recorded" };
    v.sub_epoch = sgrad_xcalloc((size_t)(partitions * epochs), sizeof *v.sub_epoch);
    while (!error && getline(&line, &room, from) > 0) {
        struct sgrad__sub_epoch next;
        if (!read_sub_epoch(line, name, &next)) continue;
        const bool fits = next.epoch == v.count / partitions && next.partition >= 0 && next.partition < partitions;
        if (v.count == partitions * epochs || !fits)
            error = sgrad_log_error(SGRAD_EFORMAT, "%s: the visits of candidate %s must cover %d partitions in each of %d epochs",
                                    path, name, partitions, epochs);
        next.number = v.count;
        next.begin = v.count;
        next.end = v.makespan = v.count + 1;
        if (!error) v.sub_epoch[v.count++] = next;
    }
    if (!error && !v.count) error = sgrad_log_error(SGRAD_EFORMAT, "%s: has no visits of candidate %s", path, name);
    if (from) fclose(from);
    free(line);
    free(path);
    if (error) sgrad__sub_epochs_free(&v);
    else *sub_epochs = v;
    return error;
}

/* ---- comparison of two runs --------------------------------------------------------------------------------------- */

/* Returns the number of the next step, and its loss as text, which the caller must free. 0: end of the file. */
static long next_step(FILE *from, char **loss) {
    char *line = NULL;
    size_t room = 0;
    long step = 0;
    *loss = NULL;
    while (!step && getline(&line, &room, from) > 0) {
        json_t *json = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(json, "event"));
        if (event && strcmp(event, "step") == 0) {
            step = (long)json_integer_value(json_object_get(json, "step"));
            *loss = json_dumps(json_object_get(json, "loss"), JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        }
        json_decref(json);
    }
    free(line);
    return step;
}

static bool same_losses(const char *one, const char *other) {
    char *path[] = { sgrad_format("%s/metrics.jsonl", one), sgrad_format("%s/metrics.jsonl", other) };
    FILE *file[] = { fopen(path[0], "re"), fopen(path[1], "re") };
    bool same = file[0] && file[1];
    if (!same) sgrad_log_warning("%s: cannot be read: %s", path[file[0] != NULL], strerror(errno));
    for (bool more = same; more && same;) {
        char *loss[2];
        const long step[] = { next_step(file[0], &loss[0]), next_step(file[1], &loss[1]) };
        more = step[0] && step[1];
        same = step[0] == step[1] && (!more || (loss[0] && loss[1] && strcmp(loss[0], loss[1]) == 0));
        if (!same)
            sgrad_log_warning("%s: has loss %s at step %ld, but %s has %s at step %ld", path[0], loss[0] ? loss[0] : "none",
                              step[0], path[1], loss[1] ? loss[1] : "none", step[1]);
        free(loss[0]);
        free(loss[1]);
    }
    for (int i = 0; i < 2; i++) {
        if (file[i]) fclose(file[i]);
        free(path[i]);
    }
    return same;
}

static bool same_bytes(const char *one, const char *other) {
    struct sgrad_map a, b;
    if (sgrad_map_open(one, SIZE_MAX, &a)) return false;
    bool same = sgrad_map_open(other, SIZE_MAX, &b) == 0;
    if (same) {
        same = a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
        if (!same) sgrad_log_warning("%s: differs from %s", one, other);
        sgrad_map_close(&b);
    }
    sgrad_map_close(&a);
    return same;
}

static bool same_weights(const char *one, const char *other) {
    char *path[] = { sgrad_format("%s/model.safetensors", one), sgrad_format("%s/model.safetensors", other) };
    const bool both = access(path[0], F_OK) == 0 && access(path[1], F_OK) == 0, same = !both || same_bytes(path[0], path[1]);
    free(path[0]);
    free(path[1]);
    return same;
}

bool sgrad__manifest_same(const char *folder, const char *other) {
    return same_losses(folder, other) && same_weights(folder, other);
}
