/* messages.c: sends the results of sub-epochs to rank 0: the section of a trial's log that belongs to a sub-epoch.
 *
 *     rank 1   trial, sub-epoch, status, sub-epoch of failure │ loss, seconds, … of its steps │ test metrics ──> rank 0
 *
 * Messages of one rank arrive in the order of its sub-epochs; messages of several ranks about one trial in any order. */
#include "graphs/search/search.h"

#include <stdlib.h>
#include <string.h>

enum { TRIAL, SUB_EPOCH, STATUS, LOST, BODY };    /* floats of a message; integers, exact up to 2^24 */
enum { OUT = 4 };                       /* outstanding messages of this rank, at most; further ones wait for the oldest */

struct receiver {
    struct sgrad_tensor *message;
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
    struct receiver *receiver;          /* on rank 0, by rank */
};

static int64_t tag_of(int rank) { return ((int64_t)SGRAD__TAGS_SEARCH << 44) + ((int64_t)1 << 43) + rank; }

static int create(const struct sgrad__search_messages *messages, const char *name, struct sgrad_tensor **tensor) {
    return sgrad_tensor_create(name, SGRAD_F32, (struct sgrad_shape){ 1, { (int64_t)messages->count } }, SGRAD_PERSISTENT,
                               tensor);
}

int sgrad__search_messages_open(struct sgrad__search *search) {
    struct sgrad__search_messages *m = search->messages = sgrad_xcalloc(1, sizeof *m);
    m->search = search;
    long most = 0;
    for (int i = 0; i < search->trials; i++)
        if (search->trial[i].sub_epoch_steps > most) most = search->trial[i].sub_epoch_steps;
    m->count = BODY + (size_t)most * SGRAD__STEP_NUMBERS + SGRAD_MAX_METRICS * SGRAD__TEST_NUMBERS;
    m->text = sgrad_xcalloc(m->count, sizeof *m->text);
    for (int i = 0; i < OUT && search->rank; i++) SGRAD_TRY(create(m, "result", &m->out[i]));
    m->receiver = sgrad_xcalloc((size_t)search->ranks, sizeof *m->receiver);
    for (int r = 1; r < search->ranks && search->rank == 0; r++) {
        m->receiver[r] = (struct receiver){ .messages = m, .rank = r };
        SGRAD_TRY(create(m, "result", &m->receiver[r].message));
    }
    return 0;
}

void sgrad__search_messages_close(struct sgrad__search *search) {
    struct sgrad__search_messages *m = search->messages;
    if (!m) return;
    for (int i = 0; i < OUT; i++) sgrad_tensor_destroy(m->out[i]);
    for (int r = 0; r < search->ranks; r++) sgrad_tensor_destroy(m->receiver[r].message);
    free(m->receiver);
    free(m->text);
    free(m);
}

/* ---- sending ------------------------------------------------------------------------------------------------------ */

static void sent(void *arg) { (void)arg; }

/* Copies the results of the steps of a sub-epoch, and of the epoch that it ends, between a log and a message. */
static void copy_body(struct sgrad__trial *trial, int sub_epoch, float *body, bool to_journal) {
    const size_t steps = (size_t)trial->sub_epoch_steps * SGRAD__STEP_NUMBERS * sizeof *body;
    const size_t tests = (size_t)trial->metrics * SGRAD__TEST_NUMBERS * sizeof *body;
    float *journal = sgrad__journal_step(trial, sub_epoch * trial->sub_epoch_steps);
    float *test = body + trial->sub_epoch_steps * SGRAD__STEP_NUMBERS;
    memcpy(to_journal ? journal : body, to_journal ? body : journal, steps);
    if ((sub_epoch + 1) % trial->search->partitions) return;
    float *own = sgrad__journal_tests(trial, sub_epoch / trial->search->partitions);
    memcpy(to_journal ? own : test, to_journal ? test : own, tests);
}

/* Rank 0: records the results of a sub-epoch. */
static int note(struct sgrad__trial *trial, int sub_epoch) {
    trial->recorded[sub_epoch] = true;
    return sgrad__leaderboard_update(trial);
}

int sgrad__search_messages_send(struct sgrad__trial *trial, int sub_epoch) {
    struct sgrad__search_messages *m = trial->search->messages;
    if (trial->search->rank == 0) return note(trial, sub_epoch);
    m->text[TRIAL] = (float)trial->number;
    m->text[SUB_EPOCH] = (float)sub_epoch;
    m->text[STATUS] = trial->journal[SGRAD__JOURNAL_STATUS];
    m->text[LOST] = trial->journal[SGRAD__JOURNAL_LOST];
    copy_body(trial, sub_epoch, m->text + BODY, false);
    struct sgrad_tensor *message = m->out[m->sent++ % OUT];
    SGRAD_TRY(sgrad_tensor_write(message, m->text));
    return sgrad_send(&(struct sgrad_message){ .tensor = message, .peer = 0, .tag = tag_of(trial->search->rank), .done = sent });
}

/* ---- receiving ---------------------------------------------------------------------------------------------------- */

static void message_arrived(void *arg) {
    struct receiver *receiver = arg;
    struct sgrad_monitor *monitor = receiver->messages->search->monitor;
    sgrad_monitor_lock(monitor);
    receiver->arrived = true;
    sgrad_monitor_notify(monitor);
    sgrad_monitor_unlock(monitor);
}

static int post(struct receiver *receiver) {
    receiver->posted = receiver->expected > 0;
    receiver->arrived = false;
    if (!receiver->posted) return 0;
    return sgrad_receive(&(struct sgrad_message){ .tensor = receiver->message, .peer = receiver->rank,
                                                  .tag = tag_of(receiver->rank), .done = message_arrived, .arg = receiver });
}

int sgrad__search_messages_expect(struct sgrad__search *search, const int *sub_epochs) {
    for (int r = 1; r < search->ranks && search->rank == 0; r++) {
        search->messages->receiver[r].expected = sub_epochs[r];
        SGRAD_TRY(post(&search->messages->receiver[r]));
    }
    return 0;
}

static int take_message(struct sgrad__search *search, struct receiver *receiver) {
    struct sgrad__search_messages *m = search->messages;
    SGRAD_TRY(sgrad_tensor_read(receiver->message, m->text));
    struct sgrad__trial *e = &search->trial[(int)m->text[TRIAL]];
    const int sub_epoch = (int)m->text[SUB_EPOCH];
    copy_body(e, sub_epoch, m->text + BODY, true);
    if (m->text[STATUS] != SGRAD__RUNNING) {
        e->journal[SGRAD__JOURNAL_STATUS] = m->text[STATUS];
        e->journal[SGRAD__JOURNAL_LOST] = m->text[LOST];
    }
    receiver->expected--;
    SGRAD_TRY(post(receiver));
    return note(e, sub_epoch);
}

int sgrad__search_messages_read(struct sgrad__search *search) {
    for (int r = 1; r < search->ranks && search->rank == 0; r++) {
        struct receiver *receiver = &search->messages->receiver[r];
        sgrad_monitor_lock(search->monitor);
        const bool arrived = receiver->posted && receiver->arrived;
        sgrad_monitor_unlock(search->monitor);
        if (arrived) SGRAD_TRY(take_message(search, receiver));
    }
    return 0;
}

bool sgrad__search_messages_is_whole(const struct sgrad__search *search) {
    bool whole = true;
    for (int r = 1; r < search->ranks && search->rank == 0; r++) whole &= !search->messages->receiver[r].expected;
    return whole;
}
