/* Tests of the choice of tokens (graphs/inference/draw.h): the frequencies of drawn tokens are the probabilities that its comment
 * defines. */
#include "graphs/inference/draw.h"
#include "tests/asserts.h"

enum { CLASSES = 6, DRAWS = 20000 };
static const float logits[CLASSES] = { 1, 3, -1, 2, 2, -4 };

static int draw(const struct sgrad_sample_options *how, const float *logit, const int32_t *text, int64_t count, uint64_t seed) {
    float own[CLASSES];
    memcpy(own, logit, sizeof own);
    return sgrad__draw_token(how, own, CLASSES, text, count, seed, 0);
}

/* Draws with DRAWS seeds, and compares the frequencies with the softmax of SEEN[CLASSES] / temperature; NAN: never drawn. */
static void check(const struct sgrad_sample_options *how, const int32_t *text, int64_t count, const float *seen) {
    double total = 0, drawn[CLASSES] = { 0 };
    for (int i = 0; i < CLASSES; i++) total += isnan(seen[i]) ? 0 : exp(seen[i] / how->temperature);
    for (int d = 0; d < DRAWS; d++) {
        const int token = draw(how, logits, text, count, (uint64_t)d);
        assert_in_range(token, 0, CLASSES - 1);
        drawn[token]++;
    }
    for (int i = 0; i < CLASSES; i++) {
        const double p = isnan(seen[i]) ? 0 : exp(seen[i] / how->temperature) / total, far = 5 * sqrt(p * (1 - p) / DRAWS);
        if (!(fabs(drawn[i] / DRAWS - p) <= far))
            fail_msg("token %d is drawn with frequency %g, not %g", i, drawn[i] / DRAWS, p);
    }
}

static const int32_t text[] = { 1, 5, 1 };

static void temperatures(void **state) {
    (void)state;
    check(&(struct sgrad_sample_options){ .temperature = 1 }, text, 3, logits);
    check(&(struct sgrad_sample_options){ .temperature = 3 }, text, 3, logits);
    assert_int_equal(draw(&(struct sgrad_sample_options){ .temperature = 0 }, logits, text, 3, 1), 1);
}

static void limits(void **state) {
    (void)state;
    /* as probable as the last of the k */
    check(&(struct sgrad_sample_options){ .temperature = 1, .top_k = 2 }, text, 3, (float[]){ NAN, 3, NAN, 2, 2, NAN });
    check(&(struct sgrad_sample_options){ .temperature = 2, .top_k = 4 }, text, 3, (float[]){ 1, 3, NAN, 2, 2, NAN });
    check(&(struct sgrad_sample_options){ .temperature = 1, .top_k = 100 }, text, 3, logits);
    /* the probabilities are .07 .51 .01 .19 .19 .00 */
    check(&(struct sgrad_sample_options){ .temperature = 1, .top_p = 0.5 }, text, 3, (float[]){ NAN, 3, NAN, NAN, NAN, NAN });
    check(&(struct sgrad_sample_options){ .temperature = 1, .top_p = 0.95 }, text, 3, (float[]){ 1, 3, NAN, 2, 2, NAN });
    check(&(struct sgrad_sample_options){ .temperature = 1, .top_p = 1 }, text, 3, logits);
    /* of the three that remain, .57 .21 .21 */
    check(&(struct sgrad_sample_options){ .temperature = 1, .top_k = 3, .top_p = 0.55 }, text, 3,
          (float[]){ NAN, 3, NAN, NAN, NAN, NAN });
}

static void penalties(void **state) {
    (void)state;
    check(&(struct sgrad_sample_options){ .temperature = 2, .repetition_penalty = 1.5 }, text, 3,
          (float[]){ 1, 2, -1, 2, 2, -6 });
    assert_int_equal(draw(&(struct sgrad_sample_options){ .repetition_penalty = 2 }, logits, text, 3, 1), 3);
}

static void invalid(void **state) {
    (void)state;
    const struct sgrad_sample_options how = { .temperature = 1 };
    assert_int_equal(draw(&how, (float[CLASSES]){ 0, NAN }, text, 3, 1), -1);
    assert_int_equal(draw(&how, (float[CLASSES]){ 0, INFINITY }, text, 3, 1), -1);
    assert_int_equal(draw(&how, (float[CLASSES]){ -INFINITY, -INFINITY, 2, -INFINITY, -INFINITY, -INFINITY }, text, 3, 1), 2);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("tokens are drawn with the probabilities softmax(logits / temperature)", temperatures),
        sentence("top-k and top-p leave the most probable tokens", limits),
        sentence("a penalty makes tokens of the text less probable", penalties),
        sentence("NaN and infinite logits are reported", invalid),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
