/* SPDX-License-Identifier: Apache-2.0
 *
 * Edits of a JSON object's members in place: the new text is the old text with a few ranges replaced; bytes
 * that are not edited stay as they were, white space included. Thread: one owner. Memory: the arena.
 */
#ifndef ROLTER_JSON_EDIT_H
#define ROLTER_JSON_EDIT_H

#include "json/json.h"

enum { JSON_EDITS_MAX = 128 };

struct json_edit {
    size_t at;          /* offset in the old text */
    size_t remove;      /* bytes taken out there */
    struct span insert; /* bytes put in their place; lives in the arena or longer */
};

struct json_edits {
    const struct json_doc *doc;
    struct arena *arena;
    struct json_edit list[JSON_EDITS_MAX]; /* sorted by `at`, not overlapping */
    unsigned n;
    bool overflow; /* more edits than the list holds, or overlapping ones: json_edits_apply refuses */
};

void json_edits_init(struct json_edits *e, const struct json_doc *d, struct arena *a);
/* Sets member <name> of the root object to the JSON text <value>; every duplicate of the name gets it.
 * Appended at the end of the object when absent. <value> and <name> (unescaped) are copied. */
void json_edits_set(struct json_edits *e, struct span name, struct span value);
/* Takes the member (and all its duplicates) out of the root object, with the comma that it leaves over. */
void json_edits_remove(struct json_edits *e, struct span name);
/* Replaces one node, wherever it is, by the JSON text <value>. */
void json_edits_replace(struct json_edits *e, uint32_t node, struct span value);

/* The edited text in the arena; the doc's own text when there are no edits. False after an overflow. */
bool json_edits_apply(const struct json_edits *e, struct span *ret) MUST_CHECK;

#endif
