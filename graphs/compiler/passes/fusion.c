/* fusion.c: executes a fused task: several operations on the same samples, one after another for each slice of the samples
 * (fuse.c).
 *
 *     slice      0 1 2 3 │ 4 5 6 │ 7 8 9            or backwards, the last slice first
 *     apply        1     │   4   │   7
 *     conv2d       2     │   5   │   8              values that only links use are in the workspace, one slice at a time
 *     stats        3     │   6   │   9              the first slice writes sums, the others add to them */
#include "graphs/compiler/passes/fusion.h"

#include <math.h>
#include <string.h>

static void run_cpu(const struct sgrad_args *a) {
    const struct sgrad__fusion *f = a->attrs;
    char *room = (char *)sgrad_aligned((size_t)a->workspace);
    for (int i = 0; i < f->slices; i++)
        for (const struct sgrad__link *l = f->link; l < f->link + f->links; l++) {
            const int s = f->backwards ? f->slices - 1 - i : i, larger = (int)(f->samples % f->slices);
            const int64_t first = f->samples / f->slices * s + (s < larger ? s : larger);
            const struct sgrad_bound_kernel *call = l->slice[s >= larger][i > 0];
            void *data[SGRAD_MAX_OPERANDS];
            for (int j = 0; j < call->operands; j++) {
                const int at = l->operand[j];
                if (at < 0) data[j] = NULL;
                else if (at >= SGRAD_MAX_OPERANDS) data[j] = room + f->room[at - SGRAD_MAX_OPERANDS];
                else data[j] = (char *)a->data[at] + (size_t)first * f->row[at];
            }
            struct sgrad_args args = sgrad_bound_kernel_args(call);
            args.data = data;
            args.step = a->step;
            args.first = a->first + first;
            args.workspace = room + f->room[f->inner];
            args.workspace_size = call->workspace;
            call->kernel->cpu(&args);
        }
}

/* Returns the arguments of link L for all samples. */
static struct sgrad_args args_of(const struct sgrad_args *a, const struct sgrad__link *link, void **data) {
    struct sgrad_args args = sgrad_bound_kernel_args(link->whole);
    for (int j = 0; j < link->whole->operands; j++) data[j] = link->operand[j] < 0 ? NULL : a->data[link->operand[j]];
    args.data = data;
    args.step = a->step;
    args.first = a->first;
    args.workspace = (void *)sgrad_aligned((size_t)a->workspace);
    args.workspace_size = link->whole->gpu_workspace;
    return args;
}

/* Returns the number of uses of operand AT by links FIRST to LAST. */
static int uses(const struct sgrad__fusion *fusion, int first, int last, int at) {
    int count = 0;
    for (int i = first; i <= last; i++)
        for (int j = 0; j < fusion->link[i].whole->operands; j++) count += fusion->link[i].operand[j] == at;
    return count;
}

/* Returns true if link L is the only consumer of an output of the link before it. */
static bool takes_alone(const struct sgrad__fusion *fusion, int l) {
    const struct sgrad__link *before = &fusion->link[l - 1];
    for (int i = 0; i < before->whole->operands; i++) {
        const int at = before->operand[i];
        if (at >= 0 && before->whole->access[i] == SGRAD_W && fusion->own >> at & 1 && uses(fusion, l, l, at) == 1 &&
            uses(fusion, 0, fusion->links - 1, at) == 2)
            return true;
    }
    return false;
}

/* Runs link FIRST and links after it by one call of its kernel. Returns the number of the latter; 0: nothing was run. */
static int run_with(const struct sgrad_args *a, const struct sgrad__fusion *fusion, int first, const struct sgrad_args *its) {
    enum { MOST = 2 };
    struct sgrad_args args[MOST];
    struct sgrad_next next[MOST];
    void *data[MOST][SGRAD_MAX_OPERANDS];
    int count = 0;
    for (int l = first + 1; l < fusion->links && count < MOST && !fusion->link[l].with; l++, count++) {
        args[count] = args_of(a, &fusion->link[l], data[count]);
        next[count] = (struct sgrad_next){ fusion->link[l].whole->kernel, &args[count], takes_alone(fusion, l) };
    }
    return count ? fusion->link[first].whole->kernel->cuda_fused(its, next, count) : 0;
}

/* Processes all samples in one pass. Links of one kernel that are marked (.with) are run by one launch, and so are neighbours if
 * the kernel of the first one can run them as well (cuda_fused). */
static void run_cuda(const struct sgrad_args *a) {
    const struct sgrad__fusion *f = a->attrs;
    struct sgrad_args args[SGRAD__GPU_LINKS];
    void *data[SGRAD__GPU_LINKS][SGRAD_MAX_OPERANDS];
    for (int first = 0, next; first < f->links; first = next) {
        const struct sgrad_kernel *kernel = f->link[first].whole->kernel;
        next = first + 1 + f->link[first].with;
        for (int i = first; i < next; i++) {
            args[i] = args_of(a, &f->link[i], data[i]);
            args[i].next = i + 1 < next ? &args[i + 1] : NULL;
        }
        const int more = kernel->cuda_fused ? run_with(a, f, first, &args[first]) : 0;
        if (!more) kernel->cuda(&args[first]);
        next += more;
    }
}

static size_t workspace(const struct sgrad_args *args) { return ((const struct sgrad__fusion *)args->attrs)->workspace; }
static size_t gpu_workspace(const struct sgrad_args *args) { return ((const struct sgrad__fusion *)args->attrs)->gpu_workspace; }
static double flops(const struct sgrad_args *args) { return ((const struct sgrad__fusion *)args->attrs)->flops; }

/* Returns the bytes of operand I that CALL moves: all, or proportionally fewer if the kernel reports that it moves less. */
static double moves(const struct sgrad_bound_kernel *call, int i) {
    const struct sgrad_args args = sgrad_bound_kernel_args(call);
    double all = 0;
    for (int j = 0; j < call->operands; j++)
        if (call->view[j].shape.rank >= 0) all += (double)sgrad_view_bytes(&call->view[j]);
    return all > 0 ? sgrad_kernel_bytes(call->kernel, &args, call->operands) * (double)sgrad_view_bytes(&call->view[i]) / all : 0;
}

/* Counts each operand for the link that moves most of it, because the other links find it in the cache. */
static double bytes(const struct sgrad_args *args) {
    const struct sgrad__fusion *f = args->attrs;
    double most[SGRAD_MAX_OPERANDS] = { 0 }, sum = 0;
    for (const struct sgrad__link *l = f->link; l < f->link + f->links; l++)
        for (int i = 0; i < l->whole->operands; i++) {
            const int at = l->operand[i];
            if (at >= 0 && at < SGRAD_MAX_OPERANDS) most[at] = fmax(most[at], moves(l->whole, i));
        }
    for (int at = 0; at < SGRAD_MAX_OPERANDS; at++) sum += most[at];
    return sum;
}

/* Kernels for CPUs only, and for CPUs and GPUs. */
#define FUSED(KIND, CUDA)                                                                                                        \
    { .name = "fused " #KIND, .kind = &sgrad_##KIND##_kind, .cpu = run_cpu, .cuda = CUDA, .workspace = workspace,                \
      .gpu_workspace = gpu_workspace, .flops = flops, .bytes = bytes }
static const struct sgrad_kernel kernels[][2] = {
    { FUSED(forward, NULL), FUSED(forward, run_cuda) },
    { FUSED(backward, NULL), FUSED(backward, run_cuda) },
    { FUSED(update, NULL), FUSED(update, run_cuda) },
    { FUSED(reduction, NULL), FUSED(reduction, run_cuda) },
};

const struct sgrad_kernel *sgrad__fusion_kernel(const struct sgrad_kind *kind, bool cuda) {
    int i = 0;
    while (kernels[i][cuda].kind != kind) i++;
    return &kernels[i][cuda];
}

bool sgrad__fusion_same(const struct sgrad__fusion *one, const struct sgrad__fusion *other) {
    if (one->links != other->links || one->slices != other->slices || one->backwards != other->backwards ||
        one->inner != other->inner || one->own != other->own)
        return false;
    for (int l = 0; l < one->links; l++)
        if (one->link[l].whole != other->link[l].whole ||
            memcmp(one->link[l].operand, other->link[l].operand, sizeof one->link[l].operand) != 0)
            return false;
    return true;
}

/* ---- links of one GPU launch ---- */

/* Returns true if one of the links must wait for the other. */
static bool meet(const struct sgrad__link *one, const struct sgrad__link *other) {
    for (int i = 0; i < one->whole->operands; i++)
        for (int j = 0; j < other->whole->operands; j++)
            if (one->operand[i] >= 0 && one->operand[i] == other->operand[j] &&
                (one->whole->access[i] != SGRAD_R || other->whole->access[j] != SGRAD_R))
                return true;
    return false;
}

static bool are_alike(const struct sgrad_bound_kernel *one, const struct sgrad_bound_kernel *other) {
    if (one->kernel != other->kernel || !one->kernel->batched || one->operands != other->operands)
        return false;
    for (int i = 0; i < one->operands; i++)
        if (one->view[i].dtype != other->view[i].dtype) return false;
    return true;
}

/* Returns true if link IT uses an output of link OF. */
static bool takes(const struct sgrad__link *it, const struct sgrad__link *of) {
    for (int i = 0; i < of->whole->operands; i++)
        for (int j = 0; j < it->whole->operands; j++)
            if (of->operand[i] >= 0 && of->operand[i] == it->operand[j] && of->whole->access[i] != SGRAD_R &&
                it->whole->access[j] != SGRAD_W)
                return true;
    return false;
}

static void move_to(struct sgrad__fusion *fusion, int to, int from) {
    const struct sgrad__link link = fusion->link[from];
    memmove(&fusion->link[to + 1], &fusion->link[to], (size_t)(from - to) * sizeof link);
    fusion->link[to] = link;
}

/* Moves the first consumer of a link's output directly after the link, if the link's kernel may run both and the consumer does
 * not depend on the links between them. */
static void bring_next(struct sgrad__fusion *fusion) {
    for (int l = 0; l < fusion->links; l++) {
        int taker = l + 1;
        while (taker < fusion->links && !takes(&fusion->link[taker], &fusion->link[l])) taker++;
        bool waits = taker == fusion->links || !fusion->link[l].whole->kernel->cuda_fused;
        for (int i = l + 1; i < taker && !waits; i++) waits = meet(&fusion->link[i], &fusion->link[taker]);
        if (!waits) move_to(fusion, l + 1, taker);
    }
}

void sgrad__fusion_gather(struct sgrad__fusion *fusion) {
    bring_next(fusion);
    for (int first = 0; first < fusion->links; first += 1 + fusion->link[first].with)
        for (int l = first + 1; l < fusion->links; l++) {
            bool waits = !are_alike(fusion->link[first].whole, fusion->link[l].whole);
            for (int i = first; i < l && !waits; i++) waits = meet(&fusion->link[i], &fusion->link[l]);
            if (waits) continue;
            move_to(fusion, first + 1 + fusion->link[first].with, l);
            fusion->link[first].with++;
        }
}

static bool is_fused(const struct sgrad_bound_kernel *call) { return call->kernel->cpu == run_cpu; }

int sgrad__call_links(const struct sgrad_bound_kernel *call) {
    return is_fused(call) ? ((const struct sgrad__fusion *)call->attrs)->links : 1;
}

const struct sgrad_bound_kernel *sgrad__call_link(const struct sgrad_bound_kernel *call, int link) {
    return is_fused(call) ? ((const struct sgrad__fusion *)call->attrs)->link[link].whole : call;
}

int64_t sgrad__call_slice(const struct sgrad_bound_kernel *call) {
    const struct sgrad__fusion *f = call->attrs;
    return is_fused(call) && f->slices > 1 ? sgrad__fusion_slice(f) : 0;
}
