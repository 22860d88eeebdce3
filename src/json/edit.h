/* SPDX-License-Identifier: Apache-2.0
 *
 * Edits of a JSON object's members in place: the new text is the old text with a few ranges replaced; bytes
 * that are not edited stay as they were, white space included.
 *
 * Of two edits of the same member or node the later one counts: a member that is set after it was removed is
 * there, one that is removed after it was set is not. Edits inside a member that is removed go with it. A
 * value that is replaced and has an edit inside it as well is refused, whichever came first: one of the two
 * would be lost. Thread: one owner. Memory: the arena.
 */
#ifndef ROLTER_JSON_EDIT_H
#define ROLTER_JSON_EDIT_H

#include "json/json.h"

enum { JSON_EDITS_MAX = 128 };

struct json_edit {
    uint32_t node; /* what is replaced, or the name of the member that goes; JSON_NODE_NONE: a new member */
    bool gone;     /* the member goes */
    struct span text; /* what is put there; lives in the arena. A new member's: comma, name, colon, value */
    struct span name; /* a new member's, unescaped */
};

struct json_edits {
    const struct json_doc *doc;
    struct arena *arena;
    struct json_edit list[JSON_EDITS_MAX]; /* in the order of the calls */
    unsigned n;
    bool overflow; /* more edits than the list holds, or a root that is no object: json_edits_apply refuses */
};

void json_edits_init(struct json_edits *e, const struct json_doc *d, struct arena *a);
/* Sets member <name> of the root object to the JSON text <value>; every duplicate of the name gets it.
 * Appended at the end of the object when absent. <value> and <name> (unescaped) are copied. */
void json_edits_set(struct json_edits *e, struct span name, struct span value);
/* Takes the member (and all its duplicates) out of the root object, with the comma that it leaves over. */
void json_edits_remove(struct json_edits *e, struct span name);
/* Replaces one node, wherever it is, by the JSON text <value>. */
void json_edits_replace(struct json_edits *e, uint32_t node, struct span value);

/* The edited text in the arena; the doc's own text when there are no edits. False after an overflow and when
 * a value and something inside it are both replaced. O(text + members of the root + edits squared). */
bool json_edits_apply(const struct json_edits *e, struct span *ret) MUST_CHECK;

#endif
