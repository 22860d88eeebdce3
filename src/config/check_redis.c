/* SPDX-License-Identifier: Apache-2.0
 * Rules of the keys of Redis.
 */
#include "cache/store.h"
#include "config/reader.h"
#include "redis/url.h"

void check_redis(struct reader *r)
{
    const struct redis_settings *s = &r->s->redis;
    const struct cache_settings *c = &r->s->cache;
    const char *why = s->url ? redis_url_fault(s->url, s->cluster) : NULL;
    if (why) /* the URL itself may hold a password and is not printed */
        reader_fault(r, reader_field_or_table(r, &s->url, s), "%s: %s",
                     s->url_is_env ? "ROLTER_REDIS_URL" : "redis.url", why);
    if (!s->url && s->cluster)
        reader_warn(r, reader_field(r, &s->cluster), "redis.cluster: there is no url");
    if (r->s->affinity_sync.enabled && !s->url)
        reader_fault(r, reader_field(r, &r->s->affinity_sync.enabled),
                     "affinity_sync.enabled: there is no `[redis]` url");
    why = store_namespace_fault(c->name_space);
    if (why)
        reader_fault(r, reader_field(r, &c->name_space), "cache.namespace: %s", why);
}
