/* SPDX-License-Identifier: Apache-2.0
 *
 * The second gate of a semantic hit: two texts whose vectors are near may still ask for different things. A
 * text is read once into a signature, which is kept with its vector; two signatures are compared.
 *
 * Numbers, units, dates, code, what is asked for and the number of negations must agree, in their order where
 * they have one. Rare words (all that the lexicon does not know: names, terms, other languages) must be the
 * same ones, written alike where a capital changes the meaning. Known words may vary, but not in the same
 * place of a sentence, not on one side alone, and not into their opposite; and words that are in both texts
 * must not change places around a word that connects them. The lexicon is English; a text in another language
 * must have the same words.
 *
 * The gate errs on the side of "no". Pure functions; thread: any.
 */
#ifndef ROLTER_CACHE_LEXICAL_H
#define ROLTER_CACHE_LEXICAL_H

#include "base/arena.h"
#include "base/span.h"

/* Goes up whenever signatures of the same text change; part of the semantic layout. */
enum { LEXICAL_VERSION = 1 };
enum { LEXICAL_SIGNATURE_MAX = 8192 };

/* The signature of a text that is valid UTF-8 with its words parted by single spaces (semantic_text). At most
 * LEXICAL_SIGNATURE_MAX bytes; of a longer text the rest is there as a digest. O(bytes). */
struct span lexical_signature(struct span text, struct arena *a);

/* NULL when a reply to one text may answer the other; else a static word that says what differs: rest,
 * number, unit, date, code, question, negation, name, case, word, direction, order, place, extra, damaged.
 * Symmetric. Any bytes may be given. O(n^2) in the words at worst, bounded. */
const char *lexical_differ(struct span a, struct span b);

/* For people: up to <max> of the first ONLY_WORDS_MAX words of <text> of which the other text's signature has
 * nothing. Slices of <text>. Some microseconds a word. */
enum { ONLY_WORDS_MAX = 1000 };
unsigned lexical_only(struct span text, struct span other, struct arena *a, struct span *ret, unsigned max);

#endif
