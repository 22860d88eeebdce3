/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries in Redis: one string for each, under the namespace and the exact key.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cache/store_impl.h"

/* Bodies are large: writing may take longer than a lookup, but nobody waits for it. */
enum { PUT_MS = 1000, KEY_TEXT_MAX = STORE_NAMESPACE_MAX + 66 };

static struct span key_text(const struct cache_store *s, const struct cache_digest *key, char *out)
{
    static const char HEX[] = "0123456789abcdef";
    size_t n = strlen(s->o.name_space);
    memcpy(out, s->o.name_space, n);
    out[n++] = ':';
    for (size_t i = 0; i < sizeof key->b; i++) {
        out[n++] = HEX[key->b[i] >> 4];
        out[n++] = HEX[key->b[i] & 15];
    }
    return span_of(out, n);
}

/* The entry, if it is one that may be served: whole, of this key, alive, and not purged. */
static struct cache_entry *read_entry(struct store_wait *w, struct span bytes)
{
    struct cache_store *s = w->port->store;
    const uint64_t now = clock_wall_ms();
    struct cache_entry *e = entry_parse(bytes);
    const uint64_t max = s->o.max_entry_bytes ? s->o.max_entry_bytes : UINT64_MAX;
    if (!e || !digest_eq(&e->facts.key, &w->key) || e->body.n > max) {
        store_count(s, BROKEN);
    } else if (now >= e->facts.stale_until_ms || e->facts.stamp != purge_stamp(s->purges, &e->facts.owner)) {
        store_count(s, OUTDATED);
    } else {
        store_count(s, FOUND);
        return e;
    }
    entry_unref(e);
    return NULL;
}

static void on_get(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct store_wait *w = arg;
    struct cache_entry *e = NULL;
    w->call = NULL;
    if (outcome != REDIS_DONE)
        store_count(w->port->store, outcome == REDIS_REFUSED ? BROKEN : FAILED);
    else if (reply->type == REDIS_NIL)
        store_count(w->port->store, NOTHING);
    else
        e = read_entry(w, redis_reply_is_text(reply) ? reply->text : SPAN(""));
    store_answered(w, e);
}

bool redis_store_get(struct store_port *p, struct store_wait *w)
{
    char text[KEY_TEXT_MAX];
    const unsigned ms = w->budget->left_us / 1000;
    const struct span argv[] = {SPAN("GET"), key_text(p->store, &w->key, text)};
    const struct redis_request q = {argv, 2, 1};
    if (ms == 0 || !share_is_known(p->store->share) ||
        redis_command(p->redis, &q, ms, on_get, w, &w->call) != REDIS_DONE) {
        store_count(p->store, SKIPPED);
        return false;
    }
    return true;
}

static void on_put(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    (void)reply;
    store_count(arg, outcome == REDIS_DONE ? STORED : NOT_STORED);
}

void redis_store_put(struct store_port *p, const struct cache_entry *e, uint64_t now_ms)
{
    char text[KEY_TEXT_MAX], life[24];
    struct buf value;
    if (now_ms >= e->facts.stale_until_ms)
        return;
    buf_init(&value, ENTRY_HEAD_MAX + e->body.n);
    bool ok = entry_write_head(e, &value) && buf_add_span(&value, e->body);
    snprintf(life, sizeof life, "%llu", (unsigned long long)(e->facts.stale_until_ms - now_ms));
    const struct span argv[] = {SPAN("SET"), key_text(p->store, &e->facts.key, text), buf_view(&value),
                                SPAN("PX"), span_str(life)};
    const struct redis_request q = {argv, 5, 1};
    ok = ok && redis_command(p->redis, &q, PUT_MS, on_put, p->store, NULL) == REDIS_DONE;
    if (!ok)
        store_count(p->store, NOT_STORED);
    buf_fini(&value);
}

void redis_store_remove(struct store_port *p, const struct cache_digest *key)
{
    char text[KEY_TEXT_MAX];
    const struct span argv[] = {SPAN("DEL"), key_text(p->store, key, text)};
    (void)redis_command(p->redis, &(struct redis_request){argv, 2, 1}, PUT_MS, NULL, NULL, NULL);
}
