/* seats.c: a round's visits on one rank, some candidates side by side.
 *
 *     seat 0     A: comes ─ steps ─ evaluation ─ goes      D: comes ─ steps ─ …
 *     seat 1     B: comes ─ steps ─ goes       C: comes ─ steps ─ …
 *
 * A candidate too small for all of a rank's workers shares them with others. Whichever seat is free takes the next visit in
 * the plan's order, and what the one after needs is fetched meanwhile. One thread turns all of them, and sleeps until a step, a
 * batch or a message has ended. Of all visits in the plan the first that is not over has a seat, and its candidate is there or
 * on its way, on all ranks that it takes: so ranks never wait for each other in a circle. */
#include "graphs/runs/search.h"

#include <stdlib.h>

enum { NOBODY, WAITS, COMES, TRAINS };      /* of a seat */

struct seat {
    int state;
    const struct sgrad__visit *visit;
    struct sgrad__entrant *entrant;
};

static const struct sgrad__visit *end_of(const struct sgrad__search *s) { return s->plan.visit + s->plan.count; }

/* The next visit from V on that is still to be made, of this rank. */
static const struct sgrad__visit *own_visit(const struct sgrad__search *s, const struct sgrad__visit *v) {
    while (v < end_of(s) && (!sgrad__search_visits(s, v) || v->number < s->entrant[v->model].visits)) v++;
    return v < end_of(s) ? v : NULL;
}

/* The rank that has the candidate's PLACE before V; -1: none has. */
static int rank_before(const struct sgrad__search *s, const struct sgrad__visit *v, int place) {
    const struct sgrad__entrant *e = &s->entrant[v->model];
    for (const struct sgrad__visit *before = v - 1; v->number > e->visits && before >= s->plan.visit; before--)
        if (before->model == v->model) return sgrad__search_rank(s, before) + place;
    return e->at[place];
}

/* Candidates that were left here and go on elsewhere. */
static int send_first(struct sgrad__search *s) {
    for (const struct sgrad__visit *v = s->plan.visit; v < end_of(s); v++) {
        struct sgrad__entrant *e = &s->entrant[v->model];
        const int place = sgrad_group_place(&(struct sgrad_group){ e->ranks, e->at }, s->rank);
        const int to = sgrad__search_rank(s, v) + place;
        if (v->number != e->visits || place < 0 || to == s->rank) continue;
        SGRAD_TRY(sgrad__entrant_fetch(e, place, s->rank));
        SGRAD_TRY(sgrad__entrant_send(e, to));
    }
    return 0;
}

static int expect_mail(struct sgrad__search *s) {
    int *visits = sgrad_alloc((size_t)s->ranks, sizeof *visits);
    for (const struct sgrad__visit *v = s->plan.visit; v < end_of(s); v++)
        visits[sgrad__search_rank(s, v)] += v->number >= s->entrant[v->model].visits;
    int error = sgrad__mail_expect(s, visits);
    free(visits);
    return error;
}

/* It comes, unless an earlier visit of it has a seat, or it has not left since. */
static int fetch(struct sgrad__search *s, const struct seat *seat, const struct sgrad__visit *v, bool *comes) {
    struct sgrad__entrant *e = &s->entrant[v->model];
    *comes = sgrad__entrant_settle(e);
    for (int i = 0; i < s->seats; i++)
        if (seat[i].state != NOBODY && seat[i].entrant == e && seat[i].visit->number < v->number) *comes = false;
    const int place = sgrad__search_place(e);
    return *comes ? sgrad__entrant_fetch(e, place, rank_before(s, v, place)) : 0;
}

/* The visit is over: the candidate goes on to where its next one is. */
static int leave(struct sgrad__search *s, struct seat *seat) {
    struct sgrad__entrant *e = seat->entrant;
    const struct sgrad__visit *next = sgrad__visits_next(&s->plan, seat->visit);
    const int to = next ? sgrad__search_rank(s, next) + e->place : s->rank;
    if (to != s->rank) SGRAD_TRY(sgrad__entrant_send(e, to));
    if (e->place == 0) SGRAD_TRY(sgrad__mail_tell(e, seat->visit->number));
    seat->state = NOBODY;
    return 0;
}

/* As far as it goes without waiting. */
static int turn(struct sgrad__search *s, const struct seat *all, struct seat *seat) {
    bool comes = false;
    if (seat->state == WAITS) {
        SGRAD_TRY(fetch(s, all, seat->visit, &comes));
        if (comes) seat->state = COMES;
    }
    if (seat->state == COMES && sgrad__entrant_is_here(seat->entrant)) {
        SGRAD_TRY(sgrad__entrant_begin(seat->entrant, seat->visit));
        seat->state = TRAINS;
    }
    if (seat->state != TRAINS) return 0;
    SGRAD_TRY(sgrad__entrant_turn(seat->entrant));
    return seat->entrant->turn.visit ? 0 : leave(s, seat);
}

/* All seats; *FREED: one has become free. */
static int turn_all(struct sgrad__search *s, struct seat *seat, bool *freed) {
    *freed = false;
    for (int i = 0; i < s->seats; i++) {
        const bool taken = seat[i].state != NOBODY;
        SGRAD_TRY(turn(s, seat, &seat[i]));
        *freed |= taken && seat[i].state == NOBODY;
    }
    return sgrad__mail_read(s);
}

/* Free seats are taken; what comes after is fetched, too. *LEFT: the first visit that has no seat yet. */
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
    bool over = !left && sgrad__mail_is_whole(s);
    for (int i = 0; i < s->seats; i++) over &= seat[i].state == NOBODY;
    for (int i = 0; i < s->entrants; i++) over &= sgrad__entrant_settle(&s->entrant[i]);
    return over;
}

/* Of steps: a candidate that comes may have to train for hours elsewhere, and one of several ranks may wait as long for others of
 * them to be free. */
static void tell_stall(const struct sgrad__search *s, const struct seat *seat) {
    for (int i = 0; i < s->seats; i++) {
        const struct sgrad__entrant *e = seat[i].entrant;
        if (seat[i].state == TRAINS && (e->ranks == 1 || e->turn.done > seat[i].visit->number * e->visit_steps))
            sgrad__runner_tell_stall(e->run->runner);
    }
}

int sgrad__seats_make_visits(struct sgrad__search *s) {
    struct seat *seat = sgrad_alloc((size_t)s->seats, sizeof *seat);
    const struct sgrad__visit *left = own_visit(s, s->plan.visit);
    struct sgrad__idle idle = { .before = -1 };
    bool freed, stalled = false;
    int error = expect_mail(s);
    if (!error) error = send_first(s);
    while (!error) {
        sgrad_monitor_enter(s->monitor);
        const long told = sgrad_monitor_told(s->monitor);
        sgrad_monitor_leave(s->monitor);
        error = seat_next(s, seat, &left);
        if (!error) error = turn_all(s, seat, &freed);
        if (error || is_over(s, seat, left)) break;
        if (stalled) tell_stall(s, seat);
        sgrad_monitor_enter(s->monitor);
        stalled = !freed && sgrad_monitor_told(s->monitor) == told && sgrad__nap(s->monitor, told, &idle);
        sgrad_monitor_leave(s->monitor);
    }
    free(seat);
    const int unwritten = sgrad__checkpoint_end(s->checkpoint);
    s->checkpoint = NULL;
    return error ? error : unwritten;
}
