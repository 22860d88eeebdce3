/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

struct engine {
    struct engine_options o;
    struct engine_events ev;
    struct blocks *blocks;
    uint64_t now_us;  /* time of the event that is being looked at */
    double decode_us; /* between two tokens of a request; 0 = none */
    struct list waiting;
    struct list decoding; /* by due time: every request has the same interval, so a due one goes to the end */
    struct engine_request *prefilling;
    uint32_t waiting_n, decoding_n;
    bool is_busy; /* inside `progress` */
    struct engine_totals totals;
};

struct engine *engine_new(const struct engine_options *o, const struct engine_events *ev)
{
    CHECK(o->block_size && o->max_running);
    struct engine *e = MEM_NEW(struct engine);
    e->o = *o;
    e->ev = *ev;
    e->decode_us = o->decode_tps > 0 ? 1e6 / o->decode_tps : 0;
    e->blocks = blocks_new(o->blocks, &ev->blocks);
    list_init(&e->waiting);
    list_init(&e->decoding);
    return e;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    blocks_free(e->blocks);
    free(e);
}

uint64_t engine_blocks_needed(const struct engine *e, const struct engine_request *r)
{
    if (r->no_cache)
        return 0;
    /* Choices share the full blocks of the prompt; what follows is each one's own. */
    uint64_t size = e->o.block_size, choices = r->choices ? r->choices : 1;
    uint64_t shared = r->prompt_n / size, own = r->prompt_n % size + (uint64_t)r->output_n;
    return shared + choices * ((own + size - 1) / size);
}

uint32_t engine_hash_blocks(uint32_t block_size, uint64_t salt, const uint32_t *tokens, size_t n,
                            uint64_t *ret)
{
    uint32_t full = (uint32_t)(n / block_size);
    uint64_t parent = salt;
    for (uint32_t i = 0; i < full; i++) {
        uint64_t h = hash_bytes_seed(tokens + (size_t)i * block_size, block_size * sizeof *tokens, parent);
        ret[i] = parent = h ? h : 1;
    }
    return full;
}

static void fill_blocks(struct engine *e, struct engine_request *r)
{
    if (r->no_cache)
        return;
    /* The newest token has not been through the model yet, so it is in no block. */
    uint32_t computed = r->prompt_n + (r->emitted ? r->emitted - 1 : 0);
    uint32_t full = computed / e->o.block_size;
    for (; r->filled < full; r->filled++) {
        struct block_content c = {
            .hash = r->hashes[r->filled],
            .parent = r->filled ? r->hashes[r->filled - 1] : 0,
            .tokens = r->tokens ? r->tokens + (size_t)r->filled * e->o.block_size : NULL,
            .owner = r,
        };
        blocks_fill(e->blocks, &r->lease, r->filled, &c);
    }
}

static void tell(struct engine *e, struct engine_request *r, uint32_t new_tokens)
{
    e->is_busy = true;
    e->ev.progress(e->ev.arg, r, new_tokens);
    e->is_busy = false;
}

/* <n> more tokens of each choice; takes the request out when these were the last. */
static void emit(struct engine *e, struct engine_request *r, uint32_t n)
{
    r->emitted += n;
    e->totals.output_tokens += (uint64_t)n * (r->choices ? r->choices : 1);
    fill_blocks(e, r);
    if (r->emitted == r->output_n) {
        r->state = ENGINE_DONE;
        blocks_release(e->blocks, &r->lease);
        e->totals.finished++;
    } else {
        r->due_us += (uint64_t)(e->decode_us + 0.5);
        list_push(&e->decoding, &r->node);
        e->decoding_n++;
    }
    tell(e, r, n);
}

static void prefill_done(struct engine *e)
{
    struct engine_request *r = e->prefilling;
    e->prefilling = NULL;
    r->state = ENGINE_DECODE;
    fill_blocks(e, r);
    /* The first token comes with the prefill. */
    emit(e, r, r->output_n && e->decode_us > 0 ? 1 : r->output_n);
}

static void decode_step(struct engine *e)
{
    struct engine_request *r = LIST_ITEM(list_pop(&e->decoding), struct engine_request, node);
    e->decoding_n--;
    emit(e, r, 1);
}

/* Begins the first waiting request if it can begin. */
static void admit(struct engine *e)
{
    if (e->prefilling || list_empty(&e->waiting) || e->decoding_n >= e->o.max_running)
        return;
    struct engine_request *r = LIST_ITEM(e->waiting.next, struct engine_request, node);
    r->lease = (struct block_lease){.ids = r->block_ids};
    uint32_t full = r->no_cache ? 0 : r->prompt_n / e->o.block_size;
    if (!blocks_take(e->blocks, &r->lease, r->hashes, full, (uint32_t)engine_blocks_needed(e, r)))
        return;
    list_remove(&r->node);
    e->waiting_n--;
    uint32_t usable = r->prompt_n ? (r->prompt_n - 1) / e->o.block_size : 0;
    uint32_t hit = r->lease.shared < usable ? r->lease.shared : usable;
    r->cached_n = hit * e->o.block_size;
    r->filled = r->lease.shared;
    if (!r->no_cache) {
        e->totals.prompt_tokens += r->prompt_n;
        e->totals.cached_tokens += r->cached_n;
    }
    double us = e->o.prefill_tps > 0 ? (r->prompt_n - r->cached_n) * 1e6 / e->o.prefill_tps : 0;
    r->due_us = e->now_us + (uint64_t)(us + 0.5);
    r->state = ENGINE_PREFILL;
    e->prefilling = r;
}

static struct engine_request *next_of(const struct engine *e)
{
    struct engine_request *d =
        list_empty(&e->decoding) ? NULL : LIST_ITEM(e->decoding.next, struct engine_request, node);
    if (!e->prefilling || (d && d->due_us < e->prefilling->due_us))
        return d;
    return e->prefilling;
}

uint64_t engine_next_us(const struct engine *e)
{
    const struct engine_request *r = next_of(e);
    return r ? r->due_us : UINT64_MAX;
}

void engine_advance(struct engine *e, uint64_t now_us)
{
    CHECK(!e->is_busy);
    admit(e);
    for (struct engine_request *r; (r = next_of(e)) && r->due_us <= now_us;) {
        if (r->due_us > e->now_us)
            e->now_us = r->due_us;
        if (r == e->prefilling)
            prefill_done(e);
        else
            decode_step(e);
        admit(e);
    }
    if (now_us > e->now_us)
        e->now_us = now_us;
}

bool engine_submit(struct engine *e, struct engine_request *r, uint64_t now_us)
{
    CHECK(!e->is_busy && (r->state == ENGINE_IDLE || r->state == ENGINE_DONE));
    CHECK(engine_blocks_needed(e, r) <= e->o.blocks);
    engine_advance(e, now_us);
    r->cached_n = r->emitted = r->filled = 0;
    r->lease = (struct block_lease){0};
    r->state = ENGINE_WAITING;
    list_push(&e->waiting, &r->node);
    e->waiting_n++;
    admit(e);
    if (r->state == ENGINE_WAITING && e->o.max_waiting && e->waiting_n > e->o.max_waiting) {
        list_remove(&r->node);
        e->waiting_n--;
        r->state = ENGINE_IDLE;
        e->totals.refused++;
        return false;
    }
    engine_advance(e, now_us);
    return true;
}

void engine_abort(struct engine *e, struct engine_request *r, uint64_t now_us)
{
    engine_advance(e, now_us); /* what was due happened before */
    switch (r->state) {
    case ENGINE_WAITING:
        list_remove(&r->node);
        e->waiting_n--;
        break;
    case ENGINE_PREFILL:
        e->prefilling = NULL;
        blocks_release(e->blocks, &r->lease);
        break;
    case ENGINE_DECODE:
        list_remove(&r->node);
        e->decoding_n--;
        blocks_release(e->blocks, &r->lease);
        break;
    default:
        return;
    }
    r->state = ENGINE_IDLE;
    e->totals.aborted++;
    engine_advance(e, now_us);
}

void engine_restart(struct engine *e)
{
    CHECK(!e->prefilling && !e->waiting_n && !e->decoding_n);
    blocks_clear(e->blocks);
    e->totals = (struct engine_totals){0};
}

void engine_resize(struct engine *e, uint32_t blocks, uint64_t now_us)
{
    engine_advance(e, now_us);
    e->o.blocks = blocks;
    blocks_resize(e->blocks, blocks);
    engine_advance(e, now_us);
}

uint32_t engine_running(const struct engine *e)
{
    return e->decoding_n + (e->prefilling != NULL);
}

uint32_t engine_waiting(const struct engine *e)
{
    return e->waiting_n;
}

const struct engine_totals *engine_totals(const struct engine *e)
{
    return &e->totals;
}

struct blocks *engine_blocks(struct engine *e)
{
    return e->blocks;
}
