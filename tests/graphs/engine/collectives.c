/* collectives.c: every algorithm of every kind of collective, over real ranks and groups of them, with the executor that
 * training uses.
 *
 *     collectives                       one rank: the output is the input
 *     mpirun -n 4 collectives           groups, roots, uneven chunks: the defined result of the kind, to the bit
 *                                       (tests/train/allreduce.py)
 *
 * The ranks are divided into groups in several ways; every rank is in one group of each division:
 *
 *     all       0 1 2 3 4         in order
 *     back      4 3 2 1 0         in reverse order
 *     parity    4 2 0 │ 3 1       not adjacent, in reverse order
 *     pairs     0 1 │ 2 3 │ 4     includes a group of one */
#include "graphs/compiler/builder.h"
#include "graphs/engine/runner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 16, ROUNDS = 2, FAMILIES = 4 };    /* two: what the first leaves behind must not reach the second */

static int rank, ranks = 1;

static struct sgrad_group group_of(int family, int *member) {
    int count = 0;
    for (int at = 0; at < ranks; at++) {
        const int r = family == 1 || family == 2 ? ranks - 1 - at : at;
        const bool together = family < 2 || (family == 2 ? r % 2 == rank % 2 : r / 2 == rank / 2);
        if (together) member[count++] = r;
    }
    return (struct sgrad_group){ count, member };
}

/* ---- values: whole numbers, whose sum is the same in any order ---------------------------------------------------- */

static int64_t size_of(int chunk) { return (int64_t[]){ 1, 1000, 7, 65537, 2 }[chunk % 5]; }
static float value(int r, int round, int chunk, int64_t i) {
    return (float)((r * 7 + round * 31 + chunk * 13 + (int)(i % 101)) % 255 - 127);
}

/* ---- one collective ----------------------------------------------------------------------------------------------- */

struct job {
    const struct sgrad_collective *method;
    struct sgrad_group group;
    int root, chunks;       /* root: a rank */
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    struct sgrad_tensor **tensor;       /* by chunk */
    int *done;
};

static const struct sgrad_network *network_of(const struct sgrad_context *ctx) {
    static const struct sgrad_network alone = { .ranks = 1 };
    return ctx->network ? ctx->network : &alone;
}

static struct sgrad_exchange exchange(const struct job *job) {
    return (struct sgrad_exchange){ .bytes = 1e6, .group = &job->group, .root = job->root };
}

static int job_open(struct job *job, const struct sgrad_context *ctx) {
    const struct sgrad_program_options o = { .rank = rank, .peers = ctx->all, .network = network_of(ctx) };
    const struct sgrad_exchange what = exchange(job);
    struct sgrad_plan plan = sgrad_plan_make(job->method, &what, rank, o.network);
    struct sgrad_builder b = { .p = job->program = sgrad__program_create(), .o = &o };
    job->chunks = plan.chunks;
    job->tensor = sgrad_xcalloc((size_t)job->chunks, sizeof(struct sgrad_tensor *));
    job->done = sgrad_xcalloc((size_t)job->chunks, sizeof *job->done);
    for (int c = 0; c < job->chunks; c++) {
        SGRAD_TRY(sgrad_tensor_create("chunk", SGRAD_F32, (struct sgrad_shape){ 1, { size_of(c) } }, SGRAD_PERSISTENT,
                                      &job->tensor[c]));
        const int lent = sgrad__lend_buffer(&b, job->tensor[c]);
        job->done[c] = sgrad__add_buffer(&b, sgrad_format("copy"), job->tensor[c]->view); /* some plans add in place */
        sgrad__add_copy(&b, lent, job->done[c]);
    }
    sgrad__add_plan(&b, &plan, job->done, SGRAD__PRIORITY_UPDATE, job->method->name);
    for (int c = 0; c < job->chunks; c++) job->program->buffer[job->done[c]].lifetime = SGRAD_PERSISTENT;     /* to be read */
    free(plan.action);
    sgrad__mark_last_uses(job->program);
    job->runner = sgrad__runner_create(job->program, NULL);
    return sgrad__program_allocate(job->program);
}

static void job_close(struct job *job) {
    sgrad__runner_destroy(job->runner);
    sgrad__program_destroy(job->program);
    for (int c = 0; c < job->chunks; c++) sgrad_tensor_destroy(job->tensor[c]);
    free(job->tensor);
    free(job->done);
}

/* What this rank holds of an element of CHUNK in the end; false: nothing is promised. */
static bool promised(const struct job *job, int round, int chunk, int64_t i, float *x) {
    const int place = sgrad_group_index(&job->group, rank);
    *x = 0;
    switch (job->method->kind) {
    case SGRAD_ALL_GATHER: return *x = value(job->group.rank[chunk], round, chunk, i), true;
    case SGRAD_BROADCAST: return *x = value(job->root, round, chunk, i), true;
    case SGRAD_REDUCE_SCATTER:
        if (chunk != place) return false;
        break;
    case SGRAD_REDUCE:
        if (rank != job->root) return false;
        break;
    case SGRAD_ALLREDUCE: break;
    }
    for (int g = 0; g < job->group.count; g++) *x += value(job->group.rank[g], round, chunk, i);
    return true;
}

static int check_round(struct job *job, int round, bool *wrong) {
    static const struct sgrad_sample sample;
    const struct sgrad__slot *slot;
    float *data = sgrad_xcalloc(65537, sizeof *data), x;
    for (int c = 0; c < job->chunks; c++) {
        for (int64_t i = 0; i < size_of(c); i++) data[i] = value(rank, round, c, i);
        SGRAD_TRY(sgrad_tensor_write(job->tensor[c], data));
    }
    SGRAD_TRY(sgrad__runner_submit(job->runner, &(struct sgrad_step){ .number = 1, .training = true }, &sample));
    SGRAD_TRY(sgrad__runner_wait(job->runner, &slot));
    for (int c = 0; c < job->chunks; c++) {
        SGRAD_TRY(sgrad_tensor_read(job->program->buffer[job->done[c]].tensor[0], data));
        for (int64_t i = 0; i < size_of(c); i++) {
            if (!promised(job, round, c, i, &x) || data[i] == x) continue;
            fprintf(stderr, "%s %s, rank %d of %d, group of %d, root %d, chunk %d: element %lld is %.9g, not %.9g\n",
                    job->method->name, sgrad_collective_kind_name(job->method->kind), rank, ranks, job->group.count, job->root, c,
                    (long long)i, data[i], x);
            *wrong = true;
            break;
        }
    }
    free(data);
    return 0;
}

static int check(const struct sgrad_context *ctx, const struct sgrad_collective *method) {
    bool wrong = false;
    int member[MOST_RANKS];
    const bool rooted = method->kind == SGRAD_REDUCE || method->kind == SGRAD_BROADCAST;
    for (int family = 0; family < FAMILIES; family++) {
        const struct sgrad_group group = group_of(family, member);
        for (int place = 0; place < (rooted ? 2 : 1); place++) {       /* the first, the last */
            struct job j = { .method = method, .group = group, .root = group.rank[place * (group.count - 1)] };
            const struct sgrad_exchange what = exchange(&j);
            if (!isfinite(sgrad_collective_cost(method, &what, network_of(ctx)))) continue;     /* not with so many */
            SGRAD_TRY(job_open(&j, ctx));
            for (int round = 0; round < ROUNDS; round++) SGRAD_TRY(check_round(&j, round, &wrong));
            job_close(&j);
        }
    }
    SGRAD_TRY(sgrad_ranks_agree(wrong ? SGRAD_EINVAL : 0));
    if (rank == 0)
        printf("%s %s on %d rank%s\n", sgrad_collective_kind_name(method->kind), method->name, ranks, ranks > 1 ? "s" : "");
    return 0;
}

int main(void) {
    struct sgrad_context *ctx;
    int error = 0;
    SGRAD_TRY(sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1, .timeout = 60 }, &ctx));
    rank = ctx->rank;
    ranks = ctx->ranks;
    if (ranks > MOST_RANKS) error = sgrad_log_error(SGRAD_EINVAL, "collectives: %d ranks are more than %d", ranks, MOST_RANKS);
    for (const struct sgrad_collective *const *method = sgrad_collectives; *method && !error; method++)
        if (!(*method)->library) error = check(ctx, *method);     /* whose sums are all ranks' or none's */
    if (ranks > 1 && error) sgrad_ranks_abort(1);
    sgrad_context_close(ctx);
    return error ? 1 : 0;
}
