/* SPDX-License-Identifier: Apache-2.0
 *
 * A request: one object, one arena, on one worker from its first byte to its last. Whatever it owes (lease,
 * queue slot, upstream exchange, plan reference) is given back in step_finish, however it ends.
 *
 * Reasons: the word in `error` is the same in the row, in metrics and in tests; they stand in reasons.h.
 */
#ifndef ROLTER_GATEWAY_REQUEST_H
#define ROLTER_GATEWAY_REQUEST_H

#include "dialect/dialect.h"
#include "gateway/plan.h"
#include "gateway/tokenizer.h"
#include "gateway/worker.h"
#include "json/edit.h"
#include "net/exchange.h"
#include "net/server.h"
#include "policy/delivery.h"

enum step {
#define STEP(name, does, waits) STEP_##name,
#include "gateway/steps.h"
#undef STEP
    STEP_COUNT,
    STEP_PARKED, /* waits; request_resume goes on */
    STEP_GONE,   /* the request object does not exist any more */
};

const char *step_name(enum step s);

/* Targets that may serve the request: the route's pool, or its variants in the order in which they are tried.
 */
struct candidate_pool {
    struct plan_pool *pool;
    struct plan_variant *variant; /* NULL without variants */
    struct target_set allowed;    /* key and dialect permit it, not tried yet */
    struct target_set eligible;   /* scratch of the pick */
};

/* A reply that came but was not relayed because another target may do better (R28). */
struct kept_reply {
    bool present;
    int status;
    struct span head; /* client reply head without framing fields */
    struct buf body;
    struct plan_target *target;
    struct plan_variant *variant;
    struct pick pick;
    struct plan_pool *picked_from;
    uint64_t retry_after_ms;
};

/* A wait in a provider's queue. It outlives a request that gives up while the grant is on its way. */
struct queue_ticket {
    struct gate_waiter waiter;
    struct net_post post;
    struct request *request; /* NULL: nobody waits any more */
    struct net_loop *loop;
};

/* When a provider was tried, for the back-off before it is tried again (R26). */
struct tried_provider {
    const struct plan_provider *provider;
    uint64_t ready_ms;
};
enum { TRIED_PROVIDERS_MAX = 16 };

struct cached;

/* A successful reply that goes out whole and through the policy (step_deliver). */
struct delivery {
    bool held; /* relay.c collects the upstream's body in reply_body instead of sending it */
    bool done; /* the policy has spoken */
    int status;
    struct span head; /* without framing fields; in the request's arena */
    struct delivery_input input;
    struct policy_call *call; /* while the policy works */
};

enum { REQUEST_MAGIC = 0x52455131 };

struct request {
    unsigned magic;
    struct conn *conn;            /* NULL: nobody is connected any more (or never was), see request_detach */
    const struct http_head *head; /* of the client's request */
    struct conn_memory memory;    /* what head, arena and body stand in without a connection */
    struct worker *worker;
    struct plan *plan;
    struct arena *arena; /* the connection's, which ends with the request; or memory.arena */
    struct arena large;  /* index and copies of a large body, given back as soon as they are not needed */
    struct arena *body_arena; /* one of the two */
    struct list node;         /* in worker->requests, or worker->free_requests */
    enum step waiting_for;    /* while parked */

    /* who and what */
    const struct dialect *dialect;
    enum dialect_id dialect_id;
    const struct plan_key *key;
    struct span id;
    uint64_t started_us, wall_ms, first_byte_us;
    uint64_t read_us; /* when the reply's bytes that are being handled came; 0 = ask the clock */
    struct json_doc doc;
    uint32_t model_node;
    struct span model;        /* as the client wrote it, unescaped */
    struct span direct_model; /* behind "provider/" */
    bool stream;
    struct plan_route *route;
    struct candidate_pool *pools;
    unsigned n_pools;
    struct applied *applied;             /* the reply's stream goes through guardrails (applied.h) */
    struct policy_ticket *policy_ticket; /* what the policy keeps for this request; NULL without a policy */
    struct policy_call *admission;       /* while the policy looks at the request */
    bool admitted;                       /* it has spoken */
    enum step after_policy;
    struct prompt_context prompt;
    bool prompt_read; /* by a strategy's wish */
    /* By a strategy's wish (strategy_reads_tokens), in the request's arena; without a wish both are empty. */
    struct token_ids tokens;
    struct prompt_blocks blocks;
    struct span cache_salt;
    bool wants_ids;                /* an engine shall say them before the first pick */
    struct tokenize_wait tokenize; /* while it is asked */
    uint64_t tokenize_since_us;

    /* the present attempt */
    unsigned attempts;
    struct plan_target *target;
    struct plan_variant *variant;
    struct lease lease;
    struct exchange *exchange;
    int upstream_key;            /* index, or -1 */
    struct queue_ticket *ticket; /* while waiting in a provider's queue */
    bool gate_held;
    uint64_t queue_since_us, queue_us;
    uint64_t queue_deadline_ms;
    struct pick pick;
    struct plan_pool *picked_from;
    bool may_withdraw;  /* what the pick recorded does not stand yet */
    bool owes_record;   /* balance_record is still to be called for the pick */
    unsigned load_seen; /* the provider's at the pick, without this request */
    uint64_t picked_us;
    bool holding; /* collecting a reply that will probably not be relayed */
    enum exchange_fail last_fail;
    bool any_fail, queue_was_full, queue_timed_out;
    struct kept_reply kept;
    unsigned n_tried;
    bool timer_open;

    /* the reply */
    int status; /* for the row */
    bool reply_begun, reply_chunked, reply_keep, is_event_stream;
    bool reply_unframed; /* ends with the connection: HTTP/1.0 */
    bool upstream_complete;
    bool was_paused;     /* the upstream had to wait for the client */
    char last_byte;      /* of the reply's body so far */
    bool usage_expected; /* the upstream has begun a reply that it will bill, complete or not */
    struct sse sse;
    bool sse_open;
    struct buf reply_body; /* a JSON reply that came in pieces, for its usage; or all of one that is held */
    bool reply_encoded;    /* it has a content coding: unreadable for us */
    bool reply_body_whole; /* usage was read from the slice itself */
    struct delivery delivery;
    struct cached *cached; /* NULL: no response cache has to do with it (gateway/cached.h) */
    bool limits_taken;     /* counted by budgets and rate limits; its cost is charged at the end */
    bool withheld;         /* the upstream's reply is billed, but the client did not get it */
    struct span upstream_request_id;
    struct usage usage;
    const char *error; /* reason, or NULL */
    bool client_gone;
    const char *allow; /* the method that a path answers, for a 405 */
    bool no_row;       /* health and metrics (R41) */
    bool counted;      /* in worker->in_flight; health and metrics are not */
    bool body_dropped;

    /* Not cleared with the rest: written before they are read. */
    struct tried_provider tried[TRIED_PROVIDERS_MAX];
    uv_timer_t timer;
};

/* Runs from <s> until the request parks or is gone. */
void request_run(struct request *r, enum step s);
/* Goes on after parking; only events and deadlines call it. */
void request_resume(struct request *r, enum step s);

/* An id for a request that brought none: a UUID, version 4. */
enum { REQUEST_ID_CHARS = 36 };
void request_make_id(struct worker *w, char ret[REQUEST_ID_CHARS]);

/* A new request for a connection whose head is complete. */
struct request *request_new(struct worker *w, struct conn *c);
/* A request for nobody, which asks what <of> asked, from the fill on; it takes the memory of <of>, which must
 * be over. */
struct request *request_new_background(struct request *of);
/* Gives its memory back; the arena belongs to the connection. */
void request_free(struct request *r);
/* The client has gone, or has all it gets, and the request goes on without it: the request's memory leaves
 * the connection, and what is written to the client from here on goes nowhere. From inside on_gone, or right
 * before conn_finish. */
void request_detach(struct request *r);
/* Reply bytes to the client; nothing when there is none. */
void request_write(struct request *r, const struct iovec *iov, unsigned n);
/* Bytes of the reply that the client has not taken yet. */
size_t request_unsent(const struct request *r);
/* The request is sent and its reply has begun, so nothing needs its body any more: a stream may stay open for
 * long. Idempotent. */
void request_drop_body(struct request *r);
/* Arms the request's timer: <fn> after <ms>. One timer per request; arming replaces. */
void request_timer(struct request *r, uint64_t ms, uv_timer_cb fn);
void request_timer_stop(struct request *r);
/* Ends the present attempt's charges: exchange cancelled if still there, queue slot, lease, and what the pick
 * recorded when nothing was sent or no reply came (R23). Idempotent. */
void request_end_attempt(struct request *r);
/* The first token of the reply has come (<is_timed>), or the attempt is over: the engine has read the prompt,
 * as far as strategies that charge for it are concerned. Idempotent. */
void request_prefill_over(struct request *r, bool is_timed);
/* The attempt has failed, or did not take place: what the pick recorded does not stand. Idempotent. */
void request_withdraw_pick(struct request *r);
/* The attempt's reply has begun: what the pick recorded stands. Idempotent. */
void request_settle_pick(struct request *r);
/* What the request has cost, for the budgets and rate limits that admitted it. Idempotent. */
void request_charge_limits(struct request *r, double cost, uint64_t tokens);

/* The wait for a slot is over, with or without one: it counts for the row and the metric. Idempotent. */
void queue_wait_over(struct request *r);
/* Leaves the queue of the present target's provider. */
void queue_abandon(struct request *r);

/* Writes an error in the caller's dialect and sets status and reason; the next step is the return value. */
enum step request_refuse(struct request *r, int status, const char *code, const char *param, const char *fmt,
                         ...) __attribute__((format(printf, 5, 6)));
/* The same with a Retry-After in seconds (0 = none). */
enum step request_refuse_retry(struct request *r, int status, const char *code, unsigned retry_after_secs,
                               const char *message);

/* The request id under the name that the configuration gives it, if that is another one than x-request-id. */
void request_id_field(const struct request *r, struct buf *b);
/* The field lines of a head that go on, gathered into runs that are copied at once. */
struct field_run {
    const char *from, *to;
};
static inline void field_run_flush(struct field_run *run, struct buf *b)
{
    buf_add(b, run->from, (size_t)(run->to - run->from));
    run->from = run->to = NULL;
}
void field_run_add(struct field_run *run, struct buf *b, const struct http_field *f);

/* The trace id of the client's traceparent, or empty. */
struct span request_trace_id(const struct request *r);

/* Reply parts shared by steps. */
void reply_head_begin(struct request *r, struct buf *b, int status);
void reply_head_target(struct request *r, struct buf *b, const struct plan_target *t,
                       const struct plan_variant *v);
/* The upstream's end-to-end fields (R32). */
void reply_head_fields(struct request *r, struct buf *b, const struct http_head *h);
/* The end of a reply's head: how its body is framed, whether the connection stays. */
void reply_head_end(struct request *r, struct buf *out);
void reply_head_sized(struct request *r, struct buf *out, size_t bytes);
void reply_head_stream(struct request *r, struct buf *out); /* of a length that nobody knows */
/* Ends the head that was begun in <out> with its framing and writes it with <body>, which a HEAD request does
 * not get: the whole reply. */
void reply_write_whole(struct request *r, struct buf *out, struct span body);
/* The upstream request's head. */
struct span upstream_head(struct request *r, size_t body_bytes);
/* The body's vectors (at most UPSTREAM_IOV_MAX) and their total. False when the client's body has so many
 * copies of members that the route sets that they cannot be edited. */
enum { UPSTREAM_IOV_MAX = 3 };
bool upstream_body(struct request *r, struct iovec *iov, unsigned *ret_n, size_t *ret_bytes);

/* Whether a field of the client's head goes up (R32), and whether only because the configuration says so. */
bool upstream_field_goes_up(const struct request *r, const struct http_field *f);
bool upstream_field_is_forwarded(const struct request *r, const struct http_field *f);

/* Whether the policy must see the reply to this request; one that is an event stream never waits (D5). */
bool delivery_is_policed(const struct request *r);

/* relay.c: the events of an exchange whose reply goes to the client. */
void relay_head(struct request *r, const struct http_head *h);
void relay_body(struct request *r, const char *p, size_t n);
void relay_flush(struct request *r);
void relay_end(struct request *r);
/* The upstream broke before a byte of its reply went to the client: as if it had not begun. */
void relay_discard(struct request *r);
void relay_drained(struct request *r);
/* The client has closed its sending side: find out whether it is still there (R36). */
void relay_probe(struct request *r);

/* Usage of the reply so far (relay.c feeds, finish reads). */
void usage_feed_begin(struct request *r, const struct http_head *h);
void usage_feed(struct request *r, const char *p, size_t n, bool whole);
void usage_feed_end(struct request *r);
void usage_feed_discard(struct request *r);

#define STEP(name, does, waits) enum step step_##name(struct request *r);
#include "gateway/steps.h"
#undef STEP

#endif
