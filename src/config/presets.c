/* SPDX-License-Identifier: Apache-2.0
 * The table's presets are TOML text, so that docs show them as they are; here they become values.
 */
#include <stdlib.h>

#include "config/reader.h"

static void set_preset(struct arena *a, const struct key_spec *k, void *field)
{
    const struct span text = span_str(k->preset);
    switch ((enum key_type)k->type) {
    case KEY_BOOL:
        *(bool *)field = span_eq(text, SPAN("true"));
        return;
    case KEY_UINT:
        if (k->bytes == sizeof(uint64_t))
            *(uint64_t *)field = strtoull(k->preset, NULL, 10);
        else
            *(unsigned *)field = (unsigned)strtoul(k->preset, NULL, 10);
        return;
    case KEY_INT:
        *(int *)field = (int)strtol(k->preset, NULL, 10);
        return;
    case KEY_FLOAT:
        *(double *)field = strtod(k->preset, NULL);
        return;
    case KEY_STRING:
        CHECK(text.n >= 2 && text.p[0] == '"' && text.p[text.n - 1] == '"');
        *(const char **)field = arena_dup(a, span_of(text.p + 1, text.n - 2)).p;
        return;
    case KEY_ENUM: /* the first word, which is 0 */
        CHECK(text.n > 2 && span_eq(span_of(text.p + 1, text.n - 2), span_str(k->words[0])));
        return;
    case KEY_STRINGS:
        CHECK(span_eq(text, SPAN("[]")));
        return;
    case KEY_FREE:
        CHECK(span_eq(text, SPAN("{}")));
        return;
    default:
        UNREACHABLE();
    }
}

void section_set_presets(struct arena *a, const struct section *s, void *base)
{
    for (unsigned i = 0; i < s->n; i++) {
        const struct key_spec *k = &s->keys[i];
        if (k->offset == NO_FIELD)
            continue;
        void *field = (char *)base + k->offset;
        if (k->type == KEY_TABLE)
            section_set_presets(a, k->section, field);
        else if (k->flags & KEYF_NEGATIVE_IS_ABSENT)
            *(double *)field = -1;
        else if (k->preset)
            set_preset(a, k, field);
    }
}
