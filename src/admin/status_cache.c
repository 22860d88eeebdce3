/* SPDX-License-Identifier: Apache-2.0
 *
 * The response cache on the status page, exact and by meaning; policy and limits.
 */
#include "admin/status_parts.h"

static void plain(struct json_out *o, const char *name, enum metric_id id)
{
    json_out_member_u64(o, name, metric_value(metric_plain(id)));
}

static void add_label(void *arg, const char *const value[METRIC_LABELS_MAX], uint64_t n)
{
    if (n)
        json_out_member_u64(arg, value[0], n);
}

void status_by_label(struct json_out *o, const char *name, enum metric_id id)
{
    json_out_name(o, name);
    json_out_object(o);
    metric_visit(id, add_label, o);
    json_out_object_end(o);
}

void status_store(struct json_out *o, const struct store_stats *s)
{
    json_out_name(o, "memory");
    json_out_object(o);
    json_out_member_u64(o, "bytes", s->memory.bytes);
    json_out_member_u64(o, "entries", s->memory.entries);
    json_out_member_u64(o, "scopes", s->memory.scopes);
    json_out_member_u64(o, "hits", s->memory.hits);
    json_out_member_u64(o, "misses", s->memory.misses);
    json_out_member_u64(o, "stale_hits", s->memory.stale_hits);
    json_out_member_u64(o, "stored", s->memory.stored);
    json_out_member_u64(o, "evicted", s->memory.evicted);
    json_out_member_u64(o, "expired", s->memory.expired);
    json_out_member_u64(o, "purged", s->memory.purged);
    json_out_object_end(o);
    if (!s->has_redis)
        return;
    json_out_name(o, "redis");
    json_out_object(o);
    json_out_member_bool(o, "up", s->redis_up);
    json_out_member_u64(o, "hits", s->redis_hits);
    json_out_member_u64(o, "misses", s->redis_misses);
    json_out_member_u64(o, "broken", s->redis_broken);
    json_out_member_u64(o, "outdated", s->redis_outdated);
    json_out_member_u64(o, "skipped", s->redis_skipped);
    json_out_member_u64(o, "failed", s->redis_failed);
    json_out_member_u64(o, "stored", s->redis_stored);
    json_out_member_u64(o, "not_stored", s->redis_not_stored);
    json_out_object_end(o);
}

struct embeddings {
    uint64_t ok, error;
};

static void add_embeddings(void *arg, const char *const value[METRIC_LABELS_MAX], uint64_t n)
{
    struct embeddings *x = arg;
    *(strcmp(value[1], "ok") == 0 ? &x->ok : &x->error) += n;
}

static void semantic(struct json_out *o, const struct reply_cache *c)
{
    struct vectors_stats v;
    struct embeddings calls = {0};
    vectors_stats(semantic_index_vectors(c->semantic), &v);
    metric_visit(M_SEMANTIC_EMBEDDINGS, add_embeddings, &calls);
    json_out_name(o, "semantic");
    json_out_object(o);
    plain(o, "hits", M_SEMANTIC_HITS);
    plain(o, "misses", M_SEMANTIC_MISSES);
    plain(o, "stores", M_SEMANTIC_STORES);
    json_out_member_u64(o, "vectors", v.entries);
    json_out_member_u64(o, "partitions", v.indexes);
    json_out_member_u64(o, "bytes", v.bytes);
    json_out_member_u64(o, "evicted", v.evicted);
    json_out_member_u64(o, "embeddings", calls.ok);
    json_out_member_u64(o, "embedding_errors", calls.error);
    status_by_label(o, "guarded", M_SEMANTIC_GUARDED);
    status_by_label(o, "bypassed", M_SEMANTIC_BYPASSED);
    json_out_object_end(o);
}

void status_cache(struct json_out *o, const struct reply_cache *c)
{
    if (!c)
        return;
    struct store_stats s;
    store_stats(c->store, &s);
    json_out_name(o, "cache");
    json_out_object(o);
    status_store(o, &s);
    json_out_member_u64(o, "flights", flight_table_count(c->flights));
    json_out_member_u64(o, "purges", s.purges);
    plain(o, "stores", M_CACHE_STORES);
    plain(o, "coalesced", M_CACHE_COALESCED);
    plain(o, "revalidations", M_CACHE_REVALIDATIONS);
    status_by_label(o, "not_stored", M_CACHE_NOT_STORED);
    json_out_object_end(o);
    semantic(o, c);
}

void status_policy(struct json_out *o)
{
    json_out_name(o, "policy");
    json_out_object(o);
    plain(o, "guardrail_blocks", M_GUARD_BLOCKS);
    plain(o, "guardrail_redactions", M_GUARD_REDACTIONS);
    plain(o, "guardrail_output_blocks", M_GUARD_OUTPUT_BLOCKS);
    plain(o, "guardrail_output_redactions", M_GUARD_OUTPUT_REDACTIONS);
    plain(o, "guardrail_stream_rejections", M_GUARD_STREAM_REJECTIONS);
    plain(o, "webhook_blocks", M_WEBHOOK_BLOCKS);
    plain(o, "webhook_transforms", M_WEBHOOK_TRANSFORMS);
    plain(o, "webhook_errors", M_WEBHOOK_ERRORS);
    status_by_label(o, "plugin_blocks", M_PLUGIN_BLOCKS);
    status_by_label(o, "plugin_transforms", M_PLUGIN_TRANSFORMS);
    status_by_label(o, "plugin_errors", M_PLUGIN_ERRORS);
    plain(o, "plugin_stream_rejections", M_PLUGIN_STREAM_REJECTIONS);
    plain(o, "pii_redacted", M_PII_REDACTED);
    plain(o, "pii_blocks", M_PII_BLOCKS);
    plain(o, "pii_errors", M_PII_ERRORS);
    plain(o, "pii_restorations", M_PII_RESTORATIONS);
    plain(o, "pii_restore_errors", M_PII_RESTORE_ERRORS);
    plain(o, "pii_stream_rejections", M_PII_STREAM_REJECTIONS);
    plain(o, "withheld", M_WITHHELD);
    status_by_label(o, "fail_open", M_FAIL_OPEN);
    json_out_object_end(o);
}

static void rules(struct json_out *o, const char *scope, const char *name, const struct limit_set *s,
                  uint64_t wall_ms)
{
    static const char *const periods[] = {"month", "day", "total"};
    for (unsigned i = 0; i < s->n; i++) {
        struct limit_use u;
        limit_set_use(s, i, wall_ms, &u);
        json_out_object(o);
        json_out_member_str(o, "scope", scope);
        json_out_member_str(o, "name", name);
        if (u.is_budget) {
            json_out_member_str(o, "period", periods[u.period]);
            json_out_member_double(o, "limit_usd", u.limit_usd);
            json_out_member_double(o, "used_usd", u.used_usd);
        }
        if (u.rpm) {
            json_out_member_u64(o, "rpm", u.rpm);
            json_out_member_u64(o, "requests", u.requests);
        }
        if (u.tpm) {
            json_out_member_u64(o, "tpm", u.tpm);
            json_out_member_u64(o, "tokens", u.tokens);
        }
        json_out_object_end(o);
    }
}

void status_limits(struct json_out *o, const struct plan *p, uint64_t wall_ms)
{
    json_out_name(o, "limits");
    json_out_object(o);
    plain(o, "budget_blocks", M_BUDGET_BLOCKS);
    plain(o, "rate_limit_blocks", M_RATE_LIMIT_BLOCKS);
    plain(o, "queue_rejections", M_QUEUE_REJECTIONS);
    plain(o, "queue_timeouts", M_QUEUE_TIMEOUTS);
    json_out_name(o, "rules");
    json_out_array(o);
    for (unsigned i = 0; i < p->n_keys; i++)
        rules(o, "key", p->keys[i].name, &p->keys[i].limits, wall_ms);
    for (unsigned i = 0; i < p->n_routes; i++)
        rules(o, "route", p->routes[i].model, &p->routes[i].limits, wall_ms);
    json_out_array_end(o);
    json_out_object_end(o);
}
