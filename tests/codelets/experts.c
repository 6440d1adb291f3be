/* experts.c: mixtures of experts. Rows use their experts and no others: outputs and gradients are those of plain loops over rows
 * and experts, in double precision, for any number of rows of an expert. Routers choose the experts that their comment states
 * with equal numbers, with NaNs and with a bias, which follows the load. The gradient of balance is that of its loss. */
#include "codelets/ops/balance.h"
#include "codelets/ops/experts.h"
#include "codelets/ops/router.h"
#include "tests/codelets/check.h"

enum { ROWS = 9, C = 6, E = 5, F = 7, ACTIVE = 2 };

static double *values_of(struct instance *instance, enum sgrad_role role, int i) {
    return instance_read(instance->tensor[role][i]);
}

static double silu(double x) { return x / (1 + exp(-x)); }
static double silu_slope(double x) { return (1 + x * (1 - 1 / (1 + exp(-x)))) / (1 + exp(-x)); }

/* The weight of expert E for a row: expert 0 has no rows, expert 1 has all, and each other one has some. */
static double weight_of(int row, int e) {
    return e == 1 || e == 2 + row % 3 ? 0.3 + 0.1 * ((row + e) % 5) : 0;
}

/* Everything that an instance reads (given) and that the loops compute from it (wanted). */
struct mixture {
    double *x, *w, *gate, *up, *down, *dy;
    double y[ROWS * C], dx[ROWS * C], dw[ROWS * E], dgate[E * F * C], dup[E * F * C], ddown[E * C * F];
};

/* One row and expert, of which the first feature of the matrices is at M. */
static void add_term(struct mixture *is, int row, int e) {
    const double w = is->w[row * E + e], *x = is->x + row * C, *dy = is->dy + row * C;
    const int m = e * F * C;
    for (int f = 0; f < F && w != 0; f++) {
        double g = 0, u = 0, slope = 0;
        for (int c = 0; c < C; c++) {
            g += is->gate[m + f * C + c] * x[c];
            u += is->up[m + f * C + c] * x[c];
            slope += is->down[m + c * F + f] * dy[c];
        }
        const double h = silu(g) * u, dg = w * slope * u * silu_slope(g), du = w * slope * silu(g);
        is->dw[row * E + e] += slope * h;
        for (int c = 0; c < C; c++) {
            is->y[row * C + c] += w * is->down[m + c * F + f] * h;
            is->dx[row * C + c] += dg * is->gate[m + f * C + c] + du * is->up[m + f * C + c];
            is->dgate[m + f * C + c] += dg * x[c];
            is->dup[m + f * C + c] += du * x[c];
            is->ddown[m + c * F + f] += w * h * dy[c];
        }
    }
}

static bool equals(struct instance *instance, enum sgrad_role role, int i, const char *what, const double *wanted) {
    double *got = values_of(instance, role, i);
    const bool good = near(what, got, wanted, instance_count(instance->tensor[role][i]), 2e-5);
    free(got);
    return good;
}

static void uses_own_experts(void **state) {
    (void)state;
    static struct mixture is;
    const struct sgrad_test test = { "own", { { 3, { 3, 3, C } }, { 3, { 3, 3, E } } },
                                     &(struct sgrad_experts){ .features = F, .active = ACTIVE } };
    struct instance instance;
    double weight[ROWS * E];
    memset(&is, 0, sizeof is);
    assert_done(instance_open(&instance, &sgrad_experts_op, &test, SGRAD_F32));
    instance_fill(&instance);
    for (int i = 0; i < ROWS * E; i++) weight[i] = weight_of(i / E, i % E);
    instance_write(instance.tensor[SGRAD_X][1], weight);
    double **given[] = { &is.x, &is.w, &is.gate, &is.up, &is.down, &is.dy };
    const enum sgrad_role role[] = { SGRAD_X, SGRAD_X, SGRAD_P, SGRAD_P, SGRAD_P, SGRAD_DY };
    const int index[] = { 0, 1, 0, 1, 2, 0 };
    for (int i = 0; i < 6; i++) *given[i] = values_of(&instance, role[i], index[i]);
    for (int i = 0; i < ROWS * E; i++) add_term(&is, i / E, i % E);
    assert_done(instance_run(&instance, sgrad_experts_op.inference, 0));
    bool good = equals(&instance, SGRAD_Y, 0, "y outside training", is.y);
    assert_done(instance_run(&instance, sgrad_experts_op.forward, 0));
    assert_done(instance_run(&instance, sgrad_experts_op.backward, 0));
    good &= equals(&instance, SGRAD_Y, 0, "y", is.y) & equals(&instance, SGRAD_DX, 0, "dx", is.dx);
    good &= equals(&instance, SGRAD_DX, 1, "dw", is.dw) & equals(&instance, SGRAD_DP, 0, "dgate", is.dgate);
    good &= equals(&instance, SGRAD_DP, 1, "dup", is.dup) & equals(&instance, SGRAD_DP, 2, "ddown", is.ddown);
    for (int i = 0; i < 6; i++) free(*given[i]);
    instance_close(&instance);
    assert_true(good);
}

/* Runs a router on X (ROWS,E), and its finish task. */
static void route(struct sgrad_router attrs, const double *x, const double *bias, double *y, double *new_bias) {
    const struct sgrad_test test = { "route", { { 2, { ROWS, E } } }, &attrs };
    struct instance instance;
    assert_done(instance_open(&instance, &sgrad_router_op, &test, SGRAD_F32));
    instance_write(instance.tensor[SGRAD_X][0], x);
    if (bias) instance_write(instance.tensor[SGRAD_S][0], bias);
    /* only a router with a bias counts rows */
    struct sgrad_task forward[2] = { sgrad_router_op.forward[0] };
    assert_done(instance_run(&instance, bias ? sgrad_router_op.forward : forward, 0));
    if (bias) assert_done(instance_run(&instance, sgrad_router_op.finish, 0));
    double *got = values_of(&instance, SGRAD_Y, 0), *moved = bias ? values_of(&instance, SGRAD_S, 0) : NULL;
    memcpy(y, got, ROWS * E * sizeof *y);
    if (bias) memcpy(new_bias, moved, E * sizeof *moved);
    free(got);
    free(moved);
    instance_close(&instance);
}

static void chooses(void **state) {
    (void)state;
    double x[ROWS * E], y[ROWS * E], bias[E] = { 0, 0, 0, 0.9, 0.9 }, moved[E];
    for (int i = 0; i < ROWS * E; i++) x[i] = i / E == 1 ? NAN : i / E == 2 && i % E > 2 ? 1 : 0;
    route((struct sgrad_router){ .active = ACTIVE, .normalize = true }, x, NULL, y, NULL);
    for (int e = 0; e < E; e++) {
        assert_near(y[e], e < ACTIVE ? 0.5 : 0, 1e-6);          /* equal numbers: the first */
        assert_true(e < ACTIVE ? isnan(y[E + e]) : y[E + e] == 0);  /* NaNs reach the loss, from as many experts */
        assert_near(y[2 * E + e], e > 2 ? 0.5 : 0, 1e-6);
    }
    x[E] = x[E + 1] = x[E + 2] = x[E + 3] = x[E + 4] = 0;
    route((struct sgrad_router){ .active = ACTIVE, .sigmoid = true, .rate = 0.25f }, x, bias, y, moved);
    for (int e = 0; e < E; e++) {
        assert_near(y[e], e > 2 ? 0.5 : 0, 1e-6);               /* the bias chooses, but is not part of y */
        assert_near(moved[e], bias[e] + (e > 2 ? -0.25 : 0.25), 1e-6);
    }
}

/* The loss of balance, of numbers X (ROWS,2·E) of two layers, in which no two numbers of a layer are near. */
static double balance_loss(const double *x, double coefficient) {
    double active[E] = { 0 }, mean[E] = { 0 }, loss = 0;
    for (int r = 0; r < 2 * ROWS; r++) {
        double sum = 0;
        for (int e = 0; e < E; e++) sum += exp(x[r * E + e]);
        for (int e = 0; e < E; e++) {
            int larger = 0;
            for (int other = 0; other < E; other++) larger += x[r * E + other] > x[r * E + e];
            active[e] += larger < ACTIVE ? 1.0 / (2 * ROWS) : 0;
            mean[e] += exp(x[r * E + e]) / sum / (2 * ROWS);
        }
    }
    for (int e = 0; e < E; e++) loss += coefficient * E * active[e] * mean[e];
    return loss;
}

static void balances(void **state) {
    (void)state;
    const struct sgrad_test test = { "balance", { { 3, { 3, 3, C } }, { 3, { 3, 3, 2 * E } } },
                                     &(struct sgrad_balance){ .experts = E, .active = ACTIVE, .coefficient = 0.75f } };
    struct instance instance;
    double x[ROWS * 2 * E], wanted[ROWS * 2 * E];
    for (int i = 0; i < ROWS * 2 * E; i++) x[i] = 0.375 * ((i / E + 3 * (i % E)) % E) + 0.0625 * (i % 3);
    assert_done(instance_open(&instance, &sgrad_balance_op, &test, SGRAD_F32));
    instance_fill(&instance);
    instance_write(instance.tensor[SGRAD_X][1], x);
    assert_done(instance_run(&instance, sgrad_balance_op.forward, 0));
    assert_done(instance_run(&instance, sgrad_balance_op.backward, 0));
    for (int i = 0; i < ROWS * 2 * E; i++) {
        const double at = x[i], h = 1e-5;
        x[i] = at + h;
        wanted[i] = balance_loss(x, 0.75);
        x[i] = at - h;
        wanted[i] = (wanted[i] - balance_loss(x, 0.75)) / (2 * h);
        x[i] = at;
    }
    double *given = values_of(&instance, SGRAD_X, 0), *dy = values_of(&instance, SGRAD_DY, 0);
    bool good = equals(&instance, SGRAD_Y, 0, "y", given) & equals(&instance, SGRAD_DX, 0, "dx0", dy);
    good &= equals(&instance, SGRAD_DX, 1, "dx1", wanted);
    free(given);
    free(dy);
    instance_close(&instance);
    assert_true(good);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("rows use their experts, and no others", uses_own_experts),
        sentence("routers choose with equal numbers, with NaNs and with a bias", chooses),
        sentence("balance adds the gradient of its loss", balances),
    };
    return run_sentences(argc, argv, tests, check_on_cpus, check_close);
}
