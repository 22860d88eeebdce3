/* SPDX-License-Identifier: Apache-2.0
 *
 * What LMCache endpoints and engines answer a poll with: an answer is finite and its score within 0 and 1.
 */
#include <math.h>

#include "base/check.h"
#include "signals/engine_metrics.h"
#include "signals/lmcache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void judge(const struct lmcache_answer *a)
{
    double score = lmcache_score(a);
    CHECK(isfinite(a->occupancy) && score >= 0 && score <= 1);
    CHECK(a->available || score == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_of((const char *)data, size);
    struct lmcache_answer a;
    struct engine_metrics m;
    struct arena arena;
    arena_init(&arena, NULL);
    if (!lmcache_parse_json(text, &arena, &a))
        judge(&a);
    arena_reset(&arena);
    if (!lmcache_parse_metric(text, "m", &a))
        judge(&a);
    if (engine_metrics_parse(text, &m))
        CHECK(!isinf(m.running) && !isinf(m.waiting) && !isinf(m.kv_usage));
    return 0;
}
