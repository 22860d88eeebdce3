/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/flight.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

enum { SHARDS = 64, BUCKETS = 64 };

/* One loop's members of a flight, and the post that tells them. */
struct flight_port {
    struct net_post post;
    struct flight *flight;
    struct net_loop *loop;
    unsigned n;          /* members; under the flight's lock */
    bool posted;         /* so is this; the post holds a reference of the flight */
    struct list members; /* the loop's own thread only */
};

struct flight {
    struct flight_table *table;
    struct cache_digest key;
    struct flight *next;  /* in its bucket, under the shard's lock */
    bool listed;          /* under the shard's lock: others find it */
    struct list all_node; /* in table->all, under table->all_lock */
    _Atomic unsigned refs;
    struct byte_log log;
    _Atomic uint64_t cut_offset; /* readers before it are cut off */
    _Atomic unsigned n_followers;
    _Atomic uint64_t front; /* how far the quickest reader has come by its cursor */

    pthread_mutex_t lock; /* what follows */
    enum flight_state state;
    bool is_stream, dropped, leader_reads, leader_lags, leader_gone;
    _Atomic bool paused; /* written under the lock; readers that advance look at it */
    unsigned n_lagging;
    char *head;
    size_t head_bytes;
    const char *reason;
    struct cache_entry *entry;
    struct flight_port *leader_port;
    struct flight_port *ports[]; /* by loop index; NULL: nobody there */
};

struct shard {
    pthread_mutex_t lock;
    struct flight *buckets[BUCKETS];
};

struct flight_table {
    unsigned n_loops;
    _Atomic size_t n_listed;
    struct shard shards[SHARDS];
    pthread_mutex_t all_lock;
    struct list all;
};

struct flight_table *flight_table_new(unsigned n_loops)
{
    struct flight_table *t = MEM_NEW(struct flight_table);
    t->n_loops = n_loops;
    for (unsigned i = 0; i < SHARDS; i++)
        CHECK(pthread_mutex_init(&t->shards[i].lock, NULL) == 0);
    CHECK(pthread_mutex_init(&t->all_lock, NULL) == 0);
    list_init(&t->all);
    return t;
}

static void flight_free(struct flight *f)
{
    entry_unref(f->entry);
    for (unsigned i = 0; i < f->table->n_loops; i++)
        free(f->ports[i]);
    log_fini(&f->log);
    free(f->head);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void flight_table_free(struct flight_table *t)
{
    if (!t)
        return;
    /* What is left is held by posts of loops that have ended. */
    for (struct list *node; (node = list_pop(&t->all));)
        flight_free(LIST_ITEM(node, struct flight, all_node));
    for (unsigned i = 0; i < SHARDS; i++)
        pthread_mutex_destroy(&t->shards[i].lock);
    pthread_mutex_destroy(&t->all_lock);
    free(t);
}

size_t flight_table_count(const struct flight_table *t)
{
    return atomic_load_explicit(&t->n_listed, memory_order_relaxed);
}

static struct flight *flight_ref(struct flight *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

static void flight_unref(struct flight *f)
{
    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&f->table->all_lock);
    list_remove(&f->all_node);
    pthread_mutex_unlock(&f->table->all_lock);
    flight_free(f);
}

/* --- news --- */

static void run_port(struct net_post *p, struct net_loop *l)
{
    struct flight_port *port = CONTAINER_OF(p, struct flight_port, post);
    struct flight *f = port->flight;
    pthread_mutex_lock(&f->lock);
    port->posted = false;
    pthread_mutex_unlock(&f->lock);
    /* Members leave, and new ones come, while they are told. */
    struct list todo;
    list_init(&todo);
    if (!list_empty(&port->members)) {
        todo = port->members;
        todo.next->prev = todo.prev->next = &todo;
        list_init(&port->members);
    }
    for (struct list *node; (node = list_pop(&todo));) {
        list_push(&port->members, node);
        struct flight_member *m = LIST_ITEM(node, struct flight_member, node);
        m->on_news(m);
    }
    flight_unref(f);
}

/* Under the lock. */
static void wake(struct flight *f, struct flight_port *port)
{
    if (!port || port->n == 0 || port->posted)
        return;
    port->posted = true;
    flight_ref(f);
    net_loop_post(port->loop, &port->post);
}

/* Loops where somebody follows. */
static void wake_all(struct flight *f)
{
    for (unsigned i = 0; i < f->table->n_loops; i++)
        if (f->ports[i] && f->ports[i]->n > (f->ports[i] == f->leader_port))
            wake(f, f->ports[i]);
}

static void wake_leader(struct flight *f)
{
    wake(f, f->leader_port);
}

/* Every reader waits for its client. Without a reader, or with followers that wait for the whole, the
 * upstream goes on. Under the lock. */
static bool all_lag(const struct flight *f)
{
    unsigned followers = atomic_load_explicit(&f->n_followers, memory_order_relaxed);
    if (!f->is_stream && followers > 0)
        return false;
    unsigned readers = followers + f->leader_reads;
    return readers > 0 && f->n_lagging >= readers;
}

/* The bytes of a stream have run away from everybody who reads them. A leader that does not lag takes them as
 * they come. Under the lock, or by a reader that looks again under it. */
static bool runs_away(struct flight *f)
{
    if (!f->is_stream || (f->leader_reads && !f->leader_lags) ||
        atomic_load_explicit(&f->n_followers, memory_order_relaxed) == 0)
        return false;
    return log_total(&f->log) > atomic_load(&f->front) + FLIGHT_AHEAD_MAX;
}

static bool should_pause(struct flight *f)
{
    return all_lag(f) || runs_away(f);
}

/* A reader that comes near sets `front` first and looks at `paused` then; so whoever pauses looks at `front`
 * once more. Under the lock. */
static bool pause_if_needed(struct flight *f)
{
    f->paused = should_pause(f);
    if (f->paused && !should_pause(f))
        f->paused = false;
    return f->paused;
}

/* Who reads, or how far, has changed. Under the lock. */
static void settle_pause(struct flight *f)
{
    if (f->paused && !should_pause(f)) {
        f->paused = false;
        wake_leader(f);
    }
}

/* --- joining and leaving --- */

static struct shard *shard_of(struct flight_table *t, const struct cache_digest *key)
{
    return &t->shards[key->b[0] % SHARDS];
}

static struct flight **bucket_of(struct shard *s, const struct cache_digest *key)
{
    return &s->buckets[key->b[1] % BUCKETS];
}

/* Nobody finds it any more. Under the shard's lock. */
static void unlist(struct flight *f)
{
    if (!f->listed)
        return;
    struct flight **at = bucket_of(shard_of(f->table, &f->key), &f->key);
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    f->listed = false;
    atomic_fetch_sub_explicit(&f->table->n_listed, 1, memory_order_relaxed);
}

static void unlist_locked(struct flight *f)
{
    struct shard *s = shard_of(f->table, &f->key);
    pthread_mutex_lock(&s->lock);
    unlist(f);
    pthread_mutex_unlock(&s->lock);
}

/* Under the flight's lock, except for a flight that nobody knows yet. */
static struct flight_port *add_member(struct flight *f, struct net_loop *l, struct flight_member *m)
{
    CHECK(l->index < f->table->n_loops);
    struct flight_port *port = f->ports[l->index];
    if (!port) {
        port = f->ports[l->index] = MEM_NEW(struct flight_port);
        port->post.fn = run_port;
        port->flight = f;
        port->loop = l;
        list_init(&port->members);
    }
    port->n++;
    list_push(&port->members, &m->node);
    m->flight = f;
    m->loop = l;
    m->lags = false;
    m->cursor = (struct log_cursor){0};
    return port;
}

static void lead(struct flight_table *t, struct net_loop *l, struct flight_member *m)
{
    struct flight *f = mem_zalloc(sizeof *f + t->n_loops * sizeof f->ports[0]);
    f->table = t;
    atomic_init(&f->refs, 1);
    log_init(&f->log);
    CHECK(pthread_mutex_init(&f->lock, NULL) == 0);
    pthread_mutex_lock(&t->all_lock);
    list_push(&t->all, &f->all_node);
    pthread_mutex_unlock(&t->all_lock);
    f->leader_reads = true;
    f->leader_port = add_member(f, l, m);
    m->leads = true;
}

static void follow(struct flight *f, struct net_loop *l, struct flight_member *m)
{
    pthread_mutex_lock(&f->lock);
    flight_ref(f);
    atomic_fetch_add_explicit(&f->n_followers, 1, memory_order_relaxed);
    add_member(f, l, m);
    m->leads = false;
    bool whole = log_cursor_start(&f->log, &m->cursor);
    CHECK_MSG(whole, "a flight that is found has its beginning");
    settle_pause(f);
    pthread_mutex_unlock(&f->lock);
}

void flight_join(struct flight_table *t, const struct cache_digest *key, struct net_loop *l, bool may_lead,
                 struct flight_member *m)
{
    CHECK(!m->flight);
    struct shard *s = shard_of(t, key);
    pthread_mutex_lock(&s->lock);
    struct flight **bucket = bucket_of(s, key), *f = *bucket;
    while (f && !digest_eq(&f->key, key))
        f = f->next;
    if (f) {
        follow(f, l, m);
    } else if (may_lead) {
        lead(t, l, m);
        f = m->flight;
        f->key = *key;
        f->next = *bucket;
        *bucket = f;
        f->listed = true;
        atomic_fetch_add_explicit(&t->n_listed, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->lock);
}

void flight_alone(struct flight_table *t, struct net_loop *l, struct flight_member *m)
{
    CHECK(!m->flight);
    lead(t, l, m);
}

void flight_leave(struct flight_member *m)
{
    struct flight *f = m->flight;
    if (!f)
        return;
    log_cursor_close(&m->cursor);
    list_remove(&m->node);
    m->flight = NULL;
    pthread_mutex_lock(&f->lock);
    f->ports[m->loop->index]->n--;
    f->n_lagging -= m->lags;
    m->lags = false;
    if (m->leads) {
        CHECK_MSG(f->state > FLIGHT_OPEN, "a leader ends its flight before it leaves");
        f->leader_port = NULL;
    } else if (atomic_fetch_sub_explicit(&f->n_followers, 1, memory_order_relaxed) == 1 && f->leader_gone) {
        wake_leader(f); /* for nobody, unless somebody joins before the leader looks */
    }
    settle_pause(f);
    pthread_mutex_unlock(&f->lock);
    flight_unref(f);
}

/* --- the leader --- */

static void check_leads(const struct flight_member *m)
{
    CHECK_MSG(m->flight && m->leads, "the leader's call");
}

void flight_begin(struct flight_member *m, struct span head, bool is_stream)
{
    check_leads(m);
    struct flight *f = m->flight;
    char *copy = mem_spandup(head);
    pthread_mutex_lock(&f->lock);
    CHECK(f->state == FLIGHT_WAITING);
    f->state = FLIGHT_OPEN;
    f->is_stream = is_stream;
    f->head = copy;
    f->head_bytes = head.n;
    if (is_stream)
        wake_all(f);
    pthread_mutex_unlock(&f->lock);
}

void flight_append(struct flight_member *m, const char *p, size_t n)
{
    check_leads(m);
    struct flight *f = m->flight;
    if (f->dropped && !m->cursor.chunk && !flight_is_followed(m))
        return; /* for nobody */
    log_append(&f->log, p, n);
}

/* Bytes of others that lag must not fill the memory. So much is held only when readers are so far apart, for
 * the upstream waits while all of them lag. Under the lock. */
static void cut_laggards(struct flight *f)
{
    if (!f->dropped || log_live(&f->log) <= FLIGHT_LAG_MAX)
        return;
    uint64_t total = log_total(&f->log);
    atomic_store_explicit(&f->cut_offset, total - FLIGHT_LAG_MAX, memory_order_release);
}

bool flight_publish(struct flight_member *m)
{
    check_leads(m);
    struct flight *f = m->flight;
    if (!flight_is_followed(m) && !m->lags)
        return false;
    pthread_mutex_lock(&f->lock);
    bool paused = pause_if_needed(f);
    if (f->is_stream) {
        cut_laggards(f);
        wake_all(f);
    }
    pthread_mutex_unlock(&f->lock);
    return paused;
}

void flight_drop_capture(struct flight_member *m, const char *reason)
{
    check_leads(m);
    struct flight *f = m->flight;
    if (f->dropped)
        return;
    unlist_locked(f);
    pthread_mutex_lock(&f->lock);
    log_drop_beginning(&f->log);
    f->dropped = true;
    if (!f->reason)
        f->reason = reason;
    wake_all(f);
    pthread_mutex_unlock(&f->lock);
}

bool flight_captures(const struct flight_member *m)
{
    check_leads(m);
    return !m->flight->dropped;
}

bool flight_gather(const struct flight_member *m, struct buf *b)
{
    check_leads(m);
    return log_gather(&m->flight->log, b);
}

void flight_end(struct flight_member *m, enum flight_state how, const char *reason, struct cache_entry *entry)
{
    check_leads(m);
    struct flight *f = m->flight;
    CHECK(how > FLIGHT_OPEN);
    unlist_locked(f);
    pthread_mutex_lock(&f->lock);
    if (f->state <= FLIGHT_OPEN) {
        bool nothing_to_read = f->state == FLIGHT_WAITING || (how == FLIGHT_BROKEN && !f->is_stream);
        f->state = nothing_to_read ? FLIGHT_RELEASED : how;
        f->reason = reason;
        f->entry = entry ? entry_ref(entry) : NULL;
        wake_all(f);
    }
    pthread_mutex_unlock(&f->lock);
}

bool flight_goes_on(struct flight_member *m)
{
    check_leads(m);
    struct flight *f = m->flight;
    struct shard *s = shard_of(f->table, &f->key);
    pthread_mutex_lock(&s->lock);
    pthread_mutex_lock(&f->lock);
    bool on = f->state <= FLIGHT_OPEN && flight_is_followed(m);
    if (on) {
        f->leader_gone = true;
        f->leader_reads = f->leader_lags = false;
        f->n_lagging -= m->lags;
        m->lags = false;
        settle_pause(f);
    } else {
        unlist(f);
    }
    pthread_mutex_unlock(&f->lock);
    pthread_mutex_unlock(&s->lock);
    log_cursor_close(&m->cursor);
    return on;
}

bool flight_is_followed(const struct flight_member *m)
{
    return atomic_load_explicit(&m->flight->n_followers, memory_order_relaxed) > 0;
}

/* --- readers --- */

void flight_look(struct flight_member *m, struct flight_view *ret)
{
    struct flight *f = m->flight;
    pthread_mutex_lock(&f->lock);
    bool is_left =
        !f->is_stream && ((f->state == FLIGHT_OPEN && f->dropped) || (f->state == FLIGHT_WHOLE && !f->entry));
    *ret = (struct flight_view){
        .state = is_left ? FLIGHT_RELEASED : f->state,
        .is_stream = f->is_stream,
        .head = span_of(f->head ? f->head : "", f->head_bytes),
        .reason = f->reason,
        .entry = f->entry ? entry_ref(f->entry) : NULL,
    };
    pthread_mutex_unlock(&f->lock);
}

void flight_read_from_here(struct flight_member *m)
{
    check_leads(m);
    log_cursor_close(&m->cursor);
    log_cursor_end(&m->flight->log, &m->cursor);
}

void flight_stop_reading(struct flight_member *m)
{
    check_leads(m);
    log_cursor_close(&m->cursor);
}

struct span flight_peek(struct flight_member *m)
{
    return m->cursor.chunk ? log_peek(&m->cursor) : SPAN_NONE;
}

void flight_advance(struct flight_member *m, size_t n)
{
    struct flight *f = m->flight;
    log_advance(&m->cursor, n);
    uint64_t here = m->cursor.offset, front = atomic_load(&f->front);
    while (here > front && !atomic_compare_exchange_weak(&f->front, &front, here))
        ;
    if (UNLIKELY(f->paused) && here >= front) {
        pthread_mutex_lock(&f->lock);
        settle_pause(f);
        pthread_mutex_unlock(&f->lock);
    }
}

bool flight_set_lags(struct flight_member *m, bool lags)
{
    struct flight *f = m->flight;
    if (m->lags == lags)
        return false;
    m->lags = lags;
    pthread_mutex_lock(&f->lock);
    f->n_lagging += lags ? 1 : -1u;
    if (m->leads)
        f->leader_lags = lags;
    settle_pause(f);
    bool pause = m->leads && f->state <= FLIGHT_OPEN && pause_if_needed(f);
    pthread_mutex_unlock(&f->lock);
    return pause;
}

bool flight_is_paused(struct flight_member *m)
{
    struct flight *f = m->flight;
    pthread_mutex_lock(&f->lock);
    bool paused = f->paused;
    pthread_mutex_unlock(&f->lock);
    return paused;
}

bool flight_is_cut(const struct flight_member *m)
{
    return m->cursor.offset < atomic_load_explicit(&m->flight->cut_offset, memory_order_acquire);
}
