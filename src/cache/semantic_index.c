/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/semantic_index.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cache/semantic_partition.h"
#include "cache/semantic_record.h"

enum { STREAMS = 4096, PAGE = 256, PUT_MS = 1000, KEY_MAX = 400, ID_MAX = 48 };

/* How far a partition's stream has been read. Two partitions that share a place make each other be read anew.
 */
struct stream_place {
    struct cache_digest partition;
    char newest[ID_MAX], oldest[ID_MAX]; /* ids in the stream; empty: nothing read */
    unsigned dims;                       /* of the records, 0 = none seen */
    bool whole;                          /* nothing older is missing */
    bool backwards;                      /* the next page is an older one */
};

enum page { PAGE_FIRST, PAGE_NEWER, PAGE_OLDER };

struct semantic_index {
    struct vectors *vectors;
    pthread_mutex_t lock;
    struct stream_place *places;
    _Atomic uint64_t syncs, fetched, broken, failed, bytes;
};

struct semantic_index *semantic_index_new(size_t max_bytes)
{
    struct semantic_index *s = MEM_NEW(struct semantic_index);
    s->vectors = vectors_new(max_bytes);
    s->places = mem_array(STREAMS, sizeof(*s->places));
    CHECK(pthread_mutex_init(&s->lock, NULL) == 0);
    return s;
}

void semantic_index_free(struct semantic_index *s)
{
    if (!s)
        return;
    vectors_free(s->vectors);
    pthread_mutex_destroy(&s->lock);
    free(s->places);
    free(s);
}

struct vectors *semantic_index_vectors(struct semantic_index *s)
{
    return s->vectors;
}

static struct stream_place *place_of(struct semantic_index *s, const struct cache_digest *partition)
{
    return &s->places[digest_short(partition) % STREAMS];
}

/* A copy of the partition's place; a new one when it was never read, or when memory has lost what was read.
 */
static struct stream_place look_at(struct semantic_index *s, const struct cache_digest *partition)
{
    pthread_mutex_lock(&s->lock);
    struct stream_place p = *place_of(s, partition);
    pthread_mutex_unlock(&s->lock);
    bool known =
        digest_eq(&p.partition, partition) && p.dims && vectors_count(s->vectors, partition->b, p.dims);
    if (!known)
        p = (struct stream_place){.partition = *partition};
    return p;
}

static struct span stream_key(const struct semantic_port *p, const struct cache_digest *partition, char *out)
{
    static const char hex[] = "0123456789abcdef";
    int n = snprintf(out, KEY_MAX - 70, "%s:semantic:v%d:{", p->name_space, SEMANTIC_LAYOUT_VERSION);
    CHECK(n > 0 && n < KEY_MAX - 70);
    for (size_t i = 0; i < sizeof(partition->b); i++) {
        out[n++] = hex[partition->b[i] >> 4];
        out[n++] = hex[partition->b[i] & 15];
    }
    out[n++] = '}';
    return span_of(out, (size_t)n);
}

/* One item of the stream: [id, [field, record]]. */
static struct span record_of(const struct redis_reply *item, struct span *ret_id)
{
    if (item->type != REDIS_ARRAY || item->n != 2 || !redis_reply_is_text(item->items[0]))
        return SPAN_NONE;
    const struct redis_reply *fields = item->items[1];
    if (fields->type != REDIS_ARRAY || fields->n != 2 || !redis_reply_is_text(fields->items[1]))
        return SPAN_NONE;
    *ret_id = item->items[0]->text;
    return fields->items[1]->text;
}

static void take_record(struct semantic_index *s, const struct cache_digest *partition, unsigned window,
                        struct span bytes, struct stream_place *io)
{
    struct vectors_entry e;
    struct embedding *vector;
    uint64_t now = clock_wall_ms();
    s->bytes += bytes.n;
    if (!semantic_record_read(bytes, &e, &vector)) {
        s->broken++;
        return;
    }
    s->fetched++;
    io->dims = vector->dims;
    /* What this process wrote itself comes back as well. */
    if (vectors_expiry(s->vectors, partition->b, vector->dims, e.id, now) < e.expires_ms)
        (void)vectors_put(s->vectors, partition->b, window, vector->x, vector->dims, &e, now);
    embedding_unref(vector);
}

static void set_id(char out[ID_MAX], struct span id)
{
    if (id.n < ID_MAX) {
        if (id.n)
            memcpy(out, id.p, id.n);
        out[id.n] = '\0';
    }
}

/* A page of the stream; all but PAGE_NEWER come newest first. */
static void take_page(struct semantic_sync *y, const struct redis_reply *page, enum page kind)
{
    struct semantic_index *s = y->port->index;
    struct stream_place p = look_at(s, &y->partition);
    for (size_t i = 0; i < page->n; i++) {
        bool last = i + 1 == page->n;
        struct span id = SPAN_NONE;
        struct span record = record_of(page->items[kind == PAGE_NEWER ? i : page->n - 1 - i], &id);
        if (record.n)
            take_record(s, &y->partition, y->window, record, &p);
        if (kind != PAGE_NEWER && i == 0)
            set_id(p.oldest, id);
        if (kind != PAGE_OLDER && last)
            set_id(p.newest, id);
    }
    if (kind != PAGE_NEWER)
        p.whole = page->n < PAGE || vectors_count(s->vectors, y->partition.b, p.dims) >= y->window;
    p.backwards = !p.whole && kind != PAGE_OLDER;
    pthread_mutex_lock(&s->lock);
    *place_of(s, &y->partition) = p;
    pthread_mutex_unlock(&s->lock);
}

static void on_page(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct semantic_sync *y = arg;
    y->call = NULL;
    if (outcome == REDIS_DONE && reply->type == REDIS_ARRAY)
        take_page(y, reply, (enum page)y->kind);
    else
        y->port->index->failed++;
    y->done(y);
}

bool semantic_sync_start(struct semantic_sync *y, struct semantic_port *p,
                         const struct cache_digest *partition, unsigned window, unsigned timeout_ms)
{
    if (!p->redis || timeout_ms == 0)
        return false;
    char key[KEY_MAX], count[16], from[ID_MAX + 1];
    struct stream_place at = look_at(p->index, partition);
    enum page kind = !at.newest[0] ? PAGE_FIRST : at.backwards ? PAGE_OLDER : PAGE_NEWER;
    y->port = p;
    y->partition = *partition;
    y->window = window;
    y->kind = kind;
    snprintf(count, sizeof(count), "%u", window < PAGE ? window : PAGE);
    snprintf(from, sizeof(from), "(%s", kind == PAGE_OLDER ? at.oldest : at.newest);
    const struct span argv[] = {kind == PAGE_NEWER ? SPAN("XRANGE") : SPAN("XREVRANGE"),
                                stream_key(p, partition, key),
                                kind == PAGE_FIRST ? SPAN("+") : span_str(from),
                                kind == PAGE_NEWER ? SPAN("+") : SPAN("-"),
                                SPAN("COUNT"),
                                span_str(count)};
    const struct redis_request q = {argv, 6, 1};
    p->index->syncs++;
    if (redis_command(p->redis, &q, timeout_ms, on_page, y, &y->call) == REDIS_DONE)
        return true;
    p->index->failed++;
    y->call = NULL;
    return false;
}

void semantic_sync_cancel(struct semantic_sync *y)
{
    if (y->call)
        redis_cancel(y->call);
    y->call = NULL;
}

static void share(struct semantic_port *p, const struct cache_digest *partition, unsigned window,
                  const struct embedding *vector, const struct vectors_entry *e, uint64_t now_ms)
{
    char key[KEY_MAX], most[16], life[24];
    struct buf record;
    buf_init(&record, SIZE_MAX);
    semantic_record_write(&record, e, vector);
    snprintf(most, sizeof(most), "%u", window);
    snprintf(life, sizeof(life), "%llu", (unsigned long long)(e->expires_ms - now_ms));
    struct span name = stream_key(p, partition, key);
    const struct span add[] = {SPAN("XADD"), name,      SPAN("MAXLEN"),   span_str(most),
                               SPAN("*"),    SPAN("r"), buf_view(&record)};
    const struct span expire[] = {SPAN("PEXPIRE"), name, span_str(life)};
    const struct redis_request both[] = {{add, 7, 1}, {expire, 3, 1}};
    if (redis_transaction(p->redis, both, 2, PUT_MS, NULL, NULL, NULL) != REDIS_DONE)
        p->index->failed++;
    buf_fini(&record);
}

bool semantic_index_put(struct semantic_port *p, const struct cache_digest *partition, unsigned window,
                        const struct embedding *vector, const struct vectors_entry *e, uint64_t now_ms)
{
    if (!vectors_put(p->index->vectors, partition->b, window, vector->x, vector->dims, e, now_ms))
        return false;
    if (p->redis)
        share(p, partition, window, vector, e, now_ms);
    return true;
}

void semantic_index_stats(struct semantic_index *s, struct semantic_index_stats *ret)
{
    *ret = (struct semantic_index_stats){s->syncs, s->fetched, s->broken, s->failed, s->bytes};
}
