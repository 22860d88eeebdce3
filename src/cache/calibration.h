/* SPDX-License-Identifier: Apache-2.0
 *
 * What a threshold buys: labelled pairs of texts and their similarities in, hits and precision by threshold
 * out. A bare number says nothing about another model's vectors.
 *
 * Pairs come as CSV (RFC 4180) with a head line: columns `a`, `b`, `same` (1 or 0, true or false, yes or no)
 * and optionally `similarity`; others are skipped. Thread: one owner.
 */
#ifndef ROLTER_CACHE_CALIBRATION_H
#define ROLTER_CACHE_CALIBRATION_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"

struct labelled_pair {
    struct span a, b;
    bool same; /* a reply to one may answer the other */
    bool has_similarity;
    double similarity;
    const char *differ; /* the lexical gate's word, or NULL */
};

struct labelled_pairs {
    struct labelled_pair *at;
    size_t n, cap;
};

/* False with a text in <why> (256 bytes) that names the line. Texts are in the arena. The gate is asked. */
bool labelled_pairs_read(struct span csv, struct arena *a, struct labelled_pairs *ret, char *why) MUST_CHECK;
void labelled_pairs_fini(struct labelled_pairs *p);

/* Of all pairs: <same> of them are; at a threshold <hits> pass, <right> of which are the same. */
struct calibration {
    double threshold;
    size_t pairs, same, hits, right;
};
/* With <gate>, pairs that differ lexically are no hits. O(pairs). */
struct calibration calibration_at(const struct labelled_pairs *p, double threshold, bool gate);
/* The lowest threshold (in steps of 0.001) from which on, up to 1, wrong hits are at most <error> of all
 * hits; false when there is none at which anything hits. */
bool calibration_choose(const struct labelled_pairs *p, double error, bool gate, struct calibration *ret);
/* Upper end of the 95 % interval (Wilson) of a share of <wrong> in <n>: few pairs prove little. */
double calibration_upper(size_t wrong, size_t n);
/* Both curves as a table, and the choices for <error>. */
void calibration_print(const struct labelled_pairs *p, double error, struct buf *out);

#endif
