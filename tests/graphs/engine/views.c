/* views.c: the prediction for several views of an image is the weighted mean of the predictions for each view. Loss and
 * accuracy are computed from the mean. The size of tasks does not matter. */
#include "config.h"
#include "datasets/datasets.h"
#include "graphs/graphs.h"
#include "tests/scratch.h"

#include <math.h>

enum { PIXELS = 8 * 8, CLASSES = 10 };

static struct sgrad_train_options options(void) {
    struct sgrad_train_options o = sgrad_train_defaults();
    o.model.name = "convnet";
    o.data.name = "digits";
    o.parallel.cpus = 2;
    o.parallel.gpus = -1;
    return o;
}

static int train(void **state) {
    struct sgrad_train_options o = options();
    struct sgrad_train_result result;
    if (scratch_open(state)) return 1;
    o.training.steps = 20;
    o.output.folder = scratch_path("run");
    return sgrad_train(&o, &result);
}

/* Of images that are changed beforehand. */
static struct sgrad_predictions ask(const struct sgrad_views *views, int v) {
    struct sgrad_train_options o = options();
    struct sgrad_train_result result;
    struct sgrad_dataset *test, *seen;
    struct sgrad_predictions said;
    assert_done(sgrad_dataset_open("digits", SGRAD_TEST, NULL, &test));
    uint8_t *pixels = sgrad_xcalloc((size_t)test->count, PIXELS);
    for (int64_t i = 0; i < test->count; i++) {
        const struct sgrad_sample sample = { .index = i, .view = v };
        int32_t label;
        assert_done(sgrad_views_read(test, views, &sample, 1, (void *[]){ pixels + i * PIXELS, &label }));
    }
    assert_done(sgrad_dataset_of_array(test, pixels, SGRAD_U8, test->count, &test->field[0].shape, &seen));
    o.model.init = scratch_path("run/model.safetensors");
    o.data.dataset[SGRAD_TEST] = seen;
    assert_done(sgrad_predict(&o, &result, &said));
    sgrad_dataset_close(seen);
    sgrad_dataset_close(test);
    free(pixels);
    return said;
}

static void is_the_mean(void **state) {
    (void)state;
    static const char *const text[] = { "flip", "translate", "flip,translate" };
    for (int t = 0; t < 3; t++) {
        struct sgrad_train_options o = options();
        struct sgrad_train_result result;
        struct sgrad_predictions said;
        struct sgrad_views views;
        assert_done(sgrad_views_parse(text[t], &views));
        o.model.init = scratch_path("run/model.safetensors");
        o.evaluation.tta = text[t];
        o.training.micro_batch = t == 1 ? 7 : 0;
        assert_done(sgrad_predict(&o, &result, &said));
        double *mean = sgrad_xcalloc((size_t)(said.samples * CLASSES), sizeof *mean), loss = 0;
        for (int v = 0; v < views.count; v++) {
            struct sgrad_predictions one = ask(&views, v);
            assert_int_equal(one.samples, said.samples);
            for (int64_t i = 0; i < said.samples * CLASSES; i++) mean[i] += views.view[v].weight * (double)one.logits[i];
            sgrad_predictions_free(&one);
        }
        for (int64_t i = 0; i < said.samples * CLASSES; i++)
            if (!(fabs(mean[i] - (double)said.logits[i]) <= 1e-4 * (1 + fabs(mean[i])))) fail_msg("%s: %g", text[t], mean[i]);
        struct sgrad_classification c = sgrad_classify(&said);
        for (int64_t i = 0; i < said.samples; i++) {
            double sum = 0;
            for (int k = 0; k < CLASSES; k++) sum += exp((double)said.logits[i * CLASSES + k]);
            loss += (log(sum) - (double)said.logits[i * CLASSES + said.label[i]]) / (double)said.samples;
        }
        assert_true(fabs(result.test_top1 - c.top1) < 1e-12 && fabs(result.test_loss - loss) < 1e-5 * (1 + loss));
        sgrad_classification_free(&c);
        free(mean);
        sgrad_predictions_free(&said);
    }
}

static void refused(void **state) {
    (void)state;
    struct sgrad_train_options o = options();
    struct sgrad_train_result result;
    o.output.folder = scratch_path("refused");
    o.evaluation.tta = "flip";
    o.evaluation.best = true;
    assert_fails(sgrad_train(&o, &result), SGRAD_EINVAL, "--best cannot be combined with --tta");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("the logits of several views are the weighted mean of those of each", is_the_mean),
        sentence("several views are refused together with --best", refused),
    };
    return run_sentences(argc, argv, tests, train, scratch_close);
}
