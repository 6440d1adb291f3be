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

static const struct sgrad__sub_epoch *end_of(const struct sgrad__search *search) {
    return search->plan.sub_epoch + search->plan.count;
}

/* Returns the next sub-epoch of this rank from V on that has yet to be made; NULL: all are made. */
static const struct sgrad__sub_epoch *own_sub_epoch(const struct sgrad__search *search, const struct sgrad__sub_epoch *epoch) {
    while (epoch < end_of(search) &&
           (!sgrad__search_trains(search, epoch) || epoch->number < search->trial[epoch->model].completed))
        epoch++;
    return epoch < end_of(search) ? epoch : NULL;
}

/* Returns the rank that has the state of the trial's rank with index PLACE before EPOCH; -1: none. */
static int rank_before(const struct sgrad__search *search, const struct sgrad__sub_epoch *epoch, int place) {
    const struct sgrad__trial *e = &search->trial[epoch->model];
    for (const struct sgrad__sub_epoch *before = epoch - 1; epoch->number > e->completed && before >= search->plan.sub_epoch;
         before--)
        if (before->model == epoch->model) return sgrad__search_rank(search, before) + place;
    return e->at[place];
}

/* Sends trials whose states are on this rank and whose next sub-epoch is on another rank. */
static int send_first(struct sgrad__search *search) {
    for (const struct sgrad__sub_epoch *v = search->plan.sub_epoch; v < end_of(search); v++) {
        struct sgrad__trial *e = &search->trial[v->model];
        const int place = sgrad_group_index(&(struct sgrad_group){ e->ranks, e->at }, search->rank);
        const int to = sgrad__search_rank(search, v) + place;
        if (v->number != e->completed || place < 0 || to == search->rank) continue;
        SGRAD_TRY(sgrad__trial_fetch(e, place, search->rank));
        SGRAD_TRY(sgrad__trial_send(e, to));
    }
    return 0;
}

static int expect_messages(struct sgrad__search *search) {
    int *sub_epochs = sgrad_xcalloc((size_t)search->ranks, sizeof *sub_epochs);
    for (const struct sgrad__sub_epoch *v = search->plan.sub_epoch; v < end_of(search); v++)
        sub_epochs[sgrad__search_rank(search, v)] += v->number >= search->trial[v->model].completed;
    int error = sgrad__search_messages_expect(search, sub_epochs);
    free(sub_epochs);
    return error;
}

/* Fetches the state of the trial. *FETCHED is false, and nothing is fetched, if an earlier sub-epoch of it has a slot, or if its
 * state is still being sent. */
static int fetch(struct sgrad__search *search, const struct slot *slot, const struct sgrad__sub_epoch *epoch, bool *fetched) {
    struct sgrad__trial *e = &search->trial[epoch->model];
    *fetched = sgrad__trial_settle(e);
    for (int i = 0; i < search->slots; i++)
        if (slot[i].state != IDLE && slot[i].trial == e && slot[i].sub_epoch->number < epoch->number) *fetched = false;
    const int place = sgrad__search_place(e);
    return *fetched ? sgrad__trial_fetch(e, place, rank_before(search, epoch, place)) : 0;
}

/* Ends a sub-epoch: sends the state to the rank of the trial's next sub-epoch, and the results to rank 0. */
static int leave(struct sgrad__search *search, struct slot *slot) {
    struct sgrad__trial *e = slot->trial;
    const struct sgrad__sub_epoch *next = sgrad__sub_epochs_next(&search->plan, slot->sub_epoch);
    const int to = next ? sgrad__search_rank(search, next) + e->place : search->rank;
    if (to != search->rank) SGRAD_TRY(sgrad__trial_send(e, to));
    if (e->place == 0) SGRAD_TRY(sgrad__search_messages_send(e, slot->sub_epoch->number));
    slot->state = IDLE;
    return 0;
}

/* Continues a sub-epoch as far as possible without waiting. */
static int turn(struct sgrad__search *search, const struct slot *all, struct slot *slot) {
    bool fetched = false;
    if (slot->state == WAITING) {
        SGRAD_TRY(fetch(search, all, slot->sub_epoch, &fetched));
        if (fetched) slot->state = RECEIVING;
    }
    if (slot->state == RECEIVING && sgrad__trial_is_here(slot->trial)) {
        SGRAD_TRY(sgrad__trial_begin(slot->trial, slot->sub_epoch));
        slot->state = TRAINING;
    }
    if (slot->state != TRAINING) return 0;
    SGRAD_TRY(sgrad__trial_turn(slot->trial));
    return slot->trial->turn.sub_epoch ? 0 : leave(search, slot);
}

/* Continues all sub-epochs. *FREED: a slot has become idle. */
static int turn_all(struct sgrad__search *search, struct slot *slot, bool *freed) {
    *freed = false;
    for (int i = 0; i < search->slots; i++) {
        const bool taken = slot[i].state != IDLE;
        SGRAD_TRY(turn(search, slot, &slot[i]));
        *freed |= taken && slot[i].state == IDLE;
    }
    return sgrad__search_messages_read(search);
}

/* Assigns the next sub-epochs to idle slots, and fetches the state for the one after them. *LEFT: the first sub-epoch without a
 * slot. */
static int fill_slots(struct sgrad__search *search, struct slot *slot, const struct sgrad__sub_epoch **left) {
    bool fetched;
    for (int i = 0; i < search->slots && *left; i++) {
        if (slot[i].state != IDLE) continue;
        slot[i] = (struct slot){ .state = WAITING, .sub_epoch = *left, .trial = &search->trial[(*left)->model] };
        *left = own_sub_epoch(search, *left + 1);
    }
    return *left ? fetch(search, slot, *left, &fetched) : 0;
}

static bool is_over(struct sgrad__search *search, const struct slot *slot, const struct sgrad__sub_epoch *left) {
    bool over = !left && sgrad__search_messages_is_whole(search);
    for (int i = 0; i < search->slots; i++) over &= slot[i].state == IDLE;
    for (int i = 0; i < search->trials; i++) over &= sgrad__trial_settle(&search->trial[i]);
    return over;
}

/* Reports stalls, only of steps. A trial that is being received may be trained for hours on other ranks before; one on several
 * ranks may have to wait equally long for the others to be idle. */
static void report_stall(const struct sgrad__search *search, const struct slot *slot) {
    for (int i = 0; i < search->slots; i++) {
        const struct sgrad__trial *e = slot[i].trial;
        if (slot[i].state == TRAINING && (e->ranks == 1 || e->turn.done > slot[i].sub_epoch->number * e->sub_epoch_steps))
            sgrad__runner_log_stall(e->run->runner);
    }
}

int sgrad__slots_run(struct sgrad__search *search) {
    struct slot *slot = sgrad_xcalloc((size_t)search->slots, sizeof *slot);
    const struct sgrad__sub_epoch *left = own_sub_epoch(search, search->plan.sub_epoch);
    struct sgrad__idle idle = { .before = -1 };
    bool freed, stalled = false;
    int error = expect_messages(search);
    if (!error) error = send_first(search);
    while (!error) {
        sgrad_monitor_lock(search->monitor);
        const long generation = sgrad_monitor_generation(search->monitor);
        sgrad_monitor_unlock(search->monitor);
        error = fill_slots(search, slot, &left);
        if (!error) error = turn_all(search, slot, &freed);
        if (error || is_over(search, slot, left)) break;
        if (stalled) report_stall(search, slot);
        sgrad_monitor_lock(search->monitor);
        stalled =
            !freed && sgrad_monitor_generation(search->monitor) == generation && sgrad__nap(search->monitor, generation, &idle);
        sgrad_monitor_unlock(search->monitor);
    }
    free(slot);
    const int unwritten = sgrad__checkpoint_end(search->checkpoint);
    search->checkpoint = NULL;
    return error ? error : unwritten;
}
