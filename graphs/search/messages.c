/* messages.c: sends the results of visits to rank 0: the section of a trial's log that belongs to a visit.
 *
 *     rank 1     trial  visit  status, visit of failure │ loss seconds, … of its steps │ test metrics ──> rank 0, slot of rank 1
 *
 * Messages of one rank arrive in the order of its visits; messages of several ranks about one trial in any order. */
#include "graphs/search/search.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRANT, VISIT, FATE, LOST, BODY };    /* floats of a message; integers, exact up to 2^24 */
enum { OUT = 4 };                       /* outstanding messages of this rank, at most; further ones wait for the oldest */

struct box {
    struct sgrad_tensor *letter;
    struct sgrad__search_messages *messages;
    int rank, expected;                 /* messages that have not arrived */
    bool posted, arrived;
};
struct sgrad__search_messages {
    struct sgrad__search *search;
    size_t count;                       /* floats of a message */
    float *text;
    struct sgrad_tensor *out[OUT];
    int sent;
    struct box *box;                    /* on rank 0, by rank */
};

static int64_t tag_of(int rank) { return ((int64_t)SGRAD__TAGS_SEARCH << 44) + ((int64_t)1 << 43) + rank; }

static int create(const struct sgrad__search_messages *m, const char *name, struct sgrad_tensor **tensor) {
    return sgrad_tensor_create(name, SGRAD_F32, (struct sgrad_shape){ 1, { (int64_t)m->count } }, SGRAD_PERSISTENT, tensor);
}

int sgrad__search_messages_open(struct sgrad__search *s) {
    struct sgrad__search_messages *m = s->messages = sgrad_xcalloc(1, sizeof *m);
    m->search = s;
    long most = 0;
    for (int i = 0; i < s->entrants; i++)
        if (s->entrant[i].visit_steps > most) most = s->entrant[i].visit_steps;
    m->count = BODY + (size_t)most * SGRAD__STEP_NUMBERS + SGRAD_MAX_METRICS * SGRAD__TEST_NUMBERS;
    m->text = sgrad_xcalloc(m->count, sizeof *m->text);
    for (int i = 0; i < OUT && s->rank; i++) SGRAD_TRY(create(m, "letter out", &m->out[i]));
    m->box = sgrad_xcalloc((size_t)s->ranks, sizeof *m->box);
    for (int r = 1; r < s->ranks && s->rank == 0; r++) {
        m->box[r] = (struct box){ .messages = m, .rank = r };
        SGRAD_TRY(create(m, "letter", &m->box[r].letter));
    }
    return 0;
}

void sgrad__search_messages_close(struct sgrad__search *s) {
    struct sgrad__search_messages *m = s->messages;
    if (!m) return;
    for (int i = 0; i < OUT; i++) sgrad_tensor_destroy(m->out[i]);
    for (int r = 0; r < s->ranks; r++) sgrad_tensor_destroy(m->box[r].letter);
    free(m->box);
    free(m->text);
    free(m);
}

/* ---- sending ------------------------------------------------------------------------------------------------------ */

static void sent(void *arg) { (void)arg; }

/* Copies the results of the steps of a visit, and of the epoch that it ends, between a log and a message. */
static void copy_body(struct sgrad__trial *e, int visit, float *body, bool to_journal) {
    const size_t steps = (size_t)e->visit_steps * SGRAD__STEP_NUMBERS * sizeof *body;
    const size_t tests = (size_t)e->metrics * SGRAD__TEST_NUMBERS * sizeof *body;
    float *journal = sgrad__journal_step(e, visit * e->visit_steps), *test = body + e->visit_steps * SGRAD__STEP_NUMBERS;
    memcpy(to_journal ? journal : body, to_journal ? body : journal, steps);
    if ((visit + 1) % e->search->partitions) return;
    float *own = sgrad__journal_tests(e, visit / e->search->partitions);
    memcpy(to_journal ? own : test, to_journal ? test : own, tests);
}

/* Rank 0: records the results of a visit. */
static int note(struct sgrad__trial *e, int visit) {
    e->told[visit] = true;
    return sgrad__leaderboard_told(e);
}

int sgrad__search_messages_tell(struct sgrad__trial *e, int visit) {
    struct sgrad__search_messages *m = e->search->messages;
    if (e->search->rank == 0) return note(e, visit);
    m->text[ENTRANT] = (float)e->number;
    m->text[VISIT] = (float)visit;
    m->text[FATE] = e->journal[SGRAD__JOURNAL_FATE];
    m->text[LOST] = e->journal[SGRAD__JOURNAL_LOST];
    copy_body(e, visit, m->text + BODY, false);
    struct sgrad_tensor *letter = m->out[m->sent++ % OUT];
    SGRAD_TRY(sgrad_tensor_write(letter, m->text));
    return sgrad_send(&(struct sgrad_message){ .tensor = letter, .peer = 0, .tag = tag_of(e->search->rank), .done = sent });
}

/* ---- receiving ---------------------------------------------------------------------------------------------------- */

static void letter_arrived(void *arg) {
    struct box *box = arg;
    struct sgrad_monitor *monitor = box->messages->search->monitor;
    sgrad_monitor_lock(monitor);
    box->arrived = true;
    sgrad_monitor_notify(monitor);
    sgrad_monitor_unlock(monitor);
}

static int post(struct box *box) {
    box->posted = box->expected > 0;
    box->arrived = false;
    if (!box->posted) return 0;
    return sgrad_receive(&(struct sgrad_message){ .tensor = box->letter, .peer = box->rank, .tag = tag_of(box->rank),
                                                  .done = letter_arrived, .arg = box });
}

int sgrad__search_messages_expect(struct sgrad__search *s, const int *visits) {
    for (int r = 1; r < s->ranks && s->rank == 0; r++) {
        s->messages->box[r].expected = visits[r];
        SGRAD_TRY(post(&s->messages->box[r]));
    }
    return 0;
}

static int open_letter(struct sgrad__search *s, struct box *box) {
    struct sgrad__search_messages *m = s->messages;
    SGRAD_TRY(sgrad_tensor_read(box->letter, m->text));
    struct sgrad__trial *e = &s->entrant[(int)m->text[ENTRANT]];
    const int visit = (int)m->text[VISIT];
    copy_body(e, visit, m->text + BODY, true);
    if (m->text[FATE] != SGRAD__RUNNING) {
        e->journal[SGRAD__JOURNAL_FATE] = m->text[FATE];
        e->journal[SGRAD__JOURNAL_LOST] = m->text[LOST];
    }
    box->expected--;
    SGRAD_TRY(post(box));
    return note(e, visit);
}

int sgrad__search_messages_read(struct sgrad__search *s) {
    for (int r = 1; r < s->ranks && s->rank == 0; r++) {
        struct box *box = &s->messages->box[r];
        sgrad_monitor_lock(s->monitor);
        const bool arrived = box->posted && box->arrived;
        sgrad_monitor_unlock(s->monitor);
        if (arrived) SGRAD_TRY(open_letter(s, box));
    }
    return 0;
}

bool sgrad__search_messages_is_whole(const struct sgrad__search *s) {
    bool whole = true;
    for (int r = 1; r < s->ranks && s->rank == 0; r++) whole &= !s->messages->box[r].expected;
    return whole;
}
