/* messages.c: reads comms.rec, with a record for each message between ranks. */
#include "report/records.h"
#include "report/timeline.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

enum { FROM, TO, SENT, RECEIVED, BYTES, SENDS, RECEIVES, SEND_HANDLE, RECEIVE_HANDLE };
static const char *const message_keys[] = { "Src",       "Dst",       "SendTime",   "RecvTime",   "Size",
                                            "SendJobId", "RecvJobId", "SendHandle", "RecvHandle", NULL };

static void add_message(struct sgrad__timeline *t, struct sgrad__records *r) {
    for (int i = FROM; i <= BYTES; i++)
        if (!r->value[i]) return;
    char *end;
    struct sgrad__timeline_message m = { .from = atoi(r->value[FROM]), .to = atoi(r->value[TO]), .begin = atof(r->value[SENT]),
                                         .end = atof(r->value[RECEIVED]), .bytes = atof(r->value[BYTES]) };
    if (r->value[SENDS] && r->value[RECEIVES]) {
        m.sends = sgrad__records_job(r->value[SENDS], &end);
        m.receives = sgrad__records_job(r->value[RECEIVES], &end);
    }
    if (r->value[SEND_HANDLE]) m.sent = strtoull(r->value[SEND_HANDLE], NULL, 16);
    if (r->value[RECEIVE_HANDLE]) m.received = strtoull(r->value[RECEIVE_HANDLE], NULL, 16);
    if (m.from < 0 || m.to < 0 || m.from >= t->ranks || m.to >= t->ranks || !isfinite(m.end - m.begin)) return;
    if (m.end < m.begin) m.end = m.begin;       /* limited accuracy of the clock alignment */
    t->message = sgrad_array_grow(t->message, t->messages, sizeof m);
    t->message[t->messages++] = m;
}

int sgrad__timeline_read_messages(const char *folder, struct sgrad__timeline *t) {
    struct sgrad__records records;
    int error = 0;
    if (t->ranks == 1) return 0;
    SGRAD_TRY(sgrad__records_open(folder, "comms.rec", message_keys, &records));
    while (!error && sgrad__records_next(&records, &error)) add_message(t, &records);
    sgrad__records_close(&records);
    return error;
}
