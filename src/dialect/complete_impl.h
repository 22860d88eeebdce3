/* SPDX-License-Identifier: Apache-2.0
 *
 * What the judges of the dialects share. Inside of dialect/.
 */
#ifndef ROLTER_DIALECT_COMPLETE_IMPL_H
#define ROLTER_DIALECT_COMPLETE_IMPL_H

#include "base/check.h"
#include "dialect/complete.h"

/* Choices of a reply, blocks of a message, items of a response: by index. */
enum { COMPLETE_PARTS_MAX = 1024 };

struct part_set {
    uint64_t bits[COMPLETE_PARTS_MAX / 64];
    unsigned n;
};
static inline bool part_set_has(const struct part_set *s, uint64_t i)
{
    return s->bits[i / 64] >> (i % 64) & 1;
}
static inline void part_set_add(struct part_set *s, uint64_t i)
{
    s->n += !part_set_has(s, i);
    s->bits[i / 64] |= (uint64_t)1 << (i % 64);
}
static inline void part_set_remove(struct part_set *s, uint64_t i)
{
    s->n -= part_set_has(s, i);
    s->bits[i / 64] &= ~((uint64_t)1 << (i % 64));
}

struct complete {
    struct complete_options o;
    const struct complete_judge *judge;
    enum complete_verdict verdict; /* the first thing that was found against it */
    struct sse sse;
    bool saw_lf;
    char last_byte;
    bool any_output; /* text that is not only white space, a tool call, audio... */
    bool length_cut;
    bool begun; /* message_start, or a response object, was there */
    bool ended; /* by a terminal reason or status that is good */
    bool over;  /* the terminal event was there */
    struct part_set seen, open;
};

struct complete_judge {
    void (*json)(struct complete *c, const struct json_doc *d);
    void (*event)(struct complete *c, const struct json_doc *d, struct span type);
    void (*done)(struct complete *c); /* the terminal event was there; may be NULL */
    bool done_is_terminal;            /* data: [DONE] is it; elsewhere that may follow the end */
};

extern const struct complete_judge judge_chat, judge_completions, judge_messages, judge_responses,
    judge_embeddings;

static inline void judge_against(struct complete *c, enum complete_verdict v)
{
    if (c->verdict == COMPLETE_OK)
        c->verdict = v;
}

/* A member that is there and not null. */
static inline uint32_t member(const struct json_doc *d, uint32_t obj, const char *name)
{
    uint32_t i = json_get(d, obj, name);
    return json_is(d, i, JSON_NULL) ? JSON_NODE_NONE : i;
}
static inline bool is_word(const struct json_doc *d, uint32_t i, const char *word)
{
    return json_string_eq(d, i, span_str(word));
}
/* A string with something else than white space in it. */
bool has_text(const struct json_doc *d, uint32_t i);
bool is_full_array(const struct json_doc *d, uint32_t i);
/* The index in member <name>, else <otherwise>; false past COMPLETE_PARTS_MAX or when it is no number. */
bool part_index(const struct json_doc *d, uint32_t obj, const char *name, unsigned otherwise, uint64_t *ret);

/* What a finish or stop reason says of the reply; COMPLETE_OK for good ends. */
struct reason_word {
    const char *word;
    enum complete_verdict verdict;
};
enum complete_verdict reason_verdict(const struct json_doc *d, uint32_t reason,
                                     const struct reason_word *table, size_t n);
/* Notes the end for reason <v>: a length cut may be kept. */
void judge_reason(struct complete *c, enum complete_verdict v);

#endif
