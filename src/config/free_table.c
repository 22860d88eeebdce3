/* SPDX-License-Identifier: Apache-2.0 */
#include "config/free_table.h"

#include <math.h>

#include "json/write.h"

static bool write_value(struct reader *r, const char *path, const struct toml_node *node, struct json_out *o)
{
    switch (node->kind) {
    case TOML_K_TABLE: {
        bool good = true;
        json_out_object(o);
        for (const struct toml_node *child = node->first; child; child = child->next) {
            json_out_name_span(o, child->key);
            good &= write_value(r, path, child, o);
        }
        json_out_object_end(o);
        return good;
    }
    case TOML_K_ARRAY: {
        bool good = true;
        json_out_array(o);
        for (const struct toml_node *child = node->first; child; child = child->next)
            good &= write_value(r, path, child, o);
        json_out_array_end(o);
        return good;
    }
    case TOML_K_STRING:
    case TOML_K_DATE:
        json_out_string(o, node->string);
        return true;
    case TOML_K_INTEGER:
        json_out_i64(o, node->integer);
        return true;
    case TOML_K_FLOAT:
        if (!isfinite(node->number)) {
            reader_fault(r, node->at, "%s: inf and nan have no form in JSON", path);
            return false;
        }
        json_out_double(o, node->number);
        return true;
    case TOML_K_BOOL:
        json_out_bool(o, node->boolean);
        return true;
    }
    UNREACHABLE();
}

static bool is_allowed(struct reader *r, const char *path, enum free_items items,
                       const struct toml_node *node)
{
    const bool number = node->kind == TOML_K_INTEGER || node->kind == TOML_K_FLOAT;
    const int n = node->key.n > 100 ? 100 : (int)node->key.n;
    if (items == FREE_STRINGS && node->kind != TOML_K_STRING)
        reader_fault(r, node->at, "%s.%.*s: expected a string, found %s", path, n, node->key.p,
                     toml_kind_name(node->kind));
    else if (items == FREE_POSITIVE && !number)
        reader_fault(r, node->at, "%s.%.*s: expected a number, found %s", path, n, node->key.p,
                     toml_kind_name(node->kind));
    else if (items == FREE_POSITIVE &&
             !(node->kind == TOML_K_INTEGER ? node->integer > 0 : node->number > 0 && isfinite(node->number)))
        reader_fault(r, node->at, "%s.%.*s: must be above 0", path, n, node->key.p);
    else
        return true;
    return false;
}

void free_table_read(struct reader *r, const char *path, enum free_items items, const struct toml_node *table,
                     struct json_members *field)
{
    struct arena *a = &r->s->arena;
    struct json_members m = {.item = ARENA_ARRAY(a, struct json_member, table->n)};
    struct buf text;
    buf_init(&text, 2 * (size_t)TOML_MAX_BYTES);
    for (const struct toml_node *child = table->first; child; child = child->next) {
        struct json_out o;
        buf_clear(&text);
        json_out_init(&o, &text);
        if (!is_allowed(r, path, items, child) || !write_value(r, path, child, &o))
            continue;
        m.item[m.n].name = arena_dup(a, child->key);
        m.item[m.n].value = arena_dup(a, buf_view(&text));
        reader_note_field(r, &m.item[m.n], child->at);
        m.n++;
    }
    buf_fini(&text);
    if (field)
        *field = m;
}

void toml_write_string(struct buf *out, struct span s)
{
    BUF_LIT(out, "\"");
    for (size_t i = 0; i < s.n; i++) {
        const unsigned char c = (unsigned char)s.p[i];
        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(out, "\\u%04x", c);
        else
            buf_add_char(out, (char)c);
    }
    BUF_LIT(out, "\"");
}

/* Our own JSON differs from TOML in a colon for an equals sign, a bare DEL in strings, and the negative zero.
 */
static void write_as_toml(struct span json, struct buf *out)
{
    bool in_string = false;
    for (size_t i = 0; i < json.n; i++) {
        const char c = json.p[i];
        if (in_string && c == '\\' && i + 1 < json.n) {
            buf_add_char(out, c);
            buf_add_char(out, json.p[++i]);
        } else if (in_string && c == 0x7f) {
            BUF_LIT(out, "\\u007f");
        } else if (!in_string && c == ':') {
            BUF_LIT(out, " = ");
        } else if (!in_string && c == '-' && i + 1 < json.n && json.p[i + 1] == '0' &&
                   (i + 2 == json.n || strchr(",]}", json.p[i + 2]))) {
            BUF_LIT(out, "-0.0"); /* -0 would be an integer, which has one zero only */
            i++;
        } else {
            if (c == '"')
                in_string = !in_string;
            buf_add_char(out, c);
        }
    }
}

void free_table_show(const struct json_members *m, bool mask, struct buf *out)
{
    if (m->n == 0) {
        BUF_LIT(out, "{}");
        return;
    }
    for (unsigned i = 0; i < m->n; i++) {
        buf_add_str(out, i ? ", " : "{ ");
        toml_write_string(out, m->item[i].name);
        BUF_LIT(out, " = ");
        if (mask)
            BUF_LIT(out, "\"***\"");
        else
            write_as_toml(m->item[i].value, out);
    }
    BUF_LIT(out, " }");
}
