/* SPDX-License-Identifier: Apache-2.0
 *
 * How much prompt a provider's engine has yet to read, and how fast it reads: what `least_prefill` charges
 * (R14). A charge is made at the pick, in tokens that are expected not to be cached, and released once, at
 * the first token or when the attempt ends without one. Charges of all routes add up, as they share the
 * engine.
 *
 * Between two first tokens the engine works on what waits: the backlog is taken to shrink at the learnt rate,
 * by no more than one mean charge, so that an engine that hangs does not look as if it got on.
 *
 * Threads: any. Reading takes no lock. Times: monotonic microseconds.
 */
#ifndef ROLTER_FLEET_PREFILL_H
#define ROLTER_FLEET_PREFILL_H

#include "fleet/provider.h"

/* Most tokens of one charge. */
enum { PREFILL_CHARGE_MAX = 1 << 28 };

void provider_prefill_begin(struct provider *p, uint32_t tokens, uint64_t now_us);
/* Ends what provider_prefill_begin began with the same number. <picked_us>: when; 0 = the time says nothing
 * of the engine (the attempt failed, the reply came whole). */
void provider_prefill_end(struct provider *p, uint32_t tokens, uint64_t picked_us, uint64_t now_us);

/* Charges open, their tokens, and what is left of these by now. */
unsigned provider_prefill_open(const struct provider *p);
uint64_t provider_prefill_charged(const struct provider *p);
double provider_prefill_backlog(const struct provider *p, uint64_t now_us);

/* Learnt tokens a second; 0 = not known yet, or not any more, as nothing was asked for five minutes. And how
 * many first tokens have been seen since the provider was new or restarted. */
double provider_prefill_rate(const struct provider *p, uint64_t now_us);
unsigned provider_prefill_answers(const struct provider *p);

/* The engine's own metrics, when fresh, say that its cache memory or its queue is full. */
bool provider_is_full(const struct provider *p, uint64_t now_ms);

/* What a pick asks of many providers: backlog, rate and whether they are full, into columns of the caller's.
 * One cache line is read of each. */
struct prefill_summary {
    double rates;         /* the sum of those that are known, */
    unsigned known;       /* which are so many */
    unsigned new_ones;    /* have fewer than <few> answers */
    uint64_t generations; /* their sum: whether any has changed */
};
struct prefill_summary providers_prefill_look(struct provider *const *p, unsigned n, unsigned few,
                                              uint64_t now_us, uint64_t now_ms, double *ret_backlog,
                                              double *ret_rate, bool *ret_full);

/* Tokens that the engine's prefix cache holds, as its metrics said last; 0 = they never did. */
double provider_cache_tokens(const struct provider *p);

/* Whether a reply of this provider has ever said how many tokens were cached (R15). */
bool provider_reports_cached(const struct provider *p);
void provider_note_cached(struct provider *p);

#endif
