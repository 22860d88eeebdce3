/* SPDX-License-Identifier: Apache-2.0
 *
 * What all loops share: the address, the greeting, and what is said about the server's state.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "net/tls.h"
#include "redis/internal.h"

enum { ERROR_BYTES = 256, TELL_BYTES = 512 };
enum { CONNECT_MS = 1000, ANSWER_MS = 500, MAX_CALLS = 4096, MAX_BYTES = 64 << 20 };

const char *redis_outcome_name(enum redis_outcome o)
{
    static const char *const NAMES[] = {"ok", "refused", "timeout", "lost", "away", "busy"};
    _Static_assert(ARRAY_LEN(NAMES) == REDIS_OUTCOME_COUNT, "one name each");
    return NAMES[o];
}

static void copy_bundles(struct redis_options *o)
{
    char **copy = mem_array(o->n_ca_bundles, sizeof *copy);
    for (size_t i = 0; i < o->n_ca_bundles; i++)
        copy[i] = mem_strdup(o->ca_bundles[i]);
    o->ca_bundles = (const char *const *)copy;
}

static void free_bundles(struct redis_options *o)
{
    for (size_t i = 0; i < o->n_ca_bundles; i++)
        free((char *)o->ca_bundles[i]);
    free((char **)o->ca_bundles);
}

/* A connection is good when the last of these, a PING, is answered. */
static void make_greeting(struct redis_server *s)
{
    const struct redis_url *u = &s->url;
    buf_init(&s->greeting, SIZE_MAX / 2);
    if (u->password) {
        const struct span both[3] = {SPAN("AUTH"), span_str(u->user), span_str(u->password)};
        const struct span alone[2] = {SPAN("AUTH"), span_str(u->password)};
        redis_format(&s->greeting, u->user ? both : alone, u->user ? 3 : 2);
        s->greeting_replies++;
    }
    if (u->db) {
        char db[16];
        snprintf(db, sizeof db, "%u", u->db);
        redis_format(&s->greeting, (const struct span[]){SPAN("SELECT"), span_str(db)}, 2);
        s->greeting_replies++;
    }
    redis_format(&s->greeting, (const struct span[]){SPAN("PING")}, 1);
    s->greeting_replies++;
}

static void fill_defaults(struct redis_options *o)
{
    o->connect_ms = o->connect_ms ? o->connect_ms : CONNECT_MS;
    o->answer_ms = o->answer_ms ? o->answer_ms : ANSWER_MS;
    o->max_calls = o->max_calls ? o->max_calls : MAX_CALLS;
    o->max_queue_bytes = o->max_queue_bytes ? o->max_queue_bytes : MAX_BYTES;
    o->max_reply_bytes = o->max_reply_bytes ? o->max_reply_bytes : MAX_BYTES;
}

struct redis_server *redis_server_new(const struct redis_options *o, char *ret_error)
{
    struct redis_url url;
    const char *why = redis_url_fault(o->url, o->cluster);
    if (why) {
        snprintf(ret_error, ERROR_BYTES, "%s", why);
        return NULL;
    }
    CHECK(redis_url_parse(span_str(o->url), &url, &why));
    for (size_t i = 0; url.origin.tls && i < o->n_ca_bundles; i++) {
        if (!tls_bundle_check(o->ca_bundles[i], ret_error)) {
            redis_url_fini(&url);
            return NULL;
        }
    }
    struct redis_server *s = MEM_NEW(struct redis_server);
    s->refs = 1;
    s->url = url;
    s->o = *o;
    s->o.url = NULL;
    copy_bundles(&s->o);
    fill_defaults(&s->o);
    make_greeting(s);
    CHECK(uv_mutex_init(&s->lock) == 0);
    s->m_connected = metric_series(M_REDIS_CONNECTED, o->consumer, NULL, NULL);
    s->m_reconnects = metric_series(M_REDIS_RECONNECTS, o->consumer, NULL, NULL);
    s->m_connect_failures = metric_series(M_REDIS_CONNECT_FAILURES, o->consumer, NULL, NULL);
    for (int i = 0; i < REDIS_OUTCOME_COUNT; i++)
        s->m_commands[i] = metric_series(M_REDIS_COMMANDS, o->consumer, redis_outcome_name(i), NULL);
    metric_set(s->m_connected, 0);
    return s;
}

struct redis_server *redis_server_ref(struct redis_server *s)
{
    s->refs++;
    return s;
}

void redis_server_unref(struct redis_server *s)
{
    if (!s || --s->refs)
        return;
    redis_url_fini(&s->url);
    free_bundles(&s->o);
    buf_fini(&s->greeting);
    uv_mutex_destroy(&s->lock);
    free(s);
}

const char *redis_server_name(const struct redis_server *s)
{
    return s->url.name;
}

bool redis_server_is_up(const struct redis_server *s)
{
    struct redis_server *m = (struct redis_server *)s;
    uv_mutex_lock(&m->lock);
    const bool up = s->n_links > 0 && s->n_down == 0;
    uv_mutex_unlock(&m->lock);
    return up;
}

/* ---- state ---- */

void server_tell(struct redis_server *s, bool bad, const char *fmt, ...)
{
    char text[TELL_BYTES];
    va_list ap;
    if (!s->o.tell)
        return;
    const int n = snprintf(text, sizeof text, "%s: ", s->o.consumer);
    va_start(ap, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
    va_end(ap);
    s->o.tell(s->o.tell_arg, bad, text);
}

/* "redis://h:6379", and which node of it. */
static void name_of(const struct redis_link *l, char *out, size_t n)
{
    const struct redis_server *s = l->client->server;
    if (s->o.cluster)
        snprintf(out, n, "node %.200s:%u of %.200s", l->origin.host, l->origin.port, s->url.name);
    else
        snprintf(out, n, "%.400s", s->url.name);
}

/* With the lock. True: everything works now, and somebody has yet to say so. */
static bool became_up(struct redis_server *s)
{
    const bool up = s->n_links && s->n_down == 0;
    if (up && s->said != SAID_UP) {
        s->said = SAID_UP;
        metric_set(s->m_connected, 1);
        return true;
    }
    return false;
}

static void tell_up(const struct redis_link *l)
{
    struct redis_server *s = l->client->server;
    server_tell(s, false, "%s is connected", s->url.name);
}

void server_count_link(struct redis_link *l, bool counted)
{
    struct redis_server *s = l->client->server;
    if (l->counted == counted)
        return;
    const bool down = l->state != LINK_UP;
    uv_mutex_lock(&s->lock);
    s->n_links += counted ? 1 : -1U;
    if (counted ? down : l->counted_down)
        s->n_down += counted ? 1 : -1U;
    l->counted = counted;
    l->counted_down = counted && down;
    const bool say = became_up(s);
    uv_mutex_unlock(&s->lock);
    if (say)
        tell_up(l);
}

void server_link_up(struct redis_link *l)
{
    struct redis_server *s = l->client->server;
    if (!l->counted_down)
        return;
    uv_mutex_lock(&s->lock);
    l->counted_down = false;
    s->n_down--;
    const bool say = became_up(s);
    uv_mutex_unlock(&s->lock);
    if (say)
        tell_up(l);
}

void server_link_down(struct redis_link *l, const char *why)
{
    struct redis_server *s = l->client->server;
    char name[TELL_BYTES];
    if (!l->counted)
        return;
    uv_mutex_lock(&s->lock);
    if (!l->counted_down)
        s->n_down++;
    l->counted_down = true;
    const bool say = s->said != SAID_AWAY;
    s->said = SAID_AWAY;
    metric_set(s->m_connected, 0);
    uv_mutex_unlock(&s->lock);
    if (!say)
        return;
    name_of(l, name, sizeof name);
    server_tell(s, true, "%s is away: %s", name, why);
}

void server_note_error(struct redis_server *s, const struct redis_reply *error)
{
    const bool moved = redis_reply_is_error(error, "MOVED");
    if (moved && !s->o.cluster && !atomic_exchange(&s->told_cluster, true))
        server_tell(s, true, "%s is part of a cluster; it needs `cluster = true`", s->url.name);
    const bool full = redis_reply_is_error(error, "OOM") || redis_reply_is_error(error, "MISCONF");
    if (full && !atomic_exchange(&s->full, true))
        server_tell(s, true, "%s takes no writes: %.*s", s->url.name,
                    SPAN_FMT(redis_reply_error_code(error)));
}

void server_note_stored(struct redis_server *s)
{
    if (atomic_load_explicit(&s->full, memory_order_relaxed) && atomic_exchange(&s->full, false))
        server_tell(s, false, "%s takes writes again", s->url.name);
}
