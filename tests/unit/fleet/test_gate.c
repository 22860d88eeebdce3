/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate in front of a provider: order, limits, cancelling, reloads, and all of it from several threads.
 */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

#include "base/rng.h"
#include "fleet/fleet.h"

struct world {
    struct fleet *fleet;
    struct provider *p;
};

static int setup(void **state)
{
    static struct world w;
    w.fleet = fleet_new(0);
    w.p = fleet_provider_get(w.fleet, "p");
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    assert_int_equal(provider_queued(w->p), 0);
    fleet_free(w->fleet); /* checks that no slot is out */
    return 0;
}

static void limit(struct provider *p, unsigned workers, unsigned capacity)
{
    provider_configure(p, &(struct provider_settings){.queue_workers = workers, .queue_capacity = capacity});
}

/* Who was granted, in order. */
static struct gate_waiter *order[16];
static unsigned n_granted;

static void note(struct gate_waiter *w)
{
    order[n_granted++] = w;
}

static void enter(struct provider *p, struct gate_waiter *w, enum gate_answer expected)
{
    w->granted = note;
    assert_int_equal(provider_gate_enter(p, w, true), expected);
}

static void test_no_limit(void **state)
{
    struct provider *p = ((struct world *)*state)->p;
    struct gate_waiter w[100];
    for (int i = 0; i < 100; i++)
        enter(p, &w[i], GATE_GRANTED);
    for (int i = 0; i < 100; i++)
        provider_gate_leave(p);
}

static void test_first_come_first_served(void **state)
{
    struct provider *p = ((struct world *)*state)->p;
    struct gate_waiter w[8];
    n_granted = 0;
    limit(p, 2, 4);
    enter(p, &w[0], GATE_GRANTED);
    enter(p, &w[1], GATE_GRANTED);
    assert_int_equal(provider_gate_enter(p, &w[2], false), GATE_FULL);
    for (int i = 2; i < 6; i++)
        enter(p, &w[i], GATE_QUEUED);
    enter(p, &w[6], GATE_FULL);
    assert_int_equal(provider_queued(p), 4);
    assert_true(provider_gate_cancel(p, &w[3]));
    assert_false(provider_gate_cancel(p, &w[3]));
    enter(p, &w[7], GATE_QUEUED); /* the place that came free */
    for (int i = 0; i < 2; i++)
        provider_gate_leave(p);
    assert_int_equal(n_granted, 2);
    assert_false(provider_gate_cancel(p, &w[2])); /* too late: the slot is ours */
    for (int i = 0; i < 2; i++)
        provider_gate_leave(p);
    struct gate_waiter *expected[] = {&w[2], &w[4], &w[5], &w[7]};
    assert_int_equal(n_granted, 4);
    assert_memory_equal(order, expected, sizeof expected);
    for (int i = 0; i < 2; i++)
        provider_gate_leave(p);
    assert_int_equal(n_granted, 4);
}

static void test_no_capacity(void **state)
{
    struct provider *p = ((struct world *)*state)->p;
    struct gate_waiter w[2];
    limit(p, 1, 0);
    enter(p, &w[0], GATE_GRANTED);
    enter(p, &w[1], GATE_FULL);
    provider_gate_leave(p);
    enter(p, &w[1], GATE_GRANTED);
    provider_gate_leave(p);
}

static void test_reload_raises_the_limit(void **state)
{
    struct provider *p = ((struct world *)*state)->p;
    struct gate_waiter w[6];
    n_granted = 0;
    limit(p, 1, 10);
    enter(p, &w[0], GATE_GRANTED);
    for (int i = 1; i < 6; i++)
        enter(p, &w[i], GATE_QUEUED);
    limit(p, 3, 10);
    assert_int_equal(n_granted, 2);
    limit(p, 0, 0);
    assert_int_equal(n_granted, 5);
    assert_ptr_equal(order[4], &w[5]);
    for (int i = 0; i < 6; i++)
        provider_gate_leave(p);
}

static void test_reload_lowers_the_limit(void **state)
{
    struct provider *p = ((struct world *)*state)->p;
    struct gate_waiter w[6];
    n_granted = 0;
    for (int i = 0; i < 4; i++)
        enter(p, &w[i], GATE_GRANTED);
    limit(p, 2, 10); /* counts those who came before there was a limit */
    enter(p, &w[4], GATE_QUEUED);
    provider_gate_leave(p);
    provider_gate_leave(p);
    assert_int_equal(n_granted, 0); /* still two inside */
    provider_gate_leave(p);
    assert_int_equal(n_granted, 1);
    limit(p, 2, 0); /* a smaller queue drops nobody who waits */
    provider_gate_leave(p);
    provider_gate_leave(p);
}

/* Threads */

enum { THREADS = 8 };

struct client {
    struct gate_waiter waiter;
    sem_t granted;
    struct crowd *crowd;
    uint64_t seed;
};

struct crowd {
    struct provider *p;
    unsigned entries; /* per thread */
    bool hasty;       /* nobody yields */
    pthread_barrier_t start;
    atomic_int inside, most;
    atomic_uint granted, queued, cancelled, full, lost;
};

static void wake(struct gate_waiter *w)
{
    sem_post(&CONTAINER_OF(w, struct client, waiter)->granted);
}

static bool wait_granted(struct client *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    int rc;
    while ((rc = sem_timedwait(&c->granted, &until)) != 0 && errno == EINTR)
        continue;
    return rc == 0;
}

static void hold_slot(struct crowd *s, struct rng *rng)
{
    int inside = atomic_fetch_add(&s->inside, 1) + 1, most = atomic_load(&s->most);
    while (inside > most && !atomic_compare_exchange_weak(&s->most, &most, inside))
        continue;
    if (!s->hasty && rng_below(rng, 2))
        sched_yield();
    atomic_fetch_sub(&s->inside, 1);
    atomic_fetch_add(&s->granted, 1);
    provider_gate_leave(s->p);
}

static void *visit(void *arg)
{
    struct client *c = arg;
    struct crowd *s = c->crowd;
    struct rng rng;
    rng_seed(&rng, c->seed);
    pthread_barrier_wait(&s->start);
    for (unsigned i = 0; i < s->entries; i++) {
        enum gate_answer a = provider_gate_enter(s->p, &c->waiter, rng_below(&rng, 8) > 0);
        if (a == GATE_FULL) {
            atomic_fetch_add(&s->full, 1);
            continue;
        }
        if (a == GATE_QUEUED) {
            atomic_fetch_add(&s->queued, 1);
            if (!s->hasty && rng_below(&rng, 2))
                sched_yield();
            if (rng_below(&rng, 3) == 0 && provider_gate_cancel(s->p, &c->waiter)) {
                atomic_fetch_add(&s->cancelled, 1);
                continue;
            }
            if (!wait_granted(c)) {
                atomic_fetch_add(&s->lost, 1);
                return NULL;
            }
        }
        hold_slot(s, &rng);
    }
    return NULL;
}

static void run_crowd(struct crowd *s, unsigned n, unsigned workers)
{
    limit(s->p, workers, 3);
    pthread_barrier_init(&s->start, NULL, n);
    static struct client clients[THREADS];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < n; i++) {
        clients[i] = (struct client){.waiter.granted = wake, .crowd = s, .seed = i};
        sem_init(&clients[i].granted, 0, 0);
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &clients[i]), 0);
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&s->lost), 0);
    assert_in_range(atomic_load(&s->most), 1, workers);
    assert_int_equal(atomic_load(&s->granted) + atomic_load(&s->cancelled) + atomic_load(&s->full),
                     n * s->entries);
    for (unsigned i = 0; i < n; i++) {
        int left;
        sem_getvalue(&clients[i].granted, &left);
        assert_int_equal(left, 0); /* granted exactly once each */
        sem_destroy(&clients[i].granted);
    }
}

static void test_threads(void **state)
{
    struct crowd s = {.p = ((struct world *)*state)->p, .entries = 4000};
    run_crowd(&s, THREADS, 3);
    assert_true(atomic_load(&s.queued) > 0);
}

/* With one slot and two clients nobody else's leaving makes up for a waiter who was overlooked. */
static void test_no_waiter_is_overlooked(void **state)
{
    struct crowd s = {.p = ((struct world *)*state)->p, .entries = 300000, .hasty = true};
    run_crowd(&s, 2, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_no_limit),
        T(test_first_come_first_served),
        T(test_no_capacity),
        T(test_reload_raises_the_limit),
        T(test_reload_lowers_the_limit),
        T(test_threads),
        T(test_no_waiter_is_overlooked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
