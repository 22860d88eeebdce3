/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/stream.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "json/write.h"
#include "policy/run.h"
#include "policy/splice.h"
#include "policy/stream_event.h"
#include "policy/stream_frame.h"
#include "policy/stream_text.h"

enum { FRAME_MAX = 8 << 20, REASON_MAX = 200 };

/* A running text of the reply. */
struct running {
    struct list node;
    uint64_t key, group;
    struct stream_chain *chain;
};

/* Where a text of a waiting event stands in its data. */
struct place {
    struct stream_slot slot;
    size_t at, n;                   /* the string, with its quotes */
    size_t logprobs_at, logprobs_n; /* n 0: none */
    bool logprobs_array;
    bool bare; /* the data is no JSON but text */
};

/* An event that waits, or is being looked at. */
struct held {
    struct list node;
    char *raw;
    size_t raw_n;
    struct span data; /* in <raw>, or <own_data> */
    char *own_data;   /* of several data lines */
    bool single;      /* may go out in two events */
    bool force;       /* goes out anew even if no text changed */
    size_t sequence_at, sequence_n;
    uint64_t sequence;
    unsigned n;
    struct place place[]; /* in the order of the data */
};

struct policy_stream {
    const struct policy *p;
    enum dialect_id dialect;
    struct policy_ticket *ticket;
    const struct guard_stage *st;
    struct stream_rules rules;
    struct frame_cutter cutter;
    struct list running, held;
    size_t held_bytes;
    uint64_t added; /* events that were made of one: later sequence numbers grow by it */
    uint64_t last_sequence;
    bool refused, unseen; /* unseen: past what can be looked at, everything passes */
    char reason[REASON_MAX];
    struct arena arena; /* of one event */
};

struct policy_stream *policy_stream_new(const struct policy *p, const char *route, enum dialect_id dialect,
                                        struct policy_ticket *ticket)
{
    if (!policy_applies_to_stream(p, route))
        return NULL;
    struct policy_stream *s = MEM_NEW(struct policy_stream);
    s->p = p;
    s->dialect = dialect;
    s->ticket = ticket;
    s->st = &p->guardrails->stage[RULE_POST_CALL];
    s->rules = (struct stream_rules){
        .st = s->st,
        .mask = policy_route_of(p, route)->mask[RULE_POST_CALL],
        .block_on_budget = p->guardrails->on_budget == BUDGET_BLOCK,
        .left = p->guardrails->max_scan_bytes,
        .noted = mem_array(s->st->words, sizeof(uint64_t)),
    };
    frame_cutter_init(&s->cutter, FRAME_MAX);
    list_init(&s->running);
    list_init(&s->held);
    arena_init(&s->arena, NULL);
    return s;
}

static void free_held(struct held *h)
{
    for (unsigned i = 0; i < h->n; i++)
        buf_fini(&h->place[i].slot.out);
    free(h->raw);
    free(h->own_data);
    free(h);
}

static void free_running(struct running *r)
{
    list_remove(&r->node);
    stream_chain_free(r->chain);
    free(r);
}

/* What was found, for the row and the metrics. */
static void report(struct policy_stream *s)
{
    struct policy_call c = {.ticket = s->ticket};
    for (unsigned i = 0; i < s->st->n; i++)
        if (s->rules.noted[i / 64] >> i % 64 & 1)
            policy_note_span(&c, "rule", s->st->rule[i].name_span, "in", SPAN("\"reply\""));
    metric_add(metric_plain(M_GUARD_OUTPUT_REDACTIONS), s->rules.redacted);
    if (s->rules.over_budget && !s->refused) {
        metric_add(s->p->m_open_budget, 1);
        policy_note(&c, "{\"fail_open\":\"scan_budget\",\"detail\":{\"name\":\"reply\"}}");
    }
}

void policy_stream_free(struct policy_stream *s)
{
    if (!s)
        return;
    report(s);
    LIST_EACH(node, &s->held)
    {
        free_held(LIST_ITEM(node, struct held, node));
    }
    LIST_EACH(node, &s->running)
    {
        free_running(LIST_ITEM(node, struct running, node));
    }
    frame_cutter_fini(&s->cutter);
    free(s->rules.noted);
    arena_reset(&s->arena);
    free(s);
}

const char *policy_stream_reason(const struct policy_stream *s)
{
    return s->reason;
}

/* ---- out ---- */

static bool is_settled(const struct held *h)
{
    for (unsigned i = 0; i < h->n; i++)
        if (h->place[i].slot.inside)
            return false;
    return true;
}

static bool is_changed(const struct held *h)
{
    bool changed = h->force;
    for (unsigned i = 0; i < h->n; i++)
        changed |= h->place[i].slot.changed;
    return changed;
}

static struct span quoted(struct arena *a, struct span text)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    buf_add_char(&b, '"');
    json_escape(&b, text);
    buf_add_char(&b, '"');
    struct span s = arena_dup(a, buf_view(&b));
    buf_fini(&b);
    return s;
}

static struct span new_data(struct policy_stream *s, const struct held *h)
{
    struct splice edits;
    splice_init(&edits, &s->arena);
    for (unsigned i = 0; i < h->n; i++) {
        const struct place *p = &h->place[i];
        if (!p->slot.changed && !h->force)
            continue;
        splice_add(&edits, p->at, p->n,
                   p->bare ? buf_view(&p->slot.out) : quoted(&s->arena, buf_view(&p->slot.out)));
        if (p->slot.changed && p->logprobs_n)
            splice_add(&edits, p->logprobs_at, p->logprobs_n, p->logprobs_array ? SPAN("[]") : SPAN("null"));
    }
    if (s->added && h->sequence_n)
        splice_add(&edits, h->sequence_at, h->sequence_n,
                   span_str(arena_printf(&s->arena, "%llu", (unsigned long long)(h->sequence + s->added))));
    return splice_apply(&edits, h->data);
}

/* Several data lines: the frame anew, its other lines as they were. */
static void put_lines(const struct held *h, struct span data, struct buf *out)
{
    struct span rest = span_of(h->raw, h->raw_n), line;
    while (span_split(&rest, '\n', &line)) {
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        if (line.n && !span_starts(line, SPAN("data")) && line.p[0] != ':') {
            buf_add_span(out, line);
            buf_add_char(out, '\n');
        }
    }
    while (span_split(&data, '\n', &line)) {
        BUF_LIT(out, "data: ");
        buf_add_span(out, line);
        buf_add_char(out, '\n');
    }
    buf_add_char(out, '\n');
}

static void put(struct policy_stream *s, const struct held *h, struct buf *out)
{
    s->last_sequence = h->sequence + s->added;
    if (!is_changed(h) && (s->added == 0 || !h->sequence_n)) {
        buf_add(out, h->raw, h->raw_n);
        return;
    }
    struct span data = new_data(s, h);
    if (h->own_data) {
        put_lines(h, data, out);
        return;
    }
    size_t before = (size_t)(h->data.p - h->raw);
    buf_add(out, h->raw, before);
    buf_add_span(out, data);
    buf_add(out, h->raw + before + h->data.n, h->raw_n - before - h->data.n);
}

static bool has_words(struct span s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] > ' ')
            return true;
    return false;
}

/* The settled words of a long event's text, in a copy of it. */
static void put_part(struct policy_stream *s, struct held *h, struct buf *out)
{
    struct stream_slot *slot = &h->place[0].slot;
    if (!h->single || !has_words(buf_view(&slot->out)))
        return;
    h->force = true;
    put(s, h, out);
    buf_clear(&slot->out);
    s->added += h->sequence_n > 0;
}

static void release(struct policy_stream *s, struct buf *out)
{
    while (!list_empty(&s->held)) {
        struct held *h = LIST_ITEM(s->held.next, struct held, node);
        if (!is_settled(h)) {
            put_part(s, h, out);
            return;
        }
        put(s, h, out);
        list_remove(&h->node);
        s->held_bytes -= h->raw_n;
        free_held(h);
    }
}

/* What the caller's client understands as the end of a stream that went wrong. */
static bool refuse(struct policy_stream *s, struct buf *out)
{
    const struct dialect *d = dialect_get(s->dialect);
    char message[REASON_MAX];
    struct buf body;
    struct json_out o;
    s->refused = true;
    metric_add(metric_plain(M_GUARD_OUTPUT_BLOCKS), 1);
    snprintf(s->reason, sizeof s->reason, "guardrail_blocked: %.150s", s->rules.blocked);
    snprintf(message, sizeof message, "The reply was blocked by the guardrail \"%.100s\".", s->rules.blocked);
    buf_init(&body, 4096);
    if (s->dialect == DIALECT_RESPONSES) {
        json_out_init(&o, &body);
        json_out_object(&o);
        json_out_member_str(&o, "type", "error");
        json_out_member_str(&o, "code", "guardrail_blocked");
        json_out_member_str(&o, "message", message);
        json_out_member_str(&o, "param", NULL);
        json_out_member_u64(&o, "sequence_number", s->last_sequence + 1);
        json_out_object_end(&o);
    } else {
        dialect_error(&body, d, 403, "guardrail_blocked", NULL, span_str(message), SPAN_NONE);
    }
    if (s->dialect == DIALECT_RESPONSES || d->anthropic_errors)
        BUF_LIT(out, "event: error\n");
    BUF_LIT(out, "data: ");
    buf_add_span(out, buf_view(&body));
    BUF_LIT(out, "\n\n");
    buf_fini(&body);
    return false;
}

/* ---- in ---- */

static struct stream_chain *chain_of(struct policy_stream *s, const struct event_text *t)
{
    LIST_EACH(node, &s->running)
    {
        struct running *r = LIST_ITEM(node, struct running, node);
        if (r->key == t->key)
            return r->chain;
    }
    struct running *r = MEM_NEW(struct running);
    r->key = t->key;
    r->group = t->group;
    r->chain = stream_chain_new(&s->rules, t->json);
    list_push(&s->running, &r->node);
    return r->chain;
}

static bool feed_whole(struct policy_stream *s, const struct event_text *t, struct stream_slot *slot,
                       struct span text)
{
    struct stream_chain *c = stream_chain_new(&s->rules, t->json);
    bool good = stream_chain_feed(c, slot, text) && stream_chain_end(c);
    stream_chain_free(c);
    return good;
}

static bool ends_here(const struct event_texts *t, const struct running *r)
{
    if (t->ends_all)
        return true;
    for (unsigned i = 0; i < t->n_groups; i++)
        if (t->group[i] == r->group)
            return true;
    return false;
}

static bool end_texts(struct policy_stream *s, const struct event_texts *t)
{
    LIST_EACH(node, &s->running)
    {
        struct running *r = LIST_ITEM(node, struct running, node);
        if (!ends_here(t, r))
            continue;
        if (!stream_chain_end(r->chain))
            return false;
        free_running(r);
    }
    return true;
}

static struct held *hold(struct policy_stream *s, const struct frame *f, unsigned n)
{
    struct held *h = mem_zalloc(sizeof *h + n * sizeof h->place[0]);
    h->raw = mem_alloc(f->raw.n + 1);
    memcpy(h->raw, f->raw.p, f->raw.n);
    h->raw_n = f->raw.n;
    if (f->data_lines > 1) {
        h->own_data = mem_spandup(f->data);
        h->data = span_of(h->own_data, f->data.n);
    } else if (f->data_lines == 1) {
        h->data = span_of(h->raw + (f->data.p - f->raw.p), f->data.n);
    }
    h->n = n;
    for (unsigned i = 0; i < n; i++)
        buf_init(&h->place[i].slot.out, SIZE_MAX / 2);
    list_push(&s->held, &h->node);
    s->held_bytes += h->raw_n;
    return h;
}

static void note_place(struct place *p, const struct json_doc *d, const struct event_text *t)
{
    p->at = d->node[t->node].at;
    p->n = d->node[t->node].len;
    if (t->logprobs != JSON_NODE_NONE) {
        p->logprobs_at = d->node[t->logprobs].at;
        p->logprobs_n = d->node[t->logprobs].len;
        p->logprobs_array = json_is(d, t->logprobs, JSON_ARRAY);
    }
}

/* False when a rule blocks. */
static bool take_texts(struct policy_stream *s, struct held *h, const struct json_doc *d,
                       const struct event_texts *t)
{
    for (unsigned i = 0; i < t->n; i++) {
        const struct event_text *text = &t->text[i];
        struct stream_slot *slot = &h->place[i].slot;
        struct span plain = json_string(d, text->node, &s->arena);
        note_place(&h->place[i], d, text);
        bool good = text->key == EVENT_KEY_WHOLE ? feed_whole(s, text, slot, plain)
                                                 : stream_chain_feed(chain_of(s, text), slot, plain);
        if (!good)
            return false;
    }
    return true;
}

static bool take_json(struct policy_stream *s, const struct frame *f, const struct json_doc *d)
{
    struct event_texts t;
    uint64_t sequence;
    event_texts(s->dialect, d, &s->arena, &t);
    struct held *h = hold(s, f, t.n);
    h->single = t.is_single;
    if (json_u64(d, t.sequence, &sequence)) {
        h->sequence = sequence;
        h->sequence_at = d->node[t.sequence].at;
        h->sequence_n = d->node[t.sequence].len;
    }
    return take_texts(s, h, d, &t) && end_texts(s, &t);
}

/* Data that is no JSON is a text of its own, except for the end. */
static bool take_other(struct policy_stream *s, const struct frame *f)
{
    const struct event_texts all = {.ends_all = true};
    const struct event_text whole = {.key = EVENT_KEY_WHOLE};
    if (f->data_lines == 0 || f->data.n == 0) {
        hold(s, f, 0);
        return true;
    }
    if (span_eq(f->data, SPAN("[DONE]"))) {
        hold(s, f, 0);
        return end_texts(s, &all);
    }
    struct held *h = hold(s, f, 1);
    h->place[0].n = f->data.n;
    h->place[0].bare = true;
    return feed_whole(s, &whole, &h->place[0].slot, f->data);
}

static bool take_frame(struct policy_stream *s, const struct frame *f)
{
    struct json_doc d;
    struct json_fault fault;
    bool good;
    if (f->data_lines && f->data.n && json_parse(&s->arena, f->data, NULL, &d, &fault) &&
        json_is(&d, 0, JSON_OBJECT))
        good = take_json(s, f, &d);
    else
        good = take_other(s, f);
    return good;
}

/* Too large to look at, or too much that waits. */
static bool overflow(struct policy_stream *s, struct buf *out)
{
    const struct event_texts all = {.ends_all = true};
    s->rules.over_budget = true;
    if (s->rules.block_on_budget) {
        s->rules.blocked = "max_scan_bytes";
        return refuse(s, out);
    }
    if (!end_texts(s, &all))
        return refuse(s, out);
    release(s, out);
    return true;
}

static bool run(struct policy_stream *s, bool last, struct buf *out)
{
    struct frame f;
    while (frame_cutter_next(&s->cutter, last, &f)) {
        bool good = take_frame(s, &f);
        if (good)
            release(s, out);
        arena_reset(&s->arena);
        if (!good)
            return refuse(s, out);
        if (s->held_bytes > STREAM_HELD_MAX && !overflow(s, out))
            return false;
    }
    return true;
}

bool policy_stream_feed(struct policy_stream *s, struct span bytes, struct buf *out)
{
    if (s->refused)
        return false;
    if (s->unseen) {
        buf_add_span(out, bytes);
        return true;
    }
    if (!frame_cutter_add(&s->cutter, bytes)) {
        if (!overflow(s, out))
            return false;
        s->unseen = true; /* nobody knows where the next event begins */
        buf_add(out, s->cutter.pending.p + s->cutter.from, s->cutter.pending.n - s->cutter.from);
        buf_add_span(out, bytes);
        return true;
    }
    return run(s, false, out);
}

bool policy_stream_end(struct policy_stream *s, struct buf *out)
{
    const struct event_texts all = {.ends_all = true};
    if (s->refused)
        return false;
    if (s->unseen)
        return true;
    if (!run(s, true, out))
        return false;
    if (!end_texts(s, &all))
        return refuse(s, out);
    release(s, out);
    arena_reset(&s->arena);
    return true;
}
