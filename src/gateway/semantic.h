/* SPDX-License-Identifier: Apache-2.0
 *
 * The semantic layer in the way of a request: after an exact miss its text is embedded and compared with
 * those of stored replies of the same partition. Whatever fails here, the request goes on as if there were no
 * such layer; and what was not embedded is not stored.
 *
 * With lookup = "race" the request goes on at once; a match that comes before its reply has begun ends the
 * upstream call. A share of the matches (shadow_ratio) is not served but compared with the fresh reply.
 */
#ifndef ROLTER_GATEWAY_SEMANTIC_H
#define ROLTER_GATEWAY_SEMANTIC_H

#include "cache/semantic_settings.h"
#include "gateway/request.h"

struct cache_entry;

enum { SEMANTIC_BANDS = 8, SEMANTIC_VERDICTS = 3 };
enum semantic_verdict { SEMANTIC_AGREES, SEMANTIC_DIFFERS, SEMANTIC_UNKNOWN };

/* A route's, part of its plan. */
struct plan_semantic {
    const struct semantic_settings *settings;
    const struct plan_provider *provider;
    struct span api_base, model;
    char *path, *headers; /* of an embedding call; the latter with a secret */
    metric_series_t m_ok, m_error, m_ms;
    metric_series_t m_shadow[SEMANTIC_BANDS][SEMANTIC_VERDICTS];
};
/* Which band of similarity; the first one is the highest. */
unsigned semantic_band(double similarity);
const char *semantic_band_name(unsigned band);

/* The exact layer has missed. The next step: fill, deliver, or parked. */
enum step semantic_lookup(struct request *r);
/* Nothing is looked up: the reply is fetched anew (no-cache, a renewal). It takes the place of the old one
 * here, too, if the vector of its text is known: no embedding is asked for. */
void semantic_refresh(struct request *r);
/* The reply of this request was stored. */
void semantic_stored(struct request *r, struct cache_entry *e);
/* The partition of its lookup; NULL: there was none. */
const struct cache_digest *semantic_partition_of(const struct request *r);
/* The similarity of the reply that is served; false when it is none of this layer. */
bool semantic_similarity(const struct request *r, double *ret);
/* Why it was no hit, for the row and for explain: a static word, or NULL. */
const char *semantic_reason(const struct request *r);
/* Everything back; from step_finish. */
void semantic_end(struct request *r);
/* Before a worker's pool goes. */
void semantic_close_worker(struct worker *w);

/* Whether two replies say the same: words overlap by 60 % (Dice) and numbers are the same ones. Costs no
 * call, and errs on the side of "differs", so that the precision it measures is a lower bound. */
enum semantic_verdict shadow_judge(struct span a, bool a_is_stream, struct span b, bool b_is_stream);

#endif
