/* SPDX-License-Identifier: Apache-2.0
 *
 * The circuit breaker of a target, in one word, so that each change is one compare-and-swap and there is
 * never a state in between:
 *
 *     63             22 21         14 13         0
 *     | open until, ms | probe's id  | failures  |
 *
 * open until 0 = closed; then `failures` counts those in a row. A time to come = open. A time that has passed
 * = half-open: the request that puts its id into the middle field is the single probe. Ids tell a late holder
 * of an earlier probe from the present one.
 *
 * 42 bits of milliseconds are 139 years of a monotonic clock.
 */
#include "base/check.h"
#include "fleet/internal.h"

enum {
    FAILURE_BITS = 14,
    PROBE_BITS = 8,
    FAILURES_MAX = (1 << FAILURE_BITS) - 1,
    PROBE_MAX = (1 << PROBE_BITS) - 1
};
static const uint64_t UNTIL_MAX = ((uint64_t)1 << (64 - FAILURE_BITS - PROBE_BITS)) - 1;

struct breaker_word {
    uint64_t until_ms;
    unsigned probe, failures;
};

static struct breaker_word unpack(uint64_t w)
{
    return (struct breaker_word){.until_ms = w >> (FAILURE_BITS + PROBE_BITS),
                                 .probe = (unsigned)(w >> FAILURE_BITS) & PROBE_MAX,
                                 .failures = (unsigned)w & FAILURES_MAX};
}

static uint64_t pack(struct breaker_word b)
{
    uint64_t until_ms = b.until_ms < UNTIL_MAX ? b.until_ms : UNTIL_MAX;
    return until_ms << (FAILURE_BITS + PROBE_BITS) | (uint64_t)b.probe << FAILURE_BITS | b.failures;
}

static bool is_on(const struct reliability *r)
{
    return r->breaker_enabled && r->breaker_failures > 0;
}

static enum breaker_state state_of(struct breaker_word b, uint64_t now_ms)
{
    if (b.until_ms == 0)
        return BREAKER_CLOSED;
    if (now_ms < b.until_ms)
        return BREAKER_OPEN;
    return b.probe ? BREAKER_PROBING : BREAKER_HALF_OPEN;
}

enum breaker_state breaker_look(const struct target *t, const struct reliability *r, uint64_t now_ms)
{
    if (!is_on(r))
        return BREAKER_CLOSED;
    return state_of(unpack(atomic_load_explicit(&t->breaker, memory_order_relaxed)), now_ms);
}

int breaker_enter(struct target *t, const struct reliability *r, uint64_t now_ms)
{
    if (!is_on(r))
        return 0;
    uint64_t word = atomic_load_explicit(&t->breaker, memory_order_relaxed);
    unsigned id = 0;
    for (;;) {
        struct breaker_word b = unpack(word);
        enum breaker_state s = state_of(b, now_ms);
        if (s == BREAKER_CLOSED)
            return 0;
        if (s != BREAKER_HALF_OPEN)
            return -1;
        if (id == 0)
            id = atomic_fetch_add_explicit(&t->probe_serial, 1, memory_order_relaxed) % PROBE_MAX + 1;
        b.probe = id;
        if (atomic_compare_exchange_weak(&t->breaker, &word, pack(b)))
            return (int)id;
    }
}

void breaker_free_probe(struct target *t, unsigned probe_id)
{
    uint64_t word = atomic_load_explicit(&t->breaker, memory_order_relaxed);
    for (;;) {
        struct breaker_word b = unpack(word);
        if (b.probe != probe_id)
            return;
        b.probe = 0;
        if (atomic_compare_exchange_weak(&t->breaker, &word, pack(b)))
            return;
    }
}

bool breaker_succeed(struct target *t)
{
    /* The usual case, nothing to reset, writes nothing: the line stays shared between the workers. */
    uint64_t word = atomic_load_explicit(&t->breaker, memory_order_relaxed);
    while (word != 0)
        if (atomic_compare_exchange_weak(&t->breaker, &word, 0))
            return unpack(word).until_ms != 0;
    return false;
}

bool breaker_fail(struct target *t, const struct reliability *r, unsigned probe_id, uint64_t now_ms)
{
    if (!is_on(r))
        return false;
    unsigned threshold = r->breaker_failures < FAILURES_MAX ? r->breaker_failures : FAILURES_MAX;
    uint64_t word = atomic_load_explicit(&t->breaker, memory_order_relaxed), next;
    bool opens;
    do {
        struct breaker_word b = unpack(word);
        if (b.until_ms != 0) {
            /* Not closed: only the present probe's word counts, stragglers from before the opening do not. */
            if (probe_id == 0 || b.probe != probe_id)
                return false;
            opens = true;
        } else {
            if (b.failures < FAILURES_MAX)
                b.failures++;
            opens = b.failures >= threshold;
        }
        if (opens)
            b = (struct breaker_word){.until_ms = now_ms + r->breaker_open_ms};
        if (opens && b.until_ms == 0)
            b.until_ms = 1;
        next = pack(b);
    } while (!atomic_compare_exchange_weak(&t->breaker, &word, next));
    return opens;
}
