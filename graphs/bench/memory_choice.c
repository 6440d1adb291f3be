/* memory_choice.c: plan --memory: the memory and the time of a step with each choice that saves memory.
 *
 *     micro-batch   recompute   shard        a program for each, without a limit, or within the limit, with moves
 *     32, 16, 8  ×  no, yes  ×  no, …    ──> memory, schedule (graphs/costs/schedule.c) ──> time
 *
 * Each program is the one that a rank would execute. Its tasks are scaled, all by the same factor, so that those of the first
 * choice take the time of the query.
 *
 * Limits: shards are estimated: the values that other ranks store are subtracted, and 3/16 of the parameters and their gradients
 * are in memory at a time with --shard parameters. The messages of several ranks are not included. */
#include "graphs/api/costs.h"
#include "graphs/costs/schedule.h"
#include "graphs/train/setup.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 3, SLOTS = 400 };
static const double GATHERED = 3.0 / 16;

struct chooser {
    const struct sgrad_train_options *options;
    const struct sgrad_memory_query *is;
    struct sgrad_memory_result *result;
    struct sgrad__pace pace;
};

/* ---- a choice ---- */

/* Opens a run of one rank that is never executed. MICRO 0: the micro-batch that training chooses. The caller must close and free
 * it. */
static int open_run(const struct chooser *chooser, long micro, bool recomputes, struct sgrad__run **run) {
    struct sgrad__run *r = *run = sgrad_xcalloc(1, sizeof *r);
    r->options = *chooser->options;
    r->options.output.print = true; /* creates no directory and reads no data */
    r->options.output.explicit_options = NULL;
    r->options.training.batch /= chooser->is->ranks;
    r->options.training.micro_batch = micro;
    r->options.model.recompute = recomputes;
    r->options.parallel.strategy = "sync";
    r->options.parallel.shard = r->options.parallel.mesh = r->options.parallel.allreduce = r->options.parallel.spill = NULL;
    r->options.parallel.memory = 0;
    r->options.parallel.backup_workers = -1;
    r->options.parallel.servers = r->options.parallel.group_ranks = r->options.parallel.staleness = 0;
    r->options.parallel.cpus = chooser->is->workers < sgrad_cpus() ? chooser->is->workers : sgrad_cpus();
    r->options.parallel.gpus = 0;
    malloc_trim(0); /* the memory of this process is part of that of a rank */
    SGRAD_TRY(sgrad__run_open_training(r));
    r->files.folder = sgrad_format("run");  /* checkpoints are written to one; the folder is not created */
    return 0;
}

/* Returns the bytes that other ranks store instead of this one. PROGRAM: its memory without a limit. */
static double saved(const struct chooser *chooser, const struct sgrad__run *run, const char *shard,
                    const struct sgrad__memory *program) {
    const double others = 1 - 1.0 / chooser->is->ranks, kept = sgrad__training_memory(run->training),
                 weights = sgrad__graph_memory(run->graph);
    if (!shard) return 0;
    if (strcmp(shard, "parameters")) return others * (kept - weights);
    return others * kept - GATHERED * weights + (1 - GATHERED) * program->gradients;
}

static double schedule(const struct chooser *chooser, const struct sgrad__program *program, bool moves,
                       struct sgrad__schedule *schedule) {
    struct sgrad__pace pace = chooser->pace;
    struct sgrad__schedule is;
    if (!moves) pace.disk = (struct sgrad_spill_speed){ 0, 0 };
    sgrad__schedule_make(program, &pace, &is);
    const double seconds = is.seconds;
    if (schedule)
        *schedule = is;
    else
        sgrad__schedule_free(&is);
    return seconds;
}

/* A run within the limit. SAVED: bytes that other ranks store. */
struct attempt {
    const struct sgrad__run *run;
    double saved;
};

static struct sgrad__memory_use use_with(void *arg, int moved) {
    const struct attempt *attempt = arg;
    struct sgrad__memory_use use = sgrad__run_memory_use(attempt->run, moved);
    use.other -= attempt->saved;
    return use;
}

/* Returns the search for the program that a run would choose. States and weights that are shared with other ranks are not moved
 * here. */
static struct sgrad__limit_search search_for(const struct chooser *chooser, struct attempt *attempt) {
    const struct sgrad__run *run = attempt->run;
    const bool spills = chooser->is->write > 0 && chooser->is->read > 0;
    struct sgrad__homes homes = sgrad__homes_find(run->training);
    struct sgrad__limit_search search = {
        .graph = run->graph,
        .options = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro),
        .bytes = chooser->is->bytes,
        .most = spills && attempt->saved <= 0 ? homes.count : 0,
        .recomputes = !run->options.model.recompute,
        .use = use_with,
        .arg = attempt,
    };
    search.options.cpus = chooser->pace.workers;
    search.options.limit = (struct sgrad__memory_limit){ .waves = true,
                                                         .instruction = SGRAD__INSTRUCTION_BYTES,
                                                         .instructions = run->batch.limit.instructions,
                                                         .spills = spills,
                                                         .speed = chooser->pace.disk,
                                                         .flops = chooser->pace.flops,
                                                         .bandwidth = chooser->pace.bandwidth };
    sgrad__homes_free(&homes);
    return search;
}

/* Builds the program as a run would choose it; NULL: the limit is too low. Sets *OTHER to the bytes that steps do not use, and
 * *LAYERS to the number of layers that are recomputed because of the limit. */
static struct sgrad__program *build(const struct chooser *chooser, const struct sgrad__run *run, double saved, double *other,
                                    int *layers) {
    struct attempt attempt = { run, saved };
    const struct sgrad__limit_search search = search_for(chooser, &attempt);
    double *before = sgrad__limit_marks(run->graph);
    const struct sgrad__limit_choice choice = sgrad__limit_choose(&search);
    struct sgrad_program_options o = search.options;
    struct sgrad__program *program = NULL;
    *layers = choice.recomputation.layers;
    if (choice.moved >= 0) {
        *other = use_with(&attempt, choice.moved).other;
        o.limit.moved = choice.moved;
        o.limit.bytes = search.bytes - *other;
        if (sgrad__program_build(run->graph, &o, &program)) program = NULL;
    }
    sgrad__limit_set_marks(run->graph, before);
    free(before);
    return program;
}

/* ---- the curve of memory ---- */

struct change {
    double seconds, bytes;
};

static int by_time(const void *one, const void *other) {
    const struct change *a = one, *b = other;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

/* Returns true if the curve shows the memory of BUFFER: activations, and other buffers whose memory is planned. */
static bool is_counted(const struct sgrad__buffer *buffer) {
    return buffer->planned || (buffer->rows && buffer->lifetime == SGRAD_TRANSIENT && buffer->copies == 1);
}

/* Returns the changes of the bytes of activations: each has memory from the start of its first instruction to the end of its
 * last one. */
static struct change *find_changes(const struct sgrad__program *program, const struct sgrad__schedule *schedule, int *count) {
    struct change *change = sgrad_xcalloc(2 * (size_t)program->buffer_count + 1, sizeof *change);
    double *first = sgrad_xcalloc((size_t)program->buffer_count + 1, sizeof *first),
           *last = sgrad_xcalloc((size_t)program->buffer_count + 1, sizeof *last);
    for (int b = 0; b < program->buffer_count; b++) first[b] = INFINITY;
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad__instruction *in = &program->instruction[i];
        for (int j = 0; j < in->call->operands && in->call->kernel != &sgrad__claim_kernel; j++) {
            if (in->operand[j] < 0 || !is_counted(&program->buffer[in->operand[j]])) continue;
            first[in->operand[j]] = fmin(first[in->operand[j]], schedule->begin[i]);
            last[in->operand[j]] = fmax(last[in->operand[j]], schedule->end[i]);
        }
    }
    *count = 0;
    for (int b = 0; b < program->buffer_count; b++) {
        if (!(first[b] < INFINITY)) continue;
        const double bytes = (double)sgrad_view_bytes(&program->buffer[b].view);
        change[(*count)++] = (struct change){ first[b], bytes };
        change[(*count)++] = (struct change){ last[b], -bytes };
    }
    free(first);
    free(last);
    qsort(change, (size_t)*count, sizeof *change, by_time);
    return change;
}

static int by_begin(const void *one, const void *other) {
    const struct sgrad_memory_move *a = one, *b = other;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Sets CURVE: OTHER bytes, and the activations of PROGRAM; of each slot of time the maximum. */
static void draw(const struct chooser *chooser, const struct sgrad__program *program, double other,
                 struct sgrad_memory_curve *curve) {
    struct sgrad__schedule when;
    int count, next = 0;
    const double length = schedule(chooser, program, true, &when);
    struct change *change = find_changes(program, &when, &count);
    double now = other;
    *curve = (struct sgrad_memory_curve){ .points = SLOTS,
                                          .end = length,
                                          .seconds = sgrad_xcalloc(SLOTS, sizeof *curve->seconds),
                                          .bytes = sgrad_xcalloc(SLOTS, sizeof *curve->bytes) };
    for (int s = 0; s < SLOTS; s++) {
        curve->seconds[s] = s * length / SLOTS;
        curve->bytes[s] = now;
        for (; next < count && change[next].seconds <= (s + 1) * length / SLOTS; next++) {
            now += change[next].bytes;
            curve->bytes[s] = fmax(curve->bytes[s], now);
        }
    }
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad_bound_kernel *call = program->instruction[i].call;
        if (!sgrad__is_move(call)) continue;
        curve->move = sgrad_array_grow(curve->move, curve->count, sizeof *curve->move);
        curve->move[curve->count++] =
            (struct sgrad_memory_move){ when.begin[i], when.end[i], call->kernel == &sgrad__fetch_kernel };
    }
    if (curve->count) qsort(curve->move, (size_t)curve->count, sizeof *curve->move, by_begin);
    free(change);
    sgrad__schedule_free(&when);
}

/* ---- all choices ---- */

/* Adds the choice of RUN with SHARD. WHOLE: its program without a limit. Draws the curves of the first one. Returns true if it
 * fits without moves. */
static bool add(struct chooser *chooser, const struct sgrad__run *run, const struct sgrad__program *whole, const char *shard) {
    struct sgrad_memory_result *all = chooser->result;
    const struct sgrad__memory memory = sgrad__program_memory(whole, chooser->pace.workers, NULL);
    const double less = saved(chooser, run, shard, &memory);
    double other = run->batch.other_memory - less;
    struct sgrad_memory_choice c = { .micro = (long)run->batch.micro,
                                     .recomputes = run->options.model.recompute,
                                     .shard = shard,
                                     .memory = other + sgrad__memory_all(&memory),
                                     .process = sgrad__run_process_memory(run) };
    if (!all->choices) draw(chooser, whole, c.memory - memory.activations, &all->whole);
    struct sgrad__program *p = build(chooser, run, less, &other, &c.recomputed);
    if (p) {
        const struct sgrad__memory limited = sgrad__program_memory(p, chooser->pace.workers, NULL);
        c.fits = true, c.moves = p->spilling.read > 0;
        c.step = schedule(chooser, p, true, NULL);
        c.waiting = c.moves ? fmax(0, c.step - schedule(chooser, p, false, NULL)) : 0;
        c.written = p->spilling.written, c.read = p->spilling.read;
        if (!all->choices) draw(chooser, p, other + sgrad__memory_all(&limited) - limited.activations, &all->limited);
        sgrad__program_destroy(p);
    }
    all->choice = sgrad_array_grow(all->choice, all->choices, sizeof *all->choice);
    all->choice[all->choices] = c;
    if (c.fits && (all->best < 0 || c.step < all->choice[all->best].step)) all->best = all->choices;
    all->choices++;
    return c.fits && !c.moves;
}

/* Sets the rates of a worker, so that the tasks of PROGRAM take the time of the query. */
static void set_pace(struct chooser *chooser, const struct sgrad__program *program) {
    const struct sgrad_memory_query *q = chooser->is;
    double busy = 0;
    chooser->pace = (struct sgrad__pace){ q->workers, q->flops / q->workers, q->bandwidth / q->workers, { q->write, q->read } };
    for (int i = 0; i < program->instruction_count; i++) busy += sgrad__schedule_task(program, &chooser->pace, i) / q->workers;
    if (q->seconds <= 0 || busy <= 0) return;
    chooser->pace.flops *= busy / q->seconds;
    chooser->pace.bandwidth *= busy / q->seconds;
}

static int add_shards(struct chooser *chooser, struct sgrad__run *run) {
    static const char *const shards[] = { NULL, "optimizer", "parameters" };
    const int count = chooser->is->ranks > 1 && !chooser->is->only ? sizeof shards / sizeof *shards : 1;
    struct sgrad_program_options o = sgrad__run_program_options(run, true, run->options.training.batch, run->batch.micro);
    struct sgrad__program *whole;
    o.cpus = chooser->is->workers;
    SGRAD_TRY(sgrad__program_build(run->graph, &o, &whole));
    if (!chooser->result->choices) set_pace(chooser, whole);
    if (chooser->is->write > 0) run->batch.limit.spills = true; /* copies for checkpoints are in files */
    sgrad__run_measure_memory(run);
    for (int s = 0; s < count; s++)
        if (add(chooser, run, whole, shards[s])) break;
    sgrad__program_destroy(whole);
    return 0;
}

static int choose(struct chooser *chooser) {
    const bool asked = chooser->options->model.recompute;
    for (int again = asked; again < (chooser->is->only ? asked + 1 : 2); again++) {
        long micro = chooser->options->training.micro_batch;
        const int sizes = micro || chooser->is->only ? 1 : SIZES;
        for (int s = 0; s < sizes; s++) {
            struct sgrad__run *run;
            int error = open_run(chooser, micro, again, &run);
            const long used = error ? 0 : (long)run->batch.micro;
            if (!error) error = add_shards(chooser, run);
            sgrad__run_close(run);
            free(run);
            SGRAD_TRY(error);
            micro = used / 2;
            if (!micro) break;
        }
    }
    return 0;
}

int sgrad_memory_choose(const struct sgrad_train_options *options, const struct sgrad_memory_query *query,
                        struct sgrad_memory_result *result) {
    struct chooser chooser = { .options = options, .is = query, .result = result };
    *result = (struct sgrad_memory_result){ .best = -1 };
    const int error = choose(&chooser);
    if (error) sgrad_memory_result_free(result);
    return error;
}

static void free_curve(struct sgrad_memory_curve *curve) {
    free(curve->seconds);
    free(curve->bytes);
    free(curve->move);
}

void sgrad_memory_result_free(struct sgrad_memory_result *result) {
    free(result->choice);
    free_curve(&result->whole);
    free_curve(&result->limited);
    *result = (struct sgrad_memory_result){ .best = -1 };
}
