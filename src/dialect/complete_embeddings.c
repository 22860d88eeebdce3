/* SPDX-License-Identifier: Apache-2.0
 *
 * Embeddings: as many vectors as inputs, each at its place.
 */
#include "dialect/complete_impl.h"

static bool is_vector(const struct json_doc *d, uint32_t v)
{
    return is_full_array(d, v) || has_text(d, v); /* numbers, or base64 */
}

static void json(struct complete *c, const struct json_doc *d)
{
    uint32_t data = member(d, 0, "data");
    if (!json_is(d, data, JSON_ARRAY)) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    uint32_t n = d->node[data].count, position = 0;
    if (n == 0 || (c->o.asked != 0 && n != c->o.asked))
        judge_against(c, COMPLETE_CHOICES);
    /* Servers have been seen to number several vectors alike. */
    for (uint32_t i = json_first(d, data); i != JSON_NODE_NONE; i = json_next(d, data, i), position++) {
        uint64_t index = position;
        uint32_t said = member(d, i, "index");
        if (said != JSON_NODE_NONE && (!json_u64(d, said, &index) || index != position))
            judge_against(c, COMPLETE_CHOICES);
        if (!is_vector(d, member(d, i, "embedding")))
            judge_against(c, COMPLETE_UNREADABLE);
    }
    c->ended = c->any_output = true;
}

const struct complete_judge judge_embeddings = {json, NULL, NULL, false};
