/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "balance/epoch.h"
#include "balance/prefix_tree.h"
#include "base/mem.h"

enum { MORE_BYTES = (LANE_WORDS - 1) * sizeof(uint64_t) };
_Static_assert((int)MORE_BYTES <= (int)NODE_CHARGE_WIDE, "wide nodes are charged in full");

struct prefix_node *node_new(struct lane *by, uint32_t end)
{
    struct prefix_node *n = mem_zalloc(sizeof *n);
    n->end = end;
    if (by)
        lane_allocated(by, (int64_t)sizeof *n);
    return n;
}

/* Without terms. Its children stay where they are for readers that are about to go on by it. */
void node_retire(struct lane *by, struct prefix_node *n, const struct text *heir)
{
    kids_retire(by, RELAXED(n->kids));
    text_retire(by, RELAXED(n->text), heir, NULL);
    _Atomic uint64_t *more = RELAXED(n->more);
    lane_allocated(by, -(int64_t)(sizeof *n + (more ? MORE_BYTES : 0)));
    epoch_retire(more, MORE_BYTES);
    epoch_retire(n, sizeof *n);
}

/* Holders */

int64_t node_charge(uint32_t lane)
{
    return lane < 64 ? NODE_CHARGE : NODE_CHARGE + NODE_CHARGE_WIDE;
}

/* The word with the lane's bit, or NULL. */
static _Atomic uint64_t *word_of(const struct prefix_node *n, uint32_t lane)
{
    struct prefix_node *mutable = (struct prefix_node *)n;
    if (lane < 64)
        return &mutable->hold;
    _Atomic uint64_t *more = LOAD(mutable->more);
    return more ? &more[lane / 64 - 1] : NULL;
}

bool node_holds(const struct prefix_node *n, uint32_t lane)
{
    const _Atomic uint64_t *word = word_of(n, lane);
    return word && RELAXED(*word) >> (lane % 64) & 1;
}

static _Atomic uint64_t *more_new(struct lane *by, struct prefix_node *n)
{
    _Atomic uint64_t *more = mem_zalloc(MORE_BYTES);
    lane_allocated(by, MORE_BYTES);
    STORE(n->more, more);
    return more;
}

void node_hold(struct lane *by, struct prefix_node *n, uint32_t lane)
{
    _Atomic uint64_t *word = word_of(n, lane);
    if (!word)
        word = &more_new(by, n)[lane / 64 - 1];
    SET_RELAXED(*word, RELAXED(*word) | (uint64_t)1 << (lane % 64));
}

void node_unhold(struct prefix_node *n, uint32_t lane)
{
    _Atomic uint64_t *word = word_of(n, lane);
    CHECK(word);
    SET_RELAXED(*word, RELAXED(*word) & ~((uint64_t)1 << (lane % 64)));
}

static uint64_t holders_word(const struct prefix_node *n, unsigned w)
{
    if (w == 0)
        return RELAXED(n->hold);
    const _Atomic uint64_t *more = LOAD(n->more);
    return more ? RELAXED(more[w - 1]) : 0;
}

/* Words worth looking at. */
static unsigned holders_words(const struct prefix_node *n)
{
    return RELAXED(n->more) ? LANE_WORDS : 1;
}

bool node_is_held(const struct prefix_node *n)
{
    for (unsigned w = 0; w < holders_words(n); w++)
        if (holders_word(n, w))
            return true;
    return false;
}

bool node_same_holders(const struct prefix_node *a, const struct prefix_node *b)
{
    unsigned words = holders_words(a) > holders_words(b) ? holders_words(a) : holders_words(b);
    for (unsigned w = 0; w < words; w++)
        if (holders_word(a, w) != holders_word(b, w))
            return false;
    return true;
}

void node_copy_holders(struct lane *by, struct prefix_node *to, const struct prefix_node *from)
{
    SET_RELAXED(to->hold, RELAXED(from->hold));
    uint64_t any = 0;
    for (unsigned w = 1; w < holders_words(from); w++)
        any |= holders_word(from, w);
    if (!any)
        return;
    _Atomic uint64_t *more = more_new(by, to);
    for (unsigned w = 1; w < LANE_WORDS; w++)
        SET_RELAXED(more[w - 1], holders_word(from, w));
}

void node_charge_holders(struct tree *t, const struct prefix_node *n, int sign)
{
    for (unsigned w = 0; w < holders_words(n); w++)
        for (uint64_t left = holders_word(n, w); left; left &= left - 1) {
            uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(left);
            lane_count(LOAD(t->lanes[lane]), sign, sign * node_charge(lane));
        }
}

/* Terms: one in the node itself, several in a sorted array */

static struct term *terms_of(const struct prefix_node *n)
{
    return n->cap_terms > 1 ? n->many : (struct term *)&n->one;
}

/* Position of the first term with a lane >= <lane>. */
static unsigned position(const struct prefix_node *n, uint32_t lane)
{
    const struct term *terms = terms_of(n);
    unsigned low = 0, high = RELAXED(n->n_terms);
    while (low < high) {
        unsigned mid = (low + high) / 2;
        if (terms[mid].lane < lane)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

uint32_t term_find(const struct prefix_node *n, uint32_t lane)
{
    unsigned at = position(n, lane);
    const struct term *terms = terms_of(n);
    return at < RELAXED(n->n_terms) && terms[at].lane == lane ? terms[at].entry : ENTRY_NONE;
}

/* Nobody looks at terms without the lock, so the old array is freed at once. */
static void resize(struct lane *by, struct prefix_node *n, unsigned cap)
{
    struct term *old = terms_of(n), *array = cap > 1 ? mem_array(cap, sizeof *array) : NULL;
    struct term first = *old;
    unsigned old_cap = n->cap_terms;
    if (array)
        memcpy(array, old, RELAXED(n->n_terms) * sizeof *array);
    if (old_cap > 1) {
        lane_allocated(by, -(int64_t)(old_cap * sizeof *old));
        free(old);
    }
    if (array) {
        lane_allocated(by, (int64_t)(cap * sizeof *array));
        n->many = array;
    } else {
        n->one = first;
    }
    n->cap_terms = (uint16_t)cap;
}

void term_add(struct lane *by, struct prefix_node *n, struct term t)
{
    unsigned count = RELAXED(n->n_terms), cap = n->cap_terms > 1 ? n->cap_terms : 1;
    if (count == cap)
        resize(by, n, cap * 2);
    struct term *terms = terms_of(n);
    unsigned at = position(n, t.lane);
    memmove(&terms[at + 1], &terms[at], (count - at) * sizeof *terms);
    terms[at] = t;
    SET_RELAXED(n->n_terms, (uint16_t)(count + 1));
}

void term_drop(struct lane *by, struct prefix_node *n, uint32_t lane)
{
    unsigned at = position(n, lane), count = RELAXED(n->n_terms);
    struct term *terms = terms_of(n);
    CHECK(at < count && terms[at].lane == lane);
    memmove(&terms[at], &terms[at + 1], (count - at - 1) * sizeof *terms);
    SET_RELAXED(n->n_terms, (uint16_t)(count - 1));
    if (n->cap_terms > 1 && (count - 1) * 2 <= n->cap_terms / 2u)
        resize(by, n, n->cap_terms / 2u);
}
