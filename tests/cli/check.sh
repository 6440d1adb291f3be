#!/bin/bash
# stargrad check: operations, collectives and optimizers of plug-ins, some of them wrong.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

passes check sgd adamw lamb muon normuon schedulefree soap ring doubling halving tree hierarchical relu --json
grep -q '"good": false' out && wrong 'check: a record of its own is wrong'
refuses 2 "unknown operation 'nothing'" check nothing

CC=${CC:-cc}
command -v "${CC%% *}" >/dev/null || { echo 'skipped: no compiler, for plug-ins' && exit 0; }

# plug_in NAME: NAME.c, from standard input, as NAME.so.
plug_in() {
	cat >"$1.c"
	$CC -O1 -shared -fPIC -I"$srcdir" -I"${builddir:-$srcdir/build}" -o "$1.so" "$1.c" -lm 2>err || wrong "$1.c does not compile"
}

# A collective: the last rank is left out; places wait for each other; a chunk counts twice; and one that is right.
star() {
	cat <<END
#include "graphs/graphs.h"
static double cost(double bytes, const struct sgrad_network *net) { return net->ranks * (net->latency + bytes / net->bandwidth); }
static int chunks(double bytes, const struct sgrad_network *net) { return (void)bytes, (void)net, 1; }
static void schedule(struct sgrad_plan *plan, int place, const struct sgrad_network *net) {
    for (int other = 1; other < net->ranks; other++) { $1 }
    for (int other = 1; other < net->ranks; other++) {
        if (place == 0) sgrad_plan_add(plan, SGRAD_SEND, other, 0);
        if (place == other) sgrad_plan_add(plan, SGRAD_COPY, 0, 0);
    }
}
static const struct sgrad_collective star = { .name = "star", .kind = SGRAD_ALLREDUCE, .summary = "a test", .cost = cost,
                                              .chunks = chunks, .schedule = schedule };
SGRAD_PLUGIN(.collectives = (const struct sgrad_collective *const[]){ &star, NULL });
END
}
add='if (place == 0) sgrad_plan_add(plan, SGRAD_ADD, other, 0); if (place == other) sgrad_plan_add(plan, SGRAD_SEND, 0, 0);'
star "$add" | plug_in star
star "if (other == net->ranks - 1) continue; $add" | plug_in last
star "if (place == 0) sgrad_plan_add(plan, SGRAD_ADD, other, 0); if (place == other && other != 5) sgrad_plan_add(plan, SGRAD_SEND, 0, 0);" |
	plug_in silent
star "$add $add" | plug_in twice
star "if (place == 0) sgrad_plan_add(plan, SGRAD_ADD, other, 0); if (place == other) { if (other == 2) sgrad_plan_add(plan, SGRAD_COPY, 0, 0);
	sgrad_plan_add(plan, SGRAD_SEND, 0, 0); }" | plug_in circle
passes check --plugin ./star.so star
says '^star: passed as allreduce of 1 to 33 ranks$'
refuses 1 'collective star, allreduce of 2 ranks: rank 0 ends with a sum that lacks rank 1' check --plugin ./last.so star
refuses 1 'collective star, allreduce of 6 ranks: ' check --plugin ./silent.so star
refuses 1 'collective star, allreduce of 2 ranks: rank 0 adds .* contains the data of a rank twice' check --plugin ./twice.so star
refuses 1 'collective star, allreduce of 3 ranks: ' check --plugin ./circle.so star

# An optimizer: right; with a state that its record lacks; with one that it never writes; that climbs; that does not heed --lr-of.
optimizer() {
	cat <<END
#include "codelets/updates.h"
#include "graphs/graphs.h"
static void update(const struct sgrad_args *a) {
    const struct sgrad_hyper *h = a->attrs;
    float *w = a->data[0], *s = a->data[3], *more = a->data[4];
    const float *g = a->data[1], c = sgrad_clip_factor(h, a->data[2]), rate = sgrad_lr(a);
    for (int64_t i = 0, n = sgrad_shape_count(&a->view[0].shape); i < n; i++) { $1 }
    (void)s, (void)more, (void)c, (void)rate;
}
static const struct sgrad_kernel kernel = { .name = "mine", .kind = &sgrad_update_kind, .cpu = update };
static const struct sgrad_optimizer mine = { .name = "mine", .summary = "a test", .default_lr = 0.1, .update = &kernel,
                                             .states = (const struct sgrad_state[]){ { .name = "mean" }, { 0 } } };
SGRAD_PLUGIN(.optimizers = (const struct sgrad_optimizer *const[]){ &mine, NULL });
END
}
optimizer 's[i] = h->momentum * s[i] + c * g[i]; w[i] -= rate * s[i];' | plug_in right
optimizer 's[i] += g[i]; more[i] = g[i]; w[i] -= rate * c * g[i];' | plug_in more
optimizer 'w[i] -= rate * c * g[i];' | plug_in less
optimizer 's[i] = c * g[i]; w[i] += rate * s[i];' | plug_in climbs
optimizer 's[i] = c * g[i]; w[i] -= a->step->lr * s[i];' | plug_in deaf
optimizer 's[i] = g[i]; w[i] -= rate * g[i];' | plug_in unclipped
optimizer 's[i] = c * g[n - 1 - i]; w[i] -= rate * (c * g[i] + .1f * s[i]);' | plug_in whole
passes check --plugin ./right.so mine
says '^mine: passed as an optimizer$'
refuses 1 'optimizer mine, .*: writes operand 4, but its record has only 1 state' check --plugin ./more.so mine
refuses 1 'optimizer mine, .*: never writes its state mean' check --plugin ./less.so mine
refuses 1 'optimizer mine, .*: its first two steps do not go against' check --plugin ./climbs.so mine
refuses 1 'optimizer mine, .*: with a quarter of the learning rate' check --plugin ./deaf.so mine
refuses 1 'optimizer mine, .*: with clipping to half' check --plugin ./unclipped.so mine
refuses 1 'optimizer mine, .*: a shard, updated separately' check --plugin ./whole.so mine

# An operation whose backward asks whether the gradient of its input is wanted, and one that does not.
operation() {
	cat <<END
#include "codelets/kernels.h"
#include "graphs/graphs.h"
static int infer(struct sgrad_signature *s, void *attrs) {
    (void)attrs;
    s->y.shape = s->x[0].shape;
    s->p[0] = (struct sgrad_parameter){ .name = "weight", .init = SGRAD_ONES, .shape = { 1, { 1 } } };
    return 0;
}
static void forward(const struct sgrad_args *a) {
    for (int64_t i = 0, n = sgrad_shape_count(&a->view[0].shape); i < n; i++)
        sgrad_put(a->view[0].dtype, a->data[2], i, sgrad_get(a->view[0].dtype, a->data[0], i) * *(const float *)a->data[1]);
}
static void backward(const struct sgrad_args *a) {
    const enum sgrad_dtype t = a->view[0].dtype;
    const float w = *(const float *)a->data[2];
    float *dw = a->data[4], sum = sgrad_adds(a, 4) ? *dw : 0;
    for (int64_t i = 0, n = sgrad_shape_count(&a->view[0].shape); i < n; i++) {
        const float d = sgrad_get(t, a->data[1], i);
        sum += d * sgrad_get(t, a->data[0], i);
        $1 sgrad_put(t, a->data[3], i, d * w + (sgrad_adds(a, 3) ? sgrad_get(t, a->data[3], i) : 0));
    }
    *dw = sum;
}
static const struct sgrad_op op = {
    .name = "gain", .summary = "a test", .inputs = 1, .attrs_size = 1, .infer = infer,
    .forward = { { { .name = "gain forward", .kind = &sgrad_forward_kind, .cpu = forward },
                   { SGRAD_IN(X, 0), SGRAD_IN(P, 0), SGRAD_OUT(Y, 0) } } },
    .backward = { { { .name = "gain backward", .kind = &sgrad_backward_kind, .cpu = backward },
                    { SGRAD_IN(X, 0), SGRAD_IN(DY, 0), SGRAD_IN(P, 0), SGRAD_OUT(DX, 0), SGRAD_OUT(DP, 0) } } },
    .tests = { { "3 of 5", { { 2, { 3, 5 } } } } },
};
SGRAD_PLUGIN(.ops = (const struct sgrad_op *const[]){ &op, NULL });
END
}
operation 'if (a->data[3])' | plug_in asks
operation '' | plug_in writes
operation 'if (!a->data[3]) { sum = 7; continue; }' | plug_in differs
passes check --plugin ./asks.so gain
says '^gain: passed for 1 shape$'
refuses 1 'operation gain, 3 of 5: gain backward crashes without a gradient for input 0' check --plugin ./writes.so gain
refuses 1 'operation gain, 3 of 5: the other outputs of gain backward differ if it runs without a gradient for input 0' check --plugin ./differs.so gain
