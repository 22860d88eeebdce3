/* SPDX-License-Identifier: Apache-2.0
 *
 * A global counter; each thread publishes the value at which it entered. Retired objects are gathered in
 * bags; a full bag is stamped with the counter, which is raised by the same instruction. Whoever entered at a
 * later value has seen everything that was unlinked before the stamp, so the bag is freed when all open
 * sections are younger than it.
 */
#include "balance/epoch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"

enum { BAG_OBJECTS = 64, BAG_BYTES = 256 * 1024 };

struct bag {
    struct bag *next;
    uint64_t stamp;
    size_t bytes;
    unsigned n;
    void *object[BAG_OBJECTS];
};

struct bag_queue {
    struct bag *first, *last;
};

/* One per thread, on a cache line of its own; never freed, used again by later threads. */
struct participant {
    _Alignas(64) _Atomic uint64_t inside; /* the counter when it entered; 0 = outside */
    atomic_bool taken;
    struct participant *next;
    /* Of its thread only. */
    unsigned depth;
    bool has_sealed; /* since it last tried to free */
    struct bag *open;
    struct bag *spare;
    struct bag_queue sealed;
};

static _Atomic uint64_t counter = 1;
static _Atomic(struct participant *) participants;
static pthread_mutex_t orphans_lock = PTHREAD_MUTEX_INITIALIZER;
static struct bag_queue orphans;
static atomic_bool has_orphans;

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static _Thread_local struct participant *self;

static void push(struct bag_queue *q, struct bag *b)
{
    b->next = NULL;
    if (q->last)
        q->last->next = b;
    else
        q->first = b;
    q->last = b;
}

/* Where the counter stands afterwards is later than everything that this thread unlinked before. */
static void stamp(struct bag *b)
{
    b->stamp = atomic_fetch_add_explicit(&counter, 1, memory_order_acq_rel);
}

static void seal(struct participant *p)
{
    if (!p->open || p->open->n == 0)
        return;
    stamp(p->open);
    push(&p->sealed, p->open);
    p->open = NULL;
    p->has_sealed = true;
}

static void thread_ends(void *arg)
{
    struct participant *p = arg;
    CHECK_MSG(p->depth == 0, "a thread ended inside a section");
    seal(p);
    free(p->open);
    free(p->spare);
    p->open = p->spare = NULL;
    if (p->sealed.first) {
        pthread_mutex_lock(&orphans_lock);
        for (struct bag *b = p->sealed.first, *next; b; b = next) {
            next = b->next;
            push(&orphans, b);
        }
        atomic_store_explicit(&has_orphans, true, memory_order_relaxed);
        pthread_mutex_unlock(&orphans_lock);
    }
    p->sealed = (struct bag_queue){0};
    p->has_sealed = false;
    atomic_store_explicit(&p->taken, false, memory_order_release);
}

static void make_key(void)
{
    CHECK(pthread_key_create(&key, thread_ends) == 0);
}

static struct participant *join(void)
{
    pthread_once(&key_once, make_key);
    struct participant *p = atomic_load_explicit(&participants, memory_order_acquire);
    for (; p; p = p->next) {
        bool no = false;
        if (atomic_compare_exchange_strong_explicit(&p->taken, &no, true, memory_order_acquire,
                                                    memory_order_relaxed))
            break;
    }
    if (!p) {
        p = aligned_alloc(_Alignof(struct participant), sizeof *p);
        CHECK_MSG(p != NULL, "out of memory");
        memset(p, 0, sizeof *p);
        atomic_init(&p->taken, true);
        p->next = atomic_load_explicit(&participants, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(&participants, &p->next, p, memory_order_release,
                                                      memory_order_relaxed))
            ;
    }
    CHECK(pthread_setspecific(key, p) == 0);
    return self = p;
}

void epoch_enter(void)
{
    struct participant *p = LIKELY(self != NULL) ? self : join();
    if (p->depth++ > 0)
        return;
    /* An exchange, since what follows must not be read before the others can see us inside. */
    uint64_t now = atomic_load_explicit(&counter, memory_order_acquire);
    atomic_exchange_explicit(&p->inside, now, memory_order_seq_cst);
#if !defined(__SANITIZE_THREAD__) && !defined(__x86_64__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Bags with a smaller stamp are out of everyone's reach. */
static uint64_t oldest_inside(void)
{
#if !defined(__SANITIZE_THREAD__)
    atomic_thread_fence(memory_order_seq_cst);
#endif
    uint64_t oldest = UINT64_MAX;
    for (struct participant *p = atomic_load_explicit(&participants, memory_order_acquire); p; p = p->next) {
        uint64_t at = atomic_load_explicit(&p->inside, memory_order_seq_cst);
        if (at != 0 && at < oldest)
            oldest = at;
    }
    return oldest;
}

/* Returns one emptied bag for further use, or NULL. */
static struct bag *free_bags(struct bag_queue *q, uint64_t oldest)
{
    struct bag *kept = NULL;
    while (q->first && q->first->stamp < oldest) {
        struct bag *b = q->first;
        q->first = b->next;
        if (!q->first)
            q->last = NULL;
        for (unsigned i = 0; i < b->n; i++)
            free(b->object[i]);
        free(kept);
        kept = b;
    }
    return kept;
}

static void reclaim(struct participant *p)
{
    p->has_sealed = false;
    uint64_t oldest = oldest_inside();
    struct bag *empty = free_bags(&p->sealed, oldest);
    if (empty) {
        free(p->spare);
        p->spare = empty;
    }
    if (!atomic_load_explicit(&has_orphans, memory_order_relaxed))
        return;
    pthread_mutex_lock(&orphans_lock);
    /* Not in order of their stamps: an older one behind a younger waits a little longer. */
    free(free_bags(&orphans, oldest));
    atomic_store_explicit(&has_orphans, orphans.first != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&orphans_lock);
}

void epoch_leave(void)
{
    struct participant *p = self;
    CHECK(p && p->depth > 0);
    if (--p->depth > 0)
        return;
    atomic_store_explicit(&p->inside, 0, memory_order_release);
    if (UNLIKELY(p->has_sealed))
        reclaim(p);
}

void epoch_retire(void *object, size_t size)
{
    struct participant *p = self;
    CHECK(p && p->depth > 0);
    if (!object)
        return;
    if (!p->open) {
        p->open = p->spare ? p->spare : mem_alloc(sizeof *p->open);
        p->spare = NULL;
        p->open->n = 0;
        p->open->bytes = 0;
    }
    p->open->object[p->open->n++] = object;
    p->open->bytes += size;
    if (p->open->n == BAG_OBJECTS || p->open->bytes >= BAG_BYTES)
        seal(p);
}

void epoch_drain(void)
{
    struct participant *p = self ? self : join();
    CHECK_MSG(p->depth == 0, "draining inside a section");
    seal(p);
    reclaim(p);
}
