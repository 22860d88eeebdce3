/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of hostile requests through head parser and chunk decoder: whole, and cut at every position.
 */
#include "unit.h"

#include "hostile.h"
#include "http/chunk.h"
#include "http/head.h"

/* What a connection knows between two reads. */
struct server {
    struct http_head head;
    struct http_chunk chunks;
    size_t at, scanned; /* of the message that is being read */
    uint64_t left;
    enum { HEAD, BODY, CHUNKS } phase;
    unsigned messages;
};

/* All that arrived so far is [p, p + n). 0: nothing to refuse yet. */
static int serve(struct server *s, const char *p, size_t n)
{
    for (;;) {
        if (s->phase == BODY) {
            uint64_t take = s->left < n - s->at ? s->left : n - s->at;
            s->at += (size_t)take;
            s->left -= take;
            if (s->left > 0)
                return 0;
            s->phase = HEAD;
            s->messages++;
        }
        if (s->phase == CHUNKS) {
            size_t used;
            struct span data;
            enum http_chunk_event e = http_chunk_feed(&s->chunks, p + s->at, n - s->at, &used, &data);
            if (e == HTTP_CHUNK_BAD)
                return 400;
            s->at += used;
            if (e == HTTP_CHUNK_MORE)
                return 0;
            if (e == HTTP_CHUNK_DATA)
                continue;
            s->phase = HEAD;
            s->messages++;
        }
        enum http_reject why = HTTP_OK_SO_FAR;
        enum http_result r =
            http_parse_request(&s->head, p + s->at, n - s->at, &s->scanned, HTTP_HEAD_BYTES_DEFAULT, &why);
        if (r == HTTP_BAD)
            return http_reject_status(why);
        if (r == HTTP_MORE)
            return 0;
        s->at += s->head.bytes;
        s->scanned = 0;
        s->left = s->head.content_length;
        if (s->left > HOSTILE_BODY_MAX)
            return 413;
        http_chunk_init(&s->chunks);
        s->phase = s->head.body == HTTP_BODY_CHUNKED ? CHUNKS : BODY;
    }
}

/* 200 only when the bytes end where a message ends. */
static int finish(const struct server *s, size_t n, int status)
{
    if (status)
        return status;
    return s->phase == HEAD && s->messages > 0 && s->at == n ? 200 : 0;
}

static void whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hostile_requests); i++) {
        const struct hostile *h = &hostile_requests[i];
        struct server s = {0};
        int status = finish(&s, h->raw.n, serve(&s, h->raw.p, h->raw.n));
        if (status != h->status)
            fail_msg("%s: %d, expected %d", h->name, status, h->status);
    }
}

/* From an exact heap copy, so that a sanitizer sees reads behind the end. */
static void cut_in_two(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hostile_requests); i++) {
        const struct hostile *h = &hostile_requests[i];
        size_t step = h->raw.n < 4096 ? 1 : h->raw.n / 61;
        for (size_t cut = 0; cut < h->raw.n; cut += step) {
            struct server s = {0};
            char *part = malloc(cut ? cut : 1);
            memcpy(part, h->raw.p, cut);
            int status = serve(&s, part, cut);
            free(part);
            if (!status)
                status = serve(&s, h->raw.p, h->raw.n);
            status = finish(&s, h->raw.n, status);
            if (status != h->status)
                fail_msg("%s, cut at %zu: %d, expected %d", h->name, cut, status, h->status);
        }
    }
}

static void byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hostile_requests); i++) {
        const struct hostile *h = &hostile_requests[i];
        struct server s = {0};
        int status = 0;
        for (size_t n = 0; n <= h->raw.n && !status; n++)
            status = serve(&s, h->raw.p, n);
        status = finish(&s, h->raw.n, status);
        if (status != h->status)
            fail_msg("%s, byte by byte: %d, expected %d", h->name, status, h->status);
    }
}

static void names_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(hostile_requests); i++)
        for (size_t j = i + 1; j < ARRAY_LEN(hostile_requests); j++)
            if (strcmp(hostile_requests[i].name, hostile_requests[j].name) == 0)
                fail_msg("two entries are called %s", hostile_requests[i].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(cut_in_two),
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(names_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
