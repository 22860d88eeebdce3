/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat completions and legacy completions: choices by index, each with a finish reason of its own.
 */
#include "dialect/complete_impl.h"

/* OpenAI's words; the last two are what text-generation-inference calls `stop`. */
static const struct reason_word words[] = {
    {"stop", COMPLETE_OK},
    {"tool_calls", COMPLETE_OK},
    {"function_call", COMPLETE_OK},
    {"length", COMPLETE_LENGTH},
    {"content_filter", COMPLETE_CONTENT_FILTER},
    {"error", COMPLETE_ERROR},
    {"eos_token", COMPLETE_OK},
    {"stop_sequence", COMPLETE_OK},
};

/* Text as a string, or as parts as some servers send it. */
static bool has_content(const struct json_doc *d, uint32_t content)
{
    if (!json_is(d, content, JSON_ARRAY))
        return has_text(d, content);
    for (uint32_t i = json_first(d, content); i != JSON_NODE_NONE; i = json_next(d, content, i))
        if (has_text(d, json_get(d, i, "text")))
            return true;
    return false;
}

/* A message, or a delta of one. Reasoning alone is no answer. */
static void judge_message(struct complete *c, const struct json_doc *d, uint32_t m)
{
    if (has_text(d, member(d, m, "refusal")))
        judge_against(c, COMPLETE_REFUSAL);
    if (has_content(d, member(d, m, "content")) || is_full_array(d, member(d, m, "tool_calls")) ||
        is_full_array(d, member(d, m, "images")) || json_is(d, member(d, m, "function_call"), JSON_OBJECT) ||
        json_is(d, member(d, m, "audio"), JSON_OBJECT))
        c->any_output = true;
}

/* <position>: the index of a choice that does not say it. */
static void judge_choice(struct complete *c, const struct json_doc *d, uint32_t choice, unsigned position)
{
    uint64_t index;
    if (!json_is(d, choice, JSON_OBJECT) || !part_index(d, choice, "index", position, &index)) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    if (!part_set_has(&c->seen, index)) {
        part_set_add(&c->seen, index);
        part_set_add(&c->open, index);
    }
    judge_message(c, d, member(d, choice, "message"));
    judge_message(c, d, member(d, choice, "delta"));
    if (has_text(d, member(d, choice, "text")))
        c->any_output = true;
    uint32_t reason = member(d, choice, "finish_reason");
    if (reason == JSON_NODE_NONE || is_word(d, reason, "")) /* some send "" until the end */
        return;
    judge_reason(c, reason_verdict(d, reason, words, ARRAY_LEN(words)));
    part_set_remove(&c->open, index);
}

static void judge_choices(struct complete *c, const struct json_doc *d)
{
    uint32_t choices = member(d, 0, "choices");
    if (choices == JSON_NODE_NONE) /* usage or moderation only */
        return;
    if (!json_is(d, choices, JSON_ARRAY)) {
        judge_against(c, COMPLETE_UNREADABLE);
        return;
    }
    unsigned position = 0;
    for (uint32_t i = json_first(d, choices); i != JSON_NODE_NONE; i = json_next(d, choices, i))
        judge_choice(c, d, i, position++);
}

static void check_count(struct complete *c)
{
    if (c->seen.n == 0)
        judge_against(c, COMPLETE_UNFINISHED);
    else if (c->seen.n < c->o.asked)
        judge_against(c, COMPLETE_CHOICES);
}

static void json(struct complete *c, const struct json_doc *d)
{
    judge_choices(c, d);
    check_count(c);
}

static void event(struct complete *c, const struct json_doc *d, struct span type)
{
    (void)type;
    judge_choices(c, d);
}

static void done(struct complete *c)
{
    check_count(c);
}

const struct complete_judge judge_chat = {json, event, done, true};
const struct complete_judge judge_completions = {json, event, done, true};
