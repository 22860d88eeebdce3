/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/applied.h"

#include "policy/stream.h"

void applied_begin(struct request *r)
{
    if (LIKELY(!r->plan->policy) || !r->conn)
        return;
    const char *route = r->route->settings ? r->route->model : NULL;
    struct policy_stream *s = policy_stream_new(r->plan->policy, route, r->dialect_id, r->policy_ticket);
    if (!s)
        return;
    r->applied = ARENA_NEW(r->arena, struct applied);
    r->applied->stream = s;
    buf_init(&r->applied->out, SIZE_MAX / 2);
}

void applied_feed(struct request *r, const char *p, size_t n)
{
    struct applied *a = r->applied;
    if (!a->refused)
        a->refused = !policy_stream_feed(a->stream, span_of(p, n), &a->out);
}

void applied_end(struct request *r)
{
    struct applied *a = r->applied;
    if (!a->refused)
        a->refused = !policy_stream_end(a->stream, &a->out);
}

void applied_over(struct request *r)
{
    struct applied *a = r->applied;
    if (!a)
        return;
    if (a->refused) {
        r->status = 403;
        r->error = arena_dup(r->arena, span_str(policy_stream_reason(a->stream))).p;
        if (!r->withheld)
            metric_add(metric_plain(M_WITHHELD), 1);
        r->withheld = true;
    }
    policy_stream_free(a->stream);
    buf_fini(&a->out);
    r->applied = NULL;
}
