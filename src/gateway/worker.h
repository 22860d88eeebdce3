/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker: one thread with one loop, its listening sockets, its clients, its upstream connections, its
 * requests. Nothing on it blocks. Another thread talks to it through net_loop_post only.
 */
#ifndef ROLTER_GATEWAY_WORKER_H
#define ROLTER_GATEWAY_WORKER_H

#include <stdatomic.h>

#include "base/buf.h"
#include "cache/semantic_index.h"
#include "gateway/plan.h"
#include "net/exchange.h"
#include "net/server.h"
#include "observe/row.h"

struct decision_ring;
struct gateway;

struct reply_cache;
struct row_writer;
struct store_port;

enum { WORKER_IOV_MAX = 60, WORKER_WHOLE_KEEP = 1 << 20, WORKER_WHOLE_MAX = (1 << 30) + (1 << 20) };

struct worker {
    struct net_loop loop;
    struct gateway *gateway;
    uv_thread_t thread;
    struct plan *plan;
    struct server *server;      /* TCP */
    struct server *unix_server; /* may be NULL; all workers accept from the first one's socket */
    struct tls_context *tls;
    struct pool *pool;
    struct pool_counts counted;      /* of the pool, as far as the metrics know them */
    struct token_cache *token_cache; /* the gateway's */
    struct tokenizer *tokenizer;
    struct reply_cache *cache; /* the gateway's; NULL while nothing caches */
    struct store_port *store;  /* this loop's way to its store */
    struct semantic_port semantic;
    struct list lookups; /* by meaning, those that outlive their requests included */
    struct row_ring *rows;
    struct decision_ring *decisions; /* NULL: nobody can ask */
    struct row_writer *row_writer;   /* the gateway's, which takes them */
    size_t unsaid_rows;              /* bytes of rows since it was last told */
    struct list requests;
    struct list free_requests; /* the last one first: it is warm */
    unsigned n_free_requests;
    _Atomic unsigned in_flight; /* written by this worker alone */
    bool draining;

    /* Scratch of the read that is being handled: reply bytes are collected here and go out in one vectored
     * write. */
    struct buf whole; /* a captured body in one piece */
    struct buf out;   /* reply head and other small pieces */
    struct iovec iov[WORKER_IOV_MAX + 4];
    unsigned n_iov;
    size_t iov_bytes;
    char chunk_head[20];
    struct buf row_text, pick_text;
    struct arena scratch; /* reset after each use */
    uint64_t id_prefix, id_next;
};

/* The callbacks of the workers' listeners. */
extern const struct server_events worker_server_events;

#endif
