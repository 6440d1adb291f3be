/* server.c: parameter servers that answer whoever asks, in the order of arrival: the other half of the strategies async, backup
 * and mixed.
 *
 * Bucket i is a *shard* of server i mod --servers, where the shard's master weights and optimizer states are. For every worker
 * that pushes to it there is a *session*: a small program (push.c), of which the first instructions, that receive a push, are
 * submitted ahead, the rest when that has happened. An update is by one push (async, mixed), or by several (backup), which are
 * held until all are there:
 *
 *     session 0   receive │ held                             │ gather weights   send
 *     session 1   receive   │ held                           │ gather weights   send
 *     session 2   receive        │ sum 0 1 2   spread   update │ gather weights   send
 *     session 3   receive                                        │ dropped: gather weights   send
 *
 * (on the masters; StarPU keeps updates and gathers in the order of submission). With the strategy backup a push is *fresh* when
 * it was computed with the newest weights; only such are held, others are dropped.
 *
 * Every rank turns the same steps, of which the servers are told early enough: they expect the push before it can come.
 *
 * No push is held forever. Say shard A waits for rank 1's push of step 8. Rank 1 has A's newest weights, for A waits for those
 * only who have them, so it can but wait for another shard, B, that holds its push of step 7. B waits for rank 2's step 7, which
 * can but wait for a shard that holds rank 2's push of step 6; and so on. Steps fall along this chain: it ends, at a rank that
 * waits for nobody. At the end of a stretch (settle) ranks have pushed for the last time, so an update by somebody's last push is
 * the shard's last: what comes after it is dropped. (An update by fewer gradients would be one that the learning rate is not
 * meant for.)
 *
 * StarPU-MPI may say that a push has come from within any call, so that is only noted; one thread answers, and has the sessions
 * to itself. */
#include "graphs/runs/run.h"

#include <stdlib.h>

struct session {
    struct sgrad__server *server;
    struct sgrad__service is;
    struct sgrad_step step;     /* of the update that it has completed */
    struct shard *shard;
    int worker;
    long pushed, version;       /* steps whose pushes have come; of the shard, when its weights were sent */
    bool open, held;            /* a push is expected or not answered yet; it waits for others */
    int missing;                /* messages of the push that have not come */
    struct session *next;       /* of those whose push has come */
};
struct shard {
    struct session *session;    /* one for each worker, in their order; NULL: another rank's shard */
    long version;               /* updates */
    long ended;                 /* the last step of the newest stretch that has had its last update */
    int held;
};
struct sgrad__server {
    struct sgrad__run *run;
    struct sgrad_thread *thread;
    struct sgrad_monitor *monitor;      /* of what is below it; within it nothing is called */
    struct session *came, **end;        /* in the order of arrival */
    long expected, seen;                /* steps whose pushes will come; known to the thread */
    long outstanding;                   /* instructions submitted that have not run */
    long stop;                          /* the stretch's last step */
    bool closing;

    struct sgrad_tensor **master;       /* by parameter; NULL: another rank's */
    int members, workers, sessions;     /* pushes that make an update; sessions of a shard; of all */
    struct session *session;
    struct shard *shard;                /* those of the training program */
    long last;                          /* stop, as known to the thread */
    double histogram[SGRAD__STALENESS], *dropped;   /* by rank */
};

static void count(struct sgrad__server *s, long more) {
    sgrad_monitor_enter(s->monitor);
    s->outstanding += more;
    sgrad_monitor_tell(s->monitor);
    sgrad_monitor_leave(s->monitor);
}

static void has_run(void *arg) { count(arg, -1); }

/* One of its messages. */
static void push_came(void *arg) {
    struct session *e = arg;
    struct sgrad__server *s = e->server;
    sgrad_monitor_enter(s->monitor);
    if (--e->missing == 0) {
        e->next = NULL;
        *s->end = e;
        s->end = &e->next;
        sgrad_monitor_tell(s->monitor);
    }
    sgrad_monitor_leave(s->monitor);
}

/* The instructions FROM to TO, counted before they can have run. */
static void submit(struct session *e, int from, int to, void (*done)(void *), void *arg) {
    count(e->server, to - from);
    int error = 0;
    for (; from < to && !error; from++) error = sgrad__instruction_submit(e->is.program, from, &e->step, 0, done, arg);
    if (!error) return;
    count(e->server, from - 1 - to);    /* what was not submitted will not run */
    sgrad_task_fail(error);
}

static void expect(struct session *e) {
    if (e->open || e->pushed >= e->server->seen) return;
    e->open = true;
    e->missing = e->is.chunks;
    submit(e, 0, e->is.chunks, push_came, e);
}

/* The newest weights, for a push that is here. The session's last ones have come, else the worker would not have pushed again. */
static void reply(struct session *e) {
    e->version = e->shard->version;
    e->open = e->held = false;
    submit(e, e->is.reply, e->is.program->instruction_count, has_run, e->server);
    expect(e);
    count(e->server, -e->is.chunks);
}

/* By the pushes that are held, of which E's has come last. They are summed in the order of ranks. */
static void update(struct session *e) {
    struct sgrad__server *s = e->server;
    const struct sgrad__run *r = s->run;
    struct shard *shard = e->shard;
    int members = 0;
    for (struct session *m = shard->session; m < shard->session + s->workers; m++) {
        if (!m->held) continue;
        for (int c = 0; c < e->is.chunks; c++)
            e->is.program->buffer[e->is.member[members * e->is.chunks + c]].tensor[0] =
                m->is.program->buffer[m->is.push[c]].tensor[0];
        members++;
        if (m->pushed == s->last) shard->ended = s->last;
    }
    e->step = (struct sgrad_step){ .seed = r->options.seed, .number = (uint32_t)++shard->version, .training = true,
                                   .rate = (float)sgrad__run_rate(r, e->pushed - 1) };
    submit(e, e->is.chunks, e->is.reply, has_run, s);
    shard->held = 0;
    for (struct session *m = shard->session; m < shard->session + s->workers; m++)
        if (m->held) reply(m);
}

/* The gradients are here. */
static void answer(struct session *e) {
    struct sgrad__server *s = e->server;
    const long stale = e->shard->version - e->version;
    s->histogram[stale < SGRAD__STALENESS - 1 ? stale : SGRAD__STALENESS - 1]++;
    e->pushed++;
    if (s->run->strategy->fresh && (stale > 0 || e->shard->ended == s->last)) {
        s->dropped[e->worker]++;
        reply(e);
        return;
    }
    e->held = true;
    if (++e->shard->held == s->members) update(e);
}

static void *serve(void *arg) {
    struct sgrad__server *s = arg;
    sgrad_monitor_enter(s->monitor);
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
        s->outstanding++;       /* not at rest before the sessions expect the steps */
        sgrad_monitor_leave(s->monitor);
        for (; came; came = next) {
            next = came->next;
            answer(came);
        }
        for (int i = 0; i < s->sessions && steps; i++) expect(&s->session[i]);
        count(s, -1);
        sgrad_monitor_enter(s->monitor);
    }
    sgrad_monitor_leave(s->monitor);
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

/* FIRST steps lie behind: of each the shard has had one update, or one of every push. */
static int open_sessions(struct sgrad__server *s, int number, long first) {
    struct sgrad__run *r = s->run;
    const struct sgrad__shard *is = &r->program->shard[number];
    struct shard *shard = &s->shard[number];
    const struct sgrad__program_options options = sgrad__run_program_options(r, true, r->options.batch, r->micro);
    if (is->server != r->context->rank) return 0;
    *shard = (struct shard){ .session = &s->session[s->sessions], .version = first * (r->strategy->fresh ? 1 : s->workers) };
    for (int worker = 0; worker < r->context->ranks; worker += r->push_ranks) {
        struct session *e = &s->session[s->sessions++];
        *e = (struct session){ .server = s, .shard = shard, .worker = worker, .pushed = first, .version = shard->version,
                               .is = sgrad__service_create(r->graph, &options, is, worker, s->members, s->master) };
        SGRAD_TRY(sgrad__program_allocate(e->is.program));
    }
    return 0;
}

int sgrad__server_open(struct sgrad__run *r, long first) {
    const int ranks = r->context->ranks;
    if (!r->strategy->served || ranks == 1) return 0;
    struct sgrad__server *s = r->server = sgrad_alloc(1, sizeof *s);
    s->run = r;
    s->expected = s->seen = first;
    s->workers = ranks / r->push_ranks;
    s->members = (int)(r->program->batch.averaged / r->program->share) / r->push_ranks;
    s->monitor = sgrad_monitor_create();
    s->end = &s->came;
    s->master = sgrad_alloc((size_t)r->graph->parameter_count, sizeof(struct sgrad_tensor *));
    s->shard = sgrad_alloc((size_t)r->program->shards, sizeof *s->shard);
    s->session = sgrad_alloc((size_t)(r->program->shards * s->workers), sizeof *s->session);
    s->dropped = sgrad_alloc((size_t)ranks, sizeof *s->dropped);
    SGRAD_TRY(open_masters(s));
    for (int i = 0; i < r->program->shards; i++) SGRAD_TRY(open_sessions(s, i, first));
    s->thread = sgrad_thread_start(serve, s);
    return s->thread ? 0 : sgrad_fail(SGRAD_ENOMEM, "the parameter server's thread does not start");
}

const struct sgrad__program *sgrad__server_program(const struct sgrad__server *s, int number) {
    return s && number < s->sessions ? s->session[number].is.program : NULL;
}

void sgrad__server_expect(struct sgrad__server *s, long steps, long stop) {
    if (!s) return;
    sgrad_monitor_enter(s->monitor);
    s->expected = steps;
    s->stop = stop;
    sgrad_monitor_tell(s->monitor);
    sgrad_monitor_leave(s->monitor);
}

/* What servers have of their parameters, to all ranks: states, and, where servers answer pushes, weights. */
static int publish(struct sgrad__run *r) {
    const struct sgrad__server *s = r->server;
    struct sgrad__broadcast *list = NULL;
    int count = 0;
    for (int i = 0; i < r->program->shards; i++) {
        const struct sgrad__shard *shard = &r->program->shard[i];
        for (int j = 0; j < shard->count; j++) {
            const struct sgrad__parameter *w = &r->graph->parameter[shard->parameter[j]];
            for (int k = s ? -1 : 0; k < 0 || w->kept[k]; k++) {
                list = sgrad_grow(list, count, sizeof *list);
                if (k < 0) list[count++] = (struct sgrad__broadcast){ s->master[shard->parameter[j]], w->tensor, shard->server };
                else list[count++] = (struct sgrad__broadcast){ w->kept[k], w->kept[k], shard->server };
            }
        }
    }
    int error = sgrad__runner_broadcast(r->context, list, count);
    free(list);
    return error;
}

int sgrad__server_settle(struct sgrad__run *r) {
    struct sgrad__server *s = r->server;
    if (s) {
        struct sgrad__idle idle = { .before = -1 };
        sgrad_monitor_enter(s->monitor);
        while (s->seen < s->expected || s->outstanding > 0)
            if (sgrad__nap(s->monitor, s->outstanding, &idle))
                sgrad_stall_tell(false, "for the last pushes of other ranks");
        for (int i = 0; i < s->sessions; i++) s->session[i].version = s->session[i].shard->version;
        sgrad_monitor_leave(s->monitor);
    }
    return publish(r);
}

void sgrad__server_staleness(struct sgrad__server *s, double histogram[SGRAD__STALENESS]) {
    for (int i = 0; i < SGRAD__STALENESS; i++) histogram[i] = s ? s->histogram[i] : 0;
    sgrad_ranks_sum(histogram, SGRAD__STALENESS);
}

void sgrad__server_dropped(struct sgrad__server *s, double *by_rank, int ranks) {
    for (int i = 0; i < ranks; i++) by_rank[i] = s ? s->dropped[i] : 0;
    sgrad_ranks_sum(by_rank, ranks);
}

void sgrad__server_close(struct sgrad__run *r) {
    struct sgrad__server *s = r->server;
    if (!s) return;
    sgrad_monitor_enter(s->monitor);
    s->closing = true;
    sgrad_monitor_tell(s->monitor);
    sgrad_monitor_leave(s->monitor);
    sgrad_thread_end(s->thread);
    sgrad_monitor_destroy(s->monitor);
    for (int i = 0; i < s->sessions; i++) sgrad__program_destroy(s->session[i].is.program);
    for (int i = 0; i < r->graph->parameter_count; i++) sgrad_tensor_destroy(s->master[i]);
    free(s->master);
    free(s->session);
    free(s->shard);
    free(s->dropped);
    free(s);
    r->server = NULL;
}
