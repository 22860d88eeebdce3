/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "json/write.h"
#include "live_reply.h"
#include "net/exchange.h"
#include "progress.h"
#include "prompt_text.h"

enum { CONNECT_MS = 10000, KEPT_MAX = 1024, KEPT_MS = 30000, PROGRESS_MS = 100, BODY_MAX = 1 << 30 };

struct live {
    const struct options *o;
    const struct trace *trace;
    struct run *run;
    struct prompt_text text;
    struct net_loop loop;
    struct pool *pool;
    struct net_origin origin;
    uv_timer_t due, show;
    uv_idle_t awake; /* runs while something is due: the loop looks for input and does not wait */
    uv_check_t after_input;
    uv_signal_t interrupt;
    struct list flights;
    size_t sent, under_way, failed;
    double ttft_sum_ms;
    size_t ttft_n;
    uint64_t begun_us;
    bool was_stopped;
    struct progress progress;
    struct exchange_options x;
};

/* A request under way. */
struct flight {
    struct list node;
    struct live *live;
    size_t i;
    struct exchange *x;
    struct buf head, body;
    struct live_reply reply;
};

/* The error's words must outlive the run's rows. */
static const char *status_word(int status)
{
    static char words[1000][12];
    unsigned i = status > 0 && status < 1000 ? (unsigned)status : 0;
    if (!words[i][0])
        snprintf(words[i], sizeof words[i], "status %u", i);
    return words[i];
}

static void finish_if_over(struct live *l)
{
    if (l->under_way > 0 || (l->sent < l->trace->n && !l->was_stopped))
        return;
    uv_close((uv_handle_t *)&l->due, NULL);
    uv_close((uv_handle_t *)&l->awake, NULL);
    uv_close((uv_handle_t *)&l->after_input, NULL);
    uv_close((uv_handle_t *)&l->show, NULL);
    uv_close((uv_handle_t *)&l->interrupt, NULL);
    net_loop_stop(&l->loop);
}

static void flight_end(struct flight *f, const char *error)
{
    struct live *l = f->live;
    struct run_row *row = &l->run->rows[f->i];
    const struct usage *u = &f->reply.usage;
    row->end_us = net_now_us(&l->loop) - l->begun_us;
    row->error = error;
    if (error) {
        l->failed++;
    } else {
        if (u->prompt != UINT64_MAX)
            row->input = (uint32_t)u->prompt;
        if (u->completion != UINT64_MAX)
            row->output = (uint32_t)u->completion;
        if (u->cache_read != UINT64_MAX)
            row->hit = (uint32_t)(u->cache_read < row->input ? u->cache_read : row->input);
        else
            l->run->unreported++;
    }
    list_remove(&f->node);
    live_reply_fini(&f->reply);
    buf_fini(&f->head);
    buf_fini(&f->body);
    free(f);
    l->under_way--;
    finish_if_over(l);
}

static void on_head(struct exchange *x, void *arg, const struct http_head *h)
{
    (void)x;
    struct flight *f = arg;
    struct run_row *row = &f->live->run->rows[f->i];
    struct span name = http_field_find(h, SPAN("x-rolter-provider"));
    row->status = h->status;
    if (name.n)
        row->replica = run_replica_named(f->live->run, name);
}

static void on_body(struct exchange *x, void *arg, const char *p, size_t n)
{
    (void)x;
    struct flight *f = arg;
    struct live *l = f->live;
    struct run_row *row = &l->run->rows[f->i];
    if (row->status != 200)
        return;
    live_reply_feed(&f->reply, p, n);
    if (row->first_us || !f->reply.has_content)
        return;
    row->first_us = net_now_us(&l->loop) - l->begun_us;
    l->ttft_sum_ms += (double)(row->first_us - row->at_us) / 1000;
    l->ttft_n++;
}

static void on_end(struct exchange *x, void *arg, bool close_delimited)
{
    (void)x, (void)close_delimited;
    struct flight *f = arg;
    int status = f->live->run->rows[f->i].status;
    flight_end(f, status == 200 ? live_reply_end(&f->reply) : status_word(status));
}

static void on_fail(struct exchange *x, void *arg, enum exchange_fail why, const char *detail)
{
    (void)x, (void)detail;
    flight_end(arg, exchange_fail_name(why));
}

static const struct exchange_events EVENTS = {on_head, on_body, NULL, on_end, on_fail};

static void write_body(const struct live *l, const struct trace_request *r, struct buf *b)
{
    uint64_t output = l->o->max_output && l->o->max_output < r->output ? l->o->max_output : r->output;
    size_t n = prompt_text_bytes(&l->text, r);
    struct json_out o;
    BUF_LIT(b, "{\"model\":");
    json_out_init(&o, b);
    json_out_str(&o, l->o->model);
    BUF_LIT(b, ",\"messages\":[{\"role\":\"user\",\"content\":\"");
    CHECK(buf_reserve(b, n));
    b->n += prompt_text_write(&l->text, r, b->p + b->n, n);
    BUF_LIT(b, "\"}],\"max_tokens\":");
    buf_add_u64(b, output > 0 ? output : 1);
    if (l->o->ignore_eos)
        BUF_LIT(b, ",\"ignore_eos\":true");
    BUF_LIT(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    CHECK(!b->full);
}

static void write_head(const struct live *l, size_t length, struct buf *b)
{
    BUF_LIT(b, "POST ");
    buf_add_str(b, *l->origin.base_path ? l->origin.base_path : "/v1");
    BUF_LIT(b, "/chat/completions HTTP/1.1\r\nHost: ");
    buf_add_str(b, l->origin.host_header);
    BUF_LIT(b, "\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n");
    if (l->o->key) {
        BUF_LIT(b, "Authorization: Bearer ");
        buf_add_str(b, l->o->key);
        BUF_LIT(b, "\r\n");
    }
    BUF_LIT(b, "Content-Length: ");
    buf_add_u64(b, length);
    BUF_LIT(b, "\r\n\r\n");
}

static void send_one(struct live *l, size_t i)
{
    const struct trace_request *r = &l->trace->requests[i];
    struct flight *f = MEM_NEW(struct flight);
    f->live = l;
    f->i = i;
    buf_init(&f->head, BODY_MAX);
    buf_init(&f->body, BODY_MAX);
    live_reply_init(&f->reply);
    write_body(l, r, &f->body);
    write_head(l, f->body.n, &f->head);
    list_push(&l->flights, &f->node);
    l->under_way++;
    l->run->rows[i] = (struct run_row){
        .at_us = net_now_us(&l->loop) - l->begun_us, .input = r->input, .output = r->output, .replica = -1};
    const struct iovec body = {f->body.p, f->body.n};
    f->x = exchange_start(l->pool, &l->origin, buf_view(&f->head), &body, 1, &l->x, &EVENTS, f);
}

/* When the next one leaves. */
static uint64_t due_us(const struct live *l)
{
    const struct trace_request *q = l->trace->requests;
    uint64_t us = (uint64_t)((double)(q[l->sent].at_us - q[0].at_us) / l->o->speed);
    uint64_t gap_us = l->sent > 0 ? l->run->rows[l->sent - 1].at_us + (uint64_t)(l->o->gap_ms * 1000) : 0;
    return us > gap_us ? us : gap_us;
}

/* Replies that are here already have ended before what is sent now, also in the records: so requests leave
 * behind the reading of input, not when the timer rings. */
static void on_due(uv_timer_t *t);
static void on_awake(uv_idle_t *idle)
{
    (void)idle;
}

static void send_due(uv_check_t *c)
{
    struct live *l = c->data;
    if (!uv_is_active((uv_handle_t *)&l->awake) || uv_is_closing((uv_handle_t *)&l->awake))
        return;
    uv_idle_stop(&l->awake);
    uint64_t now_us = net_now_us(&l->loop) - l->begun_us;
    while (!l->was_stopped && l->sent < l->trace->n && due_us(l) <= now_us) {
        double late_ms = (double)(now_us - due_us(l)) / 1000;
        l->run->late_max_ms = late_ms > l->run->late_max_ms ? late_ms : l->run->late_max_ms;
        send_one(l, l->sent++);
        now_us = net_now_us(&l->loop) - l->begun_us;
    }
    if (l->was_stopped || l->sent == l->trace->n) {
        finish_if_over(l);
        return;
    }
    /* The timer counts from the loop's reading of the clock, which is older than <now_us>. */
    uv_update_time(&l->loop.uv);
    uv_timer_start(&l->due, on_due, (due_us(l) - now_us + 999) / 1000, 0);
}

static void on_due(uv_timer_t *t)
{
    struct live *l = t->data;
    uv_idle_start(&l->awake, on_awake);
}

static void show(uv_timer_t *t)
{
    struct live *l = t->data;
    uint64_t now_ms = net_now_ms(&l->loop);
    char text[160];
    if (!progress_is_due(&l->progress, now_ms))
        return;
    snprintf(text, sizeof text,
             "%zu of %zu sent, %zu under way, %zu failed, mean time to first token %.0f ms", l->sent,
             l->trace->n, l->under_way, l->failed, l->ttft_n ? l->ttft_sum_ms / (double)l->ttft_n : 0.0);
    progress_show(&l->progress, now_ms, text);
}

static void on_interrupt(uv_signal_t *s, int number)
{
    (void)number;
    struct live *l = s->data;
    if (!l->was_stopped) {
        l->was_stopped = true;
        uv_timer_stop(&l->due);
        finish_if_over(l);
        return;
    }
    LIST_EACH(node, &l->flights)
    {
        struct flight *f = LIST_ITEM(node, struct flight, node);
        exchange_cancel(f->x);
        flight_end(f, "interrupted");
    }
}

/* One socket for each request under way. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static bool start(struct live *l, char *ret_error)
{
    const char *why = NULL;
    if (!origin_parse(span_str(l->o->url), &l->origin, &why)) {
        snprintf(ret_error, OPTIONS_ERROR_BYTES, "--url %.150s: %s", l->o->url, why);
        return false;
    }
    if (l->o->key && !http_value_is_safe(span_str(l->o->key))) {
        snprintf(ret_error, OPTIONS_ERROR_BYTES, "the key cannot stand in a header");
        origin_fini(&l->origin);
        return false;
    }
    l->origin.verify = !l->o->insecure;
    origin_seal(&l->origin);
    raise_file_limit();
    int code = net_loop_init(&l->loop, 0);
    if (code < 0) {
        snprintf(ret_error, OPTIONS_ERROR_BYTES, "no event loop: %s", uv_strerror(code));
        origin_fini(&l->origin);
        return false;
    }
    unsigned timeout = (unsigned)(l->o->timeout_ms < UINT32_MAX ? l->o->timeout_ms : UINT32_MAX);
    l->x = (struct exchange_options){.connect_ms = CONNECT_MS, .head_ms = timeout, .idle_ms = timeout};
    l->pool = pool_new(&l->loop, KEPT_MAX, KEPT_MS);
    list_init(&l->flights);
    uv_timer_init(&l->loop.uv, &l->due);
    uv_timer_init(&l->loop.uv, &l->show);
    uv_signal_init(&l->loop.uv, &l->interrupt);
    uv_idle_init(&l->loop.uv, &l->awake);
    uv_check_init(&l->loop.uv, &l->after_input);
    l->due.data = l->show.data = l->interrupt.data = l->after_input.data = l;
    uv_check_start(&l->after_input, send_due);
    uv_signal_start(&l->interrupt, on_interrupt, SIGINT);
    progress_begin(&l->progress, isatty(STDERR_FILENO), net_now_ms(&l->loop));
    uv_timer_start(&l->show, show, PROGRESS_MS, PROGRESS_MS);
    l->begun_us = net_now_us(&l->loop);
    uv_timer_start(&l->due, on_due, 0, 0);
    return true;
}

bool live_run(const struct options *o, const struct trace *t, struct run *ret, bool *ret_was_stopped,
              char *ret_error)
{
    struct live *l = MEM_NEW(struct live);
    l->o = o;
    l->trace = t;
    l->run = ret;
    l->text = (struct prompt_text){t, (uint32_t)o->scale};
    if (!start(l, ret_error)) {
        free(l);
        return false;
    }
    run_init(ret, "live", RUN_LIVE, 0);
    ret->rows = mem_array(t->n + 1, sizeof *ret->rows);
    net_loop_run(&l->loop);
    progress_end(&l->progress);
    ret->n = l->sent;
    ret->took_ms = (double)(net_now_us(&l->loop) - l->begun_us) / 1000;
    *ret_was_stopped = l->was_stopped && l->sent < t->n;
    pool_free(l->pool);
    net_loop_fini(&l->loop);
    origin_fini(&l->origin);
    free(l);
    run_summarize(ret);
    return true;
}
