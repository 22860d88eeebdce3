/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/guardrails.h"

#include <stdlib.h>

#include "base/mem.h"
#include "json/write.h"
#include "policy/splice.h"
#include "policy/texts.h"

/* A match that begins before the budget's end is found whole. */
enum { BUDGET_SLACK = 256 };

static const struct builtin {
    const char *name, *pattern, *replacement;
} builtins[] = {
    {"email", "[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,24}", "[REDACTED:EMAIL]"},
    {"phone", "\\+?[0-9][0-9 .-]{6,18}[0-9]", "[REDACTED:PHONE]"},
    {"api_token", "sk-[A-Za-z0-9]{16,}|ghp_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}|xox[baprs]-[A-Za-z0-9-]{10,}",
     "[REDACTED:API_TOKEN]"},
    {"payment_card", "\\b[0-9](?:[ -]?[0-9]){12,18}\\b", "[REDACTED:CARD]"},
};

static const struct builtin *find_builtin(const char *name)
{
    for (size_t i = 0; name && i < ARRAY_LEN(builtins); i++)
        if (strcmp(builtins[i].name, name) == 0)
            return &builtins[i];
    return NULL;
}

const char *guard_builtin(const char *name)
{
    const struct builtin *b = find_builtin(name);
    return b ? b->pattern : NULL;
}

static void build_stage(struct guard_stage *st, const struct guardrail_settings *s, enum rule_stage stage)
{
    struct span *text = mem_array(s->n_rules, sizeof *text);
    st->rule = mem_array(s->n_rules, sizeof *st->rule);
    for (unsigned i = 0; i < s->n_rules; i++) {
        const struct rule_settings *r = &s->rules[i];
        const struct builtin *b = find_builtin(r->builtin);
        if (r->stage != stage)
            continue;
        const char *replacement = r->replacement ? r->replacement : b ? b->replacement : "[REDACTED]";
        text[st->n] = span_str(b ? b->pattern : r->pattern);
        st->rule[st->n++] = (struct guard_rule){
            .name = r->name,
            .name_span = span_str(r->name),
            .action = r->action,
            .replacement = span_str(replacement),
            .include_system = r->include_system,
        };
    }
    if (st->n)
        st->patterns =
            patterns_new(text, st->n, stage == RULE_POST_CALL && s->streaming_post_call == STREAM_APPLY);
    st->words = (st->n + 63) / 64;
    free(text);
}

struct guardrails *guardrails_new(const struct guardrail_settings *s)
{
    if (!s->enabled || s->n_rules == 0)
        return NULL;
    struct guardrails *g = MEM_NEW(struct guardrails);
    g->max_scan_bytes = s->max_scan_bytes;
    g->on_budget = s->on_budget;
    g->streaming = s->streaming_post_call;
    build_stage(&g->stage[RULE_PRE_CALL], s, RULE_PRE_CALL);
    build_stage(&g->stage[RULE_POST_CALL], s, RULE_POST_CALL);
    return g;
}

void guardrails_free(struct guardrails *g)
{
    if (!g)
        return;
    for (unsigned i = 0; i < 2; i++) {
        if (g->stage[i].patterns)
            patterns_free(g->stage[i].patterns);
        free(g->stage[i].rule);
    }
    free(g);
}

static bool is_in(const struct strings *list, const char *name)
{
    for (unsigned i = 0; i < list->n; i++)
        if (strcmp(list->item[i], name) == 0)
            return true;
    return false;
}

static bool bit(const uint64_t *bits, unsigned i)
{
    return bits[i / 64] >> i % 64 & 1;
}

uint64_t *guard_mask_new(const struct guard_stage *s, const struct route_rule_settings *r)
{
    uint64_t *mask = mem_array(s->words ? s->words : 1, sizeof *mask);
    for (unsigned i = 0; i < s->n; i++)
        if (!r || is_in(&r->enable, s->rule[i].name) || !is_in(&r->disable, s->rule[i].name))
            mask[i / 64] |= (uint64_t)1 << i % 64;
    return mask;
}

bool guard_mask_any(const struct guard_stage *s, const uint64_t *mask, bool acts)
{
    for (unsigned i = 0; i < s->n; i++)
        if (bit(mask, i) && (!acts || s->rule[i].action != RULE_ANNOTATE))
            return true;
    return false;
}

/* A text to look at: a string of the body, or one inside of the JSON text that such a string holds. */
struct piece {
    const struct json_doc *doc; /* that <node> belongs to; NULL: the body is no JSON */
    uint32_t node;
    uint32_t outer; /* the body's string that holds <doc>; JSON_NODE_NONE when that is the body's own */
    uint32_t logprobs;
    bool system;
    struct span text; /* unescaped, and only as far as it is looked at */
    bool cut;
};

struct job {
    const struct guardrails *g;
    const struct guard_stage *st;
    const uint64_t *mask;
    struct arena *a;
    struct piece *piece;
    unsigned n, cap;
    char *joined;
    size_t joined_n, joined_cap;
    uint64_t left; /* of the budget */
    uint64_t *hits;
    bool looks_at_system;
    struct guard_result *ret;
};

static struct piece *add_piece(struct job *j)
{
    if (j->n == j->cap) {
        unsigned cap = j->cap ? j->cap * 2 : 32;
        struct piece *p = arena_alloc(j->a, cap * sizeof *p);
        if (j->n)
            memcpy(p, j->piece, j->n * sizeof *p);
        j->piece = p;
        j->cap = cap;
    }
    return memset(&j->piece[j->n++], 0, sizeof *j->piece);
}

static void put(void *arg, const char *p, size_t n)
{
    struct job *j = arg;
    if (n)
        memcpy(j->joined + j->joined_n, p, n);
    j->joined_n += n;
}

/* Joined texts are sized by the body, which unescaping never makes longer; a NUL behind each. */
static void join(struct job *j, struct piece *p, struct span plain)
{
    size_t from = j->joined_n;
    if (p->doc && !plain.p)
        json_string_each(p->doc, p->node, put, j);
    else
        put(j, plain.p, plain.n);
    struct span text = span_of(j->joined + from, j->joined_n - from);
    if (text.n > j->left) {
        size_t n = j->left ? j->left + BUDGET_SLACK : 0;
        p->cut = n < text.n;
        if (p->cut) {
            while (n > 0 && ((unsigned char)text.p[n] & 0xc0) == 0x80)
                n--;
            text.n = n;
        }
        j->ret->over_budget = true;
        j->left = 0;
    } else {
        j->left -= text.n;
    }
    p->text = text;
    j->joined_n = from + text.n;
    put(j, "", 1);
}

/* The strings inside of a tool call's arguments; false when these are no JSON after all. */
static bool add_inner(struct job *j, const struct json_doc *d, const struct text_slot *s)
{
    struct json_doc *inner = ARENA_NEW(j->a, struct json_doc);
    struct json_fault fault;
    struct span text = json_string(d, s->node, j->a);
    struct text_list list;
    if (!json_parse(j->a, text, NULL, inner, &fault) || inner->node[0].type < JSON_ARRAY)
        return false;
    texts_of_value(inner, j->a, &list);
    for (unsigned i = 0; i < list.n; i++) {
        struct piece *p = add_piece(j);
        p->doc = inner;
        p->node = list.slot[i].node;
        p->outer = s->node;
        p->logprobs = s->logprobs;
        p->system = s->system;
        join(j, p, SPAN_NONE);
    }
    return true;
}

static void collect(struct job *j, const struct json_doc *d, const struct text_list *list)
{
    for (unsigned i = 0; i < list->n; i++) {
        const struct text_slot *s = &list->slot[i];
        if (s->system && !j->looks_at_system)
            continue;
        if (s->json && add_inner(j, d, s))
            continue;
        struct piece *p = add_piece(j);
        p->doc = d;
        p->node = s->node;
        p->outer = JSON_NODE_NONE;
        p->logprobs = s->logprobs;
        p->system = s->system;
        join(j, p, SPAN_NONE);
    }
}

/* All matches of rule <i> in *io replaced. */
static bool redact(struct job *j, unsigned i, struct span *io)
{
    struct pattern_hit hit;
    size_t from = 0;
    struct splice s;
    splice_init(&s, j->a);
    while (patterns_find(j->st->patterns, i, *io, from, &hit)) {
        splice_add(&s, hit.at, hit.end - hit.at, j->st->rule[i].replacement);
        from = hit.end;
    }
    if (s.n == 0)
        return false;
    j->ret->redacted += s.n;
    *io = splice_apply(&s, *io);
    return true;
}

static void note(struct job *j, unsigned i)
{
    j->ret->noted[i / 64] |= (uint64_t)1 << i % 64;
}

/* False when a rule blocks. */
static bool run_rules(struct job *j, const struct piece *p, struct span *io, bool *ret_changed)
{
    struct pattern_hit hit;
    for (unsigned i = 0; i < j->st->n; i++) {
        const struct guard_rule *r = &j->st->rule[i];
        if (!bit(j->mask, i) || (p->system && !r->include_system) || (!*ret_changed && !bit(j->hits, i)))
            continue;
        switch (r->action) {
        case RULE_REDACT:
            if (redact(j, i, io)) {
                *ret_changed = true;
                note(j, i);
            }
            break;
        case RULE_ANNOTATE:
            if (patterns_find(j->st->patterns, i, *io, 0, &hit))
                note(j, i);
            break;
        case RULE_BLOCK:
            if (patterns_find(j->st->patterns, i, *io, 0, &hit)) {
                j->ret->verdict = GUARD_BLOCKED;
                j->ret->rule = r->name;
                return false;
            }
            break;
        }
    }
    return true;
}

/* What stands behind the part that was looked at. */
static struct span tail_of(const struct piece *p, struct arena *a)
{
    struct span whole = json_string(p->doc, p->node, a);
    return span_of(whole.p + p->text.n, whole.n - p->text.n);
}

static struct span as_json_string(struct job *j, struct span text, struct span tail)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    buf_add_char(&b, '"');
    json_escape(&b, text);
    json_escape(&b, tail);
    buf_add_char(&b, '"');
    struct span s = arena_dup(j->a, buf_view(&b));
    buf_fini(&b);
    return s;
}

static void replace_node(struct splice *s, const struct json_doc *d, uint32_t node, struct span text)
{
    splice_add(s, d->node[node].at, d->node[node].len, text);
}

/* Log probabilities spell the text out once more. */
static void drop_logprobs(struct splice *s, const struct json_doc *d, uint32_t node)
{
    if (node != JSON_NODE_NONE)
        replace_node(s, d, node, json_is(d, node, JSON_ARRAY) ? SPAN("[]") : SPAN("null"));
}

/* The pieces from <i> on that stand in the same JSON text; returns the index behind them. */
static bool run_inner(struct job *j, const struct json_doc *body, unsigned *i, struct splice *out)
{
    const struct json_doc *inner = j->piece[*i].doc;
    uint32_t outer = j->piece[*i].outer, logprobs = j->piece[*i].logprobs;
    struct splice s;
    splice_init(&s, j->a);
    for (; *i < j->n && j->piece[*i].doc == inner; ++*i) {
        const struct piece *p = &j->piece[*i];
        struct span text = p->text;
        bool changed = false;
        if (!run_rules(j, p, &text, &changed))
            return false;
        if (changed)
            replace_node(&s, inner, p->node, as_json_string(j, text, p->cut ? tail_of(p, j->a) : SPAN_NONE));
    }
    if (s.n) {
        replace_node(out, body, outer, as_json_string(j, splice_apply(&s, inner->text), SPAN_NONE));
        drop_logprobs(out, body, logprobs);
    }
    return true;
}

static bool run_pieces(struct job *j, const struct json_doc *body, struct splice *out)
{
    for (unsigned i = 0; i < j->n;) {
        const struct piece *p = &j->piece[i];
        if (p->outer != JSON_NODE_NONE) {
            if (!run_inner(j, body, &i, out))
                return false;
            continue;
        }
        struct span text = p->text;
        bool changed = false;
        if (!run_rules(j, p, &text, &changed))
            return false;
        if (changed) {
            replace_node(out, body, p->node, as_json_string(j, text, p->cut ? tail_of(p, j->a) : SPAN_NONE));
            drop_logprobs(out, body, p->logprobs);
        }
        i++;
    }
    return true;
}

static void run_plain(struct job *j, struct span body)
{
    const struct piece *p = &j->piece[0];
    struct span text = p->text;
    bool changed = false;
    if (!run_rules(j, p, &text, &changed) || !changed)
        return;
    struct splice s;
    splice_init(&s, j->a);
    splice_add(&s, 0, p->text.n, text);
    j->ret->body = splice_apply(&s, body);
    j->ret->verdict = GUARD_CHANGED;
}

static bool any_hit(struct job *j)
{
    bool any = false;
    patterns_scan(j->st->patterns, span_of(j->joined, j->joined_n), j->hits);
    for (unsigned w = 0; w < j->st->words; w++) {
        j->hits[w] &= j->mask[w];
        any |= j->hits[w] != 0;
    }
    return any;
}

static void run(struct job *j, struct span body, const struct json_doc *doc)
{
    struct splice out;
    splice_init(&out, j->a);
    if (!doc)
        run_plain(j, body);
    else if (run_pieces(j, doc, &out) && out.n) {
        j->ret->body = splice_apply(&out, body);
        j->ret->verdict = GUARD_CHANGED;
    }
}

void guardrails_apply(const struct guardrails *g, enum rule_stage stage, const uint64_t *mask,
                      struct span body, const struct json_doc *doc, struct arena *a, struct guard_result *ret)
{
    const struct guard_stage *st = &g->stage[stage];
    *ret = (struct guard_result){.verdict = GUARD_SAME};
    if (!guard_mask_any(st, mask, false))
        return;
    struct job j = {.g = g, .st = st, .mask = mask, .a = a, .left = g->max_scan_bytes, .ret = ret};
    j.hits = ARENA_ARRAY(a, uint64_t, st->words);
    ret->noted = ARENA_ARRAY(a, uint64_t, st->words);
    for (unsigned i = 0; i < st->n; i++)
        j.looks_at_system |= bit(mask, i) && st->rule[i].include_system;
    j.joined_cap = body.n + 1;
    j.joined = arena_alloc(a, j.joined_cap);
    if (doc) {
        struct text_list list;
        if (stage == RULE_PRE_CALL)
            texts_of_request(doc, a, &list);
        else
            texts_of_reply(doc, a, &list);
        collect(&j, doc, &list);
    } else {
        join(&j, add_piece(&j), body.p ? body : SPAN(""));
    }
    if (any_hit(&j))
        run(&j, body, doc);
    if (ret->verdict != GUARD_BLOCKED && ret->over_budget && g->on_budget == BUDGET_BLOCK) {
        ret->verdict = GUARD_BLOCKED;
        ret->rule = "max_scan_bytes";
    }
}
