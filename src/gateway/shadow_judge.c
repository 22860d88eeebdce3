/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge of shadow mode: does a stored reply to one question say what a fresh reply to another one says?
 */
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"
#include "gateway/semantic.h"
#include "http/sse.h"
#include "policy/texts.h"

enum { WORDS_MAX = 4096, TEXT_MAX = 1 << 20, EVENT_MAX = 1 << 20 };

/* The words of a reply as hashes: numbers apart, in order; other words as a multiset. */
struct words {
    uint32_t word[WORDS_MAX], number[WORDS_MAX];
    unsigned n_words, n_numbers;
};

struct gatherer {
    struct buf text;
    struct arena arena;
};

static void gather_json(struct gatherer *g, struct span json)
{
    struct json_doc d;
    struct json_fault fault;
    struct text_list list;
    arena_reset(&g->arena);
    if (!json_parse(&g->arena, json, NULL, &d, &fault))
        return;
    texts_of_reply(&d, &g->arena, &list);
    for (unsigned i = 0; i < list.n; i++)
        buf_add_span(&g->text, json_string(&d, list.slot[i].node, &g->arena));
}

static void on_event(void *arg, const struct sse_event *e)
{
    if (e->data.n && e->data.p[0] == '{')
        gather_json(arg, e->data);
}

static void gather(struct gatherer *g, struct span body, bool is_stream)
{
    buf_init(&g->text, TEXT_MAX);
    arena_init(&g->arena, NULL);
    if (!is_stream) {
        gather_json(g, body);
    } else {
        struct sse s;
        sse_init(&s, EVENT_MAX);
        sse_feed(&s, body.p, body.n, on_event, g);
        sse_end(&s, on_event, g);
        sse_fini(&s);
    }
    arena_reset(&g->arena);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static void cut(struct span text, struct words *w)
{
    w->n_words = w->n_numbers = 0;
    for (size_t i = 0; i < text.n;) {
        char low[64];
        size_t n = 0;
        bool number = is_digit(text.p[i]);
        while (i < text.n && (is_word_char(text.p[i]) || (number && (text.p[i] == '.' || text.p[i] == ',') &&
                                                          i + 1 < text.n && is_digit(text.p[i + 1])))) {
            char c = text.p[i++];
            if (c == ',' && number)
                continue;
            if (n < sizeof(low))
                low[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
        }
        uint32_t h = (uint32_t)hash_bytes(low, n);
        if (n == 0)
            i++;
        else if (number && w->n_numbers < WORDS_MAX)
            w->number[w->n_numbers++] = h;
        else if (!number && w->n_words < WORDS_MAX)
            w->word[w->n_words++] = h;
    }
    qsort(w->word, w->n_words, sizeof(w->word[0]), by_value);
}

static unsigned common(const struct words *a, const struct words *b)
{
    unsigned n = 0;
    for (unsigned i = 0, k = 0; i < a->n_words && k < b->n_words;) {
        if (a->word[i] == b->word[k]) {
            n++;
            i++;
            k++;
        } else if (a->word[i] < b->word[k]) {
            i++;
        } else {
            k++;
        }
    }
    return n;
}

static enum semantic_verdict compare(const struct words *a, const struct words *b)
{
    unsigned all = a->n_words + b->n_words;
    if (all == 0 && a->n_numbers + b->n_numbers == 0)
        return SEMANTIC_UNKNOWN;
    if (a->n_numbers != b->n_numbers ||
        memcmp(a->number, b->number, a->n_numbers * sizeof(a->number[0])) != 0)
        return SEMANTIC_DIFFERS;
    return 2 * common(a, b) * 10 >= all * 6 ? SEMANTIC_AGREES : SEMANTIC_DIFFERS;
}

enum semantic_verdict shadow_judge(struct span a, bool a_is_stream, struct span b, bool b_is_stream)
{
    struct gatherer x, y;
    struct words *w = mem_array(2, sizeof(*w));
    gather(&x, a, a_is_stream);
    gather(&y, b, b_is_stream);
    cut(buf_view(&x.text), &w[0]);
    cut(buf_view(&y.text), &w[1]);
    enum semantic_verdict v = compare(&w[0], &w[1]);
    free(w);
    buf_fini(&x.text);
    buf_fini(&y.text);
    return v;
}
