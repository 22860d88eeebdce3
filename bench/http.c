/* SPDX-License-Identifier: Apache-2.0
 *
 * What reading HTTP costs: bench-http [milliseconds per figure, default 200]. Heads as the SDKs and engines
 * send them, chunked bodies and event streams in pieces of the size of a read. Prints nanoseconds per head,
 * chunk or event: the best of some runs, since the machine's other work only adds.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "http/chunk.h"
#include "http/head.h"
#include "http/sse.h"

static const struct span sdk_request = SPAN("POST /v1/chat/completions HTTP/1.1\r\n"
                                            "Host: gateway.example.com:8080\r\n"
                                            "Accept-Encoding: gzip, deflate\r\n"
                                            "Connection: keep-alive\r\n"
                                            "Accept: application/json\r\n"
                                            "Content-Type: application/json\r\n"
                                            "User-Agent: OpenAI/Python 1.99.9\r\n"
                                            "X-Stainless-Lang: python\r\n"
                                            "X-Stainless-Package-Version: 1.99.9\r\n"
                                            "X-Stainless-OS: Linux\r\n"
                                            "X-Stainless-Arch: x64\r\n"
                                            "X-Stainless-Runtime: CPython\r\n"
                                            "X-Stainless-Async: false\r\n"
                                            "Authorization: Bearer sk-0123456789abcdef01234567\r\n"
                                            "x-stainless-retry-count: 0\r\n"
                                            "Content-Length: 4321\r\n\r\n");
static const struct span small_request = SPAN("POST /v1/chat/completions HTTP/1.1\r\n"
                                              "Host: 127.0.0.1:8080\r\n"
                                              "Content-Type: application/json\r\n"
                                              "Content-Length: 512\r\n\r\n");
static const struct span engine_reply = SPAN("HTTP/1.1 200 OK\r\n"
                                             "date: Mon, 01 Jan 2024 00:00:00 GMT\r\n"
                                             "server: uvicorn\r\n"
                                             "content-type: text/event-stream; charset=utf-8\r\n"
                                             "Transfer-Encoding: chunked\r\n\r\n");

static struct http_head head;
static struct buf body; /* chunks or events */
enum { PARTS = 1000 };

/* One run of a case; returns how many things it read. */
typedef uint64_t bench_fn(size_t piece);

static uint64_t request_in_pieces(struct span in, size_t piece)
{
    size_t scanned = 0;
    enum http_reject why;
    for (size_t n = piece; n < in.n; n += piece) {
        enum http_result r = http_parse_request(&head, in.p, n, &scanned, HTTP_HEAD_BYTES_DEFAULT, &why);
        CHECK(r == HTTP_MORE);
    }
    enum http_result r = http_parse_request(&head, in.p, in.n, &scanned, HTTP_HEAD_BYTES_DEFAULT, &why);
    CHECK(r == HTTP_DONE);
    return 1;
}

static uint64_t run_sdk_request(size_t piece)
{
    return request_in_pieces(sdk_request, piece);
}

static uint64_t run_small_request(size_t piece)
{
    return request_in_pieces(small_request, piece);
}

static uint64_t run_reply(size_t piece)
{
    size_t scanned = 0;
    enum http_reject why;
    enum http_result r = http_parse_reply(&head, engine_reply.p, engine_reply.n, &scanned,
                                          HTTP_HEAD_BYTES_DEFAULT, false, &why);
    CHECK(r == HTTP_DONE);
    return 1;
}

static uint64_t run_chunks(size_t piece)
{
    struct http_chunk c;
    uint64_t bytes = 0;
    http_chunk_init(&c);
    for (size_t from = 0; from < body.n; from += piece) {
        size_t n = piece < body.n - from ? piece : body.n - from, at = 0;
        enum http_chunk_event e;
        do {
            size_t used = 0;
            struct span data = SPAN_NONE;
            e = http_chunk_feed(&c, body.p + from + at, n - at, &used, &data);
            CHECK(e != HTTP_CHUNK_BAD);
            at += used;
            bytes += data.n;
        } while (e == HTTP_CHUNK_DATA);
    }
    CHECK(bytes > PARTS);
    return PARTS;
}

static void count_event(void *arg, const struct sse_event *e)
{
    *(uint64_t *)arg += e->data.n > 0;
}

static uint64_t run_sse(size_t piece)
{
    struct sse s;
    uint64_t events = 0;
    sse_init(&s, 1 << 20);
    for (size_t from = 0; from < body.n; from += piece)
        sse_feed(&s, body.p + from, piece < body.n - from ? piece : body.n - from, count_event, &events);
    CHECK(!sse_end(&s, count_event, &events) && events == PARTS);
    sse_fini(&s);
    return events;
}

static void add_event(struct buf *b, bool with_type)
{
    if (with_type)
        BUF_LIT(b, "event: content_block_delta\n");
    BUF_LIT(
        b,
        "data: "
        "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,"
        "\"model\":\"some-model-70b-instruct\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},"
        "\"logprobs\":null,\"finish_reason\":null}]}\n\n");
}

static void make_body(bool chunked, bool with_type)
{
    struct buf event;
    buf_init(&event, 4096);
    add_event(&event, with_type);
    buf_clear(&body);
    for (int i = 0; i < PARTS; i++) {
        if (chunked)
            buf_printf(&body, "%zx\r\n", event.n);
        buf_add_span(&body, buf_view(&event));
        if (chunked)
            BUF_LIT(&body, "\r\n");
    }
    if (chunked)
        BUF_LIT(&body, "0\r\n\r\n");
    CHECK(!body.full);
    buf_fini(&event);
}

static void measure(const char *name, bench_fn *run, size_t piece, uint64_t budget_us)
{
    double best = 1e18;
    uint64_t per_run = run(piece), reps = 1 + 20000 / per_run, until = clock_mono_us() + budget_us;
    do {
        uint64_t from = clock_mono_us(), n = 0;
        for (uint64_t i = 0; i < reps; i++) {
            n += run(piece);
            __asm__ volatile("" ::: "memory");
        }
        double ns = (double)(clock_mono_us() - from) * 1000 / (double)n;
        best = ns < best ? ns : best;
    } while (clock_mono_us() < until);
    printf("%-52s %9.1f ns\n", name, best);
}

int main(int argc, char **argv)
{
    uint64_t us = (argc > 1 ? strtoull(argv[1], NULL, 10) : 200) * 1000;
    buf_init(&body, 1 << 22);
    printf("request head of an SDK: %zu bytes, small: %zu, reply: %zu\n", sdk_request.n, small_request.n,
           engine_reply.n);
    measure("request head, 15 fields, whole", run_sdk_request, SIZE_MAX, us);
    measure("request head, 15 fields, two pieces", run_sdk_request, sdk_request.n / 2 + 1, us);
    measure("request head, 15 fields, byte by byte", run_sdk_request, 1, us);
    measure("request head, 3 fields, whole", run_small_request, SIZE_MAX, us);
    measure("reply head, 4 fields, whole", run_reply, SIZE_MAX, us);
    make_body(true, false);
    measure("chunk of one event, 64 KiB reads", run_chunks, 65536, us);
    measure("chunk of one event, 1460-byte reads", run_chunks, 1460, us);
    make_body(false, false);
    printf("event: %zu bytes\n", body.n / PARTS);
    measure("event, 64 KiB reads", run_sse, 65536, us);
    measure("event, one per read", run_sse, body.n / PARTS, us);
    measure("event, 1460-byte reads", run_sse, 1460, us);
    measure("event, 16-byte reads", run_sse, 16, us);
    make_body(false, true);
    measure("event with type, 64 KiB reads", run_sse, 65536, us);
    buf_fini(&body);
    return 0;
}
