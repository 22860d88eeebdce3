/* SPDX-License-Identifier: Apache-2.0
 *
 * Input of a connection that could not be used at once, and request bodies. The usual request comes in one
 * read, is parsed where it was read, and its body is copied once, into a buffer of its announced size. A
 * large one is not copied: the connection keeps the read buffer it stands in.
 */
#include <stdlib.h>

#include "net/server_impl.h"

enum {
    ARENA_BODY_MAX = 4096, /* smaller bodies stand behind their head */
    /* Larger ones stay where they were read when they came in one piece; copying a smaller one costs less
       than another read buffer in the caches, and many small ones may be kept for long. */
    KEEP_READ_MIN = 8192,
    BODY_AHEAD_BYTES = 65536, /* memory for what the client has announced and not sent */
};

struct span conn_input(const struct conn *c)
{
    return c->hold_n ? span_of(c->hold + c->hold_at, c->hold_n) : span_of(c->in, c->in_n);
}

void conn_consume(struct conn *c, size_t n)
{
    if (c->hold_n) {
        CHECK(n <= c->hold_n);
        c->hold_at += n;
        c->hold_n -= n;
        if (c->hold_n == 0)
            c->hold_at = 0;
        return;
    }
    CHECK(n <= c->in_n);
    c->in += n;
    c->in_n -= n;
}

bool conn_hold(struct conn *c, const char *p, size_t n)
{
    if (n == 0)
        return true;
    if (c->hold_at + c->hold_n + n > c->hold_cap) {
        if (c->hold_n + n > c->hold_cap) {
            size_t cap;
            char *larger = kept_get(&c->s->kept, c->hold_n + n, &cap);
            if (!larger)
                return false;
            if (c->hold_n)
                memcpy(larger, c->hold + c->hold_at, c->hold_n);
            kept_put(&c->s->kept, c->hold, c->hold_cap);
            c->hold = larger;
            c->hold_cap = cap;
        } else {
            memmove(c->hold, c->hold + c->hold_at, c->hold_n);
        }
        c->hold_at = 0;
    }
    memcpy(c->hold + c->hold_at + c->hold_n, p, n);
    c->hold_n += n;
    return true;
}

void conn_hold_free(struct conn *c)
{
    kept_put(&c->s->kept, c->hold, c->hold_cap);
    c->hold = NULL;
    c->hold_at = c->hold_n = c->hold_cap = 0;
}

void conn_free_body(struct conn *c)
{
    if (c->body_from == BODY_READ)
        net_loop_give_back(c->s->loop, c->read_buf);
    else if (c->body_from == BODY_KEPT)
        kept_put(&c->s->kept, c->body, c->body_cap);
    c->body = c->read_buf = NULL;
    c->body_n = c->body_cap = 0;
    c->body_from = BODY_KEPT;
}

void conn_take_memory(struct conn *c, struct conn_memory *ret)
{
    MAGIC_CHECK(c, CONN_MAGIC);
    CHECK_MSG(c->in_flight, "memory of a request");
    *ret = (struct conn_memory){
        .arena = c->arena,
        .body = c->body_from == BODY_KEPT ? c->body : NULL,
        .read_buf = c->body_from == BODY_READ ? c->read_buf : NULL,
    };
    arena_init(&c->arena, &c->s->loop->chunks);
    c->body = c->read_buf = NULL;
    c->body_n = c->body_cap = 0;
    c->body_from = BODY_KEPT;
}

void conn_memory_free(struct conn_memory *m, struct net_loop *l)
{
    free(m->body); /* of malloc, whatever its size (kept.h) */
    if (m->read_buf)
        net_loop_give_back(l, m->read_buf);
    arena_reset(&m->arena);
    *m = (struct conn_memory){0};
}

/* Room for <more> bytes and the NUL. An announced length is believed for small bodies; for larger ones memory
 * grows with what has come: to twice as much, or 64 KiB more. */
static bool grow_body(struct conn *c, size_t more)
{
    size_t need = c->body_n + more + 1;
    if (need <= c->body_cap)
        return true;
    size_t ahead = 2 * need > need + BODY_AHEAD_BYTES ? 2 * need : need + BODY_AHEAD_BYTES;
    size_t want = ahead;
    if (c->head->body == HTTP_BODY_LENGTH) {
        size_t whole = (size_t)c->head->content_length + 1; /* within body_max, so it fits */
        want = whole < ahead ? whole : ahead;
    } else if (need <= ARENA_BODY_MAX) {
        want = ARENA_BODY_MAX;
    }
    if (!c->body && c->head->body == HTTP_BODY_LENGTH && want <= ARENA_BODY_MAX) {
        c->body = arena_alloc(&c->arena, want);
        c->body_cap = want;
        c->body_from = BODY_ARENA;
        return true;
    }
    size_t cap;
    char *larger = kept_get(&c->s->kept, want, &cap);
    if (!larger)
        return false;
    size_t n = c->body_n;
    if (n)
        memcpy(larger, c->body, n);
    conn_free_body(c);
    c->body = larger;
    c->body_n = n;
    c->body_cap = cap;
    return true;
}

static bool add_body(struct conn *c, const char *p, size_t n)
{
    if (n == 0)
        return true;
    if (!grow_body(c, n))
        return false;
    memcpy(c->body + c->body_n, p, n);
    c->body_n += n;
    c->body[c->body_n] = 0;
    return true;
}

static bool reject(struct conn *c, int status, const char *text)
{
    conn_reject(c, status, text);
    return true;
}

static bool too_large(struct conn *c)
{
    return reject(c, 413, "The request body is larger than this server accepts.");
}

static bool no_memory(struct conn *c)
{
    return reject(c, 503, "The server has no memory for the request body.");
}

static bool complete(struct conn *c)
{
    c->state = CONN_OPEN;
    c->s->ev.on_body(c, c->s->arg);
    return true;
}

static bool begin_body(struct conn *c)
{
    const struct http_head *h = c->head;
    c->body_begun = true;
    if (h->body == HTTP_BODY_LENGTH) {
        if (h->content_length > c->body_max)
            return false;
        c->body_left = h->content_length;
    } else if (h->body == HTTP_BODY_CHUNKED) {
        http_chunk_init(&c->chunk);
    }
    bool follows = h->body == HTTP_BODY_CHUNKED || (h->body == HTTP_BODY_LENGTH && h->content_length > 0);
    if (follows && h->expect_continue && h->minor >= 1 && conn_input(c).n == 0)
        conn_interim(c);
    return true;
}

/* A large body that came whole, with nothing behind it. */
static bool keep_read(struct conn *c, struct span in)
{
    if (in.n < KEEP_READ_MIN || in.n != c->head->content_length || c->body_left != in.n)
        return false;
    c->read_buf = net_loop_keep_read(c->s->loop, in.p);
    if (!c->read_buf)
        return false;
    c->body_from = BODY_READ;
    c->body = (char *)in.p;
    c->body_n = in.n;
    c->body[in.n] = 0;
    return true;
}

static bool feed_length(struct conn *c)
{
    struct span in = conn_input(c);
    size_t n = in.n < c->body_left ? in.n : (size_t)c->body_left;
    if (!keep_read(c, in) && !add_body(c, in.p, n))
        return no_memory(c);
    conn_consume(c, n);
    c->body_left -= n;
    return c->body_left == 0 && complete(c);
}

static bool feed_chunked(struct conn *c)
{
    for (;;) {
        struct span in = conn_input(c), data = SPAN_NONE;
        if (in.n == 0)
            return false;
        size_t used = 0;
        enum http_chunk_event e = http_chunk_feed(&c->chunk, in.p, in.n, &used, &data);
        if (e == HTTP_CHUNK_BAD)
            return reject(c, 400, "The chunked framing of the request body is broken.");
        if (e == HTTP_CHUNK_DATA) {
            if (data.n > c->body_max - c->body_n)
                return too_large(c);
            if (!add_body(c, data.p, data.n))
                return no_memory(c);
        }
        conn_consume(c, used);
        if (e == HTTP_CHUNK_END)
            return complete(c);
        if (e == HTTP_CHUNK_MORE)
            return false;
    }
}

bool conn_feed_body(struct conn *c)
{
    if (!c->body_begun && !begin_body(c))
        return too_large(c);
    if (c->head->body == HTTP_BODY_LENGTH)
        return feed_length(c);
    if (c->head->body == HTTP_BODY_CHUNKED)
        return feed_chunked(c);
    return complete(c);
}

bool conn_may_skip_body(const struct conn *c, size_t *ret_n)
{
    struct span in = conn_input(c);
    size_t at = 0;
    if (c->head->body == HTTP_BODY_LENGTH) {
        if (c->head->content_length > in.n)
            return false;
        at = (size_t)c->head->content_length;
    } else if (c->head->body == HTTP_BODY_CHUNKED) {
        struct http_chunk chunk;
        http_chunk_init(&chunk);
        enum http_chunk_event e;
        do {
            size_t used = 0;
            struct span data;
            if (at == in.n)
                return false;
            e = http_chunk_feed(&chunk, in.p + at, in.n - at, &used, &data);
            at += used;
        } while (e == HTTP_CHUNK_DATA);
        if (e != HTTP_CHUNK_END)
            return false;
    }
    *ret_n = at;
    return true;
}

void conn_want_body(struct conn *c, size_t max)
{
    MAGIC_CHECK(c, CONN_MAGIC);
    if (!conn_is_alive(c) || c->broken)
        return; /* on_gone comes or is running */
    CHECK_MSG(c->state == CONN_OWNER, "a body is wanted once, after on_head");
    c->body_max = max < SIZE_MAX / 4 ? max : SIZE_MAX / 4;
    c->state = CONN_BODY;
    conn_run(c);
}

struct span conn_body(const struct conn *c)
{
    return c->body ? span_of(c->body, c->body_n) : SPAN("");
}

void conn_drop_body(struct conn *c)
{
    CHECK(c->state != CONN_BODY);
    conn_free_body(c);
}
