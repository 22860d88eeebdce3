/* SPDX-License-Identifier: Apache-2.0
 *
 * One conversation: builds the request, reads the answer, adds both to the history.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "demo.h"
#include "json/json.h"
#include "json/write.h"

enum {
    SYSTEM_BYTES = 400,    /* the same for all: too little to choose a replica by */
    DOCUMENT_BYTES = 6000, /* what a conversation is about */
    QUESTION_BYTES = 1200,
    ANSWER_TOKENS = 24,
    PAUSE_MS = 40, /* at most, before the next question */
    REPLY_BYTES_MAX = 1 << 20,
};

struct talk {
    struct demo *d;
    struct round *round;
    unsigned index, turn;
    bool stream;
    struct buf history; /* JSON of the messages so far, without brackets */
    struct buf head, body, reply, answer;
    struct iovec vector;
    struct sse sse;
    struct arena arena;
    uv_timer_t pause;
    uint64_t sent_us, first_us;
    int status;
    bool done_seen, usage_seen;
    uint64_t prompt_tokens, cached_tokens;
    unsigned replica, replicas_seen; /* of this reply; how many different ones so far */
    bool seen[REPLICAS_MAX];
};

static void ask(struct talk *t);

/* Words without meaning, the same for the same seed. */
static void words(struct buf *b, uint64_t seed, size_t bytes)
{
    static const char *const syllables[] = {"ro",  "ma", "tel", "is", "un", "ver", "do", "ka",
                                            "pri", "o",  "len", "sa", "te", "gri", "mo", "el"};
    size_t end = b->n + bytes;
    for (uint64_t i = 0; b->n < end; i++) {
        uint64_t x = hash_mix(seed, i);
        for (unsigned k = 0; k < 1 + (x & 3); k++)
            buf_add_str(b, syllables[x >> (4 + 4 * k) & 15]);
        buf_add_char(b, (x & 0xf0000) == 0 ? '.' : ' ');
    }
}

static void add_message(struct talk *t, const char *role, struct span text)
{
    struct json_out o;
    json_out_init(&o, &t->history);
    if (t->history.n)
        buf_add_char(&t->history, ',');
    json_out_object(&o);
    json_out_member_str(&o, "role", role);
    json_out_member_span(&o, "content", text);
    json_out_object_end(&o);
}

static void add_words(struct talk *t, const char *role, uint64_t seed, size_t bytes)
{
    struct buf text;
    buf_init(&text, bytes + 64);
    words(&text, seed, bytes);
    add_message(t, role, buf_view(&text));
    buf_fini(&text);
}

__attribute__((format(printf, 2, 3))) static void fault(struct talk *t, const char *fmt, ...)
{
    struct round *r = t->round;
    if (r->failures++)
        return;
    int n = snprintf(r->failure, sizeof r->failure, "conversation %u, turn %u: ", t->index + 1, t->turn + 1);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->failure + n, sizeof r->failure - (size_t)n, fmt, ap);
    va_end(ap);
}

static void talk_over(uv_handle_t *h)
{
    struct talk *t = h->data;
    struct round *r = t->round;
    r->stayed += t->replicas_seen == 1;
    if (--r->running == 0)
        net_loop_stop(&t->d->loop);
    buf_fini(&t->history);
    buf_fini(&t->head);
    buf_fini(&t->body);
    buf_fini(&t->reply);
    buf_fini(&t->answer);
    arena_reset(&t->arena);
    free(t);
}

static void on_pause(uv_timer_t *h)
{
    ask(h->data);
}

/* The answer is complete: what came of it, and the next question. */
static void turn_end(struct talk *t)
{
    struct round *r = t->round;
    r->prompt_tokens += t->prompt_tokens;
    r->cached_tokens += t->cached_tokens;
    r->by_replica[t->replica]++;
    if (!t->seen[t->replica]) {
        t->seen[t->replica] = true;
        t->replicas_seen++;
    }
    if (t->stream)
        r->first_us[r->n_first++] = t->first_us - t->sent_us;
    if (++t->turn == t->d->turns) {
        uv_close((uv_handle_t *)&t->pause, talk_over);
        return;
    }
    add_message(t, "assistant", buf_view(&t->answer));
    add_words(t, "user", hash_mix(t->index, t->turn), QUESTION_BYTES);
    uv_timer_start(&t->pause, on_pause, rng_below(&t->d->loop.rng, PAUSE_MS), 0);
}

static void read_usage(struct talk *t, const struct json_doc *d)
{
    uint32_t usage = json_get(d, 0, "usage");
    if (!json_u64(d, json_get(d, usage, "prompt_tokens"), &t->prompt_tokens))
        return;
    t->usage_seen = true;
    json_u64(d, json_get(d, json_get(d, usage, "prompt_tokens_details"), "cached_tokens"), &t->cached_tokens);
}

/* <member>: "delta" of a stream's chunk, "message" of a whole reply. */
static void read_text(struct talk *t, const struct json_doc *d, const char *member)
{
    uint32_t choice = json_first(d, json_get(d, 0, "choices"));
    struct span text = json_string(d, json_get(d, json_get(d, choice, member), "content"), &t->arena);
    if (text.n && !t->first_us)
        t->first_us = net_now_us(&t->d->loop);
    buf_add_span(&t->answer, text);
}

static void on_event(void *arg, const struct sse_event *e)
{
    struct talk *t = arg;
    struct json_doc doc;
    struct json_fault why;
    if (span_eq(e->data, SPAN("[DONE]"))) {
        t->done_seen = true;
    } else if (json_parse(&t->arena, e->data, NULL, &doc, &why)) {
        read_text(t, &doc, "delta");
        read_usage(t, &doc);
    }
}

static void on_head(struct exchange *x, void *arg, const struct http_head *h)
{
    struct talk *t = arg;
    t->status = h->status;
    t->replica = demo_replica(t->d, http_field_find(h, SPAN("x-rolter-provider")));
}

static void on_body(struct exchange *x, void *arg, const char *p, size_t n)
{
    struct talk *t = arg;
    if (t->stream && t->status == 200)
        sse_feed(&t->sse, p, n, on_event, t);
    else
        buf_add(&t->reply, p, n);
}

static void on_end(struct exchange *x, void *arg, bool close_delimited)
{
    struct talk *t = arg;
    struct json_doc doc;
    struct json_fault why;
    if (t->stream && t->status == 200) {
        sse_end(&t->sse, on_event, t);
    } else if (t->status == 200 && json_parse(&t->arena, buf_view(&t->reply), NULL, &doc, &why)) {
        read_text(t, &doc, "message");
        read_usage(t, &doc);
        t->done_seen = true;
    }
    if (t->status != 200)
        fault(t, "status %d: %.*s", t->status, (int)(t->reply.n < 150 ? t->reply.n : 150), t->reply.p);
    else if (!t->done_seen || !t->first_us)
        fault(t, "the answer is incomplete");
    else if (!t->usage_seen)
        fault(t, "the answer says nothing of its usage");
    sse_fini(&t->sse);
    turn_end(t);
}

static void on_fail(struct exchange *x, void *arg, enum exchange_fail why, const char *detail)
{
    struct talk *t = arg;
    fault(t, "%s%s%s", exchange_fail_name(why), detail ? ": " : "", detail ? detail : "");
    sse_fini(&t->sse);
    turn_end(t);
}

static const struct exchange_events events = {
    .on_head = on_head, .on_body = on_body, .on_end = on_end, .on_fail = on_fail};

static void write_request(struct talk *t)
{
    struct buf *b = &t->body;
    buf_clear(b);
    buf_printf(b, "{\"model\":\"%s\",\"max_tokens\":%d,", t->round->model, ANSWER_TOKENS);
    if (t->stream)
        buf_add_str(b, "\"stream\":true,\"stream_options\":{\"include_usage\":true},");
    buf_add_str(b, "\"messages\":[");
    buf_add_span(b, buf_view(&t->history));
    buf_add_str(b, "]}");
    buf_clear(&t->head);
    buf_printf(&t->head, "POST %s/v1/chat/completions HTTP/1.1\r\nHost: %s\r\n", t->d->origin.base_path,
               t->d->origin.host_header);
    buf_printf(&t->head, "Content-Type: application/json\r\nContent-Length: %zu\r\nx-session-id: %s-%u\r\n",
               b->n, t->round->model, t->index);
    demo_fields(t->d, &t->head);
    buf_add_str(&t->head, "\r\n");
    t->vector = (struct iovec){b->p, b->n};
}

static void ask(struct talk *t)
{
    static const struct exchange_options options = {.connect_ms = 5000, .head_ms = 60000, .idle_ms = 60000};
    arena_reset(&t->arena);
    buf_clear(&t->reply);
    buf_clear(&t->answer);
    sse_init(&t->sse, REPLY_BYTES_MAX);
    t->status = 0;
    t->done_seen = t->usage_seen = false;
    t->prompt_tokens = t->cached_tokens = 0;
    t->replica = REPLICAS_MAX - 1;
    t->stream = (t->index + t->turn) % 4 != 0;
    t->first_us = 0;
    t->round->requests++;
    write_request(t);
    t->sent_us = net_now_us(&t->d->loop);
    exchange_start(t->d->pool, &t->d->origin, buf_view(&t->head), &t->vector, 1, &options, &events, t);
}

static void talk_start(struct demo *d, struct round *r, unsigned index)
{
    struct talk *t = MEM_NEW(struct talk);
    t->d = d;
    t->round = r;
    t->index = index;
    buf_init(&t->history, 16 << 20);
    buf_init(&t->head, 4096);
    buf_init(&t->body, 17 << 20);
    buf_init(&t->reply, REPLY_BYTES_MAX);
    buf_init(&t->answer, REPLY_BYTES_MAX);
    arena_init(&t->arena, &d->loop.chunks);
    CHECK(uv_timer_init(&d->loop.uv, &t->pause) == 0);
    t->pause.data = t;
    /* Each route has texts of its own, so that none profits from what the one before left in the replicas'
     * caches. */
    uint64_t seed = hash_mix(hash_bytes(r->model, strlen(r->model)), index);
    add_words(t, "system", 1, SYSTEM_BYTES);
    add_words(t, "user", seed, DOCUMENT_BYTES);
    uv_timer_start(&t->pause, on_pause, rng_below(&d->loop.rng, PAUSE_MS), 0);
}

void round_run(struct demo *d, struct round *r, const char *model)
{
    *r = (struct round){.model = model, .running = d->conversations};
    r->first_us = mem_array((size_t)d->conversations * d->turns, sizeof *r->first_us);
    r->begun_us = net_now_us(&d->loop);
    for (unsigned i = 0; i < d->conversations; i++)
        talk_start(d, r, i);
    net_loop_run(&d->loop);
    r->ended_us = net_now_us(&d->loop);
    d->failed |= r->failures > 0;
}

void round_fini(struct round *r)
{
    MEM_FREE(r->first_us);
}
