/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory store of the response cache.
 *
 *   bench-cache-memory hits            hit ratios on Zipf traces beside LRU of the same size
 *   bench-cache-memory rss MIB INSERTS mixed bodies of 1 KiB to 1 MiB; resident memory beside memory_bytes
 *   bench-cache-memory speed THREADS   lookups of 2 KiB entries
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cache/memory.h"

#define NOW 1700000000000u

static struct cache_digest key_of(uint64_t i)
{
    struct cache_digest d;
    struct rng r;
    rng_seed(&r, i);
    for (int k = 0; k < 4; k++) {
        uint64_t v = rng_u64(&r);
        memcpy(d.b + 8 * k, &v, sizeof v);
    }
    return d;
}

static char filler[1 << 20];

static struct cache_entry *entry_of(const struct cache_purge *p, uint64_t i, size_t bytes, uint64_t scope)
{
    struct entry_facts f = {
        .key = key_of(i),
        .created_ms = NOW,
        .expires_ms = NOW + 3600000,
        .stale_until_ms = NOW + 3600000,
        .owner = {1, scope, 1},
        .content_type = SPAN("application/json"),
        .route = SPAN("gpt"),
        .provider = SPAN("east"),
        .target = SPAN("gpt-x"),
        .model = SPAN("gpt"),
    };
    usage_init(&f.usage);
    f.stamp = purge_stamp(p, &f.owner);
    return entry_new(&f, span_of(filler, bytes));
}

/* Hit ratios. */

enum { OBJECTS = 60000, REQUESTS = 1500000 };

/* From 1 to 16 KiB, most of them small; always the same for one object. */
static size_t size_of(uint64_t i)
{
    struct rng r;
    rng_seed(&r, i + 77);
    return (size_t)1024 << rng_below(&r, 5);
}

static double zipf_sum[OBJECTS];

static void zipf_make(double alpha)
{
    double sum = 0;
    for (int i = 0; i < OBJECTS; i++)
        zipf_sum[i] = sum += 1 / __builtin_pow(i + 1, alpha);
}

static uint64_t zipf_next(struct rng *r)
{
    double x = rng_unit(r) * zipf_sum[OBJECTS - 1];
    int from = 0, to = OBJECTS - 1;
    while (from < to) {
        int middle = (from + to) / 2;
        if (zipf_sum[middle] < x)
            from = middle + 1;
        else
            to = middle;
    }
    return (uint64_t)from;
}

struct lru_node {
    struct list link;
    bool in;
};
static struct lru_node lru[OBJECTS + REQUESTS];

/* What a plain list of the last used would have had, with the store's own sizes of entries. */
struct lru_cache {
    struct list list;
    size_t bytes, budget;
    uint64_t hits;
};

static void lru_ask(struct lru_cache *c, uint64_t i, size_t bytes)
{
    struct lru_node *n = &lru[i];
    if (n->in) {
        c->hits++;
        list_remove(&n->link);
    } else {
        c->bytes += bytes;
        n->in = true;
    }
    list_push(&c->list, &n->link);
    while (c->bytes > c->budget) {
        struct list *old = list_pop(&c->list);
        uint64_t k = (uint64_t)(LIST_ITEM(old, struct lru_node, link) - lru);
        LIST_ITEM(old, struct lru_node, link)->in = false;
        c->bytes -= size_of(k) + 480;
    }
}

/* <scan>: the share of requests that ask for something that is never asked for again. */
static void hit_ratio(double alpha, double share, double scan)
{
    uint64_t footprint = 0;
    for (uint64_t i = 0; i < OBJECTS; i++)
        footprint += size_of(i) + 480;
    struct cache_purge *p = purge_new();
    struct memory_options o = {(uint64_t)(share * (double)footprint), 16384, p};
    struct cache_memory *m = memory_new(&o);
    struct lru_cache l = {.budget = o.memory_bytes};
    struct rng r;
    uint64_t hits = 0, once = OBJECTS;
    memset(lru, 0, sizeof lru);
    list_init(&l.list);
    rng_seed(&r, 5);
    zipf_make(alpha);
    for (int n = 0; n < REQUESTS; n++) {
        uint64_t i = scan > 0 && rng_unit(&r) < scan ? once++ : zipf_next(&r);
        struct cache_digest key = key_of(i);
        struct cache_entry *e = memory_get(m, &key, NOW);
        hits += e != NULL;
        if (!e) {
            e = entry_of(p, i, size_of(i), 1);
            if (memory_put(m, e, NOW) != MEMORY_STORED)
                abort();
        }
        entry_unref(e);
        lru_ask(&l, i, size_of(i) + 480);
    }
    printf("alpha %.1f, memory %4.1f%% of all, scan %2.0f%%: %5.2f%% hits, LRU %5.2f%%\n", alpha, 100 * share,
           100 * scan, 100.0 * (double)hits / REQUESTS, 100.0 * (double)l.hits / REQUESTS);
    memory_free(m);
    purge_free(p);
}

static int run_hits(void)
{
    static const double alphas[] = {0.7, 0.9, 1.1}, shares[] = {0.01, 0.05, 0.2};
    for (size_t a = 0; a < ARRAY_LEN(alphas); a++)
        for (size_t s = 0; s < ARRAY_LEN(shares); s++)
            for (int scan = 0; scan < 2; scan++)
                hit_ratio(alphas[a], shares[s], 0.3 * scan);
    return 0;
}

/* Resident memory. */

static size_t resident(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*u %lu", &pages) != 1)
        abort();
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void report_rss(struct cache_memory *m, uint64_t inserts, const struct memory_options *o, size_t now,
                       size_t least, size_t most)
{
    struct memory_stats s;
    double all = (double)o->memory_bytes / 100;
    memory_stats(m, &s);
    printf(
        "%llu inserts into %llu MiB: %llu entries, counted %.1f%%, resident %.1f%% of memory_bytes (%.1f to "
        "%.1f%% since it was full)\n",
        (unsigned long long)inserts, (unsigned long long)(o->memory_bytes >> 20),
        (unsigned long long)s.entries, (double)s.bytes / all, (double)now / all, (double)least / all,
        (double)most / all);
    fflush(stdout);
}

static int run_rss(uint64_t mib, uint64_t inserts)
{
    struct cache_purge *p = purge_new();
    struct memory_options o = {mib << 20, 1 << 20, p};
    struct cache_memory *m = memory_new(&o);
    struct rng r;
    memset(filler, 'x', sizeof filler);
    rng_seed(&r, 1);
    size_t before = resident(), most = 0, least = SIZE_MAX;
    for (uint64_t i = 0; i < inserts; i++) {
        /* As many from 1 to 2 KiB as from 512 KiB to 1 MiB. */
        size_t bytes = (size_t)1024 << rng_below(&r, 10);
        bytes += rng_below(&r, bytes);
        struct cache_entry *e = entry_of(p, i, bytes, i % 7);
        if (memory_put(m, e, NOW) != MEMORY_STORED)
            abort();
        entry_unref(e);
        if (i > 10000 && i % 1000 == 0) {
            size_t now = resident() - before;
            most = now > most ? now : most;
            least = now < least ? now : least;
            if (i % 1000000 == 0)
                report_rss(m, i, &o, now, least, most);
        }
    }
    report_rss(m, inserts, &o, resident() - before, least, most);
    memory_free(m);
    purge_free(p);
    return 0;
}

/* Lookups. */

enum { SPEED_ENTRIES = 20000, SPEED_LOOKUPS = 2000000 };

static struct cache_memory *shared;
static struct cache_digest speed_keys[SPEED_ENTRIES];

static void *look_up(void *arg)
{
    struct rng r;
    rng_seed(&r, (uint64_t)(uintptr_t)arg);
    for (int i = 0; i < SPEED_LOOKUPS; i++) {
        struct cache_entry *e = memory_get(shared, &speed_keys[rng_below(&r, SPEED_ENTRIES)], NOW);
        if (!e)
            abort();
        entry_unref(e);
    }
    return NULL;
}

static int run_speed(unsigned threads)
{
    struct cache_purge *p = purge_new();
    struct memory_options o = {256 << 20, 1 << 20, p};
    shared = memory_new(&o);
    for (uint64_t i = 0; i < SPEED_ENTRIES; i++) {
        struct cache_entry *e = entry_of(p, i, 2048, 1);
        speed_keys[i] = key_of(i);
        if (memory_put(shared, e, NOW) != MEMORY_STORED)
            abort();
        entry_unref(e);
    }
    pthread_t *t = mem_array(threads, sizeof *t);
    uint64_t start = clock_mono_us();
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&t[i], NULL, look_up, (void *)(uintptr_t)(i + 1)))
            abort();
    for (unsigned i = 0; i < threads; i++)
        pthread_join(t[i], NULL);
    double us = (double)(clock_mono_us() - start);
    printf("%u threads: %.0f ns a lookup, %.1f million a second in all\n", threads, us * 1000 / SPEED_LOOKUPS,
           threads * (double)SPEED_LOOKUPS / us);
    free(t);
    memory_free(shared);
    purge_free(p);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "hits"))
        return run_hits();
    if (argc == 4 && !strcmp(argv[1], "rss"))
        return run_rss(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10));
    if (argc == 3 && !strcmp(argv[1], "speed"))
        return run_speed((unsigned)strtoul(argv[2], NULL, 10));
    fprintf(stderr, "bench-cache-memory hits | rss MIB INSERTS | speed THREADS\n");
    return 2;
}
