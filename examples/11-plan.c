/* 11-plan.c: predicting the speed of a training on machines that you do not have.
 *
 *     11-plan FILE                       FILE describes a machine; machines/ has several
 *     11-plan machines/titan.json
 *
 * The planner reads two things. The cost of a step, its tasks with their arithmetic and memory traffic, comes from the program
 * that a training would run. The machine comes from a file with a source for every figure. The planner predicts one row for each
 * number of nodes. The column "limit" names the part of the machine that limits the speed, so the part to spend money on.
 *
 * Next: 12-search.c. docs/scale/plan.md describes the accuracy of such predictions. The command is stargrad plan. stargrad doctor
 * --machine measures a machine. */
#include "graphs/graphs.h"
#include "planner/planner.h"

static void show(const struct sgrad_machine *machine, const struct sgrad_forecast *forecast) {
    printf("%s\n%6s %10s %12s %9s  %s\n", machine->summary, "nodes", "step ms", "samples/s", "speed-up", "limit");
    for (const struct sgrad_plan_row *p = forecast->row; p < forecast->row + forecast->rows; p++)
        printf("%6d %10.2f %12.1f %9.2f  %s\n", p->nodes, 1e3 * p->step, p->samples_per_second, p->speedup,
               sgrad_limit_name[p->limit]);
}

int main(int argc, char **argv) {
    struct sgrad_train_options options = sgrad_train_defaults();
    options.model.name = "resnet20";
    options.data.name = "synthetic:32x32x3,10,50000";
    options.training.batch = 1024;               /* samples of all devices: strong scaling */
    struct sgrad_machine *machine;
    struct sgrad_step_cost work;
    struct sgrad_forecast forecast;

    if (sgrad_machine_read(argc > 1 ? argv[1] : "machines/titan.json", &machine)) return 1;
    if (sgrad_step_cost_find(&options, &work)) return 1;
    for (int without = 0; without < 2; without++) {
        struct sgrad_plan_query question = { .train = &options, .machine = machine, .work = &work, .from = 1, .to = 64,
                                           .strong = true, .no_overlap = without };
        if (sgrad_forecast_make(&question, &forecast)) return 1;
        printf("%smessages %s the computation: ", without ? "\n" : "", without ? "after" : "during");
        show(machine, &forecast);
        sgrad_forecast_free(&forecast);
    }
    sgrad_step_cost_free(&work);
    sgrad_machine_free(machine);
    return 0;
}
