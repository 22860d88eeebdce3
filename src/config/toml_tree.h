/* SPDX-License-Identifier: Apache-2.0
 *
 * A TOML 1.0 text as a tree of C structs that know where they stood. The only place that knows the TOML
 * library; no exception leaves it. A syntax fault ends the reading, so there is at most one of them in a
 * text.
 *
 * Limits, because a text may come from anywhere: TOML_MAX_BYTES, nesting of brackets TOML_MAX_BRACKETS, parts
 * of a dotted key TOML_MAX_PARTS. They also bound every recursion over a tree.
 */
#ifndef ROLTER_CONFIG_TOML_TREE_H
#define ROLTER_CONFIG_TOML_TREE_H

#include "base/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TOML_MAX_BYTES = 64 << 20, TOML_MAX_BRACKETS = 32, TOML_MAX_PARTS = 16 };

enum toml_kind {
    TOML_K_TABLE,
    TOML_K_ARRAY,
    TOML_K_STRING,
    TOML_K_INTEGER,
    TOML_K_FLOAT,
    TOML_K_BOOL,
    TOML_K_DATE
};

/* Both from 1; columns count characters. */
struct toml_place {
    unsigned line, column;
};

struct toml_node {
    struct span key; /* empty for the items of an array and the root; NUL-terminated */
    struct toml_place key_at;
    struct toml_place at; /* the value; a table's is its header or brace */
    struct toml_node *next;
    struct toml_node *first; /* items in order, members of a table in the order of the text */
    unsigned n;              /* how many children */
    enum toml_kind kind;
    bool boolean;
    bool date_has_offset; /* a date with a time and an offset from UTC */
    int64_t integer;
    double number;
    struct span string; /* TOML_K_STRING, and the text of a TOML_K_DATE in RFC 3339's form; NUL-terminated */
};

struct toml_fault {
    struct toml_place at;
    char what[256];
};

/* NULL with *ret_fault set when <text> is not TOML. Nodes and strings live in <a>. */
const struct toml_node *toml_tree_parse(struct arena *a, struct span text, struct toml_fault *ret_fault);
/* The member <name> of a table, or NULL. O(members). */
const struct toml_node *toml_tree_get(const struct toml_node *table, struct span name);
/* "a string", "an integer"... for messages. */
const char *toml_kind_name(enum toml_kind kind);

#ifdef __cplusplus
}
#endif

#endif
