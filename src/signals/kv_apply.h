/* SPDX-License-Identifier: Apache-2.0
 *
 * From decoded events to the KV block index: which groups of layers count, whose blocks they are (adapter,
 * salt), where a run of blocks ends because nobody's prompt can match it.
 */
#ifndef ROLTER_SIGNALS_KV_APPLY_H
#define ROLTER_SIGNALS_KV_APPLY_H

#include "balance/kv_source.h"
#include "signals/kv_decode.h"

enum { KV_GROUPS = 64 };

/* What is known of a stream's groups of layers. Only one with full attention tells whether a prompt's
 * beginning can be used again. */
struct kv_groups {
    uint64_t other; /* groups that are something else */
    int main;       /* the one that counts; -1: none has said so yet */
};
#define KV_GROUPS_NONE ((struct kv_groups){.main = -1})

struct kv_applying {
    struct kv_source *source;
    unsigned rank;
    struct kv_groups groups;
    struct kv_decoder *decoder;
};

struct kv_applied {
    bool is_batch;
    bool cleared;          /* the batch had an AllBlocksCleared in it */
    uint64_t applied, bad; /* events */
};
/* <waiting>: events before an AllBlocksCleared say nothing. */
struct kv_applied kv_apply(struct kv_applying *a, struct span payload, bool waiting);

#endif
