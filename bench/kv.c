/* SPDX-License-Identifier: Apache-2.0
 *
 * What the KV block index costs.
 *
 *   bench-kv [blocks in all, default 1000000]
 *
 * Eight caches of equal size, full: each new prompt of 64 blocks of 16 tokens puts another out. One thread
 * stores and removes as a subscriber does, one picks: 8 targets, prompts of 8192 tokens (512 blocks) of which
 * a tenth to all is there. Updates are counted, picks timed, each alone and both together; and the memory of
 * a block is divided out of what the process holds.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "balance/kv_ids.h"
#include "balance/kv_source.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

enum { CACHES = 8, BS = 16, PROMPT = 64, ASKED = 512, PICKS = 20000, SECONDS = 3 };

static struct kv_source *source[CACHES];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Token <i> of prompt <p>; prompts below 100 are those that are asked for. */
static void write_block(uint32_t out[BS], uint64_t p, unsigned block)
{
    for (unsigned i = 0; i < BS; i++)
        out[i] = (uint32_t)(p * 7919 + block * BS + i);
}

static uint64_t hash_of(uint64_t p, unsigned block)
{
    return (p << 16 | block) * 0x9e3779b97f4a7c15u;
}

static void put(unsigned cache, uint64_t p, unsigned block)
{
    uint32_t t[BS];
    write_block(t, p, block);
    struct kv_store s = {.hash = hash_of(p, block),
                         .is_first = block == 0,
                         .before = block ? hash_of(p, block - 1) : 0,
                         .root = kv_root(SPAN_NONE, SPAN_NONE),
                         .digest = kv_digest(t, BS)};
    kv_source_store(source[cache], 0, &s, BS, 0);
}

struct writing {
    atomic_bool over;
    uint64_t next, updates;
    unsigned resident; /* prompts in each cache */
    double seconds;
};

/* A new prompt in, the oldest out, by the engine's word. */
static void turn(struct writing *w)
{
    unsigned cache = (unsigned)(w->next % CACHES);
    uint64_t p = 100 + w->next++, old = p - (uint64_t)w->resident * CACHES;
    for (unsigned i = 0; i < PROMPT; i++)
        put(cache, p, i);
    w->updates += PROMPT;
    if (p < 100 + (uint64_t)w->resident * CACHES)
        return;
    for (unsigned i = PROMPT; i-- > 0;)
        kv_source_remove(source[cache], 0, hash_of(old, i), KV_TIER_GPU);
    w->updates += PROMPT;
}

static void *writes(void *arg)
{
    struct writing *w = arg;
    uint64_t from = now_ns();
    w->updates = 0;
    while (!atomic_load_explicit(&w->over, memory_order_relaxed))
        turn(w);
    w->seconds = (double)(now_ns() - from) / 1e9;
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void picks(const char *name)
{
    static double us[PICKS];
    static uint32_t t[100][ASKED * BS];
    struct kv_ask ask[CACHES];
    for (unsigned i = 0; i < CACHES; i++)
        ask[i] = (struct kv_ask){source[i], "m"};
    for (unsigned p = 0; p < 100; p++)
        for (unsigned k = 0; k < ASKED; k++)
            write_block(t[p] + k * BS, p, k);
    uint64_t found = 0;
    for (unsigned i = 0; i < PICKS; i++) {
        struct token_ids ids = {.id = t[i % 100], .n = ASKED * BS};
        struct kv_share got[CACHES];
        uint64_t from = now_ns();
        kv_match(&ids, SPAN_NONE, 2, ask, CACHES, got);
        us[i] = (double)(now_ns() - from) / 1e3;
        for (unsigned k = 0; k < CACHES; k++)
            found += got[k].tokens / BS;
    }
    qsort(us, PICKS, sizeof *us, by_value);
    printf("%-28s p50 %6.1f us  p99 %6.1f us  (%.0f blocks found a pick)\n", name, us[PICKS / 2],
           us[PICKS * 99 / 100], (double)found / PICKS);
}

int main(int argc, char **argv)
{
    size_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    for (unsigned i = 0; i < CACHES; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%u", i);
        source[i] = kv_source_get(name, 1);
        kv_source_configure(source[i], blocks, 1000000);
        kv_source_alive(source[i], 0, 1);
        kv_source_trust(source[i], 0, true);
    }
    /* What is asked for: prompt p is there by a tenth to all, in two of the caches. */
    for (unsigned p = 0; p < 100; p++)
        for (unsigned k = 0; k < ASKED * (p % 10 + 1) / 10; k++) {
            put(p % CACHES, p, k);
            put((p + 3) % CACHES, p, k / 2);
        }
    struct writing w = {.resident = (unsigned)(blocks / CACHES / PROMPT)};
    while (w.next < (uint64_t)w.resident * CACHES)
        turn(&w);
    size_t held = 0, bytes = kv_sources_shared_bytes();
    for (unsigned i = 0; i < CACHES; i++) {
        held += kv_source_blocks(source[i]);
        bytes += kv_source_bytes(source[i]);
    }
    printf("blocks held                  %zu, %.1f bytes each\n", held, (double)bytes / (double)held);
    picks("picks alone");
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, writes, &w) == 0);
    struct timespec wait = {.tv_sec = SECONDS};
    nanosleep(&wait, NULL);
    atomic_store(&w.over, true);
    pthread_join(thread, NULL);
    printf("updates alone                %.2f million/s\n", (double)w.updates / w.seconds / 1e6);
    atomic_store(&w.over, false);
    CHECK(pthread_create(&thread, NULL, writes, &w) == 0);
    picks("picks while it is written");
    atomic_store(&w.over, true);
    pthread_join(thread, NULL);
    printf("updates during these picks   %.2f million/s\n", (double)w.updates / w.seconds / 1e6);
    return 0;
}
