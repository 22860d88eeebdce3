/* SPDX-License-Identifier: Apache-2.0
 *
 * The canonical form of a request's body, streamed piece by piece into a hasher; nothing is copied or built.
 * Two bodies have the same form if and only if they are the same request by the rules of docs/caching.md:
 *
 *  - members in any order, white space, escapes in strings and the way a number is written do not matter;
 *    numbers are equal as exact decimals (1, 1.0 and 10e-1), without rounding;
 *  - `stream: false` is an absent `stream`; an explicit null is an absent member where the API has fixed
 *    members (the root, turns, parts, tools and their functions, the small option objects), but not inside of
 *    schemas, tool inputs and members that nobody here knows;
 *  - a turn's string content is one text part; an Anthropic system string is one text block; `stop: "x"` is
 *    `["x"]`;
 *  - everything else splits, unknown members and the order of arrays above all.
 *
 * The form is self-delimiting: each value begins with its type, and strings end in a byte that no UTF-8 text
 * contains, so no two different bodies run together to the same bytes.
 *
 * Cost: O(bytes + members log members of an object); allocates for objects with many members only. Thread:
 * any; the document must stay.
 */
#ifndef ROLTER_CACHE_CANON_H
#define ROLTER_CACHE_CANON_H

#include "dialect/dialect.h"

enum canon_leave_out {
    CANON_NO_ATTRIBUTION = 1, /* root members user, metadata */
    CANON_NO_HINTS = 2,       /* root members safety_identifier, prompt_cache_key */
};

/* Where a value stands, which decides the equalities that hold there. */
enum canon_place {
    CANON_PLAIN,   /* JSON as it is */
    CANON_ROOT,    /* the body */
    CANON_TURNS,   /* the conversation */
    CANON_TURN,    /* one of its elements */
    CANON_CONTENT, /* of a turn, or Anthropic's system */
    CANON_TOOLS,
    CANON_TOOL,
    CANON_STOP,
    CANON_OPTIONS, /* an object with fixed members */
};

typedef void canon_put_fn(void *arg, const char *p, size_t n);

struct canon {
    const struct json_doc *doc;
    enum dialect_id dialect;
    unsigned leave_out;       /* enum canon_leave_out, or-ed */
    const struct span *names; /* further root members that are left out */
    unsigned n_names;
    const struct span *nulls; /* root members where null says something that absence does not */
    unsigned n_nulls;
    struct arena *arena; /* for names with escapes */
    canon_put_fn *put;
    void *arg;
};

/* NULL when the body has a canonical form; else why it has none, one static word: not_an_object,
 * duplicate_member, invalid_utf8, lone_surrogate, too_many_members. */
const char *canon_refuses(const struct json_doc *d);

/* The whole body. Only for documents that canon_refuses lets pass. */
void canon_body(const struct canon *c);
/* One element of the conversation (a message, an input item), with the equalities of turns. */
void canon_turn(const struct canon *c, uint32_t node);
/* A root member's value, with the equalities that its place brings. */
void canon_member(const struct canon *c, uint32_t name_node);
/* Whether root member <name_node> is in the form at all: not left out, not null, not `stream: false`. */
bool canon_has_member(const struct canon *c, uint32_t name_node);
/* A value without any equality but those of JSON itself. */
void canon_plain(const struct canon *c, uint32_t node);

/* For those who walk through a body themselves: the form of the value at <place>; the place of a member and
 * of an item of a value there; whether a member is in the form; whether an array stands for one text. */
void canon_value(const struct canon *c, uint32_t node, enum canon_place place);
enum canon_place canon_place_of_member(const struct canon *c, enum canon_place place, struct span name);
enum canon_place canon_place_of_item(enum canon_place place);
bool canon_keeps(const struct canon *c, enum canon_place place, struct span name, uint32_t value);
bool canon_is_one_text(const struct canon *c, uint32_t array, enum canon_place place);

#endif
