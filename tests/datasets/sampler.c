/* The order of the samples of an epoch. */
#include "config.h"
#include "datasets/sampler.h"
#include "tests/asserts.h"

static void order(void **state) {
    (void)state;
    enum { COUNT = 1001 };
    struct sgrad__sampler a = { .seed = 1, .count = COUNT, .shuffle = true }, b = a, other = a, files = a;
    other.seed = 2;
    files.shuffle = false;
    int same_epoch = 0, same_seed = 0, fixed = 0;
    bool seen[COUNT] = { 0 };
    for (int i = 0; i < COUNT; i++) {
        int64_t sample = sgrad__sampler_index(&a, 0, i);
        assert_in_range(sample, 0, COUNT - 1);
        assert_false(seen[sample]);
        seen[sample] = true;
        fixed += sample == i;
        same_seed += sample == sgrad__sampler_index(&other, 0, i);
        assert_int_equal(sgrad__sampler_index(&files, 5, i), i);
    }
    int64_t first[COUNT];
    for (int i = 0; i < COUNT; i++) first[i] = sgrad__sampler_index(&a, 0, i);
    for (int i = 0; i < COUNT; i++) same_epoch += first[i] == sgrad__sampler_index(&a, 1, i);
    for (int i = COUNT - 1; i >= 0; i--)
        assert_int_equal(sgrad__sampler_index(&b, 0, i), first[i]); /* whatever was asked before */
    assert_in_range(same_epoch, 0, 9);      /* 1 on average */
    assert_in_range(same_seed, 0, 9);
    assert_in_range(fixed, 0, 9);
    sgrad__sampler_close(&a);
    sgrad__sampler_close(&b);
    sgrad__sampler_close(&other);
    sgrad__sampler_close(&files);
}

/* Every one of the 24 orders of four samples comes, about as often as the others. */
static void order_is_fair(void **state) {
    (void)state;
    struct sgrad__sampler o = { .seed = 3, .count = 4, .shuffle = true };
    int times[256] = { 0 };
    for (uint32_t epoch = 0; epoch < 24000; epoch++) {
        int code = 0;
        for (int i = 0; i < 4; i++) code = 4 * code + (int)sgrad__sampler_index(&o, epoch, i);
        times[code]++;
    }
    int orders = 0;
    for (int i = 0; i < 256; i++)
        if (times[i]) orders++, assert_in_range(times[i], 850, 1150);
    assert_int_equal(orders, 24);
    struct sgrad__sampler one = { .count = 1, .shuffle = true };
    assert_int_equal(sgrad__sampler_index(&one, 0, 0), 0);
    sgrad__sampler_close(&o);
    sgrad__sampler_close(&one);
}

/* 90 samples of class 0, 7 of class 1, 3 of class 3, none of class 2: each class has 33 or 34 of the 100 positions. */
static void balanced(void **state) {
    (void)state;
    enum { ALL = 100, EPOCHS = 30 };
    static const int size[] = { 90, 7, 0, 3 };
    int32_t label[ALL];
    int at = 0, left_out = 0, times[ALL] = { 0 };
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < size[c]; i++) label[at++] = c;
    struct sgrad__sampler o = { .seed = 3, .count = ALL, .shuffle = true, .label = label, .classes = 4 }, again = o;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        int of_class[4] = { 0 }, of_sample[ALL] = { 0 };
        for (int i = 0; i < ALL; i++) {
            const int64_t sample = sgrad__sampler_index(&o, epoch, i);
            of_class[label[sample]]++, of_sample[sample]++, times[sample]++;
        }
        for (int c = 0; c < 4; c++) assert_in_range(of_class[c], size[c] ? 33 : 0, size[c] ? 34 : 0);
        for (int i = 0; i < ALL; i++) {
            const int least = 33 / size[label[i]];
            assert_in_range(of_sample[i], least, least + 1);
        }
    }
    for (int i = 0; i < ALL; i++) left_out += !times[i];
    assert_in_range(left_out, 0, 1);        /* of a large class, other samples in each epoch */
    for (int i = 0; i < ALL; i++)
        assert_int_equal(sgrad__sampler_index(&again, EPOCHS - 1, i), sgrad__sampler_index(&o, EPOCHS - 1, i));
    sgrad__sampler_close(&o);
    sgrad__sampler_close(&again);
}

/* Of a shuffled epoch's windows: all places that there are, another one in each epoch. */
static void shifts(void **state) {
    (void)state;
    struct sgrad__sampler o = { .seed = 3, .count = 4, .shuffle = true, .shifts = 8 }, files = { .count = 4, .shifts = 8 };
    struct sgrad__sampler whole = { .seed = 3, .count = 4, .shuffle = true };
    int times[8] = { 0 };
    for (uint32_t epoch = 0; epoch < 800; epoch++) {
        const int64_t shift = sgrad__sampler_sample(&o, epoch, 0).shift;
        assert_in_range(shift, 0, 7);
        assert_int_equal(shift, sgrad__sampler_sample(&o, epoch, 3).shift);
        assert_int_equal(sgrad__sampler_sample(&files, epoch, 0).shift, 0);
        times[shift]++;
    }
    for (int i = 0; i < 8; i++) assert_in_range(times[i], 60, 140);
    assert_int_equal(sgrad__sampler_sample(&whole, 1, 0).shift, 0);
    sgrad__sampler_close(&o);
    sgrad__sampler_close(&whole);
}

/* Samples of three shards, of which one is empty. A sample never comes earlier than a window before its place in the files. */
static void shards(void **state) {
    (void)state;
    enum { COUNT = 300, WINDOW = 20, EPOCHS = 300 };
    static const int64_t first[] = { 0, 100, 100, 180, COUNT };
    struct sgrad__sampler o = { .seed = 3, .count = COUNT, .shuffle = true, .shards = 4, .shard = first, .window = WINDOW };
    struct sgrad__sampler same = o, other = o;
    int begins_with[4] = { 0 };
    other.seed = 4;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        int times[COUNT] = { 0 }, begins[4] = { 0 }, moved = 0, seeds = 0;
        for (int64_t i = 0; i < COUNT; i++) {
            const int64_t sample = sgrad__sampler_index(&o, epoch, i);
            int s = 0;
            while (first[s + 1] <= sample) s++;
            if (!begins[s]) begins[s] = 1 + (int)i;
            if (!i) begins_with[s]++;
            assert_true(sample - first[s] < i - (begins[s] - 1) + 2 * WINDOW);
            assert_int_equal(sgrad__sampler_index(&same, epoch, i), sample);
            seeds += sgrad__sampler_index(&other, epoch, i) == sample;
            moved += i && sample != sgrad__sampler_index(&o, epoch, i - 1) + 1;
            assert_int_equal(times[sample]++, 0);
        }
        assert_true(moved > COUNT / 2 && seeds < COUNT / 4);
    }
    assert_int_equal(begins_with[1], 0);
    for (int s = 0; s < 4; s++)
        if (s != 1) assert_in_range(begins_with[s], 75, 125);
    sgrad__sampler_close(&o);
    sgrad__sampler_close(&same);
    sgrad__sampler_close(&other);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("shuffling follows seed and epoch, and has every sample once", order),
        sentence("all orders of samples are equally frequent", order_is_fair),
        sentence("a balanced epoch has equally many samples of each class", balanced),
        sentence("windows of texts are shifted in each epoch", shifts),
        sentence("samples of shards are drawn from a window that moves over the shards in random order", shards),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
