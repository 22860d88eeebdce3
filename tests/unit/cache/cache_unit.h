/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries for tests: number <i> has a key, a body and facts of its own.
 */
#ifndef ROLTER_TESTS_CACHE_UNIT_H
#define ROLTER_TESTS_CACHE_UNIT_H

#include "cache/entry.h"

#define T0 1700000000000u

static inline struct cache_digest key_number(uint64_t i)
{
    struct digest_writer w;
    struct cache_digest key;
    digest_begin(&w);
    digest_add_u64(&w, i);
    digest_end(&w, &key);
    return key;
}

static inline struct entry_facts facts_number(const struct cache_purge *p, uint64_t i, uint64_t scope)
{
    struct entry_facts f = {
        .key = key_number(i),
        .dialect = DIALECT_CHAT,
        .created_ms = T0,
        .expires_ms = T0 + 60000,
        .stale_until_ms = T0 + 90000,
        .owner = {purge_name(SPAN("route")), scope, purge_name(SPAN("key"))},
        .content_type = SPAN("application/json"),
        .route = SPAN("route"),
        .provider = SPAN("east"),
        .target = SPAN("m-1"),
        .model = SPAN("route"),
    };
    usage_init(&f.usage);
    f.usage.prompt = i;
    f.stamp = purge_stamp(p, &f.owner);
    return f;
}

/* The body starts with the number, so that a wrong one shows. */
static inline struct cache_entry *entry_number(const struct cache_purge *p, uint64_t i, uint64_t scope,
                                               size_t body_bytes)
{
    struct entry_facts f = facts_number(p, i, scope);
    char *body = malloc(body_bytes + sizeof i);
    memset(body, 'x', body_bytes + sizeof i);
    memcpy(body, &i, sizeof i);
    struct cache_entry *e = entry_new(&f, span_of(body, body_bytes < sizeof i ? sizeof i : body_bytes));
    free(body);
    return e;
}

static inline uint64_t number_of(const struct cache_entry *e)
{
    uint64_t i;
    memcpy(&i, e->body.p, sizeof i);
    return i;
}

#endif
