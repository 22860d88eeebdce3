/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "config/config.h"
#include "config/free_table.h"
#include "config/schema.h"

struct show {
    struct buf *out;
    unsigned secrets; /* masked so far; a number keeps unique keys unique when the text is read again */
};

static void show_section(struct show *w, const struct section *s, const char *base);

/* The shortest text that reads back as the same number and is a float in TOML. */
static void show_float(struct buf *out, double v)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    buf_add_str(out, text);
    if (!strpbrk(text, ".e"))
        BUF_LIT(out, ".0");
}

/* User info and query of a URL may hold a password. */
static void show_url(struct buf *out, const char *url)
{
    const char *host = strstr(url, "://"), *at = strrchr(url, '@'), *query = strchr(url, '?');
    host = host ? host + 3 : url;
    if (query && at && at > query)
        at = NULL;
    struct buf text;
    buf_init(&text, strlen(url) + 16);
    buf_add(&text, url, (size_t)(host - url));
    if (at && at >= host)
        BUF_LIT(&text, "***");
    else
        at = host;
    buf_add(&text, at, query && query > at ? (size_t)(query - at) : strlen(at));
    if (query && query > at)
        BUF_LIT(&text, "?***");
    toml_write_string(out, buf_view(&text));
    buf_fini(&text);
}

static void show_string(struct show *w, const struct key_spec *k, const char *text)
{
    if (k->flags & KEYF_SECRET)
        buf_printf(w->out, "\"***%u\"", ++w->secrets);
    else if (strcmp(k->name, "clickhouse_url") == 0)
        show_url(w->out, text);
    else
        toml_write_string(w->out, span_str(text));
}

static void show_strings(struct buf *out, const struct strings *list)
{
    BUF_LIT(out, "[");
    for (unsigned i = 0; i < list->n; i++) {
        if (i)
            BUF_LIT(out, ", ");
        toml_write_string(out, span_str(list->item[i]));
    }
    BUF_LIT(out, "]");
}

static bool is_absent(const struct key_spec *k, const void *field)
{
    switch ((enum key_type)k->type) {
    case KEY_STRING:
    case KEY_TIME:
        return *(const char *const *)field == NULL;
    case KEY_TRISTATE:
        return *(const enum tristate *)field == TRI_UNSET;
    case KEY_FLOAT:
        return (k->flags & KEYF_NEGATIVE_IS_ABSENT) && *(const double *)field < 0;
    default:
        return false;
    }
}

static void show_value(struct show *w, const struct key_spec *k, const void *field)
{
    struct buf *out = w->out;
    switch ((enum key_type)k->type) {
    case KEY_BOOL:
        buf_add_str(out, *(const bool *)field ? "true" : "false");
        break;
    case KEY_TRISTATE:
        buf_add_str(out, *(const enum tristate *)field == TRI_TRUE ? "true" : "false");
        break;
    case KEY_UINT:
        buf_add_u64(out, k->bytes == sizeof(uint64_t) ? *(const uint64_t *)field : *(const unsigned *)field);
        break;
    case KEY_INT:
        buf_printf(out, "%d", *(const int *)field);
        break;
    case KEY_FLOAT:
        show_float(out, *(const double *)field);
        break;
    case KEY_STRING:
    case KEY_TIME:
        show_string(w, k, *(const char *const *)field);
        break;
    case KEY_ENUM:
        buf_printf(out, "\"%s\"",
                   k->words[k->bytes == sizeof(bool) ? *(const bool *)field : *(const int *)field]);
        break;
    case KEY_STRINGS:
        show_strings(out, field);
        break;
    case KEY_FREE:
        free_table_show(field, k->flags & KEYF_SECRET, out);
        break;
    default:
        UNREACHABLE();
    }
}

static void show_tables(struct show *w, const struct key_spec *k, const char *base)
{
    const char *items;
    memcpy(&items, base + k->offset, sizeof items);
    const unsigned n = *(const unsigned *)(const void *)(base + k->count);
    for (unsigned i = 0; i < n; i++) {
        buf_printf(w->out, "\n[[%s]]\n", k->section->path);
        show_section(w, k->section, items + (size_t)i * k->section->bytes);
    }
}

/* Values first: behind the header of a table inside, they would belong to that one. */
static void show_section(struct show *w, const struct section *s, const char *base)
{
    for (unsigned i = 0; i < s->n; i++) {
        const struct key_spec *k = &s->keys[i];
        if (k->offset == NO_FIELD || k->type == KEY_TABLE || k->type == KEY_TABLES ||
            is_absent(k, base + k->offset))
            continue;
        buf_printf(w->out, "%s = ", k->name);
        show_value(w, k, base + k->offset);
        BUF_LIT(w->out, "\n");
    }
    for (unsigned i = 0; i < s->n; i++) {
        const struct key_spec *k = &s->keys[i];
        if (k->offset == NO_FIELD)
            continue;
        if (k->type == KEY_TABLES)
            show_tables(w, k, base);
        if (k->type != KEY_TABLE)
            continue;
        const struct section *sub = k->section;
        if (sub->present != NO_FIELD && !*(const bool *)(const void *)(base + k->offset + sub->present))
            continue;
        buf_printf(w->out, "\n[%s]\n", sub->path);
        show_section(w, sub, base + k->offset);
    }
}

void config_show(const struct settings *s, struct buf *out)
{
    struct show w = {.out = out};
    show_section(&w, &schema_root, (const char *)s);
}
