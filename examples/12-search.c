/* 12-search.c: many candidates over data that stays where it is.
 *
 *     12-search                          four learning rates of a small network, on the digits that come with Stargrad
 *     mpirun -n 2 12-search cifar10:DIR  the data cut in two: each rank keeps its half, and the candidates travel
 *
 * Each candidate is trained by itself, step after step, as if it were alone. Where its next samples lie with another rank it goes
 * there, with its weights and its optimizer's states. After one epoch and after two the worse half is given up. What is left in
 * search/ is a folder for each candidate, the leaderboard and the order of its sub-epochs; begun again, with resume, it goes on.
 *
 * docs/guides/search.md describes the file of a search, the orders of sub-epochs ("visits") and their costs; the command is
 * stargrad search.
 *
 * Next: 13-python.py, and 14-volume.c for stacks of slices. */
#include "graphs/graphs.h"

#include <stdlib.h>

int main(int argc, char **argv) {
    static const double rates[] = { 0.003, 0.01, 0.03, 0.1 };
    enum { CANDIDATES = sizeof rates / sizeof *rates };
    struct sgrad_candidate candidate[CANDIDATES];
    struct sgrad_search_options options = { .common = sgrad_train_defaults(), .candidate = candidate, .candidates = CANDIDATES,
                                            .stop = { .rule = "halving", .first = 1, .factor = 2 } };
    struct sgrad_search_result result;
    char name[CANDIDATES][32], given[CANDIDATES][32];

    options.common.data.name = argc > 1 ? argv[1] : "digits";
    options.common.output.folder = "search";
    options.common.training.epochs = 4;
    options.common.checkpoint.resume = sgrad_search_exists("search");
    for (int i = 0; i < CANDIDATES; i++) {
        snprintf(name[i], sizeof name[i], "lr-%g", rates[i]);           /* its folder */
        snprintf(given[i], sizeof given[i], "{\"lr\": %g}", rates[i]);   /* what tables tell of it */
        candidate[i] = (struct sgrad_candidate){ .name = name[i], .options_json = given[i], .options = sgrad_train_defaults() };
        candidate[i].options.model.name = "convnet";
        candidate[i].options.training.batch = 64;
        candidate[i].options.optimizer.lr = rates[i];
    }
    if (sgrad_search(&options, &result)) return 1;
    if (result.rank == 0) printf("the best is %s\n", result.best ? result.best : "none: all have failed");
    free(result.folder);
    free(result.best);
    return 0;
}
