/* SPDX-License-Identifier: Apache-2.0
 *
 * What a Redis server may say: the first byte says where the rest is cut in two. However it is cut, the same
 * replies come out; what they take is bounded; the readers of a cluster's words find only what is there.
 */
#include <stdlib.h>

#include "base/buf.h"
#include "base/hash.h"
#include "redis/internal.h"

enum { MAX_BYTES = 1 << 16, DEPTH = 16 };

static uint64_t walk(const struct redis_reply *r, unsigned depth)
{
    CHECK(depth < DEPTH);
    uint64_t h =
        hash_mix(hash_bytes_seed(r->text.n ? r->text.p : "", r->text.n, r->type), (uint64_t)r->integer);
    struct cluster_range range;
    struct cluster_redirect redirect;
    if (r->text.p)
        CHECK(r->text.p[r->text.n] == '\0');
    if (cluster_parse_range(r, &range))
        CHECK(range.first <= range.last && range.last < REDIS_SLOTS && range.port);
    if (r->type == REDIS_ERROR && cluster_parse_redirect(r, &redirect)) {
        CHECK(redirect.slot < REDIS_SLOTS && redirect.port && redirect.host.n < r->text.n);
        h ^= hash_bytes_seed(redirect.host.p, redirect.host.n, redirect.ask);
    }
    h ^= redis_reply_error_code(r).n;
    for (size_t i = 0; i < r->n; i++)
        h = hash_mix(h, walk(r->items[i], depth + 1));
    return h;
}

static uint64_t read_all(struct redis_reader *r, uint64_t h, unsigned *io_n)
{
    const struct redis_reply *reply;
    while ((reply = redis_reader_next(r))) {
        h = hash_mix(h, walk(reply, 0));
        ++*io_n;
    }
    return h;
}

static void whole_and_cut(const char *p, size_t n, size_t cut)
{
    struct redis_reader *whole = redis_reader_new(MAX_BYTES), *parts = redis_reader_new(MAX_BYTES);
    unsigned n_whole = 0, n_parts = 0;
    redis_reader_feed(whole, p, n);
    const uint64_t a = read_all(whole, 1, &n_whole);
    redis_reader_feed(parts, p, cut);
    uint64_t b = read_all(parts, 1, &n_parts);
    redis_reader_feed(parts, p + cut, n - cut);
    b = read_all(parts, b, &n_parts);
    CHECK(redis_reader_is_broken(whole) == redis_reader_is_broken(parts));
    CHECK(n_whole == n_parts && a == b);
    redis_reader_free(whole);
    redis_reader_free(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct redis_url url;
    const char *why = NULL;
    if (n == 0 || n > MAX_BYTES / 2)
        return 0;
    const char *p = (const char *)data + 1;
    n--;
    whole_and_cut(p, n, n ? data[0] % (n + 1) : 0);
    (void)cluster_slot(span_of(p, n));
    if (redis_url_parse(span_of(p, n), &url, &why)) {
        CHECK(url.name && (url.path != NULL) != (url.origin.host != NULL));
        redis_url_fini(&url);
    } else {
        CHECK(why);
    }
    return 0;
}
