/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/limits_share.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "redis/reply.h"

enum {
    EVERY_MS = 250,
    ANSWER_MS = 1000,
    UNDER_WAY_MAX = 1024, /* exchanges; the rest of a long list of limits waits for its turn */
    BATCH = 64
};

struct limits_share {
    struct limits *limits;
    struct redis_server *server;
    struct redis_client *client;
    struct resolver *resolver;
    char *prefix;
    uv_timer_t timer;
    size_t cursor;
    unsigned under_way;
    struct list calls; /* struct exchange */
};

/* One counter's question that has not been answered. */
struct exchange_call {
    struct limits_share *share;
    struct list node;
    struct limit_delta delta;
};

/* The total: INCRBY's integer, the first of a transaction's replies; GET's text, or nothing at all for a
 * counter that nobody has begun. */
static bool total_of(const struct redis_reply *r, uint64_t *ret)
{
    if (r->type == REDIS_ARRAY && r->n > 0)
        r = r->items[0];
    switch (r->type) {
    case REDIS_NIL:
        *ret = 0;
        return true;
    case REDIS_INTEGER:
        *ret = (uint64_t)r->integer;
        return r->integer >= 0;
    case REDIS_STRING:
        return span_to_u64(r->text, ret);
    default:
        return false;
    }
}

static void end_call(struct exchange_call *c, const uint64_t *total)
{
    limits_settle(&c->delta, total);
    list_remove(&c->node);
    c->share->under_way--;
    free(c);
}

static void on_total(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct exchange_call *c = arg;
    uint64_t total;
    bool ok = outcome == REDIS_DONE && total_of(reply, &total);
    end_call(c, ok ? &total : NULL);
}

static void ask(struct limits_share *s, const struct limit_delta *d)
{
    char key[512], amount[24], ttl[16];
    struct exchange_call *c = MEM_NEW(struct exchange_call);
    c->share = s;
    c->delta = *d;
    list_push(&s->calls, &c->node);
    s->under_way++;
    snprintf(key, sizeof key, "%s:limits:%s", s->prefix, d->name);
    snprintf(amount, sizeof amount, "%llu", (unsigned long long)d->amount);
    snprintf(ttl, sizeof ttl, "%u", d->ttl_secs);
    const struct span get[] = {SPAN("GET"), span_str(key)};
    const struct span add[] = {SPAN("INCRBY"), span_str(key), span_str(amount)};
    const struct span expire[] = {SPAN("EXPIRE"), span_str(key), span_str(ttl)};
    const struct redis_request q[] = {{add, 3, 1}, {expire, 3, 1}}, look = {get, 2, 1};
    enum redis_outcome o =
        d->amount == 0 ? redis_command(s->client, &look, ANSWER_MS, on_total, c, NULL)
                       : redis_transaction(s->client, q, d->ttl_secs ? 2 : 1, ANSWER_MS, on_total, c, NULL);
    if (o != REDIS_DONE)
        end_call(c, NULL);
}

/* A round over all limits, as far as the answers of the last one are in. */
static void on_timer(uv_timer_t *t)
{
    struct limits_share *s = t->data;
    struct limit_delta batch[BATCH];
    if (!redis_client_is_up(s->client))
        return;
    do {
        if (s->under_way + BATCH > UNDER_WAY_MAX)
            return;
        unsigned n = limits_collect(s->limits, clock_wall_ms(), batch, BATCH, &s->cursor);
        for (unsigned i = 0; i < n; i++)
            ask(s, &batch[i]);
    } while (s->cursor != 0);
}

struct limits_share *limits_share_start(struct limits *l, struct redis_server *server, const char *prefix,
                                        struct net_loop *loop)
{
    struct limits_share *s = MEM_NEW(struct limits_share);
    s->limits = limits_ref(l);
    s->server = redis_server_ref(server);
    s->resolver = resolver_new(loop);
    s->client = redis_client_new(server, loop, s->resolver);
    s->prefix = mem_strdup(prefix);
    list_init(&s->calls);
    CHECK(uv_timer_init(&loop->uv, &s->timer) == 0);
    s->timer.data = s;
    uv_timer_start(&s->timer, on_timer, EVERY_MS, EVERY_MS);
    return s;
}

static void closed(uv_handle_t *h)
{
    struct limits_share *s = h->data;
    resolver_free(s->resolver);
    redis_server_unref(s->server);
    limits_unref(s->limits);
    free(s->prefix);
    free(s);
}

void limits_share_stop(struct limits_share *s)
{
    if (!s)
        return;
    redis_client_free(s->client);
    while (!list_empty(&s->calls))
        end_call(LIST_ITEM(s->calls.next, struct exchange_call, node), NULL);
    uv_close((uv_handle_t *)&s->timer, closed);
}
