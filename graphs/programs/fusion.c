/* fusion.c: a task of several operations on the same samples, one after another, a slice of the samples at a time (fuse.c).
 *
 *     slice      0 1 2 3 │ 4 5 6 │ 7 8 9            or backwards, the last slice first
 *     apply        1     │   4   │   7
 *     conv2d       2     │   5   │   8              what only links take of each other is in the workspace, a slice of it
 *     stats        3     │   6   │   9              the first writes sums, the others add to them                              */
#include "graphs/programs/fusion.h"

/* Link L's arguments in turn I, whose operands lie in DATA. */
static struct sgrad_args args_of(const struct sgrad_args *a, const struct sgrad__link *l, int i, bool cuda, void **data) {
    const struct sgrad__fusion *f = a->attrs;
    char *room = (char *)sgrad_aligned((size_t)a->workspace);
    const int s = f->backwards ? f->slices - 1 - i : i, larger = (int)(f->samples % f->slices);
    const int64_t first = f->samples / f->slices * s + (s < larger ? s : larger);
    const struct sgrad_call *call = l->slice[s >= larger][i > 0];
    for (int j = 0; j < call->operands; j++) {
        const int at = l->operand[j];
        data[j] = at < 0                     ? NULL
                  : at >= SGRAD_MAX_OPERANDS ? room + f->room[at - SGRAD_MAX_OPERANDS]
                                             : (char *)a->data[at] + (size_t)first * f->row[at];
    }
    struct sgrad_args args = sgrad_call_args(call);
    args.data = data;
    args.step = a->step;
    args.first = a->first + first;
    args.workspace = room + f->room[f->inner];
    args.workspace_size = cuda ? call->gpu_workspace : call->workspace;
    return args;
}

/* Is what link L+1 takes first in the workspace, and taken by no later one? */
static bool only_next_takes(const struct sgrad__fusion *f, const struct sgrad__link *l) {
    const int at = l[1].operand[0];
    for (const struct sgrad__link *later = l + 2; later < f->link + f->links; later++)
        for (int j = 0; j < later->whole->operands; j++)
            if (later->operand[j] == at) return false;
    return at >= SGRAD_MAX_OPERANDS;
}

/* Link L and the next one as one on a GPU, where their kernel knows how. */
static bool run_two(const struct sgrad_args *a, const struct sgrad__link *l, int i) {
    const struct sgrad__fusion *f = a->attrs;
    if (l + 1 == f->link + f->links || !l->whole->kernel->cuda_with) return false;
    void *data[SGRAD_MAX_OPERANDS], *its_data[SGRAD_MAX_OPERANDS];
    const struct sgrad_args args = args_of(a, l, i, true, data), its = args_of(a, l + 1, i, true, its_data);
    return l->whole->kernel->cuda_with(&args, l[1].whole->kernel, &its, only_next_takes(f, l));
}

static void run(const struct sgrad_args *a, bool cuda) {
    const struct sgrad__fusion *f = a->attrs;
    for (int i = 0; i < f->slices; i++)
        for (const struct sgrad__link *l = f->link; l < f->link + f->links; l++) {
            if (cuda && run_two(a, l, i)) {
                l++;
                continue;
            }
            void *data[SGRAD_MAX_OPERANDS];
            const struct sgrad_args args = args_of(a, l, i, cuda, data);
            (cuda ? l->whole->kernel->cuda : l->whole->kernel->cpu)(&args);
        }
}
static void run_cpu(const struct sgrad_args *a) { run(a, false); }
static void run_cuda(const struct sgrad_args *a) { run(a, true); }

static size_t workspace(const struct sgrad_args *a) { return ((const struct sgrad__fusion *)a->attrs)->workspace; }
static size_t gpu_workspace(const struct sgrad_args *a) { return ((const struct sgrad__fusion *)a->attrs)->gpu_workspace; }
static double flops(const struct sgrad_args *a) { return ((const struct sgrad__fusion *)a->attrs)->flops; }

/* For CPUs alone, and for both. */
#define FUSED(KIND, CUDA)                                                                                                        \
    { .name = "fused " #KIND, .kind = &sgrad_##KIND##_kind, .cpu = run_cpu, .cuda = CUDA, .workspace = workspace,                \
      .gpu_workspace = gpu_workspace, .flops = flops }
static const struct sgrad_kernel kernels[][2] = {
    { FUSED(forward, NULL), FUSED(forward, run_cuda) },
    { FUSED(backward, NULL), FUSED(backward, run_cuda) },
    { FUSED(update, NULL), FUSED(update, run_cuda) },
};

const struct sgrad_kernel *sgrad__fusion_kernel(const struct sgrad_kind *kind, bool cuda) {
    int i = 0;
    while (kernels[i][cuda].kind != kind) i++;
    return &kernels[i][cuda];
}

static bool is_fused(const struct sgrad_call *call) { return call->kernel->cpu == run_cpu; }

int sgrad__call_links(const struct sgrad_call *call) {
    return is_fused(call) ? ((const struct sgrad__fusion *)call->attrs)->links : 1;
}

const struct sgrad_call *sgrad__call_link(const struct sgrad_call *call, int link) {
    return is_fused(call) ? ((const struct sgrad__fusion *)call->attrs)->link[link].whole : call;
}

int64_t sgrad__call_slice(const struct sgrad_call *call) {
    const struct sgrad__fusion *f = call->attrs;
    return is_fused(call) && f->slices > 1 ? sgrad__fusion_slice(f) : 0;
}
