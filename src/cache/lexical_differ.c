/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares two signatures.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "cache/lexical_impl.h"

enum { NO_MATCH = -1 };
/* Of more matched words than this none may change places: looking at each pair costs too much. */
enum { ORDER_WORDS_MAX = 256 };

struct side {
    unsigned n;
    struct lex_token *t;
    int *match; /* index of the same word on the other side */
};

struct pair {
    struct side a, b;
};

static struct side read_side(struct span s)
{
    struct side side = {.n = (unsigned)((s.n - SIGNATURE_HEAD) / TOKEN_BYTES)};
    const unsigned char *p = (const unsigned char *)s.p + SIGNATURE_HEAD;
    side.t = mem_array(side.n + 1, sizeof(*side.t));
    side.match = mem_array(side.n + 1, sizeof(*side.match));
    for (unsigned i = 0; i < side.n; i++, p += TOKEN_BYTES) {
        side.t[i] = (struct lex_token){.hash = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                               (uint32_t)p[3] << 24,
                                       .kind = p[4],
                                       .cas = p[5],
                                       .axis = p[6],
                                       .shape = p[7]};
        side.match[i] = NO_MATCH;
    }
    return side;
}

static bool is_kind(const struct lex_token *t, enum lex_kind k)
{
    return t->kind == k;
}

static bool is_content(const struct lex_token *t)
{
    return t->kind == LEX_WORD || t->kind == LEX_RARE;
}

static unsigned next_of(const struct side *s, unsigned i, enum lex_kind k)
{
    while (i < s->n && !is_kind(&s->t[i], k))
        i++;
    return i;
}

static bool same_sequence(const struct pair *p, enum lex_kind k)
{
    unsigned i = next_of(&p->a, 0, k), j = next_of(&p->b, 0, k);
    while (i < p->a.n && j < p->b.n && p->a.t[i].hash == p->b.t[j].hash) {
        i = next_of(&p->a, i + 1, k);
        j = next_of(&p->b, j + 1, k);
    }
    return i == p->a.n && j == p->b.n;
}

/* Each token with the first free one that is the same; in order, so that repeated words keep theirs. */
static void match_all(struct pair *p)
{
    enum { HEADS = 2048 };
    int head[HEADS];
    int *next = mem_array(p->b.n + 1, sizeof(*next));
    for (int i = 0; i < HEADS; i++)
        head[i] = NO_MATCH;
    for (unsigned j = p->b.n; j-- > 0;) {
        next[j] = head[p->b.t[j].hash % HEADS];
        head[p->b.t[j].hash % HEADS] = (int)j;
    }
    for (unsigned i = 0; i < p->a.n; i++) {
        int *at = &head[p->a.t[i].hash % HEADS];
        while (*at != NO_MATCH) {
            const struct lex_token *t = &p->b.t[*at];
            if (t->hash == p->a.t[i].hash && t->kind == p->a.t[i].kind && t->axis == p->a.t[i].axis &&
                (t->cas & TOKEN_POLE) == (p->a.t[i].cas & TOKEN_POLE)) {
                p->a.match[i] = *at;
                p->b.match[*at] = (int)i;
                *at = next[*at];
                break;
            }
            at = &next[*at];
        }
    }
    free(next);
}

/* Whether the other side has all questions of this one, however often. */
static bool asks_the_same(const struct side *a, const struct side *b)
{
    for (unsigned i = 0; i < a->n; i++) {
        bool has = !is_kind(&a->t[i], LEX_QUESTION);
        for (unsigned j = 0; j < b->n && !has; j++)
            has = is_kind(&b->t[j], LEX_QUESTION) && b->t[j].hash == a->t[i].hash;
        if (!has)
            return false;
    }
    return true;
}

/* Whether every token of the kind has its match. */
static bool all_matched(const struct side *s, enum lex_kind k)
{
    for (unsigned i = 0; i < s->n; i++)
        if (is_kind(&s->t[i], k) && s->match[i] == NO_MATCH)
            return false;
    return true;
}

static bool case_agrees(const struct lex_token *a, const struct lex_token *b)
{
    unsigned x = a->cas & TOKEN_CASE, y = b->cas & TOKEN_CASE;
    if (x == CASE_MIXED || y == CASE_MIXED)
        return x == y && a->shape == b->shape;
    if (x == y)
        return true;
    bool ambiguous = (a->cas | b->cas) & TOKEN_AMBIGUOUS;
    if (x == CASE_UPPER || y == CASE_UPPER)
        return !ambiguous;
    if (x == CASE_START || y == CASE_START)
        return true;
    /* lower case and a capital: of a known word it is a matter of taste, of an ambiguous rare one of meaning
     */
    return !ambiguous || a->kind == LEX_WORD;
}

static bool cases_agree(const struct pair *p)
{
    for (unsigned i = 0; i < p->a.n; i++)
        if (is_content(&p->a.t[i]) && p->a.match[i] != NO_MATCH &&
            !case_agrees(&p->a.t[i], &p->b.t[p->a.match[i]]))
            return false;
    return true;
}

static bool has_unmatched(const struct side *s, uint8_t axis, bool pole)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->t[i].axis == axis && s->match[i] == NO_MATCH && !!(s->t[i].cas & TOKEN_POLE) == pole)
            return true;
    return false;
}

/* One side goes up where the other goes down. */
static bool is_opposite(const struct side *a, const struct side *b)
{
    for (unsigned i = 0; i < a->n; i++)
        if (a->t[i].axis && a->match[i] == NO_MATCH &&
            has_unmatched(b, a->t[i].axis, !(a->t[i].cas & TOKEN_POLE)))
            return true;
    return false;
}

/* The link directly in front of a token, with a direction; or NULL. */
static const struct lex_token *link_before(const struct side *s, unsigned i)
{
    return i > 0 && is_kind(&s->t[i - 1], LEX_LINK) && s->t[i - 1].axis ? &s->t[i - 1] : NULL;
}

/* "to Rome from Oslo" and "from Rome to Oslo". */
static bool is_bound_otherwise(const struct pair *p)
{
    for (unsigned i = 0; i < p->a.n; i++) {
        if (p->a.match[i] == NO_MATCH || is_kind(&p->a.t[i], LEX_LINK))
            continue;
        const struct lex_token *x = link_before(&p->a, i), *y = link_before(&p->b, (unsigned)p->a.match[i]);
        if (x && y && x->axis == y->axis && (x->cas & TOKEN_POLE) != (y->cas & TOKEN_POLE))
            return true;
    }
    return false;
}

static bool is_listing(const struct lex_token *t) /* and, or */
{
    return is_kind(t, LEX_LINK) && (t->hash == lex_hash(SPAN("and")) || t->hash == lex_hash(SPAN("or")));
}

/* "Who did Brutus kill?" and "Who killed Brutus?": who does what to whom is all in the order. */
static bool asks_who(const struct side *s)
{
    for (unsigned i = 0; i < s->n; i++)
        if (is_kind(&s->t[i], LEX_QUESTION) && s->t[i].hash == lex_hash(SPAN("who")))
            return true;
    return false;
}

/* Whether something stands between <i> and <k> of a that also stands between <from> and <to> of b. */
static bool is_connected(const struct pair *p, unsigned i, unsigned k, unsigned from, unsigned to)
{
    for (unsigned m = i + 1; m < k; m++) {
        if (is_listing(&p->a.t[m]))
            continue;
        for (unsigned o = from + 1; o < to; o++)
            if (p->a.t[m].hash == p->b.t[o].hash && p->a.t[m].kind == p->b.t[o].kind)
                return true;
    }
    return k == i + 1 && to == from + 1 && is_kind(&p->a.t[i], LEX_RARE) && is_kind(&p->a.t[k], LEX_RARE);
}

/* Words that change places are well ("in Rome the weather", "the weather in Rome"), unless the same word
 * connects them both times ("dog bites man", "man bites dog"), or they are names side by side. */
static bool is_reordered(const struct pair *p)
{
    unsigned matched = 0;
    int last = -1;
    bool moved = false;
    for (unsigned i = 0; i < p->a.n; i++) {
        if (!is_content(&p->a.t[i]) || p->a.match[i] == NO_MATCH)
            continue;
        matched++;
        moved = moved || p->a.match[i] < last;
        last = p->a.match[i] > last ? p->a.match[i] : last;
    }
    if (!moved)
        return false;
    if (matched > ORDER_WORDS_MAX || asks_who(&p->a))
        return true;
    for (unsigned i = 0; i < p->a.n; i++) {
        if (!is_content(&p->a.t[i]) || p->a.match[i] == NO_MATCH)
            continue;
        for (unsigned k = i + 1; k < p->a.n; k++)
            if (is_content(&p->a.t[k]) && p->a.match[k] != NO_MATCH && p->a.match[k] < p->a.match[i] &&
                is_connected(p, i, k, (unsigned)p->a.match[k], (unsigned)p->a.match[i]))
                return true;
    }
    return false;
}

/* What a negation is about: the content words behind it, up to two, not beyond a link. */
static unsigned negated(const struct side *s, unsigned i, uint32_t ret[2])
{
    unsigned n = 0;
    for (i++; i < s->n && n < 2; i++) {
        if (is_content(&s->t[i]))
            ret[n++] = s->t[i].hash;
        else if (n && is_kind(&s->t[i], LEX_LINK))
            break;
    }
    return n;
}

static bool has_hash(const struct side *s, uint32_t hash)
{
    for (unsigned i = 0; i < s->n; i++)
        if (is_content(&s->t[i]) && s->t[i].hash == hash)
            return true;
    return false;
}

/* As many negations, and none of them about words that the other text has elsewhere: "A but not B". */
static bool negations_agree(const struct pair *p)
{
    unsigned i = next_of(&p->a, 0, LEX_NEGATION), j = next_of(&p->b, 0, LEX_NEGATION);
    while (i < p->a.n && j < p->b.n) {
        uint32_t x[2], y[2];
        unsigned nx = negated(&p->a, i, x), ny = negated(&p->b, j, y);
        bool common = nx == 0 || ny == 0;
        for (unsigned k = 0; k < nx * ny; k++)
            common = common || x[k / ny] == y[k % ny];
        if (!common && has_hash(&p->b, x[0]) && has_hash(&p->a, y[0]))
            return false;
        i = next_of(&p->a, i + 1, LEX_NEGATION);
        j = next_of(&p->b, j + 1, LEX_NEGATION);
    }
    return i == p->a.n && j == p->b.n;
}

/* The nearest token on one side that is no link; -1 at the end of the text. */
static long neighbour(const struct side *s, unsigned i, int step)
{
    long at = (long)i + step;
    while (at >= 0 && at < (long)s->n && is_kind(&s->t[at], LEX_LINK))
        at += step;
    return at < (long)s->n ? at : -1;
}

enum likeness { UNLIKE, ENDS_LIKE, LIKE };

static enum likeness like_neighbour(const struct pair *p, unsigned i, unsigned j, int step)
{
    long x = neighbour(&p->a, i, step), y = neighbour(&p->b, j, step);
    if (x < 0 || y < 0)
        return x < 0 && y < 0 ? ENDS_LIKE : UNLIKE;
    return p->a.t[x].hash == p->b.t[y].hash && p->a.t[x].kind == p->b.t[y].kind ? LIKE : UNLIKE;
}

/* Another word in the same place: a neighbour is the same, or both are the ends of their texts. */
static bool is_substituted(const struct pair *p)
{
    for (unsigned i = 0; i < p->a.n; i++) {
        if (!is_content(&p->a.t[i]) || p->a.match[i] != NO_MATCH)
            continue;
        for (unsigned j = 0; j < p->b.n; j++) {
            if (!is_content(&p->b.t[j]) || p->b.match[j] != NO_MATCH)
                continue;
            enum likeness left = like_neighbour(p, i, j, -1), right = like_neighbour(p, i, j, 1);
            if (left == LIKE || right == LIKE || (left == ENDS_LIKE && right == ENDS_LIKE))
                return true;
        }
    }
    return false;
}

/* Words of one side alone ask for something more; and of two texts half of the words are the same. */
static bool is_extra(const struct pair *p)
{
    unsigned only_a = 0, only_b = 0, both = 0;
    for (unsigned i = 0; i < p->a.n; i++)
        if (is_content(&p->a.t[i]))
            *(p->a.match[i] == NO_MATCH ? &only_a : &both) += 1;
    for (unsigned j = 0; j < p->b.n; j++)
        only_b += is_content(&p->b.t[j]) && p->b.match[j] == NO_MATCH;
    unsigned more = only_a > only_b ? only_a : only_b;
    return (only_a == 0) != (only_b == 0) || more > both;
}

static const char *compare(struct pair *p)
{
    static const struct {
        enum lex_kind kind;
        const char *word;
    } sequences[] = {{LEX_NUMBER, "number"}, {LEX_UNIT, "unit"}, {LEX_DATE, "date"}, {LEX_CODE, "code"}};
    for (size_t i = 0; i < ARRAY_LEN(sequences); i++)
        if (!same_sequence(p, sequences[i].kind))
            return sequences[i].word;
    match_all(p);
    if (!asks_the_same(&p->a, &p->b) || !asks_the_same(&p->b, &p->a))
        return "question";
    if (!negations_agree(p))
        return "negation";
    if (!all_matched(&p->a, LEX_RARE) || !all_matched(&p->b, LEX_RARE))
        return "name";
    if (!cases_agree(p))
        return "case";
    if (is_opposite(&p->a, &p->b) || is_bound_otherwise(p))
        return "direction";
    if (is_reordered(p))
        return "order";
    if (is_substituted(p))
        return "place";
    return is_extra(p) ? "extra" : NULL;
}

const char *lexical_differ(struct span a, struct span b)
{
    if (span_eq(a, b))
        return NULL;
    if (a.n < SIGNATURE_HEAD || b.n < SIGNATURE_HEAD || a.n > LEXICAL_SIGNATURE_MAX ||
        b.n > LEXICAL_SIGNATURE_MAX || a.n % TOKEN_BYTES || b.n % TOKEN_BYTES)
        return "damaged";
    if (memcmp(a.p, b.p, SIGNATURE_HEAD) != 0)
        return "rest";
    struct pair p = {read_side(a), read_side(b)};
    const char *why = compare(&p);
    free(p.a.t);
    free(p.a.match);
    free(p.b.t);
    free(p.b.match);
    return why;
}

/* Whether the other signature has each token of this text. */
static bool is_in(const char *from, const char *to, struct span other, struct arena *a)
{
    struct span s = lexical_signature(span_of(from, (size_t)(to - from)), a);
    for (size_t i = SIGNATURE_HEAD; i + TOKEN_BYTES <= s.n; i += TOKEN_BYTES) {
        bool has = false;
        for (size_t k = SIGNATURE_HEAD; k + TOKEN_BYTES <= other.n && !has; k += TOKEN_BYTES)
            has = memcmp(s.p + i, other.p + k, 5) == 0; /* hash and kind */
        if (!has)
            return false;
    }
    return true;
}

static const char *word_end(const char *p, const char *end)
{
    const char *space = memchr(p, ' ', (size_t)(end - p));
    return space ? space : end;
}

unsigned lexical_only(struct span text, struct span other, struct arena *a, struct span *ret, unsigned max)
{
    unsigned n = 0, words = 0;
    const char *end = text.p + text.n, *before = text.p;
    for (const char *p = text.p, *to; p < end && n < max && words < ONLY_WORDS_MAX; before = p, p = to + 1) {
        words++;
        to = word_end(p, end);
        const char *next = to < end ? word_end(to + 1, end) : end;
        /* A word may be half of a phrase: "how much". */
        if (!is_in(p, to, other, a) && !is_in(before, to, other, a) && !is_in(p, next, other, a))
            ret[n++] = span_of(p, (size_t)(to - p));
    }
    return n;
}
