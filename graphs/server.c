/* server.c: parameter servers that answer whoever asks, in the order of arrival: the other half of the strategies async and mixed.
 *
 * Bucket i is a *shard* of server i mod --servers, where the shard's master weights and optimizer states are. For every worker
 * that pushes to it there is a *session*: a small program, of which the first instruction is submitted ahead, and the rest when
 * that has happened:
 *
 *     receive gradients from 2  │  spread   update…   gather weights   send to 2
 *        (waits for the worker) │     (on the master; StarPU keeps the sessions' updates in the order of submission)
 *
 * Every rank submits the same steps, so a server expects one push of every worker for each step that it has submitted itself.
 *
 * StarPU-MPI may say that a push has come from within any call, so that is only noted; one thread answers, and has the sessions
 * to itself.
 *
 * Limits: a server whose rank is slow in submitting holds back the pushes of steps that it does not know of yet. */
#include "graphs/builder.h"
#include "graphs/train.h"

#include <pthread.h>
#include <stdlib.h>

struct session {
    struct sgrad__server *server;
    struct sgrad__program *program;
    struct sgrad_step step;
    int shard;
    long pushed, version;       /* pushes so far; of the shard, when its weights were sent */
    bool waits;                 /* for the worker */
    struct session *next;       /* of those whose push has come */
};
struct sgrad__server {
    struct sgrad__run *run;
    pthread_t thread;
    pthread_mutex_t lock;               /* of what is below it, and held for no call */
    pthread_cond_t changed;
    struct session *came, **last;       /* in the order of arrival */
    long admitted, seen, outstanding;   /* steps submitted; known to the thread; instructions submitted that have not run */
    bool running, closing;

    struct sgrad_tensor **master;       /* by parameter; NULL: another rank's */
    int sessions;
    struct session *session;
    long first, *version;               /* steps before this process; by shard: updates */
    double histogram[SGRAD__STALENESS];
};

/* ---- the worker's half, in the training program ------------------------------------------------------------------- */

void sgrad__add_shard(struct sgrad__builder *b, const struct sgrad__bucket *bucket, int server, int64_t tag) {
    struct sgrad__program *p = b->p;
    p->shard = sgrad_grow(p->shard, p->shards, sizeof *p->shard);
    struct sgrad__shard *s = &p->shard[p->shards++];
    *s = (struct sgrad__shard){ .server = server, .tag = tag };
    s->parameter = sgrad__bucket_parameters(bucket, &s->count);
}

void sgrad__add_push(struct sgrad__builder *b, struct sgrad__bucket *bucket, int ranks, int number, const char *name) {
    const int server = number % b->o->servers, priority = SGRAD__PRIORITY_UPDATE + number;
    const int first = b->o->rank - b->o->rank % ranks;
    const int64_t tag = sgrad__next_tag(b);
    int whole = sgrad__bucket_gather(b, bucket, name), weights;
    struct sgrad_view view = b->p->buffer[whole].view;
    sgrad__add_shard(b, bucket, server, tag);
    if (ranks > 1) whole = sgrad__add_rank_sum(b, whole, first, ranks, name);
    if (first == b->o->rank) {
        sgrad__add_send(b, whole, server, tag, priority, name);
        weights = sgrad__add_receive(b, view, server, tag + 1, priority, name);
        for (int r = first + 1; r < first + ranks; r++) sgrad__add_send(b, weights, r, tag + 2, priority, name);
    } else {
        weights = sgrad__add_receive(b, view, first, tag + 2, priority, name);
    }
    sgrad__bucket_take(b, bucket, weights);
}

/* ---- the server's half --------------------------------------------------------------------------------------------- */

/* What SHARD's server does for a push of WORKER. */
static struct sgrad__program *session_program(struct sgrad__run *r, const struct sgrad__shard *shard, int worker, struct sgrad_tensor *const *master) {
    struct sgrad__program_options o = sgrad__run_program_options(r, true, r->options.batch, r->micro);
    struct sgrad__program *p = sgrad_alloc(1, sizeof *p);
    *p = (struct sgrad__program){ .graph = r->graph, .batch = o.batch, .window = 1, .votes = -1, .training = true };
    int *parameter = sgrad_alloc((size_t)r->graph->parameter_count, sizeof *parameter), *gradient = sgrad_alloc((size_t)shard->count, sizeof *gradient);
    struct sgrad__builder b = { .p = p, .g = r->graph, .o = &o, .parameter = parameter, .norm = -1 };
    struct sgrad__bucket *bucket = sgrad__bucket_open(SGRAD_F32);
    for (int i = 0; i < shard->count; i++) {
        const struct sgrad__parameter *w = &r->graph->parameter[shard->parameter[i]];
        parameter[shard->parameter[i]] = sgrad__lend_buffer(&b, master[shard->parameter[i]]);
        sgrad__bucket_put(bucket, -1, (struct sgrad_view){ SGRAD_F32, w->is.shape }, &gradient[i], shard->parameter[i], w->name);
    }
    struct sgrad_view view = { SGRAD_F32, { 1, { sgrad__bucket_bytes(bucket) / (int64_t)sizeof(float) } } };
    sgrad__bucket_spread(&b, bucket, sgrad__add_receive(&b, view, worker, shard->tag, SGRAD__PRIORITY_UPDATE, "push"));
    sgrad__bucket_update(&b, bucket);
    sgrad__add_send(&b, sgrad__bucket_weights(&b, bucket, "weights"), worker, shard->tag + 1, SGRAD__PRIORITY_UPDATE, "weights");
    sgrad__mark_last_uses(p);
    sgrad__bucket_free(bucket);
    free(parameter);
    free(gradient);
    return p;
}

static void count(struct sgrad__server *s, long more) {
    pthread_mutex_lock(&s->lock);
    s->outstanding += more;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void has_run(void *arg) { count(arg, -1); }

static void push_came(void *arg) {
    struct session *e = arg;
    struct sgrad__server *s = e->server;
    pthread_mutex_lock(&s->lock);
    e->next = NULL;
    *s->last = e;
    s->last = &e->next;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* The instructions FROM to TO, counted before they can have run. */
static void submit(struct session *e, int from, int to, void (*done)(void *), void *arg) {
    count(e->server, to - from);
    int error = 0;
    for (int i = from; i < to && !error; i++) error = sgrad__instruction_submit(e->program, i, &e->step, 0, done, arg);
    if (error) sgrad_task_fail(error);
}

static void expect(struct session *e) {
    e->waits = e->pushed < e->server->seen;
    if (e->waits) submit(e, 0, 1, push_came, e);
}

/* The gradients are here. The session's last push has been answered, else the worker would not push again. */
static void answer(struct session *e) {
    struct sgrad__server *s = e->server;
    const struct sgrad__run *r = s->run;
    const long stale = s->version[e->shard] - e->version, step = s->first + e->pushed++;
    s->histogram[stale < SGRAD__STALENESS - 1 ? stale : SGRAD__STALENESS - 1]++;
    e->step = (struct sgrad_step){ .seed = r->options.seed, .number = (uint32_t)++s->version[e->shard], .training = true,
                                   .rate = (float)sgrad__run_rate(r, step) };
    e->version = s->version[e->shard];
    submit(e, 1, e->program->instruction_count, has_run, s);
    expect(e);
    count(s, -1);
}

static void *serve(void *arg) {
    struct sgrad__server *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        struct session *came = s->came, *next;
        const bool steps = s->seen < s->admitted;
        if (!came && !steps) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->came = NULL;
        s->last = &s->came;
        pthread_mutex_unlock(&s->lock);
        for (; came; came = next) {
            next = came->next;
            answer(came);
        }
        pthread_mutex_lock(&s->lock);
        if (!steps) continue;
        s->seen++;
        s->outstanding++;       /* not at rest before the sessions expect the step */
        pthread_mutex_unlock(&s->lock);
        for (int i = 0; i < s->sessions; i++)
            if (!s->session[i].waits) expect(&s->session[i]);
        count(s, -1);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int open_masters(struct sgrad__server *s) {
    const struct sgrad__run *r = s->run;
    for (int i = 0; i < r->program->shards; i++) {
        const struct sgrad__shard *shard = &r->program->shard[i];
        for (int j = 0; j < shard->count && shard->server == r->context->rank; j++) {
            const struct sgrad__parameter *w = &r->graph->parameter[shard->parameter[j]];
            void *value = sgrad_alloc(1, sgrad_view_bytes(&w->tensor->view));
            int error = sgrad_tensor_create(w->name, w->is.dtype, w->is.shape, SGRAD_PERSISTENT, &s->master[shard->parameter[j]]);
            if (!error) error = sgrad_tensor_read(w->tensor, value);
            if (!error) error = sgrad_tensor_write(s->master[shard->parameter[j]], value);
            free(value);
            if (error) return error;
        }
    }
    return 0;
}

int sgrad__server_open(struct sgrad__run *r, long first) {
    if (!r->strategy->served || r->context->ranks == 1) return 0;
    struct sgrad__server *s = r->server = sgrad_alloc(1, sizeof *s);
    const int group = r->strategy->ranks(&(struct sgrad__program_options){ .ranks = r->context->ranks, .group_ranks = r->group_ranks });
    s->run = r;
    s->first = first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->last = &s->came;
    s->master = sgrad_alloc((size_t)r->graph->parameter_count, sizeof(struct sgrad_tensor *));
    s->version = sgrad_alloc((size_t)r->program->shards, sizeof *s->version);
    s->session = sgrad_alloc((size_t)(r->program->shards * r->context->ranks), sizeof *s->session);
    SGRAD_TRY(open_masters(s));
    for (int i = 0; i < r->program->shards; i++) {
        s->version[i] = first * (r->context->ranks / group);
        for (int worker = 0; worker < r->context->ranks && r->program->shard[i].server == r->context->rank; worker += group) {
            struct session *e = &s->session[s->sessions++];
            *e = (struct session){ .server = s, .shard = i, .version = s->version[i],
                                   .program = session_program(r, &r->program->shard[i], worker, s->master) };
            SGRAD_TRY(sgrad__program_allocate(e->program));
        }
    }
    if (pthread_create(&s->thread, NULL, serve, s)) return sgrad_fail(SGRAD_ENOMEM, "the parameter server's thread does not start");
    s->running = true;
    return 0;
}

void sgrad__server_admit(struct sgrad__server *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->admitted++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* MASTER's values become TENSOR's on every rank. */
static int publish(int server, struct sgrad_tensor *master, struct sgrad_tensor *tensor) {
    const size_t bytes = sgrad_view_bytes(&tensor->view);
    void *value = sgrad_alloc(1, bytes);
    int error = master ? sgrad_tensor_read(master, value) : 0;
    sgrad_ranks_broadcast(value, bytes, server);
    if (!error) error = sgrad_tensor_write(tensor, value);
    free(value);
    return error;
}

int sgrad__server_settle(struct sgrad__run *r) {
    struct sgrad__server *s = r->server;
    if (s) {
        struct sgrad__idle idle = { .before = -1 };
        pthread_mutex_lock(&s->lock);
        while (s->seen < s->admitted || s->outstanding > 0)
            if (sgrad__nap(&s->changed, &s->lock, s->outstanding, &idle)) sgrad_stall_tell(false, "for the last pushes of other ranks");
        pthread_mutex_unlock(&s->lock);
    }
    for (int i = 0; i < r->program->shards; i++) {
        const struct sgrad__shard *shard = &r->program->shard[i];
        bool mine = shard->server == r->context->rank;
        for (int j = 0; j < shard->count; j++) {
            struct sgrad__parameter *w = &r->graph->parameter[shard->parameter[j]];
            if (s) SGRAD_TRY(publish(shard->server, s->master[shard->parameter[j]], w->tensor));
            for (int k = 0; k < 2 && w->moment[k]; k++) SGRAD_TRY(publish(shard->server, mine ? w->moment[k] : NULL, w->moment[k]));
        }
    }
    return 0;
}

void sgrad__server_staleness(struct sgrad__server *s, double histogram[SGRAD__STALENESS]) {
    for (int i = 0; i < SGRAD__STALENESS; i++) histogram[i] = s ? s->histogram[i] : 0;
    sgrad_ranks_sum(histogram, SGRAD__STALENESS);
}

void sgrad__server_close(struct sgrad__run *r) {
    struct sgrad__server *s = r->server;
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->running) pthread_join(s->thread, NULL);
    for (int i = 0; i < s->sessions; i++) sgrad__program_destroy(s->session[i].program);
    for (int i = 0; i < r->graph->parameter_count; i++) sgrad_tensor_destroy(s->master[i]);
    free(s->master);
    free(s->session);
    free(s->version);
    free(s);
    r->server = NULL;
}
