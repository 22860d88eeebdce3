/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/semantic_partition.h"

#include "base/check.h"
#include "cache/lexical.h"
#include "cache/semantic_text.h"

static void put(void *arg, const char *p, size_t n)
{
    digest_add(arg, p, n);
}

/* System and developer turns, each with its place; of the others the role, as the words of one turn can read
 * like several ("a", "assistant b", "user c"). */
static void add_turns(struct digest_writer *w, const struct canon *c)
{
    uint32_t messages = json_get(c->doc, 0, "messages");
    uint64_t place = 0;
    if (c->dialect == DIALECT_COMPLETIONS || !json_is(c->doc, messages, JSON_ARRAY))
        return;
    for (uint32_t t = json_first(c->doc, messages); t != JSON_NODE_NONE; t = json_next(c->doc, messages, t)) {
        if (semantic_turn_is_instruction(c->doc, t)) {
            digest_add_framed(w, SPAN("instruction"));
            digest_add_u64(w, place);
            canon_turn(c, t);
        } else {
            digest_add_framed(w, SPAN("turn"));
            canon_plain(c, json_get(c->doc, t, "role"));
        }
        place++;
    }
}

void semantic_partition(const struct key_input *in, const struct semantic_source *source, struct arena *a,
                        struct cache_digest *ret)
{
    struct digest_writer w;
    const char *member = semantic_text_member(in->dialect);
    struct span *names = ARENA_ARRAY(a, struct span, in->n_overridden + 1);
    CHECK(member && in->n_overridden < UINT32_MAX);
    if (in->n_overridden)
        memcpy(names, in->overridden, in->n_overridden * sizeof(*names));
    names[in->n_overridden] = span_str(member);

    digest_begin(&w);
    digest_add_framed(&w, SPAN("semantic partition"));
    digest_add_u64(&w, SEMANTIC_LAYOUT_VERSION);
    digest_add_u64(&w, LEXICAL_VERSION);
    digest_add_framed(&w, source->provider);
    digest_add_framed(&w, source->api_base);
    digest_add_framed(&w, source->model);
    digest_add(&w, in->scope->digest.b, sizeof(in->scope->digest.b));
    key_add_surroundings(&w, in);
    struct canon c = {.doc = in->doc,
                      .dialect = in->dialect,
                      .leave_out = CANON_NO_ATTRIBUTION,
                      .names = names,
                      .n_names = in->n_overridden + 1,
                      .nulls = in->defaulted,
                      .n_nulls = in->n_defaulted,
                      .arena = a,
                      .put = put,
                      .arg = &w};
    canon_body(&c);
    add_turns(&w, &c);
    digest_end(&w, ret);
}
