/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenAI Responses: a response object with a status; a stream ends with the whole of it.
 */
#include "dialect/complete_impl.h"

static const struct reason_word statuses[] = {
    {"completed", COMPLETE_OK},           {"failed", COMPLETE_FAILED},
    {"cancelled", COMPLETE_FAILED},       {"incomplete", COMPLETE_INCOMPLETE},
    {"in_progress", COMPLETE_UNFINISHED}, {"queued", COMPLETE_UNFINISHED},
};

static const struct reason_word incomplete_reasons[] = {
    {"max_output_tokens", COMPLETE_LENGTH},
    {"content_filter", COMPLETE_CONTENT_FILTER},
};

static void judge_part(struct complete *c, const struct json_doc *d, uint32_t part)
{
    uint32_t type = member(d, part, "type");
    if (is_word(d, type, "refusal"))
        judge_against(c, COMPLETE_REFUSAL);
    else if (is_word(d, type, "output_text"))
        c->any_output |= has_text(d, member(d, part, "text"));
    else
        c->any_output = true;
}

static void judge_item(struct complete *c, const struct json_doc *d, uint32_t item)
{
    uint32_t type = member(d, item, "type"), content = member(d, item, "content");
    uint32_t status = member(d, item, "status");
    if (!json_is(d, type, JSON_STRING)) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    /* Some servers report a response as completed whose text was cut. */
    if (!c->length_cut && (is_word(d, status, "incomplete") || is_word(d, status, "in_progress")))
        judge_against(c, COMPLETE_INCOMPLETE);
    if (is_word(d, type, "reasoning"))
        return;
    if (!is_word(d, type, "message")) {
        c->any_output = true;
        return;
    }
    if (!json_is(d, content, JSON_ARRAY))
        return;
    for (uint32_t i = json_first(d, content); i != JSON_NODE_NONE; i = json_next(d, content, i))
        judge_part(c, d, i);
}

static void judge_response(struct complete *c, const struct json_doc *d, uint32_t response)
{
    uint32_t output = member(d, response, "output"), status = member(d, response, "status");
    enum complete_verdict v = reason_verdict(d, status, statuses, ARRAY_LEN(statuses));
    if (!json_is(d, response, JSON_OBJECT) || !json_is(d, output, JSON_ARRAY)) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    if (member(d, response, "error") != JSON_NODE_NONE)
        v = COMPLETE_FAILED;
    if (v == COMPLETE_INCOMPLETE) {
        uint32_t why = member(d, member(d, response, "incomplete_details"), "reason");
        v = reason_verdict(d, why, incomplete_reasons, ARRAY_LEN(incomplete_reasons));
        if (v == COMPLETE_UNKNOWN_REASON)
            v = COMPLETE_INCOMPLETE;
    }
    judge_reason(c, v);
    for (uint32_t i = json_first(d, output); i != JSON_NODE_NONE; i = json_next(d, output, i))
        judge_item(c, d, i);
}

static void json(struct complete *c, const struct json_doc *d)
{
    judge_response(c, d, 0);
}

static void judge_item_event(struct complete *c, const struct json_doc *d, bool is_done)
{
    uint64_t index;
    if (!part_index(d, 0, "output_index", 0, &index) || (is_done && !part_set_has(&c->open, index))) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    if (is_done)
        part_set_remove(&c->open, index);
    else
        part_set_add(&c->open, index);
}

/* About sixty types and more to come: those that are not named here pass. */
static void event(struct complete *c, const struct json_doc *d, struct span event_type)
{
    uint32_t type = member(d, 0, "type");
    (void)event_type; /* says the same */
    if (!json_is(d, type, JSON_STRING)) {
        judge_against(c, COMPLETE_UNREADABLE);
    } else if (is_word(d, type, "response.output_text.delta")) {
        c->any_output |= has_text(d, member(d, 0, "delta"));
    } else if (is_word(d, type, "response.refusal.delta") || is_word(d, type, "response.refusal.done")) {
        judge_against(c, COMPLETE_REFUSAL);
    } else if (is_word(d, type, "response.output_item.added")) {
        judge_item_event(c, d, false);
    } else if (is_word(d, type, "response.output_item.done")) {
        judge_item_event(c, d, true);
    } else if (is_word(d, type, "response.created")) {
        c->begun = true;
    } else if (is_word(d, type, "response.completed") || is_word(d, type, "response.incomplete") ||
               is_word(d, type, "response.failed")) {
        c->over = true;
        if (!c->begun)
            judge_against(c, COMPLETE_UNFINISHED);
        judge_response(c, d, member(d, 0, "response"));
    }
}

const struct complete_judge judge_responses = {json, event, NULL, false};
