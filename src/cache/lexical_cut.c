/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a text into words, numbers, units and code.
 */
#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"
#include "cache/lexical_impl.h"

struct cutter {
    struct raw_words *out;
    struct arena *arena;
    bool start;   /* a sentence begins */
    bool in_code; /* between backticks */
    bool in_quotes;
    bool quotes_pair; /* every quotation mark has its partner */
    bool no_case;     /* all in capitals, or every word with one: they say nothing */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}
static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}
static bool is_letter(char c)
{
    return is_lower(c) || is_upper(c) || (unsigned char)c >= 0x80;
}
static bool is_word_char(char c)
{
    return is_letter(c) || is_digit(c);
}

static bool one_of(char c, struct span set)
{
    return memchr(set.p, c, set.n) != NULL;
}

static struct raw_word *add(struct cutter *c, enum raw_type type, struct span text)
{
    struct raw_words *w = c->out;
    if (w->n == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 64;
        w->at = mem_realloc(w->at, w->cap * sizeof(*w->at));
    }
    w->at[w->n] = (struct raw_word){.type = type, .text = text, .as_written = text, .quoted = c->in_quotes};
    return &w->at[w->n++];
}

/* Lower case of ASCII, Latin-1, Greek and Cyrillic; other letters stay as they are. Lengths do not change.
 * Returns whether the character at <p> was a capital. */
static bool fold_char(char *p, size_t n)
{
    unsigned char a = (unsigned char)p[0];
    if (is_upper(p[0])) {
        p[0] = (char)(a + 32);
        return true;
    }
    if (n < 2)
        return false;
    unsigned char b = (unsigned char)p[1];
    if (a == 0xc3 && b >= 0x80 && b <= 0x9e && b != 0x97)
        p[1] = (char)(b + 0x20);
    else if (a == 0xce && b >= 0x91 && b <= 0x9f)
        p[1] = (char)(b + 0x20);
    else if (a == 0xce && b >= 0xa0 && b <= 0xa9)
        p[0] = (char)0xcf, p[1] = (char)(b - 0x20);
    else if (a == 0xd0 && b >= 0x90 && b <= 0x9f)
        p[1] = (char)(b + 0x20);
    else if (a == 0xd0 && b >= 0xa0 && b <= 0xaf)
        p[0] = (char)0xd1, p[1] = (char)(b - 0x20);
    else
        return false;
    return true;
}

static size_t char_bytes(char first)
{
    unsigned char c = (unsigned char)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

static struct span fold(struct span word, struct arena *a, enum letter_case *ret_case)
{
    struct span s = arena_dup(a, word);
    char *p = (char *)s.p;
    size_t capitals = 0, letters = 0;
    bool first = false, later = false;
    for (size_t i = 0; i < s.n;) {
        size_t n = char_bytes(p[i]);
        n = n > s.n - i ? s.n - i : n;
        if (is_letter(p[i])) {
            bool capital = fold_char(p + i, n);
            letters++;
            capitals += capital;
            first = first || (capital && letters == 1);
            later = later || (capital && letters > 1);
        }
        i += n;
    }
    *ret_case = capitals == 0                        ? CASE_LOWER
                : capitals == letters && letters > 1 ? CASE_UPPER
                : first && !later                    ? CASE_CAPITAL
                                                     : CASE_MIXED;
    return s;
}

static void put_code(struct cutter *c, struct span s)
{
    if (!s.n)
        return;
    add(c, RAW_CODE, s);
    c->start = false;
}

static void put_word(struct cutter *c, struct span s)
{
    enum letter_case cas;
    if (!s.n)
        return;
    struct span folded = fold(s, c->arena, &cas);
    if (cas == CASE_MIXED && lexicon_get(SPACE_BRAND, folded))
        cas = CASE_LOWER;
    if (cas == CASE_MIXED && is_lower(s.p[0])) { /* camelCase */
        put_code(c, s);
        return;
    }
    if (cas == CASE_CAPITAL && (c->start || s.n == 1))
        cas = CASE_START;
    if (c->no_case && cas != CASE_MIXED)
        cas = CASE_LOWER;
    struct raw_word *w = add(c, RAW_WORD, folded);
    w->cas = cas;
    w->as_written = s;
    /* Behind a role word a turn begins. */
    c->start = span_eq(folded, SPAN("user")) || span_eq(folded, SPAN("assistant"));
}

/* don't, user's, they're */
static void put_apostrophe(struct cutter *c, struct span s)
{
    ptrdiff_t at = span_find(s, SPAN("'"));
    if (at < 0) {
        put_word(c, s);
        return;
    }
    struct span head = span_of(s.p, (size_t)at), tail = span_of(s.p + at + 1, s.n - (size_t)at - 1);
    if (tail.n == 1 && (tail.p[0] == 't' || tail.p[0] == 'T') && head.n > 1) {
        /* can't, won't: the auxiliary says nothing, the n belongs to the negation */
        add(c, RAW_WORD, SPAN("n't"));
        c->start = false;
        return;
    }
    if (head.n)
        put_word(c, head);
    if (tail.n > 2 || (tail.n && !head.n))
        put_word(c, tail);
}

/* "1,000,000" without commas, "5.00" without its zeros. */
static struct span plain_number(struct cutter *c, struct span s)
{
    char *p = arena_alloc(c->arena, s.n + 1);
    size_t n = 0, comma = SIZE_MAX;
    bool groups = true;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != ',')
            continue;
        bool three = s.n - i > 3 && is_digit(s.p[i + 1]) && is_digit(s.p[i + 2]) && is_digit(s.p[i + 3]) &&
                     (s.n - i == 4 || !is_digit(s.p[i + 4]));
        groups = groups && three && (comma == SIZE_MAX ? i <= 3 : i == comma + 4);
        comma = i;
    }
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] != ',' || !groups)
            p[n++] = s.p[i];
    if (n > 3 && memcmp(p + n - 3, ".00", 3) == 0)
        n -= 3;
    return span_of(p, n);
}

static size_t currency_at(struct span s, struct span *ret)
{
    static const struct {
        struct span sign, name;
    } signs[] = {{{"$", 1}, {"usd", 3}},
                 {{"\xe2\x82\xac", 3}, {"eur", 3}},
                 {{"\xc2\xa3", 2}, {"gbp", 3}},
                 {{"\xc2\xa5", 2}, {"yen", 3}},
                 {{"\xe2\x82\xb9", 3}, {"rupee", 5}}};
    for (size_t i = 0; i < ARRAY_LEN(signs); i++) {
        if (span_starts(s, signs[i].sign)) {
            *ret = signs[i].name;
            return signs[i].sign.n;
        }
    }
    return 0;
}

/* What stands directly behind digits. False: it makes the whole thing no number. */
static bool put_suffix(struct cutter *c, struct span s)
{
    struct span currency;
    enum letter_case cas;
    if (!s.n)
        return true;
    if (s.n == currency_at(s, &currency)) {
        add(c, RAW_UNIT, currency);
        return true;
    }
    if (span_eq(s, SPAN("%"))) {
        add(c, RAW_UNIT, SPAN("percent"));
        return true;
    }
    struct span folded = fold(s, c->arena, &cas);
    if (span_eq(folded, SPAN("st")) || span_eq(folded, SPAN("nd")) || span_eq(folded, SPAN("rd")) ||
        span_eq(folded, SPAN("th")))
        return true;
    if (lexicon_get(SPACE_UNIT_CASE, s)) {
        add(c, RAW_UNIT, s);
        return true;
    }
    const struct lexeme *l = lexicon_get(SPACE_WORD, folded);
    if (!l || (l->kind != LEX_UNIT && l->kind != LEX_DATE))
        return false;
    add(c, l->kind == LEX_UNIT ? RAW_UNIT : RAW_WORD, folded);
    return true;
}

/* Digits with what belongs to them: -5, $20, 3.5, 10:30, 2024-05-01, 5-10, 7pm, 20%. */
static void put_number(struct cutter *c, struct span whole)
{
    struct span s = whole, currency = SPAN_NONE;
    size_t before = c->out->n;
    bool minus = false;
    if (s.p[0] == '-' || s.p[0] == '+') {
        minus = s.p[0] == '-';
        s = span_of(s.p + 1, s.n - 1);
    }
    size_t sign = currency_at(s, &currency);
    s = span_of(s.p + sign, s.n - sign);
    if (s.n && s.p[0] == '#')
        s = span_of(s.p + 1, s.n - 1);
    if (sign)
        add(c, RAW_UNIT, currency);
    while (s.n && (is_digit(s.p[0]) || s.p[0] == '.')) {
        size_t n = 0, dots = 0;
        while (n < s.n && (is_digit(s.p[n]) ||
                           ((s.p[n] == '.' || s.p[n] == ',') && n + 1 < s.n && is_digit(s.p[n + 1])))) {
            dots += s.p[n] == '.';
            n++;
        }
        if (n == 0 || dots > 1)
            goto code;
        struct span digits = plain_number(c, span_of(s.p, n));
        if (minus) {
            char *p = arena_printf(c->arena, "-%.*s", SPAN_FMT(digits));
            digits = span_str(p);
            minus = false;
        }
        add(c, RAW_NUMBER, digits);
        s = span_of(s.p + n, s.n - n);
        size_t to = 0;
        while (to < s.n && !is_digit(s.p[to]) && s.p[to] != ':' && s.p[to] != '-' && s.p[to] != '/')
            to++;
        bool unit_with_slash = s.n && to < s.n && s.p[to] == '/' && !is_digit(s.p[to + (to + 1 < s.n)]);
        if (!put_suffix(c, span_of(s.p, unit_with_slash ? s.n : to)))
            goto code;
        s = unit_with_slash ? SPAN_NONE : span_of(s.p + to, s.n - to);
        if (s.n && !is_digit(s.p[0]))
            s = span_of(s.p + 1, s.n - 1);
    }
    if (s.n)
        goto code;
    c->start = false;
    return;
code:
    c->out->n = before;
    put_code(c, whole);
}

/* What looks like code, a path, an address, a version. */
static bool is_code(struct span s)
{
    size_t slashes = 0, letters = 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i], next = i + 1 < s.n ? s.p[i + 1] : '\0', last = i ? s.p[i - 1] : '\0';
        letters += is_letter(c);
        slashes += c == '/';
        if (one_of(c, SPAN("_\\@=<>{}[]|^*~")) && (is_word_char(next) || is_word_char(last)))
            return true;
        if ((c == ':' && next == ':') || (c == '(' && next == ')') || (c == '+' && next == '+'))
            return true;
        if (c == '.' && is_word_char(next) && (i == 0 || is_word_char(last)))
            return true;
        if (c == '#' && (i == 0 ? is_letter(next) : is_letter(last)))
            return true;
        if (c == '$' && is_letter(next))
            return true;
        if (c == '-' && i == 0 && (is_letter(next) || next == '-'))
            return true;
        if (c == '+' && is_word_char(last) && is_word_char(next))
            return true;
    }
    return letters && (slashes > 1 || (slashes && s.p[0] == '/'));
}

/* U.S., e.g., a.m.: single letters parted by dots. The letters alone, or nothing. */
static struct span abbreviation(struct cutter *c, struct span s)
{
    size_t n = 0;
    char *p = arena_alloc(c->arena, s.n + 1);
    for (size_t i = 0; i < s.n; i++) {
        bool is_dot = i % 2 == 1;
        if (is_dot ? s.p[i] != '.' : !(is_lower(s.p[i]) || is_upper(s.p[i])))
            return SPAN_NONE;
        if (!is_dot)
            p[n++] = s.p[i];
    }
    return n > 1 ? span_of(p, n) : SPAN_NONE;
}

static bool is_number_start(struct span s)
{
    struct span currency;
    size_t i = s.n > 1 && (s.p[0] == '-' || s.p[0] == '+');
    i += currency_at(span_of(s.p + i, s.n - i), &currency);
    if (i < s.n && (s.p[i] == '#' || s.p[i] == '.'))
        i++;
    return i < s.n && is_digit(s.p[i]);
}

/* Letters that are punctuation in UTF-8: dashes, quotes, ellipsis, inverted marks, ideographic stops. Returns
 * the length and what they stand for. */
static size_t wide_punctuation(struct span s, char *ret)
{
    if (s.n >= 3 && (unsigned char)s.p[0] == 0xe2 && (unsigned char)s.p[1] == 0x80) {
        unsigned char c = (unsigned char)s.p[2];
        *ret = c >= 0x90 && c <= 0x95   ? '-'
               : c == 0x98 || c == 0x99 ? '\''
               : c >= 0x9c && c <= 0x9f ? '"'
                                        : ' ';
        return 3;
    }
    if (s.n >= 2 && (unsigned char)s.p[0] == 0xc2) {
        unsigned char c = (unsigned char)s.p[1];
        if (c == 0xa1 || c == 0xbf)
            *ret = ' ';
        else if (c == 0xab || c == 0xbb)
            *ret = '"';
        else
            return 0;
        return 2;
    }
    if (s.n >= 3 && (unsigned char)s.p[0] == 0xe3 && (unsigned char)s.p[1] == 0x80 &&
        (unsigned char)s.p[2] >= 0x81 && (unsigned char)s.p[2] <= 0x82) {
        *ret = '.';
        return 3;
    }
    if (s.n >= 3 && (unsigned char)s.p[0] == 0xef && (unsigned char)s.p[1] == 0xbc &&
        ((unsigned char)s.p[2] == 0x81 || (unsigned char)s.p[2] == 0x8c || (unsigned char)s.p[2] == 0x9f)) {
        *ret = '.';
        return 3;
    }
    return 0;
}

/* The chunk with wide punctuation in ASCII. */
static struct span narrow(struct cutter *c, struct span s)
{
    bool wide = false;
    for (size_t i = 0; i < s.n && !wide; i++)
        wide = (unsigned char)s.p[i] >= 0x80;
    if (!wide)
        return s;
    char *p = arena_alloc(c->arena, s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        char stands_for;
        size_t bytes = wide_punctuation(span_of(s.p + i, s.n - i), &stands_for);
        if (!bytes) {
            p[n++] = s.p[i++];
            continue;
        }
        p[n++] = stands_for == ' ' ? ',' : stands_for;
        i += bytes;
    }
    return span_of(p, n);
}

/* Between separators: one word. */
static void put_plain(struct cutter *c, struct span s)
{
    while (s.n) {
        size_t n = 0;
        while (n < s.n && (is_word_char(s.p[n]) || s.p[n] == '\''))
            n++;
        struct span word = span_of(s.p, n);
        while (word.n && word.p[0] == '\'')
            word = span_of(word.p + 1, word.n - 1);
        while (word.n && word.p[word.n - 1] == '\'')
            word.n--;
        if (word.n && is_digit(word.p[0]))
            put_number(c, word);
        else
            put_apostrophe(c, word);
        n += n < s.n;
        s = span_of(s.p + n, s.n - n);
    }
}

static void put_symbols(struct cutter *c, struct span s)
{
    bool number_before = c->out->n && c->out->at[c->out->n - 1].type == RAW_NUMBER;
    bool all = s.n > 0, is_dash = true;
    for (size_t i = 0; i < s.n; i++) {
        all = all && one_of(s.p[i], SPAN("+-*/=<>%^|~!"));
        is_dash = is_dash && s.p[i] == '-';
    }
    if (all && (!is_dash || number_before) && !(s.n == 1 && s.p[0] == '!'))
        put_code(c, s);
}

static void put_core(struct cutter *c, struct span core, struct span chunk)
{
    struct span letters;
    bool has_word = false;
    for (size_t i = 0; i < core.n; i++)
        has_word = has_word || is_word_char(core.p[i]);
    if (!has_word)
        put_symbols(c, chunk);
    else if ((letters = abbreviation(c, core)).n)
        put_word(c, letters);
    else if (is_number_start(core))
        put_number(c, core);
    else if (lexicon_get(SPACE_WORD, core) && memchr(core.p, '/', core.n))
        put_word(c, core); /* km/h */
    else if (is_code(core))
        put_code(c, core);
    else
        put_plain(c, core);
}

/* A run without spaces. */
static void put_chunk(struct cutter *c, struct span raw)
{
    struct span s = narrow(c, raw);
    size_t before = c->out->n;
    if (c->in_code || memchr(s.p, '`', s.n)) {
        for (size_t i = 0; i < s.n; i++)
            c->in_code ^= s.p[i] == '`';
        while (s.n && (s.p[0] == '`' || s.p[0] == '('))
            s = span_of(s.p + 1, s.n - 1);
        while (s.n && one_of(s.p[s.n - 1], SPAN("`.,?!):")))
            s.n--;
        put_code(c, s);
        return;
    }
    struct span core = s;
    bool open_quote = false, close_quote = false;
    while (core.n && one_of(core.p[0], SPAN("([{\"'<,;:"))) {
        open_quote = open_quote || core.p[0] == '"';
        core = span_of(core.p + 1, core.n - 1);
    }
    size_t stop = core.n;
    while (core.n && one_of(core.p[core.n - 1], SPAN(".,;:!?)]}\"'>"))) {
        if (core.n > 1 && core.p[core.n - 1] == ')' && core.p[core.n - 2] == '(')
            break; /* f() */
        close_quote = close_quote || core.p[core.n - 1] == '"';
        core.n--;
    }
    bool quotes = c->quotes_pair && (open_quote || close_quote);
    if (quotes && open_quote)
        c->in_quotes = true;
    put_core(c, core, s);
    if (quotes && close_quote)
        c->in_quotes = false;
    /* What follows a full stop, a colon or a question mark begins a sentence. */
    for (size_t i = core.n; i < stop; i++) {
        if (c->out->n > before)
            c->out->at[c->out->n - 1].ends = true;
        c->start = c->start || one_of(core.p[i], SPAN(".!?:"));
    }
}

/* Capitals of all words say as little as those of none. */
static bool capitals_say_nothing(struct span text)
{
    size_t words = 0, capital = 0, upper = 0;
    struct span rest = text, w;
    while (span_split(&rest, ' ', &w)) {
        if (span_eq(w, SPAN("user")) || span_eq(w, SPAN("assistant")) || !w.n ||
            !(is_lower(w.p[0]) || is_upper(w.p[0])))
            continue;
        bool all = w.n > 1;
        for (size_t i = 0; i < w.n; i++)
            all = all && !is_lower(w.p[i]);
        words++;
        capital += is_upper(w.p[0]);
        upper += all;
    }
    return words >= 4 && (upper * 10 > words * 8 || capital * 10 > words * 7);
}

void raw_words_read(struct raw_words *w, struct span text, struct arena *a)
{
    *w = (struct raw_words){NULL, 0, 0};
    size_t quotes = 0;
    for (size_t i = 0; i < text.n; i++)
        quotes += text.p[i] == '"';
    struct cutter c = {.out = w,
                       .arena = a,
                       .start = true,
                       .quotes_pair = quotes % 2 == 0,
                       .no_case = capitals_say_nothing(text)};
    struct span rest = text, chunk;
    while (span_split(&rest, ' ', &chunk))
        if (chunk.n)
            put_chunk(&c, chunk);
}

void raw_words_fini(struct raw_words *w)
{
    MEM_FREE(w->at);
}
