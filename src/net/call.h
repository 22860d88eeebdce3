/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole HTTP call with a bounded reply, for everything that is not a relayed request: health probes, metric
 * scrapes, LMCache, embeddings, webhooks, ClickHouse. Redirects are not followed.
 * Thread: the loop's.
 */
#ifndef ROLTER_NET_CALL_H
#define ROLTER_NET_CALL_H

#include "net/exchange.h"

struct call;

struct call_reply {
    int status;       /* 0 when no head came */
    struct span body; /* lives during the callback; empty when it failed */
    struct span content_type;
    bool failed;               /* also set with the next two */
    bool too_large, timed_out; /* the reply exceeded the maximum; the time for everything was over */
    enum exchange_fail why;    /* when failed */
    const char *detail;        /* text or NULL */
};

typedef void call_fn(struct call *c, void *arg, const struct call_reply *r);

struct call_request {
    const struct net_origin *origin; /* lives as long as the call */
    const char *method;              /* "GET" */
    struct span path;                /* with the base path and query already in it; empty stands for "/" */
    struct span headers;             /* "name: value\r\n" lines beside Host, Content-Length; may be empty */
    struct span body;                /* copied */
    unsigned timeout_ms;             /* for everything together; 0 = no limit */
    size_t max_reply_bytes;
    bool secret; /* the bytes of request and reply are overwritten when they are not needed any more */
};

/* Starts; <done> comes exactly once, not from inside this call. */
struct call *call_start(struct pool *p, const struct call_request *r, call_fn *done, void *arg);
/* Ends it; <done> does not come. */
void call_cancel(struct call *c);

#endif
