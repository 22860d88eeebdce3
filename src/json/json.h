/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON reader: one pass over a text builds an index of slices in an arena. Nothing is copied or converted:
 * strings stay escaped in the text, numbers stay text, until somebody asks. The text must live as long as the
 * document.
 *
 * Strict RFC 8259: UTF-8 is checked (and can be let pass), one value and nothing but white space after it, no
 * trailing commas, comments, NaN. Depth, node count and size are bounded. A lone surrogate escape (\ud800)
 * and a duplicate member are legal JSON; they are noted in `odd` because some readers (the cache key) must
 * not trust such a text.
 *
 * Nodes stand in document order: an object's children are name, value, name, value...; `end` is the index
 * behind the whole subtree, so the next sibling of node i is node[i].end. Complexity: O(bytes), no recursion.
 * Thread: a finished document is read-only and may be shared.
 */
#ifndef ROLTER_JSON_JSON_H
#define ROLTER_JSON_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/span.h"

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

enum json_node_flag {
    JSON_ESCAPED = 1, /* a string with at least one backslash */
    JSON_IS_NAME = 2, /* a member's name, not a value */
};

/* The whole text of a node is text[at .. at+len): strings with their quotes, arrays with their brackets. */
struct json_node {
    uint32_t at;
    uint32_t len;
    uint32_t end;   /* index of the node behind this subtree */
    uint32_t count; /* members of an object, items of an array */
    uint8_t type;   /* enum json_type */
    uint8_t flags;  /* enum json_node_flag */
};

enum json_odd {
    JSON_ODD_DUPLICATE = 1,      /* some object has the same name twice (compared after unescaping) */
    JSON_ODD_LONE_SURROGATE = 2, /* some string has an unpaired \uD8xx escape */
    JSON_ODD_INVALID_UTF8 = 4,   /* only where the limits allow it */
};

struct json_doc {
    struct span text;
    const struct json_node *node; /* node[0] is the root */
    uint32_t n;
    uint8_t odd; /* enum json_odd, or-ed */
};

struct json_limits {
    uint32_t max_depth; /* 0 = 128 */
    uint32_t max_nodes; /* 0 = 4,000,000 */
    bool any_bytes;     /* strings may be no UTF-8: JSON_ODD_INVALID_UTF8 says so, instead of a fault */
};

struct json_fault {
    size_t at;        /* byte offset */
    const char *what; /* static text: "expected ',' or '}'" */
};

/* False with *ret_fault set (and *ret untouched) when <text> is not one JSON value within the limits; texts
 * of 4 GiB and more are refused. <limits> may be NULL. The arena gets 20 bytes for each node; above 256 nodes
 * the index grows by copying, and what it grew out of stays in the arena. */
bool json_parse(struct arena *a, struct span text, const struct json_limits *limits, struct json_doc *ret,
                struct json_fault *ret_fault) MUST_CHECK;

/* JSON_NODE_NONE stands for "no such node"; every reader below accepts it and answers "nothing". */
#define JSON_NODE_NONE UINT32_MAX

/* Value of member <name> of object <obj> (the last one when doubled), or JSON_NODE_NONE. O(members). */
uint32_t json_get(const struct json_doc *d, uint32_t obj, const char *name);
/* How many members of <obj> have this name. */
unsigned json_count_name(const struct json_doc *d, uint32_t obj, const char *name);
bool json_is(const struct json_doc *d, uint32_t i, enum json_type type);

/* Iteration. Arrays: for (i = json_first(d, a); i != JSON_NODE_NONE; i = json_next(d, a, i)).
 * Objects: the same gives the NAME nodes; the value of name node i is node i + 1, and json_next steps over
 * it. */
uint32_t json_first(const struct json_doc *d, uint32_t container);
uint32_t json_next(const struct json_doc *d, uint32_t container, uint32_t i);

/* The node's bytes in the text (strings with quotes). */
struct span json_raw(const struct json_doc *d, uint32_t i);
/* A string's content; unescaped into the arena when it has escapes, else a slice of the text. A lone
 * surrogate becomes U+FFFD. SPAN_NONE for other nodes. */
struct span json_string(const struct json_doc *d, uint32_t i, struct arena *a);
/* Compares a string node's content (after unescaping) with <s>. No allocation. */
bool json_string_eq(const struct json_doc *d, uint32_t i, struct span s);
/* Streams a string's unescaped content piece by piece to <put>; no allocation. */
void json_string_each(const struct json_doc *d, uint32_t i, void (*put)(void *arg, const char *p, size_t n),
                      void *arg);
bool json_is_utf8(struct span s);
/* Integer without fraction or exponent, in range. */
bool json_u64(const struct json_doc *d, uint32_t i, uint64_t *ret);
/* False beyond a double's range; what is too small for one gives zero. */
bool json_double(const struct json_doc *d, uint32_t i, double *ret);

/* Streams a node as compact JSON (insignificant white space gone, everything else as written). No allocation.
 */
void json_compact_each(const struct json_doc *d, uint32_t i, void (*put)(void *arg, const char *p, size_t n),
                       void *arg);

#endif
