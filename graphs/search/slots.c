/* slots.c: executes the visits of a round on one rank, several trials concurrently.
 *
 *     slot 0     A: received ─ steps ─ evaluation ─ sent      D: received ─ steps ─ …
 *     slot 1     B: received ─ steps ─ sent       C: received ─ steps ─ …
 *
 * A trial that is too small for all workers of a rank uses them together with others. An idle slot takes the next visit in the
 * order of the plan, and the state for the visit after it is fetched meanwhile. One thread drives all slots, and sleeps until a
 * step, a batch or a message has ended. There is no deadlock: of all unfinished visits in the plan, the first one has a slot, and
 * its trial is there or being received, on all ranks that it needs. */
#include "graphs/search/search.h"

#include <stdlib.h>

/* states of a slot: idle; waiting for an earlier visit of the trial; receiving the state; training */
enum { NOBODY, WAITS, COMES, TRAINS };

struct seat {
    int state;
    const struct sgrad__visit *visit;
    struct sgrad__trial *entrant;
};

static const struct sgrad__visit *end_of(const struct sgrad__search *s) { return s->plan.visit + s->plan.count; }

/* Returns the next visit of this rank from V on that has yet to be made; NULL: there is none. */
static const struct sgrad__visit *own_visit(const struct sgrad__search *s, const struct sgrad__visit *v) {
    while (v < end_of(s) && (!sgrad__search_visits(s, v) || v->number < s->entrant[v->model].visits)) v++;
    return v < end_of(s) ? v : NULL;
}

/* Returns the rank that has the state of the trial's rank with index PLACE before V; -1: none. */
static int rank_before(const struct sgrad__search *s, const struct sgrad__visit *v, int place) {
    const struct sgrad__trial *e = &s->entrant[v->model];
    for (const struct sgrad__visit *before = v - 1; v->number > e->visits && before >= s->plan.visit; before--)
        if (before->model == v->model) return sgrad__search_rank(s, before) + place;
    return e->at[place];
}

/* Sends trials whose states are on this rank and whose next visit is on another rank. */
static int send_first(struct sgrad__search *s) {
    for (const struct sgrad__visit *v = s->plan.visit; v < end_of(s); v++) {
        struct sgrad__trial *e = &s->entrant[v->model];
        const int place = sgrad_group_place(&(struct sgrad_group){ e->ranks, e->at }, s->rank);
        const int to = sgrad__search_rank(s, v) + place;
        if (v->number != e->visits || place < 0 || to == s->rank) continue;
        SGRAD_TRY(sgrad__trial_fetch(e, place, s->rank));
        SGRAD_TRY(sgrad__trial_send(e, to));
    }
    return 0;
}

static int expect_mail(struct sgrad__search *s) {
    int *visits = sgrad_xcalloc((size_t)s->ranks, sizeof *visits);
    for (const struct sgrad__visit *v = s->plan.visit; v < end_of(s); v++)
        visits[sgrad__search_rank(s, v)] += v->number >= s->entrant[v->model].visits;
    int error = sgrad__search_messages_expect(s, visits);
    free(visits);
    return error;
}

/* Fetches the state of the trial. *COMES is false, and nothing is fetched, if an earlier visit of it has a slot, or if its
 * state is still being sent. */
static int fetch(struct sgrad__search *s, const struct seat *seat, const struct sgrad__visit *v, bool *comes) {
    struct sgrad__trial *e = &s->entrant[v->model];
    *comes = sgrad__trial_settle(e);
    for (int i = 0; i < s->seats; i++)
        if (seat[i].state != NOBODY && seat[i].entrant == e && seat[i].visit->number < v->number) *comes = false;
    const int place = sgrad__search_place(e);
    return *comes ? sgrad__trial_fetch(e, place, rank_before(s, v, place)) : 0;
}

/* Ends a visit: sends the state to the rank of the trial's next visit, and the results to rank 0. */
static int leave(struct sgrad__search *s, struct seat *seat) {
    struct sgrad__trial *e = seat->entrant;
    const struct sgrad__visit *next = sgrad__visits_next(&s->plan, seat->visit);
    const int to = next ? sgrad__search_rank(s, next) + e->place : s->rank;
    if (to != s->rank) SGRAD_TRY(sgrad__trial_send(e, to));
    if (e->place == 0) SGRAD_TRY(sgrad__search_messages_tell(e, seat->visit->number));
    seat->state = NOBODY;
    return 0;
}

/* Continues a visit as far as possible without waiting. */
static int turn(struct sgrad__search *s, const struct seat *all, struct seat *seat) {
    bool comes = false;
    if (seat->state == WAITS) {
        SGRAD_TRY(fetch(s, all, seat->visit, &comes));
        if (comes) seat->state = COMES;
    }
    if (seat->state == COMES && sgrad__trial_is_here(seat->entrant)) {
        SGRAD_TRY(sgrad__trial_begin(seat->entrant, seat->visit));
        seat->state = TRAINS;
    }
    if (seat->state != TRAINS) return 0;
    SGRAD_TRY(sgrad__trial_turn(seat->entrant));
    return seat->entrant->turn.visit ? 0 : leave(s, seat);
}

/* Continues all visits. *FREED: a slot has become idle. */
static int turn_all(struct sgrad__search *s, struct seat *seat, bool *freed) {
    *freed = false;
    for (int i = 0; i < s->seats; i++) {
        const bool taken = seat[i].state != NOBODY;
        SGRAD_TRY(turn(s, seat, &seat[i]));
        *freed |= taken && seat[i].state == NOBODY;
    }
    return sgrad__search_messages_read(s);
}

/* Assigns the next visits to idle slots, and fetches the state for the visit after them. *LEFT: the first visit without a
 * slot. */
static int seat_next(struct sgrad__search *s, struct seat *seat, const struct sgrad__visit **left) {
    bool comes;
    for (int i = 0; i < s->seats && *left; i++) {
        if (seat[i].state != NOBODY) continue;
        seat[i] = (struct seat){ .state = WAITS, .visit = *left, .entrant = &s->entrant[(*left)->model] };
        *left = own_visit(s, *left + 1);
    }
    return *left ? fetch(s, seat, *left, &comes) : 0;
}

static bool is_over(struct sgrad__search *s, const struct seat *seat, const struct sgrad__visit *left) {
    bool over = !left && sgrad__search_messages_is_whole(s);
    for (int i = 0; i < s->seats; i++) over &= seat[i].state == NOBODY;
    for (int i = 0; i < s->entrants; i++) over &= sgrad__trial_settle(&s->entrant[i]);
    return over;
}

/* Reports stalls, only of steps. A trial that is being received may be trained for hours on other ranks before; one on several
 * ranks may have to wait equally long for the others to be idle. */
static void tell_stall(const struct sgrad__search *s, const struct seat *seat) {
    for (int i = 0; i < s->seats; i++) {
        const struct sgrad__trial *e = seat[i].entrant;
        if (seat[i].state == TRAINS && (e->ranks == 1 || e->turn.done > seat[i].visit->number * e->visit_steps))
            sgrad__runner_tell_stall(e->run->runner);
    }
}

int sgrad__slots_make_visits(struct sgrad__search *s) {
    struct seat *seat = sgrad_xcalloc((size_t)s->seats, sizeof *seat);
    const struct sgrad__visit *left = own_visit(s, s->plan.visit);
    struct sgrad__idle idle = { .before = -1 };
    bool freed, stalled = false;
    int error = expect_mail(s);
    if (!error) error = send_first(s);
    while (!error) {
        sgrad_monitor_lock(s->monitor);
        const long told = sgrad_monitor_generation(s->monitor);
        sgrad_monitor_unlock(s->monitor);
        error = seat_next(s, seat, &left);
        if (!error) error = turn_all(s, seat, &freed);
        if (error || is_over(s, seat, left)) break;
        if (stalled) tell_stall(s, seat);
        sgrad_monitor_lock(s->monitor);
        stalled = !freed && sgrad_monitor_generation(s->monitor) == told && sgrad__nap(s->monitor, told, &idle);
        sgrad_monitor_unlock(s->monitor);
    }
    free(seat);
    const int unwritten = sgrad__checkpoint_end(s->checkpoint);
    s->checkpoint = NULL;
    return error ? error : unwritten;
}
