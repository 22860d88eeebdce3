/* SPDX-License-Identifier: Apache-2.0 */
#include "event_batch.h"

#include "base/hash.h"
#include "msgpack.h"

enum { EVENT_BYTES_MAX = 64 << 20 };

void event_batch_init(struct event_batch *b, const struct event_style *style)
{
    *b = (struct event_batch){.style = *style};
    struct buf *all[] = {&b->events, &b->payload, &b->hashes, &b->tokens, &b->lora, &b->salt};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_init(all[i], EVENT_BYTES_MAX);
}

void event_batch_fini(struct event_batch *b)
{
    struct buf *all[] = {&b->events, &b->payload, &b->hashes, &b->tokens, &b->lora, &b->salt};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_fini(all[i]);
}

static void clear_store(struct event_batch *b)
{
    buf_clear(&b->hashes);
    buf_clear(&b->tokens);
    buf_clear(&b->lora);
    buf_clear(&b->salt);
}

void event_batch_drop(struct event_batch *b)
{
    clear_store(b);
    buf_clear(&b->events);
    b->n = 0;
}

static bool is_map(const struct event_batch *b)
{
    return b->style.format == EVENT_VLLM_MAP || b->style.format == EVENT_SGLANG_MAP;
}

static bool is_sglang(const struct event_batch *b)
{
    return b->style.format == EVENT_SGLANG_MAP || b->style.format == EVENT_SGLANG_ARRAY;
}

/* Head and tag of an event with <n> values behind the tag. */
static void begin(struct event_batch *b, const char *tag, uint32_t n)
{
    if (is_map(b)) {
        msgpack_map(&b->events, n + 1);
        msgpack_str(&b->events, SPAN("type"));
    } else {
        msgpack_array(&b->events, n + 1);
    }
    msgpack_str(&b->events, span_str(tag));
    b->n++;
}

/* The name of the value that follows, where values have names. */
static void name(struct event_batch *b, const char *text)
{
    if (is_map(b))
        msgpack_str(&b->events, span_str(text));
}

static void put_hash(struct event_batch *b, uint64_t hash)
{
    if (!b->style.hash_bytes) {
        if (is_sglang(b))
            msgpack_int(&b->events, (int64_t)hash);
        else
            msgpack_uint(&b->events, hash);
        return;
    }
    uint8_t digest[32];
    for (unsigned i = 0; i < 4; i++) {
        uint64_t part = i == 3 ? hash : hash_mix(hash, i);
        for (unsigned k = 0; k < 8; k++)
            digest[8 * i + k] = (uint8_t)(part >> (56 - 8 * k));
    }
    msgpack_bin(&b->events, span_of((const char *)digest, sizeof digest));
}

static void put_hashes(struct event_batch *b, const uint64_t *hashes, uint32_t n)
{
    name(b, "block_hashes");
    msgpack_array(&b->events, n);
    for (uint32_t i = 0; i < n; i++)
        put_hash(b, hashes[i]);
}

static void put_medium(struct event_batch *b)
{
    name(b, "medium");
    msgpack_str(&b->events, SPAN("GPU"));
}

static void put_group(struct event_batch *b)
{
    name(b, "group_idx");
    msgpack_uint(&b->events, 0);
}

/* For each block nil, or what else is part of its hash: the adapter's name, and the salt in the first block.
 */
static void put_extra_keys(struct event_batch *b, uint32_t n)
{
    name(b, "extra_keys");
    msgpack_array(&b->events, n);
    for (uint32_t i = 0; i < n; i++) {
        bool salted = b->salt.n && i == 0 && b->parent == 0;
        uint32_t keys = (b->lora.n != 0) + (uint32_t)salted;
        if (!keys) {
            msgpack_nil(&b->events);
            continue;
        }
        msgpack_array(&b->events, keys);
        if (b->lora.n)
            msgpack_str(&b->events, buf_view(&b->lora));
        if (salted)
            msgpack_str(&b->events, buf_view(&b->salt));
    }
}

/* What both engines' stores begin with. */
static void put_store_common(struct event_batch *b, uint32_t n)
{
    struct buf *e = &b->events;
    put_hashes(b, (const uint64_t *)(const void *)b->hashes.p, n);
    name(b, "parent_block_hash");
    if (b->parent)
        put_hash(b, b->parent);
    else
        msgpack_nil(e);
    name(b, "token_ids");
    const uint32_t *ids = (const uint32_t *)(const void *)b->tokens.p;
    msgpack_array(e, n * b->style.block_size);
    for (size_t i = 0; i < (size_t)n * b->style.block_size; i++)
        msgpack_uint(e, ids[i]);
    name(b, "block_size");
    msgpack_uint(e, b->style.block_size);
    name(b, "lora_id");
    if (b->lora_id && !is_sglang(b))
        msgpack_uint(e, b->lora_id);
    else
        msgpack_nil(e);
    put_medium(b);
}

static void put_store_vllm(struct event_batch *b, uint32_t n)
{
    /* Arrays have every slot; maps leave out what has its default (the sliding window). */
    begin(b, "BlockStored", is_map(b) ? 10 : 11);
    put_store_common(b, n);
    name(b, "lora_name");
    if (b->lora.n)
        msgpack_str(&b->events, buf_view(&b->lora));
    else
        msgpack_nil(&b->events);
    put_extra_keys(b, n);
    put_group(b);
    name(b, "kv_cache_spec_kind");
    msgpack_str(&b->events, SPAN("full_attention"));
    if (!is_map(b))
        msgpack_nil(&b->events);
}

static void put_store_sglang(struct event_batch *b, uint32_t n)
{
    bool salted = b->salt.n != 0;
    begin(b, "BlockStored", 6 + (uint32_t)salted);
    put_store_common(b, n);
    if (!salted)
        return;
    if (!is_map(b)) /* the slot has a map of its own */
        msgpack_map(&b->events, 1);
    msgpack_str(&b->events, SPAN("cache_salt"));
    msgpack_str(&b->events, buf_view(&b->salt));
}

static void end_store(struct event_batch *b)
{
    uint32_t n = (uint32_t)(b->hashes.n / sizeof(uint64_t));
    if (!n)
        return;
    if (is_sglang(b))
        put_store_sglang(b, n);
    else
        put_store_vllm(b, n);
    clear_store(b);
}

void event_batch_stored(struct event_batch *b, const struct block_content *c, const struct event_scope *s)
{
    if (!b->hashes.n || b->last != c->parent) {
        end_store(b);
        b->parent = c->parent;
        b->lora_id = s->lora_id;
        buf_add_span(&b->lora, s->lora);
        buf_add_span(&b->salt, s->salt);
    }
    buf_add(&b->hashes, &c->hash, sizeof c->hash);
    buf_add(&b->tokens, c->tokens, b->style.block_size * sizeof *c->tokens);
    b->last = c->hash;
}

void event_batch_removed(struct event_batch *b, uint64_t hash)
{
    end_store(b);
    begin(b, "BlockRemoved", is_sglang(b) ? 2 : 3);
    put_hashes(b, &hash, 1);
    put_medium(b);
    if (!is_sglang(b))
        put_group(b);
}

void event_batch_cleared(struct event_batch *b)
{
    end_store(b);
    begin(b, "AllBlocksCleared", 0);
}

bool event_batch_empty(const struct event_batch *b)
{
    return b->n == 0 && b->hashes.n == 0;
}

size_t event_batch_bytes(const struct event_batch *b)
{
    return b->events.n + 2 * (b->hashes.n + b->tokens.n);
}

struct span event_batch_end(struct event_batch *b, double ts)
{
    end_store(b);
    buf_clear(&b->payload);
    msgpack_array(&b->payload, 3);
    msgpack_double(&b->payload, ts);
    msgpack_array(&b->payload, b->n);
    buf_add_span(&b->payload, buf_view(&b->events));
    msgpack_uint(&b->payload, b->style.rank);
    b->total += b->n;
    event_batch_drop(b);
    return buf_view(&b->payload);
}
