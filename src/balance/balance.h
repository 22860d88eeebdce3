/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing a target. A balancer belongs to a pool (the targets of a route or of a variant), holds the
 * strategy's shared state, and is asked once per attempt. It knows no sockets and no JSON, so the same code
 * picks in the gateway, in unit tests and in an offline replay.
 *
 * Eligibility (A12, A13): the caller says once per pick which targets may be used: not tried by this request,
 * not cooling, healthy, breaker not open, allowed to the caller's key. Every strategy compares eligible
 * targets only; when there is none, balance_pick weighs all that the key may use and that were not tried
 * (fail open).
 *
 * Threads: balance_pick is safe from many threads at a time; strategies use atomics, no lock across a wait.
 * Cost: no allocation up to 64 targets; O(targets).
 */
#ifndef ROLTER_BALANCE_BALANCE_H
#define ROLTER_BALANCE_BALANCE_H

#include "balance/mirror.h"
#include "balance/prefix_index.h"
#include "balance/prefix_loop.h"
#include "base/buf.h"
#include "base/rng.h"
#include "fleet/target.h"

enum strategy_id {
    STRATEGY_ROUND_ROBIN,
    STRATEGY_RANDOM,
    STRATEGY_WEIGHTED,
    STRATEGY_POWER_OF_TWO,
    STRATEGY_LEAST_LOAD,
    STRATEGY_CONSISTENT_HASH,
    STRATEGY_CACHE_AWARE,
    STRATEGY_PIPELINE,
    STRATEGY_CHEAPEST,
    STRATEGY_FASTEST,
    STRATEGY_PREDICTED_LATENCY,
    STRATEGY_PRECISE_CACHE_AWARE,
    STRATEGY_LMCACHE_AWARE,
    STRATEGY_LEAST_PREFILL,
    STRATEGY_COUNT
};

/* A9: what a token is taken for when nobody has counted. */
enum { BYTES_PER_TOKEN = 4 };

struct kv_source;

struct pool_target {
    struct target *target;
    unsigned weight; /* >= 1 */
    /* Price of a million prompt tokens and a million completion tokens together, in any one unit. */
    bool cost_known;
    double cost;
    const struct kv_source *kv; /* what its engine says it holds (kv_source.h); NULL: it says nothing */
    uint64_t cache_tokens;      /* that the replica's prefix cache holds; 0 = learn it */
};

/* Knobs of single strategies. */
struct strategy_settings {
    double threshold;     /* share of the prompt that pins a request to a target (A2) */
    unsigned balance_abs; /* load guard (A10): a warm target may be this many requests ahead */
    double balance_rel;   /* and have this many times the least load */
    struct prefix_limits limits;
    bool include_tools; /* for who reads the prompt out of the body (A19); picks do not look at it */
    double miss_weight; /* what a token that is not cached costs, in tokens that wait (A20) */
    double home_bonus;  /* share of a prompt that its owner counts as holding */
};
#define STRATEGY_SETTINGS_DEFAULT                                                                            \
    ((struct strategy_settings){.threshold = 0.5,                                                            \
                                .balance_abs = 2,                                                            \
                                .balance_rel = 1.5,                                                          \
                                .limits = PREFIX_LIMITS_DEFAULT,                                             \
                                .miss_weight = 3})

struct balancer;

/* The name in configurations, rows and metrics. */
const char *strategy_name(enum strategy_id id);
bool strategy_by_name(struct span name, enum strategy_id *ret);
/* Whether picks look at prompt, prompt_len or prompt_digest (A9); reading them out of a body costs. */
bool strategy_reads_prompt(enum strategy_id id);
/* Whether picks look at the whole prompt's block keys; they look at none of the others then. */
bool strategy_reads_blocks(enum strategy_id id);
/* Whether picks look at the prompt's token ids (P6) and cache salt. */
bool strategy_reads_tokens(enum strategy_id id);

/* <targets> is copied; the targets themselves are borrowed: the plan that makes the balancer has references.
 * <settings> may be NULL: the defaults. <previous> (may be NULL) is the balancer that stood in the same place
 * before a reload: what it has learnt is taken over by target identity, not by position; when nothing
 * differs, it is the one that is returned. Reference counted, made with one reference. */
struct balancer *balancer_new(enum strategy_id id, const struct pool_target *targets, unsigned n,
                              const struct strategy_settings *settings, struct balancer *previous);
struct balancer *balancer_ref(struct balancer *b);
void balancer_unref(struct balancer *b);
enum strategy_id balancer_strategy(const struct balancer *b);
unsigned balancer_size(const struct balancer *b);
struct target *balancer_target(const struct balancer *b, unsigned i);

/* One bit per target. Up to 64 targets live in `one`; larger pools in `many` (the caller's memory). */
struct target_set {
    uint64_t one;
    uint64_t *many; /* NULL up to 64 targets */
    unsigned n;
};
void target_set_init(struct target_set *s, unsigned n, uint64_t *many_words);
static inline bool target_set_has(const struct target_set *s, unsigned i)
{
    return (s->many ? s->many[i / 64] >> (i % 64) : s->one >> i) & 1;
}
static inline void target_set_add(struct target_set *s, unsigned i)
{
    if (s->many)
        s->many[i / 64] |= (uint64_t)1 << (i % 64);
    else
        s->one |= (uint64_t)1 << i;
}
bool target_set_empty(const struct target_set *s);

/* The prompt's token ids, as the engine's own tokenizer makes them (P6). Without them (n 0) picks that look
 * at them are neutral, and <why> says in one word why there are none. */
struct token_ids {
    const uint32_t *id;
    size_t n;
    const char *why; /* static text, NULL when there are ids */
};

/* The whole prompt as a chain of block keys (block_chain.h), made with what else its cache depends on as
 * salt; the model is none: a target has one. */
struct prompt_blocks {
    const uint64_t *key;
    uint32_t n;
    uint64_t bytes; /* of the whole prompt, those that fill no block included */
    uint64_t home;  /* what a conversation keeps from turn to turn; 0 = none */
};

/* What a strategy sees of a request (A9). */
struct pick_context {
    struct target_set allowed;  /* the key may use it and this request has not tried it */
    struct target_set eligible; /* of those: usable now */
    struct span session;        /* x-session-id, or empty */
    struct span prompt;         /* bounded text of the conversation */
    uint64_t prompt_len;        /* of the whole prompt, bytes */
    uint64_t prompt_digest;     /* XXH3 of the whole prompt; 0 and prompt_len 0 = no prompt */
    struct prompt_blocks blocks;
    struct token_ids tokens;
    struct span cache_salt; /* who shares cached blocks with this request; empty = everybody */
    uint64_t now_ms, now_us;
    struct rng *rng;
    /* The caller will say how the attempt began, by balance_settle or balance_withdraw; until then the bounds
     * of what is kept put nothing out for it (A14). */
    bool settles;
};

enum pick_reason {
    PICK_NONE, /* no target left */
    PICK_ONLY, /* one eligible target */
    PICK_ROTATION,
    PICK_RANDOM,
    PICK_WEIGHT,
    PICK_LEAST_LOAD,
    PICK_TWO_CHOICES,
    PICK_SCORE,     /* highest weighted sum of the strategy's scorers */
    PICK_EXPLORE,   /* nothing is known of it yet, and the strategy wants to know */
    PICK_HASH,      /* owner on the ring */
    PICK_HASH_NEXT, /* the owner cannot be used; the next on the ring */
    PICK_AFFINITY,  /* it has served enough of the prompt before */
    PICK_GUARD,     /* another has, but is overloaded: the least loaded one */
    PICK_PREFILL,   /* expected to have read the prompt soonest */
    PICK_FAIL_OPEN, /* none was eligible; the strategy chose among all that are left. Rows say so; struct pick
                       does not, it has a flag of its own. */
    PICK_REASON_COUNT
};
const char *pick_reason_name(enum pick_reason r);

/* What a pick has written down about the request, so that it can be taken back. All zero: nothing. */
struct pick_receipt {
    struct prefix_receipt prefix; /* the prompt, for the target */
    struct session_receipt {
        uint64_t key, target, before; /* identities; before: whose the session was, 0 = nobody's */
        uint64_t before_ms;
        uint32_t serial, before_serial; /* tell this record from others in the same millisecond */
    } session;
    struct prefill_receipt {
        struct mirror_receipt mirror;
        uint64_t picked_us, bytes;
        uint32_t target;         /* position; valid while is_charged or is_predicted */
        uint32_t charge;         /* tokens */
        uint32_t depth, settled; /* leading blocks that were expected to be cached; of these for sure */
        uint32_t generation;     /* of the mirror's lane */
        uint32_t open;           /* of its closed loop */
        uint32_t claim;          /* of the prompt, until it is recorded; 0 = none */
        bool is_charged, is_predicted;
    } prefill;
};

enum pick_guard { GUARD_NOT_ASKED, GUARD_OK, GUARD_OVERLOADED };

/* What the pick compared, as far as its strategy compares such things. */
struct pick_why {
    bool has_share, has_load, has_score, has_cost;
    float share;                      /* of the prompt's leading bytes that the target has served already */
    unsigned load, least;             /* of the target; the least among the candidates */
    enum pick_guard guard;            /* whether the load allowed the target with the best match */
    float score, runner_up_score;     /* weighted sums of the strategy's scorers */
    float cost_ms, runner_up_cost_ms; /* weighed time until the prompt is read */
    uint32_t backlog, uncached;       /* tokens: before this request; of it */
    bool asks_lmcache;                /* the strategy reads occupancies, */
    bool lmcache_decides;             /* some candidate's is known, */
    bool has_lmcache;                 /* the target's is */
    float lmcache;                    /* its score: 1 empty, 0 full or unavailable */
    bool has_resident;
    float resident;           /* share of the prompt's tokens that the target's engine says it holds */
    const char *not_resident; /* why engines had no part in it: a word; NULL when they were not asked */
    int runner_up;            /* who would have been next; after a guard's veto, who was refused; -1 */
};

struct pick {
    int index; /* -1 when nothing is left */
    enum pick_reason reason;
    bool fail_open; /* nothing was eligible; all allowed ones were weighed */
    struct pick_why why;
    struct pick_receipt receipt;
};

/* The one word for rows and metrics. */
static inline enum pick_reason pick_word(const struct pick *p)
{
    return p->fail_open ? PICK_FAIL_OPEN : p->reason;
}

/* Strategies that keep what their targets have served record the prompt for the chosen one at once (A14), so
 * that a burst of siblings sees it; those that read blocks do that in balance_record. */
struct pick balance_pick(struct balancer *b, const struct pick_context *c);

/* What a pick with block keys leaves for when the request is on its way: the prompt, the pick's own <blocks>,
 * is recorded for the chosen target. Some 100 ns for each block that is new there: after the request was
 * sent, and before the thread picks again or waits, so that a burst of siblings sees it. Once per pick that
 * stands; one that was given up needs neither this nor balance_withdraw. Others do nothing. */
void balance_record(struct balancer *b, const struct prompt_blocks *blocks, struct pick_receipt *receipt);

/* The attempt failed before its reply began (A14, R23): what this pick recorded is taken back, what was known
 * before it stays. At most once per receipt; from any thread. */
void balance_withdraw(struct balancer *b, const struct pick_receipt *receipt);

/* The attempt's reply has begun: what the pick recorded stands, and what the bounds put out for it goes. How
 * many prompts that were. At most once per receipt, instead of balance_withdraw; from any thread. */
unsigned balance_settle(struct balancer *b, const struct pick_receipt *receipt);

/* Strategies that charge prompts for the time that an engine needs to read them (R14): the first token has
 * come, or the attempt is over without one (<is_timed> false, also for a reply without stream). The charge is
 * given back, at the first call for a receipt. */
void balance_first_token(struct balancer *b, struct pick_receipt *receipt, uint64_t now_us, bool is_timed);

/* What the engine said of the prompt; a reply without that says nothing and is not told. */
struct prompt_usage {
    uint64_t tokens;   /* all of the prompt, cached ones included */
    bool cached_known; /* it says how many were cached */
    uint64_t cached;
};
/* Strategies that predict what is cached learn from it (A21). The error of the prediction, a share, or
 * negative when there is none. At most once per receipt. */
double balance_learn(struct balancer *b, struct pick_receipt *receipt, const struct prompt_usage *u);

/* Work that is too long for a pick: sizes of mirrors, memory of what was reset. Every second or so, not on a
 * worker; one thread at a time. */
void balance_tend(struct balancer *b);
/* How often target <i>'s mirror was reset for <why> since this was asked last; *ret_is_news when nobody was
 * told of it since it was last right. */
unsigned balance_take_resets(struct balancer *b, unsigned i, enum mirror_reset why, bool *ret_is_news);
const char *mirror_reset_name(enum mirror_reset why);

/* Several gateways in front of the same replicas tell each other where prompts went: which blocks a target
 * got that it did not have, and behind which block they stand. */
struct placement {
    uint64_t target; /* identity */
    uint64_t after;  /* key of the last of the blocks before them; 0 when there are none */
    uint32_t before; /* leading blocks of the prompt that the target had */
    uint32_t n;      /* new ones, >= 1 */
    const uint64_t *keys;
};
enum { PLACEMENT_BLOCKS_MAX = 1 << 20 }; /* of a prompt that is placed: before + n */

/* A sink is called at each pick that adds blocks to a mirror, on the picking thread; it must not wait. NULL
 * takes the sink away. False for strategies that place nothing. Set before the first pick; balancers that
 * come after in this place have it too, and setting the same one again is nothing. */
struct placement_sink {
    void (*placed)(void *arg, const struct placement *p);
    void *arg;
};
bool balance_set_sink(struct balancer *b, const struct placement_sink *sink);

enum place_result {
    PLACE_DONE,
    PLACE_NOBODY, /* no such target here */
    PLACE_LOOSE,  /* the target's mirror does not hold what stands before the blocks */
    PLACE_RESULT_COUNT
};
/* What another gateway told; it is neither charged nor told on. O(before + n). */
enum place_result balance_place(struct balancer *b, const struct placement *p);

/* What is kept of prompts served by target <i>; false when the strategy keeps none. */
bool balancer_prefix_stats(const struct balancer *b, unsigned i, struct prefix_stats *ret);
/* What target <i>'s mirror holds; false when the strategy keeps none. Any thread; takes the lane's lock. */
bool balancer_mirror_stats(const struct balancer *b, unsigned i, struct mirror_stats *ret);
/* The share of its prompt that the target was taken to have cached; negative when the strategy does not say.
 */
double pick_predicted_share(const struct pick *p);
/* Whether picks of this strategy say that. */
bool strategy_predicts(enum strategy_id id);

/* Appends <why> in words, "share=0.83 load=2 least=1 guard=ok runner_up=b/model", or nothing. */
void balance_explain(const struct balancer *b, const struct pick *p, struct buf *out);

/* Fills `eligible` from `allowed` by asking each target once; returns whether it has any. */
bool balance_fill_eligible(const struct balancer *b, const struct reliability *r, struct pick_context *c);

#endif
