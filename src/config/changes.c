/* SPDX-License-Identifier: Apache-2.0
 * Which changes a running process cannot take over: differences in keys with KEYF_RESTART.
 */
#include "config/config.h"
#include "config/schema.h"

static bool same_text(const char *a, const char *b)
{
    return span_eq(span_str(a), span_str(b));
}

static bool same_value(const struct key_spec *k, const char *a, const char *b)
{
    if (k->type == KEY_STRING)
        return same_text(*(const char *const *)(const void *)(a + k->offset),
                         *(const char *const *)(const void *)(b + k->offset));
    CHECK(k->type == KEY_UINT || k->type == KEY_BOOL || k->type == KEY_TRISTATE || k->type == KEY_FLOAT);
    return memcmp(a + k->offset, b + k->offset, k->bytes) == 0;
}

static unsigned compare(const struct section *s, const char *a, const char *b, struct buf *out)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        const struct key_spec *k = &s->keys[i];
        if (k->offset == NO_FIELD || k->type == KEY_TABLES)
            continue;
        if (k->type == KEY_TABLE) {
            const struct section *sub = k->section;
            const char *sub_a = a + k->offset, *sub_b = b + k->offset;
            if (sub->present != NO_FIELD && (k->flags & KEYF_RESTART)) {
                const bool in_a = *(const bool *)(const void *)(sub_a + sub->present),
                           in_b = *(const bool *)(const void *)(sub_b + sub->present);
                if (in_a != in_b) {
                    buf_printf(out, "%s\n", sub->path);
                    n++;
                }
                if (!in_a || !in_b)
                    continue; /* the presets of an absent table are not in use */
            }
            n += compare(sub, sub_a, sub_b, out);
        } else if ((k->flags & KEYF_RESTART) && !same_value(k, a, b)) {
            buf_printf(out, "%s%s%s\n", s->path, s->path[0] ? "." : "", k->name);
            n++;
        }
    }
    return n;
}

unsigned config_needs_restart(const struct settings *before, const struct settings *after, struct buf *out)
{
    return compare(&schema_root, (const char *)before, (const char *)after, out);
}
