/* SPDX-License-Identifier: Apache-2.0
 *
 * Names to addresses, through libuv's thread pool, with a small cache per loop: a name is asked once however
 * many wait for it, and its addresses are good for RESOLVE_KEEP_MS. Failures are not kept. Literal addresses
 * need no lookup. Addresses stay in the system's order (RFC 6724). Thread: the loop's.
 */
#ifndef ROLTER_NET_RESOLVE_H
#define ROLTER_NET_RESOLVE_H

#include <netinet/in.h>

#include "net/loop.h"

enum { RESOLVE_ADDRS_MAX = 8, RESOLVE_KEEP_MS = 10000 };

union net_addr {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Ports are 0. */
struct resolve_addrs {
    unsigned n;
    union net_addr a[RESOLVE_ADDRS_MAX];
};

struct resolver;
struct resolve_wait;

/* <addrs> NULL: no address, <err> is a libuv code. It lives during the call. */
typedef void resolve_fn(struct resolve_wait *w, const struct resolve_addrs *addrs, int err);

struct resolve_wait {
    struct list node;
    resolve_fn *fn;
};

struct resolver *resolver_new(struct net_loop *l);
/* Nobody may wait any more; lookups that still run end by themselves. */
void resolver_free(struct resolver *r);

/* True with *ret_addrs when <host> is a literal or cached; else <w>->fn comes later, never from inside this
 * call, or resolver_forget takes <w> back. */
bool resolver_lookup(struct resolver *r, const char *host, struct resolve_wait *w,
                     struct resolve_addrs *ret_addrs);
void resolver_forget(struct resolve_wait *w);
/* Says what <host> is, as if it had been looked up now. */
void resolver_put(struct resolver *r, const char *host, const struct resolve_addrs *addrs);

#endif
