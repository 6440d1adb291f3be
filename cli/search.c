/* search.c: stargrad search: trains many candidates on data that is not moved. */
#include "cli/candidates.h"
#include "graphs/api/search.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

static const struct sgrad__option options[] = {
    { "data", "KIND[:PATH]", "data set; see stargrad list datasets", &sgrad__text, SGRAD__FIELD(data.name) },
    { "out", "DIR", "folder of the search", &sgrad__folder, SGRAD__FIELD(output.folder) },
    { "resume", NULL, "continue the search in --out from the newest checkpoints of its candidates", &sgrad__flag,
      SGRAD__FIELD(checkpoint.resume) },
    { "replay", "DIR/NAME",
      "train candidate NAME of the search in DIR again, by itself, and compare losses and weights with those of the search; "
      "writes DIR/NAME/replay",
      &sgrad__text, SGRAD__PLACE(search.replay) },
    { "together", "N", "number of candidates that a process trains concurrently [automatic]", &sgrad__whole,
      SGRAD__PLACE(search.together), 1, 64 },
    { "stall-timeout", "SECONDS", "stop with an error after this time without progress of a rank; 0: never", &sgrad__real,
      SGRAD__FIELD(parallel.stall_timeout), 0, 1e9 },
    { "cpus", "N", "number of CPU workers", &sgrad__workers, SGRAD__FIELD(parallel.cpus), 0, 4096 },
    { "gpus", "N", "number of CUDA devices; 0: none", &sgrad__workers, SGRAD__FIELD(parallel.gpus), 0, 4096 },
    { "scheduler", "NAME", "StarPU scheduler [lws; with GPUs dmdas]", &sgrad__text, SGRAD__FIELD(parallel.scheduler) },
    { "json", NULL, "print the result as a JSON object", &sgrad__flag, SGRAD__FIELD(output.json) },
    { 0 },
};

static int read_candidates(const struct sgrad__request *request, struct sgrad__candidates *all) {
    const struct sgrad_train_options *o = &request->train;
    const char *replay = request->search.replay, *slash = replay ? strrchr(replay, '/') : NULL;
    *all = (struct sgrad__candidates){ 0 };
    if (!replay) {
        if (!request->argument) return sgrad__wrong("search: FILE.json is missing; see stargrad search --help");
        if (!o->data.name) return sgrad__wrong("search: --data KIND[:PATH] is missing; see stargrad search --help");
        if (!o->output.folder) return sgrad__wrong("search: --out DIR is missing; see stargrad search --help");
        return sgrad__candidates_read(request->argument, o, all);
    }
    if (request->argument || o->output.folder || o->checkpoint.resume)
        return sgrad__wrong("search: --replay cannot be combined with FILE.json, --out or --resume: it reads everything from "
                            "DIR/NAME");
    if (!slash || !slash[1] || slash == replay)
        return sgrad__wrong("search: --replay '%s' must be the folder of a search and the name of a candidate, DIR/NAME", replay);
    char *folder = sgrad_format("%.*s", (int)(slash - replay), replay);
    int status = sgrad__candidates_find(folder, slash + 1, o, all);
    all->options.common.output.folder = folder;
    all->options.replay = replay;
    return status;
}

static void print_replay(const struct sgrad__request *request, const struct sgrad_search_result *result) {
    if (request->train.output.json)
        sgrad__print_json(json_pack("{s:s, s:s, s:b}", "replay", request->search.replay, "folder", result->folder, "same",
                                    result->same));
    else if (result->same)
        printf("%s: trained again in %s: the losses and weights are identical\n", request->search.replay, result->folder);
    else
        sgrad_log_error(SGRAD_EINVAL, "%s: trained again in %s: the losses or weights differ from those of the search",
                        request->search.replay, result->folder);
}

static void print_result(const struct sgrad__request *request, const struct sgrad_search_result *result) {
    const bool drawn = sgrad_report_search(result->folder, NULL);
    if (request->train.output.json) {
        char *path = sgrad_format("%s/leaderboard.json", result->folder);
        sgrad__print_json(json_pack("{s:s, s:s?, s:I, s:f, s:o?}", "folder", result->folder, "best", result->best, "hops",
                                    (json_int_t)result->hops, "bytes", result->bytes, "leaderboard",
                                    json_load_file(path, 0, NULL)));
        free(path);
        return;
    }
    printf("%ld %s, %.3g MB moved\n", result->hops, sgrad_plural(result->hops, "hop", "hops"), result->bytes / 1e6);
    if (result->best) printf("best: %s/%s/model.safetensors\n", result->folder, result->best);
    printf("%s: leaderboard.json, schedule.jsonl%s\n", result->folder, drawn ? ", report.html" : "");
}

static int run(const struct sgrad__request *request) {
    struct sgrad__candidates all;
    struct sgrad_search_result result = { 0 };
    int status = read_candidates(request, &all);
    all.options.concurrent = request->search.together;
    if (!status) status = sgrad__status(sgrad_search(&all.options, &result));
    if (!status && result.rank == 0 && all.options.replay) {
        print_replay(request, &result);
        status = result.same ? SGRAD__DONE : SGRAD__FAILED;
    } else if (!status && result.rank == 0) {
        print_result(request, &result);
        if (!result.best) {
            sgrad_log_error(SGRAD_ENAN, "%s: every candidate has failed; the warnings above state the reasons", result.folder);
            status = SGRAD__FAILED;
        }
    }
    if (all.options.replay) free((char *)all.options.common.output.folder);
    sgrad__candidates_free(&all);
    free(result.folder);
    free(result.best);
    return status;
}

const struct sgrad__command sgrad__search_command = {
    .name = "search",
    .summary = "train many candidates and stop the worse ones early",
    .argument = "[FILE.json]",
    .options = options,
    .run = run,
    .notes = "FILE.json is a JSON object. Its keys are long option names of train, for all candidates, and one of:\n\n"
             "  \"candidates\": [{\"lr\": 0.01}, {\"lr\": 0.1}]\n"
             "  \"grid\": {\"lr\": [0.01, 0.1], ...}\n"
             "  \"random\": {\"count\": 20, \"lr\": {\"log\": [1e-3, 1]}, ...}\n\n"
             "It may also have:\n\n"
             "  \"stop\": {\"rule\": \"halving|median|none\", \"first\": 1, \"factor\": 3}\n"
             "  \"partitions\": N\n"
             "  \"order\": \"staggered|ring|open-shop\"\n\n"
             "See docs/guides/search.md. For example:\n\n"
             "  stargrad search lenet.json --data idx:DIR --out search",
};
