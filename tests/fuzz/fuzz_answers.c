/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of plugins, webhook and sanitizer: what is understood has an action that is known and a content
 * that is a JSON object; nothing else is an assent.
 */
#include "base/check.h"
#include "policy/answers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_object(struct span content, struct arena *a)
{
    struct json_doc d;
    struct json_fault fault;
    CHECK(json_parse(a, content, NULL, &d, &fault) && json_is(&d, 0, JSON_OBJECT));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span text = span_of(size ? (const char *)data : "", size);
    struct arena a;
    struct action_answer action;
    struct sanitizer_answer sanitizer;
    const char *why = NULL;
    arena_init(&a, NULL);
    if (answer_action(text, &a, &action, &why)) {
        CHECK(!why && (unsigned)action.action <= ACTION_ANNOTATE);
        CHECK(span_find(text, SPAN("action")) >= 0 || memchr(text.p, '\\', text.n));
        if (action.action == ACTION_TRANSFORM)
            check_object(action.content, &a);
    } else {
        CHECK(why);
    }
    why = NULL;
    if (answer_sanitizer(text, &a, &sanitizer, &why))
        check_object(sanitizer.content, &a);
    else
        CHECK(why);
    arena_reset(&a);
    return 0;
}
