/* ring.c: attention of ranks that have parts of the rows of samples. For each rank, the kernels of ring_attention are called for
 * the blocks of all ranks, in the order of the ring. Outputs and gradients together are those of attention of all rows, for any
 * number of ranks, of rows, and of documents. */
#include "codelets/ops/document_attention.h"
#include "codelets/ops/ring_document_attention.h"
#include "tests/codelets/check.h"

enum { N = 2, HEADS = 4, KV = 2, D = 6, C = HEADS * D, K = KV * D, WIDE = C + 2 * K, MOST_ROWS = 400, MOST_RANKS = 5 };

/* Calls a kernel of the operands, of which some are absent: rank -1. Those of ADDED are added to. */
static void call(const struct sgrad_kernel *kernel, const void *attrs, const struct sgrad_view *view, void *const *data,
                 uint64_t added) {
    struct sgrad_args args = { .view = view, .data = data, .attrs = attrs, .accumulate = added };
    args.workspace_size = kernel->workspace ? kernel->workspace(&args) : 0;
    args.workspace = sgrad_xcalloc(1, args.workspace_size + 1);
    kernel->cpu(&args);
    free(args.workspace);
}

static struct sgrad_view rows_of(int64_t rows, int64_t width) {
    return (struct sgrad_view){ SGRAD_F32, { 3, { N, rows, width } } };
}

/* What attention reads and computes, of ROWS rows. */
struct values {
    int rows;
    float x[N * MOST_ROWS * WIDE], y[N * MOST_ROWS * C], saved[N * HEADS * MOST_ROWS];
    float dy[N * MOST_ROWS * C], dx[N * MOST_ROWS * WIDE];
    int32_t start[N * MOST_ROWS];
};

static void attend(struct values *is) {
    const struct sgrad_document_attention attrs = { .heads = HEADS, .kv_heads = KV, .causal = true, .documents = true };
    const struct sgrad_view wide = rows_of(is->rows, WIDE), out = rows_of(is->rows, C), none = { .shape.rank = -1 };
    const struct sgrad_view saved = { SGRAD_F32, { 3, { N, HEADS, is->rows } } }, start = { SGRAD_I32, { 2, { N, is->rows } } };
    const struct sgrad_op *op = &sgrad_document_attention_op;
    call(&op->forward[0].kernel, &attrs, (struct sgrad_view[]){ wide, out, saved, none, none, start },
         (void *[]){ is->x, is->y, is->saved, NULL, NULL, is->start }, 0);
    call(&op->backward[0].kernel, &attrs, (struct sgrad_view[]){ wide, out, out, saved, wide, none, none, none, none, start },
         (void *[]){ is->x, is->y, is->dy, is->saved, is->dx, NULL, NULL, NULL, NULL, is->start }, 0);
}

/* Copies the rows of a rank, of WIDTH numbers of SIZE bytes: from all rows to PART, or back. */
static void move_rows(const struct sgrad_zigzag *at, int all, int rows, size_t bytes, void *whole, void *part, bool back) {
    for (int n = 0; n < N; n++)
        for (int t = 0; t < rows; t++) {
            char *x = (char *)whole + (size_t)(n * all + sgrad_zigzag_position(at, t)) * bytes,
                 *y = (char *)part + (size_t)(n * rows + t) * bytes;
            memcpy(back ? x : y, back ? y : x, bytes);
        }
}

struct rank {
    struct sgrad_ring_document_attention attrs;
    struct values is;
    float block[N * MOST_ROWS * 2 * K], dblock[N * MOST_ROWS * 2 * K];
};
static struct rank rank[MOST_RANKS];

/* The tasks of RANK for the block of another one. FIRST: its own. Adds the gradient of the block to its rank. */
static void turn(struct rank *own, struct rank *of, int place, bool backward, bool first) {
    static float dblock[N * MOST_ROWS * 2 * K];
    const struct sgrad_op *op = &sgrad_ring_document_attention_op;
    struct values *is = &own->is;
    const struct sgrad_view wide = rows_of(is->rows, WIDE), out = rows_of(is->rows, C), block = rows_of(is->rows, 2 * K);
    const struct sgrad_view saved = { SGRAD_F32, { 3, { N, HEADS, is->rows } } }, start = { SGRAD_I32, { 2, { N, is->rows } } };
    struct sgrad_ring_document_attention attrs = own->attrs;
    op->set_shard(place, &attrs);
    if (!backward)
        call(&op->forward[1].kernel, &attrs, (struct sgrad_view[]){ wide, out, saved, block, start },
             (void *[]){ is->x, is->y, is->saved, of->block, is->start }, first ? 0 : 6);
    else
        call(&op->backward[1].kernel, &attrs, (struct sgrad_view[]){ wide, out, out, saved, wide, block, block, start },
             (void *[]){ is->x, is->y, is->dy, is->saved, is->dx, of->block, dblock, is->start }, first ? 0 : 1 << 4);
    for (int i = 0; backward && i < N * is->rows * 2 * K; i++) of->dblock[i] += dblock[i];
}

/* Runs the ring for RANKS ranks, on the values of ALL, and writes y and dx to ALL. */
static void run_ring(struct values *all, int ranks, bool documents) {
    const struct sgrad_mesh mesh = { 1, { { .name = "context", .ranks = ranks } } };
    const struct sgrad_op *op = &sgrad_ring_document_attention_op;
    const int rows = all->rows / ranks;
    const struct sgrad_view wide = rows_of(rows, WIDE), block = rows_of(rows, 2 * K), none = { .shape.rank = -1 };
    for (struct rank *r = rank; r < rank + ranks; r++) {
        r->attrs = (struct sgrad_ring_document_attention){ .axis = "context", .heads = HEADS, .kv_heads = KV, .causal = true,
                                                           .documents = documents };
        op->set_rank(&(struct sgrad_signature){ .mesh = &mesh, .x = { wide } }, (int)(r - rank), &r->attrs);
        r->is.rows = rows;
        memset(r->dblock, 0, sizeof r->dblock);
        memset(r->is.dx, 0x7f, sizeof r->is.dx);
        move_rows(&r->attrs.rows, all->rows, rows, WIDE * sizeof(float), all->x, r->is.x, false);
        move_rows(&r->attrs.rows, all->rows, rows, C * sizeof(float), all->dy, r->is.dy, false);
        move_rows(&r->attrs.rows, all->rows, rows, sizeof(int32_t), all->start, r->is.start, false);
        call(&op->forward[0].kernel, &r->attrs, (struct sgrad_view[]){ wide, block, none, none },
             (void *[]){ r->is.x, r->block, NULL, NULL }, 0);
    }
    for (int backward = 0; backward < 2; backward++)
        for (int place = 0; place < ranks; place++)
            for (int i = 0; i < ranks; i++) {
                const int of = (place - i + ranks) % ranks;
                turn(&rank[place], &rank[of], of, backward, i == 0);
            }
    for (struct rank *r = rank; r < rank + ranks; r++) {
        call(&op->backward[2].kernel, &r->attrs, (struct sgrad_view[]){ block, wide, none, none },
             (void *[]){ r->dblock, r->is.dx, NULL, NULL }, 1 << 1);
        move_rows(&r->attrs.rows, all->rows, rows, C * sizeof(float), all->y, r->is.y, true);
        move_rows(&r->attrs.rows, all->rows, rows, WIDE * sizeof(float), all->dx, r->is.dx, true);
    }
}

static void compare(const char *what, const float *got, const float *wanted, int count, int ranks, int rows, int documents) {
    double square = 0;
    for (int i = 0; i < count; i++) square += (double)wanted[i] * (double)wanted[i];
    const double scale = sqrt(square / count);
    for (int i = 0; i < count; i++)
        if (!(fabs((double)got[i] - (double)wanted[i]) <= 2e-5 * (scale + fabs((double)wanted[i]))))
            fail_msg("%d ranks, %d rows, documents of %d: %s, element %d, is %g, not %g", ranks, rows, documents, what, i,
                     (double)got[i], (double)wanted[i]);
}

/* LENGTH: the rows of a document; 0: a sample is one. */
static void check(int ranks, int rows, int length) {
    static struct values whole, ring;
    whole.rows = rows;
    for (int i = 0; i < N * rows * WIDE; i++) whole.x[i] = (float)instance_normal(1, i);
    for (int i = 0; i < N * rows * C; i++) whole.dy[i] = (float)instance_normal(2, i);
    for (int i = 0; i < N * rows; i++) whole.start[i] = length ? (int32_t)(i % rows / length * length) : 0;
    ring = whole;
    attend(&whole);
    run_ring(&ring, ranks, length > 0);
    compare("y", ring.y, whole.y, N * rows * C, ranks, rows, length);
    compare("dx", ring.dx, whole.dx, N * rows * WIDE, ranks, rows, length);
}

static void is_attention_of_all_rows(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        check(ranks, 2 * ranks, 0);
        check(ranks, 14 * ranks, 0);
        check(ranks, 70 * ranks, 0);
    }
}

static void stays_within_documents(void **state) {
    (void)state;
    static const int lengths[] = { 1, 3, 35, 64, 100, 1000 };
    for (int ranks = 1; ranks <= 4; ranks++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            check(ranks, 10 * ranks, lengths[i]);
            check(ranks, 70 * ranks, lengths[i]);
        }
}

/* Ranks have all rows, and each the same number of pairs of a query and a key. */
static void is_balanced(void **state) {
    (void)state;
    const struct sgrad_op *op = &sgrad_ring_document_attention_op;
    for (int ranks = 1; ranks <= 8; ranks++) {
        const struct sgrad_mesh mesh = { 1, { { .name = "context", .ranks = ranks } } };
        int seen[8 * 6] = { 0 };
        for (int r = 0; r < ranks; r++) {
            struct sgrad_ring_document_attention attrs = { .axis = "context" };
            op->set_rank(&(struct sgrad_signature){ .mesh = &mesh, .x = { rows_of(6, WIDE) } }, r, &attrs);
            int pairs = 0;
            for (int t = 0; t < 6; t++) {
                const int at = (int)sgrad_zigzag_position(&attrs.rows, t);
                seen[at]++;
                pairs += at + 1;
            }
            assert_int_equal(pairs, 6 * (6 * ranks + 1) / 2);
        }
        for (int t = 0; t < 6 * ranks; t++) assert_int_equal(seen[t], 1);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("attention in a ring equals attention of all rows", is_attention_of_all_rows),
        sentence("attention in a ring stays within documents", stays_within_documents),
        sentence("all ranks of a ring have the same work", is_balanced),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
