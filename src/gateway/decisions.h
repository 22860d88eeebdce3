/* SPDX-License-Identifier: Apache-2.0
 *
 * The last requests of each worker, for the page and GET /decisions of the admin listener: where each went
 * and why, what the cache had to do with it, how it ended. Nothing of a prompt, a reply or a key.
 *
 * A ring belongs to one worker, which writes a record of fixed size when a request ends: no lock, no
 * allocation, less than 0.1 us. Readers on other threads copy a record word by word and compare its
 * number before and after, as a sequence lock; one that was overwritten meanwhile is not returned. The writer
 * never waits and does not know of them.
 */
#ifndef ROLTER_GATEWAY_DECISIONS_H
#define ROLTER_GATEWAY_DECISIONS_H

#include "balance/balance.h"

enum { DECISIONS_KEPT = 256, DECISION_ID_MAX = 72, DECISION_NAME_MAX = 48 };

/* Texts end with NUL; longer ones are cut. Pointers are words of this program and live for ever; NULL where
 * there is nothing to say. */
struct decision {
    uint64_t started_ms;  /* wall clock */
    uint64_t finished_us; /* monotonic; the order of records */
    uint64_t latency_us, ttft_us, queue_us;
    uint64_t prompt_tokens, cached_tokens; /* as the upstream says; UINT64_MAX = it did not */
    struct pick_why why;                   /* of the last attempt; runner_up is in `runner_up_name` */
    const char *strategy, *reason;         /* NULL: no target was picked */
    const char *cache, *cache_kind;        /* hit, miss, bypass and exact, semantic, coalesced */
    const char *cache_reason, *semantic_reason;
    float similarity; /* of a semantic hit; else negative */
    int status;
    unsigned attempts, load; /* of the provider at the pick, without this request */
    bool stream;
    char request_id[DECISION_ID_MAX];
    char route[DECISION_NAME_MAX], provider[DECISION_NAME_MAX], target[DECISION_NAME_MAX];
    char variant[DECISION_NAME_MAX / 2], runner_up[DECISION_NAME_MAX], error[DECISION_NAME_MAX];
};

/* Copies what fits; a character that is cut in two is left out. */
void decision_text(char *ret, size_t size, struct span text);
#define DECISION_TEXT(field, text) decision_text(field, sizeof(field), text)

struct request;
/* Of a request that ends and has a route, into its worker's ring, which is there. */
void decision_note(const struct request *r, uint64_t latency_us);

struct decision_ring;
struct decision_ring *decision_ring_new(void);
void decision_ring_free(struct decision_ring *r); /* NULL is allowed */
/* The worker. */
void decision_ring_put(struct decision_ring *r, const struct decision *d);
/* Any thread. How many were ever put. */
uint64_t decision_ring_count(const struct decision_ring *r);
/* Any thread. Record <i> of those (0 is the first); false when it is overwritten, or is just being. */
bool decision_ring_read(const struct decision_ring *r, uint64_t i, struct decision *ret);

/* The newest records over <n> rings, newest first, at most <max>; how many. O(max * n). */
unsigned decisions_newest(struct decision_ring *const *rings, unsigned n, struct decision *ret, unsigned max);

#endif
