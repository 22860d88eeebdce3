/* SPDX-License-Identifier: Apache-2.0
 *
 * rolter-demo: drives conversations through a gateway and tells what happened to them. Each conversation
 * grows by a question and an answer a turn, as chats do, and waits for the answer before it goes on; all of
 * them run at once. One thread, one loop. A fault of the gateway is counted and named, never a reason to
 * stop.
 */
#ifndef ROLTER_DEMO_H
#define ROLTER_DEMO_H

#include "http/sse.h"
#include "net/call.h"

enum { REPLICAS_MAX = 16, TURNS_MAX = 64, CONVERSATIONS_MAX = 1024 };

struct demo {
    struct net_loop loop;
    struct pool *pool;
    struct net_origin origin;
    const char *url, *key;
    unsigned conversations, turns;
    char *replicas[REPLICAS_MAX]; /* names as the gateway says them, in order of appearance */
    unsigned n_replicas;
    struct round *round; /* that runs */
    bool failed;         /* something, somewhere */
};

/* What a route did with all conversations. */
struct round {
    const char *model;
    unsigned requests, failures;
    char failure[256]; /* the first one */
    unsigned by_replica[REPLICAS_MAX];
    uint64_t prompt_tokens, cached_tokens;
    unsigned stayed; /* conversations that one replica served from beginning to end */
    unsigned n_first;
    uint64_t *first_us; /* time to first token of each stream; room for all of them */
    uint64_t begun_us, ended_us;
    unsigned running; /* conversations that are not over */
};

/* Runs all conversations through the route and returns when the last is over. */
void round_run(struct demo *d, struct round *r, const char *model);
void round_fini(struct round *r);
/* Asks each endpoint once; prints a line of path and status each. False when one did not answer as it should.
 */
bool doors_run(struct demo *d, const char *model);
/* The table of all rounds. */
void report_print(struct demo *d, struct round *rounds, unsigned n);

/* Index of a replica by its name; REPLICAS_MAX - 1 takes all that have no place. */
unsigned demo_replica(struct demo *d, struct span name);
/* Fields that every request carries. */
void demo_fields(const struct demo *d, struct buf *head);

#endif
