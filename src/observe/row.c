/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats without printf: a row is some 35 small writes, and a worker does one for each request.
 */
#include "observe/row.h"

#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "base/fmt.h"

/* Room for everything but the strings: names, punctuation, 20 digits for each number. */
enum { FIXED_MAX = 1536, NUMBER_MAX = 40 };

static const char hex[] = "0123456789abcdef";

/* Length of the UTF-8 sequence at <p>, 0 when it is not one. */
static size_t utf8_len(const unsigned char *p, size_t n)
{
    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        return n >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
    if ((p[0] & 0xf0) == 0xe0) {
        unsigned char lo = p[0] == 0xe0 ? 0xa0 : 0x80, hi = p[0] == 0xed ? 0x9f : 0xbf;
        return n >= 3 && p[1] >= lo && p[1] <= hi && (p[2] & 0xc0) == 0x80 ? 3 : 0;
    }
    if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        unsigned char lo = p[0] == 0xf0 ? 0x90 : 0x80, hi = p[0] == 0xf4 ? 0x8f : 0xbf;
        bool ok = n >= 4 && p[1] >= lo && p[1] <= hi && (p[2] & 0xc0) == 0x80 && (p[3] & 0xc0) == 0x80;
        return ok ? 4 : 0;
    }
    return 0;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

static char *put_escape(char *w, unsigned char c)
{
    *w++ = '\\';
    switch (c) {
    case '"':
    case '\\':
        *w++ = (char)c;
        return w;
    case '\n':
        *w++ = 'n';
        return w;
    case '\r':
        *w++ = 'r';
        return w;
    case '\t':
        *w++ = 't';
        return w;
    default:
        memcpy(w, "u00", 3);
        w[3] = hex[c >> 4];
        w[4] = hex[c & 15];
        return w + 5;
    }
}

/* Whether all of the eight bytes are plain. */
static bool are_plain(uint64_t x)
{
    const uint64_t ones = 0x0101010101010101, tops = ones * 0x80;
    uint64_t quote = x ^ ones * '"', backslash = x ^ ones * '\\';
    /* A byte's top bit comes out set where it was below 0x20, zero after the xor, or had it set before; a
     * borrow may add bytes behind one that counts already. */
    return ((x | (x - ones * 0x20) | (quote - ones) | (backslash - ones)) & tops) == 0;
}

/* At most 6 bytes for each byte; what is not UTF-8 becomes U+FFFD. */
static char *put_string(char *w, struct span s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    size_t i = 0;
    *w++ = '"';
    while (i < s.n) {
        uint64_t eight;
        if (s.n - i >= 8 && (memcpy(&eight, p + i, 8), are_plain(eight))) {
            memcpy(w, &eight, 8);
            w += 8;
            i += 8;
            continue;
        }
        /* Fewer than eight are left: with those before them, which then were plain and stand in front of <w>.
         */
        if (s.n >= 8 && s.n - i < 8 && (memcpy(&eight, p + s.n - 8, 8), are_plain(eight))) {
            memcpy(w - (i + 8 - s.n), &eight, 8);
            w += s.n - i;
            break;
        }
        if (LIKELY(is_plain(p[i]))) {
            *w++ = (char)p[i++];
            continue;
        }
        if (p[i] < 0x80) {
            w = put_escape(w, p[i++]);
            continue;
        }
        size_t len = utf8_len(p + i, s.n - i);
        memcpy(w, len ? (const char *)p + i : "\xef\xbf\xbd", len ? len : 3);
        w += len ? len : 3;
        i += len ? len : 1;
    }
    *w++ = '"';
    return w;
}

/* What put_string writes for <s>, without writing it. */
static size_t string_bytes(struct span s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    char scratch[8];
    size_t n = 2;
    for (size_t i = 0; i < s.n;) {
        size_t len = p[i] < 0x80 ? 1 : utf8_len(p + i, s.n - i);
        if (is_plain(p[i]) || len > 1)
            n += len;
        else
            n += p[i] < 0x80 ? (size_t)(put_escape(scratch, p[i]) - scratch) : 3;
        i += len ? len : 1;
    }
    return n;
}

/* Money: 12 decimals, trailing zeros cut. Beyond its range the C library's text; NaN and infinities are 0. */
static char *put_money(char *w, double v)
{
    if (!isfinite(v)) {
        *w++ = '0';
        return w;
    }
    if (!(v >= 0 && v < 1e6))
        return w + snprintf(w, NUMBER_MAX, "%.17g", v);
    uint64_t units = (uint64_t)(v * 1e12 + 0.5);
    w += fmt_u64(w, units / 1000000000000u);
    uint64_t frac = units % 1000000000000u;
    if (!frac)
        return w;
    *w = '.';
    int last = 0;
    for (int i = 12; i > 0; i--, frac /= 10) {
        w[i] = (char)('0' + frac % 10);
        if (!last && frac % 10)
            last = i;
    }
    return w + last + 1;
}

static char *put(char *w, const char *p, size_t n)
{
    memcpy(w, p, n);
    return w + n;
}

static bool reserve(struct buf *b, const struct row *r)
{
    const struct span strings[] = {
        r->request_id,  r->trace_id,    r->virtual_key,  r->virtual_key_id, r->path,
        r->model,       r->provider,    r->target,       r->variant,        r->upstream_request_id,
        r->pick_reason, r->pick_detail, r->cache_reason, r->cache_scope,    r->error,
        r->annotations,
    };
    size_t n = FIXED_MAX;
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        n += 6 * strings[i].n;
    if (n <= b->max - b->n)
        return buf_reserve(b, n);
    /* The usual bound is past the maximum of <b>: look how much it really takes. */
    n = FIXED_MAX;
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        n += string_bytes(strings[i]);
    return buf_reserve(b, n);
}

#define NAME(text) (w = put(w, text, sizeof(text) - 1))
#define STRING(m)  (NAME(",\"" #m "\":"), w = put_string(w, r->m))
#define NUMBER(m)  (NAME(",\"" #m "\":"), w += fmt_u64(w, r->m))
#define MONEY(m)   (NAME(",\"" #m "\":"), w = put_money(w, r->m))

void row_format(struct buf *b, const struct row *r)
{
    if (!reserve(b, r))
        return;
    char *w = b->p + b->n;
    NAME("{\"ts\":\"");
    w += fmt_time(w, r->ts_ms);
    NAME("\"");
    STRING(request_id);
    STRING(trace_id);
    STRING(virtual_key);
    STRING(virtual_key_id);
    STRING(path);
    STRING(model);
    STRING(provider);
    STRING(target);
    STRING(variant);
    STRING(upstream_request_id);
    NAME(",\"status\":");
    w += fmt_u64(w, r->status > 0 ? (uint64_t)r->status : 0);
    NUMBER(stream);
    NUMBER(cache_hit);
    NUMBER(withheld);
    NUMBER(usage_unknown);
    NUMBER(prompt_tokens);
    NUMBER(completion_tokens);
    NUMBER(total_tokens);
    NUMBER(cache_read_tokens);
    NUMBER(cache_write_tokens);
    MONEY(cost_usd);
    NUMBER(saved_tokens);
    MONEY(saved_cost_usd);
    NUMBER(latency_ms);
    NUMBER(ttft_ms);
    NUMBER(queue_ms);
    NUMBER(attempts);
    STRING(pick_reason);
    STRING(pick_detail);
    STRING(cache_reason);
    STRING(cache_scope);
    STRING(error);
    STRING(annotations);
    NAME("}\n");
    b->n = (size_t)(w - b->p);
}
