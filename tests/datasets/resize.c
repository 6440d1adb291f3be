/* Scaled images are the same with every instruction set. Each one is limited in a process of its own, because a process
 * determines its instruction set once. */
#include "config.h"
#include "datasets/formats.h"
#include "tests/asserts.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CASES = 200, MOST = 150 };       /* MOST: of the height and width of an image, and of the side of a result */

static unsigned draw(unsigned *random, unsigned below) { return ((*random = *random * 1103515245 + 12345) >> 8) % below; }

/* Returns a checksum of image I of random size and pixels, scaled to a random size. Half of the images have 16 bits. */
static uint64_t scaled(unsigned i) {
    static uint16_t noise[MOST * MOST * 3], to[MOST * MOST * 3];
    unsigned random = i;
    const bool deep = i % 2;
    for (int k = 0; k < MOST * MOST * 3; k++) noise[k] = (uint16_t)draw(&random, 1 << 16);
    struct sgrad__image image = { .height = 1 + (int)draw(&random, MOST), .width = 1 + (int)draw(&random, MOST) };
    const int side = 1 + (int)draw(&random, MOST);
    if (deep) image.rgb16 = noise;
    else image.rgb = (uint8_t *)noise;
    sgrad__image_fit(&image, side + (int)draw(&random, 40), side, to);
    return sgrad__fingerprint_add(i, to, (size_t)(3 * side * side) * (deep ? 2 : 1));
}

/* Writes the level that is used, and a checksum of each image, to TO (1 + CASES), with at most the instruction set LEVEL; NULL:
 * all. */
static void scale_at(const char *level, uint64_t *to) {
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        if (level) setenv("STARGRAD_MAX_ISA", level, 1);
        else unsetenv("STARGRAD_MAX_ISA");
        to[0] = (uint64_t)sgrad_isa();
        for (unsigned i = 0; i < CASES; i++) to[1 + i] = scaled(i);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void levels(void **state) {
    (void)state;
    const size_t bytes = 2 * (1 + CASES) * sizeof(uint64_t);
    uint64_t *baseline = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(baseline, MAP_FAILED);
    uint64_t *best = baseline + 1 + CASES;
    scale_at("baseline", baseline);
    scale_at(NULL, best);
    assert_int_equal(baseline[0], SGRAD_BASELINE);
    if (best[0] == SGRAD_BASELINE) print_message("this processor has only the baseline\n");
    for (int i = 1; i <= CASES; i++) {
        assert_true(baseline[i]);
        assert_int_equal(baseline[i], best[i]);
    }
    munmap(baseline, bytes);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        sentence("an image is scaled to the same pixels with every instruction set", levels),
    };
    return run_sentences(argc, argv, tests, NULL, NULL);
}
