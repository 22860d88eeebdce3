/* SPDX-License-Identifier: Apache-2.0
 * Faulty configurations: what is said, and where.
 */
#include "config_unit.h"

#include "config/schema.h"
#include "config/toml_tree.h"
#include "fault_cases.h"

/* Also: settings come exactly when nothing is an error. */
static void check(const char *text, const char *want, bool whole)
{
    struct config_report r;
    config_report_init(&r);
    struct settings *s = config_parse(span_str(text), "t", NULL, &r);
    const struct span said = buf_view(&r.text);
    if (whole ? !span_eq(said, span_str(want)) : !span_starts(said, span_str(want)))
        fail_msg("in:\n%s\nsaid:\n%.*s\nwanted:\n%s", text, SPAN_FMT(said), want);
    assert_true((s == NULL) == (r.errors > 0));
    unsigned lines = 0;
    for (size_t i = 0; i < said.n; i++)
        lines += said.p[i] == '\n';
    assert_int_equal(r.errors + r.warnings, lines);
    settings_free(s);
    config_report_fini(&r);
}

static void one_fault_each(void **state)
{
    (void)state;
    unsetenv("ROLTER_NOT_SET_ANYWHERE");
    for (unsigned i = 0; i < ARRAY_LEN(fault_cases); i++)
        check(fault_cases[i].text, fault_cases[i].want, true);
}

static void syntax(void **state)
{
    (void)state;
    for (unsigned i = 0; i < ARRAY_LEN(syntax_cases); i++)
        check(syntax_cases[i].text, syntax_cases[i].want, false);
}

static void every_fault_in_one_run(void **state)
{
    (void)state;
    check(
        "[server]\n"
        "port = \"x\"\n"
        "hsot = 1\n"
        "[[routes]]\n"
        "model = \"m\"\n"
        "strategy = \"adaptive\"\n"
        "targets = [\n"
        "  { provider = \"p\", weight = 0 },\n"
        "  { provider = \"q\" },\n"
        "]\n"
        "[realtime]\n"
        "[cache]\n"
        "enabled = 1\n"
        "[[providers]]\n"
        "name = \"p\"\n"
        "kind = \"vertex\"\n"
        "api_base = \"http://169.254.1.1\"\n"
        "api_key = 7\n",
        "t:2:8: error: server.port: expected an integer, found a string\n"
        "t:3:1: error: server.hsot: unknown key; did you mean \"host\"?\n"
        "t:6:12: error: routes.strategy: \"adaptive\" is not available in this version; there are " STRATEGIES
        "\n"
        "t:8:30: error: routes.targets.weight: 0 is out of range (1 to 1000000)\n"
        "t:9:16: error: routes.targets.provider: there is no provider \"q\"\n"
        "t:11:2: warning: realtime: has no effect here. There is no such endpoint.\n"
        "t:13:11: error: cache.enabled: expected a boolean, found an integer\n"
        "t:16:8: error: providers.kind: \"vertex\" has an API of a shape that is neither OpenAI's nor "
        "Anthropic's\n"
        "t:17:12: error: providers.api_base: \"169.254.1.1\" is a link-local address, which [egress] "
        "refuses\n"
        "t:18:11: error: providers.api_key: expected a string, found an integer\n",
        true);
}

/* A thousand lines are enough for anybody; the rest is counted. */
static void endless_faults(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    for (unsigned i = 0; i < 1234; i++)
        buf_printf(&b, "k%u = 1\n", i);
    struct config_report r;
    config_report_init(&r);
    assert_null(config_parse(buf_view(&b), "t", NULL, &r));
    assert_int_equal(r.errors, 1234);
    assert_true(span_find(buf_view(&r.text), SPAN("t: and 234 more\n")) > 0);
    config_report_fini(&r);
    buf_fini(&b);
}

static void distances(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        unsigned limit, want;
    } cases[] = {
        {"port", "port", 3, 0},      {"prot", "port", 3, 1},     {"por", "port", 3, 1},
        {"sport", "port", 3, 1},     {"part", "port", 3, 1},     {"", "abc", 9, 3},
        {"abc", "", 9, 3},           {"abcdef", "ghi", 2, 3},    {"ca", "abc", 9, 3},
        {"kitten", "sitting", 9, 3}, {"weigth", "weight", 9, 1},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(schema_distance(span_str(cases[i].a), span_str(cases[i].b), cases[i].limit),
                         cases[i].want);
}

/* The documentation's own snippets, with what they stand in. */
static void examples_load(void **state)
{
    (void)state;
    struct settings *s = config_good("[[providers]]\n"
                                     "name = \"vllm-a\"\n"
                                     "kind = \"openai_compatible\"\n"
                                     "api_base = \"http://vllm-a:8000\"\n"
                                     "\n"
                                     "[providers.kv_events]\n"
                                     "endpoint = \"tcp://vllm-a:5557\"\n"
                                     "topic = \"kv-events\"\n"
                                     "max_blocks = 1000000\n"
                                     "stale_secs = 30\n"
                                     "\n"
                                     "[providers.lmcache]\n"
                                     "endpoint = \"http://lmcache-a:9000/v1/occupancy\"\n"
                                     "refresh_secs = 2\n"
                                     "stale_secs = 10\n"
                                     "\n"
                                     "[[providers]]\n"
                                     "name = \"openai\"\n"
                                     "kind = \"openai\"\n"
                                     "api_base = \"https://api.openai.com/v1\"\n"
                                     "\n"
                                     "[cache]\n"
                                     "enabled = true\n"
                                     "\n"
                                     "[[routes]]\n"
                                     "model = \"m\"\n"
                                     "targets = [{ provider = \"vllm-a\" }]\n"
                                     "\n"
                                     "[routes.cache]\n"
                                     "enabled = true\n"
                                     "\n"
                                     "[routes.cache.semantic]\n"
                                     "provider = \"openai\"\n"
                                     "model = \"text-embedding-3-small\"\n"
                                     "threshold = 0.92\n"
                                     "max_candidates = 256\n",
                                     0);
    assert_int_equal(s->n_providers, 2);
    const struct semantic_settings *m = &s->routes[0].cache.semantic;
    assert_true(m->present && m->threshold == 0.92 && m->max_candidates == 256);
    assert_true(m->guard == SEMANTIC_GUARD_NONE && m->lookup == SEMANTIC_WAIT &&
                m->embedding_timeout_ms == 2000);
    assert_string_equal(m->provider, "openai");
    assert_string_equal(s->providers[0].name, "vllm-a");
    assert_int_equal(s->routes[0].n_targets, 1);
    settings_free(s);
}

/* Every key that the table knows, with its default: none is unknown, none out of its own range. */
static void put_presets(const struct section *s, struct buf *out)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->keys[i].preset)
            buf_printf(out, "%s = %s\n", s->keys[i].name, s->keys[i].preset);
    for (unsigned i = 0; i < s->n; i++) {
        const struct key_spec *k = &s->keys[i];
        assert_non_null(k->name);
        assert_true(k->doc || k->section);
        assert_true(k->type != KEY_ENUM || k->words);
        if (k->type == KEY_TABLE) {
            buf_printf(out, "[%s]\n", k->section->path);
            put_presets(k->section, out);
        } else if (k->type == KEY_TABLES) {
            buf_printf(out, "[[%s]]\n", k->section->path);
            put_presets(k->section, out);
        }
    }
}

static void presets_are_valid(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    put_presets(&schema_root, &b);
    struct config_report r;
    config_report_init(&r);
    settings_free(config_parse(buf_view(&b), "t", NULL, &r));
    static const char *const never[] = {"unknown key", "expected", "out of range", "is not one of",
                                        "parsing"};
    for (unsigned i = 0; i < ARRAY_LEN(never); i++)
        if (span_find(buf_view(&r.text), span_str(never[i])) >= 0)
            fail_msg("%.*s\nin:\n%.*s", SPAN_FMT(buf_view(&r.text)), SPAN_FMT(buf_view(&b)));
    assert_true(span_find(buf_view(&r.text), SPAN("is missing")) > 0);
    config_report_fini(&r);
    buf_fini(&b);
}

static unsigned count_keys(const struct section *s, const char *document)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++) {
        const struct key_spec *k = &s->keys[i];
        char cell[128];
        if (k->standing == KEY_ORIGINAL)
            snprintf(cell, sizeof cell, "| `%s%s%s` |", s->path, s->path[0] ? "." : "", k->name);
        else if (s->path[0])
            snprintf(cell, sizeof cell, "| `%s` |", k->name);
        else
            snprintf(cell, sizeof cell, "%s`\n", k->type == KEY_TABLES ? "]]" : "]");
        if (!strstr(document, cell))
            fail_msg("not documented: %s", cell);
        n++;
        if (k->section)
            n += count_keys(k->section, document);
    }
    return n;
}

static void every_key_is_documented(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    config_document(&b);
    buf_add_char(&b, '\0');
    assert_true(count_keys(&schema_root, b.p) > 200);
    buf_fini(&b);
}

static void trees_keep_places(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, NULL);
    struct toml_fault fault;
    const struct toml_node *root =
        toml_tree_parse(&a,
                        SPAN("z = 1\na.b = [1, 'x',\n  {\"\xc3\xa9\" = 2.5}]\n[[t]]\nd = "
                             "2026-01-02T03:04:05.06-07:30\n[[t]]\ne = 07:08:09\n"),
                        &fault);
    assert_non_null(root);
    assert_int_equal(root->n, 3);
    assert_true(span_eq(root->first->key, SPAN("z")) && root->first->integer == 1);
    const struct toml_node *b = toml_tree_get(toml_tree_get(root, SPAN("a")), SPAN("b"));
    assert_true(b && b->kind == TOML_K_ARRAY && b->n == 3 && b->at.line == 2 && b->at.column == 7);
    const struct toml_node *inner = b->first->next->next;
    assert_true(inner->at.line == 3 && inner->at.column == 3 && inner->first->key_at.column == 4);
    assert_true(inner->first->number == 2.5 && inner->first->at.column == 10);
    const struct toml_node *t = toml_tree_get(root, SPAN("t"));
    assert_true(t->n == 2 && t->first->at.line == 4 && t->first->next->at.line == 6);
    assert_string_equal(t->first->first->string.p, "2026-01-02T03:04:05.06-07:30");
    assert_true(t->first->first->date_has_offset && !t->first->next->first->date_has_offset);
    assert_string_equal(t->first->next->first->string.p, "07:08:09");
    /* Dots, brackets and quotes inside of strings and comments do not count as depth. */
    assert_non_null(toml_tree_parse(
        &a,
        SPAN("# a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n"
             "s = \"a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"\n"
             "l = 'a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s\\'\n"
             "m = \"\"\"\n\"\"x[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"\"\"\"\"\n"
             "n = '''\n''[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[''''\n"),
        &fault));
    arena_reset(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_fault_each),    cmocka_unit_test(syntax),
        cmocka_unit_test(endless_faults),    cmocka_unit_test(every_fault_in_one_run),
        cmocka_unit_test(distances),         cmocka_unit_test(examples_load),
        cmocka_unit_test(presets_are_valid), cmocka_unit_test(every_key_is_documented),
        cmocka_unit_test(trees_keep_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
