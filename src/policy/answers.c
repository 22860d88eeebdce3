/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/answers.h"

#include "base/check.h"

static bool bad(const char **ret_why, const char *why)
{
    *ret_why = why;
    return false;
}

static bool read_object(struct span text, struct arena *a, struct json_doc *d, const char **ret_why)
{
    struct json_fault fault;
    if (!json_parse(a, text, NULL, d, &fault))
        return bad(ret_why, "the answer is not JSON");
    if (!json_is(d, 0, JSON_OBJECT))
        return bad(ret_why, "the answer is not a JSON object");
    return true;
}

/* Readers disagree about which of two counts. */
static bool is_doubled(const struct json_doc *d, const char *name)
{
    return (d->odd & JSON_ODD_DUPLICATE) && json_count_name(d, 0, name) > 1;
}

static bool read_content(const struct json_doc *d, struct span *ret, const char **ret_why)
{
    uint32_t content = json_get(d, 0, "content");
    if (is_doubled(d, "content"))
        return bad(ret_why, "the answer has \"content\" twice");
    if (!json_is(d, content, JSON_OBJECT))
        return bad(ret_why, "the answer's \"content\" is not a JSON object");
    *ret = json_raw(d, content);
    return true;
}

bool answer_action(struct span text, struct arena *a, struct action_answer *ret, const char **ret_why)
{
    static const struct span words[] = {
        [ACTION_ALLOW] = SPAN("allow"),
        [ACTION_BLOCK] = SPAN("block"),
        [ACTION_TRANSFORM] = SPAN("transform"),
        [ACTION_ANNOTATE] = SPAN("annotate"),
    };
    struct json_doc d;
    struct action_answer got = {0};
    if (!read_object(text, a, &d, ret_why))
        return false;
    uint32_t action = json_get(&d, 0, "action");
    if (!json_is(&d, action, JSON_STRING) || is_doubled(&d, "action"))
        return bad(ret_why, "the answer has no \"action\"");
    unsigned i = 0;
    while (i < ARRAY_LEN(words) && !json_string_eq(&d, action, words[i]))
        i++;
    if (i == ARRAY_LEN(words))
        return bad(ret_why, "the answer's \"action\" is not known");
    got.action = (enum action)i;
    if (got.action == ACTION_TRANSFORM && !read_content(&d, &got.content, ret_why))
        return false;
    got.reason = json_string(&d, json_get(&d, 0, "reason"), a);
    uint32_t notes = json_get(&d, 0, "annotations");
    if (notes != JSON_NODE_NONE && !json_is(&d, notes, JSON_NULL))
        got.annotations = json_raw(&d, notes);
    *ret = got;
    return true;
}

/* A number, or true for one. */
static uint64_t count_of(const struct json_doc *d, uint32_t i)
{
    uint64_t n;
    if (json_u64(d, i, &n))
        return n > UINT32_MAX ? UINT32_MAX : n;
    return json_is(d, i, JSON_TRUE);
}

bool answer_sanitizer(struct span text, struct arena *a, struct sanitizer_answer *ret, const char **ret_why)
{
    struct json_doc d;
    struct sanitizer_answer got = {0};
    if (!read_object(text, a, &d, ret_why) || !read_content(&d, &got.content, ret_why))
        return false;
    uint32_t token = json_get(&d, 0, "restoration_token");
    if (token != JSON_NODE_NONE && !json_is(&d, token, JSON_NULL) && !json_is(&d, token, JSON_STRING))
        return bad(ret_why, "the answer's \"restoration_token\" is not a string");
    got.token = json_string(&d, token, a);
    uint32_t findings = json_get(&d, 0, "findings");
    if (json_is(&d, findings, JSON_ARRAY))
        for (uint32_t i = json_first(&d, findings); i != JSON_NODE_NONE; i = json_next(&d, findings, i)) {
            uint32_t count = json_get(&d, i, "count");
            got.entities += count == JSON_NODE_NONE ? 1 : count_of(&d, count);
        }
    got.entities += count_of(&d, json_get(&d, 0, "restored"));
    *ret = got;
    return true;
}
