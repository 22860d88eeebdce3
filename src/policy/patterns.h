/* SPDX-License-Identifier: Apache-2.0
 *
 * Regular expressions of the guardrails: many patterns, one pass. patterns_scan asks once, for all of them,
 * which may match somewhere in a text; patterns_find then gives places, for those alone. Matching takes time
 * linear in the text, whatever the pattern (RE2's automata, leftmost-first semantics, UTF-8); a pattern's
 * program is bounded by PATTERN_PROGRAM_BYTES.
 *
 * For streams a pattern is also asked from where on a text that goes on could still become a match. That
 * needs a second expression, one for all beginnings of what the first one matches (pattern_prefix.h).
 *
 * Thread: immutable after patterns_new and safe for many threads; RE2 guards its lazily built automata by
 * locks of its own, held for one scan.
 */
#ifndef ROLTER_POLICY_PATTERNS_H
#define ROLTER_POLICY_PATTERNS_H

#include "base/span.h"

enum { PATTERN_PROGRAM_BYTES = 1 << 20, PATTERN_WHY = 256 };

struct patterns;

/* False with a reason when <text> is no pattern, is too large, or matches the empty text; with <for_streams>
 * also when its beginnings cannot be expressed. */
bool pattern_check(struct span text, bool for_streams, char ret_why[PATTERN_WHY]);

/* All of <text> have passed pattern_check with the same <for_streams>. Owner: caller. */
struct patterns *patterns_new(const struct span *text, unsigned n, bool for_streams);
void patterns_free(struct patterns *p);

/* Sets the bits of all patterns that may match in <text>; ret_bits has (n + 63) / 64 words. Those that look
 * at the text's very beginning or end (^ $ \A \z) are always set, so several texts may be scanned joined by
 * a NUL: what matches in one of them is never missed. False when no bit is set. O(bytes), no allocation per
 * byte. */
bool patterns_scan(const struct patterns *p, struct span text, uint64_t *ret_bits);

struct pattern_hit {
    size_t at, end; /* end > at */
};

/* The first match of pattern <i> that begins at <from> or behind it. What stands before <from> is seen as
 * context. */
bool patterns_find(const struct patterns *p, unsigned i, struct span text, size_t from,
                   struct pattern_hit *ret);
/* Where in <text>, at <from> or behind it, the part begins that could grow into a match (or into a longer
 * one) if the text went on; text.n when nothing could. Only for_streams. */
size_t patterns_pending(const struct patterns *p, unsigned i, struct span text, size_t from);

#endif
