/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks each endpoint of the gateway once and looks whether the reply is of the kind that a client expects.
 */
#include "base/mem.h"
#include "demo.h"

struct door {
    const char *method, *path;
    const char *body;   /* %s is the model; NULL: none */
    const char *expect; /* stands in the reply */
};

static const struct door doors[] = {
    {"GET", "/healthz", NULL, ""},
    {"GET", "/readyz", NULL, ""},
    {"GET", "/metrics", NULL, "rolter_requests_total"},
    {"GET", "/v1/models", NULL, "\"data\""},
    {"POST", "/v1/chat/completions",
     "{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}", "\"choices\""},
    {"POST", "/v1/completions", "{\"model\":\"%s\",\"prompt\":\"Once upon a time\"}", "\"choices\""},
    {"POST", "/v1/messages",
     "{\"model\":\"%s\",\"max_tokens\":16,\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}",
     "\"stop_reason\""},
    {"POST", "/v1/responses", "{\"model\":\"%s\",\"input\":\"Hello\"}", "\"output\""},
    {"POST", "/v1/embeddings", "{\"model\":\"%s\",\"input\":\"Hello\"}", "\"embedding\""},
    {"POST", "/v1/rerank", "{\"model\":\"%s\",\"query\":\"Hello\",\"documents\":[\"Hello\",\"Goodbye\"]}",
     "\"results\""},
};

struct visit {
    struct demo *d;
    const struct door *door;
    bool ok;
};

static void on_reply(struct call *c, void *arg, const struct call_reply *r)
{
    struct visit *v = arg;
    v->ok = !r->failed && r->status == 200 && span_find(r->body, span_str(v->door->expect)) >= 0;
    if (r->failed)
        printf("  %-4s %-22s %s\n", v->door->method, v->door->path, exchange_fail_name(r->why));
    else
        printf("  %-4s %-22s %d%s\n", v->door->method, v->door->path, r->status,
               r->status == 200 && !v->ok ? ", but not a reply of its kind" : "");
    net_loop_stop(&v->d->loop);
}

static bool visit(struct demo *d, const struct door *door, const char *model)
{
    struct visit v = {.d = d, .door = door};
    struct buf path, fields, body;
    buf_init(&path, 4096);
    buf_init(&fields, 4096);
    buf_init(&body, 65536);
    buf_printf(&path, "%s%s", d->origin.base_path, door->path);
    demo_fields(d, &fields);
    if (door->body) {
        const char *at = strstr(door->body, "%s");
        buf_add_str(&fields, "Content-Type: application/json\r\n");
        buf_printf(&body, "%.*s%s%s", (int)(at - door->body), door->body, model, at + 2);
    }
    const struct call_request request = {.origin = &d->origin,
                                         .method = door->method,
                                         .path = buf_view(&path),
                                         .headers = buf_view(&fields),
                                         .body = buf_view(&body),
                                         .timeout_ms = 30000,
                                         .max_reply_bytes = 4 << 20};
    call_start(d->pool, &request, on_reply, &v);
    net_loop_run(&d->loop);
    buf_fini(&path);
    buf_fini(&fields);
    buf_fini(&body);
    return v.ok;
}

bool doors_run(struct demo *d, const char *model)
{
    bool ok = true;
    for (size_t i = 0; i < ARRAY_LEN(doors); i++)
        ok &= visit(d, &doors[i], model);
    return ok;
}
