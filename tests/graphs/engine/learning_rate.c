/* Learning rates equal those of torch.optim.lr_scheduler (2.x), stepped once a step. */
#include "config.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

static double rate(const char *text, double warmup, double peak, double epoch, double epochs) {
    struct sgrad_schedule s;
    assert_done(sgrad_schedule_parse(text, &s));
    s.warmup = warmup;
    return sgrad_schedule_lr(&s, peak, 1000 * epoch, 1000 * epochs, 1000);
}

static void constant(void **state) {
    (void)state;
    assert_near(rate("constant", 0, 0.4, 0, 10), 0.4, 0);
    assert_near(rate("constant", 0, 0.4, 9.9, 10), 0.4, 0);
}

/* MultiStepLR([80, 120], gamma=0.1) */
static void steps(void **state) {
    (void)state;
    static const double at[][2] = { { 0, 0.4 },    { 79, 0.4 },    { 79.99, 0.4 }, { 80, 0.04 },
                                    { 119, 0.04 }, { 120, 0.004 }, { 199, 0.004 } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        assert_near(rate("step:80,120:0.1", 0, 0.4, at[i][0], 200), at[i][1], 1e-15);
    assert_near(rate("step:0.5:2", 0, 1, 0.5, 1), 2, 0);
}

/* CosineAnnealingLR(T_max=200) */
static void cosine(void **state) {
    (void)state;
    static const double at[][2] = { { 0, 0.4 },
                                    { 1, 0.39997532649633216 },
                                    { 50, 0.3414213562373096 },
                                    { 133, 0.10090826631351853 },
                                    { 199, 2.4673503667882475e-05 } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) assert_near(rate("cosine", 0, 0.4, at[i][0], 200), at[i][1], 1e-12);
}

/* PolynomialLR(200, power=2) */
static void poly(void **state) {
    (void)state;
    static const double at[][2] = { { 0, 0.4 }, { 1, 0.39601 }, { 50, 0.225 }, { 133, 0.04489 }, { 199, 1e-05 } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) assert_near(rate("poly:2", 0, 0.4, at[i][0], 200), at[i][1], 1e-12);
}

/* numpy.interp(step, [0, 230, 1000], [.2, 1, .07]) times the peak */
static void triangle(void **state) {
    (void)state;
    static const double at[][2] = { { 0, 0.08 }, { 115, 0.24 }, { 230, 0.4 }, { 615, 0.214 }, { 1000, 0.028 } };
    for (size_t i = 0; i < 5; i++) assert_near(rate("triangle:.2,.23,.07", 0, 0.4, at[i][0], 1000), at[i][1], 1e-12);
    assert_near(rate("triangle:0,.5,0", 0, 1, 0, 4), 0, 0);
    assert_near(rate("triangle:1,.5,1", 0, 1, 3, 4), 1, 0);
}

/* OneCycleLR(max_lr, total_steps): its first part ends at step 0.3 total_steps - 1, a fraction; its second at the last step. */
static double torch_onecycle(double peak, int step, int steps) {
    const double top = 0.3 * steps - 1, last = steps - 1;
    const double a = step <= top ? peak / 25 : peak, b = step <= top ? peak : peak / 25 / 1e4;
    return b + (a - b) / 2 * (1 + cos(M_PI * (step <= top ? step / top : (step - top) / (last - top))));
}

static double onecycle_rate(double peak, double warmup, double step, double steps, double steps_per_epoch) {
    const struct sgrad_schedule s = { .kind = SGRAD_ONECYCLE, .warmup = warmup };
    return sgrad_schedule_lr(&s, peak, step, steps, steps_per_epoch);
}

static void onecycle(void **state) {
    (void)state;
    static const double at[][2] = { { 0, 0.016 }, { 100, 0.11258294457947593 }, { 150, 0.20900866724901876 }, { 299, 0.4 },
                                    { 300, 0.3999979858064579 }, { 649, 0.2000008 }, { 998, 3.6141935421479836e-06 },
                                    { 999, 1.6e-06 } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        assert_near(onecycle_rate(0.4, 0, at[i][0], 1000, 390), at[i][1], 1e-12);
    for (int steps = 1; steps < 100; steps++) {
        for (int step = 0; step < steps; step++)
            assert_near(onecycle_rate(0.1, 0, step, steps, 7), torch_onecycle(0.1, step, steps), 1e-15);
        assert_near(onecycle_rate(0.1, 0, steps - 1, steps, 7), 4e-7, 1e-18);
        /* SequentialLR([LinearLR(0, 1, 14), OneCycleLR(total_steps=steps)], milestones=[14]) */
        for (int step = 0; step < 14; step++)
            assert_near(onecycle_rate(0.1, 2, step, steps + 14, 7), torch_onecycle(0.1, 0, steps) * step / 14, 1e-15);
        for (int step = 0; step < steps; step++)
            assert_near(onecycle_rate(0.1, 2, step + 14, steps + 14, 7), torch_onecycle(0.1, step, steps), 1e-15);
    }
}

/* SequentialLR([LinearLR(start_factor=0, total_iters=10), CosineAnnealingLR(190)], milestones=[10]) */
static void warmup(void **state) {
    (void)state;
    static const double at[][2] = { { 0, 0 }, { 1, 0.04 }, { 9, 0.36 }, { 10, 0.4 }, { 11, 0.3999726609984938 }, { 105, 0.2 },
                                    { 199, 2.733900150619918e-05 } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) assert_near(rate("cosine", 10, 0.4, at[i][0], 200), at[i][1], 1e-12);
    assert_near(rate("step:80:0.1", 5, 0.4, 79.9, 200), 0.4, 0);    /* milestones count from the run's beginning */
    assert_near(rate("step:80:0.1", 5, 0.4, 80, 200), 0.04, 1e-15);
    assert_near(rate("constant", 10, 1, 4, 5), 0.4, 1e-15);         /* a run shorter than its warm-up */
    assert_near(rate("cosine", 5, 1, 5, 5), 0, 1e-15);
}

/* Goyal et al. 2017, 2.2: from the rate of the small batch to that of the large one, in equal parts. */
static void gradual_warmup(void **state) {
    (void)state;
    struct sgrad_schedule s = { .kind = SGRAD_CONSTANT, .warmup = 5, .start = 0.1 };
    static const double at[][2] = { { 0, 0.1 }, { 1, 0.72 }, { 2.5, 1.65 }, { 5, 3.2 }, { 9, 3.2 } };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        assert_near(sgrad_schedule_lr(&s, 3.2, at[i][0], 90, 1), at[i][1], 1e-12);
    assert_near(sgrad_schedule_lr(&s, 0.05, 1, 90, 1), 0.05, 0);       /* never down */
}

static void malformed(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "Cosine",
        "cosine:",
        "constant ",
        "steps:1:0.1",
        "step",
        "step:",
        "step:30",
        "step:30:",
        "step::0.1",
        "step:30:0",
        "step:30:-1",
        "step:30:nan",
        "step:30:inf",
        "step:30:0.1x",
        "step:30,:0.1",
        "step:,30:0.1",
        "step:60,30:0.1",
        "step:30,30:0.1",
        "step:-3:0.1",
        "step: 3:0.1",
        "step:0:0.1",
        "step:30:0.1:2",
        "step:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17:0.1",
        "poly",
        "poly:",
        "poly:0",
        "poly:-1",
        "poly:2,3",
        "poly:1e999",
        "poly:.",
        "onecycle:1",
        "triangle",
        "triangle:.2,.3",
        "triangle:.2,0,.1",
        "triangle:.2,1,.1",
        "triangle:2,.5,.1",
        "triangle:.2,.5,.1,",
        "triangle:.2,.5,-1",
        "triangle:nan,.5,.1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sgrad_schedule s = { .factor = 7 };
        assert_fails(sgrad_schedule_parse(bad[i], &s), SGRAD_EINVAL, "step:E1,E2:F");
        assert_near(s.factor, 7, 0);
    }
    struct sgrad_schedule s;
    assert_done(sgrad_schedule_parse("step:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16.5:0.1", &s));
    assert_int_equal(s.milestones, 16);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("a constant rate stays the same", constant),
        sentence("the step schedule equals MultiStepLR", steps),
        sentence("the cosine schedule equals CosineAnnealingLR", cosine),
        sentence("the polynomial schedule equals PolynomialLR", poly),
        sentence("the triangle schedule is piecewise linear", triangle),
        sentence("the onecycle schedule equals OneCycleLR", onecycle),
        sentence("the warm-up equals LinearLR before another schedule", warmup),
        sentence("the gradual warm-up rises from its start to the peak", gradual_warmup),
        sentence("a malformed schedule is refused", malformed),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
