/* SPDX-License-Identifier: Apache-2.0 */
#include "fleet/predictor.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

/* STEP: how much of the error one sample corrects. EPSILON keeps the division apart from zero. */
static const double STEP = 0.15, EPSILON = 1e-3, WEIGHT_MAX_MS = 600000;

void predictor_init(struct predictor *p)
{
    memset(p, 0, sizeof *p);
    CHECK(pthread_mutex_init(&p->lock, NULL) == 0);
}

void predictor_fini(struct predictor *p)
{
    pthread_mutex_destroy(&p->lock);
}

static double load_double(const _Atomic uint64_t *from)
{
    uint64_t bits = atomic_load_explicit(from, memory_order_relaxed);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void store_double(_Atomic uint64_t *to, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    atomic_store_explicit(to, bits, memory_order_relaxed);
}

/* The copy that counts is only written again after the version has changed, so a reader that finds the
 * version as it was has read a whole one; who does not can be sure that another sample came in. */
struct predictor_weights predictor_weights(const struct predictor *p)
{
    struct predictor_weights w;
    uint64_t before, after;
    do {
        before = atomic_load_explicit(&p->version, memory_order_acquire);
        unsigned i = before & 1;
        w.base_ms = load_double(&p->copies[i].base);
        w.per_depth_ms = load_double(&p->copies[i].per_depth);
        w.per_kilotoken_ms = load_double(&p->copies[i].per_kilotoken);
        w.samples = atomic_load_explicit(&p->copies[i].samples, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        after = atomic_load_explicit(&p->version, memory_order_relaxed);
    } while (before != after);
    return w;
}

/* With the lock held. */
static void publish(struct predictor *p, const struct predictor_weights *w)
{
    uint64_t version = atomic_load_explicit(&p->version, memory_order_relaxed);
    unsigned i = (version + 1) & 1;
    /* Whoever sees a word of the new copy sees that its version is over. */
    atomic_thread_fence(memory_order_release);
    store_double(&p->copies[i].base, w->base_ms);
    store_double(&p->copies[i].per_depth, w->per_depth_ms);
    store_double(&p->copies[i].per_kilotoken, w->per_kilotoken_ms);
    atomic_store_explicit(&p->copies[i].samples, w->samples, memory_order_relaxed);
    atomic_store_explicit(&p->version, version + 1, memory_order_release);
}

static double estimate(const struct predictor_weights *w, double depth, double kilotokens)
{
    return w->base_ms + w->per_depth_ms * depth + w->per_kilotoken_ms * kilotokens;
}

static double clamp(double v)
{
    return v > WEIGHT_MAX_MS ? WEIGHT_MAX_MS : v < -WEIGHT_MAX_MS ? -WEIGHT_MAX_MS : v;
}

void predictor_learn(struct predictor *p, double ms, unsigned depth, uint64_t tokens)
{
    if (!isfinite(ms) || ms < 0)
        return;
    double d = depth, k = (double)tokens / 1000;
    pthread_mutex_lock(&p->lock);
    struct predictor_weights w = predictor_weights(p);
    double correction = STEP * (ms - estimate(&w, d, k)) / (EPSILON + 1 + d * d + k * k);
    w.base_ms = clamp(w.base_ms + correction);
    w.per_depth_ms = clamp(w.per_depth_ms + correction * d);
    w.per_kilotoken_ms = clamp(w.per_kilotoken_ms + correction * k);
    w.samples++;
    publish(p, &w);
    pthread_mutex_unlock(&p->lock);
}

bool predictor_ask(const struct predictor *p, unsigned depth, uint64_t tokens, double *ret_ms)
{
    struct predictor_weights w = predictor_weights(p);
    if (w.samples < PREDICTOR_SILENT_BELOW)
        return false;
    double ms = estimate(&w, depth, (double)tokens / 1000);
    *ret_ms = ms > 0 ? ms : 0;
    return true;
}
