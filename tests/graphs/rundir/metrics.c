/* TensorBoard and Prometheus output of 128 ranks with 64 workers each: every value has its own name, at every step. */
#include "graphs/compiler/program.h"
#include "graphs/rundir/rundir.h"
#include "tests/scratch.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { RANKS = 128, CPUS = 64, WORKERS = RANKS * CPUS, STEPS = 2, STEP_VALUES = 4, EPOCH_VALUES = 2 };

static struct sgrad__workers workers = { .count = WORKERS };
static double busy[WORKERS];

static int make_workers(void **state) {
    workers.name = sgrad_xcalloc(WORKERS, sizeof *workers.name);
    for (int i = 0; i < WORKERS; i++) workers.name[i] = sgrad_format("rank%d/cpu%d", i / CPUS, i % CPUS);
    return scratch_open(state);
}

static int free_workers(void **state) {
    for (int i = 0; i < WORKERS; i++) free(workers.name[i]);
    free(workers.name);
    return scratch_close(state);
}

/* Of worker I after STEP: no two are the same, and floats hold them. */
static double share(int i, long step) { return (double)(i + WORKERS * step) / (WORKERS * (STEPS + 1.0)); }

static void write_step(struct sgrad__metrics *metrics, long step) {
    for (int i = 0; i < WORKERS; i++) busy[i] = share(i, step);
    sgrad__metrics_submitted(metrics);
    const struct sgrad__step_event e = { .step = step, .loss = 0.5 * (double)step, .rate = 0.25, .time = 1e9 + (double)step,
                                         .busy = busy };
    assert_done(sgrad__metrics_step(metrics, &e));
}

static struct sgrad__metrics_options options(void) {
    static const struct sgrad_metric metric[] = { { "loss", "loss", "loss", .is_fraction = false },
                                                  { "top1", "top-1", "accuracy", .is_fraction = true } };
    return (struct sgrad__metrics_options){ .folder = scratch_root, .batch = 32, .steps = STEPS, .epochs = 1,
                                            .workers = &workers, .metric = metric, .metrics = 2, .samples = "images" };
}

/* ---- TensorBoard ---- */

/* CRC-32C, masked, bit by bit. */
static uint32_t checksum(const unsigned char *byte, size_t size) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size; i++) {
        crc ^= byte[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* Takes the next record: 8 bytes of length, 4 of its checksum, an event, 4 of its checksum. */
static struct sgrad_map next_event(const struct sgrad_map *file, size_t *at) {
    const unsigned char *record = file->data + *at;
    uint64_t size;
    uint32_t sum[2];
    assert_true(*at + 12 <= file->size);
    memcpy(&size, record, sizeof size);
    assert_true(*at + 16 + size <= file->size);
    memcpy(&sum[0], record + 8, 4);
    memcpy(&sum[1], record + 12 + size, 4);
    assert_int_equal(sum[0], checksum(record, 8));
    assert_int_equal(sum[1], checksum(record + 12, size));
    *at += 16 + size;
    return (struct sgrad_map){ record + 12, size };
}

/* The next event is of STEP, and says that NAME is VALUE:
 *
 *     09 time    10 step    2a length    0a length    0a length NAME    15 value                                    */
static void assert_event(const struct sgrad_map *file, size_t *at, long step, const char *name, double value) {
    const struct sgrad_map event = next_event(file, at);
    const size_t length = strlen(name);
    float told;
    assert_int_equal(event.size, 9 + 2 + 2 + 2 + 2 + length + 5);
    const unsigned char *byte = event.data + 9;
    assert_int_equal(byte[0], 0x10);
    assert_int_equal(byte[1], step);
    assert_int_equal(byte[6], 0x0a);
    assert_int_equal(byte[7], length);
    assert_memory_equal(byte + 8, name, length);
    assert_int_equal(byte[8 + length], 0x15);
    memcpy(&told, byte + 9 + length, sizeof told);
    if (told != (float)value) fail_msg("%s is %.9g in step %ld, not %.9g", name, told, step, value);
}

static const char *find_events(void) {
    DIR *folder = opendir(scratch_path("tensorboard"));
    const char *path = NULL;
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        char name[128];
        snprintf(name, sizeof name, "tensorboard/%.100s", e->d_name);
        if (e->d_name[0] != '.') path = scratch_path(name);
    }
    closedir(folder);
    assert_non_null(path);
    return path;
}

static void tensorboard(void **state) {
    (void)state;
    struct sgrad__metrics_options o = options();
    struct sgrad__metrics *m;
    struct sgrad_map file;
    char name[64];
    o.tensorboard = true;
    assert_done(sgrad__metrics_open(&o, &m));
    for (long step = 1; step <= STEPS; step++) write_step(m, step);
    struct sgrad__epoch epoch = { .step = STEPS, .epoch = 1, .evaluated = true, .test = { 0.75, 0.5 } };
    sgrad__metrics_steps(m, &epoch);
    assert_done(sgrad__metrics_epoch(m, &epoch));
    sgrad__metrics_close(m);

    assert_done(sgrad_map_open(find_events(), 1 << 24, &file));
    size_t at = 0;
    next_event(&file, &at);     /* which format this is */
    for (long step = 1; step <= STEPS; step++) {
        assert_event(&file, &at, step, "train/loss", 0.5 * (double)step);
        assert_event(&file, &at, step, "train/learning_rate", 0.25);
        next_event(&file, &at); /* samples per second */
        assert_event(&file, &at, step, "train/epoch", 0);
        for (int i = 0; i < WORKERS; i++) {
            snprintf(name, sizeof name, "busy/rank%d/cpu%d", i / CPUS, i % CPUS);
            assert_event(&file, &at, step, name, share(i, step));
        }
    }
    assert_event(&file, &at, STEPS, "test/loss", 0.75);
    assert_event(&file, &at, STEPS, "test/top1", 0.5);
    assert_int_equal(at, file.size);
    sgrad_map_close(&file);
}

/* ---- Prometheus ---- */

static int free_port(void) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, size), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&at, &size), 0);
    close(s);
    return ntohs(at.sin_port);
}

/* What PORT answers, head and all; free it. */
static char *ask(int port) {
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    char *text = NULL, part[1 << 16];
    size_t size;
    FILE *to = open_memstream(&text, &size);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(s, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(write(s, request, strlen(request)), strlen(request));
    for (ssize_t got; (got = read(s, part, sizeof part)) > 0;) fwrite(part, 1, (size_t)got, to);
    close(s);
    fclose(to);
    return text;
}

static int count_gauges(const char *text) {
    int count = 0;
    for (; (text = strstr(text, "# TYPE ")); text++) count++;
    return count;
}

static void assert_gauge(const char *text, const char *name, double value) {
    char line[200];
    snprintf(line, sizeof line, "\n# TYPE stargrad_%s gauge\nstargrad_%s %.9g\n", name, name, value);
    if (!strstr(text, line)) fail_msg("the answer does not say:%s", line);
}

static void prometheus(void **state) {
    (void)state;
    struct sgrad__metrics_options o = options();
    struct sgrad__metrics *m;
    char name[64], *text;
    o.prometheus = free_port();
    assert_done(sgrad__metrics_open(&o, &m));
    text = ask(o.prometheus);
    assert_int_equal(count_gauges(text), 0);        /* nothing has been told */
    free(text);
    for (long step = 1; step <= STEPS; step++) write_step(m, step);
    text = ask(o.prometheus);
    assert_int_equal(count_gauges(text), STEP_VALUES + WORKERS);
    assert_gauge(text, "train_loss", 0.5 * STEPS);
    assert_gauge(text, "train_learning_rate", 0.25);
    const char *rest = strstr(text, "\n# TYPE stargrad_busy_rank0_cpu0 ");     /* they come in order */
    for (int i = 0; i < WORKERS; i++) {
        snprintf(name, sizeof name, "busy_rank%d_cpu%d", i / CPUS, i % CPUS);
        assert_non_null(rest);
        assert_gauge(rest, name, share(i, STEPS));
        rest = strstr(rest + 1, "\n# TYPE ");
    }
    free(text);
    struct sgrad__epoch epoch = { .step = STEPS, .epoch = 1, .evaluated = true, .test = { 0.75, 0.5 } };
    sgrad__metrics_steps(m, &epoch);
    assert_done(sgrad__metrics_epoch(m, &epoch));
    text = ask(o.prometheus);
    assert_int_equal(count_gauges(text), STEP_VALUES + EPOCH_VALUES + WORKERS);
    assert_gauge(text, "test_top1", 0.5);
    free(text);
    sgrad__metrics_close(m);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("TensorBoard files have every value of every step", tensorboard),
        sentence("Prometheus reads the values of the newest step", prometheus),
    };
    return run_sentences(argc, argv, tests, make_workers, free_workers);
}
