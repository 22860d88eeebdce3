/* SPDX-License-Identifier: Apache-2.0
 *
 * A text with any number of its ranges replaced; what is not replaced stays byte for byte. Unlike json/edit.h
 * it knows nothing about members, and it takes thousands of ranges. Thread: one owner. Memory: the arena.
 */
#ifndef ROLTER_POLICY_SPLICE_H
#define ROLTER_POLICY_SPLICE_H

#include "base/arena.h"

struct splice_range {
    size_t at, n;
    struct span text; /* what is put there */
};

struct splice {
    struct arena *arena;
    struct splice_range *list;
    unsigned n, cap;
};

void splice_init(struct splice *s, struct arena *a);
/* <text> lives as long as the splice. Ranges come in any order; the same range twice counts once, the first
 * one; others do not overlap. */
void splice_add(struct splice *s, size_t at, size_t n, struct span text);
/* The new text, in the arena. O(text + n log n). */
struct span splice_apply(struct splice *s, struct span text);

#endif
