/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include "http/head.h"

enum { MAX = HTTP_HEAD_BYTES_DEFAULT };

static struct http_head head;

/* Parses a request that must be fine. */
static const struct http_head *request(struct span in)
{
    size_t scanned = 0;
    enum http_reject why = HTTP_OK_SO_FAR;
    enum http_result r = http_parse_request(&head, in.p, in.n, &scanned, MAX, &why);
    if (r != HTTP_DONE)
        fail_msg("refused (%d, %s): %.*s", r, http_reject_text(why), SPAN_FMT(in));
    return &head;
}

static const struct http_head *reply(struct span in, bool head_request)
{
    size_t scanned = 0;
    enum http_reject why = HTTP_OK_SO_FAR;
    enum http_result r = http_parse_reply(&head, in.p, in.n, &scanned, MAX, head_request, &why);
    if (r != HTTP_DONE)
        fail_msg("refused (%d, %s): %.*s", r, http_reject_text(why), SPAN_FMT(in));
    return &head;
}

static const struct span requests[] = {
    SPAN("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    SPAN("GET /v1/models?x=1&y HTTP/1.1\r\nHost: api.example.com:8080\r\nAccept: */*\r\nX-Empty:\r\nx-tab:\t "
         "v \t\r\n\r\n"),
    SPAN("POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nContent-Type: application/json\r\n"
         "Content-Length: 1234\r\nAuthorization: Bearer sk-0123456789abcdef0123456789abcdef\r\n"
         "User-Agent: OpenAI/Python 1.99.0\r\nX-Stainless-Lang: python\r\nConnection: keep-alive\r\n\r\n"),
    SPAN("PUT /a HTTP/1.0\r\n\r\n"),
    SPAN("OPTIONS * HTTP/1.1\r\nHOST: [::1]\r\nA: :\r\n\r\n"),
    SPAN("M-SEARCH /?? HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nx: \xff\xc3\xa4\r\n\r\n"),
};

/* A head cut into lines at CR LF and fields at the first colon, without any check. */
static void same_as_naive(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct span in = requests[i];
        const struct http_head *h = request(in);
        assert_int_equal(h->bytes, in.n);
        const char *p = strstr(in.p, "\r\n");
        char line[512];
        assert_true((size_t)(p - in.p) < sizeof line);
        snprintf(line, sizeof line, "%.*s %.*s HTTP/1.%d", SPAN_FMT(h->method), SPAN_FMT(h->target),
                 h->minor);
        assert_true(span_eq(span_str(line), span_of(in.p, (size_t)(p - in.p))));
        unsigned n = 0;
        for (p += 2; *p != '\r'; n++) {
            const char *e = strstr(p, "\r\n"), *colon = strchr(p, ':');
            assert_true(n < h->n_fields);
            assert_true(span_eq(h->fields[n].name, span_of(p, (size_t)(colon - p))));
            assert_true(span_eq(h->fields[n].value, span_trim(span_of(colon + 1, (size_t)(e - colon - 1)))));
            p = e + 2;
        }
        assert_int_equal(n, h->n_fields);
    }
}

static void same_head(const struct http_head *a, const struct http_head *b)
{
    assert_true(a->bytes == b->bytes && a->n_fields == b->n_fields && a->body == b->body &&
                a->minor == b->minor);
    assert_true(a->content_length == b->content_length && a->keep_alive == b->keep_alive &&
                a->status == b->status);
    assert_true(span_eq(a->method, b->method) && span_eq(a->target, b->target) && span_eq(a->path, b->path));
    assert_true(span_eq(a->query, b->query) && span_eq(a->reason, b->reason));
    assert_memory_equal(a->by_id, b->by_id, sizeof a->by_id);
    for (unsigned i = 0; i < a->n_fields; i++)
        assert_true(a->fields[i].id == b->fields[i].id && span_eq(a->fields[i].name, b->fields[i].name) &&
                    span_eq(a->fields[i].value, b->fields[i].value));
}

/* The head moves between calls, has another struct each time, and bytes of the next message behind it. */
static void cut_anywhere(void **state)
{
    (void)state;
    static struct http_head cut;
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct span in = requests[i];
        for (size_t at = 0; at < in.n; at++)
            for (size_t step = 1; step < 40; step += 19) {
                size_t scanned = 0;
                enum http_reject why = HTTP_OK_SO_FAR;
                for (size_t n = at; n < in.n; n += step) {
                    char *part = malloc(n ? n : 1);
                    memcpy(part, in.p, n);
                    memset(&cut, 0x55, sizeof cut);
                    assert_int_equal(http_parse_request(&cut, part, n, &scanned, MAX, &why), HTTP_MORE);
                    assert_true(scanned <= n);
                    free(part);
                }
                char *full = malloc(in.n + 3);
                memcpy(full, in.p, in.n);
                memcpy(full + in.n, "{\r\n", 3);
                assert_int_equal(http_parse_request(&cut, full, in.n + 3, &scanned, MAX, &why), HTTP_DONE);
                assert_int_equal(why, HTTP_OK_SO_FAR);
                same_head(request(in), &cut);
                free(full);
            }
    }
}

/* A head of 256 KiB, one line, one byte at a time: quadratic work would take minutes. */
static void bytes_are_looked_at_once(void **state)
{
    (void)state;
    char *big = malloc(MAX);
    memset(big, 'x', MAX);
    memcpy(big, "GET / HTTP/1.1\r\nHost: a\r\nA:", 27);
    memcpy(big + MAX - 4, "\r\n\r\n", 4);
    size_t scanned = 0;
    enum http_reject why = HTTP_OK_SO_FAR;
    for (size_t n = 1; n < MAX; n++) {
        size_t before = scanned;
        assert_int_equal(http_parse_request(&head, big, n, &scanned, MAX, &why), HTTP_MORE);
        assert_true(scanned >= before && n - scanned <= 1);
    }
    assert_int_equal(http_parse_request(&head, big, MAX, &scanned, MAX, &why), HTTP_DONE);
    assert_int_equal(head.bytes, MAX);
    scanned = 0;
    assert_int_equal(http_parse_request(&head, big, MAX, &scanned, MAX - 1, &why), HTTP_BAD);
    assert_int_equal(why, HTTP_REJECT_TOO_LARGE);
    free(big);
}

static void small_maximum(void **state)
{
    (void)state;
    struct span in = requests[0];
    for (size_t max = 1; max <= in.n + 1; max++)
        for (size_t first = 0; first <= in.n; first++) {
            size_t scanned = 0;
            enum http_reject why = HTTP_OK_SO_FAR;
            enum http_result r = http_parse_request(&head, in.p, first, &scanned, max, &why);
            if (r == HTTP_MORE)
                r = http_parse_request(&head, in.p, in.n, &scanned, max, &why);
            assert_int_equal(r, max < in.n ? HTTP_BAD : HTTP_DONE);
            assert_int_equal(why, max < in.n ? HTTP_REJECT_TOO_LARGE : HTTP_OK_SO_FAR);
        }
}

static void targets(void **state)
{
    (void)state;
    static const struct {
        const char *sent, *target, *path, *query;
    } rows[] = {
        {"/", "/", "/", ""},         {"/a?b=c", "/a?b=c", "/a", "b=c"},
        {"/a?", "/a?", "/a", ""},    {"/?a?b", "/?a?b", "/", "a?b"},
        {"//a", "//a", "//a", ""},   {"http://h", "/", "/", ""},
        {"http://H/", "/", "/", ""}, {"HTTPS://h/a/b?c", "/a/b?c", "/a/b", "c"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[256];
        int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", rows[i].sent);
        const struct http_head *h = request(span_of(text, (size_t)n));
        assert_true(span_eq(h->target, span_str(rows[i].target)));
        assert_true(span_eq(h->path, span_str(rows[i].path)));
        assert_true(span_eq(h->query, span_str(rows[i].query)));
    }
}

static void request_bodies(void **state)
{
    (void)state;
    const struct http_head *h = request(SPAN("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n"));
    assert_true(h->body == HTTP_BODY_LENGTH && h->content_length == 7);
    h = request(SPAN("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
    assert_true(h->body == HTTP_BODY_NONE && h->content_length == 0);
    h = request(SPAN("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n"));
    assert_true(h->body == HTTP_BODY_LENGTH && h->content_length == INT64_MAX);
    h = request(SPAN("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n"));
    assert_true(h->body == HTTP_BODY_CHUNKED && h->content_length == 0);
    h = request(SPAN("POST / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_true(h->body == HTTP_BODY_NONE);
}

static void keep_alive_and_expect(void **state)
{
    (void)state;
    assert_true(request(SPAN("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))->keep_alive);
    assert_false(request(SPAN("GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n"))->keep_alive);
    assert_false(request(SPAN("GET / HTTP/1.1\r\nHost: a\r\nConnection: x , close\r\n\r\n"))->keep_alive);
    assert_false(
        request(SPAN("GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n\r\n"))->keep_alive);
    assert_true(request(SPAN("GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n"))->keep_alive);
    assert_false(request(SPAN("GET / HTTP/1.0\r\n\r\n"))->keep_alive);
    assert_true(request(SPAN("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"))->keep_alive);
    assert_false(request(SPAN("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n"))->keep_alive);
    assert_true(request(SPAN("GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n\r\n"))->expect_continue);
    assert_false(request(SPAN("GET / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n"))->expect_continue);
    assert_false(request(SPAN("GET / HTTP/1.0\r\nExpect: 100-continue\r\n\r\n"))->expect_continue);
    assert_false(request(SPAN("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))->expect_continue);
}

static void known_names(void **state)
{
    (void)state;
    static const char *const names[HTTP_F_COUNT] = {
        [HTTP_F_HOST] = "host",
        [HTTP_F_CONTENT_LENGTH] = "content-length",
        [HTTP_F_TRANSFER_ENCODING] = "transfer-encoding",
        [HTTP_F_CONNECTION] = "connection",
        [HTTP_F_CONTENT_TYPE] = "content-type",
        [HTTP_F_CONTENT_ENCODING] = "content-encoding",
        [HTTP_F_AUTHORIZATION] = "authorization",
        [HTTP_F_X_API_KEY] = "x-api-key",
        [HTTP_F_EXPECT] = "expect",
        [HTTP_F_ACCEPT] = "accept",
        [HTTP_F_USER_AGENT] = "user-agent",
        [HTTP_F_X_REQUEST_ID] = "x-request-id",
        [HTTP_F_X_SESSION_ID] = "x-session-id",
        [HTTP_F_X_ROLTER_TOKEN_IDS] = "x-rolter-vllm-token-ids",
        [HTTP_F_CACHE_CONTROL] = "cache-control",
        [HTTP_F_RETRY_AFTER] = "retry-after",
        [HTTP_F_SET_COOKIE] = "set-cookie",
        [HTTP_F_COOKIE] = "cookie",
        [HTTP_F_TE] = "te",
        [HTTP_F_TRAILER] = "trailer",
        [HTTP_F_UPGRADE] = "upgrade",
        [HTTP_F_KEEP_ALIVE] = "keep-alive",
        [HTTP_F_PROXY_AUTHENTICATE] = "proxy-authenticate",
        [HTTP_F_PROXY_AUTHORIZATION] = "proxy-authorization",
        [HTTP_F_PROXY_CONNECTION] = "proxy-connection",
        [HTTP_F_SERVER] = "server",
        [HTTP_F_DATE] = "date",
        [HTTP_F_ACCEPT_ENCODING] = "accept-encoding",
    };
    for (int id = HTTP_F_OTHER + 1; id < HTTP_F_COUNT; id++) {
        char text[256];
        for (int upper = 0; upper < 2; upper++) {
            int n = snprintf(text, sizeof text, "HTTP/1.1 204 x\r\na: b\r\n%s: 1\r\n\r\n", names[id]);
            for (char *c = strstr(text, "b\r\n") + 3; upper && *c != ':'; c++)
                *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
            size_t scanned = 0;
            enum http_reject why = HTTP_OK_SO_FAR;
            enum http_result r = http_parse_reply(&head, text, (size_t)n, &scanned, MAX, false, &why);
            if (id == HTTP_F_TRANSFER_ENCODING) {
                assert_true(r == HTTP_BAD && why == HTTP_REJECT_CODING);
            } else {
                assert_int_equal(r, HTTP_DONE);
            }
            assert_int_equal(head.fields[1].id, id);
            assert_int_equal(head.by_id[id], 1);
            /* One character off, at each place, is another name. */
            for (char *c = strstr(text, "b\r\n") + 3; *c != ':'; c++) {
                char was = *c;
                *c = '~';
                scanned = 0;
                r = http_parse_reply(&head, text, (size_t)n, &scanned, MAX, false, &why);
                assert_true(r == HTTP_DONE && head.fields[1].id == HTTP_F_OTHER && head.by_id[id] == -1);
                *c = was;
            }
        }
    }
}

static void lookup(void **state)
{
    (void)state;
    const struct http_head *h =
        request(SPAN("GET / HTTP/1.1\r\nHost: a\r\nAccept: one\r\nX-Other: o\r\naccept: two\r\n"
                     "Connection: , X-Hop ,upgrade\r\nUser-Agent:\r\nConnection: Last\r\n\r\n"));
    assert_true(span_eq(http_field_get(h, HTTP_F_ACCEPT), SPAN("one")));
    assert_int_equal(h->by_id[HTTP_F_ACCEPT], 1);
    assert_true(http_field_get(h, HTTP_F_COOKIE).p == NULL);
    assert_true(http_field_get(h, HTTP_F_USER_AGENT).p != NULL &&
                http_field_get(h, HTTP_F_USER_AGENT).n == 0);
    assert_true(span_eq(http_field_find(h, SPAN("x-OTHER")), SPAN("o")));
    assert_true(http_field_find(h, SPAN("x-othe")).p == NULL);
    assert_true(http_field_has_token(h, HTTP_F_CONNECTION, SPAN("x-hop")));
    assert_true(http_field_has_token(h, HTTP_F_CONNECTION, SPAN("UPGRADE")));
    assert_true(http_field_has_token(h, HTTP_F_CONNECTION, SPAN("last")));
    assert_false(http_field_has_token(h, HTTP_F_CONNECTION, SPAN("hop")));
    assert_false(http_field_has_token(h, HTTP_F_COOKIE, SPAN("x")));
}

static void hop_by_hop(void **state)
{
    (void)state;
    const struct http_head *h = request(
        SPAN("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Hop\r\nKeep-Alive: 1\r\nProxy-Authorization: 1\r\n"
             "proxy-foo: 1\r\nTE: trailers\r\nTrailer: x\r\nUpgrade: h2c\r\nx-hop: 1\r\nx-hop-not: "
             "1\r\nAccept: 1\r\n"
             "Authorization: 1\r\nTransfer-Encoding: chunked\r\nproxy: 1\r\n\r\n"));
    static const char expected[] = "0111111110001"
                                   "0";
    for (unsigned i = 0; i < h->n_fields; i++)
        if (http_field_is_hop_by_hop(h, &h->fields[i]) != (expected[i] == '1'))
            fail_msg("%.*s", SPAN_FMT(h->fields[i].name));
    assert_int_equal(h->n_fields, sizeof expected - 1);
}

static void replies(void **state)
{
    (void)state;
    const struct http_head *h = reply(SPAN("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), false);
    assert_true(h->status == 200 && span_eq(h->reason, SPAN("OK")) && h->minor == 1 && h->keep_alive);
    assert_true(h->body == HTTP_BODY_LENGTH && h->content_length == 5 && h->bytes == 38);
    h = reply(SPAN("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), true);
    assert_true(h->body == HTTP_BODY_NONE && h->content_length == 5 && h->keep_alive);
    h = reply(SPAN("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), false);
    assert_true(h->body == HTTP_BODY_CHUNKED);
    h = reply(SPAN("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), true);
    assert_true(h->body == HTTP_BODY_NONE);
    h = reply(SPAN("HTTP/1.1 200 OK\r\n\r\n"), false);
    assert_true(h->body == HTTP_BODY_CLOSE && !h->keep_alive);
    h = reply(SPAN("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n"), false);
    assert_true(h->body == HTTP_BODY_CLOSE && !h->keep_alive && h->minor == 0);
    h = reply(SPAN("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"), false);
    assert_true(h->body == HTTP_BODY_NONE && h->keep_alive);
    static const int without[] = {100, 101, 103, 199, 204, 304};
    for (size_t i = 0; i < ARRAY_LEN(without); i++) {
        char text[128];
        int n = snprintf(text, sizeof text, "HTTP/1.1 %d \r\nContent-Length: 3\r\n\r\n", without[i]);
        h = reply(span_of(text, (size_t)n), false);
        assert_true(h->status == without[i] && h->body == HTTP_BODY_NONE && h->keep_alive &&
                    h->reason.n == 0);
        n = snprintf(text, sizeof text, "HTTP/1.1 %d\r\n\r\n", without[i]);
        h = reply(span_of(text, (size_t)n), false);
        assert_true(h->status == without[i] && h->body == HTTP_BODY_NONE && h->keep_alive);
    }
    h = reply(SPAN("HTTP/1.1 503 Slow  down \xe4\r\nConnection: close\r\nContent-Length: 1\r\n\r\n"), false);
    assert_true(span_eq(h->reason, SPAN("Slow  down \xe4")) && !h->keep_alive);
    h = reply(SPAN("HTTP/1.1 200\r\nContent-Length: 1\r\n\r\n"), false);
    assert_true(h->status == 200 && h->reason.n == 0);
    assert_int_equal(reply(SPAN("HTTP/1.1 599 x\r\n\r\n"), false)->status, 599);
    /* Host is nothing for a reply. */
    assert_int_equal(reply(SPAN("HTTP/1.1 200 x\r\nHost: a\r\nHost: /\r\n\r\n"), false)->n_fields, 2);
}

static void bad_replies(void **state)
{
    (void)state;
    static const struct {
        struct span in;
        enum http_reject why;
    } rows[] = {
        {SPAN("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
         HTTP_REJECT_BOTH_LENGTHS},
        {SPAN("HTTP/1.1 304 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
         HTTP_REJECT_BOTH_LENGTHS},
        {SPAN("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"), HTTP_REJECT_LENGTH},
        {SPAN("HTTP/1.1 200 OK\r\nContent-Length: 1,1\r\n\r\n"), HTTP_REJECT_LENGTH},
        {SPAN("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"), HTTP_REJECT_LENGTH},
        {SPAN("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), HTTP_REJECT_CODING},
        {SPAN("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n"), HTTP_REJECT_CODING_LIST},
        {SPAN("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), HTTP_REJECT_TE_10},
        {SPAN("HTTP/1.1 200 OK\nContent-Length: 1\n\n"), HTTP_REJECT_LINE_END},
        {SPAN("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"), HTTP_REJECT_FOLD},
        {SPAN("HTTP/1.1 200 OK\r\nA : b\r\n\r\n"), HTTP_REJECT_FIELD_NAME},
        {SPAN("HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n"), HTTP_REJECT_FIELD_VALUE},
        {SPAN("HTTP/1.1 200 O\0K\r\n\r\n"), HTTP_REJECT_FIELD_VALUE},
        {SPAN("HTTP/1.1  200 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1 2000 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1 600 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1 999 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1 20 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1 099 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1 +20 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1\t200 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1 200\tOK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.1\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/1.10 200 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTP/2.0 200 OK\r\n\r\n"), HTTP_REJECT_VERSION},
        {SPAN("HTTP/1.2 200 OK\r\n\r\n"), HTTP_REJECT_VERSION},
        {SPAN("http/1.1 200 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("\r\nHTTP/1.1 200 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("HTTQ"), HTTP_REJECT_STATUS_LINE},
        {SPAN("ICY 200 OK\r\n\r\n"), HTTP_REJECT_STATUS_LINE},
        {SPAN("+OK\r\n"), HTTP_REJECT_STATUS_LINE},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t first = 0; first <= rows[i].in.n; first++) {
            size_t scanned = 0;
            enum http_reject why = HTTP_OK_SO_FAR;
            enum http_result r = http_parse_reply(&head, rows[i].in.p, first, &scanned, MAX, false, &why);
            if (r == HTTP_MORE)
                r = http_parse_reply(&head, rows[i].in.p, rows[i].in.n, &scanned, MAX, false, &why);
            if (r != HTTP_BAD || why != rows[i].why)
                fail_msg("row %zu, cut at %zu: %d, %s", i, first, r, http_reject_text(why));
        }
}

static void tables(void **state)
{
    (void)state;
    for (int r = HTTP_OK_SO_FAR; r < HTTP_REJECT_COUNT; r++)
        assert_true(http_reject_status(r) >= 200 && strlen(http_reject_text(r)) > 10);
    assert_int_equal(http_reject_status(HTTP_REJECT_TOO_MANY), 431);
    assert_string_equal(http_status_text(200), "OK");
    assert_string_equal(http_status_text(404), "Not Found");
    assert_string_equal(http_status_text(529), "Overloaded");
    assert_string_equal(http_status_text(299), "Unknown");
}

static void values_and_tokens(void **state)
{
    (void)state;
    assert_true(http_value_is_safe(SPAN("")) && http_value_is_safe(SPAN_NONE) &&
                http_value_is_safe(SPAN("a\tb \xff")));
    assert_true(http_is_token(SPAN("x-A1!#$%&'*+-.^_`|~")));
    assert_false(http_is_token(SPAN("")) || http_is_token(SPAN("a b")) || http_is_token(SPAN("a:")));
    for (int c = 0; c < 256; c++)
        for (size_t at = 0; at < 40; at++) {
            char v[40];
            memset(v, 'v', sizeof v);
            v[at] = (char)c;
            bool safe = (c >= ' ' || c == '\t') && c != 0x7f;
            assert_int_equal(http_value_is_safe(span_of(v, sizeof v)), safe);
            bool token = c > ' ' && c < 0x7f && !strchr("\"(),/:;<=>?@[\\]{}", c);
            assert_int_equal(http_is_token(span_of(v, sizeof v)), token);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_naive),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(bytes_are_looked_at_once),
        cmocka_unit_test(small_maximum),
        cmocka_unit_test(targets),
        cmocka_unit_test(request_bodies),
        cmocka_unit_test(keep_alive_and_expect),
        cmocka_unit_test(known_names),
        cmocka_unit_test(lookup),
        cmocka_unit_test(hop_by_hop),
        cmocka_unit_test(replies),
        cmocka_unit_test(bad_replies),
        cmocka_unit_test(tables),
        cmocka_unit_test(values_and_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
