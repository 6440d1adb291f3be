/* mail.c: what visits came to, on its way to rank 0: the journal's part of a visit.
 *
 *     rank 1     entrant  visit  fate, visit of that │ loss seconds, … of its steps │ test metrics ───> rank 0's box for rank 1
 *
 * A rank's letters come in the order of its visits; letters of several ranks about one candidate in any. */
#include "graphs/runs/search.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRANT, VISIT, FATE, LOST, BODY };    /* a letter's floats: whole numbers, exact up to 2^24 */
enum { OUT = 4 };                       /* letters that may be under way from here: more wait for the first */

struct box {
    struct sgrad_tensor *letter;
    struct sgrad__mail *mail;
    int rank, expected;                 /* letters that have not come */
    bool posted, arrived;
};
struct sgrad__mail {
    struct sgrad__search *search;
    size_t count;                       /* floats of a letter */
    float *text;
    struct sgrad_tensor *out[OUT];
    int sent;
    struct box *box;                    /* rank 0's, by rank */
};

static int64_t tag_of(int rank) { return ((int64_t)SGRAD__TAGS_SEARCH << 44) + ((int64_t)1 << 43) + rank; }

static int create(const struct sgrad__mail *m, const char *name, struct sgrad_tensor **tensor) {
    return sgrad_tensor_create(name, SGRAD_F32, (struct sgrad_shape){ 1, { (int64_t)m->count } }, SGRAD_PERSISTENT, tensor);
}

int sgrad__mail_open(struct sgrad__search *s) {
    struct sgrad__mail *m = s->mail = sgrad_alloc(1, sizeof *m);
    m->search = s;
    long most = 0;
    for (int i = 0; i < s->entrants; i++)
        if (s->entrant[i].visit_steps > most) most = s->entrant[i].visit_steps;
    m->count = BODY + (size_t)most * SGRAD__STEP_NUMBERS + SGRAD_MAX_METRICS * SGRAD__TEST_NUMBERS;
    m->text = sgrad_alloc(m->count, sizeof *m->text);
    for (int i = 0; i < OUT && s->rank; i++) SGRAD_TRY(create(m, "letter out", &m->out[i]));
    m->box = sgrad_alloc((size_t)s->ranks, sizeof *m->box);
    for (int r = 1; r < s->ranks && s->rank == 0; r++) {
        m->box[r] = (struct box){ .mail = m, .rank = r };
        SGRAD_TRY(create(m, "letter", &m->box[r].letter));
    }
    return 0;
}

void sgrad__mail_close(struct sgrad__search *s) {
    struct sgrad__mail *m = s->mail;
    if (!m) return;
    for (int i = 0; i < OUT; i++) sgrad_tensor_destroy(m->out[i]);
    for (int r = 0; r < s->ranks; r++) sgrad_tensor_destroy(m->box[r].letter);
    free(m->box);
    free(m->text);
    free(m);
}

/* ---- out ---------------------------------------------------------------------------------------------------------- */

static void sent(void *arg) { (void)arg; }

/* Numbers of a visit's steps, and of the epoch that it ends, between a journal and a letter. */
static void copy_body(struct sgrad__entrant *e, int visit, float *body, bool to_journal) {
    const size_t steps = (size_t)e->visit_steps * SGRAD__STEP_NUMBERS * sizeof *body;
    const size_t tests = (size_t)e->metrics * SGRAD__TEST_NUMBERS * sizeof *body;
    float *journal = sgrad__journal_step(e, visit * e->visit_steps), *test = body + e->visit_steps * SGRAD__STEP_NUMBERS;
    memcpy(to_journal ? journal : body, to_journal ? body : journal, steps);
    if ((visit + 1) % e->search->partitions) return;
    float *own = sgrad__journal_tests(e, visit / e->search->partitions);
    memcpy(to_journal ? own : test, to_journal ? test : own, tests);
}

/* Rank 0 knows of a visit. */
static int note(struct sgrad__entrant *e, int visit) {
    e->told[visit] = true;
    return sgrad__board_told(e);
}

int sgrad__mail_tell(struct sgrad__entrant *e, int visit) {
    struct sgrad__mail *m = e->search->mail;
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

/* ---- in ----------------------------------------------------------------------------------------------------------- */

static void letter_arrived(void *arg) {
    struct box *box = arg;
    struct sgrad_monitor *monitor = box->mail->search->monitor;
    sgrad_monitor_enter(monitor);
    box->arrived = true;
    sgrad_monitor_tell(monitor);
    sgrad_monitor_leave(monitor);
}

static int post(struct box *box) {
    box->posted = box->expected > 0;
    box->arrived = false;
    if (!box->posted) return 0;
    return sgrad_receive(&(struct sgrad_message){ .tensor = box->letter, .peer = box->rank, .tag = tag_of(box->rank),
                                                  .done = letter_arrived, .arg = box });
}

int sgrad__mail_expect(struct sgrad__search *s, const int *visits) {
    for (int r = 1; r < s->ranks && s->rank == 0; r++) {
        s->mail->box[r].expected = visits[r];
        SGRAD_TRY(post(&s->mail->box[r]));
    }
    return 0;
}

static int open_letter(struct sgrad__search *s, struct box *box) {
    struct sgrad__mail *m = s->mail;
    SGRAD_TRY(sgrad_tensor_read(box->letter, m->text));
    struct sgrad__entrant *e = &s->entrant[(int)m->text[ENTRANT]];
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

int sgrad__mail_read(struct sgrad__search *s) {
    for (int r = 1; r < s->ranks && s->rank == 0; r++) {
        struct box *box = &s->mail->box[r];
        sgrad_monitor_enter(s->monitor);
        const bool arrived = box->posted && box->arrived;
        sgrad_monitor_leave(s->monitor);
        if (arrived) SGRAD_TRY(open_letter(s, box));
    }
    return 0;
}

bool sgrad__mail_is_whole(const struct sgrad__search *s) {
    bool whole = true;
    for (int r = 1; r < s->ranks && s->rank == 0; r++) whole &= !s->mail->box[r].expected;
    return whole;
}
