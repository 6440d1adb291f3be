/* Reports of generated traces, from one rank to 128 ranks with 64 workers each, have the known values. */
#include "config.h"
#include "report/lines.h"
#include "report/pictures.h"
#include "report/report.h"
#include "runtime/runtime.h"
#include "tests/report/generate.h"
#include "tests/scratch.h"

#include <math.h>

static void near(double is, double should) {
    if (!(fabs(is - should) <= 1e-6 * fabs(should) + 1e-6)) fail_msg("%.9g, not %.9g", is, should);
}

static double number(const json_t *object, const char *key) {
    const json_t *is = json_object_get(object, key);
    if (!json_is_number(is)) fail_msg("no number called %s", key);
    return json_number_value(is);
}

struct size {
    int ranks, workers;
    double length;          /* ms */
};

/* After each task 0.5 ms of scheduling and 0.25 of fetching; on the last rank a backward task leaves only the first two thirds of
 * these before the next begins, and what is after the last task of all is no part. */
static void check_worker(const struct size *size, const json_t *worker) {
    const bool slow = (int)number(worker, "rank") == size->ranks - 1;
    const json_t *ms = json_object_get(worker, "ms");
    double busy = 0;
    for (int k = 0; k < KINDS; k++) {
        near(number(ms, generated_kinds[k]), generated_ms[k] * (slow ? slower : 1));
        busy += number(ms, generated_kinds[k]);
    }
    const int short_ones = slow ? 10 : 0, whole = STEPS * SLOTS - short_ones - slow;
    const double scheduling = 0.5 * whole + 0.25 * short_ones, fetching = 0.25 * whole + 0.25 * short_ones,
                 waiting = size->ranks > 1 && !slow ? 5 : 0;
    near(number(ms, "scheduling"), scheduling);
    near(number(ms, "fetching data"), fetching);
    near(number(ms, "waiting for messages"), waiting);
    near(number(ms, "idle"), size->length - busy - scheduling - fetching - waiting);
}

static void check_ranks(const struct size *size, const json_t *trace) {
    const json_t *ranks = json_object_get(trace, "ranks"), *traffic = json_object_get(trace, "traffic");
    assert_int_equal(json_array_size(ranks), size->ranks > 1 ? size->ranks : 0);
    assert_int_equal(json_array_size(traffic), size->ranks > 1 ? BUCKETS : 0);
    for (int r = 0; size->ranks > 1 && r < size->ranks; r++) {
        const bool slow = r == size->ranks - 1;
        const json_t *rank = json_array_get(ranks, (size_t)r);
        near(number(rank, "communication_ms"), 40);
        near(number(rank, "hidden_ms"), slow ? 40 : 35);
        near(number(rank, "received_mb"), STEPS * BUCKETS * CHUNKS * 0.02);
        for (size_t b = 0; b < BUCKETS; b++)
            near(json_number_value(json_array_get(json_object_get(json_array_get(traffic, b), "exposed_ms"), (size_t)r)),
                 slow ? 0 : 2.5);
    }
    for (size_t b = 0; b < BUCKETS && size->ranks > 1; b++) {
        const json_t *bucket = json_array_get(traffic, b), *of = json_object_get(bucket, "of");
        char name[64];
        snprintf(name, sizeof name, "conv%zu.weight", b);
        assert_int_equal((int)number(bucket, "messages"), STEPS * size->ranks * CHUNKS);
        near(number(bucket, "mb"), STEPS * size->ranks * CHUNKS * 0.02);
        assert_int_equal(json_array_size(of), 2);
        assert_string_equal(json_string_value(json_array_get(of, 0)), name);
    }
}

static void check_rest(const struct size *size, const json_t *trace) {
    const double chain = 104 * slower, tasks = (double)size->ranks * size->workers * STEPS * SLOTS;
    const json_t *path = json_object_get(trace, "critical_path"), *memory = json_object_get(trace, "memory");
    const json_t *copies = json_object_get(json_object_get(trace, "copies"), "all"), *layers = json_object_get(trace, "layers");
    near(number(path, "ms"), chain);
    for (int k = 0; k < KINDS; k++) near(number(json_object_get(path, "in"), generated_kinds[k]), generated_ms[k] * slower);
    near(number(json_object_get(trace, "bound"), "work_ms"), chain);
    assert_int_equal(json_array_size(memory), size->ranks);
    for (int r = 0; r < size->ranks; r++) near(number(json_array_get(memory, (size_t)r), "max_mb"), (200 + r) * 1.048576);
    assert_int_equal((int)number(copies, "copies"), size->ranks * size->workers);
    near(number(copies, "to_devices_mb"), size->ranks * size->workers);
    double ms = 0, gflop = 0;
    for (size_t i = 0; i < json_array_size(layers); i++) {
        ms += number(json_array_get(layers, i), "ms");
        gflop += number(json_array_get(layers, i), "gflop");
    }
    near(ms, 104 * size->workers * (size->ranks - 1 + slower));
    near(gflop, 0.1 * tasks);
    assert_int_equal((int)number(trace, "tasks"), (int)tasks);
    assert_int_equal((int)number(trace, "steps"), STEPS);
}

static void check_findings(const struct size *size, const json_t *trace) {
    const json_t *findings = json_object_get(trace, "findings");
    char slow[32];
    bool found = false;
    snprintf(slow, sizeof slow, "rank %d works", size->ranks - 1);
    for (size_t i = 0; i < json_array_size(findings); i++)
        found |= strstr(json_string_value(json_array_get(findings, i)), slow) != NULL;
    assert_int_equal(found, size->ranks > 1);
}

/* Of idle time what the slow rank does not account for is the micro-batch's, and that only where several workers share tasks. */
static void check_starved(const struct size *size, const json_t *trace) {
    const json_t *findings = json_object_get(trace, "findings"), *workers = json_object_get(trace, "workers");
    static const char begins[] = "workers are idle for ";
    double idle = 0, told = 0;
    for (size_t i = 0; i < json_array_size(workers); i++) {
        const json_t *worker = json_array_get(workers, i);
        const bool waits = size->ranks > 1 && (int)number(worker, "rank") < size->ranks - 1;
        const double asleep = number(json_object_get(worker, "ms"), "idle");
        const double without = asleep + number(json_object_get(worker, "ms"), "waiting for messages");
        idle += asleep * (waits ? 1 - 104 * (slower - 1) / without : 1);
    }
    for (size_t i = 0; i < json_array_size(findings); i++) {
        const char *text = json_string_value(json_array_get(findings, i));
        if (strncmp(text, begins, strlen(begins)) == 0) told = atof(text + strlen(begins));
        if (size->workers == 1 && strstr(text, "--micro-batch")) fail_msg("one worker a rank: %s", text);
    }
    if (size->workers > 1) assert_near(told, idle / (size->ranks * size->workers) / STEPS, 0.051);
}

/* The page has what the picture has, and a sentence where that is not all. */
static void check_page(const char *folder, const json_t *json, const char *sentence, size_t most) {
    struct sgrad__timeline timeline;
    struct sgrad__lines lines;
    struct sgrad_map map;
    bool there;
    assert_done(sgrad__timeline_read(folder, &timeline, &there));
    assert_true(there);
    sgrad__lines_pick(&timeline, &lines);
    assert_true(lines.count <= SGRAD__LINES);
    if (sentence) assert_string_equal(lines.left_out, sentence);
    else assert_null(lines.left_out);
    for (int i = 0; i < lines.count; i++)
        assert_int_equal(lines.row[i] >= 0 ? lines.of_row[lines.row[i]] : lines.of_rank[lines.rank[i]], i);
    sgrad__lines_free(&lines);
    assert_true(sgrad__page_write(folder, json, &timeline, false));
    char *path = sgrad_format("%s/report.html", folder);
    assert_done(sgrad_map_open(path, most, &map));
    assert_int_equal(sentence ? memmem(map.data, map.size, sentence, strlen(sentence)) != NULL : 1, 1);
    sgrad_map_close(&map);
    free(path);
    sgrad__timeline_free(&timeline);
}

static void check(int ranks, int workers, const char *sentence, size_t most) {
    const struct size z = { ranks, workers, STEP_MS + 88 + 3 * slower };
    struct sgrad_report *report;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path("run"));
    mkdir(folder, 0777);
    generate(folder, ranks, workers);
    assert_done(sgrad_report_open(folder, &report));
    json_t *json = sgrad_report_json(report), *trace = json_object_get(json, "trace"), *list = json_object_get(trace, "workers");
    near(number(trace, "ms"), z.length);
    assert_int_equal(json_array_size(list), ranks * workers);
    for (int i = 0; i < ranks * workers; i++) {
        const json_t *worker = json_array_get(list, (size_t)i);
        assert_int_equal((int)number(worker, "rank"), i / workers);
        assert_int_equal((int)number(worker, "worker"), i % workers);
        check_worker(&z, worker);
    }
    check_ranks(&z, trace);
    check_rest(&z, trace);
    check_findings(&z, trace);
    check_starved(&z, trace);
    check_page(folder, json, sentence, most);
    json_decref(json);
    sgrad_report_close(report);
}

enum { MB = 1 << 20 };

static void one_rank(void **state) {
    (void)state;
    check(1, 1, NULL, MB);
    check(1, 3, NULL, MB);
}

static void few_ranks(void **state) {
    (void)state;
    check(2, 1, NULL, MB);
    check(5, 4, NULL, MB);
}

static void more_than_a_picture_has(void **state) {
    (void)state;
    check(2, 140, "The plot shows the 127 busiest workers of each rank: 254 of 280 workers.", 4 * MB);
    check(200, 1, "The plot shows the busiest worker of each of the first 128 of 200 ranks: 128 of 200 workers.", 8 * MB);
}

static void many_of_many(void **state) {
    (void)state;
    check(128, 64, "The plot shows the busiest worker of each rank: 128 of 8192 workers.", 8 * MB);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a report of one rank has the known values", one_rank),
        sentence("a report of a few ranks has the known values", few_ranks),
        sentence("a report with too many workers for a plot lists those that are left out", more_than_a_picture_has),
        sentence("a report of 128 ranks with 64 workers each has the known values", many_of_many),
    };
    if (argc == 4) {       /* FOLDER RANKS WORKERS: only writes such a run, to time a report of it */
        generate(argv[1], atoi(argv[2]), atoi(argv[3]));
        return 0;
    }
    return run_sentences(argc, argv, tests, scratch_open, scratch_close);
}
