/* SPDX-License-Identifier: Apache-2.0
 *
 * Binary form, numbers little endian:
 *   "rolc", u64 checksum of all that follows (body included),
 *   u16 layout, u8 dialect, u8 flags, key[32],
 *   created, expires, stale until, usage[5], owner[3], stamp (u64 each),
 *   u32 body length, u16 length of each text, the texts, the body
 */
#include "cache/entry.h"

#include "base/check.h"
#include "base/hash.h"
#include "cache/entry_heap.h"

enum { FLAG_STREAM = 1, FLAG_TRUNCATED = 2, FLAGS = 3 };
enum { N_TEXTS = 6, N_NUMBERS = 3 + 5 + 3 + 1 };
enum { INTRO = 12, FIXED = INTRO + 4 + 32 + 8 * N_NUMBERS + 4 + 2 * N_TEXTS };

/* The numbers of dialects are part of the layout. */
_Static_assert(DIALECT_CHAT == 0 && DIALECT_COMPLETIONS == 1 && DIALECT_MESSAGES == 2 &&
                   DIALECT_RESPONSES == 3 && DIALECT_EMBEDDINGS == 4 && DIALECT_RERANK == 5,
               "a new order of dialects needs a new layout version");
_Static_assert(FIXED + N_TEXTS * ENTRY_TEXT_MAX <= ENTRY_HEAD_MAX, "the head fits its limit");

static void texts_of(struct entry_facts *f, struct span *ret[N_TEXTS])
{
    ret[0] = &f->content_type;
    ret[1] = &f->route;
    ret[2] = &f->provider;
    ret[3] = &f->target;
    ret[4] = &f->model;
    ret[5] = &f->variant;
}

static void numbers_of(struct entry_facts *f, uint64_t *ret[N_NUMBERS])
{
    uint64_t *all[N_NUMBERS] = {
        &f->created_ms,       &f->expires_ms,  &f->stale_until_ms,   &f->usage.prompt,
        &f->usage.completion, &f->usage.total, &f->usage.cache_read, &f->usage.cache_write,
        &f->owner.route,      &f->owner.scope, &f->owner.key,        &f->stamp,
    };
    memcpy(ret, all, sizeof all);
}

static bool is_sound(const struct entry_facts *facts, size_t body_bytes)
{
    struct entry_facts f = *facts;
    struct span *text[N_TEXTS];
    texts_of(&f, text);
    for (int i = 0; i < N_TEXTS; i++)
        if (text[i]->n > ENTRY_TEXT_MAX)
            return false;
    return (unsigned)f.dialect < DIALECT_COUNT && body_bytes <= UINT32_MAX && f.created_ms <= f.expires_ms &&
           f.expires_ms <= f.stale_until_ms;
}

size_t entry_bytes(const struct entry_facts *facts, size_t body_bytes)
{
    struct entry_facts f = *facts;
    struct span *text[N_TEXTS];
    texts_of(&f, text);
    size_t n = sizeof(struct cache_entry) + body_bytes;
    for (int i = 0; i < N_TEXTS; i++)
        n += text[i]->n;
    return n;
}

struct cache_entry *entry_new(const struct entry_facts *facts, struct span body)
{
    if (!is_sound(facts, body.n))
        return NULL;
    size_t n = entry_bytes(facts, body.n);
    struct cache_entry *e = entry_heap_alloc(n);
    char *at = (char *)(e + 1);
    struct span *text[N_TEXTS];
    e->facts = *facts;
    texts_of(&e->facts, text);
    for (int i = 0; i < N_TEXTS; i++) {
        if (text[i]->n)
            memcpy(at, text[i]->p, text[i]->n);
        text[i]->p = at;
        at += text[i]->n;
    }
    if (body.n)
        memcpy(at, body.p, body.n);
    e->body = span_of(at, body.n);
    e->memory_bytes = entry_heap_bytes(e, n);
    atomic_init(&e->refs, 1);
    return e;
}

struct cache_entry *entry_ref(struct cache_entry *e)
{
    atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

void entry_unref(struct cache_entry *e)
{
    if (e && atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1)
        entry_heap_free(e, e->memory_bytes);
}

static void put(char **at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *(*at)++ = (char)(v >> 8 * i);
}

static uint64_t take(const char **at, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)*(*at)++ << 8 * i;
    return v;
}

static uint64_t checksum(struct span rest, struct span body)
{
    return hash_mix(hash_bytes(rest.p, rest.n), hash_bytes(body.p, body.n));
}

bool entry_write_head(const struct cache_entry *e, struct buf *b)
{
    struct entry_facts f = e->facts;
    struct span *text[N_TEXTS];
    uint64_t *number[N_NUMBERS];
    texts_of(&f, text);
    numbers_of(&f, number);
    size_t n = FIXED;
    for (int i = 0; i < N_TEXTS; i++)
        n += text[i]->n;
    if (!buf_reserve(b, n))
        return false;
    char *start = b->p + b->n, *at = start + INTRO;
    put(&at, ENTRY_LAYOUT_VERSION, 2);
    put(&at, f.dialect, 1);
    put(&at, (f.is_stream ? FLAG_STREAM : 0) | (f.is_truncated ? FLAG_TRUNCATED : 0), 1);
    memcpy(at, f.key.b, sizeof f.key.b);
    at += sizeof f.key.b;
    for (int i = 0; i < N_NUMBERS; i++)
        put(&at, *number[i], 8);
    put(&at, e->body.n, 4);
    for (int i = 0; i < N_TEXTS; i++)
        put(&at, text[i]->n, 2);
    for (int i = 0; i < N_TEXTS; i++) {
        memcpy(at, text[i]->p, text[i]->n);
        at += text[i]->n;
    }
    uint64_t sum = checksum(span_of(start + INTRO, n - INTRO), e->body);
    at = start;
    memcpy(at, "rolc", 4);
    at += 4;
    put(&at, sum, 8);
    b->n += n;
    return true;
}

struct cache_entry *entry_parse(struct span bytes)
{
    const char *at = bytes.p;
    if (bytes.n < FIXED || memcmp(at, "rolc", 4) != 0)
        return NULL;
    at += 4;
    uint64_t sum = take(&at, 8);
    unsigned version = (unsigned)take(&at, 2), dialect = (unsigned)take(&at, 1),
             flags = (unsigned)take(&at, 1);
    if (version != ENTRY_LAYOUT_VERSION || dialect >= DIALECT_COUNT || flags & ~(unsigned)FLAGS)
        return NULL;
    struct entry_facts f = {
        .dialect = (enum dialect_id)dialect,
        .is_stream = flags & FLAG_STREAM,
        .is_truncated = flags & FLAG_TRUNCATED,
    };
    struct span *text[N_TEXTS];
    uint64_t *number[N_NUMBERS];
    texts_of(&f, text);
    numbers_of(&f, number);
    memcpy(f.key.b, at, sizeof f.key.b);
    at += sizeof f.key.b;
    for (int i = 0; i < N_NUMBERS; i++)
        *number[i] = take(&at, 8);
    size_t body = take(&at, 4), head = FIXED;
    for (int i = 0; i < N_TEXTS; i++)
        head += text[i]->n = take(&at, 2);
    if (bytes.n != head + body)
        return NULL;
    for (int i = 0; i < N_TEXTS; i++) {
        text[i]->p = at;
        at += text[i]->n;
    }
    struct span b = span_of(at, body);
    if (checksum(span_of(bytes.p + INTRO, head - INTRO), b) != sum)
        return NULL;
    return entry_new(&f, b);
}
