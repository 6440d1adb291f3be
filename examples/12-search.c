/* 12-search.c: a hyperparameter search; the candidates move from rank to rank, the data do not.
 *
 *     12-search                          trains four candidates with different learning rates on the built-in digits
 *     mpirun -n 2 12-search cifar10:DIR  divides the data: each rank has half of them, and the candidates move
 *
 * Each candidate is trained with the same steps as in a training of its own. If its next samples are on another rank, it moves
 * there with its weights and its optimizer's states. After one epoch, and again after two, the search stops the worse half.
 *
 * The folder search/ contains a folder for each candidate, the leaderboard and the order of the sub-epochs. If you start the
 * program again, it resumes the search.
 *
 * docs/guides/search.md describes the file of a search, the orders of sub-epochs ("visits") and their costs. The command is
 * stargrad search.
 *
 * Next: 13-python.py. For stacks of slices, see 14-volume.c. */
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
        snprintf(name[i], sizeof name[i], "lr-%g", rates[i]);           /* the name of its folder */
        snprintf(given[i], sizeof given[i], "{\"lr\": %g}", rates[i]);   /* its options, for tables */
        candidate[i] = (struct sgrad_candidate){ .name = name[i], .options_json = given[i], .options = sgrad_train_defaults() };
        candidate[i].options.model.name = "convnet";
        candidate[i].options.training.batch = 64;
        candidate[i].options.optimizer.lr = rates[i];
    }
    if (sgrad_search(&options, &result)) return 1;
    if (result.rank == 0) printf("best candidate: %s\n", result.best ? result.best : "none, all failed");
    free(result.folder);
    free(result.best);
    return 0;
}
