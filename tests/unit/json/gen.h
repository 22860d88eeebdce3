/* SPDX-License-Identifier: Apache-2.0
 *
 * Random JSON documents for the tests of the reader and of the edits.
 */
#ifndef ROLTER_TESTS_JSON_GEN_H
#define ROLTER_TESTS_JSON_GEN_H

#include "base/buf.h"
#include "base/rng.h"

struct gen {
    struct rng rng;
    struct buf b;
    bool plain;  /* no white space, no escapes, whole numbers only, no duplicate names: what a dump gives back
                  */
    bool unique; /* no duplicate names */
    unsigned names;
};

static inline unsigned gen_below(struct gen *g, unsigned n)
{
    return (unsigned)rng_below(&g->rng, n);
}

static inline void gen_space(struct gen *g)
{
    static const char *const spaces[] = {" ",      "\n", "\t", "\r", "  ", "\n                        ",
                                         " \n \t "};
    if (!g->plain && gen_below(g, 4) == 0)
        buf_add_str(&g->b, spaces[gen_below(g, 7)]);
}

static inline void gen_char(struct gen *g)
{
    static const char *const wide[] = {"é", "ß", "世", "界", "€", "😀", "𝄞", "\xef\xbf\xbf", "\xc2\x80"};
    static const char *const escapes[] = {
        "\\n",     "\\\"",    "\\\\",           "\\/",    "\\t", "\\u0041", "\\u00e9",
        "\\u20AC", "\\u4e16", "\\uD83D\\ude00", "\\b",    "\\f", "\\r",     "\\u001f",
        "\\u0022", "\\u005c", "\\uDBFF\\uDFFF", "\\u0000"};
    unsigned kind = gen_below(g, 20);
    if (kind == 0)
        buf_add_str(&g->b, wide[gen_below(g, 9)]);
    else if (kind == 1 && !g->plain)
        buf_add_str(&g->b, escapes[gen_below(g, 18)]);
    else
        buf_add_char(&g->b, "abcdefghijklmnopqrstuvwxyz ABC{}[]:,0123'\x7f"[gen_below(g, 42)]);
}

static inline void gen_string(struct gen *g)
{
    unsigned n = gen_below(g, 8) == 0 ? gen_below(g, 200) : gen_below(g, 12);
    buf_add_char(&g->b, '"');
    while (n-- > 0)
        gen_char(g);
    buf_add_char(&g->b, '"');
}

static inline void gen_name(struct gen *g)
{
    if (g->plain || g->unique) {
        buf_printf(&g->b, "\"%s%u\"", gen_below(g, 2) ? "name" : "n", g->names++);
        return;
    }
    static const char *const few[] = {"\"a\"",    "\"b\"",       "\"\\u0061\"",   "\"\"",
                                      "\"role\"", "\"content\"", "\"r\\u006fle\""};
    if (gen_below(g, 3) == 0)
        buf_add_str(&g->b, few[gen_below(g, 7)]);
    else
        buf_printf(&g->b, "\"%s%u\"", gen_below(g, 2) ? "n\\u0061m\\/" : "k", gen_below(g, 200));
}

static inline void gen_number(struct gen *g)
{
    if (gen_below(g, 2))
        buf_add_char(&g->b, '-');
    buf_add_u64(&g->b, 1 + rng_u64(&g->rng) % (gen_below(g, 2) ? 1000 : 4000000000000000000));
    if (g->plain)
        return;
    if (gen_below(g, 3) == 0)
        buf_printf(&g->b, ".%u", gen_below(g, 100000));
    if (gen_below(g, 4) == 0)
        buf_printf(&g->b, "%c%s%u", "eE"[gen_below(g, 2)],
                   gen_below(g, 2)   ? "-"
                   : gen_below(g, 2) ? "+"
                                     : "",
                   gen_below(g, 40));
}

static inline void gen_value(struct gen *g, unsigned depth);

static inline void gen_container(struct gen *g, unsigned depth, bool object)
{
    unsigned n = gen_below(g, 12) == 0 ? gen_below(g, 60) : gen_below(g, 6);
    buf_add_char(&g->b, object ? '{' : '[');
    gen_space(g);
    for (unsigned i = 0; i < n; i++) {
        if (i > 0) {
            buf_add_char(&g->b, ',');
            gen_space(g);
        }
        if (object) {
            gen_name(g);
            gen_space(g);
            buf_add_char(&g->b, ':');
            gen_space(g);
        }
        gen_value(g, depth > 0 ? depth - 1 : 0);
        gen_space(g);
    }
    buf_add_char(&g->b, object ? '}' : ']');
}

static inline void gen_value(struct gen *g, unsigned depth)
{
    static const char *const words[] = {"true", "false", "null", "0"};
    unsigned kind = gen_below(g, depth > 0 ? 8 : 4);
    if (kind >= 4)
        gen_container(g, depth, kind >= 6);
    else if (kind == 0)
        buf_add_str(&g->b, words[gen_below(g, 4)]);
    else if (kind == 1)
        gen_number(g);
    else
        gen_string(g);
}

/* A document in g->b, valid until the next one. */
static inline struct span gen_doc(struct gen *g)
{
    buf_clear(&g->b);
    g->names = 0;
    gen_space(g);
    gen_value(g, 1 + gen_below(g, 5));
    gen_space(g);
    return buf_view(&g->b);
}

static inline struct span gen_object(struct gen *g)
{
    buf_clear(&g->b);
    g->names = 0;
    gen_space(g);
    gen_container(g, gen_below(g, 4), true);
    gen_space(g);
    return buf_view(&g->b);
}

/* Collects what a stream of pieces gives. */
static inline void gen_collect(void *arg, const char *p, size_t n)
{
    buf_add(arg, p, n);
}

#endif
