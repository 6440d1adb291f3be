/* kinds.c: the kinds of tasks of a training program: their names, and their colors in plots. */
#include "config.h"
#include "codelets/codelets.h"

#include <stddef.h>

const struct sgrad_kind sgrad_forward_kind = { "forward", 0x3b82c4 };
const struct sgrad_kind sgrad_backward_kind = { "backward", 0xe08a2e };
const struct sgrad_kind sgrad_reduction_kind = { "reduction", 0x8e5bb5 };
const struct sgrad_kind sgrad_update_kind = { "update", 0x3fa34d };
const struct sgrad_kind sgrad_input_kind = { "input", 0x9a9a9a };

const struct sgrad_kind *const sgrad_kinds[] = {
    &sgrad_forward_kind, &sgrad_backward_kind, &sgrad_reduction_kind, &sgrad_update_kind, &sgrad_input_kind, NULL,
};
