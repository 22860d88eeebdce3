/* SPDX-License-Identifier: Apache-2.0
 *
 * What a pick of least_prefill costs: bench-blocks [milliseconds per figure, default 300].
 *
 * Mirrors of 62,500 blocks each (1,000,000 tokens) are full of conversations that share their first KiB.
 * Prompts:
 * - hash: making the block keys of a prompt, which the reading of the body does
 * - warm: the target has all of it; a conversation's next turn is that and some blocks
 * - turn: the target has all but the last 2 KiB (of 2 KiB: 512 bytes)
 * - cold: the target has the shared KiB only, and puts out as much
 * For each: "pick", balance_pick (match over all targets, weighing, charging), which the request waits for,
 * and "rec", balance_record and the charge given back, which come after it was sent. They take turns, as they
 * do in a gateway, and are timed one by one, the clock's 30 ns included: medians, so that what interrupts a
 * few does not count. `allocated`: bytes, by both.
 *
 * Then two threads that pick at the same pool against one alone, and the same with recordings, while another
 * puts 200,000 blocks a second into the mirrors in either case: picks for a second of a picking thread's CPU
 * time, so that it does not matter how many CPUs there are, and how often such a thread had to sleep on a
 * lock in 1,000 picks.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "balance/balance.h"
#include "balance/block_chain.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "fleet/fleet.h"
#include "fleet/prefill.h"

enum {
    CACHE_BLOCKS = 62500,
    SHARED = 16,
    TARGETS_MAX = 64,
    BATCH = 64,
    BATCHES_MAX = 20000,
    SAMPLES_MAX = 1 << 20
};

/* jemalloc's count of this thread. */
__attribute__((weak)) int mallctl(const char *name, void *old, size_t *old_len, void *set, size_t set_len);

static uint64_t allocated(void)
{
    uint64_t n = 0;
    size_t size = sizeof n;
    if (!mallctl || mallctl("thread.allocated", &n, &size, NULL, 0) != 0)
        return 0;
    return n;
}

/* Of this thread: the machine may have other work. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

struct bed {
    struct fleet *fleet;
    struct balancer *balancer;
    unsigned targets;
    uint32_t blocks;   /* of a prompt */
    uint64_t resident; /* prompts */
};

/* Key <i> of prompt <id>: what all share, then its own. */
static void write_keys(uint64_t *keys, uint32_t from, uint32_t n, uint64_t id)
{
    for (uint32_t i = from; i < n; i++)
        keys[i] = (hash_mix(i < SHARED ? 7 : id, i) ^ 0x5bd1e995) | 1;
}

static void context_init(struct pick_context *c, const struct bed *b, struct rng *rng)
{
    *c = (struct pick_context){.rng = rng, .now_ms = 1, .now_us = 1000, .blocks.n = b->blocks};
    c->blocks.bytes = (uint64_t)b->blocks * BLOCK_BYTES;
    target_set_init(&c->allowed, b->targets, NULL);
    target_set_init(&c->eligible, b->targets, NULL);
    for (unsigned i = 0; i < b->targets; i++) {
        target_set_add(&c->allowed, i);
        target_set_add(&c->eligible, i);
    }
}

/* The pick, and what it leaves for later. */
static void pick_once(const struct bed *b, struct pick_context *c, const uint64_t *keys,
                      struct pick_receipt *ret)
{
    c->blocks.key = keys;
    struct pick p = balance_pick(b->balancer, c);
    CHECK(p.index >= 0);
    *ret = p.receipt;
}

static void record_once(const struct bed *b, struct pick_context *c, const uint64_t *keys,
                        struct pick_receipt *r)
{
    c->blocks.key = keys;
    balance_record(b->balancer, &c->blocks, r);
    balance_first_token(b->balancer, r, c->now_us, false);
}

static void bed_open(struct bed *b, unsigned targets, uint32_t blocks)
{
    struct pool_target pool[TARGETS_MAX];
    *b = (struct bed){.fleet = fleet_new(0), .targets = targets, .blocks = blocks};
    for (unsigned i = 0; i < targets; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%u", i);
        pool[i] =
            (struct pool_target){.target = fleet_target_get(b->fleet, name, "http://x", "m"),
                                 .weight = 1,
                                 .cache_tokens = (uint64_t)CACHE_BLOCKS * BLOCK_BYTES / BYTES_PER_TOKEN};
    }
    b->balancer = balancer_new(STRATEGY_LEAST_PREFILL, pool, targets, NULL, NULL);
    uint64_t *keys = mem_array(blocks, sizeof *keys);
    write_keys(keys, 0, blocks, 0);
    b->resident = (uint64_t)CACHE_BLOCKS * targets / (blocks > 2 * SHARED ? blocks : 2 * SHARED);
    for (uint64_t i = 0; i < b->resident + b->resident / 4; i++) {
        write_keys(keys, SHARED, blocks, i);
        balance_place(b->balancer, &(struct placement){.target = target_identity(pool[i % targets].target),
                                                       .n = blocks,
                                                       .keys = keys});
    }
    b->resident += b->resident / 4;
    free(keys);
}

static void bed_close(struct bed *b)
{
    balancer_unref(b->balancer);
    fleet_free(b->fleet);
}

enum kind { WARM, TURN, COLD };

/* Prompts of one batch, made before the clock runs. Those that are said to be known are among the newest. */
struct batch {
    const struct bed *bed;
    uint64_t *keys[BATCH];
    uint64_t next;
    struct rng rng;
    struct pick_context c;
};

static void batch_init(struct batch *x, const struct bed *b, uint64_t seed)
{
    x->bed = b;
    x->next = seed << 40;
    rng_seed(&x->rng, seed);
    context_init(&x->c, b, &x->rng);
    for (unsigned i = 0; i < BATCH; i++)
        x->keys[i] = mem_array(b->blocks, sizeof *x->keys[i]);
}

static void batch_fini(struct batch *x)
{
    for (unsigned i = 0; i < BATCH; i++)
        free(x->keys[i]);
}

static void batch_fill(struct batch *x, enum kind kind)
{
    uint32_t n = x->bed->blocks, tail = n > 64 ? 32 : 8;
    for (unsigned i = 0; i < BATCH; i++) {
        uint64_t old = x->bed->resident - 1 - rng_below(&x->rng, x->bed->resident / 4);
        write_keys(x->keys[i], 0, n, kind == COLD ? ++x->next : old);
        if (kind == TURN)
            write_keys(x->keys[i], n - tail, n, ++x->next);
    }
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double quantile(double *v, size_t n, double q)
{
    qsort(v, n, sizeof *v, by_size);
    return v[(size_t)(q * (double)n)];
}

struct figure {
    double pick, record; /* nanoseconds */
    uint64_t allocated;
};

static struct figure measure(const struct bed *b, enum kind kind, uint64_t ms)
{
    static double pick[SAMPLES_MAX], record[SAMPLES_MAX];
    struct figure f = {0};
    struct batch x;
    batch_init(&x, b, 2 + (uint64_t)kind);
    size_t n = 0;
    for (uint64_t begin = cpu_ns(); n < SAMPLES_MAX && (n < 5 * BATCH || cpu_ns() - begin < ms * 1000000);) {
        batch_fill(&x, kind);
        uint64_t had = allocated();
        for (unsigned i = 0; i < BATCH; i++, n++) {
            struct pick_receipt r;
            uint64_t t0 = wall_ns();
            pick_once(b, &x.c, x.keys[i], &r);
            uint64_t t1 = wall_ns();
            record_once(b, &x.c, x.keys[i], &r);
            pick[n] = (double)(t1 - t0);
            record[n] = (double)(wall_ns() - t1);
        }
        if (n > BATCH) /* notes may still grow with a new kind of prompt */
            f.allocated += allocated() - had;
    }
    batch_fini(&x);
    f.pick = quantile(pick, n, 0.5);
    f.record = quantile(record, n, 0.5);
    return f;
}

static double measure_hash(uint32_t blocks, uint64_t ms)
{
    static double ns[BATCHES_MAX];
    size_t bytes = (size_t)blocks * BLOCK_BYTES, n = 0;
    char *text = mem_alloc(bytes);
    uint64_t *keys = mem_array(blocks, sizeof *keys);
    memset(text, 'x', bytes);
    for (uint64_t begin = cpu_ns(); n < BATCHES_MAX && cpu_ns() - begin < ms * 1000000; n++) {
        uint64_t at = cpu_ns();
        for (unsigned i = 0; i < BATCH; i++) {
            struct block_chain c;
            text[i] ^= 1;
            block_chain_begin(&c, i, keys, blocks);
            block_chain_feed(&c, text, bytes);
        }
        ns[n] = (double)(cpu_ns() - at) / BATCH;
    }
    free(text);
    free(keys);
    return quantile(ns, n, 0.1);
}

/* Threads */

struct crowd {
    const struct bed *bed;
    uint64_t rate; /* blocks a second that the writer puts in */
    bool records;
    atomic_bool stop;
    atomic_uint seed;
    _Atomic uint64_t picks, blocks, cpu_ns, sleeps;
};

static void *picker(void *arg)
{
    struct crowd *c = arg;
    struct batch x;
    batch_init(&x, c->bed, 10 + atomic_fetch_add(&c->seed, 1));
    batch_fill(&x, TURN);
    uint64_t begin = cpu_ns();
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        for (unsigned i = 0; i < BATCH; i++) {
            struct pick_receipt r;
            pick_once(c->bed, &x.c, x.keys[i], &r);
            if (c->records)
                record_once(c->bed, &x.c, x.keys[i], &r);
            else
                balance_first_token(c->bed->balancer, &r, x.c.now_us, false);
        }
        atomic_fetch_add(&c->picks, BATCH);
    }
    atomic_fetch_add(&c->cpu_ns, cpu_ns() - begin);
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    atomic_fetch_add(&c->sleeps, (uint64_t)u.ru_nvcsw);
    batch_fini(&x);
    return NULL;
}

/* What another gateway tells: 32 blocks at a time. */
static void *writer(void *arg)
{
    struct crowd *c = arg;
    enum { AT_ONCE = SHARED + 32 };
    uint64_t keys[AT_ONCE], begin = wall_ns(), done = 0;
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        while (done < (wall_ns() - begin) / 1000 * c->rate / 1000000) {
            unsigned to = (unsigned)(done / 32 % c->bed->targets);
            write_keys(keys, 0, AT_ONCE, done | (uint64_t)1 << 60);
            balance_place(c->bed->balancer, &(struct placement){.target = target_identity(
                                                                    balancer_target(c->bed->balancer, to)),
                                                                .n = AT_ONCE,
                                                                .keys = keys});
            done += 32;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    atomic_store(&c->blocks, done);
    return NULL;
}

struct rate {
    double picks, sleeps; /* picks a second of CPU time; sleeps in 1,000 picks */
};

static struct rate crowd_run(const struct bed *b, unsigned threads, uint64_t rate, bool records, uint64_t ms)
{
    struct crowd c = {.bed = b, .rate = rate, .records = records};
    pthread_t pickers[2], w;
    CHECK(pthread_create(&w, NULL, writer, &c) == 0);
    for (unsigned i = 0; i < threads; i++)
        CHECK(pthread_create(&pickers[i], NULL, picker, &c) == 0);
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
    atomic_store(&c.stop, true);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(pickers[i], NULL);
    pthread_join(w, NULL);
    double picks = (double)atomic_load(&c.picks);
    return (struct rate){picks / ((double)atomic_load(&c.cpu_ns) / threads / 1e9),
                         (double)atomic_load(&c.sleeps) * 1000 / picks};
}

/* One and two take turns, so that what else the machine does hits both. */
static void scaling(const struct bed *b, bool records, uint64_t ms)
{
    enum { ROUNDS = 9 };
    double ratio[ROUNDS], sleeps[ROUNDS];
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct rate one = crowd_run(b, 1, 200000, records, ms), two = crowd_run(b, 2, 200000, records, ms);
        ratio[i] = two.picks / one.picks;
        sleeps[i] = two.sleeps;
    }
    printf(
        "%8u %8u   two threads against one%s, with 200,000 updates a second: %.2fx; sleeps in 1,000 picks: "
        "%.2f\n",
        b->blocks * BLOCK_BYTES, b->targets, records ? " that record as well" : "",
        quantile(ratio, ROUNDS, 0.5), quantile(sleeps, ROUNDS, 0.5));
}

int main(int argc, char **argv)
{
    uint64_t ms = argc > 1 ? strtoull(argv[1], NULL, 10) : 300;
    static const uint32_t sizes[] = {32, 2048};
    static const unsigned targets[] = {8, 64};
    static const char *const names[] = {[WARM] = "warm", [TURN] = "turn", [COLD] = "cold"};
    printf("%8s %8s %8s", "bytes", "targets", "hash");
    for (enum kind k = WARM; k <= COLD; k++)
        printf("  %s: %7s %7s", names[k], "pick", "rec");
    printf("   allocated   microseconds\n");
    for (unsigned s = 0; s < ARRAY_LEN(sizes); s++)
        for (unsigned t = 0; t < ARRAY_LEN(targets); t++) {
            struct bed b;
            uint64_t bytes = 0;
            bed_open(&b, targets[t], sizes[s]);
            printf("%8u %8u %8.2f", sizes[s] * BLOCK_BYTES, targets[t],
                   measure_hash(sizes[s], ms / 4) / 1000);
            for (enum kind k = WARM; k <= COLD; k++) {
                struct figure f = measure(&b, k, ms);
                printf("        %7.2f %7.2f", f.pick / 1000, f.record / 1000);
                bytes += f.allocated;
            }
            printf("   %9llu\n", (unsigned long long)bytes);
            bed_close(&b);
            bed_open(&b, targets[t], sizes[s]);
            scaling(&b, false, ms);
            scaling(&b, true, ms);
            bed_close(&b);
        }
    return 0;
}
