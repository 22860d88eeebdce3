/* SPDX-License-Identifier: Apache-2.0
 * From the tree into the settings, along the table of keys.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "config/free_table.h"
#include "config/reader.h"

enum { MAX_ITEMS = 200000, PATH_TEXT = 96 };

static void read_section(struct reader *r, const struct section *s, const struct toml_node *node, void *base,
                         bool warned_already);

/* "server.port" */
static const char *path_of(const struct section *s, const struct key_spec *k, char out[PATH_TEXT])
{
    snprintf(out, PATH_TEXT, "%s%s%s", s->path, s->path[0] ? "." : "", k->name);
    return out;
}

static void fault_type(struct reader *r, const struct section *s, const struct key_spec *k,
                       const struct toml_node *node, const char *expected)
{
    char path[PATH_TEXT];
    reader_fault(r, node->at, "%s: expected %s, found %s", path_of(s, k, path), expected,
                 toml_kind_name(node->kind));
}

static bool is_kind(struct reader *r, const struct section *s, const struct key_spec *k,
                    const struct toml_node *node, enum toml_kind kind)
{
    if (node->kind == kind)
        return true;
    fault_type(r, s, k, node, toml_kind_name(kind));
    return false;
}

static double upper_bound(const struct key_spec *k)
{
    if (k->max > 0)
        return k->max;
    return k->type == KEY_UINT && k->bytes == sizeof(unsigned) ? (double)UINT32_MAX : INFINITY;
}

static void fault_range(struct reader *r, const struct section *s, const struct key_spec *k,
                        const struct toml_node *node)
{
    char path[PATH_TEXT], value[32], range[64];
    if (node->kind == TOML_K_INTEGER)
        snprintf(value, sizeof value, "%lld", (long long)node->integer);
    else
        snprintf(value, sizeof value, "%.15g", node->number);
    if (isinf(upper_bound(k)))
        snprintf(range, sizeof range, "%.15g or more", k->min);
    else
        snprintf(range, sizeof range, "%.15g to %.15g", k->min, upper_bound(k));
    reader_fault(r, node->at, "%s: %s is out of range (%s)", path_of(s, k, path), value, range);
}

static void read_uint(struct reader *r, const struct section *s, const struct key_spec *k,
                      const struct toml_node *node, void *field)
{
    if (!is_kind(r, s, k, node, TOML_K_INTEGER))
        return;
    if (node->integer < 0 || (double)node->integer < k->min || (double)node->integer > upper_bound(k)) {
        fault_range(r, s, k, node);
        return;
    }
    if (!field)
        return;
    if (k->bytes == sizeof(uint64_t))
        *(uint64_t *)field = (uint64_t)node->integer;
    else
        *(unsigned *)field = (unsigned)node->integer;
}

static void read_int(struct reader *r, const struct section *s, const struct key_spec *k,
                     const struct toml_node *node, void *field)
{
    char path[PATH_TEXT];
    if (!is_kind(r, s, k, node, TOML_K_INTEGER))
        return;
    if (node->integer < INT32_MIN || node->integer > INT32_MAX)
        reader_fault(r, node->at, "%s: %lld is out of range", path_of(s, k, path), (long long)node->integer);
    else if (field)
        *(int *)field = (int)node->integer;
}

static void read_float(struct reader *r, const struct section *s, const struct key_spec *k,
                       const struct toml_node *node, void *field)
{
    if (node->kind != TOML_K_INTEGER && node->kind != TOML_K_FLOAT) {
        fault_type(r, s, k, node, "a number");
        return;
    }
    const double v = node->kind == TOML_K_INTEGER ? (double)node->integer : node->number;
    if (!isfinite(v) || v < k->min || v > upper_bound(k))
        fault_range(r, s, k, node);
    else if (field)
        *(double *)field = v;
}

/* Fields are NUL-terminated, so a NUL inside would cut them short. */
static bool is_text(struct reader *r, const char *path, const struct toml_node *node, bool may_be_empty)
{
    if (memchr(node->string.p, '\0', node->string.n))
        reader_fault(r, node->at, "%s: a NUL character is not allowed", path);
    else if (node->string.n == 0 && !may_be_empty)
        reader_fault(r, node->at, "%s: must not be empty", path);
    else
        return true;
    return false;
}

static void read_string(struct reader *r, const struct section *s, const struct key_spec *k,
                        const struct toml_node *node, void *field)
{
    char path[PATH_TEXT];
    if (k->type == KEY_TIME && node->kind == TOML_K_DATE) {
        if (!node->date_has_offset) {
            reader_fault(r, node->at, "%s: needs date, time and offset, as in 2030-01-31T00:00:00Z",
                         path_of(s, k, path));
            return;
        }
    } else if (k->type == KEY_TIME && node->kind != TOML_K_STRING) {
        fault_type(r, s, k, node, "a date-time or a string");
        return;
    } else if (!is_kind(r, s, k, node, TOML_K_STRING)) {
        return;
    }
    /* An optional string without a preset may be written as "" for "none". */
    const bool is_value = k->flags & KEYF_MAY_BE_EMPTY;
    const bool may_be_empty = is_value || (!k->preset && !(k->flags & KEYF_REQUIRED));
    if (is_text(r, path_of(s, k, path), node, may_be_empty) && field)
        *(const char **)field =
            node->string.n > 0 || is_value ? arena_dup(&r->s->arena, node->string).p : NULL;
}

static void read_enum(struct reader *r, const struct section *s, const struct key_spec *k,
                      const struct toml_node *node, void *field)
{
    if (!is_kind(r, s, k, node, TOML_K_STRING))
        return;
    for (int i = 0; k->words[i]; i++)
        if (span_eq(node->string, span_str(k->words[i]))) {
            if (field && k->bytes == sizeof(bool))
                *(bool *)field = i != 0;
            else if (field)
                *(int *)field = i;
            return;
        }
    char path[PATH_TEXT], list[256];
    size_t n = 0;
    for (int i = 0; k->words[i]; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s\"%s\"", i ? ", " : "", k->words[i]);
    reader_fault(r, node->at, "%s: \"%.*s\" is not one of %s", path_of(s, k, path),
                 (int)(node->string.n > 100 ? 100 : node->string.n), node->string.p, list);
}

static void read_strings(struct reader *r, const struct section *s, const struct key_spec *k,
                         const struct toml_node *node, void *field)
{
    if (!is_kind(r, s, k, node, TOML_K_ARRAY))
        return;
    char path[PATH_TEXT];
    path_of(s, k, path);
    struct strings list = {.item = ARENA_ARRAY(&r->s->arena, const char *, node->n)};
    for (const struct toml_node *item = node->first; item; item = item->next) {
        if (item->kind != TOML_K_STRING)
            reader_fault(r, item->at, "%s: expected strings, found %s", path, toml_kind_name(item->kind));
        else if (is_text(r, path, item, !(k->flags & KEYF_NO_ZERO_WORDS))) {
            reader_note_field(r, &list.item[list.n], item->at);
            list.item[list.n++] = arena_dup(&r->s->arena, item->string).p;
        }
    }
    if (field)
        *(struct strings *)field = list;
}

static void read_items(struct reader *r, const struct key_spec *k, const struct toml_node *array,
                       const char *path, char *items, unsigned *n, bool warned_already)
{
    if (array->kind != TOML_K_ARRAY) {
        reader_fault(r, array->at, "%s: expected an array of tables ([[%s]]), found %s", path, path,
                     toml_kind_name(array->kind));
        return;
    }
    for (const struct toml_node *item = array->first; item; item = item->next) {
        if (item->kind != TOML_K_TABLE) {
            reader_fault(r, item->at, "%s: expected tables, found %s", path, toml_kind_name(item->kind));
            continue;
        }
        void *base = items ? items + (size_t)*n * k->section->bytes : NULL;
        if (base) {
            section_set_presets(&r->s->arena, k->section, base);
            reader_note_table(r, base, item->at);
        }
        read_section(r, k->section, item, base, warned_already);
        ++*n;
    }
}

/* The arrays to read: the node itself, or the tiers of a table of tiers. */
static unsigned tiers_of(const struct key_spec *k, const struct toml_node *node,
                         const struct toml_node *ret[2])
{
    if ((k->flags & KEYF_TIERS) && node->kind == TOML_K_TABLE) {
        const struct toml_node *readonly = toml_tree_get(node, SPAN("readonly")),
                               *writable = toml_tree_get(node, SPAN("default"));
        unsigned n = 0;
        if (readonly)
            ret[n++] = readonly;
        if (writable)
            ret[n++] = writable;
        if (n > 0)
            return n;
    }
    ret[0] = node;
    return 1;
}

static void read_tables(struct reader *r, const struct section *s, const struct key_spec *k,
                        const struct toml_node *node, char *base, bool warned_already)
{
    char path[PATH_TEXT];
    path_of(s, k, path);
    const struct toml_node *arrays[2];
    const unsigned n_arrays = tiers_of(k, node, arrays);
    size_t most = 0;
    for (unsigned i = 0; i < n_arrays; i++)
        most += arrays[i]->n;
    if (most > MAX_ITEMS) {
        reader_fault(r, node->at, "%s: more than %d of them", path, MAX_ITEMS);
        return;
    }
    char *items = base ? arena_zalloc(&r->s->arena, most * k->section->bytes) : NULL;
    unsigned n = 0;
    for (unsigned i = 0; i < n_arrays; i++)
        read_items(r, k, arrays[i], path, items, &n, warned_already);
    if (arrays[0] != node)
        for (const struct toml_node *child = node->first; child; child = child->next)
            if (!span_eq(child->key, SPAN("readonly")) && !span_eq(child->key, SPAN("default")))
                reader_fault(r, child->key_at,
                             "%s.%.*s: unknown key; the tiers are \"readonly\" and \"default\"", path,
                             SPAN_FMT(child->key));
    if (base) {
        memcpy(base + k->offset, &items, sizeof items);
        *(unsigned *)(void *)(base + k->count) = n;
    }
}

static void read_key(struct reader *r, const struct section *s, const struct key_spec *k,
                     const struct toml_node *node, char *base, bool warned_already)
{
    char path[PATH_TEXT];
    void *field = base && k->offset != NO_FIELD ? base + k->offset : NULL;
    if (field)
        reader_note_field(r, field, node->at);
    switch ((enum key_type)k->type) {
    case KEY_BOOL:
        if (is_kind(r, s, k, node, TOML_K_BOOL) && field)
            *(bool *)field = node->boolean;
        break;
    case KEY_TRISTATE:
        if (is_kind(r, s, k, node, TOML_K_BOOL) && field)
            *(enum tristate *)field = node->boolean ? TRI_TRUE : TRI_FALSE;
        break;
    case KEY_UINT:
        read_uint(r, s, k, node, field);
        break;
    case KEY_INT:
        read_int(r, s, k, node, field);
        break;
    case KEY_FLOAT:
        read_float(r, s, k, node, field);
        break;
    case KEY_STRING:
    case KEY_TIME:
        read_string(r, s, k, node, field);
        break;
    case KEY_ENUM:
        read_enum(r, s, k, node, field);
        break;
    case KEY_STRINGS:
        read_strings(r, s, k, node, field);
        break;
    case KEY_FREE:
        if (is_kind(r, s, k, node, TOML_K_TABLE))
            free_table_read(r, path_of(s, k, path), (enum free_items)k->items, node, field);
        break;
    case KEY_TABLE:
        if (is_kind(r, s, k, node, TOML_K_TABLE))
            read_section(r, k->section, node, field, warned_already);
        break;
    case KEY_TABLES:
        read_tables(r, s, k, node, field ? base : NULL, warned_already);
        break;
    case KEY_ANY:
        break;
    }
}

/* One warning for a key, not one for each place: a thousand providers may have the same block. */
static void warn_no_effect(struct reader *r, const struct section *s, const struct key_spec *k,
                           struct toml_place at)
{
    for (unsigned i = 0; i < r->n_warned; i++)
        if (r->warned[i] == k)
            return;
    r->warned = mem_realloc(r->warned, (r->n_warned + 1) * sizeof *r->warned);
    r->warned[r->n_warned++] = k;
    char path[PATH_TEXT];
    path_of(s, k, path);
    if (k->standing == KEY_LATER)
        reader_warn(r, at, "%s: has no effect in this version", path);
    else
        reader_warn(r, at, "%s: has no effect here. %s", path, k->doc);
}

static void fault_unknown(struct reader *r, const struct section *s, const struct toml_node *node)
{
    const struct section *elsewhere = NULL;
    const struct key_spec *near = reader_is_full(r) ? NULL : schema_nearest(s, node->key, &elsewhere);
    char path[PATH_TEXT + 128], place[PATH_TEXT];
    snprintf(path, sizeof path, "%s%s%.*s", s->path, s->path[0] ? "." : "",
             node->key.n > 100 ? 100 : (int)node->key.n, node->key.p);
    if (elsewhere && elsewhere->path[0])
        snprintf(place, sizeof place, "in [%s]", elsewhere->path);
    else
        snprintf(place, sizeof place, "at the top of the file");
    if (near && !elsewhere)
        reader_fault(r, node->key_at, "%s: unknown key; did you mean \"%s\"?", path, near->name);
    else if (near && span_eq(node->key, span_str(near->name)))
        reader_fault(r, node->key_at, "%s: unknown key; it belongs %s", path, place);
    else if (near)
        reader_fault(r, node->key_at, "%s: unknown key; did you mean \"%s\" %s?", path, near->name, place);
    else
        reader_fault(r, node->key_at, "%s: unknown key", path);
}

static void read_section(struct reader *r, const struct section *s, const struct toml_node *node, void *base,
                         bool warned_already)
{
    bool seen[64] = {false};
    CHECK(s->n <= ARRAY_LEN(seen));
    if (base && s->present != NO_FIELD)
        *(bool *)(void *)((char *)base + s->present) = true;
    if (base && s->line != NO_FIELD)
        *(unsigned *)(void *)((char *)base + s->line) = node->at.line;
    for (const struct toml_node *child = node->first; child; child = child->next) {
        const struct key_spec *k = section_find(s, child->key);
        if (!k) {
            fault_unknown(r, s, child);
            continue;
        }
        seen[k - s->keys] = true;
        if (k->standing != KEY_ACTIVE && !warned_already)
            warn_no_effect(r, s, k, child->key_at);
        read_key(r, s, k, child, base, warned_already || k->standing != KEY_ACTIVE);
    }
    for (unsigned i = 0; i < s->n; i++)
        if (!seen[i] && (s->keys[i].flags & KEYF_REQUIRED))
            reader_fault(r, node->at, "%s: the key \"%s\" is missing", s->path, s->keys[i].name);
}

void reader_read(struct reader *r, const struct toml_node *root)
{
    section_set_presets(&r->s->arena, &schema_root, r->s);
    read_section(r, &schema_root, root, r->s, false);
}
