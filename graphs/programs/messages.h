/* messages.h: the messages that a rank sends and receives in a step of its programs, as lists that ranks compare before they
 * send. Private to graphs/. */
#ifndef SGRAD_GRAPHS_MESSAGES_H
#define SGRAD_GRAPHS_MESSAGES_H

#include "graphs/programs/program.h"

/* A message, as both of its ranks must have it. */
struct sgrad__message {
    int64_t tag, bytes;
    int64_t place;              /* among those of its tag, in the order of submission */
    int64_t every, from;        /* the steps that it is part of: struct sgrad__when */
};
/* Those to one rank, or from it, by tags. */
struct sgrad__message_list {
    int count;
    struct sgrad__message *message;
    const char **name;          /* the instruction's: the program owns it */
};
/* All of a rank's. Sums of all ranks by a library are in SUMS, in the order of submission, which counts. */
struct sgrad__messages {
    int ranks;
    struct sgrad__message_list *sent, *received;    /* by rank */
    struct sgrad__message_list sums;
};

/* The messages of COUNT programs, which are under way at the same time, among RANKS ranks. Free it before the programs. */
struct sgrad__messages *sgrad__messages_list(const struct sgrad__program *const *program, int count, int ranks);
void sgrad__messages_free(struct sgrad__messages *messages);
/* Lists of the same messages have the same hash. */
uint64_t sgrad__message_list_hash(const struct sgrad__message_list *list);
double sgrad__message_list_bytes(const struct sgrad__message_list *list);
/* The first message of LIST that the same place in OTHER does not have; LIST's count, if OTHER has all of them. */
int sgrad__message_list_difference(const struct sgrad__message_list *list, const struct sgrad__message_list *other);

#endif
