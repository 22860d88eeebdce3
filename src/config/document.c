/* SPDX-License-Identifier: Apache-2.0
 * docs/configuration.md from the table of keys.
 */
#include <math.h>
#include <stdio.h>

#include "config/config.h"
#include "config/reader.h"

static const char *type_text(const struct key_spec *k)
{
    switch ((enum key_type)k->type) {
    case KEY_BOOL:
    case KEY_TRISTATE:
        return "boolean";
    case KEY_UINT:
    case KEY_INT:
        return "integer";
    case KEY_FLOAT:
        return "number";
    case KEY_STRING:
        return "string";
    case KEY_TIME:
        return "date-time";
    case KEY_ENUM:
        return "word";
    case KEY_STRINGS:
        return "strings";
    case KEY_FREE:
    case KEY_TABLE:
        return "table";
    case KEY_TABLES:
        return "tables";
    case KEY_ANY:
        return "any";
    }
    UNREACHABLE();
}

static void write_range(const struct key_spec *k, struct buf *out)
{
    if (k->type == KEY_ENUM) {
        for (unsigned i = 0; k->words[i]; i++)
            buf_printf(out, "%s`%s`", i ? ", " : "", k->words[i]);
        return;
    }
    if (k->type != KEY_UINT && k->type != KEY_FLOAT)
        return;
    if (k->max > 0)
        buf_printf(out, "%.15g to %.15g", k->min, k->max);
    else
        buf_printf(out, "%.15g or more", k->min);
    if (k->unit)
        buf_printf(out, " %s", k->unit);
}

static void write_row(const struct key_spec *k, struct buf *out)
{
    buf_printf(out, "| `%s` | %s | ", k->name, type_text(k));
    if (k->flags & KEYF_REQUIRED)
        BUF_LIT(out, "required");
    else if (k->preset)
        buf_printf(out, "`%s`", k->preset);
    BUF_LIT(out, " | ");
    write_range(k, out);
    buf_printf(out, " | %s%s%s |\n", k->doc ? k->doc : "",
               k->standing == KEY_LATER ? " *No effect yet.*" : "",
               k->flags & KEYF_RESTART ? " *Restart.*" : "");
}

static void write_section(const struct section *s, const char *brackets, bool later, struct buf *out);

static void write_inner(const struct section *s, bool later, struct buf *out)
{
    for (unsigned i = 0; i < s->n; i++) {
        const struct key_spec *k = &s->keys[i];
        if (k->section)
            write_section(k->section, k->type == KEY_TABLES ? "[[]]" : "[]",
                          later || k->standing == KEY_LATER, out);
    }
}

static void write_section(const struct section *s, const char *brackets, bool later, struct buf *out)
{
    const int half = (int)strlen(brackets) / 2;
    buf_printf(out, "\n## `%.*s%s%.*s`\n\n%s%s\n\n", half, brackets, s->path, half, brackets + half, s->doc,
               later ? " This version accepts and checks it, and does not act on it yet." : "");
    BUF_LIT(out, "| key | type | default | range | meaning |\n| --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < s->n; i++) {
        struct key_spec k = s->keys[i];
        if (k.standing == KEY_ORIGINAL)
            continue;
        if (later)
            k.standing = KEY_ACTIVE; /* said once, above the table */
        write_row(&k, out);
    }
    write_inner(s, later, out);
}

static void write_without_effect(const struct section *s, struct buf *out)
{
    for (unsigned i = 0; i < s->n; i++) {
        const struct key_spec *k = &s->keys[i];
        if (k->standing == KEY_ORIGINAL)
            buf_printf(out, "| `%s%s%s` | %s |\n", s->path, s->path[0] ? "." : "", k->name, k->doc);
        if (k->section)
            write_without_effect(k->section, out);
    }
}

void config_document(struct buf *out)
{
    BUF_LIT(
        out,
        "# Configuration\n\n"
        "<!-- Made from the table of keys in src/config by scripts/gen-docs; do not edit. -->\n\n"
        "rolter reads one TOML file: `--config FILE`, else `ROLTER_CONFIG`, else `rolter.toml`. "
        "`rolter check` reads it without starting, and names every fault with its line and column; "
        "`rolter check --show` prints what is in effect, secrets masked.\n\n"
        "An unknown key is a fault. A change of the file is taken over while running, except for keys marked "
        "*Restart*. Secrets belong in the environment: keys that end in `_env` name a variable.\n\n"
        "```toml\n"
        "[[providers]]\n"
        "name = \"engine-a\"\n"
        "kind = \"openai_compatible\"\n"
        "api_base = \"http://10.0.0.1:8000\"\n\n"
        "[[providers]]\n"
        "name = \"engine-b\"\n"
        "kind = \"openai_compatible\"\n"
        "api_base = \"http://10.0.0.2:8000\"\n\n"
        "[[routes]]\n"
        "model = \"chat\"\n"
        "strategy = \"least_load\"\n"
        "targets = [{ provider = \"engine-a\" }, { provider = \"engine-b\" }]\n"
        "```\n");
    write_inner(&schema_root, false, out);
    BUF_LIT(out, "\n## Provider kinds\n\n`");
    kinds_list(out, "`, `");
    BUF_LIT(out,
            "`.\n\n`openrouter` and the kinds from `ai21` on are hosted: they need `api_key_env` or "
            "`api_keys` with "
            "`env`. `openai_compatible` is right for vLLM, SGLang and other engines.\n\n## Strategies\n\n");
    for (unsigned i = 0; i < STRATEGY_COUNT; i++)
        buf_printf(out, "%s`%s`", i ? ", " : "", strategy_name((enum strategy_id)i));
    BUF_LIT(
        out,
        ".\n\n## Keys without effect\n\nConfigurations written for the original gateway may have these; each "
        "is a warning.\n\n| key | instead |\n| --- | --- |\n");
    write_without_effect(&schema_root, out);
}
