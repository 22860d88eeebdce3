/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of cache/lexical*.c: words of a text, what the lexicon says about them, tokens of a signature.
 */
#ifndef ROLTER_CACHE_LEXICAL_IMPL_H
#define ROLTER_CACHE_LEXICAL_IMPL_H

#include "cache/lexical.h"

/* How a word is written. At the beginning of a sentence a capital says nothing. */
enum letter_case { CASE_LOWER, CASE_START, CASE_CAPITAL, CASE_UPPER, CASE_MIXED };

enum lex_kind {
    LEX_NONE, /* dropped */
    LEX_NUMBER,
    LEX_UNIT,
    LEX_DATE,
    LEX_CODE,
    LEX_QUESTION,
    LEX_NEGATION,
    LEX_LINK,
    LEX_WORD, /* known */
    LEX_RARE,
    LEX_SCALE, /* lexicon only: hundred, million */
};

/* What a text is cut into. */
enum raw_type { RAW_WORD, RAW_NUMBER, RAW_CODE, RAW_UNIT };
struct raw_word {
    enum raw_type type;
    enum letter_case cas;
    bool quoted;
    bool ends;        /* a sentence or clause ends behind it: no phrase goes on */
    struct span text; /* words in lower case; in the arena or static */
    struct span as_written;
};
struct raw_words {
    struct raw_word *at;
    size_t n, cap;
};
/* Cuts; raw_words_fini frees. */
void raw_words_read(struct raw_words *w, struct span text, struct arena *a);
void raw_words_fini(struct raw_words *w);

struct lexeme {
    uint8_t kind;   /* enum lex_kind */
    uint8_t axis;   /* of opposites, 0 = none */
    uint8_t pole;   /* 0 or 1 */
    bool ambiguous; /* means something else with a capital */
    uint32_t class;
    uint64_t value; /* of numbers and scales */
};
enum lex_space {
    SPACE_WORD = 0,
    SPACE_UNIT_CASE = 1,
    SPACE_MEASURE = 2,
    SPACE_BRAND = 3,
    SPACE_AMBIGUOUS = 4
};
/* NULL when the lexicon does not have it. */
const struct lexeme *lexicon_get(enum lex_space space, struct span word);
/* The same for a word or a form of it: plurals, -ing, -ed. */
const struct lexeme *lexicon_find(struct span word);
uint32_t lex_hash(struct span s);

/* A token of a signature: eight bytes on the wire. */
struct lex_token {
    uint32_t hash;
    uint8_t kind;
    uint8_t cas; /* letter_case, with TOKEN_AMBIGUOUS and TOKEN_POLE or-ed */
    uint8_t axis;
    uint8_t shape; /* of words in mixed case: how they are written */
};
enum { TOKEN_CASE = 7, TOKEN_AMBIGUOUS = 8, TOKEN_POLE = 16, TOKEN_BYTES = 8 };
/* In front of the tokens: digest of what did not fit, or 0. */
enum { SIGNATURE_HEAD = 8, TOKENS_MAX = (LEXICAL_SIGNATURE_MAX - SIGNATURE_HEAD) / TOKEN_BYTES };

#endif
