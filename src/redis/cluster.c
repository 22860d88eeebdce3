/* SPDX-License-Identifier: Apache-2.0
 *
 * Which node of a cluster has a key: the map of slots, and what nodes say when it is out of date.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "redis/internal.h"

enum { MAP_GAP_MS = 100, PORT_MAX = 65535, HOST_MAX = 253 };

/* CRC16 (XMODEM) of the part in {}, or of the whole key. */
unsigned cluster_slot(struct span key)
{
    const char *open = key.n ? memchr(key.p, '{', key.n) : NULL;
    const char *end = key.p + key.n;
    const char *close = open ? memchr(open + 1, '}', (size_t)(end - open - 1)) : NULL;
    if (close && close > open + 1)
        key = span_of(open + 1, (size_t)(close - open - 1));
    unsigned crc = 0;
    for (size_t i = 0; i < key.n; i++) {
        crc ^= (unsigned)(unsigned char)key.p[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1) & 0xffff;
    }
    return crc % REDIS_SLOTS;
}

struct redis_link *cluster_pick(struct redis_client *c, const struct span *key)
{
    if (!c->slots)
        return NULL;
    if (key)
        return c->slots[cluster_slot(*key)];
    LIST_EACH(node, &c->links)
    {
        struct redis_link *l = LIST_ITEM(node, struct redis_link, node);
        if (l->state == LINK_UP && l->mapped)
            return l;
    }
    return NULL;
}

/* The link to a node, made when it is a new one. NULL: that is no address, or there are too many. */
static struct redis_link *link_to(struct redis_client *c, struct span host, uint16_t port)
{
    char name[HOST_MAX + 1];
    if (host.n == 0 || host.n > HOST_MAX || memchr(host.p, 0, host.n))
        return NULL;
    LIST_EACH(node, &c->links)
    {
        struct redis_link *l = LIST_ITEM(node, struct redis_link, node);
        if (l->origin.port == port && span_eq(span_str(l->origin.host), host))
            return l;
    }
    if (c->n_links >= REDIS_NODES_MAX)
        return NULL;
    memcpy(name, host.p, host.n);
    name[host.n] = '\0';
    return link_new(c, name, port);
}

/* ---- the map ---- */

/* One range: [first, last, [host, port, ...], replicas...]. */
bool cluster_parse_range(const struct redis_reply *range, struct cluster_range *ret)
{
    if (range->type != REDIS_ARRAY || range->n < 3)
        return false;
    const struct redis_reply *first = range->items[0], *last = range->items[1], *node = range->items[2];
    if (first->type != REDIS_INTEGER || last->type != REDIS_INTEGER || first->integer < 0 ||
        last->integer < first->integer || last->integer >= REDIS_SLOTS)
        return false;
    if (node->type != REDIS_ARRAY || node->n < 2 || node->items[1]->type != REDIS_INTEGER ||
        node->items[1]->integer <= 0 || node->items[1]->integer > PORT_MAX)
        return false;
    /* A node that does not know its own address leaves it out: the one that we asked. */
    const struct redis_reply *host = node->items[0];
    const bool named = redis_reply_is_text(host) && host->text.n && !span_eq(host->text, SPAN("?"));
    *ret = (struct cluster_range){.first = (unsigned)first->integer,
                                  .last = (unsigned)last->integer,
                                  .host = named ? host->text : SPAN(""),
                                  .port = (uint16_t)node->items[1]->integer};
    return true;
}

static bool map_range(struct redis_client *c, struct redis_link *from, const struct redis_reply *reply,
                      struct redis_link **slots)
{
    struct cluster_range r;
    if (!cluster_parse_range(reply, &r))
        return false;
    struct redis_link *l = link_to(c, r.host.n ? r.host : span_str(from->origin.host), r.port);
    for (unsigned i = r.first; l && i <= r.last; i++)
        slots[i] = l;
    return l != NULL;
}

/* Links that no slot needs any more go; the seed stays, to ask again. */
static void sweep_links(struct redis_client *c)
{
    LIST_EACH(node, &c->links)
    LIST_ITEM(node, struct redis_link, node)->mapped = false;
    for (unsigned i = 0; i < REDIS_SLOTS; i++)
        if (c->slots[i])
            c->slots[i]->mapped = true;
    LIST_EACH(node, &c->links)
    {
        struct redis_link *l = LIST_ITEM(node, struct redis_link, node);
        server_count_link(l, l->mapped);
        const bool idle = list_empty(&l->pending) && list_empty(&l->waiting) && !l->held;
        if (!l->mapped && l != c->seed && idle)
            link_close(l);
    }
}

static void on_map(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct redis_link *from = arg;
    struct redis_client *c = from->client;
    c->map_call = NULL;
    if (outcome != REDIS_DONE || reply->type != REDIS_ARRAY || reply->n == 0) {
        if (outcome == REDIS_REFUSED && !atomic_exchange(&c->server->told_cluster, true))
            server_tell(c->server, true, "%s is no cluster, or does not show its slots: %.*s",
                        c->server->url.name, SPAN_FMT(redis_reply_error_code(reply)));
        return;
    }
    struct redis_link **slots = mem_array(REDIS_SLOTS, sizeof *slots);
    bool good = true;
    for (size_t i = 0; i < reply->n; i++)
        good &= map_range(c, from, reply->items[i], slots);
    free(c->slots);
    c->slots = slots;
    c->map_stale = !good;
    sweep_links(c);
}

static struct redis_link *any_link_up(struct redis_client *c)
{
    LIST_EACH(node, &c->links)
    {
        struct redis_link *l = LIST_ITEM(node, struct redis_link, node);
        if (l->state == LINK_UP)
            return l;
    }
    return NULL;
}

void cluster_refresh(struct redis_client *c)
{
    if (!c->server->o.cluster)
        return;
    c->map_stale = true;
    const uint64_t now = net_now_ms(c->loop);
    struct redis_link *l = c->map_call || c->closed ? NULL : any_link_up(c);
    if (!l)
        return;
    if (c->map_ms && now - c->map_ms < MAP_GAP_MS) {
        link_due(l, c->map_ms + MAP_GAP_MS);
        return;
    }
    c->map_ms = now;
    struct redis_call *call = call_new(c, now, 0);
    call->internal = true;
    call->fn = on_map;
    call->arg = l;
    redis_format(&call->bytes, (const struct span[]){SPAN("CLUSTER"), SPAN("SLOTS")}, 2);
    c->map_call = call;
    call_send(call, l);
}

/* ---- redirects ---- */

/* "MOVED 3999 127.0.0.1:6381", "ASK 3999 ::1:6381"; the host may be empty: the same as before. */
bool cluster_parse_redirect(const struct redis_reply *error, struct cluster_redirect *ret)
{
    struct span rest = error->text, word, slot_text;
    uint64_t slot, port;
    const bool moved = redis_reply_is_error(error, "MOVED");
    if (!moved && !redis_reply_is_error(error, "ASK"))
        return false;
    if (!span_split(&rest, ' ', &word) || !span_split(&rest, ' ', &slot_text) ||
        !span_to_u64(slot_text, &slot) || slot >= REDIS_SLOTS || rest.n == 0)
        return false;
    const char *colon = memrchr(rest.p, ':', rest.n);
    const size_t n_host = colon ? (size_t)(colon - rest.p) : 0;
    if (!colon || !span_to_u64(span_of(colon + 1, rest.n - n_host - 1), &port) || port == 0 ||
        port > PORT_MAX)
        return false;
    *ret = (struct cluster_redirect){
        .slot = (unsigned)slot, .host = span_of(rest.p, n_host), .port = (uint16_t)port, .ask = !moved};
    return true;
}

bool cluster_read_redirect(struct redis_call *call, struct redis_link *from, const struct redis_reply *error)
{
    struct redis_client *c = call->client;
    struct cluster_redirect r;
    if (call->internal || call->n_redirects >= REDIS_REDIRECTS_MAX || !cluster_parse_redirect(error, &r))
        return false;
    struct redis_link *to = link_to(c, r.host.n ? r.host : span_str(from->origin.host), r.port);
    if (!to)
        return false;
    if (!r.ask && c->slots) {
        c->slots[r.slot] = to;
        to->mapped = true;
        cluster_refresh(c);
    }
    if (call->redirect)
        call->redirect->held--;
    to->held++;
    call->redirect = to;
    call->asking = r.ask;
    return true;
}

void cluster_follow(struct redis_call *call)
{
    struct redis_link *to = call->redirect;
    call->redirect = NULL;
    to->held--;
    call->n_redirects++;
    call->skip = call->skip_all + call->asking;
    list_remove(&call->node);
    if (to->state == LINK_CLOSED || (to->state != LINK_UP && to->failed))
        call_finish(call, REDIS_AWAY, NULL);
    else
        call_send(call, to);
}
