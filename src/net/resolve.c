/* SPDX-License-Identifier: Apache-2.0 */
#include "net/resolve.h"

#include <stdlib.h>

#include "base/mem.h"

enum { ENTRIES_MAX = 256 };

struct entry {
    struct list node; /* of the resolver's entries; alone when the resolver has gone */
    struct resolver *resolver;
    char *host;
    struct list waiting;
    uv_getaddrinfo_t req;
    bool asking;
    uint64_t good_until; /* ms; 0 = nothing known */
    struct net_post failed;
    int err;
    struct resolve_addrs addrs;
};

struct resolver {
    struct net_loop *loop;
    struct list entries;
    unsigned n;
};

struct resolver *resolver_new(struct net_loop *l)
{
    struct resolver *r = MEM_NEW(struct resolver);
    r->loop = l;
    list_init(&r->entries);
    return r;
}

static void entry_free(struct entry *e)
{
    CHECK(list_empty(&e->waiting));
    net_loop_undefer(&e->failed);
    list_remove(&e->node);
    if (e->resolver)
        e->resolver->n--;
    free(e->host);
    free(e);
}

void resolver_free(struct resolver *r)
{
    LIST_EACH(node, &r->entries)
    {
        struct entry *e = LIST_ITEM(node, struct entry, node);
        if (!e->asking) {
            entry_free(e);
            continue;
        }
        CHECK(list_empty(&e->waiting));
        list_remove(&e->node);
        e->resolver = NULL;
        uv_cancel((uv_req_t *)&e->req); /* its callback frees the entry, cancelled or not */
    }
    free(r);
}

static bool parse_literal(const char *host, struct resolve_addrs *ret)
{
    struct resolve_addrs a = {.n = 1};
    if (uv_ip4_addr(host, 0, &a.a[0].v4) && uv_ip6_addr(host, 0, &a.a[0].v6))
        return false;
    *ret = a;
    return true;
}

static void take_addrs(struct resolve_addrs *out, const struct addrinfo *list)
{
    out->n = 0;
    for (const struct addrinfo *i = list; i && out->n < RESOLVE_ADDRS_MAX; i = i->ai_next) {
        if (i->ai_family == AF_INET)
            memcpy(&out->a[out->n++].v4, i->ai_addr, sizeof(struct sockaddr_in));
        else if (i->ai_family == AF_INET6)
            memcpy(&out->a[out->n++].v6, i->ai_addr, sizeof(struct sockaddr_in6));
    }
}

/* Tells all that wait. Each may start or take back lookups, also of this name, and <e> may go meanwhile. */
static void tell(struct entry *e, int err)
{
    const struct resolve_addrs addrs = e->addrs;
    struct list now, *node;
    list_init(&now);
    while ((node = list_pop(&e->waiting)))
        list_push(&now, node);
    while ((node = list_pop(&now))) {
        struct resolve_wait *w = LIST_ITEM(node, struct resolve_wait, node);
        w->fn(w, err ? NULL : &addrs, err);
    }
}

static void on_failed_at_once(struct net_post *p, struct net_loop *l)
{
    (void)l;
    struct entry *e = CONTAINER_OF(p, struct entry, failed);
    e->asking = false;
    tell(e, e->err);
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *list)
{
    struct entry *e = CONTAINER_OF(req, struct entry, req);
    e->asking = false;
    if (status == 0)
        take_addrs(&e->addrs, list);
    uv_freeaddrinfo(list);
    if (!e->resolver) {
        entry_free(e);
        return;
    }
    if (status == 0 && e->addrs.n == 0)
        status = UV_EAI_NODATA;
    if (status == 0)
        e->good_until = net_now_ms(e->resolver->loop) + RESOLVE_KEEP_MS;
    tell(e, status);
}

static struct entry *entry_find(struct resolver *r, const char *host)
{
    LIST_EACH(node, &r->entries)
    {
        struct entry *e = LIST_ITEM(node, struct entry, node);
        if (!strcmp(e->host, host))
            return e;
    }
    return NULL;
}

static struct entry *entry_new(struct resolver *r, const char *host)
{
    if (r->n >= ENTRIES_MAX) {
        LIST_EACH(node, &r->entries)
        {
            struct entry *old = LIST_ITEM(node, struct entry, node);
            if (!old->asking && list_empty(&old->waiting)) {
                entry_free(old); /* the oldest one that nobody needs now */
                break;
            }
        }
    }
    struct entry *e = MEM_NEW(struct entry);
    e->resolver = r;
    e->host = mem_strdup(host);
    e->failed.fn = on_failed_at_once;
    list_init(&e->waiting);
    list_init(&e->failed.node);
    list_push(&r->entries, &e->node);
    r->n++;
    return e;
}

bool resolver_lookup(struct resolver *r, const char *host, struct resolve_wait *w,
                     struct resolve_addrs *ret_addrs)
{
    if (parse_literal(host, ret_addrs))
        return true;
    struct entry *e = entry_find(r, host);
    if (e && !e->asking && net_now_ms(r->loop) < e->good_until) {
        *ret_addrs = e->addrs;
        return true;
    }
    if (!e)
        e = entry_new(r, host);
    list_push(&e->waiting, &w->node);
    if (e->asking)
        return false;
    e->asking = true;
    e->good_until = 0;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    e->err = uv_getaddrinfo(&r->loop->uv, &e->req, on_resolved, host, NULL, &hints);
    if (e->err)
        net_loop_defer(r->loop, &e->failed);
    return false;
}

void resolver_forget(struct resolve_wait *w)
{
    list_remove(&w->node);
}

void resolver_put(struct resolver *r, const char *host, const struct resolve_addrs *addrs)
{
    struct entry *e = entry_find(r, host);
    if (!e)
        e = entry_new(r, host);
    e->addrs = *addrs;
    e->good_until = net_now_ms(r->loop) + RESOLVE_KEEP_MS;
}
