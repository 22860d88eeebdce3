/* SPDX-License-Identifier: Apache-2.0
 *
 * A service of the operator's that is asked about bodies (webhook, plugin, PII sanitizer), over net/call.h:
 * POST of JSON, a deadline for each attempt, a bounded answer, no redirects, [egress] obeyed. What it does
 * not do: read the answer.
 *
 * Thread: a service is immutable; a call belongs to its pool's loop. Both ways' bytes are overwritten when a
 * call is over: they hold what the sanitizer is there to hide.
 */
#ifndef ROLTER_POLICY_SERVICE_H
#define ROLTER_POLICY_SERVICE_H

#include "net/call.h"
#include "policy/settings.h"

struct service {
    struct net_origin origin;
    struct span path;    /* in the origin's memory */
    char *headers;       /* content type and credentials, lines with CR LF */
    unsigned timeout_ms; /* of one attempt */
    unsigned max_retries;
    size_t max_body_bytes; /* of a body that it is asked about */
    enum failure_mode failure_mode;
};

/* <url> has passed the check at load. <auth>'s variables are read here. <ca_bundles> and <egress> outlive it.
 */
void service_init(struct service *s, const char *url, const struct service_auth_settings *auth,
                  const struct strings *ca_bundles, const struct net_egress *egress);
void service_fini(struct service *s);

struct service_call;
/* <why> NULL: a 2xx with <body>. Else what went wrong: "timeout", "status 500", "connect"... Both live during
 * the call only. */
typedef void service_fn(void *arg, struct span body, const char *why);

/* Takes the bytes of <request> over and empties it. <done> comes exactly once, never from inside. */
struct service_call *service_ask(const struct service *s, struct pool *pool, struct span trace_id,
                                 struct buf *request, service_fn *done, void *arg);
/* Ends it; <done> does not come. */
void service_cancel(struct service_call *c);

#endif
