/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures: the words of a text as tokens.
 */
#include "cache/lexical.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "cache/lexical_impl.h"

struct signer {
    struct arena *arena;
    unsigned char *out;
    unsigned n;
    struct hash_stream rest;
    bool has_rest;
    /* a number that is being read: "two hundred five" */
    bool in_number, has_scale, fraction;
    double total, group;
    uint64_t last_value; /* of the word before: "twenty" takes "five" */
    struct span digits;  /* as written, while no scale came */
    bool after_verb;     /* the word before may be one that somebody is the object of */
    bool asks_price;     /* a price is named, so "how much" says nothing more */
};

static void put_token(struct signer *s, struct lex_token t)
{
    unsigned char b[TOKEN_BYTES] = {(unsigned char)t.hash,
                                    (unsigned char)(t.hash >> 8),
                                    (unsigned char)(t.hash >> 16),
                                    (unsigned char)(t.hash >> 24),
                                    t.kind,
                                    t.cas,
                                    t.axis,
                                    t.shape};
    if (s->n < TOKENS_MAX) {
        memcpy(s->out + SIGNATURE_HEAD + s->n++ * TOKEN_BYTES, b, TOKEN_BYTES);
        return;
    }
    if (!s->has_rest)
        hash_begin(&s->rest);
    s->has_rest = true;
    hash_update(&s->rest, b, TOKEN_BYTES);
}

static void put_kind(struct signer *s, enum lex_kind kind, uint32_t hash)
{
    put_token(s, (struct lex_token){.hash = hash, .kind = (uint8_t)kind});
}

static void end_number(struct signer *s)
{
    if (!s->in_number)
        return;
    struct span text = s->digits;
    if (!text.p) {
        double v = s->total + s->group;
        text = span_str(arena_printf(s->arena, "%.15g", v));
    }
    put_kind(s, LEX_NUMBER, lex_hash(text));
    s->in_number = false;
}

static void begin_number(struct signer *s, double group, struct span digits)
{
    end_number(s);
    s->in_number = true;
    s->has_scale = false;
    s->total = 0;
    s->group = group;
    s->last_value = 0;
    s->digits = digits;
}

static void number_word(struct signer *s, uint64_t v)
{
    bool joins = s->in_number && !s->digits.p &&
                 ((s->last_value >= 20 && s->last_value < 100 && v > 0 && v < 10) ||
                  (s->last_value >= 100 && v < 100));
    if (joins)
        s->group += (double)v;
    else
        begin_number(s, (double)v, SPAN_NONE);
    s->last_value = v;
}

static void scale_word(struct signer *s, uint64_t scale)
{
    if (!s->in_number)
        begin_number(s, 1, SPAN_NONE);
    if (s->digits.p && s->digits.n > 15) {
        end_number(s);
        put_kind(s, LEX_NUMBER, (uint32_t)scale);
        return;
    }
    s->digits = SPAN_NONE;
    s->group *= (double)scale;
    if (scale >= 1000) {
        s->total += s->group;
        s->group = 0;
    }
    s->last_value = scale;
}

static uint8_t shape_of(struct span as_written)
{
    return (uint8_t)lex_hash(as_written);
}

/* Plurals of rare words are the words, but for names ("Alien", "Aliens"). */
static uint32_t rare_hash(struct span w, enum letter_case cas)
{
    if ((cas == CASE_LOWER || cas == CASE_START) && w.n >= 5 && w.p[w.n - 1] == 's' && w.p[w.n - 2] != 's' &&
        w.p[w.n - 2] != 'u' && w.p[w.n - 2] != 'i')
        w.n--;
    return lex_hash(w);
}

static void put_rare(struct signer *s, const struct raw_word *w, bool known)
{
    bool ambiguous = known || w->text.n <= 3 || lexicon_get(SPACE_AMBIGUOUS, w->text);
    put_token(s, (struct lex_token){.hash = rare_hash(w->text, w->cas),
                                    .kind = LEX_RARE,
                                    .cas = (uint8_t)(w->cas | (ambiguous ? TOKEN_AMBIGUOUS : 0)),
                                    .shape = w->cas == CASE_MIXED ? shape_of(w->as_written) : 0});
}

/* A word that the lexicon knows, but that is written as a name: US, May, Go. */
static bool is_name(const struct raw_word *w, const struct lexeme *l)
{
    if (w->cas == CASE_UPPER)
        return l->kind != LEX_UNIT && l->kind != LEX_DATE && !span_eq(w->text, SPAN("ok")) &&
               !span_eq(w->text, SPAN("pin")) && !span_eq(w->text, SPAN("atm")) &&
               !span_eq(w->text, SPAN("pc")) && !span_eq(w->text, SPAN("tv")) &&
               !span_eq(w->text, SPAN("id"));
    return w->cas == CASE_CAPITAL &&
           (l->kind == LEX_NONE || l->kind == LEX_LINK || lexicon_get(SPACE_AMBIGUOUS, w->text));
}

static void put_lexeme(struct signer *s, const struct lexeme *l, enum letter_case cas)
{
    if (l->kind == LEX_NONE)
        return;
    bool is_word = l->kind == LEX_WORD;
    put_token(s, (struct lex_token){
                     .hash = l->class,
                     .kind = l->kind,
                     .cas = (uint8_t)((is_word ? cas | TOKEN_AMBIGUOUS : 0) | (l->pole ? TOKEN_POLE : 0)),
                     .axis = l->axis});
}

static bool is_plain_word(const struct raw_words *w, size_t i)
{
    return i < w->n && w->at[i].type == RAW_WORD && !w->at[i].quoted;
}

/* Words <i> to <i> + <n> - 1 as one of the lexicon's phrases. */
static const struct lexeme *phrase(const struct raw_words *w, size_t i, size_t n, struct arena *a)
{
    size_t bytes = n;
    for (size_t k = 0; k < n; k++) {
        if (!is_plain_word(w, i + k) || (k + 1 < n && w->at[i + k].ends))
            return NULL;
        bytes += w->at[i + k].text.n;
    }
    if (bytes > 60)
        return NULL;
    char *p = arena_alloc(a, bytes), *to = p;
    for (size_t k = 0; k < n; k++) {
        if (k)
            *to++ = '_';
        memcpy(to, w->at[i + k].text.p, w->at[i + k].text.n);
        to += w->at[i + k].text.n;
    }
    return lexicon_get(SPACE_WORD, span_of(p, (size_t)(to - p)));
}

/* how many, how long... Returns the words taken. */
static size_t put_how(struct signer *s, const struct raw_words *w, size_t i)
{
    if (!span_eq(w->at[i].text, SPAN("how")) || !is_plain_word(w, i + 1) || w->at[i].ends)
        return 0;
    const struct lexeme *l = lexicon_get(SPACE_MEASURE, w->at[i + 1].text);
    if (!l)
        return 0;
    if (l->kind == LEX_WORD)
        put_lexeme(s, l, CASE_LOWER);
    else if (!s->asks_price || !span_eq(w->at[i + 1].text, SPAN("much")))
        put_kind(s, LEX_QUESTION, l->class ^ 0x686f77); /* "how many" is not "many" */
    return 2;
}

static void put_single(struct signer *s, const struct raw_word *w)
{
    const struct lexeme *l = lexicon_find(w->text);
    if (w->quoted || !l || w->cas == CASE_MIXED || is_name(w, l)) {
        end_number(s);
        s->after_verb = true;
        put_rare(s, w, l != NULL);
        return;
    }
    if (l->kind == LEX_SCALE) {
        scale_word(s, l->value);
        return;
    }
    if (l->kind == LEX_NUMBER) {
        /* "seconds" are a unit; "a second" behind a number is one, too */
        number_word(s, l->value);
        return;
    }
    if (s->in_number && s->last_value >= 100 && span_eq(w->text, SPAN("and")))
        return; /* two hundred and five */
    end_number(s);
    static const struct lexeme object = {.kind = LEX_WORD, .class = 0x6d65};
    bool is_object = s->after_verb && (span_eq(w->text, SPAN("me")) || span_eq(w->text, SPAN("us")) ||
                                       span_eq(w->text, SPAN("him")) || span_eq(w->text, SPAN("them")));
    put_lexeme(s, is_object ? &object : l, w->cas); /* "teach me", but not "tell me" */
    s->after_verb = l->kind == LEX_WORD;
}

static void put_raw(struct signer *s, const struct raw_words *w, size_t *io)
{
    const struct raw_word *r = &w->at[*io];
    if (r->type == RAW_WORD) {
        for (size_t n = 3; n >= 2; n--) {
            const struct lexeme *l = r->quoted ? NULL : phrase(w, *io, n, s->arena);
            if (l) {
                end_number(s);
                put_lexeme(s, l, CASE_LOWER);
                *io += n;
                return;
            }
        }
        size_t how = r->quoted ? 0 : put_how(s, w, *io);
        if (!how)
            put_single(s, r);
        *io += how ? how : 1;
        return;
    }
    *io += 1;
    if (r->type == RAW_NUMBER) {
        begin_number(s, strtod(arena_printf(s->arena, "%.*s", SPAN_FMT(r->text)), NULL), r->text);
        return;
    }
    if (r->type == RAW_UNIT) {
        const struct lexeme *l = lexicon_get(SPACE_WORD, r->text);
        if (!l || l->kind != LEX_UNIT)
            l = lexicon_get(SPACE_UNIT_CASE, r->text);
        end_number(s);
        put_kind(s, LEX_UNIT, l ? l->class : lex_hash(r->text));
        return;
    }
    end_number(s);
    put_kind(s, LEX_CODE, lex_hash(r->text));
}

/* A single letter behind a number is a unit: 5 m, 20 C. "one" alone says nothing. */
static void settle(struct raw_words *w)
{
    for (size_t i = 1; i < w->n; i++) {
        struct raw_word *r = &w->at[i];
        if (w->at[i - 1].type != RAW_NUMBER || r->type != RAW_WORD || r->quoted)
            continue;
        if (span_eq(r->text, SPAN("in")) || span_eq(r->text, SPAN("a")))
            continue; /* 5 in a row, 5 a day */
        if (lexicon_get(SPACE_UNIT_CASE, r->as_written)) {
            r->type = RAW_UNIT;
            r->text = r->as_written;
        } else if (span_eq(r->text, SPAN("second"))) {
            r->type = RAW_UNIT;
            r->text = SPAN("seconds");
        }
    }
}

static bool names_price(const struct raw_words *w)
{
    for (size_t i = 0; i < w->n; i++) {
        const struct lexeme *l = w->at[i].type == RAW_WORD ? lexicon_find(w->at[i].text) : NULL;
        if (l && l->class == lex_hash(SPAN("cost")))
            return true;
    }
    return false;
}

struct span lexical_signature(struct span text, struct arena *a)
{
    struct raw_words words;
    struct arena scratch;
    arena_init(&scratch, NULL);
    raw_words_read(&words, text, &scratch);
    settle(&words);
    struct signer *s = MEM_NEW(struct signer);
    s->arena = &scratch;
    s->asks_price = names_price(&words);
    s->out = mem_zalloc(LEXICAL_SIGNATURE_MAX);
    for (size_t i = 0; i < words.n;)
        put_raw(s, &words, &i);
    end_number(s);
    uint64_t rest = s->has_rest ? hash_end(&s->rest) | 1 : 0;
    for (int i = 0; i < SIGNATURE_HEAD; i++)
        s->out[i] = (unsigned char)(rest >> (8 * i));
    struct span made = arena_dup(a, span_of((char *)s->out, SIGNATURE_HEAD + s->n * TOKEN_BYTES));
    free(s->out);
    free(s);
    raw_words_fini(&words);
    arena_reset(&scratch);
    return made;
}
