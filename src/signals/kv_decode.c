/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/kv_decode.h"

#include <stdlib.h>

#include "balance/kv_ids.h"
#include "base/check.h"
#include "base/mem.h"

enum { BLOCK_TOKENS_MAX = 65536, GROUP_MAX = 63 };

void kv_decoder_fini(struct kv_decoder *d)
{
    free(d->hash);
    free(d->token);
    free(d->seen);
    *d = (struct kv_decoder){0};
}

/* Fields of an event by slot of the array form (behind the tag) and by name. */
enum field {
    F_HASHES,
    F_BEFORE,
    F_TOKENS,
    F_BLOCK_SIZE,
    F_LORA_ID,
    F_MEDIUM,
    F_LORA_NAME, /* SGLang puts a map with `cache_salt` into this slot */
    F_EXTRA_KEYS,
    F_GROUP,
    F_KIND,
    F_LOCALITY,
    F_SALT,
    F_COUNT
};

static const char *const names[F_COUNT] = {
    [F_HASHES] = "block_hashes",     [F_BEFORE] = "parent_block_hash", [F_TOKENS] = "token_ids",
    [F_BLOCK_SIZE] = "block_size",   [F_LORA_ID] = "lora_id",          [F_MEDIUM] = "medium",
    [F_LORA_NAME] = "lora_name",     [F_EXTRA_KEYS] = "extra_keys",    [F_GROUP] = "group_idx",
    [F_KIND] = "kv_cache_spec_kind", [F_LOCALITY] = "locality",        [F_SALT] = "cache_salt",
};

static const enum field stored_slots[] = {F_HASHES, F_BEFORE,    F_TOKENS,     F_BLOCK_SIZE, F_LORA_ID,
                                          F_MEDIUM, F_LORA_NAME, F_EXTRA_KEYS, F_GROUP,      F_KIND};
static const enum field removed_slots[] = {F_HASHES, F_MEDIUM, F_GROUP};
enum { STORED_SLOTS_MIN = 4, REMOVED_SLOTS_MIN = 1 };

/* Where each field's value stands; end = p: not there. */
struct fields {
    struct msgpack_value tag;
    bool has_tag;
    unsigned slots; /* of an array, behind the tag */
    struct msgpack at[F_COUNT];
};

/* The head of a field's value; false when it is not there or nil. */
static bool head(const struct fields *f, enum field which, struct msgpack_value *ret)
{
    struct msgpack m = f->at[which];
    return m.p != m.end && msgpack_next(&m, ret) && ret->type != MSGPACK_NIL;
}

static bool hash_of(const struct msgpack_value *v, uint64_t *ret)
{
    if (v->type == MSGPACK_UINT || v->type == MSGPACK_INT) {
        *ret = v->number;
        return true;
    }
    if (v->type != MSGPACK_BIN || v->bytes.n == 0)
        return false;
    /* A digest: engines that send numbers send its last 8 bytes. */
    uint64_t h = 0;
    for (size_t i = v->bytes.n > 8 ? v->bytes.n - 8 : 0; i < v->bytes.n; i++)
        h = h << 8 | (unsigned char)v->bytes.p[i];
    *ret = h;
    return true;
}

/* Events and batches */

bool kv_batch_open(struct span payload, struct kv_batch *ret)
{
    struct msgpack m = msgpack_of(payload);
    struct msgpack_value v, name, events = {0};
    struct msgpack at = {0};
    if (!msgpack_is_whole(payload) || !msgpack_next(&m, &v))
        return false;
    bool is_map = v.type == MSGPACK_MAP, found = false;
    if (v.type != MSGPACK_ARRAY && !is_map)
        return false;
    for (uint32_t i = 0; i < v.count; i++) {
        if (is_map && !msgpack_cut(&m, &at))
            return false;
        bool wanted = is_map ? msgpack_next(&at, &name) && msgpack_is_str(&name, SPAN("events")) : i == 1;
        if (!msgpack_cut(&m, &at))
            return false;
        if (wanted) {
            found = msgpack_next(&at, &events) && events.type == MSGPACK_ARRAY;
            *ret = (struct kv_batch){.events = at, .left = events.count};
        } else if (i == 0 && !is_map) { /* the time */
            if (!msgpack_next(&at, &name) || (name.type != MSGPACK_FLOAT && name.type != MSGPACK_UINT))
                return false;
        }
    }
    return found;
}

static bool read_array(struct msgpack m, uint32_t n, struct fields *f)
{
    if (n == 0)
        return false;
    if (!msgpack_next(&m, &f->tag))
        return false;
    f->has_tag = true;
    f->slots = n - 1;
    const enum field *slots = stored_slots;
    unsigned known = ARRAY_LEN(stored_slots);
    if (!msgpack_is_str(&f->tag, SPAN("BlockStored"))) {
        slots = removed_slots;
        known = ARRAY_LEN(removed_slots);
    }
    for (unsigned i = 0; i < f->slots && i < known; i++)
        if (!msgpack_cut(&m, &f->at[slots[i]]))
            return false;
    return true;
}

static bool read_map(struct msgpack m, uint32_t n, struct fields *f)
{
    for (uint32_t i = 0; i < n; i++) {
        struct msgpack key, value;
        struct msgpack_value name;
        if (!msgpack_cut(&m, &key) || !msgpack_cut(&m, &value) || !msgpack_next(&key, &name))
            return false;
        if (name.type != MSGPACK_STR)
            continue;
        if (span_eq(name.bytes, SPAN("type"))) {
            f->has_tag = msgpack_next(&value, &f->tag);
            continue;
        }
        for (unsigned k = 0; k < F_COUNT; k++)
            if (span_eq(name.bytes, span_str(names[k])))
                f->at[k] = value;
    }
    f->slots = F_COUNT; /* none is missed by its place */
    return f->has_tag;
}

/* Grows *p to hold <n>. */
static void *room(void *p, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap)
        return p;
    *cap = n < 64 ? 64 : n;
    return mem_realloc(p, *cap * size);
}

static bool read_hashes(const struct fields *f, struct kv_decoder *d, struct kv_event *e)
{
    struct msgpack m = f->at[F_HASHES];
    struct msgpack_value v;
    if (m.p == m.end || !msgpack_next(&m, &v) || v.type != MSGPACK_ARRAY || v.count > KV_EVENT_HASHES_MAX)
        return false;
    d->hash = room(d->hash, &d->cap_hash, v.count, sizeof *d->hash);
    e->n_hashes = v.count;
    e->hash = d->hash;
    for (uint32_t i = 0; i < e->n_hashes; i++)
        if (!msgpack_next(&m, &v) || !hash_of(&v, &d->hash[i]))
            return false;
    return true;
}

/* No hash twice: which of the two blocks it names could not be told. Mixed with a key, as the engine chose
 * them. */
static bool hashes_differ(struct kv_decoder *d, const struct kv_event *e)
{
    if (e->n_hashes < 2)
        return true;
    size_t n = 4;
    while (n < (size_t)e->n_hashes * 2)
        n *= 2;
    d->seen = room(d->seen, &d->cap_seen, n, sizeof *d->seen);
    memset(d->seen, 0, n * sizeof *d->seen);
    for (uint32_t i = 0; i < e->n_hashes; i++) {
        size_t at = kv_behind(1, e->hash[i]) & (n - 1);
        for (; d->seen[at]; at = (at + 1) & (n - 1))
            if (e->hash[d->seen[at] - 1] == e->hash[i])
                return false;
        d->seen[at] = i + 1;
    }
    return true;
}

static bool token_of(struct msgpack *m, uint32_t *ret)
{
    struct msgpack_value v;
    if (!msgpack_next(m, &v) || v.type != MSGPACK_UINT || v.number > UINT32_MAX)
        return false;
    *ret = (uint32_t)v.number;
    return true;
}

/* Plain ids, or pairs of neighbours: each with the next one. */
static bool read_tokens(const struct fields *f, struct kv_decoder *d, struct kv_event *e)
{
    struct msgpack m = f->at[F_TOKENS];
    struct msgpack_value v;
    if (m.p == m.end || !msgpack_next(&m, &v) || v.type != MSGPACK_ARRAY || v.count > KV_EVENT_TOKENS_MAX)
        return false;
    uint32_t n = v.count, second = 0;
    d->token = room(d->token, &d->cap_token, (size_t)n + 1, sizeof *d->token);
    e->token = d->token;
    e->n_tokens = n;
    struct msgpack ahead = m;
    e->overlap = n > 0 && msgpack_next(&ahead, &v) && v.type == MSGPACK_ARRAY;
    for (uint32_t i = 0; i < n; i++) {
        if (e->overlap && (!msgpack_next(&m, &v) || v.type != MSGPACK_ARRAY || v.count != 2))
            return false;
        if (!token_of(&m, &d->token[i]) || (e->overlap && i > 0 && d->token[i] != second))
            return false;
        if (e->overlap && !token_of(&m, &second))
            return false;
    }
    d->token[n] = second;
    return true;
}

static bool same_nocase(struct span s, const char *text)
{
    return span_eq_nocase(s, span_str(text));
}

/* What stored and removed events have in common. */
static bool read_place(const struct fields *f, struct kv_event *e)
{
    struct msgpack_value v;
    e->group = -1;
    if (head(f, F_MEDIUM, &v)) {
        if (v.type != MSGPACK_STR)
            return false;
        e->lower_tier = !same_nocase(v.bytes, "GPU");
    }
    if (head(f, F_GROUP, &v)) {
        if (v.type != MSGPACK_UINT)
            return false;
        e->group = v.number < GROUP_MAX ? (int)v.number : GROUP_MAX;
    }
    if (head(f, F_KIND, &v) && v.type == MSGPACK_STR)
        e->kind = v.bytes;
    if (head(f, F_LOCALITY, &v) && v.type == MSGPACK_STR)
        e->is_elsewhere = same_nocase(v.bytes, "REMOTE");
    return true;
}

static void read_salt(struct msgpack m, struct kv_event *e)
{
    struct msgpack_value v;
    if (m.p != m.end && msgpack_next(&m, &v) && v.type == MSGPACK_STR)
        e->salt = v.bytes;
}

/* Who shares the blocks. */
static void read_scope(const struct fields *f, struct kv_event *e)
{
    struct msgpack_value v;
    read_salt(f->at[F_SALT], e);
    if (head(f, F_LORA_NAME, &v)) {
        if (v.type == MSGPACK_STR) {
            e->adapter = v.bytes;
        } else if (v.type == MSGPACK_MAP) {
            struct msgpack m = f->at[F_LORA_NAME], value;
            struct msgpack_value name;
            msgpack_next(&m, &v);
            for (uint32_t i = 0; i < v.count; i++)
                if (msgpack_next(&m, &name) && msgpack_cut(&m, &value) &&
                    msgpack_is_str(&name, SPAN("cache_salt")))
                    read_salt(value, e);
        }
    }
    /* No engine numbers an adapter 0. */
    if (e->adapter.n == 0 && head(f, F_LORA_ID, &v))
        e->adapter_unknown = v.type != MSGPACK_UINT || v.number != 0;
}

static bool read_stored(const struct fields *f, struct kv_decoder *d, struct kv_event *e)
{
    struct msgpack_value v;
    if (f->slots < STORED_SLOTS_MIN || !read_hashes(f, d, e) || !read_place(f, e) || !read_tokens(f, d, e))
        return false;
    if (head(f, F_BEFORE, &v)) {
        if (!hash_of(&v, &e->before))
            return false;
        e->has_before = true;
        e->before_is_number = v.type == MSGPACK_UINT;
    }
    read_scope(f, e);
    if (head(f, F_EXTRA_KEYS, &v)) {
        if (v.type != MSGPACK_ARRAY || v.count != e->n_hashes)
            return false;
        e->extras = f->at[F_EXTRA_KEYS];
        msgpack_next(&e->extras, &v);
    }
    if (e->n_tokens == 0)
        return true; /* only where they are */
    if (!head(f, F_BLOCK_SIZE, &v) || v.type != MSGPACK_UINT || v.number == 0 || v.number > BLOCK_TOKENS_MAX)
        return false;
    e->block_size = (uint32_t)v.number;
    e->is_ragged = (uint64_t)e->n_hashes * e->block_size != e->n_tokens;
    if (!hashes_differ(d, e))
        return false;
    for (uint32_t i = 0; e->has_before && i < e->n_hashes; i++)
        if (e->hash[i] == e->before)
            return false;
    return true;
}

static bool read_event(struct msgpack m, struct kv_decoder *d, struct kv_event *e)
{
    struct fields f = {.has_tag = false};
    struct msgpack_value v;
    if (!msgpack_next(&m, &v))
        return false;
    *e = (struct kv_event){.group = -1};
    if (v.type == MSGPACK_ARRAY ? !read_array(m, v.count, &f)
                                : v.type != MSGPACK_MAP || !read_map(m, v.count, &f))
        return false;
    if (msgpack_is_str(&f.tag, SPAN("BlockStored"))) {
        e->type = KV_EVENT_STORED;
        return read_stored(&f, d, e);
    }
    if (msgpack_is_str(&f.tag, SPAN("BlockRemoved"))) {
        e->type = KV_EVENT_REMOVED;
        return f.slots >= REMOVED_SLOTS_MIN && read_hashes(&f, d, e) && read_place(&f, e);
    }
    e->type = KV_EVENT_CLEARED;
    return msgpack_is_str(&f.tag, SPAN("AllBlocksCleared"));
}

enum kv_next kv_batch_next(struct kv_batch *b, struct kv_decoder *d, struct kv_event *ret)
{
    struct msgpack at;
    if (b->left == 0 || !msgpack_cut(&b->events, &at))
        return KV_NEXT_END;
    b->left--;
    return read_event(at, d, ret) ? KV_NEXT_EVENT : KV_NEXT_BAD;
}

enum kv_extra kv_event_extra(struct kv_event *e, bool first, struct span *ret_salt)
{
    struct msgpack at;
    struct msgpack_value v;
    if (e->extras.p == e->extras.end || !msgpack_cut(&e->extras, &at) || !msgpack_next(&at, &v) ||
        v.type == MSGPACK_NIL)
        return KV_EXTRA_NONE;
    uint32_t left = 1;
    if (v.type == MSGPACK_ARRAY) {
        left = v.count;
        if (left == 0 || !msgpack_next(&at, &v))
            return KV_EXTRA_NONE;
        if (e->adapter.n > 0 && msgpack_is_str(&v, e->adapter)) {
            if (--left == 0 || !msgpack_next(&at, &v))
                return KV_EXTRA_NONE;
        }
    }
    if (!first || left != 1 || v.type != MSGPACK_STR)
        return KV_EXTRA_OTHER;
    *ret_salt = v.bytes;
    return KV_EXTRA_SALT;
}
