/* SPDX-License-Identifier: Apache-2.0
 *
 * The first bytes say what is edited in the object behind them; the edited text is JSON again, has what was
 * set and has not what was removed.
 */
#include "base/check.h"
#include "json/edit.h"

enum { STEPS = 8 };

static struct span name_of(const struct json_doc *d, struct arena *a, unsigned k)
{
    static const char *const fresh[] = {"model", "new\n", "", "a"};
    unsigned at = 0;
    for (uint32_t i = json_first(d, 0); i != JSON_NODE_NONE; i = json_next(d, 0, i)) {
        if (at++ == k)
            return json_string(d, i, a);
    }
    return span_str(fresh[k % 4]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena a;
    struct json_doc d, after;
    struct json_fault fault;
    struct json_edits e;
    struct span text;
    bool replaced = false;
    if (size < STEPS)
        return 0;
    arena_init(&a, NULL);
    if (!json_parse(&a, span_of((const char *)data + STEPS, size - STEPS), NULL, &d, &fault) ||
        d.node[0].type != JSON_OBJECT) {
        arena_reset(&a);
        return 0;
    }
    json_edits_init(&e, &d, &a);
    for (int i = 0; i < STEPS; i++) {
        struct span name = name_of(&d, &a, data[i] >> 2);
        if (data[i] % 4 == 1) {
            json_edits_set(&e, name, SPAN("[\"set\"]"));
        } else if (data[i] % 4 == 2) {
            json_edits_remove(&e, name);
        } else if (data[i] % 4 == 3 && (data[i] >> 2) < d.n) {
            json_edits_replace(&e, data[i] >> 2, SPAN("\"other\""));
            replaced = true;
        }
    }
    if (!json_edits_apply(&e, &text)) {
        CHECK(replaced);
        arena_reset(&a);
        return 0;
    }
    CHECK(json_parse(&a, text, NULL, &after, &fault));
    /* A replaced name may be any other name afterwards. */
    for (int i = 0; i < STEPS && !replaced; i++) {
        struct span name = name_of(&d, &a, data[i] >> 2);
        unsigned last = 0, found = 0;
        for (int k = 0; k < STEPS; k++) {
            if ((data[k] % 4 == 1 || data[k] % 4 == 2) && span_eq(name, name_of(&d, &a, data[k] >> 2)))
                last = data[k] % 4;
        }
        for (uint32_t k = json_first(&after, 0); k != JSON_NODE_NONE; k = json_next(&after, 0, k)) {
            if (!json_string_eq(&after, k, name))
                continue;
            found++;
            CHECK(last != 1 || span_eq(json_raw(&after, k + 1), SPAN("[\"set\"]")));
        }
        CHECK(last == 0 || (found > 0) == (last == 1));
    }
    arena_reset(&a);
    return 0;
}
