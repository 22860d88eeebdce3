/* SPDX-License-Identifier: Apache-2.0
 *
 * What the prefix index costs.
 *
 *   bench-prefix [picks per figure, default 4000]   nanoseconds per match and per recording (of the index
 *                                                   alone) and per pick (cache_aware: match, loads, choice,
 *                                                   recording), one and two threads, memory
 *   bench-prefix one [picks]                        the first of these only
 *   bench-prefix flat [prompts, default 10000000]   memory under endless prompts, none like the other
 *
 * Prompts begin with 512 bytes that all share. Kinds:
 * - warm: resident in full; recording is a refresh
 * - turn: goes on behind a resident prompt of half its length, as a conversation does
 * - fork: parts from a resident prompt in its middle; the worst case: a node is split
 * - cold: only what all share is resident
 * A full index is at its cap for every target (256 MiB together), as much has been put out of it before, and
 * its texts lie far from the caches. What is recorded goes to the target that has most of it. A pick starts
 * with the prompt in the cache, as in the gateway, where it has just been read. `memcmp` compares the
 * resident bytes of the same prompts with copies that lie about in memory in the same way; `memcpy` writes
 * the new bytes over such copies. goal = 3 memcmp + 1000; marked: a pick above it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "balance/balance.h"
#include "balance/epoch.h"
#include "balance/strategy.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "fleet/fleet.h"

enum { SHARED = 512, TARGETS_MAX = 64, TOTAL_MIB = 256, THREADS_MAX = 2 };
enum kind { WARM, TURN, FORK, COLD, KINDS };
static const char *const KIND[] = {"warm", "turn", "fork", "cold"};

struct bed {
    struct fleet *fleet;
    struct balancer *balancer;
    struct prefix_index *ix; /* the balancer's */
    uint32_t slot[TARGETS_MAX];
    unsigned targets;
    uint32_t bytes;    /* of a prompt that is picked */
    uint32_t recorded; /* of a resident one */
    unsigned resident; /* prompts 0 .. resident-1 are; prompt i is at target i % targets */
    char **copies;     /* of the resident prompts */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Prompt <id>: its own text from SHARED on, another's own text from <own> on. */
static void write_prompt(char *ret, uint32_t bytes, uint64_t id, uint32_t own_from, uint64_t own)
{
    struct rng r;
    memset(ret, 's', SHARED);
    rng_seed(&r, id);
    for (uint32_t i = SHARED; i < bytes; i += 8) {
        if (i >= own_from && i < own_from + 8)
            rng_seed(&r, own);
        uint64_t x = (rng_u64(&r) & 0x0f0f0f0f0f0f0f0f) | 0x6060606060606060;
        memcpy(ret + i, &x, 8);
    }
}

enum { OWN_START = 1u << 30, FILL_START = 1u << 29 };

static void bed_fini(struct bed *b)
{
    for (unsigned i = 0; i < b->targets; i++)
        prefix_slot_put(b->ix, b->slot[i]);
    balancer_unref(b->balancer);
    fleet_free(b->fleet);
    for (unsigned i = 0; i < b->resident; i++)
        free(b->copies[i]);
    free(b->copies);
    epoch_drain();
}

/* With prompts that will be put out again by the resident ones: an index is not always new. */
static void fill(struct bed *b)
{
    char *text = mem_alloc(b->bytes);
    for (unsigned i = 0; i < b->resident; i++) {
        write_prompt(text, b->bytes, FILL_START + i, b->bytes, 0);
        prefix_record(b->ix, b->slot[i % b->targets], span_of(text, b->bytes), NULL);
    }
    free(text);
}

static void bed_init(struct bed *b, unsigned targets, uint32_t bytes, enum kind kind, bool full)
{
    uint64_t cap = (uint64_t)TOTAL_MIB * 1024 * 1024 / targets;
    *b = (struct bed){.targets = targets, .bytes = bytes, .recorded = kind == TURN ? bytes / 2 : bytes};
    struct pool_target pool[TARGETS_MAX];
    struct strategy_settings settings = STRATEGY_SETTINGS_DEFAULT;
    settings.limits = (struct prefix_limits){.max_nodes = 1000000, .max_bytes = cap};
    b->fleet = fleet_new(0);
    for (unsigned i = 0; i < targets; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%u", i);
        pool[i] = (struct pool_target){.target = fleet_target_get(b->fleet, name, "http://h", "m")};
    }
    b->balancer = balancer_new(STRATEGY_CACHE_AWARE, pool, targets, &settings, NULL);
    b->ix = b->balancer->prompts;
    for (unsigned i = 0; i < targets; i++)
        b->slot[i] = prefix_slot_get(b->ix, target_identity(pool[i].target));
    b->resident = full ? (unsigned)(cap / (b->recorded - SHARED + 250)) * targets : 1;
    b->copies = mem_array(b->resident, sizeof *b->copies);
    if (full)
        fill(b);
    for (unsigned i = 0; i < b->resident; i++) {
        b->copies[i] = mem_alloc(bytes);
        write_prompt(b->copies[i], bytes, i, b->recorded, i);
        prefix_record(b->ix, b->slot[i % targets], span_of(b->copies[i], b->recorded), NULL);
    }
}

struct figures {
    double p50, p99;
};

static int by_size(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static struct figures figures_of(uint64_t *ns, unsigned n)
{
    qsort(ns, n, sizeof *ns, by_size);
    return (struct figures){(double)ns[n / 2], (double)ns[n - 1 - n / 100]};
}

/* Chooses and writes a prompt; what of it is resident. */
static uint32_t next_prompt(const struct bed *b, enum kind kind, struct rng *r, char *text, unsigned *ret_id)
{
    static atomic_ulong fresh = OWN_START;
    /* Of the younger half: the older ones are put out by what is picked. */
    *ret_id = b->resident / 2 + (unsigned)rng_below(r, (b->resident + 1) / 2);
    uint32_t own = kind == WARM ? b->bytes : kind == COLD ? SHARED : b->bytes / 2;
    write_prompt(text, b->bytes, *ret_id, own, kind == WARM ? 0 : atomic_fetch_add(&fresh, 1));
    return own;
}

static void match(const struct bed *b, struct span prompt)
{
    struct prefix_hit hits[TARGETS_MAX];
    prefix_match(b->ix, prompt, b->slot, b->targets, hits);
}

static void pick(const struct bed *b, struct span prompt, struct rng *rng)
{
    struct pick_context c = {.prompt = prompt, .prompt_len = prompt.n, .now_ms = 1, .rng = rng};
    target_set_init(&c.allowed, b->targets, NULL);
    target_set_init(&c.eligible, b->targets, NULL);
    c.allowed.one = c.eligible.one = b->targets == 64 ? UINT64_MAX : ((uint64_t)1 << b->targets) - 1;
    CHECK(balance_pick(b->balancer, &c).index >= 0);
}

/* The match that a recording follows is not its time. */
static uint64_t record(const struct bed *b, struct span prompt)
{
    struct prefix_hit hits[TARGETS_MAX];
    unsigned best = 0;
    prefix_section_begin();
    prefix_match(b->ix, prompt, b->slot, b->targets, hits);
    for (unsigned i = 1; i < b->targets; i++)
        best = hits[i].bytes > hits[best].bytes ? i : best;
    uint64_t begin = now_ns();
    prefix_record(b->ix, b->slot[best], prompt, &hits[best]);
    uint64_t took = now_ns() - begin;
    prefix_section_end();
    return took;
}

enum what { MATCH, RECORD, PICK, MEMCMP, MEMCPY, WHATS };

static uint64_t measure(const struct bed *b, enum what what, char *text, uint32_t known, unsigned id,
                        struct rng *r)
{
    volatile int sink; /* keeps the comparison in */
    (void)&sink;
    struct span prompt = span_of(text, b->bytes);
    if (what == RECORD)
        return record(b, prompt);
    uint64_t begin = now_ns();
    if (what == MATCH)
        match(b, prompt);
    else if (what == PICK)
        pick(b, prompt, r);
    else if (what == MEMCMP)
        sink = memcmp(text, b->copies[id], known);
    else
        memcpy(b->copies[id] + known, text + known, b->bytes - known);
    return now_ns() - begin;
}

static void bench(struct bed *b, bool full, enum kind kind, unsigned picks)
{
    char *text = mem_alloc(b->bytes);
    uint64_t *ns = mem_array(picks, sizeof *ns);
    struct figures f[WHATS];
    struct rng r;
    rng_seed(&r, 42);
    for (enum what what = MATCH; what < WHATS; what++) {
        for (unsigned i = 0; i < picks; i++) {
            unsigned id;
            uint32_t known = next_prompt(b, kind, &r, text, &id);
            ns[i] = measure(b, what, text, known, id, &r);
        }
        f[what] = figures_of(ns, picks);
    }
    double goal = 3 * f[MEMCMP].p50 + 1000;
    printf("%5u %3u  %-5s %-5s %6.0f %7.0f  %6.0f %7.0f  %6.0f %7.0f  %6.0f %6.0f %6.0f  %s\n", b->bytes,
           b->targets, full ? "full" : "empty", KIND[kind], f[MATCH].p50, f[MATCH].p99, f[RECORD].p50,
           f[RECORD].p99, f[PICK].p50, f[PICK].p99, f[MEMCMP].p50, f[MEMCPY].p50, goal,
           f[PICK].p50 <= goal ? "" : "above");
    free(text);
    free(ns);
}

/* Threads */

enum { PREPARED = 64 };
struct runner {
    pthread_t thread;
    struct bed *bed;
    enum kind kind;
    pthread_barrier_t *start;
    unsigned number, picks;
    uint64_t ns;
};

/* Prompts are prepared in portions, so that writing them is not what is measured. */
static void *run(void *arg)
{
    struct runner *w = arg;
    struct rng r;
    char *text = mem_alloc((size_t)PREPARED * w->bed->bytes);
    unsigned id[PREPARED];
    rng_seed(&r, 1000 + w->number);
    for (unsigned done = 0; done < w->picks; done += PREPARED) {
        for (unsigned i = 0; i < PREPARED; i++)
            next_prompt(w->bed, w->kind, &r, text + (size_t)i * w->bed->bytes, &id[i]);
        pthread_barrier_wait(w->start);
        uint64_t begin = now_ns();
        for (unsigned i = 0; i < PREPARED; i++)
            pick(w->bed, span_of(text + (size_t)i * w->bed->bytes, w->bed->bytes), &r);
        uint64_t took = now_ns() - begin;
        /* The best portion: the machine's other work only adds. */
        w->ns = w->ns == 0 || took < w->ns ? took : w->ns;
    }
    free(text);
    return NULL;
}

static double picks_per_us(struct bed *b, enum kind kind, unsigned threads, unsigned picks)
{
    struct runner w[THREADS_MAX] = {0};
    pthread_barrier_t start;
    double sum = 0;
    CHECK(pthread_barrier_init(&start, NULL, threads) == 0);
    for (unsigned i = 0; i < threads; i++) {
        w[i] = (struct runner){.bed = b, .kind = kind, .start = &start, .number = i, .picks = picks};
        CHECK(pthread_create(&w[i].thread, NULL, run, &w[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(w[i].thread, NULL);
        sum += PREPARED * 1000.0 / (double)w[i].ns;
    }
    pthread_barrier_destroy(&start);
    return sum;
}

static void bench_threads(struct bed *b, enum kind kind, unsigned picks)
{
    double one = 0, two = 0;
    for (int i = 0; i < 3; i++) {
        double x = picks_per_us(b, kind, 1, picks), y = picks_per_us(b, kind, 2, picks);
        one = x > one ? x : one;
        two = y > two ? y : two;
    }
    printf("%5u %3u  %-5s %8.3f %8.3f %8.2f\n", b->bytes, b->targets, KIND[kind], one, two, two / one);
}

static void report_memory(const struct bed *b)
{
    struct prefix_stats s;
    uint64_t nodes = 0, charged = 0;
    for (unsigned i = 0; i < b->targets; i++) {
        prefix_stats(b->ix, b->slot[i], &s);
        nodes += s.nodes;
        charged += s.bytes;
    }
    double text = (double)b->resident * (b->bytes - SHARED);
    printf("%5u %3u  %8.3f %12.1f %12.3f\n", b->bytes, b->targets, (double)prefix_memory(b->ix) / text,
           ((double)prefix_memory(b->ix) - text) / (double)nodes,
           (double)charged / (double)prefix_memory(b->ix));
}

static long resident_kib(void)
{
    long pages = 0, total = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%ld %ld", &total, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Of the whole process: what others do on the machine does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void bench_flat(uint64_t prompts)
{
    enum { STEPS = 10 };
    struct prefix_index *ix =
        prefix_index_new((struct prefix_limits){.max_nodes = 1000000, .max_bytes = 8 << 20});
    uint32_t slot[8];
    char text[1024];
    struct rng r;
    uint64_t begin = cpu_ns();
    rng_seed(&r, 1);
    for (unsigned i = 0; i < ARRAY_LEN(slot); i++)
        slot[i] = prefix_slot_get(ix, i);
    printf("%12s %12s %12s %12s\n", "prompts", "index KiB", "RSS KiB", "CPU ns each");
    for (uint64_t i = 1; i <= prompts; i++) {
        uint32_t bytes = SHARED + 64 + (uint32_t)rng_below(&r, 56) * 8;
        write_prompt(text, bytes, i, bytes, 0);
        prefix_record(ix, slot[i % ARRAY_LEN(slot)], span_of(text, bytes), NULL);
        if (i % (prompts / STEPS) == 0)
            printf("%12llu %12llu %12ld %12.0f\n", (unsigned long long)i,
                   (unsigned long long)prefix_memory(ix) / 1024, resident_kib(),
                   (double)(cpu_ns() - begin) / (double)i);
    }
    prefix_index_unref(ix);
}

static const uint32_t sizes[] = {2048, 32768};
static const unsigned targets[] = {8, 64};

static void bench_one(unsigned picks)
{
    printf("%5s %3s  %-5s %-5s %6s %7s  %6s %7s  %6s %7s  %6s %6s %6s\n", "bytes", "n", "index", "kind",
           "match", "p99", "record", "p99", "pick", "p99", "memcmp", "memcpy", "goal");
    struct bed b;
    for (int full = 0; full < 2; full++)
        for (unsigned s = 0; s < ARRAY_LEN(sizes); s++)
            for (unsigned n = 0; n < ARRAY_LEN(targets); n++)
                for (enum kind k = WARM; k < KINDS; k++) {
                    bed_init(&b, targets[n], sizes[s], k, full);
                    bench(&b, full, k, picks);
                    bed_fini(&b);
                }
}

static void bench_all(unsigned picks)
{
    struct bed b;
    bench_one(picks);
    printf("\n%5s %3s  %-5s %8s %8s %8s   (picks per microsecond, full index)\n", "bytes", "n", "kind",
           "1 thread", "2", "times");
    for (unsigned s = 0; s < ARRAY_LEN(sizes); s++)
        for (unsigned n = 0; n < ARRAY_LEN(targets); n++)
            for (enum kind k = WARM; k < KINDS; k++) {
                bed_init(&b, targets[n], sizes[s], k, true);
                bench_threads(&b, k, picks);
                bed_fini(&b);
            }
    printf("\n%5s %3s  %8s %12s %12s   (memory / text, bytes per node beside text, charged / memory)\n",
           "bytes", "n", "times", "per node", "charged");
    for (unsigned s = 0; s < ARRAY_LEN(sizes); s++)
        for (unsigned n = 0; n < ARRAY_LEN(targets); n++) {
            bed_init(&b, targets[n], sizes[s], WARM, true);
            report_memory(&b);
            bed_fini(&b);
        }
}

int main(int argc, char **argv)
{
    bool flat = argc > 1 && strcmp(argv[1], "flat") == 0, one = argc > 1 && strcmp(argv[1], "one") == 0;
    int at = 1 + flat + one;
    unsigned long number = argc > at ? strtoul(argv[at], NULL, 10) : flat ? 10000000 : 4000;
    if (number < 100) {
        fprintf(stderr, "usage: bench-prefix [one] [picks] | bench-prefix flat [prompts]\n");
        return 2;
    }
    if (flat)
        bench_flat(number);
    else if (one)
        bench_one((unsigned)number);
    else
        bench_all((unsigned)number);
    return 0;
}
