/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens one connection to an origin: resolves the name, checks each address against the egress rules, tries
 * them in order, shakes hands. One time limit for all of it; an address that does not answer gets an equal
 * share of what is left, so that a dead first address does not use up the time of a living second one.
 * Thread: the loop's.
 */
#ifndef ROLTER_NET_DIAL_H
#define ROLTER_NET_DIAL_H

#include "net/exchange.h"
#include "net/resolve.h"
#include "net/stream.h"

struct dial;

/* <s>: connected, the caller's from here on (stream_set_owner first). NULL: <why> and <detail>, which lives
 * during the call and may be NULL. The dial is gone either way. */
typedef void dial_fn(void *arg, struct stream *s, enum exchange_fail why, const char *detail);

/* <tls> NULL: plain. <timeout_ms> 0: no limit. <done> never comes from inside this call. */
struct dial *dial_start(struct net_loop *l, struct resolver *r, const struct net_origin *o,
                        struct tls_context *tls, unsigned timeout_ms, dial_fn *done, void *arg);
/* Ends it; <done> does not come. */
void dial_cancel(struct dial *d);

#endif
