/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a Redis or Valkey server is: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], rediss:// for TLS, and
 * unix://[[USER]:PASSWORD@]/PATH[?db=DB]. User, password and path may be percent-encoded. Pure; no state.
 */
#ifndef ROLTER_REDIS_URL_H
#define ROLTER_REDIS_URL_H

#include "net/origin.h"

enum { REDIS_PORT = 6379, REDIS_DB_MAX = 1000000 };

struct redis_url {
    struct net_origin origin; /* host, port, tls; unset when there is a path */
    char *path;               /* of a Unix socket, or NULL */
    char *user, *password;    /* NULL = none */
    unsigned db;
    char *name; /* the URL without its secrets, for logs */
};

/* False with a reason (static text, without any part of the URL). Owner: caller, redis_url_fini. */
bool redis_url_parse(struct span url, struct redis_url *ret, const char **ret_why);
/* NULL when the URL is good for a server or, with <cluster>, for a node of a cluster; else why not. */
const char *redis_url_fault(const char *url, bool cluster);
void redis_url_fini(struct redis_url *u);

#endif
