/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "base/check.h"
#include "base/hash.h"
#include "cache/lexical_impl.h"

enum { SLOTS = 8192, WORD_MAX = 63 };

/* Built once, read only then. Keys are hashes: 2,700 words in 64 bits do not collide. */
static struct slot {
    uint64_t key;
    struct lexeme lexeme;
} slots[SLOTS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

uint32_t lex_hash(struct span s)
{
    return (uint32_t)hash_bytes_seed(s.p, s.n, 0x6c6578);
}

static uint64_t key_of(enum lex_space space, struct span word)
{
    return hash_bytes_seed(word.p, word.n, 1 + (uint64_t)space) | 1;
}

static struct slot *slot_of(uint64_t key)
{
    size_t i = key >> 32 & (SLOTS - 1);
    while (slots[i].key && slots[i].key != key)
        i = (i + 1) & (SLOTS - 1);
    return &slots[i];
}

/* The first row that names a word counts. */
static void add_words(enum lex_space space, struct lexeme l, const char *words)
{
    struct span rest = span_str(words), word;
    while (span_split(&rest, ' ', &word)) {
        if (!word.n)
            continue;
        CHECK(word.n <= WORD_MAX);
        if (!l.class)
            l.class = lex_hash(word);
        struct slot *s = slot_of(key_of(space, word));
        if (!s->key)
            *s = (struct slot){key_of(space, word), l};
    }
}

static void add_opposites(enum lex_kind kind, uint8_t axis, const char *plus, const char *minus)
{
    add_words(SPACE_WORD, (struct lexeme){.kind = (uint8_t)kind, .axis = axis, .pole = 0}, plus);
    add_words(SPACE_WORD, (struct lexeme){.kind = (uint8_t)kind, .axis = axis, .pole = 1}, minus);
}

static void add_each(const char *words)
{
    struct span rest = span_str(words), word;
    while (span_split(&rest, ' ', &word)) {
        struct slot *s = slot_of(key_of(SPACE_WORD, word));
        if (word.n && !s->key)
            *s = (struct slot){key_of(SPACE_WORD, word), {.kind = LEX_WORD, .class = lex_hash(word)}};
    }
}

static void build(void)
{
    uint8_t axis = 0;
#define KIND(k)           (struct lexeme){.kind = (k)}
#define DROP(w)           add_words(SPACE_WORD, KIND(LEX_NONE), w);
#define LINK(w)           add_words(SPACE_WORD, KIND(LEX_LINK), w);
#define LINK2(name, p, m) add_opposites(LEX_LINK, ++axis, p, m);
#define NEGATION(w)       add_words(SPACE_WORD, KIND(LEX_NEGATION), w);
#define QUESTION(w)       add_words(SPACE_WORD, KIND(LEX_QUESTION), w);
#define MEASURE(w)        add_words(SPACE_MEASURE, KIND(LEX_QUESTION), w);
#define MEASURE_WORD(word, w)                                                                                \
    add_words(SPACE_MEASURE, (struct lexeme){.kind = LEX_WORD, .class = lex_hash(SPAN(word))}, w);
#define DATE(w)        add_words(SPACE_WORD, KIND(LEX_DATE), w);
#define UNIT(w)        add_words(SPACE_WORD, KIND(LEX_UNIT), w);
#define UNIT_CASE(w)   add_words(SPACE_UNIT_CASE, KIND(LEX_UNIT), w);
#define NUMBER(v, w)   add_words(SPACE_WORD, (struct lexeme){.kind = LEX_NUMBER, .value = (v)}, w);
#define SCALE(v, w)    add_words(SPACE_WORD, (struct lexeme){.kind = LEX_SCALE, .value = (v)}, w);
#define OPPOSITE(p, m) add_opposites(LEX_WORD, ++axis, p, m);
#define COMMON(w)      add_words(SPACE_WORD, KIND(LEX_WORD), w);
#define EACH(w)        add_each(w);
#define BRAND(w)       add_words(SPACE_BRAND, KIND(LEX_RARE), w);
#define AMBIGUOUS(w)   add_words(SPACE_AMBIGUOUS, KIND(LEX_RARE), w);
#include "cache/lexical_words.def"
    CHECK(axis > 0 && axis < UINT8_MAX);
}

const struct lexeme *lexicon_get(enum lex_space space, struct span word)
{
    pthread_once(&once, build);
    const struct slot *s = slot_of(key_of(space, word));
    return s->key ? &s->lexeme : NULL;
}

static const struct lexeme *with_ending(struct span stem, const char *ending)
{
    char word[WORD_MAX + 4];
    size_t n = strlen(ending);
    memcpy(word, stem.p, stem.n);
    memcpy(word + stem.n, ending, n);
    return lexicon_get(SPACE_WORD, span_of(word, stem.n + n));
}

static bool ends_with(struct span s, const char *ending, size_t min)
{
    size_t n = strlen(ending);
    return s.n >= min && s.n > n && memcmp(s.p + s.n - n, ending, n) == 0;
}

/* -ing and -ed, with an e or a doubled consonant that went with it. */
static const struct lexeme *verb(struct span word, size_t ending)
{
    struct span stem = span_of(word.p, word.n - ending);
    const struct lexeme *l = with_ending(stem, "");
    if (!l)
        l = with_ending(stem, "e");
    if (!l && stem.n > 2 && stem.p[stem.n - 1] == stem.p[stem.n - 2])
        l = with_ending(span_of(stem.p, stem.n - 1), "");
    return l;
}

const struct lexeme *lexicon_find(struct span word)
{
    if (word.n > WORD_MAX)
        return NULL;
    const struct lexeme *l = lexicon_get(SPACE_WORD, word);
    if (l)
        return l;
    if (ends_with(word, "ies", 5))
        l = with_ending(span_of(word.p, word.n - 3), "y");
    if (!l && ends_with(word, "es", 5))
        l = with_ending(span_of(word.p, word.n - 2), "");
    if (!l && ends_with(word, "s", 4) && word.p[word.n - 2] != 's')
        l = with_ending(span_of(word.p, word.n - 1), "");
    if (!l && ends_with(word, "ing", 5))
        l = verb(word, 3);
    if (!l && ends_with(word, "ed", 4))
        l = verb(word, 2);
    /* Only words have forms: "ins" is no "in". */
    return l && (l->kind == LEX_WORD || l->kind == LEX_UNIT) ? l : NULL;
}
