/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/reply_cache.h"

#include <stdlib.h>

#include "base/mem.h"
#include "observe/metrics.h"

enum { SWEEP_STEPS = 20000 };

struct reply_cache *reply_cache_new(const struct cache_settings *s, unsigned n_workers)
{
    struct reply_cache *c = MEM_NEW(struct reply_cache);
    c->purge = purge_new();
    c->memory = memory_new(&(struct memory_options){
        .memory_bytes = s->memory_bytes,
        .max_entry_bytes = s->max_entry_bytes,
        .purge = c->purge,
    });
    c->flights = flight_table_new(n_workers);
    return c;
}

void reply_cache_free(struct reply_cache *c)
{
    if (!c)
        return;
    flight_table_free(c->flights);
    memory_free(c->memory);
    purge_free(c->purge);
    free(c);
}

void reply_cache_sweep(struct reply_cache *c, uint64_t wall_ms)
{
    memory_sweep(c->memory, wall_ms, SWEEP_STEPS);
}

void reply_cache_count_not_stored(const char *reason)
{
    metric_add(metric_series(M_CACHE_NOT_STORED, reason, NULL, NULL), 1);
}
