/* SPDX-License-Identifier: Apache-2.0
 *
 * Purges of all gateways with one Redis: a hash "NAMESPACE:purge" of generations, one field for each name
 * that was ever purged ("all", "route:<id>"...), and the field "n", which goes up with every purge. Each
 * process reads "n" five times a second and the rest when it has changed. Generations are only ever
 * incremented, so purges of two processes at a time add up; a process that knows of a higher one than Redis
 * (which was emptied, or lost writes) brings it up.
 *
 * All of this runs on one loop; purges come from any thread through `told`.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"
#include "base/mem.h"
#include "cache/store_impl.h"

enum { FIELD_MAX = 32, ASK_MS = 1000, KNOWN_MAX = 4 * PURGE_MAX };

struct known {
    char field[FIELD_MAX];
    enum purge_kind kind;
    uint64_t id;
    uint64_t ours, theirs; /* generation that this process goes by; that Redis had last */
    bool untold;           /* purged here, and Redis has not heard of it */
};

struct told {
    struct list node;
    enum purge_kind kind;
    uint64_t id, generation;
};

struct purge_share {
    struct cache_store *store;
    struct redis_client *client;
    char hash[STORE_NAMESPACE_MAX + 16];
    pthread_mutex_t lock; /* a leaf: guards <told> */
    struct list told;
    struct known **known;
    unsigned n_known;
    struct map by_field;
    uint64_t n_seen;         /* field "n" at the last reading of all */
    struct redis_call *call; /* one at a time */
    struct known *telling;
    _Atomic bool is_known; /* all was read since Redis was away last */
};

static const char *const KINDS[] = {"all", "route", "scope", "key"};
_Static_assert(ARRAY_LEN(KINDS) == PURGE_KINDS, "one word each");

static struct known *know(struct purge_share *s, enum purge_kind kind, uint64_t id);

struct purge_share *share_new(struct cache_store *store)
{
    struct purge_share *s = MEM_NEW(struct purge_share);
    s->store = store;
    snprintf(s->hash, sizeof s->hash, "%s:purge", store->o.name_space);
    CHECK(pthread_mutex_init(&s->lock, NULL) == 0);
    list_init(&s->told);
    map_init(&s->by_field);
    know(s, PURGE_ALL, 0);
    return s;
}

void share_free(struct purge_share *s)
{
    if (!s)
        return;
    for (struct list *node; (node = list_pop(&s->told));)
        free(LIST_ITEM(node, struct told, node));
    for (unsigned i = 0; i < s->n_known; i++)
        free(s->known[i]);
    free(s->known);
    map_fini(&s->by_field);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

bool share_is_known(const struct purge_share *s)
{
    return atomic_load_explicit(&s->is_known, memory_order_acquire);
}

void share_purge(struct purge_share *s, enum purge_kind kind, uint64_t id, uint64_t generation)
{
    struct told *t = MEM_NEW(struct told);
    *t = (struct told){.kind = kind, .id = id, .generation = generation};
    pthread_mutex_lock(&s->lock);
    list_push(&s->told, &t->node);
    pthread_mutex_unlock(&s->lock);
}

void share_stop(struct purge_share *s)
{
    if (s->call)
        redis_cancel(s->call);
    s->call = NULL;
    s->client = NULL;
    atomic_store(&s->is_known, false);
}

/* ---- what is known ---- */

static bool parse_field(struct span field, enum purge_kind *ret_kind, uint64_t *ret_id)
{
    char text[FIELD_MAX];
    if (span_eq(field, SPAN("all"))) {
        *ret_kind = PURGE_ALL;
        *ret_id = 0;
        return true;
    }
    struct span rest = field, word;
    if (!span_split(&rest, ':', &word) || rest.n != 16)
        return false;
    memcpy(text, rest.p, rest.n);
    text[rest.n] = '\0';
    if (strspn(text, "0123456789abcdef") != rest.n)
        return false;
    for (int k = PURGE_ROUTE; k < PURGE_KINDS; k++) {
        if (!span_eq(word, span_str(KINDS[k])))
            continue;
        *ret_kind = (enum purge_kind)k;
        *ret_id = strtoull(text, NULL, 16);
        return true;
    }
    return false;
}

/* NULL when too many names are known. */
static struct known *know(struct purge_share *s, enum purge_kind kind, uint64_t id)
{
    char field[FIELD_MAX];
    if (kind == PURGE_ALL)
        snprintf(field, sizeof field, "all");
    else
        snprintf(field, sizeof field, "%s:%016llx", KINDS[kind], (unsigned long long)id);
    struct known *k = map_get(&s->by_field, span_str(field));
    if (k || s->n_known == KNOWN_MAX)
        return k;
    k = MEM_NEW(struct known);
    memcpy(k->field, field, sizeof field);
    k->kind = kind;
    k->id = id;
    map_put(&s->by_field, span_str(k->field), k);
    s->known = mem_realloc(s->known, (s->n_known + 1) * sizeof *s->known);
    s->known[s->n_known++] = k;
    return k;
}

static void learn(struct purge_share *s, struct known *k, uint64_t theirs)
{
    k->theirs = theirs;
    if (theirs <= k->ours)
        return;
    k->ours = theirs;
    purge_merge(s->store->purges, k->kind, k->id, theirs);
}

static void note_purge(struct purge_share *s, const struct told *t)
{
    struct known *k = know(s, t->kind, t->id);
    if (!k) { /* more names than are kept: for the others everything goes */
        k = know(s, PURGE_ALL, 0);
        k->ours = purge_now(s->store->purges, PURGE_ALL, 0);
    } else if (t->generation > k->ours) {
        k->ours = t->generation;
    }
    k->untold = true;
}

/* The purges that other threads left. */
static void take_told(struct purge_share *s)
{
    for (;;) {
        pthread_mutex_lock(&s->lock);
        struct list *node = list_pop(&s->told);
        pthread_mutex_unlock(&s->lock);
        if (!node)
            return;
        struct told *t = LIST_ITEM(node, struct told, node);
        note_purge(s, t);
        free(t);
    }
}

/* ---- commands ---- */

static bool failed(struct purge_share *s, enum redis_outcome outcome)
{
    s->call = NULL;
    if (outcome == REDIS_DONE)
        return false;
    /* Others may purge while we do not hear of it. */
    atomic_store_explicit(&s->is_known, false, memory_order_release);
    return true;
}

static void on_told(void *arg, enum redis_outcome outcome, const struct redis_reply *reply);

/* Raises Redis' generation, at least to ours; of two processes that do so at a time, each raises it. */
static void tell(struct purge_share *s, struct known *k)
{
    char step[24];
    snprintf(step, sizeof step, "%llu", (unsigned long long)(k->ours > k->theirs ? k->ours - k->theirs : 1));
    const struct span hash = span_str(s->hash);
    const struct span raise[] = {SPAN("HINCRBY"), hash, span_str(k->field), span_str(step)};
    const struct span count[] = {SPAN("HINCRBY"), hash, SPAN("n"), SPAN("1")};
    const struct redis_request both[] = {{raise, 4, 1}, {count, 4, 1}};
    s->telling = k;
    const enum redis_outcome r = redis_transaction(s->client, both, 2, ASK_MS, on_told, s, &s->call);
    if (r != REDIS_DONE)
        failed(s, r);
}

/* True when there was something to tell. */
static bool tell_next(struct purge_share *s)
{
    for (unsigned i = 0; i < s->n_known; i++) {
        struct known *k = s->known[i];
        if (k->untold || k->ours > k->theirs) {
            tell(s, k);
            return true;
        }
    }
    return false;
}

static void on_told(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct purge_share *s = arg;
    if (failed(s, outcome))
        return;
    const struct redis_reply *first = reply->type == REDIS_ARRAY && reply->n == 2 ? reply->items[0] : NULL;
    if (!first || first->type != REDIS_INTEGER || first->integer <= 0) {
        failed(s, REDIS_REFUSED); /* the field is no number, the key no hash: tried again, later */
        return;
    }
    s->telling->untold = false;
    learn(s, s->telling, (uint64_t)first->integer);
    tell_next(s);
}

static void read_field(struct purge_share *s, struct span name, struct span value)
{
    enum purge_kind kind;
    uint64_t id, generation;
    if (!span_to_u64(value, &generation))
        return;
    if (span_eq(name, SPAN("n")))
        s->n_seen = generation;
    if (!parse_field(name, &kind, &id))
        return;
    struct known *k = know(s, kind, id);
    if (k)
        learn(s, k, generation);
    else
        purge_merge(s->store->purges, kind, id, generation);
}

static void on_all(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct purge_share *s = arg;
    if (failed(s, outcome) || reply->type != REDIS_ARRAY)
        return;
    s->n_seen = 0;
    for (unsigned i = 0; i < s->n_known; i++)
        s->known[i]->theirs = 0; /* what Redis has forgotten is told again */
    for (size_t i = 0; i + 1 < reply->n; i += 2)
        if (redis_reply_is_text(reply->items[i]) && redis_reply_is_text(reply->items[i + 1]))
            read_field(s, reply->items[i]->text, reply->items[i + 1]->text);
    atomic_store_explicit(&s->is_known, true, memory_order_release);
    tell_next(s);
}

static void ask(struct purge_share *s, const char *command, const char *field, redis_fn *fn)
{
    const struct span argv[] = {span_str(command), span_str(s->hash), span_str(field)};
    const struct redis_request q = {argv, field ? 3 : 2, 1};
    const enum redis_outcome r = redis_command(s->client, &q, ASK_MS, fn, s, &s->call);
    if (r != REDIS_DONE)
        failed(s, r);
}

static void on_count(void *arg, enum redis_outcome outcome, const struct redis_reply *reply)
{
    struct purge_share *s = arg;
    uint64_t n = 0;
    if (failed(s, outcome))
        return;
    if (redis_reply_is_text(reply))
        (void)span_to_u64(reply->text, &n);
    if (!share_is_known(s) || n != s->n_seen)
        ask(s, "HGETALL", NULL, on_all);
}

void share_tick(struct purge_share *s, struct redis_client *c)
{
    s->client = c;
    take_told(s);
    if (s->call)
        return;
    if (!share_is_known(s) || !tell_next(s))
        ask(s, "HGET", "n", on_count);
}
