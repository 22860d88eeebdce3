/* SPDX-License-Identifier: Apache-2.0
 *
 * A provider's reply and a record of the semantic index: what is accepted has a direction and, written again,
 * is the same. The first byte says which.
 */
#include <stdlib.h>

#include "base/check.h"
#include "cache/embedding.h"
#include "cache/semantic_record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_record(struct span bytes)
{
    struct vectors_entry e;
    struct embedding *v;
    if (!semantic_record_read(bytes, &e, &v))
        return;
    struct buf b;
    buf_init(&b, SIZE_MAX);
    CHECK(vectors_is_direction(v->x, v->dims) && e.note.n <= VECTORS_NOTE_MAX);
    semantic_record_write(&b, &e, v);
    CHECK(span_eq(buf_view(&b), bytes));
    buf_fini(&b);
    embedding_unref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    struct span bytes = span_of((const char *)data + 1, size - 1);
    if (data[0] == 'R') {
        check_record(bytes);
        return 0;
    }
    uint64_t tokens;
    const char *why = NULL;
    struct embedding *v = embedding_read(bytes, &tokens, &why);
    CHECK(v ? vectors_is_direction(v->x, v->dims) : why && *why);
    embedding_unref(v);
    return 0;
}
