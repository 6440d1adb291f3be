/* print.c: prints the configuration in use before the first step, and a picture of the first batch; statistics of the
 * parameter servers after the last step. */
#include "datasets/datasets.h"
#include "graphs/train/setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_network(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_network *net = run->context->network;
    const double bytes = run->program->buckets ? (double)run->program->exchanged_bytes / run->program->buckets : 0;
    const char *buckets = sgrad_plural(run->program->buckets, "bucket", "buckets");
    const struct sgrad_exchange each = { .bytes = bytes, .halving = run->options.training.deterministic };
    const struct sgrad_collective *method = run->parallel.allreduce;
    int hosts = 0;
    for (int i = 0; i < net->ranks; i++) hosts += net->host[i] == i;
    if (!method) method = sgrad_collective_cheapest(SGRAD_ALLREDUCE, &each, net);
    fprintf(to, "network    %d ranks on %d %s; latency %.0f us, bandwidth %.3g GB/s\n", net->ranks, hosts,
            sgrad_plural(hosts, "host", "hosts"), 1e6 * net->latency, net->bandwidth / 1e9);
    if (run->parallel.strategy->uses_servers) {
        fprintf(to, "servers    %d for %d %s of about %.0f kB; %s\n", run->parallel.servers, run->program->buckets, buckets,
                bytes / 1e3, run->parallel.strategy->summary);
        return;
    }
    if (run->parallel.strategy->shards_optimizer) {
        fprintf(to, "shards     of %soptimizer states and updates; gradients in %d %s of about %.0f kB, reduced to shards\n",
                run->parallel.strategy->shards_parameters ? "parameters, " : "", run->program->buckets, buckets, bytes / 1e3);
        return;
    }
    fprintf(to, "allreduce  %s, %s; gradients in %d %s of about %.0f kB, estimated at %.2f ms each\n", method->name,
            run->parallel.allreduce ? "set by --allreduce" : "lowest estimated cost", run->program->buckets, buckets, bytes / 1e3,
            1e3 * sgrad_collective_cost(method, &each, net));
}

/* Prints the data placement. A partitioned training set needs memory for two shards: of this epoch and of the next one. */
static void print_placement(const struct sgrad__run *run, FILE *to) {
    const double sample = (double)sgrad_dataset_sample_bytes(run->data.train);
    if (!run->data.placement) {
        fprintf(to, "placement  replicate: every rank has all %lld %s, %.2f MB\n", (long long)run->data.train->count,
                sgrad_plural(run->data.train->count, "record", "records"), sample * (double)run->data.train->count / 1e6);
        return;
    }
    const struct sgrad_view view = sgrad__placement_view(run->data.placement);
    fprintf(to, "placement  partition: rank 0 has %lld of %lld %s, %.2f MB%s\n", (long long)view.shape.dim[0],
            (long long)run->data.train->count, sgrad_plural(run->data.train->count, "record", "records"),
            (double)sgrad_view_bytes(&view) / 1e6,
            run->options.data.no_shuffle ? "" : ", and the same amount for the next epoch");
}

static void print_mesh(const struct sgrad__run *run, FILE *to) {
    char text[SGRAD_MESH_TEXT];
    if (run->parallel.copies == 1)
        fprintf(to, "mesh       %s: every rank has different samples\n", sgrad_mesh_text(&run->parallel.mesh, text));
    else
        fprintf(to, "mesh       %s: groups of %d ranks have the same samples and share the work on them\n",
                sgrad_mesh_text(&run->parallel.mesh, text), run->parallel.copies);
}

/* Prints the memory of a step. Evaluations need additional memory. */
static void print_memory(const struct sgrad__run *run, FILE *to) {
    double on_time;
    const struct sgrad__memory is = sgrad__program_memory(run->program, run->context->cpus + run->context->gpus, &on_time);
    const double kept = sgrad__training_memory(run->training), most = kept + sgrad__memory_all(&is), least = kept + on_time;
    const struct {
        const char *name;
        double bytes;
    } part[] = { { "parameters and states", kept },   { "activations", is.activations }, { "gradients", is.gradients },
                 { "messages", is.messages },         { "inputs", is.inputs },           { "workspaces", is.workspaces } };
    fprintf(to, "memory     up to %.2f MB on this rank", 1e-6 * most);
    if (most > 1.005 * least) fprintf(to, ", %.2f if no rank is late", 1e-6 * least);
    fputc(':', to);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].bytes > 0) fprintf(to, "%s %.2f %s", i ? "," : "", 1e-6 * part[i].bytes, part[i].name);
    fputc('\n', to);
}

/* Prints the moves to and from a file, if there are any. */
static void print_spilling(const struct sgrad__run *run, FILE *to) {
    const struct sgrad__spilling *s = &run->program->spilling;
    const struct sgrad__memory_limit *limit = &run->batch.limit;
    const struct sgrad_parallel_options *o = &run->options.parallel;
    if (!limit->bytes) return;
    fprintf(to, "limit      %.2f MB on this rank%s, of which steps may use %.2f",
            1e-6 * (double)(limit->gpu ? o->gpu_memory : o->memory), limit->gpu ? "'s GPU" : "", 1e-6 * limit->bytes);
    if (!s->read) {
        fputs(": all buffers stay in memory\n", to);
        return;
    }
    struct sgrad__homes homes = sgrad__homes_find(run->training);
    const int states = limit->moved < homes.states ? limit->moved : homes.states;
    fprintf(to, ": %d activations and gradients", s->slots);
    if (states) fprintf(to, ", %.2f MB of optimizer states", 1e-6 * sgrad__homes_bytes(&homes, 0, states));
    if (limit->moved > states) fprintf(to, ", %.2f of weights", 1e-6 * sgrad__homes_bytes(&homes, states, limit->moved));
    sgrad__homes_free(&homes);
    fprintf(to, " leave %s; a step writes %.2f MB to %s and reads %.2f (%.2f and %.2f GB/s, %s); ",
            limit->gpu ? "the GPU" : "memory", 1e-6 * s->written, sgrad_spill_folder(s->file), 1e-6 * s->read,
            1e-9 * limit->speed.write, 1e-9 * limit->speed.read, sgrad_spill_engine(s->file));
    fprintf(to, "predicted %.2f s, of which %.2f waiting\n", s->seconds, s->waited);
}

/* Prints the number of layers that are recomputed, if there are any, and the reason. */
static void print_recomputation(const struct sgrad__run *run, FILE *to) {
    const struct sgrad__recomputation *is = &run->batch.recomputation;
    const int layers = run->options.model.recompute ? run->recomputed : is->layers;
    if (!run->options.model.recompute && !layers) return;
    fprintf(to, "recompute  the activations of %d of %d layers in the backward pass", layers, run->graph->node_count);
    const char *limit = run->batch.limit.gpu ? "--gpu-memory" : "--memory";
    if (is->layers && is->before <= 0) fprintf(to, ": another rank chose them, because of its %s", limit);
    else if (is->layers && isinf(is->before)) fprintf(to, ": %s is too little without this", limit);
    else if (is->layers) fprintf(to, ": predicted %.2f s with this, %.2f s if they are moved", is->after, is->before);
    fputc('\n', to);
}

/* Prints the order of the samples of a data set in several files. */
static void print_shards(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_dataset *d = run->data.train;
    const long window = run->options.data.shuffle_window;
    fprintf(to, "; %lld %s", (long long)d->shards, sgrad_plural(d->shards, "shard", "shards"));
    if (run->options.data.no_shuffle) fputs(" in order", to);
    else if (sgrad__run_is_balanced(run) || !window || window >= d->count) fputs(", all samples shuffled", to);
    else fprintf(to, " in random order, samples drawn from the next %ld", window);
}

/* Prints input and target of the network: "32x32x3, 10 classes", or "8 features, 1 target". */
static void print_data(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_dataset *d = run->data.train;
    const struct sgrad_field *image = sgrad_dataset_image(d), *target = sgrad_dataset_target(d);
    fprintf(to, "data       %s: ", run->options.data.name);
    for (const struct sgrad_field *f = d->field; f < target; f++) {
        for (int i = 0; i < f->shape.rank; i++) fprintf(to, "%s%lld", i ? "x" : "", (long long)f->shape.dim[i]);
        if (f != image) fprintf(to, "%s%s", f->shape.rank ? " " : "", f->name);
        fputs(", ", to);
    }
    if (d->classes) fprintf(to, "%d %s", d->classes, sgrad_plural(d->classes, "class", "classes"));
    else fprintf(to, "%lld %s", (long long)sgrad_shape_count(&target->shape), target->name);
    fprintf(to, ", %lld training and %lld test %s", (long long)d->count, (long long)run->data.test->count,
            sgrad_plural(run->data.test->count, "sample", "samples"));
    if (d->excluded) fprintf(to, "; %lld left out by %s", (long long)d->excluded, run->options.data.exclude);
    if (d->held_out) fprintf(to, "; the test samples are held out by --split %g", run->options.data.split);
    if (d->damaged + run->data.test->damaged)
        fprintf(to, "; %lld training and %lld test %s damaged and left out", (long long)d->damaged,
                (long long)run->data.test->damaged, sgrad_plural(run->data.test->damaged, "sample", "samples"));
    if (d->note) fprintf(to, "; %s", d->note);
    if (d->shards) print_shards(run, to);
    if (d->others) fprintf(to, "; training folder: %s", d->others);
    if (run->data.test->others) fprintf(to, "; test folder: %s", run->data.test->others);
    if (image && d->reader->measures && !sgrad__run_states_input(run) && sgrad_dataset_measured(d) < d->count)
        fprintf(to, "; mean and deviation are those of %lld samples at equal distances", (long long)sgrad_dataset_measured(d));
    if (image) fprintf(to, "; augmentation %s", run->options.data.augment);
    if (image && d->plain) fprintf(to, ": %s", d->plain);
    fputc('\n', to);
}

/* Prints the sources of a mixture. */
static void print_sources(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_dataset *train = run->data.train, *test = run->data.test;
    for (int s = 0; s < train->sources; s++) {
        const struct sgrad_source *source = &train->source[s];
        fprintf(to, "%-10s %s: weight %.4g, %lld training %s, of which an epoch has %lld%s", s ? "" : "sources", source->name,
                source->weight, (long long)source->count, sgrad_plural(source->count, "sample", "samples"),
                (long long)source->quota, source->quota > source->count ? " with repetitions" : "");
        if (s < test->sources) fprintf(to, "; %lld test %s", (long long)test->source[s].count,
                                       sgrad_plural(test->source[s].count, "sample", "samples"));
        fputc('\n', to);
    }
}

static const char *precision_text(const struct sgrad__run *run) {
    if (run->options.model.precision != SGRAD_PRECISION_BF16) return "";
    if (run->context->gpus || sgrad_isa() >= SGRAD_AVX512_BF16) return " with f32 master weights";
    return " with f32 master weights, computed in f32: this CPU has no bf16 instructions, so bf16 saves memory, but time only if "
           "training is memory-bound";
}

void sgrad__run_print(const struct sgrad__run *run, FILE *to) {
    const struct sgrad_train_options *o = &run->options;
    char devices[256];
    const long long parameters = (long long)sgrad__parameters_whole(run->graph);
    const long long here = (long long)sgrad__parameters_count(run->graph);
    char *samples = sgrad__micros_text(run->program);
    fprintf(to, "model      %s, %lld %s", run->model_text, parameters, sgrad_plural(parameters, "parameter", "parameters"));
    if (here < parameters) fprintf(to, ", of which this rank stores %lld", here);
    fputc('\n', to);
    print_data(run, to);
    print_sources(run, to);
    if (run->data.placement || run->context->ranks > 1) print_placement(run, to);
    if (run->parallel.joint || run->parallel.mesh_table) print_mesh(run, to);
    if (run->parallel.mesh_table) fprintf(to, "           the mesh of the lowest estimated cost:\n%s", run->parallel.mesh_table);
    sgrad__run_print_pipe(run, to);
    const char *updates = run->parallel.strategy->drops_stale ? "synchronous except for the slowest" : "asynchronous";
    if (run->program->batch.averaged == run->program->batch.samples) updates = "synchronous";
    fprintf(to, "batch      %ld = %d %s x %d %s x %s, %s", o->training.batch, run->parallel.local_batches,
            sgrad_plural(run->parallel.local_batches, "rank", "ranks"), run->program->micros,
            sgrad_plural(run->program->micros, "micro-batch", "micro-batches"), samples, updates);
    free(samples);
    if (run->program->grouped)
        fprintf(to, "; batch norm over %lld %s%s", (long long)run->batch.norm_group,
                sgrad_plural(run->batch.norm_group, "sample", "samples"),
                run->batch.resumed_group ? ", as at the start of the run" : "");
    fputc('\n', to);
    print_recomputation(run, to);
    if (run->program->batch.averaged != run->program->batch.samples)
        fprintf(to, "updates    use the %sgradients of %lld %s%s; at most %d %s in flight\n",
                run->parallel.strategy->drops_stale ? "first " : "", (long long)run->program->batch.averaged,
                sgrad_plural(run->program->batch.averaged, "sample", "samples"),
                run->parallel.strategy->drops_stale ? "; later ones are dropped" : ", as they arrive",
                sgrad__run_steps_in_flight(run), sgrad_plural(sgrad__run_steps_in_flight(run), "step", "steps"));
    fprintf(to, "optimizer  %s, learning rate %g", o->optimizer.name, run->update.peak_lr);
    if (o->optimizer.lr_scale_base)
        fprintf(to, " = %g x %ld/%ld", o->optimizer.lr, o->training.batch, o->optimizer.lr_scale_base);
    fprintf(to, ", %s%s; %ld %s, %ld per epoch\n", o->optimizer.schedule, o->optimizer.warmup > 0 ? " after a warm-up" : "",
            run->steps, sgrad_plural(run->steps, "step", "steps"), run->steps_per_epoch);
    if (o->training.lookahead.every)
        fprintf(to, "lookahead  every %ld steps, slow weights retain %g x (step / %ld)^%g of their value\n",
                o->training.lookahead.every, o->training.lookahead.decay, run->steps, o->training.lookahead.power);
    if (o->training.ema > 0) fprintf(to, "weights    evaluated and saved as a moving average with decay %g\n", o->training.ema);
    else if (run->update.optimizer->average)
        fprintf(to, "weights    evaluated and saved as their average over all steps\n");
    sgrad__run_print_tuning(run, to);
    print_memory(run, to);
    print_spilling(run, to);
    if (run->program->note) fprintf(to, "%.*s\n", (int)strcspn(run->program->note, "\n"), run->program->note);
    if (run->context->ranks > 1) print_network(run, to);
    fprintf(to, "devices    %s; scheduler %s; %s%s; seed %llu%s\n", sgrad_devices_text(run->context, devices, sizeof devices),
            run->context->scheduler, sgrad_precision_name(o->model.precision),
            precision_text(run), (unsigned long long)o->training.seed,
            o->training.deterministic ? ", deterministic" : "");
    if (run->files.history) fputs(run->files.history, to);
    fflush(to);
}

/* Prints one line: the number of dropped gradients, of PUSHES per rank, and the rank with the most. */
static void print_dropped(struct sgrad__run *run, double pushes, FILE *to) {
    const int ranks = run->context->ranks;
    double *dropped = sgrad_xcalloc((size_t)ranks, sizeof *dropped), all = 0;
    int worst = 0;
    sgrad__server_dropped(run->parallel.server, dropped, ranks);
    for (int i = 0; i < ranks; i++) {
        all += dropped[i];
        if (dropped[i] > dropped[worst]) worst = i;
    }
    if (run->context->rank == 0 && all > 0)
        fprintf(to, "dropped    %.0f of %.0f pushes (%.1f %%); most of rank %d: %.1f %%\n", all, pushes * ranks,
                100 * all / (pushes * ranks), worst, 100 * dropped[worst] / pushes);
    free(dropped);
}

/* Prints one line: the distribution of the staleness of gradients, counted in updates. */
void sgrad__run_print_staleness(struct sgrad__run *run, FILE *to) {
    double histogram[SGRAD__STALENESS], all = 0;
    sgrad__server_staleness(run->parallel.server, histogram);
    for (int i = 0; i < SGRAD__STALENESS; i++) all += histogram[i];
    if (all == 0) return;
    if (run->parallel.strategy->drops_stale) print_dropped(run, all / run->context->ranks, to);
    if (run->context->rank) return;
    fprintf(to, "staleness ");
    for (int i = 0; i < SGRAD__STALENESS; i++)
        if (histogram[i] > 0)
            fprintf(to, " %d%s: %.1f %%", i, i == SGRAD__STALENESS - 1 ? " or more" : "", 100 * histogram[i] / all);
    fputc('\n', to);
}

int sgrad__run_show_batch(const struct sgrad__run *run, FILE *terminal) {
    enum { MOST = 256 };
    const int count = run->options.training.batch < MOST ? (int)run->options.training.batch : MOST;
    const struct sgrad_drawing how = { .seed = run->options.training.seed, .augmentations = run->data.train->drawn };
    struct sgrad_sample sample[MOST];
    struct sgrad__sampler order = sgrad__run_sampler(run);
    for (int i = 0; i < count; i++) sample[i] = sgrad__sampler_sample(&order, 0, i);
    sgrad__sampler_close(&order);
    SGRAD_TRY(sgrad_dataset_show(run->data.train, sample, count, &how, run->options.output.show_batch, terminal));
    fprintf(terminal, "the first %d %s of a batch, as they enter training: %s\n", count,
            sgrad_plural(count, "sample", "samples"), run->options.output.show_batch);
    return 0;
}
