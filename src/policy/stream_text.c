/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/stream_text.h"

#include <stdlib.h>

#include "base/mem.h"
#include "json/write.h"

enum { HOLD_FEW = 4096, HOLD_MAX = 65536, DEPTH_MAX = 128, ESCAPE_MAX = 12 };

/* Bytes of a window that belong together. */
struct run {
    struct stream_slot *slot;
    size_t n;
};

struct window {
    unsigned rule;
    struct buf text; /* at most one settled byte as context, then what is not settled */
    size_t context;
    struct run *run; /* of what is not settled, one after the other */
    unsigned n, cap, first;
    size_t next_look; /* not before text.n is this large */
};

struct stream_chain {
    struct stream_rules *r;
    struct window *window;
    unsigned n;
    bool json; /* as long as the text looks like JSON */

    /* where in a JSON text we are */
    bool begun, in_string, in_name, name_next;
    uint64_t is_object[DEPTH_MAX / 64];
    unsigned depth;
    char escape[ESCAPE_MAX];
    unsigned n_escape;
    struct stream_slot *escape_slot;
};

static bool bit(const uint64_t *bits, unsigned i)
{
    return bits[i / 64] >> i % 64 & 1;
}

struct stream_chain *stream_chain_new(struct stream_rules *r, bool json)
{
    struct stream_chain *c = MEM_NEW(struct stream_chain);
    c->r = r;
    c->json = json;
    c->window = mem_array(r->st->n ? r->st->n : 1, sizeof *c->window);
    for (unsigned i = 0; i < r->st->n; i++)
        if (bit(r->mask, i)) {
            c->window[c->n].rule = i;
            buf_init(&c->window[c->n++].text, SIZE_MAX / 2);
        }
    return c;
}

void stream_chain_free(struct stream_chain *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < c->n; i++) {
        buf_fini(&c->window[i].text);
        free(c->window[i].run);
    }
    free(c->window);
    free(c);
}

static void put_out(struct stream_chain *c, struct stream_slot *slot, struct span text)
{
    if (c->in_string)
        json_escape(&slot->out, text);
    else
        buf_add_span(&slot->out, text);
}

static void add_run(struct window *w, struct stream_slot *slot, size_t n)
{
    if (n == 0)
        return;
    if (w->n > w->first && w->run[w->n - 1].slot == slot) {
        w->run[w->n - 1].n += n;
        return;
    }
    if (w->n == w->cap) {
        if (w->first > w->cap / 2) {
            memmove(w->run, w->run + w->first, (w->n - w->first) * sizeof *w->run);
            w->n -= w->first;
            w->first = 0;
        } else {
            w->cap = w->cap ? w->cap * 2 : 4;
            w->run = mem_realloc(w->run, w->cap * sizeof *w->run);
        }
    }
    w->run[w->n++] = (struct run){slot, n};
}

/* A note needs no text held back: such a window sees what passes, and owns none of it. */
static bool only_notes(const struct stream_chain *c, const struct window *w)
{
    return c->r->st->rule[w->rule].action == RULE_ANNOTATE;
}

/* Into window <k>, or out behind the last one. */
static void enter(struct stream_chain *c, unsigned k, struct stream_slot *slot, struct span text)
{
    for (; k < c->n && only_notes(c, &c->window[k]); k++)
        if (!bit(c->r->noted, c->window[k].rule))
            buf_add_span(&c->window[k].text, text);
    if (k == c->n) {
        put_out(c, slot, text);
        slot->inside -= text.n;
        return;
    }
    buf_add_span(&c->window[k].text, text);
    add_run(&c->window[k], slot, text.n);
}

/* The first <n> bytes behind the context are settled; the last one becomes the context. */
static void settle(struct window *w, size_t n)
{
    if (n == 0)
        return;
    buf_consume(&w->text, w->context + n - 1);
    w->context = 1;
}

/* Moves <n> bytes on as they are. */
static void pass_on(struct stream_chain *c, unsigned k, size_t n)
{
    struct window *w = &c->window[k];
    size_t at = w->context, left = n;
    while (!only_notes(c, w) && left > 0) {
        struct run *r = &w->run[w->first];
        size_t m = r->n < left ? r->n : left;
        enter(c, k + 1, r->slot, span_of(w->text.p + at, m));
        at += m;
        left -= m;
        r->n -= m;
        w->first += r->n == 0;
    }
    settle(w, n);
}

/* Takes <n> bytes out; <with> goes on in their place, in the slot of the first one. */
static void replace(struct stream_chain *c, unsigned k, size_t n, struct span with)
{
    struct window *w = &c->window[k];
    struct stream_slot *slot = w->run[w->first].slot;
    for (size_t left = n; left > 0;) {
        struct run *r = &w->run[w->first];
        size_t m = r->n < left ? r->n : left;
        r->slot->changed = true;
        r->slot->inside -= m;
        r->n -= m;
        left -= m;
        w->first += r->n == 0;
    }
    slot->inside += with.n;
    enter(c, k + 1, slot, with);
    settle(w, n);
}

static bool blocked(struct stream_chain *c, const char *rule)
{
    c->r->blocked = rule;
    return false;
}

/* One match that is settled. */
static bool act(struct stream_chain *c, unsigned k, const struct pattern_hit *hit)
{
    struct window *w = &c->window[k];
    const struct guard_rule *rule = &c->r->st->rule[w->rule];
    if (rule->action == RULE_BLOCK)
        return blocked(c, rule->name);
    c->r->noted[w->rule / 64] |= (uint64_t)1 << w->rule % 64;
    if (rule->action == RULE_ANNOTATE) {
        buf_clear(&w->text); /* once is enough */
        w->context = 0;
        return true;
    }
    pass_on(c, k, hit->at - w->context);
    replace(c, k, hit->end - hit->at, rule->replacement);
    c->r->redacted++;
    return true;
}

/* More is held than anybody should wait for. */
static bool give_up_holding(struct stream_chain *c, unsigned k)
{
    struct window *w = &c->window[k];
    c->r->over_budget = true;
    if (c->r->block_on_budget && !only_notes(c, w))
        return blocked(c, "max_scan_bytes");
    pass_on(c, k, w->text.n - w->context);
    return true;
}

/* Settles what can be settled in window <k>. A match that begins before the part that may still grow cannot
 * change any more: else it would be in that part. */
static bool look(struct stream_chain *c, unsigned k, bool last)
{
    struct window *w = &c->window[k];
    const struct patterns *p = c->r->st->patterns;
    if (!last && w->text.n < w->next_look)
        return true;
    while (w->text.n > w->context) {
        struct pattern_hit hit;
        struct span text = buf_view(&w->text);
        size_t open = last ? text.n : patterns_pending(p, w->rule, text, w->context);
        if (patterns_find(p, w->rule, text, w->context, &hit) && hit.at < open) {
            if (!act(c, k, &hit))
                return false;
            continue;
        }
        pass_on(c, k, open - w->context);
        break;
    }
    size_t held = w->text.n - w->context;
    if (held > HOLD_MAX && !give_up_holding(c, k))
        return false;
    w->next_look = held > HOLD_FEW ? w->text.n + held / 16 : 0;
    return true;
}

static bool look_all(struct stream_chain *c, bool last)
{
    for (unsigned k = 0; k < c->n; k++) {
        struct window *w = &c->window[k];
        if (!look(c, k, last))
            return false;
        if (last) {
            buf_clear(&w->text);
            w->context = 0;
            w->next_look = 0;
            w->n = w->first = 0;
        }
    }
    return true;
}

/* Text for the rules; what the budget does not cover passes by them. */
static bool feed_rules(struct stream_chain *c, struct stream_slot *slot, struct span text)
{
    struct stream_rules *r = c->r;
    if (text.n == 0)
        return true;
    if (r->left == 0) {
        /* Whatever is held goes first. */
        r->over_budget = true;
        if (r->block_on_budget)
            return blocked(c, "max_scan_bytes");
        if (!look_all(c, true))
            return false;
        put_out(c, slot, text);
        return true;
    }
    slot->inside += text.n;
    enter(c, 0, slot, text);
    if (!look_all(c, false))
        return false;
    if (text.n > r->left) {
        r->left = 0;
        r->over_budget = true;
        return !r->block_on_budget || blocked(c, "max_scan_bytes");
    }
    r->left -= text.n;
    return true;
}

/* ---- JSON texts ---- */

static void push(struct stream_chain *c, bool object)
{
    unsigned i = c->depth++ % DEPTH_MAX; /* deeper ones are nobody's arguments, and harm nobody */
    uint64_t mask = (uint64_t)1 << i % 64;
    c->is_object[i / 64] = object ? c->is_object[i / 64] | mask : c->is_object[i / 64] & ~mask;
    c->name_next = object;
}

static bool in_object(const struct stream_chain *c)
{
    unsigned i = (c->depth - 1) % DEPTH_MAX;
    return c->depth > 0 && (c->is_object[i / 64] >> i % 64 & 1);
}

static bool is_space(char b)
{
    return b == ' ' || b == '\t' || b == '\r' || b == '\n';
}

/* A byte between strings. False: this is no JSON. */
static bool structure(struct stream_chain *c, char b)
{
    switch (b) {
    case '{':
    case '[':
        push(c, b == '{');
        return true;
    case '}':
    case ']':
        c->depth -= c->depth > 0;
        c->name_next = false;
        return c->begun;
    case ',':
        c->name_next = in_object(c);
        return c->begun;
    case ':':
        c->name_next = false;
        return c->begun;
    default:
        return c->begun && (is_space(b) || (b && strchr("0123456789+-.eEtrufalsn", b)));
    }
}

static unsigned hex4(const char *p)
{
    unsigned v = 0;
    for (unsigned i = 0; i < 4; i++) {
        unsigned char b = (unsigned char)p[i];
        v = v << 4 | (b <= '9' ? b - 48u : (b | 0x20u) - 87u);
    }
    return v;
}

static bool is_hex(char b)
{
    return (b >= '0' && b <= '9') || ((b | 0x20) >= 'a' && (b | 0x20) <= 'f');
}

static struct span utf8(unsigned v, char out[4])
{
    size_t n = 0;
    if (v < 0x80) {
        out[n++] = (char)v;
    } else if (v < 0x800) {
        out[n++] = (char)(0xc0 | v >> 6);
        out[n++] = (char)(0x80 | (v & 0x3f));
    } else if (v < 0x10000) {
        out[n++] = (char)(0xe0 | v >> 12);
        out[n++] = (char)(0x80 | (v >> 6 & 0x3f));
        out[n++] = (char)(0x80 | (v & 0x3f));
    } else {
        out[n++] = (char)(0xf0 | v >> 18);
        out[n++] = (char)(0x80 | (v >> 12 & 0x3f));
        out[n++] = (char)(0x80 | (v >> 6 & 0x3f));
        out[n++] = (char)(0x80 | (v & 0x3f));
    }
    return span_of(out, n);
}

static bool feed_code(struct stream_chain *c, unsigned v)
{
    char out[4];
    if (v >= 0xd800 && v <= 0xdfff)
        v = 0xfffd;
    return feed_rules(c, c->escape_slot, utf8(v, out));
}

/* The escape is complete, or as complete as it gets. */
static bool end_escape(struct stream_chain *c)
{
    static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
    char kind = c->n_escape > 1 ? c->escape[1] : '\\';
    const char *plain = strchr(from, kind);
    unsigned n = c->n_escape;
    bool good;
    c->n_escape = 0;
    c->escape_slot->inside--;
    if (kind != 'u') {
        char b = plain ? to[plain - from] : kind;
        return feed_rules(c, c->escape_slot, span_of(&b, 1));
    }
    if (n < 6)
        return feed_code(c, 0xfffd);
    unsigned high = hex4(c->escape + 2);
    if (n < 12)
        return feed_code(c, high);
    unsigned low = hex4(c->escape + 8);
    if (high >= 0xd800 && high < 0xdc00 && low >= 0xdc00 && low < 0xe000)
        return feed_code(c, 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
    good = feed_code(c, high);
    return good && feed_code(c, low);
}

enum escape_step { ESCAPE_TAKES, ESCAPE_DONE, ESCAPE_BEFORE };

/* Whether <b> belongs to the escape that was begun, ends it, or comes behind it. */
static enum escape_step escape_goes_on(const struct stream_chain *c, char b)
{
    unsigned n = c->n_escape;
    bool high = n >= 6 && hex4(c->escape + 2) >= 0xd800 && hex4(c->escape + 2) < 0xdc00;
    if (n == 1)
        return b == 'u' ? ESCAPE_TAKES : ESCAPE_DONE;
    if (n < 5 || (n > 7 && n < 11))
        return is_hex(b) ? ESCAPE_TAKES : ESCAPE_BEFORE;
    if (n == 5) { /* the fourth digit: a high surrogate may have its low one behind it */
        char digits[4] = {c->escape[2], c->escape[3], c->escape[4], b};
        if (!is_hex(b))
            return ESCAPE_BEFORE;
        return hex4(digits) >= 0xd800 && hex4(digits) < 0xdc00 ? ESCAPE_TAKES : ESCAPE_DONE;
    }
    if (n == 6)
        return high && b == '\\' ? ESCAPE_TAKES : ESCAPE_BEFORE;
    if (n == 7)
        return b == 'u' ? ESCAPE_TAKES : ESCAPE_BEFORE;
    return is_hex(b) ? ESCAPE_DONE : ESCAPE_BEFORE;
}

/* One byte of an escape. *ret_taken false: <b> is not part of it. */
static bool feed_escape(struct stream_chain *c, struct stream_slot *slot, char b, bool *ret_taken)
{
    enum escape_step step = escape_goes_on(c, b);
    *ret_taken = step != ESCAPE_BEFORE;
    if (slot != c->escape_slot) /* one character in two slots: neither keeps its bytes */
        c->escape_slot->changed = slot->changed = true;
    if (step != ESCAPE_BEFORE)
        c->escape[c->n_escape++] = b;
    if (step == ESCAPE_TAKES)
        return true;
    if (step == ESCAPE_BEFORE && c->n_escape == 7) { /* a high surrogate, then another escape's backslash */
        c->n_escape = 6;
        if (!end_escape(c))
            return false;
        c->escape[c->n_escape++] = '\\';
        c->escape_slot->inside++;
        return feed_escape(c, slot, b, ret_taken);
    }
    return end_escape(c);
}

static bool feed_value(struct stream_chain *c, struct stream_slot *slot, const char **p, const char *end)
{
    bool taken;
    if (c->n_escape) {
        if (!feed_escape(c, slot, **p, &taken))
            return false;
        *p += taken;
        return true;
    }
    const char *from = *p;
    while (*p < end && **p != '"' && **p != '\\')
        ++*p;
    if (!feed_rules(c, slot, span_of(from, (size_t)(*p - from))))
        return false;
    if (*p == end)
        return true;
    if (**p == '\\') {
        c->escape_slot = slot;
        c->escape[c->n_escape++] = '\\';
        slot->inside++;
        ++*p;
        return true;
    }
    if (!look_all(c, true))
        return false;
    c->in_string = false;
    buf_add_char(&slot->out, '"');
    ++*p;
    return true;
}

static void feed_name(struct stream_chain *c, struct stream_slot *slot, const char **p, const char *end)
{
    const char *from = *p;
    while (*p < end && c->in_name) {
        char b = *(*p)++;
        if (c->n_escape)
            c->n_escape = 0;
        else if (b == '\\')
            c->n_escape = 1;
        else if (b == '"')
            c->in_name = false;
    }
    buf_add(&slot->out, from, (size_t)(*p - from));
}

static bool feed_json(struct stream_chain *c, struct stream_slot *slot, struct span text)
{
    const char *p = text.p, *end = text.p + text.n;
    while (p < end) {
        if (c->in_string) {
            if (!feed_value(c, slot, &p, end))
                return false;
        } else if (c->in_name) {
            feed_name(c, slot, &p, end);
        } else if (*p == '"' && c->begun) {
            buf_add_char(&slot->out, *p++);
            c->in_string = !c->name_next;
            c->in_name = c->name_next;
            c->n_escape = 0;
        } else if (!c->begun && is_space(*p)) { /* perhaps it is text after all */
            if (!feed_rules(c, slot, span_of(p++, 1)))
                return false;
        } else if (structure(c, *p)) {
            if (!c->begun && !look_all(c, true))
                return false;
            c->begun = true;
            buf_add_char(&slot->out, *p++);
        } else {
            c->json = false; /* text from here on */
            return feed_rules(c, slot, span_of(p, (size_t)(end - p)));
        }
    }
    return true;
}

bool stream_chain_feed(struct stream_chain *c, struct stream_slot *slot, struct span text)
{
    return c->json ? feed_json(c, slot, text) : feed_rules(c, slot, text);
}

bool stream_chain_end(struct stream_chain *c)
{
    if (c->in_string && c->n_escape && !end_escape(c))
        return false;
    bool good = look_all(c, true);
    c->in_string = c->in_name = c->begun = c->name_next = false;
    c->depth = c->n_escape = 0;
    return good;
}
