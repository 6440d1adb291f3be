/* allreduce.c: sums over real ranks, of buckets, with the executor that training uses, by every algorithm.
 *
 *     allreduce                         one rank: the output is the input
 *     mpirun -n 4 allreduce             uneven sizes: equals MPI_Allreduce, to the bit (tests/train/allreduce.py)
 *     mpirun -n 4 allreduce time B…     prints, as a JSON object a line, the milliseconds for a bucket of B bytes by each
 *                                       algorithm, and the algorithm that is cheapest by cost (bench/allreduce)
 *     mpirun -n 4 allreduce plain B…    the same for MPI_Allreduce, without StarPU and without copies
 *
 * The program is that of a training step, without the network:
 *
 *     parameter 0 ─┐                 ┌─ parameter 0
 *     parameter 1 ─┴─ bucket 0 ─ plan ┴─ parameter 1       values of this rank, sums over all
 *     parameter 2 ─── bucket 1 ─ plan ── parameter 2 */
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
static bool has_part(const struct load *load, int parameter) { return !load->parts || ranks == 1 || (parameter + rank) % 3; }

/* ---- the program -------------------------------------------------------------------------------------------------- */

struct sums {
    int methods;
    const struct sgrad_collective *const *method;    /* all of them at the same time */
    int *done;                                      /* buffers, (methods, PARAMETERS) */
    struct sgrad__program *program;
    struct sgrad__runner *runner;
    struct sgrad_tensor *parameter[PARAMETERS];
};

static void add_buckets(struct sgrad_builder *builder, struct sums *sums, const struct load *load, int method) {
    for (int k = 0, i = 0; k < load->buckets; k++) {
        struct sgrad_bucket *bucket = sgrad__bucket_open(load->dtype, sgrad__peers(builder, 0, sgrad__peer_count(builder->o)));
        for (; i < load->count * (k + 1) / load->buckets; i++)
            sgrad__bucket_put(bucket, has_part(load, i) ? sgrad__lend_buffer(builder, sums->parameter[i]) : -1,
                              sums->parameter[i]->view, &sums->done[method * PARAMETERS + i], -1, sums->parameter[i]->name);
        sgrad__bucket_sum(builder, bucket, sums->method[method], SGRAD__PRIORITY_UPDATE + k, sums->method[method]->name);
        sgrad__bucket_free(bucket);
    }
    for (int i = 0; i < load->count; i++)   /* to be read */
        builder->p->buffer[sums->done[method * PARAMETERS + i]].lifetime = SGRAD_PERSISTENT;
}

static int sums_open(struct sums *sums, const struct sgrad_context *ctx, const struct load *load) {
    static const struct sgrad_network alone = { .ranks = 1 };
    const struct sgrad_program_options o = { .rank = rank, .peers = ctx->all, .network = ctx->network ? ctx->network : &alone };
    struct sgrad__program *p = sums->program = sgrad__program_create();
    struct sgrad_builder b = { .p = p, .o = &o };
    p->bucket_bytes = load->most;
    for (int i = 0; i < load->count; i++) {
        struct sgrad_shape shape = { 1, { load->size[i] } };
        SGRAD_TRY(sgrad_tensor_create("parameter", load->dtype, shape, SGRAD_PERSISTENT, &sums->parameter[i]));
    }
    sums->done = sgrad_xcalloc((size_t)sums->methods * PARAMETERS, sizeof *sums->done);
    for (int method = 0; method < sums->methods; method++) add_buckets(&b, sums, load, method);
    sgrad__mark_last_uses(p);
    sums->runner = sgrad__runner_create(p, NULL);
    return sgrad__program_allocate(p);
}

static int run(struct sums *sums) {
    static const struct sgrad_sample sample;
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__runner_submit(sums->runner, &(struct sgrad_step){ .number = 1, .training = true }, &sample));
    return sgrad__runner_wait(sums->runner, &slot);
}

static void sums_close(struct sums *sums) {
    sgrad__runner_destroy(sums->runner);
    sgrad__program_destroy(sums->program);
    for (int i = 0; i < PARAMETERS; i++) sgrad_tensor_destroy(sums->parameter[i]);
    free(sums->done);
}

/* ---- what is checked ---------------------------------------------------------------------------------------------- */

static bool differs(const struct load *load, int parameter, const void *got, const void *expected, const char *method) {
    for (int64_t i = 0; i < load->size[parameter]; i++) {
        const double x = fetch(load->dtype, got, i), y = fetch(load->dtype, expected, i);
        if (x == y) continue;
        fprintf(stderr, "%s, rank %d of %d, load %d, parameter %d of %d: element %lld of %lld is %.9g, not %.9g\n", method, rank,
                ranks, (int)(load - loads), parameter, load->count, (long long)i, (long long)load->size[parameter], x, y);
        return true;
    }
    return false;
}

/* What all ranks put into the load's parameters, each time anew, and what comes of it. */
struct values {
    void *mine[ROUNDS][PARAMETERS], *sum[ROUNDS][PARAMETERS];
};

static void values_open(struct values *values, const struct load *load) {
    MPI_Datatype type = load->dtype == SGRAD_F64 ? MPI_DOUBLE : MPI_FLOAT;
    for (int n = 0; n < ROUNDS; n++)
        for (int i = 0; i < load->count; i++) {
            const size_t bytes = (size_t)load->size[i] * sgrad_dtype_size(load->dtype);
            values->mine[n][i] = sgrad_xcalloc(bytes, 1);
            values->sum[n][i] = sgrad_xcalloc(bytes, 1);
            draw(load->dtype, values->mine[n][i], load->size[i], (uint32_t)(load - loads) * ROUNDS + (uint32_t)n, i);
            if (has_part(load, i)) memcpy(values->sum[n][i], values->mine[n][i], bytes);
            if (ranks > 1) MPI_Allreduce(MPI_IN_PLACE, values->sum[n][i], (int)load->size[i], type, MPI_SUM, world);
        }
}

static void values_close(struct values *values) {
    for (int n = 0; n < ROUNDS; n++)
        for (int i = 0; i < PARAMETERS; i++) {
            free(values->mine[n][i]);
            free(values->sum[n][i]);
        }
}

/* Goes on when something is wrong, as the other ranks do. */
static int check_round(struct sums *sums, const struct load *load, void *const *mine, void *const *sum, bool *wrong) {
    for (int i = 0; i < load->count; i++) SGRAD_TRY(sgrad_tensor_write(sums->parameter[i], mine[i]));
    SGRAD_TRY(run(sums));
    for (int at = 0; at < sums->methods * PARAMETERS; at++) {
        const int i = at % PARAMETERS;
        if (i >= load->count) continue;
        void *got = sgrad_xcalloc((size_t)load->size[i], sgrad_dtype_size(load->dtype));
        SGRAD_TRY(sgrad_tensor_read(sums->program->buffer[sums->done[at]].tensor[0], got));
        *wrong |= differs(load, i, got, sum[i], sums->method[at / PARAMETERS]->name);
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
