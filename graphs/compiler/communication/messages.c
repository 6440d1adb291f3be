/* messages.c: lists the messages of a rank's programs, so that they can be compared with the lists of other ranks.
 *
 *     rank 0, sent to 1          tag 0   512 bytes  │  tag 1  64 bytes          must be equal; otherwise the programs
 *     rank 1, received from 0    tag 0   512 bytes  │  tag 1  64 bytes          of the ranks do not match
 *
 * StarPU-MPI matches messages by tag. Therefore a list is sorted by tag, independent of the order of submission; messages with
 * the same tag are in the order of submission. */
#include "graphs/compiler/communication/messages.h"

#include <stdlib.h>

static void note(struct sgrad__message_list *list, const struct sgrad__instruction *instruction) {
    list->message = sgrad_array_grow(list->message, list->count, sizeof *list->message);
    list->name = sgrad_array_grow(list->name, list->count, sizeof *list->name);
    list->name[list->count] = instruction->name;
    list->message[list->count] = (struct sgrad__message){ .tag = instruction->tag,
                                                          .bytes = (int64_t)sgrad_view_bytes(&instruction->call->view[0]),
                                                          .place = list->count,
                                                          .every = instruction->when.every,
                                                          .from = instruction->when.from };
    list->count++;
}

static int by_tag(const void *one, const void *other) {
    const struct sgrad__message *a = one, *b = other;
    if (a->tag != b->tag) return a->tag < b->tag ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Before, .place is the index in the list, which finds the name; then it is the index among the messages with the same tag. */
static void sort(struct sgrad__message_list *list) {
    const char **name = sgrad_xcalloc((size_t)list->count + 1, sizeof *name);
    if (list->count) qsort(list->message, (size_t)list->count, sizeof *list->message, by_tag);
    for (int i = 0; i < list->count; i++) {
        struct sgrad__message *m = &list->message[i];
        name[i] = list->name[m->place];
        m->place = i && m->tag == m[-1].tag ? m[-1].place + 1 : 0;
    }
    free(list->name);
    list->name = name;
}

struct sgrad__messages *sgrad__messages_list(const struct sgrad__program *const *program, int count, int ranks) {
    struct sgrad__messages *all = sgrad_xcalloc(1, sizeof *all);
    all->ranks = ranks;
    all->sent = sgrad_xcalloc((size_t)ranks, sizeof *all->sent);
    all->received = sgrad_xcalloc((size_t)ranks, sizeof *all->received);
    for (int p = 0; p < count; p++)
        for (int j = 0; j < program[p]->instruction_count; j++) {
            const struct sgrad__instruction *i = &program[p]->instruction[j];
            if (!sgrad__is_message(i->call)) continue;
            if (i->call->kernel == &sgrad__send_kernel) note(&all->sent[i->peer], i);
            else if (i->call->kernel == &sgrad__receive_kernel) note(&all->received[i->peer], i);
            else note(&all->sums, i);
        }
    for (int r = 0; r < ranks; r++) sort(&all->sent[r]), sort(&all->received[r]);
    return all;
}

static void clear(struct sgrad__message_list *list) {
    free(list->message);
    free(list->name);
}

void sgrad__messages_free(struct sgrad__messages *all) {
    for (int r = 0; r < all->ranks; r++) clear(&all->sent[r]), clear(&all->received[r]);
    clear(&all->sums);
    free(all->sent);
    free(all->received);
    free(all);
}

uint64_t sgrad__message_list_hash(const struct sgrad__message_list *list) {
    return sgrad_hash(list->message, (size_t)list->count * sizeof *list->message);
}

double sgrad__message_list_bytes(const struct sgrad__message_list *list) {
    double bytes = 0;
    for (int i = 0; i < list->count; i++) bytes += (double)list->message[i].bytes;
    return bytes;
}

static bool same(const struct sgrad__message *one, const struct sgrad__message *other) {
    return one->tag == other->tag && one->bytes == other->bytes && one->place == other->place && one->every == other->every &&
           one->from == other->from;
}

int sgrad__message_list_difference(const struct sgrad__message_list *list, const struct sgrad__message_list *other) {
    int i = 0;
    while (i < list->count && i < other->count && same(&list->message[i], &other->message[i])) i++;
    return i;
}
