/* SPDX-License-Identifier: Apache-2.0
 *
 * From a regular expression (RE2's syntax) to one that matches every beginning of what the first one matches,
 * the empty one and whole matches included: "ab+" gives what "" , "a", "ab", "abb" match.
 *
 * With it a stream knows how much of its end may still become a match. Assertions (\b ^ $) say nothing about
 * a text that ends where they stand, so the end of the text satisfies each. O(length * depth) time and text.
 */
#ifndef ROLTER_POLICY_PATTERN_PREFIX_H
#define ROLTER_POLICY_PATTERN_PREFIX_H

#include "base/buf.h"

/* Appends the expression. False for syntax that it does not know; <pattern> is one that RE2 accepts. */
bool pattern_prefix(struct span pattern, struct buf *out) MUST_CHECK;
/* Whether the pattern looks at the beginning or the end of the text: ^ $ \A \z outside of classes. True also
 * for what it does not know. */
bool pattern_has_anchor(struct span pattern);

#endif
