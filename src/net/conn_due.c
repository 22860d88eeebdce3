/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines of connections. Setting and clearing one is a list operation; the one libuv timer of the server
 * is only touched when a deadline comes before the one it is armed for, and when it fires it looks for the
 * next.
 */
#include "net/server_impl.h"

void due_init(struct due *d)
{
    list_init(&d->node);
    d->kind = DUE_NONE;
}

static void arm(struct server *s, uint64_t at)
{
    uint64_t now = net_now_ms(s->loop);
    s->armed_at = at ? at : 1;
    uv_timer_start(&s->due_timer, due_on_timer, at > now ? at - now : 0, 0);
}

void due_set(struct server *s, struct due *d, enum due_kind kind)
{
    due_clear(d);
    if (kind == DUE_NONE || (s->due_ms[kind] == 0 && kind != DUE_NOW))
        return; /* no limit */
    d->kind = (uint8_t)kind;
    d->at = net_now_ms(s->loop) + s->due_ms[kind];
    list_push(&s->due[kind], &d->node);
    if (!s->firing && (s->armed_at == 0 || d->at < s->armed_at))
        arm(s, d->at);
}

void due_clear(struct due *d)
{
    list_remove(&d->node);
    d->kind = DUE_NONE;
}

/* New durations hold for what is waiting already where they are shorter; that keeps every list sorted. */
void due_apply_options(struct server *s)
{
    s->due_ms[DUE_HEAD] = s->o.head_ms;
    s->due_ms[DUE_BODY] = s->o.body_ms;
    s->due_ms[DUE_IDLE] = s->o.idle_ms;
    s->due_ms[DUE_WRITE] = s->o.write_ms ? s->o.write_ms : s->o.idle_ms;
    uint64_t now = net_now_ms(s->loop), first = UINT64_MAX;
    for (int kind = DUE_HEAD; kind <= DUE_WRITE; kind++) {
        if (s->due_ms[kind] == 0)
            continue;
        LIST_EACH(node, &s->due[kind])
        {
            struct due *d = LIST_ITEM(node, struct due, node);
            if (d->at > now + s->due_ms[kind])
                d->at = now + s->due_ms[kind];
            if (d->at < first)
                first = d->at;
        }
    }
    if (first != UINT64_MAX && (s->armed_at == 0 || first < s->armed_at))
        arm(s, first);
}

void due_on_timer(uv_timer_t *t)
{
    struct server *s = t->data;
    uint64_t now = net_now_ms(s->loop);
    s->firing = true;
    for (int kind = DUE_NOW; kind < DUE_COUNT && !s->closing; kind++) {
        /* What a handler sets anew (a probe of the same kind, the next DUE_NOW) lies behind <now> or is done
         * here. */
        while (!s->closing && !list_empty(&s->due[kind])) {
            struct due *d = LIST_ITEM(s->due[kind].next, struct due, node);
            if (d->at > now)
                break;
            due_clear(d);
            struct conn *c = kind == DUE_WRITE ? CONTAINER_OF(d, struct conn, write_due)
                                               : CONTAINER_OF(d, struct conn, read_due);
            conn_on_due(c, (enum due_kind)kind);
        }
    }
    s->firing = false;
    s->armed_at = 0;
    if (s->closing)
        return;
    uint64_t first = UINT64_MAX;
    for (int kind = DUE_NOW; kind < DUE_COUNT; kind++)
        if (!list_empty(&s->due[kind])) {
            uint64_t at = LIST_ITEM(s->due[kind].next, struct due, node)->at;
            if (at < first)
                first = at;
        }
    if (first != UINT64_MAX)
        arm(s, first);
}
