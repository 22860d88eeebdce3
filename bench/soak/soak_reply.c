/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The line that begins at <at>, without its end; NULL: not whole yet. *ret_next: behind its end. */
static const char *line_at(const char *in, size_t n, size_t at, size_t *ret_len, size_t *ret_next)
{
    const char *end = n > at ? memmem(in + at, n - at, "\r\n", 2) : NULL;
    if (!end)
        return NULL;
    *ret_len = (size_t)(end - in) - at;
    *ret_next = (size_t)(end - in) + 2;
    return in + at;
}

/* The number at the beginning of <n> bytes that no NUL ends. */
static size_t number(const char *p, size_t n, int base, bool *ret_any)
{
    char text[24], *end;
    size_t k = n < sizeof text - 1 ? n : sizeof text - 1;
    memcpy(text, p, k);
    text[k] = 0;
    size_t v = strtoul(text, &end, base);
    *ret_any = end != text;
    return v;
}

static bool is_field(const char *line, size_t n, const char *name)
{
    size_t k = strlen(name);
    return n > k && line[k] == ':' && strncasecmp(line, name, k) == 0;
}

static void read_field(struct reply *r, const char *line, size_t n, bool *io_length)
{
    const char *colon = memchr(line, ':', n);
    if (!colon)
        return;
    const char *v = colon + 1, *end = line + n;
    while (v < end && *v == ' ')
        v++;
    size_t k = (size_t)(end - v);
    if (is_field(line, n, "content-length")) {
        r->left = number(v, k, 10, io_length);
    } else if (is_field(line, n, "transfer-encoding")) {
        r->chunked = true;
    } else if (is_field(line, n, "connection")) {
        r->close = k == 5 && strncasecmp(v, "close", 5) == 0;
    } else if (is_field(line, n, "x-request-id") && k < sizeof r->id) {
        memcpy(r->id, v, k);
        r->id[k] = 0;
    }
}

/* 1: read, 0: more is needed, -1: not HTTP. */
static int feed_head(struct reply *r, const char *in, size_t n)
{
    const char *begin = in + r->scan, *end = memmem(begin, n - r->scan, "\r\n\r\n", 4);
    if (!end)
        return 0;
    if (n - r->scan < 12 || memcmp(begin, "HTTP/1.1 ", 9) != 0)
        return -1;
    bool any;
    r->status = (int)number(begin + 9, 3, 10, &any);
    size_t stop = (size_t)(end - in) + 4, at = stop, len;
    bool has_length = false;
    line_at(in, stop, r->scan, &len, &at);
    for (const char *line; at < stop && (line = line_at(in, stop, at, &len, &at)) && len;)
        read_field(r, line, len, &has_length);
    r->scan = stop;
    if (r->status == 100) {
        r->status = 0;
        return 1;
    }
    r->head_seen = true;
    r->body_at = stop;
    if (has_length && r->chunked)
        return -1;
    r->until_eof = !has_length && !r->chunked;
    r->is_done = has_length && r->left == 0;
    return 1;
}

static void take_body(struct reply *r, char *in, size_t n)
{
    size_t take = n - r->scan < r->left ? n - r->scan : r->left;
    if (r->body_at + r->body_n != r->scan)
        memmove(in + r->body_at + r->body_n, in + r->scan, take);
    r->body_n += take;
    r->scan += take;
    r->left -= take;
}

static int feed_chunked(struct reply *r, char *in, size_t n)
{
    if (r->in_chunk) {
        take_body(r, in, n);
        if (r->left)
            return 0;
        r->in_chunk = false;
        r->after_chunk = true;
    }
    size_t len, next;
    const char *line = line_at(in, n, r->scan, &len, &next);
    if (!line)
        return 0;
    r->scan = next;
    if (r->after_chunk) {
        r->after_chunk = false;
        return len == 0 ? 1 : -1;
    }
    if (r->in_trailer) {
        r->is_done = len == 0;
        return 1;
    }
    bool any;
    r->left = number(line, len, 16, &any);
    if (!any)
        return -1;
    r->in_chunk = r->left > 0;
    r->in_trailer = r->left == 0;
    return 1;
}

bool reply_feed(struct reply *r, char *in, size_t n)
{
    for (int step = 1; step == 1 && !r->is_done;) {
        if (!r->head_seen) {
            step = feed_head(r, in, n);
        } else if (r->chunked) {
            step = feed_chunked(r, in, n);
        } else {
            if (r->until_eof)
                r->left = n - r->scan;
            take_body(r, in, n);
            r->is_done = r->left == 0 && !r->until_eof;
            step = 0;
        }
        if (step < 0)
            return false;
    }
    return true;
}

/* --- is it the reply to this request? --- */

static unsigned count(const char *p, size_t n, const char *what)
{
    unsigned found = 0;
    size_t k = strlen(what);
    for (const char *end = p + n; (p = memmem(p, (size_t)(end - p), what, k)); p += k)
        found++;
    return found;
}

static bool ends(const char *p, size_t n, const char *what)
{
    size_t k = strlen(what);
    return n >= k && memcmp(p + n - k, what, k) == 0;
}

/* All events are of one reply: the first id in each of them. */
static bool is_one_stream(const char *p, size_t n)
{
    const char *id = memmem(p, n, "\"id\":\"chatcmpl-", 15);
    char text[64];
    if (!id || (size_t)(p + n - id) < 31)
        return false;
    snprintf(text, sizeof text, "%.31s", id);
    return count(p, n, text) == count(p, n, "data: {") && count(p, n, "data: [DONE]") == 1 &&
           ends(p, n, "data: [DONE]\n\n");
}

static const char *check_served(const struct ask *a, const char *p, size_t n)
{
    char tag[64];
    bool ok = true;
    switch (a->kind) {
    case K_CHAT:
    case K_CHAT_STREAM:
    case K_MESSAGES:
    case K_MESSAGES_STREAM:
        snprintf(tag, sizeof tag, "\"name\":\"t%u\"", a->tag);
        ok = count(p, n, tag) == 1 && count(p, n, "\"name\":\"t") == 1;
        break;
    case K_DIRECT:
    case K_DIRECT_STREAM:
        snprintf(tag, sizeof tag, "\"model\":\"t%u\"", a->n);
        ok = count(p, n, tag) == (a->kind == K_DIRECT ? 1 : count(p, n, "data: {"));
        snprintf(tag, sizeof tag, "\"completion_tokens\":%u,", a->tokens);
        if (count(p, n, tag) != 1)
            return "not as long as asked";
        break;
    case K_EMBED:
        ok = count(p, n, "\"embedding\":[") == a->tokens && ends(p, n, "}");
        break;
    default:
        return NULL;
    }
    if (!ok)
        return "another request's reply";
    if (a->kind == K_CHAT_STREAM || a->kind == K_DIRECT_STREAM)
        return is_one_stream(p, n) ? NULL : "a stream that is not whole";
    if (a->kind == K_MESSAGES_STREAM)
        return count(p, n, "\nevent: message_stop\n") == 1 ? NULL : "a stream that is not whole";
    return p[0] == '{' && ends(p, n, "}") ? NULL : "JSON that is not whole";
}

static int refusal(enum kind k)
{
    switch (k) {
    case K_WRONG_KEY:
        return 401;
    case K_NO_MODEL:
        return 404;
    case K_BAD_JSON:
    case K_BROKEN:
        return 400;
    case K_HUGE:
        return 413;
    case K_MODELS:
        return 200;
    default:
        return 0;
    }
}

const char *reply_check(const struct ask *a, const struct reply *r, const char *in)
{
    char id[64];
    snprintf(id, sizeof id, "s%u-%u", opt.seed, a->n);
    if (a->kind != K_BROKEN && strcmp(id, r->id) != 0)
        return "another request's id";
    const char *p = in + r->body_at;
    size_t n = r->body_n;
    int wanted = refusal(a->kind);
    if (wanted && r->status != wanted)
        return "not the status that was due";
    if (r->status == 200)
        return check_served(a, p, n);
    if (!count(p, n, "\"error\"") || !ends(p, n, "}"))
        return "an error without its object";
    if (wanted)
        return NULL;
    if (opt.calm)
        return "a failed request";
    bool gone = r->status == 404 && (a->kind == K_DIRECT || a->kind == K_DIRECT_STREAM);
    bool failed = r->status == 429 || (r->status >= 500 && r->status <= 504);
    return gone || failed ? NULL : "a status that nobody gives";
}
