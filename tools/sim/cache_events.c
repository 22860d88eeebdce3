/* SPDX-License-Identifier: Apache-2.0
 *
 * From the engine's block cache to its publisher: what changed in one turn of the loop is one batch, as a
 * step of an engine's scheduler is.
 */
#include <stdio.h>

#include "base/clock.h"
#include "sim.h"

enum { BATCH_BYTES_MAX = 256 << 10 };

static void flush_at(struct sim *s, size_t bytes)
{
    if (event_batch_empty(&s->batch) || event_batch_bytes(&s->batch) < bytes)
        return;
    struct span payload = event_batch_end(&s->batch, (double)clock_wall_ms() / 1000);
    publisher_send(s->publisher, payload);
}

void cache_events_flush(struct sim *s)
{
    if (s->publisher)
        flush_at(s, 0);
}

static void on_stored(void *arg, const struct block_content *c)
{
    struct sim *s = arg;
    const struct engine_request *er = c->owner;
    const struct sim_request *r = CONTAINER_OF(er, struct sim_request, er);
    if (s->events_muted)
        return;
    event_batch_stored(&s->batch, c, &r->scope);
    flush_at(s, BATCH_BYTES_MAX);
}

static void on_removed(void *arg, uint64_t hash)
{
    struct sim *s = arg;
    if (s->events_muted)
        return;
    event_batch_removed(&s->batch, hash);
    flush_at(s, BATCH_BYTES_MAX);
}

static void on_cleared(void *arg)
{
    struct sim *s = arg;
    if (!s->events_muted)
        event_batch_cleared(&s->batch);
}

struct blocks_observer cache_events_observer(struct sim *s)
{
    if (!s->publisher)
        return (struct blocks_observer){0};
    return (struct blocks_observer){on_stored, on_removed, on_cleared, s};
}

static bool format_of(const char *name, enum event_format *ret)
{
    static const char *const names[] = {"vllm-map", "vllm-array", "sglang-map", "sglang-array"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum event_format)i;
            return true;
        }
    return false;
}

int cache_events_open(struct sim *s, char *ret_error)
{
    struct event_style style = {.hash_bytes = s->o.events_hash_bytes,
                                .block_size = (uint32_t)s->o.block_size,
                                .rank = (uint32_t)s->o.events_rank};
    if (!format_of(s->o.events_format, &style.format)) {
        snprintf(ret_error, 256, "unknown --events-format %.200s", s->o.events_format);
        return -1;
    }
    event_batch_init(&s->batch, &style);
    if (!s->o.events)
        return 0;
    const struct publisher_options po = {.endpoint = s->o.events,
                                         .replay_endpoint = s->o.events_replay,
                                         .topic = s->o.events_topic,
                                         .replay_topic = s->o.events_replay_topic};
    s->publisher = publisher_open(&s->loop, &po, &s->o.events_faults, ret_error);
    return s->publisher ? 0 : -1;
}

/* vLLM says nothing when it starts; SGLang's first batch is that everything is cleared. */
static void greet(struct sim *s)
{
    event_batch_drop(&s->batch);
    s->batch.total = 0;
    if (s->batch.style.format == EVENT_SGLANG_MAP || s->batch.style.format == EVENT_SGLANG_ARRAY)
        event_batch_cleared(&s->batch);
    cache_events_flush(s);
}

void cache_events_restart(struct sim *s)
{
    char why[256];
    if (!s->publisher)
        return;
    if (!publisher_restart(s->publisher, why)) {
        fprintf(stderr, "rolter-sim: %s\n", why);
        net_loop_stop(&s->loop);
    }
    greet(s);
}

void cache_events_renumber(struct sim *s)
{
    if (!s->publisher)
        return;
    publisher_renumber(s->publisher);
    greet(s);
}

void cache_events_close(struct sim *s)
{
    publisher_close(s->publisher);
    event_batch_fini(&s->batch);
}
