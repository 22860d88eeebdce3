/* SPDX-License-Identifier: Apache-2.0 */
#include "soak.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HUGE_SAYS = 64 << 20 };

void bytes_add(struct bytes *b, const void *p, size_t n)
{
    if (b->n + n > b->cap) {
        b->cap = (b->n + n) * 2;
        b->p = realloc(b->p, b->cap);
        if (!b->p)
            abort();
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void bytes_printf(struct bytes *b, const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof text)
        abort();
    bytes_add(b, text, (size_t)n);
}

enum kind draw_kind(void)
{
    /* per mille */
    static const uint16_t share[KIND_COUNT] = {
        [K_CHAT] = 250,     [K_CHAT_STREAM] = 220, [K_MESSAGES] = 70,       [K_MESSAGES_STREAM] = 70,
        [K_EMBED] = 80,     [K_DIRECT] = 60,       [K_DIRECT_STREAM] = 150, [K_MODELS] = 10,
        [K_WRONG_KEY] = 20, [K_NO_MODEL] = 20,     [K_BAD_JSON] = 20,       [K_HUGE] = 10,
        [K_BROKEN] = 20};
    uint32_t v = below(opt.plain ? 900 : 1000);
    for (int k = 0; k < KIND_COUNT; k++) {
        if (v < share[k])
            return (enum kind)k;
        v -= share[k];
    }
    return K_CHAT;
}

static const char *one_of(const struct names *n)
{
    return n->list[below(n->n)];
}

/* Mostly short, now and then long, so that bodies arrive in one read and in many. */
static void add_filler(struct bytes *b)
{
    static const char *const words[] = {"alpha ",         "beta ",          "gamma ",
                                        "\\\"delta\\\" ", "\\u00e9psilon ", "zeta\\n"};
    uint32_t v = below(1000);
    size_t n = v < 700 ? below(200) : v < 950 ? below(4096) : v < 997 ? below(40000) : below(200000);
    for (size_t end = b->n + n; b->n < end;) {
        const char *w = words[below(6)];
        bytes_add(b, w, strlen(w));
    }
}

enum { REPEATED = 1u << 31 };

/* Of a question that others ask, too: the same for all of them, of any length. */
static void add_filler_of(struct bytes *b, uint32_t tag)
{
    uint64_t n = (uint64_t)tag * 0x9e3779b97f4a7c15u >> 52;
    for (uint64_t i = 0; i < (tag % 50 ? n / 4 : n * 8); i += 6)
        bytes_add(b, "again ", 6);
}

static void add_tool(struct bytes *b, struct ask *a, bool anthropic, bool stream)
{
    bool repeated = opt.repeats && chance(800);
    if (repeated)
        a->tag = REPEATED | below(1 + below(opt.repeats)); /* some more often than others */
    bytes_printf(b, "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"",
                 repeated ? opt.routes.list[a->tag % opt.routes.n] : one_of(&opt.routes));
    if (repeated)
        add_filler_of(b, a->tag);
    else
        add_filler(b);
    bytes_printf(b, "use the tool\"}],%s", stream ? "\"stream\":true," : "");
    if (anthropic)
        bytes_printf(b, "\"max_tokens\":100,\"tools\":[{\"name\":\"t%u\",\"input_schema\":", a->tag);
    else
        bytes_printf(
            b, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"t%u\",\"parameters\":", a->tag);
    bytes_printf(b, "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}}%s}]}",
                 anthropic ? "" : "}");
}

static void add_direct(struct bytes *b, struct ask *a, bool stream)
{
    a->tokens = 1 + below(64);
    bytes_printf(b, "{\"max_tokens\":%u,\"messages\":[{\"role\":\"user\",\"content\":\"", a->tokens);
    add_filler(b);
    bytes_printf(b, "\"}],%s\"model\":\"%s/t%u\"}",
                 stream ? "\"stream\":true,\"stream_options\":{\"include_usage\":true}," : "",
                 one_of(&opt.providers), a->n);
}

static const char *add_body(struct bytes *b, struct ask *a)
{
    switch (a->kind) {
    case K_CHAT:
    case K_CHAT_STREAM:
    case K_WRONG_KEY:
        add_tool(b, a, false, a->kind == K_CHAT_STREAM);
        return "/v1/chat/completions";
    case K_MESSAGES:
    case K_MESSAGES_STREAM:
        add_tool(b, a, true, a->kind == K_MESSAGES_STREAM);
        return "/v1/messages";
    case K_EMBED:
        bytes_printf(b, "{\"model\":\"%s\",\"dimensions\":4,\"input\":[", one_of(&opt.embeds));
        a->tokens = 1 + below(20);
        for (uint32_t i = 0; i < a->tokens; i++)
            bytes_printf(b, "%s\"t%u-%u\"", i ? "," : "", a->n, i);
        bytes_printf(b, "]}");
        return "/v1/embeddings";
    case K_DIRECT:
    case K_DIRECT_STREAM:
        add_direct(b, a, a->kind == K_DIRECT_STREAM);
        return "/v1/chat/completions";
    case K_NO_MODEL:
        bytes_printf(b, "{\"model\":\"nobody-%u\",\"messages\":[]}", a->n);
        return "/v1/chat/completions";
    case K_BAD_JSON:
        bytes_printf(b, "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"t%u",
                     one_of(&opt.routes), a->n);
        return "/v1/chat/completions";
    default:
        return "/v1/models";
    }
}

static void add_chunks(struct bytes *b, const struct bytes *body)
{
    for (size_t at = 0; at < body->n;) {
        size_t n = 1 + below(at % 2 ? 20 : 5000);
        if (n > body->n - at)
            n = body->n - at;
        bytes_printf(b, "%zx%s\r\n", n, chance(50) ? ";x=y" : "");
        bytes_add(b, body->p + at, n);
        bytes_printf(b, "\r\n");
        at += n;
    }
    bytes_printf(b, "0\r\n%s\r\n", chance(100) ? "x-trailer: 1\r\n" : "");
}

void build(struct bytes *b, struct ask *a)
{
    static struct bytes body;
    body.n = 0;
    a->tag = a->n;
    size_t begin = b->n;
    if (a->kind == K_BROKEN) {
        static const char *const broken[] = {
            "GET /v1/models HTTP/1.1\r\nhost : x\r\n\r\n",
            ("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n"
             "transfer-encoding: chunked\r\n\r\n"),
            "GET /v1/models HTTP/1.1\r\nhost: x\r\n folded\r\n\r\n", "\x16\x03\x01\r\n\r\n"};
        bytes_printf(b, "%s", broken[below(4)]);
        a->head_end = b->n - begin;
        return;
    }
    const char *path = add_body(&body, a);
    bool chunked = body.n && chance(100);
    a->close = !a->keep && chance(20);
    bytes_printf(b, "%s %s HTTP/1.1\r\nhost: soak\r\nauthorization: Bearer %s\r\nx-request-id: s%u-%u\r\n",
                 body.n              ? "POST"
                 : a->kind == K_HUGE ? "POST"
                                     : "GET",
                 a->kind == K_HUGE ? "/v1/chat/completions" : path,
                 a->kind == K_WRONG_KEY ? "sk-nobody" : opt.key, opt.seed, a->n);
    if (chance(300))
        bytes_printf(b, "x-session-id: session-%u\r\n", below(500));
    if (a->close)
        bytes_printf(b, "connection: close\r\n");
    if (body.n && chance(10))
        bytes_printf(b, "expect: 100-continue\r\n");
    if (a->kind == K_HUGE) {
        bytes_printf(b, "content-length: %d\r\n", HUGE_SAYS);
        for (int i = 0; i < 20; i++)
            bytes_add(&body, "{\"messages\":[                                                     ", 64);
    } else if (chunked) {
        bytes_printf(b, "transfer-encoding: chunked\r\n");
    } else if (body.n) {
        bytes_printf(b, "content-length: %zu\r\n", body.n);
    }
    bytes_printf(b, "\r\n");
    a->head_end = b->n - begin;
    if (chunked)
        add_chunks(b, &body);
    else
        bytes_add(b, body.p, body.n);
}
