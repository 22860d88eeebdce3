/* SPDX-License-Identifier: Apache-2.0
 *
 * The upstream keys of a provider: smooth weighted round robin over those that are not parked. A provider has
 * a handful; with none or one of them nothing is locked.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "fleet/internal.h"

/* A key keeps its parking by position: the same environment variable stands behind it. */
void keys_configure(struct provider *p, const unsigned *weights, unsigned n)
{
    struct key_slot *keys = n > 0 ? mem_array(n, sizeof *keys) : NULL;
    unsigned n_before = atomic_load(&p->n_keys);
    for (unsigned i = 0; i < n; i++) {
        keys[i].weight = weights && weights[i] > 0 ? weights[i] : 1;
        keys[i].parked_until_ms = i < n_before ? p->keys[i].parked_until_ms : 0;
    }
    free(p->keys);
    p->keys = keys;
    atomic_store(&p->n_keys, n);
    if (n < KEY_BITS)
        atomic_fetch_and(&p->refused_keys, ((uint64_t)1 << (n ? n : 1)) - 1);
}

/* Under the lock. */
static int next_free_key(struct provider *p, unsigned n, uint64_t now_ms)
{
    int64_t total = 0;
    int best = -1;
    for (unsigned i = 0; i < n; i++) {
        struct key_slot *k = &p->keys[i];
        if (k->parked_until_ms > now_ms)
            continue;
        k->current += k->weight;
        total += k->weight;
        if (best < 0 || k->current > p->keys[best].current)
            best = (int)i;
    }
    if (best >= 0)
        p->keys[best].current -= total;
    return best;
}

static int first_to_return(const struct provider *p, unsigned n)
{
    unsigned best = 0;
    for (unsigned i = 1; i < n; i++)
        if (p->keys[i].parked_until_ms < p->keys[best].parked_until_ms)
            best = i;
    return (int)best;
}

int provider_key_take(struct provider *p, uint64_t now_ms)
{
    unsigned n = atomic_load_explicit(&p->n_keys, memory_order_relaxed);
    if (n <= 1)
        return (int)n - 1;
    pthread_mutex_lock(&p->lock);
    n = atomic_load(&p->n_keys);
    int key = -1;
    if (n > 0) {
        key = next_free_key(p, n, now_ms);
        if (key < 0)
            key = first_to_return(p, n);
    }
    pthread_mutex_unlock(&p->lock);
    return key;
}

void provider_key_park(struct provider *p, int key, uint64_t until_ms)
{
    pthread_mutex_lock(&p->lock);
    /* A reload may have taken the key away since. */
    if (key >= 0 && (unsigned)key < atomic_load(&p->n_keys) && p->keys[key].parked_until_ms < until_ms)
        p->keys[key].parked_until_ms = until_ms;
    pthread_mutex_unlock(&p->lock);
}

bool provider_has_free_key(const struct provider *p, uint64_t now_ms)
{
    struct provider *locked = (struct provider *)p; /* only the lock is written */
    bool found = false;
    pthread_mutex_lock(&locked->lock);
    unsigned n = atomic_load(&p->n_keys);
    for (unsigned i = 0; i < n && !found; i++)
        found = p->keys[i].parked_until_ms <= now_ms;
    pthread_mutex_unlock(&locked->lock);
    return found;
}

bool provider_key_judged(struct provider *p, int key, bool refused, uint64_t now_ms)
{
    uint64_t bit = (uint64_t)1 << (key < 0 ? 0 : key < KEY_BITS ? key : KEY_BITS - 1);
    bool was = atomic_load_explicit(&p->refused_keys, memory_order_relaxed) & bit;
    if (LIKELY(!was && !refused))
        return false;
    pthread_mutex_lock(&p->lock);
    was = atomic_load(&p->refused_keys) & bit;
    bool news = was != refused && (refused || now_ms - p->refused_ms >= KEY_DOUBT_MS);
    if (refused)
        p->refused_ms = now_ms;
    if (news)
        atomic_fetch_xor(&p->refused_keys, bit);
    pthread_mutex_unlock(&p->lock);
    return news;
}
