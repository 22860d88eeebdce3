/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry of the semantic index as bytes for Redis: everything but the body, which stands under its exact
 * key. 72 bytes, the gate's signature, the floats; little endian.
 */
#ifndef ROLTER_CACHE_SEMANTIC_RECORD_H
#define ROLTER_CACHE_SEMANTIC_RECORD_H

#include "base/buf.h"
#include "cache/embedding.h"
#include "cache/vectors.h"

enum { SEMANTIC_RECORD_HEAD = 72 };

void semantic_record_write(struct buf *b, const struct vectors_entry *e, const struct embedding *vector);
/* False when <bytes> are not a whole record of this layout with a vector that has a direction. The entry's
 * note is a slice of <bytes>; *ret_vector is the caller's. */
bool semantic_record_read(struct span bytes, struct vectors_entry *ret_entry,
                          struct embedding **ret_vector) MUST_CHECK;

#endif
