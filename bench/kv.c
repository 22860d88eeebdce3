/* SPDX-License-Identifier: Apache-2.0
 *
 * What the KV block index costs.
 *
 *   bench-kv [blocks in all, default 1000000] [updates a second, default 500000] [scattered]
 *
 * Eight caches of equal size, full: each new prompt of 64 blocks of 16 tokens puts another out, 128 updates
 * in a burst as an engine's batch brings them. One thread stores and removes as a subscriber does, one picks:
 * 8 targets, prompts of 8192 tokens (512 blocks) of which a tenth to all is there, so that p99 is that of the
 * whole prompt. Picks are timed alone and beside the writer, at the given pace and as fast as it goes.
 *
 * Blocks of a prompt were stored one after the other; with `scattered` by turns with those of the other
 * prompts, so that no two of them are neighbours in memory: what very many replies that are written at the
 * same time lead to.
 *
 * What the machine itself takes for that (caches and memory that two cores share) shows the control: the
 * same updates go to eight other caches of the same size, whose index no pick reads. Thread CPU time stands
 * beside the time by the clock: a pick that was preempted shows in one only. Figures are medians over rounds
 * in which all take turns. The memory of a block is divided out of what the index holds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "balance/kv_ids.h"
#include "balance/kv_parts.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

enum { CACHES = 8, BS = 16, PROMPT = 64, ASKED = 512, PROMPTS = 100, PICKS = 10000, ROUNDS = 5 };

/* Eight that picks ask, eight that none does; these are in another bank. */
static struct kv_source *source[2][CACHES];
static uint32_t asked[PROMPTS][ASKED * BS];

static uint64_t time_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
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

static void put(struct kv_source *in, uint64_t p, unsigned block)
{
    uint32_t t[BS];
    write_block(t, p, block);
    struct kv_store s = {.hash = hash_of(p, block),
                         .is_first = block == 0,
                         .before = block ? hash_of(p, block - 1) : 0,
                         .root = kv_root(SPAN_NONE, SPAN_NONE),
                         .digest = kv_digest(t, BS)};
    kv_source_store(in, 0, &s, BS, 0);
}

struct writing {
    struct kv_source **to; /* CACHES of them */
    atomic_bool over;
    uint64_t next, updates;
    uint64_t pace;     /* a second; 0 = as fast as it goes */
    unsigned resident; /* prompts in each cache */
    double seconds, cpu_seconds;
};

/* A new prompt in, the oldest out, by the engine's word. */
static void turn(struct writing *w)
{
    struct kv_source *to = w->to[w->next % CACHES];
    uint64_t p = PROMPTS + w->next++, old = p - (uint64_t)w->resident * CACHES;
    for (unsigned i = 0; i < PROMPT; i++)
        put(to, p, i);
    w->updates += PROMPT;
    if (p < PROMPTS + (uint64_t)w->resident * CACHES)
        return;
    for (unsigned i = PROMPT; i-- > 0;)
        kv_source_remove(to, 0, hash_of(old, i), KV_TIER_GPU);
    w->updates += PROMPT;
}

static void *writes(void *arg)
{
    struct writing *w = arg;
    uint64_t from = time_ns(CLOCK_MONOTONIC), now = from, cpu = time_ns(CLOCK_THREAD_CPUTIME_ID), idle = 0;
    w->updates = 0;
    while (!atomic_load_explicit(&w->over, memory_order_relaxed)) {
        uint64_t due = w->pace ? from + w->updates * 1000000000 / w->pace : 0;
        now = time_ns(CLOCK_MONOTONIC);
        if (now < due) { /* in a loop: a wake-up takes longer than the pause */
            idle -= time_ns(CLOCK_THREAD_CPUTIME_ID);
            while (time_ns(CLOCK_MONOTONIC) < due)
                ;
            idle += time_ns(CLOCK_THREAD_CPUTIME_ID);
        }
        turn(w);
    }
    w->seconds = (double)(time_ns(CLOCK_MONOTONIC) - from) / 1e9;
    w->cpu_seconds = (double)(time_ns(CLOCK_THREAD_CPUTIME_ID) - cpu - idle) / 1e9;
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double part(double *of, unsigned n, double share)
{
    qsort(of, n, sizeof *of, by_value);
    return of[(unsigned)(n * share)];
}

enum { WALL_50, WALL_99, CPU_50, CPU_99, UPDATES, UPDATE_NS, FIGURES };

static void picks(double ret[FIGURES])
{
    static double wall[PICKS], cpu[PICKS];
    struct kv_ask ask[CACHES];
    for (unsigned i = 0; i < CACHES; i++)
        ask[i] = (struct kv_ask){source[0][i], "m"};
    for (unsigned i = 0; i < PICKS; i++) {
        struct token_ids ids = {.id = asked[i % PROMPTS], .n = ASKED * BS};
        struct kv_share got[CACHES];
        uint64_t cpu_from = time_ns(CLOCK_THREAD_CPUTIME_ID), from = time_ns(CLOCK_MONOTONIC);
        kv_match(&ids, SPAN_NONE, 2, ask, CACHES, got);
        wall[i] = (double)(time_ns(CLOCK_MONOTONIC) - from) / 1e3;
        cpu[i] = (double)(time_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_from) / 1e3;
        unsigned p = i % PROMPTS;
        CHECK(got[p % CACHES].tokens / BS == ASKED * (p % 10 + 1) / 10);
    }
    ret[WALL_50] = part(wall, PICKS, 0.5);
    ret[WALL_99] = part(wall, PICKS, 0.99);
    ret[CPU_50] = part(cpu, PICKS, 0.5);
    ret[CPU_99] = part(cpu, PICKS, 0.99);
}

/* Picks beside <w>, NULL = alone. */
static void round_of(struct writing *w, uint64_t pace, double ret[FIGURES])
{
    pthread_t thread;
    if (w) {
        w->pace = pace;
        atomic_store(&w->over, false);
        CHECK(pthread_create(&thread, NULL, writes, w) == 0);
    }
    picks(ret);
    if (!w)
        return;
    atomic_store(&w->over, true);
    pthread_join(thread, NULL);
    ret[UPDATES] = (double)w->updates / w->seconds;
    ret[UPDATE_NS] = w->cpu_seconds * 1e9 / (double)w->updates;
}

/* Prompt p is there by a tenth to all, in two of the caches. */
static void put_asked(struct kv_source **to, unsigned p, unsigned k)
{
    if (k >= ASKED * (p % 10 + 1) / 10)
        return;
    put(to[p % CACHES], p, k);
    put(to[(p + 3) % CACHES], p, k / 2);
}

static void fill_asked(struct kv_source **to, bool scattered)
{
    if (scattered)
        for (unsigned k = 0; k < ASKED; k++)
            for (unsigned p = 0; p < PROMPTS; p++)
                put_asked(to, p * 37 % PROMPTS, k);
    else
        for (unsigned p = 0; p < PROMPTS; p++)
            for (unsigned k = 0; k < ASKED; k++)
                put_asked(to, p, k);
}

static void fill(struct writing *w, struct kv_source **to, const char *name, size_t blocks, bool scattered)
{
    for (unsigned i = 0; i < CACHES; i++) {
        char full[32];
        snprintf(full, sizeof full, "%s%u", name, i);
        to[i] = kv_source_get(full, 1);
        kv_source_configure(to[i], blocks, 1000000);
        kv_source_alive(to[i], 0, 1);
        kv_source_trust(to[i], 0, true);
    }
    fill_asked(to, scattered);
    *w = (struct writing){.to = to, .resident = (unsigned)(blocks / CACHES / PROMPT)};
    while (w->next < (uint64_t)w->resident * CACHES)
        turn(w);
}

/* The slots of the first bank that are left. */
static void fill_bank(void)
{
    for (unsigned i = CACHES; i < KV_SLOTS; i++) {
        char name[32];
        snprintf(name, sizeof name, "filler%u", i);
        struct kv_source *s = kv_source_get(name, 1);
        kv_source_configure(s, 64, 1000000);
        put(s, 1, 0);
    }
}

static void show_memory(void)
{
    size_t held = 0, bytes = kv_sources_shared_bytes();
    for (unsigned i = 0; i < 2 * CACHES; i++) {
        held += kv_source_blocks(source[i / CACHES][i % CACHES]);
        bytes += kv_source_bytes(source[i / CACHES][i % CACHES]);
    }
    printf("%zu blocks held, %.1f bytes each\n", held, (double)bytes / (double)held);
}

/* Pages that were never written cost more, the first time: all blocks go round once. */
static void go_round(struct writing *w)
{
    for (uint64_t i = 0; i < (uint64_t)w->resident * CACHES; i++)
        turn(w);
}

int main(int argc, char **argv)
{
    size_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
    uint64_t pace = argc > 2 ? strtoull(argv[2], NULL, 10) : 500000;
    for (unsigned p = 0; p < PROMPTS; p++)
        for (unsigned k = 0; k < ASKED; k++)
            write_block(asked[p] + k * BS, p, k);
    static struct writing mine, other;
    bool scattered = argc > 3 && strcmp(argv[3], "scattered") == 0;
    fill(&mine, source[0], "mine", blocks, scattered);
    fill_bank();
    fill(&other, source[1], "other", blocks, scattered);
    show_memory();
    go_round(&mine);
    go_round(&other);
    const struct {
        const char *name;
        struct writing *w;
        uint64_t pace;
    } load[] = {{"alone", NULL, 0},
                {"beside paced updates", &mine, pace},
                {"  control: of another index", &other, pace},
                {"beside updates, unpaced", &mine, 0},
                {"  control: of another index", &other, 0}};
    enum { LOADS = sizeof load / sizeof *load };
    static double figure[LOADS][FIGURES][ROUNDS];
    for (unsigned r = 0; r < ROUNDS; r++)
        for (unsigned l = 0; l < LOADS; l++) {
            double f[FIGURES] = {0};
            round_of(load[l].w, load[l].pace, f);
            for (unsigned k = 0; k < FIGURES; k++)
                figure[l][k][r] = f[k];
        }
    printf("%-30s %8s %8s %8s %8s %12s %10s\n", "picks, us", "p50", "p99", "cpu p50", "cpu p99", "updates/s",
           "ns CPU each");
    for (unsigned l = 0; l < LOADS; l++) {
        double m[FIGURES];
        for (unsigned k = 0; k < FIGURES; k++)
            m[k] = part(figure[l][k], ROUNDS, 0.5);
        printf("%-30s %8.1f %8.1f %8.1f %8.1f %12.0f %10.0f\n", load[l].name, m[WALL_50], m[WALL_99],
               m[CPU_50], m[CPU_99], m[UPDATES], m[UPDATE_NS]);
    }
    return 0;
}
