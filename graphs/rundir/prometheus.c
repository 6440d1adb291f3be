/* prometheus.c: serves the current values of a run to the monitoring of a cluster over HTTP, in Prometheus' text format, version
 * 0.0.4, on the loopback interface, by GNU libmicrohttpd.
 *
 *     $ curl 127.0.0.1:9100/metrics
 *     # TYPE stargrad_train_loss gauge
 *     stargrad_train_loss 0.5321                                                                   */
#include "config.h"
#include "graphs/rundir/rundir.h"
#include "runtime/libraries.h"

#ifdef SGRAD_HAVE_LIBMICROHTTPD
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gauge {
    char *name;
    double value;
    bool known;
};
struct sgrad__prometheus {
    struct MHD_Daemon *daemon;
    int count;
    struct gauge *gauge;
    pthread_mutex_t lock;       /* protects the values, which the training thread writes and the daemon's thread reads */
};

static void write_gauge(FILE *to, const struct gauge *gauge) {
    fprintf(to, "# TYPE %s gauge\n%s ", gauge->name, gauge->name);
    if (isnan(gauge->value)) fputs("NaN\n", to);
    else if (isinf(gauge->value)) fputs(gauge->value > 0 ? "+Inf\n" : "-Inf\n", to);
    else fprintf(to, "%.9g\n", gauge->value);
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *data_size, void **state) {
    struct sgrad__prometheus *p = arg;
    char *text = NULL;
    size_t size = 0;
    (void)version, (void)data, (void)data_size, (void)state;
    const bool known = strcmp(url, "/metrics") == 0 && (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0);
    FILE *to = open_memstream(&text, &size);
    if (!to) return MHD_NO;
    if (!known) fputs("GET /metrics\n", to);
    pthread_mutex_lock(&p->lock);
    for (int i = 0; known && i < p->count; i++)
        if (p->gauge[i].known) write_gauge(to, &p->gauge[i]);
    pthread_mutex_unlock(&p->lock);
    fclose(to);
    struct MHD_Response *response = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
    MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    enum MHD_Result result = MHD_queue_response(connection, known ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND, response);
    MHD_destroy_response(response);
    return result;
}

/* Returns the Prometheus name of a value: "train/loss" becomes stargrad_train_loss. The caller must free it. */
static char *gauge_name(const char *name) {
    char *full = sgrad_format("stargrad_%s", name);
    for (char *c = full; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
    return full;
}

/* Returns a listening socket on the loopback interface, or -1 with errno set. It is created here because the errno that
 * libmicrohttpd leaves after a failure depends on its version. */
static int listen_on(int port) {
    const struct sockaddr_in loopback = { .sin_family = AF_INET,
                                          .sin_port = htons((uint16_t)port),
                                          .sin_addr = { htonl(INADDR_LOOPBACK) } };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    /* otherwise the port stays unavailable for a minute after an earlier run */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (bind(fd, (const struct sockaddr *)&loopback, sizeof loopback) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int sgrad__prometheus_open(int port, const char *const *name, int count, struct sgrad__prometheus **prometheus) {
    struct sgrad__prometheus *p = sgrad_xcalloc(1, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    p->count = count;
    p->gauge = sgrad_xcalloc((size_t)count + 1, sizeof *p->gauge);
    for (int i = 0; i < count; i++) p->gauge[i].name = gauge_name(name[i]);
    const int fd = listen_on(port);
    if (fd >= 0) /* owned by the daemon from now on */
        p->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, p, MHD_OPTION_LISTEN_SOCKET, fd,
                                     MHD_OPTION_END);
    if (!p->daemon) {
        const char *why = fd < 0 ? strerror(errno) : "libmicrohttpd cannot be started";
        int error = sgrad_log_error(SGRAD_EIO, "--prometheus %d: cannot listen on 127.0.0.1:%d: %s; give another port", port,
                                    port, why);
        sgrad__prometheus_close(p);
        return error;
    }
    *prometheus = p;
    return 0;
}

void sgrad__prometheus_tell(struct sgrad__prometheus *prometheus, int first, const double *value, int count) {
    if (!prometheus) return;
    pthread_mutex_lock(&prometheus->lock);
    for (int i = 0; i < count; i++) {
        prometheus->gauge[first + i].value = value[i];
        prometheus->gauge[first + i].known = true;
    }
    pthread_mutex_unlock(&prometheus->lock);
}

void sgrad__prometheus_close(struct sgrad__prometheus *prometheus) {
    if (!prometheus) return;
    if (prometheus->daemon) MHD_stop_daemon(prometheus->daemon);
    for (int i = 0; i < prometheus->count; i++) free(prometheus->gauge[i].name);
    free(prometheus->gauge);
    pthread_mutex_destroy(&prometheus->lock);
    free(prometheus);
}
#else
int sgrad__prometheus_open(int port, const char *const *name, int count, struct sgrad__prometheus **prometheus) {
    (void)name, (void)count, (void)prometheus;
    return sgrad_library_missing("libmicrohttpd", "serve --prometheus %d", port);
}

void sgrad__prometheus_tell(struct sgrad__prometheus *prometheus, int first, const double *value, int count) {
    (void)prometheus, (void)first, (void)value, (void)count;
}

void sgrad__prometheus_close(struct sgrad__prometheus *prometheus) { (void)prometheus; }
#endif
