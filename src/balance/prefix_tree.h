/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree inside the prefix index; for prefix_*.c only.
 *
 * A node stands for one beginning of prompts: the bytes from the root to its end. That beginning, and so
 * `end`, never changes while the node lives. Its text is the last run of it, from where its parent ends:
 *
 *   root ──"system: You are"──▶ A ──" kind.\nuser: "──▶ B ──"hi"──▶ C
 *   end 0                    end 15                 end 28       end 30
 *
 * Splitting puts a new node before one that exists and shortens the latter's text at the front; merging does
 * the reverse. Texts are immutable: a new one takes the old one's place. So a reader that came by an outdated
 * pointer still finds the right bytes, only perhaps more of them than it needs (start < its position: it
 * skips some) or too few (start > its position: it starts again; someone has finished a split meanwhile).
 *
 * Lanes are the columns: a slot's prompts live in a lane until the slot is reset, then the slot gets a new
 * lane and the old one is emptied bit by bit. A lane holds a node when one of its prompts goes through it;
 * one that ends there has a term in it. Holders of a node hold its parent, and every node has a holder. A
 * node that is no term and has one child is merged with it, so the tree depends only on what is resident.
 *
 * Locks. A lane's lock covers its terms, its bit in every node, its entries. A node's lock covers its
 * children, terms, text, parent and holders. Order: lane, then nodes by rising `end`. A reader takes none of
 * them. parent: written under the locks of the node and both parents. Memory: epoch_retire for all that
 * readers see.
 */
#ifndef ROLTER_BALANCE_PREFIX_TREE_H
#define ROLTER_BALANCE_PREFIX_TREE_H

#include "balance/prefix_index.h"
#include "balance/prefix_lock.h"
#include "base/check.h"

enum {
    LANES_MAX = 512, /* slots, and lanes that are being emptied */
    LANE_WORDS = LANES_MAX / 64,
    NODE_CHARGE = 128, /* node 64, text header 8 and TEXT_EARLY, place among the parent's children <= 50 */
    TEXT_CHARGE_EACH = 256, /* bytes of text are charged with one more, for the pointers to pieces */
    NODE_CHARGE_WIDE = 64,  /* holders beyond the first 64 lanes */
    PROMPT_CHARGE = 32,     /* place in a node's list of terms */
    CHUNK_ENTRIES = 64,
    CHUNK_CHARGE = 2064, /* entries are allocated by the chunk and kept for further prompts */
    WALK_TRIES = 64, /* of a reader that writers overtake again and again; then what it has found must do */
    /* Nodes that one walk goes through. Conversations have a node a turn or so; only prompts made for it,
     * that part from one text at each of its bytes, make a path of 32,768, at which every pick of that text
     * would take milliseconds. Beyond the bound text is neither matched nor recorded: a walk claims less,
     * never more. */
    WALK_NODES_MAX = 1024
};

/* Of the prompts' bytes these are [start, start + len). The node's own may begin a little behind <start>: a
 * split that leaves a few bytes to the new node does not copy the rest, and the merge that takes them back
 * finds everything there. */
struct text {
    uint32_t start, len;
    char bytes[]; /* or pointers to pieces: prefix_text.c */
};

struct kids;

struct term {
    uint32_t lane, entry;
};

struct prefix_node {
    struct prefix_lock lock;
    uint32_t end;
    _Atomic(struct prefix_node *) parent; /* NULL: the root */
    _Atomic(struct text *) text;
    _Atomic(struct kids *) kids;      /* NULL: none */
    _Atomic uint64_t hold;            /* lanes 0..63 */
    _Atomic(_Atomic uint64_t *) more; /* lanes 64..: LANE_WORDS - 1 words, or NULL */
    union {
        struct term one;
        struct term *many; /* sorted by lane; cap_terms > 1 */
    };
    atomic_uint_least16_t n_terms; /* written under the lock */
    uint16_t cap_terms;
    atomic_bool dead; /* unlinked; written under the lock */
};
_Static_assert(sizeof(struct prefix_node) <= 64, "a node is a cache line");

/* A resident prompt of a lane. */
struct entry {
    uint64_t serial; /* never the same again in its lane; 0 = free */
    struct prefix_node *node;
    uint32_t newer, older; /* ENTRY_NONE at the ends; free ones are linked by `older` */
    uint32_t records;      /* recordings not withdrawn; stays at UINT32_MAX */
};
enum { ENTRY_NONE = UINT32_MAX };
_Static_assert(sizeof(struct entry) * CHUNK_ENTRIES + 16 <= CHUNK_CHARGE, "chunks are charged in full");

enum lane_state { LANE_FREE, LANE_LIVE, LANE_DYING };

struct lane {
    struct prefix_lock lock;
    uint32_t id;
    atomic_int state;             /* written under the lock */
    _Atomic int64_t nodes, bytes; /* other lanes' splits and merges change them, too */
    _Atomic int64_t allocated;    /* by operations of this lane, minus what they freed; may be negative */
    _Atomic uint64_t evictions;
    _Atomic uint32_t prompts;
    /* under the lock */
    struct entry **chunks;
    uint32_t n_chunks, cap_chunks;
    uint32_t used; /* entries ever taken from the chunks: the most prompts there were at a time */
    uint32_t first_free;
    uint32_t newest, oldest;
    uint64_t serial, serial_begin; /* of the entry made last; of the last one before the slot got this lane */
};

struct tree {
    struct prefix_node *root;
    _Atomic(struct lane *) lanes[LANES_MAX]; /* made when first needed, kept until the end */
    _Atomic uint64_t warmth[LANES_MAX]; /* by lane; side by side, for a pick reads those of all targets */
};

void tree_init(struct tree *t);
void tree_fini(struct tree *t);

/* The entry of the prompt in <lane>; makes one if there is none and tells so. The lane's lock is held. */
uint32_t tree_insert(struct tree *t, struct lane *lane, struct span prompt, const struct prefix_hit *hint,
                     bool *ret_added);
/* Takes the prompt out. The lane's lock is held. */
void tree_remove(struct tree *t, struct lane *lane, uint32_t entry);
void tree_check(struct tree *t);

/* prefix_match.c: without locks, inside a section */

/* How much of <prompt> each lane of the set (<words> words) has: by_lane[] of those. */
void tree_match(const struct tree *t, struct span prompt, const uint64_t *lanes, unsigned words,
                struct prefix_hit *by_lane);

/* A walk down along a prompt: it has come to <node>, whose beginning of <pos> bytes is the prompt's. */
struct walk {
    struct prefix_node *node;
    uint32_t pos;
    /* What the last step saw: */
    struct prefix_node *kid;
    struct text *text; /* NULL: not needed */
    uint32_t common;   /* bytes of the child's text, from <pos>, that the prompt has */
};
enum step {
    STEP_NO_KID,
    STEP_THROUGH, /* the prompt has all of the child; the caller moves on */
    STEP_INSIDE,  /* only a part */
    STEP_OVERTAKEN
};
/* Looks at the child on the prompt's way; there are bytes left. */
enum step walk_step(struct walk *w, struct span prompt);

/* prefix_node.c: single nodes */
struct prefix_node *node_new(struct lane *by, uint32_t end);
/* Some of its text may live on in <heir>; NULL: none of it. */
void node_retire(struct lane *by, struct prefix_node *n, const struct text *heir);
bool node_holds(const struct prefix_node *n, uint32_t lane);
void node_hold(struct lane *by, struct prefix_node *n, uint32_t lane);
void node_unhold(struct prefix_node *n, uint32_t lane);
bool node_is_held(const struct prefix_node *n);
bool node_same_holders(const struct prefix_node *a, const struct prefix_node *b);
void node_copy_holders(struct lane *by, struct prefix_node *to, const struct prefix_node *from);
/* Entry of the lane's prompt that ends here, or ENTRY_NONE. */
uint32_t term_find(const struct prefix_node *n, uint32_t lane);
void term_add(struct lane *by, struct prefix_node *n, struct term t);
void term_drop(struct lane *by, struct prefix_node *n, uint32_t lane);

/* prefix_text.c */
struct text *text_new(struct lane *by, uint32_t start, const char *bytes, uint32_t len);
/* The run [start, end) out of <a>, and of <b> (may be NULL) which begins where <a> ends. It shares pieces
 * with them: either they are retired with the new one as heir, or the new one is, with them as heirs. */
struct text *text_compose(struct lane *by, uint32_t start, uint32_t end, const struct text *a,
                          const struct text *b);
/* But for the pieces that are also in an heir; NULL: there is none. */
void text_retire(struct lane *by, struct text *t, const struct text *heir, const struct text *other_heir);
void text_free(struct text *t);
/* Whether it can be the text of a node whose own begins at <from>. */
enum { TEXT_EARLY = 6 };
bool text_serves(const struct text *t, uint32_t from);
/* What is at <pos> of the prompts; *ret_n bytes lie together there. */
const char *text_at(const struct text *t, uint32_t pos, uint32_t *ret_n);
size_t text_bytes(const struct text *t);
static inline uint8_t text_byte(const struct text *t, uint32_t pos)
{
    uint32_t n;
    return (uint8_t)*text_at(t, pos, &n);
}
/* What a lane is charged for the text of a node from <start> to <end>: the same however it is split. */
static inline int64_t text_charge(uint32_t start, uint32_t end)
{
    return (int64_t)(end - start) + (end / TEXT_CHARGE_EACH - start / TEXT_CHARGE_EACH);
}
/* Calls for each holder with its lane. */
void node_charge_holders(struct tree *t, const struct prefix_node *n, int sign);
int64_t node_charge(uint32_t lane);

/* prefix_kids.c: children of a node, by the first byte of their text */
struct prefix_node *kids_find(const struct kids *k, uint8_t byte);
unsigned kids_count(const struct kids *k);
/* Under the node's lock. */
void kids_put(struct lane *by, struct prefix_node *n, uint8_t byte, struct prefix_node *kid);
void kids_drop(struct lane *by, struct prefix_node *n, uint8_t byte);
/* Of a node that is unlinked: readers may still go on by them. */
void kids_retire(struct lane *by, struct kids *k);
struct prefix_node *kids_only(const struct kids *k);
bool kids_hold(const struct kids *k, uint32_t lane);
/* All children, into ret[256]; how many. */
unsigned kids_list(const struct kids *k, struct prefix_node **ret);
size_t kids_bytes(const struct kids *k);

/* prefix_lane.c */
struct lane *lane_new(uint32_t id);
void lane_free(struct lane *l);
struct entry *lane_entry(const struct lane *l, uint32_t i);
uint32_t lane_entry_add(struct lane *l, struct prefix_node *node);
void lane_entry_drop(struct lane *l, uint32_t i);
void lane_refresh(struct lane *l, uint32_t i);
/* Gives the entries' memory back; there are none left. */
void lane_empty_pool(struct lane *l);

static inline void lane_count(struct lane *l, int64_t nodes, int64_t bytes)
{
    atomic_fetch_add_explicit(&l->nodes, nodes, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->bytes, bytes, memory_order_relaxed);
}

/* Only under the lane's lock, but read by others at any time. */
static inline void lane_allocated(struct lane *l, int64_t bytes)
{
    atomic_store_explicit(&l->allocated, atomic_load_explicit(&l->allocated, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
}

#define LOAD(p)           atomic_load_explicit(&(p), memory_order_acquire)
#define STORE(p, v)       atomic_store_explicit(&(p), (v), memory_order_release)
#define RELAXED(p)        atomic_load_explicit(&(p), memory_order_relaxed)
#define SET_RELAXED(p, v) atomic_store_explicit(&(p), (v), memory_order_relaxed)

#endif
