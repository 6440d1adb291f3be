/* cudnn_graph_cuda.cu: selects how a task is computed: by our own kernels or as a cuDNN graph, of a convolution
 * (cudnn_draw_cuda.cu) or of attention (attention_graph_cuda.cu).
 *
 * The operations are described as a graph. For each graph, cuDNN's heuristics are queried once. They return configurations of
 * engines, ordered by expected speed. If none of these can be used, they are queried again, for engines that support more graphs.
 * An engine becomes a plan, which runs on given addresses. A plan that takes more than twice as long as the best one is dropped
 * after one timed run.
 *
 * Some plans are compiled for the GPU when they are created, in every run, which takes a second or so. They are used only if
 * graphs are requested, or if the task allows it, and then only the first of them is tried. Engines may report that they round
 * their inputs for tensor cores, such as F32 to TF32. They are left out unless this was enabled. Engines that are not
 * reproducible are also left out, although deterministic runs do not use this file.
 *
 *     STARGRAD_CUDNN=measured      the faster one, among graphs that need not be compiled (default)
 *     STARGRAD_CUDNN=graph         a graph wherever cuDNN has one that runs
 *     STARGRAD_CUDNN=algorithms    no graphs
 *
 * Limits: outputs are overwritten; adding to them is not supported.
 *
 * Source: cuDNN's backend API reference, and its developer guide on graphs, version 9. */
#include "codelets/cuda/cudnn_descriptors.h"
#include "runtime/environment.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>

namespace {

typedef sgrad__descriptors descriptors;
typedef cudnnBackendDescriptor_t descriptor;

/* ---- engines ----------------------------------------------------------------------------------------------------- */

enum { CONFIGURATIONS = 8, NOTES = 32 };

/* A graph, its operands, and the answers of the heuristics, which are queried at most once for each mode. Plans keep it alive. */
struct query {
    descriptors all;
    descriptor graph = NULL;
    std::vector<int64_t> used;
    bool asked[2] = {};
    std::vector<descriptor> found[2];

    explicit query(const struct sgrad__graph_task &task) { graph = task.draw(all, &used); }
    const std::vector<descriptor> &configurations(int mode);
};

/* Returns at most CONFIGURATIONS configurations; none if the heuristics fail. MODE 0: ordered by expected speed; 1: those that
 * support more graphs. */
const std::vector<descriptor> &query::configurations(int mode) {
    static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK };
    std::vector<descriptor> &list = found[mode];
    if (asked[mode]) return list;
    asked[mode] = true;
    descriptors attempt; /* a failure of one mode must not fail the other */
    const descriptor heuristics = attempt.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    attempt.set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    attempt.set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &modes[mode]);
    attempt.finish(heuristics);
    int64_t count = 0;
    while (list.size() < CONFIGURATIONS && all.good()) list.push_back(all.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    if (attempt.good())
        attempt.good_is(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                 CONFIGURATIONS, &count, list.data()));
    list.resize(attempt.good() && all.good() ? (size_t)std::min(count, (int64_t)CONFIGURATIONS) : 0);
    return list;
}

struct engine {
    int64_t number;
    bool tensor_cores, changing, short_sums, compiled; /* rounds inputs for tensor cores; not reproducible; sums in less than F32;
                                                        * compiled when the plan is created */
};
bool engine_of(descriptor configuration, struct engine *engine) {
    descriptors own;
    const descriptor d = own.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t numeric[NOTES];
    cudnnBackendBehaviorNote_t behaviour[NOTES];
    int64_t count, numerics = 0, behaviours = 0;
    descriptor to = d;
    *engine = {};
    if (!own.good() ||
        cudnnBackendGetAttribute(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &to) ||
        cudnnBackendGetAttribute(to, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &engine->number) ||
        cudnnBackendGetAttribute(to, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &numerics, numeric) ||
        cudnnBackendGetAttribute(to, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, NOTES, &behaviours, behaviour))
        return false;
    for (int i = 0; i < numerics; i++) {
        engine->tensor_cores |=
            numeric[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE || numeric[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
        engine->changing |= numeric[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        engine->short_sums |= numeric[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    }
    for (int i = 0; i < behaviours; i++) engine->compiled |= behaviour[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    return true;
}

/* ---- plans, and the choice between the two implementations --------------------------------------------------------- */

} // namespace

struct sgrad__graph_plan {
    std::shared_ptr<struct query> query;
    descriptors all;
    descriptor runs = NULL;
};
void sgrad__graph_choice_free(void *choice) { delete ((struct sgrad__graph_choice *)choice)->plan; }

namespace {

typedef struct sgrad__graph_plan plan;
typedef struct sgrad__graph_task task;

/* Returns a plan of configuration NUMBER of QUERY and sets *ENGINE to its engine. Numbers from CONFIGURATIONS on are those of
 * mode 1. Returns NULL if the configuration does not exist or cannot be used, or if it would have to be compiled and COMPILED is
 * false. */
std::unique_ptr<plan> plan_of(const task &task, const std::shared_ptr<struct query> &query, int number, bool compiled,
                              struct engine *engine) {
    std::unique_ptr<plan> plan(new struct sgrad__graph_plan);
    descriptors &all = plan->all;
    plan->query = query;
    if (!query->all.good() || number < 0 || number >= 2 * CONFIGURATIONS) return nullptr;
    const std::vector<descriptor> &list = query->configurations(number / CONFIGURATIONS);
    number %= CONFIGURATIONS;
    if (number >= (int)list.size() || !engine_of(list[number], engine)) return nullptr;
    if ((engine->tensor_cores && task.exact) || engine->changing || engine->short_sums) return nullptr;
    if (engine->compiled && !compiled) return nullptr;
    const cudnnHandle_t handle = sgrad_cudnn();
    const descriptor d = all.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t count, room = 0;
    all.set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    all.set(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, list[number]);
    all.finish(d);
    if (all.good())
        all.good_is(cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &room));
    if (!all.good() || room < 0 || (size_t)room > task.room) return nullptr;
    plan->runs = d;
    return plan;
}

cudnnStatus_t execute(const struct sgrad__graph_plan &plan, const struct sgrad__graph_data &graph_data) {
    std::vector<int64_t> uid;
    std::vector<const void *> data;
    for (int64_t number : plan.query->used) uid.push_back(sgrad__graph_uid(number)), data.push_back(graph_data.at[number]);
    descriptors own;
    const descriptor pack = own.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    own.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, (int64_t)uid.size(), uid.data());
    own.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, (int64_t)data.size(), data.data());
    own.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &graph_data.room);
    own.finish(pack);
    if (own.good()) own.good_is(cudnnBackendExecute(sgrad_cudnn(), plan.runs, pack));
    return own.status;
}

cudnnStatus_t as_graph(const struct sgrad__graph_plan &plan, const struct sgrad__graph_data &data, const task &task) {
    if (task.before) task.before();
    const cudnnStatus_t status = execute(plan, data);
    if (status == CUDNN_STATUS_SUCCESS && task.after) task.after();
    return status;
}

enum wanted { MEASURED, GRAPH, ALGORITHMS };
int wanted(void) {
    static const char *const choices[] = { "measured", "graph", "algorithms", NULL };
    static const int choice = sgrad_variable_choice("STARGRAD_CUDNN", choices, "the fastest convolutions are used");
    return choice < 0 ? (int)MEASURED : choice;
}

/* Returns the fastest plan, and sets its number and engine. NULL: own kernels are faster, or no plan runs. Plans of mode 1 are
 * slow, so they are tried only if no other plan runs. */
std::unique_ptr<plan> measure(const task &task, const struct sgrad__graph_data &data, int *number, int64_t *engine) {
    std::unique_ptr<plan> best;
    const auto unfused = [&] { return task.unfused(), CUDNN_STATUS_SUCCESS; };
    double least = wanted() == GRAPH ? INFINITY : sgrad__time_of(unfused, INFINITY);
    bool compiled = wanted() == GRAPH || task.compiled, ran = false; /* of compiled plans, only the first is tried */
    const auto query = std::make_shared<struct query>(task);
    sgrad_log_progress("measuring cuDNN's graphs, once for each kind of GPU and shape");
    for (int i = 0; i < 2 * CONFIGURATIONS && !(i == CONFIGURATIONS && ran); i++) {
        struct engine is;
        auto plan = plan_of(task, query, i, compiled, &is);
        if (!plan) continue;
        const double took = sgrad__time_of([&] { return as_graph(*plan, data, task); }, least);
        compiled &= !is.compiled;
        ran |= took < INFINITY;
        if (!(took < least)) continue;
        least = took, best = std::move(plan), *number = i, *engine = is.number;
    }
    return best;
}

void choose(struct sgrad__graph_choice *choice, const task &task, const struct sgrad__graph_data &data) {
    static const char topic[] = "cudnn";
    static std::recursive_mutex lock; /* one worker measures, others find its result; recursive: unfused may use graphs, too */
    const std::lock_guard<std::recursive_mutex> locked(lock);
    const std::string name = task.memo();
    char value[48];
    int number = -1;
    long long engine = -1;
    struct engine is;
    if (wanted() == MEASURED && sgrad_tuning_cache_get(topic, name.c_str(), value, sizeof value) &&
        sscanf(value, "%d %lld", &number, &engine) == 2) {
        std::unique_ptr<plan> plan;
        if (number >= 0) plan = plan_of(task, std::make_shared<struct query>(task), number, task.compiled, &is);
        choice->plan = plan && is.number == engine ? plan.release() : NULL;
    } else {
        int64_t found = -1;
        choice->plan = measure(task, data, &number, &found).release();
        snprintf(value, sizeof value, "%d %lld", choice->plan ? number : -1, (long long)found);
        if (wanted() == MEASURED) sgrad_tuning_cache_put(topic, name.c_str(), value);
    }
}

} // namespace

/* The first run includes loading kernels. If it takes longer than this plus twice LEAST, there is no second run. */
static const double LOADING = 1000; /* ms */

double sgrad__time_of(const std::function<cudnnStatus_t()> &work, double least) {
    enum { TURNS = 4 };
    double best = INFINITY;
    cudaEvent_t begin, end;
    SGRAD_CUDA(cudaEventCreateWithFlags(&begin, cudaEventDefault));
    SGRAD_CUDA(cudaEventCreateWithFlags(&end, cudaEventDefault));
    for (int turn = 0; turn < TURNS; turn++) {
        float took = 0;
        SGRAD_CUDA(cudaEventRecord(begin, sgrad_cuda_stream()));
        if (work() != CUDNN_STATUS_SUCCESS) {
            best = INFINITY;
            break;
        }
        SGRAD_CUDA(cudaEventRecord(end, sgrad_cuda_stream()));
        cudaError_t status;
        while ((status = cudaEventQuery(end)) == cudaErrorNotReady) continue; /* once per shape; cuDNN's search does the same */
        SGRAD_CUDA(status);
        SGRAD_CUDA(cudaEventElapsedTime(&took, begin, end));
        if (turn > 0 || took > LOADING + 2 * least) best = std::min(best, (double)took);
        if (best < INFINITY && best > 2 * least) break;
    }
    SGRAD_CUDA(cudaEventDestroy(begin));
    SGRAD_CUDA(cudaEventDestroy(end));
    return best;
}

bool sgrad__graph_wanted(void) { return wanted() != ALGORITHMS; }

void sgrad__graph_run(struct sgrad__graph_choice *choice, bool created, const struct sgrad__graph_task &task,
                      const struct sgrad__graph_data &data) {
    if (created) choose(choice, task, data);
    if (choice->plan) {
        const cudnnStatus_t status = as_graph(*choice->plan, data, task);
        if (status == CUDNN_STATUS_SUCCESS || sgrad_cuda_excuses(cudnnGetErrorString(status), "a graph of cuDNN")) return;
        sgrad_log_warning("%s failed: %s; it is computed without a graph", task.text().c_str(), cudnnGetErrorString(status));
        delete choice->plan;
        choice->plan = NULL;
    }
    task.unfused();
}
