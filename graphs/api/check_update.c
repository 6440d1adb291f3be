/* check_update.c: checks an optimizer. Its kernel updates parameters of some shapes, in the memory of this thread:
 *
 *     states     their number is that of the record: each is written, those of an own shape only for matrices, and no gradient
 *                or other operand is
 *     steps      go against the gradient, at the latest the second one; without gradient and decay, or with a learning rate of
 *                0, nothing changes
 *     rate       is that of the step times the multiplier of the parameter (--lr-of)
 *     clipping   is applied: if half of the norm is allowed, half of the gradient is used
 *     shards     of a parameter are updated as in the whole, unless the record requires the whole parameter */
#include "config.h"
#include "codelets/updates.h"
#include "graphs/api/check.h"
#include "graphs/compiler/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMETER, GRADIENT, NORM, STATES, MOST = SGRAD_MAX_OPERANDS, GUARD = 16 };
static const float guard = 12345.5f;

struct trial {
    const struct sgrad_optimizer *is;
    struct sgrad_shape shape;
    int states;
    struct sgrad_hyper hyper;
    double norm;                /* Σ g²; negative: absent */
    struct sgrad_view view[MOST];
    /* with guards on both sides; states that the record does not have are allocated too, and must not be written */
    float *data[MOST];
};

#define WRONG(t, ...) wrong(t, sgrad_format(__VA_ARGS__))
static int wrong(const struct trial *trial, char *what) {
    char text[SGRAD_SHAPE_TEXT];
    const int error = sgrad_log_error(SGRAD_EINVAL, "optimizer %s, a parameter of shape %s: %s", trial->is->name,
                                      sgrad_shape_text(&trial->shape, text), what);
    free(what);
    return error;
}

static int64_t count_of(const struct trial *trial, int operand) { return sgrad_shape_count(&trial->view[operand].shape); }

static float *guarded(int64_t count) {
    float *data = sgrad_xcalloc((size_t)count + 2 * GUARD, sizeof *data);
    for (int i = 0; i < GUARD; i++) data[i] = data[GUARD + count + i] = guard;
    return data + GUARD;
}

static bool is_guarded(const struct trial *trial, int operand) {
    for (int i = 1; i <= GUARD; i++)
        if (trial->data[operand][-i] != guard || trial->data[operand][count_of(trial, operand) + i - 1] != guard) return false;
    return true;
}

static float number(int64_t i, int stream) {
    return 2 * sgrad_uniform(sgrad_philox(11, SGRAD_STREAM_DATA, (uint32_t)stream, (uint64_t)i, 0).word[0]) - 1;
}

static void open_trial(struct trial *trial, const struct sgrad_optimizer *is, struct sgrad_shape shape) {
    *trial = (struct trial){ .is = is, .shape = shape, .norm = -1 };
    trial->hyper = (struct sgrad_hyper){ .momentum = 0.9f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .trust = 0.001f };
    while (is->states && is->states[trial->states].name) trial->states++;
    for (int i = 0; i < MOST; i++) {
        const struct sgrad_state *state = i >= STATES && i - STATES < trial->states ? &is->states[i - STATES] : NULL;
        trial->view[i] = (struct sgrad_view){ SGRAD_F32, state && state->shape ? state->shape(&shape) : shape };
        trial->data[i] = guarded(count_of(trial, i));
        for (int64_t k = 0; k < count_of(trial, i) && i < NORM; k++) trial->data[i][k] = number(k, i) + (i == PARAMETER ? 2 : 0);
        for (int64_t k = 0; k < count_of(trial, i) && i >= STATES + trial->states; k++) trial->data[i][k] = guard;
    }
}

static void close_trial(struct trial *trial) {
    for (int i = 0; i < MOST; i++) free(trial->data[i] - GUARD);
}

/* Multiplies the gradient elements that are larger in step NUMBER than in the others, by a power of two, so that BY can be undone
 * exactly. An optimizer that adapts to the gradients may not be well-defined if all of them are equal. */
static void vary(struct trial *trial, uint32_t number, float by) {
    for (int64_t i = 0; i < count_of(trial, GRADIENT); i++)
        if ((i + number) % 3 == 0) trial->data[GRADIENT][i] *= by;
}

/* Executes one step with learning rate RATE. */
static void step(struct trial *trial, uint32_t number, float rate) {
    const struct sgrad_step step = { .seed = 3, .number = number, .training = true, .lr = rate,
                                      .lr_share = 1 / (float)number };
    const struct sgrad_batch batch = { 8, 8, 8 };
    struct sgrad_view view[MOST];
    void *data[MOST];
    for (int i = 0; i < MOST; i++) view[i] = trial->view[i], data[i] = trial->data[i];
    view[NORM] = (struct sgrad_view){ SGRAD_F64, { 1, { 1 } } };
    data[NORM] = &trial->norm;
    if (trial->norm < 0) data[NORM] = NULL, view[NORM].shape.rank = -1;
    struct sgrad_args args = { .view = view, .data = data, .attrs = &trial->hyper, .step = &step, .batch = &batch,
                               .deterministic = true };
    args.workspace_size = trial->is->update->workspace ? trial->is->update->workspace(&args) : 0;
    args.workspace = sgrad_xcalloc(args.workspace_size + 1, 1);
    vary(trial, number, 2);
    trial->is->update->cpu(&args);
    vary(trial, number, 0.5f);
    free(args.workspace);
}

static void scale(struct trial *trial, int operand, float by) {
    for (int64_t i = 0; i < count_of(trial, operand); i++) trial->data[operand][i] *= by;
}

/* ---- checks ---- */

static int check_states(struct trial *trial) {
    float *gradient = sgrad_xcalloc((size_t)count_of(trial, GRADIENT), sizeof *gradient);
    memcpy(gradient, trial->data[GRADIENT], (size_t)count_of(trial, GRADIENT) * sizeof *gradient);
    for (uint32_t n = 1; n <= 3; n++) step(trial, n, 0.1f);
    const bool kept = !memcmp(gradient, trial->data[GRADIENT], (size_t)count_of(trial, GRADIENT) * sizeof *gradient);
    free(gradient);
    if (!kept) return WRONG(trial, "changes the gradient, which must only be read");
    for (int i = 0; i < MOST; i++)
        if (i != NORM && !is_guarded(trial, i)) return WRONG(trial, "writes beyond the end of operand %d", i);
    for (int i = STATES; i < MOST; i++) {
        bool written = false;
        const float before = i < STATES + trial->states ? 0 : guard;
        for (int64_t k = 0; k < count_of(trial, i); k++) written |= trial->data[i][k] != before;
        const bool spared = trial->shape.rank < 2 && i < STATES + trial->states && trial->is->states[i - STATES].shape;
        if (!written && i < STATES + trial->states && !spared)
            return WRONG(trial, "never writes its state %s", trial->is->states[i - STATES].name);
        if (written && i >= STATES + trial->states)
            return WRONG(trial, "writes operand %d, but its record has only %d %s, operands 3 to %d", i, trial->states,
                         sgrad_plural(trial->states, "state", "states"), STATES + trial->states - 1);
    }
    for (int64_t k = 0; k < count_of(trial, PARAMETER); k++)
        if (!isfinite(trial->data[PARAMETER][k]))
            return WRONG(trial, "element %lld becomes %g", (long long)k, trial->data[PARAMETER][k]);
    return 0;
}

/* Returns the product of the first two steps with the gradient: negative if they go against it. *MOVES: the parameter has
 * changed. */
static double along(struct trial *trial, float rate, bool *moves) {
    const int64_t count = count_of(trial, PARAMETER);
    float *before = sgrad_xcalloc((size_t)count, sizeof *before);
    double sum = 0;
    memcpy(before, trial->data[PARAMETER], (size_t)count * sizeof *before);
    for (uint32_t n = 1; n <= 2; n++) step(trial, n, rate);
    *moves = memcmp(before, trial->data[PARAMETER], (size_t)count * sizeof *before) != 0;
    for (int64_t i = 0; i < count; i++) sum += (double)(trial->data[PARAMETER][i] - before[i]) * trial->data[GRADIENT][i];
    free(before);
    return sum;
}

static int check_step(struct trial *trial) {
    bool moves;
    if (!(along(trial, 0.1f, &moves) < 0)) return WRONG(trial, "its first two steps do not go against the gradient");
    return 0;
}

static int check_no_rate(struct trial *trial) {
    bool moves;
    along(trial, 0, &moves);
    return moves ? WRONG(trial, "a step with a learning rate of 0 changes the parameter") : 0;
}

static int check_no_gradient(struct trial *trial) {
    bool moves;
    scale(trial, GRADIENT, 0);
    along(trial, 0.1f, &moves);
    return moves ? WRONG(trial, "a step without gradient and weight decay changes the parameter") : 0;
}

/* Checks that TRIAL and OTHER have the same parameter values, to rounding, in the first COUNT elements. */
static int check_same(const struct trial *trial, const struct trial *other, int64_t count, const char *what) {
    for (int64_t i = 0; i < count; i++) {
        const float a = trial->data[PARAMETER][i], b = other->data[PARAMETER][i];
        if (!(fabsf(a - b) <= 1e-5f * fabsf(b)))
            return WRONG(trial, "%s: element %lld becomes %.9g, not %.9g", what, (long long)i, a, b);
    }
    return 0;
}

static int with(const struct sgrad_optimizer *is, struct sgrad_shape shape, int (*check)(struct trial *trial)) {
    struct trial trial;
    open_trial(&trial, is, shape);
    const int error = check(&trial);
    close_trial(&trial);
    return error;
}

/* Checks that two trials, changed by HOW in different manners, have the same result. */
static int compare(const struct sgrad_optimizer *is, struct sgrad_shape shape, const char *what,
                   void (*how)(struct trial *one, struct trial *other)) {
    struct trial one, other;
    open_trial(&one, is, shape);
    open_trial(&other, is, shape);
    how(&one, &other);
    for (uint32_t n = 1; n <= 2; n++) step(&one, n, 0.1f), step(&other, n, 0.1f);
    const int error = check_same(&one, &other, count_of(&one, PARAMETER), what);
    close_trial(&one);
    close_trial(&other);
    return error;
}

static void clip(struct trial *one, struct trial *other) {
    one->norm = 16, one->hyper.clip_norm = 2.0000005f;      /* half of 4 + 1e-6 (updates.h): a factor of 0.5, to the bit */
    scale(other, GRADIENT, 0.5f);
}

/* Reduces the parameter to its first half, as if a rank stored only this shard. */
static void cut(struct trial *one, struct trial *other) {
    (void)other;
    for (int i = 0; i < MOST; i++) {
        const int64_t part = (count_of(one, i) + 1) / 2;
        if (i != NORM) one->view[i].shape = (struct sgrad_shape){ 1, { part } };
    }
}

static int check_rate(const struct sgrad_optimizer *is, struct sgrad_shape shape) {
    struct trial one, other;
    open_trial(&one, is, shape);
    open_trial(&other, is, shape);
    one.hyper.lr_scale = 0.25f;
    for (uint32_t n = 1; n <= 2; n++) step(&one, n, 0.4f), step(&other, n, 0.1f);
    const int error = check_same(&one, &other, count_of(&one, PARAMETER), "with a quarter of the learning rate (--lr-of)");
    close_trial(&one);
    close_trial(&other);
    return error;
}

int sgrad_optimizer_check(const struct sgrad_optimizer *is) {
    static const struct sgrad_shape shapes[] = { { 1, { 1 } }, { 1, { 7 } }, { 2, { 16, 17 } }, { 4, { 5, 3, 3, 4 } },
                                                 { 2, { 3, 531 } } };
    if (!is->update || !is->update->cpu) return sgrad_log_error(SGRAD_EINVAL, "optimizer %s: has no kernel for CPUs", is->name);
    if (sgrad__layer_hooks_of(is)) return 0;       /* updates all parameters together: only built-in ones do */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        bool own = false;       /* a state with its own shape cannot be sharded */
        for (const struct sgrad_state *s = is->states; s && s->name; s++) own |= s->shape != NULL;
        SGRAD_TRY(with(is, shapes[i], check_states));
        SGRAD_TRY(with(is, shapes[i], check_step));
        SGRAD_TRY(with(is, shapes[i], check_no_rate));
        SGRAD_TRY(with(is, shapes[i], check_no_gradient));
        SGRAD_TRY(check_rate(is, shapes[i]));
        SGRAD_TRY(compare(is, shapes[i], "with clipping to half of the gradient norm", clip));
        if (!is->needs_full_tensor && !own) SGRAD_TRY(compare(is, shapes[i], "a shard, updated separately", cut));
    }
    return 0;
}
