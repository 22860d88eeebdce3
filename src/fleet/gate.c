/* SPDX-License-Identifier: Apache-2.0
 *
 * The bounded queue in front of a provider. One word counts slots in use and waiters:
 *
 *     63        32 31         0
 *     |  waiting  |   in use   |
 *
 * While nobody waits, entering and leaving are one compare-and-swap. As soon as somebody waits, both go
 * through the lock: a newcomer sees waiting > 0 and queues up behind, so the order is first come, first
 * served. `waiting` changes under the lock only and equals the length of the list whenever the lock is free.
 *
 * Slots are counted without a limit, too, so that a reload may set one while requests are under way.
 */
#include "base/check.h"
#include "fleet/internal.h"

static const uint64_t ONE_WAITER = (uint64_t)1 << 32;

static unsigned used_of(uint64_t word)
{
    return (unsigned)word;
}

static unsigned waiting_of(uint64_t word)
{
    return (unsigned)(word >> 32);
}

static bool has_room(const struct provider *p, uint64_t word)
{
    unsigned limit = atomic_load_explicit(&p->gate_limit, memory_order_relaxed);
    return limit == 0 || used_of(word) < limit;
}

unsigned provider_queued(const struct provider *p)
{
    return waiting_of(atomic_load_explicit(&p->gate, memory_order_relaxed));
}

/* A slot when one is free and nobody is before us. */
static bool enter_at_once(struct provider *p)
{
    uint64_t word = atomic_load_explicit(&p->gate, memory_order_relaxed);
    while (waiting_of(word) == 0 && has_room(p, word))
        if (atomic_compare_exchange_weak_explicit(&p->gate, &word, word + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* Under the lock: counts one more waiter, unless a slot came free and nobody is before us. In one step, so
 * that whoever leaves either sees the waiter or leaves a slot that we see. */
static bool announce_waiter(struct provider *p)
{
    uint64_t word = atomic_load(&p->gate);
    do {
        if (waiting_of(word) == 0 && has_room(p, word))
            return false;
    } while (!atomic_compare_exchange_weak(&p->gate, &word, word + ONE_WAITER));
    return true;
}

enum gate_answer provider_gate_enter(struct provider *p, struct gate_waiter *w, bool may_queue)
{
    if (enter_at_once(p))
        return GATE_GRANTED;
    if (!may_queue)
        return GATE_FULL;
    w->queued = false;
    list_init(&w->node);
    enum gate_answer answer = GATE_FULL;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        if (enter_at_once(p)) {
            answer = GATE_GRANTED;
            break;
        }
        if (waiting_of(atomic_load(&p->gate)) >= atomic_load(&p->gate_capacity))
            break;
        if (announce_waiter(p)) {
            w->queued = true;
            list_push(&p->waiters, &w->node);
            answer = GATE_QUEUED;
            break;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return answer;
}

bool provider_gate_cancel(struct provider *p, struct gate_waiter *w)
{
    pthread_mutex_lock(&p->lock);
    bool was_queued = w->queued;
    if (was_queued) {
        list_remove(&w->node);
        w->queued = false;
        atomic_fetch_sub(&p->gate, ONE_WAITER);
    }
    pthread_mutex_unlock(&p->lock);
    return was_queued;
}

/* Under the lock: moves the waiters for whom there is room to <granted>. While anybody waits nobody enters or
 * leaves without the lock, so the word cannot change under us until the last waiter is gone. */
static void take_granted(struct provider *p, struct list *granted)
{
    uint64_t word;
    while (word = atomic_load(&p->gate), waiting_of(word) > 0 && has_room(p, word)) {
        struct list *node = list_pop(&p->waiters);
        CHECK(node != NULL);
        LIST_ITEM(node, struct gate_waiter, node)->queued = false;
        list_push(granted, node);
        atomic_fetch_add(&p->gate, 1 - ONE_WAITER);
    }
}

static void call_granted(struct list *granted)
{
    for (struct list *node; (node = list_pop(granted)) != NULL;) {
        struct gate_waiter *w = LIST_ITEM(node, struct gate_waiter, node);
        w->granted(w);
    }
}

void gate_settle(struct provider *p)
{
    struct list granted;
    list_init(&granted);
    pthread_mutex_lock(&p->lock);
    take_granted(p, &granted);
    pthread_mutex_unlock(&p->lock);
    call_granted(&granted);
}

void provider_gate_leave(struct provider *p)
{
    uint64_t word = atomic_load_explicit(&p->gate, memory_order_relaxed);
    while (waiting_of(word) == 0) {
        CHECK_MSG(used_of(word) > 0, "a slot is given back that nobody held");
        if (atomic_compare_exchange_weak_explicit(&p->gate, &word, word - 1, memory_order_release,
                                                  memory_order_relaxed))
            return;
    }
    struct list granted;
    list_init(&granted);
    pthread_mutex_lock(&p->lock);
    uint64_t before = atomic_fetch_sub(&p->gate, 1);
    CHECK_MSG(used_of(before) > 0, "a slot is given back that nobody held");
    take_granted(p, &granted);
    pthread_mutex_unlock(&p->lock);
    call_granted(&granted);
}
