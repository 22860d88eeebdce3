/* SPDX-License-Identifier: Apache-2.0
 *
 * rolter-sim's server: what its files share.
 *
 * A request: on_body -> faults -> api->read (tokens, parameters) -> [delay] -> engine -> dirty -> pump ->
 * finish. The engine tells progress; the request is noted in `dirty` and written when the engine has
 * returned, so tokens that fall due together leave in one write and nothing nests. A slow reader stops its
 * own stream: no more than SIM_QUEUE_MAX bytes are queued, the rest is made when it has read. Thread: one,
 * one loop. Memory: a request's tokens and texts in its arena; everything else is scratch of the sim.
 */
#ifndef ROLTER_SIM_SIM_H
#define ROLTER_SIM_SIM_H

#include "engine.h"
#include "event_batch.h"
#include "json/write.h"
#include "net/server.h"
#include "options.h"
#include "tokens.h"

enum {
    SIM_BODY_MAX = 64 << 20,
    SIM_REPLY_MAX = 256 << 20,
    SIM_QUEUE_MAX = 256 << 10,
    SIM_KEEP_BYTES = 4 << 20,
    SIM_SLICE = 256, /* tokens that are written at once */
    SIM_CHOICES_MAX = 128,
    SIM_MODELS_SEEN_MAX = 64,
    SIM_NEVER = UINT32_MAX,
};

struct sim_request;

/* A dialect that generates. */
struct sim_api {
    bool is_anthropic; /* shape of errors */
    /* Renders the prompt into sim->tokens and reads parameters. NULL, or why the body is bad. */
    const char *(*read)(struct sim_request *r, const struct json_doc *d);
    void (*whole)(struct sim_request *r, struct buf *b);
    void (*begin)(struct sim_request *r, struct buf *b);
    void (*tokens)(struct sim_request *r, struct buf *b, uint32_t from, uint32_t to);
    void (*end)(struct sim_request *r, struct buf *b);
};
extern const struct sim_api sim_chat, sim_completions, sim_messages, sim_responses;
/* These answer when the prefill is through; their bodies are made in `read`. */
extern const struct sim_api sim_embeddings, sim_rerank;

struct sim_request {
    struct engine_request er;
    struct list live, dirty, delayed;
    struct sim *sim;
    struct conn *conn;
    struct arena arena;
    const struct sim_api *api;

    struct span model, model_json;            /* as sent; escaped, with quotes */
    uint64_t id, seed, created_s, max_tokens; /* max_tokens 0: not given */
    uint64_t submit_us;                       /* when a delayed one enters the engine */
    uint32_t n;                               /* choices */
    bool stream, include_usage, chunk_usage, ignore_eos, is_delayed;

    /* What the reply will say. */
    const char *finish;               /* "stop", "length", "tool_calls" */
    size_t text_n;                    /* bytes of a choice's text */
    struct span stop_sequence;        /* that ended it */
    struct span tool_name, tool_args; /* a tool call instead of text */
    uint32_t tool_head;               /* tokens of the call before its arguments */
    struct span ready_body;           /* embeddings, rerank */
    struct span prefix;               /* beginning of each event, JSON */
    struct event_scope scope;         /* of its blocks */

    /* How far it is. */
    uint32_t ready, sent; /* tokens */
    uint32_t events, cut_after, error_after;
    uint32_t natural_n; /* tokens of an uncut reply */
    bool head_sent, is_cut, is_error, stalls;
};

struct sim_model_stats {
    char *name;
    uint64_t requests, prompt_tokens, cached_tokens, output_tokens;
};

struct sim_counts {
    uint64_t requests, answered, aborted, failed, stalled, cut, refused;
};

struct sim {
    struct net_loop loop;
    struct sim_options o;
    struct server *server;
    struct engine *engine;
    struct publisher *publisher; /* NULL: no events */
    struct event_batch batch;    /* of this turn */
    bool events_muted;
    uv_timer_t timer;
    uv_signal_t on_term, on_int;
    struct list live, dirty, delayed; /* delayed: sorted by submit_us */
    bool flushing;
    struct rng faults;
    struct arena scratch; /* of one body */
    struct tokens tokens;
    struct buf head, out, piece;
    uint64_t start_us, start_wall_ms, next_id;
    struct sim_counts counts;
    struct sim_model_stats models[SIM_MODELS_SEEN_MAX];
    unsigned n_models;
    char **recorded; /* ring of options.record JSON texts */
    uint64_t n_recorded;
};

/* sim.c */
int sim_open(struct sim *s, char *ret_error);
void sim_close(struct sim *s);
bool sim_is_starting(struct sim *s);
/* As if the process had been started anew: requests in flight are reset, cache and counters empty. */
void sim_restart(struct sim *s);

/* serve.c: generation requests. */
void serve_request(struct sim *s, struct conn *c, const struct sim_api *api);
void serve_flush(struct sim *s);
void serve_gone(struct sim *s, struct sim_request *r);
void serve_drained(struct sim *s, struct sim_request *r);
/* Resets the connections of all requests in flight. */
void serve_drop_all(struct sim *s);
/* Submits what was delayed until <now_us>. */
void serve_delayed(struct sim *s, uint64_t now_us);
struct engine_events serve_engine_events(struct sim *s);

/* Turns away those that no longer fit into the cache and have not begun. */
void serve_refuse_unfit(struct sim *s);

/* cache_events.c: KV events. */
int cache_events_open(struct sim *s, char *ret_error);
void cache_events_close(struct sim *s);
/* Without a publisher: one that observes nothing. */
struct blocks_observer cache_events_observer(struct sim *s);
/* Publishes what the turn has brought. */
void cache_events_flush(struct sim *s);
/* The publisher of a new process; what was not published yet is lost. */
void cache_events_restart(struct sim *s);
/* Numbers begin anew, and nothing else. */
void cache_events_renumber(struct sim *s);

/* pages.c: everything that is answered at once. */
void page_health(struct sim *s, struct conn *c);
void page_models(struct sim *s, struct conn *c);
void page_metrics(struct sim *s, struct conn *c);
void page_tokenize(struct sim *s, struct conn *c);
void page_count_tokens(struct sim *s, struct conn *c);
void page_faults(struct sim *s, struct conn *c);
void page_restart(struct sim *s, struct conn *c);
void page_silent_restart(struct sim *s, struct conn *c);
void page_restart_events(struct sim *s, struct conn *c);
void page_lmcache(struct sim *s, struct conn *c);
void page_reset_cache(struct sim *s, struct conn *c);
void page_stats(struct sim *s, struct conn *c);
void page_requests(struct sim *s, struct conn *c);
void page_record(struct sim *s, struct conn *c);

/* send.c: replies as bytes. */
enum { SIM_JSON, SIM_TEXT, SIM_EVENTS };
/* A whole reply; ends the request. <extra>: field lines that end in CRLF, or NULL. */
void send_whole(struct sim *s, struct conn *c, int status, int type, struct span body, const char *extra);
void send_error(struct sim *s, struct conn *c, bool anthropic, int status, const char *code,
                const char *text);
/* Part of a stream; <first> sends the head before it, <last> the end behind it. */
void send_part(struct sim *s, struct conn *c, struct span part, bool first, bool last);
/* A reply that says its whole length and stops after the half. */
void send_half(struct sim *s, struct conn *c, struct span body);
void send_error_object(struct buf *b, bool anthropic, int status, const char *code, const char *text);

/* prompt.c: bodies to tokens. */
struct prompt {
    const struct json_doc *d;
    struct arena *a; /* for what lives as long as the body */
    struct tokens *t;
    uint64_t template_n; /* tokens that the chat template puts first */
    bool wants_tool;     /* the last turn is the user's and says "use the tool" */
};
/* For bodies that the sim gets. */
struct prompt prompt_of(struct sim *s, const struct json_doc *d);
/* Each: NULL, or why the body is bad. */
const char *prompt_chat(struct prompt *p);
const char *prompt_completions(struct prompt *p);
const char *prompt_messages(struct prompt *p);
const char *prompt_responses(struct prompt *p);
void prompt_text(struct prompt *p, uint32_t node);

/* reply.c: what replies of all dialects have in common. */
/* Parameters: n, max_tokens under <max_name>, stream, ignore_eos. NULL, or why they are bad. */
const char *reply_read_common(struct sim_request *r, const struct json_doc *d, const char *max_name);
/* Decides between text and a tool call and how long it is; appends the output's tokens to sim->tokens.
 * <tool_wrap>: the member of an offered tool that has name and schema (NULL: the tool itself). */
struct reply_plan_names {
    const char *stop, *tool_wrap, *schema;
};
void reply_plan(struct sim_request *r, const struct json_doc *d, const struct reply_plan_names *names,
                bool wants_tool);
/* Bytes of the tokens <from> .. <to> - 1 of a choice: text, or the tool call's arguments. Lives until the
 * next call. */
struct span reply_piece(struct sim_request *r, uint32_t choice, uint32_t from, uint32_t to);
/* Opens an event; false when the stream is cut here (then nothing may be written any more). */
bool reply_event(struct sim_request *r, struct buf *b, const char *type);
void reply_event_end(struct buf *b);
/* "<prefix><16 hex digits>" */
void reply_id(struct buf *b, const char *prefix, uint64_t id);
uint64_t reply_cached(const struct sim_request *r);

#endif
