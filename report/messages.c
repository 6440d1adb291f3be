/* messages.c: reads comms.rec, with a record for each message between ranks. */
#include "report/records.h"
#include "report/timeline.h"
#include "runtime/runtime.h"

#include <math.h>
#include <stdlib.h>

enum { FROM, TO, SENT, RECEIVED, BYTES, SENDS, RECEIVES, SEND_HANDLE, RECEIVE_HANDLE };
static const char *const message_keys[] = { "Src",       "Dst",       "SendTime",   "RecvTime",   "Size",
                                            "SendJobId", "RecvJobId", "SendHandle", "RecvHandle", NULL };

static void add_message(struct sgrad__timeline *timeline, struct sgrad__records *records) {
    for (int i = FROM; i <= BYTES; i++)
        if (!records->value[i]) return;
    char *end;
    struct sgrad__timeline_message m = { .from = atoi(records->value[FROM]),
                                         .to = atoi(records->value[TO]),
                                         .begin = atof(records->value[SENT]),
                                         .end = atof(records->value[RECEIVED]),
                                         .bytes = atof(records->value[BYTES]) };
    if (records->value[SENDS] && records->value[RECEIVES]) {
        m.sends = sgrad__records_job(records->value[SENDS], &end);
        m.receives = sgrad__records_job(records->value[RECEIVES], &end);
    }
    if (records->value[SEND_HANDLE]) m.sent = strtoull(records->value[SEND_HANDLE], NULL, 16);
    if (records->value[RECEIVE_HANDLE]) m.received = strtoull(records->value[RECEIVE_HANDLE], NULL, 16);
    if (m.from < 0 || m.to < 0 || m.from >= timeline->ranks || m.to >= timeline->ranks || !isfinite(m.end - m.begin)) return;
    if (m.end < m.begin) m.end = m.begin;       /* limited accuracy of the clock alignment */
    timeline->message = sgrad_array_grow(timeline->message, timeline->messages, sizeof m);
    timeline->message[timeline->messages++] = m;
}

int sgrad__timeline_read_messages(const char *folder, struct sgrad__timeline *timeline) {
    struct sgrad__records records;
    int error = 0;
    if (timeline->ranks == 1) return 0;
    SGRAD_TRY(sgrad__records_open(folder, "comms.rec", message_keys, &records));
    while (!error && sgrad__records_next(&records, &error)) add_message(timeline, &records);
    sgrad__records_close(&records);
    return error;
}
