/* SPDX-License-Identifier: Apache-2.0 */
#include "signals/kv_apply.h"

#include "balance/kv_ids.h"
#include "base/check.h"
#include "base/hash.h"

static bool is_main_kind(struct span kind)
{
    static const char *const kinds[] = {"full_attention", "mla_attention", "sink_full_attention"};
    for (unsigned i = 0; i < ARRAY_LEN(kinds); i++)
        if (span_eq(kind, span_str(kinds[i])))
            return true;
    return false;
}

/* Groups share hashes, so an event of another one must not touch what is held. Without a word of the kind the
 * first group counts, as long as no other has said that it is the main one. */
static bool group_counts(struct kv_groups *g, const struct kv_event *e)
{
    if (e->kind.n > 0) {
        bool main = is_main_kind(e->kind);
        if (e->group >= 0 && !main)
            g->other |= UINT64_C(1) << e->group;
        if (e->group >= 0 && main && g->main < 0)
            g->main = e->group;
        return main && (e->group < 0 || e->group == g->main);
    }
    if (e->group < 0)
        return true;
    if (g->main >= 0)
        return e->group == g->main;
    return e->group == 0 && !(g->other & 1);
}

static enum kv_tier tier_of(const struct kv_event *e)
{
    return e->lower_tier ? KV_TIER_LOWER : KV_TIER_GPU;
}

/* Blocks of a salt that the engine does not put into its hashes are kept apart by this. Never 0. */
static uint16_t tag_of(struct span salt)
{
    return (uint16_t)(hash_bytes_seed(salt.p, salt.n, 0x73616c74) % 65535 + 1);
}

static void store(struct kv_applying *a, struct kv_event *e)
{
    if (e->adapter_unknown)
        return; /* nobody could ask for it (R5) */
    if (e->adapter.n > 0)
        kv_source_adapter(a->source, e->adapter);
    /* Older simulators mean by 0 that nothing is before. */
    bool is_first =
        !e->has_before || (e->before == 0 && e->before_is_number && !kv_source_knows(a->source, a->rank, 0));
    struct kv_store s = {.is_first = is_first, .before = e->before, .tier = tier_of(e)};
    if (e->salt.n > 0)
        s.tag = tag_of(e->salt);
    for (uint32_t i = 0; i < e->n_hashes; i++) {
        struct span salt = e->salt;
        /* An image and what stands behind it is nobody's prompt (R5). */
        if (kv_event_extra(e, s.is_first, &salt) == KV_EXTRA_OTHER)
            return;
        s.hash = e->hash[i];
        s.root = s.is_first ? kv_root(e->adapter, salt) : 0;
        s.digest = kv_digest(e->token + (size_t)i * e->block_size, e->block_size + e->overlap);
        if (kv_source_store(a->source, a->rank, &s, e->block_size, e->overlap) != KV_KEPT)
            return;
        s.is_first = false;
        s.before = s.hash;
    }
}

/* False: a fault. */
static bool apply(struct kv_applying *a, struct kv_event *e)
{
    if (e->type == KV_EVENT_CLEARED) {
        kv_source_clear(a->source, a->rank);
        return true;
    }
    if (!group_counts(&a->groups, e))
        return true;
    if (e->type == KV_EVENT_STORED && e->is_ragged)
        return false;
    if (e->is_elsewhere)
        return true;
    if (e->type == KV_EVENT_STORED && e->n_tokens > 0) {
        store(a, e);
        return true;
    }
    for (uint32_t i = 0; i < e->n_hashes; i++) {
        if (e->type == KV_EVENT_REMOVED)
            kv_source_remove(a->source, a->rank, e->hash[i], tier_of(e));
        else
            kv_source_store_known(a->source, a->rank, e->hash[i], tier_of(e));
    }
    return true;
}

struct kv_applied kv_apply(struct kv_applying *a, struct span payload, bool waiting)
{
    struct kv_applied r = {0};
    struct kv_batch b;
    if (!kv_batch_open(payload, &b))
        return r;
    r.is_batch = true;
    struct kv_event e;
    for (enum kv_next next; (next = kv_batch_next(&b, a->decoder, &e)) != KV_NEXT_END;) {
        if (next == KV_NEXT_EVENT && e.type == KV_EVENT_CLEARED)
            r.cleared = true;
        else if (next == KV_NEXT_EVENT && waiting && !r.cleared)
            continue;
        if (next == KV_NEXT_EVENT && apply(a, &e))
            r.applied++;
        else
            r.bad++;
    }
    return r;
}
