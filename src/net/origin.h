/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an upstream is: scheme, host, port, base path, and the rules under which it may be reached.
 */
#ifndef ROLTER_NET_ORIGIN_H
#define ROLTER_NET_ORIGIN_H

#include <sys/socket.h>

#include "base/span.h"

/* Which resolved addresses may be connected to (G14). */
struct net_egress {
    bool block_link_local, block_loopback, block_private;
    const char *const *allow_hosts; /* names or literals that are always allowed */
    size_t n_allow_hosts;
};

struct net_origin {
    char *host; /* without brackets */
    uint16_t port;
    bool tls;
    bool verify;
    char *base_path;   /* without a trailing slash; may be empty */
    char *host_header; /* "host" or "host:port" as the Host field says it */
    char *key;         /* what makes two origins share connections: scheme, host, port, roots, verify */
    char *roots; /* what makes two origins share a TLS context: verify, bundles and their state on disk */
    const char *const *ca_bundles; /* borrowed from the configuration */
    size_t n_ca_bundles;
    const struct net_egress *egress; /* may be NULL */
};

/* Parses http(s)://host[:port][/path]. False with a reason (static text) for anything else: user info, a
 * query, a fragment, no host, a port out of range. Owner: caller, origin_fini. */
bool origin_parse(struct span url, struct net_origin *ret, const char **ret_why);
/* Computes <key> and <roots> again after ca_bundles, verify or egress were set. Looks at the bundles on disk:
 * one that was renewed counts from the next configuration on. */
void origin_seal(struct net_origin *o);
void origin_fini(struct net_origin *o);

/* NULL when <addr> may be connected to for <host>; else what it is: "link-local", "loopback", "private". */
const char *egress_refuses(const struct net_egress *e, const char *host, const struct sockaddr *addr);
/* The same for a literal address in an origin, for checks at load; NULL when the host is a name. */
const char *egress_refuses_literal(const struct net_egress *e, const char *host);

#endif
