/* load.c: reads samples for a command with the option --damaged: the message about a malformed sample names this option. */
#include "config.h"
#include "datasets/datasets.h"

int sgrad_dataset_load(const struct sgrad_dataset *dataset, const struct sgrad_sample *sample, int n,
                       const struct sgrad_drawing *how, void *const *data) {
    char reason[1024];
    sgrad_log_capture(reason, sizeof reason);
    const int error = how ? sgrad_dataset_draw(dataset, sample, n, how, data) : sgrad_dataset_read(dataset, sample, n, data);
    sgrad_log_capture(NULL, 0);
    if (!error && *reason) sgrad_log_warning("%s", reason);
    const bool malformed = error == SGRAD_EFORMAT && !dataset->reader->draw;
    return error ? sgrad_log_error(error, "%s%s", reason, malformed ? "; give --damaged skip to leave out such samples" : "") : 0;
}
