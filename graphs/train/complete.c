/* complete.c: completes the options of a run. */
#include "datasets/datasets.h"
#include "graphs/train/setup.h"

static int check_count(const char *option, const struct sgrad_numbers *numbers) {
    if (numbers->count >= 0 && numbers->count <= SGRAD_MAX_NUMBERS) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "--%s has %d numbers; give %d or fewer", option, numbers->count, SGRAD_MAX_NUMBERS);
}

/* Checks the options that need no data. */
static int check_numbers(const struct sgrad_train_options *options) {
    const long batch = options->training.batch, micro = options->training.micro_batch;
    const int steps = options->parallel.steps_in_flight;
    const struct sgrad_lookahead *lookahead = &options->training.lookahead;
    const struct sgrad_step_range *trace = &options->output.trace;
    if (batch < 1) return sgrad_log_error(SGRAD_EINVAL, "batch %ld: must be 1 sample or more", batch);
    if (micro < 0) return sgrad_log_error(SGRAD_EINVAL, "micro-batch %ld: must be 1 sample or more, or 0 (automatic)", micro);
    SGRAD_TRY(check_count("mean", &options->data.mean));
    SGRAD_TRY(check_count("deviation", &options->data.std));
    if (!sgrad_lookahead_is_valid(lookahead))
        return sgrad_log_error(SGRAD_EINVAL,
                               "lookahead every %ld steps with decay %g and power %g is out of range; give 1 step "
                               "or more, a decay from 0 to below 1, and a power of 0 or more",
                               lookahead->every, lookahead->decay, lookahead->power);
    if (trace->first < 0 || trace->last < trace->first)
        return sgrad_log_error(SGRAD_EINVAL,
                               "steps %ld to %ld cannot be traced: the first must be 1 or more, and the last must not precede it",
                               trace->first, trace->last);
    if (steps >= 0 && steps <= SGRAD__MAX_WINDOW) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "%d steps in flight are not possible; the number must be from 1 to %d", steps,
                           SGRAD__MAX_WINDOW);
}

static int complete_names(struct sgrad_train_options *options) {
    struct sgrad_data_options *data = &options->data;
    const struct sgrad_model_options *model = &options->model;
    if (!data->name && data->reader) data->name = data->reader->name;
    if (!data->name && data->dataset[SGRAD_TEST]) data->name = data->dataset[SGRAD_TEST]->reader->name;
    if (!data->name) return sgrad_log_error(SGRAD_EINVAL, "no data set is named; give --data (in C: options.data.name)");
    if (!model->name && !model->custom)
        return sgrad_log_error(SGRAD_EINVAL, "no model is named; give --model (in C: options.model.name)");
    if (!model->custom || model->custom->name) return 0;
    return sgrad_log_error(SGRAD_EINVAL, "options.model.custom has no name");
}

int sgrad__options_complete(struct sgrad_train_options *options) {
    const struct sgrad_train_options defaults = sgrad_train_defaults();
    struct sgrad_optimizer_options *optimizer = &options->optimizer;
    struct sgrad_kfac_options *kfac = &optimizer->kfac;
    struct sgrad_parallel_options *parallel = &options->parallel;
    SGRAD_TRY(complete_names(options));
    SGRAD_TRY(check_numbers(options));
    if (!optimizer->name) optimizer->name = defaults.optimizer.name;
    if (!optimizer->schedule) optimizer->schedule = defaults.optimizer.schedule;
    if (!parallel->strategy) parallel->strategy = defaults.parallel.strategy;
    if (!parallel->steps_in_flight) parallel->steps_in_flight = defaults.parallel.steps_in_flight;
    if (!kfac->variant) kfac->variant = defaults.optimizer.kfac.variant;
    if (!kfac->damping_schedule) kfac->damping_schedule = defaults.optimizer.kfac.damping_schedule;
    if (!kfac->factor_every) kfac->factor_every = defaults.optimizer.kfac.factor_every;
    if (!kfac->eigen_every) kfac->eigen_every = defaults.optimizer.kfac.eigen_every;
    return 0;
}
