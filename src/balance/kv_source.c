/* SPDX-License-Identifier: Apache-2.0 */
#include "balance/kv_source.h"

#include <pthread.h>
#include <stdlib.h>

#include "balance/kv_ids.h"
#include "balance/kv_parts.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"

/* Slots: 32 in each bank. Banks are made when they are needed and stay. */
enum { BANKS = 512, DYING_MAX = 64 };

static _Atomic(struct kv_map *) banks[BANKS];

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct kv_source *registry;

/* The writer's: slots taken, and caches that were cleared and still have bits in their slot. */
static uint32_t taken[BANKS];
struct dying {
    struct kv_blocks *blocks;
    unsigned place;
};
static struct dying dying[DYING_MAX];
static unsigned n_dying;

struct kv_map *kv_bank(unsigned place)
{
    return atomic_load_explicit(&banks[place / KV_SLOTS], memory_order_acquire);
}

/* Life cycle */

struct kv_source *kv_source_get(const char *name, unsigned ranks)
{
    CHECK(ranks >= 1 && ranks <= KV_RANKS_MAX);
    kv_ids_init();
    pthread_mutex_lock(&registry_lock);
    struct kv_source *s = registry;
    while (s && (s->n != ranks || strcmp(s->name, name) != 0))
        s = s->next;
    if (s) {
        s->refs++;
    } else {
        s = mem_zalloc(sizeof *s + ranks * sizeof s->stream[0]);
        s->name = mem_strdup(name);
        s->n = ranks;
        s->refs = 1;
        s->max_blocks = 1;
        s->next = registry;
        registry = s;
    }
    pthread_mutex_unlock(&registry_lock);
    return s;
}

struct kv_source *kv_source_ref(struct kv_source *s)
{
    pthread_mutex_lock(&registry_lock);
    s->refs++;
    pthread_mutex_unlock(&registry_lock);
    return s;
}

void kv_source_unref(struct kv_source *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&registry_lock);
    CHECK(s->refs > 0);
    bool last = --s->refs == 0;
    if (last) {
        struct kv_source **link = &registry;
        while (*link != s)
            link = &(*link)->next;
        *link = s->next;
    }
    pthread_mutex_unlock(&registry_lock);
    if (!last)
        return;
    for (unsigned i = 0; i < s->n; i++)
        CHECK_MSG(!s->stream[i].blocks, "a source ends that was not stopped");
    free(s->name);
    free(s);
}

const char *kv_source_name(const struct kv_source *s)
{
    return s->name;
}

unsigned kv_source_ranks(const struct kv_source *s)
{
    return s->n;
}

void kv_source_configure(struct kv_source *s, size_t max_blocks, uint64_t stale_ms)
{
    s->max_blocks = max_blocks ? max_blocks : 1;
    atomic_store_explicit(&s->stale_ms, stale_ms, memory_order_relaxed);
}

/* Slots */

static unsigned place_take(void)
{
    for (unsigned bank = 0; bank < BANKS; bank++) {
        if (taken[bank] == UINT32_MAX)
            continue;
        if (!atomic_load_explicit(&banks[bank], memory_order_relaxed))
            atomic_store_explicit(&banks[bank], kv_map_new(), memory_order_release);
        unsigned slot = (unsigned)__builtin_ctz(~taken[bank]);
        taken[bank] |= UINT32_C(1) << slot;
        return bank * KV_SLOTS + slot;
    }
    CHECK_MSG(false, "more than 16384 streams of KV events");
    return 0;
}

static bool sweep_first(size_t blocks)
{
    if (!kv_blocks_free(dying[0].blocks, blocks))
        return false;
    taken[dying[0].place / KV_SLOTS] &= ~(UINT32_C(1) << dying[0].place % KV_SLOTS);
    n_dying--;
    memmove(dying, dying + 1, n_dying * sizeof *dying);
    return true;
}

bool kv_sources_sweep(size_t blocks)
{
    if (n_dying > 0)
        sweep_first(blocks);
    return n_dying > 0;
}

/* What the writer is told */

void kv_source_trust(struct kv_source *s, unsigned rank, bool trusted)
{
    atomic_store_explicit(&s->stream[rank].trusted, trusted, memory_order_release);
}

void kv_source_alive(struct kv_source *s, unsigned rank, uint64_t now_ms)
{
    atomic_store_explicit(&s->stream[rank].alive_at, now_ms + 1, memory_order_release);
}

void kv_source_alive_since(struct kv_source *s, unsigned rank, uint64_t ms)
{
    if (ms + 1 > atomic_load_explicit(&s->stream[rank].alive_at, memory_order_relaxed))
        kv_source_alive(s, rank, ms);
}

/* For other threads; after room was made, so that they never see more than fits. */
static void show_held(struct kv_source *s)
{
    atomic_store_explicit(&s->held_shown, s->held, memory_order_relaxed);
}

void kv_source_clear(struct kv_source *s, unsigned rank)
{
    struct kv_stream_state *t = &s->stream[rank];
    atomic_store_explicit(&t->block, 0, memory_order_release);
    memset(t->size, 0, sizeof t->size);
    if (!t->blocks)
        return;
    unsigned place = atomic_load_explicit(&t->place, memory_order_relaxed) - 1;
    atomic_store_explicit(&t->place, 0, memory_order_release);
    s->held -= kv_blocks_held(t->blocks);
    s->all -= kv_blocks_all(t->blocks);
    while (n_dying == DYING_MAX)
        sweep_first(SIZE_MAX);
    dying[n_dying++] = (struct dying){t->blocks, place};
    t->blocks = NULL;
    show_held(s);
}

void kv_source_stop(struct kv_source *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        kv_source_trust(s, i, false);
        kv_source_clear(s, i);
        atomic_store_explicit(&s->stream[i].alive_at, 0, memory_order_release);
    }
}

static uint64_t adapter_key(struct span name)
{
    return hash_bytes_seed(name.p, name.n, 0x61646170) | 1;
}

void kv_source_adapter(struct kv_source *s, struct span name)
{
    uint64_t key = adapter_key(name);
    for (unsigned i = 0; i < KV_ADAPTERS; i++) {
        _Atomic uint64_t *at = &s->adapter[(key / 2 + i) % KV_ADAPTERS];
        uint64_t there = atomic_load_explicit(at, memory_order_relaxed);
        if (there == key)
            return;
        if (there == 0) {
            atomic_store_explicit(at, key, memory_order_release);
            return;
        }
    }
}

bool kv_source_has_adapter(const struct kv_source *s, struct span name)
{
    uint64_t key = adapter_key(name);
    for (unsigned i = 0; i < KV_ADAPTERS; i++) {
        uint64_t there = atomic_load_explicit(&s->adapter[(key / 2 + i) % KV_ADAPTERS], memory_order_acquire);
        if (there == key || there == 0)
            return there == key;
    }
    return false;
}

/* Which size the stream's blocks have: the one that most of them had. Parts of blocks have smaller ones. */
static void count_size(struct kv_stream_state *t, unsigned tokens, unsigned overlap)
{
    uint32_t block = tokens << 1 | overlap;
    struct kv_size *last = &t->size[KV_SIZES - 1], *x = t->size;
    while (x < last && x->n > 0 && x->block != block)
        x++;
    if (x->block != block)
        *x = (struct kv_size){.block = block};
    x->n++;
    if (x != t->size && x->n > t->size[0].n) {
        struct kv_size most = *x;
        *x = t->size[0];
        t->size[0] = most;
    }
    if (atomic_load_explicit(&t->block, memory_order_relaxed) != t->size[0].block)
        atomic_store_explicit(&t->block, t->size[0].block, memory_order_release);
}

/* The rank that gives a block (R7). Its oldest one may be younger than another rank's: blocks have no room
 * for a time, by which those of two ranks could be compared. */
static unsigned fullest(const struct kv_source *s)
{
    unsigned best = 0;
    size_t most = 0;
    for (unsigned i = 0; i < s->n; i++) {
        size_t n = s->stream[i].blocks ? kv_blocks_all(s->stream[i].blocks) : 0;
        if (n > most) {
            most = n;
            best = i;
        }
    }
    return best;
}

/* The counters of a source follow those of the rank that changed. */
struct counts {
    size_t held, all;
};
static struct counts counts_of(const struct kv_blocks *b)
{
    return (struct counts){kv_blocks_held(b), kv_blocks_all(b)};
}
static void follow(struct kv_source *s, const struct kv_blocks *b, struct counts before)
{
    s->all += kv_blocks_all(b) - before.all;
    s->held += kv_blocks_held(b) - before.held;
}

/* Remembered blocks are no held ones, but take room too. */
static bool is_full(const struct kv_source *s)
{
    return s->held > s->max_blocks || s->all > s->max_blocks + s->max_blocks / 4 + 64;
}

/* True when something had to go. */
static bool make_room(struct kv_source *s)
{
    bool full = is_full(s);
    while (is_full(s)) {
        unsigned rank = fullest(s);
        struct kv_blocks *b = s->stream[rank].blocks;
        struct counts before = counts_of(b);
        bool some = kv_blocks_evict(b);
        follow(s, b, before);
        if (!some) /* they stand behind each other in a ring: nothing that an engine would say */
            kv_source_clear(s, rank);
    }
    show_held(s);
    return full;
}

static struct kv_blocks *blocks_of(struct kv_source *s, unsigned rank)
{
    struct kv_stream_state *t = &s->stream[rank];
    if (!t->blocks) {
        unsigned place = place_take();
        t->blocks = kv_blocks_new(kv_bank(place), place % KV_SLOTS);
        atomic_store_explicit(&t->place, place + 1, memory_order_release);
    }
    return t->blocks;
}

enum kv_kept kv_source_store(struct kv_source *s, unsigned rank, const struct kv_store *store,
                             unsigned tokens, unsigned overlap)
{
    CHECK(tokens >= 1 && tokens <= KV_BLOCK_TOKENS_MAX && overlap <= 1);
    struct kv_blocks *b = blocks_of(s, rank);
    struct counts before = counts_of(b);
    bool stored = kv_blocks_store(b, store);
    follow(s, b, before);
    if (!stored)
        return KV_REFUSED;
    count_size(&s->stream[rank], tokens, overlap);
    if (!make_room(s))
        return KV_KEPT;
    return kv_source_knows(s, rank, store->hash) ? KV_KEPT : KV_FULL;
}

void kv_source_store_known(struct kv_source *s, unsigned rank, uint64_t hash, enum kv_tier tier)
{
    struct kv_blocks *b = s->stream[rank].blocks;
    if (!b)
        return;
    struct counts before = counts_of(b);
    kv_blocks_store_known(b, hash, tier);
    follow(s, b, before);
    make_room(s);
}

void kv_source_remove(struct kv_source *s, unsigned rank, uint64_t hash, enum kv_tier tier)
{
    struct kv_blocks *b = s->stream[rank].blocks;
    if (!b)
        return;
    struct counts before = counts_of(b);
    kv_blocks_remove(b, hash, tier);
    follow(s, b, before);
    show_held(s);
}

bool kv_source_knows(const struct kv_source *s, unsigned rank, uint64_t hash)
{
    const struct kv_blocks *b = s->stream[rank].blocks;
    return b && kv_blocks_knows(b, hash);
}

size_t kv_source_blocks(const struct kv_source *s)
{
    return atomic_load_explicit(&s->held_shown, memory_order_relaxed);
}

size_t kv_source_bytes(const struct kv_source *s)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < s->n; i++)
        bytes += s->stream[i].blocks ? kv_blocks_bytes(s->stream[i].blocks) : 0;
    return bytes;
}

size_t kv_sources_shared_bytes(void)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < BANKS; i++) {
        const struct kv_map *m = atomic_load(&banks[i]);
        bytes += m ? kv_map_bytes(m) : 0;
    }
    return bytes;
}

/* Readers */

uint64_t kv_source_age_ms(const struct kv_source *s, uint64_t now_ms)
{
    uint64_t oldest = 0;
    for (unsigned i = 0; i < s->n; i++) {
        uint64_t at = atomic_load_explicit(&s->stream[i].alive_at, memory_order_acquire);
        if (at == 0)
            return UINT64_MAX;
        uint64_t age = now_ms >= at ? now_ms - at + 1 : 0;
        oldest = age > oldest ? age : oldest;
    }
    return oldest;
}

bool kv_source_is_fresh(const struct kv_source *s, uint64_t now_ms)
{
    for (unsigned i = 0; i < s->n; i++)
        if (kv_stream_counts(s, &s->stream[i], now_ms))
            return true;
    return false;
}
