/* print.c: prints a program as text, before it runs. The tests compare it with golden copies. */
#include "graphs/compiler/program.h"

#include <stdlib.h>
#include <string.h>

static const char *human(double x, char text[16]) {
    static const char *const units[] = { "", "k", "M", "G", "T" };
    int unit = 0;
    while (x >= 999.95 && unit < 4) {
        x /= 1000;
        unit++;
    }
    snprintf(text, 16, unit ? "%.1f%s" : "%.0f%s", x, units[unit]);
    return text;
}

/* Returns the number of uses of each call, in the order of the sorted calls. The caller must free it. */
static int *count_calls(const struct sgrad__program *program, struct sgrad_bound_kernel **sorted) {
    int *times = sgrad_xcalloc((size_t)program->call_count, sizeof *times);
    memcpy(sorted, program->call, (size_t)program->call_count * sizeof *sorted);
    qsort(sorted, (size_t)program->call_count, sizeof *sorted, sgrad__by_address);
    for (int i = 0; i < program->instruction_count; i++) {
        struct sgrad_bound_kernel **at =
            bsearch(&program->instruction[i].call, sorted, (size_t)program->call_count, sizeof *sorted, sgrad__by_address);
        times[at - sorted]++;
    }
    return times;
}

/* Prints the operations of a fused task, and the samples of a slice. */
static void print_links(const struct sgrad_bound_kernel *call, FILE *to) {
    const int64_t samples = sgrad__call_slice(call);
    if (sgrad__call_links(call) == 1 && !samples) return;
    fprintf(to, "%-10s   ", "");
    if (samples) fprintf(to, "%lld %s at a time: ", (long long)samples, sgrad_plural(samples, "sample", "samples"));
    else fprintf(to, "fused: ");
    for (int i = 0; i < sgrad__call_links(call); i++) fprintf(to, "%s%s", i ? ", " : "", sgrad__call_link(call, i)->kernel->name);
    fputc('\n', to);
}

static void print_when(struct sgrad__when when, FILE *to) {
    if (when.every == SGRAD__ONCE) fprintf(to, "  in step %ld", when.from);
    else if (when.every)
        fprintf(to, "  every %ld %s from %ld on", when.every, sgrad_plural(when.every, "step", "steps"), when.from);
    fputc('\n', to);
}

/* Prints one line per call, at its first use, with the number of uses: tasks that differ only in the micro-batch have one line.
 * Different sums use the same call, so each sum has a separate line. */
void sgrad__program_print(const struct sgrad__program *program, FILE *to) {
    char flops[16], bytes[16], text[SGRAD_SHAPE_TEXT];
    struct sgrad_bound_kernel **sorted = sgrad_xcalloc((size_t)program->call_count, sizeof *sorted);
    int *times = count_calls(program, sorted);
    double total = 0, sent = 0;
    char *samples = sgrad__micros_text(program);
    fprintf(to, "%s of %lld %s: %d %s of %s", program->training ? "training step" : "evaluation", (long long)program->share,
            sgrad_plural(program->share, "sample", "samples"), program->micros,
            sgrad_plural(program->micros, "micro-batch", "micro-batches"), samples);
    free(samples);
    if (program->grouped) fprintf(to, ", batch-norm groups of %lld", (long long)program->batch.group);
    fputc('\n', to);
    if (program->note) fputs(strchr(program->note, '\n') + 1, to);
    fprintf(to, "%-10s %-44s %6s  %-8s %-8s %s\n", "kind", "task", "times", "flops", "bytes", "first operand");
    for (int i = 0; i < program->instruction_count; i++) {
        const struct sgrad__instruction *in = &program->instruction[i];
        struct sgrad_bound_kernel **at =
            bsearch(&in->call, sorted, (size_t)program->call_count, sizeof *sorted, sgrad__by_address);
        int *left = &times[at - sorted], count = in->call->kernel == &sgrad_sum_kernel ? 1 : *left;
        total += in->call->flops * sgrad__share_of_steps(in->when);
        if (in->call->kernel == &sgrad__send_kernel) sent += in->call->bytes * sgrad__share_of_steps(in->when);
        if (*left == 0) continue;
        if (in->call->kernel != &sgrad_sum_kernel) *left = 0;
        fprintf(to, "%-10s %-44.*s %6d  %-8s %-8s %s", in->call->kernel->kind ? in->call->kernel->kind->name : "-",
                (int)strcspn(in->name, "#"), in->name, count, human(in->call->flops, flops), human(in->call->bytes, bytes),
                sgrad_shape_text(&in->call->view[0].shape, text));
        print_when(in->when, to);
        print_links(in->call, to);
    }
    free(times);
    free(sorted);
    fprintf(to, "%d %s, %s flops", program->instruction_count, sgrad_plural(program->instruction_count, "task", "tasks"),
            human(total, flops));
    if (sent > 0) fprintf(to, "; sends %s bytes to other ranks", human(sent, bytes));
    fputc('\n', to);
    if (program->graph->mesh.axes || program->shared) sgrad__program_print_bytes(program, to);
}
