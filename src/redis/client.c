/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls: made, sent in one write for each turn of the loop, answered, forgotten.
 */
#include <hiredis/hiredis.h>
#include <stdlib.h>

#include "base/mem.h"
#include "redis/internal.h"

enum { FEW_WORDS = 16 };

void redis_format(struct buf *b, const struct span *argv, unsigned argc)
{
    const char *few_p[FEW_WORDS], **p = few_p;
    size_t few_n[FEW_WORDS], *n = few_n;
    char *text = NULL;
    if (argc > FEW_WORDS) {
        p = mem_array(argc, sizeof *p);
        n = mem_array(argc, sizeof *n);
    }
    for (unsigned i = 0; i < argc; i++) {
        p[i] = argv[i].p ? argv[i].p : "";
        n[i] = argv[i].n;
    }
    const int len = redisFormatCommandArgv(&text, (int)argc, p, n);
    CHECK_MSG(len > 0, "no memory for a command");
    buf_add(b, text, (size_t)len);
    redisFreeCommand(text);
    if (argc > FEW_WORDS) {
        free(p);
        free(n);
    }
}

/* ---- calls ---- */

struct redis_call *call_new(struct redis_client *c, uint64_t now_ms, unsigned timeout_ms)
{
    struct redis_call *call = MEM_NEW(struct redis_call);
    call->client = c;
    call->made_ms = now_ms;
    call->due_ms = now_ms + (timeout_ms ? timeout_ms : c->server->o.answer_ms);
    list_init(&call->node);
    buf_init(&call->bytes, SIZE_MAX / 2);
    return call;
}

static void call_free(struct redis_call *call)
{
    struct redis_client *c = call->client;
    list_remove(&call->node);
    c->n_calls -= !call->internal;
    c->queued_bytes -= call->n_bytes;
    if (call->redirect)
        call->redirect->held--;
    buf_fini(&call->bytes);
    free(call);
}

void call_finish(struct redis_call *call, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct redis_server *s = call->client->server;
    redis_fn *fn = call->cancelled ? NULL : call->fn;
    void *arg = call->arg;
    if (!call->internal && !call->cancelled)
        metric_add(s->m_commands[outcome], 1);
    call_free(call);
    if (fn)
        fn(arg, outcome, reply);
}

void call_send(struct redis_call *call, struct redis_link *l)
{
    list_push(&l->waiting, &call->node);
    link_due(l, call->due_ms);
    client_flush_soon(call->client);
}

static enum redis_outcome refuse(struct redis_client *c, enum redis_outcome why)
{
    metric_add(c->server->m_commands[why], 1);
    return why;
}

static enum redis_outcome submit(struct redis_client *c, const struct redis_request *q, unsigned n,
                                 bool multi, unsigned timeout_ms, redis_fn *fn, void *arg,
                                 struct redis_call **ret_call)
{
    const struct span *key = q->key ? &q->argv[q->key] : NULL;
    struct redis_link *l = c->server->o.cluster ? cluster_pick(c, key) : c->seed;
    if (!l || l->state != LINK_UP)
        return refuse(c, REDIS_AWAY);
    size_t bytes = l->stream ? stream_queued(l->stream) : 0;
    for (unsigned i = 0; i < n; i++)
        for (unsigned k = 0; k < q[i].argc; k++)
            bytes += q[i].argv[k].n;
    if (c->n_calls >= c->server->o.max_calls || c->queued_bytes + bytes > c->server->o.max_queue_bytes)
        return refuse(c, REDIS_BUSY);

    struct redis_call *call = call_new(c, net_now_ms(c->loop), timeout_ms);
    call->fn = fn;
    call->arg = arg;
    if (multi)
        redis_format(&call->bytes, (const struct span[]){SPAN("MULTI")}, 1);
    for (unsigned i = 0; i < n; i++)
        redis_format(&call->bytes, q[i].argv, q[i].argc);
    if (multi)
        redis_format(&call->bytes, (const struct span[]){SPAN("EXEC")}, 1);
    call->skip = call->skip_all = multi ? n + 1 : 0;
    call->n_bytes = call->bytes.n;
    c->n_calls++;
    c->queued_bytes += call->n_bytes;
    call_send(call, l);
    if (ret_call)
        *ret_call = call;
    return REDIS_DONE;
}

enum redis_outcome redis_command(struct redis_client *c, const struct redis_request *q, unsigned timeout_ms,
                                 redis_fn *fn, void *arg, struct redis_call **ret_call)
{
    return submit(c, q, 1, false, timeout_ms, fn, arg, ret_call);
}

enum redis_outcome redis_transaction(struct redis_client *c, const struct redis_request *q, unsigned n,
                                     unsigned timeout_ms, redis_fn *fn, void *arg,
                                     struct redis_call **ret_call)
{
    return submit(c, q, n, true, timeout_ms, fn, arg, ret_call);
}

void redis_cancel(struct redis_call *call)
{
    call->cancelled = true; /* its place in the order of replies stays */
}

/* ---- client ---- */

static void on_prepare(uv_prepare_t *p)
{
    struct redis_client *c = CONTAINER_OF(p, struct redis_client, prepare);
    uv_prepare_stop(p);
    c->flushing = false;
    LIST_EACH(node, &c->links)
    link_flush(LIST_ITEM(node, struct redis_link, node));
}

void client_flush_soon(struct redis_client *c)
{
    if (c->flushing)
        return;
    c->flushing = true;
    uv_prepare_start(&c->prepare, on_prepare);
}

static void free_tls(struct redis_client *c)
{
    if (c->tls)
        tls_context_unref(c->tls);
}

void client_unhold(struct redis_client *c)
{
    if (--c->handles)
        return;
    free_tls(c);
    free(c->slots);
    redis_server_unref(c->server);
    free(c);
}

static void on_prepare_closed(uv_handle_t *h)
{
    client_unhold(CONTAINER_OF((uv_prepare_t *)h, struct redis_client, prepare));
}

struct redis_client *redis_client_new(struct redis_server *s, struct net_loop *l, struct resolver *resolver)
{
    struct redis_client *c = MEM_NEW(struct redis_client);
    c->server = redis_server_ref(s);
    c->loop = l;
    c->resolver = resolver;
    list_init(&c->links);
    uv_update_time(&l->uv); /* perhaps the loop does not run yet, and its time is old */
    uv_prepare_init(&l->uv, &c->prepare);
    c->handles = 1;
    if (s->url.origin.tls) {
        char why[512]; /* the bundles were good when the server was made; without them no handshake works */
        c->tls = tls_client_new(s->o.ca_bundles, s->o.n_ca_bundles, true, why);
        if (!c->tls)
            c->tls = tls_client_new(NULL, 0, true, why);
    }
    c->seed = link_new(c, s->url.origin.host, s->url.origin.port);
    server_count_link(c->seed, true);
    return c;
}

void redis_client_free(struct redis_client *c)
{
    if (!c)
        return;
    c->closed = true;
    LIST_EACH(node, &c->links)
    link_close(LIST_ITEM(node, struct redis_link, node));
    uv_close((uv_handle_t *)&c->prepare, on_prepare_closed);
}

bool redis_client_is_up(const struct redis_client *c)
{
    if (!c->server->o.cluster)
        return c->seed->state == LINK_UP;
    LIST_EACH(node, &c->links)
    if (c->slots && LIST_ITEM(node, struct redis_link, node)->state == LINK_UP)
        return true;
    return false;
}
