/* runner.c: executes a program repeatedly, with several steps in flight.
 *
 *     submit(t)    submits every instruction as a task or message; does not wait
 *     wait(t)      waits for the oldest step in flight: all its tasks have been executed, and its loss is available
 *
 * With two steps in flight, step t+1 is submitted before step t ends. Its input is read, and its first layers start as soon as
 * their weights are updated, while the rest of step t is still running. */
#include "graphs/engine/runner.h"
#include "runtime/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* waits: number of events that a step may have: instructions, then fetches of outputs. takes_part: returns true if event I
 * belongs to STEP. */
static int waits(const struct sgrad__program *program) { return program->instruction_count + program->outputs; }
static bool takes_part(const struct sgrad__program *program, int i, long step) {
    const int output = i - program->instruction_count;
    return sgrad__takes_part(output < 0 ? program->instruction[i].when : program->output[output].when, step);
}

/* Returns true if the step waits for event I. */
static bool is_awaited(const struct sgrad__program *program, int i, long step) {
    return takes_part(program, i, step) && !(i < program->instruction_count && program->instruction[i].outlives);
}

/* Returns true if the instruction changes a buffer of the graph or of the training: parameters, states and statistics, which
 * persist from step to step. */
static bool changes_lent(const struct sgrad__program *program, const struct sgrad__instruction *instruction) {
    for (int j = 0; j < instruction->call->operands; j++)
        if (instruction->operand[j] >= 0 && instruction->call->access[j] != SGRAD_R &&
            program->buffer[sgrad__whole_of(program, instruction->operand[j])].lent)
            return true;
    return false;
}

struct sgrad__runner *sgrad__runner_create(struct sgrad__program *program, struct sgrad_monitor *listener) {
    struct sgrad__runner *r = sgrad_xcalloc(1, sizeof *r);
    r->program = program;
    r->stays = sgrad_xcalloc((size_t)program->instruction_count + 1, sizeof *r->stays);
    r->can_cancel = r->alone = program->training;
    for (int i = 0; i < program->instruction_count; i++) {
        const bool is_message = sgrad__is_message(program->instruction[i].call);
        r->stays[i] = changes_lent(program, &program->instruction[i]);
        r->can_cancel &= !program->instruction[i].outlives && !(is_message && r->stays[i]);
        r->alone &= !is_message;
    }
    r->monitor = sgrad_monitor_create();
    r->listener = listener;
    r->program->failure = sgrad_failure_create();
    r->waits = sgrad__waits_create(program);
    r->moved.awaited = r->waits ? sgrad_workers_awaited() : 0;
    for (int i = 0; i < program->window; i++) {
        struct sgrad__slot *slot = &r->slot[i];
        slot->runner = r;
        slot->sample = sgrad_xcalloc((size_t)program->share, sizeof *slot->sample);
        slot->output = sgrad_xcalloc((size_t)program->outputs, sizeof *slot->output);
        for (int j = 0; j < program->outputs; j++)
            slot->output[j] = sgrad_xcalloc(1, sgrad_view_bytes(&program->buffer[program->output[j].buffer].view));
        slot->mark = sgrad_xcalloc((size_t)waits(program), sizeof *slot->mark);
        for (int j = 0; j < waits(program); j++) slot->mark[j].slot = slot;
        if (r->waits) slot->overdue = sgrad_xcalloc((size_t)sgrad__waits_size(r->waits) + 1, sizeof *slot->overdue);
    }
    return r;
}

/* StarPU-MPI may call the callback of a message after it has reported that all messages have ended. After an error, some may
 * never end. */
static void wait_for_later(struct sgrad__runner *runner) {
    static const double most = 5;
    const double start = sgrad_time_monotonic();
    sgrad_monitor_lock(runner->monitor);
    while (runner->later && sgrad_time_monotonic() < start + most) sgrad_monitor_wait(runner->monitor, 0.01);
    sgrad_monitor_unlock(runner->monitor);
}

void sgrad__runner_destroy(struct sgrad__runner *runner) {
    if (!runner) return;
    wait_for_later(runner);
    for (int i = 0; i < runner->program->window; i++) {
        free(runner->slot[i].sample);
        for (int j = 0; j < runner->program->outputs; j++) free(runner->slot[i].output[j]);
        free(runner->slot[i].output);
        free(runner->slot[i].mark);
        free(runner->slot[i].overdue);
    }
    sgrad__waits_destroy(runner->waits);
    sgrad_monitor_destroy(runner->monitor);
    sgrad_failure_destroy(runner->program->failure);
    free(runner->stays);
    free(runner);
}

static void notify(struct sgrad_monitor *monitor) {
    if (!monitor) return;
    sgrad_monitor_lock(monitor);
    sgrad_monitor_notify(monitor);
    sgrad_monitor_unlock(monitor);
}

/* Returns the moves since the last call. */
static struct sgrad__step_moves count_moves(struct sgrad__runner *runner) {
    if (!runner->waits) return (struct sgrad__step_moves){ 0 };
    const struct sgrad_spill_totals is = sgrad_spill_totals(runner->program->spilling.file);
    const struct sgrad__step_moves before = runner->moved, now = { is.written, is.read, is.seconds, sgrad_workers_awaited() };
    runner->moved = now;
    return (struct sgrad__step_moves){ now.written - before.written, now.read - before.read, now.active - before.active,
                                  now.awaited - before.awaited };
}

/* Called when an event that the step waits for has occurred. */
static void one_done(void *arg) {
    struct sgrad__mark *mark = arg;
    struct sgrad__slot *slot = mark->slot;
    struct sgrad_monitor *monitor = slot->runner->monitor;
    atomic_store(&mark->done, true);
    sgrad__waits_end(slot->runner->waits, slot->overdue, (int)(mark - slot->mark));
    if (atomic_fetch_sub(&slot->pending, 1) != 1) return;
    struct sgrad_monitor *listener = slot->runner->listener;    /* the runner may be freed once the step has ended */
    if (slot->runner->program->training) sgrad_trace_step_ends(slot->step.number);
    const double now = sgrad_time_monotonic();
    sgrad_monitor_lock(monitor);
    slot->finished = true;
    slot->time = now;
    slot->moves = count_moves(slot->runner);
    sgrad_monitor_notify(monitor);
    sgrad_monitor_unlock(monitor);
    notify(listener);
}

/* Messages of earlier steps have priority. Otherwise, on slow links, gradients of the first layers of the next step would
 * precede those of the last layers of this step, for which other ranks wait. Those ranks would then compute while this rank
 * waits, and links would be used in one direction at a time. */
static int message_priority(int within_step, const struct sgrad_step *step) {
    /* when numbers wrap around, the messages of two concurrent steps are in the reverse order */
    enum { MOST_WITHIN = 1 << 12, STEPS = 1 << 18 };
    return within_step - MOST_WITHIN * (int)(step->number % STEPS);
}

/* Submits a call to StarPU or, if it is a message, to StarPU-MPI or, if it is a move, to the file. */
static int submit_call(const struct sgrad__program *program, const struct sgrad__instruction *instruction,
                       struct sgrad_tensor *const *operand, const struct sgrad_step *step, struct sgrad_gate *gate, bool stays,
                       void (*done)(void *arg), void *arg) {
    const struct sgrad_message message = { .tensor = operand[0],
                                           .peer = instruction->peer,
                                           .tag = instruction->tag,
                                           .priority = message_priority(instruction->priority, step),
                                           .done = done,
                                           .arg = arg };
    if (instruction->call->kernel == &sgrad__send_kernel) return sgrad_send(&message);
    if (instruction->call->kernel == &sgrad__receive_kernel) return sgrad_receive(&message);
    if (instruction->call->kernel == &sgrad__whole_kernel) return sgrad_allreduce(&message);
    if (instruction->call->kernel == &sgrad__whole_on_gpus_kernel) return sgrad_allreduce_on_gpus(&message);
    const struct sgrad_spill_move move = { .tensor = operand[0],
                                           .home = instruction->call->operands > 1 ? operand[1] : NULL,
                                           .slot = program->spilling.first + (int)instruction->tag,
                                           .failure = program->failure,
                                           .done = done,
                                           .arg = arg };
    if (instruction->call->kernel == &sgrad__store_kernel) return sgrad_spill_write(program->spilling.file, &move);
    if (instruction->call->kernel == &sgrad__fetch_kernel) return sgrad_spill_read(program->spilling.file, &move);
    return sgrad_task_submit(
        &(struct sgrad_submission){ .call = instruction->call,
                                    .operand = operand,
                                    .workspace = program->workspace,
                                    .step = step,
                                    .first = (program->micro ? program->micro[instruction->micro].first : 0) + instruction->first,
                                    .priority = instruction->priority,
                                    .workers = instruction->workers,
                                    .gpu = instruction->gpu,
                                    .name = instruction->name,
                                    .failure = program->failure,
                                    .gate = gate,
                                    .stays = stays,
                                    .done = done,
                                    .done_arg = arg });
}

static struct sgrad_tensor *tensor_of(const struct sgrad__buffer *buffer, int copy) {
    return buffer->tensor[buffer->copies > 1 ? copy : 0];
}

static int submit_at(const struct sgrad__program *program, int index, const struct sgrad_step *step, int copy,
                     struct sgrad_gate *gate, bool stays, void (*done)(void *arg), void *arg) {
    const struct sgrad__instruction *i = &program->instruction[index];
    struct sgrad_tensor *operand[SGRAD_MAX_OPERANDS];
    for (int j = 0; j < i->call->operands; j++) {
        operand[j] = i->operand[j] < 0 ? NULL : tensor_of(&program->buffer[i->operand[j]], copy);
    }
    SGRAD_TRY(submit_call(program, i, operand, step, gate, stays, done, arg));
    const uint64_t last = i->last | (i->else_last && !sgrad__takes_part(i->unless, step->number) ? i->else_last : 0);
    for (int j = 0; j < i->call->operands; j++)
        if (last >> j & 1) sgrad_tensor_invalidate(operand[j]);
    return 0;
}

int sgrad__instruction_submit(const struct sgrad__program *program, int index, const struct sgrad_step *step, int copy,
                              void (*done)(void *arg), void *arg) {
    return submit_at(program, index, step, copy, NULL, false, done, arg);
}

/* A task that may end after its step; it has a copy of the step. */
struct later {
    struct sgrad__runner *runner;
    struct sgrad_step step;
};

static void later_done(void *arg) {
    struct later *later = arg;
    struct sgrad_monitor *monitor = later->runner->monitor, *listener = later->runner->listener;
    sgrad_monitor_lock(monitor);
    later->runner->later--;
    sgrad_monitor_unlock(monitor);
    free(later);
    notify(listener);
}

/* Submits an instruction of the step in SLOT. The step waits for it, unless it may outlive the step. */
static int submit_instruction(struct sgrad__slot *slot, int i, int copy) {
    struct sgrad__runner *r = slot->runner;
    if (!r->program->instruction[i].outlives)
        return submit_at(r->program, i, &slot->step, copy, r->can_cancel ? &slot->gate : NULL, r->stays[i], one_done,
                         &slot->mark[i]);
    struct later *later = sgrad_xcalloc(1, sizeof *later);
    *later = (struct later){ r, slot->step };
    later->step.sample = NULL;
    sgrad_monitor_lock(r->monitor);
    r->later++;
    sgrad_monitor_unlock(r->monitor);
    const int error = sgrad__instruction_submit(r->program, i, &later->step, copy, later_done, later);
    if (error) later_done(later);
    return error;
}

int sgrad__runner_submit(struct sgrad__runner *runner, const struct sgrad_step *step, const struct sgrad_sample *sample) {
    struct sgrad__program *p = runner->program;
    int copy = (int)(runner->submitted % p->window);
    struct sgrad__slot *slot = &runner->slot[copy];
    assert(runner->submitted - runner->finished < p->window);
    memcpy(slot->sample, sample, (size_t)p->share * sizeof *sample);
    slot->step = *step;
    slot->step.sample = slot->sample;
    slot->finished = slot->cancelled = false;
    sgrad_gate_open(&slot->gate);
    int pending = 0;
    sgrad__waits_begin(runner->waits, slot->overdue);
    for (int i = 0; i < waits(p); i++) {
        const bool awaited = is_awaited(p, i, step->number);
        atomic_store(&slot->mark[i].done, !awaited);
        pending += awaited;
        if (!awaited) sgrad__waits_end(runner->waits, slot->overdue, i);
    }
    atomic_store(&slot->pending, pending);
    runner->submitted++;
    if (p->training) sgrad_trace_step(step->number);
    int error = 0;
    for (int i = 0; i < p->instruction_count && !error; i++)
        if (takes_part(p, i, step->number)) error = submit_instruction(slot, i, copy);
    if (p->training) sgrad_trace_step(-1);
    for (int i = 0; i < p->outputs && !error; i++)
        if (takes_part(p, p->instruction_count + i, step->number))
            error = sgrad_tensor_fetch(tensor_of(&p->buffer[p->output[i].buffer], copy), slot->output[i], one_done,
                                       &slot->mark[p->instruction_count + i]);
    return error;
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* Reports a stall of the oldest step in flight. The first of its instructions that have not ended does not wait for another
 * instruction of the step. */
static void log_stall(const struct sgrad__runner *runner, const struct sgrad__slot *slot) {
    const struct sgrad__program *p = runner->program;
    const struct sgrad__instruction *first = NULL;
    int messages = 0;
    for (int j = p->instruction_count - 1; j >= 0; j--) {
        if (atomic_load(&slot->mark[j].done)) continue;
        first = &p->instruction[j];
        messages += sgrad__is_message(first->call);
    }
    char *where = p->training ? sgrad_format("in step %u", slot->step.number) : sgrad_format("in an evaluation");
    const char *name = first ? first->name : "loss";
    const bool sends = first && sgrad__is_message(first->call);
    char *what = sends ? sgrad_format("%s for %s (%d of its messages are outstanding)", where, name, messages)
                       : sgrad_format("%s for its own task %s", where, name);
    sgrad_watchdog_report(!sends, what);
    free(what);
    free(where);
}

bool sgrad__nap(struct sgrad_monitor *monitor, long left, struct sgrad__idle *idle) {
    static const double nap = 0.25;
    sgrad_monitor_wait(monitor, nap);
    if (left != idle->before) *idle = (struct sgrad__idle){ .before = left };
    else idle->seconds += nap;
    if (!sgrad_watchdog_expired(idle->seconds)) return false;
    idle->seconds = 0;
    return true;
}

bool sgrad__runner_is_ready(const struct sgrad__runner *runner) {
    const struct sgrad__slot *slot = &runner->slot[runner->finished % runner->program->window];
    assert(runner->finished < runner->submitted);
    sgrad_monitor_lock(runner->monitor);
    const bool finished = slot->finished;
    sgrad_monitor_unlock(runner->monitor);
    return finished;
}

bool sgrad__runner_is_at_rest(const struct sgrad__runner *runner) {
    sgrad_monitor_lock(runner->monitor);
    const bool rests = runner->finished == runner->submitted && !runner->later;
    sgrad_monitor_unlock(runner->monitor);
    return rests;
}

void sgrad__runner_log_stall(const struct sgrad__runner *runner) {
    if (runner->finished < runner->submitted && !sgrad__runner_is_ready(runner))
        log_stall(runner, &runner->slot[runner->finished % runner->program->window]);
}

static struct sgrad__slot *in_flight(struct sgrad__runner *runner, long step) {
    return &runner->slot[step % runner->program->window];
}

/* Returns true if the step can still be cancelled, or already is. The monitor must be locked. */
static bool is_held(struct sgrad__slot *slot) {
    return slot->cancelled || (!slot->finished && sgrad_gate_hold(&slot->gate));
}

/* Starts with the newest step, because a step changes nothing before the preceding step has. The monitor must be locked. */
static int hold(struct sgrad__runner *runner) {
    long end = runner->submitted;
    while (runner->can_cancel && end > runner->finished && is_held(in_flight(runner, end - 1))) end--;
    return (int)(end - runner->finished);
}

int sgrad__runner_hold(struct sgrad__runner *runner) {
    sgrad_monitor_lock(runner->monitor);
    const int kept = hold(runner);
    sgrad_monitor_unlock(runner->monitor);
    return kept;
}

void sgrad__runner_release(struct sgrad__runner *runner, int kept) {
    for (long i = runner->finished; i < runner->submitted; i++) {
        struct sgrad__slot *slot = in_flight(runner, i);
        slot->cancelled = i >= runner->finished + kept;
        if (runner->can_cancel && sgrad_gate_hold(&slot->gate)) sgrad_gate_release(&slot->gate, slot->cancelled);
    }
}

/* Handles a request to end the run. A single rank cancels steps at once; several ranks vote, in the oldest step that has not
 * voted (sgrad__vote_kernel). The monitor must be locked. */
static void hear(struct sgrad__runner *runner) {
    static const float yes = 1;
    if (runner->alone) sgrad__runner_release(runner, hold(runner));
    else
        for (long i = runner->finished; i < runner->submitted; i++)
            __atomic_store(&in_flight(runner, i)->step.stop, &yes, __ATOMIC_RELAXED);
}

int sgrad__runner_wait(struct sgrad__runner *runner, const struct sgrad__slot **done) {
    assert(runner->finished < runner->submitted);
    struct sgrad__slot *slot = &runner->slot[runner->finished % runner->program->window];
    struct sgrad__idle idle = { .before = -1 };
    sgrad_monitor_lock(runner->monitor);
    while (!slot->finished) {
        if (runner->asked && runner->asked(runner->asked_arg)) hear(runner);
        if (sgrad__nap(runner->monitor, atomic_load(&slot->pending), &idle) && !slot->finished) log_stall(runner, slot);
    }
    runner->finished++;
    sgrad_monitor_unlock(runner->monitor);
    *done = slot;
    const int error = sgrad_failure_error(runner->program->failure);
    return error ? error : sgrad_task_error();
}

/* ---- programs that are executed once ----------------------------------------------------------------------------- */

static int run_once(struct sgrad__program *program) {
    static const struct sgrad_sample no_sample;
    const struct sgrad__slot *slot;
    SGRAD_TRY(sgrad__program_allocate(program));
    struct sgrad__runner *runner = sgrad__runner_create(program, NULL);
    int error = sgrad__runner_submit(runner, &(struct sgrad_step){ .number = 1 }, &no_sample);
    if (!error) error = sgrad__runner_wait(runner, &slot);
    sgrad__runner_destroy(runner);
    return error;
}

int sgrad__runner_broadcast(const struct sgrad_context *context, const struct sgrad__broadcast *list, int count) {
    const size_t most = (size_t)256 << 20;
    const struct sgrad_program_options how = { .rank = context->rank, .peers = context->all, .network = context->network,
                                                .tags = SGRAD__TAGS_BROADCAST };
    int error = 0;
    for (int first = 0, next; first < count && context->ranks > 1 && !error; first = next) {
        size_t bytes = 0;
        for (next = first; next < count && (next == first || bytes < most); next++)
            bytes += sgrad_view_bytes(&list[next].to->view);
        struct sgrad__program *program = sgrad__broadcast_build(&how, &list[first], next - first);
        error = sgrad__programs_compare(context, (const struct sgrad__program *[]){ program }, 1);
        if (!error) error = run_once(program);
        sgrad__program_destroy(program);
    }
    return error;
}
