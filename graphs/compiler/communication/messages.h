/* messages.h: the messages that a rank sends and receives in a step of its programs, as lists that ranks compare before they
 * send. Private to graphs/. */
#ifndef SGRAD_GRAPHS_COMPILER_COMMUNICATION_MESSAGES_H
#define SGRAD_GRAPHS_COMPILER_COMMUNICATION_MESSAGES_H

#include "graphs/compiler/program.h"

/* A message. Both of its ranks must have an equal one. */
struct sgrad__message {
    int64_t tag, bytes;
    int64_t place;              /* index among the messages of its tag, in the order of submission */
    int64_t every, from;        /* the steps in which it is sent: struct sgrad__when */
};
/* The messages to one rank, or from one rank, sorted by tag. */
struct sgrad__message_list {
    int count;
    struct sgrad__message *message;
    const char **name;          /* of the instruction; owned by the program */
};
/* All messages of a rank. SUMS: sums over all ranks by a library, in the order of submission, which must be the same on all
 * ranks. */
struct sgrad__messages {
    int ranks;
    struct sgrad__message_list *sent, *received;    /* per rank */
    struct sgrad__message_list sums;
};

/* Returns the messages of COUNT programs that run concurrently, among RANKS ranks. The caller must free them with
 * sgrad__messages_free, before the programs. */
struct sgrad__messages *sgrad__messages_list(const struct sgrad__program *const *program, int count, int ranks);
void sgrad__messages_free(struct sgrad__messages *messages);
/* Returns a hash of the messages; equal lists have equal hashes. */
uint64_t sgrad__message_list_hash(const struct sgrad__message_list *list);
/* Returns the total size of the messages. */
double sgrad__message_list_bytes(const struct sgrad__message_list *list);
/* Returns the index of the first message of LIST that differs from the message with this index in OTHER; the count of LIST if
 * all are equal. */
int sgrad__message_list_difference(const struct sgrad__message_list *list, const struct sgrad__message_list *other);

#endif
