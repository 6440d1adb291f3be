/* allreduce.c: sums over real ranks: buckets on their way through the executor that training uses, by every method.
 *
 *     allreduce                         one rank: what goes in comes out
 *     mpirun -n 4 allreduce             ragged sizes: what MPI_Allreduce has, to the bit (tests/train/allreduce.py)
 *     mpirun -n 4 allreduce time B…     milliseconds that a bucket of B bytes takes by each method, a JSON object a line, and
 * what the cheapest would be (bench/allreduce) mpirun -n 4 allreduce plain B…    the same of MPI_Allreduce alone: no StarPU, no
 * copies
 *
 * A program as a training step has it, without the network:
 *
 *     parameter 0 ─┐                 ┌─ parameter 0
 *     parameter 1 ─┴─ bucket 0 ─ plan ┴─ parameter 1       values of this rank, sums over all
 *     parameter 2 ─── bucket 1 ─ plan ── parameter 2                                                */
#include "graphs/compiler/builder.h"
#include "graphs/engine/runner.h"
#include "runtime/philox.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMETERS = 8, ROUNDS = 2 };    /* two: what the first leaves behind must not reach the second */

/* What is summed. */
struct load {
    enum sgrad_dtype dtype;
    int buckets;                    /* of each method; parameters go to them in turn, as many to one as to another */
    int64_t most;                   /* bytes above which a bucket goes in pieces; 0: never */
    bool parts;                     /* each rank has no part in some of the parameters */
    int count;
    int64_t size[PARAMETERS];       /* elements */
};
static const struct load loads[] = {
    { SGRAD_F32, 1, 0, false, 1, { 1 } },
    { SGRAD_F32, 6, 0, false, 6, { 2, 3, 7, 1000, 65537, 300001 } },
    { SGRAD_F64, 1, 0, false, 3, { 1, 2, 4099 } },
    { SGRAD_F32, 1, 0, true, 7, { 1, 2, 3, 7, 1000, 65537, 300001 } },
    { SGRAD_F32, 3, 100000, true, 7, { 300001, 1000, 7, 65537, 3, 2, 1 } },
};
enum { LOADS = sizeof loads / sizeof *loads };

static int rank, ranks = 1;
static MPI_Comm world;              /* apart from what the library sends */

/* ---- values: whole numbers, whose sum is the same in any order ---------------------------------------------------- */

static void store(enum sgrad_dtype dtype, void *data, int64_t i, double x) {
    if (dtype == SGRAD_F64) ((double *)data)[i] = x;
    else ((float *)data)[i] = (float)x;
}

static double fetch(enum sgrad_dtype dtype, const void *data, int64_t i) {
    return dtype == SGRAD_F64 ? ((const double *)data)[i] : ((const float *)data)[i];
}

static void draw(enum sgrad_dtype dtype, void *data, int64_t count, uint32_t time, int parameter) {
    for (int64_t i = 0; i < count; i++) {
        struct sgrad_random r = sgrad_philox((uint64_t)rank, SGRAD_STREAM_DATA, time, (uint64_t)i, (uint32_t)parameter);
        store(dtype, data, i, (double)(r.word[0] % 255) - 127);
    }
}

/* Of three ranks, one has no part in a parameter. */
static bool has_part(const struct load *l, int parameter) { return !l->parts || ranks == 1 || (parameter + rank) % 3; }

/* ---- the program -------------------------------------------------------------------------------------------------- */

struct sums {
    int methods;
    const struct sgrad_collective *const *method;    /* all of them at the same time */
    int *done;                                      /* buffers, (methods, PARAMETERS) */
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    struct sgrad_tensor *parameter[PARAMETERS];
};

static void add_buckets(struct sgrad_builder *b, struct sums *s, const struct load *l, int method) {
    for (int k = 0, i = 0; k < l->buckets; k++) {
        struct sgrad_bucket *bucket = sgrad__bucket_open(l->dtype, sgrad__peers(b, 0, sgrad__peer_count(b->o)));
        for (; i < l->count * (k + 1) / l->buckets; i++)
            sgrad__bucket_put(bucket, has_part(l, i) ? sgrad__lend_buffer(b, s->parameter[i]) : -1, s->parameter[i]->view,
                              &s->done[method * PARAMETERS + i], -1, s->parameter[i]->name);
        sgrad__bucket_sum(b, bucket, s->method[method], SGRAD__PRIORITY_UPDATE + k, s->method[method]->name);
        sgrad__bucket_free(bucket);
    }
    for (int i = 0; i < l->count; i++)      /* to be read */
        b->p->buffer[s->done[method * PARAMETERS + i]].lifetime = SGRAD_PERSISTENT;
}

static int sums_open(struct sums *s, const struct sgrad_context *ctx, const struct load *l) {
    static const struct sgrad_network alone = { .ranks = 1 };
    const struct sgrad_program_options o = { .rank = rank, .peers = ctx->all, .network = ctx->network ? ctx->network : &alone };
    struct sgrad__program *p = s->program = sgrad__program_create();
    struct sgrad_builder b = { .p = p, .o = &o };
    p->bucket_bytes = l->most;
    for (int i = 0; i < l->count; i++) {
        struct sgrad_shape shape = { 1, { l->size[i] } };
        SGRAD_TRY(sgrad_tensor_create("parameter", l->dtype, shape, SGRAD_PERSISTENT, &s->parameter[i]));
    }
    s->done = sgrad_xcalloc((size_t)s->methods * PARAMETERS, sizeof *s->done);
    for (int method = 0; method < s->methods; method++) add_buckets(&b, s, l, method);
    sgrad__mark_last_uses(p);
    s->runner = sgrad__runner_create(p, NULL);
    return sgrad__program_allocate(p);
}

static int run(struct sums *s) {
    static const struct sgrad_sample sample;
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_submit(s->runner, &(struct sgrad_step){ .number = 1, .training = true }, &sample));
    return sgrad__runner_wait(s->runner, &slot);
}

static void sums_close(struct sums *s) {
    sgrad__runner_destroy(s->runner);
    sgrad__program_destroy(s->program);
    for (int i = 0; i < PARAMETERS; i++) sgrad_tensor_destroy(s->parameter[i]);
    free(s->done);
}

/* ---- what is checked ---------------------------------------------------------------------------------------------- */

static bool differs(const struct load *l, int parameter, const void *got, const void *expected, const char *method) {
    for (int64_t i = 0; i < l->size[parameter]; i++) {
        const double x = fetch(l->dtype, got, i), y = fetch(l->dtype, expected, i);
        if (x == y) continue;
        fprintf(stderr, "%s, rank %d of %d, load %d, parameter %d of %d: element %lld of %lld is %.9g, not %.9g\n", method, rank,
                ranks, (int)(l - loads), parameter, l->count, (long long)i, (long long)l->size[parameter], x, y);
        return true;
    }
    return false;
}

/* What all ranks put into the load's parameters, each time anew, and what comes of it. */
struct values {
    void *mine[ROUNDS][PARAMETERS], *sum[ROUNDS][PARAMETERS];
};

static void values_open(struct values *v, const struct load *l) {
    MPI_Datatype type = l->dtype == SGRAD_F64 ? MPI_DOUBLE : MPI_FLOAT;
    for (int n = 0; n < ROUNDS; n++)
        for (int i = 0; i < l->count; i++) {
            const size_t bytes = (size_t)l->size[i] * sgrad_dtype_size(l->dtype);
            v->mine[n][i] = sgrad_xcalloc(bytes, 1);
            v->sum[n][i] = sgrad_xcalloc(bytes, 1);
            draw(l->dtype, v->mine[n][i], l->size[i], (uint32_t)(l - loads) * ROUNDS + (uint32_t)n, i);
            if (has_part(l, i)) memcpy(v->sum[n][i], v->mine[n][i], bytes);
            if (ranks > 1) MPI_Allreduce(MPI_IN_PLACE, v->sum[n][i], (int)l->size[i], type, MPI_SUM, world);
        }
}

static void values_close(struct values *v) {
    for (int n = 0; n < ROUNDS; n++)
        for (int i = 0; i < PARAMETERS; i++) {
            free(v->mine[n][i]);
            free(v->sum[n][i]);
        }
}

/* Goes on when something is wrong, as the other ranks do. */
static int check_round(struct sums *s, const struct load *l, void *const *mine, void *const *sum, bool *wrong) {
    for (int i = 0; i < l->count; i++) SGRAD_TRY(sgrad_tensor_write(s->parameter[i], mine[i]));
    SGRAD_TRY(run(s));
    for (int at = 0; at < s->methods * PARAMETERS; at++) {
        const int i = at % PARAMETERS;
        if (i >= l->count) continue;
        void *got = sgrad_xcalloc((size_t)l->size[i], sgrad_dtype_size(l->dtype));
        SGRAD_TRY(sgrad_tensor_read(s->program->buffer[s->done[at]].tensor[0], got));
        *wrong |= differs(l, i, got, sum[i], s->method[at / PARAMETERS]->name);
        free(got);
    }
    return 0;
}

/* Ranks here have no GPUs (tests/gpu). */
static bool is_tested(const struct sgrad_collective *method) { return method->kind == SGRAD_ALLREDUCE && !method->on_gpus; }

static int check(const struct sgrad_context *ctx) {
    bool wrong = false;
    int methods = 0;
    const struct sgrad_collective *method[64];
    for (int i = 0; sgrad_collectives[i]; i++)
        if (is_tested(sgrad_collectives[i])) method[methods++] = sgrad_collectives[i];
    for (const struct load *l = loads; l < loads + LOADS; l++) {
        struct values v = { 0 };
        struct sums s = { .method = method, .methods = methods };
        values_open(&v, l);
        SGRAD_TRY(sums_open(&s, ctx, l));
        for (int n = 0; n < ROUNDS; n++) SGRAD_TRY(check_round(&s, l, v.mine[n], v.sum[n], &wrong));
        sums_close(&s);
        values_close(&v);
    }
    SGRAD_TRY(sgrad_ranks_agree(wrong ? SGRAD_EINVAL : 0));
    for (int i = 0; i < methods && rank == 0; i++)
        printf("%s on %d rank%s\n", method[i]->name, ranks, ranks > 1 ? "s" : "");
    return 0;
}

/* ---- what is timed ------------------------------------------------------------------------------------------------ */

enum { LEAST_TIMES = 5, MOST_TIMES = 40, WARM_UP = 2 };
static const double enough = 1000;      /* ms for which one thing is repeated */

/* ms of the slowest rank, from a barrier on. */
static double time_once(int (*what)(void *arg), void *arg, int *error) {
    MPI_Barrier(world);
    const double start = MPI_Wtime();
    *error |= what(arg);
    double ms = 1000 * (MPI_Wtime() - start);
    MPI_Allreduce(MPI_IN_PLACE, &ms, 1, MPI_DOUBLE, MPI_MAX, world);
    return ms;
}

static int time_all(const char *name, int64_t bytes, int (*what)(void *arg), void *arg) {
    int error = 0, times = 0;
    double all = 0;
    for (int i = 0; i < WARM_UP; i++) time_once(what, arg, &error);
    if (rank == 0) printf("{\"method\": \"%s\", \"bytes\": %lld, \"ms\": [", name, (long long)bytes);
    for (; !error && times < MOST_TIMES && (times < LEAST_TIMES || all < enough); times++) {
        const double ms = time_once(what, arg, &error);
        all += ms;
        if (rank == 0) printf("%s%.4f", times ? ", " : "", ms);
    }
    if (rank == 0) printf("]}\n");
    return error;
}

static int run_sums(void *s) { return run(s); }

static int time_methods(const struct sgrad_context *ctx, int64_t bytes) {
    const struct load l = { SGRAD_F32, 1, 0, false, 1, { bytes / (int64_t)sizeof(float) } };
    for (const struct sgrad_collective *const *method = sgrad_collectives; *method; method++) {
        if (!is_tested(*method)) continue;
        struct sums s = { .method = method, .methods = 1 };
        SGRAD_TRY(sums_open(&s, ctx, &l));
        SGRAD_TRY(time_all((*method)->name, bytes, run_sums, &s));
        sums_close(&s);
    }
    const struct sgrad_exchange what = { .bytes = (double)bytes };
    const struct sgrad_collective *auto_choice = sgrad_collective_cheapest(SGRAD_ALLREDUCE, &what, ctx->network);
    if (rank == 0)
        printf("{\"auto\": \"%s\", \"bytes\": %lld, \"ms\": %.4f}\n", auto_choice->name, (long long)bytes,
               1000 * sgrad_collective_cost(auto_choice, &what, ctx->network));
    return 0;
}

struct plain {
    float *data;
    int count;
};

static int run_plain(void *arg) {
    const struct plain *p = arg;
    return MPI_Allreduce(MPI_IN_PLACE, p->data, p->count, MPI_FLOAT, MPI_SUM, world);
}

static int time_plain(int64_t bytes) {
    struct plain p = { sgrad_xcalloc((size_t)bytes, 1), (int)(bytes / (int64_t)sizeof(float)) };
    int error = time_all("MPI_Allreduce", bytes, run_plain, &p);
    free(p.data);
    return error;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

static int all_plain(char **bytes) {
    int error = 0;
    MPI_Init(NULL, NULL);
    world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &ranks);
    while (*bytes && !error) error = time_plain(atoll(*bytes++));
    MPI_Finalize();
    return error;
}

static int all_methods(char **bytes) {
    struct sgrad_context *ctx;
    int error = 0;
    SGRAD_TRY(sgrad_context_open(&(struct sgrad_context_options){ .cpus = 1, .gpus = -1, .timeout = 60 }, &ctx));
    rank = ctx->rank;
    ranks = ctx->ranks;
    if (ranks > 1) MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (bytes && ranks == 1) error = sgrad_log_error(SGRAD_EINVAL, "allreduce time: one rank has nobody to talk to");
    if (!bytes) error = check(ctx);
    while (bytes && *bytes && !error) error = time_methods(ctx, atoll(*bytes++));
    if (ranks > 1 && error) sgrad_ranks_abort(1);
    if (ranks > 1) MPI_Comm_free(&world);
    sgrad_context_close(ctx);
    return error;
}

int main(int count, char **word) {
    if (count == 1) return all_methods(NULL) ? 1 : 0;
    if (strcmp(word[1], "time") == 0) return all_methods(word + 2) ? 1 : 0;
    if (strcmp(word[1], "plain") == 0) return all_plain(word + 2) ? 1 : 0;
    fprintf(stderr, "usage: mpirun -n RANKS %s [time BYTES... | plain BYTES...]\n", word[0]);
    return 2;
}
