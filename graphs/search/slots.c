/* slots.c: executes the sub-epochs of a round on one rank, several trials concurrently.
 *
 *     slot 0     A: received ─ steps ─ evaluation ─ sent      D: received ─ steps ─ …
 *     slot 1     B: received ─ steps ─ sent       C: received ─ steps ─ …
 *
 * A trial that is too small for all workers of a rank uses them together with others. An idle slot takes the next sub-epoch in
 * the order of the plan, and the state for the sub-epoch after it is fetched meanwhile. One thread drives all slots, and sleeps
 * until a step, a batch or a message has ended. There is no deadlock: of all unfinished sub-epochs in the plan, the first one has
 * a slot, and its trial is there or being received, on all ranks that it needs. */
#include "graphs/search/search.h"

#include <stdlib.h>

/* states of a slot: idle; waiting for an earlier sub-epoch of the trial; receiving the state; training */
enum { IDLE, WAITING, RECEIVING, TRAINING };

struct slot {
    int state;
    const struct sgrad__sub_epoch *sub_epoch;
    struct sgrad__trial *trial;
};

static const struct sgrad__sub_epoch *end_of(const struct sgrad__search *s) { return s->plan.sub_epoch + s->plan.count; }

/* Returns the next sub-epoch of this rank from V on that has yet to be made; NULL: there is none. */
static const struct sgrad__sub_epoch *own_sub_epoch(const struct sgrad__search *s, const struct sgrad__sub_epoch *v) {
    while (v < end_of(s) && (!sgrad__search_trains(s, v) || v->number < s->trial[v->model].completed)) v++;
    return v < end_of(s) ? v : NULL;
}

/* Returns the rank that has the state of the trial's rank with index PLACE before V; -1: none. */
static int rank_before(const struct sgrad__search *s, const struct sgrad__sub_epoch *v, int place) {
    const struct sgrad__trial *e = &s->trial[v->model];
    for (const struct sgrad__sub_epoch *before = v - 1; v->number > e->completed && before >= s->plan.sub_epoch; before--)
        if (before->model == v->model) return sgrad__search_rank(s, before) + place;
    return e->at[place];
}

/* Sends trials whose states are on this rank and whose next sub-epoch is on another rank. */
static int send_first(struct sgrad__search *s) {
    for (const struct sgrad__sub_epoch *v = s->plan.sub_epoch; v < end_of(s); v++) {
        struct sgrad__trial *e = &s->trial[v->model];
        const int place = sgrad_group_place(&(struct sgrad_group){ e->ranks, e->at }, s->rank);
        const int to = sgrad__search_rank(s, v) + place;
        if (v->number != e->completed || place < 0 || to == s->rank) continue;
        SGRAD_TRY(sgrad__trial_fetch(e, place, s->rank));
        SGRAD_TRY(sgrad__trial_send(e, to));
    }
    return 0;
}

static int expect_messages(struct sgrad__search *s) {
    int *sub_epochs = sgrad_xcalloc((size_t)s->ranks, sizeof *sub_epochs);
    for (const struct sgrad__sub_epoch *v = s->plan.sub_epoch; v < end_of(s); v++)
        sub_epochs[sgrad__search_rank(s, v)] += v->number >= s->trial[v->model].completed;
    int error = sgrad__search_messages_expect(s, sub_epochs);
    free(sub_epochs);
    return error;
}

/* Fetches the state of the trial. *FETCHED is false, and nothing is fetched, if an earlier sub-epoch of it has a slot, or if its
 * state is still being sent. */
static int fetch(struct sgrad__search *s, const struct slot *slot, const struct sgrad__sub_epoch *v, bool *fetched) {
    struct sgrad__trial *e = &s->trial[v->model];
    *fetched = sgrad__trial_settle(e);
    for (int i = 0; i < s->slots; i++)
        if (slot[i].state != IDLE && slot[i].trial == e && slot[i].sub_epoch->number < v->number) *fetched = false;
    const int place = sgrad__search_place(e);
    return *fetched ? sgrad__trial_fetch(e, place, rank_before(s, v, place)) : 0;
}

/* Ends a sub-epoch: sends the state to the rank of the trial's next sub-epoch, and the results to rank 0. */
static int leave(struct sgrad__search *s, struct slot *slot) {
    struct sgrad__trial *e = slot->trial;
    const struct sgrad__sub_epoch *next = sgrad__sub_epochs_next(&s->plan, slot->sub_epoch);
    const int to = next ? sgrad__search_rank(s, next) + e->place : s->rank;
    if (to != s->rank) SGRAD_TRY(sgrad__trial_send(e, to));
    if (e->place == 0) SGRAD_TRY(sgrad__search_messages_send(e, slot->sub_epoch->number));
    slot->state = IDLE;
    return 0;
}

/* Continues a sub-epoch as far as possible without waiting. */
static int turn(struct sgrad__search *s, const struct slot *all, struct slot *slot) {
    bool fetched = false;
    if (slot->state == WAITING) {
        SGRAD_TRY(fetch(s, all, slot->sub_epoch, &fetched));
        if (fetched) slot->state = RECEIVING;
    }
    if (slot->state == RECEIVING && sgrad__trial_is_here(slot->trial)) {
        SGRAD_TRY(sgrad__trial_begin(slot->trial, slot->sub_epoch));
        slot->state = TRAINING;
    }
    if (slot->state != TRAINING) return 0;
    SGRAD_TRY(sgrad__trial_turn(slot->trial));
    return slot->trial->turn.sub_epoch ? 0 : leave(s, slot);
}

/* Continues all sub-epochs. *FREED: a slot has become idle. */
static int turn_all(struct sgrad__search *s, struct slot *slot, bool *freed) {
    *freed = false;
    for (int i = 0; i < s->slots; i++) {
        const bool taken = slot[i].state != IDLE;
        SGRAD_TRY(turn(s, slot, &slot[i]));
        *freed |= taken && slot[i].state == IDLE;
    }
    return sgrad__search_messages_read(s);
}

/* Assigns the next sub-epochs to idle slots, and fetches the state for the one after them. *LEFT: the first sub-epoch without a
 * slot. */
static int fill_slots(struct sgrad__search *s, struct slot *slot, const struct sgrad__sub_epoch **left) {
    bool fetched;
    for (int i = 0; i < s->slots && *left; i++) {
        if (slot[i].state != IDLE) continue;
        slot[i] = (struct slot){ .state = WAITING, .sub_epoch = *left, .trial = &s->trial[(*left)->model] };
        *left = own_sub_epoch(s, *left + 1);
    }
    return *left ? fetch(s, slot, *left, &fetched) : 0;
}

static bool is_over(struct sgrad__search *s, const struct slot *slot, const struct sgrad__sub_epoch *left) {
    bool over = !left && sgrad__search_messages_is_whole(s);
    for (int i = 0; i < s->slots; i++) over &= slot[i].state == IDLE;
    for (int i = 0; i < s->trials; i++) over &= sgrad__trial_settle(&s->trial[i]);
    return over;
}

/* Reports stalls, only of steps. A trial that is being received may be trained for hours on other ranks before; one on several
 * ranks may have to wait equally long for the others to be idle. */
static void report_stall(const struct sgrad__search *s, const struct slot *slot) {
    for (int i = 0; i < s->slots; i++) {
        const struct sgrad__trial *e = slot[i].trial;
        if (slot[i].state == TRAINING && (e->ranks == 1 || e->turn.done > slot[i].sub_epoch->number * e->sub_epoch_steps))
            sgrad__runner_tell_stall(e->run->runner);
    }
}

int sgrad__slots_run(struct sgrad__search *s) {
    struct slot *slot = sgrad_xcalloc((size_t)s->slots, sizeof *slot);
    const struct sgrad__sub_epoch *left = own_sub_epoch(s, s->plan.sub_epoch);
    struct sgrad__idle idle = { .before = -1 };
    bool freed, stalled = false;
    int error = expect_messages(s);
    if (!error) error = send_first(s);
    while (!error) {
        sgrad_monitor_lock(s->monitor);
        const long generation = sgrad_monitor_generation(s->monitor);
        sgrad_monitor_unlock(s->monitor);
        error = fill_slots(s, slot, &left);
        if (!error) error = turn_all(s, slot, &freed);
        if (error || is_over(s, slot, left)) break;
        if (stalled) report_stall(s, slot);
        sgrad_monitor_lock(s->monitor);
        stalled = !freed && sgrad_monitor_generation(s->monitor) == generation && sgrad__nap(s->monitor, generation, &idle);
        sgrad_monitor_unlock(s->monitor);
    }
    free(slot);
    const int unwritten = sgrad__checkpoint_end(s->checkpoint);
    s->checkpoint = NULL;
    return error ? error : unwritten;
}
