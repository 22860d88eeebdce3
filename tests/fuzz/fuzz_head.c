/* SPDX-License-Identifier: Apache-2.0
 *
 * Heads: the answer does not depend on how the bytes are cut, and what is accepted has the shape that the
 * next parser behind us sees too. First byte of the input: request, reply or reply to HEAD, and a small or
 * large maximum; second: where to cut.
 */
#include <stdlib.h>

#include "http/head.h"

enum kind { REQUEST, REPLY, REPLY_TO_HEAD, KINDS };

static enum http_result parse(enum kind kind, struct http_head *h, const char *p, size_t n, size_t *scanned,
                              size_t max, enum http_reject *why)
{
    return kind == REQUEST ? http_parse_request(h, p, n, scanned, max, why)
                           : http_parse_reply(h, p, n, scanned, max, kind == REPLY_TO_HEAD, why);
}

static void check_span(struct span s, const char *p, const struct http_head *h)
{
    CHECK(s.n == 0 || (s.p >= p && s.p + s.n <= p + h->bytes));
    CHECK(http_value_is_safe(s));
}

static void check_accepted(const struct http_head *h, const char *p, size_t n, enum kind kind)
{
    CHECK(h->bytes >= 4 && h->bytes <= n);
    const char *end = memmem(p, n, "\r\n\r\n", 4);
    CHECK(end && end + 4 == p + h->bytes);
    unsigned lines = 0, lengths = 0, codings = 0, hosts = 0;
    for (const char *c = p; c < p + h->bytes; c++) {
        CHECK(*c != '\n' || c[-1] == '\r');
        CHECK(*c != '\r' || c[1] == '\n');
        CHECK(*c != '\n' || c + 1 == p + h->bytes || (c[1] != ' ' && c[1] != '\t'));
        lines += *c == '\n';
    }
    CHECK(lines == h->n_fields + 2 && h->n_fields <= HTTP_FIELDS_MAX);
    for (unsigned i = 0; i < h->n_fields; i++) {
        const struct http_field *f = &h->fields[i];
        check_span(f->name, p, h);
        check_span(f->value, p, h);
        CHECK(http_is_token(f->name) && f->name.p[f->name.n] == ':');
        CHECK(span_eq(span_trim(f->value), f->value));
        CHECK(f->id == HTTP_F_OTHER || (h->by_id[f->id] >= 0 && h->by_id[f->id] <= (int)i));
        lengths += span_eq_nocase(f->name, SPAN("content-length"));
        codings += span_eq_nocase(f->name, SPAN("transfer-encoding"));
        hosts += span_eq_nocase(f->name, SPAN("host"));
        (void)http_field_is_hop_by_hop(h, f);
    }
    CHECK(lengths + codings <= 1);
    CHECK(codings == (unsigned)(h->by_id[HTTP_F_TRANSFER_ENCODING] >= 0));
    CHECK(lengths == (unsigned)(h->by_id[HTTP_F_CONTENT_LENGTH] >= 0));
    CHECK(h->body != HTTP_BODY_CHUNKED || (codings == 1 && h->minor == 1));
    CHECK(h->body != HTTP_BODY_LENGTH || lengths == 1);
    check_span(h->method, p, h);
    check_span(h->target, p, h);
    check_span(h->reason, p, h);
    if (kind == REQUEST) {
        CHECK(hosts <= 1 && (hosts == 1 || h->minor == 0) && h->body != HTTP_BODY_CLOSE);
        CHECK(http_is_token(h->method) && h->target.n > 0 &&
              (h->target.p[0] == '/' || h->target.p[0] == '*'));
        CHECK(h->path.n + h->query.n <= h->target.n);
    } else {
        CHECK(h->status >= 100 && h->status <= 999);
    }
}

static void check_same(const struct http_head *a, const struct http_head *b)
{
    CHECK(a->bytes == b->bytes && a->n_fields == b->n_fields && a->body == b->body && a->status == b->status);
    CHECK(a->content_length == b->content_length && a->keep_alive == b->keep_alive && a->minor == b->minor);
    CHECK(a->expect_continue == b->expect_continue && memcmp(a->by_id, b->by_id, sizeof a->by_id) == 0);
    for (unsigned i = 0; i < a->n_fields; i++)
        CHECK(a->fields[i].id == b->fields[i].id && span_eq(a->fields[i].value, b->fields[i].value));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct http_head whole, cut;
    if (size < 3)
        return 0;
    enum kind kind = bytes[0] % KINDS;
    size_t max = bytes[0] & 0x80 ? 64 : HTTP_HEAD_BYTES_DEFAULT, step = bytes[1];
    const char *p = (const char *)bytes + 2;
    size_t n = size - 2, scanned = 0;
    enum http_reject why = HTTP_OK_SO_FAR, cut_why = HTTP_OK_SO_FAR;
    enum http_result r = parse(kind, &whole, p, n, &scanned, max, &why);
    CHECK((r == HTTP_BAD) == (why != HTTP_OK_SO_FAR));
    if (r == HTTP_DONE)
        check_accepted(&whole, p, n, kind);

    /* In growing pieces, each a copy of its size, with another struct each time. */
    enum http_result cut_r = HTTP_MORE;
    scanned = 0;
    for (size_t have = step % 16; cut_r == HTTP_MORE; have += 1 + step / 16) {
        have = have < n ? have : n;
        char *copy = malloc(have ? have : 1);
        CHECK(copy);
        memcpy(copy, p, have);
        memset(&cut, (int)step, sizeof cut);
        cut_r = parse(kind, &cut, copy, have, &scanned, max, &cut_why);
        CHECK(cut_r != HTTP_MORE || scanned <= have);
        if (cut_r == HTTP_DONE && r == HTTP_DONE)
            check_same(&whole, &cut);
        free(copy);
        if (have == n)
            break;
    }
    CHECK(cut_r == r && cut_why == why);
    return 0;
}
