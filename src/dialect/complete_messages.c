/* SPDX-License-Identifier: Apache-2.0
 *
 * Anthropic Messages: blocks that start and stop, one stop reason.
 */
#include "dialect/complete_impl.h"

static const struct reason_word words[] = {
    {"end_turn", COMPLETE_OK},
    {"stop_sequence", COMPLETE_OK},
    {"tool_use", COMPLETE_OK},
    {"max_tokens", COMPLETE_LENGTH},
    {"model_context_window_exceeded", COMPLETE_LENGTH},
    {"refusal", COMPLETE_REFUSAL},
    {"pause_turn", COMPLETE_PAUSED},
};

static void judge_stop(struct complete *c, const struct json_doc *d, uint32_t message)
{
    uint32_t reason = member(d, message, "stop_reason");
    if (reason != JSON_NODE_NONE)
        judge_reason(c, reason_verdict(d, reason, words, ARRAY_LEN(words)));
}

static void judge_block(struct complete *c, const struct json_doc *d, uint32_t block)
{
    uint32_t type = member(d, block, "type");
    if (!json_is(d, type, JSON_STRING))
        judge_against(c, COMPLETE_UNREADABLE);
    else if (is_word(d, type, "text"))
        c->any_output |= has_text(d, member(d, block, "text"));
    else if (!is_word(d, type, "thinking") && !is_word(d, type, "redacted_thinking"))
        c->any_output = true;
}

static void json(struct complete *c, const struct json_doc *d)
{
    uint32_t content = member(d, 0, "content");
    if (!json_is(d, content, JSON_ARRAY)) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    for (uint32_t i = json_first(d, content); i != JSON_NODE_NONE; i = json_next(d, content, i))
        judge_block(c, d, i);
    judge_stop(c, d, 0);
}

static void start_block(struct complete *c, const struct json_doc *d)
{
    uint64_t index;
    if (!c->begun || !part_index(d, 0, "index", 0, &index) || part_set_has(&c->seen, index)) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    part_set_add(&c->seen, index);
    part_set_add(&c->open, index);
    judge_block(c, d, member(d, 0, "content_block"));
}

static void in_block(struct complete *c, const struct json_doc *d, bool stops)
{
    uint64_t index;
    if (!part_index(d, 0, "index", 0, &index) || !part_set_has(&c->open, index)) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    if (stops)
        part_set_remove(&c->open, index);
    else
        c->any_output |= has_text(d, member(d, member(d, 0, "delta"), "text"));
}

/* Types that are not known pass: the set grows. */
static void event(struct complete *c, const struct json_doc *d, struct span event_type)
{
    uint32_t type = member(d, 0, "type");
    (void)event_type; /* says the same */
    if (!json_is(d, type, JSON_STRING)) {
        judge_against(c, COMPLETE_UNREADABLE);
    } else if (is_word(d, type, "content_block_delta")) {
        in_block(c, d, false);
    } else if (is_word(d, type, "content_block_start")) {
        start_block(c, d);
    } else if (is_word(d, type, "content_block_stop")) {
        in_block(c, d, true);
    } else if (is_word(d, type, "message_start")) {
        if (c->begun)
            judge_against(c, COMPLETE_UNREADABLE);
        c->begun = true;
        judge_stop(c, d, member(d, 0, "message"));
    } else if (is_word(d, type, "message_delta")) {
        judge_stop(c, d, member(d, 0, "delta"));
    } else if (is_word(d, type, "message_stop")) {
        c->over = true;
        if (!c->begun)
            judge_against(c, COMPLETE_UNFINISHED);
    }
}

const struct complete_judge judge_messages = {json, event, NULL, false};
