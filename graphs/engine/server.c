/* server.c: parameter servers of asynchronous training: the server side of the strategies async, backup and mixed. A server
 * answers pushes in the order of their arrival.
 *
 * Bucket i of the gradients is a *shard* of server i mod --servers, which stores the shard's master weights and optimizer states.
 * For every worker that pushes to it, a shard has a *session*: a small program (push.c). Its first instructions, which receive a
 * push, are submitted in advance; the others after the push has arrived. An update uses one push (async, mixed) or several
 * (backup), which are held until all of them have arrived:
 *
 *     session 0   receive │ held                             │ gather weights   send
 *     session 1   receive   │ held                           │ gather weights   send
 *     session 2   receive        │ sum 0 1 2   spread   update │ gather weights   send
 *     session 3   receive                                        │ dropped: gather weights   send
 *
 * (on the masters; StarPU executes updates and gathers in the order of submission). With the strategy backup a push is *stale*
 * unless it was computed with the newest weights; stale pushes are dropped, and only the others are held.
 *
 * All ranks run the same steps. These are announced to the servers (sgrad__server_expect) early enough, so that a server expects
 * a push before it can arrive.
 *
 * No push is held forever. Suppose that shard A waits for rank 1's push of step 8. Rank 1 has A's newest weights, because A waits
 * only for ranks that have them. So rank 1 can only be waiting for another shard, B, at which its push of step 7 is held. B waits
 * for rank 2's push of step 7; rank 2 can only be waiting for a shard at which its push of step 6 is held; and so on. Steps
 * decrease along this chain, so that it ends at a rank that does not wait. Before sgrad__server_settle each rank pushes for a
 * last time. An update that includes the last push of a rank is therefore the last one of the shard; later pushes are dropped.
 * (An update by fewer gradients would not suit the learning rate.)
 *
 * StarPU-MPI may report the arrival of a push from within any call, so that the callback only records it. One thread, which
 * owns the sessions, answers. */
#include "graphs/engine/run.h"

#include <stdlib.h>

struct session {
    struct sgrad__server *server;
    struct sgrad__service is;
    struct sgrad_step step;     /* of the latest update that this session has executed */
    struct shard *shard;
    int worker;
    /* number of steps whose pushes have arrived; version of the shard when its weights were last sent */
    long pushed, version;
    bool open, held;            /* a push is expected, or has not been answered; it has arrived and waits for others */
    int missing;                /* messages of the push that have not arrived */
    struct session *next;       /* next session in the queue of arrived pushes */
};
struct shard {
    struct session *session;    /* array: one per worker, by rank; NULL: the shard belongs to another rank */
    long version;               /* number of updates */
    long ended;                 /* last announced step before a settle after whose last update no other may follow */
    int held;
    struct sgrad__lr_sum lr_sum;
};
struct sgrad__server {
    struct sgrad__run *run;
    struct sgrad_thread *thread;
    struct sgrad_monitor *monitor;      /* protects the next fields; no function is called while it is locked */
    struct session *came, **end;        /* queue of sessions whose pushes have arrived */
    long expected, seen;                /* number of steps whose pushes are announced; of these, known to the thread */
    long outstanding;                   /* number of instructions submitted and not yet executed */
    long stop;                          /* last step before the next settle */
    bool closing;

    struct sgrad_tensor **master;       /* by parameter: master weights; NULL: of another rank */
    int members, workers, sessions;     /* pushes of an update; sessions of a shard; of all shards */
    struct session *session;
    struct shard *shard;                /* by shard of the training program */
    long last;                          /* copy of stop that belongs to the thread */
    double histogram[SGRAD__STALENESS], *dropped;   /* by rank */
};

static void count(struct sgrad__server *server, long more) {
    sgrad_monitor_lock(server->monitor);
    server->outstanding += more;
    sgrad_monitor_notify(server->monitor);
    sgrad_monitor_unlock(server->monitor);
}

static void has_run(void *arg) { count(arg, -1); }

/* Called when a message of a push has arrived. */
static void push_came(void *arg) {
    struct session *e = arg;
    struct sgrad__server *s = e->server;
    sgrad_monitor_lock(s->monitor);
    if (--e->missing == 0) {
        e->next = NULL;
        *s->end = e;
        s->end = &e->next;
        sgrad_monitor_notify(s->monitor);
    }
    sgrad_monitor_unlock(s->monitor);
}

/* Submits the instructions from FROM to TO - 1. They are counted before they can have been executed. */
static void submit(struct session *session, int from, int to, void (*done)(void *), void *arg) {
    count(session->server, to - from);
    int error = 0;
    for (; from < to && !error; from++)
        error = sgrad__instruction_submit(session->is.program, from, &session->step, 0, done, arg);
    if (!error) return;
    count(session->server, from - 1 - to);    /* instructions that were not submitted will not be executed */
    sgrad_task_fail(error);
}

static void expect(struct session *session) {
    if (session->open || session->pushed >= session->server->seen) return;
    session->open = true;
    session->missing = session->is.chunks;
    submit(session, 0, session->is.chunks, push_came, session);
}

/* Sends the newest weights in answer to a push. The weights that the session sent before have arrived, because the worker
 * would not have pushed again otherwise. */
static void reply(struct session *session) {
    session->version = session->shard->version;
    session->open = session->held = false;
    submit(session, session->is.reply, session->is.program->instruction_count, has_run, session->server);
    expect(session);
    count(session->server, -session->is.chunks);
}

/* Updates the shard by the pushes that are held; that of SESSION has arrived last. They are summed in the order of ranks. */
static void update(struct session *session) {
    struct sgrad__server *s = session->server;
    const struct sgrad__run *r = s->run;
    struct shard *shard = session->shard;
    int members = 0;
    for (struct session *m = shard->session; m < shard->session + s->workers; m++) {
        if (!m->held) continue;
        for (int c = 0; c < session->is.chunks; c++)
            session->is.program->buffer[session->is.member[members * session->is.chunks + c]].tensor[0] =
                m->is.program->buffer[m->is.push[c]].tensor[0];
        members++;
        if (m->pushed == s->last) shard->ended = s->last;
    }
    session->step = (struct sgrad_step){ .seed = r->options.training.seed, .number = (uint32_t)++shard->version, .training = true,
                                   .lr = (float)sgrad__run_lr(r, session->pushed - 1),
                                   .lr_share = sgrad__run_lr_share(r, &shard->lr_sum, session->pushed - 1) };
    submit(session, session->is.chunks, session->is.reply, has_run, s);
    shard->held = 0;
    for (struct session *m = shard->session; m < shard->session + s->workers; m++)
        if (m->held) reply(m);
}

/* Processes a push that has arrived completely. */
static void answer(struct session *session) {
    struct sgrad__server *s = session->server;
    const long stale = session->shard->version - session->version;
    s->histogram[stale < SGRAD__STALENESS - 1 ? stale : SGRAD__STALENESS - 1]++;
    session->pushed++;
    if (s->run->parallel.strategy->drops_stale && (stale > 0 || session->shard->ended == s->last)) {
        s->dropped[session->worker]++;
        reply(session);
        return;
    }
    session->held = true;
    if (++session->shard->held == s->members) update(session);
}

static void *serve(void *arg) {
    struct sgrad__server *s = arg;
    sgrad_monitor_lock(s->monitor);
    while (!s->closing) {
        struct session *came = s->came, *next;
        const bool steps = s->seen < s->expected;
        s->last = s->stop;
        if (!came && !steps) {
            sgrad_monitor_wait(s->monitor, 0);
            continue;
        }
        s->came = NULL;
        s->end = &s->came;
        s->seen = s->expected;
        s->outstanding++;       /* settle must not return before the sessions expect these steps */
        sgrad_monitor_unlock(s->monitor);
        for (; came; came = next) {
            next = came->next;
            answer(came);
        }
        for (int i = 0; i < s->sessions && steps; i++) expect(&s->session[i]);
        count(s, -1);
        sgrad_monitor_lock(s->monitor);
    }
    sgrad_monitor_unlock(s->monitor);
    return NULL;
}

static int open_masters(struct sgrad__server *server) {
    const struct sgrad__run *r = server->run;
    for (int i = 0; i < r->program->shards; i++) {
        const struct sgrad__shard *shard = &r->program->shard[i];
        for (int j = 0; j < shard->count && shard->server == r->context->rank; j++) {
            const struct sgrad__parameter *w = &r->graph->parameter[shard->parameter[j]];
            void *value = sgrad_xcalloc(1, sgrad_view_bytes(&w->tensor->view));
            int error =
                sgrad_tensor_create(w->name, w->is.dtype, w->is.shape, SGRAD_PERSISTENT, &server->master[shard->parameter[j]]);
            if (!error) error = sgrad_tensor_read(w->tensor, value);
            if (!error) error = sgrad_tensor_write(server->master[shard->parameter[j]], value);
            free(value);
            if (error) return error;
        }
    }
    return 0;
}

/* Opens the sessions of a shard after FIRST completed steps. In each of them the shard had one update (backup), or one per
 * push. */
static int open_sessions(struct sgrad__server *server, int number, long first) {
    struct sgrad__run *r = server->run;
    const struct sgrad__shard *is = &r->program->shard[number];
    struct shard *shard = &server->shard[number];
    const struct sgrad_program_options options = sgrad__run_program_options(r, true, r->options.training.batch, r->batch.micro);
    if (is->server != r->context->rank) return 0;
    *shard = (struct shard){ .session = &server->session[server->sessions],
                             .version = first * (r->parallel.strategy->drops_stale ? 1 : server->workers) };
    for (int worker = 0; worker < r->context->ranks; worker += r->parallel.push_ranks) {
        struct session *e = &server->session[server->sessions++];
        *e = (struct session){ .server = server, .shard = shard, .worker = worker, .pushed = first, .version = shard->version,
                               .is = sgrad__service_create(r->graph, &options, is, worker, server->members, server->master) };
        SGRAD_TRY(sgrad__program_allocate(e->is.program));
    }
    return 0;
}

int sgrad__server_open(struct sgrad__run *run, long first) {
    const int ranks = run->context->ranks;
    if (!run->parallel.strategy->asynchronous || ranks == 1) return 0;
    struct sgrad__server *s = run->parallel.server = sgrad_xcalloc(1, sizeof *s);
    s->run = run;
    s->expected = s->seen = first;
    s->workers = ranks / run->parallel.push_ranks;
    s->members = (int)(run->program->batch.averaged / run->program->share) / run->parallel.push_ranks;
    s->monitor = sgrad_monitor_create();
    s->end = &s->came;
    s->master = sgrad_xcalloc((size_t)run->graph->parameter_count, sizeof(struct sgrad_tensor *));
    s->shard = sgrad_xcalloc((size_t)run->program->shards, sizeof *s->shard);
    s->session = sgrad_xcalloc((size_t)(run->program->shards * s->workers), sizeof *s->session);
    s->dropped = sgrad_xcalloc((size_t)ranks, sizeof *s->dropped);
    SGRAD_TRY(open_masters(s));
    for (int i = 0; i < run->program->shards; i++) SGRAD_TRY(open_sessions(s, i, first));
    s->thread = sgrad_thread_start(serve, s);
    return s->thread ? 0
                     : sgrad_log_error(SGRAD_ENOMEM, "the thread of the parameter server cannot be started; check the limit of "
                                                     "threads (ulimit -u)");
}

const struct sgrad__program *sgrad__server_program(const struct sgrad__server *server, int number) {
    return server && number < server->sessions ? server->session[number].is.program : NULL;
}

void sgrad__server_expect(struct sgrad__server *server, long steps, long stop) {
    if (!server) return;
    sgrad_monitor_lock(server->monitor);
    server->expected = steps;
    server->stop = stop;
    sgrad_monitor_notify(server->monitor);
    sgrad_monitor_unlock(server->monitor);
}

/* Copies the states of the parameters from their servers to all ranks; with asynchronous servers also the weights. */
static int publish(struct sgrad__run *run) {
    const struct sgrad__server *s = run->parallel.server;
    struct sgrad__broadcast *list = NULL;
    int count = 0;
    for (const struct sgrad__shard *shard = run->program->shard; shard < run->program->shard + run->program->shards; shard++) {
        for (int j = 0; j < shard->count; j++) {
            const int i = shard->parameter[j];
            struct sgrad_tensor *tensor = run->graph->parameter[i].tensor, *const *state = run->training->update[i].state;
            for (int k = s ? -1 : 0; k < 0 || state[k]; k++) {
                list = sgrad_array_grow(list, count, sizeof *list);
                if (k < 0) list[count++] = (struct sgrad__broadcast){ s->master[i], tensor, shard->server };
                else list[count++] = (struct sgrad__broadcast){ state[k], state[k], shard->server };
            }
        }
    }
    int error = sgrad__runner_broadcast(run->context, list, count);
    free(list);
    return error;
}

int sgrad__server_settle(struct sgrad__run *run) {
    struct sgrad__server *s = run->parallel.server;
    if (s) {
        struct sgrad__idle idle = { .before = -1 };
        sgrad_monitor_lock(s->monitor);
        while (s->seen < s->expected || s->outstanding > 0)
            if (sgrad__nap(s->monitor, s->outstanding, &idle))
                sgrad_watchdog_report(false, "for the last pushes of other ranks");
        for (int i = 0; i < s->sessions; i++) s->session[i].version = s->session[i].shard->version;
        sgrad_monitor_unlock(s->monitor);
    }
    return publish(run);
}

void sgrad__server_staleness(struct sgrad__server *server, double histogram[SGRAD__STALENESS]) {
    for (int i = 0; i < SGRAD__STALENESS; i++) histogram[i] = server ? server->histogram[i] : 0;
    sgrad_ranks_sum(histogram, SGRAD__STALENESS);
}

void sgrad__server_dropped(struct sgrad__server *server, double *by_rank, int ranks) {
    for (int i = 0; i < ranks; i++) by_rank[i] = server ? server->dropped[i] : 0;
    sgrad_ranks_sum(by_rank, ranks);
}

void sgrad__server_close(struct sgrad__run *run) {
    struct sgrad__server *s = run->parallel.server;
    if (!s) return;
    sgrad_monitor_lock(s->monitor);
    s->closing = true;
    sgrad_monitor_notify(s->monitor);
    sgrad_monitor_unlock(s->monitor);
    sgrad_thread_join(s->thread);
    sgrad_monitor_destroy(s->monitor);
    for (int i = 0; i < s->sessions; i++) sgrad__program_destroy(s->session[i].is.program);
    for (int i = 0; i < run->graph->parameter_count; i++) sgrad_tensor_destroy(s->master[i]);
    free(s->master);
    free(s->session);
    free(s->shard);
    free(s->dropped);
    free(s);
    run->parallel.server = NULL;
}
